"""Every documented example is true: each command line in the help, in the pages' shell blocks and in inline code is
read by the real parsers, and one example of every command is run."""

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from conftest import child_environment, run_python
from ditorch import cli
from ditorch.command import bench_infer, bench_model
from ditorch.command.parser import Parser
from ditorch.command.tree import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
ENDS = {"&&", "||", ";", "|", "&", "(", ")"}
FOREIGN = {
    "--cache-max-entry-count": "LMDeploy",
    "--captured": "the script of a repro",
    "--fmad": "nvcc",
    "--tools": "bench/faultlab/run.py",
    "--reference": "bench/faultlab/run.py",
    "--sync_time_measure": "op_tools.run_op_from_data",
    "--acc_check": "op_tools.run_op_from_data",
}
"""Flags in inline code that belong to other programs."""
WRONG = {"ditorch dcotor"}
"""Named as a mistake."""

# Reading command lines


def split_shell(line: str) -> list[list[str]]:
    """The simple commands of a line, those of `$(...)` too; without variables before them and files behind >."""
    found = []
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        found += split_shell(inner)
    line = re.sub(r"\$\(([^()]*)\)", "RESULT", line).replace("$!", "4711")
    lexer = shlex.shlex(re.sub(r"\d>&\d", "", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in ENDS:
            found.append(words)
            words = []
        elif skip or (set(word) & set("<>") and set(word) <= set("<>&")):
            skip = not skip
        elif words or not re.match(r"\w+=", word):
            words.append(word)
    return found


def find_ditorch(words: list[str]) -> list[str] | None:
    """What stands behind `ditorch`, `python -m ditorch`, or a launcher's `-m ditorch`; None for another program."""
    if words and os.path.basename(words[0]) == "ditorch":
        return words[1:]
    for at in range(len(words) - 1):
        if words[at : at + 2] == ["-m", "ditorch"]:
            return words[at + 2 :]
    return None


def list_lines(page: Path) -> list[str]:
    """Command lines of the shell blocks of a page, and of `run:` in its jobs."""
    lines = []
    for kind, text in BLOCK.findall(page.read_text()):
        if kind not in ("sh", "yaml"):
            continue
        text = re.sub(r"\\\n\s*", "", text)
        for line in text.splitlines():
            line = re.sub(r"^\s*(- )?run: ", "", line) if kind == "yaml" else line
            if re.search(r"(^|[\s/(])ditorch\s", line):
                lines.append(line.removeprefix("$ "))
    return lines


def join_open(line: str) -> str:
    """A line whose quotation goes on in the next one ends with it."""
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return line + '"'
    return line


def list_parsers(parser: Parser) -> list[Parser]:
    """Of a command, and of the commands below it."""
    found = [parser]
    for action in parser._actions:
        if hasattr(action, "choices") and isinstance(action.choices, dict):
            found += [below for below in action.choices.values() if isinstance(below, Parser)]
    return found


def list_rows() -> list:
    """(command line, where it stands)"""
    rows = []
    parsers = [cli.make_parser(), bench_infer.make_parser(), bench_model.make_parser()]
    for parser in itertools.chain(parsers, *(list_parsers(command.make_parser()) for command in COMMANDS.values())):
        assert parser.examples, f"{parser.prog} has no example"
        rows += [pytest.param(line, id=f"{parser.prog}-{number}") for number, (line, _) in enumerate(parser.examples)]
    for page in PAGES:
        rows += [pytest.param(line, id=f"{page.name}-{number}") for number, line in enumerate(list_lines(page))]
    return rows


def read_words(words: list[str]) -> None:
    """As cli.main does, up to the point where something would be done. SystemExit with a status: it does not parse."""
    verb, rest, _ = cli.parse(words)
    if verb in cli.PROGRAMS:
        import_module(f"ditorch.command.{verb}").parse(*cli.split(COMMANDS[verb].make_parser(), rest))
    elif verb == "compile":
        parser = COMMANDS[verb].make_parser()
        before, program = cli.split(parser, rest)
        assert program, "no program"
        parser.parse_args(before)
    elif verb == "bench" and rest[:1] == ["infer"]:
        bench_infer.make_parser().parse_args(rest[1:])
    elif verb == "bench" and "--model" in rest:
        bench_model.make_parser().parse_args(rest)
    elif verb == "bench":
        options, more = COMMANDS[verb].make_parser().parse_known_args(rest)
        COMMANDS["replay"].make_parser().parse_args([options.path, *more])
    else:
        COMMANDS[verb].make_parser().parse_args(rest)


@pytest.mark.parametrize("line", list_rows())
def test_an_example_parses(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = [found for words in split_shell(join_open(line)) if (found := find_ditorch(words)) is not None]
    assert commands, f"no command of ditorch in {line!r}"
    for words in commands:
        try:
            read_words(words)
        except SystemExit as end:
            assert not end.code, f"{line}\n{capsys.readouterr().err}"


def test_lines_are_split_as_a_shell_does():
    line = (
        """A=1 python -m ditorch run x.py > o 2>&1 && cc "-I$(ditorch include)" a.c | tee b; ditorch -c 'a && b' # c"""
    )
    assert [find_ditorch(words) for words in split_shell(line)] == [
        ["include"],
        ["run", "x.py"],
        None,
        None,
        ["-c", "a && b"],
    ]
    for wrong in (
        ["run", "--evry", "3", "x.py"],
        ["nan", "--baselin", "x.py"],
        ["report"],
        ["bench", "x", "--ope", "y"],
    ):
        with pytest.raises(SystemExit) as caught:
            read_words(wrong)
        assert caught.value.code == 2


# Inline code


def list_spans(page: Path) -> list[str]:
    """Inline code of a page, and of the strings of our own summaries."""
    text = BLOCK.sub("", page.read_text())
    return [" ".join(span.split()) for span in SPAN.findall(text)]


def list_all_flags() -> set[str]:
    parsers = [cli.make_parser(), bench_infer.make_parser(), bench_model.make_parser()]
    parsers += [command.make_parser() for command in COMMANDS.values()]
    return {flag for parser in parsers for flag in parser.list_flags()}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_commands_and_options_in_inline_code_exist(page):
    problems = []
    everything = list_all_flags() | FOREIGN.keys()
    for span in list_spans(page):
        words = span.split()
        if words[:3] == ["python", "-m", "ditorch"]:
            words = words[2:]
        if words[0] == "ditorch" and len(words) > 1 and span not in WRONG:
            verb = words[1]
            if verb in COMMANDS:
                known = {flag for parser in list_parsers(COMMANDS[verb].make_parser()) for flag in parser.list_flags()}
                known |= {flag for more in (bench_infer, bench_model) for flag in more.make_parser().list_flags()}
                known |= {"--help"}
            elif verb.startswith("-"):
                known = set(cli.make_parser().list_flags())
            elif verb.isupper() or "." in verb:  # a program, or a word that stands for one
                continue
            else:
                problems.append(f"{span}: there is no command {verb!r}")
                continue
            before = itertools.takewhile(lambda word: not word.endswith(".py"), words[2:])
            problems += [f"{span}: no option {word}" for word in before if word[:2] == "--" and word[2:] and
                         word.partition("=")[0] not in known]  # fmt: skip
        elif re.match(r"--[a-z][a-z-]+", words[0]) and re.match(r"--[\w-]+", words[0])[0] not in everything:
            problems.append(f"{span}: no command has this option")
    assert not problems


# Running one of each

TRAIN = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(32, 8).cuda(), torch.randint(0, 4, (32,)).cuda()
for step in range(3):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
"""
CAPTURE = """
import torch, ditorch
from op_tools import OpCapture
from module_tools import CompLayerAcc

x = torch.randn(4, 4, device="cuda")
with OpCapture(console="off"):
    torch.add(x, x).relu()
for device, is_dump in (("cpu", True), ("cuda", False)):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4)).to(device)
    with CompLayerAcc(model, is_dump, is_fixed_input=False, data_path="accuracy_data"):
        model(torch.ones(2, 4, device=device)).sum().backward()
torch.save({"weight": torch.ones(3)}, "other.pt")
"""
RUNS = {
    "run": ("ditorch run --tool observe --option observe.stats=1 --out a train.py", 0, "observe"),
    "nan": ("ditorch nan -- train.py --lr 0.1", 0, "no NaN or Inf was made"),
    "bisect": ("ditorch bisect train.py", 0, "nothing to find: the run is good"),
    "compile": ("ditorch compile --check train.py", 0, "0 wrong graphs"),
    "replay": ("ditorch replay op_tools_results/op_capture_results", 0, "torch.add"),
    "report": ("ditorch report ditorch_runs/run-001", 0, "open it in a browser"),
    "export": ("ditorch export op_tools_results -o calls.jsonl --type call", 0, ""),
    "merge": ("ditorch merge op_tools_results --json -o summary.json", 0, ""),
    "compare": ("ditorch compare a b", 0, "ditorch compare: the same"),
    "query": ("ditorch query 'select name, count(*) n from calls group by name order by n desc' run", 0, "gelu"),
    "compare-modules": ("ditorch compare-modules accuracy_data", 0, "4 compared, 0 differ"),
    "conform": ("ditorch conform list --function Softmax", 0, "diopiSoftmax"),
    "test-device": ("ditorch test-device --ops add,softmax", 0, " 0 wrong"),
    "bench": ("ditorch bench op_tools_results/op_capture_results", 0, "torch.add"),
    "new-vendor": ("ditorch new-vendor mychip && sh mychip/check.sh", 0, ""),
    "monitor": ("ditorch monitor --pid $! --interval 5", 0, ""),
    "doctor": ("ditorch doctor --vendor host --only copy", 0, "copy: ok"),
    "options": ("ditorch options autocompare capture --json", 0, "autocompare"),
    "include": ("ditorch include", 0, "include"),
    "completion": ("ditorch completion bash", 0, "complete -o filenames"),
    "man": ("ditorch man > ditorch.1 && man ./ditorch.1", 0, ""),
    "version": ("ditorch version", 0, "ditorch "),
}
"""Command, an example of it, its status, and what it says."""
SLOW = ("test-device", "new-vendor", "bench", "compile")


def list_documented() -> set[str]:
    """Lines, and the commands of ditorch in them."""
    lines = [param.values[0] for param in list_rows()]
    words = [found for line in lines for part in split_shell(join_open(line)) if (found := find_ditorch(part))]
    return {*lines, *(shlex.join(["ditorch", *found]) for found in words)}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The files and folders that the examples name."""
    place = tmp_path_factory.mktemp("examples")
    (place / "train.py").write_text(TRAIN)
    run_python(CAPTURE, cwd=place)
    run_python("-m", "ditorch", *shlex.split(RUNS["run"][0])[1:], cwd=place, warm=True)
    for name in ("b", "run", "ditorch_runs/run-001"):
        shutil.copytree(place / "a", place / name)
    return place


@pytest.fixture
def place(results, tmp_path):
    return shutil.copytree(results, tmp_path / "place")


def run_example(line, place):
    """In a process that has imported torch; what needs a shell, in one where `ditorch` is this ditorch."""
    words = shlex.split(line)
    if words[0] == "ditorch" and not {"&&", ">"} & set(words):
        return run_python("-m", "ditorch", *words[1:], cwd=place, warm=True, check=False, COLUMNS=120)
    environment = child_environment(
        PATH=f"{make_command(place)}{os.pathsep}{os.environ['PATH']}", PYTHON=sys.executable
    )
    return subprocess.run(line, shell=True, cwd=place, env=environment, capture_output=True, text=True, timeout=600)


def make_command(place):
    """A folder with `ditorch`."""
    folder = place / "bin"
    folder.mkdir()
    (folder / "ditorch").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -W ignore -m ditorch "$@"\n')
    (folder / "ditorch").chmod(0o755)
    return folder


def test_one_example_of_each_command_is_run():
    assert set(RUNS) == set(COMMANDS) and set(SLOW) < set(RUNS)
    assert {line for line, _, _ in RUNS.values()} <= list_documented()


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * (name in SLOW)) for name in RUNS])
def test_an_example_runs(name, place):
    line, status, text = RUNS[name]
    if name == "query":
        pytest.importorskip("duckdb")
    if name == "man" and shutil.which("man") is None:
        line = line.partition(" && ")[0]
    with subprocess.Popen(["sleep", "1"]) as child:
        answer = run_example(line.replace("$!", str(child.pid)), place)
    assert answer.returncode == status, f"{line}\n{answer.stdout[-2000:]}\n{answer.stderr[-2000:]}"
    assert text in answer.stdout + answer.stderr and "Traceback" not in answer.stderr
