"""Every operator that C serves, against the CPU: values, dtype, strides, in-place and out= forms, errors, and that it
ran in C.

PyTorch's OpInfo samples run on the CPU under a mode that notes every ATen call below them (the backward pass included);
each noted call is then repeated on the device with tensors of the same storage layout.
"""

import collections
import json
import random
import sys
import warnings

if __name__ == "__main__":
    from torch.testing._internal.common_methods_invocations import op_db

import ditorch
import pytest
import torch
from ditorch import _C
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

FULL = "--full" in sys.argv  # by hand: python tests/python/test_diopi_ops.py --full direct binary
PER_FORM = 4 if FULL else 1  # calls of one overload with one combination of dtypes
SAMPLES = 20 if FULL else 4  # of one OpInfo in one dtype
DTYPES = [torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.float64, torch.uint8]
SAMPLED = DTYPES if FULL else DTYPES[:4]

UNARY = """abs neg floor ceil sgn sign bitwise_not sqrt rsqrt sin asin cos acos tan sinh cosh atan asinh acosh atanh exp
expm1 log log2 log10 log1p erf erfinv reciprocal tanh sigmoid logical_not isnan nn.functional.relu nn.functional.gelu
nn.functional.hardtanh nn.functional.hardswish nn.functional.threshold nn.functional.leaky_relu nn.functional.silu
nn.functional.relu6"""
BINARY = """add sub rsub mul div floor_divide remainder pow maximum minimum eq ne ge gt le lt bitwise_and bitwise_or
logical_and logical_or equal __rpow__ __rmod__"""
TERNARY = "addcmul addcdiv clamp clamp_min clamp_max where lerp"
REDUCE = """sum mean prod amax any all max min argmax argmin norm linalg.vector_norm std cumsum sort topk softmax
log_softmax"""
MATRIX = "mm addmm bmm baddbmm mv dot nn.functional.linear"
FILL = "fill zero_ zeros_like"
FAMILIES = {"unary": UNARY, "binary": BINARY, "ternary": TERNARY, "reduce": REDUCE, "matrix": MATRIX, "fill": FILL}

BACKWARD = """hardtanh_backward hardswish_backward threshold_backward gelu_backward leaky_relu_backward tanh_backward
sigmoid_backward silu_backward _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data"""
RANDOM = ["uniform_", "normal_", "random_", "bernoulli_", "native_dropout", "randperm", "multinomial"]
DIRECT = ["unary", "binary", "ternary", "reduce"]  # not the products, whose shapes belong together
TABLE = {name for name in _C.operators_c() if name.split("::")[1].split(".")[0] not in RANDOM}


def get_name(function):
    schema = function._schema
    return schema.name + ("." + schema.overload_name if schema.overload_name else "")


def copy_tensor(tensor, device):
    """A tensor of the same sizes, strides and offset in a copy of the storage, on `device`."""
    flat = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).clone()
    return flat.to(device).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def copy_values(values, device):
    return tree_map(lambda v: copy_tensor(v.detach(), device) if isinstance(v, torch.Tensor) else v, values)


def get_form(function, values):
    flat, _ = tree_flatten(values)
    return (
        get_name(function),
        tuple(v.dtype if isinstance(v, torch.Tensor) else type(v).__name__ for v in flat),
        tuple((v.dim() == 0, v.is_contiguous(), v.numel() == 0) for v in flat if isinstance(v, torch.Tensor)),
    )


class Notes(TorchDispatchMode):
    """Calls of operators of the table, at most PER_FORM of each form."""

    def __init__(self):
        super().__init__()
        self.calls, self.seen = [], collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        values = (args, kwargs or {})
        if get_name(function) in TABLE and self.is_plain(values):
            form = get_form(function, values)
            self.seen[form] += 1
            if self.seen[form] <= PER_FORM:
                self.calls.append((function, *copy_values(values, "cpu")))
        return function(*args, **(kwargs or {}))

    @staticmethod
    def is_plain(values):
        tensors = [v for v in tree_flatten(values)[0] if isinstance(v, torch.Tensor)]
        return all(type(t) is torch.Tensor or type(t) is torch.nn.Parameter for t in tensors) and not any(
            t.is_complex() or t.layout is not torch.strided or t.is_conj() or t.is_neg() for t in tensors
        )


