"""Worker of the OpInfo run: reads entry names from standard input, answers one JSON line each on standard output.

Invariant: samples are made on the CPU from a fixed seed and copied bit for bit (same storage, strides, offset) to fresh
tensors on the CPU and on the device, so both sides start equal and nothing leaks from one run into the next.
The operator database is imported before the device is loaded: its dtype tables then describe the CPU.
"""

import argparse
import contextlib
import faulthandler
import json
import os
import random
import sys
import time
import warnings

import torch
from torch.testing._internal import common_methods_invocations
from torch.utils import _pytree as pytree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import opinfo_compare as compare

SEED = 20240517
FALLBACK_DTYPES = (torch.int64, torch.complex64, torch.bool, torch.float16, torch.bfloat16)
STATISTICAL_RUNS = 48
KEEP_ARGUMENTS_ON_CPU = {"tensor_split"}  # PyTorch demands the index tensor on the CPU, for CUDA too
# PyTorch's own CPU kernels, given out= of another layout: the lu ones write out of bounds, gelu writes nothing.
CPU_OUT_IS_BROKEN = {"lu_unpack", "linalg.lu", "nn.functional.gelu"}
DEVICE_BY_KEYWORD_ONLY = {"linspace", "logspace"}  # tensor arguments do not choose the device of these factories
VARIANT_SAMPLES = 4


def entry_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def entries():
    return {entry_name(op): op for op in common_methods_invocations.op_db}


def entry_dtype(op):
    """float32, or for an operator without it the first dtype the CPU supports."""
    return next((d for d in (torch.float32, *FALLBACK_DTYPES) if d in op.dtypes), None)


def free_the_seeds():
    """The database runs random operators under a fixed seed and restores it; here the runner sets the seeds."""

    def call(op, *args, **kwargs):
        return op(*args, **kwargs)

    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal") and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = call


class CpuFails(Exception):
    """The CPU itself cannot run this entry."""


# ---- copies of samples


def copy_tensor(tensor, device, storages):
    if not compare.is_strided(tensor):
        return tensor.detach().clone().to(device).requires_grad_(tensor.requires_grad)
    source = tensor.detach().resolve_conj().resolve_neg()
    key = source.untyped_storage().data_ptr() or id(tensor)
    if key not in storages:
        flat = torch.empty(0, dtype=torch.uint8, device=source.device).set_(source.untyped_storage())
        storages[key] = flat.clone().to(device).untyped_storage()
    out = torch.empty(0, dtype=source.dtype, device=device)
    out.set_(storages[key], source.storage_offset(), source.shape, source.stride())
    return out.requires_grad_(tensor.requires_grad)


def copy_generator(generator, device):
    out = torch.Generator(device=device)
    out.manual_seed(generator.initial_seed())
    return out


def copy_value(value, device, storages):
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(copy_tensor(value, device, storages).detach(), value.requires_grad)
    if isinstance(value, torch.Tensor):
        return copy_tensor(value, device, storages)
    if isinstance(value, torch.device):
        return torch.device(device)
    if isinstance(value, torch.Generator):
        return copy_generator(value, device)
    return value


class Arguments:
    """input, args and kwargs of one sample on one device."""

    def __init__(self, sample, device, keep_arguments=False):
        self.keep_arguments = keep_arguments
        storages = {}

        def copy(tree):
            return pytree.tree_map(lambda x: copy_value(x, device, storages), tree)

        self.input, self.kwargs = copy(sample.input), copy(sample.kwargs)
        self.args = sample.args if keep_arguments else copy(sample.args)
        if isinstance(self.kwargs.get("device"), str):
            self.kwargs["device"] = device

    def tensors(self):
        return compare.leaves([self.input, () if self.keep_arguments else self.args, self.kwargs])

    def call(self, function, **extra):
        return function(self.input, *self.args, **{**self.kwargs, **extra})


# ---- one entry


