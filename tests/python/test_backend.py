"""Which device answers to "cuda": the options, the environment, and what every combination does."""

import pytest

DESCRIBE = """
import torch, ditorch
print(ditorch.backend, torch.cuda.is_available(), torch.cuda.device_count())
"""


CHOICES = [
    ({}, "host True 1"),
    ({"DITORCH_BACKEND": "host", "DITORCH_HOST_DEVICES": "3"}, "host True 3"),
    ({"DITORCH_BACKEND": "none"}, "none False 0"),
    ({"DITORCH_DISABLE_MOCK": "1"}, "none False 0"),
    ({"DITORCH_ALIAS": "off"}, "host False 0"),
    ({"DITORCH_HOST_DEVICES": "2"}, "host True 2"),
]


def test_choice(python):
    answer = python(
        f"""
        import os
        os.environ["DITORCH_BANNER"] = "0"
        import ditorch, torch
        for environment, _ in {CHOICES!r}:
            ditorch.uninstall()
            os.environ.update(environment)
            ditorch.install()
            print(ditorch.backend, torch.cuda.is_available(), torch.cuda.device_count())
            for name in environment:
                del os.environ[name]
        x = torch.ones(1, device="cuda")
        ditorch.uninstall()
        try:
            ditorch.install(host_devices=4)
        except RuntimeError as error:
            print(error)
        """
    )
    lines = answer.stdout.splitlines()
    assert lines[:-1] == [wanted for _, wanted in CHOICES]
    assert "host_devices cannot change from 2 to 4" in lines[-1]


MISTAKES = [
    ({"DITORCH_BACKEND": "tpu"}, ("tpu", "auto", "cuda", "npu", "mlu", "biren", "dipu", "musa", "host", "none")),
    ({"DITORCH_BACKEND": "npu"}, ("DITORCH_BACKEND=npu", "torch_npu is not installed", "host")),
    ({"DITORCH_BACKEND": "cuda"}, ("DITORCH_BACKEND=cuda", "is_available() is False", "host")),
    ({"DITORCH_ALIAS": "magic"}, ("magic", "binary", "python", "off")),
    ({"DITORCH_HOST_DEVICES": "many"}, ("many",)),
    ({"DITORCH_BAKEND": "host"}, ("DITORCH_BAKEND", "DITORCH_BACKEND")),
    ({"DITORCH_VENDOR": "/nowhere/vendor.so"}, ("/nowhere/vendor.so",)),
    (
        {"DITORCH_VENDOR": "opaque", "DITORCH_OPAQUE_MISSING": "diopiAd"},
        ("DITORCH_OPAQUE_MISSING has 'diopiAd'", "did you mean 'diopiAdd'?"),
    ),
    ({"DITORCH_CONFIG": "/nowhere/ditorch.toml"}, ("/nowhere/ditorch.toml",)),
    ({"PYTORCH_CUDA_ALLOC_CONF": "frobnicate:1"}, ("frobnicate", "max_split_size_mb")),
]


def test_bad_option_is_named_and_nothing_is_patched(python):
    answer = python(
        f"""
        import os, torch
        names = set(vars(torch._C))
        for environment, _ in {MISTAKES!r}:
            os.environ.update(environment)
            try:
                import ditorch
            except Exception as error:
                print(type(error).__name__, str(error).replace(chr(10), " "))
            else:
                print("no error")
            assert set(vars(torch._C)) == names and not torch.cuda.is_available() and not hasattr(torch, "dit")
            assert str(torch.device("cuda", 0)) == "cuda:0"
            for name in environment:
                del os.environ[name]
        import ditorch
        print(ditorch.backend, torch.ones(1).cuda().device)
        """
    )
    lines = answer.stdout.splitlines()
    assert len(lines) == len(MISTAKES) + 1 and lines[-1] == "host cuda:0"
    for line, (_, words) in zip(lines, MISTAKES, strict=False):
        for word in words:
            assert word in line


def test_auto_leaves_a_real_cuda_alone(python):
    answer = python(
        """
        import torch
        torch.cuda.is_available = lambda: True
        names = set(vars(torch._C))
        import ditorch
        assert set(vars(torch._C)) == names and ditorch.adapter is None
        print(ditorch.backend)
        """
    )
    assert answer.stdout.strip() == "cuda" and "ditorch:" not in answer.stderr


def test_precedence_keyword_environment_file(python, tmp_path):
    config = tmp_path / "ditorch.toml"
    config.write_text("[ditorch]\nhost_devices = 4\nbanner = false\n")
    answer = python(DESCRIBE, DITORCH_CONFIG=str(config))
    assert answer.stdout.strip() == "host True 4" and answer.stderr == ""
    command = ["-m", "ditorch", "--config", str(config), "--set", "host_devices=2", "-c", DESCRIBE]
    assert python(*command, DITORCH_HOST_DEVICES="3").stdout.strip() == "host True 2"


