"""OpRunner and what it stands on: captured calls run again with the same memory layout, hooks, gradients, state; names
in captures that must not be called."""

import os
import random

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from ditorch.judge import Request
from op_tools import OpCapture
from op_tools.op_runner import OpAccyChecker, OpRunner, OpRunnerHook, SyncExecuteTimer
from op_tools.reader import Case, find_cases, load_case
from op_tools.reader.tagged import Described
from op_tools.replay.operator_lookup import LookupFailure, find_function
from op_tools.replay.placement import Placement, PlacementError
from torch import nn


@pytest.fixture(autouse=True)
def results_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def capture(tmp_path):
    """capture(function): the calls that it makes, as case references in the order of their ids."""

    def run(function, **options):
        folder = tmp_path / f"captures{len(os.listdir(tmp_path))}"
        with OpCapture(results=str(folder), console="off", log=False, **options):
            function()
        return sorted(find_cases(folder), key=lambda ref: ref.id)

    return run


def run(ref, **options):
    runner = OpRunner(ref, quiet=True, **options)
    runner.run_forward()
    return runner


# Library use


def test_attributes_of_the_original(capture, capsys):
    x = torch.randn(3, 4, device="cuda", requires_grad=True)
    (ref,) = [ref for ref in capture(lambda: torch.mul(x, 2).sum().backward()) if ref.operator == "torch.mul"]
    runner = OpRunner(ref.path)
    assert capsys.readouterr().out == f"dir: {ref.path}\n"
    assert runner.name == "torch.mul" and runner.func is torch.mul
    assert runner.args_cpu[0].device.type == "cpu" and torch.equal(runner.args_cpu[0], x.cpu())
    assert runner.args[0].device.type == "cuda" and runner.args[0].requires_grad and runner.args[1] == 2
    assert runner.kwargs == {} and runner.kwargs_cpu == {}
    assert runner.result is None
    runner.run_forward()
    runner.run_backward()
    assert torch.equal(runner.result, runner.output) and runner.output_cpu.device.type == "cpu"
    assert torch.equal(runner.grad_inputs[0], torch.full_like(x, 2)) and runner.grad_inputs_cpu[0].device.type == "cpu"
    assert runner.grad_outputs[0].device.type == "cuda" and runner.grad_outputs_cpu[0].device.type == "cpu"


class Recorder(OpRunnerHook):
    def __init__(self, name, log):
        super().__init__()
        self.name, self.log = name, log

    def before_forward(self):
        assert self.runner.result is None
        self.log.append(f"{self.name} before_forward")

    def after_forward(self):
        assert self.runner.result is not None
        self.log.append(f"{self.name} after_forward")

    def before_backward(self):
        self.log.append(f"{self.name} before_backward")

    def after_backward(self):
        assert self.runner.grad_inputs is not None
        self.log.append(f"{self.name} after_backward")


def test_hooks_nest_and_know_their_runner(capture):
    x = torch.randn(3, device="cuda", requires_grad=True)
    ref = capture(lambda: x.exp().sum().backward())[0]
    log = []
    hooks = [Recorder("a", log), Recorder("b", log)]
    runner = OpRunner(ref, hooks[0], quiet=True)
    runner.add_hook(hooks[1])
    assert hooks[0].runner is runner and hooks[1].runner is runner
    runner.run_forward()
    runner.run_backward()
    ways = ("forward", "backward")
    order = (("a", "before"), ("b", "before"), ("b", "after"), ("a", "after"))
    assert log == [f"{name} {when}_{way}" for way in ways for name, when in order]


def test_hooks_are_told_the_end_of_an_operator_that_raises():
    log = []

    class Hook(OpRunnerHook):
        def after_forward(self):
            log.append(self.runner.result)

    case = Case("torch.mm", (torch.ones(2, 3), torch.ones(2, 3)), {})
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        run(case, hook=Hook())
    assert log == [None]


