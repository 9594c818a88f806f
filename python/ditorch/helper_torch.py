"""Numbers about tensors with torch's own operators: the stand-in for devices that have no helper in C.

The results are those of `dit_tensor_get_stats`, `dit_tensor_get_nonfinite`, `dit_tensor_compare` and
`dit_tensor_get_hash` (include/dit/numerics.h), field by field. Work is queued on the tensor's device and nothing
waits for it: `stats`, `nonfinite` and `compare` return a handle, whose `read()` fetches the results with one copy. Only
`hash` copies the tensor to the CPU, at once.

Sums are computed in float64 (float32 on a device that has no float64), in pieces of at most PIECE elements, which are
merged when they are read. float64 values are scaled by a power of two first, so that squares neither overflow nor
vanish. Nothing is recorded by autograd.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from . import _C

PIECE = 1 << 24
"""Elements that are worked on at once: bounds the temporaries (about 10 float64 copies of a piece)."""

NAN, INF = math.nan, math.inf
_INT64 = (torch.int64, torch.uint64)
_SIGN = -(2**63)


class Handle:
    """Results that are on their way: `read()` waits for them."""

    def __init__(self, pieces: list[torch.Tensor], finish: Any) -> None:
        self._pieces = pieces
        self._finish = finish

    def read(self) -> Any:
        rows = torch.stack(self._pieces).cpu().tolist() if self._pieces else []
        return self._finish(rows)


class Handles:
    """Several handles, read together."""

    def __init__(self, handles: list[Handle]) -> None:
        self._handles = handles

    def read(self) -> list[Any]:
        return [handle.read() for handle in self._handles]


# Tensors that can be worked on


@functools.cache
def _get_wide(device: str) -> torch.dtype:
    """float64, or float32 where the device has no float64."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError):
        return torch.float32
    return torch.float64


def _check(tensor: torch.Tensor) -> None:
    name = str(tensor.dtype).removeprefix("torch.")
    plain = tensor.dtype.is_floating_point or tensor.dtype.is_complex or name in _INTEGERS
    if tensor.is_quantized or not plain or name.startswith("float4"):
        raise NotImplementedError(
            f"the tensor has dtype {name}, which has no numbers to compute with; valid: bool, integers of 8 to 64 "
            "bits, float8/16/32/64, bfloat16, complex: convert it first"
        )


