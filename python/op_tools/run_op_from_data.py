"""Run captured operator calls again, with the options of the original's program.

    python op_tools/run_op_from_data.py DIR [--run_times N] [--only_run_forward] [--sync_time_measure] [--acc_check]
    python -m op_tools.run_op_from_data DIR ...

Every case below DIR runs N times on the device, forward and backward; without --sync_time_measure and --acc_check each
run is a line with its time. A case that cannot be read or run is one line; the others go on. `ditorch replay` has
tables, statistics and more.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

if not __package__:  # run by its path: python op_tools/run_op_from_data.py
    _here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _here]
    sys.path.insert(0, os.path.dirname(_here))

YES, NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
ROLES = ("device", "cpu", "all")
FLAGS = (
    ("only_run_forward", "leave the backward out"),
    ("sync_time_measure", "time every run, with the device synchronised around it"),
    ("acc_check", "compare every run with the CPU"),
)


def parse_flag(text: str) -> bool:
    """The value that older versions wanted behind --only_run_forward."""
    if text.lower() in (*YES, *NO):
        return text.lower() in YES
    raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no; valid: True, False, 1, 0, or nothing")


def parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs; valid: 1 or more")
    return int(text)


def _spell(flag: str) -> list[str]:
    return sorted({f"--{flag}", f"--{flag.replace('_', '-')}"})


def join_flags(words: list[str]) -> list[str]:
    """Flags with the value that older versions wanted behind them (--only_run_forward True); any other word that
    follows one is an argument of its own: --acc_check DIR."""
    names = {name for flag, _ in FLAGS for name in _spell(flag)}
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in names and word.lower() in (*YES, *NO):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return [f"{word}=true" if word in names else word for word in joined]


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run_op_from_data", description="Run captured operator calls again.", allow_abbrev=False
    )
    parser.add_argument("dir", help="folder with captures, or one case")
    parser.add_argument("--run_times", "--run-times", type=parse_count, default=100, metavar="N", help="default 100")
    for name, text in FLAGS:
        names = _spell(name)
        parser.add_argument(*names, nargs="?", const=True, default=False, type=parse_flag, dest=name, help=text)
    parser.add_argument("--device", default="cuda", help="where to run (default cuda)")
    parser.add_argument(
        "--role",
        choices=ROLES,
        default="device",
        help="cases of a comparison: those of the device (default), of the CPU, or all; plain captures always run",
    )
    parser.add_argument(
        "--allow-module",
        action="append",
        default=[],
        metavar="NAME",
        help="package beyond torch whose functions a capture may name",
    )
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run_case(ref: Any, hooks: list[Any], options: argparse.Namespace) -> None:
    from op_tools.op_runner import OpRunner, TimePrinter

    runner = OpRunner(ref, device=options.device, modules=options.allow_module)
    for hook in hooks or [TimePrinter()]:
        runner.add_hook(hook)
    for _ in range(options.run_times):
        runner.run_forward()
        if not options.only_run_forward:
            runner.run_backward()


def _make_tools(options: argparse.Namespace) -> dict[type, Any]:
    """A tool per wanted hook, shared by all cases, so that ids go on and there is one table at the end."""
    from op_tools.op_runner import OpAccyChecker, SyncExecuteTimer

    wanted = {OpAccyChecker: options.acc_check, SyncExecuteTimer: options.sync_time_measure}
    return {kind: kind.make_tool() for kind, yes in wanted.items() if yes}


def _count_wrong(tools: dict[type, Any]) -> int:
    found = 0
    for tool in tools.values():
        findings = getattr(tool, "findings", None)
        found += len(findings()) if callable(findings) else 0
    return found


def main(words: list[str] | None = None) -> int:
    """0; 1 when --acc_check found wrong results; 2 for wrong use or no cases; 3 when cases could not be run, or
    --acc_check could compare nothing."""
    try:
        options = make_parser().parse_args(join_flags(sys.argv[1:] if words is None else words))
    except SystemExit as end:
        return int(end.code or 0)
    if not os.path.exists(options.dir):
        _say(f"run_op_from_data: {options.dir!r} does not exist; give a folder with captures (input.pth ...)")
        return 2
    import ditorch  # noqa: F401

    from op_tools.op_runner import close_tool
    from op_tools.reader import CaseError, find_cases

    roles = {"device": ("plain", "device"), "cpu": ("plain", "cpu"), "all": ("plain", "device", "cpu")}[options.role]
    try:
        found = list(find_cases(options.dir))
    except CaseError as error:
        _say(f"run_op_from_data: {error}")
        return 2
    refs = [ref for ref in found if ref.role in roles] if len(found) > 1 else found
    if not refs:
        _say(f"run_op_from_data: there is no captured call below {options.dir!r} (looked for input.pth)")
        return 2
    tools = _make_tools(options)
    failed = 0
    try:
        for ref in refs:
            try:
                _run_case(ref, [kind(tool) for kind, tool in tools.items()], options)
            except Exception as error:
                failed += 1
                lines = str(error).splitlines()
                _say(f"run_op_from_data: {ref.path}: {type(error).__name__}: {lines[0] if lines else ''}")
    finally:
        for tool in tools.values():
            close_tool(tool)
    if failed:
        _say(f"run_op_from_data: {failed} of {len(refs)} cases could not be run")
    if _count_wrong(tools):
        return 1
    blind = any(getattr(tool, "ok", True) is None for tool in tools.values())
    if blind and not failed:
        _say("run_op_from_data: nothing was compared: neither right nor wrong")
    return 3 if failed or blind else 0


if __name__ == "__main__":
    sys.exit(main())
