"""OpOverflowCheck: the operator that makes a NaN or Inf is named, the innocent ones are not.

Every test runs twice: with host memory read at once, and through the slots and the queue that serve a CUDA device.
"""

import gc
import os
import re
import sys
import threading
import weakref
from pathlib import Path

import ditorch
import pytest
import torch
import torch.nn.functional as F
from conftest import open_memory
from ditorch import _C
from op_tools import OpOverflowCheck

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    ditorch.fault("")


class Deferred(OpOverflowCheck):
    """As on a device: nothing is known before the slots are read."""

    def engine_options(self, options):
        return {**super().engine_options(options), "deferred": True}


@pytest.fixture(params=[OpOverflowCheck, Deferred], ids=["at once", "deferred"])
def check(request):
    return request.param


def named(tool, verdict="producer"):
    return [(finding["name"].rpartition(".")[2], finding["kind"]) for finding in tool.findings(verdict)]


def mlp():
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Softmax(-1), torch.nn.Linear(12, 3)
    ).cuda()


def train(model, steps=1, tool=None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(4, 6, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if tool is not None:
            tool.step()
    return losses


# Injected faults


@pytest.mark.parametrize("operator, name", [("gelu", "gelu"), ("_softmax", "softmax"), ("pow", "square")])
def test_a_faulty_forward_is_named_and_nobody_else(check, operator, name):
    model = mlp()
    with ditorch.fault(f"nan:aten::{operator}*,call=1") as fault, check() as tool:
        train(model)
        assert fault.count == 1
    assert named(tool) == [(name, "forward")]
    (finding,) = tool.findings()
    assert (finding["verdict"], finding["reason"], finding["input_values"]) == ("producer", "inputs finite", "finite")
    assert finding["nan"] > 0 and finding["inf"] == 0
    facts = tool.describe()
    assert facts["forward"]["propagator"] > 0 and facts["unchecked"] == 0


@pytest.mark.parametrize(
    "operator, name", [("gelu_backward", "gelu"), ("_softmax_backward_data", "softmax"), ("div.Scalar", "mean")]
)
def test_a_faulty_backward_is_named_and_nobody_else(check, operator, name):
    model = mlp()
    with check() as tool:
        loss = model(torch.randn(4, 6, device="cuda")).square().mean()
        with ditorch.fault(f"nan:aten::{operator}*,call=1") as fault:
            loss.backward()
            assert fault.count == 1
    assert named(tool) == [(name, "backward")]
    (finding,) = tool.findings()
    assert finding["nan"] > 0 and finding["in"][0]["tensor"] == "grad_out.0"
    assert finding["in"][0]["values"] == "finite" and "nan" in finding["out"][0]["values"]


@pytest.mark.parametrize("call", [1, 4])
def test_a_faulty_in_place_operator_of_the_optimizer(check, call):
    model = mlp()
    with ditorch.fault(f"nan:aten::addcdiv_*,call={call}"), check() as tool:
        train(model)
    assert named(tool) == [("addcdiv_", "forward")]


def test_without_a_fault_there_is_no_finding(check, capsys):
    model = mlp()
    with check() as tool:
        train(model, 3, tool)
    assert tool.findings(None) == []
    facts = tool.describe()
    assert facts["checked"] > 100 and facts["unchecked"] == 0 and facts["dropped"] == 0
    assert "clean: no operator made a NaN or Inf in" in capsys.readouterr().err


def test_after_the_fault_is_gone_so_is_the_finding(check):
    tool = check()
    x = torch.randn(8, device="cuda")
    with ditorch.fault("nan:mul"), tool:
        x * 2
    assert named(tool) == [("mul", "forward")]
    with tool:
        x * 2
    assert tool.findings() == []


# Who made it


def test_producer_propagator_and_repeats(check, capsys):
    with check() as tool:
        for _ in range(4):
            x = torch.tensor([1.0, 0.0], device="cuda")
            y = 1 / x
            z = y + 1
            z * 2
            tool.step()
    assert named(tool) == [("__rtruediv__", "forward")] or named(tool) == [("reciprocal", "forward")]
    (finding,) = tool.findings()
    assert (finding["count"], finding["step"] + 3, finding["inf"]) == (4, finding["last_step"], 1)
    assert tool.describe()["forward"] == {"producer": 4, "propagator": 8, "allowed": 0}
    assert {name for name, _ in named(tool, "propagator")} == {"add", "mul"}
    text = capsys.readouterr().err
    assert text.count(" made 1 Inf, 0 NaN of 2 (inputs finite)") == 1  # told once, counted four times
    assert "forward_id" in text and text.count("forward_id") == 1


def test_nan_out_of_infinities_is_new(check):
    """The fully masked row of an attention: -inf is intended, the NaN is not."""
    with check() as tool:
        scores = torch.randn(2, 4, device="cuda")
        mask = torch.ones(2, 4, device="cuda", dtype=torch.bool)
        scores.masked_fill(mask, -INF).softmax(-1)
    assert named(tool) == [("softmax", "forward")]
    assert tool.findings()[0]["reason"] == "NaN from Inf"
    assert named(tool, "allowed") == [("masked_fill", "forward")]


def test_a_mask_is_found_guilty_even_beside_an_overflow_of_the_same_step(check):
    with check() as tool:
        torch.tensor([1e38], device="cuda") * 1e10
        torch.full((1, 3), -INF, device="cuda").softmax(-1)
    assert [name for name, _ in named(tool)] == ["mul", "softmax"]


def test_nan_that_follows_a_reported_overflow_is_passed_on(check):
    with check() as tool:
        x = torch.tensor([1e38], device="cuda") * 1e10
        x - x
    assert [name for name, _ in named(tool)] == ["mul"]


def test_bad_inputs_from_outside_are_told_once(check, capsys):
    weights = torch.tensor([1.0, NAN], device="cuda")
    with check() as tool:
        (weights * 2) + 1
        weights - 1
    assert [f["reason"] for f in tool.findings()] == ["source not watched"]
    assert tool.findings()[0]["verdict"] == "propagator"
    assert "made by something that is not watched" in capsys.readouterr().err


def test_backward_of_a_forward_that_was_bad_is_passed_on(check):
    x = torch.tensor([-1.0, 4.0], device="cuda", requires_grad=True)
    with check() as tool:
        torch.log(x).sum().backward()
    assert named(tool) == [("log", "forward")]


def test_backward_makes_infinity_from_finite_forward(check):
    x = torch.tensor([0.0, 4.0], device="cuda", requires_grad=True)
    with check() as tool:
        torch.sqrt(x).sum().backward()
    assert named(tool) == [("sqrt", "backward")]
    assert tool.findings()[0]["inf"] == 1


def test_where_trick_names_the_division_and_its_backward(check):
    """NaN behind torch.where: the forward result is clean again, the gradient is not."""
    x = torch.tensor([0.0, 2.0], device="cuda", requires_grad=True)
    with check() as tool:
        torch.where(x > 0, torch.sqrt(x - 0.0), torch.zeros_like(x)).sum().backward()
    assert ("sqrt", "backward") in named(tool)
    assert ("where", "backward") not in named(tool) and ("where", "forward") not in named(tool)


# What is intended


@pytest.mark.parametrize(
    "make",
    [
        lambda x, m: x.masked_fill(m, -INF),
        lambda x, m: x.clone().masked_fill_(m, -INF),
        lambda x, m: torch.full((3,), INF, device="cuda"),
        lambda x, m: torch.full_like(x, -INF),
        lambda x, m: x.new_full((2,), -INF),
        lambda x, m: torch.where(m, x, -INF),
        lambda x, m: torch.tensor([0.0, -INF], device="cuda"),
        lambda x, m: x.clone().fill_(NAN),
        lambda x, m: torch.triu(torch.full((3, 3), -INF, device="cuda"), 1) + x,
        lambda x, m: torch.empty(1000, device="cuda"),
        lambda x, m: x + float("-inf"),
        lambda x, m: x.clone().index_fill_(0, torch.tensor([1], device="cuda"), -INF),
        lambda x, m: (x.masked_fill(m, -INF) + x).softmax(-1),
    ],
)
def test_masks_and_constants_are_allowed(check, make):
    x = torch.ones(3, device="cuda")
    mask = torch.tensor([True, False, True], device="cuda")
    with check() as tool:
        make(x, mask)
    assert tool.findings() == []


def test_a_mask_that_was_made_before_the_start_is_no_finding(check):
    mask = torch.full((4, 4), -INF, device="cuda").triu(1)
    with check() as tool:
        (torch.randn(4, 4, device="cuda") + mask).softmax(-1).sum()
    assert tool.findings() == []


def test_setitem_of_a_constant(check):
    x = torch.zeros(4, device="cuda")
    with check() as tool:
        x[1] = -INF
    assert tool.findings() == [] and [name for name, _ in named(tool, "allowed")] == ["__setitem__"]


def test_causal_attention_is_clean(check):
    q = torch.randn(2, 2, 5, 4, device="cuda", requires_grad=True)
    with check() as tool:
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).cuda()
        mask = torch.nn.Transformer.generate_square_subsequent_mask(5, device="cuda")
        layer(torch.randn(2, 5, 8, device="cuda"), src_mask=mask).sum().backward()
    assert tool.findings() == []


def test_allow_list(check):
    x = torch.zeros(3, device="cuda")
    with check(allow_list="torch.log") as tool:
        torch.log(x)
        torch.log2(x)
    assert [name for name, _ in named(tool)] == ["log2"]
    assert [name for name, _ in named(tool, "allowed")] == ["log"]


def test_bad_allow_list_is_refused_at_start(check):
    tool = check(allow_list="torch.(")
    with pytest.raises(ValueError, match=r"ALLOW_LIST|allow_list"):
        tool.start()
    assert not tool.is_active


# Defects of the original


def test_o1_empty_single_double_and_complex(check):
    with check() as tool:
        torch.empty(0, 3, device="cuda") * 2
        torch.zeros(0, device="cuda").sum()
        torch.ones(1, device="cuda") * 3
        torch.tensor([1e300], device="cuda", dtype=torch.float64) * 1e5  # beyond float32, finite in float64
        torch.tensor([1 + 2j], device="cuda") * 2
        torch.ones((), device="cuda").exp()
    assert tool.findings(None) == []
    with check() as tool:
        torch.tensor([1e300], device="cuda", dtype=torch.float64) * 1e10
        torch.tensor([complex(1, 1e38)], device="cuda") * 1e3
        torch.tensor([7e4], device="cuda").half()
        torch.zeros(1, device="cuda").log()
    assert [name for name, _ in named(tool)] == ["mul", "mul", "half", "log"]
    assert [finding["numel"] for finding in tool.findings()] == [1, 1, 1, 1]


def test_o1_integers_and_bools_are_never_bad(check):
    with check() as tool:
        torch.tensor([2**62], device="cuda") * 4
        torch.tensor([True], device="cuda") | True
        torch.arange(5, device="cuda")
    assert tool.findings(None) == []


def test_o2_only_findings_are_printed(check, capsys):
    with check() as tool:
        for _ in range(50):
            torch.ones(3, device="cuda") * 2
        torch.zeros(2, device="cuda").log()
    text = capsys.readouterr().err
    (finding,) = tool.findings()
    assert text.count("torch.Tensor.log made 2 Inf, 0 NaN of 2 (inputs finite)\n") == text.count("forward_id") == 1
    assert f"  call   step {finding['step']}, forward_id {finding['id']}\n" in text
    assert "  inputs in.0 float32[2] min 0 max 0" in text and f"{os.path.basename(__file__)}:" in text


def test_o2_module_path(check, capsys):
    model = mlp()
    with ditorch.fault("nan:aten::gelu*"), check(module_paths=True) as tool:
        model(torch.randn(4, 6, device="cuda"))
    assert tool.findings()[0]["module"].endswith("1")
    assert "\n  module " in capsys.readouterr().err


def test_o3_statistics_come_with_the_finding_alone(check):
    with check() as tool:
        torch.tensor([3.0, -2.0, 0.0], device="cuda").log()
    (finding,) = tool.findings()
    inside, outside = finding["in"][0], finding["out"][0]
    assert (inside["min"], inside["max"], inside["zero"], inside["nan"]) == (-2.0, 3.0, 1, 0)
    assert inside["mean"] == pytest.approx(1 / 3) and inside["norm"] == pytest.approx(13**0.5)
    assert (outside["nan"], outside["neg_inf"], outside["pos_inf"]) == (1, 1, 0)
    assert (finding["nan"], finding["inf"], finding["numel"]) == (1, 1, 3)
    with check(stats=False) as tool:
        torch.zeros(2, device="cuda").log()
    assert "min" not in tool.findings()[0]["in"][0] and named(tool) == [("log", "forward")]


def test_o4_inputs_overwritten_in_place_are_judged_as_they_were(check):
    with check() as tool:
        x = torch.tensor([1.0, 0.0], device="cuda")
        x.div_(0)
        x.add_(1)
    assert [name for name, _ in named(tool)] == ["div_"]
    (finding,) = tool.findings()
    before = next(tensor for tensor in finding["in"] if tensor["tensor"] == "in.0")
    assert before["when"] == "before" and before["values"] == "finite"
    assert (finding["inf"], finding["nan"], finding["numel"]) == (1, 1, 2)
    assert [name for name, _ in named(tool, "propagator")] == ["add_"]


def test_o4_an_operand_that_is_also_the_target_counts_once(check):
    with check() as tool:
        x = torch.zeros(3, device="cuda")
        x.div_(x)
    assert tool.findings()[0]["numel"] == 3


def test_o4_in_place_through_a_view_and_by_inplace_argument(check):
    with check() as tool:
        base = torch.zeros(4, device="cuda")
        base[1:3].log_()
        y = torch.full((3,), -1e300, device="cuda", dtype=torch.float64)
        F.leaky_relu(y, 1e100, inplace=True)
        F.relu(torch.ones(3, device="cuda"), inplace=True)
    assert [name for name, _ in named(tool)] == ["log_", "leaky_relu"]
    assert [finding["input_values"] for finding in tool.findings()] == ["finite", "finite"]


def test_o4_keyword_arguments_and_out(check):
    a, b = torch.ones(3, device="cuda"), torch.zeros(3, device="cuda")
    garbage = torch.full((3,), NAN, device="cuda")
    with check() as tool:
        torch.div(input=a, other=b)
        torch.mul(a, 2, out=garbage)  # what was in the target before is no input
        for _ in range(2):
            torch.div(a, b, out=torch.full((3,), NAN, device="cuda"))
        torch.add(input=a, other=garbage)
    assert [(finding["name"], finding["count"]) for finding in tool.findings()] == [("torch.div", 1), ("torch.div", 2)]
    assert tool.findings(verdict="propagator") == []


def test_o4_foreach_lists(check):
    with check() as tool:
        tensors = [torch.ones(2, device="cuda") for _ in range(70)]
        torch._foreach_mul_(tensors, 2.0)
        tensors[66].fill_(3e38)
        torch._foreach_mul_(tensors, 1e10)
    assert [name for name, _ in named(tool)] == ["_foreach_mul_"]


def test_retain_graph_counts_rounds(check):
    x = torch.tensor([0.0, 1.0], device="cuda", requires_grad=True)
    with check() as tool:
        loss = torch.sqrt(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    (finding,) = tool.findings()
    assert finding["count"] == 2 and finding["round"] == 0


def test_one_tensor_that_feeds_several_operators(check):
    """One tensor feeding several ops: the gradient that overflows is the one of its own operator."""
    x = torch.tensor([0.0, 1.0], device="cuda", requires_grad=True)
    with check() as tool:
        a, b, c = torch.sqrt(x), torch.exp(x), x * 2
        (a + b + c).sum().backward()
    assert named(tool) == [("sqrt", "backward")]


def test_gradient_of_a_composite_operator(check):
    """A NaN made deep inside a composite's backward is the composite's, and nobody else's."""
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).cuda()
    x = torch.randn(2, 5, 8, device="cuda", requires_grad=True)
    with ditorch.fault("nan:_softmax_backward_data*,call=1") as fault, check() as tool:
        layer(x, x, x, need_weights=True)[0].sum().backward()
        assert fault.count == 1
    (finding,) = tool.findings()
    assert finding["kind"] == "backward"
    assert finding["name"].endswith(("multi_head_attention_forward", "softmax")), finding["name"]


def test_a_copy_to_the_host_that_is_under_way_is_not_read(check):
    stream = torch.cuda.Stream()
    with check() as tool, torch.cuda.stream(stream):
        x = torch.ones(1000, device="cuda")
        y = (x * 2).to("cpu", non_blocking=True)
        torch.zeros(1000, device="cuda").copy_(y, non_blocking=True)
    stream.synchronize()
    assert tool.findings(None) == [] and tool.describe()["unchecked"] == 0


def test_numbers_on_the_cpu_among_device_tensors(check):
    with check() as tool:
        x = torch.ones(3, device="cuda")
        x * torch.tensor(2.0)
        x * torch.tensor(INF)  # an infinity of the caller's own, made before: passed on
        x / torch.tensor(0.0)
    assert tool.describe()["unchecked"] == 0
    assert [name for name, _ in named(tool) if name == "div"] == ["div"]


# Every dtype, layout and place


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_dtypes(check, dtype):
    with check() as tool:
        x = torch.ones(5, device="cuda", dtype=dtype)
        x * 2
        x / torch.zeros(5, device="cuda", dtype=dtype)
    assert [name for name, _ in named(tool)] == ["div"]


def test_strided_and_conjugated_views(check):
    with check() as tool:
        x = torch.arange(12.0, device="cuda").view(3, 4)
        x.t()[1:, ::2].log()  # no zero inside
        x.t()[:, :1].contiguous().view(-1)[1:].log()
        z = torch.tensor([1 + 1j, 2 + 0j], device="cuda").conj()
        z * 2
        x.t().log()
    assert [(name, kind) for name, kind in named(tool)] == [("log", "forward")]
    assert tool.findings()[0]["inf"] == 1


def test_tensors_that_are_resized_or_moved_in_place(check):
    """What was known of an argument before the call is not read after it: its sizes and its memory may be gone."""
    with check() as tool:
        x = torch.ones(2, 3, 1, 1, 1, 1, 1, device="cuda")
        x.squeeze_()
        x.t_()
        y = torch.ones(4, device="cuda")
        y.resize_(3, 1, 1, 1, 1, 1, 1, 1000)
        y.zero_()
        z = torch.ones(2, device="cuda")
        z.set_(torch.ones(5, device="cuda"))
        z.data = torch.ones(7, device="cuda")
        torch.add(x, 1, out=torch.empty(0, device="cuda"))
        y.log_()
    assert [name for name, _ in named(tool)] == ["log_"]
    assert tool.findings()[0]["inf"] == 3000 and tool.describe()["unchecked"] == 0


def test_views_of_bad_memory_are_not_news(check):
    with check() as tool:
        x = torch.zeros(2, 2, device="cuda").log()
        x.view(4), x.t(), x.detach(), x.reshape(-1), x[1:]
    assert [name for name, _ in named(tool)] == ["log"]


def test_side_stream(check):
    stream = torch.cuda.Stream()
    with check() as tool, torch.cuda.stream(stream):
        x = torch.ones(3, device="cuda")
        for _ in range(20):
            x = x * 1.5
        x / 0
    assert [name for name, _ in named(tool)] == ["div"]


def test_cpu_tensors_on_request(check):
    with check(cpu=True) as tool:
        torch.zeros(3).log()
    assert [name for name, _ in named(tool)] == ["log"]
    with check() as tool:
        torch.zeros(3).log()
    assert tool.findings() == []


def test_threads(check):
    def work():
        for _ in range(150):
            (torch.ones(4, device="cuda") * 2).exp()
            torch.zeros(2, device="cuda").log()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with check(threads="all") as tool:
            workers = [threading.Thread(target=work) for _ in range(3)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    finally:
        sys.setswitchinterval(interval)
    (finding,) = tool.findings()
    assert finding["name"].endswith("log") and finding["count"] == 450
    assert tool.describe()["unchecked"] == 0


def test_level_aten(check):
    with ditorch.fault("nan:aten::addmm*"), check(level="aten") as tool:
        F.linear(torch.ones(2, 3, device="cuda"), torch.ones(4, 3, device="cuda"), torch.ones(4, device="cuda"))
    assert tool.findings()[0]["name"] == "aten::addmm"


def test_devices_without_a_helper_are_read_by_torch():
    from op_tools.overflow_check import get_flags, get_stats

    for values, flags in (([1.0, 2.0], 0), ([1.0, NAN], 1), ([1.0, -INF], 2), ([NAN, INF, 0.0], 3)):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            assert get_flags(torch.tensor(values, dtype=dtype)) == flags, (values, dtype)
    assert get_flags(torch.tensor([complex(0, NAN), complex(INF, 0)])) == 3
    assert get_flags(torch.tensor([1.0, NAN]).to(torch.float8_e5m2)) == 1
    stats = get_stats(torch.tensor([3.0, NAN, -INF, 0.0]))
    assert (stats["nan"], stats["neg_inf"], stats["pos_inf"], stats["zero"]) == (1, 1, 0, 1)
    assert stats["min"] == -INF and stats["max"] == 3.0
    assert get_stats(torch.tensor([2.0]))["norm"] == 2.0


# Mixed precision


def test_gradient_scaler_makes_overflow_expected(check, capsys):
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**30)
    with check() as tool:
        for _ in range(3):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(torch.randn(4, 8, device="cuda") * 100).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            tool.step()
    assert scaler.get_scale() < 2.0**30  # it did overflow
    backward = [finding for finding in tool.findings() if finding["kind"] == "backward"]
    assert backward == []
    facts = tool.describe()
    assert facts["scaled"] > 0 and facts["backward"]["producer"] == 0
    assert "seen by the gradient scaler" in capsys.readouterr().err


def train_with_scaler(tool, factor, steps, scale):
    """Gradients of `scale` times `factor` squared go through float16."""
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=scale)
    for _ in range(steps):
        out = (model(torch.ones(4, 8, device="cuda")) * 1e-4).half()
        loss = (out * factor * factor).float().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        tool.step()
    return scaler.get_scale()


