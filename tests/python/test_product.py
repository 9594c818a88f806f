"""Matrix products with out_dtype, which PyTorch has for CUDA alone: half precision in, float32 out."""

import pytest
import torch

SHAPES = {"mm": ((5, 7), (7, 3)), "bmm": ((2, 5, 7), (2, 7, 3)), "addmm": ((5, 7), (7, 3)),
          "baddbmm": ((2, 5, 7), (2, 7, 3))}  # fmt: skip


def make(name, dtype, device):
    """(arguments, keywords): strided matrices; the sums have a first argument and factors."""
    a, b = (torch.randn(*shape[:-2], shape[-1], shape[-2]).to(dtype).transpose(-1, -2) for shape in SHAPES[name])
    first = [torch.randn(3)] if "add" in name else []
    keywords = {"beta": 0.5, "alpha": 2.0} if first else {}
    return [t.to(device) for t in (*first, a, b)], keywords


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SHAPES)
def test_half_matrices_multiply_into_float32(device, close, name, dtype):
    arguments, keywords = make(name, dtype, device)
    function = getattr(torch, name)
    wanted = function(*(t.cpu().float() for t in arguments), **keywords)
    close(function(*arguments, out_dtype=torch.float32, **keywords), wanted)
    out = torch.empty(0, device=device)
    assert function(*arguments, out_dtype=torch.float32, out=out, **keywords) is out
    close(out, wanted)


@pytest.mark.parametrize("name", SHAPES)
def test_dtypes_that_cuda_refuses_are_refused(device, name):
    arguments, keywords = make(name, torch.float16, device)
    function = getattr(torch, name)
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
        function(*arguments, out_dtype=torch.float64, **keywords)
    mixed = [*arguments[:-1], arguments[-1].bfloat16()]
    with pytest.raises(RuntimeError, match="input dtypes must be the same"):
        function(*mixed, out_dtype=torch.float32, **keywords)
    with pytest.raises(RuntimeError, match="dtype of the provided out"):
        function(*arguments, out_dtype=torch.float32, out=torch.empty(0, device=device, dtype=torch.half), **keywords)
    if "add" in name:
        with pytest.raises(RuntimeError, match="self dtype must match out_dtype"):
            function(arguments[0].double(), *arguments[1:], out_dtype=torch.float32, **keywords)


def test_bits_of_results_and_composite_operators_in_complex(device, close):
    """conj_physical_ has no composition that an out-of-tree device could run; out= may come back conjugated."""
    x = torch.randn(3, 4, dtype=torch.complex64)
    close(x.to(device).conj_physical_(), x.clone().conj_physical_())
    matrix, right = torch.randn(3, 3, dtype=torch.complex64), torch.randn(3, 2, dtype=torch.complex64)
    for left in (True, False):
        for adjoint in (True, False):
            b = right if left else right.mT.contiguous()
            lu, pivots = torch.linalg.lu_factor(matrix)
            wanted, mine = torch.empty_like(b), torch.empty_like(b, device=device)
            torch.linalg.lu_solve(lu, pivots, b, left=left, adjoint=adjoint, out=wanted)
            torch.linalg.lu_solve(lu.to(device), pivots.to(device), b.to(device), left=left, adjoint=adjoint, out=mine)
            assert mine.is_conj() == wanted.is_conj()
            close(mine, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n, k", [(4, 128), (7, 131), (345, 200)])
def test_one_row(n, k, dtype):
    w, bias = torch.randn(n, k, dtype=dtype), torch.randn(n, dtype=dtype)
    for x in (torch.randn(1, k, dtype=dtype), torch.randn(1, 2 * k, dtype=dtype)[:, ::2]):
        exact = x.double() @ w.double().t()
        allowed = 8 * torch.finfo(dtype).eps * (x.double().abs() @ w.double().abs().t() + bias.double().abs())
        mine, nothing = x.cuda(), torch.full((n,), float("nan"), dtype=dtype).cuda()
        weights = w.cuda()
        for got, wanted in (
            (torch.nn.functional.linear(mine, weights, bias.cuda()), exact + bias.double()),
            ((weights @ mine.t()).t(), exact),
            (torch.addmm(nothing, mine, weights.t(), beta=0, alpha=0.5), exact / 2),
        ):
            assert ((got.cpu().double() - wanted).abs() <= allowed).all()
