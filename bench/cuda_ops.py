"""Operators of libdiopi_cuda side by side with PyTorch's own CUDA kernels, in one process, on the same tensors.

    python bench/cuda_ops.py [--json FILE] [--elements N]

Large operators, timed by CUDA events over many launches, so the cost of the call from Python does not count. The table
says GB/s of memory traffic (or TFLOP/s of products), ours, PyTorch's, and the ratio of times (PyTorch / ours: above 1
is faster than PyTorch). Needs a torch with CUDA; without one it says so and ends with 0.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("DITORCH_BACKEND", "none")

import torch
from ditorch import diopi


class Case(NamedTuple):
    """One operator: our call, PyTorch's, and what it moves (bytes) or computes (operations)."""

    name: str
    ours: Callable[[], Any]
    native: Callable[[], Any]
    amount: float
    unit: str = "GB/s"


def start_runtime() -> None:
    """Scratch memory comes from libdit's allocator on the CUDA vendor."""
    error = diopi._Error()
    if diopi._core.dit_runtime_init(ctypes.c_char_p(b"cuda"), ctypes.byref(error)) != 0:
        raise SystemExit(f"the CUDA vendor does not start: {error.message.decode(errors='replace')}")


def measure(function: Callable[[], Any], repeat: int = 20) -> float:
    """Milliseconds per call, the best of five rounds."""
    best = float("inf")
    for _ in range(3):
        function()
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeat):
            function()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / repeat)
    return best


def make_cases(library: diopi.Library, count: int) -> list[Case]:
    call = library.call
    cases: list[Case] = []
    rows, length = count // 4096, 4096
    for dtype in (torch.float32, torch.bfloat16):
        x, y, out = (torch.randn(rows, length, device="cuda").to(dtype) for _ in range(3))
        weight, bias = torch.randn(length, device="cuda").to(dtype), torch.randn(length, device="cuda").to(dtype)
        mean, scale = (torch.empty(rows, 1, device="cuda") for _ in range(2))
        column = torch.empty(length, device="cuda", dtype=dtype)
        line = torch.empty(rows, 1, device="cuda", dtype=dtype)
        single = torch.empty((), device="cuda", dtype=dtype)
        other = torch.empty(
            rows, length, device="cuda", dtype=torch.bfloat16 if dtype == torch.float32 else torch.float32
        )
        size, short = x.numel() * x.element_size(), str(dtype).removeprefix("torch.")

        def add(
            name: str, amount: float, ours: Callable[[], Any], native: Callable[[], Any], label: str = short
        ) -> None:
            cases.append(Case(f"{name} {label}", ours, native, amount))

        # the tensors of this round are bound as defaults: the loop goes on before they are called
        add("copy", 2 * size, lambda o=out, x=x: call("diopiCopyInp", x, o), lambda o=out, x=x: o.copy_(x))
        add(
            "add",
            3 * size,
            lambda o=out, x=x, y=y: call("diopiAdd", o, x, y, 1),
            lambda o=out, x=x, y=y: torch.add(x, y, out=o),
        )
        add(
            "mul number",
            2 * size,
            lambda o=out, x=x: call("diopiMulScalar", o, x, 2.5),
            lambda o=out, x=x: torch.mul(x, 2.5, out=o),
        )
        add(
            "add row",
            2 * size,
            lambda o=out, x=x, b=bias: call("diopiAdd", o, x, b, 1),
            lambda o=out, x=x, b=bias: torch.add(x, b, out=o),
        )
        add(
            "gelu",
            2 * size,
            lambda o=out, x=x: call("diopiGelu", o, x, "none"),
            lambda x=x: torch.nn.functional.gelu(x),
        )
        add(
            "gelu backward",
            3 * size,
            lambda o=out, x=x, y=y: call("diopiGeluBackward", o, y, x, "none"),
            lambda x=x, y=y: torch.ops.aten.gelu_backward(y, x),
        )
        add(
            "convert",
            1.5 * (size if dtype == torch.float32 else 2 * size),
            lambda o=other, x=x: call("diopiCastDtype", o, x),
            lambda o=other, x=x: o.copy_(x),
        )
        add("sum of all", size, lambda o=single, x=x: call("diopiSum", o, x, []), lambda x=x: x.sum())
        add("sum of rows", size, lambda o=column, x=x: call("diopiSum", o, x, [0]), lambda x=x: x.sum(0))
        add(
            "sum along rows",
            size,
            lambda o=line, x=x: call("diopiSum", o, x, [1]),
            lambda x=x: x.sum(1, keepdim=True),
        )
        add("softmax", 2 * size, lambda o=out, x=x: call("diopiSoftmax", o, x, -1), lambda x=x: torch.softmax(x, -1))
        add(
            "softmax backward",
            3 * size,
            lambda o=out, x=x, y=y: call("diopiSoftmaxBackward", o, y, x, -1),
            lambda x=x, y=y: torch.ops.aten._softmax_backward_data(y, x, -1, x.dtype),
        )
        add(
            "layer norm",
            2 * size,
            lambda o=out, x=x, w=weight, b=bias, m=mean, s=scale: call(
                "diopiLayerNorm", o, m, s, x, w, b, [length], 1e-5
            ),
            lambda x=x, w=weight, b=bias: torch.nn.functional.layer_norm(x, (length,), w, b),
        )
        # products: the built-in kernel; PyTorch's is cuBLAS
        a, b = (torch.randn(4096, 4096, device="cuda").to(dtype) for _ in range(2))
        c = torch.empty_like(a)
        cases.append(
            Case(
                f"mm 4096 {short}",
                lambda c=c, a=a, b=b: call("diopiMm", c, a, b),
                lambda a=a, b=b: a @ b,
                2 * 4096**3,
                "TFLOP/s",
            )
        )
    param, grad, first, second = (torch.rand(count, device="cuda") for _ in range(4))
    steps = torch.ones((), device="cuda")
    cases.append(
        Case(
            "adamw float32",
            lambda: call("diopiAdamW", param, grad, first, second, None, 1e-3, 0.9, 0.999, 1e-8, 0.01, 1, False),
            lambda: torch._fused_adamw_(
                [param],
                [grad],
                [first],
                [second],
                [],
                [steps],
                lr=1e-3,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.01,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            ),
            7 * param.numel() * 4,
        )
    )
    return cases


