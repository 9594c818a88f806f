#!/bin/sh
# Everything of vendors/cuda on a machine with an NVIDIA GPU, in one command (make test-cuda): build with kernels, device tests, the
# doctor, conformance suite for what the library has, operator database in three dtypes, small models trained, OpAutoCompare on sound
# and on broken operators, operators and training steps side by side with PyTorch's own CUDA where
# that is there.
# Needs nvcc, cmake, ninja and a python3 with torch; nothing is installed. Reports: build/cuda/*.json. A part that fails does not stop
# the others. SHARE: of the conformance cases; PARTS: some of "doctor device conform database models silent
# faults compile bench steps speed".
PYTHON=${PYTHON:-python3}
JOBS=${JOBS:-$(nproc)}
SHARE=${SHARE:-0.3}
PARTS=${PARTS:-doctor device conform database models silent faults compile bench steps speed}
failed=""

run() { # NAME COMMAND...
  name=$1
  shift
  case " $PARTS " in
    *" $name "*) ;;
    *) return ;;
  esac
  printf '\n== %s\n' "$name"
  start=$(date +%s)
  "$@" || failed="$failed $name"
  printf '%s: %s s\n' "$name" $(($(date +%s) - start))
}

set -e
cmake -S . -B build/cuda -G Ninja -DDIT_TESTS=ON -DDIT_WERROR=ON -DDIT_CUDA_KERNELS=ON -DPython_EXECUTABLE="$(command -v "$PYTHON")"
cmake --build build/cuda -j "$JOBS" --target package_libraries test_cuda_vendor test_cuda_random
build/cuda/tests/c/test_cuda_vendor # over the emulated driver: is the build sound?
build/cuda/tests/c/test_cuda_random
set +e
export PYTHONPATH="$PWD/python"
functions=$(sed -n 's/^CUDA_FUNCTION(\([A-Za-z0-9_]*\),.*/\1/p' vendors/cuda/functions.inc)
run doctor env DITORCH_BACKEND=none "$PYTHON" -m ditorch doctor --vendor cuda
run device env DITORCH_BACKEND=none "$PYTHON" -m ditorch conform device --library cuda --vendor cuda
# shellcheck disable=SC2086
run conform env DITORCH_BACKEND=none "$PYTHON" -m ditorch conform run --library cuda --vendor cuda --side-stream --share "$SHARE" --jobs 4 --quiet \
  --failures 5 --json build/cuda/conform.json --function $functions
run database env DITORCH_BACKEND=nvidia "$PYTHON" tests/torch/opinfo.py --dtypes float32,bfloat16,float16 --jobs 4 \
  --json build/cuda/opinfo.json
run models env DITORCH_BACKEND=nvidia "$PYTHON" tests/python/cuda_models.py gpt llama images vit experts unet recurrent gpt:float16 \
  llama:bfloat16 images:bfloat16 vit:bfloat16 experts:bfloat16
run silent env DITORCH_BACKEND=nvidia "$PYTHON" bench/false_alarms.py --samples 2 --seeds 1
run faults env DITORCH_BACKEND=nvidia "$PYTHON" bench/faultlab/run.py --faults 100 --clean 16 --jobs 4 --fresh \
  --out build/cuda/faultlab.jsonl
run compile env DITORCH_BACKEND=nvidia sh -c '"$0" tests/python/cuda_graphs.py && "$0" tests/python/random_graphs.py --seed 40 --count 40' \
  "$PYTHON"
run bench env DITORCH_BACKEND=none "$PYTHON" bench/cuda_ops.py --json build/cuda/bench.json
run steps "$PYTHON" bench/cuda_steps.py --json build/cuda/steps.json
run speed "$PYTHON" bench/cuda_compile.py --json build/cuda/compile.json
if [ -n "$failed" ]; then
  echo "failed:$failed"
  exit 1
fi