def run_forms(info, sample):
    """The function, its in-place form, its out= form, and the backward pass."""
    args, kwargs = (sample.input, *sample.args), sample.kwargs
    result = info.op(*args, **kwargs)
    flat = [r for r in tree_flatten(result)[0] if isinstance(r, torch.Tensor)]
    if any(r.requires_grad for r in flat):
        total = sum((r * r).sum() for r in flat if r.requires_grad)
        total.backward()
    detached = tree_map(lambda v: v.detach().clone() if isinstance(v, torch.Tensor) else v, (args, kwargs))
    inplace = info.inplace_variant
    with torch.no_grad():
        if inplace is not None:
            attempt(lambda: inplace(*detached[0], **detached[1]))
        if info.supports_out and flat:
            outs = tuple(torch.empty(0, dtype=r.dtype) for r in flat)
            attempt(lambda: info.op(*args, **kwargs, out=outs if isinstance(result, tuple) else outs[0]))
            if flat[0].dtype is torch.float32:
                wide = tuple(torch.empty_like(r, dtype=torch.float64) for r in flat)
                attempt(lambda: info.op(*args, **kwargs, out=wide if isinstance(result, tuple) else wide[0]))


def attempt(function):
    try:
        return function()
    except (RuntimeError, TypeError, IndexError, ValueError):
        return None


def note(words):
    """Calls that the samples of these OpInfos make."""
    torch.manual_seed(7)
    names = set(words.split())
    with Notes() as notes:
        for info in op_db:
            if info.name not in names:
                continue
            for dtype in SAMPLED:
                if dtype not in info.supported_dtypes("cpu"):
                    continue
                grad = dtype.is_floating_point and info.supports_autograd
                samples = info.sample_inputs("cpu", dtype, requires_grad=grad)
                for _, sample in zip(range(SAMPLES), samples):  # noqa: B905
                    attempt(lambda: run_forms(info, sample))  # noqa: B023 - called at once
    return notes.calls


# Calls made from the schemas alone

LAYOUTS = {
    "row-major": lambda t: t,
    "transposed": lambda t: t.t().contiguous().t(),
    "sliced": lambda t: torch.cat([t, t], 1)[:, ::2],
    "expanded": lambda t: t[:1].expand(*t.shape),
    "zero": lambda t: t[0, 0].clone(),
    "empty": lambda t: t[:0],
}
OTHERS = [lambda t: t.flip(0), lambda t: t[0].clone(), lambda t: t[:, :1].contiguous(), lambda t: t[1, 1].clone()]
NUMBERS = [2, 0.5, True, 3.0]


def make_tensor(dtype, seed):
    values = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)) * 2
    return values.abs().add(1).to(dtype) if not dtype.is_floating_point else values.to(dtype)


def make_argument(argument, first, base, turn, position):
    """A value for one argument of a schema whose first one is called `first`; `turn` varies the choices."""
    kind, name = str(argument.type), argument.name
    if kind in ("Tensor", "Optional[Tensor]"):
        if name == "condition":
            return base.gt(0)
        other = make_tensor(base.dtype, turn + position)
        grad = first.startswith("grad")
        same = grad or "grad" in name or "output" in name or "result" in name or base.dim() < 2 or base.numel() == 0
        if position == 0 or name in ("grad_output", "input"):
            return base
        if grad and base.shape == other.shape:
            return other if turn % 2 else other.t().contiguous().t()
        return base.clone() if same else OTHERS[(turn + position) % len(OTHERS)](other)
    if kind == "List[Tensor]":
        return [base.clone(), base.clone() * 2, base.clone()[:1]] if base.dim() else [base.clone()]
    if kind in ("number", "Optional[number]"):
        return NUMBERS[(turn + position) % len(NUMBERS)]
    if kind == "List[number]":
        return [0.5, 2.0, 1.5] if base.dim() else [0.5]
    return None


# The CPU's kernels of these write garbage into an out= tensor that is not row-major.
CARELESS = {f"aten::{name}" for name in ["gelu", "_softmax", "_log_softmax", "_softmax_backward_data"]}
CARELESS |= {"aten::_log_softmax_backward_data"}
WORDS = {"dim": 0, "k": 2, "largest": True, "sorted": True, "descending": True, "stable": True, "keepdim": True}
WORDS |= {"min": -1, "max": 1.5, "alpha": 3, "value": 2}
WORDS |= {
    "half_to_float": False,
    "self_is_result": False,
    "steps": 5,
    "start": 1,
    "end": 7,
    "step": 2,
    "ord": 2,
    "p": 2,
}


