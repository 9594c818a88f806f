"""torch.library with CUDA's dispatch keys: what a program registers for CUDA runs on the device."""

import os
import shutil

import pytest
import torch

PROGRAM = """
import torch, ditorch
x, c = torch.ones(3, device="cuda"), torch.ones(3)
lib = torch.library.Library("keys", "DEF")
composite = lambda x: x + 1000

# lib.impl by key, beside a composite kernel that would run otherwise
lib.define("plain(Tensor x) -> Tensor")
lib.impl("plain", composite, "CompositeExplicitAutograd")
lib.impl("plain", lambda x: x + 1, "CUDA")
assert torch.ops.keys.plain(x).tolist() == [2, 2, 2], torch.ops.keys.plain(x)
assert torch.ops.keys.plain(c).tolist() == [1001] * 3

# a library made for the key
lib.define("made(Tensor x) -> Tensor")
lib.impl("made", composite, "CompositeImplicitAutograd")
made = torch.library.Library("keys", "IMPL", "CUDA")
made.impl("made", lambda x: x * 7)
assert torch.ops.keys.made(x).tolist() == [7] * 3 and torch.ops.keys.made(c).tolist() == [1001] * 3

# the decorators, by key and by device type
torch.library.define("keys::by_key", "(Tensor x) -> Tensor")
torch.library.define("keys::by_type", "(Tensor x) -> Tensor")
for name, kind in (("by_key", "CUDA"), ("by_type", "cuda")):
    torch.library.impl(f"keys::{name}", "default", composite)
    @torch.library.impl(f"keys::{name}", kind)
    def kernel(x):
        return x + 2
    op = getattr(torch.ops.keys, name)
    assert op(x).tolist() == [3] * 3 and op(c).tolist() == [1001] * 3, name

# autograd and autocast
lib.define("graded(Tensor x) -> Tensor")
lib.impl("graded", lambda x: x * 1, "CompositeExplicitAutograd")
class Graded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.keys.graded(x)
    @staticmethod
    def backward(ctx, g):
        return g * 5
lib.impl("graded", Graded.apply, "AutogradCUDA")
y = x.clone().requires_grad_()
torch.ops.keys.graded(y).sum().backward()
assert y.grad.tolist() == [5] * 3
lib.define("cast(Tensor x) -> Tensor")
lib.impl("cast", lambda x: x.clone(), "CompositeExplicitAutograd")
def cast(x):
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)):
        return torch.ops.keys.cast(x.bfloat16())
lib.impl("cast", cast, "AutocastCUDA")
with torch.autocast("cuda"):
    assert torch.ops.keys.cast(x).dtype is torch.bfloat16
assert torch.ops.keys.cast(x).dtype is torch.float32

# custom_op and its friends
@torch.library.custom_op("keys::custom", mutates_args=(), device_types="cuda")
def custom(x: torch.Tensor) -> torch.Tensor:
    return x + 3
@custom.register_kernel("cpu")
def _(x):
    return x + 4
@custom.register_fake
def _(x):
    return torch.empty_like(x)
assert custom(x).tolist() == [4] * 3 and custom(c).tolist() == [5] * 3
@torch.library.custom_op("keys::other", mutates_args=())
def other(x: torch.Tensor) -> torch.Tensor:
    return x + 5
torch.library.register_kernel("keys::other", "cuda", lambda x: x + 6)
torch.library.register_autocast("keys::other", "cuda", torch.float16)
assert other(x).tolist() == [7] * 3 and other(c).tolist() == [6] * 3
with torch.autocast("cuda"):
    assert other(x).dtype is torch.float16

# questions about kernels
has = torch._C._dispatch_has_kernel_for_dispatch_key
assert has("keys::plain", "CUDA") and has("keys::plain", "PrivateUse1") and not has("keys::graded", "CUDA")
assert has("keys::graded", "AutogradCUDA") and has("keys::cast", "AutocastCUDA")
assert "keys::plain" in torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
assert torch._C._parse_dispatch_key("CUDA") == torch._C.DispatchKey.PrivateUse1
assert torch._C._parse_dispatch_key("SparseCUDA") == torch._C.DispatchKey.SparsePrivateUse1
assert torch._C._parse_dispatch_key("NoKey") is None and torch._C._parse_dispatch_key("FakeCUDA") is None

# kernels in Python tables
@torch.ops.keys.plain.default.py_impl(torch._C.DispatchKey.CUDA)
def _(x):
    return x + 9
assert torch._C.DispatchKey.PrivateUse1 in torch.ops.keys.plain.default.py_kernels
@torch.ops.keys.plain.default.py_impl(torch._C.DispatchKey.PrivateUse1)
def own(x):
    return x + 10
assert torch.ops.keys.plain.default.py_kernels[torch._C.DispatchKey.PrivateUse1] is own

# taking it back
made._destroy()
assert torch.ops.keys.made(x).tolist() == [1001] * 3
ditorch.uninstall()
assert torch._C._parse_dispatch_key("CUDA") == torch._C.DispatchKey.CUDA
print("good")
"""


