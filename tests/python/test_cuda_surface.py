"""The torch.cuda surface: every public name is accounted for, works or refuses by name; and what surrounds it."""

import copy
import importlib
import os
import pickle
import subprocess
import sys
import warnings

import ditorch
import numpy as np
import pytest
import torch
from conftest import open_memory
from ditorch.cuda import refused, support

pytestmark = pytest.mark.usefixtures("warm_children")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
same_release = pytest.mark.skipif(
    not torch.__version__.startswith(support.TESTED_TORCH),
    reason=f"the account lists the names of torch {support.TESTED_TORCH}",
)


def resolve(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@same_release
def test_every_public_name_is_accounted_for():
    names = set(support.public_names())
    assert len(names) > 200
    assert sorted(names - set(support.TABLE)) == [], "public names without an entry in ditorch.cuda.support"
    gone = [
        path
        for path in support.TABLE
        if path not in names and not hasattr(resolve_module(path), path.rpartition(".")[2])
    ]
    assert gone == [], "entries for names that torch does not have"


def resolve_module(path):
    return importlib.import_module(path.rpartition(".")[0])


@same_release
def test_documentation_is_current():
    tool = os.path.join(ROOT, "tools", "gen_cuda_table.py")
    answer = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


NEEDS_ARGUMENTS = {
    "can_device_access_peer",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "check_error",
    "get_stream_from_external",
    "manual_seed",
    "manual_seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "device",
    "device_of",
    "StreamContext",
    "ExternalStream",
    "CudaError",
    "custom_fwd",
    "custom_bwd",
    "graph",
    "make_graphed_callables",
    "use_mem_pool",
}
NEEDS_ARGUMENTS_IN = ("torch.cuda.comm", "torch.cuda.nvtx", "torch.cuda.nccl")


def is_called_without_arguments(path):
    """Names with arguments of their own are exercised by the other tests of the surface."""
    module, _, name = path.rpartition(".")
    if name in NEEDS_ARGUMENTS or module in NEEDS_ARGUMENTS_IN:
        return False
    if module == "torch.cuda.tunable" and name.startswith("set_"):
        return False
    return callable(resolve(path))


@pytest.mark.parametrize("path", [p for p, entry in support.TABLE.items() if entry.status != support.REFUSED])
def test_working_names_work(path):
    value = resolve(path)
    if not is_called_without_arguments(path):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(value, type) and issubclass(value, BaseException):
            value("text")
        else:
            result = value()
            if hasattr(result, "__enter__"):
                with result:
                    pass


@pytest.mark.parametrize("path", [p for p, entry in support.TABLE.items() if entry.status == support.REFUSED])
def test_refused_names_refuse_by_name(path):
    value = resolve(path)
    if path.endswith("GreenContext"):
        value = value.create
    with pytest.raises(ditorch.NotSupportedError, match="is not supported on the ditorch host device: ") as caught:
        value()
    assert refused.public_name(path) in str(caught.value)
    assert isinstance(caught.value, RuntimeError)


def test_classes_keep_their_identity():
    assert not isinstance(3, torch.cuda.CUDAGraph) and torch.cuda.CUDAGraph is torch.cuda.graphs.CUDAGraph
    assert torch.cuda.Stream is torch.cuda.streams.Stream and issubclass(torch.cuda.Stream, torch.Stream)
    assert issubclass(torch.cuda.Event, torch.Event)


def test_device_answers():
    assert torch.cuda.is_available() and torch.cuda.is_initialized() in (True, False)
    assert torch.cuda.get_device_capability() == (8, 0) == torch.cuda.get_device_capability("cuda:0")
    assert torch.cuda.get_device_name(0) == torch.cuda.get_device_properties("cuda").name
    assert torch.cuda.get_arch_list() == ["sm_80"] and torch.cuda.is_bf16_supported() and torch.cuda.is_tf32_supported()
    assert torch.version.cuda == "12.4" and torch.backends.cuda.is_built() and not torch.backends.cudnn.is_available()
    properties = torch.cuda.get_device_properties(0)
    assert properties.total_memory > 0 and "ditorch" in repr(properties)
    with pytest.raises(AttributeError):
        properties.major = 9
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(64)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(64)
    with torch.cuda.device(0):
        assert torch.cuda.current_device() == 0
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1).cuda(64)


