"""Numbers about tensors: one meaning for the C code of the CPU, torch's operators, and the CUDA kernels.

Counts, minima, maxima and hashes must be equal everywhere; sums agree to rounding. Random cases print their seed. What
needs a real CUDA device runs where there is one.
"""

from __future__ import annotations

import gc
import math
import sys

import ditorch
import numpy as np
import pytest
import torch
from conftest import open_memory
from ditorch import _C, helper_torch

FLOAT8 = ["float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu"]
INTEGERS = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", *FLOAT8]
COMPLEX = ["complex32", "complex64", "complex128"]
DTYPES = [getattr(torch, name) for name in [*INTEGERS, *FLOATS, *COMPLEX] if hasattr(torch, name)]
COUNTS = ["numel", "finite", "zero", "nan", "pos_inf", "neg_inf", "min_int", "max_int"]
EXTREMA = ["min", "max", "abs_max"]
PAIR_COUNTS = ["allclose", "numel", "finite_pairs", "unequal", "over_tolerance", "nonfinite_mismatch"]
SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 2.0**-149, -(2.0**-24), 5e-324, 1e-310]


def find_cuda_gap() -> str | None:
    """Why the CUDA kernels cannot be tried here."""
    gap = _C.helper_why_not("cuda")
    if gap is None and not torch.cuda.is_available():
        return "torch has no CUDA device"
    if gap is None and torch.zeros(1, device="cuda").device.type == "cuda" and ditorch.backend != "cuda":
        return "'cuda' is the embedded device here"
    return gap


CUDA_GAP = find_cuda_gap()
needs_cuda = pytest.mark.skipif(CUDA_GAP is not None, reason=f"no real CUDA device: {CUDA_GAP}")


# Cases


def make_values(rng: np.random.Generator, dtype: torch.dtype, count: int) -> torch.Tensor:
    """`count` elements: plain, with special values, with extreme exponents, constant, all NaN, or with a large mean."""
    mode = rng.integers(6)
    if dtype == torch.bool:
        return torch.from_numpy(rng.integers(0, 2, count).astype(bool))
    if not (dtype.is_floating_point or dtype.is_complex):
        name = str(dtype).removeprefix("torch.")
        raw = rng.integers(0, 256, count * np.dtype(name).itemsize, dtype=np.uint8).view(name)
        return torch.from_numpy(raw if mode % 2 else np.full(count, 3, name))
    if dtype.is_floating_point and dtype.itemsize == 1:
        return torch.from_numpy(rng.integers(0, 256, count, dtype=np.uint8)).view(dtype)
    parts = count * (2 if dtype.is_complex else 1)
    x = rng.standard_normal(parts) * 4
    if mode == 1:
        x = np.where(rng.integers(0, 3, parts) == 0, rng.choice(SPECIAL, parts), x)
    elif mode == 2:
        x = np.ldexp(x, rng.integers(-900, 900, parts))
    elif mode == 3:
        x[:] = 3.25
    elif mode == 4:
        x[:] = math.nan
    elif mode == 5:
        x = 1000 + x / 4
    values = torch.from_numpy(x)
    return torch.view_as_complex(values.view(-1, 2)).to(dtype) if dtype.is_complex else values.to(dtype)


