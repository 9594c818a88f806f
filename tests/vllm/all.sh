#!/bin/sh
# Models, cases, a server, and broken operators. Usage: tests/vllm/all.sh PYTHON
python=$1
export PYTHONPATH="$PWD/python"
failed=0
run() {
  log="build/vllm-$1.log"
  shift
  env $(cat .venv/cpu-environment 2>/dev/null) "$python" "$@" >"$log" 2>&1 || failed=1
  grep -E ': (right|WRONG|noticed|NOT NOTICED)$|^operators of' "$log" || failed=1
}
run models tests/vllm/run.py
run cases tests/vllm/run.py --cases
VLLM_ENABLE_V1_MULTIPROCESSING=1 run process tests/vllm/run.py llama
run server tests/vllm/server.py
run faults tests/vllm/run.py --faults
exit $failed