def test_tensor_cuda():
    x = torch.ones(2, 3)
    for target in (None, 0, "cuda", "cuda:0", torch.device("cuda"), torch.device(0)):
        y = x.cuda(target)
        assert y.is_cuda and y.device == torch.device("cuda", 0) and y.cuda() is y
    assert x.cuda(non_blocking=True, memory_format=torch.contiguous_format).is_cuda
    assert y.cpu().is_cuda is False and torch.equal(y.cpu(), x)
    with pytest.raises(RuntimeError, match="Invalid device, must be cuda device"):
        x.cuda("cpu")
    assert torch.nn.Linear(2, 2).cuda().weight.is_cuda


def test_tensor_types():
    x = torch.ones(2, device="cuda")
    assert x.type() == "torch.cuda.FloatTensor" and x.half().type() == "torch.cuda.HalfTensor"
    assert x.cpu().type() == "torch.FloatTensor"
    assert isinstance(x, torch.cuda.FloatTensor) and not isinstance(x, torch.cuda.DoubleTensor)
    assert not isinstance(x.cpu(), torch.cuda.FloatTensor) and not isinstance(x, torch.FloatTensor)
    for kind in ("torch.cuda.LongTensor", torch.cuda.LongTensor):
        y = torch.ones(2).type(kind)
        assert y.is_cuda and y.dtype is torch.int64
    assert not x.type("torch.FloatTensor").is_cuda and x.type(torch.float64).is_cuda
    with pytest.raises(ValueError, match=r"torch.cuda.FooTensor.*torch.cuda.FloatTensor"):
        x.type("torch.cuda.FooTensor")
    assert torch.cuda.FloatTensor(2, 3).shape == (2, 3) and torch.cuda.FloatTensor().numel() == 0
    assert torch.cuda.LongTensor([[1, 2]]).tolist() == [[1, 2]] and torch.cuda.ByteTensor(torch.Size([4])).shape == (4,)
    assert torch.cuda.DoubleTensor(np.arange(3)).dtype is torch.float64
    assert torch.cuda.FloatTensor(x).data_ptr() == x.data_ptr()
    with pytest.raises(TypeError, match=r"expected torch.cuda.LongTensor"):
        torch.cuda.LongTensor(x)
    assert torch.cuda.FloatTensor.dtype is torch.float32 and torch.cuda.FloatTensor.is_cuda
    assert torch.cuda.FloatStorage(3).device.type == "cuda"


def test_default_tensor_type():
    try:
        torch.set_default_tensor_type(torch.cuda.DoubleTensor)
        assert torch.zeros(1).type() == "torch.cuda.DoubleTensor"
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
        assert torch.tensor([1.0]).type() == "torch.cuda.FloatTensor"
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.zeros(1).type() == "torch.FloatTensor"


@open_memory
def test_dlpack_shares_host_memory():
    x = torch.arange(12.0, device="cuda").reshape(3, 4).t()
    assert tuple(x.__dlpack_device__()) == (1, 0)
    array = np.from_dlpack(x)
    assert array.shape == (4, 3) and array.__array_interface__["data"][0] == x.data_ptr() and array[1, 2] == 9
    x.mul_(2)
    assert array[1, 2] == 18
    del x
    assert array.sum() == 2 * sum(range(12))
    y = torch.ones(3, device="cuda")
    assert torch.from_dlpack(y).is_cuda and torch.from_dlpack(y).data_ptr() == y.data_ptr()
    assert torch.from_dlpack(y, copy=True).data_ptr() != y.data_ptr()
    assert torch.from_dlpack(torch.utils.dlpack.to_dlpack(y)).tolist() == [1, 1, 1]
    assert torch.from_dlpack(np.ones(2), device="cuda").is_cuda
    assert np.from_dlpack(torch.empty(0, 3, device="cuda")).shape == (0, 3)
    parameter = torch.nn.Parameter(y, requires_grad=False)
    assert tuple(parameter.__dlpack_device__()) == (1, 0) and np.from_dlpack(parameter).sum() == 3
    with pytest.raises(BufferError, match="require gradient"):
        np.from_dlpack(torch.ones(1, device="cuda", requires_grad=True))
    assert not hasattr(y, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="host memory"):
        _ = y.__cuda_array_interface__
    with pytest.raises(TypeError, match=r"Use Tensor.cpu"):
        y.numpy()


