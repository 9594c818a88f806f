#!/bin/sh
# vLLM in an environment of its own that shares torch and transformers with .venv. The wheel's CUDA kernels stay unused;
# of its requirements those are installed that it imports without a GPU. ditorch's entry point comes from pyproject.toml
# by a folder of metadata, so that the package of this tree is found (PYTHONPATH) without being installed.
# Usage: tests/vllm/setup.sh FOLDER PYTHON
set -e
folder=$1
python=$2
test ! -e "$folder/ready" || exit 0
packages() { "$1" -c 'import site; print(site.getsitepackages()[0])'; }
"$python" -m venv "$folder"
site=$(packages "$folder/bin/python")
packages "$python" > "$site/shared.pth"
"$folder/bin/pip" install -q --no-deps vllm==0.30.0 compressed-tensors==0.17.0 depyf==0.20.0 astor loguru xgrammar \
    apache-tvm-ffi triton==3.6.0 lm-format-enforcer==0.11.3 interegular mistral_common model-hosting-container-standards
"$folder/bin/pip" install -q cachetools psutil sentencepiece requests tqdm blake3 py-cpuinfo protobuf fastapi uvicorn \
    uvloop httptools websockets python-multipart aiohttp openai pydantic pydantic-extra-types pycountry jmespath \
    prometheus_client prometheus-fastapi-instrumentator pillow tiktoken partial-json-parser jsonschema pyzmq msgspec \
    pyyaml einops cloudpickle watchfiles python-json-logger ninja pybase64 cbor2 ijson setproctitle openai-harmony gguf \
    llguidance lark==1.2.2 outlines_core==0.2.14 "setuptools<81"
"$python" - "$site" <<'EOF'
import pathlib, sys
try:
    import tomllib
except ImportError:
    import tomli as tomllib
points = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]["entry-points"]["vllm.platform_plugins"]
folder = pathlib.Path(sys.argv[1], "ditorch-0.dist-info")
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ditorch\nVersion: 0\n")
lines = [f"{name} = {value}" for name, value in points.items()]
(folder / "entry_points.txt").write_text("\n".join(["[vllm.platform_plugins]", *lines, ""]))
EOF
touch "$folder/ready"
