"""Every optimizer of PyTorch's database (OptimizerInfo) on the device, against the CPU."""

from __future__ import annotations

import copy
import io
import itertools

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db, optims
from torch.testing._internal.common_utils import TestCase

from ditorch.device_suite.suites._compare import move

STEPS = 6
SHAPES = ((4, 6), (6,), (2, 3, 4))
DENSE = [info for info in optim_db if not info.only_supports_sparse_grads]
FLAGS = ("foreach", "fused", "differentiable")


def list_inputs(info, device, flag=None):
    """The optimizer's inputs, with none of the implementations chosen but `flag`."""
    for row in info.optim_inputs_func(device=device):
        kwargs = {key: value for key, value in row.kwargs.items() if key not in FLAGS}
        if isinstance(kwargs.get("lr"), torch.Tensor) and flag == "foreach" and not kwargs.get("capturable"):
            continue
        if flag is not None:
            kwargs[flag] = True
        yield row.desc, kwargs


def make_parameters(info, device, dtype):
    generator = torch.Generator().manual_seed(3)
    shapes = SHAPES if info.name != "Muon" else ((4, 6), (6, 4))  # Muon is for matrices
    values = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [torch.nn.Parameter(value.to(dtype=dtype).to(device)) for value in values]


def train(info, parameters, kwargs, steps=STEPS, optimizer=None):
    """Some steps with gradients that depend on the parameters; the optimizer, and what each step left."""
    if optimizer is None:
        optimizer = info.optim_cls(parameters, **kwargs)
    history = []
    for step in range(steps):

        def closure(step=step):
            optimizer.zero_grad()
            wells = [(value - 0.1 * (1 + step)).abs().pow(2) + 0.05 * value.abs().pow(4) for value in parameters]
            loss = sum(well.sum() for well in wells)
            loss.backward()
            return loss

        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        history.append([value.detach().clone() for value in parameters])
    return optimizer, history


def place(kwargs, device):
    return {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in kwargs.items()}


