"""References of linear algebra: Cholesky, triangular systems, QR, pairwise distances.

Matrices are made well-conditioned in place before they are used. A relative error of an element moves the result by the
condition of the matrix, so that stands in the scale.
"""

from __future__ import annotations

import math

import torch

from .base import Call, Result, differentiate, reference


def _make_positive(matrix: torch.Tensor) -> None:
    """matrix = M M^H / n + 1."""
    wide = matrix.to(torch.complex128 if matrix.is_complex() else torch.float64)
    size = wide.shape[-1]
    matrix.copy_(wide @ wide.mH / max(size, 1) + torch.eye(size, dtype=wide.dtype))


def _condition(matrix: torch.Tensor) -> float:
    return float(torch.linalg.cond(matrix).max()) if matrix.numel() else 1.0


@reference("Cholesky")
def run_cholesky(call: Call) -> dict[str, Result]:
    """Where `mat` is to have no factor (entry "indefinite" gives its data), `info` alone is judged."""
    upper = call["upper"]
    given = call["mat"]
    if not bool(((given.real if given.is_complex() else given).flatten()[:1] == 7).any()):
        _make_positive(given)
    mat = call.wide("mat")
    value, info = torch.linalg.cholesky_ex(mat, upper=upper)
    found = {"info": Result(info, torch.int32, exact=True)}
    if bool(info.any()):
        return {"out": Result(value, check="anything"), **found}
    size = float(value.abs().max()) * _condition(mat) if value.numel() else 1.0
    scale = torch.full(value.shape, size, dtype=torch.float64)
    scale = scale.triu() if upper else scale.tril()
    return {"out": Result(value, scale=scale, terms=max(mat.shape[-1], 1)), **found}


@reference("CholeskyBackward")
def run_cholesky_backward(call: Call) -> dict[str, Result]:
    """`L` becomes the factor of a matrix; the gradient is PyTorch's own."""
    upper, given = call["upper"], call["L"]
    _make_positive(given)
    factor = torch.linalg.cholesky(given.to(torch.complex128 if given.is_complex() else torch.float64), upper=upper)
    given.copy_(factor)
    factor, grad = call.wide("L"), call.wide("grad_output")
    mat = factor.mH @ factor if upper else factor @ factor.mH
    value = differentiate(lambda a: torch.linalg.cholesky(a, upper=upper), [mat], grad)[0]
    size = float(grad.abs().max()) * _condition(mat) * mat.shape[-1] if value.numel() else 1.0
    scale = torch.full(value.shape, size, dtype=torch.float64)
    return {"grad_mat": Result(value, scale=scale, terms=max(mat.shape[-1], 1), ops=16)}


def _make_solvable(matrix: torch.Tensor) -> None:
    wide = matrix.to(torch.complex128 if matrix.is_complex() else torch.float64)
    matrix.copy_(wide / max(wide.shape[-1], 1) + 2 * torch.eye(wide.shape[-1], dtype=wide.dtype))


def _triangle(call: Call, mat: torch.Tensor) -> torch.Tensor:
    """The matrix that counts, after op."""
    part = mat.triu(1) if call["upper"] else mat.tril(-1)
    own = torch.eye(mat.shape[-1], dtype=mat.dtype)
    own = own.expand_as(part) if call["unitriangular"] else torch.diag_embed(mat.diagonal(0, -2, -1))
    return (part + own).mT if call["transpose"] else part + own


