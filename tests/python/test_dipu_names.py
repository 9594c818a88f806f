"""`import torch_dipu` on the embedded device: every name of DIPU's surface, and the defects it must not have.

A test that carries a number (test_dipu_16_...) is about the defect of that number in DIPU.
"""

import importlib
import importlib.util
import json
import os
import threading

import ditorch
import pytest
import torch
from gate import Gate


@pytest.fixture
def torch_dipu():
    return importlib.import_module("torch_dipu")


@pytest.fixture
def dipu(torch_dipu):
    return torch_dipu.dipu


@pytest.fixture
def native(torch_dipu):
    return torch_dipu._C


# The package


def test_ours_is_told_from_a_real_one(torch_dipu, tmp_path, python):
    from ditorch.dipu import is_ours

    assert is_ours(torch_dipu) and is_ours(torch_dipu.dipu) and is_ours(importlib.util.find_spec("torch_dipu.dipu.amp"))
    assert not is_ours(torch) and not is_ours(None)
    package = tmp_path / "torch_dipu"
    package.mkdir()
    (package / "__init__.py").write_text("real = True\n")
    program = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import ditorch
        from ditorch.dipu import is_ours
        import torch_dipu
        assert torch_dipu.real and not is_ours(torch_dipu)
        try:
            import torch_dipu._C
        except ImportError:
            print("nothing is mixed in")
        """
    # the environment names the backend: with auto, the package would be asked whether it has a device
    assert "nothing is mixed in" in python(program, DITORCH_BACKEND="host").stdout


def test_an_unknown_module_is_not_answered(torch_dipu):
    for name in ("torch_dipu.nonsense", "torch_dipu.dipu.nonsense"):
        with pytest.raises(ModuleNotFoundError, match=name):
            importlib.import_module(name)
        assert importlib.util.find_spec(name) is None
    with pytest.raises(ImportError, match=r"deepspeed_dipu is not supported.*drop the import"):
        importlib.import_module("torch_dipu.utils.deepspeed_dipu")


def test_nothing_changes_before_the_import_and_nothing_stays_after_uninstall(python):
    program = """
        import sys, ditorch, torch

        def is_text():
            try:
                return torch.device("dipu").type == "cuda"
            except RuntimeError:
                return False

        def can_import():
            try:
                import torch_dipu
            except ImportError:
                return False
            return True

        ditorch.uninstall()
        for alias in ("binary", "python", "off"):
            ditorch.install(alias=alias)
            before = torch.amp.autocast_mode.autocast.__init__, list(torch.serialization._package_registry)
            assert "torch_dipu" not in sys.modules and not hasattr(torch.Tensor, "dipu") and not is_text()
            assert not hasattr(torch.distributed.Backend, "DICL")
            assert can_import() and is_text() is (alias != "off") and torch.ones(1).dipu().is_dipu
            assert torch.ones(1, device="dipu").is_dipu
            ditorch.uninstall()
            assert "torch_dipu" not in sys.modules and "torch_dipu.dipu" not in sys.modules
            assert not hasattr(torch.Tensor, "dipu") and not hasattr(torch.UntypedStorage, "is_dipu")
            assert before == (torch.amp.autocast_mode.autocast.__init__, torch.serialization._package_registry)
            assert not hasattr(torch.distributed.Backend, "DICL")
            assert not is_text() and not can_import() and torch.device("cuda").type == "cuda"
        ditorch.install(dipu_names=False)
        assert not can_import() and not is_text()
        print("as it was")
        """
    assert "as it was" in python(program).stdout


# The account


def test_every_name_of_the_account_is_there_and_nothing_else(torch_dipu):
    from ditorch.dipu import support

    for path in support.TABLE:
        module, _, name = path.rpartition(".")
        if path in support.MODULES_REFUSED:
            continue
        owner = support.resolve(module)
        assert hasattr(owner, name), path
    for module in ("torch_dipu", "torch_dipu.dipu", "torch_dipu._C", "torch_dipu.profiler"):
        found = {name for name in vars(importlib.import_module(module)) if support.is_public(module, name)}
        listed = {path.rpartition(".")[2] for path in support.TABLE if path.rpartition(".")[0] == module}
        assert found == listed, (module, sorted(found ^ listed))


def test_every_refused_name_says_so(torch_dipu):
    from ditorch.dipu import support

    refused = [path for path, entry in support.TABLE.items() if entry.status == "refused"]
    for path in refused:
        if path in support.MODULES_REFUSED:
            with pytest.raises(ImportError, match=path):
                importlib.import_module(path)
            continue
        with pytest.raises(ditorch.NotSupportedError, match=path.rpartition(".")[2]):
            support.resolve(path)()


def test_the_exported_names_are_dipu_s(torch_dipu, dipu):
    assert {"devicectx", "GetDeviceProxy", "StreamContext", "default_generators", "mem_get_info"} <= set(dipu.__all__)
    for name in dipu.__all__:
        assert getattr(torch_dipu, name) is getattr(dipu, name)
    assert torch_dipu.mockcuda is True and dipu.diputype == "cuda" and dipu.vendor_type == "HOST"


# Device texts


@pytest.mark.parametrize("text", ["dipu", "dipu:0"])
def test_dipu_is_a_device_text_everywhere(torch_dipu, text, tmp_path):
    device = torch.device(text)
    assert device == torch.device(text.replace("dipu", "cuda")) and str(device) == text.replace("dipu", "cuda")
    assert torch.device("dipu", 0) == torch.device(type="dipu", index=0) == torch.device("cuda:0")
    x = torch.arange(6.0, device=text).view(2, 3)
    assert x.is_cuda and x.is_dipu and x.untyped_storage().is_dipu and not torch.ones(1).is_dipu
    assert torch.ones(2).to(text).is_dipu and torch.empty_like(torch.ones(2), device=text).is_dipu
    assert torch.nn.Linear(2, 2).to(text).weight.is_dipu and torch.nn.Linear(2, 2, device=text).weight.is_dipu
    assert torch.Generator(text).device.type == "cuda" and torch.UntypedStorage(4, device=text).is_dipu
    with torch.device(text):
        assert torch.zeros(2).is_dipu
    with torch.autocast(text, dtype=torch.bfloat16):
        assert (x @ x.t()).dtype is torch.bfloat16
    assert torch.amp.GradScaler(text).scale(torch.ones(1, device=text)).item() == 65536.0
    torch.save(x, tmp_path / "x.pt")
    assert torch.equal(torch.load(tmp_path / "x.pt", map_location=text), x)
    assert torch.cuda.get_device_name(text) == torch.cuda.get_device_name("cuda")
    with torch.random.fork_rng(device_type=text):
        torch.rand(1, device=text)


@pytest.mark.parametrize("text", ["dipux", "dipu:", "dipu:x", "dipu:-1", "dipu:00", "xdipu", "Dipu", "dipu:1:2"])
def test_a_bad_text_is_an_error(torch_dipu, text):
    with pytest.raises(RuntimeError, match=r"device") as caught:
        torch.device(text)
    assert text in str(caught.value), "the error is about the text as it was given"


def test_a_file_that_names_dipu_is_loaded(torch_dipu, tmp_path, monkeypatch):
    x = torch.arange(4.0)
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "dipu:0")
    torch.save(x, tmp_path / "x.pt")
    monkeypatch.undo()
    loaded = torch.load(tmp_path / "x.pt")
    assert loaded.is_dipu and loaded.tolist() == x.tolist()
    assert not torch.load(tmp_path / "x.pt", map_location="cpu").is_dipu


def test_tensor_and_storage_methods(torch_dipu):
    x = torch.randn(3, 4).t()
    y = x.dipu()
    assert y.is_dipu and y.stride() == x.stride() and torch.equal(y.cpu(), x)
    assert y.dipu() is y and x.dipu(0).is_dipu and x.dipu("dipu:0", True).is_dipu
    assert x[None, None].dipu(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="must be dipu device, but got: cpu"):
        x.dipu("cpu")
    with pytest.raises(RuntimeError, match="device index 7 is invalid; valid: 0 to 0"):
        x.dipu(7)
    storage = torch.arange(3, dtype=torch.uint8).untyped_storage()
    copy = storage.dipu()
    assert copy.is_dipu and copy.dipu() is copy and copy.cpu().tolist() == [0, 1, 2] and not storage.is_dipu
    parameter = torch.nn.Parameter(torch.ones(2, device="dipu"))
    assert parameter.is_dipu and torch.empty(0).dipu().is_dipu


# Devices


def test_device_functions(dipu, native):
    assert dipu.is_available() and dipu.is_initialized() and dipu.device_count() == torch.cuda.device_count()
    assert dipu.current_device() == 0 and dipu.get_device_name("dipu") == dipu.get_device_properties(0).name
    assert dipu.get_device_capability() == torch.cuda.get_device_capability()
    dipu.set_device("dipu:0")
    dipu.set_device(0)
    dipu.synchronize()
    dipu.synchronize("dipu:0")
    properties = native._dipu_getDeviceProperties(device=0)
    assert isinstance(properties, native._DIPUDeviceProperties)
    assert properties.total_memory > 0 and properties.multi_processor_count > 0
    status = native._dipu_getDeviceStatus(0)
    assert 0 < status.free_memory <= status.total_memory and isinstance(status, native._DIPUDeviceStatus)
    assert native.dipu_vendor == "HOST" and native.dipu_device_type == "dit" and native.dicl_backend == "dicl"
    major, minor = (int(number) for number in torch.__version__.split(".")[:2])
    assert native.get_dipu_torch_version() // 100 == major * 100 + minor
    for bad, kind in (("cpu", ValueError), (3.5, TypeError), (99, RuntimeError), (-2, RuntimeError), (True, TypeError)):
        with pytest.raises(kind):
            dipu.get_device_name(bad)


def test_dipu_14_minus_one_is_the_current_device(dipu, native):
    assert native._dipu_getDeviceProperties(-1) is dipu.get_device_properties(dipu.current_device())
    with pytest.raises(RuntimeError, match="device index -2 is invalid"):
        native._dipu_getDeviceProperties(-2)


def test_device_proxies(dipu):
    ones = dipu.GetDeviceStaticProxy(torch.ones)
    assert ones(2, device=0).is_dipu and ones(2, device="dipu").is_dipu and not ones(2).is_dipu
    to = dipu.GetDeviceProxy(torch.Tensor.to)
    assert to(torch.ones(2), 0).is_dipu and to(torch.ones(2), device="dipu:0").is_dipu
    assert to(torch.ones(2), torch.float64).dtype is torch.float64
    new = dipu.GetDeviceProxy(torch.Generator, caller="class_new")
    assert new(object, "dipu").device.type == "cuda"
    with pytest.raises(ValueError, match="caller 'nobody' is unknown; valid: obj, static, class_new"):
        dipu.GetDeviceProxy(torch.ones, caller="nobody")


# Streams and events


def test_dipu_1_stream_equality(dipu):
    stream, other = dipu.Stream(), dipu.Stream()
    again = dipu.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
    assert stream == again and hash(stream) == hash(again)
    assert stream != other and stream != 3 and stream is not None and len({stream, again, other}) == 2
    assert dipu.current_stream() == dipu.default_stream() == torch.cuda.default_stream()


def test_dipu_16_the_default_stream_can_be_named(dipu, native):
    for kind in (dipu.Stream, native._DIPUStreamBase):
        default = kind(stream_id=0, device_index=0)
        assert default == dipu.default_stream() and default.dipu_stream == 0


def test_dipu_16_an_external_stream_works(dipu, native):
    stream = dipu.Stream()
    external = native._DIPUStreamBase(stream_ptr=stream.dipu_stream)
    assert external.dipu_stream == stream.dipu_stream != 0
    torch.cuda._sleep(1)
    with dipu.stream(external):
        x = torch.full((1000,), 3.0, device="dipu") * 2
    external.synchronize()
    assert stream.query() and x.sum().item() == 6000


def test_dipu_21_query_becomes_true(dipu):
    stream = dipu.Stream()
    gate = Gate(stream)
    event = stream.record_event()
    assert not stream.query() and not event.query()
    gate.open()
    event.synchronize()
    stream.synchronize()
    assert stream.query() and event.query()


def test_streams_and_events_order_work(dipu, native):
    side = dipu.Stream(priority=-1)
    assert side.device == torch.device("dipu:0") and side.priority_range() == (0, -1) and side.dipu_stream != 0
    start, end = dipu.Event(enable_timing=True), dipu.Event(enable_timing=True)
    x = torch.zeros(64, device="dipu")
    with dipu.StreamContext(side):
        assert dipu.current_stream() == side == native._dipu_getCurrentStream(0)
        start.record()
        torch.cuda._sleep(5_000_000)
        x += 1
        end.record()
    dipu.current_stream().wait_event(end)
    assert (x * 2).tolist() == [2.0] * 64
    end.synchronize()
    assert start.elapsed_time(end) >= 2 and end.dipu_event != 0
    dipu.default_stream().wait_stream(side)
    native._dipu_setStream(side.stream_id, 0)
    assert dipu.current_stream() == side
    dipu.set_stream(None)
    dipu.set_stream(dipu.default_stream())
    assert dipu.current_stream() == native._dipu_getDefaultStream(0)
    assert isinstance(torch.cuda.current_stream(), dipu.Stream) and dipu.is_current_stream_capturing() is False
    x.record_stream(side)


def test_dipu_23_devices_and_streams_are_of_a_thread(dipu):
    found = {}
    streams = [dipu.Stream() for _ in range(4)]
    barrier = threading.Barrier(4)

    def work(number):
        with dipu.stream(streams[number]):
            barrier.wait()
            x = torch.full((100,), float(number), device="dipu")
            found[number] = dipu.current_stream() == streams[number], (x + 1).sum().item()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: (True, 100.0 * (number + 1)) for number in range(4)}
    assert dipu.current_stream() == dipu.default_stream()


# Random numbers


def test_dipu_17_default_generators_are_those_of_the_operators(dipu):
    dipu.default_generators[0].manual_seed(11)
    first = torch.rand(5, device="dipu")
    dipu.manual_seed(11)
    assert torch.equal(torch.rand(5, device="dipu"), first) and dipu.initial_seed() == 11
    torch.cuda.manual_seed_all(11)
    assert torch.equal(torch.rand(5, device="dipu"), first)


def test_dipu_17_a_fresh_generator_can_be_cloned(native):
    generator = native._create_dipu_generator(-1)
    generator.manual_seed(5)
    twin = native._create_dipu_generator(0).clone_state()
    assert isinstance(twin, torch.Generator)
    twin = generator.clone_state()
    draw = torch.rand(7, device="dipu", generator=generator)
    assert torch.equal(torch.rand(7, device="dipu", generator=twin), draw)


def test_a_state_is_seed_and_offset_as_dipu_writes_them(dipu):
    dipu.manual_seed(0x1122334455667788)
    before = dipu.get_rng_state().numpy().view("<u8")
    torch.rand(100, device="dipu")
    after = dipu.get_rng_state().numpy().view("<u8")
    assert len(before) == 2 and before[0] == after[0] == 0x1122334455667788
    assert before[1] == 0 < after[1] and after[1] % 4 == 0


def test_dipu_17_a_state_restores_seed_and_offset(dipu, native):
    dipu.manual_seed_all(23)
    torch.rand(100, device="dipu")
    state = dipu.get_rng_state("dipu:0")
    wanted = torch.rand(9, device="dipu")
    dipu.manual_seed(1)
    dipu.set_rng_state(state)
    assert dipu.initial_seed() == 23 and torch.equal(torch.rand(9, device="dipu"), wanted)
    dipu.set_rng_state_all(dipu.get_rng_state_all())
    native._set_rng_state(0, state)
    assert torch.equal(native._get_rng_state(0), state) and native._initial_seed(0) == 23
    native._manual_seed(0, 4)
    assert dipu.initial_seed() == 4
    dipu.seed()
    first = dipu.initial_seed()
    dipu.seed_all()
    native._seed(0)
    assert len({first, dipu.initial_seed(), 4}) == 3 and native._is_in_bad_fork() is False


# Memory


def test_memory_functions(dipu, native):
    dipu.empty_cache()
    before = dipu.memory_allocated()
    dipu.reset_peak_memory_stats()
    x = torch.empty(1 << 20, dtype=torch.uint8, device="dipu")
    assert dipu.memory_allocated("dipu") == before + (1 << 20) == native.memory_allocated(torch.device("dipu"))
    assert dipu.memory_reserved(0) >= dipu.memory_allocated(0) and native.memory_reserved(0) == dipu.memory_reserved()
    del x
    assert dipu.memory_allocated() == before and dipu.max_memory_allocated() == before + (1 << 20)
    assert native.max_memory_allocated(0) == dipu.max_memory_allocated()
    assert dipu.max_memory_reserved() >= dipu.memory_reserved() and native.max_memory_reserved(0) > 0
    native.reset_peak_memory_stats(0)
    assert dipu.max_memory_allocated() == before
    kept = torch.empty(100, dtype=torch.uint8, device="dipu")
    assert dipu.memory_reserved() == torch.cuda.memory_reserved() > dipu.memory_allocated() >= kept.nbytes
    assert dipu.max_memory_reserved() == torch.cuda.max_memory_reserved() > dipu.max_memory_allocated()
    assert dipu.memory_stats() == torch.cuda.memory_stats()
    free, total = dipu.mem_get_info()
    assert 0 < free <= total == dipu.get_device_properties().total_memory
    native._dipu_emptyCache()
    native.init_resource()
    native.release_all_resources()


def test_dipu_18_statistics_and_summary(dipu):
    x = torch.empty(4096, dtype=torch.uint8, device="dipu")
    stats = dipu.memory_stats()
    assert stats["allocated_bytes.all.current"] == dipu.memory_allocated() >= x.nbytes
    assert list(stats) == sorted(stats)
    summary = dipu.memory_summary()
    assert "Allocated memory" in summary and summary == torch.cuda.memory_summary()
    assert "from large pool" not in dipu.memory_summary(abbreviated=True)


def test_dipu_18_raw_memory(dipu, native):
    before = dipu.memory_allocated()
    for stream in (None, dipu.Stream(), 0):
        address = dipu.caching_allocator_alloc(512, "dipu:0", stream)
        assert address and dipu.memory_allocated() == before + 512
        dipu.caching_allocator_delete(address)
    assert dipu.memory_allocated() == before
    address = native._dipu_dipuCachingAllocator_raw_alloc(1024, 0)
    native._dipu_dipuCachingAllocator_raw_delete(address)
    with pytest.raises(TypeError, match=r"stream is a torch_dipu\.dipu\.Stream or its handle as a number, not str"):
        dipu.caching_allocator_alloc(512, stream="side")


def test_allocator_settings(native):
    from ditorch import _C

    before = _C.memory_get_configuration()
    try:
        native._dipu_dipuCachingAllocator_set_allocator_settings("max_split_size_mb:64")
        assert "max_split_size_mb:64" in _C.memory_get_configuration()
        with pytest.raises((ValueError, RuntimeError), match="nonsense"):
            native._dipu_dipuCachingAllocator_set_allocator_settings("nonsense:1")
    finally:
        _C.memory_configure(before)


def test_storage_resize(native):
    storage = torch.arange(4, dtype=torch.uint8, device="dipu").untyped_storage()
    assert (
        native.storage_resize_(storage, 8) is storage and storage.nbytes() == 8 and storage.tolist()[:4] == [0, 1, 2, 3]
    )
    with pytest.raises(RuntimeError, match="takes a storage of the device; this one is on cpu"):
        native.storage_resize_(torch.UntypedStorage(2), 4)


def test_memory_formats(torch_dipu):
    x = torch.ones(2, 3, device="dipu")
    formats = torch_dipu.NativeMemoryFormat
    assert torch_dipu.get_native_memory_format(x) is formats.ND and int(formats.FRACTAL_NZ) == 29
    assert torch_dipu.native_memory_format_cast(x, formats.ND) is x
    with pytest.raises(ditorch.NotSupportedError, match=r"NativeMemoryFormat.FRACTAL_NZ.*permute"):
        torch_dipu.native_memory_format_cast(x, formats.FRACTAL_NZ)
    with pytest.raises(RuntimeError, match="this one is on cpu"):
        torch_dipu.get_native_memory_format(torch.ones(1))


# Autocast, profiler, helpers


def test_autocast_state(dipu, native):
    assert dipu.amp.get_autocast_dipu_dtype() is torch.float16 and dipu.amp.is_bf16_supported()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert native.is_autocast_dipu_enabled() and native.get_autocast_dipu_dtype() is torch.bfloat16
    assert not dipu.amp.is_autocast_dipu_enabled()
    native.set_autocast_dipu_enabled(True)
    native.set_autocast_dipu_dtype(torch.bfloat16)
    try:
        x = torch.ones(2, 2, device="dipu")
        assert torch.is_autocast_enabled("cuda") and (x @ x).dtype is torch.bfloat16
    finally:
        native.set_autocast_dipu_enabled(False)
        native.set_autocast_dipu_dtype(torch.float16)
    found = []
    thread = threading.Thread(target=lambda: found.append(dipu.amp.get_autocast_dipu_dtype()))
    thread.start()
    thread.join()
    assert found == [torch.float16]


def test_dipu_21_the_native_profiler_writes_a_trace(torch_dipu, native, tmp_path):
    with torch_dipu.profiler.NativeProfile(str(tmp_path / "a"), record_shapes=True) as profile:
        torch.ones(4, device="dipu").add(1)
        with pytest.raises(RuntimeError, match="a native profile is running already"):
            native._enable_profiler_api(str(tmp_path / "b"))
    with open(profile.file) as file:
        events = json.load(file)["traceEvents"]
    assert any("add" in event.get("name", "") for event in events)
    native._enable_profiler_api(str(tmp_path / "b"), call_stack=False, record_shapes=False, profile_memory=False)
    torch.ones(4, device="dipu").mul(2)
    native._disable_profiler_api()
    assert len(os.listdir(tmp_path / "b")) == 1
    with pytest.raises(RuntimeError, match="no native profile is running"):
        native._disable_profiler_api()


def test_profiler_functions(native, torch_dipu):
    assert torch.profiler.ProfilerActivity.CPU in native._supported_activities()
    assert torch_dipu.profiler.dipu_profiler is torch.profiler.profile
    for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler", "_kineto_step", "_add_metadata_json"):
        assert callable(getattr(native, name))


def test_a_real_profiler_session_by_the_native_names(native):
    from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig

    config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, _ExperimentalConfig())
    native._prepare_profiler(config, {ProfilerActivity.CPU})
    native._enable_profiler(config, {ProfilerActivity.CPU})
    torch.ones(3, device="dipu").sub(1)
    result = native._disable_profiler()
    assert any(event.name() == "aten::sub" for event in result.events())


def test_metrics(native):
    before = native.is_metrics_enabled()
    native.enable_metrics(True)
    try:
        assert native.is_metrics_enabled()
        x = torch.empty(3000, device="dipu")
        groups = {group.name: group for group in native.metrics()}
        sizes = groups["allocator_size"]
        assert isinstance(sizes, native.MetricsGroup) and sizes.type == "histogram" and sizes.info
        labels, value = sizes.values[0]
        assert {"type", "device", "method"} <= set(labels) and value["count"] >= 1
        assert sizes.asdict() == {"name": sizes.name, "type": sizes.type, "info": sizes.info, "values": sizes.values}
        assert native.MetricsGroup().values == [] and x.is_dipu
    finally:
        native.enable_metrics(before)


def test_device_as_cuda_cannot_change_under_way(native):
    assert native._get_python_device_as_cuda() is True
    native._set_python_device_as_cuda(True)
    with pytest.raises(ditorch.NotSupportedError, match="DIPU_PYTHON_DEVICE_AS_CUDA"):
        native._set_python_device_as_cuda(False)
    native._mockCudaTensorType()
    assert torch.cuda.FloatTensor(2).is_dipu


def test_nvtx(dipu):
    with dipu.nvtx.range("work {}", 3):
        assert dipu.nvtx.range_push("inner") >= 0
        dipu.nvtx.mark("here")
        dipu.nvtx.range_pop()
    dipu.nvtx.range_end(dipu.nvtx.range_start("across"))


ENVIRONMENTS = {
    "slurm": (
        {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_NODELIST": "gpu[007-009,12],login1"},
        {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "gpu007", "MASTER_PORT": "29500"},
    ),
    "mpi": (
        {
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_MCA_orte_hnp_uri": "1810366464.0;usock;tcp://10.1.7.30,172.17.0.1:34499",
        },
        {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.1.7.30", "MASTER_PORT": "29500"},
    ),
    "set already": (
        {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "x"},
        {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "x", "MASTER_PORT": "29500"},
    ),
    "neither": ({}, {"MASTER_PORT": "29500"}),
}
DISTRIBUTED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


@pytest.fixture
def clean_environment(monkeypatch):
    for name in DISTRIBUTED:
        monkeypatch.setenv(name, "")  # so that what auto_env writes is taken back
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_auto_env(torch_dipu, clean_environment, name):
    given, wanted = ENVIRONMENTS[name]
    for key, value in given.items():
        clean_environment.setenv(key, value)
    importlib.import_module("torch_dipu.utils.distutis").auto_env()
    assert {key: os.environ[key] for key in DISTRIBUTED[:4] if key in os.environ} == wanted


def test_auto_env_arguments_win_and_bad_input_is_named(torch_dipu, clean_environment):
    from torch_dipu.utils.distutils import auto_env

    clean_environment.setenv("MASTER_ADDR", "old")
    clean_environment.setenv("SLURM_PROCID", "0")
    with pytest.raises(RuntimeError, match="SLURM_NTASKS is not set; a whole number is needed"):
        auto_env()
    clean_environment.setenv("SLURM_NTASKS", "two")
    with pytest.raises(RuntimeError, match="SLURM_NTASKS is 'two'"):
        auto_env()
    clean_environment.setenv("SLURM_NTASKS", "2")
    auto_env("head", 1234)
    assert os.environ["MASTER_ADDR"] == "head" and os.environ["MASTER_PORT"] == "1234"
    clean_environment.delenv("MASTER_ADDR")
    clean_environment.delenv("SLURM_NODELIST", raising=False)
    with pytest.raises(RuntimeError, match=r"SLURM_NODELIST is not set.*addr="):
        auto_env()


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("node7", "node7"),
        ("a,b", "a"),
        ("n[3,5-6]", "n3"),
        ("a[1-2]b[03,5]", "a1b03"),
        ("h-[01].x.org,z", "h-01.x.org"),
        ("", None),
        ("n[1", None),
        ("$(touch x)", None),
        ("a b", None),
    ],
)
def test_first_host_of_a_node_list(nodes, host):
    from ditorch.dipu.auto_environment import find_first_host

    if host is None:
        with pytest.raises(RuntimeError, match="names no host"):
            find_first_host(nodes)
    else:
        assert find_first_host(nodes) == host


# The second name in C


def test_bad_second_names_are_errors(torch_dipu):
    from ditorch import _C, installation

    if installation.state.alias != "binary":
        pytest.skip("the binary alias is not installed here")
    for bad in ("", "a:b", "cuda", "x" * 17):
        with pytest.raises(ValueError, match="cannot be a device name; valid: 1 to 16 bytes without a colon"):
            _C.alias_second_name(bad)
    for bad in ("", "a:b", "x" * 32):
        with pytest.raises(ValueError, match="cannot be a device name; valid: 1 to 31 bytes without a colon"):
            _C.redirect_second_name(bad)
    assert torch.device("dipu:0") == torch.device("cuda:0")


def test_the_name_is_parsed_in_script_and_in_threads(torch_dipu):
    @torch.jit.script
    def make(x: torch.Tensor):
        return torch.ones(2, device=torch.device("dipu:0")) + x.to("dipu")

    assert make(torch.ones(2)).tolist() == [2.0, 2.0]
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(1, device="dipu").is_dipu))
    thread.start()
    thread.join()
    assert found == [True]


def test_compiled_code_may_use_the_names(torch_dipu):
    def work(x):
        return (x.to("dipu:0") + torch.ones(3, device="dipu")) * 2

    compiled = torch.compile(work, backend="eager", fullgraph=True)
    assert compiled(torch.ones(3)).tolist() == [4.0] * 3
    assert torch.compile(lambda x: x.dipu() + 1, backend="eager")(torch.ones(3)).tolist() == [2.0] * 3


# Without ditorch before it


def test_the_import_alone_is_enough(python):
    program = """
        import torch_dipu, torch
        from ditorch.dipu import is_ours
        import torch_dipu.dipu.amp
        assert is_ours(torch_dipu) and torch.ones(2).dipu().is_dipu, torch_dipu
        assert torch_dipu.dipu.device_count() >= 1
        print("ok")
        """
    assert python(program, DITORCH_BANNER="0").stdout.split() == ["ok"]


def test_the_children_of_torchrun_find_it(python, tmp_path):
    script = tmp_path / "child.py"
    script.write_text("import torch_dipu, torch\nprint('rank', torch.ones(1).dipu().is_dipu)\n")
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    assert python(*words, DITORCH_BANNER="0").stdout.split() == ["rank", "True"] * 2


def test_a_real_package_further_down_the_path_wins(python, tmp_path):
    package = tmp_path / "torch_dipu"
    package.mkdir()
    (package / "__init__.py").write_text("real = True\n")
    program = f"""
        import sys
        sys.path.append({str(tmp_path)!r})
        import torch_dipu
        print(torch_dipu.real, "ditorch.dipu" in sys.modules)
        """
    assert python(program).stdout.split() == ["True", "False"]


def test_switched_off_it_is_not_there(python):
    program = """
        try:
            import torch_dipu
        except ModuleNotFoundError as error:
            print(error.name, "DITORCH_DIPU_NAMES=0" in str(error))
        """
    assert python(program, DITORCH_DIPU_NAMES="0", DITORCH_BANNER="0").stdout.split() == ["torch_dipu", "True"]
