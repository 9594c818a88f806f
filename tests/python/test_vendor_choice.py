"""Which vendor stack is chosen, what is said about those that do not work, and the vendor's own shim."""

import os
import sys
import types

import pytest
from conftest import HERE, child_environment, run_python

FAKES = os.path.join(HERE, "fakes")


def with_fakes(*program, **environment):
    """run_python with the fake vendor packages on the path."""
    path = os.pathsep.join([child_environment()["PYTHONPATH"], FAKES])
    return run_python(*program, PYTHONPATH=path, **environment)


SAY = """
import ditorch, torch
a = ditorch.adapter
print(ditorch.backend, a and f"{a.arch} {a.framework}:{a.version} {a.device}")
print(torch.ones(1, device="cuda").device if a else torch.cuda.is_available())
"""


def test_d6_auto_takes_the_first_stack_that_works_and_reports_the_rest():
    """A package that raises (not only ImportError) is reported and passed over; the first that works wins."""
    answer = with_fakes(
        "-W", "default", "-c", SAY, FAKE_VENDOR_TORCH_NPU="raise", DITORCH_SHOW_DEVICE_AS_CUDA="0", check=False
    )
    assert answer.stdout.splitlines() == ["mlu camb torch_mlu:1.17.0 mlu", "mlu:0"], answer.stderr
    reports = [line for line in answer.stderr.splitlines() if "passed over" in line]
    assert len(reports) == 1 and "backend npu" in reports[0] and "libfake_npu.so.1" in reports[0]
    assert "BrokenDriverError" in reports[0] and "fake_vendor.py:" in reports[0]
    assert "ditorch: cuda is the camb device of torch_mlu 1.17.0, because " in answer.stderr
    assert f"ditorch: camb torch_mlu:1.17.0 pid: {answer.stderr.split('pid: ')[1].split()[0]}" in answer.stderr


def test_auto_with_a_stack_that_took_the_device_type_and_has_no_device():
    """Auto goes on; at the end not even the embedded device can start, and the report says what to do."""
    faults = {f"FAKE_VENDOR_{name}": "raise" for name in ("TORCH_MLU", "TORCH_BR", "TORCH_DIPU", "TORCH_MUSA")}
    answer = with_fakes("-W", "default", "-c", SAY, FAKE_VENDOR_TORCH_NPU="unavailable", check=False, **faults)
    assert answer.stdout.splitlines() == ["none None", "False"]
    for words in ("torch.npu.is_available() is False", "taken by 'npu'", "DITORCH_BACKEND=host"):
        assert words in answer.stderr


def test_backend_host_imports_no_vendor_package():
    answer = with_fakes(
        SAY + 'import sys\nprint([name for name in sys.modules if name.startswith("torch_")])', DITORCH_BACKEND="host"
    )
    assert answer.stdout.splitlines()[0].startswith("host host ditorch:")
    assert answer.stdout.splitlines()[1:] == ["cuda:0", "[]"]


def test_asked_for_vendors_that_do_not_work(tmp_path):
    """One process: every attempt fails with its own message, nothing is patched, and the embedded device works after
    them all."""
    answer = with_fakes(
        """
        import os, torch
        names = set(vars(torch._C))
        for backend in ("npu", "musa", "tpu"):
            os.environ["DITORCH_BACKEND"] = backend
            try:
                import ditorch
            except Exception as error:
                print(type(error).__name__, str(error).replace(chr(10), " "))
            assert set(vars(torch._C)) == names and not torch.cuda.is_available()
        os.environ["DITORCH_BACKEND"] = "host"
        import ditorch
        print(torch.ones(1, device="cuda").device)
        """,
        FAKE_VENDOR_TORCH_NPU="raise",
        FAKE_VENDOR_TORCH_MUSA="raise",
    )
    npu, musa, tpu, last = answer.stdout.splitlines()
    assert "RuntimeError DITORCH_BACKEND=npu" in npu and "import torch_npu raised BrokenDriverError: libfake_npu" in npu
    assert "libfake_musa.so.1" in musa and "valid: auto, cuda, nvidia, npu, mlu, biren, dipu, musa, host, none" in musa
    assert all(word in tpu for word in ("tpu", "auto", "npu", "mlu", "biren", "dipu", "musa", "host", "none"))
    assert last == "cuda:0"


def test_host_after_a_vendor_took_the_device_type():
    answer = with_fakes(
        """
        import torch, torch_npu
        try:
            import ditorch
        except RuntimeError as error:
            print(error)
        """,
        DITORCH_BACKEND="host",
    )
    assert "'npu' in this process" in answer.stdout and "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in answer.stdout


# Half-installed stacks, without child processes


