"""A program that answers a few prompts with LMDeploy and ends: something to put ditorch's tools on.

python -m ditorch run --tool time tests/lmdeploy/serve_like.py maca mixtral
"""

import asyncio
import sys
import tempfile

import dlinfer  # the device first
import engines
import models


def main() -> None:
    device, kind = sys.argv[1:]
    dlinfer.use_vendor(device)
    asyncio.set_event_loop(asyncio.new_event_loop())
    with tempfile.TemporaryDirectory() as folder:
        models.make(kind, folder)
        with engines.open_engine(folder, device) as engine:
            for answer in engines.ask_all(engine, [engines.Ask(prompt, 3) for prompt in engines.PROMPTS]):
                print(answer.status, answer.tokens)


if __name__ == "__main__":
    main()
