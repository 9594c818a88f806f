#!/bin/sh
# LMDeploy 0.17.0 in an environment of its own that shares torch and transformers with .venv; its declared versions of
# torch do not matter. Usage: tests/lmdeploy/setup.sh FOLDER PYTHON
set -e
folder=$1
python=$2
test ! -e "$folder/ready" || exit 0
"$python" -m venv "$folder"
"$python" -c 'import site; print(site.getsitepackages()[0])' > "$("$folder/bin/python" -c 'import site; print(site.getsitepackages()[0])')/shared.pth"
"$folder/bin/pip" install -q --no-deps lmdeploy==0.17.0 xgrammar apache-tvm-ffi triton==3.6.0 peft
"$folder/bin/pip" install -q fire mmengine-lite fastapi uvicorn openai pydantic sentencepiece tiktoken shortuuid einops \
  protobuf pybase64 msgpack aiohttp requests tqdm pyzmq prometheus_client partial_json_parser openai_harmony ray cloudpickle
touch "$folder/ready"
