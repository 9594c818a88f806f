"""OpAutoCompare: wrong operators are named, right ones are not, and the program never notices."""

import gc
import os
import warnings

import ditorch
import psutil
import pytest
import torch
import torch.nn.functional as F
from ditorch import _C
from op_tools import OpAutoCompare, OpObserve, WrongResult
from torch import nn

DEVICE = "cuda"


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if "AUTOCOMPARE" in name or name.endswith("OP_DTYPE_CAST_DICT")]:
        monkeypatch.delenv(name)
    yield tmp_path
    ditorch.fault("")


sanitized = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer keeps freed memory"
)


def compare(**options):
    return OpAutoCompare(**{"console": "off", "save": False, **options})


def named(tool):
    return [(finding["name"].rpartition(".")[2], finding["kind"]) for finding in tool.findings()]


def lenet():
    torch.manual_seed(3)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 32), nn.ReLU()),
        nn.Linear(32, 10),
    ).to(DEVICE)


def train(optimizer, steps=2, **options):
    model = lenet()
    data, labels = torch.randn(4, 1, 28, 28, device=DEVICE), torch.randint(0, 10, (4,), device=DEVICE)
    parameters = [p for p in model.parameters() if p.ndim == 2] if optimizer == "Muon" else model.parameters()
    chosen = getattr(torch.optim, optimizer)(parameters, **options)

    def closure():
        chosen.zero_grad()
        loss = F.cross_entropy(model(data), labels)
        loss.backward()
        return loss

    losses = []
    for _ in range(steps):
        loss = chosen.step(closure) if optimizer == "LBFGS" else closure()
        if optimizer != "LBFGS":
            chosen.step()
        losses.append(loss.item())
    return [*losses, *(p.double().sum().item() for p in model.parameters())]


def check_quiet(program, **options):
    """The same results with the tool, and no accusation."""
    torch.manual_seed(11)
    wanted = program()
    torch.manual_seed(11)
    with compare(**options) as tool:
        got = program()
    assert str(got) == str(wanted)
    assert tool.findings() == [] and tool.ok
    facts = tool.describe()
    assert facts["forward"]["compared"] > 0
    return facts


# Clean programs

OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {"amsgrad": True},
    "AdamW": {"foreach": False},
    "Adagrad": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "LBFGS": {"max_iter": 3},
    "Rprop": {},
    "ASGD": {"t0": 0},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "Adadelta": {},
    "Adafactor": {},
    "Muon": {},
}
VARIANTS = [
    *OPTIMIZERS.items(),
    ("AdamW", {"foreach": True}),
    ("SGD", {"lr": 0.1, "foreach": True, "momentum": 0.9}),
    ("Adam", {"fused": True}),
    ("Adam", {"capturable": True}),
]


@pytest.mark.parametrize("name, options", VARIANTS, ids=[f"{name}-{'-'.join(options)}" for name, options in VARIANTS])
def test_a_training_step_with_every_optimizer(name, options):
    if not hasattr(torch.optim, name):
        pytest.skip(f"this torch has no {name}")
    facts = check_quiet(lambda: train(name, **options))
    assert facts["backward"]["compared"] >= 12
    assert facts["unable"] == {}


def lstm():
    model = nn.LSTM(6, 8, 2, batch_first=True).to(DEVICE)
    x = torch.randn(3, 5, 6, device=DEVICE, requires_grad=True)
    out, (h, c) = model(x)
    loss = out.square().mean() + h.sum() + c.mean()
    loss.backward()
    return loss.item(), x.grad.sum().item(), model.weight_hh_l1.grad.sum().item()


def attention():
    model = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True).to(DEVICE)
    x = torch.randn(3, 5, 16, device=DEVICE, requires_grad=True)
    loss = model(x).square().mean()
    loss.backward()
    return loss.item(), x.grad.sum().item()


def embedding():
    table = nn.Embedding(10, 4, max_norm=1.0, padding_idx=0).to(DEVICE)
    loss = table(torch.tensor([[1, 2], [3, 0]], device=DEVICE)).sum()
    loss.backward()
    with torch.no_grad():
        table.weight[3] = torch.zeros(4, device=DEVICE)
    return loss.item(), table.weight.grad.sum().item(), table.weight.sum().item()


