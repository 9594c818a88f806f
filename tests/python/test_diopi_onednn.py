"""oneDNN under the host library: the same results with and without it, to the last bit on any number of threads.

The cases run in child processes, because a library is looked for once. Without a oneDNN there is nothing to compare.
"""

from __future__ import annotations

import json
import os

import pytest
from conftest import run_python

SEED = 31
LIBRARY = os.environ.get("DITORCH_HOST_ONEDNN", "")  # empty: one is looked for

PROGRAM = """
import ctypes, hashlib, json, sys
import torch
from ditorch import diopi

torch.set_num_threads(1)
host = diopi.Library("host")
native = ctypes.CDLL(host.describe()["library"])
native.dit_host_onednn_describe.restype = ctypes.c_char_p

def count():
    run, refused = ctypes.c_uint64(), ctypes.c_uint64()
    text = native.dit_host_onednn_describe(ctypes.byref(run), ctypes.byref(refused))
    return text.decode(), run.value, refused.value

def draw(shape, dtype, layout="contiguous"):
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if layout == "channels_last":
        return x.contiguous(memory_format=torch.channels_last)
    if layout == "strided":
        room = torch.zeros([*shape, 2], dtype=dtype)
        return room[..., 1].copy_(x)
    if layout == "expanded":
        return x[:1].expand(shape)
    return x

def compare(name, actual, expected, terms):
    # Summed in float32: sqrt(terms) roundings u of the sum of magnitudes, which is 0.64 terms for products of unit
    # normal numbers; twice that is allowed. The result is rounded once more.
    u, rounding = 2.0**-24, {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}[actual.dtype]
    wrong = ~((actual.double() - expected).abs() <= 1.01 * rounding * expected.abs() + 1.3 * u * terms**1.5)
    rows.append({"name": name, "wrong": int(wrong.sum()), "of": wrong.numel(),
                 "hash": hashlib.sha256(actual.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()})

def convolve(name, dtype, layout, batch, channels, made, size, kernel, stride, padding, dilation, groups, transposed):
    generator.manual_seed(SEED)
    x = draw((batch, channels, size, size), dtype, layout)
    shape = (channels, made // groups) if transposed else (made, channels // groups)
    w, b = draw((*shape, kernel, kernel), dtype), draw((made,), dtype)
    extra = stride - 1 if transposed else 0
    two = [[value, value] for value in (stride, padding, dilation, extra)]
    depth = channels // groups * kernel**2
    wide = [x.double(), w.double()]
    expected = torch.ops.aten.convolution(*wide, b.double(), *two[:3], transposed, two[3], groups)
    out = torch.empty(expected.shape, dtype=dtype)
    if transposed:
        host.call("diopiConvTranspose2d", out, x, w, b, two[0], two[1], two[3], groups, two[2])
    else:
        host.call("diopiConvolution2d", out, x, w, b, *two[:3], groups)
    compare(name + " forward", out, expected, depth)
    grad = draw(tuple(out.shape), dtype, "expanded" if layout == "strided" else layout)
    results = [torch.empty_like(x), torch.empty_like(w), torch.empty_like(b)]
    if transposed:
        host.call("diopiConvTranspose2dBackward", *results, grad, x, w, [made], *two[:3], two[3], groups)
    else:
        host.call("diopiConvolution2dBackward", *results, grad, x, w, [made], *two[:3], groups)
    wanted = torch.ops.aten.convolution_backward(
        grad.double(), *wide, [made], *two[:3], transposed, two[3], groups, [True] * 3)
    many = batch * out.shape[2] * out.shape[3]
    for i, terms in enumerate((made * kernel**2, many, many)):
        compare(f"{name} gradient {i}", results[i], wanted[i], terms)

def multiply(name, dtype, batch, m, n, k, turned):
    generator.manual_seed(SEED)
    a, b, c = draw((batch, m, k), dtype), draw((batch, k, n), dtype), draw((batch, m, n), dtype)
    if turned:
        a, b = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (a, b))
    out = torch.empty(batch, m, n, dtype=dtype)
    host.call("diopiBaddbmm", out, c, a, b, 1.0, 1.0)
    compare(name + " baddbmm", out, torch.baddbmm(c.double(), a.double(), b.double()), k)
    row, one = draw((n,), dtype), torch.empty(m, n, dtype=dtype)
    host.call("diopiAddmm", one, row, a[0], b[0], 1.0, 1.0)
    compare(name + " addmm", one, torch.addmm(row.double(), a[0].double(), b[0].double()), k)

SEED = {seed}
generator, rows = torch.Generator(), []
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    word = str(dtype).removeprefix("torch.")
    for layout in ("contiguous", "channels_last", "strided"):
        convolve(f"{word} {layout} plain", dtype, layout, 5, 24, 40, 19, 3, 1, 1, 1, 1, False)
        convolve(f"{word} {layout} wide", dtype, layout, 1, 160, 200, 14, 3, 2, 1, 1, 1, False)
        convolve(f"{word} {layout} groups", dtype, layout, 3, 32, 64, 15, 3, 2, 2, 2, 4, False)
        convolve(f"{word} {layout} depthwise", dtype, layout, 9, 16, 16, 16, 3, 1, 1, 1, 16, False)
        convolve(f"{word} {layout} transposed", dtype, layout, 4, 24, 16, 11, 4, 2, 1, 1, 1, True)
    convolve(f"{word} few", dtype, "contiguous", 16, 3, 32, 24, 5, 1, 2, 1, 1, False)
    convolve(f"{word} sums", dtype, "contiguous", 12, 64, 64, 28, 3, 1, 1, 1, 1, False)
    for turned in (False, True):
        multiply(f"{word} square {turned}", dtype, 1, 300, 260, 280, turned)
        multiply(f"{word} batch {turned}", dtype, 9, 70, 50, 130, turned)
print(json.dumps({"rows": rows, "count": count()}))
"""


