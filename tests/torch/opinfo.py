"""PyTorch's OpInfo database on the embedded device against the CPU: `ditorch test-device` for `make test`.

    python tests/torch/opinfo.py --all --json out    every entry in float32, and a few samples of one other dtype
    python tests/torch/opinfo.py --full --json out   every entry in every dtype with all samples
    python tests/torch/opinfo.py --ops add,fft.*     words of `ditorch test-device --help`

docs/test-device.md tells what is compared; python/ditorch/device_suite/expect/host.toml what may fail and why.
"""

import os
import sys

os.environ["DITORCH_BANNER"] = "0"


def main(words):
    scopes = {"--all": ["--quick"], "--full": []}
    words = [part for word in words for part in scopes.get(word, [word])]
    from ditorch.device_suite import main as device_suite

    return device_suite.main(words)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(main(sys.argv[1:]))