def mixed(dtype):
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype):
            loss = F.mse_loss(model(torch.randn(3, 8, device=DEVICE)), torch.zeros(3, 4, device=DEVICE))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def checkpointed(reentrant):
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)).to(DEVICE)
    x = torch.randn(3, 8, device=DEVICE, requires_grad=True)
    loss = checkpoint(model, x, use_reentrant=reentrant).square().sum()
    loss.backward()
    return loss.item(), x.grad.sum().item(), model[0].weight.grad.sum().item()


def inplace_and_views():
    x = torch.randn(6, 6, device=DEVICE, requires_grad=True)
    y = x * 1
    y.div_(2)
    z = y.view(36)
    z.mul_(3)
    z[1:4] = 0.5
    loss = (y * y).sum() + (x * x).sum()
    loss.backward()
    a = x.detach().t()[::2]
    b = a + 1
    torch.exp(b, out=b)
    torch.add(a, 1, out=torch.empty_like(b))
    parts = torch.split(x, 2)
    sum(part.sum() for part in parts).backward()
    return loss.item(), x.grad.sum().item(), b.sum().item(), a.sort()[0].sum().item()


def special_results():
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    flags = [bool((x == x).all()), x.max().item(), x.tolist(), len(x), x.is_contiguous(), x.stride(), x.get_device()]
    x.untyped_storage()
    x.cpu(), x.to("cpu", torch.float64), torch.ones(3, device=DEVICE), torch.tensor([1, 2], device=DEVICE)
    copied = torch.zeros(2, 3)
    copied.copy_(x)
    empty = torch.empty(0, 3, device=DEVICE)
    (empty + 1).sum()
    with torch.inference_mode():
        (x + 1).add_(2)
    return flags, copied.sum().item(), x.max(dim=1).values.tolist(), torch.full((3,), float("nan"), device=DEVICE) + 1


PROGRAMS = {
    "lstm": lstm,
    "attention": attention,
    "embedding": embedding,
    "float16": lambda: mixed(torch.float16),
    "bfloat16": lambda: mixed(torch.bfloat16),
    "checkpoint": lambda: checkpointed(False),
    "reentrant": lambda: checkpointed(True),
    "views": inplace_and_views,
    "results": special_results,
}


