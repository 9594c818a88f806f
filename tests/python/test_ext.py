"""The bindings of ditorch._C over libdit: results, exceptions, threads, leaks. Few cases need PyTorch.

The extension is loaded from its file in child processes, so that vendor, options and devices of one case are its own.
"""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest
from test_tools_leaks import PREFIXES


def find_extension():
    spec = importlib.util.find_spec("ditorch")
    if spec:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = os.path.join(spec.submodule_search_locations[0], "_C" + suffix)
            if os.path.exists(path):
                return path
    return None


EXTENSION = find_extension()
HAVE_VENDOR = EXTENSION and os.path.exists(os.path.join(os.path.dirname(EXTENSION), "lib", "libdit_vendor_host.so"))
pytestmark = pytest.mark.skipif(not HAVE_VENDOR, reason="ditorch._C or the host vendor library is not built")

PRELUDE = f"""
import gc, importlib.util, os, sys, threading, time
spec = importlib.util.spec_from_file_location("ditorch._C", {EXTENSION!r})
_C = importlib.util.module_from_spec(spec)
spec.loader.exec_module(_C)

def start(devices=2, memory="64MiB"):
    _C.option_set("host_devices", str(devices))
    _C.option_set("host_memory", memory)
    _C.init("host")

def raises(kind, text, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as error:
        assert type(error) is kind, type(error)
        assert text in str(error), str(error)
        return error
    raise AssertionError(f"no {{kind.__name__}}")
"""


