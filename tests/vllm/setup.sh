#!/bin/sh
# vLLM in an environment of its own that shares torch and transformers with .venv. The wheel's CUDA kernels stay unused:
# of its requirements those are installed that it imports without a GPU.
# Usage: tests/vllm/setup.sh FOLDER PYTHON
set -e
folder=$1
python=$2
test ! -e "$folder/ready" || exit 0
packages() { "$1" -c 'import site; print(site.getsitepackages()[0])'; }
"$python" -m venv "$folder"
packages "$python" > "$(packages "$folder/bin/python")/shared.pth"
"$folder/bin/pip" install -q --no-deps vllm==0.30.0 compressed-tensors==0.17.0 depyf==0.20.0 xgrammar apache-tvm-ffi \
    triton==3.6.0 loguru astor
"$folder/bin/pip" install -q cachetools psutil sentencepiece requests tqdm blake3 py-cpuinfo protobuf fastapi aiohttp \
    "openai>=2.25" pydantic prometheus_client pillow prometheus-fastapi-instrumentator tiktoken partial-json-parser \
    jsonschema pyzmq msgspec pyyaml einops cloudpickle watchfiles python-json-logger ninja pybase64 cbor2 setproctitle \
    openai-harmony gguf "setuptools<81"
touch "$folder/ready"