@pytest.mark.parametrize("level", ["torch", "aten"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_left_alone(name, level):
    facts = check_quiet(PROGRAMS[name], level=level)
    if level == "torch" and name not in ("results", "views"):
        assert facts["backward"]["compared"] > 0


def test_random_operators_do_not_move_the_generators():
    """dropout, LSTM with dropout and attention with dropout on the device: the CPU's generator and the device's are
    where the program left them."""

    def program():
        x = torch.randn(4, 8, device=DEVICE)
        F.dropout(x, 0.3), torch.rand(3, device=DEVICE), x.clone().uniform_(), torch.randperm(7, device=DEVICE)
        nn.LSTM(8, 8, 2, dropout=0.4).to(DEVICE)(x[:, None])
        F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.2)
        return torch.rand(3).tolist(), torch.rand(3, device=DEVICE).tolist()

    torch.manual_seed(5)
    wanted = program()
    torch.manual_seed(5)
    with compare():
        got = program()
    assert got == wanted


# Wrong operators

FAULTS = [
    ("value:mm", "mm", lambda x: torch.mm(x, x)),
    ("value:gelu", "gelu", F.gelu),
    ("precision:mul,bits=6", "mul", lambda x: x * x),
    ("nan:exp", "exp", torch.exp),
    ("unwritten:add", "add", lambda x: x + x),
    ("value:add_", "add_", lambda x: x.clone().add_(1)),
    ("value:sort", "sort", torch.sort),
]


@pytest.mark.parametrize("rule, name, program", FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_wrong_operator_is_named(rule, name, program):
    x = torch.randn(6, 6, device=DEVICE)
    with ditorch.fault(rule) as fault, compare() as tool:
        program(x)
        assert fault.count > 0
    assert named(tool) == [(name, "forward")] and not tool.ok
    (finding,) = tool.findings()
    assert finding["what"] == "output" and finding["wrong"] >= 1 and finding["numel"] == 36
    assert "test_op_autocompare.py" in finding["location"]


BACKWARD = [
    ("value:gelu_backward", "gelu", F.gelu),
    ("value:_softmax_backward_data", "softmax", lambda x: F.softmax(x, -1)),
    ("precision:native_layer_norm_backward,bits=6", "layer_norm", lambda x: F.layer_norm(x, (6,))),
]


@pytest.mark.parametrize("rule, name, program", BACKWARD, ids=[fault[0] for fault in BACKWARD])
def test_a_wrong_backward_is_named(rule, name, program):
    x = torch.randn(6, 6, device=DEVICE, requires_grad=True)
    with ditorch.fault(rule) as fault, compare() as tool:
        (program(x) * torch.randn(6, 6, device=DEVICE)).sum().backward()
        assert fault.count > 0
    assert named(tool) == [(name, "backward")]
    assert tool.findings()[0]["what"] == "grad"


def test_an_input_that_must_not_change():
    """The result is right, but the operator wrote to its argument."""
    x = torch.randn(4, 4, device=DEVICE)
    with ditorch.fault("input:exp"), compare() as tool:
        torch.exp(x)
    (finding,) = tool.findings()
    assert (finding["what"], finding["name"]) == ("input", "torch.exp")
    assert "must not write" in finding["reason"]


def test_level_aten_names_the_operator_of_the_backward():
    x = torch.randn(6, 6, device=DEVICE, requires_grad=True)
    with ditorch.fault("value:gelu_backward"), compare(level="aten") as tool:
        F.gelu(x).sum().backward()
    assert named(tool) == [("aten::gelu_backward", "forward")]


def test_a_finding_says_where_how_far_and_since_when(capsys):
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU()).to(DEVICE)
    first = _C.engine_get_step()
    with ditorch.fault("value:gelu,call=2+,scale=0.5"), OpAutoCompare(save=False, module_paths=True) as tool:
        for _ in range(3):
            model(torch.ones(2, 4, device=DEVICE))
            tool.step()
    (finding,) = tool.findings()
    assert (finding["step"] - first, finding["last_step"] - first, finding["count"]) == (1, 2, 2)
    assert finding["module"] == "Sequential.1" and finding["at"] == [0, 0] and finding["shape"] == [2, 4]
    assert finding["error"] > finding["allowed"] > 0
    text = capsys.readouterr().err
    assert text.count("is wrong") == 1 and all(len(line) <= 120 for line in text.splitlines() if line[:2] == "  ")
    for words in ("OpAutoCompare: torch.nn.functional.gelu is wrong\n", f"  call   step {first + 1}, forward_id",
                  "  error  off by", "worst at [0, 0]", "  module Sequential.1", "  place  ", "instead of",
                  "test_op_autocompare.py:", "  next   OpFallback("):  # fmt: skip
        assert words in text, (words, text)


def test_stop_raises_and_the_tool_ends_well():
    x = torch.randn(4, 4, device=DEVICE)
    raises = pytest.raises(WrongResult, match=r"torch\.exp is wrong")
    with ditorch.fault("value:exp"), raises as caught, compare(stop=True):
        torch.exp(x)
    assert caught.value.finding["name"] == "torch.exp" and isinstance(caught.value, RuntimeError)
    assert torch.exp(x).shape == (4, 4)


def test_max_findings_bounds_what_is_told(capsys):
    x = torch.randn(4, 4, device=DEVICE)
    with ditorch.fault("value:*"), OpAutoCompare(save=False, max_findings=2) as tool:
        torch.exp(x), torch.sin(x), torch.cos(x), torch.abs(x)
    assert len(tool.findings()) == 4
    err = capsys.readouterr().err
    assert err.count("is wrong") == 2 and "2 findings told" in err


def test_a_nan_that_comes_in_is_said_with_the_finding():
    x = torch.tensor([1.0, float("nan"), 2.0, 3.0], device=DEVICE)
    with ditorch.fault("value:exp,index=3"), compare() as tool:
        torch.exp(x)
    assert tool.findings()[0]["bad_inputs"]


# Defects of the original (reference: OpAutoCompare)


def tolerances(tool, name):
    return {(row["atol"], row["rtol"]) for row in tool.records("compare") if row["name"].endswith(name)}


@pytest.mark.parametrize("way", ["environment", "argument"])
def test_a1_tolerances_of_one_operator_take_effect(way, monkeypatch):
    monkeypatch.setenv("LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "0.25,0.5")
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "0.125,0.125")
    if way == "environment":
        monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE", "0.75,0.75")
    options = {} if way == "environment" else {"error_tolerance": "0.75,0.75"}
    x = torch.randn(3, 3, device=DEVICE)
    with compare(**options) as tool:
        F.linear(x, x), x.mul_(2), torch.exp(x), torch.exp(x.long())
    assert tolerances(tool, "linear") == {(0.25, 0.5)}
    assert tolerances(tool, "mul_") == {(0.125, 0.125)}
    assert (0.75, 0.75) in tolerances(tool, "exp")  # int64: by the variable of all dtypes


def test_a1_in_place_operators_find_the_plain_variable(monkeypatch):
    monkeypatch.setenv("MUL_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "0.25,0.5")
    x = torch.randn(3, 3, device=DEVICE)
    with compare() as tool:
        x.mul_(2)
    assert tolerances(tool, "mul_") == {(0.25, 0.5)}


def test_a2_gradients_are_judged_by_the_dtype_of_the_device():
    x = torch.randn(3, 3, device=DEVICE, dtype=torch.float16, requires_grad=True)
    with compare() as tool:
        F.linear(x, x).sum().backward()
    rows = [row for row in tool.records("compare") if row["what"] == "grad" and row["name"].endswith("linear")]
    assert rows and all((row["atol"], row["rtol"]) == (1e-4, 1e-4) for row in rows)


def test_a3_out_of_any_kind_is_compared_by_identity():
    x, y = torch.randn(4, 4, device=DEVICE), torch.randn(4, 4, device=DEVICE)
    out = torch.empty(4, 4, device=DEVICE)

    def program():
        torch.add(x, y, out=out)
        torch.mul(x, y, out=y)
        return torch.exp(x, out=x).sum().item(), out.sum().item(), y.sum().item()

    with compare() as tool:
        program()
    assert tool.ok and tool.describe()["unable"] == {}
    with ditorch.fault("value:add"), compare() as tool:
        torch.add(x, y, out=out)
    assert named(tool) == [("add", "forward")]


def test_a4_what_the_cpu_cannot_do_is_said_once(capsys):
    library = torch.library.Library("autocompare_test", "DEF")
    library.define("vendor_only(Tensor x) -> Tensor")
    key = torch.zeros(1, device=DEVICE).device
    library.impl("vendor_only", lambda x: x + 1, "PrivateUse1" if ditorch.backend == "host" else "CUDA")
    x = torch.ones(3, device=key)
    with OpAutoCompare(save=False) as tool:
        first = torch.ops.autocompare_test.vendor_only(x)
        torch.ops.autocompare_test.vendor_only(x)
    assert first.tolist() == [2.0, 2.0, 2.0]
    unable = tool.describe()["unable"]
    ((name, (count, reason)),) = unable.items()
    assert "vendor_only" in name and count == 2 and "NotImplementedError" in reason
    assert capsys.readouterr().err.count("cannot be compared") == 1


def test_a5_several_results_with_gradients():
    def program():
        x = torch.randn(6, 4, device=DEVICE, requires_grad=True)
        a, _, c = torch.chunk(x, 3)
        (a.sum() * 2 + (c * c).sum()).backward()
        u = x.unbind(0)
        (u[0] * u[5]).sum().backward()
        r = torch.linalg.qr(x)[1]
        r.abs().sum().backward()
        return x.grad.sum().item()

    check_quiet(program)


def test_a6_gradients_of_a_composite_are_those_of_its_inputs():
    x = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    with compare() as tool:
        F.normalize(x * 1, dim=1).sum().backward()
    rows = [row for row in tool.records("compare") if row["what"] == "grad" and row["name"].endswith("normalize")]
    assert [row["index"] for row in rows] == [-1] or len(rows) == 1


def test_a8_keyword_tensors_are_compared_too():
    x, y = torch.randn(3, 3, device=DEVICE), torch.randn(3, 3, device=DEVICE, dtype=torch.float16, requires_grad=True)
    with compare() as tool:
        torch.add(input=x, other=y).sum().backward()
    rows = [row for row in tool.records("compare") if row["name"] == "torch.add"]
    assert [row["what"] for row in rows].count("input") == 2
    assert [row["what"] for row in rows].count("grad") == 1
    with ditorch.fault("input:add"), compare() as tool:
        torch.add(input=x, other=y)
    assert named(tool) == [("add", "forward")]


def test_a9_random_operators_are_no_false_alarm():
    x = torch.randn(64, 64, device=DEVICE)
    with compare() as tool:
        F.dropout(x, 0.5), x.clone().normal_(), x.clone().exponential_(), torch.randint(0, 5, (9,), device=DEVICE)
        x.clone().geometric_(0.3), x.clone().cauchy_(), x.clone().log_normal_(), F.rrelu(x, training=True)
        torch.nn.init.orthogonal_(x.clone()), x.new_empty(3), F.gumbel_softmax(x)
        torch.nn.init.kaiming_uniform_(x), torch.multinomial(x.abs(), 3)
    assert tool.findings() == []


def test_a10_infinities_and_zeros_are_close():
    x = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0], device=DEVICE)
    with compare(verdict="legacy") as tool:
        x + 1, x * 0 + 0, torch.zeros(4, device=DEVICE) * 2, x.max().item(), (x.sum() * 2).item()
        torch.tensor([250], dtype=torch.uint8, device=DEVICE) + 10
    assert tool.findings() == []
    assert all(row["max_abs_diff"] == 0 for row in tool.records("compare") if "max_abs_diff" in row)