class Entry:
    """Runs all samples of one operator and raises compare.Difference at the first that differs."""

    def __init__(self, op, device, tolerance, max_samples):
        self.op, self.device, self.tolerance = op, device, tolerance
        self.dtype = entry_dtype(op)
        self.max_samples = max_samples
        self.device_type = torch.device(device).type
        self.empty = op.name.startswith(("empty", "new_empty")) or op.name.endswith(
            ("empty_like", "resize_", "resize_as_")
        )
        self.counts = {"samples": 0, "random": 0, "backward": 0, "inplace": 0, "out": 0, "skipped": 0}
        self.last_cpu_error = ""
        self.ledger = Ledger()

    def arguments(self, sample, device):
        return Arguments(sample, device, self.op.name in KEEP_ARGUMENTS_ON_CPU)

    def result_device(self, arguments):
        """Where the result belongs: the device, but for factories that were not told a device."""
        if "device" in arguments.kwargs:
            return self.device_type
        takes_tensors = arguments.tensors() and self.op.name not in DEVICE_BY_KEYWORD_ONLY
        return self.device_type if takes_tensors else "cpu"

    def samples(self):
        torch.manual_seed(SEED)
        random.seed(SEED)
        grad = self.op.supports_autograd and self.dtype in self.op.supported_backward_dtypes("cpu")
        samples = list(self.op.sample_inputs("cpu", self.dtype, requires_grad=grad))
        if len(samples) > self.max_samples:
            step = len(samples) / self.max_samples
            samples = [samples[int(i * step)] for i in range(self.max_samples)]
        return samples, grad

    def run(self):
        try:
            samples, grad = self.samples()
        except Exception as error:
            raise CpuFails(f"sample inputs: {describe(error)}") from None
        for index, sample in enumerate(samples):
            self.check_sample(sample, f"sample {index}", grad)
        if self.counts["samples"] == 0:
            raise CpuFails(self.last_cpu_error or "the operator has no samples")
        for index, sample in enumerate(samples[:: max(1, len(samples) // VARIANT_SAMPLES)][:VARIANT_SAMPLES]):
            self.check_inplace(sample, f"in-place, sample {index}")
            self.check_out(sample, f"out=, sample {index}")

    def check_sample(self, sample, what, grad):
        cpu = self.arguments(sample, "cpu")
        before = torch.get_rng_state()
        states = generator_states(cpu)
        try:
            wanted = cpu.call(self.op)
        except Exception as error:
            self.counts["skipped"] += 1
            self.last_cpu_error = describe(error)
            return
        drew = not torch.equal(before, torch.get_rng_state()) or states != generator_states(cpu)
        mine = self.arguments(sample, self.device)
        with self.ledger:
            got = self.on_device(lambda: mine.call(self.op), what)
        self.counts["samples"] += 1
        random_or_empty = drew or self.empty
        compare.check_tree(got, wanted, what, self.result_device(mine), self.tolerance, values=not random_or_empty)
        compare.check_aliases(got, mine.tensors(), wanted, cpu.tensors(), what)
        if not random_or_empty:
            compare.check_tree(
                mine.tensors(), cpu.tensors(), what + ", inputs afterwards", self.device_type, self.tolerance
            )
        if drew:
            self.counts["random"] += 1
            self.check_random(sample, what)
        if grad:
            self.check_backward(sample, what, got, wanted, mine, cpu, values=not random_or_empty)

    def on_device(self, function, what):
        try:
            return function()
        except Exception as error:
            raise compare.Difference(f"{what}: the device raised {describe(error)}, the CPU did not") from None

    def check_backward(self, sample, what, got, wanted, mine, cpu, values):
        pick = sample.output_process_fn_grad or (lambda x: x)
        with contextlib.suppress(Exception):
            wanted, got = pick(wanted), pick(got)
        try:
            reference, cotangents = gradients(wanted, cpu.tensors(), None)
        except Exception as error:
            self.last_cpu_error = describe(error)
            return
        if reference is None:
            return
        self.counts["backward"] += 1
        with self.ledger:
            result, _ = self.on_device(
                lambda: gradients(got, mine.tensors(), [c.to(self.device) for c in cotangents]), what + ", backward"
            )
        compare.check_tree(result, reference, what + ", gradient", self.device_type, self.tolerance, values=values)

    def check_random(self, sample, what):
        """Equal seeds give equal numbers; means and mean squares over many runs agree with the CPU's."""

        def draw(device, seed):
            seed_all(seed)
            arguments = self.arguments(sample, device)
            for value in pytree.tree_leaves([arguments.args, arguments.kwargs]):
                if isinstance(value, torch.Generator):
                    value.manual_seed(seed)
            with torch.no_grad():
                return pytree.tree_map(
                    lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, arguments.call(self.op)
                )

        with self.ledger:
            first, second = draw(self.device, SEED), draw(self.device, SEED)
        for a, b in zip(compare.leaves(first), compare.leaves(second), strict=False):
            if not torch.equal(a.cpu().nan_to_num(), b.cpu().nan_to_num()):
                raise compare.Difference(f"{what}: two runs with the same seed differ")
        runs = STATISTICAL_RUNS if self.counts["random"] <= 6 else 0
        if self.empty or not runs:
            return
        on_device = [draw(self.device, SEED + i) for i in range(runs)]
        on_cpu = [draw("cpu", SEED + i) for i in range(runs)]
        compare.check_statistics(on_device, on_cpu, what)
        if distinct(on_cpu) > 1 and distinct(on_device) == 1:
            raise compare.Difference(f"{what}: {runs} seeds give one and the same result")

    def check_inplace(self, sample, what):
        function = self.op.get_inplace()
        if function is None or sample.broadcasts_input or not isinstance(sample.input, torch.Tensor):
            return
        cpu, mine = self.arguments(sample, "cpu"), self.arguments(sample, self.device)
        drew = torch.get_rng_state()
        with torch.no_grad():
            try:
                wanted = cpu.call(function)
            except Exception:
                return
            drew = not torch.equal(drew, torch.get_rng_state())
            with self.ledger:
                got = self.on_device(lambda: mine.call(function), what)
        self.counts["inplace"] += 1
        values = not (drew or self.empty)
        compare.check_tree(got, wanted, what, self.device_type, self.tolerance, values=values)
        compare.check_aliases(got, mine.tensors(), wanted, cpu.tensors(), what)
        compare.check_tree(
            mine.tensors(), cpu.tensors(), what + ", arguments", self.device_type, self.tolerance, values=values
        )

    def check_out(self, sample, what):
        if not self.op.supports_out:
            return
        with torch.no_grad():
            drew = torch.get_rng_state()
            try:
                reference = self.arguments(sample, "cpu").call(self.op)
            except Exception:
                return
            outputs = reference if isinstance(reference, (tuple, list)) else [reference]
            if not all(isinstance(t, torch.Tensor) and compare.is_strided(t) for t in outputs):
                return
            drew = not torch.equal(drew, torch.get_rng_state())
            for kind in ("same layout", "other layout", "to be resized"):
                if kind == "other layout" and self.op.name in CPU_OUT_IS_BROKEN:
                    continue
                self.check_one_out(sample, reference, kind, f"{what}, {kind}", values=not (drew or self.empty))

    def check_one_out(self, sample, reference, kind, what, values):
        cpu, mine = self.arguments(sample, "cpu"), self.arguments(sample, self.device)
        cpu_out, mine_out = out_like(reference, kind, "cpu"), out_like(reference, kind, self.device)
        addresses = [t.data_ptr() for t in compare.leaves(mine_out)]
        try:
            wanted = cpu.call(self.op, out=cpu_out)
        except Exception:
            return
        with self.ledger:
            got = self.on_device(lambda: mine.call(self.op, out=mine_out), what)
        self.counts["out"] += 1
        compare.check_tree(got, wanted, what, self.device_type, self.tolerance, values=values)
        compare.check_tree(mine_out, cpu_out, what, self.device_type, self.tolerance, values=values)
        if kind != "to be resized" and addresses != [t.data_ptr() for t in compare.leaves(mine_out)]:
            raise compare.Difference(f"{what}: the result was put into new memory")


# ---- helpers


def describe(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def seed_all(seed):
    torch.manual_seed(seed)  # seeds every device
    random.seed(seed)


def distinct(results):
    return len({str([t.cpu().flatten().tolist()[:64] for t in compare.leaves(r)]) for r in results})


def generator_states(arguments):
    return [
        g.get_state().tolist()
        for g in pytree.tree_leaves([arguments.args, arguments.kwargs])
        if isinstance(g, torch.Generator)
    ]


def gradients(result, inputs, cotangents):
    """Gradients of all differentiable results for all inputs; the cotangents are drawn on the CPU when not given."""
    outs = [t for t in compare.leaves(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    wanted = [t for t in inputs if t.requires_grad and t.is_leaf]
    if not outs or not wanted:
        return None, None
    if cotangents is None:
        generator = torch.Generator().manual_seed(SEED)
        cotangents = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in outs]
    return list(torch.autograd.grad(outs, wanted, cotangents, allow_unused=True)), cotangents


def out_like(reference, kind, device):
    """Tensors to be passed as out=: filled with a value that shows when it is left unwritten."""

    def make(tensor):
        shape, dtype = tensor.shape, tensor.dtype
        if kind == "to be resized":
            return torch.empty(0, dtype=dtype, device=device)
        if kind == "other layout" and tensor.dim() > 1:
            out = torch.empty(tuple(reversed(shape)), dtype=dtype, device=device).permute(
                *reversed(range(tensor.dim()))
            )
        else:
            out = torch.empty_strided(shape, tensor.stride(), dtype=dtype, device=device)
        return out.fill_(1 if dtype is torch.bool else 77)

    if isinstance(reference, torch.Tensor):
        return make(reference)
    return tuple(make(t) for t in reference)


class Ledger:
    """Context manager that sums what ran in C and what fell back, on the device only, over all its uses."""

    def __init__(self):
        self.c, self.fallback = {}, {}
        try:
            import ditorch._C

            self.source = ditorch._C
        except ImportError:
            self.source = None

    def __enter__(self):
        if self.source is not None:
            self.source.ledger_reset()

    def __exit__(self, *exc):
        if self.source is None:
            return
        for row in self.source.ledger():
            for calls, total in ((row["c"]["calls"], self.c), (row["fallback"]["calls"], self.fallback)):
                if calls:
                    total[row["name"]] = total.get(row["name"], 0) + calls


def run_entry(op, device, tolerance, max_samples):
    entry = Entry(op, device, tolerance, max_samples)
    result = {
        "entry": entry_name(op),
        "dtype": str(entry.dtype).removeprefix("torch."),
        "status": "pass",
        "message": "",
    }
    start = time.perf_counter()
    try:
        if entry.dtype is None:
            raise CpuFails("the CPU has no dtype for it")
        entry.run()
    except CpuFails as error:
        result.update(status="cpu_fails", message=str(error))
    except compare.Difference as error:
        result.update(status="fail", message=str(error))
    except Exception as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        result.update(
            status="fail", message=f"runner: {describe(error)} at {os.path.basename(place.filename)}:{place.lineno}"
        )
    result.update(
        entry.counts, seconds=round(time.perf_counter() - start, 3), c=entry.ledger.c, fallback=entry.ledger.fallback
    )
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--load", default="ditorch", help="module that provides the device; empty for none")
    parser.add_argument("--max-samples", type=int, default=100000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    faulthandler.enable()  # a crash leaves the Python stack for the report
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # operators that print do not disturb the protocol
    if options.load:
        __import__(options.load)
    torch.set_num_threads(1)
    free_the_seeds()
    table = entries()
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        task = json.loads(line)
        answers.write(
            json.dumps(run_entry(table[task["entry"]], options.device, task["tolerance"], options.max_samples)) + "\n"
        )


if __name__ == "__main__":
    main()
