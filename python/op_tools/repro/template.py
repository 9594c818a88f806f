"""What every exported repro ends with (see repro.py): the call once on the device, once on the CPU, once on the CPU in
float64, forward and backward, and the verdict.

This text is copied into the exported script, so it needs torch alone and runs on Python 3.8 and torch 2.1. What is
particular about a call stands in front of it there: see `Call`.

The rule: u is the unit roundoff of the result's dtype, r the value in float64. The CPU's own error beyond 2u|r| is its
residual (it carries the length of reductions and cancellation). A value is right when it is within
4 * (2u|r| + residual) of r: four times the error that the CPU itself makes in the same precision. Of a call that
computes in float64 there is no wider reference: its residual is what a change of the arguments by up to 8 units in the
last place does, up to 1000u of the largest value (or of 1).
"""

# begin
from __future__ import annotations

import argparse
import contextlib
import importlib
import math
import os
import sys

import torch

FACTOR = 4
WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
WIDE.update({getattr(torch, name): torch.float64 for name in dir(torch) if name.startswith("float8_")})
TIES = """sort argsort msort topk max min kthvalue median nanmedian mode argmax argmin cummax cummin unique
    unique_consecutive max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices searchsorted bucketize"""
UNINITIALISED = "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_"


class Missing(Exception):
    """Something that the call needs is not here; the text says what to do."""


