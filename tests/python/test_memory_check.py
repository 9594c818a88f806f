"""The memory checker and the protection of device memory, seen from Python programs."""

import ctypes

import ditorch  # noqa: F401
import pytest
import torch
from conftest import open_memory
from ditorch import _C, memory_check

# Kernels in C, CPU fallbacks, batch norm's hidden writes, views, streams, pinned copies, attention, autograd.
TRAINING = """
import torch, ditorch
from ditorch import _C, memory_check

def train():
    torch.manual_seed(0)
    torch.cuda.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.Dropout(0.1), torch.nn.Linear(144, 5)).cuda()
    side = torch.cuda.Stream()
    seen = []
    for step in range(3):
        x = torch.randn(4, 1, 8, 8).pin_memory().cuda(non_blocking=True)
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.default_stream())
            z = x.sin().sum()
        torch.cuda.current_stream().wait_stream(side)
        loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 2, 3], device="cuda")) + z
        loss.backward()
        seen += [loss.item(), model[0].weight.grad.double().sum().cpu().item()]
        model.zero_grad()
    a = torch.arange(12.0, device="cuda").reshape(3, 4)
    q = torch.randn(1, 2, 8, 4, device="cuda")
    seen += [a.t().cpu().tolist(), a[1:, ::2].contiguous().cpu().tolist(), torch.fft.fft(a).real.cpu().sum().item()]
    seen += [torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().item(), a.sort()[1].tolist()]
    return seen
"""


def test_right_programs_are_unchanged_and_clean_under_each_algorithm(python, tmp_path):
    result = python(
        TRAINING
        + """
plain = train()
for name in ("torch", "bf", "bs", "raw"):
    for option, value in (("allocator", name), ("host_allocator", name), ("memory_check", "1"), ("metrics", "1"),
                          ("memory_check_backtrace", "1"), ("memory_check_interval", "0")):
        _C.option_set(option, value)
    _C.memory_apply_options()
    assert _C.memory_get_algorithm() == name and memory_check.is_on()
    assert train() == plain, name
_C.option_set("memory_check", "0")
_C.option_set("memory_protect", "stop")
for name in ("torch", "bf", "bs", "raw"):
    _C.option_set("allocator", name)
    _C.memory_apply_options()
    assert train() == plain, name
import op_tools
for tool in (op_tools.OpCapture(), op_tools.OpOverflowCheck()):
    tool.start()
    assert train() == plain
    tool.stop()
state = memory_check.state()
assert not any(state[kind] for kind in state if kind not in ("blocks", "bytes", "inserts")), state
assert state["inserts"] > 100
""",
        cwd=tmp_path,
    )
    assert "dipu memory checker" not in result.stderr


@open_memory
def test_stray_access_is_reported_and_let_through(python):
    result = python(
        """
        import ctypes, torch, ditorch
        from ditorch import memory_check
        x = torch.arange(4.0, device="cuda")
        ctypes.memset(x.data_ptr(), 0, 4)
        assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
        value = ctypes.c_float.from_address(x.data_ptr() + 8).value
        assert value == 2.0 and memory_check.state()["stray_accesses"] == 2
        """,
        DITORCH_MEMORY_PROTECT="report",
    )
    assert result.stderr.count("stray host access to memory of device 0, ptr = 0x") == 2


def test_dipu_11_default_allocator_leaks_are_seen_at_exit(python):
    result = python(
        """
        import torch, ditorch
        from ditorch import _C
        assert _C.memory_get_algorithm() == "torch"
        def lose():
            return _C.memory_alloc(0, 0, 12345)
        lose()
        x = torch.ones(10, device="cuda")
        y = x.cpu()
        keep = [torch.ones(1, device="cuda") for _ in range(25)]
        """,
        DIPU_MEM_CHECK=1,
        DIPU_MEM_CHECK_ENABLE_BACKTRACE=1,
        DIPU_MEM_CHECK_MAX_BLOCK=20,
        DIPU_MEM_CHECK_LOG_INTERVAL=10,
    )
    assert "there maybe exist memory leak. " in result.stderr
    assert "ptr: 12345, device 0, stream 0" in result.stderr and "in lose" in result.stderr
    assert "not found" not in result.stderr and "going to destruction. " in result.stderr
    assert "dipu memory checker: current block num = 10, total_size = 0MB, insert count = 10, " in result.stderr
    assert "dipu memory checker: there may be memory leak. current block num = 21" in result.stderr


@open_memory
def test_watch_finds_what_is_left_damaged_and_freed_twice(capfd):
    before = memory_check.state()
    with memory_check.watch(backtrace=True, guard=1024) as found:
        address = _C.memory_alloc(0, 0, 100)
        kept = torch.ones(7, device="cuda").pow(2)
        pinned = torch.ones(3).pin_memory()
        ctypes.memset(address - 3, 1, 2)
        _C.memory_free(address)
        _C.memory_free(address)
    assert [(b["size"], b["device"]) for b in found.leaks] == [(28, 0), (12, -1)], found.leaks
    assert "in test_watch_finds" in found.leaks[0]["place"] and found.leaks[0]["frames"]
    assert found.damaged == 1 and memory_check.state()["double_frees"] == before["double_frees"] + 1
    assert not memory_check.is_on()
    del kept, pinned
    text = capfd.readouterr().err
    assert "freed twice; it was a block of 100 bytes of device memory" in text
    assert "2 bytes in front of the block were written, the nearest 2 bytes away" in text


def test_allocations_while_an_exception_is_on_its_way():
    with memory_check.watch(backtrace=True):
        with pytest.raises(RuntimeError, match=r"sizes|shape|size"):
            torch.ones(3, device="cuda") @ torch.ones(4, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 50, device="cuda")


def test_bad_guard_is_refused():
    with pytest.raises((ValueError, RuntimeError), match=r"100 bytes.*512"):
        memory_check.start(guard=100)
    assert not memory_check.is_on()


def test_debug_lines(capfd):
    _C.memory_empty_cache(-1)
    _C.option_set("allocator_debug", "7")
    try:
        _C.memory_apply_options()
        x = torch.ones(1 << 22, device="cuda")  # a segment of its own, whatever other tests left alive
        del x
        _C.memory_empty_cache(-1)
    finally:
        _C.option_set("allocator_debug", "0")
        _C.memory_apply_options()
    text = capfd.readouterr().err
    assert "ditorch allocator: allocated 16777216 bytes" in text and "ditorch allocator: freed 16777216 bytes" in text
    assert "ditorch allocator: gave back to the vendor" in text
