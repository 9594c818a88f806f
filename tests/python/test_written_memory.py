"""Written tensors that overlap themselves or an input, and memory that nobody wrote: the device follows the CPU."""

import ditorch  # noqa: F401
import pytest
import torch

INPLACE = {
    "fill_": lambda x: x.fill_(3),
    "fill_ tensor": lambda x: x.fill_(torch.tensor(3.0, device=x.device)),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(torch.arange(float(x.numel()), device=x.device).view(x.shape)),
    "copy_ number": lambda x: x.copy_(torch.tensor(2.0, device=x.device)),
    "copy_ from CPU": lambda x: x.copy_(torch.arange(float(x.numel())).view(x.shape)),
    "copy_ convert": lambda x: x.copy_(torch.arange(x.numel(), device=x.device).view(x.shape)),
    "add_": lambda x: x.add_(1),
    "add_ tensor": lambda x: x.add_(torch.ones(x.shape, device=x.device)),
    "mul_": lambda x: x.mul_(2),
    "clamp_": lambda x: x.clamp_(0, 1),
    "threshold_": lambda x: torch.threshold_(x, 0, 1),
    "relu_": lambda x: x.relu_(),
    "abs_": lambda x: x.abs_(),
    "exp_": lambda x: x.exp_(),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, 1.0),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0], device=x.device), 1.0),
    "addcmul_": lambda x: x.addcmul_(x, x),
    "lerp_": lambda x: x.lerp_(x, 0.5),
    "bernoulli_": lambda x: x.bernoulli_(1.0),
    "foreach": lambda x: torch._foreach_add_([x], 1)[0],
}
OUT = {
    "add": lambda x, y, out: torch.add(x, y, out=out),
    "mul": lambda x, y, out: torch.mul(x, y, out=out),
    "abs": lambda x, _, out: torch.abs(x, out=out),
    "exp": lambda x, _, out: torch.exp(x, out=out),
    "sum": lambda x, _, out: torch.sum(x, 0, keepdim=True, out=out),
    "mm": lambda x, y, out: torch.mm(x, y, out=out),
    "cumsum": lambda x, _, out: torch.cumsum(x, 0, out=out),
    "gt": lambda x, y, out: torch.maximum(x, y, out=out),
    "clamp": lambda x, _, out: torch.clamp(x, 0, 1, out=out),
    "where": lambda x, y, out: torch.where(x > 0, x, y, out=out),
}


def outcome(function, *arguments):
    try:
        return function(*arguments).cpu().clone()
    except (RuntimeError, IndexError, NotImplementedError) as error:
        return type(error), str(error).split("\n")[0].replace("cuda:0", "cpu")


def same(name, mine, wanted):
    assert type(mine) is type(wanted), f"{name}: {mine}, the CPU {wanted}"
    if isinstance(wanted, tuple):
        assert mine == wanted, name
    else:
        torch.testing.assert_close(mine, wanted, msg=f"{name}: {mine}, the CPU {wanted}")


def layouts(device):
    """Tensors of shape (3, 4) that reach elements twice, or whose parts interleave."""
    base = torch.arange(40.0, device=device) - 5
    yield "expanded row", base[:4].expand(3, 4)
    yield "expanded column", base[:3, None].expand(3, 4)
    yield "one element", base[:1].expand(3, 4)
    yield "windows", base.as_strided((3, 4), (2, 1))
    yield "every second", base[:24].view(3, 8)[:, ::2]
    yield "transposed", base[:12].view(4, 3).t()


@pytest.mark.parametrize("name", INPLACE)
def test_in_place(name):
    for (layout, mine), (_, wanted) in zip(layouts("cuda"), layouts("cpu"), strict=True):
        same(f"{name}, {layout}", outcome(INPLACE[name], mine), outcome(INPLACE[name], wanted))


@pytest.mark.parametrize("name", OUT)
def test_out(name):
    for (layout, mine), (_, wanted) in zip(layouts("cuda"), layouts("cpu"), strict=True):
        x = torch.arange(12.0).view(3, 4) - 3
        if name == "mm":
            x = x[:, :3]
        results = [outcome(OUT[name], x.to(t.device), x.to(t.device), t) for t in (mine, wanted)]
        same(f"{name}, {layout}", *results)


def windows(device):
    """Outputs over the memory of the input: shifted, reversed roles, interleaved, halves of rows."""
    base = torch.arange(64.0, device=device)
    yield "same", base[:12].view(3, 4), base[:12].view(3, 4)
    yield "shifted", base[:12].view(3, 4), base[1:13].view(3, 4)
    yield "apart", base[:12].view(3, 4), base[12:24].view(3, 4)
    yield "interleaved", base[:24].view(3, 8)[:, ::2], base[:24].view(3, 8)[:, 1::2]
    yield "halves", base[:24].view(3, 8)[:, :4], base[:24].view(3, 8)[:, 4:]
    yield "transposed", base[:16].view(4, 4), base[:16].view(4, 4).t()


@pytest.mark.parametrize("name", ["add", "mul", "abs", "exp", "clamp", "where"])
def test_out_over_input(name):
    for (layout, x, out), (_, y, wanted) in zip(windows("cuda"), windows("cpu"), strict=True):
        same(f"{name}, {layout}", outcome(OUT[name], x, x, out), outcome(OUT[name], y, y, wanted))


def test_copy_onto_itself():
    for device in ("cpu", "cuda"):
        base = torch.arange(12.0, device=device)
        with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
            base[1:].copy_(base[:-1])
        assert base[:6].copy_(base[6:]).tolist() == [6, 7, 8, 9, 10, 11]
        base.copy_(base)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.complex64, torch.int32, torch.uint8, torch.bool], ids=str
)
def test_uninitialised_memory(dtype):
    """NaN, or the largest integer."""
    like = torch.zeros(2, 3, dtype=dtype)

    def make(device):
        x = like.to(device)
        grown = torch.zeros(2, dtype=dtype, device=device).resize_(7)
        return [
            torch.empty(2, 3, dtype=dtype, device=device),
            torch.empty_like(x),
            torch.empty_strided((2, 3), (1, 2), dtype=dtype, device=device),
            x.new_empty(4),
            torch.empty_permuted((2, 3), (1, 0), dtype=dtype, device=device),
            grown,
        ]

    for mine, wanted in zip(make("cuda"), make("cpu"), strict=True):
        assert mine.is_cuda and mine.stride() == wanted.stride()
        torch.testing.assert_close(mine.cpu(), wanted, equal_nan=True)


@pytest.mark.usefixtures("deterministic")
def test_uninitialised_memory_on_request():
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        x = torch.zeros(2, device="cuda").resize_(5)
        assert x[:2].tolist() == [0, 0] and torch.empty(3, device="cuda").shape == (3,)
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
