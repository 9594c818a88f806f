"""PyTorch's older lists of modules and criterions (common_nn.py): each case once on the CPU and once on the device,
where PyTorch's own code compares results, gradients and second gradients with the CPU's."""

from __future__ import annotations

import itertools
import os

import torch
from torch.testing._internal import common_nn
from torch.testing._internal.common_nn import CriterionTest, NewModuleTest, NNTestCase
from torch.testing._internal.common_utils import set_default_dtype

CRITERION_DTYPES = (torch.float32, torch.float64, torch.float16)
ON_CPU = os.environ.get("PYTORCH_TESTING_DEVICE_ONLY_FOR") == "cpu"


class TestNN(NNTestCase):
    """The methods by which the objects of the lists call modules, as PyTorch's test_nn.py defines them for itself."""

    _do_cuda_memory_leak_check = True
    _do_cuda_non_default_stream = True

    def _forward(self, module, input):
        with torch.testing._internal.common_utils.freeze_rng_state():
            return module(*input) if isinstance(input, tuple) else module(input)

    def _backward(self, module, input, output, grad_output, create_graph=False):
        output.backward(grad_output, retain_graph=True, create_graph=create_graph)
        if isinstance(input, tuple):
            return tuple(value.grad.data if value.grad is not None else None for value in input)
        return input.grad.data if input.grad is not None else None

    def _forward_criterion(self, criterion, input, target, extra_args=None):
        values = input if isinstance(input, tuple) else (input,)
        return criterion(*values, target, *(extra_args or ()))

    def _backward_criterion(self, criterion, input, output, target, gradOutput=None, extra_args=None):
        values = input if isinstance(input, tuple) else (input,)
        for value in values:
            if value.grad is not None:
                value.grad.data.zero_()
        loss = self._forward_criterion(criterion, input, target, extra_args=extra_args)
        weight = torch.ones_like(loss) if gradOutput is None else gradOutput
        loss.backward(weight.type_as(loss) if isinstance(weight, torch.Tensor) else weight)
        found = tuple(value.grad.data for value in values)
        return found if isinstance(input, tuple) else found[0]

    def _zero_grad_parameters(self, module):
        for value in module.parameters():
            if value.grad is not None:
                with torch.no_grad():
                    value.grad.zero_()
                value.grad.detach_()

    def _get_parameters(self, module):
        return list(module.parameters()), [value.grad for value in module.parameters()]


def _add(name, function):
    if not hasattr(TestNN, name):
        setattr(TestNN, name, function)


def _add_module(test):
    if ON_CPU:
        _add(test.get_name(), lambda self, t=test: t(self))
    else:
        _add(f"{test.get_name()}_cuda", lambda self, t=test: t.test_cuda(self))


def _add_criterion(test):
    if ON_CPU:
        _add(test.get_name(), lambda self, t=test: t(self))
        return
    for dtype in CRITERION_DTYPES:
        if dtype == torch.float16 and not getattr(test, "check_half", True):
            continue
        name = f"{test.get_name()}_cuda_{str(dtype).removeprefix('torch.')}"
        _add(name, lambda self, t=test, d=dtype: t.test_cuda(self, d, extra_args=getattr(t, "extra_args", None)))


def _complete(row, variants):
    """The row with its constructor, and once more for each of `variants` that it asks for: (key, word, change)."""
    row = {key: value for key, value in row.items() if key != "decorator"}
    if "constructor" not in row:
        row["constructor"] = getattr(torch.nn, row.pop("module_name"))
    yield row
    for key, word, change in variants:
        if row.get(key):
            desc = f"{row['desc']}_{word}" if row.get("desc") else word
            fullname = {"fullname": f"{row['fullname']}_{word}"} if row.get("fullname") else {}
            yield {**row, "desc": desc, **fullname, "constructor": change(row["constructor"])}


def _as_eval(constructor):
    def make(*args, **kwargs):
        return constructor(*args, **kwargs).eval()

    make.__name__ = constructor.__name__
    return make


def _as_sum(constructor):
    def make(*args, **kwargs):
        return constructor(*args, reduction="sum", **kwargs)

    make.__name__ = constructor.__name__
    return make


def _make_tests():
    with set_default_dtype(torch.double):
        for row in itertools.chain(common_nn.module_tests, common_nn.get_new_module_tests()):
            for full in _complete(row, [("check_eval", "eval", _as_eval)]):
                _add_module(NewModuleTest(**full))
        for row in common_nn.criterion_tests:
            for full in _complete(row, [("check_sum_reduction", "sum_reduction", _as_sum)]):
                _add_criterion(CriterionTest(**full))


_make_tests()
