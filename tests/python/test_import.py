"""`import ditorch`: idempotent, all or nothing, reversible, quiet when asked, and deferred where somebody else
decides."""

import os
import textwrap

import pytest

SNAPSHOT = """
import os, sys, torch, torch.cuda.nccl, torch.utils.dlpack
import torch.cuda.comm, torch.cuda.gds, torch.cuda.green_contexts

def snapshot():
    owners = [torch, torch._C, torch.cuda, torch.Tensor, torch.UntypedStorage, torch.version, torch.utils.dlpack,
              torch.backends.cudnn.m, torch._TorchCompileInductorWrapper, torch.cuda.graphs.CUDAGraph]
    owners += [m for n, m in sys.modules.items() if n.startswith("torch.cuda.")]
    state = {(getattr(o, "__name__", str(o)), k): id(v) for o in owners for k, v in vars(o).items()
             if k not in ("__warningregistry__", "ops", "classes")}
    state["environ"] = dict(os.environ)
    state["meta_path"] = [type(f).__name__ for f in sys.meta_path]
    state["device module"] = "torch.dit" in sys.modules
    state["tensor_classes"] = len(torch._tensor_classes)
    return state

def difference(before, after):
    return sorted(str(k) for k in before.keys() | after.keys() if before.get(k) != after.get(k))
"""


