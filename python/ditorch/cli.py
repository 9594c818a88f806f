"""The command line: `python -m ditorch` and the `ditorch` command. Commands are in command/tree.py."""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module

from . import install, launch
from .command import guard, run, session
from .command.parser import Parser, suggest, wrap
from .command.tree import COMMANDS, Head

BACKENDS = "auto, cuda, nvidia, npu, mlu, biren, dipu, musa, host or none"
PROGRAMS = ("run", "nan", "bisect")
"""Commands that are given a program."""
EXAMPLES = [
    ("ditorch run --tool autocompare train.py", "which operator is wrong?"),
    ("ditorch nan train.py", "which operator made the first NaN?"),
    ("ditorch train.py --lr 0.1", "run a program; everything behind its name is the program's"),
    ("ditorch doctor", "what is here, what was chosen and why"),
]


class _HeadParser(Parser):
    """The options before the command, and the list of commands in the help."""

    def format_help(self) -> str:
        return f"{super().format_help()}\n{_list_commands()}\n"


def _list_commands() -> str:
    lines = []
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines.append(f"{group}:")
        for command in COMMANDS.values():
            if command.group == group:
                lines.append(wrap(command.summary, " " * 19, f"  {command.name:<17}"))
    lines.append("\nditorch COMMAND --help: more about one of them, examples, exit statuses")
    return "\n".join(lines)


def make_parser() -> Parser:
    """The options that stand before the command or the program."""
    parser = _HeadParser(
        "ditorch",
        "Run a PyTorch program written for CUDA, unchanged, on the device that is there; find the operator that is "
        "wrong, slow, missing or overflowing.",
        usage="ditorch [options] script.py | -m module | -c code | - [arguments ...]\n"
        "       ditorch [options] COMMAND ...",
        examples=EXAMPLES,
        exits={
            0: "done",
            1: "something was found: wrong, different, missing",
            2: "wrong use",
            130: "Ctrl-C; 141: the reader of a pipe went away",
        },
    )
    add = parser.add_argument
    add("--backend", metavar="NAME", help=f"{BACKENDS} (default auto)")
    add("--alias", metavar="NAME", help="binary, python or off (default binary)")
    add("--config", metavar="FILE", help="TOML file with a [ditorch] table")
    add(
        *("--set",),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option; `ditorch options` lists them",
    )
    add("-V", "--version", action="store_true", help="the version")
    return parser


def split(parser: Parser, words: list[str]) -> tuple[list[str], list[str]]:
    """The options at the beginning, which `parser` knows, and the rest: from the first word that is none."""
    takes = {
        flag: action.nargs != 0 for action in parser._actions for flag in action.option_strings if flag.startswith("-")
    }
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] not in ("-m", "-c", "-", "--"):
        flag, equals, _ = words[i].partition("=")
        i += 2 if takes.get(flag) and not equals else 1
    return words[:i], words[i:]


def _parse_set(parser: Parser, texts: list[str]) -> dict[str, str]:
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            parser.error(f"--set {text!r}: expected NAME=VALUE, such as --set host_devices=2")
        options[name.strip()] = value.strip()
    return options


def parse(words: list[str]) -> tuple[str, list[str], Head]:
    """The command ("run" for a program), the words behind it, and what stood before."""
    parser = make_parser()
    before, rest = split(parser, words)
    found = parser.parse_args(before)
    if found.version:
        return "version", [], Head()
    options = {name: getattr(found, name) for name in ("backend", "alias") if getattr(found, name) is not None}
    head = Head(found.config, {**options, **_parse_set(parser, found.set)})
    if rest and rest[0] == "help":
        rest = [*rest[1:2], "--help"] if rest[1:] else ["--help"]
        if rest == ["--help"]:
            parser.parse_args(rest)
    if rest and rest[0] in COMMANDS:
        return rest[0], rest[1:], head
    if not rest:
        parser.error("nothing to run: give a command, a script, -m module or -c code")
    _check_name(parser, rest[0])
    return "run", rest, head


