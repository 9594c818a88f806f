#!/bin/sh
# Everything of vendors/cuda on a machine with an NVIDIA GPU, in one command (make test-cuda): build with kernels, device tests,
# the conformance suite for what the library has, operators side by side with PyTorch's own CUDA where that is there.
# Needs nvcc, cmake, ninja and a python3 with torch; nothing is installed. Reports: build/cuda/*.json.
set -e
PYTHON=${PYTHON:-python3}
JOBS=${JOBS:-$(nproc)}
SHARE=${SHARE:-0.3}
cmake -S . -B build/cuda -G Ninja -DDIT_ADAPTER=OFF -DDIT_TESTS=ON -DDIT_WERROR=ON -DDIT_CUDA_KERNELS=ON -DPython_EXECUTABLE="$(command -v "$PYTHON")"
cmake --build build/cuda -j "$JOBS" --target package_libraries test_cuda_vendor
build/cuda/tests/c/test_cuda_vendor # over the emulated driver: is the build sound?
export PYTHONPATH="$PWD/python" DITORCH_BACKEND=none
functions=$(sed -n 's/^CUDA_FUNCTION(\([A-Za-z0-9_]*\),.*/\1/p' vendors/cuda/functions.inc)
"$PYTHON" -m ditorch conform device --library cuda --vendor cuda
# shellcheck disable=SC2086
"$PYTHON" -m ditorch conform run --library cuda --vendor cuda --share "$SHARE" --jobs 4 --quiet --failures 5 \
  --json build/cuda/conform.json --function $functions
"$PYTHON" bench/cuda_ops.py --json build/cuda/bench.json
