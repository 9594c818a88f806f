"""Which device answers to "cuda": the options, the environment, and what every combination does."""

import pytest

DESCRIBE = """
import torch, ditorch
print(ditorch.backend, torch.cuda.is_available(), torch.cuda.device_count())
"""


@pytest.mark.parametrize(
    "environment, wanted",
    [
        ({}, "host True 1"),
        ({"DITORCH_BACKEND": "host", "DITORCH_HOST_DEVICES": "3"}, "host True 3"),
        ({"DITORCH_BACKEND": "none"}, "none False 0"),
        ({"DITORCH_DISABLE_MOCK": "1"}, "none False 0"),
        ({"DITORCH_ALIAS": "off"}, "host False 0"),
    ],
)
def test_choice(python, environment, wanted):
    assert python(DESCRIBE, **environment).stdout.strip() == wanted


@pytest.mark.parametrize(
    "environment, words",
    [
        ({"DITORCH_BACKEND": "tpu"}, ("tpu", "auto", "cuda", "host", "none")),
        ({"DITORCH_BACKEND": "cuda"}, ("DITORCH_BACKEND=cuda", "is_available() is False", "host")),
        ({"DITORCH_ALIAS": "magic"}, ("magic", "binary", "python", "off")),
        ({"DITORCH_HOST_DEVICES": "many"}, ("many",)),
        ({"DITORCH_BAKEND": "host"}, ("DITORCH_BAKEND", "DITORCH_BACKEND")),
        ({"DITORCH_VENDOR": "/nowhere/vendor.so"}, ("/nowhere/vendor.so",)),
        ({"DITORCH_CONFIG": "/nowhere/ditorch.toml"}, ("/nowhere/ditorch.toml",)),
        ({"PYTORCH_CUDA_ALLOC_CONF": "frobnicate:1"}, ("frobnicate", "max_split_size_mb")),
    ],
)
def test_bad_option_is_named_and_nothing_is_patched(python, environment, words):
    answer = python(
        """
        import torch
        names = set(vars(torch._C))
        try:
            import ditorch
        except Exception as error:
            print(type(error).__name__, error)
        assert set(vars(torch._C)) == names and not torch.cuda.is_available()
        assert str(torch.device("cuda", 0)) == "cuda:0" and not hasattr(torch, "dit")
        """,
        **environment,
    )
    assert answer.stdout, "no error was raised"
    for word in words:
        assert word in answer.stdout


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
    assert python(DESCRIBE, DITORCH_CONFIG=str(config)).stdout.strip() == "host True 4"
    answer = python(DESCRIBE, DITORCH_CONFIG=str(config), DITORCH_HOST_DEVICES="3")
    assert answer.stdout.strip() == "host True 3" and answer.stderr == ""
    answer = python("-m", "ditorch", "--config", str(config), "--set", "host_devices=2", "-c", DESCRIBE, DITORCH_HOST_DEVICES="3")
    assert answer.stdout.strip() == "host True 2"


def test_show_device_as_cuda_off_prints_the_real_name(python):
    answer = python(
        """
        import ditorch, torch
        x = torch.ones(2, device="cuda")
        print(x.device, torch.device("cuda", 0), x.is_cuda, (x + 1).sum().item())
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
        print([str(torch.cuda.get_device_properties(i).uuid)[-1] for i in range(2)], torch.ones(1, device="cuda:1").device)
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
        redirect.install = lambda: print("redirect installed")
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
        print(len([w for w in caught if "no such symbol" in str(w.message) and "DITORCH_ALIAS=python" in str(w.message)]))
        """
    )
    assert answer.stdout.splitlines()[0] == "redirect installed" and answer.stdout.splitlines()[-1] == "1"
