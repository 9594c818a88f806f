"""The inference operators side by side with what they are measured against, as ratios in one run of one thread on each
side: the least processor time of some rounds that take turns, so that a busy moment hits both.

    PYTHONPATH=python python bench/infer.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import ditorch  # noqa: F401  makes the device cuda
import dlinfer
import torch
from ditorch import _C

F = torch.nn.functional


def compare(ours: Callable[[], object], other: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Least ms of ours and the other, and other / ours: above 1 ours is faster."""
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(rounds + 2):
        for function, kept in zip((ours, other), times, strict=True):
            start = time.process_time()
            function()
            torch.cuda.synchronize()
            if round_ >= 2:
                kept.append((time.process_time() - start) * 1e3)
    first, second = (min(kept) for kept in times)
    return first, second, second / first


def decode(context: int, rounds: int) -> tuple[str, str, tuple[float, float, float]]:
    """Bytes of the cache against a copy of as many: a copy reads and writes, so 2.0 is the speed of reading alone."""
    heads, keys, width, batch, block = 32, 8, 128, 4, 64
    count = context // block * batch
    caches = [torch.randn(count, block, keys, width, device="cuda").to(torch.bfloat16) for _ in range(2)]
    table = torch.arange(count, dtype=torch.int32, device="cuda").view(batch, -1)
    query = torch.randn(batch, heads, width, device="cuda").to(torch.bfloat16)
    lengths = torch.full((batch,), context, dtype=torch.int32, device="cuda")
    out, targets = torch.empty_like(query), [torch.empty(x.shape, dtype=x.dtype) for x in caches]
    sources = [x.cpu() for x in caches]

    def ours() -> None:
        args = (query, *caches, table, None, lengths, width**-0.5, None, None, -1, 0.0, None, None, 0, out)
        torch.ops.dlinfer.paged_decode_attention(*args)

    result = compare(ours, lambda: [t.copy_(s) for t, s in zip(targets, sources, strict=True)], rounds)
    return f"paged decode attention, 4 x {context}", "copy of the cache on the CPU", result


def prefill(length: int, rounds: int) -> tuple[str, str, tuple[float, float, float]]:
    heads, keys, width = 16, 4, 64
    q, k, v = (torch.randn(length, n, width, device="cuda").to(torch.bfloat16) for n in (heads, keys, keys))
    starts, out = torch.tensor([0, length], dtype=torch.int32, device="cuda"), torch.empty_like(q)
    dense = [x.cpu().transpose(0, 1).unsqueeze(0).contiguous() for x in (q, k, v)]

    def ours() -> None:
        torch.ops.dlinfer.prefill_attention(q, k, v, starts, True, width**-0.5, None, None, -1, 0.0, out)

    def other() -> None:
        F.scaled_dot_product_attention(*dense, is_causal=True, enable_gqa=True)

    return f"prefill attention, {length}", "ATen's SDPA on the CPU", compare(ours, other, rounds)


def quantised(kind: str, rows: int, rounds: int) -> tuple[str, str, tuple[float, float, float]]:
    depth, outputs, group = 2048, 2048, 128
    x = torch.randn(rows, depth).to(torch.bfloat16)
    weight = torch.randn(outputs, depth).to(torch.bfloat16)
    if kind == "W8A8":
        b = torch.randint(-127, 128, (outputs, depth), dtype=torch.int8, device="cuda")
        scale, dx = torch.rand(outputs, 1, device="cuda"), x.cuda()

        def ours() -> None:
            q, s = dlinfer.ops.dynamic_quant(dx)
            dlinfer.ops.linear_w8a8(q, b, s, scale, torch.bfloat16)
    else:
        words = torch.randint(-(2**31), 2**31 - 1, (depth, outputs // 8), dtype=torch.int32, device="cuda")
        zeros = torch.randint(-(2**31), 2**31 - 1, (depth // group, outputs // 8), dtype=torch.int32, device="cuda")
        scale, dx = torch.rand(depth // group, outputs, device="cuda").to(torch.bfloat16), x.cuda()

        def ours() -> None:
            dlinfer.ops.weight_quant_matmul(dx, words, scale, zeros, group_size=group)

    return (
        f"{kind} linear, {rows} x 2048 x 2048",
        "bfloat16 linear on the CPU",
        compare(ours, lambda: F.linear(x, weight), rounds),
    )


def experts(tokens: int, rounds: int) -> tuple[str, str, tuple[float, float, float]]:
    from ditorch.infer import composed

    count, width, inner, chosen = 16, 512, 256, 4
    x = torch.randn(tokens, width, device="cuda").to(torch.bfloat16)
    up = (torch.randn(count, 2 * inner, width, device="cuda") * 0.05).to(torch.bfloat16)
    down = (torch.randn(count, width, inner, device="cuda") * 0.05).to(torch.bfloat16)
    weights, ids = dlinfer.ops.moe_gating_topk_softmax(torch.randn(tokens, count, device="cuda"), chosen)
    given = (x, up, down, weights, ids, True)
    host = [value.cpu() if isinstance(value, torch.Tensor) else value for value in given]
    result = compare(lambda: torch.ops.dlinfer.fused_moe(*given), lambda: composed.fused_moe(*host), rounds)
    return f"fused moe, {tokens} tokens, 4 of 16", "loop over experts on the CPU", result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    import dlinfer.ops  # noqa: F401

    _C.set_num_threads(1)
    torch.set_num_threads(1)

    rows = [decode(4096, arguments.rounds), decode(16384, arguments.rounds)]
    rows += [prefill(512, arguments.rounds), prefill(2048, arguments.rounds)]
    rows += [quantised("W8A8", 8, arguments.rounds)]
    rows += [quantised("AWQ", count, arguments.rounds) for count in (1, 8, 16, 64)]
    rows += [experts(8, arguments.rounds), experts(256, arguments.rounds)]
    print(f"{'operator':36} {'against':32} {'ms':>9} {'ms':>9}  ratio")
    for name, against, (first, second, ratio) in rows:
        print(f"{name:36} {against:32} {first:9.3f} {second:9.3f}  {ratio:.2f}")


if __name__ == "__main__":
    main()
