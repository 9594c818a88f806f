"""Is what a device computes right: a captured call there against the CPU in float64, the CPU, another device, or what
was captured.

Against float64 the verdict is that of OpAutoCompare (docs/verdict.md), which is attached to the run; the largest error
beside the CPU's own is measured as well. Against anything else the yardstick is the error that the CPU itself makes in
the capture's own precision (`native`) against float64 (`wide`): two results may differ by 8 * (2u |r| + residual), with
the unit roundoff u of the dtype and, as residual, the largest part of the CPU's error that 2u |r| does not explain: it
carries the length of reductions and cancellation. Where float64 is not possible the tolerances of the original hold.

Compared are results, arguments that were written to, and gradients; shapes and dtypes always. Nothing is claimed about
random numbers and uninitialised memory.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from ditorch import _C

from .case import Case
from .comparison import get_error_tolerance
from .containers import traverse_container
from .op_runner import OpAccyChecker, OpRunner

FACTOR = 4.0
"""How much worse than the CPU one result may be."""
_CHUNK = 1 << 22
_MOST_VALUES = 64
"""Values of one case that the report lists; wrong ones come first."""
_TIES = {
    *("sort", "argsort", "msort", "topk", "max", "min", "kthvalue", "median", "nanmedian", "mode", "argmax", "argmin"),
    *("cummax", "cummin", "unique", "unique_consecutive", "max_pool1d", "max_pool2d", "max_pool3d"),
    *("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "searchsorted", "bucketize"),
}
"""Their indices may differ where values are equal."""


class Unrunnable(Exception):
    """A reference that cannot be computed; the text says why."""


@dataclass
class Run:
    """What one run gave, on the CPU: lists of tensors and other values."""

    outputs: list[Any]
    arguments: list[torch.Tensor]
    gradients: list[torch.Tensor | None] | None
    wrote: bool
    seeded: bool = False
    """The random generator of the device had the captured state."""

    def get(self, what: str) -> list[Any] | None:
        return {"output": self.outputs, "argument": self.arguments, "grad": self.gradients}[what]


@dataclass
class Judgement:
    """Of one value."""

    what: str
    verdict: str
    reason: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        return {"what": self.what, "verdict": self.verdict, "reason": self.reason, **self.facts}


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
    runner.run_forward()
    outputs = [_fetch(value) for value in traverse_container(runner.result)]
    arguments = [_fetch(tensor) for tensor in runner.tensors]
    wrote = runner.writes()
    gradients = None if forward_only else runner.run_backward()
    fetched = None if gradients is None else [_fetch(grad) for grad in gradients]
    return Run(outputs, arguments, fetched, wrote, runner.device.type in runner.random)


@dataclass
class References:
    """Runs on the CPU, made when they are asked for, once."""

    case: Case
    forward_only: bool
    modules: tuple[str, ...] = ()
    _runs: dict[str, Run | str] = field(default_factory=dict)

    def get(self, kind: str) -> Run:
        """`wide`, `native`, or the name of a device. Unrunnable says why there is none."""
        if kind not in self._runs:
            device = "cpu" if kind in ("wide", "native") else kind
            try:
                runner = OpRunner(self.case, device=device, wide=kind == "wide", modules=self.modules, quiet=True)
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
        from . import OpAutoCompare

        if AutoVerdict._tool is None:
            everything = {"list": ".*", "disable_list": "", "include": "", "exclude": "", "modules": "", "steps": ""}
            limits = {"every": 1, "ranks": "", "first": 0, "numel_min": 0, "numel_max": 0, "share": 0, "max_bytes": 0}
            output = {"console": "off", "log": False, "save": False, "rows": "none", "results": tempfile.gettempdir()}
            AutoVerdict._tool = OpAutoCompare(cpu=True, verdict="auto", stop=False, **everything, **limits, **output)
        runner.add_hook(OpAccyChecker(AutoVerdict._tool))

    def finish(self) -> dict[str, Any]:
        """{"verdict", "reason", "finding"}."""
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
        return {"verdict": "skip", "reason": "; ".join(reasons) or "nothing to compare", "finding": None}


_SKIPPED = {
    "uninitialised": "uninitialised memory",
    "collective": "a collective",
    "random": "random numbers",
    "metadata": "no values, only facts about a tensor",
    "unable": "the CPU cannot do it",
}


def _tell_finding(finding: dict[str, Any]) -> str:
    what = {"input": "argument", "output": "output", "grad": "gradient"}[finding["what"]]
    index = f"[{finding['index']}]" if finding["index"] >= 0 else ""
    text = f"{what}{index}: {finding['reason'] or finding['error_info'].strip() or 'not close'}"
    return f"{text} at {finding['at']}" if finding["at"] else text


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
    return [{**answer, **found} if answer["against"] == "fp64" else answer for answer in answers]


def judge(run: Run, case: Case, against: str, references: References) -> dict[str, Any]:
    """The verdict on a run: pass, wrong or skip, with the worst value and all values (wrong ones first)."""
    kinds = _C.engine_classify(case.name)
    judgements: list[Judgement] = []
    try:
        reference = _get_reference(against, case, references)
    except Unrunnable as error:
        return {"against": against, "verdict": "skip", "reason": f"no reference: {error}", "values": []}
    values = "random numbers" if kinds["random"] and not (against == "stored" and run.seeded) else ""
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
        yardstick = _Yardstick(_pick(wide, what, i), _pick(native, what, i), against == "fp64" and reference is wide)
        yield judge_value(label, value, wanted, case.name, yardstick, values)


def _pick(run: Run | None, what: str, i: int) -> Any:
    values = run.get(what) if run else None
    return values[i] if values is not None and i < len(values) else None


@dataclass
class _Yardstick:
    wide: Any
    native: Any
    is_wide: bool
    """The reference is the wide value itself."""


def judge_value(
    label: str, value: Any, wanted: Any, name: str, yardstick: _Yardstick, uncertain: str = ""
) -> Judgement:
    """One value against its reference."""
    if value is None and wanted is None:
        return Judgement(label, "pass")
    if not isinstance(value, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return _judge_other(label, value, wanted, uncertain)
    facts = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    if value.shape != wanted.shape:
        reason = f"shape {tuple(value.shape)}, the reference has {tuple(wanted.shape)}"
        return Judgement(label, "wrong", reason, facts)
    dtype = getattr(yardstick.native, "dtype", None) if yardstick.is_wide else wanted.dtype
    if dtype is not None and value.dtype != dtype:
        return Judgement(label, "wrong", f"dtype {value.dtype}, the reference has {dtype}", facts)
    if uncertain:
        return Judgement(label, "skip", uncertain, facts)
    if not (value.is_floating_point() or value.is_complex()):
        return _judge_exact(label, value, wanted, name, yardstick, facts)
    return _judge_float(label, value, wanted, name, yardstick, facts)


def _judge_other(label: str, value: Any, wanted: Any, uncertain: str) -> Judgement:
    if uncertain:
        return Judgement(label, "skip", uncertain)
    if isinstance(value, float) and isinstance(wanted, float):
        same = (
            value == wanted or (math.isnan(value) and math.isnan(wanted)) or math.isclose(value, wanted, rel_tol=1e-6)
        )
    elif isinstance(value, torch.device):
        same = isinstance(wanted, torch.device)
    else:
        try:
            same = bool(value == wanted)
        except Exception as error:
            return Judgement(label, "skip", f"values of type {type(value).__name__} cannot be compared: {error}")
    reason = "" if same else f"{_short(value)}, the reference has {_short(wanted)}"
    return Judgement(label, "pass" if same else "wrong", reason)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _judge_exact(
    label: str, value: torch.Tensor, wanted: torch.Tensor, name: str, yardstick: _Yardstick, facts: dict
) -> Judgement:
    """Integers and booleans: equal, but where the CPU in float64 and in the capture's precision disagree."""
    differs = value != wanted
    wide, native = yardstick.wide, yardstick.native
    if all(isinstance(other, torch.Tensor) and other.shape == value.shape for other in (wide, native)):
        differs &= wide == native
    wrong = int(differs.sum())
    facts |= {"numel": value.numel(), "wrong": wrong}
    if not wrong:
        return Judgement(label, "pass", "", facts)
    if name.rpartition(".")[2].rpartition(":")[2] in _TIES:
        return Judgement(label, "skip", "indices of equal values may differ", facts)
    at = int(differs.reshape(-1).to(torch.uint8).argmax())
    facts |= {"index": _unravel(at, value.shape), "value": value.reshape(-1)[at].item()}
    facts["reference"] = wanted.reshape(-1)[at].item()
    return Judgement(label, "wrong", _tell(facts), facts)