@pytest.mark.parametrize("options", [{"save": True}, {"stop": True}, {"stop": True, "save": True}])
def test_what_saves_or_stops_waits_for_the_scaler_too(check, options, tmp_path):
    with check(**options) as tool:
        assert train_with_scaler(tool, 16, 4, 2.0**10) < 2.0**10  # it did overflow
        facts = tool.describe()
    assert tool.findings() == [] and facts["scaled"] > 0 and facts["backward"]["producer"] == 0
    assert tool.saved() == []
    assert not list(tmp_path.rglob("*_backward"))  # what was saved in case is gone


def test_a_scaler_may_come_late_and_gradients_be_clipped_before_its_step(check):
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**30)
    with check() as tool:
        for _ in range(3):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(torch.randn(4, 8, device="cuda")).square().mean()
            scaler.scale(loss).backward()
            for _ in range(100):  # the recomputation of a checkpoint, another micro batch
                model(torch.randn(4, 8, device="cuda"))
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            tool.step()
    assert scaler.get_scale() == 2.0**27 and tool.describe()["scaled"] > 0
    assert tool.findings() == []


def test_a_scale_of_one_excuses_nothing(check):
    with check(save=True) as tool:
        assert train_with_scaler(tool, 300, 6, 4.0) < 1
    assert [kind for _, kind in named(tool)].count("backward") == 1
    assert tool.describe()["scaled"] == 2  # at 4 and at 2
    (folder,) = tool.saved()
    assert os.path.exists(os.path.join(folder, "grad_outputs.pth"))