def test_r5_no_shared_hook_and_the_function_stays(capture):
    x = torch.randn(3, device="cuda")
    ref = capture(lambda: torch.exp(x))[0]
    first, second = OpRunner(ref, quiet=True), OpRunner(ref, quiet=True)
    assert first.hooks == [] and first.hooks is not second.hooks
    hook = SyncExecuteTimer()
    first.add_hook(hook)
    for _ in range(2):
        first.run_forward()
        assert first.func is torch.exp
    hook.close()


def test_timer_and_checker_of_the_original_print_their_tables(capture, capsys):
    x, w = (torch.randn(3, 4, device="cuda", requires_grad=True) for _ in range(2))
    (ref,) = [ref for ref in capture(lambda: F.linear(x, w).sum().backward()) if ref.operator.endswith("linear")]
    timer, checker = SyncExecuteTimer(), OpAccyChecker()
    runner = OpRunner(ref, checker, quiet=True)
    runner.add_hook(timer)
    runner.run_forward()
    runner.run_backward()
    timer.close()
    checker.close()
    out = capsys.readouterr().out
    assert "forward_elasped" in out and "backward_elasped" in out
    assert "autocompare    torch.nn.functional.linear forward_id: " in out and "max_relative_diff" in out
    assert timer.tool.counts()["applied"] == 1 and checker.tool.counts()["applied"] == 1
    assert checker.tool.ok


# Arguments are fresh, gradients aligned


def test_r4_in_place_operators_see_the_captured_values_in_every_run(capture):
    x = torch.randn(5, device="cuda")
    start = x.clone()
    (ref,) = capture(lambda: x.mul_(3))
    runner = OpRunner(ref, quiet=True)
    for _ in range(3):
        runner.run_forward()
        assert torch.equal(runner.result, start * 3) and runner.result is runner.args[0]
        assert runner.writes()
    assert torch.equal(runner.args_cpu[0], start.cpu())


def test_r4_gradients_do_not_add_up(capture):
    x = torch.randn(5, device="cuda", requires_grad=True)
    ref = capture(lambda: torch.square(x).sum().backward())[0]
    runner = OpRunner(ref, quiet=True)
    for _ in range(3):
        runner.run_forward()
        runner.run_backward()
        runner.run_backward()
        assert torch.equal(runner.grad_inputs[0], 2 * x)
        assert runner.args[0].grad is None
    assert runner.args_cpu[0].grad is None


def test_writes_that_no_version_counter_tells_are_seen(capture):
    x = torch.randn(4, 3, device="cuda")
    mean, var = torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")
    (ref,) = capture(lambda: F.batch_norm(x, mean, var, training=True))
    runner = run(ref)
    assert runner.writes()
    first = runner.args[1].clone()
    runner.run_forward()
    assert torch.equal(runner.args[1], first)
    (ref,) = capture(lambda: torch.exp(x))
    assert not run(ref).writes()


def test_r2_each_gradient_goes_to_its_own_result(capture):
    x = torch.randn(4, 6, device="cuda", requires_grad=True)

    def step():
        a, _, c = torch.split(x, 2, dim=1)
        (a.sum() * 2 + c.square().sum()).backward()  # the second has none

    ref = next(ref for ref in capture(step) if "split" in ref.operator)
    runner = run(ref)
    runner.run_backward()
    wanted = torch.cat([torch.full((4, 2), 2.0, device="cuda"), torch.zeros(4, 2, device="cuda"), 2 * x[:, 4:]], 1)
    torch.testing.assert_close(runner.grad_inputs[0], wanted.detach())


def test_r2_indices_have_no_gradient_and_the_same_tensor_twice_has_one(capture):
    x = torch.randn(3, 5, device="cuda", requires_grad=True)
    refs = capture(lambda: (torch.sort(x, dim=1)[0] * 2).sum().backward())
    runner = run(next(ref for ref in refs if ref.operator == "torch.sort"))
    runner.run_backward()
    assert torch.equal(runner.grad_inputs[0], torch.full_like(x, 2))
    ref = capture(lambda: torch.mul(x, x).sum().backward())[0]
    runner = run(ref)
    assert runner.args[0] is runner.args[1]
    runner.run_backward()
    for mine, stored in zip(runner.grad_inputs, runner.grad_inputs_cpu, strict=True):
        torch.testing.assert_close(mine.cpu(), stored)


