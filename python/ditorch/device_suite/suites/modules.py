"""Every module of PyTorch's database (ModuleInfo) on the device, against the CPU."""

from __future__ import annotations

import copy
import inspect
import io

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db, modules
from torch.testing._internal.common_utils import TestCase, freeze_rng_state, gradcheck, gradgradcheck

from ditorch.device_suite.suites._compare import differentiate, get_tensors, move


def takes(module_info, name):
    """The constructor has an argument of this name."""
    return name in inspect.signature(module_info.module_cls.__init__).parameters


def list_inputs(module_info, device, dtype, training, requires_grad=False):
    torch.manual_seed(7)
    inputs = module_info.module_inputs_func(
        module_info, device=device, dtype=dtype, requires_grad=requires_grad, training=training
    )
    return [row for row in inputs if row.forward_input is not None]


def build(module_info, row, device, dtype, training):
    """The module, with numbers from a fixed seed, in the dtype and on the device."""
    torch.manual_seed(11)
    module = module_info.module_cls(*row.constructor_input.args, **row.constructor_input.kwargs)
    return module.to(device=device, dtype=dtype).train(training)


def call(module, row):
    with freeze_rng_state():
        return module(*row.args, **row.kwargs)


class Moved:
    """The arguments of a call, copied to a device."""

    def __init__(self, row, device):
        self.args, self.kwargs = move((row.forward_input.args, row.forward_input.kwargs), device)

    def leaves(self):
        return [value for value in get_tensors((self.args, self.kwargs)) if value.requires_grad]


