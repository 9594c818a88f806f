"""References and tolerances: PyTorch's own results in the dtype under test must pass, and damaged ones must not.

PyTorch stands in for a library here: its native operators in float32, half types and integers against the wide
references of the suite.
"""

import math

import pytest
import torch
from ditorch.conform import expand, references, schema, tolerance
from ditorch.conform.references import Call
from torch.nn import functional as F


def roll(name):
    return lambda a: getattr(torch, name)(a["input"])


NATIVE = {
    "diopiExp": (roll("exp"), "out"),
    "diopiLog1p": (roll("log1p"), "out"),
    "diopiErfinv": (roll("erfinv"), "out"),
    "diopiTan": (roll("tan"), "out"),
    "diopiGelu": (lambda a: F.gelu(a["input"], approximate=a["approximate"]), "out"),
    "diopiAdd": (lambda a: torch.add(a["input"], a["other"], alpha=a["alpha"]), "out"),
    "diopiMul": (lambda a: a["input"] * a["other"], "out"),
    "diopiPowTensor": (lambda a: torch.pow(a["input"], a["exponent"]), "out"),
    "diopiRemainderTensor": (lambda a: torch.remainder(a["input"], a["other"]), "out"),
    "diopiMaximum": (lambda a: torch.maximum(a["input"], a["other"]), "out"),
    "diopiEq": (lambda a: torch.eq(a["input"], a["other"]), "out"),
    "diopiSum": (lambda a: a["input"].sum(a["dim"] or None), "out"),
    "diopiMean": (lambda a: a["input"].mean(a["dim"] or None), "out"),
    "diopiCumsum": (lambda a: a["input"].cumsum(a["dim"]), "out"),
    "diopiSoftmax": (lambda a: a["input"].softmax(a["dim"]), "out"),
    "diopiLogSoftmax": (lambda a: a["input"].log_softmax(a["dim"]), "out"),
    "diopiMm": (lambda a: a["input"] @ a["mat2"], "out"),
    "diopiLinear": (lambda a: F.linear(a["input"], a["weight"], a["bias"]), "out"),
    "diopiConvolution2d": (
        lambda a: F.conv2d(a["input"], a["weight"], a["bias"], a["stride"], a["padding"], a["dilation"], a["groups"]),
        "out",
    ),
    "diopiLayerNorm": (
        lambda a: F.layer_norm(a["input"], a["normalized_shape"], a["weight"], a["bias"], a["eps"]),
        "out",
    ),
    "diopiGroupNorm": (
        lambda a: F.group_norm(a["input"], a["num_groups"], a["weight"], a["bias"], a["eps"]),
        "out",
    ),
    "diopiCrossEntropyLoss": (
        lambda a: F.cross_entropy(
            a["input"],
            a["target"],
            a["weight"],
            ignore_index=a["ignore_index"],
            reduction=("none", "mean", "sum")[a["reduction"]],
            label_smoothing=a["label_smoothing"],
        ),
        "out",
    ),
    "diopiGather": (lambda a: a["input"].gather(a["dim"], a["index"]), "out"),
    "diopiCat": (lambda a: torch.cat(a["tensors"], a["dim"]), "out"),
    "diopiAvgPool2d": (
        lambda a: F.avg_pool2d(
            a["input"],
            a["kernel_size"],
            a["stride"] or None,
            a["padding"],
            a["ceil_mode"],
            a["count_include_pad"],
            a["divisor_override"],
        ),
        "out",
    ),
}
NO_LAYOUTS = ("inplace", "error")
IN_STEPS = ("diopiLinear", "diopiLogSoftmax", "diopiCrossEntropyLoss")
"""PyTorch's CPU rounds what lies between the steps of these to the half type; the rule wants float there."""
INFINITE_NAN = ("diopiGelu",)
"""PyTorch's CPU gives NaN for infinity on some processors, in bfloat16 and in the vector loop of float32: rows of
infinities are left out there."""


@pytest.fixture(scope="module")
def cases():
    return expand.list_cases(schema.read_all())


def get_arguments(case):
    """Arguments by name, tensors bare."""
    names = schema.standard()[case.function].parameters[1:]

    def bare(value):
        if isinstance(value, list):
            return [bare(item) for item in value]
        return getattr(value, "tensor", value)

    return {name: bare(value) for name, value in zip(names, case.arguments, strict=True)}


def find_output(case, name):
    return case.arguments[schema.standard()[case.function].parameters.index(name) - 1]


def is_close(got, output):
    """As the runner judges elements."""
    expected, wide = output.expected, got.to(output.expected.dtype)
    special = ~torch.isfinite(expected)
    if not torch.equal(wide[special].isnan(), expected[special].isnan()):
        return False
    same = (wide == expected) | (wide.isnan() & expected.isnan())
    if output.tolerance is None:
        return bool(same.all())
    return bool((same | ((wide - expected).abs() <= output.tolerance)).all())


