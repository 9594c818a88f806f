"""Every optimizer of torch.optim steps on the device as it does on the CPU, in all its implementations."""

import copy
import inspect

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn

OPTIONS = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
    "Adam": {"lr": 0.01, "amsgrad": True, "weight_decay": 0.01},
    "LBFGS": {"lr": 0.5, "max_iter": 4, "line_search_fn": "strong_wolfe"},
    "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
}
NEEDS_SPECIAL_PARAMETERS = {"SparseAdam": "needs sparse gradients", "Muon": "takes matrices only"}
KINDS = sorted(
    name
    for name, value in vars(torch.optim).items()
    if inspect.isclass(value)
    and issubclass(value, torch.optim.Optimizer)
    and name not in ("Optimizer", *NEEDS_SPECIAL_PARAMETERS)
)


def variants():
    for name in KINDS:
        accepted = inspect.signature(getattr(torch.optim, name)).parameters
        yield name, {}
        for key in ("foreach", "fused"):
            if key in accepted:
                yield name, {key: True}
        if "foreach" in accepted:
            yield name, {"foreach": False}


def train(name, device, extra, steps=4):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 2))
    data, target = torch.randn(9, 6).to(device), torch.randn(9, 2).to(device)
    model.to(device)
    optimizer = getattr(torch.optim, name)(model.parameters(), **{"lr": 0.01, **OPTIONS.get(name, {}), **extra})

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data), target)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return model, optimizer


@pytest.mark.parametrize(
    "name,extra",
    variants(),
    ids=lambda v: v if isinstance(v, str) else "-".join(f"{k}={x}" for k, x in v.items()) or "default",
)
def test_steps_equal_the_cpu(name, extra, close):
    try:
        wanted, _ = train(name, "cpu", extra)
    except RuntimeError as error:  # a combination PyTorch itself refuses
        with pytest.raises(RuntimeError):
            train(name, "cuda", extra)
        pytest.skip(f"refused on the CPU too: {error}")
    mine, _optimizer = train(name, "cuda", extra)
    start, _ = train(name, "cpu", extra, steps=0)
    assert not torch.equal(wanted[0].weight, start[0].weight)
    for a, b in zip(mine.parameters(), wanted.parameters(), strict=False):
        if name == "LBFGS":  # its line search amplifies rounding
            close(a, b, rtol=1e-2, atol=1e-3)
        else:
            close(a, b, rtol=2e-5, atol=2e-6)


def test_muon_on_matrices(close):
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    weights = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(2)
        layer = nn.Linear(4, 6, bias=False).to(device)
        optimizer = torch.optim.Muon(layer.parameters(), lr=0.02)
        layer(torch.ones(2, 4, device=device)).square().sum().backward()
        optimizer.step()
        weights.append(layer.weight)
    close(*weights, rtol=2e-2, atol=2e-3)  # orthogonalised in bfloat16


def test_state_follows_save_and_load(close):
    _mine, optimizer = train("AdamW", "cuda", {})
    _wanted, cpu_optimizer = train("AdamW", "cpu", {})
    cpu_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    moments = [s["exp_avg"].device.type for s in cpu_optimizer.state.values()]
    assert set(moments) == {"cpu"}
    optimizer.load_state_dict(cpu_optimizer.state_dict())
    assert {s["exp_avg"].device.type for s in optimizer.state.values()} == {"cuda"}


def test_capturable_and_tensor_learning_rate(close):
    wanted, _ = train("Adam", "cpu", {})
    mine, _ = train("Adam", "cuda", {"lr": torch.tensor(0.01)})
    close(mine[0].weight, wanted[0].weight, rtol=2e-5, atol=2e-6)


def test_clip_and_schedulers(close):
    answers = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(3)
        layer = nn.Linear(5, 5).to(device)
        layer(torch.ones(3, 5, device=device) * 9).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(layer.parameters(), 1.0, foreach=device == "cuda")
        nn.utils.clip_grad_value_(layer.parameters(), 0.1)
        answers.append([norm, layer.weight.grad])
    close(*answers)


def test_averaged_models(close):
    answers = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(4)
        layer = nn.Linear(3, 3).to(device)
        average = torch.optim.swa_utils.AveragedModel(
            layer, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        average.update_parameters(layer)
        with torch.no_grad():
            layer.weight.add_(1)
        average.update_parameters(layer)
        answers.append(average.module.weight)
    close(*answers)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_a_fused_step_reads_its_rate_from_the_cpu(kind, shape):
    results = []
    for device in ("cpu", "cuda"):
        weight = torch.nn.Parameter(torch.arange(6.0, device=device))
        optimizer = kind([weight], lr=torch.full(shape, 0.25), fused=True)
        for _ in range(2):
            weight.square().sum().backward()
            optimizer.step()
        results.append(weight.detach().cpu())
    torch.testing.assert_close(*results)
