"""`python -m ditorch`: the program sees what it would see under python itself."""

import subprocess
import sys

import pytest
from conftest import child_environment

REPORT = """
import sys, json
names = [__name__, globals().get("__file__"), __spec__ and __spec__.name, __package__, "__doc__" in globals()]
print(json.dumps([sys.argv, sys.path[0], *names]))
"""


def run(arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=600,
        env=child_environment(DITORCH_BANNER="0", **environment),
    )


def run_both(arguments, cwd, options=()):
    """The same program under python and under ditorch (which here changes nothing: the comparison is of the
    launcher)."""
    return run(arguments, cwd), run(["-m", "ditorch", *options, *arguments], cwd)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "script.py").write_text(REPORT)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(REPORT)
    (tmp_path / "package" / "part.py").write_text(REPORT)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["sub/script.py", "a", "--set", "b"],
        ["-m", "package", "-m", "x"],
        ["-m", "package.part", "doctor"],
        ["-c", REPORT, "one", "-c"],
        ["package", "dir"],
    ],
    ids=["script", "package", "module", "code", "folder"],
)
def test_program_sees_what_python_shows(place, arguments):
    plain, ours = run_both(arguments, place, ["--backend", "none"])
    assert plain.returncode == ours.returncode == 0, ours.stderr
    assert ours.stdout == plain.stdout and ours.stderr == plain.stderr


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    raise ValueError('boom')\nf()\n",
        "import sys\nsys.exit(7)\n",
        "import sys\nsys.exit('a message')\n",
        "x = = 1\n",
        "raise KeyboardInterrupt\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('chained') from e\n",
        "import atexit\nname = 'kept'\natexit.register(lambda: print(name))\n",
    ],
    ids=["traceback", "status", "message", "syntax", "interrupt", "chain", "atexit"],
)
def test_ends_as_python_ends(tmp_path, text):
    (tmp_path / "script.py").write_text(text)
    plain, ours = run_both(["script.py"], tmp_path, ["--backend", "none"])
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.parametrize("arguments, status", [(["missing.py"], 2), (["-m", "missing_module"], 1), (["sub"], 1)])
def test_missing_program(place, arguments, status):
    plain, ours = run_both(arguments, place, ["--backend", "none"])
    assert plain.returncode == ours.returncode == status
    assert ours.stderr == plain.stderr


def test_cuda_script_runs_unchanged(tmp_path):
    (tmp_path / "train.py").write_text(
        "import sys, pickle, torch\n"
        "class Kept:\n    pass\n"
        "assert type(pickle.loads(pickle.dumps(Kept()))) is Kept\n"
        "print(torch.cuda.get_device_capability(), torch.ones(2).cuda().sum().item())\n"
        "print(sys.argv[1:], 'ditorch' in sys.argv[0])\n"
    )
    answer = run(["-m", "ditorch", "train.py", "--lr", "1"], tmp_path)
    assert answer.stdout.splitlines() == ["(8, 0) 2.0", "['--lr', '1'] False"] and answer.returncode == 0, answer.stderr
    answer = run(["-m", "ditorch", "--set", "host_devices=2", "run", "train.py"], tmp_path)
    assert answer.returncode == 0


@pytest.mark.parametrize(
    "arguments, word",
    [
        ([], "nothing to run"),
        (["--frob", "x.py"], "--frob"),
        (["--set", "novalue", "x.py"], "NAME=VALUE"),
        (["--backend"], "expected one argument"),
        (["-m"], "argument expected for the -m option"),
        (["doctor", "--frob"], "--frob"),
        (["--set", "nonsense=1", "-c", "pass"], "nonsense"),
        (["--backend", "tpu", "-c", "pass"], "tpu"),
        (["--config", "/nowhere.toml", "options"], "/nowhere.toml"),
    ],
)
def test_wrong_use_is_status_2(tmp_path, arguments, word):
    answer = run(["-m", "ditorch", *arguments], tmp_path)
    assert answer.returncode == 2 and word in answer.stderr and "Traceback" not in answer.stderr


def test_verbs(tmp_path):
    import ditorch

    answer = run(["-m", "ditorch", "version"], tmp_path)
    assert answer.stdout.strip() == f"ditorch {ditorch.__version__}"
    assert run(["-m", "ditorch", "--version"], tmp_path).stdout == answer.stdout
    answer = run(["-m", "ditorch", "--set", "host_devices=5", "options"], tmp_path)
    line = next(line for line in answer.stdout.splitlines() if line.startswith("host_devices"))
    assert line.split()[:4] == ["host_devices", "5", "argument", "DITORCH_HOST_DEVICES"]
    assert "usage:" in run(["-m", "ditorch", "--help"], tmp_path).stdout


def test_a_script_named_like_a_verb_runs_with_run(tmp_path):
    (tmp_path / "version").write_text("print('my program')\n")
    assert run(["-m", "ditorch", "--backend", "none", "run", "version"], tmp_path).stdout.strip() == "my program"


def test_the_installed_command(tmp_path):
    """The console script reads its options before anything is installed."""
    (tmp_path / "ditorch").write_text("import sys\nfrom ditorch.__main__ import main\nsys.exit(main())\n")
    program = "import torch, sys; print(torch.cuda.device_count(), sys.argv); 1 / 0"
    answer = run(["ditorch", "--set", "host_devices=2", "-c", program, "a"], tmp_path)
    assert answer.stdout.strip() == "2 ['-c', 'a']" and answer.returncode == 1
    assert answer.stderr.splitlines()[1] == '  File "<string>", line 1, in <module>'
    assert run(["ditorch", "version"], tmp_path).stdout.startswith("ditorch ")


def test_options_of_a_tool(python):
    text = python("-m", "ditorch", "options", "capture", OP_CAPTURE_LAYOUT="packed").stdout
    assert "layout" in text and "packed" in text and "OP_CAPTURE_LAYOUT" in text and "environment" in text
    answer = python("-m", "ditorch", "options", "nothing", check=False)
    assert answer.returncode == 2 and "'nothing' is unknown; valid: autocompare, capture" in answer.stderr