def test_in_place_on_tensors_that_require_grad(capture):
    x = torch.randn(4, 5, device="cuda", requires_grad=True)

    def step():
        y = x * 1
        y.mul_(2)
        y[1] = 3.0
        F.relu(y, inplace=True).sum().backward()

    for ref in capture(step):
        runner = run(ref)
        runner.run_backward()
        if runner.grad_inputs_cpu is not None:
            torch.testing.assert_close(runner.grad_inputs[0].cpu(), runner.grad_inputs_cpu[0], msg=ref.operator)


def test_optimizer_steps_run_without_grad_mode(capture):
    model = nn.Linear(3, 2).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    model(torch.ones(1, 3, device="cuda")).sum().backward()
    refs = capture(optimizer.step)
    assert {ref.operator for ref in refs} >= {"torch.Tensor.mul_", "torch.Tensor.addcdiv_"}
    for ref in refs:
        runner = run(ref)
        case = load_case(ref)
        if isinstance(case.output, torch.Tensor):
            torch.testing.assert_close(runner.result.detach().cpu(), case.output.detach())
            assert runner.result.grad_fn is None
            in_place = ref.operator.endswith("_")
            assert isinstance(runner.result, nn.Parameter) == (in_place and isinstance(case.args[0], nn.Parameter))


def test_out_that_is_an_argument_stays_one(capture):
    x = torch.randn(4, device="cuda")
    wanted = x.exp()
    (ref,) = capture(lambda: torch.exp(x, out=x))
    runner = run(ref)
    assert runner.result is runner.args[0] is runner.kwargs["out"] and torch.equal(runner.result, wanted)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("layout", ["files", "packed"])
def test_a_training_step_gives_the_captured_results(capture, layout, device):
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    ).cuda()
    x = torch.randn(2, 2, 8, 8, device="cuda").to(memory_format=torch.channels_last)
    refs = capture(lambda: F.cross_entropy(model(x), torch.tensor([0, 2], device="cuda")).backward(), layout=layout)
    backwards = 0
    for ref in refs:
        runner = run(ref, device=device)
        runner.run_backward()
        if isinstance(runner.output_cpu, torch.Tensor):
            torch.testing.assert_close(runner.result.detach().cpu(), runner.output_cpu.detach())
            assert runner.result.device.type == device and runner.result.stride() == runner.output_cpu.stride()
        backwards += runner.grad_inputs_cpu is not None
        for mine, stored in zip(runner.grad_inputs or (), runner.grad_inputs_cpu or (), strict=True):
            assert (mine is None) == (stored is None)
            if mine is not None:
                torch.testing.assert_close(mine.cpu(), stored)
    assert backwards >= 6


# Placement


def same_geometry(mine, wanted):
    assert mine.dtype == wanted.dtype and mine.shape == wanted.shape and mine.stride() == wanted.stride()
    assert mine.storage_offset() == wanted.storage_offset()
    assert mine.is_conj() == wanted.is_conj() and mine.is_neg() == wanted.is_neg()
    assert mine.requires_grad == wanted.requires_grad and type(mine) is type(wanted)
    assert torch.equal(mine.detach().cpu(), wanted.detach())


def place(*args, device="cuda", **options):
    return Placement(args, {}, device, **options).make()


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_views_keep_their_geometry_and_overlap(device):
    base = torch.arange(60.0).view(5, 12)
    values = (base[1:4, 2:9:3], base.t(), base[:, :1].expand(5, 4), base[2], base, base[0, 0], base[:0])
    placed = place(*values, device=device)
    for mine, wanted in zip(placed.args, values, strict=True):
        same_geometry(mine, wanted)
        assert mine.device.type == device
    assert len({tensor.untyped_storage().data_ptr() for tensor in placed.args}) == 1
    placed.args[4].fill_(-1)
    assert bool((placed.args[0] == -1).all()) and bool((placed.args[1] == -1).all())
    assert base[0, 1] == 1, "the capture's own values are never written to"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_special_tensors_keep_what_they_are(device):
    z = torch.randn(3, 4, dtype=torch.complex64)
    parameter = nn.Parameter(torch.randn(2, 3))
    frozen = nn.Parameter(torch.randn(2), requires_grad=False)
    half = torch.randn(6).bfloat16()[::2]
    values = (z.conj(), z.imag, z.conj().imag, parameter, frozen, half, torch.empty(0, 3), torch.tensor(7), z)
    placed = place(*values, device=device)
    for mine, wanted in zip(placed.args, values, strict=True):
        same_geometry(mine, wanted)
    assert placed.leaves[3] is placed.args[3] and placed.leaves[4] is None


