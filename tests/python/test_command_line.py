"""The command line as a stranger meets it: help, wrong names, closed pipes, full disks, Ctrl-C."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import child_environment
from ditorch import cli
from ditorch.command import guard
from ditorch.command.completion import list_flags
from ditorch.command.parser import CLOSED_PIPE, INTERRUPTED, Parser, suggest
from ditorch.command.tree import COMMANDS
from report_runs import write_run


def start(*words, **options):
    environment = child_environment(DITORCH_BANNER="0", COLUMNS="80")
    return subprocess.Popen(
        [sys.executable, "-m", "ditorch", *words], text=True, stderr=subprocess.PIPE, env=environment, **options
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_and_exit_statuses_in_80_columns(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "usage: ditorch" in text and "\nexamples:\n" in text and "\nexit status:\n" in text
    lines = text.partition("examples:")[0].splitlines()  # a command of an example is not broken
    assert [line for line in lines if len(line) > 80] == []


def test_the_list_of_commands_is_the_help(capsys):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^  {name} +\w", text, re.M) for name in COMMANDS)


def test_help_imports_no_torch():
    program = (
        "import sys, ditorch.cli as cli\n"
        "from ditorch.command.tree import COMMANDS\n"
        "[cli.main([*name, '--help']) for name in ([], *([name] for name in COMMANDS))]\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    # As the `ditorch` command, whose import installs nothing.
    answer = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv[0] = '-m'; sys.orig_argv = ['', '-m', 'ditorch']\n{program}"],
        stdout=subprocess.DEVNULL,
        env=child_environment(),
    )
    assert answer.returncode == 0, "a help imports torch"


@pytest.mark.parametrize(
    "words, expected",
    [
        (["dcotor"], "did you mean 'doctor'"),
        (["replya"], "did you mean 'replay'"),
        (["doctor", "--jsno"], "did you mean '--json'"),
        (["options", "autocomapre"], "did you mean 'autocompare'"),
        (["export", "--formt", "x", "y"], "did you mean '--format'"),
        (["completion", "bsh"], "did you mean 'bash'"),
        (["conform", "rn"], "did you mean 'run'"),
        (["doctor", "--only", "x"], "belongs to --vendor"),
    ],
)
def test_wrong_names_suggest_the_right_one(words, expected, capsys):
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert expected in error and len(error.splitlines()) <= 2


def test_nothing_is_suggested_for_what_is_near_to_nothing():
    assert suggest("zzzzzz", COMMANDS) == ""


def test_an_empty_log_says_so(tmp_path, capsys):
    path = tmp_path / "empty.dlog"
    path.touch()
    assert cli.main(["export", str(path), "-o", str(tmp_path / "out.csv")]) == 0
    assert "the log is empty" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_an_unreadable_folder_says_so(tmp_path, capsys):
    tmp_path.chmod(0)
    try:
        assert cli.main(["export", str(tmp_path)]) == 2
    finally:
        tmp_path.chmod(0o700)
    assert "cannot be read" in capsys.readouterr().err


def test_a_folder_that_cannot_be_walked_says_so(tmp_path, capsys, monkeypatch):
    def walk(path, onerror):
        onerror(PermissionError(13, "Permission denied", path))
        return iter(())

    monkeypatch.setattr(os, "walk", walk)
    assert cli.main(["export", str(tmp_path)]) == 2
    assert f"folder '{tmp_path}' cannot be read: Permission denied" in capsys.readouterr().err


def test_options_fit_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["options"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []
    assert cli.main(["--set", "host_devices=3", "options", "--changed", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["ditorch"]
    assert ("host_devices", 3) in [(row["name"], int(row["value"])) for row in rows if row["name"] == "host_devices"]
    cli.main(["options", "--json"])  # and takes the option back
    capsys.readouterr()


@pytest.mark.parametrize("words", [["options"], ["man"], ["conform", "list"]])
def test_a_closed_pipe_is_silent(words):
    read, write = os.pipe()
    os.close(read)
    process = start(*words, stdout=write)
    os.close(write)
    assert process.communicate()[1] == "" and process.returncode == CLOSED_PIPE


TOLD = {
    "merge": ["RUN"],
    "export": ["RUN"],
    "report": ["RUN", "--json"],
    "compare": ["RUN", "RUN"],
    "query": ["select * from records", "RUN"],
    "conform": ["list", "--function", "Softmax"],
    "doctor": ["--vendor", "host", "--only", "copy"],
    "options": [],
    "include": [],
    "completion": ["bash"],
    "man": [],
    "version": [],
}
"""Commands that only show something, with words for them."""
WORKS = (
    "run",
    "nan",
    "bisect",
    "compile",
    "replay",
    "compare-modules",
    "test-device",
    "bench",
    "new-vendor",
    "monitor",
)
"""The others: they start programs, workers or measure."""


def test_every_command_is_in_the_matrix():
    assert sorted([*TOLD, *WORKS]) == sorted(COMMANDS)


def list_words(name, folder):
    if name == "query":
        pytest.importorskip("pyarrow")
        pytest.importorskip("duckdb")
    run = str(write_run(folder / "run"))
    return [name, *(run if word == "RUN" else word for word in TOLD[name])]


@pytest.mark.parametrize("name", TOLD)
def test_a_reader_that_goes_away(name, tmp_path, monkeypatch, capsys):
    words = list_words(name, tmp_path)
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert cli.main(words) == CLOSED_PIPE
        monkeypatch.undo()
    assert capsys.readouterr().err == ""


class Interrupting(io.TextIOWrapper):
    """A terminal on which somebody presses Ctrl-C when the first text comes."""

    def write(self, text):
        signal.raise_signal(signal.SIGINT)
        return super().write(text)


@pytest.mark.parametrize("name", [name for name in TOLD if not COMMANDS[name].at_once and name != "export"])
def test_ctrl_c_while_something_is_shown(name, tmp_path, monkeypatch, capsys):
    words = list_words(name, tmp_path)
    with open(os.devnull, "wb") as file:
        monkeypatch.setattr(sys, "stdout", Interrupting(file))
        assert cli.main(words) == INTERRUPTED
        monkeypatch.undo()
    assert capsys.readouterr().err == "ditorch: interrupted\n"


def _hear_ctrl_c():
    """A shell's background job, which the tests may be, ignores it, and so do its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.full
