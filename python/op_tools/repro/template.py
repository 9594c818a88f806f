"""What every exported repro ends with (see export.py): the call once on the device, and on the CPU as often as the
verdict (rule.py) needs it, forward and backward.

This text is copied into the exported script behind those of moves.py, rule.py and ditorch/device_autocast.py, so it
needs torch alone and runs on Python 3.8 and torch 2.1. What is particular about a call stands in front of all that
there: see `Call`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import math
import os
import sys
import types

import torch
from ditorch.device_autocast import run_under_autocast
from ditorch.other_ways import run_other_way

from .moves import Run, get_roundoff
from .rule import get_same, judge


# begin
class Missing(Exception):
    """Something that the call needs is not here; the text says what to do."""


class Call:
    """One operator call. `tensors`: (memory, dtype, shape, strides, offset, flags) each, or ("whole", number) for one
    that data.pt holds as it is; flags: grad, conj, neg, cpu. `order`: the tensors of the arguments, as they come;
    `grads`: those of the gradients of the results. `rule`: its numbers; `row`: what is known about the operator."""

    def __init__(self, operator, tensors, make_arguments, order, grads, state, rule, row, data):
        self.operator, self.tensors, self.make_arguments = operator, tensors, make_arguments
        self.order, self.grads, self.state, self.rule, self.row, self.data = order, grads, state, rule, row, data

    def has(self, *traits):
        return any(trait in self.row.get("traits", ()) for trait in traits)


def find_operator(name):
    if "::" in name:
        space, _, rest = name.partition("::")
        parts = ["torch", "ops", space, *rest.split(".")]
    else:
        parts = name.split(".")
    if len(parts) == 1:  # torch._foreach_add_ and others have no module of their own
        for space in (torch, torch._C._VariableFunctions, torch._C._nn):
            if hasattr(space, name):
                return getattr(space, name)
    try:
        found = importlib.import_module(parts[0])
    except ImportError as error:
        raise Missing(f"{name} needs the package {parts[0]!r}: {error}") from None
    for place, part in enumerate(parts[1:], 2):
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(".".join(parts[:place]))
            except ImportError:
                version = getattr(sys.modules[parts[0]], "__version__", "")
                raise Missing(f"there is no {name} in {parts[0]} {version}") from None
    return found if callable(found) else found.__get__


class Enter(torch.autograd.Function):
    """Makes a tensor with its own memory the result of a leaf, so that it may be written to and has a gradient."""

    @staticmethod
    def forward(context, leaf, box):
        return box[0]

    @staticmethod
    def backward(context, gradient):
        return gradient, None


class Inputs:
    """The arguments of one run, in memory of their own: strides, offsets and sharing as captured. In float64 tensors
    share memory with tensors of the same dtype alone; inputs that are moved share none."""

    def __init__(self, call, device, run, grad):
        self.call, self.device, self.run, self.grad = call, device, run, grad
        self.memory, self.made, self.leaves = {}, {}, {}

    def place(self, number):
        """All bytes of one storage on its device."""
        if number not in self.memory:
            flags = [t[5] for t in self.call.tensors if t[0] == number]
            device = "cpu" if any("cpu" in flag for flag in flags) else self.device
            self.memory[number] = self.call.data["memory"][number].to(device, copy=True)
        return self.memory[number]

    def flat(self, number, dtype):
        data = self.place(number)
        data = data[: data.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        if self.run.moves or self.run.get_dtype(dtype) == dtype:
            return data
        key = (number, dtype)
        if key not in self.memory:
            self.memory[key] = data.to(self.run.get_dtype(dtype))
        return self.memory[key]

    def get_moved(self, number, gradient=None):
        """As the run wants it, without autograd; `gradient`: it is that of this result."""
        tensor = self.get_plain(number)
        if not self.run.moves or tensor.layout is not torch.strided or tensor.is_quantized:
            return tensor
        if gradient is not None:
            return self.run.make_gradient(tensor, gradient)
        return self.run.make(tensor, self.call.order.index(number))

    def get_plain(self, number):
        """Without autograd, and without a move."""
        if self.call.tensors[number][0] == "whole":
            tensor = self.call.data["whole"][self.call.tensors[number][1]].to(self.device, copy=True)
            return tensor if tensor.is_quantized or self.run.moves else tensor.to(self.run.get_dtype(tensor.dtype))
        memory, dtype, shape, strides, offset, flags = self.call.tensors[number]
        tensor = self.flat(memory, dtype).as_strided(shape, strides, offset).data
        tensor = tensor.conj().data if "conj" in flags else tensor
        return torch._neg_view(tensor).data if "neg" in flags else tensor

    def tensor(self, number):
        if number not in self.made:
            tensor = self.get_moved(number)
            flags = self.call.tensors[number][-1]
            if self.grad and isinstance(flags, str) and "grad" in flags:
                leaf = torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape).requires_grad_()
                self.leaves[number] = leaf
                tensor = Enter.apply(leaf, [tensor])
            self.made[number] = tensor
        return self.made[number]

    def dtype(self, dtype):
        return self.run.get_dtype(dtype)

    def get_device(self):
        return torch.device(self.device)

    def generator(self, number):
        kind, state = self.call.data["generators"][number]
        made = torch.Generator("cpu" if kind == "cpu" else self.device)
        try:
            made.set_state(state)
        except RuntimeError:  # of another kind of device
            made.manual_seed(0)
        return made

    def array(self, number):
        made = self.call.data["arrays"][number].numpy()
        return made.copy() if made.ndim else made[()]

    def storage(self, number):
        return self.place(number).untyped_storage()

    def list_written(self):
        """Numbers of the tensors whose memory the operator changed."""
        numbers = []
        for number, recipe in enumerate(self.call.tensors):
            if recipe[0] != "whole" and number in self.made and number not in self.call.grads:
                before = self.call.data["memory"][recipe[0]]
                if not torch.equal(self.place(recipe[0]).cpu(), before):
                    numbers.append(number)
        return numbers


def flatten(value):
    if isinstance(value, dict):
        return [item for key in value for item in flatten(value[key])]
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [item for part in value for item in flatten(part)]
    return [value]


def is_tensor(value):
    return isinstance(value, torch.Tensor)


@contextlib.contextmanager
def captured_state(call, device, seed=0, autocast=True):
    """Random numbers, determinism, autocast and grad mode as they were."""
    state, kind = call.state, torch.device(device).type
    (torch.default_generator if kind == "cpu" else torch).manual_seed(seed)
    for name, numbers in ({} if seed else call.data["random"]).items():
        try:
            if name.split(":")[0] == "cpu":
                torch.set_rng_state(numbers)
            elif kind != "cpu":
                getattr(torch, kind).set_rng_state(numbers)
        except (RuntimeError, TypeError, AttributeError):
            print(f"note: the captured state of the random numbers of {name} does not fit here")
    before = torch.are_deterministic_algorithms_enabled()
    with contextlib.ExitStack() as stack:
        if state.get("deterministic") is not None:
            torch.use_deterministic_algorithms(state["deterministic"], warn_only=True)
            stack.callback(torch.use_deterministic_algorithms, before)
        for dtype in state.get("autocast", ()) if autocast else ():
            stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=False))
        stack.enter_context(torch.set_grad_enabled(state.get("grad", True)))
        yield


def run(call, device, further=None, seed=0, guest=""):
    """{name: value} of everything that the call gave, on the CPU; and the numbers of the arguments it wrote to.
    `further`: which run it is, if not the plain one. `guest`: the device whose autocast acts on the CPU's tensors."""
    further = further or Run()
    inputs = Inputs(call, device, further, call.state.get("grad", True))
    function = find_operator(call.operator)
    args, kwargs = call.make_arguments(inputs)
    double = any(call.tensors[n][1] in (torch.float64, torch.complex128) for n in call.order)
    args, kwargs = further.make_numbers(args, kwargs, 2.0**-53 if double else 2.0**-24)
    casts = further.kind in ("native", "other", "jitter") and not further.narrow
    with captured_state(call, device, seed, casts and not guest):
        if guest and casts:
            result = run_under_autocast(function, args, kwargs, guest, call.state["autocast"][0])
        elif further.kind == "other" and not call.state.get("autocast"):
            result = run_other_way(call.row["name"], args, kwargs)
        else:
            result = function(*args, **kwargs)
    outputs = flatten(result)
    tensors = [value for value in outputs if is_tensor(value)]
    pairs = [
        (tensor, inputs.get_moved(number, place).to(device=tensor.device, dtype=tensor.dtype))
        for place, (tensor, number) in enumerate(zip(tensors, call.grads))  # noqa: B905 (Python 3.8)
        if number is not None and tensor.requires_grad
    ]
    numbers = sorted(inputs.leaves)
    found = {}
    if pairs and numbers:
        leaves = [inputs.leaves[number] for number in numbers]
        wanted = torch.autograd.grad([t for t, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True)
        found = {f"gradient of tensor {n}": to_cpu(g) for n, g in zip(numbers, wanted)}  # noqa: B905
    values = {f"result {n}": to_cpu(value) for n, value in enumerate(outputs)}
    written = inputs.list_written()
    for number in sorted(inputs.made):
        values[f"tensor {number} after the call"] = to_cpu(inputs.made[number])
    values.update(found)
    return values, written


def to_cpu(value):
    if not is_tensor(value):
        return value
    value = value.detach()
    value = value.dequantize() if value.is_quantized else value
    value = value.to_dense() if value.layout is not torch.strided else value
    return value.resolve_conj().resolve_neg().cpu()


# The references, and what is said about them


class References:
    """The call on the CPU: in its own precision at once, and as often as the verdict asks. `guest`: see run()."""

    def __init__(self, call, guest=""):
        self.call, self.kept = call, {}
        self.guest = guest if call.state.get("autocast") else ""
        self.native, self.written = self.run(Run())
        other, _ = run(call, "cpu", seed=1)
        results = [name for name in self.native if name.startswith("result") and is_tensor(self.native[name])]
        differs = any(not same_values(self.native[name], other[name]) for name in results)
        self.is_random = differs or call.has("uninitialised")
        memory = [recipe[0] for recipe in call.tensors]
        self.is_tangled = any(memory.count(memory[number]) > 1 for number in self.written)
        plain = Inputs(call, "cpu", Run(), False)
        args, kwargs = call.make_arguments(plain)
        tensors = [plain.made[number] for number in call.order]
        words = ("dim", "index", "sorted")
        dim, index, order = (get_argument(args, kwargs, call.row.get(word), word) for word in words)
        self.dim = dim if type(dim) is int else None
        self.place = next((n for n, tensor in enumerate(tensors) if tensor is index), None)
        self.unsorted = call.row.get("sorted") is not None and order is False
        self.inexact = get_argument(args, kwargs, call.row.get("unless_place"), call.row.get("unless")) is not None
        self.inputs = [to_cpu(tensor) for tensor in tensors]

    def run(self, further):
        """Under the device's autocast where the CPU's tensors can be dressed for it, else under the CPU's own."""
        guest = self.guest if further.kind != "other" else ""
        try:
            return run(self.call, "cpu", further, guest=guest)
        except Exception:
            if not guest:
                raise
            self.guest = ""
            return run(self.call, "cpu", further)

    def get(self, further, name):
        """One value of a further run, or why there is none."""
        # What computes nothing runs in its own dtypes; its gradients may be sums.
        keep = self.call.has("view", "transfer") and not name.startswith("gradient")
        further = Run(further.kind, further.size, further.narrow, further.seed, keep)
        is_plain = not self.written and not self.call.state.get("autocast")
        if further.kind == "other" and not self.guest and not (is_plain and self.call.has("scan")):
            return "the CPU has no other way"
        if further.moves and self.is_tangled:
            return "an argument that is written to shares its memory"
        key = (further.kind, further.size, further.narrow, further.seed, further.keep)
        if key not in self.kept:
            try:
                self.kept[key] = self.run(further)[0]
            except Exception as error:  # not every operator takes float64
                self.kept[key] = get_line(error)
        values = self.kept[key]
        return values if isinstance(values, str) else values.get(name)


def get_argument(args, kwargs, place, name):
    if name and name in kwargs:
        return kwargs[name]
    return args[place] if isinstance(place, int) and place < len(args) else None


def same_values(a, b):
    return a.shape == b.shape and bool(get_same(a, b).all())


def get_input_roundoff(row):
    """That of TF32, to which PyTorch's switches let a CUDA device round float32 inputs of products; 0: they do not."""
    name, backends = row.get("name", ""), torch.backends
    if "contraction" not in row.get("traits", ()):
        return 0.0
    if "attention" in name:
        return 2.0**-21  # in one kernel: products of three parts in TF32 each
    try:
        if "conv" in name or name.startswith("rnn_") or name in ("lstm", "gru"):
            rounds = backends.cudnn.allow_tf32 and backends.cudnn.enabled
        else:
            rounds = backends.cuda.matmul.allow_tf32
    except RuntimeError:  # the program uses the newer switches
        rounds = "tf32" in (backends.cudnn.conv.fp32_precision, backends.cuda.matmul.fp32_precision)
    return 2.0**-11 if rounds else 0.0


def judge_value(references, name, got, seed=0, careful=False):
    """(verdict, what to print): "PASS", "FAIL", or "none" where nothing can be said."""
    call, native = references.call, references.native.get(name)
    if not is_tensor(got) or not is_tensor(native):
        same = type(got) is type(native) and (is_tensor(got) or got == native or got != got)
        close = isinstance(got, float) and isinstance(native, float) and math.isclose(got, native, rel_tol=1e-6)
        return ("PASS" if same or close else "FAIL"), f"{str(got)[:60]}, on the CPU {str(native)[:60]}"
    if got.dtype != native.dtype:
        return "FAIL", f"dtype {got.dtype}, on the CPU {native.dtype}"
    if references.is_random and name.startswith("result"):
        verdict = "none" if got.shape == native.shape else "FAIL"
        return verdict, "random or uninitialised: only shape and dtype are judged"
    number = int(name.split()[3 if name.startswith("gradient") else 1])
    what = {"r": "output", "g": "grad", "t": "input"}[name[0]]
    case = types.SimpleNamespace(
        rule=call.rule, row=call.row, what=what, index=number if what == "output" else call.order.index(number),
        careful=careful, seed=seed, inputs=references.inputs, dim=references.dim, place=references.place,
        unsorted=references.unsorted, inexact=references.inexact, input_roundoff=get_input_roundoff(call.row),
        between=max((get_roundoff(dtype) for dtype in call.state.get("autocast", ())), default=0.0),
    )  # fmt: skip
    found = judge(case, got, native, lambda further: references.get(further, name))
    return found.verdict, describe(found, got)


def describe(found, got):
    """An answer of the rule in words."""
    result = found.result
    if result is None or (found.verdict == "none" and not result.index >= 0):
        return found.reason
    if result.index < 0:
        return found.reason or "equal to the reference"
    own = "" if math.isnan(found.cpu_error) else f", the CPU's own {found.cpu_error:.3g}"
    place = list(unravel(result.index, got.shape))
    text = f"max error {result.error:.3g} (allowed {result.allowed:.3g}{own}); worst at {place}: "
    text += f"{result.value}, not {result.reference}"
    text += f"; {result.wrong} of {got.numel()} wrong" if found.verdict == "FAIL" else ""
    return f"{found.reason}: {text}" if found.reason else text


def unravel(place, shape):
    index = []
    for size in reversed(shape):
        index.append(place % size)
        place //= size
    return reversed(index)


def compare_values(references, values, written, title):
    """Print a line per value; True when one is wrong."""
    failed = False
    print(title)
    for name, got in values.items():
        if name.endswith("after the call") and int(name.split()[1]) not in set(written) | set(references.written):
            continue
        if got is None and references.native.get(name) is None:
            continue
        verdict, text = judge_value(references, name, got)
        failed = failed or verdict == "FAIL"
        print(f"  {verdict:4}  {name}: {text}")
    return failed


def get_captured(call):
    values = {f"result {n}": value for n, value in enumerate(call.data["output"])}
    for number, value in zip(call.data["order"], call.data["grad_inputs"]):  # noqa: B905
        if is_tensor(value):
            values[f"gradient of tensor {number}"] = value
    return values


def explain(error):
    return f"{type(error).__name__}: {get_line(error)}"


def get_line(error):
    return (str(error) or type(error).__name__).splitlines()[0]


def check_device(name):
    kind = name.split(":")[0]
    if kind not in ("cpu", "cuda"):
        with contextlib.suppress(ImportError):
            importlib.import_module("torch_" + kind)  # a vendor's package makes its device known
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except Exception as error:
        raise Missing(
            f"device {name!r} does not work here ({get_line(error)}); choose another with --device, or judge the "
            "captured results alone with --captured"
        ) from None
    return device


def get_guest(name):
    """The device, if there is one here whose autocast the CPU can be asked under."""
    try:
        device = check_device(name)
        return "" if device.type == "cpu" else str(device)
    except Missing:
        return ""


def main(call, device, words=None):
    """0 right, 1 wrong, 2 when it could not be run."""
    parser = argparse.ArgumentParser(description=f"Run {call.operator} with captured arguments.")
    parser.add_argument("--device", default=device, help="where to run it (default: %(default)s)")
    parser.add_argument("--captured", action="store_true", help="judge the captured results instead of running")
    options = parser.parse_args(words)
    raised = None
    try:
        find_operator(call.operator)
        print(f"{call.operator}, torch {torch.__version__}")
        if options.captured and not get_captured(call):
            raise Missing("there are no captured results")
        if not options.captured:
            place = check_device(options.device)
            try:
                values, written = run(call, str(place))
            except Exception as error:
                raised = error
                print(f"on {place}: raised {explain(error)}")
        references = References(call, get_guest(options.device))
    except Missing as error:
        print(error, file=sys.stderr)
        return 2
    except Exception as error:
        print(f"the CPU cannot run it: {explain(error)}", file=sys.stderr)
        return 2
    if raised is not None:
        print("FAIL")
        return 1
    captured = get_captured(call)
    wrong_then = compare_values(references, captured, (), "as captured:") if captured else False
    wrong_now = False if options.captured else compare_values(references, values, written, f"on {place}:")
    failed = wrong_then if options.captured else wrong_now
    print("FAIL" if failed else "PASS")
    return 1 if failed else 0


def load_data(folder):
    return torch.load(os.path.join(folder, "data.pt"), map_location="cpu", weights_only=True)