def make_image_cases(library: diopi.Library) -> list[Case]:
    """Convolution with its gradients, pooling, resizing and dropout, of the size of a ResNet's second stage."""
    call, functional, cases = library.call, torch.nn.functional, []
    for dtype in (torch.float32, torch.bfloat16):
        short = str(dtype).removeprefix("torch.")
        x, out = (torch.randn(32, 128, 56, 56, device="cuda").to(dtype) for _ in range(2))
        weight = torch.randn(128, 128, 3, 3, device="cuda").to(dtype)
        small, large = x[..., ::2, ::2].contiguous(), torch.empty(32, 128, 112, 112, device="cuda", dtype=dtype)
        gradients, places = [torch.empty_like(x), torch.empty_like(weight)], small.long()
        mask, size = torch.empty_like(x, dtype=torch.bool), x.numel() * x.element_size()
        lists, work = ([1, 1], [1, 1], [1, 1], 1), 2 * x.numel() * 128 * 9

        def convolve(out=out, x=x, weight=weight, lists=lists):
            call("diopiConvolution2d", out, x, weight, None, *lists)

        def convolve_backward(out=out, x=x, weight=weight, gradients=gradients, lists=lists):
            call("diopiConvolution2dBackward", *gradients, None, out, x, weight, None, *lists)

        def convolve_backward_native(out=out, x=x, weight=weight):
            torch.ops.aten.convolution_backward(
                out, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
            )

        def pool(small=small, places=places, x=x):
            call("diopiMaxPool2dWithIndices", small, places, x, [3, 3], [2, 2], [1, 1], [1, 1], False)

        def resize(large=large, x=x):
            call("diopiUpsampleLinear", large, x, [112, 112], False, "bilinear")

        def resize_native(x=x):
            functional.interpolate(x, size=(112, 112), mode="bilinear")

        def drop(out=out, mask=mask, x=x):
            call("diopiDropout", out, mask, x, 0.5, True, diopi.Generator(7, 0))

        tasks = (
            ("conv 3x3", convolve, lambda x=x, w=weight: functional.conv2d(x, w, padding=1), work, "TFLOP/s"),
            ("conv 3x3 backward", convolve_backward, convolve_backward_native, 2 * work, "TFLOP/s"),
            ("max pool 3x3", pool, lambda x=x: functional.max_pool2d(x, 3, 2, 1, return_indices=True), size, "GB/s"),
            ("resize bilinear", resize, resize_native, 5 * size, "GB/s"),
            ("dropout", drop, lambda x=x: torch.native_dropout(x, 0.5, True), 2 * size + x.numel(), "GB/s"),
        )
        cases += [Case(f"{name} {short}", ours, native, amount, unit) for name, ours, native, amount, unit in tasks]
    return cases