def _check_name(parser: Parser, word: str) -> None:
    """A word that is neither a command nor a file, and looks like a command that was meant."""
    if word.startswith("-") or os.sep in word or "." in word or os.path.exists(word):
        return
    hint = suggest(word, COMMANDS)
    if hint:
        parser.error(f"{word!r} is neither a command nor a file{hint}")


def main(words: list[str] | None = None) -> int:
    """Entry point; returns the exit status. A program's own exit passes through."""
    try:
        verb, rest, head = parse(sys.argv[1:] if words is None else words)
        if verb not in PROGRAMS:
            return guard.run(lambda: COMMANDS[verb].run(rest, head), COMMANDS[verb].at_once)
        module = import_module(f".command.{verb}", __package__)
        plan = module.parse(*split(COMMANDS[verb].make_parser(), rest))
    except SystemExit as end:  # of a parser
        return int(end.code or 0)
    if hasattr(module, "drive"):  # it runs the program itself, several times
        problem = None if plan.is_command else launch.check(plan.program)
        if problem:
            print(problem, file=sys.stderr)
            return 2
        return guard.run(lambda: module.drive(plan, head))
    if plan.is_command:
        return module.spawn(plan, head) if hasattr(module, "spawn") else run.spawn(plan, head)
    problem = launch.check(plan.program)
    if problem:
        print(problem, file=sys.stderr)
        return 2 if "can't open" in problem else 1
    if plan.spec.baseline and run.count_ranks() > 1:
        return _refuse_baseline(plan)
    if plan.spec.baseline:
        ended = guard.run(lambda: _run_baseline(plan, head))
        if ended:
            return ended
    if plan.spec.tools:
        session.wanted = plan.spec
    _install(head)
    return _run_with_files(plan) if plan.spec.junit or plan.spec.json else _run(plan)


def _run_baseline(plan: run.Plan, head: Head) -> int:
    from op_tools import program

    plan.spec.out = plan.spec.out or program.make_folder()
    run.run_baseline(plan, head)
    return 0


def _refuse_baseline(plan: run.Plan) -> int:
    """One rank of a job does not run without the others, and all of them would have to be started anew."""
    if run.is_first_rank():
        guard.say(
            "--baseline runs the whole job once more: put the launcher behind --, as in "
            f"`ditorch {plan.verb} --baseline ... -- torchrun --nproc-per-node {run.count_ranks()} {plan.program[0]}`"
        )
    return 2


def _run_with_files(plan: run.Plan) -> int:
    """However the program ends, the files of --junit and --json say so; of several ranks rank 0 writes them, with what
    all of them found."""
    begin = time.time()
    from .command.junit_run import describe_end

    ended: BaseException | None = None
    try:
        return _run(plan)
    except BaseException as error:
        ended = error
        raise
    finally:
        _count_findings()
        if run.is_first_rank():
            if run.count_ranks() > 1 and plan.spec.out:
                run.wait_for_ranks(plan.spec.out, begin)
            runs = run.read_runs(plan.spec.out) if plan.spec.out else []
            run.write_files(plan.spec, runs, *describe_end(ended))


def _run(plan: run.Plan) -> int:
    """In this process. The tools end before the interpreter does, so that they have a word on the exit status."""
    try:
        status = launch.run(plan.program)
    except FloatingPointError:
        if plan.verb != "nan" or not _count_findings():
            raise
        status = 0
    except SystemExit as end:
        if end.code or not plan.check or not _count_findings():
            raise
        status = 0
    return 1 if plan.check and not status and _count_findings() else status


def _count_findings() -> int:
    """Stop the tools, say what they found, and count it."""
    program = sys.modules.get("op_tools.program")
    if program is None or program.current is None:
        return 0
    program.current.finish()
    return sum(len(tool.findings()) for tool in program.current.tools.values() if hasattr(tool, "findings"))


def _install(head: Head) -> None:
    try:
        install(head.config, **head.options)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        guard.say(str(error))
        raise SystemExit(2) from None
