"""OpAutoCompare on sound trainings as they are done: autocast, gradient scaling, initialisation in half precision; and
the tolerances that a user sets."""

import ditorch
import pytest
import torch
import torch.nn.functional as F
from op_tools import OpAutoCompare
from torch import nn


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    yield
    ditorch.fault("")


def watch(function, **options):
    with OpAutoCompare(console="off", save=False, **options) as tool:
        function()
    return tool


def tell(tool):
    return [(f["name"], f["kind"], f["error"], f["allowed"]) for f in tool.findings()]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("classes,rows", [(10, 256), (28, 64), (1000, 64)])
def test_cross_entropy_under_autocast_is_right(dtype, classes, rows):
    """Its logarithms are in half precision on the device and in float32 under the CPU's own autocast."""
    for seed in range(3):
        torch.manual_seed(seed)
        x, layer = torch.randn(rows, 64, device="cuda"), nn.Linear(64, classes).cuda()
        labels = torch.randint(0, classes, (rows,), device="cuda")

        def step(x=x, layer=layer, labels=labels, smoothing=0.1 * (seed == 2)):
            with torch.autocast("cuda", dtype=dtype):
                loss = F.cross_entropy(layer(x), labels, label_smoothing=smoothing)
            (loss * (65536 if dtype is torch.float16 else 1)).backward()

        tool = watch(step)
        assert tool.ok, tell(tool)


def test_a_broken_operator_under_autocast_is_found():
    torch.manual_seed(0)
    x, layer = torch.randn(64, 64, device="cuda"), nn.Linear(64, 28).cuda()
    labels = torch.randint(0, 28, (64,), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            F.cross_entropy(layer(x), labels).backward()

    with ditorch.fault("value:_log_softmax*,scale=0.1"):
        tool = watch(step)
    assert [f["name"] for f in tool.findings()] == ["torch.nn.functional.cross_entropy"]


@pytest.mark.parametrize("cached", [True, False])
def test_calls_that_share_the_cast_of_a_weight_are_not_blamed_with_its_sum(cached):
    torch.manual_seed(0)
    layer, x = nn.Linear(32, 32).cuda(), torch.randn(8, 32, device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=cached):
            y = layer(layer(layer(x)))
        y.float().square().sum().backward()

    tool = watch(step)
    assert tool.ok and tool.describe()["backward"]["compared"] >= 3, tell(tool)


def test_an_encoder_with_gradient_scaling_is_right():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Linear(32, 50)).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    x, labels = torch.randn(4, 12, 32, device="cuda"), torch.randint(0, 50, (48,), device="cuda")

    def train():
        for _ in range(2):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(model(x).flatten(0, 1), labels, label_smoothing=0.1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    tool = watch(train)
    assert tool.ok, tell(tool)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bounds_of_a_draw_round_to_its_dtype(dtype):
    def draw():
        for low, high in ((-0.99999, 0.99999), (1e-6, 1.0), (-0.02, 0.02), (-(30**-0.5), 30**-0.5)):
            torch.empty(5000, dtype=dtype, device="cuda").uniform_(low, high)
        nn.Linear(30, 40, device="cuda", dtype=dtype)

    tool = watch(draw)
    assert tool.ok, tell(tool)
    with ditorch.fault("nan:uniform_"):
        assert not watch(draw).ok


def test_a_tolerance_that_is_set_decides(monkeypatch):
    x = torch.randn(8, 8, device="cuda")

    def broken(**options):
        with ditorch.fault("value:exp,scale=0.01"):
            return watch(lambda: torch.exp(x), **options).ok

    assert broken() is False
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "10,10")
    assert broken() is True
    monkeypatch.setenv("EXP_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "1e-9,1e-9")
    assert broken() is False
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT16", "10,10")
    monkeypatch.delenv("EXP_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32")
    monkeypatch.delenv("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32")
    assert broken() is False  # that of another dtype


@pytest.mark.parametrize("name", ["AUTOCOMPARE_ERROR_TOLERANCE_FLAOT32", "LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_FLAOT32"])
def test_a_misspelt_tolerance_is_an_error(monkeypatch, name):
    monkeypatch.setenv(name, "nonsense")
    with pytest.raises(ValueError, match=f"{name} is not an option.*did you mean {name.replace('FLAOT', 'FLOAT')}"):
        OpAutoCompare(console="off").start()