def _spread(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """|a^-1| |a| |b|: how far errors of a move a^-1 (a b)."""
    return torch.linalg.inv(a).abs() @ a.abs() @ b.abs()


@reference("TriangularSolve")
def run_triangular(call: Call) -> dict[str, Result]:
    _make_solvable(call["mat"])
    mat, b = call.wide("mat"), call.wide("b")
    a = _triangle(call, mat)
    value = torch.linalg.inv(a) @ b
    whole = mat.expand(*value.shape[:-2], *mat.shape[-2:]).contiguous()
    return {
        "out": Result(value, scale=_spread(a, value), terms=max(mat.shape[-1], 1)),
        "cloned_mat": Result(whole, exact=True),
    }


@reference("TriangularSolveBackward")
def run_triangular_backward(call: Call) -> dict[str, Result]:
    _make_solvable(call["mat"])
    mat, b, grad = call.wide("mat"), call.wide("b"), call.wide("grad_x")
    a = _triangle(call, mat)
    call["x"].copy_(torch.linalg.inv(a) @ b)
    values = differentiate(lambda m, r: torch.linalg.solve(_triangle(call, m), r), [mat, b], grad)
    size = _spread(a.mH, torch.linalg.inv(a).mH @ grad)
    flow = size @ call.wide("x").abs().mT
    flow = flow.mT if call["transpose"] else flow
    cloned = call.wide("grad_cloned_mat")
    if cloned is not None:
        values[0], flow = values[0] + cloned.sum_to_size(mat.shape), flow + cloned.abs()
    terms = max(mat.shape[-1], b.shape[-1], 1) * max(grad.numel() // max(b.numel(), 1), 1)
    return {
        "grad_b": Result(values[1], scale=size.sum_to_size(b.shape), terms=terms, ops=8),
        "grad_mat": Result(values[0], scale=flow.sum_to_size(mat.shape), terms=terms, ops=8),
    }


@reference("LinalgQR")
def run_qr(call: Call) -> dict[str, Result]:
    """Householder reflections fix the signs."""
    a, mode = call.wide("A"), call["mode"]
    q, r = torch.linalg.qr(a, mode=mode)
    steps = min(a.shape[-2:])
    condition = _condition(a[..., :steps]) if steps else 1.0
    size = float(torch.linalg.matrix_norm(a).max()) * condition if a.numel() else 1.0
    scale = torch.full(r.shape, size, dtype=torch.float64).triu()
    terms = max(*a.shape[-2:], 1)
    found = {"R": Result(r, scale=scale, terms=terms, ops=8)}
    if mode == "r":
        found["Q"] = Result(torch.empty(0, dtype=a.dtype), exact=True)
    else:
        found["Q"] = Result(q, scale=torch.full(q.shape, condition, dtype=torch.float64), terms=terms, ops=8)
    return found


# Distances


def _differences(call: Call) -> torch.Tensor:
    return call.wide("input1").unsqueeze(-2) - call.wide("input2").unsqueeze(-3)


def _measure(difference: torch.Tensor, p: float) -> torch.Tensor:
    size = difference.abs()
    if p == 0:
        return (size != 0).to(torch.float64).sum(-1)
    if math.isinf(p):
        return size.amax(-1) if size.shape[-1] else torch.zeros(size.shape[:-1], dtype=torch.float64)
    return (size**p).sum(-1) ** (1 / p)


@reference("Cdist")
def run_cdist(call: Call) -> dict[str, Result]:
    """For p = 2 a library may take |a|^2 + |b|^2 - 2 a b where the mode allows it."""
    a, b, p, mode = call.wide("input1"), call.wide("input2"), call["p"], call["compute_mode"] or 0
    value = _measure(_differences(call), p)
    scale = value
    if p == 2 and (mode == 1 or (mode == 0 and max(a.shape[-2], b.shape[-2]) > 25)):
        square = (a**2).sum(-1).unsqueeze(-1) + (b**2).sum(-1).unsqueeze(-2)
        least = (square * torch.finfo(torch.float32).eps).sqrt()
        scale = value + square / torch.maximum(value, least).clamp(min=1e-300)
    return {"out": Result(value, scale=scale, terms=max(a.shape[-1], 1), ops=4 if p in (0, 1, 2, math.inf) else 16)}


@reference("CdistBackward")
def run_cdist_backward(call: Call) -> dict[str, Result]:
    """The distances are those that a forward call gave: rounded to the dtype."""
    p, difference = call["p"], _differences(call)
    call["cdist"].copy_(_measure(difference, p))
    grad, dist = call.wide("grad_output").unsqueeze(-1), call.wide("cdist").unsqueeze(-1)
    size, sign = difference.abs(), difference.sign()
    if p == 0:
        part = torch.zeros_like(difference)
    elif math.isinf(p):
        part = sign * (size.to(call.dtype).to(torch.float64) == dist)
    else:
        part = torch.where(size > 0, sign * size ** (p - 1), 0.0) / dist ** (p - 1)
    part = torch.where(dist == 0, 0.0, part) * grad
    shape = call["input1"].shape
    value, scale = part.sum(-2).sum_to_size(shape), part.abs().sum(-2).sum_to_size(shape)
    terms = max(part.numel() // max(value.numel(), 1), 1)
    return {"grad_input": Result(value, scale=scale, terms=terms, ops=16)}