def test_one_storage_with_several_dtypes():
    floats = torch.randn(8)
    values = (floats, floats.view(torch.int32)[2:], floats.view(torch.bfloat16)[1::2])
    placed = place(*values)
    for mine, wanted in zip(placed.args, values, strict=True):
        same_geometry(mine, wanted)
    placed.args[1].zero_()
    assert not placed.args[0][2:].any() and placed.args[0][:2].all()
    wide = place(*values, device="cpu", request=Request("wide"))
    assert [tensor.dtype for tensor in wide.args] == [torch.float64, torch.int32, torch.float64]
    for mine, wanted in zip(wide.args, values, strict=True):
        assert torch.equal(mine, wanted.to(mine.dtype))


def test_the_runs_of_the_judge_have_wide_or_moved_arguments():
    base = torch.randn(4, 6).half()
    values, dtype = (base[:, ::2], base.t(), 0.3, (2.0, 0.7)), {"dtype": torch.bfloat16}
    placed = Placement(values, dtype, "cpu", request=Request("wide")).make()
    assert placed.kwargs == {"dtype": torch.float64} and placed.args[2:] == values[2:]
    for mine, wanted in zip(placed.args[:2], values[:2], strict=True):
        assert mine.dtype == torch.float64 and torch.equal(mine, wanted.double())
    request = Request("shaken", 0.0, False, 7)
    placed = Placement(values, dtype, "cpu", request=request).make()
    for index, (mine, wanted) in enumerate(zip(placed.args[:2], values[:2], strict=True)):
        assert torch.equal(mine, request.move(wanted, index))
        assert 0 < ((mine - wanted.double()) / wanted.double()).abs().max() <= 2**-11
    number, (two, pair) = placed.args[2:]
    assert two == 2.0 and 0 < abs(number / 0.3 - 1) <= 2**-24 and 0 < abs(pair / 0.7 - 1) <= 2**-24
    placed = Placement(values, dtype, "cpu", request=Request("jitter", 4.0, True, 7)).make()
    assert placed.kwargs == {"dtype": torch.float32} and placed.args[0].dtype == torch.float32
    exact = Placement(values, dtype, "cpu", request=Request("wide"), exact=True).make()
    assert exact.kwargs == dtype and torch.equal(exact.args[0], values[0]) and exact.args[0].dtype == torch.float16


def test_arguments_that_overlap_and_are_written_to_stay_as_they_are():
    base = torch.randn(6)
    placed = Placement((base[1:], base[:-1]), {}, "cpu", request=Request("wide"), writes=True).make()
    placed.args[0].zero_()
    assert placed.args[0].dtype == torch.float32 and not placed.args[1][1:].any()


def test_gradients_are_moved_beside_the_arguments(capture):
    x = torch.randn(3, 4, device="cuda", requires_grad=True)
    (ref,) = [ref for ref in capture(lambda: torch.tanh(x).sum().backward()) if ref.operator.endswith("tanh")]
    case = load_case(ref)
    case.grad_outputs = (torch.rand(3, 4) + 1,)
    request = Request("shaken", 2.0**-10, False, 3)
    runner = OpRunner(case, device="cpu", request=request, quiet=True)
    runner.run_forward()
    ((_, grad),) = runner.get_backward_pairs()
    assert torch.equal(grad, request.move(case.grad_outputs[0], 0, gradient=True))
    assert not torch.equal(grad, request.move(case.grad_outputs[0], 0)), "other numbers than for argument 0"


