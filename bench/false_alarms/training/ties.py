"""Equal values among those that are sorted, chosen or counted: any order of them is right. Forward and backward."""

import torch

from false_alarms.training.scenario import DEVICE, call

NUMBERS = ("float32", "bfloat16", "float16", "int64")
ALL = (*NUMBERS, "bool")


def with_ties(dtype, *functions, gradient=True):
    """Each function of a tensor of few different values, and its gradient where it has one."""
    values = torch.randint(0, 2 if dtype is torch.bool else 4, (9, 40))
    x = values.to(DEVICE, dtype).requires_grad_(gradient and dtype.is_floating_point)
    weights = torch.randn(9, 40).to(DEVICE)
    yield
    for function in functions:
        result = function(x)
        parts = result if isinstance(result, (tuple, list)) else (result,)
        for part in parts:
            if part.requires_grad:
                flat = part.flatten()
                (flat * weights.flatten()[: flat.numel()].to(dtype)).sum().backward(retain_graph=True)


@call(ALL)
def ties_sort(dtype):
    return with_ties(dtype, torch.sort, lambda x: x.sort(0, descending=True), lambda x: x.sort(stable=True, dim=-1))


@call(ALL)
def ties_argsort(dtype):
    return with_ties(dtype, torch.argsort, lambda x: x.argsort(0, True), lambda x: x.argsort(dim=-1, stable=True))


@call(ALL)
def ties_msort(dtype):
    return with_ties(dtype, torch.msort)


@call(NUMBERS)
def ties_topk(dtype):
    functions = lambda x: x.topk(5), lambda x: x.topk(3, 0, largest=False), lambda x: x.topk(7, sorted=False)
    return with_ties(dtype, *functions)


@call(ALL)
def ties_max(dtype):
    return with_ties(dtype, torch.max, lambda x: x.max(1), lambda x: x.max(0, keepdim=True))


@call(ALL)
def ties_min(dtype):
    return with_ties(dtype, torch.min, lambda x: x.min(1), lambda x: x.min(0, keepdim=True))


@call(ALL)
def ties_amax(dtype):
    return with_ties(dtype, lambda x: x.amax(1), lambda x: x.amin((0, 1)), lambda x: torch.aminmax(x, dim=0))


@call(NUMBERS)
def ties_argmax(dtype):
    return with_ties(dtype, torch.argmax, lambda x: x.argmax(1), lambda x: x.argmin(0))


@call(NUMBERS)
def ties_median(dtype):
    return with_ties(dtype, torch.median, lambda x: x.median(1), lambda x: x.nanmedian(0))


@call(NUMBERS)
def ties_kthvalue(dtype):
    return with_ties(dtype, lambda x: x.kthvalue(7), lambda x: x.kthvalue(2, 0))


@call(ALL)
def ties_mode(dtype):
    return with_ties(dtype, torch.mode, lambda x: x.mode(0))


@call(ALL)
def ties_unique(dtype):
    functions = torch.unique, lambda x: torch.unique(x, return_inverse=True, return_counts=True)
    functions += (lambda x: torch.unique_consecutive(x.flatten(), return_counts=True),)
    return with_ties(dtype, *functions, gradient=False)  # it has no derivative


@call(ALL)
def ties_cummax(dtype):
    return with_ties(dtype, lambda x: x.cummax(1), lambda x: x.cummin(0))


@call(("float32", "bfloat16", "float16"))
def ties_pooling(dtype):
    pool = torch.nn.functional.max_pool1d
    return with_ties(dtype, lambda x: pool(x[None], 4), lambda x: torch.nn.functional.adaptive_max_pool1d(x[None], 5))


@call(NUMBERS)
def ties_search(dtype):
    return with_ties(dtype, lambda x: torch.isin(x, x[0]), lambda x: x.nonzero(), lambda x: (x == x[0]).sum(0))


@call(("float32", "bfloat16", "float16"))
def ties_clamp(dtype):
    return with_ties(dtype, lambda x: x.clamp(1, 2), torch.relu, lambda x: torch.maximum(x, x[0]), torch.abs)
