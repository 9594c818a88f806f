"""torch_dipu's names in every mode of the alias, on several devices, and with the process group `dicl`."""

import pytest

SURFACE = """
import os, sys, tempfile, threading
import ditorch, torch

def check(mocking, shown):
    import torch_dipu
    from torch_dipu import dipu, _C

    name = "cuda" if shown else "dit"
    assert torch_dipu.mockcuda is mocking and dipu.diputype == name
    assert _C._get_python_device_as_cuda() is shown

    # texts
    assert str(torch.device("dipu:1")) == f"{name}:1" and torch.device("dipu", 1) == torch.device("dit:1")
    assert torch.device(type="dipu").index is None
    assert (torch.device("cuda") == torch.device("dipu")) is mocking
    assert torch.device("cuda").type == (name if mocking else "cuda") and str(torch.device("cpu")) == "cpu"
    x = torch.arange(6.0, device="dipu").view(2, 3)
    assert x.is_dipu and torch.ones(2).to("dipu:1").device.index == 1 and x.t().dipu(1).device.index == 1
    assert torch.ones(1).dipu().is_dipu and torch.nn.Linear(2, 2).to("dipu").weight.is_dipu
    assert torch.Generator("dipu:1").device.index == 1 and torch.UntypedStorage(3, device="dipu:1").is_dipu
    with torch.device("dipu:1"):
        assert torch.zeros(2).device.index == 1
    with torch.autocast("dipu"):
        assert (x @ x.t()).dtype is torch.float16
    with tempfile.TemporaryFile() as file:
        torch.save(x, file)
        file.seek(0)
        assert torch.load(file, map_location="dipu:1").device.index == 1

    # devices
    assert dipu.device_count() == 20 and dipu.can_device_access_peer(0, 1) and dipu.can_device_access_peer()
    with dipu.devicectx("dipu:1"):
        assert dipu.current_device() == 1 and torch.ones(1, device="dipu").device.index == 1
        with dipu.devicectx(None), dipu.devicectx(-1), dipu.device_of(torch.ones(1)):
            assert dipu.current_device() == 1
        with dipu.device_of(x):
            assert dipu.current_device() == 0
    try:
        with dipu.devicectx(1):
            raise KeyError
    except KeyError:
        assert dipu.current_device() == 0
    seen = []
    thread = threading.Thread(target=lambda: (dipu.set_device(3), seen.append(dipu.current_device())))
    thread.start()
    thread.join()
    assert seen == [3] and dipu.current_device() == 0

    # defect 25: more than 16 devices, each with streams, events and memory of its own
    dipu.set_device(19)
    stream = dipu.Stream()
    assert stream.device.index == 19 and dipu.Stream("dipu:18").device_index == 18
    event = dipu.Event(enable_timing=True)
    with dipu.stream(stream):
        y = torch.ones(1000, device="dipu") * 3
        event.record()
    event.synchronize()
    assert y.device.index == 19 and y.sum().item() == 3000 and event.query() and stream.query()
    assert dipu.memory_allocated("dipu:19") >= 4000 > dipu.memory_allocated(17) == 0
    dipu.set_device(0)

    # streams
    side = dipu.Stream(1, priority=-1)
    assert side.device_index == 1 and side.dipu_stream and side == dipu.Stream(stream_id=side.stream_id, device_index=1)
    assert dipu.Stream(stream_id=0, device_index=0) == dipu.default_stream(0) and dipu.default_stream(0) != side
    assert hash(side) == hash(dipu.Stream(stream_id=side.stream_id, device_index=1)) and "Stream" in repr(side)
    with dipu.stream(side):
        assert dipu.current_stream() == side and dipu.current_device() == 1
        assert dipu.current_stream(0) == dipu.default_stream(0)
        start, end = dipu.Event(True), dipu.Event(True)
        start.record()
        z = torch.full((4,), 2.0, device="dipu")
        done = dipu.current_stream().record_event(end)
    assert dipu.current_device() == 0 and dipu.current_stream() == dipu.default_stream()
    dipu.current_stream().wait_event(done)
    dipu.current_stream(1).wait_stream(side)
    assert z.sum().item() == 8 and start.elapsed_time(end) >= 0 and end.dipu_event
    with dipu.stream(None):
        pass
    external = _C._DIPUStreamBase(stream_ptr=dipu.Stream().dipu_stream)
    external.synchronize()
    assert external.query() and not dipu.is_current_stream_capturing()
    dipu.set_sync_debug_mode("warn")

    # random numbers
    dipu.manual_seed_all(7)
    first = torch.rand(3, device="dipu:1")
    dipu.default_generators[1].manual_seed(7)
    assert len(dipu.default_generators) == 20 and torch.equal(torch.rand(3, device="dipu:1"), first)
    state = dipu.get_rng_state("dipu:1")
    again = torch.rand(3, device="dipu:1")
    dipu.set_rng_state(state, 1)
    assert torch.equal(torch.rand(3, device="dipu:1"), again)
    dipu.seed_all()
    assert len({generator.initial_seed() for generator in dipu.default_generators}) == 1

    # memory
    assert dipu.mem_get_info(1) == (_C._dipu_getDeviceStatus(1).free_memory, _C._dipu_getDeviceStatus(1).total_memory)
    assert "Allocated memory" in dipu.memory_summary(1)
    assert dipu.memory_stats(1)["allocated_bytes.all.current"] == dipu.memory_allocated(1)
    address = dipu.caching_allocator_alloc(512, 1, side)
    dipu.caching_allocator_delete(address)
    dipu.empty_cache()

    with dipu.nvtx.range("x"):
        dipu.nvtx.mark("y")
    assert dipu.amp.get_autocast_dipu_dtype() is torch.float16

    if not mocking:  # cuda is PyTorch's own
        assert not torch.cuda.is_available() and x.is_cuda is False and torch.device("cuda").type == "cuda"
        try:
            torch.ones(1, device="cuda")
        except (RuntimeError, AssertionError) as error:
            assert "cuda" in str(error).lower(), error
        else:
            raise AssertionError("cuda")
        for refused in (_C._mockCudaTensorType, lambda: _C.ProcessGroupDICL(None, 0, 1)):
            try:
                refused()
            except ditorch.NotSupportedError as error:
                assert "DIPU_MOCK_CUDA" in str(error)
            else:
                raise AssertionError("not refused")

    # a training step by DIPU's names alone
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).to("dipu:1")
    data = torch.ones(4, 3, device="dipu:1")
    losses = []
    for _ in range(3):
        model.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        losses.append(loss.item())
    assert losses[2] < losses[0]

for mode, (environment, mocking, shown) in MODES.items():
    print("mode:", mode, flush=True)
    ditorch.uninstall()
    os.environ.update(environment)
    ditorch.install()
    check(mocking, shown)
    for name in environment:
        del os.environ[name]
print("all of it works")
"""

