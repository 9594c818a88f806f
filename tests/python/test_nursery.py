"""A program from the nursery sees what it would see in an interpreter of its own, and ends in the same ways."""

import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import child_environment, run_python, start_nursery, warm_interpreter
from nursery import INTERPRETER, Nursery, can_be_born

FACTS = """
import atexit, json, os, signal, sys, threading, warnings
import torch
class Late:
    def __del__(self): print("late")
late = Late()
atexit.register(lambda: print("at exit"))
warnings.warn("unseen")
print("to stderr", file=sys.stderr)
names = sorted(set(globals()) - {"__annotations__", "__loader__"})
facts = {
    "argv": sys.argv, "names": names, "name": __name__, "path": sys.path, "cwd": os.getcwd(), "spec": __spec__,
    "environment": dict(os.environ), "flags": str(sys.flags), "options": sys.warnoptions, "input": sys.stdin.read(),
    "modules": sorted(name for name in sys.modules if name.partition(".")[0] in ("ditorch", "op_tools", "nursery")),
    "thread": threading.main_thread() is threading.current_thread(),
    "threads": torch.get_num_threads(), "main": sys.modules["__main__"].__dict__ is globals(),
    "handlers": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE)],
    "files": sorted(os.listdir("/proc/self/fd"))[:3], "words": sys.orig_argv[1:], "mode": torch.is_grad_enabled(),
}
print(json.dumps(facts))
print("seed", torch.initial_seed(), file=sys.stderr)
thread = threading.Thread(target=lambda: threading.Event().wait(0.05) or print("thread"))
thread.start()
sys.exit(7)
"""


def test_a_program_cannot_tell_the_difference(tmp_path):
    settings = {"check": False, "cwd": tmp_path, "DITORCH_HOST_DEVICES": 3, "OMP_NUM_THREADS": "1"}
    own, born = (run_python(FACTS, "a", "b c", warm=warm, **settings) for warm in (False, None))
    assert born.returncode == own.returncode == 7
    assert own.stderr.splitlines()[0] == born.stderr.splitlines()[0] == "to stderr"
    assert own.stderr != born.stderr and len(own.stderr.splitlines()) == len(born.stderr.splitlines()) == 2  # seeds
    mine, wanted = (json.loads(answer.stdout.splitlines()[0]) for answer in (born, own))
    assert wanted["argv"] == ["-c", "a", "b c"] and wanted["cwd"] == str(tmp_path)
    assert mine == wanted
    assert born.stdout.splitlines()[1:] == own.stdout.splitlines()[1:] == ["thread", "at exit", "late"]


def test_scripts_and_modules(tmp_path):
    (tmp_path / "part.py").write_text("import sys\nfrom beside import word\nprint(__name__, __file__, sys.argv, word)")
    (tmp_path / "beside.py").write_text("word = 'found'")
    path = str(tmp_path / "part.py")
    for words, cwd in ((["-m", "part", "x"], tmp_path), ([path, "x"], "/")):
        own, born = (run_python(*words, cwd=cwd, warm=warm).stdout for warm in (False, True))
        assert born == own == f"__main__ {path} ['{path}', 'x'] found\n"


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("raise ValueError('mine')", 1, "ValueError: mine"),
        ("import sys; sys.exit('a word')", 1, "a word"),
        ("import os; os._exit(9)", 9, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11, ""),
        ("1 +", 1, "SyntaxError"),
    ],
)
def test_every_end_is_told(text, status, said):
    answer = start_nursery().run("-c", "import torch\n" + text)
    assert answer.returncode == status and said in answer.stderr


def test_a_program_that_does_not_end_is_ended():
    with pytest.raises(subprocess.TimeoutExpired):
        start_nursery().run("-c", "import time\nprint('x', flush=True)\ntime.sleep(600)", timeout=0.5)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda n: start_nursery().run("-c", f"print({n} * 'x' * 100000)").stdout, range(8))
        assert [len(answer) for answer in answers] == [n * 100000 + 1 for n in range(8)]


@pytest.mark.parametrize(
    ("text", "changes", "can"),
    [
        ("import torch", {}, True),
        ("'''About.'''\nimport os, json\nfrom sys import argv\nimport torch.nn, ditorch", {}, True),
        ("from torch import nn", {"DITORCH_ALIAS": "python", "DIPU_DUMP_OP_ARGS": "1"}, True),
        ("import ditorch, torch", {}, False),
        ("import sys\nassert 'torch' not in sys.modules\nimport torch", {}, False),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '2'\nimport torch", {}, False),
        ("print(1)", {}, False),
        ("import torch\nif", {}, False),
        ("import torch", {"OMP_NUM_THREADS": "2"}, False),
        ("import torch", {"LD_PRELOAD": "x.so"}, False),
        ("import torch", {"PYTHONPATH": None}, False),
        ("import torch", {"DITORCH_AUTOLOAD": "1"}, False),
    ],
)
def test_which_programs_are_taken(text, changes, can):
    assert can_be_born(["-c", text], child_environment(**changes), child_environment()) is can


