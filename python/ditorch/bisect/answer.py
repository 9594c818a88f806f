"""The answer of a bisection as a block of text and as JSON."""

from __future__ import annotations

import os
import re
import shlex
import textwrap
from typing import Any

from ..command.parser import get_width
from .hunt import BLIND, ELSEWHERE, FOUND, NOTHING, Answer, Culprit
from .runner import Outcome, read_end

EXITS = {NOTHING: 0, FOUND: 1, ELSEWHERE: 3, BLIND: 3}


def format_place(place: str) -> str:
    """`train.py:7 (y = x.log())` of `<file>:<line> <function>: <source>`."""
    match = re.match(r"(.*?):(\d+) \S+: ?(.*)", place)
    if not match:
        return place
    path = os.path.relpath(match[1]) if os.path.isabs(match[1]) else match[1]
    path = match[1] if path.startswith("..") else path
    line = match[3] if len(match[3]) <= 80 else match[3][:77] + "..."
    return f"{path}:{match[2]}" + (f" ({line})" if line else "")


def format_block(headline: str, rows: list[tuple[str, str]]) -> str:
    lines = [headline]
    for label, text in rows:
        if text:
            lines += textwrap.wrap(
                text,
                get_width(),
                initial_indent=f"  {label:<7}",
                subsequent_indent=" " * 9,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines)


def list_commands(answer: Answer, command: str, how: str) -> dict[str, str]:
    """What to type next: `around` (live with it), `capture` and `replay`, `repro`."""
    names = [culprit.name for culprit in answer.culprits]
    forms = [form for name in names for form in answer.forms.get(name, [name])]
    words, short = ",".join(forms), ",".join(form.removeprefix("aten::") for form in forms)
    tool = "cast" if how == "float32" else "fallback"
    listed = shlex.quote(f"{tool}.list=" + ",".join(f"{name}_?(\\..*)?" for name in names))
    around = f"ditorch run --tool {tool} --option {tool}.level=aten --option {listed} {command}"
    if answer.by == "control":
        around = f"DIPU_FORCE_FALLBACK_OPS_LIST={shlex.quote(short)} ditorch run {command}"
    steps = {culprit.step for culprit in answer.culprits}
    step = f" --steps {steps.pop()}" if len(steps) == 1 and None not in steps else ""
    capture = f"ditorch run --tool capture --option capture.level=aten --include {words}{step} --out culprit {command}"
    return {
        "around": around,
        "capture": capture,
        "replay": "ditorch replay culprit",
        "repro": "ditorch replay culprit --limit 1 --export repro",
    }


def read_last_words(outcome: Outcome) -> str:
    """The last line on standard error of a run that failed."""
    path = os.path.join(outcome.folder, "stderr.txt")
    if not outcome.status or not os.path.exists(path):
        return ""
    lines = read_end(path).strip().splitlines()
    return lines[-1][:300] if lines else ""


def _describe_calls(culprit: Culprit) -> str:
    """Which of its calls, as far as that was narrowed."""
    words = []
    for level, keys in culprit.limits:
        text = " or ".join(str(key) or "no module" for key in keys)
        words.append(f"call {text} of {culprit.calls}" if level == "call" else f"{level} {text}")
    if culprit.step is not None:
        words.append(f"step {culprit.step}")
    if words:
        return "only " + ", ".join(words)
    if not culprit.calls:
        return ""
    kinds = {kind["signature"] for kind in culprit.kinds}
    shown = f": {next(iter(kinds))}" if len(kinds) == 1 else f" of {len(kinds)} signatures"
    return f"{culprit.calls} calls{shown}" if culprit.calls > 1 else f"one call{shown}"


def _describe_culprit(culprit: Culprit) -> list[tuple[str, str]]:
    modules = list(dict.fromkeys(kind["module"] for kind in culprit.kinds if kind["module"]))
    nodes = list(dict.fromkeys(kind["node"] for kind in culprit.kinds if kind["node"]))
    place = format_place(culprit.place)
    if nodes and not place:
        place = f"in the backward ({', '.join(nodes[:2])})"
    more = f" and {len(modules) - 3} more" if len(modules) > 3 else ""
    return [
        ("place", place or "inside of another operator"),
        ("module", ", ".join(modules[:3]) + more),
        ("calls", _describe_calls(culprit)),
    ]