def test_half_precision_without_a_scaler_is_saved_as_it_was(check):
    from op_tools.reader import load_item

    weight = torch.full((3,), 1e-3, device="cuda", dtype=torch.float16, requires_grad=True)
    with check(save=True) as tool:
        (weight * 300 * 300).sum().backward()
        weight.grad.zero_()
        tool.step()
    (folder,) = tool.saved()
    assert load_item(os.path.join(folder, "grad_outputs.pth"))["args"][0].tolist() == [300.0] * 3
    assert load_item(os.path.join(folder, "grad_inputs.pth"))["args"][0].tolist() == [INF] * 3


def test_without_a_scaler_the_same_overflow_is_told(check):
    model = torch.nn.Linear(8, 8).cuda()
    with check() as tool:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(4, 8, device="cuda") * 100).square().mean()
        (loss * 2.0**30).backward()
    assert any(kind == "backward" for _, kind in named(tool))


# Stop, save, limits


def test_stop_raises_where_it_happens(check):
    x = torch.zeros(3, device="cuda")
    tool = check(stop=True)
    with tool:
        with pytest.raises(FloatingPointError, match=r"torch.log made 3 Inf, 0 NaN of 3"):
            torch.log(x)
        (x + 1).log()
    assert [name for name, _ in named(tool)] == ["log"] and not tool.is_active


