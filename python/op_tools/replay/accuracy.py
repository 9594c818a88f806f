"""Is what a device computes right: a captured call there against the CPU in float64, the CPU, another device, or what
was captured.

Against float64 the verdict is that of OpAutoCompare (docs/verdict.md), which is attached to the run; the largest error
beside the CPU's own is measured as well. Against anything else the yardstick is the error that the CPU itself makes in
the capture's own precision (`native`) against float64 (`wide`): two results may differ by 8 * (2u |r| + residual), with
the unit roundoff u of the dtype and, as residual, the largest part of the CPU's error that 2u |r| does not explain: it
carries the length of reductions and cancellation. "Wrong" is only said after float64 runs with inputs that are off by a
rounding: each element may also differ by 8 times what they move it. Where float64 is not possible the tolerances of the
original hold.

Compared are results, arguments that were written to, and gradients; shapes and dtypes always. Nothing is claimed about
calls that draw random numbers (a generator's state tells) and uninitialised memory.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from ditorch import _C

from ..containers import traverse_container
from ..op_runner import OpAccyChecker, OpRunner
from ..reader import Case
from .judge import Judgement, Yardstick, judge_value

SHAKES = 4
_MOST_VALUES = 64
"""Values of one case that the report lists; wrong ones come first."""


class Unrunnable(Exception):
    """A reference that cannot be computed; the text says why."""


@dataclass
class Run:
    """What one run gave, on the CPU: lists of tensors and other values."""

    outputs: list[Any]
    arguments: list[torch.Tensor]
    gradients: list[torch.Tensor | None] | None
    wrote: bool
    drew: bool = False
    """Random numbers: a generator's state changed."""
    seeded: bool = False
    """The random generator of the device had the captured state."""

    def get(self, what: str) -> list[Any] | None:
        return {"output": self.outputs, "argument": self.arguments, "grad": self.gradients}[what]


# ---- runs