def _describe_sureness(answer: Answer, where: str) -> str:
    before, after = answer.before, answer.after
    if not after.is_good:
        return f"not: wrong with them alone {where} too ({after.reason}), right with every operator"
    them = "it" if len(answer.culprits) == 1 else "them"
    text = f"right with {them} alone {where} ({after.reason}), wrong as it is ({before.reason})"
    if answer.flaky:
        return f"{text}; {answer.flaky} of the runs were FLAKY, decided by majority: repeat more often (--repeat)"
    if answer.unknown:
        return f"{text}; {answer.unknown} runs could not be judged and count as wrong"
    return f"{text}; every run was clear" if before.votes[1:] else text


def format_answer(answer: Answer, command: str, how: str, folder: str) -> str:
    where = "in float32" if how == "float32" else "on the CPU"
    runs = f"{answer.runs} for {len(answer.operators)} operators"
    runs += f", {answer.detail_runs} for details" if answer.detail_runs else ""
    runs += f"; {answer.remembered} of them remembered" if answer.remembered else ""
    runs += f"; {answer.seconds:.0f} s; {folder}"
    if answer.kind == NOTHING:
        return format_block(
            f"ditorch bisect: nothing to find: the run is good ({answer.before.reason})", [("runs", runs)]
        )
    if answer.kind == BLIND:
        return format_block(
            f"ditorch bisect: the run is wrong ({answer.before.reason}), and no operator of the device was called",
            [
                ("said", read_last_words(answer.before)),
                ("next", f"look at the output of the program in {folder}; does it use the device?"),
            ],
        )
    if answer.kind == ELSEWHERE:
        what = "on the CPU: not an operator of this device"
        what = "in float32: not the precision of one" if how == "float32" else what
        return format_block(
            f"ditorch bisect: still wrong with every operator {what}",
            [
                ("is", answer.before.reason),
                ("said", read_last_words(answer.before)),
                ("next", "the data, the seed, the hyperparameters, copies between host and device, the metric itself"),
                ("runs", runs),
            ],
        )
    names = [culprit.name for culprit in answer.culprits]
    verb = "is the culprit" if len(names) == 1 else "are the culprits, together"
    commands = list_commands(answer, command, how)
    rows: list[tuple[str, str]] = []
    for culprit in answer.culprits:
        label = [("op", culprit.name)] if len(names) > 1 else []
        rows += [*label, *_describe_culprit(culprit)]
    rows += [
        ("sure", _describe_sureness(answer, where)),
        *(("note", text) for text in answer.notes),
        ("runs", runs),
        ("around", commands["around"]),
        ("next", commands["capture"]),
        ("", commands["replay"]),
        ("", commands["repro"]),
    ]
    return format_block(f"ditorch bisect: {' and '.join(names)} {verb}", rows)


def make_json(answer: Answer, command: str, how: str, folder: str) -> dict[str, Any]:
    def outcome(value: Any) -> Any:
        keys = ("verdict", "reason", "values", "status", "seconds", "votes")
        return {key: _plain(getattr(value, key)) for key in keys} if value else None

    return {
        "answer": answer.kind,
        "culprits": [
            {
                "name": culprit.name,
                "place": format_place(culprit.place),
                "limits": [{"level": level, "keys": keys} for level, keys in culprit.limits],
                "calls": culprit.calls,
                "step": culprit.step,
                "kinds": culprit.kinds[:100],
            }
            for culprit in answer.culprits
        ],
        "as_it_is": outcome(answer.before),
        "without_them": outcome(answer.after),
        "operators": answer.operators,
        "how": how,
        "by": answer.by,
        "runs": answer.runs,
        "detail_runs": answer.detail_runs,
        "remembered": answer.remembered,
        "flaky": answer.flaky,
        "unknown": answer.unknown,
        "notes": answer.notes,
        "seconds": answer.seconds,
        "commands": list_commands(answer, command, how) if answer.culprits else {},
        "folder": folder,
    }


def _plain(value: Any) -> Any:
    """NaN and infinities as text, as JSON has none."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value