def make_case(seed: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor of any shape and strides."""
    rng = np.random.default_rng(seed)
    dtype = dtype or DTYPES[rng.integers(len(DTYPES))]
    shape = [
        int(n) for n in rng.choice([0, 1, 2, 3, 5, 8, 17, 300], rng.integers(0, 4), p=[0.03] + [0.15] * 6 + [0.07])
    ]
    numel = math.prod(shape)
    way = rng.integers(5)
    if way == 0 and shape:  # every other element, from an offset
        base = make_values(rng, dtype, 2 * numel + 1)
        return base[1 : 1 + 2 * numel : 2].reshape(-1).as_strided(shape, [2 * s for s in contiguous(shape)], 1)
    tensor = make_values(rng, dtype, numel).reshape(shape)
    if way == 1 and len(shape) > 1:
        return tensor.permute(*rng.permutation(len(shape)).tolist())
    if way == 2 and shape:
        return tensor[..., ::3]
    if way == 3 and shape:
        return tensor[:1].expand(4, *shape[1:]) if shape[0] else tensor
    return tensor


def contiguous(shape: list[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def make_pair(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors of one shape: mostly of one dtype and nearly equal."""
    rng = np.random.default_rng(seed + 500_000)
    a = make_case(seed)
    if rng.integers(3) == 0:
        dtype = DTYPES[rng.integers(len(DTYPES))]
        return a, make_values(rng, dtype, a.numel()).reshape(a.shape)
    b = a.contiguous().clone()
    if (b.dtype.is_floating_point or b.dtype.is_complex) and b.element_size() > 1:
        wide = torch.complex128 if b.dtype.is_complex else torch.float64
        changed = torch.from_numpy(np.asarray(rng.integers(0, 3, tuple(b.shape)) == 0))
        b = torch.where(changed, b.to(wide) * (1 + 1e-6 * int(rng.integers(1000))), b.to(wide)).to(b.dtype)
    return a, b


def move(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """To the device with the same strides."""
    if tensor.numel() == 0:
        return tensor.to(device)
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.as_strided((span,), (1,), tensor.storage_offset())
    return flat.to(device).as_strided(tensor.shape, tensor.stride(), 0)


# An independent reference in long double


def read_parts(tensor: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Real and imaginary parts, exact in long double."""
    flat = tensor.reshape(-1)
    if flat.dtype.is_complex:
        pairs = torch.view_as_real(flat.to(torch.complex128)).numpy().astype(np.longdouble)
        return pairs[:, 0], pairs[:, 1]
    if flat.dtype in (torch.int64, torch.uint64):
        x = flat.numpy().astype(np.longdouble)
    elif flat.dtype.is_floating_point:
        x = (
            flat.float().double().numpy().astype(np.longdouble)
            if flat.dtype != torch.float64
            else flat.numpy().astype(np.longdouble)
        )
    else:
        x = flat.to(torch.int64).numpy().astype(np.longdouble)
    return x, np.zeros_like(x)


def near(got: float, want: float, scale: float, slack: float) -> bool:
    if math.isnan(got) or np.isnan(want):
        return math.isnan(got) and bool(np.isnan(want))
    if got == want or got == float(want):
        return True
    return bool(abs(np.longdouble(got) - np.longdouble(want)) <= slack * scale + 5e-324)


@np.errstate(all="ignore")
def check_reference(tensor: torch.Tensor, got: dict) -> None:
    re, im = read_parts(tensor)
    nan = np.isnan(re) | np.isnan(im)
    inf = (np.isinf(re) | np.isinf(im)) & ~nan
    fin = ~nan & ~inf
    size = np.hypot(re, im) if tensor.dtype.is_complex else re
    size = np.where(inf, np.inf, size) if tensor.dtype.is_complex else size
    n = int(fin.sum())
    assert (got["numel"], got["finite"], got["nan"]) == (tensor.numel(), n, int(nan.sum()))
    assert got["zero"] == int((fin & (re == 0) & (im == 0)).sum())
    assert got["pos_inf"] == int((inf & (size > 0)).sum()) and got["neg_inf"] == int((inf & (size < 0)).sum())
    known = size[~nan]
    top = float(np.abs(known[np.isfinite(known)]).max(initial=0))
    assert near(got["min"], known.min() if len(known) else np.nan, top, 1e-15), "min"
    assert near(got["max"], known.max() if len(known) else np.nan, top, 1e-15), "max"
    total = np.abs(re[fin]).sum() + np.abs(im[fin]).sum()
    assert near(got["finite_mean"], re[fin].sum() / n if n else np.nan, total / max(n, 1), 1e-14), "mean"
    square = (re[fin] ** 2 + im[fin] ** 2).sum()
    assert near(got["finite_norm"], np.sqrt(square), np.sqrt(square), 1e-12), "norm"
    if n:
        spread = ((re[fin] - re[fin].mean()) ** 2 + (im[fin] - im[fin].mean()) ** 2).sum()
        blur = np.sqrt(square / n) * 1e-5
        assert near(got["finite_std"], np.sqrt(spread / n), np.sqrt(spread / n) + blur, 1e-11), "std"
    clean = n == tensor.numel()
    assert math.isnan(got["std"]) == (not clean or n == 0)
    if tensor.dtype in (torch.int64, torch.uint64) and n:
        exact = [int(v) for v in tensor.reshape(-1).numpy()]
        assert (got["min_int"], got["max_int"]) == (min(exact), max(exact))
        assert near(got["mean"], sum(exact) / len(exact), abs(sum(exact) / len(exact)), 2e-16)


def check_same_stats(got: dict, want: dict, dtype: torch.dtype) -> None:
    """Two helpers about one tensor."""
    assert {k: got[k] for k in COUNTS} == {k: want[k] for k in COUNTS}
    for key in EXTREMA:
        slack = 3e-16 if dtype == torch.complex128 else 0
        assert near(got[key], want[key], abs(want[key]), slack), (key, got[key], want[key])
    rms = want["finite_norm"] / math.sqrt(want["finite"]) if want["finite"] else 0.0
    for key in ("mean", "mean_imag", "finite_mean", "finite_mean_imag"):
        assert near(got[key], want[key], rms, 1e-13), (key, got[key], want[key])
    for key in ("std", "std_sample", "finite_std", "finite_std_sample"):
        assert near(got[key], want[key], abs(want[key]) + rms * 1e-5, 1e-10), (key, got[key], want[key])
    for key in ("norm", "finite_norm"):
        assert near(got[key], want[key], want[key], 1e-12), (key, got[key], want[key])


def check_same_compare(got: dict, want: dict) -> None:
    assert {k: got[k] for k in PAIR_COUNTS} == {k: want[k] for k in PAIR_COUNTS}
    for key in ("max_abs_diff", "max_rel_diff", "max_rel_diff_sym", "min_a", "max_a", "min_b", "max_b"):
        assert near(got[key], want[key], abs(want[key]), 1e-15), (key, got[key], want[key])
    for key in ("mean_abs_diff", "sum_abs_diff", "norm_a", "norm_b"):
        assert near(got[key], want[key], abs(want[key]), 1e-12), (key, got[key], want[key])
    assert near(got["cosine"], want["cosine"], 1.0, 1e-11), ("cosine", got["cosine"], want["cosine"])
    scale = min(want["norm_a"] * want["norm_b"], 1e308)
    assert near(got["dot"], want["dot"], scale, 1e-12) or not math.isfinite(want["norm_a"] * want["norm_b"])


TOLERANCES = [(1e-5, 1e-8), (0.0, 0.0), (1e-3, 1e-3), (0.5, 0.0)]


def try_all(check, first: int, count: int) -> None:
    """check(seed) for each seed; the seed and the case are in the message."""
    for seed in range(first, first + count):
        try:
            check(seed)
        except AssertionError as error:
            t = make_case(seed)
            raise AssertionError(f"seed {seed}: {t.dtype} {tuple(t.shape)} strides {t.stride()}: {error}") from error


# Random tensors


def test_host_agrees_with_the_reference() -> None:
    try_all(lambda seed: check_reference(make_case(seed), _C.tensor_stats(make_case(seed))), 1000, 120)


def test_torch_operators_agree_with_c() -> None:
    def check(seed: int) -> None:
        tensor = make_case(seed)
        check_same_stats(_C.tensor_stats(tensor, helper="torch"), _C.tensor_stats(tensor), tensor.dtype)
        assert _C.tensor_nonfinite(tensor, helper="torch") == _C.tensor_nonfinite(tensor)
        assert _C.tensor_hash(tensor, helper="torch") == _C.tensor_hash(tensor)

    try_all(check, 2000, 120)


def test_torch_operators_agree_with_c_in_comparisons() -> None:
    def check(seed: int) -> None:
        a, b = make_pair(seed)
        rtol, atol = TOLERANCES[seed % 4]
        want = _C.tensor_compare(a, b, rtol, atol, bool(seed & 4))
        check_same_compare(_C.tensor_compare(a, b, rtol, atol, bool(seed & 4), helper="torch"), want)

    try_all(check, 3000, 120)


def test_pieces_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_torch, "PIECE", 7)

    def check(seed: int) -> None:
        a, b = make_pair(seed)
        if a.numel() < 3000:
            check_same_stats(helper_torch.stats([a]).read()[0], _C.tensor_stats(a), a.dtype)
            check_same_compare(helper_torch.compare(a, b).read(), _C.tensor_compare(a, b))
            assert helper_torch.nonfinite([a]).read() == [_C.tensor_nonfinite(a)]

    try_all(check, 4000, 40)


@open_memory
def test_embedded_device_and_cpu_agree(device: torch.device) -> None:
    if CUDA_GAP is None:
        pytest.skip("'cuda' is a real device here")
    for seed in range(5000, 5040):
        tensor = make_case(seed)
        there = move(tensor, "cuda")
        same = repr(_C.tensor_stats(there)) == repr(_C.tensor_stats(tensor))
        assert same and _C.tensor_hash(there) == _C.tensor_hash(tensor), f"seed {seed}"
        # One side may be on the CPU: the host reads both.
        assert repr(_C.tensor_compare(there, tensor)) == repr(_C.tensor_compare(tensor, tensor)), f"seed {seed}"


def test_side_stream_is_waited_for(device: torch.device) -> None:
    stream = torch.cuda.Stream()
    x = torch.ones(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        y = x
        for _ in range(20):
            y = y * 1.5
        y = y - y + math.inf
        assert _C.tensor_nonfinite(y) == 2
        assert _C.tensor_stats(y)["pos_inf"] == 1 << 20
    torch.cuda.synchronize()


# Special tensors


def check_everywhere(tensor: torch.Tensor) -> dict:
    want = _C.tensor_stats(tensor)
    check_reference(tensor, want)
    check_same_stats(_C.tensor_stats(tensor, helper="torch"), want, tensor.dtype)
    if CUDA_GAP is None:
        check_same_stats(_C.tensor_stats(move(tensor, "cuda"), helper="cuda"), want, tensor.dtype)
        assert _C.tensor_hash(move(tensor, "cuda"), helper="cuda") == _C.tensor_hash(tensor)
    return want


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_and_scalar(dtype: torch.dtype) -> None:
    empty = torch.empty(3, 0, 2, dtype=dtype)
    stats = check_everywhere(empty)
    assert stats["numel"] == 0 and math.isnan(stats["min"]) and math.isnan(stats["mean"]) and stats["norm"] == 0
    assert _C.tensor_nonfinite(empty) == 0
    assert _C.tensor_compare(empty, empty)["allclose"] and math.isnan(_C.tensor_compare(empty, empty)["cosine"])
    scalar = make_values(np.random.default_rng(7), dtype, 1).reshape(())
    assert check_everywhere(scalar)["numel"] == 1


def test_huge_strides() -> None:
    base = torch.arange(3_000_001, dtype=torch.float32)
    view = base.as_strided((3, 2), (1_000_000, 999_999), 1)
    stats = check_everywhere(view)
    assert stats["min"] == 1 and stats["max"] == 2 * 1_000_000 + 999_999 + 1


def test_negative_zero_subnormals_all_nan() -> None:
    zeros = check_everywhere(torch.tensor([-0.0, 0.0, -0.0]))
    assert zeros["zero"] == 3 and math.copysign(1, zeros["min"]) == 1
    tiny = check_everywhere(torch.tensor([5e-324, -1e-320, 0.0], dtype=torch.float64))
    assert tiny["zero"] == 1 and tiny["min"] == -1e-320 and tiny["finite"] == 3
    assert check_everywhere(torch.tensor([1e-45, 2e-45]))["max"] == float(np.float32(2e-45))
    nans = check_everywhere(torch.full((5, 3), math.nan, dtype=torch.bfloat16))
    assert nans["nan"] == 15 and nans["finite"] == 0 and math.isnan(nans["max"]) and math.isnan(nans["norm"])
    huge = check_everywhere(torch.tensor([1e307, -1e307, 9e307, 1.0], dtype=torch.float64))
    assert math.isfinite(huge["std"]) and math.isfinite(huge["norm"])


def test_int64_is_exact() -> None:
    top = torch.iinfo(torch.int64).max
    stats = check_everywhere(torch.tensor([top, -top - 1, top - 1, -top + 6]))
    assert stats["mean"] == 1.0 and stats["max_int"] == top
    big = torch.tensor([-1, -3, -2], dtype=torch.int64).view(torch.uint64)
    assert check_everywhere(big)["max_int"] == 2**64 - 1
    for helper in (None, "torch"):
        result = _C.tensor_compare(torch.tensor([top, 5]), torch.tensor([top - 1, 5]), 0.0, 0.5, helper=helper)
        assert result["unequal"] == result["over_tolerance"] == 1 and result["max_abs_diff"] == 1.0


def test_differences_beyond_double() -> None:
    a = torch.tensor([1e308, 0.0, 1.0, 5e-324], dtype=torch.float64)
    b = torch.tensor([-1e308, 0.0, 2.0, 1e-320], dtype=torch.float64)
    want = _C.tensor_compare(a, b, 3.0, 0.0)
    assert want["max_rel_diff"] == 2.0 and math.isinf(want["max_abs_diff"]) and want["mean_abs_diff"] == 5e307
    check_same_compare(_C.tensor_compare(a, b, 3.0, 0.0, helper="torch"), want)
    if CUDA_GAP is None:
        check_same_compare(_C.tensor_compare(a.cuda(), b.cuda(), 3.0, 0.0, helper="cuda"), want)


def test_large_tensor_takes_several_blocks() -> None:
    x = torch.randn(3, 500_001, generator=torch.Generator().manual_seed(1))
    x[1, 77] = math.nan
    x[2, 500_000] = -math.inf
    stats = check_everywhere(x)
    assert (stats["nan"], stats["neg_inf"]) == (1, 1)
    assert _C.tensor_nonfinite(x) == 3
    check_everywhere(x.t())
    check_everywhere(x.half()[:, 1:])


# What C cannot read by itself


def test_conj_and_neg_bits() -> None:
    z = torch.tensor([1 + 2j, -3 - 4j, 5j])
    assert _C.tensor_stats(z.conj())["mean_imag"] == -_C.tensor_stats(z)["mean_imag"]
    assert _C.tensor_stats(z.conj().imag)["mean"] == -_C.tensor_stats(z.imag)["mean"]
    assert _C.tensor_hash(z.conj()) == _C.tensor_hash(z.conj().resolve_conj()) != _C.tensor_hash(z)
    assert _C.tensor_compare(z.conj(), z.conj().resolve_conj())["unequal"] == 0


def test_sparse_nested_gradients_and_subclasses() -> None:
    dense = torch.tensor([[0.0, 2.0], [math.inf, 0.0]])
    for layout in (dense.to_sparse(), dense.to_sparse_csr()):
        assert repr(_C.tensor_stats(layout)) == repr(_C.tensor_stats(dense))
        assert _C.tensor_nonfinite(layout) == 2
    parts = [torch.tensor([1.0, math.nan]), torch.tensor([3.0])]
    for layout in (torch.strided, torch.jagged):
        nested = _C.tensor_stats(torch.nested.nested_tensor(parts, layout=layout))
        assert (nested["numel"], nested["nan"], nested["max"]) == (3, 1, 3.0)
    parameter = torch.nn.Parameter(torch.ones(3))
    assert _C.tensor_stats(parameter)["mean"] == 1.0
    assert _C.tensor_stats(parameter * 2, helper="torch")["mean"] == 2.0

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError("somebody called an operator of the subclass")

    assert _C.tensor_stats(torch.ones(3).as_subclass(Loud))["numel"] == 3


def test_more_dimensions_than_c_takes() -> None:
    deep = torch.arange(8.0).reshape([2, 2, 2] + [1] * 24)
    check_same_stats(_C.tensor_stats(deep), _C.tensor_stats(deep.reshape(8)), deep.dtype)
    assert _C.tensor_compare(deep, deep + 1)["max_abs_diff"] == 1.0


def test_tensors_without_values_are_refused() -> None:
    with pytest.raises(TypeError, match="meta"):
        _C.tensor_stats(torch.ones(3, device="meta"))
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    with pytest.raises(TypeError, match="no values"):
        _C.tensor_nonfinite(fake)


def test_plain_tensors() -> None:
    x = torch.tensor([1 + 2j, 3 - 1j]).requires_grad_()
    plain = _C.tensor_plain(x.conj())
    assert plain.tolist() == [1 - 2j, 3 + 1j] and not plain.is_conj() and not plain.requires_grad
    assert _C.tensor_plain(x.detach().conj().imag).tolist() == [-2.0, 1.0]
    assert _C.tensor_plain(torch.eye(2).to_sparse()).tolist() == [[1, 0], [0, 1]]
    there = torch.ones(2, device="cuda")
    assert _C.tensor_plain(there).device == there.device and _C.tensor_plain(there, on_cpu=True).device.type == "cpu"
    assert torch.is_grad_enabled()
    with pytest.raises(TypeError, match="no values"):
        _C.tensor_plain(torch.ones(2, device="meta"))
    assert torch.is_grad_enabled()


def test_what_python_has_not_handed_down_is_said(python) -> None:
    python(
        """
        import torch, ditorch
        from ditorch import _C
        x = torch.ones(3)
        assert _C.tensor_stats(x, helper="torch")["mean"] == 1
        _C.helper_set_answer(None)
        assert _C.tensor_stats(x)["mean"] == 1  # C reads it by itself
        try:
            _C.tensor_stats(x, helper="torch")
        except RuntimeError as error:
            assert "ditorch.install()" in str(error), error
        else:
            raise AssertionError("did not raise")
        """
    )


def test_bad_arguments() -> None:
    x = torch.ones(3)
    with pytest.raises(ValueError, match="valid: host, cuda, torch"):
        _C.tensor_stats(x, helper="tpu")
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor, not list"):
        _C.tensor_stats([1.0])
    with pytest.raises(ValueError, match="helper 'cuda' cannot read"):
        _C.tensor_stats(x, helper="cuda")
    for helper in (None, "torch"):
        with pytest.raises(ValueError, match="shape"):
            _C.tensor_compare(x, torch.ones(4), helper=helper)
        with pytest.raises(ValueError, match="rtol is -1"):
            _C.tensor_compare(x, x, rtol=-1.0, helper=helper)
        with pytest.raises(NotImplementedError, match="no numbers to compute with"):
            _C.tensor_stats(torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), helper=helper)
    with pytest.raises(ValueError, match="nonfinite, stats, hash"):
        _C.tensor_batch("sum", [x])


# Hash, detail, batches, events, copies


def test_hash_is_pinned_and_sees_every_bit() -> None:
    pinned = _C.tensor_hash((torch.arange(70) * 7).to(torch.uint8))
    assert pinned == {"low": 0x9E50615B91B6E0DF, "high": 0xAB6598E630C77E4E}
    x = torch.randn(1000, generator=torch.Generator().manual_seed(2))
    y = x.clone()
    y.view(torch.int32)[777] ^= 1
    assert _C.tensor_hash(x) != _C.tensor_hash(y)
    square = x.reshape(20, 50)
    assert _C.tensor_hash(square.t()) == _C.tensor_hash(square.t().contiguous()) != _C.tensor_hash(square)


def test_detail() -> None:
    b = torch.ones(2, 3)
    a = b.clone()
    a[1, 0] += 2.0**-22
    a[1, 2] = 2.0
    detail = _C.tensor_compare_detail(a, b, 0.0, 0.0)
    assert detail["worst_abs_index"] == 5 and detail["worst_abs"] == [1, 2] and detail["first_mismatch"] == [1, 0]
    assert detail["ulp_dtype"] == "float32" and detail["ulp"][:3] == [4, 0, 1] and sum(detail["ulp"]) == 6
    assert _C.tensor_compare_detail(a.to_sparse(), b, 0.0, 0.0) == detail
    assert _C.tensor_compare_detail(a, b, 0.0, 0.0, True) == _C.tensor_compare_detail(a, b, 0.0, 0.0, equal_nan=True)
    same = _C.tensor_compare_detail(b, b)
    assert same["worst_abs_index"] == same["first_mismatch_index"] == -1


def test_batches() -> None:
    tensors = [make_case(seed) for seed in range(6000, 6040)]
    assert repr(_C.tensor_batch("stats", tensors)) == repr([_C.tensor_stats(t) for t in tensors])
    assert _C.tensor_batch("nonfinite", tensors) == [_C.tensor_nonfinite(t) for t in tensors]
    assert _C.tensor_batch("hash", tensors) == [_C.tensor_hash(t) for t in tensors]
    assert _C.tensor_batch("hash", []) == []


@open_memory
def test_events_and_copies(device: torch.device) -> None:
    x = torch.arange(10_000.0, device="cuda")
    assert _C.helper_time(x, lambda: x.sum()) >= 0
    assert _C.helper_copy(x) == x.cpu().numpy().tobytes()
    with torch.cuda.stream(torch.cuda.Stream()):
        y = x * 2
        assert _C.helper_copy(y) == (x.cpu() * 2).numpy().tobytes()
        assert _C.helper_time(y, lambda: y.mul_(2)) >= 0
    with pytest.raises(ZeroDivisionError):
        _C.helper_time(x, lambda: 1 / 0)
    assert set(_C.helper_cost(x, 3)) == {"event_record", "nonfinite", "nonfinite_16", "stats", "hash"}


def test_every_way_out_leaves_no_references() -> None:
    x, z, sparse = torch.ones(8), torch.ones(4, dtype=torch.complex64).conj(), torch.eye(3).to_sparse()

    def fail() -> None:
        raise KeyError("mine")

    good = [
        lambda: _C.tensor_stats(x),
        lambda: _C.tensor_stats(z),
        lambda: _C.tensor_compare(x, x, helper="torch"),
        lambda: _C.tensor_compare_detail(sparse, sparse),
        lambda: _C.tensor_batch("hash", [x] * 20),
        lambda: _C.helper_copy(x),
    ]
    bad = [
        lambda: _C.tensor_compare(x, z),
        lambda: _C.tensor_batch("stats", [x, z]),
        lambda: _C.tensor_compare_detail(x, torch.ones(3, device="meta")),
        lambda: _C.helper_time(x, fail),
        lambda: _C.helper_cost(x, 0),
    ]

    def run() -> None:
        for call in good:
            call()
        for call in bad:
            with pytest.raises((ValueError, TypeError, KeyError)):
                call()

    run()
    before = [sys.getrefcount(t) for t in (x, z, sparse)]
    for _ in range(50):
        run()
    gc.collect()
    assert [sys.getrefcount(t) for t in (x, z, sparse)] == before


def test_names() -> None:
    assert _C.helper_names()[0] == "host" and _C.helper_why_not("host") is None
    gap = _C.helper_why_not("cuda")
    assert gap is None or len(gap) > 10
    with pytest.raises(ValueError, match="valid: host, cuda"):
        _C.helper_why_not("tpu")


# Real CUDA devices


@needs_cuda
def test_cuda_kernels_agree_with_c() -> None:
    def check(seed: int) -> None:
        tensor = make_case(seed)
        there = move(tensor, "cuda")
        assert there.stride() == tensor.stride() or tensor.numel() == 0
        check_same_stats(_C.tensor_stats(there, helper="cuda"), _C.tensor_stats(tensor), tensor.dtype)
        assert _C.tensor_nonfinite(there, helper="cuda") == _C.tensor_nonfinite(tensor)
        assert _C.tensor_hash(there, helper="cuda") == _C.tensor_hash(tensor)

    try_all(check, 7000, 400)


@needs_cuda
def test_cuda_comparison_agrees_with_c() -> None:
    def check(seed: int) -> None:
        a, b = make_pair(seed)
        rtol, atol = TOLERANCES[seed % 4]
        got = _C.tensor_compare(move(a, "cuda"), move(b, "cuda"), rtol, atol, bool(seed & 4), helper="cuda")
        check_same_compare(got, _C.tensor_compare(a, b, rtol, atol, bool(seed & 4)))

    try_all(check, 8000, 400)


@needs_cuda
def test_cuda_torch_operators_agree() -> None:
    for seed in range(9000, 9060):
        tensor = make_case(seed)
        there = move(tensor, "cuda")
        check_same_stats(_C.tensor_stats(there, helper="torch"), _C.tensor_stats(tensor), tensor.dtype)


@needs_cuda
def test_cuda_batches() -> None:
    tensors = [make_case(seed) for seed in range(6100, 6180)]
    there = [move(t, "cuda") for t in tensors]
    for got, t in zip(_C.tensor_batch("stats", there), tensors, strict=True):
        check_same_stats(got, _C.tensor_stats(t), t.dtype)
    assert _C.tensor_batch("nonfinite", there) == [_C.tensor_nonfinite(t) for t in tensors]
    assert _C.tensor_batch("hash", there) == [_C.tensor_hash(t) for t in tensors]


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.float64])
def test_cuda_large_tensors(dtype: torch.dtype) -> None:
    """More elements than one round of all blocks takes; the same bits on every run."""
    x = torch.randn(40_000_003, generator=torch.Generator().manual_seed(3), dtype=torch.float32)
    x = (x * 1000).to(dtype) if dtype == torch.int64 else x.to(dtype)
    there = x.cuda()
    want = _C.tensor_stats(x)
    got = _C.tensor_stats(there, helper="cuda")
    check_same_stats(got, want, dtype)
    assert repr(_C.tensor_stats(there, helper="cuda")) == repr(got)
    assert _C.tensor_hash(there, helper="cuda") == _C.tensor_hash(x)
    check_same_compare(_C.tensor_compare(there, reverse(there), helper="cuda"), _C.tensor_compare(x, reverse(x)))


def reverse(tensor: torch.Tensor) -> torch.Tensor:
    """float8 has no flip of its own."""
    return tensor.view(torch.uint8).flip(0).view(tensor.dtype) if tensor.itemsize == 1 else tensor.flip(0)


@needs_cuda
def test_cuda_streams_do_not_disturb_each_other() -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    tensors = [torch.full((1 << 20,), float(i), device="cuda") for i in range(4)]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, tensor, i in zip(streams, tensors, range(4), strict=True):
            with torch.cuda.stream(stream):
                tensor.mul_(1)
                stats = _C.tensor_stats(tensor, helper="cuda")
                assert stats["mean"] == stats["min"] == i


@needs_cuda
def test_cuda_threads() -> None:
    import concurrent.futures

    x = torch.randn(1 << 20, device="cuda")
    want = repr(_C.tensor_stats(x, helper="cuda"))

    def work(_: int) -> bool:
        return all(repr(_C.tensor_stats(x, helper="cuda")) == want for _ in range(20))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


@needs_cuda
def test_cuda_graph_capture_is_left_alone() -> None:
    x = torch.ones(100, device="cuda")
    _C.tensor_stats(x, helper="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
        with pytest.raises(NotImplementedError, match="captured"):
            _C.helper_time(x, lambda: None)
    graph.replay()
    assert _C.tensor_stats(y, helper="cuda")["mean"] == 2.0