def make_package(monkeypatch, **names):
    package, module = types.ModuleType("torch_npu"), types.ModuleType("torch_npu.npu")
    package.npu, package.__version__ = module, "0.0"
    working = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
    }
    for name, value in {**working, **names}.items():
        if value is not None:
            setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "torch_npu", package)
    monkeypatch.setitem(sys.modules, "torch_npu.npu", module)


def fail():
    raise OSError("driver version mismatch")


@pytest.mark.parametrize(
    "names, words",
    [
        ({"is_available": lambda: False}, "torch_npu.npu.is_available() is False"),
        ({"device_count": lambda: 0}, "torch_npu.npu.device_count() is 0"),
        ({"set_device": None, "synchronize": None}, "torch_npu.npu has no set_device, synchronize"),
        ({"is_available": fail}, "fails when asked for its devices: OSError: driver version mismatch"),
        ({}, "PyTorch knows no device type npu"),
    ],
)
def test_half_installed_stack_is_named(monkeypatch, names, words):
    from ditorch.vendors import probe, rows

    make_package(monkeypatch, **names)
    stack = probe.probe(rows.find_row("npu"))
    assert stack.state == probe.UNUSABLE and words in stack.message


def test_stack_without_its_module(monkeypatch):
    from ditorch.vendors import probe, rows

    monkeypatch.setitem(sys.modules, "torch_mlu", types.ModuleType("torch_mlu"))
    stack = probe.probe(rows.find_row("mlu"))
    assert stack.state == probe.UNUSABLE and "none of the modules torch.mlu, torch_mlu.mlu" in stack.message


def test_missing_stack_is_missing():
    from ditorch.vendors import probe, rows

    for row in rows.ROWS:
        assert not probe.is_installed(row)
        assert probe.probe(row)[:3] == (row, probe.MISSING, f"the package {row.package} is not installed")


def test_rows_and_options_agree():
    from ditorch import _C, choice

    option = next(row for row in _C.options() if row["name"] == "backend")
    assert tuple(option["choices"]) == choice.VALID


# The vendor's own shim


def test_vendor_shim_instead_of_ours():
    answer = with_fakes(
        """
        import ditorch, torch
        from torch_npu.contrib import transfer_to_npu
        print(ditorch.adapter.alias, transfer_to_npu.USED)
        x = torch.ones(2).cuda()
        print(x.device, x.to("cuda:1").device, torch.cuda.get_device_capability("cuda:0"), torch.cuda.device_count())
        print(torch._C._cuda_getDeviceCount(), torch.distributed.is_nccl_available())
        """,
        DITORCH_BACKEND="npu",
        DITORCH_USE_VENDOR_SHIM="1",
    )
    assert answer.stdout.splitlines() == [
        "made by torch_npu.contrib.transfer_to_npu True",
        "npu:0 npu:1 (8, 0) 2",
        "2 True",
    ]


def test_vendor_shim_that_does_not_exist():
    answer = with_fakes(
        """
        try:
            import ditorch
        except RuntimeError as error:
            print(error)
        import torch
        print(torch.device("cuda"), torch.cuda.is_available())
        """,
        DITORCH_BACKEND="musa",
        DITORCH_USE_VENDOR_SHIM="1",
    )
    lines = answer.stdout.splitlines()
    assert "torch_musa has no transfer shim (tried torchada)" in lines[0] and lines[1] == "cuda False"


def test_package_that_presents_itself_as_cuda_is_left_alone():
    """torch_dipu does so by default: its names stay, and the collectives' names are ours."""
    answer = with_fakes(
        """
        import torch
        before = {name: id(value) for name, value in vars(torch.cuda).items()}
        import ditorch
        changed = [name for name, value in vars(torch.cuda).items() if before.get(name) != id(value)]
        a = ditorch.adapter
        print(a.alias, a.arch, a.version == torch.__version__, sorted(changed))
        print(torch.distributed.is_nccl_available(), torch.device("cuda").type)
        """,
        DITORCH_BACKEND="dipu",
        FAKE_DIPU_MOCK_CUDA="1",
    )
    first, second = answer.stdout.splitlines()
    names = "['current_device', 'device_count', 'is_available', 'set_device', 'synchronize']"
    assert first == f"made by torch_dipu FAKECHIP True {names}" and second == "True cuda"


def test_doctor_tells_about_every_stack():
    answer = with_fakes("-m", "ditorch", "doctor", FAKE_VENDOR_TORCH_NPU="raise", check=False)
    assert "backend: mlu" in answer.stdout
    assert "npu: import torch_npu raised BrokenDriverError" in answer.stdout
    assert "mlu: torch_mlu 1.17.0, 2 devices" in answer.stdout
    assert "copy: ok" in answer.stdout and answer.returncode == 1  # a broken stack is a problem
