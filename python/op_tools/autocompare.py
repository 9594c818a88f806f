"""OpAutoCompare: which operator gives wrong results, forward or backward, by the CPU's own."""

from __future__ import annotations

import math
from typing import Any

import torch
from ditorch import _C
from ditorch.device_autocast import run_under_autocast
from ditorch.judge import shake_in_place
from ditorch.other_ways import run_instead, run_other_way
from ditorch.table import Table

from . import console, results
from .explanation import explain_nothing
from .keywords import AutocompareKeywords
from .tool import call_weakly

_FLOATS = ("float16", "bfloat16", "float32", "float64")


class WrongResult(RuntimeError):
    """An operator's result is wrong (option `stop`). `finding` is the dictionary of OpAutoCompare.findings()."""

    def __init__(self, text: str, finding: dict[str, Any]):
        super().__init__(text)
        self.finding = finding


class OpAutoCompare(AutocompareKeywords):
    """Run every operator of the device once more on the CPU, compare results, inputs and gradients, and name the
    operators that are wrong: one line per finding.

    `verdict="auto"` (default) judges by the error against float64 and the error that the CPU itself makes (see
    docs/verdict.md), `verdict="legacy"` by tolerances. `save=True` (default) saves what wrong calls were given and
    gave. `stop=True` raises WrongResult at the first finding. The program's own results are never changed."""

    kind = "compare"
    name = "autocompare"
    verb = "compared"
    borrowed = frozenset({"dtype_cast_dict", "op_dtype_cast_dict"})

    def _set_up(self) -> None:
        _C.judge_forget()  # what it says does not depend on what ran before
        self._told = 0
        self._callbacks = {
            "report": call_weakly(self._report),
            "unable": call_weakly(self._note_unable),
            "no_helper": call_weakly(self._note_no_helper),
            "written": call_weakly(self._note_written),
        }

    def engine_options(self, options: Any) -> dict[str, Any]:
        return {
            **super().engine_options(options),
            **self._callbacks,
            "results": results.get_rank_directory(options),
            "casts": list(read_casts(options)),
            "tolerances": list(read_tolerances(options)),
            "under_autocast": run_under_autocast,
            "shake": shake_in_place,
            "other_way": run_other_way,
            "instead": run_instead,
        }

    def check(self, options: Any) -> None:
        if options.get_value("save") or options.get_value("rows") != "none":
            results.check_directory(options, self._title)

    def started(self) -> None:
        self._told = 0

    def console_options(self, options: Any) -> dict[str, Any]:
        return {"root": options["results"].text}

    # Results

    @property
    def ok(self) -> bool | None:
        """Since the last start: False when an operator was found wrong, True when none was, None when nothing was
        compared."""
        facts = self.describe()
        if not facts or not _count(facts, "compared"):
            return None
        return not _count(facts, "wrong")

    def findings(self) -> list[dict[str, Any]]:
        """Wrong operators since the last start, first one first: one entry per operator, direction and signature."""
        return self.describe().get("findings", [])

    def table(self) -> Table:
        """The findings as a table that prints itself."""
        columns = ("op", "dir", "error", "allowed", "ratio", "wrong", "of", "times", "first id", "step", "place")
        return Table(columns, [_format_row(finding) for finding in self.findings()])

    def summary(self) -> str:
        facts = self.describe()
        if not facts:
            return ""
        found = facts["findings"]
        lines = [str(self.table())] if found else []
        lines.append(f"OpAutoCompare: {self._format_outcome(facts)}")
        skipped = {
            name: number
            for name, number in facts["skipped"].items()
            if number and (name != "metadata" or self.ok is None)
        }
        if skipped:
            words = ", ".join(f"{console.count(number)} {_SKIPS[name]}" for name, number in skipped.items())
            lines.append(f"OpAutoCompare: not compared: {words}")
        if facts["unable"]:
            names = sorted(facts["unable"], key=lambda name: -facts["unable"][name][0])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            shown = "; ".join(f"{name} ({facts['unable'][name][1]})" for name in names[:3])
            lines.append(f"OpAutoCompare: the CPU could not do: {shown}{more}")
        if facts["dropped"]:
            lines.append(f"OpAutoCompare: {console.count(facts['dropped'], 'more finding')} than the table holds")
        if facts["csv"]:
            lines.append(f"OpAutoCompare: {console.count(facts['rows'], 'row')} in {results.shorten(facts['csv'])}")
        return "\n".join(lines)

    def _format_outcome(self, facts: dict[str, Any]) -> str:
        """`ok; compared 10 forward, 10 backward`, or why nothing was."""
        if not _count(facts, "compared") and not facts["findings"]:
            why = explain_nothing(self, self.counts())
            return "nothing was compared: neither right nor wrong" + (f". {why}" if why else "")
        done = [f"{console.count(facts[kind]['compared'])} {kind}" for kind in ("forward", "backward")]
        wrong = console.count(_count(facts, "wrong"), "wrong comparison")
        text = f"{console.count(len(facts['findings']), 'finding')} ({wrong})" if facts["findings"] else "ok"
        return f"{text}; compared {', '.join(done)}"

    def _tell_end(self, counts: dict[str, int]) -> None:
        super()._tell_end(counts)
        if self._console is not None:
            self._console.show_outcome(f"OpAutoCompare: {self._format_outcome(self.describe())}")

    # Called by the engine

    def _note_unable(self, name: str, reason: str) -> None:
        if self._options.get_value("console") == "short":
            console.say(f"OpAutoCompare: {name} cannot be compared: {reason}")

    def _note_no_helper(self) -> None:
        console.say(
            'OpAutoCompare: reference="device" needs helpers in C, which this device lacks: every call runs on the CPU'
        )

    def _note_written(self, rows: list[dict[str, Any]], path: str | None) -> None:
        """Rows went to the table: the full console shows them."""
        if self._console is not None:
            self._console.show_rows(rows, path)

    def _report(self, finding: dict[str, Any]) -> None:
        """A new finding. An exception from here reaches the program: only `stop` wants that."""
        text = format_finding(finding)
        self._told += 1
        self.tell_finding(format_headline(finding), list_facts(finding), self._told, _advise(finding))
        if self._options.get_value("stop"):
            raise WrongResult(text, finding)