def make_call(function, dtype, layout, turn):
    """Arguments for one overload, or None when its schema has something unknown."""
    base, args, kwargs = LAYOUTS[layout](make_tensor(dtype, turn)), [], {}
    for position, argument in enumerate(function._schema.arguments):
        has_default = argument.has_default_value() and (turn % 2 or argument.name not in WORDS)
        if argument.is_out:
            wanted = [base.dtype, torch.bool, torch.int64, torch.float64][turn % 4]
            wanted = torch.int64 if argument.name in ("indices", "max_values", "min_indices") else wanted
            rough = turn % 3 or function._schema.name in CARELESS
            value = torch.empty(0, dtype=wanted) if rough else torch.empty(4, 3, dtype=wanted).t()
        elif "Tensor" not in str(argument.type) and has_default:
            continue
        elif argument.name in WORDS and "Tensor" not in str(argument.type):
            value = WORDS[argument.name]
            value = [value] if str(argument.type).find("List[int]") >= 0 else value
        elif argument.name == "input_dtype":
            value = base.dtype
        elif argument.name == "approximate":
            value = "tanh"
        elif argument.name == "rounding_mode":
            value = ["floor", "trunc", None][turn % 3]
        else:
            value = make_argument(argument, function._schema.arguments[0].name, base, turn, position)
            if value is None:
                return None
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return function, tuple(args), kwargs


def get_overload(name):
    base, _, overload = name.split("::")[1].partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def make_calls(bases):
    """Every overload of the table with one of these names, each with a list of calls: many dtypes and layouts, in an
    order of its own."""
    bases = set(bases) | {base + "_" for base in bases}
    pairs = [(dtype, layout) for dtype in DTYPES for layout in LAYOUTS]
    for name in sorted(TABLE):
        if name.split("::")[1].partition(".")[0] in bases:
            shuffled = random.Random(name).sample(list(enumerate(pairs)), len(pairs))
            calls = [make_call(get_overload(name), dtype, layout, turn) for turn, (dtype, layout) in shuffled]
            yield name, [call for call in calls if call]


def get_bases(families):
    words = " ".join(FAMILIES[family] for family in families).split() + BACKWARD.split() + ["arange", "linspace"]
    foreach = {name.split("::")[1].partition(".")[0] for name in TABLE if "::_foreach_" in name}
    return {word.rpartition(".")[2] for word in words} | foreach


def outcome(function, values):
    try:
        return function(*values[0], **values[1])
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        return error


def get_tolerance(tensors):
    """(relative, absolute): 8 units in the last place of the narrowest floating dtype that takes part, and as many of
    the largest finite number among the tensors, for results that are differences of such numbers."""
    floating = [t for t in tensors if isinstance(t, torch.Tensor) and t.dtype.is_floating_point]
    if not floating:
        return 0.0, 0.0
    if any(not t.dtype.is_floating_point for t in tensors if isinstance(t, torch.Tensor)):
        floating.append(torch.empty(0))  # integers compute in the default dtype
    rtol = 8 * max(torch.finfo(t.dtype).eps for t in floating)
    values = torch.cat([t.detach().cpu().double().flatten() for t in floating]).abs()
    values = values[values.isfinite()]
    return rtol, rtol * (values.max().item() if values.numel() else 0.0)


def check_same(mine, wanted, tolerance, what):
    assert type(mine) is type(wanted) or not isinstance(wanted, torch.Tensor), f"{what}: {mine!r}, CPU {wanted!r}"
    if not isinstance(wanted, torch.Tensor):
        assert mine == wanted, f"{what}: {mine}, CPU {wanted}"
        return
    assert mine.dtype == wanted.dtype and mine.shape == wanted.shape, (
        f"{what}: {mine.dtype} {tuple(mine.shape)}, CPU {wanted.dtype} {tuple(wanted.shape)}"
    )
    assert mine.stride() == wanted.stride(), f"{what}: strides {mine.stride()}, CPU {wanted.stride()}"
    rtol, atol = tolerance if wanted.dtype.is_floating_point else (0, 0)
    torch.testing.assert_close(mine.cpu(), wanted, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: what + text)


TIES = ["aten::topk", "aten::topk.values", "aten::sort", "aten::sort.values"]  # the order of equal elements is open


