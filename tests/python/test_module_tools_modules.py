"""CompLayerAcc on modules of all kinds: shared, late, recomputed, wrapped, compiled, in parallel; with fixed inputs."""

import os

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from module_tools import CompLayerAcc
from module_tools import store as module_store
from test_module_tools import Gpt, LeNet, list_files, load, loss_of, make_input, read, train
from torch.utils.checkpoint import checkpoint


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    return tmp_path


# Modules of all kinds


def test_shared_modules_have_their_first_name(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2)
            self.b = self.a

        def forward(self, x):
            return self.b(self.a(x))

    with CompLayerAcc(Net(), True, False, folder) as tool:
        tool.model(torch.ones(1, 2))
    assert list_files(folder, "forward/step0/*") == ["Net.a.call0.pt", "Net.a.call1.pt", "Net.call0.pt"]
    assert read(folder, "modules_full_name.txt") == ["Net", "Net.a", "Net.b"]


def test_modules_made_later_are_seen(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = nn.ModuleList()
            self.lazy = nn.LazyLinear(2)

        def forward(self, x):
            if not hasattr(self, "late"):
                self.late = nn.Sequential(nn.Linear(3, 3))
                self.items.insert(0, nn.Linear(2, 2))  # goes past registration
            return self.items[0](self.lazy(self.late(x)))

    with CompLayerAcc(Net(), True, False, folder) as tool:
        tool.model(torch.ones(1, 3))
        tool.model(torch.ones(1, 3))
    found = list_files(folder, "forward/step0/*")
    assert {"Net.late.call0.pt", "Net.late.0.call1.pt", "Net.lazy.call0.pt", "Net.items.0.call0.pt"} <= {*found}
    assert "Net.late.0" in read(folder, "modules_full_name.txt")


def test_odd_names_become_file_names(folder):
    model = nn.Module()
    long = "x" * 300
    for name in ("a/b", "50%", "../up", "two words", long, "call0"):
        setattr(model, name, nn.Identity())  # add_module refuses dots, this does not
    with CompLayerAcc(model, True, False, folder):
        for module in model.children():
            module(torch.ones(1))
    run = module_store.open_run(f"{folder}/rank0/expected")
    names = {key.name for key in run.files["forward"]}
    assert names == {f"Module.{name}" for name in ("a/b", "50%", "../up", "two words", long, "call0")}
    assert {key.name for key in run.latest["forward"]} == names
    assert os.listdir(folder) == ["rank0"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_recompute_is_tagged_trap_recompute_runs_ops_twice_under_the_same_name(folder, reentrant):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

        def forward(self, x):
            for _ in range(2):
                x = checkpoint(self.block, x, use_reentrant=reentrant)
            return x

    torch.manual_seed(0)
    model, x = Net(), torch.randn(2, 3, requires_grad=True)
    wanted = torch.autograd.grad(model(x).sum(), x, retain_graph=False)[0] if not reentrant else None
    with CompLayerAcc(model, True, False, folder):
        y = model(x)
        y.sum().backward()
    assert wanted is None or torch.equal(x.grad, wanted)
    first = load(folder, "forward", "Net.block.0", 0, 0)
    again = load(folder, "forward", "Net.block.0", 0, 0, again=".recompute0")
    assert again["recompute"] and not first["recompute"]
    assert torch.equal(first["input"][0], again["input"][0]) and torch.equal(first["output"], again["output"])
    second = load(folder, "forward", "Net.block.0", 0, 1, again=".recompute0")
    assert torch.equal(second["input"][0], load(folder, "forward", "Net.block.0", 0, 1)["input"][0])
    assert load(folder, "forward", "Net.block.0")["recompute"] is False
    assert torch.equal(load(folder, "backward", "Net.block", 0, 0)["grad_input"][0], x.grad)
    order = ["Net.block.0", "Net.block.1", "Net.block"] * 2 + ["Net"]
    assert read(folder, "modules_full_name_run.txt") == order


def test_a_graph_that_is_walked_twice_has_two_rounds(folder):
    model = nn.Linear(2, 2)
    x = torch.ones(1, 2, requires_grad=True)
    with CompLayerAcc(model, True, False, folder):
        y = model(x)
        y.sum().backward(retain_graph=True)
        (2 * y).sum().backward()
    assert list_files(folder, "backward/step0/*") == ["Linear.call0.pt", "Linear.call0.round1.pt"]
    second = load(folder, "backward", "Linear", 0, again=".round1")
    assert torch.equal(second["grad_output"][0], torch.full((1, 2), 2.0))


def test_no_grad_eval_and_half_precision(folder):
    model = LeNet().to(torch.bfloat16).eval()
    with CompLayerAcc(model, True, False, folder), torch.no_grad():
        model(make_input(LeNet, "cpu").bfloat16())
    assert load(folder, "forward", "LeNet.fc2", 0)["output"].dtype == torch.bfloat16
    assert list_files(folder, "backward/step0/*") == []


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_autocast(folder, place):
    plain = train(LeNet, place, amp=True)
    watched = train(LeNet, place, amp=True, tool=lambda model: CompLayerAcc(model, True, False, folder))
    assert all(torch.equal(a, b) for a, b in zip(plain[0], watched[0], strict=True))
    assert load(folder, "forward", "LeNet.fc1", 0)["output"].dtype == torch.bfloat16
    assert load(folder, "backward", "LeNet.fc1", 0)["grad_output"][0].dtype == torch.bfloat16


def test_compiled_models_have_the_names_of_plain_ones(folder):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model[1] = torch.compile(model[1], backend="eager")
    with CompLayerAcc(torch.compile(model, backend="eager"), True, False, folder) as tool:
        tool.model(torch.ones(1, 2))
    assert list_files(folder, "forward/step0/*") == [
        "Sequential.0.call0.pt",
        "Sequential.1.call0.pt",
        "Sequential.call0.pt",
    ]


def test_data_parallel_and_two_processes(folder, python):
    python(
        """
        import torch, ditorch, os, sys
        from module_tools import CompLayerAcc, record
        model = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).cuda())
        with CompLayerAcc(model, True, False, sys.argv[1]) as tool:
            for _ in range(2):
                model(torch.ones(4, 2, device="cuda")).sum().backward()
                tool.step()
        """,
        str(folder),
        DITORCH_HOST_DEVICES=2,
    )
    assert [name for name in list_files(folder, "forward/step1/*") if ".0" in name] == [
        "Sequential.0.call0.pt",
        "Sequential.0@1.call0.pt",
    ]
    text = """
        import torch, os, sys
        import torch.distributed as dist
        from module_tools import CompLayerAcc, record
        rank = int(sys.argv[2])
        dist.init_process_group("gloo", init_method="file://" + sys.argv[1] + "/meet", rank=rank, world_size=2)
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        with CompLayerAcc(model, True, False, sys.argv[1] + "/ddp"):
            model(torch.full((1, 2), float(rank))).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        dist.destroy_process_group()
        """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rank: python(text, str(folder), str(rank)), range(2)))
    for rank in range(2):
        item = load(f"{folder}/ddp", "forward", "Linear", 0, rank=rank)
        assert torch.equal(item["input"][0], torch.full((1, 2), float(rank)))
        grads = torch.load(f"{folder}/ddp/rank{rank}/expected/gradients/Linear.pt", weights_only=True)
        assert torch.equal(grads["gradients"]["weight"], torch.full((2, 2), 0.5))  # reduced


