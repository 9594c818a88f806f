#!/bin/sh
# Every device type with every model, then the cases of the engine. Usage: tests/lmdeploy/all.sh PYTHON MODELS CASES
python=$1
export PYTHONPATH="$PWD/python"
failed=0
run() {
  script=$1
  shift
  env $(cat .venv/cpu-environment 2>/dev/null) "$python" "tests/lmdeploy/$script.py" "$@" \
    >build/lmdeploy.out 2>"build/lmdeploy-$script-$1.log" || failed=1
  grep -E ': (right|WRONG|noticed|NOT NOTICED)$' build/lmdeploy.out || failed=1
}
rm -f "$2" "$3"
for device in ascend maca camb; do
  run run $device --json "$2"
  run run $device --graph --json "$2"
  run cases $device --json "$3"
  run cases $device --graph --json "$3"
done
run run maca --faults
run run maca --graph --faults
run cases maca --faults
run cases ascend kv-int8 --faults
exit $failed