@pytest.mark.parametrize("verb", ["run", "nan", "bisect", "compile"])
def test_ctrl_c_in_a_program_leaves_its_results(verb, tmp_path):
    program = "import time, torch\nx = torch.ones(2).cuda() + 1\nopen('ready', 'w').close()\ntime.sleep(600)\n"
    (tmp_path / "train.py").write_text(program)
    more = {"run": ["--tool", "time", "--out", "o"], "nan": ["--out", "o"], "bisect": ["--out", "o"]}
    options = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "preexec_fn": _hear_ctrl_c}
    process = start(verb, *more.get(verb, ["--explain"]), "train.py", **options)
    end = time.monotonic() + 240
    while not (tmp_path / "ready").exists() and time.monotonic() < end:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=240)[1]
    assert process.returncode in (INTERRUPTED, -signal.SIGINT), error
    if verb in ("run", "nan"):
        (file,) = (tmp_path / "o").glob("run-r0-p*.json")
        assert json.loads(file.read_text())["counts"], error
    if verb == "bisect":
        assert "Traceback" not in error and (tmp_path / "o" / "runs.jsonl").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "w") as full:
        process = start("options", stdout=full)
        error = process.communicate()[1]
    assert error == "ditorch: the disk is full: no space left on the device\n" and process.returncode == 1


def test_ctrl_c_in_doctor_ends_it_at_once():
    process = start("doctor", stdout=subprocess.DEVNULL)
    time.sleep(0.7)  # in the import of torch, or behind it
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=600)[1]
    assert process.returncode == INTERRUPTED and error.strip() == "ditorch: interrupted"