def make_attention_cases(library: diopi.Library) -> list[Case]:
    """Causal attention with its gradients, of the size of a language model's layer, against PyTorch's flash kernel."""
    call, cases = library.call, []
    for batch, length, heads, size in ((4, 2048, 16, 64), (2, 4096, 16, 128)):
        q, k, v, out, grad = (
            torch.randn(batch, length, heads, size, device="cuda", dtype=torch.bfloat16) for _ in range(5)
        )
        gradients = [torch.empty_like(q) for _ in range(3)]
        lse = torch.empty(batch, heads, length, device="cuda")
        generator, scale = diopi.Generator(7, 0), size**-0.5
        *moved, moved_grad = (tensor.transpose(1, 2) for tensor in (q, k, v, grad))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            leaves = [tensor.detach().requires_grad_() for tensor in moved]
            seen = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)

        def forward(out=out, lse=lse, generator=generator, q=q, k=k, v=v, scale=scale):
            call("diopiFlashAttention", out, lse, generator, q, k, v, None, 0.0, scale, True, -1, -1)

        def backward(g=gradients, grad=grad, rest=(generator, q, k, v), out=out, lse=lse, scale=scale):
            call("diopiFlashAttentionBackward", *g, grad, *rest, None, out, lse, 0.0, scale, True, -1, -1)

        def forward_native(moved=moved):
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
                torch.nn.functional.scaled_dot_product_attention(*moved, is_causal=True)

        def backward_native(seen=seen, leaves=leaves, grad=moved_grad):
            torch.autograd.grad(seen, leaves, grad, retain_graph=True)

        work, name = 2 * batch * heads * length**2 * size, f"{length}x{size} bfloat16"
        cases.append(Case(f"attention {name}", forward, forward_native, work, "TFLOP/s"))
        cases.append(Case(f"attention backward {name}", backward, backward_native, 2.5 * work, "TFLOP/s"))
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1 << 26, help="elements of the large tensors (default 64 Mi)")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench/cuda_ops.py: this torch sees no CUDA device; nothing was measured")
        return 0
    torch.zeros(1, device="cuda")  # PyTorch makes the context first; ours is the same
    start_runtime()
    library = diopi.Library("cuda")
    rows = []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'operator':36} {'ours':>12} {'torch':>12} {'unit':>8} {'torch/ours':>10}")
    for case in make_cases(library, options.elements) + make_image_cases(library) + make_attention_cases(library):
        try:
            ours, native = measure(case.ours), measure(case.native)
        except diopi.Error as error:
            print(f"{case.name:36} {error}")
            continue
        scale = 1e-6 if case.unit == "GB/s" else 1e-9
        row = {"name": case.name, "ours_ms": ours, "torch_ms": native, "unit": case.unit}
        row["ours"], row["torch"] = case.amount / ours * scale, case.amount / native * scale
        rows.append(row)
        print(f"{case.name:36} {row['ours']:12.1f} {row['torch']:12.1f} {case.unit:>8} {native / ours:10.2f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