# Fixed input


def test_m5_fixed_input_replaces_values_and_keeps_the_graph(folder):
    torch.manual_seed(0)
    model, x = LeNet().eval(), make_input(LeNet, "cpu")
    with CompLayerAcc(model, True, False, folder):
        loss_of(model(x)).backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    other = model.cuda()
    live = make_input(LeNet, "cuda")  # other data: every layer still gets what is stored
    with CompLayerAcc(other, False, True, folder):
        loss_of(other(live)).backward()
    for name in ("LeNet", "LeNet.conv1", "LeNet.conv2", "LeNet.fc2"):
        expected, real = (load(folder, "forward", name, 0, side=side) for side in ("expected", "real"))
        assert torch.equal(expected["input"][0], real["input"][0]), name
    for mine, theirs in zip(other.parameters(), wanted, strict=True):
        torch.testing.assert_close(mine.grad.cpu(), theirs, rtol=1e-3, atol=1e-5)


def test_m5_keyword_inputs_are_saved_and_fixed(folder):
    class Scale(nn.Module):
        def forward(self, x, *, weights):
            return x * weights["w"]

    model, x, w = Scale(), torch.randn(3), torch.randn(3)
    with CompLayerAcc(model, True, False, folder):
        wanted = model(x, weights={"w": w})
    assert torch.equal(load(folder, "forward", "Scale", 0)["kwargs"]["weights"]["w"], w)
    live = torch.zeros(3, requires_grad=True)
    with CompLayerAcc(model, False, True, folder):
        y = model(torch.ones(3), weights={"w": live})
        y.sum().backward()
    assert torch.equal(y, wanted) and torch.equal(live.grad, x)
    assert torch.equal(load(folder, "backward", "Scale", 0, side="real")["grad_kwargs"]["weights"]["w"], x)


