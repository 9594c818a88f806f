"""Traps that similar tools fell into and that no other test here is named after."""

import threading

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from ditorch import _C
from op_tools import OpCapture, OpObserve, OpOverflowCheck, OpTimeMeasure
from torch import mul as imported_before

TOOLS = [OpObserve, OpTimeMeasure, OpOverflowCheck, OpCapture]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("tool", TOOLS)
def test_trap_permanent_torch_function_mode_slows_every_op(tool):
    with tool(console="off"):
        torch.ones(2, device="cuda") + 1
        assert torch._C._len_torch_function_stack() == 1
    assert torch._C._len_torch_function_stack() == 0 and torch._C._len_torch_dispatch_stack() == 0


@pytest.mark.parametrize("tool", TOOLS)
def test_trap_function_identity_changes_break_libraries(tool):
    before = (torch.add, F.linear, torch.Tensor.add, torch.nn.Linear.forward, torch.autograd.backward)
    with tool(console="off"):
        assert before == (torch.add, F.linear, torch.Tensor.add, torch.nn.Linear.forward, torch.autograd.backward)
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


def test_trap_names_imported_before_patching_escape():
    with OpObserve(console="off") as tool:
        imported_before(torch.ones(2, device="cuda"), 2)
    assert [call["name"] for call in tool.calls()] == ["torch.ones", "torch.mul"]


def test_trap_xor_hash_parity_blindness():
    x = torch.ones(4, device="cuda")
    hashes = {str(_C.tensor_hash(torch.full((n,), 1.0, device="cuda"))) for n in (0, 2, 4, 6)}
    assert len(hashes) == 4  # an XOR of equal values would cancel
    assert _C.tensor_hash(x.cumsum(0)) != _C.tensor_hash(x.cumsum(0).flip(0))


@pytest.mark.parametrize("tool", [OpObserve, OpTimeMeasure, OpOverflowCheck, OpCapture])
def test_trap_text_reports_too_long_to_read(tool, capsys):
    with tool():
        x = torch.ones(4, device="cuda", requires_grad=True)
        for _ in range(300):
            (x * 2).sum().backward()
    captured = capsys.readouterr()
    assert len((captured.out + captured.err).splitlines()) < 40


def test_trap_state_file_left_behind_changes_later_runs(folder):
    def run():
        with OpObserve(console="off", list="torch.Tensor.add") as tool:
            x = torch.ones(2, device="cuda")
            x + 1
            x * 2
        return [call["name"] for call in tool.calls()], tool.counts()["applied"]

    first = run()
    assert any(folder.rglob("*.dlog"))
    assert run() == first == (["torch.Tensor.add"], 1)


def test_trap_rank_unknown_or_duplicated(folder, monkeypatch, python):
    code = "import torch, ditorch\nfrom op_tools import OpObserve\nwith OpObserve(): torch.ones(2, device='cuda')\n"
    for rank in (None, "0", "0", "1"):
        world = None if rank is None else "2"
        python(code, cwd=folder, RANK=rank, WORLD_SIZE=world)
    names = sorted(path.name for path in folder.rglob("*.dlog"))
    assert len(names) == len(set(names)) == 4 and sum("-r1-" in name for name in names) == 1


@pytest.mark.parametrize("tool", [OpObserve, OpTimeMeasure, OpOverflowCheck])
def test_trap_random_ops_empty_ops_views_and_factories(tool):
    with tool(console="off") as watched:
        x = torch.rand(3, 4, device="cuda")
        torch.empty(0, device="cuda") + 1
        torch.empty(2, 0, 3, device="cuda").sum()
        x.t()[1:].view(-1) if x.t()[1:].is_contiguous() else x.t()[1:].reshape(-1)
        torch.nn.functional.dropout(x, 0.5)
    assert watched.counts()["applied"] >= 8
