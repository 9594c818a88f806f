"""A function run twice: on CPU tensors and on the same tensors of the device.

Results, written arguments, dtypes, shapes and strides must agree, or both must raise the same exception; and the device
must have done it in C alone unless the caller allows the CPU's kernels.
"""

import ditorch
import torch

HALF = (torch.float16, torch.bfloat16)
LOOSE = {torch.float16: 2e-3, torch.bfloat16: 2e-2}


def move(value):
    if isinstance(value, torch.Tensor):
        if 0 in value.stride():
            base = value[tuple(slice(0, 1) if step == 0 else slice(None) for step in value.stride())]
            return move(base.new_empty(base.shape).copy_(base)).expand(value.shape)
        moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
        return moved.copy_(value)
    if isinstance(value, (list, tuple)):
        return type(value)(move(element) for element in value)
    return value


def flatten(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for element in value for tensor in flatten(element)]
    return []


def run(function, arguments):
    try:
        return function(*arguments), None
    except Exception as error:
        return None, error


def same(mine, wanted, strides=True, **tolerance):
    assert mine.device.type == "cuda"
    assert mine.dtype == wanted.dtype
    assert mine.shape == wanted.shape
    if wanted.dtype in LOOSE and not tolerance:
        tolerance = {"rtol": LOOSE[wanted.dtype], "atol": LOOSE[wanted.dtype]}
    torch.testing.assert_close(mine.detach().cpu(), wanted.detach(), equal_nan=True, **tolerance)
    if strides:
        assert mine.stride() == wanted.stride()


def twice(function, *arguments, in_c=True, strides=True, **tolerance):
    """Run and compare; gives the device's result (None after an exception)."""
    moved = [move(argument) for argument in arguments]
    wanted, refused = run(function, arguments)
    ditorch.reset_counters()
    mine, failed = run(function, moved)
    fallen = [row["operator"] for row in ditorch.fallbacks()]
    assert type(failed) is type(refused), f"CPU: {refused!r}; device: {failed!r}"
    if refused is not None:
        return None
    assert not (in_c and fallen), f"on the CPU: {fallen}"
    for a, b in zip(flatten(mine), flatten(wanted), strict=True):
        same(a, b, strides, **tolerance)
    for a, b in zip(flatten(moved), flatten(list(arguments)), strict=True):
        same(a, b, strides, **tolerance)
    return mine


def draw(shape, dtype=torch.float32, seed=11):
    """Random values of any dtype; the seed is fixed, so that a failure can be repeated."""
    shape = tuple(shape)
    generator = torch.Generator().manual_seed(seed + 7 * len(shape) + sum(shape))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_complex or dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)
    return torch.randint(0, 100, shape, generator=generator).to(dtype)


def positions(shape, size, seed=11):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(0, size, tuple(shape), generator=generator)


def layouts(tensor):
    """The same values in several memory layouts."""
    yield tensor.contiguous()
    if tensor.dim() > 1:
        order = list(reversed(range(tensor.dim())))
        yield tensor.permute(order).contiguous().permute(order)
    if tensor.dim() > 0:
        yield tensor.new_zeros([*tensor.shape, 2])[..., 1].copy_(tensor)
        yield torch.cat([tensor.new_zeros(3), tensor.reshape(-1)])[3:].view(tensor.shape)
