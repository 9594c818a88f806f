"""One entry of the operator database in one dtype: all its samples on the device and on the CPU.

Samples are made on the CPU from a fixed seed. Each runs forward, backward, in place and with out= and is compared in
values, shapes, dtypes, strides, aliasing and gradients. Entries that draw random numbers are compared in metadata,
reproducibility and statistics, `empty*` in metadata. The CPU's result is computed once per sample.
Values are judged by the one rule (docs/verdict.md), for which the entry runs on the CPU again. Depends on torch and
ditorch.judge; the operator database comes in as objects.
"""

from __future__ import annotations

import collections
import contextlib
import os
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..judge import Request, Runs, is_careful, keeps_dtypes, run_other_way
from . import compare
from .expect import CHECKS
from .samples import SEED, Arguments, gradients, out_like, seed_all
from .tolerance import Tolerance

COUNTS = ("samples", "random", "backward", "inplace", "out", "skipped", "settled", "undecided")
STATISTICAL_RUNS = 48
STATISTICAL_SAMPLES = 6
VARIANT_SAMPLES = 4
KEEP_ARGUMENTS_ON_CPU = {"tensor_split"}  # PyTorch demands the index tensor on the CPU, for CUDA too
# PyTorch's own CPU kernels, given out= of another layout: the lu ones write out of bounds, gelu writes nothing.
CPU_OUT_IS_BROKEN = {"lu_unpack", "linalg.lu", "nn.functional.gelu"}
DEVICE_BY_KEYWORD_ONLY = {"linspace", "logspace"}  # tensor arguments do not choose the device of these factories


class CpuFails(Exception):
    """The CPU itself cannot run this entry."""


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def describe_crash(error: BaseException) -> str:
    """An exception that is the suite's own fault: with its place."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"runner: {describe(error)} at {os.path.basename(place.filename)}:{place.lineno}"


def entry_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def make_samples(op: Any, dtype: torch.dtype, most: int, database: str = "cpu") -> tuple[list[Any], bool]:
    """(samples on the CPU, whether their gradients are to be checked); of more than `most` an even choice, 0: all.
    `database`: whose tables, besides the CPU's, say whether there is a backward pass."""
    seed_all(SEED)
    grad = op.supports_autograd and all(
        dtype in op.supported_backward_dtypes(name) for name in dict.fromkeys(("cpu", database))
    )
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
    if most and len(samples) > most:
        step = len(samples) / most
        samples = [samples[int(i * step)] for i in range(most)]
    return samples, grad


class Ledger:
    """Context manager that sums what ran in C and what fell back, on the embedded device, over all its uses."""

    def __init__(self) -> None:
        from ditorch import _C

        self.c: dict[str, int] = {}
        self.fallback: dict[str, int] = {}
        self._source = _C

    def __enter__(self) -> None:
        self._source.ledger_reset()

    def __exit__(self, *exc: Any) -> None:
        for row in self._source.ledger():
            for calls, total in ((row["c"]["calls"], self.c), (row["fallback"]["calls"], self.fallback)):
                if calls:
                    total[row["name"]] = total.get(row["name"], 0) + calls