def test_which_modules_are_taken():
    ours, plain = ["-m", "ditorch", "options"], child_environment()
    assert can_be_born(ours, child_environment(COLUMNS=80, DITORCH_BANNER=0), plain)
    assert not can_be_born(ours, child_environment(OMP_NUM_THREADS=2), plain)
    assert not any(can_be_born(words, plain, plain) for words in (["-m", "pytest"], ["script.py"]))


def start_born(*words, **environment):
    command, pipes = [warm_interpreter(), *words], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=child_environment(**environment), text=True, stdin=subprocess.PIPE, **pipes)


BORN = """
import json, os, sys, torch, warnings
warnings.warn("seen")
print(json.dumps([sys.argv, sys.stdin.read(), os.environ.get("RANK"), os.getcwd(), sys.stdout.write_through]))
sys.stdout.write("no newline")
os._exit(5)
"""


def test_a_stand_in_for_the_interpreter():
    answers = []
    for command in ([warm_interpreter()], [sys.executable]):
        command += ["-u", "-c", BORN, "a", "b c"]
        answers.append(
            subprocess.run(command, input="x y", capture_output=True, text=True, env=child_environment(RANK=3))
        )
    born, own = answers
    assert born.returncode == own.returncode == 5 and born.stdout == own.stdout and born.stdout.endswith("no newline")
    assert "UserWarning: seen" in born.stderr and born.stderr == own.stderr
    command = [warm_interpreter(), "-W", "ignore", "-c", BORN]
    silent = subprocess.run(command, capture_output=True, text=True, env=child_environment())
    assert "seen" not in silent.stderr and silent.returncode == 5


@pytest.mark.parametrize("environment", [{"OMP_NUM_THREADS": "3"}, {"PYTHONPATH": "/nowhere"}, {"LD_PRELOAD": ""}])
def test_what_is_read_at_the_start_gets_an_interpreter(environment):
    """The stand-in becomes the interpreter: the number of its process stays."""
    born = start_born("-c", "import os; print(os.getpid())", **environment)
    assert born.communicate()[0].strip() == str(born.pid)
    born = start_born("-c", "import os; print(os.getpid())", RANK=1)
    assert born.communicate()[0].strip() != str(born.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL])
def test_its_end_and_its_signals_are_the_childs(number):
    program = "import os, time\nprint(os.getpid(), flush=True)\n"
    born = start_born("-c", f"{program}os.kill(os.getpid(), {int(number)})\ntime.sleep(600)")
    born.communicate()
    assert born.returncode == -number
    if number != signal.SIGSEGV:  # from outside: it passes on what it can, and the nursery sees that it is gone
        born = start_born("-c", f"{program}time.sleep(600)")
        child = int(born.stdout.readline())
        born.send_signal(number)
        assert born.communicate() == ("", "") and born.returncode == -number
        end = time.monotonic() + 600
        while os.path.exists(f"/proc/{child}") and time.monotonic() < end:
            time.sleep(0.01)
        assert not os.path.exists(f"/proc/{child}")


def test_one_that_is_killed_while_it_asks_harms_nobody():
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(start_nursery().start())
    with socket.socket(socket.AF_UNIX) as connection, open(os.devnull) as file:
        connection.connect(start_nursery().start())
        socket.send_fds(connection, [(100).to_bytes(8, "little")], [file.fileno()] * 3)
        connection.sendall(b'{"words"')
    assert start_nursery().run("-c", "print(3)").stdout == "3\n"


def test_a_group_goes_with_it():
    program = "import os, time\nif os.fork(): print(os.getpgrp(), flush=True)\ntime.sleep(600)"
    settings = {"stdout": subprocess.PIPE, "start_new_session": True, "env": child_environment()}
    born = subprocess.Popen([warm_interpreter(), "-c", program], **settings)
    assert int(born.stdout.readline()) not in (os.getpgrp(), born.pid)
    os.killpg(born.pid, signal.SIGKILL)
    assert born.stdout.read() == b"" and born.wait() == -signal.SIGKILL  # nobody has the pipe any more


def test_another_nursery_is_a_process_of_its_own(warm_children):
    """Started where sys.executable is the stand-in."""
    made = Nursery(child_environment(), "torch._dynamo")
    try:
        text = "import sys; print('torch._dynamo' in sys.modules, sys.executable)"
        assert made.run("-c", text).stdout.split() == ["True", INTERPRETER] and sys.executable != INTERPRETER
    finally:
        made.close()
