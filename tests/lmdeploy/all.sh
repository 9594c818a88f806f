#!/bin/sh
# Every device type with every model. Usage: tests/lmdeploy/all.sh PYTHON TABLE
python=$1
table=$2
rm -f "$table"
export PYTHONPATH="$PWD/python"
failed=0
run() {
  env $(cat .venv/cpu-environment 2>/dev/null) DLINFER_VENDOR="$1" "$python" tests/lmdeploy/run.py "$@" --json "$table" \
    2>"build/lmdeploy-$1.log" | grep -E ': (right|WRONG)$' || failed=1
}
run maca
run camb
test ! -e "$table" || ! grep -q '"right": false' "$table" || failed=1
exit $failed