class TestOptimRenewed(TestCase):
    def _compare(self, info, device, dtype, flag):
        for desc, kwargs in list_inputs(info, device, flag):
            # a capturable optimizer counts its steps in float32, in whatever dtype the parameters are
            single = dtype in (torch.float32, torch.complex64) or kwargs.get("capturable")
            width = {"rtol": 3e-5, "atol": 1e-5} if single else {"rtol": 1e-7, "atol": 1e-7}
            given = {key: value for key, value in kwargs.items() if key not in FLAGS and key != "capturable"}
            _, wanted = train(info, make_parameters(info, "cpu", dtype), place(given, "cpu"))
            _, got = train(info, make_parameters(info, device, dtype), kwargs)
            self.assertEqual(got, wanted, msg=lambda text, d=desc: f"{d}: {text}", exact_device=False, **width)

    @optims(DENSE, dtypes=[torch.float32, torch.float64])
    def test_forloop_against_cpu(self, device, dtype, optim_info):
        self._compare(optim_info, device, dtype, None)

    @optims([info for info in DENSE if "foreach" in info.supported_impls], dtypes=[torch.float32, torch.float64])
    def test_foreach_against_cpu(self, device, dtype, optim_info):
        self._compare(optim_info, device, dtype, "foreach")

    @optims([info for info in DENSE if "fused" in info.supported_impls], dtypes=[torch.float32, torch.float64])
    def test_fused_against_cpu(self, device, dtype, optim_info):
        if torch.device(device).type not in optim_info.supports_fused_on:
            self.skipTest("there is no fused implementation for this device")
        self._compare(optim_info, device, dtype, "fused")

    @optims([info for info in DENSE if info.supports_complex], dtypes=[torch.complex64])
    def test_complex_against_cpu(self, device, dtype, optim_info):
        flags = [None] + [flag for flag in ("foreach",) if flag in optim_info.supported_impls]
        for flag in flags:
            self._compare(optim_info, device, dtype, flag)

    @optims(DENSE, dtypes=[torch.float32])
    def test_state_goes_on(self, device, dtype, optim_info):
        """A state saved after some steps and loaded into a new optimizer goes on with the same numbers."""
        for flag in (None, *(flag for flag in ("foreach",) if flag in optim_info.supported_impls)):
            for _, kwargs in list_inputs(optim_info, device, flag):
                parameters = make_parameters(optim_info, device, dtype)
                optimizer, _ = train(optim_info, parameters, kwargs, 3)
                file = io.BytesIO()
                torch.save(optimizer.state_dict(), file)
                file.seek(0)
                state = torch.load(file, weights_only=True)
                twins = [torch.nn.Parameter(value.detach().clone()) for value in parameters]
                other = optim_info.optim_cls(twins, **kwargs)
                other.load_state_dict(state)
                _, wanted = train(optim_info, parameters, kwargs, 3, optimizer)
                _, got = train(optim_info, twins, kwargs, 3, other)
                self.assertEqual(got, wanted)

    @optims(DENSE, dtypes=[torch.float32])
    def test_load_state_from_cpu(self, device, dtype, optim_info):
        """The state of a training on the CPU goes on on the device."""
        for _, kwargs in list_inputs(optim_info, "cpu"):
            parameters = make_parameters(optim_info, "cpu", dtype)
            optimizer, _ = train(optim_info, parameters, kwargs, 3)
            state = copy.deepcopy(optimizer.state_dict())
            twins = [torch.nn.Parameter(move(value.detach(), device)) for value in parameters]
            other = optim_info.optim_cls(twins, **place(kwargs, device))
            other.load_state_dict(state)
            _, wanted = train(optim_info, parameters, kwargs, 3, optimizer)
            _, got = train(optim_info, twins, kwargs, 3, other)
            self.assertEqual(got, wanted, rtol=3e-5, atol=1e-5, exact_device=False)

    @optims(DENSE, dtypes=[torch.float32])
    def test_loss_goes_down(self, device, dtype, optim_info):
        """A loss becomes smaller, under every scheduler of the database."""
        for make_scheduler, (_, kwargs) in itertools.product(
            (None, *optim_info.scheduler_inputs[0]), list_inputs(optim_info, device)
        ):
            if kwargs.get("maximize") or optim_info.step_requires_closure:
                continue
            weight = torch.nn.Parameter(torch.ones(4, 5, device=device, dtype=dtype))
            optimizer = optim_info.optim_cls([weight], **kwargs)
            scheduler = make_scheduler(optimizer) if make_scheduler else None
            losses = []
            for _ in range(20):
                optimizer.zero_grad()
                loss = (weight - 0.25).pow(2).sum()
                loss.backward()
                losses.append(loss.item())
                optimizer.step()
                if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                    scheduler.step(loss)
                elif scheduler is not None:
                    scheduler.step()
            if kwargs.get("lr", 1) != 0:
                self.assertLess(losses[-1], losses[0])

    @optims([info for info in optim_db if info.optim_error_inputs_func is not None], dtypes=[torch.float32])
    def test_errors(self, device, dtype, optim_info):
        for row in optim_info.optim_error_inputs_func(device=device, dtype=dtype):
            given = row.optimizer_error_input
            if issubclass(row.error_type, Warning):
                with self.assertWarnsRegex(row.error_type, row.error_regex):
                    optim_info.optim_cls(given.params, **given.kwargs)
            elif row.error_on is OptimizerErrorEnum.CONSTRUCTION_ERROR:
                with self.assertRaisesRegex(row.error_type, row.error_regex):
                    optim_info.optim_cls(given.params, **given.kwargs)
            else:
                optimizer = optim_info.optim_cls(given.params, **given.kwargs)
                with self.assertRaisesRegex(row.error_type, row.error_regex):
                    optimizer.step()

    @optims(
        [info for info in optim_db if info.supports_sparse or info.only_supports_sparse_grads], dtypes=[torch.float32]
    )
    def test_sparse_gradients_against_cpu(self, device, dtype, optim_info):
        kwargs = optim_info.metadata_for_sparse[0]
        results = []
        for where in ("cpu", device):
            generator = torch.Generator().manual_seed(9)
            table = torch.nn.Embedding(8, 3, sparse=True)
            with torch.no_grad():
                table.weight.copy_(torch.randn(8, 3, generator=generator))
            table.to(where)
            optimizer = optim_info.optim_cls(table.parameters(), **kwargs)
            for step in range(4):
                optimizer.zero_grad()
                table(torch.tensor([1, 5, 5, step], device=where)).pow(2).sum().backward()
                optimizer.step()
            results.append(table.weight.detach())
        self.assertEqual(results[1], results[0], exact_device=False)

    @optims(DENSE, dtypes=[torch.float32])
    def test_state_without_newer_flags(self, device, dtype, optim_info):
        """A state of an older release, which does not know the newer flags, is taken."""
        for _, kwargs in list_inputs(optim_info, device):
            parameters = make_parameters(optim_info, device, dtype)
            optimizer, _ = train(optim_info, parameters, kwargs, 2)
            state = copy.deepcopy(optimizer.state_dict())
            for group in state["param_groups"]:
                for flag in optim_info.not_og_supported_flags:
                    group.pop(flag, None)
            optimizer.load_state_dict(state)
            if "capturable" not in kwargs and "lr" not in kwargs:
                train(optim_info, parameters, kwargs, 1, optimizer)
            self.assertIn(type(optimizer).__name__, repr(optimizer))


instantiate_device_type_tests(TestOptimRenewed, globals())
