"""torch.compile where things go wrong: threads at once, a fork, Ctrl-C while the compiler works, caches that cannot be
written. What may happen is slower, or one sentence; never a wrong number, and never a hang."""

import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time

import ditorch  # noqa: F401
import pytest
import torch
from conftest import child_environment, run_python

HEAD = """
import torch
import ditorch
import os, resource, signal, sys, time
from ditorch import graph

def function(x):
    return torch.softmax(x.tanh() * 2 + 1, -1)  # generated code may take its place

x = torch.randn(64, 33, device="cuda")
wanted = function(x)
compiled = torch.compile(function, backend="dit")
"""
FUNCTIONS = [
    lambda x: torch.softmax(x.sin() * 2, -1),
    lambda x: (x.exp() + 1).log().sum(0),
    lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]) + x.mean(),
    lambda x: torch.where(x > 0, x.tanh(), x * x).T @ x,
]


def test_threads_compile_different_functions_at_once():
    torch._dynamo.reset()
    together, failed = threading.Barrier(len(FUNCTIONS)), []

    def work(function):
        try:
            x = torch.randn(24, 17, device="cuda", requires_grad=True)
            compiled = torch.compile(function, backend="dit")
            together.wait()
            for _ in range(3):
                mine, wanted = compiled(x), function(x)
                torch.testing.assert_close(mine, wanted)
                left, right = (torch.autograd.grad(y.sum(), x)[0] for y in (mine, wanted))
                torch.testing.assert_close(left, right)
        except BaseException as error:
            failed.append(error)
            together.abort()

    threads = [threading.Thread(target=work, args=(function,)) for function in FUNCTIONS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


FORK = """
for _ in range(3):
    compiled(x)
ways = [
    lambda: compiled(x),
    lambda: torch.compile(lambda a: a.cos() + 1, backend="dit")(x),
    lambda: torch.compile(lambda a: a.exp() + 1, backend="dit")(torch.randn(4, device="cuda")),
]
for way in ways:
    child = os.fork()
    if not child:
        try:
            way()
        except BaseException as error:
            count = str(error).count("Cannot re-initialize CUDA in forked subprocess")
            os.write(1, f"said {count} times\\n".encode())
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
torch.testing.assert_close(compiled(x), wanted)
print("parent goes on")
"""


def make_compiler(folder, body):
    """A C compiler that is a script."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def make_private(path):
    path.mkdir(mode=0o700)
    return str(path)


LONG = pytest.mark.full  # children that import torch anew


@pytest.mark.parametrize("busy", [pytest.param(False, marks=LONG), True])
def test_a_forked_child_is_refused_in_a_sentence(busy, tmp_path):
    """Also while the compiler's thread is at work in the parent."""
    more = {}
    if busy:
        compiler = make_compiler(tmp_path, 'sleep 2\nexec cc "$@"')
        more = {"DITORCH_HOST_COMPILER": compiler, "DITORCH_HOST_CACHE": make_private(tmp_path / "code")}
    lines = run_python(HEAD + FORK, **more).stdout.splitlines()
    assert len(lines) == 4 and lines[-1] == "parent goes on", lines
    assert all(line == "said 1 times" for line in lines[:3])


INTERRUPTED = """
kept = graph.keep()
for _ in range(3):
    compiled(x)
while not os.path.exists(sys.argv[1]):  # until the compiler is at work
    compiled(x)
    time.sleep(0.01)
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs of a shell
try:
    print("ready", flush=True)
    while True:
        compiled(x)
except KeyboardInterrupt:
    print("interrupted", flush=True)
torch.testing.assert_close(compiled(x), wanted)
print("right", flush=True)
for _ in range(2000 if sys.argv[2:] else 0):  # it is compiled after all
    compiled(x)
    graph.settle()
    if all(step["runs"] == "c" for step in kept[0].describe()[0]["steps"]):
        torch.testing.assert_close(compiled(x), wanted)
        print("again", flush=True)
        break
    time.sleep(0.01)
"""


@pytest.mark.parametrize("whole_group", [True, pytest.param(False, marks=LONG)])
def test_ctrl_c_while_the_compiler_sleeps(whole_group, tmp_path):
    """From a terminal the compiler is interrupted too, and runs again; from `kill -INT` it is not, and is not waited
    for."""
    started = tmp_path / "started"
    compiler = make_compiler(tmp_path, f'test -e "{started}" && exec cc "$@"\n: > "{started}"\nexec sleep 600')
    settings = {"DITORCH_HOST_COMPILER": compiler, "DITORCH_HOST_CACHE": make_private(tmp_path / "code")}
    again = ["again"] if whole_group else []
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(HEAD + INTERRUPTED), str(started), *again],
        stdout=subprocess.PIPE, text=True, start_new_session=True, env=child_environment(**settings),
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        begin = time.monotonic()
        rest, _ = process.communicate(timeout=500)
        assert rest.split() == ["interrupted", "right", *again] and process.returncode == 0
        assert time.monotonic() - begin < 500, "the compiler would have slept for 600 s"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


CACHES = """
if sys.argv[1:]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
for _ in range(4):
    torch.testing.assert_close(compiled(x), wanted)
    graph.settle()
y = x.clone().requires_grad_()
compiled(y).square().sum().backward()
z = x.clone().requires_grad_()
function(z).square().sum().backward()
torch.testing.assert_close(y.grad, z.grad)
print("right")
"""


@LONG
@pytest.mark.parametrize("most", [0, 20000])
def test_a_full_disk_is_slower(most, tmp_path):
    """No file can become longer than that: as on a disk that is full, before and in the middle of a write."""
    code = tmp_path / "code"
    settings = {"DITORCH_HOST_CACHE": make_private(code), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch")}
    done = run_python(HEAD + CACHES, most, warm=False, **settings)
    assert done.stdout == "right\n"
    assert not list(code.glob("*.so")) or most, "what could not be written is not there"
    done = run_python(HEAD + CACHES, warm=False, **settings)  # and what was left behind does no harm
    assert done.stdout == "right\n"


@LONG
def test_caches_that_cannot_be_written(tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    for place in ("/proc/ditorch", str(file / "below")):  # nobody can write to /proc, the superuser neither
        done = run_python(HEAD + CACHES, warm=False, DITORCH_HOST_CACHE=place, TORCHINDUCTOR_CACHE_DIR="/proc")
        assert done.stdout == "right\n"