def test_a11_questions_about_the_tensor_itself_are_not_compared():
    x = torch.randn(4, 4, device=DEVICE)[:, 1:]
    with compare() as tool:
        x.get_device(), x.is_contiguous(), x.stride(), x.storage_offset(), x.is_pinned(), x.element_size()
    assert tool.findings() == [] and tool.describe()["forward"]["compared"] == 0
    with compare(level="aten") as tool:
        x + 1, x.is_contiguous(), x.stride()
    assert tool.findings() == []


def test_a13_nothing_is_kept_without_a_backward():
    weight = nn.Parameter(torch.randn(64, 64, device=DEVICE))
    with compare() as tool:
        with torch.no_grad():
            F.linear(torch.randn(64, 64, device=DEVICE), weight)
        F.linear(torch.randn(64, 64, device=DEVICE), weight.detach())
        assert tool.describe()["kept"] == 0
        F.linear(torch.randn(64, 64, device=DEVICE), weight)
        assert tool.describe()["kept"] == 1


@sanitized
def test_a14_a_call_dies_with_its_graph():
    """No collector: results that are dropped without a backward take what was kept with them."""
    gc.collect()
    gc.disable()
    process = psutil.Process()
    try:
        with compare(rows="none", log=False):
            weight = nn.Parameter(torch.randn(256, 256, device=DEVICE))
            x = torch.randn(256, 256, device=DEVICE)
            for _ in range(10):
                F.linear(x, weight)
            before = process.memory_info().rss
            for _ in range(100):
                F.linear(x, weight)  # 100 calls hold 100 x 2.5 MiB if they leak
            grown = process.memory_info().rss - before
    finally:
        gc.enable()
    assert grown < 64 << 20