def test_accelerator():
    assert torch.accelerator.current_accelerator() == torch.device("cuda") and torch.accelerator.is_available()
    assert torch.accelerator.device_count() == torch.cuda.device_count()
    assert torch.accelerator.current_device_index() == torch.cuda.current_device()
    assert torch.accelerator.current_stream().stream_id == torch.cuda.current_stream().stream_id
    torch.accelerator.synchronize()
    assert torch.accelerator.get_memory_info()[1] == torch.cuda.mem_get_info()[1]
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]


def test_copies_of_objects():
    x = torch.arange(3.0, device="cuda")
    assert pickle.loads(pickle.dumps(x)).device == x.device and torch.equal(copy.deepcopy(x), x)
    assert x.untyped_storage().is_cuda and not x.untyped_storage().cpu().is_cuda
    assert torch.ones(2).untyped_storage().cuda().device == x.device
    x.record_stream(torch.cuda.Stream())


def test_cuda_sources_are_refused_by_name():
    from torch.utils import cpp_extension

    assert cpp_extension.CUDA_HOME is None
    with pytest.raises(ditorch.NotSupportedError, match="CUDAExtension"):
        cpp_extension.CUDAExtension("name", ["kernel.cu"])
    with pytest.raises(ditorch.NotSupportedError, match=r"load_inline with cuda_sources.*name"):
        cpp_extension.load_inline("name", "", cuda_sources="__global__ void f() {}")
    with pytest.raises(ditorch.NotSupportedError, match=r"kernel.cu"):
        cpp_extension.load("name", ["a.cpp", "kernel.cu"])
    assert cpp_extension.CppExtension("name", ["a.cpp"]).language == "c++"
    function = torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x; }")
    with pytest.raises(ditorch.NotSupportedError, match="jiterator"):
        function(torch.ones(2, device="cuda"))
    source = "template <typename T> void f(T x, T& y) { y = x; }"
    with pytest.raises(ditorch.NotSupportedError, match="jiterator"):
        torch.cuda.jiterator._create_multi_output_jit_fn(source, 1)(torch.ones(2, device="cuda"))


def test_the_operator_database_is_imported_after_ditorch(python):
    answer = python(
        """
        import torch, ditorch
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal import common_modules, common_optimizers, common_nn
        print(len(op_db) > 500)
        """
    )
    assert answer.stdout.split() == ["True"]


def test_triton_kernel_is_refused_by_name(python, tmp_path):
    runtime = tmp_path / "triton" / "runtime"
    runtime.mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").write_text("from .runtime.jit import JITFunction\n")
    (runtime / "__init__.py").write_text("")
    (runtime / "jit.py").write_text(
        "class JITFunction:\n    __name__ = 'add_kernel'\n    def run(self, *args): return 1\n"
    )
    answer = python(
        f"""
        import sys
        import ditorch
        sys.path.insert(0, {str(tmp_path)!r})
        import triton
        try:
            triton.JITFunction().run(1)
        except ditorch.NotSupportedError as error:
            print(error)
        import torch.utils._triton
        print(torch.utils._triton.has_triton())
        """
    )
    assert "the Triton kernel add_kernel is not supported on the ditorch host device" in answer.stdout
    assert answer.stdout.splitlines()[-1] == "False"


def test_neutral_settings():
    assert torch.cuda.nvtx.range_push("a") == 0 and torch.cuda.nvtx.range_push("b") == 1
    assert torch.cuda.nvtx.range_pop() == 1 and torch.cuda.nvtx.range_pop() == 0
    handle = torch.cuda.nvtx.range_start("c")
    torch.cuda.nvtx.range_end(handle)
    torch.cuda.nvtx.mark("d")
    with torch.cuda.nvtx.range("text {}", 1), torch.cuda.profiler.profile():
        pass
    torch.cuda.set_sync_debug_mode("warn")
    assert torch.cuda.get_sync_debug_mode() == 1
    torch.cuda.set_sync_debug_mode(0)
    torch.cuda.tunable.set_max_tuning_iterations(7)
    assert torch.cuda.tunable.get_max_tuning_iterations() == 7 and torch.cuda.tunable.get_results() == ()
    with pytest.raises(torch.cuda.CudaError, match="invalid argument"):
        torch.cuda.check_error(1)
    torch.cuda.check_error(0)