def hide_ties(function, values, result):
    """Indices become the elements that they name."""
    source, indices = values[0][0], result[1]
    place = [argument.name for argument in function._schema.arguments].index("dim")
    dim = values[0][place] if len(values[0]) > place else -1
    indices.copy_(source.gather(dim, indices))


def repeat(function, args, kwargs):
    """One noted call on both sides. Returns whether it ran in C."""
    here, there = copy_values((args, kwargs), "cpu"), copy_values((args, kwargs), "cuda")
    shown = tree_map(
        lambda v: f"{v.dtype}{tuple(v.shape)}{v.stride()}" if isinstance(v, torch.Tensor) else v, (args, kwargs)
    )
    what = f"{get_name(function)}{shown}: "
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = outcome(function, here)
        ditorch.reset_counters()
        mine = outcome(function, there)
    ran = {row["operator"] for row in ditorch.operators()}
    flat_mine, flat_wanted = (tree_flatten(v)[0] for v in (mine, wanted))
    if isinstance(wanted, Exception):
        assert isinstance(mine, Exception), f"{what}no error, CPU: {wanted}"
        return get_name(function) in ran
    assert len(flat_mine) == len(flat_wanted), f"{what}{mine!r}, CPU {wanted!r}"
    if get_name(function) in TIES:
        hide_ties(function, there, mine)
        hide_ties(function, here, wanted)
    tolerance = get_tolerance(tree_flatten((args, kwargs))[0] + flat_wanted)
    for a, b in zip(flat_mine, flat_wanted, strict=True):
        check_same(a, b, tolerance, what)
    for a, b in zip(tree_flatten(there)[0], tree_flatten(here)[0], strict=True):
        if isinstance(b, torch.Tensor):
            check_same(a, b, tolerance, what + "argument after the call: ")
    return get_name(function) in ran


class Tally:
    def __init__(self):
        self.calls, self.failures, self.served = 0, [], collections.Counter()

    def add(self, function, args, kwargs):
        self.calls += 1
        try:
            self.served[get_name(function)] += repeat(function, args, kwargs)
        except AssertionError as error:
            self.failures.append(str(error)[:600])


def run_family(family):
    tally = Tally()
    if family in FAMILIES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calls = note(FAMILIES[family])
        for call in calls:
            tally.add(*call)
        return vars(tally)
    for name, calls in make_calls(get_bases(DIRECT)):
        tally.served[name] = 0
        for number, call in enumerate(calls):
            if number >= 6 and tally.served[name] > 1 and not FULL:
                break
            tally.add(*call)
    return vars(tally)


def main(families):
    torch.set_num_threads(1)
    print(json.dumps({family: run_family(family) for family in families if family != "--full"}))


@pytest.fixture(scope="module")
def results():
    from conftest import run_python

    return json.loads(run_python(__file__, "direct", *FAMILIES, timeout=900).stdout.splitlines()[-1])


@pytest.mark.parametrize("family", ["direct", *FAMILIES])
def test_calls(results, family):
    calls, failures = results[family]["calls"], results[family]["failures"]
    assert calls > 20
    assert not failures, f"{len(failures)} of {calls} calls differ; the first:\n" + "\n".join(failures[:12])


def test_every_operator_ran_in_c(results):
    served = collections.Counter()
    for result in results.values():
        served.update(result["served"])
    assert not [name for name, count in served.items() if count == 0]
    assert len(served) >= 380


# Calls that neither the samples nor the schemas make


def run_both(function, *args):
    """The outcomes of function(*args) on the device and on the CPU; what the device did must have been C."""
    ditorch.reset_counters()
    mine = outcome(function, (copy_values(args, "cuda"), {}))
    fallen = {row["operator"] for row in ditorch.fallbacks()}
    return mine, outcome(function, (copy_values(args, "cpu"), {})), fallen


NUMBER_FORMS = {
    "right": lambda x, n: x + n,
    "left": lambda x, n: n - x,
    "times": lambda x, n: n * x,
    "over": lambda x, n: n / x,
    "compared": lambda x, n: x > n,
    "equal": lambda x, n: torch.eq(n, x),
    "greater": lambda x, n: torch.maximum(x, n.to(x.device) if x.dim() == 0 else n),
    "power": lambda x, n: torch.pow(x, n),
    "remainder": lambda x, n: torch.remainder(x, n),
    "chosen": lambda x, n: torch.where(x > 0, x, n),
}


