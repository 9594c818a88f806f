"""Programs under each allocator algorithm: same results, right statistics, errors that name their variable."""

PROGRAM = """
import torch
import ditorch
from ditorch import _C

def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(50, 70), torch.nn.ReLU(), torch.nn.Linear(70, 3)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 50)), 16, pin_memory=True)
    side = torch.cuda.Stream()
    losses = []
    for (batch,) in loader:
        x = batch.cuda(non_blocking=True)
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.default_stream())
            y = x * 2
            x.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        loss = (model(x) + y.sum()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    allocated, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    assert 0 < allocated <= peak <= torch.cuda.max_memory_reserved()
    assert allocated <= torch.cuda.memory_reserved() <= torch.cuda.max_memory_reserved()
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == allocated
    assert sum(segment["allocated_size"] for segment in torch.cuda.memory_snapshot()) == allocated
    return losses

def fill():
    try:
        torch.empty(1 << 40, device="cuda")
    except torch.OutOfMemoryError as error:
        assert "CUDA out of memory. Tried to allocate" in str(error), error
    else:
        raise AssertionError("no error")
    big = [torch.empty(9 << 20, dtype=torch.uint8, device="cuda") for _ in range(5)]
    del big
    torch.empty(50 << 20, dtype=torch.uint8, device="cuda")  # fits only when the cache goes back

results = {}
for name in ("torch", "bf", "bs", "raw"):
    _C.option_set("allocator", name)
    _C.option_set("host_allocator", name)
    _C.memory_apply_options()
    assert _C.memory_get_algorithm() == name
    results[name] = train()
    fill()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    _C.host_empty_cache()
    assert torch.cuda.memory_allocated() == 0, (name, torch.cuda.memory_allocated())
    assert torch.cuda.memory_reserved() == 0, (name, torch.cuda.memory_reserved())
    assert _C.host_stats()["reserved_current"] == 0, name
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0
assert all(result == results["torch"] for result in results.values()), results
"""


def test_training_statistics_and_full_device_under_each_algorithm(python):
    python(PROGRAM, DITORCH_HOST_MEMORY="64MiB")


def test_dipu_12_device_algorithm_alone_leaves_pinned_memory_working(python):
    python(
        """
        import torch, ditorch
        from ditorch import _C
        assert _C.memory_get_algorithm() == "bs"
        x = torch.arange(1000.0).pin_memory()
        assert x.is_pinned() and torch.equal(x.cuda(non_blocking=True).cpu(), x.cpu())
        torch.cuda.caching_allocator_enable(False)
        assert _C.memory_get_algorithm() == "raw"
        torch.cuda.caching_allocator_enable(True)
        assert _C.memory_get_algorithm() == "bs"
        ditorch.uninstall()
        ditorch.install(allocator="torch")
        assert _C.memory_get_algorithm() == "torch"
        """,
        DIPU_DEVICE_MEMCACHING_ALGORITHM="BS",
    )


def test_bad_value_names_variable_and_value(python):
    for variable, value, part in [
        ("DIPU_DEVICE_MEMCACHING_ALGORITHM", "BFC", "torch|bf|bs|raw"),
        ("DIPU_TORCH_ALLOCATOR_CONF", "max_split_size_mb:1", "at least 20"),
    ]:
        result = python("import ditorch\n", check=False, **{variable: value})
        assert result.returncode != 0
        message = result.stderr.strip().splitlines()[-1]
        assert variable in message and value in message and part in message