def test_no_warning_from_rnn_and_cudnn_flags():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.backends.cudnn.is_acceptable(torch.ones(1, device="cuda")) is False
        with torch.backends.cudnn.flags(enabled=False):
            pass
        torch.nn.RNN(2, 3).cuda().flatten_parameters()


def test_two_devices_and_data_parallel(python):
    answer = python(
        """
        import torch, ditorch
        import torch.cuda.comm as comm
        assert torch.cuda.device_count() == 2 and torch.cuda.can_device_access_peer(0, 1)
        x = torch.arange(6.0, device="cuda").reshape(2, 3)
        with torch.cuda.device(1):
            y = x.cuda()
            made = [y, torch.cuda.Stream(), torch.zeros(1, device="cuda")]
            assert [value.device.index for value in made] == [1, 1, 1]
        with torch.cuda.device_of(y):
            assert torch.cuda.current_device() == 1
        assert torch.cuda.current_device() == 0
        try:
            x + y
        except RuntimeError as error:
            assert "Expected all tensors to be on the same device" in str(error), error
        assert [t.device.index for t in comm.broadcast(x, [0, 1])] == [0, 1]
        out = [torch.empty(2, 3, device="cuda:0"), torch.empty(2, 3, device="cuda:1")]
        assert torch.equal(comm.broadcast(x, out=out)[1].cpu(), x.cpu())
        assert torch.equal(comm.reduce_add([x, y], 0), 2 * x)
        assert torch.equal(comm.reduce_add_coalesced([[x], [y]], 1)[0].cpu(), 2 * x.cpu())
        parts = comm.scatter(torch.arange(6.0), [0, 1], chunk_sizes=[2, 4])
        assert [p.tolist() for p in parts] == [[0, 1], [2, 3, 4, 5]] and parts[1].device.index == 1
        streams = [torch.cuda.Stream(0), torch.cuda.Stream(1)]
        assert len(comm.scatter(x, [0, 1], streams=streams)) == 2
        torch.cuda.synchronize(0); torch.cuda.synchronize(1)
        assert comm.gather([x, y]).shape == (4, 3) and not comm.gather([x, y], destination="cpu").is_cuda
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).cuda()
        inputs = torch.randn(6, 4, device="cuda")
        model(inputs).square().sum().backward()
        wanted = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        output = torch.nn.DataParallel(model)(inputs)
        output.square().sum().backward()
        for p, w in zip(model.parameters(), wanted):
            torch.testing.assert_close(p.grad.cpu(), w.cpu())
        print(output.device, torch.cuda.memory_allocated(1) > 0)
        """,
        DITORCH_HOST_DEVICES="2",
    )
    assert answer.stdout.split() == ["cuda:0", "True"]


def test_profiler_is_quiet_and_sees_operators(python):
    answer = python(
        """
        import torch, ditorch
        from torch.profiler import ProfilerActivity, profile
        x = torch.ones(4, 4, device="cuda")
        both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        for activities, wanted in (both, {"aten::mm", "diopiMm"}), (both[1:], {"diopiMm"}):
            with profile(activities=activities) as run:
                x @ x
            assert wanted <= {event.key for event in run.key_averages()}
        with torch.autograd.profiler.profile(use_device="cuda") as run:
            x @ x
        run.key_averages().table(sort_by="cuda_time_total")
        with torch.autograd.profiler.emit_nvtx():
            x @ x
        print("done")
        """
    )
    assert answer.stdout.strip() == "done" and "Failed to record" not in answer.stderr


def test_the_uuid_is_sixteen_bytes_and_a_text():
    import uuid

    value = torch.cuda.get_device_properties(0).uuid
    assert not isinstance(value, str) and bytes(value.bytes) == uuid.UUID(str(value)).bytes
    assert str(value) in repr(torch.cuda.get_device_properties(0))


def test_scatter_keeps_the_memory_format():
    x = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    (part,) = torch.nn.parallel.comm.scatter(x, [0])
    assert part.is_cuda and part.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(part.cpu(), x)