_SKIPS = {
    "uninitialised": "give uninitialised memory",
    "collective": "are collectives",
    "max_bytes": "are larger than max_bytes",
    "share": "beyond the share of the running time",
    "random": "draw random numbers",
    "unable": "cannot be done by the CPU",
    "metadata": "are questions about a tensor",
}


def _count(facts: dict[str, Any], what: str) -> int:
    return facts["forward"][what] + facts["backward"][what]


# Options


def read_casts(options: Any) -> Any:
    """(operator's key or "", from, to) of OP_DTYPE_CAST_DICT and <OP>_OP_DTYPE_CAST_DICT."""
    entries = [("", options["dtype_cast_dict"]), *options["op_dtype_cast_dict"].items()]
    for key, option in entries:
        for pair in filter(None, (part.strip() for part in option.text.split(","))):
            names = [name.strip() for name in pair.split("->")]
            for name in names:
                if not isinstance(getattr(torch, name.removeprefix("torch."), None), torch.dtype):
                    raise ValueError(
                        f"{option.origin}: {name!r} in {option.text!r} is no dtype; valid are torch.float16, "
                        "torch.bfloat16, torch.float32, torch.float64 and the other dtypes of torch"
                    )
            yield key.upper(), *names


def read_tolerances(options: Any) -> Any:
    """(operator's key or "", dtype or "", atol, rtol) of the variables of tolerances that are set."""
    entries = [("", "", options["error_tolerance"])]
    for dtype in _FLOATS:
        entries.append(("", dtype, options[f"error_tolerance_{dtype}"]))
        entries += [(key, dtype, option) for key, option in options[f"op_error_tolerance_{dtype}"].items()]
    for key, dtype, option in entries:
        if option.text:
            atol, rtol = (float(number) for number in option.text.split(","))
            yield key.upper(), dtype, atol, rtol


