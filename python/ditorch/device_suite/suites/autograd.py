"""PyTorch's database of autograd.Function (autograd_function_db) on the device against the CPU: results, gradients and
second gradients."""

from __future__ import annotations

import torch
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase

from ditorch.device_suite.suites._compare import differentiate, get_tensors, move

DTYPES = (torch.float32, torch.float64)


class TestAutogradFunctions(TestCase):
    @ops(autograd_function_db, allowed_dtypes=DTYPES)
    def test_against_cpu(self, device, dtype, op):
        torch.manual_seed(1)
        for sample in op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd):
            results = []
            for where in ("cpu", device):
                values = move((sample.input, sample.args, sample.kwargs), where)
                leaves = [value for value in get_tensors(values) if value.requires_grad]
                value, args, kwargs = _clone(values)
                output = op(value, *args, **kwargs)
                results.append((output, differentiate(output, leaves)))
            self.assertEqual(results[1], results[0], exact_device=False)

    @ops([op for op in autograd_function_db if op.supports_autograd], allowed_dtypes=DTYPES)
    def test_second_gradients_against_cpu(self, device, dtype, op):
        torch.manual_seed(1)
        for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
            results = []
            for where in ("cpu", device):
                values = move((sample.input, sample.args, sample.kwargs), where)
                leaves = [value for value in get_tensors(values) if value.requires_grad]
                value, args, kwargs = _clone(values)
                output = sum(v.sin().sum() for v in get_tensors(op(value, *args, **kwargs)) if v.requires_grad)
                first = torch.autograd.grad(output, leaves, create_graph=True, allow_unused=True)
                try:
                    results.append((first, differentiate(first, leaves)))
                except RuntimeError as error:  # it has none, as some of the database are meant to
                    results.append((first, str(error)))
            self.assertEqual(results[1], results[0], exact_device=False)


def _clone(values):
    """Not leaves any more: a function may mark an input dirty."""
    return torch.utils._pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, values)


instantiate_device_type_tests(TestAutogradFunctions, globals())
