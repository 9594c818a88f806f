"""Bad input: mixed devices, ordinals, memory, odd layouts, use after fork. One clear error, and life goes on."""

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F


@pytest.fixture(autouse=True)
def device_still_works():
    yield
    assert (torch.ones(3, device="cuda") + 1).tolist() == [2, 2, 2]


# Mixed devices

MIXED = {
    "add": lambda c, d: c + d,
    "add reversed": lambda c, d: d + c,
    "add_": lambda c, d: d.add_(c),
    "mm": lambda c, d: d @ c,
    "mm reversed": lambda c, d: c @ d,
    "cat": lambda c, d: torch.cat([c, d]),
    "linear": lambda c, d: F.linear(d, c),
    "where": lambda c, d: torch.where(d > 0, c, d),
    "mse": lambda c, d: F.mse_loss(d, c),
    "addmm": lambda c, d: torch.addmm(d, c, d),
    "bmm": lambda c, d: torch.bmm(c[None], d[None]),
    "conv": lambda c, d: F.conv2d(d[None, None], c[None, None]),
    "layer_norm": lambda c, d: F.layer_norm(d, (3,), c[0], c[0]),
    "embedding": lambda c, d: F.embedding(c.long(), d),
    "cross_entropy": lambda c, d: F.cross_entropy(d, c[0].long()),
    "index": lambda c, d: c[d.long()],
    "gather": lambda c, d: d.gather(0, c.long()),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_devices_have_torch_s_wording(name):
    cpu = torch.zeros(3, 3)
    with pytest.raises(RuntimeError) as caught:
        MIXED[name](cpu, cpu.cuda())
    text = str(caught.value)
    assert "cuda:0" in text and "cpu" in text and "same device" in text, text
    assert "dit:" not in text and "privateuse" not in text.lower(), text


def test_a_module_left_on_the_cpu():
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*cuda:0.*cpu|.*cpu.*cuda:0"):
        nn.Linear(3, 3)(torch.ones(2, 3, device="cuda"))


def test_numpy_of_a_device_tensor():
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        torch.ones(2, device="cuda").numpy()


# Ordinals


@pytest.mark.parametrize(
    "use",
    [
        lambda i: torch.ones(1, device=f"cuda:{i}"),
        lambda i: torch.ones(1).cuda(i),
        lambda i: torch.ones(1).to(torch.device("cuda", i)),
        lambda i: torch.cuda.set_device(i),
        lambda i: torch.cuda.synchronize(i),
        lambda i: torch.cuda.get_device_properties(i),
        lambda i: torch.cuda.get_device_name(i),
        lambda i: torch.cuda.Stream(device=i),
        lambda i: torch.cuda.mem_get_info(i),
    ],
    ids=["factory", "cuda", "to", "set_device", "synchronize", "properties", "name", "stream", "mem_get_info"],
)
def test_ordinal_out_of_range(use):
    with pytest.raises((RuntimeError, AssertionError, ValueError), match=r"(?i)invalid device"):
        use(torch.cuda.device_count() + 5)
    assert torch.cuda.current_device() == 0


# Memory


def test_out_of_memory_names_the_numbers(python):
    python(
        """
        import torch, ditorch
        free, total = torch.cuda.mem_get_info()
        assert total == 64 << 20, total
        keep = torch.zeros(4 << 20, device="cuda")          # 16 MiB
        try:
            torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            text = str(error)
        else:
            raise SystemExit("no error")
        assert torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
        for part in ("CUDA out of memory", "Tried to allocate 100.00 MiB", "64.00 MiB", "16.00 MiB"):
            assert part in text, (part, text)
        assert torch.cuda.memory_stats()["num_ooms"] == 1
        del keep
        torch.cuda.empty_cache()
        assert torch.zeros(8 << 20, device="cuda").sum().item() == 0   # 32 MiB fits now
        print(text)
    """,
        DITORCH_HOST_MEMORY="64MiB",
    )


def test_out_of_memory_in_the_middle_of_training_can_be_survived(python):
    python(
        """
        import torch, ditorch
        model = torch.nn.Linear(256, 256).cuda()
        size, sizes = 1 << 20, []
        while True:
            try:
                loss = model(torch.ones(size // 256, 256, device="cuda")).square().mean()
                loss.backward()
                break
            except torch.cuda.OutOfMemoryError:
                model.zero_grad(set_to_none=True)
                torch.cuda.empty_cache()
                sizes.append(size)
                size //= 2
        assert sizes, "the first size should not have fitted"
        assert torch.isfinite(model.weight.grad).all()
    """,
        DITORCH_HOST_MEMORY="8MiB",
    )


def test_caches_are_emptied_before_giving_up(python):
    python(
        """
        import torch, ditorch
        blocks = [torch.empty(10 << 20, dtype=torch.uint8, device="cuda") for _ in range(5)]
        del blocks
        assert torch.empty(50 << 20, dtype=torch.uint8, device="cuda").is_cuda
        assert torch.cuda.memory_stats()["num_alloc_retries"] >= 1
    """,
        DITORCH_HOST_MEMORY="64MiB",
    )


def test_absurd_sizes():
    with pytest.raises(RuntimeError):
        torch.empty(1 << 60, device="cuda")
    with pytest.raises(RuntimeError):
        torch.empty(-1, device="cuda")


# Layouts and dtypes: they work, or one clear error says what is not supported

EXOTIC = {
    "sparse_coo": lambda: torch.eye(3).to_sparse().cuda(),
    "to_sparse": lambda: torch.eye(3, device="cuda").to_sparse(),
    "sparse_csr": lambda: torch.eye(3).to_sparse_csr().cuda(),
    "to_sparse_csr": lambda: torch.eye(3, device="cuda").to_sparse_csr(),
    "sparse_coo_tensor": lambda: torch.sparse_coo_tensor([[0], [1]], [1.0], (3, 3), device="cuda"),
    "sparse embedding": lambda: _sparse_embedding(),
    "quantize": lambda: torch.quantize_per_tensor(torch.ones(3, device="cuda"), 0.1, 0, torch.qint8),
    "quantized to device": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).cuda(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="cuda"),
    "nested jagged": lambda: (
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="cuda", layout=torch.jagged) + 1
    ),
    "nested to device": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).cuda(),
    "mkldnn": lambda: torch.ones(3, device="cuda").to_mkldnn(),
    "fp8": lambda: torch.ones(3, device="cuda").to(torch.float8_e4m3fn).float(),
    "complex half": lambda: torch.ones(3, device="cuda").to(torch.complex32),
    "uint16": lambda: torch.ones(3, device="cuda", dtype=torch.uint16).to(torch.int32) + 1,
    "conjugate": lambda: torch.ones(3, device="cuda", dtype=torch.complex64).conj() * 1j,
    "bits": lambda: torch.empty(3, device="cuda", dtype=torch.bits8),
}


