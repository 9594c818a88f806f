"""CompLayerAcc: what is saved of every layer, and that the program does not notice."""

import copy
import dataclasses
import gc
import glob
import os
import pickle
import typing
import weakref

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from module_tools import CompLayerAcc, record
from torch.utils.checkpoint import checkpoint


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.fc1, self.fc2 = nn.Linear(8 * 5 * 5, 16), nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.norm(self.conv2(x))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, *, mask=None):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


class Gpt(nn.Module):
    def __init__(self, recompute=None):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layers = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        self.recompute = recompute

    def forward(self, tokens):
        x = self.embed(tokens)
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool, device=tokens.device).tril()
        for layer in self.layers:
            if self.recompute is None:
                x = layer(x, mask=mask)
            else:
                x = checkpoint(layer, x, mask=mask, use_reentrant=False)
        return {"logits": self.head(x), "hidden": (x, None)}


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x):
        y, (h, _) = self.rnn(x)
        return self.head(y[:, -1] + h[-1])


def make_input(kind, place):
    if kind is Gpt:
        return torch.randint(0, 11, (2, 5)).to(place)
    return (torch.randn(2, 1, 14, 14) if kind is LeNet else torch.randn(2, 3, 4)).to(place)


def loss_of(output):
    return (output["logits"] if isinstance(output, dict) else output).square().mean()