def test_ctrl_c_elsewhere_leaves_no_traceback(capsys):
    def work():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    assert guard.run(work) == INTERRUPTED
    assert capsys.readouterr().err == "ditorch: interrupted\n"


def test_an_error_after_ctrl_c_is_not_the_error(capsys):
    def work():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("cannot load module more than once per process") from None

    assert guard.run(work) == INTERRUPTED
    assert "more than once" not in capsys.readouterr().err


def test_other_errors_pass_through():
    with pytest.raises(ZeroDivisionError):
        guard.run(lambda: 1 // 0)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS) and "allow-failed" in text
    if shell == "bash":
        program = f"{text}\nCOMP_WORDS=(ditorch doctor --js); COMP_CWORD=2; _ditorch; echo ${{COMPREPLY[@]}}"
        assert subprocess.run(["bash", "-c", program], capture_output=True, text=True).stdout == "--json\n"


def test_man_page_has_every_command_and_option(capsys):
    assert cli.main(["man"]) == 0
    text = capsys.readouterr().out
    for command in COMMANDS.values():
        assert f".SH {command.name.upper()}".replace("-", "\\-") in text
        for flag in list_flags(command):
            assert flag.replace("-", "\\-") in text or flag == "--help"


def test_a_parser_names_the_valid_choices(capsys):
    parser = Parser("x", "y")
    parser.add_argument("--sort", choices=("time", "count"))
    with pytest.raises(SystemExit):
        parser.parse_args(["--sort", "tmie"])
    assert "invalid choice: 'tmie'; did you mean 'time'? (valid: time, count)" in capsys.readouterr().err


# Strangers


VERBS = ("run", "list", "show", "pack", "mutate", "derive", "device")


@pytest.mark.parametrize("words", [*(("conform", verb) for verb in VERBS), ("bench", "--model"), ("bench", "infer")])
def test_commands_below_commands_have_help_with_examples(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([*words, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"examples:\n  ditorch {' '.join(words[:2])}" in out
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("  ditorch")), out


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("report", "foreign.txt"), 1, "nothing could be read: 'foreign.txt' is not a record log"),
        (("replay", "foreign.txt"), 2, "'foreign.txt' is no captured call (input.pth), no container"),
        (("bench", "foreign.txt"), 2, "'foreign.txt' is no captured call"),
        (("conform", "run", "--pack", "nothere"), 2, "ditorch conform: No such file or directory ('nothere')"),
        (("conform", "run", "--skip", "foreign.txt"), 2, "foreign.txt: this is no JSON"),
        (("conform", "run", "--skip", "nothere"), 2, "nothere: No such file or directory"),
        (("conform", "run", "--function", "Sofmax"), 2, "did you mean 'diopiSoftmax'"),
        (("conform", "show", "diopiSofmax/x"), 2, "did you mean 'diopiSoftmax'"),
        (("test-device", "--load", "no_such_module", "--ops", "add"), 2, "--load names the module that provides"),
        (("run", "--tool", "nosuch", "x.py"), 2, "there is no tool 'nosuch'; valid: autocompare"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_missing_and_foreign_files_and_wrong_names(words, status, text, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "foreign.txt").write_text("hello world\n")
    assert cli.main(list(words)) == status
    answer = capsys.readouterr()
    assert text in answer.err and "Traceback" not in answer.err and "Errno" not in answer.err
    assert not answer.out and sorted(os.listdir(tmp_path)) == ["foreign.txt"]


def test_version_and_include_as_objects(capsys):
    assert cli.main(["version", "--json"]) == 0 and cli.main(["include", "--json"]) == 0
    version, include = map(json.loads, capsys.readouterr().out.splitlines())
    assert set(version) == {"ditorch", "python"} and os.path.isdir(os.path.join(include["headers"], "dit"))


def test_the_doctors_example_names_a_slot(capsys):
    command = next(text for text, _ in COMMANDS["doctor"].make_parser().examples if "--only" in text)
    assert cli.main(command.split()[1:]) == 0
    assert "  copy: ok" in capsys.readouterr().out
