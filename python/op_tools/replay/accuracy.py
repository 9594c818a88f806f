"""Is what a device computes right: a captured call there, judged by the one rule (docs/verdict.md).

The verdict is always about the value, and is that of OpAutoCompare: the CPU's own error in the capture's dtypes is the
measure. What the user compares with (float64, the CPU, another device, what was captured) gives the differences that
are shown; where it disagrees with the value it is judged too, so that it is told which of the two is wrong.

It judges results, arguments that were written to, and gradients; shapes and dtypes always. Nothing is claimed about
calls that draw random numbers (a generator's state tells) and uninitialised memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from ditorch import _C
from ditorch.judge import Request, Runs, is_careful, keeps_dtypes

from ..containers import traverse_container
from ..op_runner import OpRunner
from ..reader import Case
from .call_state import find_device_autocast
from .judge import Call, Judgement, are_same, judge_value, measure_difference

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
    is_stored: bool = False
    """Nothing was run: the values are those of the capture."""

    def get(self, what: str) -> list[Any] | None:
        return {"output": self.outputs, "argument": self.arguments, "grad": self.gradients}[what]


# Runs


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
    """Runs on the CPU, made when they are asked for; those in float64 and in the capture's dtypes once."""

    case: Case
    forward_only: bool
    modules: tuple[str, ...] = ()
    device: str = "cuda"
    """Where the values that are judged come from."""
    wrote: bool = False
    """The call writes to its arguments."""
    _runs: dict[Any, Run | str] = field(default_factory=dict)

    def get(self, kind: str, what: str = "output") -> Run:
        """`wide`, `native`, or the name of a device. Unrunnable says why there is none."""
        exact = keeps_dtypes(self.case.name) and what != "grad"
        key = (kind, exact)
        if key not in self._runs:
            try:
                if kind in ("wide", "native", "other"):
                    self._runs[key] = self._run(Request(kind), exact, self.forward_only)
                else:
                    runner = OpRunner(self.case, device=kind, modules=self.modules, quiet=True)
                    self._runs[key] = collect(runner, self.forward_only)
            except Exception as error:
                self._runs[key] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        run = self._runs[key]
        if isinstance(run, str):
            raise Unrunnable(run)
        return run

    def find(self, kind: str, what: str = "output") -> list[Any] | None:
        """The values of a run."""
        try:
            return self.get(kind, what).get(what)
        except Unrunnable:
            return None

    def get_runs(self, what: str) -> Runs:
        """The judge's further runs of the outputs, the arguments or the gradients."""

        def make(request: Request) -> list[Any]:
            if request.kind in ("wide", "native", "other"):
                return self.get(request.kind, what).get(what) or []
            exact = keeps_dtypes(self.case.name) and what != "grad"
            return self._run(request, exact, what != "grad").get(what) or []

        return Runs(make)

    def _run(self, request: Request, exact: bool, forward_only: bool) -> Run:
        """On the CPU. The native ones of a call under autocast are under the device's, or under the CPU's own (`other`)
        where they cannot be: what is written in place has no history there."""
        has_autocast = find_device_autocast(self.case.meta) is not None
        takes_guests = torch.device(self.device).type != "cpu" and not self.wrote and has_autocast
        if request.kind == "other" and not takes_guests and (has_autocast or self.wrote):
            raise Unrunnable("the CPU has no other way")
        guest = self.device if takes_guests and request.kind != "other" else ""
        try:
            return self._run_once(request, exact, forward_only, guest)
        except Exception:
            if not guest or request.kind not in ("native", "jitter"):
                raise
            return self._run_once(request, exact, forward_only, "")

    def _run_once(self, request: Request, exact: bool, forward_only: bool, guest: str) -> Run:
        options = {"request": request, "exact": exact, "guest": guest, "modules": self.modules}
        return collect(OpRunner(self.case, device="cpu", quiet=True, **options), forward_only)


# The verdict