def train(kind, place, steps=2, tool=None, seed=3, amp=False):
    """(losses, weights) of a short training; `tool(model)` is put around it."""
    torch.manual_seed(seed)
    model = kind().to(place)
    data = [make_input(kind, place) for _ in range(steps)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    watch = tool(model) if tool else None
    losses = []
    if watch is not None:
        watch.insert_hook()
    for x in data:
        with torch.autocast(place, torch.bfloat16, enabled=amp):
            loss = loss_of(model(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
        if watch is not None:
            watch.step()
    if watch is not None:
        watch.remove()
    return losses, [p.detach().cpu() for p in model.parameters()]


def load(tmp_path, kind, name, step=None, call=0, side="expected", rank=0, again=""):
    folder = f"{tmp_path}/rank{rank}/{side}/{kind}"
    if step is not None:
        folder, name = f"{folder}/step{step}", f"{name}.call{call}{again}"
    return torch.load(f"{folder}/{name}.pt", weights_only=True)


def list_files(tmp_path, pattern, side="expected"):
    found = glob.glob(f"{tmp_path}/rank0/{side}/{pattern}")
    return sorted(os.path.basename(path) for path in found)


def read(tmp_path, name, side="expected"):
    with open(f"{tmp_path}/rank0/{side}/{name}") as file:
        return file.read().split()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    return tmp_path


# The program does not notice


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", [LeNet, Gpt, Lstm])
def test_losses_and_weights_are_bitwise_equal(folder, kind, place, capsys):
    plain = train(kind, place)
    watched = train(kind, place, tool=lambda model: CompLayerAcc(model, True, False, folder))
    for a, b in zip([*plain[0], *plain[1]], [*watched[0], *watched[1]], strict=True):
        assert torch.equal(a, b)
    assert list_files(folder, "forward/step1/*.pt")
    assert "internal problem" not in capsys.readouterr().err


def test_random_state_and_the_objects_are_untouched(folder):
    model = LeNet()
    calls = []
    model.fc1.register_forward_hook(lambda module, args, output: calls.append((args[0], output)))
    before = torch.get_rng_state()
    x = torch.randn(1, 1, 14, 14, generator=torch.Generator().manual_seed(1))
    with CompLayerAcc(model, True, False, folder):
        y = model(x)
        assert type(y) is torch.Tensor and type(y.grad_fn).__name__ == "AddmmBackward0"
    assert torch.equal(before, torch.get_rng_state())
    assert len(calls) == 1 and len(model.fc1._forward_hooks) == 1 and not model.fc2._forward_hooks


def test_m5_outputs_may_be_changed_in_place(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.act, self.b = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)

        def forward(self, x):
            h = self.act(self.a(x)).tanh()
            y = self.b(h)
            y.mul_(1)
            y[:, 0].add_(1)
            return y

    torch.manual_seed(0)
    model, x = Net(), torch.randn(3, 4, requires_grad=True)
    wanted = torch.autograd.grad(model(x).sum(), x)[0]
    with CompLayerAcc(model, True, False, folder):
        model(x).sum().backward()
    assert torch.equal(x.grad, wanted)
    clean = F.linear(x, model.a.weight, model.a.bias)
    saved = load(folder, "forward", "Net.a", 0)["output"]
    assert torch.equal(saved, clean)  # as the layer gave it, before anybody changed it
    assert torch.equal(load(folder, "forward", "Net.act", 0)["input"][0], clean)  # as it was before the call
    assert torch.equal(load(folder, "forward", "Net.act", 0)["output"], clean.relu())
    assert torch.equal(load(folder, "backward", "Net", 0)["grad_input"][0], x.grad)
    assert torch.equal(load(folder, "backward", "Net.b", 0)["grad_output"][0], torch.ones(3, 4))


def test_an_exception_passes_and_leaves_the_inputs(folder):
    class Bad(nn.Module):
        def forward(self, x):
            raise ValueError("no such thing")

    model = nn.Sequential(nn.Linear(2, 2), Bad())
    with CompLayerAcc(model, True, False, folder):
        for _ in range(2):
            with pytest.raises(ValueError, match="no such thing"):
                model(torch.ones(1, 2))
        model[0](torch.ones(1, 2))
    item = load(folder, "forward", "Sequential.1", 0, 1)
    assert item["error"] == "ValueError: no such thing" and item["input"][0].shape == (1, 2)
    assert load(folder, "forward", "Sequential", 0, 1)["error"].startswith("ValueError")
    assert load(folder, "forward", "Sequential.0", 0, 2)["output"].shape == (1, 2)


def test_a_call_inside_an_except_block_is_no_failure(folder):
    model = nn.Linear(2, 2)
    with CompLayerAcc(model, True, False, folder):
        try:
            raise KeyError("x")
        except KeyError:
            model(torch.ones(1, 2))
    assert "error" not in load(folder, "forward", "Linear", 0)


def test_copies_of_the_model_have_no_tool(folder):
    model = nn.Sequential(nn.Linear(2, 2))
    with CompLayerAcc(model, True, False, folder):
        ema = copy.deepcopy(model)
        other = pickle.loads(pickle.dumps(model))
        ema(torch.ones(1, 2)), other(torch.ones(1, 2))
    assert list_files(folder, "forward/step0/*") == []
    model(torch.ones(1, 2))
    assert list_files(folder, "forward/step0/*") == []


def test_a_full_disk_stops_nothing(folder, monkeypatch, capsys):
    def refuse(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", refuse)
    model = nn.Linear(2, 2)
    with CompLayerAcc(model, True, False, folder):
        model(torch.ones(1, 2)).sum().backward()
    assert capsys.readouterr().err.count("No space left on device") == 1
    assert list_files(folder, "forward/*.pt") + list_files(folder, "forward/step0/.*") == []


def test_a_failure_of_the_tool_stops_nothing(folder, monkeypatch, capsys):
    from module_tools import snapshot

    def fail(value):
        raise ZeroDivisionError("broken on purpose")

    monkeypatch.setattr(snapshot, "copy_tensor", fail)
    model = nn.Linear(2, 2)
    with CompLayerAcc(model, True, False, folder):
        model(torch.ones(1, 2)).sum().backward()
    assert "broken on purpose" in capsys.readouterr().err


def test_operator_tools_do_not_see_the_copies(folder):
    from op_tools import OpObserve

    model, x = LeNet().cuda(), make_input(LeNet, "cuda")

    def list_calls():
        with OpObserve(results=str(folder / "ops"), console="off", cpu=True) as observe:
            loss_of(model(x)).backward()
        return [call["name"] for call in observe.calls()]

    plain = list_calls()
    assert len(plain) > 10
    with CompLayerAcc(model, True, False, folder):
        assert list_calls() == plain


def test_nothing_of_a_step_is_held(folder):
    from module_tools import gradients

    model = LeNet()
    with CompLayerAcc(model, True, False, folder, weights=False) as tool:
        for _ in range(3):
            y = model(make_input(LeNet, "cpu"))
            alive = weakref.ref(y)
            loss_of(y).backward()
            del y
            assert alive() is None
            tool.step()
        gc.collect()
        assert not [o for o in gc.get_objects() if type(o) is gradients.Call]
        assert not tool._partial and not tool._leaf_handles


# What is saved


@pytest.mark.parametrize("kind", [LeNet, Lstm])
@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_gradients_are_those_of_full_backward_hooks(folder, kind, place):
    torch.manual_seed(1)
    model = kind().to(place)
    other = copy.deepcopy(model)
    x = make_input(kind, place).requires_grad_()
    wanted = {}
    for name, module in other.named_modules():
        path = ".".join(filter(None, (kind.__name__, name)))
        module.register_full_backward_hook(
            lambda module, gin, gout, path=path: wanted.__setitem__(path, (gin, gout)),
        )
    loss_of(other(x)).backward()
    with CompLayerAcc(model, True, False, folder):
        loss_of(model(x)).backward()
    assert len(wanted) == len(list_files(folder, "backward/step0/*"))
    for path, (gin, gout) in wanted.items():
        item = load(folder, "backward", path, 0)
        gout_items = [g for g in torch.utils._pytree.tree_leaves(item["grad_output"]) if g is not None]
        for mine, theirs in zip(item["grad_input"], gin, strict=False):
            assert (mine is None) == (theirs is None), path
            assert mine is None or torch.equal(mine, theirs.cpu()), path
        for mine, theirs in zip(gout_items, [g for g in gout if g is not None], strict=False):
            assert torch.equal(mine, theirs.cpu()), path


def test_the_gradient_of_an_input_with_two_users_is_that_of_this_layer(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            h = self.a(x)
            return h + self.b(h)

    model = Net()
    with CompLayerAcc(model, True, False, folder):
        model(torch.randn(2, 3)).sum().backward()
    assert torch.allclose(load(folder, "backward", "Net.b", 0)["grad_input"][0], torch.ones(2, 3) @ model.b.weight)
    total = torch.ones(2, 3) @ model.b.weight + 1
    assert torch.allclose(load(folder, "backward", "Net.a", 0)["grad_output"][0], total)
    assert load(folder, "backward", "Net", 0)["grad_input"] == (None,)


def test_a_way_around_the_layer_is_not_its_gradient(folder):
    class Gate(nn.Module):
        def forward(self, x):
            return x * self.extra + x.exp()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = Gate()

        def forward(self, x):
            self.gate.extra = torch.tanh(x)  # made outside, of the same x
            return self.gate(x)

    x = torch.randn(3, requires_grad=True)
    with CompLayerAcc(Net(), True, False, folder) as tool:
        tool.model(x).sum().backward()
    gate = load(folder, "backward", "Net.gate", 0)["grad_input"][0]
    torch.testing.assert_close(gate, torch.tanh(x.detach()) + x.detach().exp())  # both of its uses, and no more
    torch.testing.assert_close(load(folder, "backward", "Net", 0)["grad_input"][0], x.grad)


def test_layers_that_pass_their_input_on(folder):
    model = nn.Sequential(nn.Linear(3, 3), nn.Identity(), nn.Dropout(0.5).eval())
    with CompLayerAcc(model, True, False, folder):
        model(torch.randn(2, 3)).sum().backward()
    for name in ("Sequential.1", "Sequential.2"):
        item = load(folder, "backward", name, 0)
        assert torch.equal(item["grad_input"][0], torch.ones(2, 3)) and torch.equal(
            item["grad_output"][0], torch.ones(2, 3)
        )


def test_a_layer_that_returns_a_parameter_leaves_no_hooks_behind(folder):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self):
            return self.weight

    model = Holder()
    keep = model.weight.expand_as(model.weight).grad_fn.next_functions[0][0]  # as DDP does
    with CompLayerAcc(model, True, False, folder) as tool:
        for _ in range(3):
            (model() * 2).sum().backward()
            tool.step()
    for step in range(3):
        assert torch.equal(load(folder, "backward", "Holder", step)["grad_output"][0], torch.full((3,), 2.0))
        assert list_files(folder, f"backward/step{step}/*") == ["Holder.call0.pt"]
    assert keep is not None


def test_m1_nested_values_are_plain_and_on_the_cpu(folder):
    class Point(typing.NamedTuple):
        x: torch.Tensor
        y: float

    @dataclasses.dataclass
    class Answer:
        value: torch.Tensor
        parts: dict

    class Net(nn.Module):
        def forward(self, first, *rest, **named):
            return Answer(first["a"][0] * 2, {"p": Point(named["w"], 0.5), 7: None, "text": "t"})

    x = torch.arange(6.0, device="cuda").view(2, 3)
    with CompLayerAcc(Net(), True, False, folder) as tool:
        tool.model({"a": [x, {"b": x.t()}]}, 3, None, [x[:, 0]], w=x[0], flag=True, where=x.device)
    item = load(folder, "forward", "Net", 0)
    assert item["layer_name"] == "Net" and item["input"][1:3] == (3, None)
    assert torch.equal(item["input"][0]["a"][1]["b"], x.t().cpu())
    assert torch.equal(item["kwargs"]["w"], x[0].cpu()) and item["kwargs"]["flag"] is True
    assert torch.equal(item["output"]["value"], x.cpu() * 2)
    assert torch.equal(item["output"]["parts"]["p"][0], x[0].cpu()) and item["output"]["parts"][7] is None
    assert item["kwargs"]["where"] == {"__ditorch__": "object", "type": "torch.device"}

    def places(value):
        return [t.device.type for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]

    assert set(places(item)) == {"cpu"}


def test_a_view_saves_its_own_values(folder):
    big = torch.randn(1 << 16)
    with CompLayerAcc(nn.Identity(), True, False, folder) as tool:
        tool.model(big[5:9])
        tool.model(torch.ones(1).expand(4, 1))
        tool.model(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    item = load(folder, "forward", "Identity", 0)
    assert torch.equal(item["output"], big[5:9]) and item["output"].untyped_storage().nbytes() == 16
    assert os.path.getsize(f"{folder}/rank0/expected/forward/step0/Identity.call0.pt") < 4096
    assert load(folder, "forward", "Identity", 0, 1)["output"].shape == (4, 1)
    assert load(folder, "forward", "Identity", 0, 2)["output"].is_contiguous(memory_format=torch.channels_last)


def test_tensors_without_values_are_described(folder):
    model = nn.Linear(2, 3, device="meta")
    with CompLayerAcc(model, True, False, folder, weights=True):
        model(torch.ones(4, 2, device="meta"))
        torch.vmap(nn.Identity())(torch.ones(2, 2))
    output = load(folder, "forward", "Linear", 0)["output"]
    assert output["__ditorch__"] == "tensor" and output["shape"] == [4, 3]


def test_m2_steps_and_repeated_calls_are_kept_apart(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(2, 2)

        def forward(self, x):
            return self.f(self.f(x))

    model = Net()
    inputs = [torch.full((1, 2), float(i)) for i in range(3)]
    with CompLayerAcc(model, True, False, folder) as tool:
        for x in inputs:
            model(x).sum().backward()
            tool.step()
    assert list_files(folder, "forward/step2/*") == ["Net.call0.pt", "Net.f.call0.pt", "Net.f.call1.pt"]
    for step, x in enumerate(inputs):
        assert torch.equal(load(folder, "forward", "Net.f", step)["input"][0], x)
        inner = F.linear(x, model.f.weight, model.f.bias)
        assert torch.equal(load(folder, "forward", "Net.f", step, 1)["input"][0], inner)
        grads = load(folder, "backward", "Net.f", step, 1)["grad_output"][0]
        assert torch.equal(grads, torch.ones(1, 2))
        assert not torch.equal(load(folder, "backward", "Net.f", step, 0)["grad_output"][0], grads)
    last = load(folder, "forward", "Net.f")  # the original's name: the last call
    assert set(last) >= {"layer_name", "input", "output"} and (last["step"], last["call"]) == (2, 1)
    assert set(load(folder, "backward", "Net.f")) >= {"layer_name", "grad_input", "grad_output"}


def test_m3_the_order_of_execution_is_written_per_step(folder):
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    with CompLayerAcc(model, True, False, folder) as tool:
        model(torch.ones(1, 2))
        tool.step()
        model[1](torch.ones(1, 2))  # another program in the second step
        model[1](torch.ones(1, 2))
        tool.step()
    names = ["Sequential", "Sequential.0", "Sequential.1", "Sequential.1.0", "Sequential.1.1"]
    assert read(folder, "modules_full_name.txt") == names
    first = ["Sequential.0", "Sequential.1.0", "Sequential.1.1", "Sequential.1", "Sequential"]
    assert read(folder, "modules_full_name_run.step0.txt") == first
    second = ["Sequential.1.0", "Sequential.1.1", "Sequential.1"] * 2
    assert read(folder, "modules_full_name_run.step1.txt") == second
    assert read(folder, "modules_full_name_run.txt") == second


def test_without_step_calls_an_optimizer_ends_the_iteration(folder):
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer, foreign = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    with CompLayerAcc(model, True, False, folder):
        for _ in range(2):
            for _ in range(2):  # gradient accumulation
                model(torch.ones(1, 2)).sum().backward()
                foreign.step()
            optimizer.step()
            optimizer.zero_grad()
    assert list_files(folder, "forward/step*/*") == ["Linear.call0.pt", "Linear.call0.pt"] + ["Linear.call1.pt"] * 2
    assert not os.path.exists(f"{folder}/rank0/expected/forward/step2")


def test_weights_and_their_gradients(folder):
    model = LeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weight, mean = model.conv1.weight.detach().clone(), model.norm.running_mean.clone()
    with CompLayerAcc(model, True, False, folder) as tool:
        for _ in range(2):
            loss_of(model(make_input(LeNet, "cpu"))).backward()
            grad = model.conv1.weight.grad.clone()
            optimizer.step()
            optimizer.zero_grad()  # sets the gradients to None before the step ends
            tool.step()
    item = torch.load(f"{folder}/rank0/expected/weights/step0/LeNet.conv1.pt", weights_only=True)
    assert torch.equal(item["parameters"]["weight"], weight)
    norm = torch.load(f"{folder}/rank0/expected/weights/step0/LeNet.norm.pt", weights_only=True)
    assert torch.equal(norm["buffers"]["running_mean"], mean)  # before the step changed it
    last = torch.load(f"{folder}/rank0/expected/gradients/LeNet.conv1.pt", weights_only=True)
    assert last["step"] == 1 and torch.equal(last["gradients"]["weight"], grad)
    assert torch.load(f"{folder}/rank0/expected/weights/LeNet.conv1.pt", weights_only=True)["step"] == 1


def test_weights_on_request(folder):
    model = nn.Linear(2, 2)
    with CompLayerAcc(model, True, False, folder) as tool:
        model(torch.ones(1, 2))
        with torch.no_grad():
            model.bias.fill_(7)
        tool.save_weights()
    item = torch.load(f"{folder}/rank0/expected/weights/step0/Linear.pt", weights_only=True)
    assert item["parameters"]["bias"].tolist() == [7, 7]


def test_gradients_without_an_optimizer_are_saved_at_the_end_of_the_step(folder):
    model = nn.Linear(2, 2)
    with CompLayerAcc(model, True, False, folder):
        model(torch.ones(1, 2)).sum().backward()
    item = torch.load(f"{folder}/rank0/expected/gradients/step0/Linear.pt", weights_only=True)
    assert torch.equal(item["gradients"]["bias"], torch.ones(2))


def test_chosen_steps_and_parts(folder):
    model = nn.Linear(2, 2)
    with CompLayerAcc(model, True, False, folder, steps="1,3-4", weights=False, backward=False) as tool:
        for _ in range(6):
            model(torch.ones(1, 2)).sum().backward()
            tool.step()
    found = sorted(os.path.basename(path) for path in glob.glob(f"{folder}/rank0/expected/*/step*"))
    assert found == ["step1", "step3", "step4"]
    assert not glob.glob(f"{folder}/rank0/expected/*/step*/*")[3:]
    with pytest.raises(ValueError, match="'x' is no step"):
        CompLayerAcc(model, True, False, folder, steps="1,x")


def test_max_bytes_ends_the_writing_and_says_so(folder, capsys):
    model = nn.Linear(64, 64)
    with CompLayerAcc(model, True, False, folder, max_bytes=20_000):
        for _ in range(50):
            model(torch.ones(4, 64))
    assert capsys.readouterr().err.count("(max_bytes)") == 1
    size = sum(os.path.getsize(path) for path in glob.glob(f"{folder}/rank0/expected/forward/step0/*"))
    assert size < 40_000


# Folders


def test_m6_rank_is_optional_and_nothing_is_written_into_the_package(folder, monkeypatch):
    import module_tools

    package = os.path.dirname(module_tools.__file__)
    before = sorted(name for name in os.listdir(package) if name != "__pycache__")
    with CompLayerAcc(nn.Linear(1, 1), True, False, folder):
        pass
    assert os.path.isdir(f"{folder}/rank0/expected/forward") and os.path.isdir(f"{folder}/rank0/expected/backward")
    monkeypatch.setenv("RANK", "3")
    with CompLayerAcc(nn.Linear(1, 1), False, False, folder):
        pass
    assert os.path.isdir(f"{folder}/rank3/real/forward")
    monkeypatch.setenv("RANK", "three")
    with pytest.raises(ValueError, match="RANK='three' is no rank"):
        CompLayerAcc(nn.Linear(1, 1), False, False, folder)
    assert sorted(name for name in os.listdir(package) if name != "__pycache__") == before


def test_an_earlier_run_is_replaced_but_foreign_files_stay(folder, capsys):
    model = nn.Linear(1, 1)
    with CompLayerAcc(model, True, False, folder) as tool:
        for _ in range(3):
            model(torch.ones(1, 1))
            tool.step()
    (folder / "rank0/expected/notes.md").write_text("mine")
    with CompLayerAcc(model, True, False, folder):
        model(torch.ones(1, 1))
    assert sorted(os.listdir(folder / "rank0/expected/forward")) == ["Linear.pt", "step0"]
    assert (folder / "rank0/expected/notes.md").read_text() == "mine"
    assert "an earlier run" in capsys.readouterr().err


def test_the_model_is_printed_and_returned(folder, capsys):
    model = nn.Linear(1, 1)
    tool = CompLayerAcc(model, True, False, folder)
    assert tool.insert_hook() is model and tool.insert_hook() is model
    assert capsys.readouterr().out == f"{model}\n"
    tool.remove()
    tool.remove()
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module"):
        CompLayerAcc(print, True, False, folder)


def test_what_is_open_at_exit_is_on_disk(folder, python):
    python(
        """
        import torch, sys
        from module_tools import CompLayerAcc, record
        model = torch.nn.Linear(2, 2)
        CompLayerAcc(model, True, False, sys.argv[1])  # never used
        tool = CompLayerAcc(model, True, False, sys.argv[1])
        model = tool.insert_hook()
        model(torch.ones(1, 2)).sum().backward()
        """,
        str(folder),
    )
    assert list_files(folder, "*/step0/*") == ["Linear.call0.pt", "Linear.call0.pt", "Linear.pt", "Linear.pt"]
    assert read(folder, "modules_full_name_run.txt") == ["Linear"]


def test_a_forked_child_writes_nothing(folder, python):
    python(
        """
        import os, sys, torch
        from module_tools import CompLayerAcc, record
        torch.set_num_threads(1)
        model = torch.nn.Linear(2, 2)
        with CompLayerAcc(model, True, False, sys.argv[1]) as tool:
            model(torch.ones(1, 2))
            tool.flush()
            child = os.fork()
            if child == 0:
                with torch.no_grad():
                    model(torch.ones(1, 2))
                tool.remove()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            tool.step()
        """,
        str(folder),
    )
    assert list_files(folder, "forward/step0/*") == ["Linear.call0.pt"]
    assert read(folder, "modules_full_name_run.txt") == ["Linear"]


def test_the_original_s_one_liner_keeps_the_tool_and_a_dead_model_frees_it(folder):
    model = CompLayerAcc(nn.Linear(2, 2), True, False, folder).insert_hook()
    gc.collect()
    model(torch.ones(1, 2)).sum().backward()
    alive = weakref.ref(model)
    next(tool for tool in record._open_tools).flush()
    assert list_files(folder, "*/step0/*.call0.pt") == ["Linear.call0.pt", "Linear.call0.pt"]
    del model
    gc.collect()
    assert alive() is None and not list(record._open_tools)


def test_a_folder_that_cannot_be_made_is_an_error_at_the_start(folder):
    (folder / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot be written: .*; choose another data_path"):
        CompLayerAcc(nn.Linear(1, 1), True, False, folder / "file").insert_hook()