# ---- floating point


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Flat; complex numbers as pairs."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.reshape(-1)


def _chunks(*tensors: torch.Tensor) -> Iterator[tuple[int, list[torch.Tensor]]]:
    flat = [_parts(tensor) for tensor in tensors]
    for start in range(0, flat[0].numel(), _CHUNK):
        yield start, [tensor[start : start + _CHUNK].double() for tensor in flat]


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.max()) if tensor.numel() else 0.0


def _measure(native: torch.Tensor, wide: torch.Tensor, relative: float) -> tuple[float, float]:
    """Largest error of the CPU, and the largest part that `relative` does not explain."""
    error = residual = 0.0
    for _, (x, r) in _chunks(native, wide):
        finite = torch.isfinite(x) & torch.isfinite(r)
        off = (x[finite] - r[finite]).abs()
        error = max(error, _largest(off))
        residual = max(residual, _largest(off - relative * r[finite].abs()))
    return error, residual


@dataclass
class _Rule:
    """|error| <= relative * |r| + absolute."""

    relative: float
    absolute: float
    limit: float
    cpu_error: float | None


def _make_rule(value: torch.Tensor, wanted: torch.Tensor, name: str, yardstick: _Yardstick) -> _Rule:
    info = torch.finfo(value.dtype)
    wide, native = yardstick.wide, yardstick.native
    usable = all(isinstance(x, torch.Tensor) and x.shape == value.shape for x in (wide, native))
    if not usable and isinstance(wide, torch.Tensor) and wide.shape == value.shape:
        native, usable = wide.to(value.dtype), True  # the CPU lacks the operator in this dtype: rounding alone
    if not usable:
        atol, rtol = get_error_tolerance(value.dtype, name)
        return _Rule(rtol, atol, math.inf, None)
    relative = info.eps  # 2u
    error, residual = _measure(native, wide, relative)
    slack = FACTOR if yardstick.is_wide else 2 * FACTOR
    return _Rule(slack * relative, slack * residual + info.tiny, info.max, error)