def test_stop_in_the_backward(check):
    x = torch.tensor([0.0, 1.0], device="cuda", requires_grad=True)
    with check(stop=True), pytest.raises(FloatingPointError, match=r"backward of torch.sqrt"):
        torch.sqrt(x).sum().backward()
    torch.sqrt(x + 1).sum().backward()  # the autograd engine is sound


def test_save_writes_what_the_operator_was_given(check, tmp_path):
    from op_tools.reader import load_item

    x = torch.tensor([0.0, 2.0], device="cuda", requires_grad=True)
    with check(save=True) as tool:
        torch.log(x, out=None)
        torch.sqrt(x).sum().backward()
    forward, backward = tool.saved()
    assert "op_overflow_check_results" in forward
    item = load_item(os.path.join(forward, "input.pth"))
    assert item["name"] == "torch.log" and item["args"][0].tolist() == [0.0, 2.0]
    assert load_item(os.path.join(forward, "output.pth"))["args"][0][0] == -INF
    assert load_item(os.path.join(backward, "grad_inputs.pth"))["args"][0].isinf().tolist() == [True, False]


def test_max_findings_limits_the_console_alone(check, capsys):
    x = torch.zeros(2, device="cuda")
    with check(max_findings=2) as tool:
        torch.log(x)
        torch.log2(x)
        torch.log10(x)
        torch.reciprocal(x)
    assert len(tool.findings()) == 4
    text = capsys.readouterr().err
    assert text.count("forward_id") == 2 and "2 findings told; more are only counted" in text


