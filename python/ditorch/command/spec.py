"""What `ditorch run` was asked to do: which tools on which calls, and where results go. Plain data that reaches the
program's processes in the environment (DITORCH_RUN), so that launchers (torchrun) need not know.

Depends on the standard library alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Any

from .parser import suggest

TOOLS = {
    "autocompare": ("OpAutoCompare", "wrong results: every operator once more on the CPU"),
    "nan": ("OpOverflowCheck", "the operator that made the first NaN or Inf"),
    "time": ("OpTimeMeasure", "time per operator"),
    "observe": ("OpObserve", "a record per call: arguments, results, place"),
    "capture": ("OpCapture", "inputs, results and gradients as files, for replay"),
    "fallback": ("OpFallback", "operators run on the CPU"),
    "cast": ("OpDtypeCast", "operators run in another dtype"),
}
OTHER_NAMES = {
    "overflow": "nan",
    "overflow_check": "nan",
    "time_measure": "time",
    "dtype_cast": "cast",
    "compare": "autocompare",
    **{class_name.lower(): name for name, (class_name, _) in TOOLS.items()},
}
VARIABLE, TOOLS_VARIABLE = "DITORCH_RUN", "DITORCH_TOOLS"
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class SpecError(ValueError):
    """Something that was asked for cannot be meant; the text is for the user."""


@dataclasses.dataclass
class Spec:
    """See `ditorch run --help`."""

    tools: list[str] = dataclasses.field(default_factory=list)
    out: str = ""
    steps: str = ""
    every: str = ""
    ranks: str = ""
    include: str = ""
    exclude: str = ""
    budget: str = ""
    step_marker: str = ""
    options: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    command: str = ""
    quiet: bool = False
    report: bool = False
    stop: bool = False
    baseline: bool = False
    junit: str = ""
    json: str = ""
    probe: str = ""
    """The order of a bisection (op_tools/probe.py)."""

    def to_environment(self) -> dict[str, str]:
        """Variables for a child; what they say lies in the folder of the results."""
        path = os.path.join(self.out, "spec.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(self), file, indent=1)
        return {VARIABLE: path, TOOLS_VARIABLE: ",".join(self.tools)}

    def make_options(self, tool: str) -> dict[str, Any]:
        """Keyword arguments of a tool's constructor."""
        values: dict[str, Any] = {"results": self.out, "module_paths": True}
        for name in ("steps", "every", "ranks", "include", "exclude"):
            if getattr(self, name):
                values[name] = getattr(self, name)
        if self.stop and tool in ("nan", "autocompare"):
            values["stop"] = True
        kind, number = parse_budget(self.budget)
        if kind == "bytes" and tool in ("autocompare", "capture"):
            values["cap_bytes"] = number
        if kind == "percent" and tool == "autocompare":
            values["share"] = number
        return {**values, **self.options.get(tool, {})}


def parse_tools(text: str) -> list[str]:
    """`autocompare,time` as names of TOOLS; SpecError with the nearest name."""
    found = []
    for word in filter(None, (part.strip().lower() for part in text.split(","))):
        name = OTHER_NAMES.get(word, word)
        if name not in TOOLS:
            raise SpecError(f"there is no tool {word!r}{suggest(word, TOOLS)}; valid: {', '.join(TOOLS)}")
        if name not in found:
            found.append(name)
    return found


def parse_budget(text: str) -> tuple[str, int]:
    """("bytes", n) of 2GiB, ("percent", n) of 5%, ("", 0) of nothing."""
    text = text.strip()
    if not text:
        return "", 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%|[kmgt]?i?b?)", text.lower())
    if not match or (match[2] == "%" and not 1 <= float(match[1]) <= 100):
        raise SpecError(f"--budget {text!r}: expected bytes to save, such as 2GiB, or a share of the time, such as 5%")
    if match[2] == "%":
        return "percent", round(float(match[1]))
    return "bytes", int(float(match[1]) * _UNITS[match[2].replace("i", "").removesuffix("b") or ""])


def parse_option(text: str) -> tuple[str, str, str]:
    """(tool, name, value) of autocompare.rows=wrong."""
    match = re.fullmatch(r"\s*(\w+)\.(\w+)\s*=(.*)", text, re.DOTALL)
    if not match:
        raise SpecError(f"--option {text!r}: expected TOOL.NAME=VALUE, such as autocompare.rows=wrong")
    (tool,) = parse_tools(match[1])
    return tool, match[2], match[3].strip()


def check_ranges(flag: str, text: str) -> str:
    """`10-12,20` or SpecError."""
    for part in text.split(",") if text else []:
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d*))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise SpecError(f"{flag} {text!r}: {part.strip()!r} is no number or range; expected 10-12,20 or 100-")
    return text


def check_count(flag: str, text: str) -> str:
    """`1000` or SpecError."""
    if text and (not re.fullmatch(r"\s*\d+\s*", text) or int(text) < 1):
        raise SpecError(f"{flag} {text!r}: expected a whole number of at least 1")
    return text.strip()


def read_wish(path: str, tools: str) -> Spec | None:
    """What a parent process (option `run`) or the user (option `tools`) wants of this one."""
    if not path:
        return Spec(tools=parse_tools(tools)) if tools.strip() else None
    try:
        with open(path, encoding="utf-8") as file:
            values = dict(json.load(file))
    except (OSError, ValueError, TypeError) as error:
        raise SpecError(f"{VARIABLE}={path!r} cannot be read: {error}; unset it") from None
    names = {field.name for field in dataclasses.fields(Spec)}
    return Spec(**{name: value for name, value in values.items() if name in names})