def check(runner: OpRunner, against: list[str], references: References) -> list[dict[str, Any]]:
    """Run it once, and judge what it gave; beside everything in `against`."""
    run = collect(runner, references.forward_only)
    references = replace(references, device=str(runner.device), wrote=run.wrote, _runs={})
    return [judge(run, runner.case, word, references) for word in against]


def judge(run: Run, case: Case, against: str, references: References) -> dict[str, Any]:
    """The verdict on a run: pass, wrong or skip, with the worst value and all values (wrong ones first)."""
    try:
        reference = _get_reference(against, case, references)
    except Unrunnable as error:
        return {"against": against, "verdict": "skip", "reason": f"no reference: {error}", "values": []}
    judgements: list[Judgement] = []
    for what in ("output", "argument", "grad"):
        if what != "argument" or run.wrote or reference.wrote:
            judgements += _Judging(run, reference, against, case, references, what).judge()
    return _summarise(judgements, against)


def judge_captured(case: Case, references: References) -> dict[str, Any]:
    """The verdict on what was captured. Nothing runs but the CPU."""
    try:
        stored = _get_reference("stored", case, references)
    except Unrunnable as error:
        return {"against": "fp64", "verdict": "skip", "reason": str(error), "values": []}
    return judge(stored, case, "fp64", references)


def _get_reference(against: str, case: Case, references: References) -> Run:
    if against == "fp64":
        try:
            return _get_cpu(references, "wide")
        except Unrunnable:
            return _get_cpu(references, "native")
    if against == "cpu":
        return _get_cpu(references, "native")
    if against != "stored":
        return references.get(against)
    if case.output is None and "output" not in case.meta.get("parts", ()) and case.grad_inputs is None:
        raise Unrunnable("the capture has no results")
    outputs = [_fetch(value) for value in traverse_container(case.output)]
    gradients = None
    if case.grad_inputs is not None and not references.forward_only:
        gradients = [_fetch(value) for value in traverse_container(case.grad_inputs)]
    return Run(outputs, [], gradients, False, is_stored=True)


def _get_cpu(references: References, kind: str) -> Run:
    run = references.get(kind)
    return replace(run, gradients=references.get(kind, "grad").gradients)


def _summarise(judgements: list[Judgement], against: str) -> dict[str, Any]:
    order = {"wrong": 0, "skip": 1, "pass": 2}
    judgements = sorted(judgements, key=lambda j: (order[j.verdict], -_finite(j.facts.get("margin", 0.0))))
    verdicts = {judgement.verdict for judgement in judgements}
    verdict = "wrong" if "wrong" in verdicts else "pass" if "pass" in verdicts or not verdicts else "skip"
    found: dict[str, Any] = {"against": against, "verdict": verdict, "reason": ""}
    if judgements:
        noted = [judgement.reason for judgement in judgements if judgement.verdict == verdict and judgement.reason]
        found["reason"] = noted[0] if noted else ""
        compared = [judgement for judgement in judgements if judgement.verdict != "skip"]
        found["worst"] = (compared or judgements)[0].describe()
    found["values"] = [judgement.describe() for judgement in judgements[:_MOST_VALUES]]
    found["compared"] = sum(judgement.verdict != "skip" for judgement in judgements)
    return found


def _finite(number: float) -> float:
    return number if math.isfinite(number) else 1e300