def test_random_views_come_back_equal():
    seed = 20260817
    choice = random.Random(seed)
    dtypes = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8)
    for _ in range(200):
        dtype = choice.choice(dtypes)
        storage = torch.randint(0, 2, (choice.randint(1, 200),)).to(dtype)
        views = []
        for _ in range(choice.randint(1, 4)):
            shape = [choice.randint(0, 4) for _ in range(choice.randint(0, 4))]
            stride = [choice.randint(0, 5) for _ in shape]
            reach = sum((size - 1) * step for size, step in zip(shape, stride, strict=True) if size)
            if reach < storage.numel():
                views.append(storage.as_strided(shape, stride, choice.randint(0, storage.numel() - 1 - reach)))
        placed = Placement(tuple(views), {}, "cuda").make()
        for mine, wanted in zip(placed.args, views, strict=True):
            same_geometry(mine, wanted), f"seed {seed}"


def test_containers_devices_and_generators_follow():
    generator = torch.Generator().manual_seed(5)
    args = ([torch.ones(2), {"x": torch.ones(3)}], torch.device("cuda:3"), "cuda:1", "cpu", "mean", torch.device("cpu"))
    placed = Placement(args, {"device": "cuda", "generator": generator}, "cpu").make()
    assert placed.args[1:] == (torch.device("cpu"), "cpu", "cpu", "mean", torch.device("cpu"))
    assert placed.kwargs["device"] == "cpu" and placed.kwargs["generator"] is not generator
    assert torch.equal(placed.kwargs["generator"].get_state(), generator.get_state())
    assert [tensor.numel() for tensor in placed.tensors] == [2, 3]


def test_tensors_that_were_on_the_cpu_stay_there(capture):
    x = torch.randn(4, 5, device="cuda")
    index = torch.tensor([2, 0])
    (ref,) = capture(lambda: x[index])
    runner = run(ref)
    assert runner.args[1].device.type == "cpu" and runner.args[0].device.type == "cuda"
    assert torch.equal(runner.result, x[index])
    (ref,) = capture(lambda: torch.add(x, torch.tensor(2.5)))
    assert run(ref).args[1].device.type == "cpu"


def test_sparse_tensors_are_moved():
    x = torch.eye(3).to_sparse()
    placed = place(x, device="cpu")
    assert placed.args[0].layout == torch.sparse_coo and placed.args[0] is not x
    assert torch.equal(placed.args[0].to_dense(), torch.eye(3))


def test_an_argument_that_is_only_described_is_an_error():
    with pytest.raises(PlacementError, match="only a description of an argument"):
        place(Described("object", {"type": "a.B", "text": "<B>"}))
    with pytest.raises(ValueError, match="valid: leaf, inner, none"):
        Placement((), {}, "cpu").make("other")


def test_tools_that_are_on_do_not_see_the_runner_itself(capture):
    from op_tools import OpObserve

    x = torch.randn(3, device="cuda", requires_grad=True)
    ref = capture(lambda: torch.exp(x).sum().backward())[0]
    runner = OpRunner(ref, quiet=True)
    with OpObserve(console="off", log=False, cpu=True) as tool:
        runner.run_forward()
        runner.run_backward()
    assert tool.counts()["applied"] == 1


# State


def test_autocast_is_applied():
    x = torch.randn(3, 4)
    case = Case("torch.mm", (x, x.t()), {}, meta={"autocast": {"cuda": {"enabled": True, "dtype": "bfloat16"}}})
    assert run(case).result.dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cuda")
    case.meta["autocast"] = {"cuda": {"enabled": False, "dtype": "bfloat16"}}
    assert run(case).result.dtype == torch.float32


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_random_states_are_applied_and_taken_back(device):
    torch.manual_seed(11)
    state = torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state()
    wanted = torch.rand(5, device=device)
    after = torch.rand(1, device=device)
    case = Case("torch.rand", (5,), {"device": torch.device("cuda")}, meta={"random": {device: state}})
    torch.manual_seed(12)
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    runner = run(case, device=device)
    assert torch.equal(runner.result, wanted) and runner.random == {device}
    runner.run_forward()
    assert torch.equal(runner.result, wanted) and not torch.equal(runner.result[:1], after)
    assert torch.equal(before[0], torch.get_rng_state()) and torch.equal(before[1], torch.cuda.get_rng_state())