def test_banner_and_idempotence(python):
    answer = python(
        """
        import ditorch, torch
        first = torch.cuda.Stream
        assert ditorch.install() == "host" == ditorch.backend
        assert torch.cuda.Stream is first
        assert ditorch.is_installed()
        a = ditorch.adapter
        print(a.arch, a.framework, a.alias)
        import os; print(os.getpid())
        """
    )
    line, pid = answer.stdout.split("\n")[:2]
    assert line == "host ditorch binary"
    banners = [text for text in answer.stderr.splitlines() if text.startswith("ditorch: ")]
    words, line = banners
    assert words == "ditorch: cuda is the embedded device (runs on the CPU), because no accelerator was found"
    assert line.startswith("ditorch: host ditorch:") and line.endswith(f" pid: {pid}")


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"RANK": "1"}, []),
        ({"RANK": "0"}, ["cuda is the embedded device (runs on the CPU), because no accelerator was found"]),
        (
            {"DITORCH_BACKEND": "host"},
            ["cuda is the embedded device (runs on the CPU), because backend=host was asked for"],
        ),
        (
            {"DITORCH_VENDOR": "opaque"},
            ["cuda is the device of the vendor library 'opaque', because no accelerator was found"],
        ),
        (
            {"DITORCH_ALIAS": "off"},
            ["dit is the embedded device (runs on the CPU), because no accelerator was found; cuda stays what it was "
             "(alias=off)"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_the_first_rank_says_in_words_what_cuda_is(python, environment, wanted):
    answer = python("import torch\nimport ditorch\n", **environment)
    lines = [text.removeprefix("ditorch: ") for text in answer.stderr.splitlines() if text.startswith("ditorch: ")]
    assert [line for line in lines if " pid: " not in line] == wanted and " pid: " in lines[-1]


def test_a_worker_of_multiprocessing_does_not_say_it_again(python, tmp_path):
    (tmp_path / "main.py").write_text(
        "import ditorch, multiprocessing\n"
        "def work(): pass\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(), child.join()\n"
    )
    answer = python(tmp_path / "main.py")
    assert answer.stderr.count("cuda is the embedded device") == 1 and answer.stderr.count(" pid: ") == 2


def test_uninstall_restores_everything_and_install_works_again(python):
    answer = python(
        SNAPSHOT
        + textwrap.dedent(
            """
            before = snapshot()
            import ditorch
            assert snapshot()["environ"] == before["environ"]
            x = torch.ones(2, device="cuda")
            assert x.is_cuda and isinstance(x, torch.cuda.FloatTensor)
            ditorch.uninstall()
            left = difference(before, snapshot())
            assert not left, left
            assert not torch.cuda.is_available() and ditorch.backend is None
            try:
                torch.ones(2, device="cuda")
            except (AssertionError, RuntimeError, NotImplementedError) as error:
                assert "CUDA" in str(error), error
            else:
                raise AssertionError("cuda still works")
            assert (x + 1).cpu().tolist() == [2.0, 2.0]
            ditorch.uninstall()
            ditorch.install(banner=False)
            assert torch.ones(2, device="cuda").is_cuda
            print("done")
            """
        )
    )
    assert answer.stdout.strip() == "done"


@pytest.mark.parametrize("victim", ["cuda.refused.install", "spawn.install"])
def test_failure_in_the_middle_leaves_nothing(python, victim):
    module, _, name = victim.rpartition(".")
    answer = python(
        SNAPSHOT
        + textwrap.dedent(
            f"""
            import importlib, types
            before = snapshot()
            os.environ["DITORCH_BACKEND"] = "none"
            import ditorch
            del os.environ["DITORCH_BACKEND"]
            ditorch.uninstall()
            victim = importlib.import_module("ditorch.{module}")
            def fail(patches): raise KeyError("injected")
            good, victim.{name} = victim.{name}, fail
            try:
                ditorch.install(backend="host", banner=False)
            except KeyError as error:
                assert "injected" in str(error)
            else:
                raise AssertionError("no error")
            left = difference(before, snapshot())
            assert not left, left
            assert ditorch.backend is None
            victim.{name} = good
            assert ditorch.install(backend="host", banner=False) == "host" and torch.ones(1, device="cuda").is_cuda
            print("done")
            """
        )
    )
    assert answer.stdout.strip() == "done"


def _make_adapters(folder, *minors):
    for minor in minors:
        (folder / f"torch-{minor}").mkdir()
        (folder / f"torch-{minor}" / "libdit_torch.so").touch()


def test_the_adapter_is_chosen_by_torchs_minor_version(monkeypatch, tmp_path):
    from ditorch import library

    monkeypatch.setattr(library, "DIRECTORY", str(tmp_path))
    _make_adapters(tmp_path, "2.9", "2.13")
    (tmp_path / "torch-2.14").mkdir()  # without a library
    assert library.list_minors() == ["2.9", "2.13"]
    assert library.find_adapter("2.13.1+cpu") == str(tmp_path / "torch-2.13" / "libdit_torch.so")
    for running in ("2.14.0", "2.1.0+cu121"):
        with pytest.raises(ImportError) as caught:
            library.find_adapter(running)
        text = str(caught.value)
        assert "built for torch 2.9, 2.13, " in text and f"torch {running} is running" in text and "pip install" in text


def test_an_unknown_torch_is_one_sentence(python, tmp_path):
    _make_adapters(tmp_path, "2.9")
    answer = python(
        f"""
        import os
        os.environ["DITORCH_BACKEND"] = "none"
        import ditorch
        ditorch.uninstall()
        from ditorch import library
        for folder in ({str(tmp_path)!r}, "/nowhere"):
            library.DIRECTORY = folder
            try:
                ditorch.install(backend="host")
            except ImportError as error:
                print(error)
        """
    )
    assert "built for torch 2.9, but torch 2." in answer.stdout
    assert "there is none in /nowhere" in answer.stdout and "Build it" in answer.stdout


@pytest.mark.parametrize("value, wanted", [("1", "host"), ("0", "None")])
def test_autoload_entry_point(python, tmp_path, value, wanted):
    """torch calls the entry point inside its own import; a later `import ditorch` installs in any case."""
    information = tmp_path / "autoloadtest-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: autoloadtest\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[torch.backends]\nditorch = ditorch:_autoload\n")
    program = f"""
        import sys
        sys.path.append({str(tmp_path)!r})
        import torch
        module = sys.modules.get("ditorch")
        print(module and module.backend)
        import ditorch
        print(ditorch.backend, torch.ones(1, device="cuda").device)
        """
    answer = python(program, DITORCH_AUTOLOAD=value)
    assert answer.stdout.split() == [wanted, "host", "cuda:0"]


def test_second_install_with_options_is_refused():
    import ditorch

    with pytest.raises(RuntimeError, match="installed already"):
        ditorch.install(host_devices=2)


def test_public_names_exist():
    import ditorch

    for name in ditorch.__all__:
        assert getattr(ditorch, name) is not None, name
    assert os.path.exists(os.path.join(os.path.dirname(ditorch.__file__), "py.typed"))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = ditorch.nonsense


def test_ledger_tables():
    import ditorch
    import torch

    ditorch.reset_counters()
    x = torch.ones(4, 4, device="cuda")
    (x + 1).digamma()
    rows = ditorch.operators() + ditorch.fallbacks()
    names = [row["operator"] for row in rows]
    assert any("add" in name for name in names) and any(
        "digamma" in name for name in [r["operator"] for r in ditorch.fallbacks()]
    )
    assert all(row["calls"] > 0 for row in rows)
    text = str(ditorch.fallbacks())
    assert text.splitlines()[0].split() == ["operator", "calls", "bytes", "milliseconds"] and "digamma" in text
    ditorch.reset_counters()
    assert not ditorch.fallbacks() and not ditorch.operators()


def test_ledger_at_exit(python):
    answer = python("import ditorch, torch\ntorch.ones(2, device='cuda').add_(1)\n", DITORCH_LEDGER="1")
    assert "operators in C" in answer.stderr and "operators on the CPU fallback" in answer.stderr


def test_fault_as_function_and_context():
    import ditorch
    import torch

    x = torch.ones(4, 4, device="cuda")
    with ditorch.fault("nan:aten::mm") as fault:
        assert torch.isnan(x @ x).any() and fault.count == 1
    assert not torch.isnan(x @ x).any()
    ditorch.fault("error:aten::mm")
    try:
        with pytest.raises(RuntimeError, match="injected fault"):
            x @ x
        with ditorch.fault("slow:relu,ms=1"):
            x @ x
        with pytest.raises(RuntimeError, match="injected fault"):
            x @ x
    finally:
        ditorch.fault("")
    with pytest.raises(ValueError, match="frobnicate"):
        ditorch.fault("frobnicate:mm")
    x @ x


@pytest.mark.parametrize(
    "words, wanted",
    [
        (["-m", "ditorch", "-m", "x"], "ditorch"),
        (["-Xfrozen_modules=off", "-W", "ignore::m", "-m", "ditorch"], "ditorch"),
        (["-Im", "package", "ditorch"], "package"),
        (["-mditorch"], "ditorch"),
        (["script.py"], ""),
    ],
)
def test_module_on_the_command_line(words, wanted):
    import ditorch

    assert ditorch._find_module(words) == wanted
