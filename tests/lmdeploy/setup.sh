#!/bin/sh
# LMDeploy in an environment of its own that shares torch and transformers with .venv; its declared versions of torch
# do not matter. Another version than 0.17.0 shares the rest with the environment of 0.17.0, which must be there.
# Usage: tests/lmdeploy/setup.sh FOLDER PYTHON [VERSION FOLDER_OF_0.17.0]
set -e
folder=$1
python=$2
version=${3:-0.17.0}
test ! -e "$folder/ready" || exit 0
packages() { "$1" -c 'import site; print(site.getsitepackages()[0])'; }
"$python" -m venv "$folder"
packages "$python" > "$(packages "$folder/bin/python")/shared.pth"
if test -n "$4"; then
  packages "$4/bin/python" >> "$(packages "$folder/bin/python")/shared.pth"
  "$folder/bin/pip" install -q --no-deps "lmdeploy==$version"
else
  "$folder/bin/pip" install -q --no-deps "lmdeploy==$version" xgrammar apache-tvm-ffi triton==3.6.0 peft
  "$folder/bin/pip" install -q fire mmengine-lite fastapi uvicorn openai pydantic sentencepiece tiktoken shortuuid \
    einops protobuf pybase64 msgpack aiohttp requests tqdm pyzmq prometheus_client partial_json_parser openai_harmony \
    ray cloudpickle
fi
touch "$folder/ready"
