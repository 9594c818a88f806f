#!/bin/sh
# Every device type with every model. Usage: tests/lmdeploy/all.sh PYTHON TABLE
python=$1
table=$2
rm -f "$table"
export PYTHONPATH="$PWD/python"
failed=0
run() {
  env $(cat .venv/cpu-environment 2>/dev/null) "$python" tests/lmdeploy/run.py "$@" \
    >build/lmdeploy.out 2>"build/lmdeploy-$1.log" || failed=1
  grep -E ': (right|WRONG|noticed|NOT NOTICED)$' build/lmdeploy.out || failed=1
}
for device in ascend maca camb; do
  run $device --json "$table"
  run $device --graph --json "$table"
done
run maca --faults
run maca --graph --faults
exit $failed
