#!/bin/sh
# Build the library, exercise every slot of it, train on it.
set -e
cd "$(dirname "$0")"
python=${PYTHON:-python}
${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -fvisibility=hidden -fPIC -shared -pthread \
  -I"$($python -m ditorch include)" vendor.c -o libdit_vendor_mychip.so
$python -m ditorch doctor --vendor ./libdit_vendor_mychip.so
$python -m ditorch --backend host --set vendor="$PWD/libdit_vendor_mychip.so" train.py