def _judge_float(
    label: str, value: torch.Tensor, wanted: torch.Tensor, name: str, yardstick: _Yardstick, facts: dict
) -> Judgement:
    rule = _make_rule(value, wanted, name, yardstick)
    wrong, margin, largest, worst = 0, 0.0, 0.0, None
    for start, (x, r) in _chunks(value, wanted):
        allowed = rule.relative * r.abs() + rule.absolute
        error = (x - r).abs()
        same = (x == r) | (x.isnan() & r.isnan())
        same |= x.isinf() & (x.sign() == r.sign()) & (r.abs() + allowed > rule.limit)
        ratio = torch.where(same, 0.0, error / allowed)
        ratio = torch.where(ratio.isnan() | ((x.isfinite() != r.isfinite()) & ~same), math.inf, ratio)
        wrong += int((ratio > 1).sum())
        largest = max(largest, _largest(error[error.isfinite()]))
        if x.numel():
            at = int(ratio.argmax())
            if worst is None or float(ratio[at]) > margin:
                margin = float(ratio[at])
                worst = (start + at, float(x[at]), float(r[at]), float(error[at]), float(allowed[at]))
    facts |= {"numel": value.numel(), "wrong": wrong, "margin": margin, "cpu_error": rule.cpu_error}
    facts["largest_error"] = largest
    if worst is not None:
        at, mine, theirs, error, allowed = worst
        shape = (*value.shape, 2) if value.is_complex() else tuple(value.shape)
        facts |= {"index": _unravel(at, shape), "value": mine, "reference": theirs, "error": error, "allowed": allowed}
    return Judgement(label, "wrong" if wrong else "pass", _tell(facts) if wrong else "", facts)


def _unravel(at: int, shape: Any) -> list[int]:
    index = []
    for size in reversed(tuple(shape)):
        index.append(at % size)
        at //= size
    return index[::-1]


def _tell(facts: dict[str, Any]) -> str:
    where = ", ".join(map(str, facts["index"]))
    text = f"[{where}] is {facts['value']:.9g}, the reference {facts['reference']:.9g}"
    if "allowed" in facts:
        text += f": off by {facts['error']:.3g}, allowed {facts['allowed']:.3g}"
    return f"{text}; {facts['wrong']:,} of {facts['numel']:,} elements wrong"