@pytest.mark.parametrize("alias", ["binary", "python"])
def test_cuda_keys_are_the_devices(python, alias):
    assert python(PROGRAM, DITORCH_ALIAS=alias).stdout.strip().endswith("good")


def test_a_fallback_for_a_key_of_cudas(python):
    """PyTorch has one already for CUDA's autocast, and so has the device: both say so."""
    assert (
        "good"
        in python("""
    import torch, ditorch
    try:
        torch.library.Library("_", "IMPL").fallback(torch.library.fallthrough_kernel, "AutocastCUDA")
    except RuntimeError as error:
        assert "AutocastPrivateUse1" in str(error), error
        print("good")
    """).stdout
    )


def test_kernels_registered_before_the_import(python):
    assert (
        "good"
        in python("""
    import torch
    lib = torch.library.Library("early", "DEF")
    lib.define("op(Tensor x) -> Tensor")
    lib.impl("op", lambda x: x + 1000, "CompositeExplicitAutograd")
    lib.impl("op", lambda x: x + 1, "CUDA")
    import ditorch
    assert torch.ops.early.op(torch.ones(2, device="cuda")).tolist() == [2, 2]
    assert torch.ops.early.op(torch.ones(2)).tolist() == [1001, 1001]
    print("good")
    """).stdout
    )


EXTENSION = r"""
#include <torch/library.h>
#include <ATen/ops/add.h>
at::Tensor composite(const at::Tensor &x) { return at::add(x, 1000); }
at::Tensor cuda(const at::Tensor &x) { return at::add(x, 1); }
TORCH_LIBRARY(keys_ext, m) { m.def("op(Tensor x) -> Tensor"); m.def("alone(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(keys_ext, CompositeImplicitAutograd, m) { m.impl("op", &composite); }
TORCH_LIBRARY_IMPL(keys_ext, CUDA, m) { m.impl("op", &cuda); m.impl("alone", &cuda); }
"""


def test_kernels_of_a_cpp_extension(python, tmp_path):
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("no g++")
    import subprocess

    home = os.path.dirname(torch.__file__)
    source, library = tmp_path / "ext.cpp", tmp_path / "ext.so"
    source.write_text(EXTENSION)
    subprocess.run(
        [
            compiler,
            "-std=c++20",
            "-O0",
            "-shared",
            "-fPIC",
            f"-I{home}/include",
            str(source),
            "-o",
            str(library),
            f"-L{home}/lib",
            "-ltorch_cpu",
            "-lc10",
        ],
        check=True,
    )
    assert (
        "good"
        in python(f"""
    import torch, ditorch
    torch.ops.load_library({str(library)!r})
    x = torch.ones(2, device="cuda")
    assert torch.ops.keys_ext.op(x).tolist() == [2, 2] and torch.ops.keys_ext.alone(x).tolist() == [2, 2]
    assert torch.ops.keys_ext.op(x.cpu()).tolist() == [1001, 1001]
    print("good")
    """).stdout
    )
