"""Exchange with others: DLPack, NumPy, buffers, array protocols, shared memory of CPU tensors."""

import pickle

import ditorch  # noqa: F401
import numpy
import pytest
import torch


def test_dlpack_round_trip_shares_memory():
    x = torch.arange(6.0, device="cuda").view(2, 3)
    y = torch.from_dlpack(x)
    assert y.is_cuda and torch.equal(x, y) and y.data_ptr() == x.data_ptr()
    y[0, 0] = 42
    assert x[0, 0].item() == 42


def test_dlpack_capsules():
    x = torch.arange(4, device="cuda")
    capsule = torch.utils.dlpack.to_dlpack(x)
    y = torch.utils.dlpack.from_dlpack(capsule)
    assert y.data_ptr() == x.data_ptr() and y.device == x.device
    del x
    assert y.tolist() == [0, 1, 2, 3]
    with pytest.raises((RuntimeError, ValueError)):
        torch.utils.dlpack.from_dlpack(capsule)


def test_dlpack_keeps_strides_and_dtypes():
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64):
        x = torch.ones(4, 6, device="cuda").to(dtype)[::2].t()
        y = torch.from_dlpack(x)
        assert y.dtype == dtype and y.stride() == x.stride() and torch.equal(x, y)


def test_dlpack_does_not_claim_host_memory_is_cuda():
    """A consumer that trusts the device type would dereference a host address on a GPU, or refuse host memory."""
    kind, index = torch.ones(1, device="cuda").__dlpack_device__()
    assert int(kind) != 2 and index == 0


def test_dlpack_of_a_tensor_that_requires_grad_is_refused():
    with pytest.raises((RuntimeError, BufferError), match="require"):
        torch.from_dlpack(torch.ones(2, device="cuda", requires_grad=True))


def test_numpy_exchange():
    array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    x = torch.from_numpy(array).cuda()
    assert x.is_cuda
    array[0, 0] = 50
    assert x[0, 0].item() == 0
    assert (x.cpu().numpy() == numpy.array([[0, 1, 2], [3, 4, 5]])).all()
    assert torch.tensor(array, device="cuda").is_cuda
    assert torch.as_tensor(array, device="cuda").is_cuda
    with pytest.raises(TypeError, match="cuda"):
        numpy.asarray(torch.ones(2, device="cuda"))


def test_python_conversions():
    x = torch.tensor([[1.5, 2.5]], device="cuda")
    assert x.tolist() == [[1.5, 2.5]] and x[0, 0].item() == 1.5 and float(x[0, 1]) == 2.5 and int(x[0, 1]) == 2
    assert bool(torch.tensor([1], device="cuda")) and not torch.tensor(0, device="cuda")
    assert [v.item() for v in x[0]] == [1.5, 2.5] and len(x) == 1
    assert torch.tensor(3, device="cuda").__index__() == 3
    assert f"{torch.tensor(2.5, device='cuda'):.2f}" == "2.50"
    assert x in [x] and hash(x) == hash(x)
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(x)


def test_pickle_protocols():
    x = torch.arange(5.0, device="cuda")[1:]
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        y = pickle.loads(pickle.dumps(x, protocol))
        assert y.is_cuda and torch.equal(x, y)


def test_cpu_tensors_are_untouched():
    x = torch.ones(3)
    assert int(x.__dlpack_device__()[0]) == 1
    assert numpy.from_dlpack(x).tolist() == [1, 1, 1]
    x.share_memory_()
    assert x.is_shared() and torch.ones(1, device="cuda").is_shared()
