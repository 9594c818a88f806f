"""Worker of the differential test of the tools that act: reads "<tool>:<entry>" from standard input, answers one JSON
line each on standard output.

Every sample of the OpInfo entry runs on the device twice, bare and under the tool, from the same bits and the same
seeds. Nothing that a program can see may differ: values (exactly where the tool computes the same, else within the
tolerance of the narrow dtype), dtypes, shapes, strides, types of containers, aliasing, requires_grad, what became of
the arguments, exceptions, gradients, random numbers drawn.
"""

import contextlib
import copy
import faulthandler
import json
import os
import random
import sys
import time
import warnings

import torch
from torch.overrides import TorchFunctionMode
from torch.testing._internal import common_methods_invocations  # noqa: F401  before the device, as worker.py says
from torch.utils import _pytree as pytree

# isort: split
from ditorch.device_suite import compare, entry, worker
from ditorch.device_suite import samples as base

WIDE = "torch.float32->torch.float64,torch.complex64->torch.complex128"
SAME = "torch.float32->torch.float32,torch.float16->torch.float16"
QUIET = {"console": "off", "log": 0}
TOOLS = {
    "fallback": (torch.float32, lambda tools: tools.OpFallback(**QUIET), False),
    "same": (torch.float32, lambda tools: tools.OpDtypeCast(dtype_cast_dict=SAME, **QUIET), True),
    "wide": (torch.float32, lambda tools: tools.OpDtypeCast(dtype_cast_dict=WIDE, **QUIET), False),
    "half": (torch.float16, lambda tools: tools.OpDtypeCast(**QUIET), False),
    "bfloat16": (torch.bfloat16, lambda tools: tools.OpDtypeCast(**QUIET), False),
    "aten": (torch.float16, lambda tools: tools.OpDtypeCast(level="aten", **QUIET), False),
}
"""Name: dtype of the samples, the tool, and whether it computes the very same."""
FIRST_DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool, torch.float16, torch.bfloat16)
VARIANT_SAMPLES = 4
COUNTS = ("samples", "random", "backward", "inplace", "out", "skipped")


class Careless(TorchFunctionMode):
    """A cast as it is easily written, and wrong: in-place results are lost, containers become tuples, dtypes stay wide.
    The comparison must find it (tests/python/test_tool_differential.py)."""

    options: dict = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def widen(value):
            if isinstance(value, torch.Tensor) and value.dtype is torch.float32:
                return value.double()
            return type(value)(map(widen, value)) if type(value) in (tuple, list) else value

        if func.__name__ == "__get__":
            return func(*args, **(kwargs or {}))
        result = func(*widen(args), **(kwargs or {}))
        return tuple(result) if isinstance(result, tuple) else result


TOOLS["careless"] = (torch.float32, lambda tools: Careless(), False)


def first_dtype(op):
    """float32, or for an operator without it the first dtype the CPU supports."""
    return next((dtype for dtype in FIRST_DTYPES if dtype in op.dtypes), None)


class ValueDifference(compare.Difference):
    """Values alone differ."""


class Unusable(Exception):
    """The entry has no sample that runs bare."""


def catch(function):
    """(result, None) or (None, exception)."""
    try:
        return function(), None
    except Exception as error:
        return None, error