def test_records_of_findings(check):
    with check() as tool:
        torch.tensor([0.0, 1.0], device="cuda").log()
    (record,) = list(tool.records("finding"))
    assert (record["verdict"], record["kind"], record["inf"], record["nan"]) == ("producer", "forward", 1, 0)
    assert record["in.0.max"] == 1.0 and record["name"] == "torch.Tensor.log"
    assert os.path.basename(__file__) in record["location"]


# Life


def test_exceptions_in_the_middle(check):
    tool = check()
    with pytest.raises(KeyError), tool:
        torch.zeros(2, device="cuda").log()
        with pytest.raises(RuntimeError):
            torch.ones(3, device="cuda").add_(torch.ones(4, device="cuda"))
        raise KeyError
    assert [name for name, _ in named(tool)] == ["log"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_broken_allow_function_fails_no_operator():
    engine = _C.Tool("overflow", {"allow": lambda name: 1 / 0, "report": None, "log": False})
    engine.set_matcher(lambda name: True)
    engine.set_due(True)
    engine.start()
    try:
        torch.zeros(2, device="cuda").log()
    finally:
        engine.stop()
    assert [finding["verdict"] for finding in engine.describe()["findings"]] == ["producer"]


def test_nothing_is_kept_alive(check):
    tool = check()
    with tool:
        x = torch.zeros(4, device="cuda", requires_grad=True)
        y = torch.log(x)
        died = weakref.ref(x), weakref.ref(y)
        del x, y
        gc.collect()
        assert died[0]() is None and died[1]() is None
    died = weakref.ref(tool)
    del tool
    gc.collect()
    assert died() is None


@open_memory
def test_the_slots_run_over_without_loss():
    tensors = [torch.ones(2, device="cuda") for _ in range(200)]
    with Deferred() as tool:
        for index in range(100):
            if index == 70:
                tensors[150].fill_(1e38)
            torch._foreach_mul_(tensors, 1e10 if index == 71 else 1.0)
    facts = tool.describe()
    assert facts["reads"] > 1 and facts["unchecked"] == 0
    (finding,) = tool.findings()
    assert finding["name"] == "torch._foreach_mul_" and tool.describe()["forward"]["propagator"] == 28


def test_losses_are_bitwise_the_same(check):
    torch.manual_seed(1)
    bare = train(mlp(), 6)
    torch.manual_seed(1)
    with check():
        watched = train(mlp(), 6)
    assert bare == watched


def test_checkpoint_and_double_backward(check):
    from torch.utils.checkpoint import checkpoint

    x = torch.tensor([0.5, 2.0], device="cuda", requires_grad=True)
    with check() as tool:
        checkpoint(lambda t: t.exp().log(), x, use_reentrant=False).sum().backward()
        (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        gradient.sum().backward()
    assert tool.findings() == []


def test_inference_mode_and_no_grad(check):
    with check() as tool, torch.inference_mode():
        x = torch.ones(3, device="cuda")
        x.sub_(1).log_()
    assert [name for name, _ in named(tool)] == ["log_"]


# Tensors so large that a device reads flags first and statistics on demand

LARGE = 1 << 21


def test_large_tensors_have_their_numbers(check):
    x = torch.rand(LARGE, device="cuda") + 1
    x[12345], x[77] = -1, 0
    with check() as tool:
        torch.log(x).mul_(2)
    finding = next(found for found in tool.findings() if found["name"] == "torch.log")
    assert (finding["verdict"], finding["nan"], finding["inf"]) == ("producer", 1, 1)
    (given,), (made,) = finding["in"], finding["out"]
    assert given["values"] == "finite" and given["min"] == -1 and given["max"] == pytest.approx(x.max().item())
    assert made["nan"] == 1 and made["max"] == pytest.approx(x.max().log().item())


@pytest.mark.parametrize("bad", [NAN, INF])
def test_large_inputs_that_are_bad_make_no_producer(check, bad):
    x = torch.rand(LARGE, device="cuda")
    x[5] = bad
    with check() as tool:
        torch.sin(x.clone())
    assert not [name for name, _ in named(tool) if name == "sin"] or bad == INF
    y, w = torch.rand(LARGE, device="cuda"), torch.rand(LARGE, device="cuda", requires_grad=True)
    with check() as tool:
        (y * w).sum().backward()
        with torch.no_grad():
            w.add_(y)
    assert not tool.findings() and tool.describe()["unchecked"] == 0


def test_a_large_masked_nan_is_passed_on_by_the_backward(check):
    x = torch.rand(LARGE, device="cuda")
    x[9] = NAN
    x.requires_grad_()
    with check() as tool:
        torch.where(x.detach() > 0, x, 0.0).mul(2).sqrt().sum().backward()  # the gradient of sqrt at 0 is infinite
    assert named(tool) == [("sqrt", "backward")]


def list_carriers():
    source = Path(__file__).parents[2] / "python" / "ext" / "tools" / "overflow" / "effect.c"
    return re.findall(r'"(\w+)"', source.read_text().partition("passes_all[] = {")[2].partition("}")[0])


CARRIERS = {
    "layer_norm": lambda x, y: F.layer_norm(x, (8,), y[0]),
    "linear": lambda x, y: F.linear(x, y, y[0]),
    "rms_norm": lambda x, y: F.rms_norm(x, (8,), y[0]),
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "bmm": lambda x, y: torch.bmm(x[None], y[None]),
    **{word: lambda x, y, word=word: getattr(torch, word)(x, y) for word in ("add", "matmul", "mm", "mul", "sub")},
    **{word: lambda x, y, word=word: getattr(x + y, word)() for word in ("bfloat16", "clone", "contiguous")},
    **{word: lambda x, y, word=word: getattr(x + y, word)() for word in ("double", "float", "half", "neg")},
}


@pytest.mark.parametrize("word", list_carriers())
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_operators_that_carry_every_bad_value_on(word, bad):
    for place in range(2):
        for other in (0.0, 1.0, -2.0):
            x, y = torch.full((8, 8), other), torch.full((8, 8), other)
            (y if place else x)[0, 3] = bad
            assert not CARRIERS[word](x, y).isfinite().all(), (place, other)