def test_show_device_as_cuda_off_prints_the_real_name(python):
    answer = python(
        """
        import io, pickle
        import ditorch, numpy, torch
        x = torch.ones(2, device="cuda")
        print(x.device, torch.device("cuda", 0), x.is_cuda, (x + 1).sum().item())
        assert torch.ones(1).cuda().is_cuda and torch.ones(1).cuda(0).is_cuda
        assert torch.nn.Linear(1, 1).cuda().weight.is_cuda
        assert isinstance(x, torch.cuda.FloatTensor) and torch.cuda.LongTensor([1]).is_cuda
        assert x.cpu().type("torch.cuda.HalfTensor").is_cuda and x.type() == "torch.dit.FloatTensor"
        assert numpy.from_dlpack(x).sum() == 2 and pickle.loads(pickle.dumps(x)).is_cuda
        with torch.cuda.stream(torch.cuda.Stream()) as _, torch.cuda.device(0):
            x.add_(1)
        torch.cuda.synchronize()
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        assert torch.load(file).is_cuda
        torch.manual_seed(1)
        first = torch.rand(3, device="cuda")
        torch.manual_seed(1)
        assert torch.equal(first, torch.rand(3, device="cuda"))
        with torch.autocast("cuda"):
            assert (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype is torch.float16
        assert torch.cuda.memory_allocated() > 0
        from ditorch import compiler
        assert compiler.uses_device(None, [x]) and not compiler.uses_device(None, [x.cpu()])
        """,
        DITORCH_SHOW_DEVICE_AS_CUDA="0",
    )
    assert answer.stdout.split() == ["dit:0", "dit:0", "True", "4.0"]


def test_alias_off_serves_the_real_name(python):
    answer = python(
        """
        import ditorch, torch
        torch.manual_seed(5)
        x = torch.randn(3, device="dit")
        torch.manual_seed(5)
        assert torch.equal(x, torch.randn(3, device="dit"))
        print(x.device, torch.dit.device_count(), torch.dit.is_available())
        torch.dit.synchronize()
        try:
            torch.ones(1, device="cuda")
        except (AssertionError, RuntimeError) as error:
            print("refused")
        """,
        DITORCH_ALIAS="off",
    )
    assert answer.stdout.split() == ["dit:0", "1", "True", "refused"]


@pytest.mark.parametrize(
    "visible, devices, wanted",
    [
        ("", 2, []),
        ("1", 2, [1]),
        ("2,0", 3, [2, 0]),
        ("0,7,1", 2, [0]),
        ("-1", 2, []),
        ("0,0", 2, []),
        ("GPU-64697400-686f-7374-0000-000000000001", 2, [1]),
    ],
)
def test_visible_devices_parse(visible, devices, wanted):
    from ditorch import visible as module

    assert module.parse(visible, devices) == wanted


def test_visible_devices_limit_and_reorder(python):
    answer = python(
        """
        import ditorch, torch
        print(torch.cuda.device_count(), [torch.cuda.get_device_properties(i).pci_bus_id for i in range(2)])
        uuids = [str(torch.cuda.get_device_properties(i).uuid) for i in range(2)]
        print([text[-1] for text in uuids], torch.ones(1, device="cuda:1").device)
        """,
        CUDA_VISIBLE_DEVICES="2,0",
        DITORCH_HOST_DEVICES="3",
    )
    assert answer.stdout.splitlines() == ["2 [2, 0]", "['2', '0'] cuda:1"]


def test_no_visible_device(python):
    answer = python(
        """
        import ditorch, torch
        print(torch.cuda.is_available(), torch.cuda.device_count())
        for attempt in (lambda: torch.ones(1, device="cuda"), torch.cuda.init, lambda: torch.ones(1).cuda()):
            try:
                attempt()
            except RuntimeError as error:
                print(error)
        """,
        CUDA_VISIBLE_DEVICES="",
    )
    assert answer.stdout.splitlines() == ["False 0"] + ["No CUDA GPUs are available"] * 3


def test_binary_alias_failure_falls_back_to_python(python):
    answer = python(
        """
        import os, sys, types, warnings
        os.environ["DITORCH_BACKEND"] = "none"
        import ditorch, ditorch.installation as installation
        ditorch.uninstall()
        redirect = types.ModuleType("ditorch.redirect")
        redirect.install = lambda name, number: print("redirect installed")
        redirect.uninstall = lambda: None
        sys.modules["ditorch.redirect"] = ditorch.redirect = redirect
        class Broken:
            def __getattr__(self, name): return getattr(installation_C, name)
            def alias_install(self, *arguments): raise RuntimeError("no such symbol")
        installation_C, installation._C = installation._C, Broken()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                ditorch.install(backend="host", banner=False)
            except Exception as error:
                print(type(error).__name__)
        texts = [str(warning.message) for warning in caught]
        print(len([text for text in texts if "no such symbol" in text and "DITORCH_ALIAS=python" in text]))
        """
    )
    assert answer.stdout.splitlines()[0] == "redirect installed" and answer.stdout.splitlines()[-1] == "1"


def test_visible_devices_count_until_the_first_use(python):
    assert (
        python(
            """
        import os, torch, ditorch
        assert torch.cuda.device_count() == 4
        os.environ["CUDA_VISIBLE_DEVICES"] = "2,1"
        assert torch.cuda.device_count() == 2 and torch.cuda.is_available()
        os.environ["CUDA_VISIBLE_DEVICES"] = "3"
        assert torch.ones(2, device="cuda").sum().item() == 2
        assert torch.cuda.device_count() == 1 and str(torch.cuda.get_device_properties(0).uuid).endswith("3")
        assert len(torch.cuda.default_generators) == 1
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
        assert torch.cuda.device_count() == 1
        print("good")
        """,
            DITORCH_HOST_DEVICES=4,
            CUDA_VISIBLE_DEVICES=None,
        ).stdout.strip()
        == "good"
    )