@sanitized
def test_a14_a_loss_that_lives_on_holds_nothing():
    process = psutil.Process()
    weight = nn.Parameter(torch.randn(256, 256, device=DEVICE))
    x = torch.randn(256, 256, device=DEVICE)
    losses = []
    with compare(rows="none", log=False):
        for number in range(110):
            if number == 10:
                before = process.memory_info().rss
            losses.append(F.linear(x, weight).sum())
            losses[-1].backward()  # 100 steps hold 100 x 2 MiB if what was kept stays with the nodes
    assert process.memory_info().rss - before < 64 << 20


@sanitized
def test_a13_memory_of_fifty_training_steps():
    model = lenet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data, labels = torch.randn(8, 1, 28, 28, device=DEVICE), torch.randint(0, 10, (8,), device=DEVICE)
    process = psutil.Process()

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(data), labels).backward()
        optimizer.step()

    with compare() as tool:
        for _ in range(5):
            step()
        gc.collect()
        before = process.memory_info().rss
        for _ in range(50):
            step()
        grown = process.memory_info().rss - before
        assert tool.describe()["backward"]["compared"] >= 55 * 12
    assert grown <= 10 << 20, f"{grown / 2**20:.1f} MiB"


def test_a16_casts_of_operators_and_of_in_place_forms(monkeypatch):
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "")
    monkeypatch.setenv("EXP_OP_DTYPE_CAST_DICT", "torch.float32 -> torch.double, torch.half->torch.float")
    x = torch.rand(3, 3, device=DEVICE)
    with compare() as tool:
        x.exp_(), torch.sin(x), x.half().sin()
    infos = {
        row["name"].rpartition(".")[2]: row.get("info", "")
        for row in tool.records("compare")
        if row["what"] == "output"
    }
    assert infos["exp_"] == "Inconsistent dtypes: torch.float32 torch.float64"
    assert infos["sin"] == ""  # an empty map: no cast


