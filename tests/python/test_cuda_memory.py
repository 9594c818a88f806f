"""torch.cuda memory functions tell the truth about the caching allocator."""

import os

import ditorch  # noqa: F401
import pytest
import torch

MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean():
    torch.cuda.init()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def test_allocated_reserved_and_peak():
    before = torch.cuda.memory_allocated()
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == before + 8 * MIB
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    del x
    assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() == before + 8 * MIB
    held = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < held
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before
    with pytest.warns(FutureWarning):
        torch.cuda.memory_cached()


def test_rounding_is_visible():
    before = torch.cuda.memory_stats()
    x = torch.empty(1, device="cuda")
    after = torch.cuda.memory_stats()
    assert after["allocated_bytes.all.current"] - before["allocated_bytes.all.current"] == 512
    assert after["requested_bytes.all.current"] - before["requested_bytes.all.current"] == 4
    assert after["allocation.small_pool.current"] - before["allocation.small_pool.current"] == 1
    assert after["allocation.all.allocated"] - before["allocation.all.allocated"] == 1
    del x
    freed = torch.cuda.memory_stats()["allocation.all.freed"]
    torch.cuda.reset_accumulated_memory_stats()
    assert freed > 0 and torch.cuda.memory_stats()["allocation.all.freed"] == 0


def test_summary_snapshot_and_device_argument():
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    assert "CUDA memory summary, device ID 0" in torch.cuda.memory_summary()
    assert torch.cuda.memory_allocated("cuda:0") == torch.cuda.memory_allocated(0) > 0
    segments = torch.cuda.memory_snapshot()
    blocks = {block["address"]: block for segment in segments for block in segment["blocks"]}
    block = blocks[x.data_ptr()]
    assert block["state"] == "active_allocated" and block["size"] == 3 * MIB and block["frames"] == []
    assert sum(segment["total_size"] for segment in segments) == torch.cuda.memory_reserved()
    whole = torch.cuda.memory._snapshot()
    assert len(whole["device_traces"]) == torch.cuda.device_count() and whole["segments"]
    torch.cuda.memory._record_memory_history()
    torch.cuda.memory._record_memory_history(enabled=None)


def test_memory_of_the_device():
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
    assert torch.cuda.device_memory_used() == pytest.approx(total - free, abs=256 * MIB)
    text = torch.cuda.list_gpu_processes()
    assert text.startswith("GPU:0\n") and str(os.getpid()) in text


def test_out_of_memory_and_fraction():
    total = torch.cuda.mem_get_info()[1]
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate") as caught:
        torch.empty(4 * total, dtype=torch.uint8, device="cuda")
    assert isinstance(caught.value, torch.OutOfMemoryError) and torch.cuda.memory_stats()["num_ooms"] > 0
    torch.cuda.set_per_process_memory_fraction(16 * MIB / total)
    try:
        assert torch.cuda.get_per_process_memory_fraction() == pytest.approx(16 * MIB / total)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(ValueError, match="Invalid fraction"):
        torch.cuda.set_per_process_memory_fraction(2.0)


def test_raw_allocation_and_disabled_cache():
    before = torch.cuda.memory_allocated()
    pointer = torch.cuda.caching_allocator_alloc(1000)
    stream = torch.cuda.Stream()
    other = torch.cuda.caching_allocator_alloc(1000, stream=stream)
    assert pointer and other and torch.cuda.memory_allocated() == before + 2048
    torch.cuda.caching_allocator_delete(pointer)
    torch.cuda.caching_allocator_delete(other)
    assert torch.cuda.memory_allocated() == before
    with torch.cuda.caching_allocator_disabled():
        x = torch.ones(4, device="cuda")
        assert x.sum().item() == 4
    del x
    assert torch.cuda.get_allocator_backend() == "native"


def test_pinned_memory():
    before = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    x = torch.ones(1000).pin_memory()
    assert x.is_pinned() and not torch.ones(3).is_pinned() and torch.empty(3, pin_memory=True).is_pinned()
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] >= before + 4000
    assert torch.equal(x.cuda(non_blocking=True).cpu(), x)
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()


@pytest.mark.skipif(not hasattr(torch.accelerator, "empty_host_cache"), reason="since PyTorch 2.10")
def test_the_accelerators_host_cache():
    torch.cuda.init()
    block = torch.empty(1 << 20).pin_memory()
    del block
    assert torch.cuda.host_memory_stats()["reserved_bytes.current"] > 0
    torch.accelerator.empty_host_cache()
    assert torch.cuda.host_memory_stats()["reserved_bytes.current"] == 0


def test_cudart_host_register():
    x = torch.ones(1000)
    runtime = torch.cuda.cudart()
    torch.cuda.check_error(runtime.cudaHostRegister(x.data_ptr(), x.numel() * 4, 0))
    assert x.is_pinned()
    torch.cuda.check_error(runtime.cudaHostUnregister(x.data_ptr()))
    assert not x.is_pinned()
    assert runtime.cudaHostUnregister(x.data_ptr()) != runtime.cudaError.success


def test_data_loader_pins(python):
    answer = python(
        """
        import torch, ditorch
        class Numbers(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, i): return torch.full((3,), float(i))
        torch.ones(1, device="cuda")
        for workers in (0, 2):
            loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=workers, pin_memory=True)
            print([(b.is_pinned(), b.cuda(non_blocking=True).sum().item()) for b in loader])
        """
    )
    assert answer.stdout.splitlines() == ["[(True, 18.0), (True, 66.0)]"] * 2


def test_allocator_configuration_by_environment(python):
    program = """
        import torch, ditorch
        print(torch.cuda.memory._snapshot()["allocator_settings"], torch.ones(2, device="cuda").sum().item())
        """
    answer = python(program, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64,expandable_segments:True")
    assert "max_split_size_mb:64" in answer.stdout and "2.0" in answer.stdout


def test_host_memory_option_limits_the_device(python):
    answer = python(
        """
        import torch, ditorch
        print(torch.cuda.get_device_properties(0).total_memory)
        try:
            torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            print("refused", "64.00 MiB" in str(error))
        """,
        DITORCH_HOST_MEMORY="64MiB",
    )
    assert answer.stdout.split() == [str(64 * MIB), "refused", "True"]


def test_allocator_settings_of_a_snapshot():
    before = torch._C._accelerator_getAllocatorSettings()
    try:
        settings = torch.cuda.memory._snapshot()["allocator_settings"]
        assert settings["expandable_segments"] is False and settings["max_split_size"] == -1
        text = "expandable_segments:True,max_split_size_mb:40,roundup_power2_divisions:[2:1,8:2,>:4]"
        torch._C._accelerator_setAllocatorSettings(text)
        settings = torch.cuda.memory._snapshot()["allocator_settings"]
        assert settings["PYTORCH_CUDA_ALLOC_CONF"] == text
        assert settings["expandable_segments"] is True and settings["max_split_size"] == 40 << 20
        divisions = settings["roundup_power2_divisions"]
        assert [divisions[size] for size in ("1", "2", "8", "16", "32768")] == [1, 1, 4, 4, 4]
        with pytest.raises((RuntimeError, ValueError), match="nosuchkey"):
            torch._C._accelerator_setAllocatorSettings("nosuchkey:1")
    finally:
        torch._C._accelerator_setAllocatorSettings(before)