_INTEGERS = {"bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}


def _cut(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Flat pieces in row-major order."""
    flat = tensor.reshape(-1)
    return [flat[start : start + PIECE] for start in range(0, flat.numel(), PIECE)]


def _widen(piece: torch.Tensor) -> torch.Tensor:
    """As float64 (complex: complex128)."""
    wide = _get_wide(piece.device.type)
    if piece.dtype.is_complex:
        return piece.to(torch.complex128 if wide == torch.float64 else torch.complex64)
    if piece.dtype == torch.uint64:
        low, high = _split(piece)
        return high.to(wide) * 2.0**32 + low.to(wide)
    return piece.to(wide)


def _split(piece: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The low and the high half of 64-bit integers; the high half keeps the sign of int64."""
    bits = piece.view(torch.int64) if piece.dtype == torch.uint64 else piece
    high = bits >> 32
    if piece.dtype == torch.uint64:
        high = high & 0xFFFFFFFF
    return bits & 0xFFFFFFFF, high


# Non-finite flags


def nonfinite(tensors: list[torch.Tensor]) -> Handles:
    """For each tensor 1 (has NaN), 2 (has infinities), 3 or 0."""
    return Handles([_nonfinite(_C.tensor_plain(tensor)) for tensor in tensors])


@torch.no_grad()
def _nonfinite(tensor: torch.Tensor) -> Handle:
    _check(tensor)
    rows = []
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        for piece in _cut(tensor):
            parts = torch.view_as_real(_widen(piece)) if piece.dtype.is_complex else _comparable(piece)
            rows.append(torch.stack([parts.isnan().any(), parts.isinf().any()]))
    return Handle(rows, lambda read: sum(1 << bit for bit in (0, 1) if any(row[bit] for row in read)))


def _comparable(piece: torch.Tensor) -> torch.Tensor:
    """float8 has hardly an operator of its own."""
    return piece.to(torch.float32) if piece.element_size() == 1 else piece


# Statistics


def stats(tensors: list[torch.Tensor]) -> Handles:
    """For each tensor a dictionary with the fields of struct dit_tensor_stats."""
    return Handles([_stats(_C.tensor_plain(tensor)) for tensor in tensors])


@torch.no_grad()
def _stats(tensor: torch.Tensor) -> Handle:
    _check(tensor)
    dtype, numel = tensor.dtype, tensor.numel()
    if dtype in _INT64:
        base = tensor.reshape(-1)[:1]
        rows = [_describe_ints(piece, base) for piece in _cut(tensor)]
        return Handle(rows, lambda read: _finish_ints(read, numel, dtype))
    rows = [_describe(piece) for piece in _cut(tensor)]
    return Handle(rows, lambda read: _finish(_merge(read), numel, dtype))


def _get_exponent(size: torch.Tensor) -> torch.Tensor:
    """The power of two of a magnitude (0 for 0), as a float of its dtype, without a look at it."""
    exponent = torch.frexp(size)[1].to(size.dtype)
    return torch.where(size > 0, exponent, torch.zeros_like(exponent))


def _shift(values: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """values * 2^-exponent, in two steps because the factor alone may be out of range."""
    half = torch.floor(exponent / 2)
    return values * torch.exp2(-half) * torch.exp2(half - exponent)


def _get_moments(values: torch.Tensor, finite: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and squared distances from it, of the finite values."""
    mean = torch.where(finite, values, 0).sum() / count.clamp(min=1)
    distance = torch.where(finite, values - mean, 0)
    # What the mean lost to rounding is made good.
    shift = distance.sum() / count.clamp(min=1)
    return mean + shift, (distance * distance).sum() - shift * shift * count


def _describe(piece: torch.Tensor) -> torch.Tensor:
    """One row: count, zero, nan, +inf, -inf, min, max, exponent, mean, spread, mean_imag, spread_imag, square."""
    x = _widen(piece)
    is_complex = x.is_complex()
    re, im = (x.real, x.imag) if is_complex else (x, torch.zeros_like(x))
    nan = re.isnan() | im.isnan()
    infinite = (re.isinf() | im.isinf()) & ~nan
    finite = ~nan & ~infinite
    size = re
    if is_complex:  # squares, where they are exact enough: torch.sqrt does not always round to nearest
        size = torch.hypot(re, im) if piece.dtype == torch.complex128 else re * re + im * im
        size = torch.where(infinite, INF, size)
    count = finite.sum().to(re.dtype)
    exponent = torch.zeros_like(count)
    if piece.dtype in (torch.float64, torch.complex128):
        exponent = _get_exponent(torch.where(finite, size.abs(), 0).amax())
        re, im = _shift(re, exponent), _shift(im, exponent)
    mean, spread = _get_moments(re, finite, count)
    mean_imag, spread_imag = _get_moments(im, finite, count) if is_complex else (mean * 0, mean * 0)
    square = torch.where(finite, re * re + im * im, 0).sum()
    zero = (finite & (size == 0)).sum()
    row = [count, zero, nan.sum(), (infinite & (size > 0)).sum(), (infinite & (size < 0)).sum()]
    row += [torch.where(nan, INF, size).amin(), torch.where(nan, -INF, size).amax()]
    row += [exponent, mean, spread, mean_imag, spread_imag, square]
    return _make_row(row, re.dtype)


def _make_row(values: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    return torch.stack([value.to(dtype) for value in values])


def _get_size(re: torch.Tensor, im: torch.Tensor, careful: bool) -> torch.Tensor:
    """Magnitude; `careful` where squares may leave the range."""
    return torch.hypot(re, im) if careful else torch.sqrt(re * re + im * im)


def _describe_ints(piece: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """One row of int64: zero, min, max, sums of the halves, and as bits of float64: mean and spread of the distances
    from `base`, sum of squares."""
    low, high = _split(piece)
    bits = piece.view(torch.int64) if piece.dtype == torch.uint64 else piece
    order = bits ^ _SIGN if piece.dtype == torch.uint64 else bits
    base_low, base_high = _split(base)
    wide = _get_wide(piece.device.type)
    distance = (high - base_high).to(wide) * 2.0**32 + (low - base_low).to(wide)
    x = _widen(piece)
    everything = torch.ones_like(piece, dtype=torch.bool)
    mean, spread = _get_moments(distance, everything, torch.tensor(float(piece.numel()), device=piece.device))
    reals = _make_row([mean, spread, (x * x).sum()], torch.float64 if wide == torch.float64 else torch.float32)
    if reals.dtype != torch.float64:  # no bits of float64 on this device
        reals = reals.cpu().double().to(reals.device)
    ints = [(bits == 0).sum(), order.amin(), order.amax(), low.sum(), high.sum()]
    return torch.cat([_make_row(ints, torch.int64), reals.view(torch.int64)])


# Merging what was read


def _merge_moments(a: dict[str, float], mean: float, spread: float, count: float, part: str) -> None:
    total = a["count"] + count
    if count == 0:
        return
    delta = mean - a["mean" + part] if a["count"] else 0.0
    share = count / total
    a["spread" + part] += spread + delta * delta * a["count"] * share
    a["mean" + part] = a["mean" + part] + delta * share if a["count"] else mean


_ROW = ["count", "zero", "nan", "pos_inf", "neg_inf", "min", "max", "exponent"]
_ROW += ["mean", "spread", "mean_imag", "spread_imag", "square"]


def _merge(rows: list[list[float]]) -> dict[str, float]:
    """Rows of _describe into one, in the unit of the largest exponent."""
    total = dict.fromkeys(_ROW, 0.0) | {"min": INF, "max": -INF}
    total["exponent"] = max((row[7] for row in rows if row[0]), default=0.0)
    for row in rows:
        piece = dict(zip(_ROW, row, strict=True))
        down = int(piece["exponent"] - total["exponent"])
        for part in ("", "_imag"):
            mean = math.ldexp(piece["mean" + part], down)
            _merge_moments(total, mean, math.ldexp(piece["spread" + part], 2 * down), piece["count"], part)
        total["square"] += math.ldexp(piece["square"], 2 * down)
        for key in ("count", "zero", "nan", "pos_inf", "neg_inf"):
            total[key] += piece[key]
        total["min"], total["max"] = min(total["min"], piece["min"]), max(total["max"], piece["max"])
    return total


def _leave(value: float, exponent: float) -> float:
    """value * 2^exponent; too large is infinite."""
    try:
        return math.ldexp(value, int(exponent))
    except OverflowError:
        return math.copysign(INF, value)


def _finish(total: dict[str, float], numel: int, dtype: torch.dtype) -> dict[str, Any]:
    count, exponent = int(total["count"]), total["exponent"]
    spread = max(total["spread"] + total["spread_imag"], 0.0)
    result: dict[str, Any] = {"numel": numel, "finite": count}
    result |= {key: int(total[key]) for key in ("zero", "nan", "pos_inf", "neg_inf")}
    known = result["nan"] < numel
    low, high = total["min"] + 0.0, total["max"] + 0.0
    if known and dtype.is_complex and dtype != torch.complex128:
        low, high = math.sqrt(low), math.sqrt(high)
    result |= {"min": low if known else NAN, "max": high if known else NAN}
    result["abs_max"] = result["max"] if dtype.is_complex else max(abs(result["min"]), abs(result["max"]))
    mean = _leave(total["mean"], exponent) if count else NAN
    mean_imag = (_leave(total["mean_imag"], exponent) if count else NAN) if dtype.is_complex else 0.0
    std = _leave(math.sqrt(spread / count), exponent) if count else NAN
    sample = _leave(math.sqrt(spread / (count - 1)), exponent) if count > 1 else NAN
    norm = _leave(math.sqrt(total["square"]), exponent)
    clean = count == numel
    result["mean"], result["mean_imag"] = mean, mean_imag
    if not clean:
        mixed = result["nan"] or (result["pos_inf"] and result["neg_inf"]) or dtype.is_complex
        result["mean"] = NAN if mixed else INF if result["pos_inf"] else -INF
        result["mean_imag"] = NAN if dtype.is_complex else 0.0
    result |= {"finite_mean": mean, "finite_mean_imag": mean_imag}
    result |= {"std": std if clean else NAN, "std_sample": sample if clean else NAN}
    result |= {"finite_std": std, "finite_std_sample": sample}
    result |= {"norm": NAN if result["nan"] else norm if clean else INF, "finite_norm": norm}
    return result | {"min_int": 0, "max_int": 0}


def _finish_ints(rows: list[list[int]], numel: int, dtype: torch.dtype) -> dict[str, Any]:
    total = dict.fromkeys(_ROW, 0.0) | {"min": INF, "max": -INF}
    result_sum, low, high, left = 0, 0, 0, numel
    for number, row in enumerate(rows):
        mean, spread, square = torch.tensor(row[5:], dtype=torch.int64).view(torch.float64).tolist()
        count = min(left, PIECE)
        left -= count
        _merge_moments(total, mean, spread, count, "")
        total["count"] += count
        total["zero"] += row[0]
        total["square"] += square
        unflip = 2**63 if dtype == torch.uint64 else 0
        low = row[1] + unflip if number == 0 else min(low, row[1] + unflip)
        high = row[2] + unflip if number == 0 else max(high, row[2] + unflip)
        result_sum += row[3] + (row[4] << 32)
    total["min"], total["max"] = (float(low), float(high)) if rows else (INF, -INF)
    result = _finish(total, numel, dtype)
    if numel:
        result["mean"] = result["finite_mean"] = result_sum / numel
        result["min_int"], result["max_int"] = low, high
    return result


# Comparison


def compare(
    a: torch.Tensor, b: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Handle:
    """The candidate `a` against the reference `b`: a dictionary with the fields of struct dit_compare_result."""
    a, b = _C.tensor_plain(a), _C.tensor_plain(b)
    _check(a)
    _check(b)
    if a.shape != b.shape:
        raise ValueError(f"tensor a has shape {tuple(a.shape)} and tensor b has {tuple(b.shape)}; compare needs equal")
    if a.device != b.device:
        raise ValueError(f"tensor a is on {a.device} and tensor b on {b.device}; move one of them")
    if not (rtol >= 0 and atol >= 0):
        raise ValueError(f"rtol is {rtol} and atol is {atol}; both must be 0 or more")
    numel = a.numel()
    with torch.no_grad():
        rows = [_compare(x, y, rtol, atol, equal_nan) for x, y in zip(_cut(a), _cut(b), strict=True)]
    return Handle(rows, lambda read: _finish_compare(read, numel))


def _take_apart(piece: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Real part, what float64 lacks of a 64-bit integer, imaginary part."""
    x = _widen(piece)
    if x.is_complex():
        return x.real, torch.zeros_like(x.real), x.imag
    if piece.dtype not in _INT64:
        return x, torch.zeros_like(x), torch.zeros_like(x)
    low, high = _split(piece)
    high = high.to(x.dtype) * 2.0**32
    low = low.to(x.dtype)
    return high + low, low - ((high + low) - high), torch.zeros_like(x)


_PAIR = ["finite", "unequal", "over", "mismatch", "max_diff", "rel", "rel_sym", "min_a", "max_a", "min_b", "max_b"]
_PAIR += ["exponent_a", "exponent_b", "dot", "square_a", "square_b", "abs_diff"]


def _compare(a: torch.Tensor, b: torch.Tensor, rtol: float, atol: float, equal_nan: bool) -> torch.Tensor:
    """One row of _PAIR; sums in units of the exponents, abs_diff in that of the larger one."""
    is_complex = a.dtype.is_complex or b.dtype.is_complex
    careful = any(dtype in (torch.float64, torch.complex128) for dtype in (a.dtype, b.dtype))
    (re_a, rest_a, im_a), (re_b, rest_b, im_b) = _take_apart(a), _take_apart(b)
    nan_a, nan_b = re_a.isnan() | im_a.isnan(), re_b.isnan() | im_b.isnan()
    finite = re_a.isfinite() & im_a.isfinite() & re_b.isfinite() & im_b.isfinite()
    both = nan_a & nan_b
    equal = (re_a == re_b) & (rest_a == rest_b) & (im_a == im_b)
    equal = equal | both if equal_nan else equal
    zeros = torch.zeros_like(re_a)
    re_a, im_a, re_b, im_b = (torch.where(finite, part, zeros) for part in (re_a, im_a, re_b, im_b))
    size_a = _get_size(re_a, im_a, careful) if is_complex else re_a.abs()
    size_b = _get_size(re_b, im_b, careful) if is_complex else re_b.abs()
    # Huge numbers are quartered, so that their difference is finite; small ones would lose digits.
    quarter = torch.where(
        torch.maximum(size_a, size_b) > 2.0 ** (1000 if re_a.dtype == torch.float64 else 100), 0.25, 1.0
    )
    diff = (re_a * quarter - re_b * quarter) + torch.where(finite, rest_a - rest_b, zeros)
    diff = _get_size(diff, im_a * quarter - im_b * quarter, careful) if is_complex else diff.abs()
    close = diff / quarter <= atol + rtol * size_b
    exponent_a, exponent_b = _get_exponent(size_a.amax()), _get_exponent(size_b.amax())
    exponent = torch.maximum(exponent_a, exponent_b)
    over = ~equal & ~(finite & close)
    rel = torch.where(diff > 0, diff / size_b / quarter, zeros)
    rel_sym = torch.where(diff > 0, diff / torch.maximum(size_a, size_b) / quarter, zeros)
    low_a, low_b = (size_a, size_b) if is_complex else (re_a, re_b)
    x, xi, y, yi = (
        _shift(re_a, exponent_a),
        _shift(im_a, exponent_a),
        _shift(re_b, exponent_b),
        _shift(im_b, exponent_b),
    )
    extrema = [torch.where(finite, low_a, INF).amin(), torch.where(finite, low_a, -INF).amax()]
    extrema += [torch.where(finite, low_b, INF).amin(), torch.where(finite, low_b, -INF).amax()]
    sums = [(x * y + xi * yi).sum(), (x * x + xi * xi).sum(), (y * y + yi * yi).sum()]
    sums.append((_shift(diff, exponent) / quarter).sum())
    row = [finite.sum(), (~equal).sum(), over.sum(), (~equal & ~finite & ~both).sum()]
    row += [(diff / quarter).amax(), rel.amax(), rel_sym.amax(), *extrema, exponent_a, exponent_b, *sums]
    return _make_row(row, re_a.dtype)


def _merge_compare(rows: list[list[float]]) -> dict[str, float]:
    total = dict.fromkeys(_PAIR, 0.0) | {"min_a": INF, "max_a": -INF, "min_b": INF, "max_b": -INF}
    for side in ("exponent_a", "exponent_b"):
        total[side] = max((row[_PAIR.index(side)] for row in rows), default=0.0)
    for row in rows:
        piece = dict(zip(_PAIR, row, strict=True))
        down_a = int(piece["exponent_a"] - total["exponent_a"])
        down_b = int(piece["exponent_b"] - total["exponent_b"])
        down = int(max(piece["exponent_a"], piece["exponent_b"]) - max(total["exponent_a"], total["exponent_b"]))
        for key, shift in (("dot", down_a + down_b), ("square_a", 2 * down_a), ("square_b", 2 * down_b)):
            total[key] += math.ldexp(piece[key], shift)
        total["abs_diff"] += math.ldexp(piece["abs_diff"], down)
        for key in ("finite", "unequal", "over", "mismatch"):
            total[key] += piece[key]
        for key in ("max_diff", "rel", "rel_sym", "max_a", "max_b"):
            total[key] = max(total[key], piece[key])
        for key in ("min_a", "min_b"):
            total[key] = min(total[key], piece[key])
    return total


def _get_cosine(total: dict[str, float]) -> float:
    if not total["finite"]:
        return NAN
    if not total["square_a"] or not total["square_b"]:
        return 1.0 if total["square_a"] == total["square_b"] else 0.0
    return max(-1.0, min(1.0, total["dot"] / (math.sqrt(total["square_a"]) * math.sqrt(total["square_b"]))))


def _finish_compare(rows: list[list[float]], numel: int) -> dict[str, Any]:
    total = _merge_compare(rows)
    finite, a, b = int(total["finite"]), total["exponent_a"], total["exponent_b"]
    result: dict[str, Any] = {"allclose": total["over"] == 0, "numel": numel, "finite_pairs": finite}
    result |= {"unequal": int(total["unequal"]), "over_tolerance": int(total["over"])}
    result |= {"nonfinite_mismatch": int(total["mismatch"]), "max_abs_diff": total["max_diff"]}
    result |= {"max_rel_diff": total["rel"], "max_rel_diff_sym": total["rel_sym"]}
    result["mean_abs_diff"] = _leave(total["abs_diff"] / finite, max(a, b)) if finite else NAN
    result |= {"cosine": _get_cosine(total), "dot": _leave(total["dot"], a + b)}
    result["sum_abs_diff"] = _leave(total["abs_diff"], max(a, b))
    for side, exponent in (("a", a), ("b", b)):
        result["min_" + side] = total["min_" + side] + 0.0 if finite else NAN
        result["max_" + side] = total["max_" + side] + 0.0 if finite else NAN
        result["norm_" + side] = _leave(math.sqrt(total["square_" + side]), exponent)
    return result


# Hash


def hash(tensor: torch.Tensor) -> Handle:
    """The 128 bits of dit_tensor_get_hash as {"low", "high"}. Copies the tensor to the CPU, at once."""
    result = _C.tensor_hash(_C.tensor_plain(tensor, on_cpu=True), helper="host")
    return Handle([], lambda rows: result)


# For ditorch._C: questions about tensors that C does not read by itself


def answer(
    kind: str, tensors: tuple[torch.Tensor, ...], helper: str | None, rtol: float, atol: float, equal_nan: bool
) -> Any:
    """The number `kind` ("stats", "nonfinite", "hash") of a tensor, or "compare" of two with these tolerances."""
    options = (rtol, atol, equal_nan) if kind == "compare" else ()
    if helper != "torch" and not all(map(_is_plain, tensors)):
        return getattr(_C, "tensor_" + kind)(*map(_C.tensor_plain, tensors), *options, helper=helper)
    _refuse(helper, *tensors)
    function = {"stats": _stats, "nonfinite": _nonfinite, "hash": hash, "compare": compare}[kind]
    return function(*map(_C.tensor_plain, tensors), *options).read()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Nothing is left for tensor_plain to do; if C does not read such a tensor, torch's operators must."""
    return tensor.layout == torch.strided and not (tensor.is_conj() or tensor.is_neg() or tensor.is_nested)


def _refuse(helper: str | None, *tensors: torch.Tensor) -> None:
    if helper not in (None, "torch"):
        which = " and ".join(f"{tensor.dim()} dimensions on device '{tensor.device}'" for tensor in tensors)
        raise ValueError(f"the helper '{helper}' cannot read {which}; leave `helper` out, or use 'torch'")