def test_m1_fixed_input_goes_to_the_device_and_dtype_of_the_live_one(folder):
    class Net(nn.Module):
        def forward(self, pair, n):
            assert pair["a"] is pair["b"]  # one tensor stays one tensor
            return pair["a"] * n

    x = torch.arange(3.0, dtype=torch.float64)
    with CompLayerAcc(Net(), True, False, folder) as tool:
        tool.model({"a": x, "b": x}, 2)
    live = torch.zeros(3, device="cuda")
    with CompLayerAcc(tool.model, False, True, folder):
        y = tool.model({"a": live, "b": live}, 2)
    assert y.device.type == "cuda" and y.dtype == torch.float32 and y.tolist() == [0, 2, 4]
    assert live.tolist() == [0, 0, 0]


def test_fixed_input_under_recompute(folder):
    torch.manual_seed(0)
    model = Gpt(recompute=True)
    tokens = make_input(Gpt, "cpu")
    with CompLayerAcc(model, True, False, folder):
        loss_of(model(tokens)).backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with CompLayerAcc(model, False, True, folder):
        loss_of(model(tokens)).backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), wanted, strict=True))


def test_what_does_not_fit_is_said_and_stays_live(folder, capsys):
    model = nn.Linear(2, 2)
    with CompLayerAcc(model, True, False, folder) as tool:
        model(torch.ones(1, 2))
    with CompLayerAcc(model, False, True, folder) as tool:
        model(torch.ones(5, 2))  # another shape
        model(torch.ones(1, 2))  # one call more than stored
        tool.step()
    err = capsys.readouterr().err
    assert "Linear keeps its own input.0: stored [1, 2], live [5, 2]" in err
    assert "no stored input of Linear in step 0, call 1" in err


def test_fixed_input_needs_an_expected_folder(folder):
    with pytest.raises(AssertionError, match="is_dump_benchmark=False"):
        CompLayerAcc(nn.Linear(1, 1), True, True, folder)
    with pytest.raises(AssertionError, match="run once with is_dump_benchmark=True"):
        CompLayerAcc(nn.Linear(1, 1), False, True, folder)


def test_fixed_input_from_a_folder_of_the_original(folder):
    os.makedirs(f"{folder}/rank0/expected/forward")
    item = {"layer_name": "Linear", "input": (torch.full((1, 2), 5.0),), "output": torch.zeros(1, 2)}
    torch.save(item, f"{folder}/rank0/expected/forward/Linear.pt")
    model = nn.Linear(2, 2)
    with CompLayerAcc(model, False, True, folder):
        y = model(torch.zeros(1, 2))
    assert torch.equal(y, F.linear(torch.full((1, 2), 5.0), model.weight, model.bias))