@pytest.mark.parametrize("function", sorted(NATIVE))
def test_native_results_pass(cases, function):
    run, name = NATIVE[function]
    chosen = [case for case in cases if case.function == function and case.layout not in NO_LAYOUTS]
    if function in IN_STEPS:
        chosen = [case for case in chosen if case.dtype not in ("float16", "bfloat16")]
    if function in INFINITE_NAN:
        chosen = [case for case in chosen if not case.entry.name.startswith("rows-")]
    tried = 0
    for case in chosen[:: max(len(chosen) // 40, 1)]:
        built = expand.build(case)
        try:
            got = run(get_arguments(built))
        except (RuntimeError, NotImplementedError):
            continue  # PyTorch's CPU has no such kernel for the dtype
        output = find_output(built, name)
        if got.dtype != output.tensor.dtype:
            continue  # the entry asks for another dtype of the result
        assert got.shape == output.tensor.shape, str(case)
        assert is_close(got, output), str(case)
        tried += 1
    assert tried >= 5


DAMAGES = {
    "one element moved": lambda t: t.index_put((torch.tensor(0),), t.reshape(-1)[0] * 1.01 + 1e-3),
    "half precision": lambda t: t.to(torch.bfloat16).to(t.dtype),
    "permuted": lambda t: t.flip(0),
    "NaN": lambda t: t.index_put((torch.tensor(t.numel() - 1),), torch.tensor(math.nan)),
}


@pytest.mark.parametrize("damage", sorted(DAMAGES))
@pytest.mark.parametrize("function", ["diopiExp", "diopiAdd", "diopiSoftmax", "diopiMm", "diopiSum", "diopiGather"])
def test_damaged_results_do_not_pass(cases, function, damage):
    run, name = NATIVE[function]
    entry = "basic"
    case = next(c for c in cases if str(c) == f"{function}/{entry}/float32/contiguous/0")
    built = expand.build(case)
    got, output = run(get_arguments(built)), find_output(built, name)
    assert is_close(got, output)
    broken = DAMAGES[damage](got.reshape(-1).clone()).reshape(got.shape)
    assert not is_close(broken, output)


def test_accumulating_in_half_does_not_pass(cases):
    """A sum whose accumulator is a half type loses more than the rule allows."""
    case = next(c for c in cases if str(c) == "diopiSum/large/bfloat16/contiguous/1")
    built = expand.build(case)
    values, output = built.arguments[1].tensor, built.arguments[0]
    total = torch.zeros(values.shape[0], dtype=torch.bfloat16)
    for column in values.unbind(1)[:2000]:
        total = total + column
    rest = values[:, 2000:].float().sum(1)
    assert is_close(values.float().sum(1).bfloat16(), output)
    assert not is_close((total.float() + rest).bfloat16(), output)


# The rule


def test_tolerance_grows_with_its_parts():
    one = torch.tensor([1.0], dtype=torch.float64)
    base = float(tolerance.compute(one, torch.float32))
    eps = torch.finfo(torch.float32).eps
    assert base == pytest.approx(5 * eps, rel=1e-6)
    assert float(tolerance.compute(one, torch.float32, scale=10 * one)) == pytest.approx(41 * eps, rel=1e-6)
    assert float(tolerance.compute(one, torch.float32, terms=1024)) == pytest.approx(25 * eps, rel=1e-6)
    half = float(tolerance.compute(one, torch.float16))
    assert half == pytest.approx(torch.finfo(torch.float16).eps + 4 * eps, rel=1e-3)
    assert float(tolerance.compute(one, torch.float64)) < 2e-15


def test_tolerance_of_nothing_is_the_floor():
    zero = torch.zeros(1, dtype=torch.float64)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        assert 0 < float(tolerance.compute(zero, dtype)) <= least + torch.finfo(torch.float32).smallest_normal


def test_nonfinite_references_do_not_widen():
    values = torch.tensor([math.inf, math.nan, 1.0], dtype=torch.float64)
    allowed = tolerance.compute(values, torch.float32, scale=values)
    assert torch.isfinite(allowed).all() and float(allowed[2]) < 1e-6


def test_overflow_of_the_dtype_is_an_infinity(cases):
    case = next(c for c in cases if str(c) == "diopiExp/special/float16/contiguous/0")
    built = expand.build(case)
    values, expected = built.arguments[1].tensor, built.arguments[0].expected
    assert torch.isinf(expected[values == 100.0]).all() and (values == 100.0).any()


def test_backward_references_use_random_gradients(cases):
    """Except under dropout, whose reference needs them to be 1."""
    for case in cases:
        if case.entry.random or case.entry.name.startswith(
            ("rows-", "calm-", "tiny-")
        ):  # zeros, infinities and NaN among them
            continue
        if case.function.endswith("Backward") and case.layout == "contiguous" and case.number == 0:
            for name, column in case.entry.arguments.items():
                if name.startswith("grad") and column.is_tensor:
                    assert column.values[0] in ("normal", "distinct"), f"{case}: {name}"


def test_inplace_functions_take_the_reference_of_their_namesake():
    x, y = torch.randn(3, dtype=torch.float32), torch.randn(3, dtype=torch.float32)
    call = Call("diopiAddInp", torch.float32, {"input": x, "other": y, "alpha": 2})
    found = references.find("diopiAddInp")(call)
    assert set(found) == {"input"} and torch.allclose(found["input"].value, x.double() + 2 * y.double())
    assert references.find("diopiNothing") is None