def test_a17_the_error_of_the_device_is_the_programs():
    x, y = torch.ones(2, 3, device=DEVICE), torch.ones(2, 3, device=DEVICE)
    with compare() as tool, pytest.raises(RuntimeError) as caught:
        torch.mm(x, y)
    with pytest.raises(RuntimeError) as wanted:
        torch.mm(x, y)
    assert str(caught.value) == str(wanted.value)
    assert tool.findings() == [] and tool.describe()["runs"] == 0


# Traps of others


def test_trap_one_tensor_feeds_several_operators():
    def program():
        x = torch.randn(4, 4, device=DEVICE, requires_grad=True)
        y = x * x + torch.exp(x) * x
        y.sum().backward()
        (x * x).sum().backward()
        return x.grad.sum().item()

    check_quiet(program)


def test_trap_non_contiguous_inputs_stay_non_contiguous():
    base = torch.randn(8, 8, device=DEVICE)
    with ditorch.fault("stride:exp"), compare() as tool:
        torch.exp(base.t())
    assert named(tool) == [("exp", "forward")]


def test_trap_a_graph_that_is_walked_twice():
    x = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    with compare() as tool:
        loss = torch.exp(x).sum()
        loss.backward(retain_graph=True)
        first = tool.describe()["backward"]["compared"]
        with ditorch.fault("value:mul"):
            loss.backward()
    assert first == 2 and tool.describe()["backward"]["compared"] == 4
    assert ("exp", "backward") in named(tool)