def _fetch(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        value = value.detach()
        if value.layout != torch.strided:
            value = value.to_dense()
        value = value.dequantize() if value.is_quantized else value
        return value.resolve_conj().resolve_neg().cpu().clone()


def collect(runner: OpRunner, forward_only: bool = False) -> Run:
    """Run it once and fetch everything."""
    draws: list[bool] = []
    runner.random_watch = draws.append
    runner.run_forward()
    outputs = [_fetch(value) for value in traverse_container(runner.result)]
    arguments = [_fetch(tensor) for tensor in runner.tensors]
    wrote = runner.writes()
    gradients = None if forward_only else runner.run_backward()
    fetched = None if gradients is None else [_fetch(grad) for grad in gradients]
    return Run(outputs, arguments, fetched, wrote, any(draws), runner.device.type in runner.random)


@dataclass
class References:
    """Runs on the CPU, made when they are asked for, once."""

    case: Case
    forward_only: bool
    modules: tuple[str, ...] = ()
    _runs: dict[str, Run | str] = field(default_factory=dict)

    def get(self, kind: str) -> Run:
        """`wide`, `native`, `shaken0` ..., or the name of a device. Unrunnable says why there is none."""
        if kind not in self._runs:
            shake = int(kind.removeprefix("shaken")) if kind.startswith("shaken") else None
            wide = kind == "wide" or shake is not None
            device = "cpu" if wide or kind == "native" else kind
            try:
                runner = OpRunner(self.case, device=device, wide=wide, shake=shake, modules=self.modules, quiet=True)
                self._runs[kind] = collect(runner, self.forward_only)
            except Exception as error:
                self._runs[kind] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        run = self._runs[kind]
        if isinstance(run, str):
            raise Unrunnable(run)
        return run

    def find(self, kind: str) -> Run | None:
        try:
            return self.get(kind)
        except Unrunnable:
            return None


# ---- the verdict of OpAutoCompare


class AutoVerdict:
    """OpAutoCompare around the runs of one runner: attach(), run it, finish()."""

    _tool: Any = None  # one per process, started again for every case

    def attach(self, runner: OpRunner) -> None:
        from .. import OpAutoCompare

        if AutoVerdict._tool is None:
            everything = {"list": ".*", "disable_list": "", "include": "", "exclude": "", "modules": "", "steps": ""}
            limits = {"every": 1, "ranks": "", "first": 0, "numel_min": 0, "numel_max": 0, "share": 0, "max_bytes": 0}
            output = {"console": "off", "log": False, "save": False, "rows": "none", "results": tempfile.gettempdir()}
            AutoVerdict._tool = OpAutoCompare(cpu=True, verdict="auto", stop=False, **everything, **limits, **output)
        runner.add_hook(OpAccyChecker(AutoVerdict._tool))

    def finish(self) -> dict[str, Any]:
        """{"verdict", "reason", "finding"}; and "unable" when it could not compare them."""
        tool = AutoVerdict._tool
        tool.stop()
        facts = tool.describe()
        if facts["findings"]:
            finding = facts["findings"][0]
            return {"verdict": "wrong", "reason": _tell_finding(finding), "finding": finding}
        if facts["forward"]["compared"] or facts["backward"]["compared"]:
            return {"verdict": "pass", "reason": "", "finding": None}
        reasons = [f"the CPU cannot do it: {reason}" for _, reason in facts["unable"].values()]
        reasons += [_SKIPPED.get(name, name) for name, number in facts["skipped"].items() if number]
        reason = "; ".join(reasons) or "nothing to compare"
        return {"verdict": "skip", "reason": reason, "finding": None, "unable": bool(facts["unable"])}


_SKIPPED = {
    "uninitialised": "uninitialised memory",
    "collective": "a collective",
    "random": "random numbers",
    "metadata": "no values, only facts about a tensor",
    "unable": "the CPU cannot do it",
}


def _tell_finding(finding: dict[str, Any]) -> str:
    """`output at [0, 3] is 0.5, the reference 0.25: off by 0.25, allowed 1.2e-06 (why); 1 of 64 elements wrong`."""
    what = {"input": "argument", "output": "output", "grad": "gradient"}[finding["what"]]
    text = f"{what}[{finding['index']}]" if finding["index"] >= 0 else what
    reason = finding["reason"] or finding["error_info"].strip()
    if finding["at"] is not None and finding["at"] != "":
        text += f" at {finding['at']} is {finding['value']:.9g}, the reference {finding['reference']:.9g}"
    if finding["allowed"] > 0 and not math.isnan(finding["error"]):
        text += f": off by {finding['error']:.3g}, allowed {finding['allowed']:.3g}"
        text += f" ({reason})" if reason else ""
    else:
        text += f": {reason or 'not close'}"
    if finding["wrong"] > 0:
        text += f"; {finding['wrong']:,} of {finding['numel']:,} elements wrong"
    return text


# ---- the verdict


def check(runner: OpRunner, against: list[str], references: References) -> list[dict[str, Any]]:
    """Run it once, and judge what it gave against everything in `against`."""
    verdict = AutoVerdict() if "fp64" in against else None
    if verdict is not None:
        verdict.attach(runner)
    try:
        run = collect(runner, references.forward_only)
    finally:
        found = verdict.finish() if verdict is not None else {}
    answers = [judge(run, runner.case, word, references) for word in against]
    if found.get("unable") and any(value["verdict"] != "skip" for answer in answers for value in answer["values"]):
        return answers  # OpAutoCompare could not; the own rule could
    found.pop("unable", None)
    return [{**answer, **found} if answer["against"] == "fp64" else answer for answer in answers]


def judge(run: Run, case: Case, against: str, references: References) -> dict[str, Any]:
    """The verdict on a run: pass, wrong or skip, with the worst value and all values (wrong ones first)."""
    kinds = _C.engine_classify(case.name)
    judgements: list[Judgement] = []
    try:
        reference = _get_reference(against, case, references)
    except Unrunnable as error:
        return {"against": against, "verdict": "skip", "reason": f"no reference: {error}", "values": []}
    draws = kinds["random"] or run.drew or reference.drew
    values = "random numbers" if draws and not (against == "stored" and run.seeded) else ""
    values = "uninitialised memory" if kinds["uninitialised"] else values
    for what in ("output", "argument", "grad"):
        if what != "argument" or (reference.arguments and (run.wrote or reference.wrote)):
            judgements += _judge_list(what, run, reference, against, case, references, values)
    return _summarise(judgements, against)


def _get_reference(against: str, case: Case, references: References) -> Run:
    if against == "fp64":
        return references.find("wide") or references.get("native")
    if against == "cpu":
        return references.get("native")
    if against != "stored":
        return references.get(against)
    if case.output is None and "output" not in case.meta.get("parts", ()) and case.grad_inputs is None:
        raise Unrunnable("the capture has no results")
    outputs = [_fetch(value) for value in traverse_container(case.output)]
    gradients = None
    if case.grad_inputs is not None and not references.forward_only:
        gradients = [_fetch(value) for value in traverse_container(case.grad_inputs)]
    return Run(outputs, [], gradients, False)


def _summarise(judgements: list[Judgement], against: str) -> dict[str, Any]:
    order = {"wrong": 0, "skip": 1, "pass": 2}
    judgements = sorted(judgements, key=lambda j: (order[j.verdict], -_finite(j.facts.get("margin", 0.0))))
    verdicts = {judgement.verdict for judgement in judgements}
    verdict = "wrong" if "wrong" in verdicts else "pass" if "pass" in verdicts or not verdicts else "skip"
    found: dict[str, Any] = {"against": against, "verdict": verdict, "reason": ""}
    if judgements:
        found["reason"] = judgements[0].reason if verdict != "pass" else ""
        compared = [judgement for judgement in judgements if judgement.verdict != "skip"]
        found["worst"] = (compared or judgements)[0].describe()
    found["values"] = [judgement.describe() for judgement in judgements[:_MOST_VALUES]]
    found["compared"] = sum(judgement.verdict != "skip" for judgement in judgements)
    return found


def _finite(number: float) -> float:
    return number if math.isfinite(number) else 1e300


def _judge_list(
    what: str, run: Run, reference: Run, against: str, case: Case, references: References, values: str
) -> Iterator[Judgement]:
    mine, theirs = run.get(what), reference.get(what)
    if mine is None or theirs is None:
        if mine is not theirs and what == "grad" and against != "stored" and not references.forward_only:
            side = "the device" if mine is None else "the reference"
            yield Judgement(what, "wrong", f"{side} has no gradients, the other side has")
        return
    if len(mine) != len(theirs):
        reason = f"{len(mine)} values, the reference has {len(theirs)}"
        if what == "grad" and against == "stored":  # captures of the original hold those of autograd's last node
            yield Judgement(what, "skip", f"captured gradients cannot be matched with arguments: {reason}")
        else:
            yield Judgement(what, "wrong", reason)
        return
    wide, native = references.find("wide"), references.find("native")
    for i, (value, wanted) in enumerate(zip(mine, theirs, strict=True)):
        label = f"{what}[{i}]" if len(mine) > 1 else what
        yardstick = Yardstick(_pick(wide, what, i), _pick(native, what, i), against == "fp64" and reference is wide)
        found = judge_value(label, value, wanted, case.name, yardstick, values)
        if found.verdict == "wrong" and "allowed" in found.facts and yardstick.wide is not None:
            yardstick.moves = _get_moves(references, what, i, yardstick.wide)
            found = judge_value(label, value, wanted, case.name, yardstick, values)
        yield found


def _pick(run: Run | None, what: str, i: int) -> Any:
    values = run.get(what) if run else None
    return values[i] if values is not None and i < len(values) else None


def _get_moves(references: References, what: str, i: int, wide: torch.Tensor) -> torch.Tensor | None:
    """Element by element, how far inputs that are off by a rounding move the result in float64."""
    moves = None
    for number in range(SHAKES):
        shaken = _pick(references.find(f"shaken{number}"), what, i)
        if not isinstance(shaken, torch.Tensor) or shaken.shape != wide.shape:
            return None
        move = (torch.view_as_real(shaken - wide) if wide.is_complex() else shaken - wide).abs().nan_to_num_(0.0)
        moves = move if moves is None else torch.maximum(moves, move)
    return moves
