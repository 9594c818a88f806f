"""A program from the nursery sees what it would see in an interpreter of its own, and ends in the same ways."""

import concurrent.futures
import json
import subprocess

import pytest
from conftest import child_environment, run_python, start_nursery
from nursery import can_be_born

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
    assert can_be_born(text, child_environment(**changes), child_environment()) is can