def test_trap_warnings_and_modes_of_the_program_see_nothing():
    from torch.utils.flop_counter import FlopCounterMode

    x = torch.randn(4, 4, device=DEVICE)

    def count():
        with FlopCounterMode(display=False) as counter:
            torch.mm(x, x)
        return counter.get_total_flops()

    wanted = count()
    with compare(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count() == wanted


# The short way for results that were judged before


def test_numbers_of_the_short_way_are_those_of_the_long_one():
    """From the second call of a signature on one pass decides; its columns are the original's."""
    from op_tools.comparison import compare_result

    weight = torch.randn(33, 65, device=DEVICE)
    inputs = [torch.randn(7, 65, device=DEVICE) for _ in range(6)]
    with compare() as tool:
        results = [F.linear(x, weight) for x in inputs]
    rows = [row for row in tool.records("compare") if row["what"] == "output" and row["name"].endswith("linear")]
    assert len(rows) == 6 and tool.describe()["runs"] < 6 + 8  # more runs for the first one alone
    for row, result, x in zip(rows, results, inputs, strict=True):
        wanted = compare_result(
            "torch.nn.functional.linear output", result, F.linear(x.cpu().double(), weight.cpu().double())
        )
        assert bool(row.get("close", True)) == wanted["allclose"]
        assert row.get("max_abs_diff", 0.0) == pytest.approx(wanted["max_abs_diff"], rel=1e-6)
        assert row.get("max_relative_diff", 0.0) == pytest.approx(wanted["max_relative_diff"], rel=1e-6)
        assert row.get("cosine", 1.0) == pytest.approx(wanted["cos_similarity"], abs=1e-9)


@pytest.mark.parametrize("index", [0, 17, 230])
def test_the_short_way_hides_no_error(index):
    weight, x = torch.randn(33, 65, device=DEVICE), torch.randn(7, 65, device=DEVICE)
    with ditorch.fault(f"value:linear,call=4,scale=1e-4,index={index}") as fault, compare() as tool:
        for _ in range(6):
            F.linear(x, weight)
        assert fault.count == 1
    (finding,) = tool.findings()
    assert finding["count"] == 1 and finding["wrong"] == 1 and finding["at"] == [index // 33, index % 33]


# Budgets and selection


def test_budget_first_per_signature():
    x, y = torch.randn(4, 4, device=DEVICE), torch.randn(2, 2, device=DEVICE)
    with compare(first=2) as tool:
        for _ in range(5):
            torch.exp(x), torch.exp(y)
    assert tool.describe()["forward"]["compared"] == 4 and tool.counts()["first"] == 6


def test_budget_max_bytes():
    with compare(max_bytes="1KiB") as tool:
        torch.exp(torch.ones(300, device=DEVICE)), torch.exp(torch.ones(100, device=DEVICE))
    facts = tool.describe()
    assert facts["skipped"]["max_bytes"] == 1


def test_budget_share_of_the_time():
    """A program that does nothing but compare: with one percent nearly all calls are left out."""
    x = torch.randn(64, 64, device=DEVICE)
    with compare(share=1) as tool:
        for _ in range(300):
            torch.exp(x)
    facts = tool.describe()
    assert facts["skipped"]["share"] > 200 and facts["forward"]["compared"] >= 1
    assert facts["forward"]["compared"] + facts["skipped"]["share"] == 300


def test_lists_conditions_and_other_tools():
    x = torch.randn(4, 4, device=DEVICE)
    with OpObserve(console="off"), compare(list="torch.exp,torch.sin", disable_list="torch.sin") as tool:
        torch.exp(x), torch.sin(x), torch.cos(x)
    assert tool.describe()["forward"]["compared"] == 1
    with compare(list="") as tool:
        torch.exp(x)
    assert tool.describe()["forward"]["compared"] == 0
    with compare(condition_func=lambda a, *rest, **options: a.dim() == 1) as tool:
        torch.exp(x), torch.exp(x[0])
    assert {row["name"] for row in tool.records("compare")} == {"torch.exp"}


def test_start_and_stop_again_begin_anew():
    x = torch.randn(4, 4, device=DEVICE)
    tool = compare()
    for _ in range(3):
        tool.start()
        with ditorch.fault("value:exp"):
            torch.exp(x)
        tool.stop()
        assert len(tool.findings()) == 1 and tool.describe()["forward"]["compared"] == 1


def test_the_backward_may_run_after_stop():
    x = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    with compare() as tool:
        y = F.gelu(x)
    with ditorch.fault("value:gelu_backward"):
        y.sum().backward()
    assert named(tool) == [("gelu", "backward")]


def test_an_operator_is_not_blamed_for_an_input_that_another_one_changed():
    """abs writes to its input, which the loss before it saved for its backward."""
    x = torch.randn(6, 5, device=DEVICE, requires_grad=True)
    target = torch.rand(6, 5, device=DEVICE)
    with compare() as tool, ditorch.fault("input:aten::abs*,call=1,scale=0.5"):
        logits = x * 2
        loss = F.binary_cross_entropy_with_logits(logits, target)
        (loss + logits.abs().sum()).backward()
    assert named(tool) == [("abs", "forward")]
    assert "changed an input that it must not write to" in tool.findings()[0]["reason"]


def test_an_operator_is_not_blamed_for_a_result_that_another_one_changed():
    """log_softmax saves its result for its backward; gather writes to it."""
    x = torch.randn(6, 5, device=DEVICE, requires_grad=True)
    index = torch.zeros(6, 1, dtype=torch.long, device=DEVICE)
    with compare() as tool, ditorch.fault("input:aten::gather,call=1,scale=0.5"):
        torch.log_softmax(x, 1).gather(1, index).sum().backward()
    assert named(tool) == [("gather", "forward")]


def test_inputs_are_watched_even_where_the_cpu_cannot_run_the_operator(monkeypatch):
    monkeypatch.setattr("op_tools.autocompare.run_instead", lambda *_: NotImplemented)
    x = torch.arange(12, device=DEVICE)  # the CPU counts floating numbers alone
    with compare(level="aten") as tool:
        torch.histc(x, bins=3)
    assert tool.findings() == [] and "aten::histc" in tool.describe()["unable"]
    with compare(level="aten") as tool, ditorch.fault("input:aten::histc,call=1,scale=0.5"):
        torch.histc(x, bins=3)
    assert [finding["name"] for finding in tool.findings()] == ["aten::histc"]


def test_what_decides_the_result_is_saved_with_the_inputs():
    from op_tools.reader import find_cases, load_case

    x = torch.randn(4, 4, device=DEVICE)
    with compare(save=True), ditorch.fault("value:aten::mm,scale=0.5"), torch.autocast("cuda", dtype=torch.bfloat16):
        torch.mm(x, x)
    cases = [load_case(ref) for ref in find_cases("op_tools_results") if ref.role == "device"]
    assert [case.meta["autocast"] for case in cases] == [{"cuda": {"enabled": True, "dtype": "bfloat16"}}]