# Text


def format_headline(finding: dict[str, Any]) -> str:
    """`torch.nn.functional.linear is wrong`."""
    backward = finding["kind"] == "backward"
    name = f"the backward of {finding['name']}" if backward else finding["name"]
    return f"{name} is wrong"


def list_facts(finding: dict[str, Any]) -> list[tuple[str, str]]:
    """What there is to say about a finding: a label and a text each."""
    since = f"wrong since forward_id {finding['since']}, {finding['times']} times by now"
    return [
        ("call", f"step {finding['step']}, forward_id {finding['id']}"),
        ("place", results.format_location(finding["location"]) if finding["location"] else ""),
        ("module", finding["module"] or ""),
        ("error", _format_error(finding)),
        ("where", _format_where(finding)),
        ("since", since if finding["times"] > 1 else ""),
        ("inputs", "they hold NaN or Inf" if finding["bad_inputs"] else ""),
        ("saved", results.shorten(finding["folder"]) if finding["folder"] else ""),
    ]


def format_finding(finding: dict[str, Any]) -> str:
    """The same in one line, for an exception."""
    (_, call), *more = list_facts(finding)
    facts = [f"{label} {text}" for label, text in more if text]
    return "; ".join([f"{call}: {format_headline(finding)}", *facts])


def _format_error(finding: dict[str, Any]) -> str:
    ratio = _format_ratio(finding)
    reason = finding["reason"] or finding["error_info"].strip() or "not close"
    if not ratio:
        return reason
    return f"off by {finding['error']:.3g}, {ratio} times the allowed {finding['allowed']:.3g} ({reason})"


def _format_where(finding: dict[str, Any]) -> str:
    """`1 of 64 elements of output float32[4,16], worst at [0, 3]: 0.5 instead of 0.25`."""
    text = _format_what(finding)
    if finding["wrong"] > 0:
        text = f"{finding['wrong']:,} of {console.count(finding['numel'], 'element')} of {text}"
    if finding["at"] is not None:
        text += f", worst at {finding['at']}: {finding['value']:.9g} instead of {finding['reference']:.9g}"
    return text


def _format_ratio(finding: dict[str, Any]) -> str:
    if not finding["allowed"] > 0 or math.isnan(finding["error"]):
        return ""
    return f"{finding['error'] / finding['allowed']:.3g}"


def _format_what(finding: dict[str, Any]) -> str:
    index = f"[{finding['index']}]" if finding["index"] >= 0 else ""
    shape = ",".join(map(str, finding["shape"]))
    what = {"input": "input", "output": "output", "grad": "gradient of input"}[finding["what"]]
    return f"{what}{index} {finding['dtype']}[{shape}]"


def _format_row(finding: dict[str, Any]) -> dict[str, Any]:
    return {
        "op": finding["name"],
        "dir": "fwd" if finding["kind"] == "forward" else "bwd",
        "error": f"{finding['error']:.3g}",
        "allowed": f"{finding['allowed']:.3g}",
        "ratio": _format_ratio(finding),
        "wrong": finding["wrong"],
        "of": finding["numel"],
        "times": finding["count"],
        "first id": finding["id"],
        "step": finding["step"],
        "place": results.format_location(finding["location"], source=False),
    }


def _advise(finding: dict[str, Any]) -> list[str]:
    wishes = [f'OpFallback(list="{finding["name"]}") runs it on the CPU meanwhile']
    if finding["folder"]:
        wishes.insert(0, f"ditorch replay {results.shorten(finding['folder'])} runs this call again")
    return wishes