class Call:
    """One operator call. `tensors`: (memory, dtype, shape, strides, offset, flags) each, or ("whole", number) for one
    that data.pt holds as it is; flags: grad, conj, neg, cpu. `grads`: numbers of the gradients of the results."""

    def __init__(self, operator, tensors, make_arguments, grads, state, data):
        self.operator, self.tensors, self.make_arguments = operator, tensors, make_arguments
        self.grads, self.state, self.data = grads, state, data

    def get_last_name(self):
        return self.operator.replace("::", ".").split(".")[-1]


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
    share memory with tensors of the same dtype alone."""

    def __init__(self, call, device, wide, grad, shake=False):
        self.call, self.device, self.wide, self.grad, self.shake = call, device, wide, grad, shake
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
        if not self.wide or not (dtype.is_floating_point or dtype.is_complex):
            return data
        key = (number, dtype)
        if key not in self.memory:
            data = data.to(WIDE.get(dtype, dtype))
            if self.shake:
                generator = torch.Generator().manual_seed(1)
                noise = 2 * torch.rand(data.shape, dtype=torch.float64, generator=generator) - 1
                data = data * (1 + 8 * torch.finfo(torch.float64).eps * noise)
            self.memory[key] = data
        return self.memory[key]

    def get_plain(self, number):
        """Without autograd."""
        if self.call.tensors[number][0] == "whole":
            tensor = self.call.data["whole"][self.call.tensors[number][1]].to(self.device, copy=True)
            widen = self.wide and not tensor.is_quantized and tensor.dtype in WIDE
            return tensor.to(WIDE[tensor.dtype]) if widen else tensor
        memory, dtype, shape, strides, offset, flags = self.call.tensors[number]
        tensor = self.flat(memory, dtype).as_strided(shape, strides, offset).data
        tensor = tensor.conj().data if "conj" in flags else tensor
        return torch._neg_view(tensor).data if "neg" in flags else tensor

    def tensor(self, number):
        if number not in self.made:
            tensor = self.get_plain(number)
            flags = self.call.tensors[number][-1]
            if self.grad and isinstance(flags, str) and "grad" in flags:
                leaf = torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape).requires_grad_()
                self.leaves[number] = leaf
                tensor = Enter.apply(leaf, [tensor])
            self.made[number] = tensor
        return self.made[number]

    def dtype(self, dtype):
        return WIDE.get(dtype, dtype) if self.wide else dtype

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
def captured_state(call, device, seed):
    """Random numbers, determinism, autocast and grad mode as they were."""
    state, kind = call.state, torch.device(device).type
    torch.manual_seed(seed)
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
        for dtype in state.get("autocast", ()):
            stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=False))
        stack.enter_context(torch.set_grad_enabled(state.get("grad", True)))
        yield


def run(call, device, wide=False, seed=0, shake=False):
    """{name: value} of everything that the call gave, on the CPU; and the numbers of the arguments it wrote to."""
    inputs = Inputs(call, device, wide, call.state.get("grad", True), shake)
    function = find_operator(call.operator)
    args, kwargs = call.make_arguments(inputs)
    with captured_state(call, device, seed):
        result = function(*args, **kwargs)
    outputs = flatten(result)
    tensors = [value for value in outputs if is_tensor(value)]
    pairs = [
        (tensor, inputs.get_plain(number).to(device=tensor.device, dtype=tensor.dtype))
        for tensor, number in zip(tensors, call.grads)  # noqa: B905 (Python 3.8)
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


# ---- the verdict


def judge(got, native, wide, name, shaken=None):
    """(verdict, what to print): "PASS", "FAIL", or "none" where nothing can be said."""
    if not is_tensor(got) or not is_tensor(native):
        same = type(got) is type(native) and (is_tensor(got) or got == native or got != got)
        close = isinstance(got, float) and isinstance(native, float) and math.isclose(got, native, rel_tol=1e-6)
        return ("PASS" if same or close else "FAIL"), f"{str(got)[:60]}, on the CPU {str(native)[:60]}"
    if got.shape != native.shape:
        return "FAIL", f"shape {tuple(got.shape)}, on the CPU {tuple(native.shape)}"
    if got.dtype != native.dtype:
        return "FAIL", f"dtype {got.dtype}, on the CPU {native.dtype}"
    if not got.numel():
        return "PASS", "no elements"
    if not (got.is_floating_point() or got.is_complex()):
        wrong = (got != native).sum().item()
        if wrong and name in TIES.split():
            return "none", f"{wrong} of {got.numel()} differ from the CPU's; equal values may be in another order"
        return ("FAIL" if wrong else "PASS"), f"{wrong} of {got.numel()} differ from the CPU's"
    if is_tensor(wide) and wide.shape == got.shape:
        return judge_numbers(got, native, wide, "float64", shaken)
    return judge_numbers(got, native, native, "the CPU")


def get_roundoff(dtype):
    return torch.finfo(dtype).eps / 2


def judge_numbers(got, native, wide, against, shaken=None):
    kind = torch.complex128 if got.is_complex() else torch.float64
    tiny = torch.finfo(got.dtype).tiny
    got, native, wide, u = got.to(kind), native.to(kind), wide.to(kind), get_roundoff(got.dtype)
    size = wide.abs()
    own = (native - wide).abs()
    sound = torch.isfinite(own)
    residual = (own - 2 * u * size)[sound].clamp(min=0).max().item() if sound.any() else 0.0
    if is_tensor(shaken) and shaken.shape == wide.shape:
        moved = finite_max((shaken.to(kind) - wide).abs())
        residual = max(residual, min(moved, 1000 * u * max(finite_max(size), 1)))
    if against != "float64":
        residual = 16 * u * size[torch.isfinite(size)].max().item() if torch.isfinite(size).any() else 0.0
    allowed = FACTOR * (2 * u * size + residual) + tiny
    error = (got - wide).abs()
    odd = ~torch.isfinite(error)
    agree = (got == wide) | (torch.isnan(got) & torch.isnan(wide))
    agree |= (got == native) | (torch.isnan(got) & torch.isnan(native))
    error = torch.where(odd & agree, torch.zeros_like(error), error)
    error = torch.where(odd & ~agree, torch.full_like(error, math.inf), error)
    excess = torch.where(torch.isfinite(allowed), error - allowed, torch.where(agree, -torch.ones_like(error), error))
    place = int(excess.reshape(-1).argmax())
    index = tuple(int(i) for i in unravel(place, excess.shape))
    wrong = int((excess > 0).sum())
    text = (
        f"max error {error.max().item():.3g} against {against}, {finite_max((got - native).abs()):.3g} against the CPU "
        f"(the CPU's own {finite_max(own):.3g}); worst at {list(index)}: {got[index].item()}, not "
        f"{wide[index].item()}, allowed {allowed[index].item():.3g}"
    )
    return ("FAIL" if wrong else "PASS"), text + (f"; {wrong} of {got.numel()} wrong" if wrong else "")


def finite_max(values):
    values = values[torch.isfinite(values)]
    return values.max().item() if values.numel() else math.nan


def unravel(place, shape):
    index = []
    for size in reversed(shape):
        index.append(place % size)
        place //= size
    return reversed(index)


def references(call):
    """The call on the CPU in its own precision, in float64 (or why not), and whether it is random."""
    native, written = run(call, "cpu")
    try:
        wide, _ = run(call, "cpu", wide=True)
        why = ""
    except Exception as error:  # not every operator takes float64
        wide, why = {}, get_line(error)
    other, _ = run(call, "cpu", seed=1)
    results = [name for name in native if name.startswith("result") and is_tensor(native[name])]
    random = any(not same_values(native[name], other[name]) for name in results)
    shaken = shake_arguments(call, native) if wide else {}
    return native, written, wide, why, random or call.get_last_name() in UNINITIALISED.split(), shaken


def shake_arguments(call, native):
    """The call in float64 once more, with the arguments changed by units in their last place: when it computes in
    float64 anyway."""
    tensors = [value for value in native.values() if is_tensor(value)]
    if not any(value.dtype in (torch.float64, torch.complex128) for value in tensors):
        return {}
    return run(call, "cpu", wide=True, shake=True)[0]


def same_values(a, b):
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def compare(call, values, written, title, facts):
    """Print a line per value; True when one is wrong."""
    native, cpu_written, wide, why, random, shaken = facts
    failed = False
    print(title)
    for name, got in values.items():
        if name.endswith("after the call") and int(name.split()[1]) not in set(written) | set(cpu_written):
            continue
        if got is None and native.get(name) is None:
            continue
        if random and is_tensor(got) and name.startswith("result"):
            like = native.get(name)
            same = is_tensor(like) and (got.shape, got.dtype) == (like.shape, like.dtype)
            verdict, text = ("none" if same else "FAIL"), "random or uninitialised: only shape and dtype are judged"
        else:
            verdict, text = judge(got, native.get(name), wide.get(name), call.get_last_name(), shaken.get(name))
        failed = failed or verdict == "FAIL"
        print(f"  {verdict:4}  {name}: {text}")
    if why:
        print(f"  note: not in float64 ({why[:200]}): compared with the CPU")
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
        facts = references(call)
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
    wrong_then = compare(call, captured, (), "as captured:", facts) if captured else False
    wrong_now = False if options.captured else compare(call, values, written, f"on {place}:", facts)
    failed = wrong_then if options.captured else wrong_now
    print("FAIL" if failed else "PASS")
    return 1 if failed else 0


def load_data(folder):
    return torch.load(os.path.join(folder, "data.pt"), map_location="cpu", weights_only=True)
