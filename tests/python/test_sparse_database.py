"""The sparse samples of PyTorch's operator database on the device, against the CPU: layout, dtype, coalesced flag,
indices and values, results and gradients.

By hand: python tests/python/test_sparse_database.py --full [name ...] runs every sample in five dtypes and counts.
"""

import collections
import json
import sys
import warnings

if __name__ == "__main__":
    from torch.testing._internal.common_methods_invocations import op_db

import ditorch
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

FULL = "--full" in sys.argv
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64]
LAYOUTS = ["coo", "csr", "csc", "bsr", "bsc"]
SAMPLES = 1 << 30 if FULL else 3  # of one entry in one layout and dtype


def move(value, moved):
    """`value` with its tensors on the device; `moved` leads from a tensor's id to both of them."""

    def send(tensor):
        if id(tensor) not in moved:
            copy = tensor.detach().to("cuda")
            moved[id(tensor)] = (tensor, copy.requires_grad_() if tensor.requires_grad else copy)
        return moved[id(tensor)][1]

    return tree_map_only(torch.Tensor, send, place(value, "cuda"))


def place(value, device):
    """`value` with every device in it replaced: some samples name one, "cuda" where there is one."""
    value = tree_map_only(torch.device, lambda _: torch.device(device), value)
    return {**value, "device": device} if isinstance(value, dict) and value.get("device") else value


def get_parts(tensor):
    """The dense tensors that a tensor of any layout consists of."""
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def check(mine, wanted, random=False):
    """Random values are not compared."""
    mine, wanted = tree_leaves(mine), tree_leaves(wanted)
    assert len(mine) == len(wanted)
    for a, b in zip(mine, wanted, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a.is_cuda and (a.layout, a.dtype, a.shape) == (b.layout, b.dtype, b.shape), (a, b)
        if b.layout is torch.sparse_coo:
            assert a.is_coalesced() == b.is_coalesced() and a.sparse_dim() == b.sparse_dim()
        for part, other in list(zip(get_parts(a), get_parts(b), strict=True))[: -1 if random else None]:
            torch.testing.assert_close(part.cpu(), other, equal_nan=True)
        copy = a.detach().cpu()
        assert copy.layout is b.layout and not copy.is_cuda


def list_gradients(inputs, outputs, moved=None):
    """Gradients of everything that has one; the gradients that go in are the outputs themselves where sparse."""
    outputs = [x for x in tree_leaves(outputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    leaves = [x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not outputs or not leaves:
        return []
    if moved is not None:
        leaves = [moved[id(x)][1] for x in leaves]
    given = [torch.ones_like(x) if x.layout is torch.strided else x.detach().clone() for x in outputs]
    return torch.autograd.grad(outputs, leaves, given, allow_unused=True)


def run_sample(op, sample, counts):
    """Counts one sample; raises when the device differs."""
    inputs = (sample.input, sample.args, place(sample.kwargs, "cpu"))
    moved = {}
    try:
        wanted = op(inputs[0], *inputs[1], **inputs[2])
    except Exception as error:  # whatever the CPU says, the device has to say
        counts["refused by the CPU"] += 1
        with pytest.raises(type(error)):
            op(move(inputs[0], moved), *move(inputs[1], moved), **move(inputs[2], moved))
        return
    on_device = tuple(move(part, moved) for part in inputs)
    mine = op(on_device[0], *on_device[1], **on_device[2])
    check(mine, wanted, random=op.name == "randn_like")
    try:
        gradients = list_gradients(inputs, wanted)
    except (RuntimeError, NotImplementedError):
        counts["no gradient on the CPU"] += 1
        gradients = []
    if gradients:
        check(list_gradients(inputs, mine, moved), gradients)
        counts["with gradients"] += 1
    counts["same"] += 1


def list_samples(op, layout, dtype):
    """The database's own, or its dense ones made sparse where it says that the layout is supported."""
    differentiable = dtype.is_floating_point or dtype.is_complex
    try:
        return list(getattr(op, f"sample_inputs_sparse_{layout}")("cpu", dtype, requires_grad=differentiable))
    except Exception:  # the database has none
        if not (op.supports_sparse if layout == "coo" else getattr(op, f"supports_sparse_{layout}")):
            return []
    samples = []
    for sample in op.sample_inputs("cpu", dtype):
        x = sample.input
        fits = isinstance(x, torch.Tensor) and (x.dim() > 0 if layout == "coo" else x.dim() == 2 and x.numel())
        if fits and x.layout is torch.strided:
            block = tuple(2 - size % 2 for size in x.shape) if layout in ("bsr", "bsc") else None
            made = x.detach().to_sparse(layout=getattr(torch, f"sparse_{layout}"), blocksize=block)
            sample.input = made.requires_grad_() if differentiable else made
            samples.append(sample)
    return samples


def run_entry(op, layout, dtype, counts, failures):
    samples = list_samples(op, layout, dtype)
    for i, sample in enumerate(samples[:SAMPLES]):
        try:
            run_sample(op, sample, counts)
        except BaseException as error:  # pytest's failures are no Exceptions
            counts["different"] += 1
            lines = f"{type(error).__name__}: {error}".split("\n")
            failures.append(f"{op.formatted_name} {layout} {str(dtype)[6:]} sample {i}: {' '.join(lines)[:300]}")


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    counts, failures = collections.Counter(), []
    for op in op_db:
        if not names or op.formatted_name in names:
            for layout in LAYOUTS:
                for dtype in DTYPES if FULL else DTYPES[:1]:
                    if dtype in op.dtypes:
                        run_entry(op, layout, dtype, counts, failures)
    fallbacks = sum(row["calls"] for row in ditorch.fallbacks())
    print(json.dumps({"counts": counts, "failures": failures, "fallbacks": fallbacks}, indent=1 if FULL else None))


def test_samples_of_the_database(python):
    """The first samples of every entry and layout, in float32."""
    answer = json.loads(python(__file__, timeout=600).stdout.splitlines()[-1])
    assert answer["failures"] == []
    assert answer["counts"]["same"] > 200 and answer["counts"]["with gradients"] > 60
    assert answer["fallbacks"] > 200


if __name__ == "__main__":
    main()