def test_determinism_and_grad_mode_are_applied_and_taken_back():
    seen = []

    class Hook(OpRunnerHook):
        def before_forward(self):
            plain = self.runner.func

            def call(*args):
                seen.append((torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()))
                return plain(*args)

            self.runner.func = call

    x = torch.randn(3, requires_grad=True)
    for meta in ({"deterministic": True}, {"grad_enabled": False}, {"inference": True}, {}):
        run(Case("torch.exp", (x,), {}, meta=meta), hook=Hook())
    assert seen == [(True, True), (False, False), (False, False), (False, True)]
    assert not torch.are_deterministic_algorithms_enabled() and torch.is_grad_enabled()


# Names


@pytest.mark.parametrize(
    "name",
    [
        *("torch.mm", "torch.nn.functional.embedding", "torch.Tensor.add_", "torch.Tensor.__setitem__", "aten::addmm"),
        *("aten::add.Tensor", "_foreach_add_", "torch.arange", "torch.einsum", "torch.fft.rfft", "torch.linalg.inv"),
        *("torch.nn.init.uniform_", "aten.slice.Tensor", "aten._softmax", "torch.nn.functional.hardswish"),
        *("torch.Tensor.T.__get__", "torch.Tensor.cuda", "torch._C._nn.gelu", "torch.tensor"),
    ],
)
def test_operators_are_found(name):
    assert callable(find_function(name))


def test_the_function_of_the_module_wins_over_the_native_one_of_the_same_name():
    assert find_function("torch.nn.functional.embedding") is F.embedding
    assert find_function("torch.norm") is torch.norm


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "builtins.eval", "torch.os.system", "torch.load", "torch.save", "torch.hub.load", "aten::save"),
        *(
            "torch.from_file",
            "aten::from_file",
            "aten::from_file.out",
            "aten.from_file.default",
            "torch.utils.checkpoint.checkpoint",
        ),
        *("torch.compile", "torch.Tensor.apply_", "torch.Tensor.__reduce_ex__", "torch.Tensor.__class__", "torch.ad"),
        *("torch.nn.functional.handle_torch_function", "torch.nn.init.torch", "torch.nn.functional.torch.os.system"),
        *("", "torch", "torch.", "torch..mm", "torch.Tensor.", "torch.Tensor.a b", "aten::", "prim::Print", "x::y"),
        *("torch.set_default_device", "torch.Tensor.__init__", "torch.Tensor.grad.__set__", "torch._dynamo.reset"),
    ],
)
def test_a_capture_cannot_make_anything_else_run(name):
    with pytest.raises(LookupFailure):
        find_function(name)


def test_functions_among_the_arguments_are_operators_or_refused(tmp_path):
    x = torch.ones(2, 3)
    target = tmp_path / "touched"
    code = f"open({str(target)!r}, 'w')"
    name = "torch.nn.functional.triplet_margin_with_distance_loss"
    with pytest.raises(LookupFailure, match="which an operator could call"):
        run(Case(name, (code, {}, {}), {"distance_function": exec}))
    assert not target.exists()
    for function in (eval, os.system, torch.load, type, os.path.join, torch.utils.checkpoint.checkpoint):
        with pytest.raises(LookupFailure):
            run(Case(name, (x, x, x), {"distance_function": function}))
    assert run(Case(name, (x, x, x), {"distance_function": F.pairwise_distance})).result is not None
    assert run(Case("torch.Tensor.type", (x, torch.DoubleTensor), {}), device="cpu").result.dtype == torch.float64


def test_functions_of_other_packages_only_when_they_are_allowed():
    with pytest.raises(LookupFailure, match="--allow-module"):
        find_function("math.hypot")
    assert find_function("math.hypot", ["math"])(3.0, 4.0) == 5.0
    with pytest.raises(LookupFailure):
        find_function("mathx.hypot", ["math"])
    with pytest.raises(LookupFailure):
        find_function("math.missing", ["math"])