@dataclass
class _Judging:
    """The values of one kind, each beside its reference."""

    run: Run
    reference: Run
    against: str
    case: Case
    references: References
    what: str

    def judge(self) -> Iterator[Judgement]:
        mine, theirs = self.run.get(self.what), self.reference.get(self.what)
        wide, native = (self.references.find(kind, self.what) for kind in ("wide", "native"))
        cpu = native if native is not None else wide if wide is not None else theirs
        if mine is None or cpu is None:
            if mine is not cpu and self.what == "grad" and not self.references.forward_only and not self.run.is_stored:
                side = "the device" if mine is None else "the CPU"
                yield Judgement(self.what, "wrong", f"{side} has no gradients, the other side has")
            return
        if len(mine) != len(cpu):
            yield self._tell_number(len(mine), len(cpu))
            return
        if theirs is None or (len(theirs) != len(mine)):
            if theirs:  # captures of the original hold the gradients of autograd's last node
                text = f"{len(mine)} values, the reference has {len(theirs)}"
                yield Judgement(self.what, "skip", f"captured values cannot be matched: {text}")
            theirs = cpu
        self.call = Call(
            self.case.name,
            self.case.args,
            self.case.kwargs,
            [x for x in traverse_container((self.case.args, self.case.kwargs)) if isinstance(x, torch.Tensor)],
            self._make_runs(),
        )
        for i, (value, wanted) in enumerate(zip(mine, theirs, strict=True)):
            label = f"{self.what}[{i}]" if len(mine) > 1 else self.what
            expected = cpu[i] if native is not None else _round_like(value, cpu[i])
            yield self._judge_one(i, label, value, wanted, expected, _pick(wide, i))

    def _make_runs(self) -> Any:
        runs = {what: self.references.get_runs(what) for what in ("output", "argument", "grad")}
        return runs.__getitem__

    def _tell_number(self, mine: int, cpu: int) -> Judgement:
        reason = f"{mine} values, the CPU has {cpu}"
        if self.what == "grad" and self.run.is_stored:
            return Judgement(self.what, "skip", f"captured gradients cannot be matched with arguments: {reason}")
        return Judgement(self.what, "wrong", reason)

    def _judge_one(self, i: int, label: str, value: Any, wanted: Any, cpu: Any, wide: Any) -> Judgement:
        uncertain = self._get_uncertainty()
        if uncertain == "random numbers" and self.against == "stored" and self.run.seeded:
            return self._judge_repeated(i, label, value, wanted)
        careful = not self.run.is_stored and is_careful(self.references.device)
        first = wide if self.against == "fp64" else cpu
        found = judge_value(self.call, self.what, i, label, value, cpu, first, careful, uncertain)
        found.facts |= {"largest_error": measure_difference(value, wanted), "cpu_error": measure_difference(cpu, wide)}
        if self.against in ("fp64", "cpu") or uncertain or found.verdict == "skip" or are_same(value, wanted):
            return found
        other = judge_value(self.call, self.what, i, label, wanted, cpu, first, self._is_reference_careful())
        if other.verdict == "wrong":
            subject = "the captured result" if self.against == "stored" else f"the result of {self.against}"
            end = "this one is right" if found.verdict == "pass" else "and so is this one"
            found.reason = f"{subject} is wrong, {end}: " + (other.reason if found.verdict == "pass" else found.reason)
        return found

    def _is_reference_careful(self) -> bool:
        return self.against != "stored" and is_careful(self.against)

    def _get_uncertainty(self) -> str:
        kinds = _C.engine_classify(self.case.name)
        if kinds["uninitialised"]:
            return "uninitialised memory"
        return "random numbers" if kinds["random"] or self.run.drew or self.reference.drew else ""

    def _judge_repeated(self, i: int, label: str, value: Any, wanted: Any) -> Judgement:
        """Random numbers of the captured generator state are those of the capture."""

        def make(request: Request) -> list[Any]:
            if request.kind not in ("wide", "native"):
                raise Unrunnable("random numbers: there is no further run")
            return [None] * i + [request.move(wanted, i)]

        call = replace(self.call, get_runs=lambda what: Runs(make))
        found = judge_value(call, self.what, i, label, value, wanted, wanted, False)
        found.facts["largest_error"] = measure_difference(value, wanted)
        return found


def _round_like(value: Any, wide: Any) -> Any:
    """What stands for the CPU's result where it does not take the dtype of the capture."""
    numbers = all(isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) for x in (value, wide))
    return wide.to(value.dtype) if numbers and value.is_complex() == wide.is_complex() else wide


def _pick(values: list[Any] | None, i: int) -> Any:
    return values[i] if values is not None and i < len(values) else None
