#!/bin/bash
# The device alias on small libraries that import c10's functions as PyTorch's do, in every way a linker can arrange it.
#   run.sh            cross-compiled for aarch64, run under qemu-user
#   run.sh native     the same with the machine's own compiler
#   run.sh [native] --c-tests    also libdit's C tests (the cross build takes some minutes)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${BUILD:-$root/build/alias_aarch64}
compiler="aarch64-linux-gnu-gcc"
runner="qemu-aarch64 -L /usr/aarch64-linux-gnu"
tests=no
for word in "$@"; do
  case $word in
    native) compiler=${CC:-cc} runner="" work=$work-native ;;
    --c-tests) tests=yes ;;
    *) echo "run.sh: unknown word '$word'; valid: native, --c-tests" >&2; exit 2 ;;
  esac
done

missing=""
if [ -n "$runner" ]; then
  command -v aarch64-linux-gnu-gcc >/dev/null || missing="$missing gcc-aarch64-linux-gnu"
  command -v qemu-aarch64 >/dev/null || missing="$missing qemu-user"
  [ -e /usr/aarch64-linux-gnu/lib/libc.so.6 ] || missing="$missing libc6-dev-arm64-cross"
fi
if [ -n "$missing" ]; then
  echo "run.sh: these packages are missing (Debian's names):$missing" >&2
  exit 2
fi

flags="-std=c11 -D_GNU_SOURCE -O2 -fPIC -fvisibility=hidden -Wall -Wextra -Wpedantic -Werror"
mkdir -p "$work"
$compiler $flags -fexceptions -I"$root/include" -I"$root/src" -I"$root/python/ext" -I"$here" -o "$work/driver" \
  "$here/driver.c" "$root"/python/ext/{alias,alias_hooks,elf_slot}.c "$root"/src/core/{error,status}.c -ldl

# build FOLDER LINKER-FLAGS MACROS: the three libraries
build() {
  local folder=$work/$1 link=$2 macros=$3
  mkdir -p "$folder"
  $compiler $flags $macros -shared -Wl,-soname,libc10.so -o "$folder/libc10.so" "$here/fake_c10.c"
  local common="$flags $macros -shared $link -L$folder"
  $compiler $common -DFAKE_CPU -Wl,-soname,libtorch_cpu.so -o "$folder/libtorch_cpu.so" "$here/fake_client.c" \
    -Wl,--no-as-needed -lc10
  $compiler $common -Wl,-soname,libtorch_python.so -o "$folder/libtorch_python.so" \
    "$here/fake_client.c" -Wl,--no-as-needed -ltorch_cpu -lc10
}

passed=0
run() {  # FOLDER MODE [TEXT]
  local folder=$work/$1
  if $runner "$work/driver" "$folder" "${@:2}"; then
    passed=$((passed + 1))
    echo "ok   $*"
  else
    echo "FAIL $*"
    exit 1
  fi
}

# What the linker made of it, so that each case is what its name says.
expect_relocation() {  # FOLDER PATTERN
  readelf -rW "$work/$1/libtorch_python.so" | grep -E "$2" | grep -q "_ZN3c106DeviceC1" ||
    { echo "FAIL $1: no relocation $2"; exit 1; }
}

jump='(AARCH64_JUMP_SL|X86_64_JUMP_SLO)' data='(AARCH64_GLOB_DA|X86_64_GLOB_DAT)'
build lazy "-Wl,-z,lazy -Wl,-z,norelro" ""
expect_relocation lazy "$jump"
run lazy works
build lazy-relro "-Wl,-z,lazy -Wl,-z,relro" ""
run lazy-relro works
build now-relro "-Wl,-z,now -Wl,-z,relro" ""
expect_relocation now-relro "$jump"
run now-relro works
build address-relro "-Wl,-z,now -Wl,-z,relro" "-fno-plt -DFAKE_NOPLT"
expect_relocation address-relro "$data"
run address-relro works
build address "-Wl,-z,lazy -Wl,-z,norelro" "-fno-plt -DFAKE_NOPLT"
run address works
build no-base "-Wl,-z,now -Wl,-z,relro" "-DFAKE_NO_BASE"
run no-base works

build no-text "-Wl,-z,lazy -Wl,--unresolved-symbols=ignore-all" "-DFAKE_NO_TEXT"
run no-text refused "Device::str"
build hidden "-Wl,-z,now -Wl,-z,relro" "-DFAKE_HIDDEN_PRINT"
run hidden refused "no import slot of operator<<(Device)"
build wide "-Wl,-z,now" "-DFAKE_WIDE_DEVICE"
run wide refused 'c10::Device("cpu") gives type'
build numbers "-Wl,-z,now" "-DFAKE_OTHER_NUMBERS"
run numbers refused 'c10::Device("cuda:3") gives type 2'
build names "-Wl,-z,now" "-DFAKE_OTHER_NAMES"
run names refused "gives 'processor', expected 'cpu'"
run now-relro patched "somebody else patched it"
run address patched "somebody else patched it"
echo "$passed cases passed"

if [ $tests = yes ]; then
  toolchain="-DCMAKE_TOOLCHAIN_FILE=$here/toolchain.cmake"
  [ -n "$runner" ] || toolchain=""
  cmake -S "$root" -B "$work/c" -G Ninja $toolchain -DDIT_WERROR=ON -DDIT_TESTS=ON -DDIT_PYTHON=OFF -DDIT_ADAPTER=OFF \
    -DDIT_INPLACE=OFF >/dev/null
  cmake --build "$work/c" >"$work/build.log" || { grep -E "error|FAILED" "$work/build.log" | head -30; exit 1; }
  # The emulator forks no process that has threads, runs no second program by itself, and knows no RLIMIT_AS.
  beyond=""
  [ -z "$runner" ] || beyond="test_record_exit test_record_writer test_store_fork test_stream test_thread_pool"
  passed=0 skipped=0 failed=""
  for program in "$work"/c/tests/c/test_* "$work"/c/tests/c/stress_*; do
    name=$(basename "$program")
    { [ -f "$program" ] && [ -x "$program" ]; } || continue
    case " $beyond " in *" $name "*) skipped=$((skipped + 1)); echo "skip $name: the emulator cannot"; continue ;; esac
    status=0
    timeout "${LIMIT:-1800}" $runner "$program" >"$work/$name.log" 2>&1 || status=$?
    if [ $status = 0 ]; then
      passed=$((passed + 1))
      echo "ok   $name"
    else
      failed="$failed $name"
      echo "FAIL $name (status $status)"
      tail -5 "$work/$name.log"
    fi
  done
  echo "$passed C tests passed, $skipped skipped, failed:${failed:- none}"
  [ -z "$failed" ]
fi