MODES = {
    "binary": ({}, True, True),
    "python": ({"DITORCH_ALIAS": "python"}, True, True),
    "real name": ({"DIPU_PYTHON_DEVICE_AS_CUDA": "false"}, True, False),
    "no mocking": ({"DIPU_MOCK_CUDA": "False"}, False, False),
}


def test_dipu_25_the_surface_on_twenty_devices_in_every_mode(python):
    answer = python(SURFACE.replace("MODES", repr(MODES)), DITORCH_HOST_DEVICES="20")
    assert "all of it works" in answer.stdout


def test_dipu_4_dicl_is_a_backend_and_keeps_its_timeout(python, tmp_path):
    program = f"""
        from datetime import timedelta
        import ditorch, torch, torch_dipu
        import torch.distributed as dist
        from torch_dipu import _C

        assert dist.Backend("dicl") == "nccl" and _C.dicl_backend == "dicl"
        dist.init_process_group("dicl", init_method="file://{tmp_path}/rendezvous", rank=0, world_size=1)
        assert dist.get_backend() == "nccl"
        x = torch.full((3,), 2.0, device="dipu")
        dist.all_reduce(x)
        work = dist.broadcast(x, 0, async_op=True)
        work.wait()
        assert x.tolist() == [2.0] * 3
        store = dist.FileStore("{tmp_path}/store", 1)
        group = _C.ProcessGroupDICL(store, 0, 1, timedelta(seconds=77))
        assert isinstance(group, _C.ProcessGroupDICL) and not isinstance(store, _C.ProcessGroupDICL)
        assert group.options._timeout == timedelta(seconds=77)
        group.allreduce([x]).wait()
        dist.destroy_process_group()
        print("collected")
        """
    assert "collected" in python(program, DICL_BLOCKING_WAIT="1").stdout


@pytest.mark.full
def test_children_of_spawn_have_the_names(python, tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        "import ditorch, torch, torch_dipu\n"
        "import torch.multiprocessing as mp\n"
        "def work(rank):\n"
        "    assert torch.ones(2, device='dipu').dipu().is_dipu\n"
        "    print('child', rank, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(work, nprocs=1)\n"
    )
    assert "child 0" in python(str(script)).stdout