class Entry:
    """Runs the samples and raises compare.Difference at the first that differs.

    `note(text)` is told what runs next, so that a crash or a hang has a place.
    """

    def __init__(
        self,
        op: Any,
        dtype: torch.dtype,
        device: str,
        tolerance: Tolerance,
        checks: Any = CHECKS,
        most: int = 0,
        database: str = "cpu",
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.op, self.dtype, self.device, self.most, self.note = op, dtype, device, most, note
        self.checks, self.database = frozenset(checks), database
        self.device_type = torch.device(device).type
        self.comparison = compare.Comparison(tolerance, "strides" in self.checks)
        ends = ("empty_like", "resize_", "resize_as_")
        self.empty = op.name.startswith(("empty", "new_empty")) or op.name.endswith(ends)
        self.counts = dict.fromkeys(COUNTS, 0)
        self.last_cpu_error = ""
        self.ledger = Ledger()

    def run(self) -> None:
        self.note("samples")
        try:
            samples, grad = make_samples(self.op, self.dtype, self.most, self.database)
        except Exception as error:
            raise CpuFails(f"sample inputs: {describe(error)}") from None
        step = max(1, len(samples) // VARIANT_SAMPLES)
        variants = range(0, min(len(samples), step * VARIANT_SAMPLES), step)
        results = {}
        for index, sample in enumerate(samples):
            result = self._check_sample(sample, f"sample {index}", grad)
            if index in variants:
                results[index] = result
        if self.counts["samples"] == 0:
            raise CpuFails(self.last_cpu_error or "the operator has no samples")
        for index, result in results.items():
            if "inplace" in self.checks:
                self._check_inplace(samples[index], f"in-place, sample {index}")
            if "out" in self.checks and result is not None:
                self._check_out(samples[index], f"out=, sample {index}", *result)

    # One call

    def _arguments(self, sample: Any, device: str, request: Request | None = None, exact: bool = False) -> Arguments:
        return Arguments(sample, device, self.op.name in KEEP_ARGUMENTS_ON_CPU, request, exact)

    def _prepare(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What the device runs of it."""
        return function

    def _result_device(self, arguments: Arguments) -> str:
        """Where the result belongs: the device, but for factories that were not told a device."""
        if "device" in arguments.kwargs:
            return self.device_type
        takes_tensors = arguments.tensors() and self.op.name not in DEVICE_BY_KEYWORD_ONLY
        return self.device_type if takes_tensors else "cpu"

    def _on_device(self, function: Callable[[], Any], what: str) -> Any:
        self.note(f"{what}, on the device")
        try:
            with self.ledger:
                return function()
        except Exception as error:
            raise compare.Difference(f"{what}: the device raised {describe(error)}, the CPU did not") from None

    def _call(
        self, sample: Any, function: Any, what: str, pick: Callable[[Any, Arguments, Request], Any]
    ) -> compare.Call | None:
        """What judges the values of a call: output, input or grad; `pick` takes them out of a run on the CPU."""
        if "values" not in self.checks:
            return None
        name = getattr(self.op, "judged_name", f"torch.{self.op.name}")
        exact = what != "grad" and keeps_dtypes(name)

        def other(*args: Any, **kwargs: Any) -> Any:
            return run_other_way(name if function is self.op else "", args, kwargs)  # what writes in place has none

        def make(request: Request) -> list[Any]:
            arguments = self._arguments(sample, "cpu", request, exact)
            values = pick(arguments.call(other if request.kind == "other" else function), arguments, request)
            return [compare.to_plain(value) for value in pytree.tree_leaves(values)]

        args = (sample.input, *sample.args)
        return compare.Call(name, args, sample.kwargs, Runs(make), what, is_careful(self.device))

    def _compare(self, got: Any, wanted: Any, what: str, call: compare.Call | None, where: str | None = None) -> None:
        before = self.comparison.settled, self.comparison.undecided
        try:
            self.comparison.check(got, wanted, what, where or self.device_type, call)
        finally:
            self.counts["settled"] += self.comparison.settled - before[0]
            self.counts["undecided"] += self.comparison.undecided - before[1]

    @property
    def is_undecided(self) -> bool:
        """Values were compared, and of none could be said that it is right."""
        return self.comparison.undecided > 0 and self.comparison.right == 0 and self.counts["random"] == 0

    def _compare_aliases(self, got: Any, mine: Arguments, wanted: Any, cpu: Arguments, what: str) -> None:
        if "aliases" in self.checks:
            compare.check_aliases(got, mine.tensors(), wanted, cpu.tensors(), what)

    # Forward and backward

    def _check_sample(self, sample: Any, what: str, grad: bool) -> Any:
        """(the CPU's result, whether its values mean something), or None when the CPU raises."""
        self.note(f"{what}, on the CPU")
        cpu = self._arguments(sample, "cpu")
        before, states = torch.get_rng_state(), cpu.generator_states()
        try:
            wanted = cpu.call(self.op)
        except Exception as error:
            self.counts["skipped"] += 1
            self.last_cpu_error = describe(error)
            return None
        drew = not torch.equal(before, torch.get_rng_state()) or states != cpu.generator_states()
        mine = self._arguments(sample, self.device)
        got = self._on_device(lambda: mine.call(self._prepare(self.op)), what)
        self.counts["samples"] += 1
        values = not (drew or self.empty)
        call = self._call(sample, self.op, "output", take_result) if values else None
        self._compare(got, wanted, what, call, self._result_device(mine))
        self._compare_aliases(got, mine, wanted, cpu, what)
        if values:
            call = self._call(sample, self.op, "input", take_arguments)
            self._compare(mine.tensors(), cpu.tensors(), what + ", inputs afterwards", call)
        if drew:
            self.counts["random"] += 1
            self._check_random(sample, what)
        if grad and "gradients" in self.checks:
            self._check_backward(sample, what, got, wanted, mine, cpu, values)
        detached = pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, wanted)
        return detached, values

    def _check_backward(
        self, sample: Any, what: str, got: Any, wanted: Any, mine: Arguments, cpu: Arguments, values: bool
    ) -> None:
        pick = sample.output_process_fn_grad or (lambda x: x)
        with contextlib.suppress(Exception):
            wanted, got = pick(wanted), pick(got)
        self.note(f"{what}, backward, on the CPU")
        try:
            reference, cotangents = gradients(wanted, cpu.tensors(), None)
        except Exception as error:
            self.last_cpu_error = describe(error)
            return
        if reference is None:
            return
        self.counts["backward"] += 1
        moved = [c.to(self.device) for c in cotangents]
        result, _ = self._on_device(lambda: gradients(got, mine.tensors(), moved), what + ", backward")

        def take_gradients(out: Any, arguments: Arguments, request: Request) -> Any:
            return gradients(pick(out), arguments.tensors(), cotangents, request)[0]

        call = self._call(sample, self.op, "grad", take_gradients) if values else None
        self._compare(result, reference, what + ", gradient", call)

    # Random numbers

    def _draw(self, sample: Any, device: str, seed: int) -> Any:
        seed_all(seed)
        arguments = self._arguments(sample, device)
        for generator in arguments.generators():
            generator.manual_seed(seed)
        with torch.no_grad():
            result = arguments.call(self.op if device == "cpu" else self._prepare(self.op))
        return pytree.tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, result)

    def _check_random(self, sample: Any, what: str) -> None:
        """Equal seeds give equal numbers; means and mean squares over many runs agree with the CPU's."""
        if "random" not in self.checks:
            return
        first, second = (
            self._on_device(lambda: self._draw(sample, self.device, SEED), what + ", with a seed") for _ in range(2)
        )
        for a, b in zip(compare.leaves(first), compare.leaves(second), strict=False):
            if not torch.equal(a.cpu().nan_to_num(), b.cpu().nan_to_num()):
                raise compare.Difference(f"{what}: two runs with the same seed differ")
        if self.empty or self.counts["random"] > STATISTICAL_SAMPLES:
            return
        self.note(f"{what}, statistics")
        on_device = [self._draw(sample, self.device, SEED + i) for i in range(STATISTICAL_RUNS)]
        on_cpu = [self._draw(sample, "cpu", SEED + i) for i in range(STATISTICAL_RUNS)]
        compare.check_statistics(on_device, on_cpu, what)
        if count_commonest(on_cpu) <= 0.75 * STATISTICAL_RUNS and count_commonest(on_device) == STATISTICAL_RUNS:
            raise compare.Difference(f"{what}: {STATISTICAL_RUNS} seeds give one and the same result")

    # In place and out=

    def _check_inplace(self, sample: Any, what: str) -> None:
        function = self.op.get_inplace()
        if function is None or sample.broadcasts_input or not isinstance(sample.input, torch.Tensor):
            return
        self.note(f"{what}, on the CPU")
        cpu, mine = self._arguments(sample, "cpu"), self._arguments(sample, self.device)
        state = torch.get_rng_state()
        with torch.no_grad():
            try:
                wanted = cpu.call(function)
            except Exception:
                return
            drew = not torch.equal(state, torch.get_rng_state())
            got = self._on_device(lambda: mine.call(self._prepare(function)), what)
            self.counts["inplace"] += 1
            values = not (drew or self.empty)
            self._compare(got, wanted, what, self._call(sample, function, "output", take_result) if values else None)
            self._compare_aliases(got, mine, wanted, cpu, what)
            call = self._call(sample, function, "input", take_arguments) if values else None
            self._compare(mine.tensors(), cpu.tensors(), what + ", arguments", call)

    def _check_out(self, sample: Any, what: str, reference: Any, values: bool) -> None:
        if not self.op.supports_out:
            return
        outputs = reference if isinstance(reference, (tuple, list)) else [reference]
        if not all(isinstance(t, torch.Tensor) and compare.is_strided(t) for t in outputs):
            return
        for kind in ("same layout", "other layout", "to be resized"):
            if kind == "other layout" and self.op.name in CPU_OUT_IS_BROKEN:
                continue
            with torch.no_grad():
                self._check_one_out(sample, reference, kind, f"{what}, {kind}", values)

    def _check_one_out(self, sample: Any, reference: Any, kind: str, what: str, values: bool) -> None:
        self.note(f"{what}, on the CPU")
        cpu, mine = self._arguments(sample, "cpu"), self._arguments(sample, self.device)
        cpu_out, mine_out = out_like(reference, kind, "cpu"), out_like(reference, kind, self.device)
        addresses = [t.data_ptr() for t in compare.leaves(mine_out)]
        try:
            wanted = cpu.call(self.op, out=cpu_out)
        except Exception:
            return
        got = self._on_device(lambda: mine.call(self._prepare(self.op), out=mine_out), what)
        self.counts["out"] += 1
        call = self._call(sample, self.op, "output", take_result) if values else None
        self._compare(got, wanted, what, call)
        self._compare(mine_out, cpu_out, what, call)
        if kind != "to be resized" and addresses != [t.data_ptr() for t in compare.leaves(mine_out)]:
            raise compare.Difference(f"{what}: the result was put into new memory")


def take_result(result: Any, arguments: Arguments, request: Request) -> Any:
    return result


def take_arguments(result: Any, arguments: Arguments, request: Request) -> Any:
    return arguments.tensors()


def count_commonest(results: list[Any]) -> int:
    """How many of the runs gave the result that most of them gave."""
    images = [str([t.cpu().flatten().tolist()[:64] for t in compare.leaves(result)]) for result in results]
    return max(collections.Counter(images).values())
