"""What the fake vendor packages share: the embedded device under a vendor's name, with the manners of a vendor.

A fake loads ditorch's adapter without ditorch itself, gives PyTorch's custom device type the vendor's name, and builds
the vendor's module by hand, as the real packages do: arguments are checked by the device's real name, in the package's
own code. FAKE_VENDOR_<PACKAGE> in the environment breaks it: "raise", "no_device", "unavailable", "lacks_names".
"""

import importlib.machinery
import importlib.util
import os
import sys
import types

import torch


class BrokenDriverError(OSError):
    """What a vendor's import raises when its driver is missing."""


def fault(package):
    """How this fake is to be broken; "" not at all."""
    return os.environ.get(f"FAKE_VENDOR_{package.upper()}", "")


def load_runtime(name):
    """ditorch._C and the adapter, without running ditorch/__init__.py; the device is called `name`."""
    home = next(iter(importlib.util.find_spec("ditorch").submodule_search_locations))
    native = sys.modules.get("ditorch._C")
    if native is None:
        finder = importlib.machinery.PathFinder.find_spec("ditorch._C", [home])
        native = importlib.util.module_from_spec(finder)
        sys.modules["ditorch._C"] = native
        finder.loader.exec_module(native)
    torch.utils.rename_privateuse1_backend(name)
    torch.ops.load_library(
        os.path.join(home, "lib", "torch-" + ".".join(torch.__version__.split(".")[:2]), "libdit_torch.so")
    )
    if not native.is_active():
        native.option_set("host_devices", os.environ.get("FAKE_VENDOR_DEVICES", "2"))
        native.init("host")
        native.diopi_activate("host")
    return native


def make_names(package, name, source):
    """The vendor's Python code, executed as a module of the package: its checks run in that package's name."""
    module = types.ModuleType(f"{package}.{name}")
    module.__package__ = package
    exec(compile(source.replace("VENDOR", name), f"<{package}.{name}>", "exec"), module.__dict__)
    return module


SOURCE = """
import torch
import sys
_C = sys.modules["ditorch._C"]

def _get_device_index(device, optional=False):
    if device is None and optional:
        return _C.current_device()
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if device.type != "VENDOR":
        raise ValueError(f"Expected a VENDOR device, but got: {device}")
    return _C.current_device() if device.index is None else device.index

def is_available():
    return _C.device_count() > 0

def device_count():
    return _C.device_count()

def current_device():
    return _C.current_device()

def set_device(device):
    index = _get_device_index(device)
    if index >= 0:
        _C.set_device(index)

def synchronize(device=None):
    _C.synchronize(_get_device_index(device, optional=True))

def is_initialized():
    return True

def init():
    pass

class device:
    def __init__(self, device):
        self.idx = _get_device_index(device, optional=True)
    def __enter__(self):
        self.prev_idx = _C.exchange_device(self.idx)
    def __exit__(self, *error):
        _C.set_device(self.prev_idx)

class Properties:
    def __init__(self, raw):
        self.name, self.total_memory = raw["name"], raw["total_memory"]

def get_device_name(device=None):
    return f"Fake VENDOR {_get_device_index(device, optional=True)}"

def get_device_properties(device=None):
    index = _get_device_index(device, optional=True)
    return Properties({"name": get_device_name(index), "total_memory": _C.memory_info(index)[1]})

class Stream(torch.Stream):
    def __new__(cls, device=None, priority=0, **kwargs):
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=f"VENDOR:{_get_device_index(device, optional=True)}", priority=priority)

class Event(torch.Event):
    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        return super().__new__(cls, device="VENDOR", enable_timing=enable_timing)

def current_stream(device=None):
    index = _get_device_index(device, optional=True)
    return Stream(stream_id=_C.stream_current(index), device_index=index, device_type=20)

def default_stream(device=None):
    return Stream(stream_id=0, device_index=_get_device_index(device, optional=True), device_type=20)

def set_stream(stream):
    _VENDOR_setStream(stream.stream_id, stream.device_index, stream.device_type)

def _VENDOR_setStream(stream_id, device_index, device_type):
    assert device_type == 20
    _C.set_device(device_index)
    _C.stream_set(device_index, stream_id)

class stream:
    def __init__(self, stream):
        self.stream = stream
    def __enter__(self):
        self.before = current_stream()
        set_stream(self.stream)
    def __exit__(self, *error):
        set_stream(self.before)

def _generator(index):
    return torch.ops.ditorch.default_generator(index)

def manual_seed(seed):
    _generator(_C.current_device()).manual_seed(int(seed))

def manual_seed_all(seed):
    for index in range(device_count()):
        _generator(index).manual_seed(int(seed))

def get_rng_state(device="VENDOR"):
    return _generator(_get_device_index(device)).get_state()

def set_rng_state(new_state, device="VENDOR"):
    _generator(_get_device_index(device)).set_state(new_state)

def _is_in_bad_fork():
    return _C.is_bad_fork()

def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]

def empty_cache():
    _C.memory_empty_cache(-1)

def memory_stats(device=None):
    return {f"allocated_bytes.all.{key}": value for key, value in
            _C.memory_stats(_get_device_index(device, optional=True))["allocated_bytes"]["all"].items()}

def memory_allocated(device=None):
    return memory_stats(device)["allocated_bytes.all.current"]

def max_memory_allocated(device=None):
    return memory_stats(device)["allocated_bytes.all.peak"]

def mem_get_info(device=None):
    return _C.memory_info(_get_device_index(device, optional=True))
"""