@pytest.mark.parametrize("form", NUMBER_FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_numbers_on_the_host(form, dtype):
    """A 0-d CPU tensor beside a device tensor: promotes weakly, no copy through the CPU fallback."""
    base = make_tensor(dtype, 3).abs().add(1)
    for number in (torch.tensor(2), torch.tensor(1.5), torch.tensor(1.5, dtype=torch.float64), torch.tensor(True)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mine, wanted, fallen = run_both(lambda x: NUMBER_FORMS[form](x, number), base)  # noqa: B023
        if isinstance(wanted, Exception):
            assert isinstance(mine, Exception)
            continue
        what = f"{form} {dtype} {number!r} "
        check_same(mine, wanted, get_tolerance([base, wanted]), what)
        assert not fallen, what + str(fallen)


def test_special_values():
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-40, 3e38, -2.5])
    y = x.flip(0)
    for function in (torch.maximum, torch.minimum, torch.remainder, torch.pow, torch.eq, torch.lt, torch.div):
        mine, wanted, fallen = run_both(function, x, y)
        check_same(mine, wanted, (1e-6, 0), function.__name__)
        assert not fallen
    for function in (
        torch.sign,
        torch.relu,
        torch.isnan,
        torch.floor,
        torch.rsqrt,
        torch.log,
        torch.amax,
        torch.argmax,
    ):
        mine, wanted, fallen = run_both(lambda v: function(v) if function is not torch.amax else v.amax(0), x)  # noqa: B023
        check_same(mine, wanted, (1e-6, 0), function.__name__)
        assert not fallen


def test_integer_division_by_zero():
    for function in (torch.remainder, torch.floor_divide):
        mine, wanted, _ = run_both(function, torch.tensor([1, 2]), torch.tensor([0, 1]))
        assert isinstance(wanted, RuntimeError) and isinstance(mine, RuntimeError) and str(mine) == str(wanted)


# Lists


def make_list(dtype=torch.float32):
    shapes = [(3, 4), (5,), (), (2, 1, 3)]
    return [torch.randn(s, generator=torch.Generator().manual_seed(i)).to(dtype) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("found", [False, True])
def test_gradient_scaling(found):
    def unscale(*grads):
        state = torch.zeros(1, device=grads[0].device)
        torch._amp_foreach_non_finite_check_and_unscale_(list(grads), state, torch.full((1,), 0.5).to(state.device))
        scale, tracker = torch.full((1,), 8.0).to(state.device), torch.ones(1, dtype=torch.int32).to(state.device)
        torch._amp_update_scale_(scale, tracker, state, 2.0, 0.5, 2)
        return [*grads, state, scale, tracker]

    grads = make_list()
    if found:
        grads[1][2] = float("inf")
    mine, wanted, fallen = run_both(unscale, *grads)
    for a, b in zip(mine, wanted, strict=True):
        check_same(a, b, (0, 0), "scaling ")
    assert not fallen


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_fused_adamw(amsgrad, maximize):
    def train(*params):
        params = [p.requires_grad_() for p in params]
        optimizer = torch.optim.AdamW(params, lr=0.1, fused=True, amsgrad=amsgrad, maximize=maximize)
        for step in range(3):
            for number, p in enumerate(params):
                p.grad = torch.full_like(p, 0.1 * (step + 1) * (-1) ** number)
            optimizer.step()
        return params

    mine, wanted, fallen = run_both(train, *make_list())
    for a, b in zip(mine, wanted, strict=True):
        check_same(a.detach(), b.detach(), (1e-5, 1e-6), "AdamW ")
    assert not fallen


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_optimizers_without_fallback(name):
    words = {"momentum": 0.9, "weight_decay": 0.01} if name == "SGD" else {"weight_decay": 0.01}

    def train(*params):
        params = [p.requires_grad_() for p in params]
        optimizer = getattr(torch.optim, name)(params, lr=0.1, foreach=True, **words)
        for step in range(3):
            optimizer.zero_grad()
            for number, p in enumerate(params):
                p.grad = torch.full_like(p, 0.1 * (step + 1) * (-1) ** number)
            torch.nn.utils.clip_grad_norm_(params, 0.2)
            optimizer.step()
        return params

    mine, wanted, fallen = run_both(train, *make_list())
    for a, b in zip(mine, wanted, strict=True):
        check_same(a.detach(), b.detach(), (1e-5, 1e-6), name)
    assert not fallen


if __name__ == "__main__":
    main(sys.argv[1:])