def launch(**environment):
    """What one process reports: {"rows": results, "count": [description, calls run, calls refused]}."""
    answer = run_python(PROGRAM.replace("{seed}", str(SEED)), DITORCH_BANNER="0", **environment)
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def without():
    return launch(DITORCH_HOST_ONEDNN="none")


@pytest.fixture(scope="module")
def found():
    report = launch(DITORCH_NUM_THREADS="1", DITORCH_HOST_ONEDNN=LIBRARY)
    if not report["count"][0].startswith("oneDNN "):
        pytest.skip(f"{report['count'][0]}: install a package with libdnnl.so.3, such as onednn-cpu-gomp")
    return report


def list_wrong(report):
    return [(row["name"], row["wrong"], row["of"]) for row in report["rows"] if row["wrong"]]


def test_without(without):
    assert list_wrong(without) == [], f"seed {SEED}"
    text, run, refused = without["count"]
    assert text == 'no oneDNN: host_onednn is "none"' and run == refused == 0


def test_with(found):
    assert list_wrong(found) == [], f"seed {SEED}"
    assert found["count"][1] > 100, found["count"]


def test_threads_change_nothing(found):
    other = launch(DITORCH_NUM_THREADS="3", DITORCH_HOST_ONEDNN=LIBRARY)
    assert [row["name"] for row in other["rows"] if row not in found["rows"]] == [], f"seed {SEED}"


def test_a_named_library_that_is_not_there():
    program = "import torch, ditorch\nprint(torch.ones(3, 3, device='cuda') @ torch.ones(3, 3, device='cuda'))\n"
    program += "import ditorch.diopi as d\nd.Library('host').call('diopiBmm', *[torch.ones(4, 64, 64).bfloat16()] * 1,"
    program += " torch.ones(4, 64, 64).bfloat16(), torch.ones(4, 64, 64).bfloat16())\n"
    answer = run_python(program, DITORCH_HOST_ONEDNN="/nowhere/libdnnl.so.3")
    assert "host_onednn: no oneDNN: '/nowhere/libdnnl.so.3'" in answer.stderr
    assert "Give the path of a libdnnl.so.3" in answer.stderr