def build(package, name, version, capability=None, native_module="_C", prefix=None):
    """Start the device under the vendor's name and put the vendor's modules in place; returns the one for torch."""
    broken = fault(package)
    if broken == "raise":
        raise BrokenDriverError(f"libfake_{name}.so.1: cannot open shared object file: No such file or directory")
    load_runtime(name)
    module = make_names(package, name, SOURCE)
    if capability:
        module.get_device_capability = lambda device=None: capability
    if broken == "no_device":
        module.device_count = lambda: 0
    elif broken == "unavailable":
        module.is_available = lambda: False
    elif broken == "lacks_names":
        del module.current_device, module.set_device
    natives = types.ModuleType(f"{package}.{native_module}")
    setattr(natives, f"{prefix or f'_{name}_'}setStream", getattr(module, f"_{name}_setStream"))
    setattr(natives, f"{prefix or f'_{name}_'}setDevice", module.__dict__.get("set_device"))
    home = sys.modules[package]
    setattr(home, name, module)
    setattr(home, native_module, natives)
    home.__version__ = version
    sys.modules[f"{package}.{name}"] = module
    sys.modules[f"{package}.{native_module}"] = natives
    return module


def refuse_average(name):
    """ReduceOp.AVG on groups of the backend `name` raises, as it does in the C++ of vendors who have none. Groups on
    other backends are not touched."""
    import torch.distributed as dist

    def make(method, native):
        def call(group, *args, **kwargs):
            config = dist.distributed_c10d._world.pg_backend_config.get(group, "")
            for value in (*args[1:], *kwargs.values()):
                operator = getattr(value, "reduceOp", value)
                if isinstance(operator, (dist.ReduceOp, dist.ReduceOp.RedOpType)) and operator == dist.ReduceOp.AVG:
                    if f":{name}" not in config:
                        break
                    raise ValueError(f"{name} {method}: ReduceOp.AVG is not supported")
            return native(group, *args, **kwargs)

        call.__name__ = method
        return call

    for method in ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base"):
        setattr(dist.ProcessGroup, method, make(method, getattr(dist.ProcessGroup, method)))
    for method in ("reduce_scatter_single", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"):
        if hasattr(dist.ProcessGroup, method):
            setattr(dist.ProcessGroup, method, make(method, getattr(dist.ProcessGroup, method)))


def register_collectives(name, device):
    """The vendor's collectives: gloo under the vendor's name, on CPU tensors, without AVG. FAKE_COLLECTIVES=device: on
    device memory; "none": the vendor has no collectives."""
    import torch.distributed as dist

    kind = os.environ.get("FAKE_COLLECTIVES", "gloo")
    if not dist.is_available() or kind == "none":
        return

    def create(store, rank, size, timeout):
        gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        if kind == "gloo":
            return gloo
        carrier = dist.ProcessGroup(store, rank, size)
        carrier._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        torch.ops.ditorch.nccl_add(carrier.boxed(), name, round(timeout.total_seconds() * 1000))
        return carrier._get_backend(torch.device(device))

    refuse_average(name)
    dist.Backend.register_backend(name, create, devices=[device] if kind == "device" else [device, "cpu"])