def describe(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def is_dense(tensor):
    if not compare.is_strided(tensor):
        return False
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.numel() == 0 or reach == tensor.numel()


def choose(wide, mine, bare):
    """Element by element the bare value where mine is close to it, else the wide one."""
    if not isinstance(mine, torch.Tensor):
        return wide
    mine, bare, wide = (t.detach().cpu() for t in (mine, bare, wide))
    unit = torch.finfo(mine.dtype).eps if mine.is_floating_point() or mine.is_complex() else 0.0
    return torch.where(torch.isclose(mine, bare, rtol=2 * unit, atol=0.0, equal_nan=True), bare, wide.to(mine.dtype))


class Entry:
    """All samples of one entry under one tool; raises compare.Difference at the first that differs."""

    def __init__(self, op, tool_name, device, tolerance, max_samples):
        self.op, self.device, self.tolerance = op, device, tolerance
        dtype, make_tool, self.exact = TOOLS[tool_name]
        import op_tools
        from op_tools.utils import get_dtype_cast_dict_form_str

        self.tool = make_tool(op_tools)
        map_text = "" if self.exact else self.tool.options.get("dtype_cast_dict")
        self.casts = get_dtype_cast_dict_form_str(map_text.text) if map_text else {}
        self.dtype = dtype if dtype in op.dtypes else first_dtype(op)
        if dtype != torch.float32 and self.dtype != dtype:
            self.dtype = None
        self.max_samples = max_samples
        self.words_differ = tool_name == "fallback"
        self.empty = op.name.startswith(("empty", "new_empty")) or op.name.endswith(
            ("empty_like", "resize_", "resize_as_")
        )
        self.counts = dict.fromkeys(COUNTS, 0)
        self.last_error = ""

    def samples(self):
        torch.manual_seed(base.SEED)
        random.seed(base.SEED)
        grad = self.op.supports_autograd and self.dtype in self.op.supported_backward_dtypes("cpu")
        samples = list(self.op.sample_inputs("cpu", self.dtype, requires_grad=grad))
        if len(samples) > self.max_samples:
            step = len(samples) / self.max_samples
            samples = [samples[int(i * step)] for i in range(self.max_samples)]
        return samples

    def run(self):
        samples, error = catch(self.samples)
        if error is not None:
            raise Unusable(f"sample inputs: {describe(error)}")
        for index, sample in enumerate(samples):
            self.check(sample, self.op, f"sample {index}", backward=True)
        if self.counts["samples"] == 0:
            raise Unusable(self.last_error or "the operator has no samples")
        for index, sample in enumerate(samples[:: max(1, len(samples) // VARIANT_SAMPLES)][:VARIANT_SAMPLES]):
            self.check_inplace(sample, f"in place, sample {index}")
            self.check_out(sample, f"out=, sample {index}")

    # One call, bare and under the tool

    def arguments(self, sample, wide=False):
        """Fresh tensors on the device; `wide`: in the dtypes that the tool computes in."""
        if wide:
            sample = copy.copy(sample)
            parts = (sample.input, sample.args, sample.kwargs)
            sample.input, sample.args, sample.kwargs = pytree.tree_map(self.widen, parts)
        return base.Arguments(sample, self.device, self.op.name in entry.KEEP_ARGUMENTS_ON_CPU)

    def widen(self, value):
        if isinstance(value, torch.Tensor) and value.dtype in self.casts:
            return value.detach().to(self.casts[value.dtype]).requires_grad_(value.requires_grad)
        return value

    def call(self, sample, function, tool, extra=None, wide=False):
        """(result, exception, arguments, out=, state of the generators afterwards)"""
        arguments = self.arguments(sample, wide)
        more = extra() if extra else {}
        if wide:
            more = pytree.tree_map(self.widen, more)
        base.seed_all(base.SEED)
        with tool or contextlib.nullcontext():
            result, error = catch(lambda: arguments.call(function, **more))
        own = [torch.tensor(state) for state in arguments.generator_states()]
        states = [torch.get_rng_state(), torch.cuda.get_rng_state(), *own]
        return result, error, arguments, more, states

    def check(self, sample, function, what, backward=False, extra=None, count="samples"):
        wanted, problem, plain, plain_out, plain_states = self.call(sample, function, None, extra)
        got, error, mine, mine_out, states = self.call(sample, function, self.tool, extra)
        if problem is not None:
            self.counts["skipped"] += 1
            self.last_error = describe(problem)
            if not self.is_same_error(error, problem):
                raise compare.Difference(f"{what}: raises {describe(error)}, bare {describe(problem)}")
            return
        if error is not None:
            raise compare.Difference(f"{what}: raises {describe(error)}, bare it does not")
        self.counts[count] += 1
        drew = not all(torch.equal(a, b) for a, b in zip(plain_states, self.seeded_states(plain), strict=False))
        self.counts["random"] += drew
        after, plain_after = [mine.tensors(), mine_out], [plain.tensors(), plain_out]
        self.compare_facts_of(got, wanted, what)
        self.compare_facts_of(after, plain_after, what + ", arguments afterwards")
        self.compare_aliases(got, after, wanted, plain_after, what)
        if drew and not all(torch.equal(a, b) for a, b in zip(states, plain_states, strict=True)):
            raise compare.Difference(f"{what}: the generators have another state afterwards")
        gradient, plain_gradient, cotangents = None, None, None
        if backward:
            gradient, plain_gradient, cotangents = self.differentiate(sample, what, got, wanted, mine, plain)
        if self.empty:
            return
        try:
            self.compare_values_of([got, after, gradient], [wanted, plain_after, plain_gradient], what)
        except ValueDifference:
            if not self.casts:
                raise
            bare = [wanted, plain_after, plain_gradient]
            self.check_wide(sample, function, extra, [got, after, gradient], bare, cotangents, what)

    def is_same_error(self, error, problem):
        """The bare error, or none where the device has no such operator: that is what such a tool is for. The CPU words
        its errors in its own way."""
        if error is None:
            return isinstance(problem, NotImplementedError)
        if self.words_differ:
            return isinstance(error, type(problem)) or isinstance(problem, type(error))
        return type(error) is type(problem) and str(error) == str(problem)

    def check_wide(self, sample, function, extra, mine, bare, cotangents, what):
        """The tool's values against a program that has cast everything by hand, which computes more exactly than the
        bare one: every element is that of the one or of the other."""
        result, error, arguments, more, _ = self.call(sample, function, None, extra, wide=True)
        if error is not None:
            raise compare.Difference(f"{what}: values differ from bare, and wide it raises {describe(error)}")
        gradient = None
        if cotangents is not None:
            picked = self.pick(sample, result)
            gradient, _ = base.gradients(picked, arguments.tensors(), [self.widen(c) for c in cotangents])
        wide = [result, [arguments.tensors(), more], gradient]
        narrow = pytree.tree_map(choose, wide, mine, bare)
        self.compare_values_of(mine, narrow, what + ", against the wide program", slack=2)

    def seeded_states(self, arguments):
        base.seed_all(base.SEED)
        return [torch.get_rng_state(), torch.cuda.get_rng_state()]

    @staticmethod
    def pick(sample, result):
        with contextlib.suppress(Exception):
            return (sample.output_process_fn_grad or (lambda x: x))(result)
        return result

    def differentiate(self, sample, what, got, wanted, mine, plain):
        """(gradients, those of the bare run, what they were computed for), or Nones."""
        got, wanted = self.pick(sample, got), self.pick(sample, wanted)
        reference, problem = catch(lambda: base.gradients(wanted, plain.tensors(), self.cotangents(wanted)))
        if problem is not None or reference[0] is None:
            return None, None, None
        with self.tool:
            result, error = catch(lambda: base.gradients(got, mine.tensors(), reference[1]))
        if error is not None:
            raise compare.Difference(f"{what}, backward: raises {describe(error)}, bare it does not")
        self.counts["backward"] += 1
        self.compare_facts_of(result[0], reference[0], what + ", gradient", dense_only=True)
        return result[0], *reference

    def cotangents(self, result):
        generator = torch.Generator().manual_seed(base.SEED)
        outs = [t for t in compare.leaves(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
        return [torch.randn(t.shape, dtype=t.dtype, generator=generator).to(t.device) for t in outs]

    def check_inplace(self, sample, what):
        function = self.op.get_inplace()
        if function is None or sample.broadcasts_input or not isinstance(sample.input, torch.Tensor):
            return
        with torch.no_grad():
            self.check(sample, function, what, count="inplace")

        def on_copy(tensor, *args, **kwargs):
            """The target is neither a leaf nor the whole of its memory."""
            wide = torch.stack([tensor, tensor])
            result = function(wide[0], *args, **kwargs)
            return result, wide

        self.check(sample, on_copy, what + ", of a view, with gradient", backward=True, count="inplace")

    def check_out(self, sample, what):
        if not self.op.supports_out:
            return
        with torch.no_grad():
            reference, error = catch(lambda: self.arguments(sample).call(self.op))
            outputs = reference if isinstance(reference, (tuple, list)) else [reference]
            usable = all(isinstance(t, torch.Tensor) and compare.is_strided(t) for t in outputs)
            if error is not None or not usable:
                return
            for kind in ("same layout", "other layout", "to be resized"):
                if kind == "other layout" and self.op.name in entry.CPU_OUT_IS_BROKEN:
                    continue
                self.check(sample, self.op, f"{what}, {kind}", count="out",
                           extra=lambda kind=kind: {"out": base.out_like(reference, kind, self.device)})  # fmt: skip

    # Comparison

    def compare_facts_of(self, got, wanted, what, dense_only=False):
        """Everything but values. `dense_only`: strides only where the bare ones leave no gaps and repeat nothing; a
        cast or a copy, which the gradient of an argument passes through, gives no others."""
        flat, spec = pytree.tree_flatten(got)
        flat_wanted, spec_wanted = pytree.tree_flatten(wanted)
        if len(flat) != len(flat_wanted) or str(spec) != str(spec_wanted) or type(got) is not type(wanted):
            raise compare.Difference(f"{what}: structure {type(got)} {spec}, bare {type(wanted)} {spec_wanted}")
        for index, (a, b) in enumerate(zip(flat, flat_wanted, strict=True)):
            label = what if len(flat) == 1 else f"{what}[{index}]"
            if type(a) is not type(b):
                raise compare.Difference(f"{label}: {type(a).__name__}, bare {type(b).__name__}")
            if isinstance(a, torch.Tensor):
                self.compare_facts(a, b, label, not dense_only or is_dense(b))

    def compare_values_of(self, got, wanted, what, slack=0):
        names = ("", ", arguments afterwards", ", gradient")
        for name, mine, theirs in zip(names, got, wanted, strict=True):
            flat, flat_wanted = pytree.tree_leaves(mine), pytree.tree_leaves(theirs)
            for index, (a, b) in enumerate(zip(flat, flat_wanted, strict=True)):
                label = f"{what}{name}[{index}]"
                if isinstance(a, torch.Tensor):
                    self.compare_values(a, b, label, slack)
                elif not isinstance(a, torch.Generator):
                    self.compare_scalars(a, b, label)

    def compare_scalars(self, a, b, label):
        if isinstance(a, (float, complex)):
            with contextlib.suppress(AssertionError):
                torch.testing.assert_close(a, b, equal_nan=True)
                return
        if a != b:
            raise ValueDifference(f"{label}: {a!r}, bare {b!r}")

    @staticmethod
    def compare_facts(a, b, label, strides):
        for name in ("dtype", "device", "layout", "shape", "requires_grad", "is_leaf"):
            if getattr(a, name) != getattr(b, name):
                raise compare.Difference(f"{label}: {name} {getattr(a, name)}, bare {getattr(b, name)}")
        if compare.is_strided(a):
            if strides and compare.significant_strides(a) != compare.significant_strides(b):
                raise compare.Difference(f"{label}: strides {a.stride()}, bare {b.stride()}, shape {tuple(a.shape)}")
            if (a.is_conj(), a.is_neg()) != (b.is_conj(), b.is_neg()):
                raise compare.Difference(f"{label}: conjugate or negative bit differs")

    def compare_values(self, a, b, label, slack=0):
        """`slack`: unit roundoffs of the largest value that are allowed everywhere; sums that cancel need them."""
        exact = (self.exact and not self.tolerance) or not (a.is_floating_point() or a.is_complex())
        tolerance = {"rtol": 0, "atol": 0} if exact else self.tolerance
        if slack and not exact and not tolerance:
            finite = b.detach().abs().float().nan_to_num(0, 0, 0)
            unit = torch.finfo(a.dtype).eps
            largest = finite.max().item() if finite.numel() else 0.0
            tolerance = {"rtol": 2 * unit, "atol": max(1e-5, slack * unit * largest)}
        try:
            torch.testing.assert_close(a.detach().cpu(), b.detach().cpu(), equal_nan=True, **tolerance)
        except AssertionError as error:
            text = " ".join(str(error).split())
            raise ValueDifference(f"{label}: values differ: {text[:300]}") from None

    @staticmethod
    def compare_aliases(got, inputs, wanted, inputs_wanted, what):
        """How each result shares memory with the arguments and with earlier results."""
        mine, theirs = compare.leaves(got), compare.leaves(wanted)
        for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            found = compare.alias_of(a, [*compare.leaves(inputs), *mine[:index]])
            bare = compare.alias_of(b, [*compare.leaves(inputs_wanted), *theirs[:index]])
            if (found and found[0]) != (bare and bare[0]):
                raise compare.Difference(f"{what}[{index}]: aliasing {found[0]}, bare {bare[0]}")


def run_entry(name, table, options, tolerance):
    tool_name, _, entry_name = name.partition(":")
    result = {"entry": name, "dtype": "", "status": "pass", "message": ""}
    start = time.perf_counter()
    if entry_name not in table:
        return {
            **result,
            **dict.fromkeys(COUNTS, 0),
            "seconds": 0.0,
            "status": "fail",
            "message": "no such OpInfo entry",
        }
    checks = Entry(table[entry_name], tool_name, options["device"], tolerance, options["max_samples"])
    result["dtype"] = str(checks.dtype).removeprefix("torch.")
    try:
        if checks.dtype is None:
            raise Unusable("it has no such dtype")
        checks.run()
    except Unusable as error:
        result.update(status="cpu_fails", message=str(error))
    except compare.Difference as error:
        result.update(status="fail", message=str(error))
    except Exception as error:
        result.update(status="fail", message=entry.describe_crash(error))
    return {**result, **checks.counts, "seconds": round(time.perf_counter() - start, 3)}


def main():
    """Lines as ditorch.worker_pool speaks them: options, then tasks."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    options = json.loads(sys.stdin.readline())
    if options["load"]:
        __import__(options["load"])
    torch.set_num_threads(1)
    worker.free_the_seeds()
    table = worker.list_entries()
    answers.write(json.dumps({"ready": {"entries": list(table)}}) + "\n")
    for line in sys.stdin:
        task = json.loads(line)
        answers.write(json.dumps(run_entry(task["entry"], table, options, task["tolerance"])) + "\n")


if __name__ == "__main__":
    main()