class TestModule(TestCase):
    _do_cuda_memory_leak_check = True
    precision = 1e-5
    rel_tol = 1e-5

    @modules(module_db)
    def test_forward(self, device, dtype, module_info, training):
        for row in list_inputs(module_info, device, dtype, training):
            module = build(module_info, row, device, dtype, training)
            given = Moved(row, device)
            output = call(module, given)
            for value in get_tensors(output):
                self.assertEqual(value.device.type, torch.device(device).type)
            if row.reference_fn is not None:
                self.assertEqual(output, row.reference_fn(module, *given.args, **given.kwargs))
            self.assertNotIn("Error", repr(module))

    @modules(module_db)
    def test_cpu_gpu_parity(self, device, dtype, module_info, training):
        """Forward and gradients, of inputs and parameters, are the CPU's."""
        for row in list_inputs(module_info, "cpu", dtype, training, requires_grad=True):
            here = build(module_info, row, "cpu", dtype, training)
            if module_info.is_lazy:
                call(here, Moved(row, "cpu"))
            there = copy.deepcopy(here).to(device)
            results = []
            for module, place in ((here, "cpu"), (there, device)):
                given = Moved(row, place)
                output = call(module, given)
                leaves = [*given.leaves(), *(p for p in module.parameters() if p.requires_grad)]
                results.append((output, differentiate(output, leaves), list(module.buffers())))
            for wanted, got in zip(*results, strict=True):
                self.assertEqual(got, move(wanted, device), exact_device=False)

    @modules(module_db, allowed_dtypes=[torch.double])
    def test_grad(self, device, dtype, module_info, training):
        self._check_gradients(device, dtype, module_info, training, gradcheck)

    @modules([info for info in module_db if info.supports_gradgrad], allowed_dtypes=[torch.double])
    def test_gradgrad(self, device, dtype, module_info, training):
        self._check_gradients(device, dtype, module_info, training, gradgradcheck)

    def _check_gradients(self, device, dtype, module_info, training, check):
        for row in list_inputs(module_info, device, dtype, training, requires_grad=True):
            module = build(module_info, row, device, dtype, training)
            given = Moved(row, device)
            if module_info.is_lazy:
                call(module, given)
            leaves = (*given.leaves(), *(p for p in module.parameters() if p.requires_grad))
            if not leaves:
                continue

            def function(*_, module=module, given=given):
                return tuple(value for value in get_tensors(call(module, given)) if value.requires_grad)

            options = {"nondet_tol": module_info.gradcheck_nondet_tol, "fast_mode": True}
            self.assertTrue(check(function, leaves, **options))

    @modules(module_db)
    def test_channels_last_agrees(self, device, dtype, module_info, training):
        """Inputs and parameters in another memory format give the same numbers."""
        for row in list_inputs(module_info, device, dtype, training):
            module = build(module_info, row, device, dtype, training)
            wanted = call(module, Moved(row, device))
            for memory_format, dims in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
                given = Moved(row, device)
                if not any(value.dim() == dims for value in get_tensors((given.args, given.kwargs))):
                    continue
                other = copy.deepcopy(build(module_info, row, device, dtype, training))
                if not module_info.is_lazy and all(p.dim() in (dims, 0, 1, 2, 3) for p in other.parameters()):
                    other.to(memory_format=memory_format)
                given.args, given.kwargs = torch.utils._pytree.tree_map(
                    lambda v, d=dims, f=memory_format: (
                        v.contiguous(memory_format=f) if isinstance(v, torch.Tensor) and v.dim() == d else v
                    ),
                    (given.args, given.kwargs),
                )
                self.assertEqual(call(other, given), wanted)

    @modules(module_db)
    def test_non_contiguous_tensors(self, device, dtype, module_info, training):
        """Strided inputs give what dense ones give, forward and backward."""
        for row in list_inputs(module_info, device, dtype, training, requires_grad=True):
            module = build(module_info, row, device, dtype, training)
            if module_info.is_lazy:
                call(module, Moved(row, device))
            results = []
            for strided in (False, True):
                given = Moved(row, device)
                leaves = given.leaves()
                given.args, given.kwargs = torch.utils._pytree.tree_map(
                    lambda v, s=strided: _stride(v) if s and isinstance(v, torch.Tensor) else v,
                    (given.args, given.kwargs),
                )
                module_copy = copy.deepcopy(module)
                output = call(module_copy, given)
                results.append((output, differentiate(output, leaves)))
            self.assertEqual(results[1], results[0])

    @modules([info for info in module_db if takes(info, "inplace")])
    def test_check_inplace(self, device, dtype, module_info, training):
        """A module with inplace=True changes its input and returns it."""
        for row in list_inputs(module_info, device, dtype, training):
            module = build(module_info, row, device, dtype, training)
            wanted = call(module, Moved(row, device))
            module.inplace = True
            given = Moved(row, device)
            output = call(module, given)
            self.assertEqual(output, wanted)
            self.assertEqual(get_tensors((given.args, given.kwargs))[0], wanted)

    @modules([info for info in module_db if takes(info, "device") and takes(info, "dtype")])
    def test_factory_kwargs(self, device, dtype, module_info, training):
        """device= and dtype= of the constructor place parameters and buffers."""
        for row in list_inputs(module_info, device, dtype, training):
            words = row.constructor_input
            module = module_info.module_cls(*words.args, **{**words.kwargs, "device": device, "dtype": dtype})
            for name, value in [*module.named_parameters(), *module.named_buffers()]:
                if isinstance(value, torch.nn.parameter.UninitializedTensorMixin):
                    continue
                self.assertEqual(value.device.type, torch.device(device).type, name)
                if value.is_floating_point():
                    self.assertEqual(value.dtype, dtype, name)

    @modules(module_db)
    def test_multiple_device_transfer(self, device, dtype, module_info, training):
        """There, back and there again: parameters, buffers and results stay what they are."""
        for row in list_inputs(module_info, device, dtype, training):
            module = build(module_info, row, device, dtype, training)
            wanted = call(module, Moved(row, device))
            before = move(module.state_dict(), "cpu")
            module.to("cpu")
            self.assertTrue(all(not value.is_cuda for value in module.state_dict().values()))
            module.to(device)
            self.assertEqual(move(module.state_dict(), "cpu"), before)
            if not training:
                self.assertEqual(call(module, Moved(row, device)), wanted)

    @modules(module_db)
    def test_pickle(self, device, dtype, module_info, training):
        """torch.save and torch.load of the whole module and of its state, to the device and to the CPU."""
        for row in list_inputs(module_info, device, dtype, training):
            module = build(module_info, row, device, dtype, training)
            if module_info.is_lazy:
                call(module, Moved(row, device))
            wanted = call(copy.deepcopy(module), Moved(row, device))
            file = io.BytesIO()
            torch.save(module, file)
            file.seek(0)
            again = torch.load(file, weights_only=False)
            self.assertEqual(call(again, Moved(row, device)), wanted)
            file = io.BytesIO()
            torch.save(module.state_dict(), file)
            file.seek(0)
            state = torch.load(file, map_location="cpu", weights_only=True)
            self.assertEqual(state, move(module.state_dict(), "cpu"), exact_device=True)

    @modules([info for info in module_db if info.module_error_inputs_func is not None])
    def test_errors(self, device, dtype, module_info, training):
        rows = module_info.module_error_inputs_func(
            module_info, device=device, dtype=dtype, requires_grad=False, training=training
        )
        for row in rows:
            words, given = row.module_error_input.constructor_input, row.module_error_input.forward_input
            if row.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
                with self.assertRaisesRegex(row.error_type, row.error_regex):
                    module_info.module_cls(*words.args, **words.kwargs)
            else:
                module = module_info.module_cls(*words.args, **words.kwargs).to(device)
                for value in module.parameters():  # buffers stay: a weight of another dtype is one of the errors
                    value.data = value.data.to(dtype)
                with self.assertRaisesRegex(row.error_type, row.error_regex):
                    module(*given.args, **given.kwargs)


def _stride(value: torch.Tensor) -> torch.Tensor:
    """The same numbers with a gap after each."""
    if value.dim() == 0 or value.numel() < 2:
        return value
    return torch.stack([value, torch.zeros_like(value)], dim=-1)[..., 0]


instantiate_device_type_tests(TestModule, globals())
