"""Functions of the host library that no operator of PyTorch calls yet, against ATen on the CPU, in turns.

    python bench/ops/library.py [--threads 1] [--rounds N] [--only GLOB]

Each row calls the function through ditorch.diopi, results in memory that exists; ATen makes its own. Speed is ATen's
time over the library's: above 1 is faster. Quartiles of the rounds' ratios beside it.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import common
import torch
import torch.nn.functional as F
from ditorch import diopi


def _rand(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _cholesky(host, count, n):
    x = _rand(count, n, n)
    mat = x @ x.mT + n * torch.eye(n)
    out, info = torch.empty_like(mat), torch.empty(count, dtype=torch.int32)
    return lambda: host.call("diopiCholesky", out, info, mat, False, True), lambda: torch.linalg.cholesky(mat)


def _solve(host, n, m):
    mat, b = _rand(n, n).tril() + n * torch.eye(n), _rand(n, m)
    out, copy = torch.empty_like(b), torch.empty_like(mat)

    def mine():
        return host.call("diopiTriangularSolve", out, copy, b, mat, False, False, False)

    return mine, lambda: torch.linalg.solve_triangular(mat, b, upper=False)


def _qr(host, m, n):
    a = _rand(m, n)
    q, r = torch.empty(m, min(m, n)), torch.empty(min(m, n), n)
    return lambda: host.call("diopiLinalgQR", a, "reduced", q, r), lambda: torch.linalg.qr(a)


def _cdist(host, rows, width, p):
    a, b, out = _rand(rows, width), _rand(rows, width), torch.empty(rows, rows)

    def mine():
        return host.call("diopiCdist", out, a, b, p, None)

    return mine, lambda: torch.cdist(a, b, p=p, compute_mode="donot_use_mm_for_euclid_dist")


def _attention(host, length, heads, width):
    q, k, v = (_rand(1, length, heads, width) for _ in range(3))
    mask, out = torch.ones(length, length).triu(1).bool(), torch.empty_like(q)
    sides = [x.transpose(1, 2) for x in (q, k, v)]
    kept = [diopi.Required() for _ in range(4)]
    common_ = (0.0, width**-0.5, False, -1, -1, heads, "BSND")

    def mine():
        return host.call("diopiCustomizedFlashAttention", out, *kept, None, q, k, v, None, mask, *common_)

    return mine, lambda: F.scaled_dot_product_attention(*sides, attn_mask=~mask)


def _paged(host, length, heads, width, block):
    blocks = length // block
    pool_k, pool_v, q = (
        _rand(blocks, block, heads * width),
        _rand(blocks, block, heads * width),
        _rand(1, heads * width),
    )
    table, out = torch.randperm(blocks).reshape(1, -1), torch.empty_like(q)

    def mine():
        return host.call(
            "diopiPagedAttention", out, q, pool_k, pool_v, None, [length], heads, heads, width, table, block
        )

    def aten():
        k, v = (pool[table[0]].reshape(1, length, heads, width).transpose(1, 2) for pool in (pool_k, pool_v))
        return F.scaled_dot_product_attention(q.reshape(1, heads, 1, width), k, v)

    return mine, aten


def _ffn(host, tokens, hidden, inner):
    x, a, b, c = _rand(tokens, hidden), _rand(hidden, inner), _rand(inner, hidden), _rand(hidden, inner)
    a, b, c = a / hidden, b / inner, c / hidden
    y = x.clone()

    def mine():
        return host.call("diopiFusedSiluFfnInp", y, a, b, c, None, 0, 0)

    return mine, lambda: (F.silu(x @ a) * (x @ c)) @ b


def _rms(host, rows, width):
    x, weight = _rand(rows, width), torch.ones(width)
    y = x.clone()

    def mine():
        return host.call("diopiRootMeanSquareNormInp", y, weight, 1e-5)

    return mine, lambda: F.rms_norm(x, (width,), weight, 1e-5)


ROWS = {
    "cholesky 1x512": (_cholesky, (1, 512)),
    "cholesky 256x16": (_cholesky, (256, 16)),
    "triangular_solve 512x256": (_solve, (512, 256)),
    "qr 512x256": (_qr, (512, 256)),
    "cdist 512x64 p=2": (_cdist, (512, 64, 2.0)),
    "cdist 512x64 p=1": (_cdist, (512, 64, 1.0)),
    "attention with a mask 512x8x64": (_attention, (512, 8, 64)),
    "paged attention 2048x8x64": (_paged, (2048, 8, 64, 16)),
    "silu ffn 64x512x1408": (_ffn, (64, 512, 1408)),
    "rms norm 512x1024": (_rms, (512, 1024)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="*")
    options = parser.parse_args()
    os.environ.setdefault("DITORCH_NUM_THREADS", str(options.threads))
    torch.set_num_threads(options.threads)
    host = diopi.Library("host")
    print(f"{'float32':32} {'speed':>6}  quartiles")
    for name, (make, arguments) in ROWS.items():
        if fnmatch.fnmatchcase(name, options.only):
            mine, aten = make(host, *arguments)
            times = common.interleave({"mine": mine, "aten": aten}, options.rounds, 2)
            middle, low, high = common.ratio(times["aten"], times["mine"])
            print(f"{name:32} {middle:6.2f}  {low:.2f} to {high:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