def run(code, env=None, before=""):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DITORCH_", "PYTORCH_", "CUDA_"))}
    environment.update(OMP_NUM_THREADS="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0", **(env or {}))
    command = [sys.executable, "-c", before + PRELUDE + textwrap.dedent(code)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


# Vendor and devices


def test_before_init():
    run("""
    assert not _C.is_active() and not _C.is_bad_fork() and _C.device_count() == 0
    raises(RuntimeError, "init", _C.vendor_info)
    for call in (lambda: _C.set_device(0), lambda: _C.memory_stats(0), lambda: _C.stream_current(0),
        lambda: _C.synchronize(0),
                 lambda: _C.device_properties(0), lambda: _C.memory_info(0), lambda: _C.stream_launch_host(0, 0,
                     print)):
        raises(RuntimeError, "", call)
    assert _C.version() == _C.__version__ and _C.version().count(".") == 2
    _C.shutdown()
    """)


def test_vendor_and_devices():
    run("""
    start()
    info = _C.vendor_info()
    assert set(info) == {"name", "version", "path", "description", "driver_version", "runtime_version"}
    assert info["name"] == "host"
    assert os.path.exists(info["path"])
    _C.init("host")
    raises(ValueError, "other", _C.init, "other")
    raises(TypeError, "vendor must be a str", _C.init, None)
    raises(ValueError, "NUL", _C.init, "ho\\0st")
    assert _C.is_active() and _C.device_count() == 2 and _C.current_device() == 0 and _C.counts_by_option()
    _C.set_device(1)
    assert _C.current_device() == 1
    assert _C.exchange_device(0) == 1 and _C.exchange_device(-1) == 0 and _C.current_device() == 0
    for bad in (2, -1, 64, 1000):
        raises(RuntimeError, f"invalid device ordinal: {bad}; valid: 0 to 1", _C.set_device, bad)
    raises(RuntimeError, "invalid device ordinal", _C.exchange_device, 2)
    raises(OverflowError, "", _C.set_device, 1 << 40)
    raises(TypeError, "", _C.set_device, "0")
    assert _C.current_device() == 0
    properties = _C.device_properties(1)
    assert properties["total_memory"] == 64 << 20 == _C.memory_info(1)[1]
    assert len(properties) == 23 and isinstance(properties["integrated"], bool)
    assert properties["host_accessible"] is True
    assert (properties["major"], properties["minor"]) == (8, 0)
    _C.synchronize(0)
    seen = []
    thread = threading.Thread(target=lambda: (seen.append(_C.current_device()), _C.set_device(1)))
    thread.start(); thread.join()
    assert seen == [0] and _C.current_device() == 0, "the current device belongs to the thread"
    _C.shutdown()
    assert not _C.is_active() and _C.device_count() == 0
    _C.init("host")
    assert _C.is_active()
    """)


def test_missing_vendor_is_named():
    run("""
    for vendor in ("nothere", "/nothere/libx.so"):
        try:
            _C.init(vendor)
        except (OSError, ValueError, RuntimeError) as error:
            assert "nothere" in str(error), error
        else:
            raise SystemExit("accepted")
        assert not _C.is_active()
    """)


def test_use_after_fork_is_refused():
    run("""
    start()
    _C.memory_free(_C.memory_alloc(0, 0, 1000))
    child = os.fork()
    if child == 0:
        try:
            ok = _C.is_bad_fork()
            raises(RuntimeError, "fork", _C.synchronize, 0)
            raises(RuntimeError, "fork", _C.memory_alloc, 0, 0, 10)
        except BaseException as error:
            print(error, file=sys.stderr)
            ok = False
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not _C.is_bad_fork()
    """)


# Streams


def test_streams():
    run("""
    start()
    assert _C.stream_current(0) == 0 and _C.stream_raw(0, 0) == 0 and _C.stream_query(0, 0) is True
    low, high = _C.stream_acquire(1, 0), _C.stream_acquire(1, -1)
    assert low != high and _C.stream_raw(1, low) != 0
    assert _C.stream_priority(1, low) == 0 and _C.stream_priority(1, high) < 0
    _C.stream_set(1, low)
    assert _C.stream_current(1) == low and _C.stream_current(0) == 0
    raises(ValueError, "no stream of device 0", _C.stream_set, 0, 12345)
    raises(RuntimeError, "ordinal", _C.stream_acquire, 5, 0)
    raises(TypeError, "callable", _C.stream_launch_host, 0, 0, 3)

    gate, order = threading.Event(), []
    _C.stream_launch_host(1, low, gate.wait)  # the worker waits inside Python while this thread goes on
    _C.stream_launch_host(1, low, lambda: order.append(threading.current_thread() is threading.main_thread()))
    assert _C.stream_query(1, low) is False and not order
    _C.stream_launch_host(1, 0, lambda: order.append("inline"))
    gate.set()
    _C.stream_synchronize(1, low)  # must give the GIL to the worker
    _C.synchronize(1)
    assert sorted(map(str, order)) == ["False", "inline"] and _C.stream_query(1, low) is True

    caught = []
    sys.unraisablehook = lambda args: caught.append(args.exc_type)
    _C.stream_launch_host(1, low, lambda: 1 / 0)
    _C.stream_launch_host(1, 0, lambda: 1 / 0)
    _C.synchronize(1)
    assert caught == [ZeroDivisionError] * 2
    """)


def test_callbacks_pending_at_exit_do_no_harm():
    for _ in range(3):
        run("""
        start(1)
        stream = _C.stream_acquire(0, 0)
        for _ in range(20):
            _C.stream_launch_host(0, stream, lambda: time.sleep(0.001))
        """)


# Device memory

TORCH_STATS = {
    "num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams", "num_device_alloc", "num_device_free",
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "inactive_split_bytes", "requested_bytes", "oversize_allocations", "oversize_segments",
}  # fmt: skip


def test_memory_statistics_have_torchs_shape():
    run(f"""
    start()
    address = _C.memory_alloc(1, 0, 1000)
    stats = _C.memory_stats(1)
    assert set(stats) == {TORCH_STATS!r}, set(stats)
    for key, value in stats.items():
        if key.startswith("oversize"):
            assert set(value) == {{"current", "peak", "allocated", "freed"}}
        elif isinstance(value, dict):
            assert set(value) == {{"all", "small_pool", "large_pool"}}, key
            assert all(set(pool) == {{"current", "peak", "allocated", "freed"}} for pool in value.values())
        else:
            assert isinstance(value, int)
    assert stats["allocated_bytes"]["all"] == {{"current": 1024, "peak": 1024, "allocated": 1024, "freed": 0}}
    assert stats["allocated_bytes"]["small_pool"]["current"] == 1024
    assert stats["allocated_bytes"]["large_pool"]["current"] == 0
    assert stats["requested_bytes"]["all"]["current"] == 1000 and stats["allocation"]["all"]["current"] == 1
    assert _C.memory_stats(0)["allocated_bytes"]["all"]["current"] == 0
    _C.memory_free(address)
    stats = _C.memory_stats(1)["allocated_bytes"]["all"]
    assert stats == {{"current": 0, "peak": 1024, "allocated": 1024, "freed": 1024}}
    _C.memory_reset_peak(1); _C.memory_reset_accumulated(1)
    assert _C.memory_stats(1)["allocated_bytes"]["all"] == {{"current": 0, "peak": 0, "allocated": 0, "freed": 0}}
    """)


def test_torchs_own_reader_understands_the_statistics():
    pytest.importorskip("torch", reason="torch is not installed")
    run(
        """
    start()
    address = _C.memory_alloc(0, 0, 3 << 20)
    torch.cuda.memory._lazy_init = lambda: None
    torch.cuda.memory.is_initialized = lambda: True
    torch._C._cuda_memoryStats = lambda device: _C.memory_stats(device)
    torch.cuda.memory.memory_stats_as_nested_dict = lambda device=None: _C.memory_stats(0)
    stats = torch.cuda.memory.memory_stats(0)
    assert stats["allocated_bytes.all.current"] == 3 << 20 and stats["allocated_bytes.large_pool.peak"] == 3 << 20
    assert stats["reserved_bytes.all.current"] == 20 << 20 and stats["num_ooms"] == 0
    text = torch.cuda.memory.memory_summary(0)
    assert "3072 KiB" in text, text
    """,
        before="import torch\n",
    )


def test_snapshot():
    run("""
    start()
    assert _C.memory_snapshot() == []
    stream = _C.stream_acquire(1, 0)
    small, large = _C.memory_alloc(0, 0, 1000), _C.memory_alloc(1, stream, 12 << 20)
    segments = _C.memory_snapshot()
    assert len(segments) == 2 and len(_C.memory_snapshot(0)) == 1 and _C.memory_snapshot(1)[0] in segments
    for segment in segments:
        assert set(segment) == {"device", "address", "total_size", "allocated_size", "active_size", "requested_size",
            "stream", "segment_type",
                                "segment_pool_id", "is_expandable", "frames", "blocks"}, set(segment)
        assert segment["segment_pool_id"] == (0, 0) and segment["is_expandable"] is False and segment["frames"] == []
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        for block in segment["blocks"]:
            assert set(block) == {"address", "size", "requested_size", "state", "frames"}
    first, second = _C.memory_snapshot(0)[0], _C.memory_snapshot(1)[0]
    assert first["segment_type"] == "small" and second["segment_type"] == "large"
    assert second["stream"] == stream and first["device"] == 0 and second["device"] == 1
    assert first["blocks"][0] == {"address": small, "size": 1024, "requested_size": 1000, "state": "active_allocated",
        "frames": []}
    _C.memory_free(small)
    assert {block["state"] for block in _C.memory_snapshot(0)[0]["blocks"]} == {"inactive"}
    _C.memory_empty_cache(0)
    assert _C.memory_snapshot(0) == [] and len(_C.memory_snapshot(1)) == 1
    _C.memory_free(large)
    _C.memory_empty_cache()
    assert _C.memory_snapshot() == []
    raises(RuntimeError, "ordinal", _C.memory_snapshot, 9)
    """)


def test_blocks():
    run("""
    start()
    address = _C.memory_alloc(1, 0, 5000)
    assert _C.memory_find(address) == (address, 5120, 1) == _C.memory_find(address + 5119)
    assert _C.memory_find(address + 5120) is None and _C.memory_find(0) is None and _C.memory_find(1 << 62) is None
    _C.memory_free(address); _C.memory_free(0)
    assert _C.memory_find(address) is None
    assert _C.memory_alloc(0, 0, 0) == 0
    raises(ValueError, "negative", _C.memory_alloc, 0, 0, -1)
    raises(TypeError, "address must be an int", _C.memory_free, "x")
    raises(OverflowError, "", _C.memory_free, 1 << 70)
    _C.log_set_level("off")
    _C.memory_free(12345)
    raises(ValueError, "fraction", _C.memory_set_fraction, 0, 2.0)
    _C.memory_set_fraction(0, 0.5)
    assert _C.memory_get_fraction(0) == 0.5 and _C.memory_get_fraction(1) == 1.0
    raises(ValueError, "nonsense", _C.memory_configure, "nonsense:1")
    _C.memory_configure("max_split_size_mb:64")
    assert _C.memory_get_configuration() == "max_split_size_mb:64" and _C.memory_stats(0)["max_split_size"] == 64 << 20
    _C.memory_configure(None)
    assert _C.memory_get_configuration() == ""
    raises(ValueError, "log level 'loud' is unknown; valid: debug", _C.log_set_level, "loud")
    """)


def test_out_of_memory_without_torch():
    run("""
    start()
    error = raises(MemoryError, "CUDA out of memory. Tried to allocate 2.00 GiB", _C.memory_alloc, 0, 0, 2 << 30)
    assert "64.00 MiB" in str(error) and "torch" not in sys.modules
    assert _C.memory_stats(0)["num_ooms"] == 1
    """)


def test_out_of_memory_with_torch():
    pytest.importorskip("torch", reason="torch is not installed")
    run(
        """
    start()
    for _ in range(3):
        raises(torch.OutOfMemoryError, "CUDA out of memory", _C.memory_alloc, 0, 0, 1 << 30)
    """,
        before="import torch\n",
    )


def test_allocator_in_threads():
    run("""
    import random
    start()
    seed = 20240
    print("seed", seed)
    failures = []
    def work(n):
        generator = random.Random(seed + n)
        live = []
        for _ in range(2000):
            if live and generator.random() < 0.5:
                address, size = live.pop(generator.randrange(len(live)))
                found = _C.memory_find(address)
                if not found or found[0] != address or found[1] < size:
                    failures.append((n, address, size, found))
                _C.memory_free(address)
            else:
                size = generator.choice([1, 512, 1000, 70000])
                live.append((_C.memory_alloc(n % 2, 0, size), size))
        [_C.memory_free(address) for address, _ in live]
    pool = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in pool]; [t.join() for t in pool]
    assert not failures, failures[:3]
    assert _C.memory_stats(0)["allocated_bytes"]["all"]["current"] == 0
    assert _C.memory_stats(1)["allocation"]["all"]["current"] == 0
    """)


# Pinned memory


def test_host_memory():
    run("""
    import ctypes, mmap
    start()
    stats = _C.host_stats()
    assert set(stats) == {"allocated_current", "allocated_peak", "allocated_total", "freed_total", "reserved_current",
        "reserved_peak",
                          "allocations", "frees", "vendor_allocations", "vendor_frees"} and not any(stats.values())
    buffer = mmap.mmap(-1, 8192)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    assert _C.host_is_pinned(address) is False
    _C.host_register(address, 8192)
    assert _C.host_is_pinned(address) and _C.host_is_pinned(address + 8191) and not _C.host_is_pinned(address + 8192)
    raises(ValueError, "", _C.host_register, address, 4096)
    _C.host_unregister(address)
    assert not _C.host_is_pinned(address)
    raises(ValueError, "", _C.host_unregister, address)
    raises(ValueError, "negative", _C.host_register, address, -1)
    _C.host_reset_peak(); _C.host_empty_cache()
    """)


# Options, ledger, faults


def test_options(tmp_path):
    config = tmp_path / "ditorch.toml"
    config.write_text('[ditorch]\nhost_devices = 3\nbackend = "host"\n')
    bad = tmp_path / "bad.toml"
    bad.write_text("[ditorch]\nhost_devicez = 3\n")
    run(
        f"""
    rows = {{row["name"]: row for row in _C.options()}}
    assert all(set(row) == {{"name", "environment", "type", "default", "choices", "min", "max", "help", "value",
        "text", "source"}} for row in rows.values())
    assert {{"auto", "cuda", "npu", "host", "none"}} <= set(rows["backend"]["choices"])
    assert rows["backend"]["min"] is None
    assert rows["host_devices"]["value"] == 1 and rows["host_devices"]["type"] == "int"
    assert rows["host_devices"]["min"] == 1
    assert rows["banner"]["value"] is True and rows["host_devices"]["source"] == "default"
    get = lambda name: next((row["value"], row["source"]) for row in _C.options() if row["name"] == name)
    _C.options_load({str(config)!r})
    assert get("host_devices") == (3, "file") and get("backend") == ("host", "file")
    assert get("host_memory") == (2 << 30, "environment")
    _C.option_set("host_devices", "5")
    assert get("host_devices") == (5, "argument")
    raises(ValueError, "host_devicez", _C.options_load, {str(bad)!r})
    raises(OSError, "nothere", _C.options_load, "/nothere/x.toml")
    raises(ValueError, "nonsense", _C.option_set, "nonsense", "1")
    raises(ValueError, "host_devices", _C.option_set, "host_devices", "many")
    raises(TypeError, "", _C.options_load, 3)
    assert get("host_devices") == (5, "argument")
    import pathlib
    _C.options_load(pathlib.Path({str(config)!r}))
    _C.options_reset()
    assert get("host_devices") == (1, "default")
    """,
        env={"DITORCH_HOST_MEMORY": "2GiB"},
    )


def test_operators_ledger_and_faults():
    run("""
    names = _C.operators_c()
    assert "aten::add.Tensor" in names and len(set(names)) == len(names)
    assert all(name.startswith(("aten::", "torchvision::", "dlinfer::")) for name in names)
    assert not any(name.endswith(".") for name in names)
    assert _C.ledger() == []
    import ctypes
    library = ctypes.CDLL(os.path.join(os.path.dirname(spec.origin), "lib", "libdit.so"))
    library.dit_ledger_get.restype = ctypes.c_void_p
    library.dit_ledger_get.argtypes = [ctypes.c_char_p]
    library.dit_ledger_add.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
    for i in range(100):
        for _ in range(i + 1):
            library.dit_ledger_add(library.dit_ledger_get(b"aten::op%d" % i), i % 2, 10, 7)
    rows = _C.ledger()
    assert len(rows) == 100 and rows[0]["name"] == "aten::op99" and rows[-1]["name"] == "aten::op0"
    assert rows[0]["fallback"] == {"calls": 100, "bytes": 1000, "nanoseconds": 700}
    assert rows[0]["c"] == {"calls": 0, "bytes": 0, "nanoseconds": 0} and rows[-1]["c"]["calls"] == 1
    _C.ledger_set_timing(True); _C.ledger_set_timing(False)
    _C.ledger_reset()
    assert _C.ledger() == []
    raises(ValueError, "bogus", _C.fault_configure, "bogus")
    _C.fault_configure("nan:mm,call=3")
    assert _C.fault_count() == 0
    _C.fault_configure(None)
    raises(TypeError, "str or None", _C.fault_configure, 3)
    before = _C.num_threads()
    _C.set_num_threads(3)
    assert _C.num_threads() == 3
    _C.set_num_threads(0)
    assert _C.num_threads() == before
    raises(ValueError, "number of threads is -1", _C.set_num_threads, -1)
    """)


# leaks: every function of the module has a row here, or the test fails

LEAKS = """
import ctypes, mmap
start()
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
library = ctypes.CDLL(os.path.join(os.path.dirname(spec.origin), "lib", "libdit.so"))
library.dit_alloc_get_live.restype = ctypes.c_int64
_C.log_set_level("off")
buffer = mmap.mmap(-1, 8192)
address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
block = _C.memory_alloc(1, 0, 4000)
stream = _C.stream_acquire(1, 0)
sys.unraisablehook = lambda args: None
function = lambda: None
def failing(): raise ValueError("x")
class Plain: pass

def pair(first, second):
    return lambda: (first(), second())

def launch():
    _C.stream_launch_host(1, stream, function)
    _C.stream_launch_host(1, 0, function)
    _C.stream_launch_host(1, stream, failing)
    _C.stream_synchronize(1, stream)

# name -> (good call, calls that must raise); a call with its own number of rounds is (rounds, call)
CALLS = {
    "init": (lambda: _C.init("host"), [lambda: _C.init("other"), lambda: _C.init(None), lambda: _C.init("a\\0b")]),
    "is_active": (_C.is_active, []),
    "is_bad_fork": (_C.is_bad_fork, []),
    "vendor_info": (_C.vendor_info, []),
    "counts_by_option": (_C.counts_by_option, []),
    "device_count": (_C.device_count, []),
    "current_device": (_C.current_device, []),
    "set_device": (lambda: _C.set_device(0), [lambda: _C.set_device(9)]),
    "exchange_device": (lambda: _C.exchange_device(0), [lambda: _C.exchange_device(9)]),
    "device_properties": (lambda: _C.device_properties(1), [lambda: _C.device_properties(9)]),
    "memory_info": (lambda: _C.memory_info(1), [lambda: _C.memory_info(9)]),
    "synchronize": (lambda: _C.synchronize(1), [lambda: _C.synchronize(9)]),
    "stream_current": (lambda: _C.stream_current(1), [lambda: _C.stream_current(9)]),
    "stream_set": (lambda: _C.stream_set(1, 0), [lambda: _C.stream_set(1, 12345)]),
    "stream_acquire": (lambda: _C.stream_acquire(1, 0), [lambda: _C.stream_acquire(9, 0)]),
    "stream_raw": (lambda: _C.stream_raw(1, stream), [lambda: _C.stream_raw(1, 12345)]),
    "stream_query": (lambda: _C.stream_query(1, stream), [lambda: _C.stream_query(1, 12345)]),
    "stream_synchronize": (lambda: _C.stream_synchronize(1, stream), [lambda: _C.stream_synchronize(1, 12345)]),
    "stream_sleep": (lambda: _C.stream_sleep(1, 0, 1), [lambda: _C.stream_sleep(9, 0, 1)]),
    "event_block": (lambda: _C.event_block(0, 1, 0), [lambda: _C.event_block(0, 9, 0)]),
    "event_elapsed": (lambda: quietly(lambda: _C.event_elapsed(0, 0)), [lambda: _C.event_elapsed(0, 0)]),
    "stream_priority": (lambda: _C.stream_priority(1, stream), [lambda: _C.stream_priority(9, 0)]),
    "stream_launch_host": (launch, [lambda: _C.stream_launch_host(1, 12345, function),
        lambda: _C.stream_launch_host(1, 0, 3)]),
    "memory_stats": (lambda: _C.memory_stats(1), [lambda: _C.memory_stats(9)]),
    "memory_snapshot": (_C.memory_snapshot, [lambda: _C.memory_snapshot(9)]),
    "memory_empty_cache": (_C.memory_empty_cache, [lambda: _C.memory_empty_cache(9)]),
    "memory_reset_peak": (lambda: _C.memory_reset_peak(1), [lambda: _C.memory_reset_peak(9)]),
    "memory_reset_accumulated": (lambda: _C.memory_reset_accumulated(1), [lambda: _C.memory_reset_accumulated(9)]),
    "memory_set_fraction": (lambda: _C.memory_set_fraction(1, 1.0), [lambda: _C.memory_set_fraction(1, 2.0)]),
    "memory_get_fraction": (lambda: _C.memory_get_fraction(1), [lambda: _C.memory_get_fraction(9)]),
    "memory_configure": (lambda: _C.memory_configure("max_split_size_mb:64"), [lambda: _C.memory_configure("x:1"),
        lambda: _C.memory_configure(3)]),
    "memory_get_configuration": (_C.memory_get_configuration, []),
    "memory_pool_begin": (pair(lambda: _C.memory_pool_begin(1, 7), lambda: _C.memory_pool_end(1, 7)),
        [lambda: _C.memory_pool_begin(1, 0), lambda: _C.memory_pool_begin(9, 7)]),
    "memory_pool_end": (lambda: _C.memory_pool_begin(1, 7) or _C.memory_pool_end(1, 7),
        [lambda: _C.memory_pool_end(1, 8)]),
    "memory_pool_release": (lambda: _C.memory_pool_release(8), [lambda: _C.memory_pool_release("x")]),
    "memory_alloc": (lambda: _C.memory_free(_C.memory_alloc(1, 0, 100)), [lambda: _C.memory_alloc(1, 0, 1 << 40),
        lambda: _C.memory_alloc(1, 0, -1)]),
    "memory_free": (lambda: _C.memory_free(0), [lambda: _C.memory_free("x")]),
    "memory_find": (pair(lambda: _C.memory_find(block), lambda: _C.memory_find(1)), [lambda: _C.memory_find(None)]),
    "host_stats": (_C.host_stats, []),
    "host_times": (_C.host_times, []),
    "host_reset_peak": (_C.host_reset_peak, []),
    "host_empty_cache": (_C.host_empty_cache, []),
    "host_is_pinned": (lambda: _C.host_is_pinned(address), [lambda: _C.host_is_pinned("x")]),
    "host_register": (pair(lambda: _C.host_register(address, 8192), lambda: _C.host_unregister(address)),
        [lambda: _C.host_register(address, -1)]),
    "host_unregister": (lambda: None, [lambda: _C.host_unregister(address)]),
    "options_load": (lambda: _C.options_load(None), [lambda: _C.options_load("/nothere/x.toml"),
        lambda: _C.options_load(3)]),
    "option_set": (lambda: _C.option_set("banner", "0"), [lambda: _C.option_set("x", "y"), lambda: _C.option_set("x",
        1)]),
    "options": (_C.options, []),
    "options_reset": (_C.options_reset, []),
    "ledger": (_C.ledger, []),
    "ledger_reset": (_C.ledger_reset, []),
    "ledger_set_timing": (lambda: _C.ledger_set_timing(False), []),
    "operators_c": (_C.operators_c, []),
    "operators_diopi": (_C.operators_diopi, []),
    "diopi_activate": (lambda: _C.diopi_activate("host"), [lambda: _C.diopi_activate("nowhere"),
        lambda: _C.diopi_activate(3)]),
    "fault_configure": (pair(lambda: _C.fault_configure("nan:mm,call=3"), lambda: _C.fault_configure(None)),
        [lambda: _C.fault_configure("bogus")]),
    "fault_count": (_C.fault_count, []),
    "fault_idle": (_C.fault_idle, []),
    "conversions": (_C.conversions, []),
    "infer_functions": (_C.infer_functions, []),
    "log_set_level": (lambda: _C.log_set_level("off"), [lambda: _C.log_set_level("loud")]),
    "version": (_C.version, []),
    "num_threads": (_C.num_threads, []),
    "set_num_threads": (lambda: _C.set_num_threads(1), [lambda: _C.set_num_threads(-1)]),
    "alias_status": (_C.alias_status, []),
    "alias_restore": (_C.alias_restore, []),
    "alias_install": ((50, lambda: (_C.alias_install(20, True), _C.alias_install(20, False), _C.alias_restore())),
                      [lambda: _C.alias_install(1), lambda: _C.alias_install(20, True, ["libx.so"]),
                          lambda: _C.alias_install(20, True, [1])]),
    "_alias_set_failure": (lambda: _C._alias_set_failure(None), [lambda: _C._alias_set_failure("x")]),
    "is_cuda_install": (pair(lambda: _C.is_cuda_install(torch._C.TensorBase, 20), lambda: (tensor.is_cuda,
        storage.is_cuda, _C.is_cuda_restore())),
                        [lambda: _C.is_cuda_install(int, 20), lambda: _C.is_cuda_install(torch._C.TensorBase, 1)]),
    "is_cuda_restore": (_C.is_cuda_restore, []),
    "redirect_restore": (_C.redirect_restore, []),
    "type_attribute_set": (lambda: _C.type_attribute_set(Plain, "word", 1),
                           [lambda: _C.type_attribute_set(1, "word", 1),
                            lambda: _C.type_attribute_set(int, "word", 1)]),
    "type_attribute_delete": (lambda: (_C.type_attribute_set(Plain, "word", 1),
                                       _C.type_attribute_delete(Plain, "word")),
                              [lambda: _C.type_attribute_delete(Plain, "nothing"),
                               lambda: _C.type_attribute_delete(1, "word")]),
    "redirect_status": (_C.redirect_status, []),
    "device_show_restore": (_C.device_show_restore, []),
    "alias_second_name": ((50, lambda: (_C.alias_install(20, True), _C.alias_second_name("dipu"),
        _C.alias_second_name(None), _C.alias_restore())), [lambda: _C.alias_second_name("dipu")]),
    "redirect_second_name": (pair(lambda: _C.redirect_second_name("dipu"), lambda: _C.redirect_second_name(None)),
        [lambda: _C.redirect_second_name("a:b"), lambda: _C.redirect_second_name(1)]),
    "option_aliases": (_C.option_aliases, []),
    "memory_apply_options": (_C.memory_apply_options, []),
    "memory_get_algorithm": (_C.memory_get_algorithm, []),
    "memory_check_start": (pair(lambda: _C.memory_check_start(False, 100, 0, 512), _C.memory_check_stop),
        [lambda: _C.memory_check_start(False, 100, 0, -1), lambda: _C.memory_check_start("x")]),
    "memory_check_stop": (_C.memory_check_stop, []),
    "memory_check_is_on": (_C.memory_check_is_on, []),
    "memory_check_state": (_C.memory_check_state, []),
    "memory_check_blocks": (_C.memory_check_blocks, [lambda: _C.memory_check_blocks("x")]),
    "memory_check_verify": (_C.memory_check_verify, []),
    "memory_check_report": ((20, _C.memory_check_report), []),
    "metrics_enable": (pair(lambda: _C.metrics_enable(True), lambda: _C.metrics_enable(False)), []),
    "metrics_is_enabled": (_C.metrics_is_enabled, []),
    "metrics_reset": (_C.metrics_reset, []),
    "metrics": (_C.metrics, []),
    "metrics_text": (_C.metrics_text, []),
    "operator_find": (lambda: (_C.operator_find("torch.svd"), _C.operator_find("x")), [lambda: _C.operator_find(3)]),
    "operator_list": ((20, _C.operator_list), []),
    "operator_parts": (lambda: (_C.operator_parts("torch.softmax"), _C.operator_parts("x")),
        [lambda: _C.operator_parts(3)]),
    "exempt_set": (pair(lambda: _C.exempt_set({"some.package": 3}), lambda: _C.exempt_set({})),
        [lambda: _C.exempt_set(3), lambda: _C.exempt_set({"x": "y"})]),
    "exempt_count": (pair(lambda: _C.exempt_count(True), lambda: _C.exempt_count(False)), []),
    "exempt_counts": (_C.exempt_counts, []),
    "Gate": (lambda: _C.Gate(len, len, "len")([1]), [lambda: _C.Gate(1, 2, "x"), lambda: _C.Gate(len)]),
    "torch_names": ((50, _C.torch_names), []),
    "shutdown": ((20, pair(_C.shutdown, lambda: _C.init("host"))), []),
}
NEED_TORCH = {"alias_install", "alias_second_name", "is_cuda_install", "torch_names"}
ELSEWHERE = {"redirect_install", "device_show_install"}  # need the tables of ditorch.redirect: its own tests call them
ANYWHERE = {"memory_alloc"}  # raises another class with torch
names = {name for name in dir(_C) if callable(getattr(_C, name)) and not name.startswith("__")}
names = {name for name in names if not name.startswith(PREFIXES_HERE)}  # test_tools_leaks.py has their rows
rows = set(CALLS) | ELSEWHERE
assert names == rows, f"without a row: {names - rows}; without a function: {rows - names}"

def quietly(call):
    try:
        call()
    except Exception:
        return
    raise AssertionError("did not raise")

def counts():
    gc.collect()
    constants = 0 if sys.version_info >= (3, 12) else sum(map(sys.getrefcount, (None, True,
        False)))  # immortal from 3.12 on
    return (sys.getallocatedblocks(), library.dit_alloc_get_live(), sys.getrefcount(function), sys.getrefcount(_C),
        constants, resident() >> 10)

def measure(name, rounds, call):
    # Caches (types, freelists, the heap) settle: a leak is what grows in every one of five windows.
    slack = max(20, rounds // 25)
    limits = (slack, slack, 1, 1, slack, 512)
    kinds = ("Python blocks", "blocks of libdit", "references to the callable", "references to the module",
        "references to constants", "KiB resident")
    least = None
    for window in range(5):
        before = counts()
        for _ in range(rounds):
            call()
        grown = [b - a for a, b in zip(before, counts())]
        least = grown if least is None else list(map(min, least, grown))
        if all(value < limit for value, limit in zip(least, limits)):
            return
    for kind, value, limit in zip(kinds, least, limits):
        assert value < limit, f"{name}: {value} {kind} in {rounds} calls"

for name, (good, bad) in CALLS.items():
    if name not in ANYWHERE and ("torch" in sys.modules) != (name in NEED_TORCH):
        continue
    if name == "shutdown":
        _C.memory_free(block)
    rounds, call = good if isinstance(good, tuple) else (1000, good)
    measure(name, rounds, call)
    for wrong in bad:
        measure(name + " (error)", rounds, lambda: quietly(wrong))
print("measured", len(CALLS))
""".replace("PREFIXES_HERE", repr(PREFIXES))


def test_no_function_leaks():
    run(LEAKS)


def test_no_function_leaks_with_torch():
    pytest.importorskip("torch", reason="torch is not installed")
    run("tensor = torch.ones(1); storage = tensor.untyped_storage()\n" + LEAKS, before="import torch\n")