def _sparse_embedding():
    layer = nn.Embedding(5, 3, sparse=True).cuda()
    layer(torch.tensor([1, 2], device="cuda")).sum().backward()
    torch.optim.SparseAdam(layer.parameters()).step()
    return layer.weight


@pytest.mark.parametrize("name", EXOTIC)
@pytest.mark.filterwarnings("ignore")
def test_exotic_tensors_work_or_say_so(name):
    try:
        result = EXOTIC[name]()
    except (RuntimeError, NotImplementedError, TypeError) as error:
        text = str(error)
        assert "not supported" in text or "not implemented" in text.lower(), text
        assert len(text) < 600, f"{len(text)} characters: {text[:200]} ..."
        assert "privateuse" not in text.lower() and "Sparsedit" not in text and "Facebook" not in text, text
    else:
        assert result.device.type == "cuda"


# Fork


def test_use_after_fork_is_refused_clearly(python):
    answer = python("""
        import os, torch, ditorch
        x = torch.ones(3, device="cuda")
        pid = os.fork()
        if pid == 0:
            try:
                torch.ones(3, device="cuda")
            except RuntimeError as error:
                print("child:", error, flush=True)
                os._exit(0)
            os._exit(7)
        status = os.waitpid(pid, 0)[1]
        assert os.waitstatus_to_exitcode(status) == 0, status
        assert (x + 1).tolist() == [2, 2, 2]
        print("parent lives")
    """)
    assert "forked subprocess" in answer.stdout and "spawn" in answer.stdout and "parent lives" in answer.stdout


def test_fork_before_use_works(python):
    python("""
        import os, torch, ditorch
        torch.cuda.is_available()
        torch.cuda.device_count()
        pid = os.fork()
        if pid == 0:
            code = 0 if (torch.ones(3, device="cuda") + 1).tolist() == [2, 2, 2] else 7
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert (torch.ones(3, device="cuda") + 1).tolist() == [2, 2, 2]
    """)


def test_cpu_work_after_fork_is_untouched(python):
    python("""
        import os, torch, ditorch
        torch.ones(3, device="cuda")
        pid = os.fork()
        if pid == 0:
            os._exit(0 if torch.rand(3).sum().isfinite() and (torch.ones(3) + 1).sum() == 6 else 7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    """)


def test_data_pointer_of_null_and_empty():
    assert torch.empty(0, device="cuda").data_ptr() == 0
    assert torch.empty(0, 3, device="cuda").sum().item() == 0
