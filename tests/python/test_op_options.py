"""Options of the operator tools: sources and their precedence, refusals, the watch of os.environ."""

from __future__ import annotations

import os
import re
from pathlib import Path

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import _C, settings
from op_tools import OpObserve, console, results, tool


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    """No variable of the tools, results below tmp_path, nothing on and nothing said before and after."""
    for name in list(os.environ):
        if name.startswith("OP_") or "AUTOCOMPARE" in name or name.endswith("_OP_DTYPE_CAST_DICT"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OP_TOOLS_RESULTS", str(tmp_path / "results"))
    console._said.clear()
    yield
    for active in tool.active_tools():
        active.stop()
    results.close_log()


def value(name, tool_name="observe", **arguments):
    return settings.resolve_tool(tool_name, arguments)[name]


def test_every_reference_variable_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "options.md").read_text()
    for name in (
        *("OP_<TOOL>_LIST", "OP_<TOOL>_DISABLE_LIST", "OP_TOOLS_PRINT_STACK", "OP_TOOLS_MAX_CACHE_SIZE"),
        *("OP_DTYPE_CAST_DICT", "<OP>_OP_DTYPE_CAST_DICT", "AUTOCOMPARE_ERROR_TOLERANCE", "OP_DISPATCH_WATCH_LIST"),
        *(f"AUTOCOMPARE_ERROR_TOLERANCE_{dtype}" for dtype in ("FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64")),
        *(f"<OP>_AUTOCOMPARE_ERROR_TOLERANCE_{dtype}" for dtype in ("FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64")),
        *("OP_DISPATCH_WATCH_DISABLE_LIST", "OP_TOOLS_GARBAGE_COLLECTION_CYCLE", "`label`", "OP_TOOLS_CONSOLE"),
        *("OP_CAPTURE_LAYOUT", "OP_CAPTURE_WRITE_AHEAD", *(row["name"] for row in _C.tool_options())),
    ):
        assert name in text, name


def test_toml_example_of_the_page_is_valid(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "options.md").read_text()
    (tmp_path / "example.toml").write_text(re.search(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1])
    monkeypatch.setenv("DITORCH_CONFIG", str(tmp_path / "example.toml"))
    assert value("layout", "capture").text == "packed"
    assert value("list", "capture").text == "torch.nn.functional.*,torch.Tensor.matmul"
    assert value("steps", "observe").text == "100-110"


def test_keyword_beats_environment_beats_file_beats_default(tmp_path, monkeypatch):
    config = tmp_path / "options.toml"
    config.write_text("[op_tools]\nevery = 2\nfirst = 2\nnumel_min = 2\n[op_tools.observe]\nfirst = 3\n")
    monkeypatch.setenv("DITORCH_CONFIG", str(config))
    assert value("every") == (2, "2", "file", f"{config}:2:1: option 'every'")
    assert value("first").value == 3
    assert value("first", "capture").value == 2
    assert value("numel_max") == (0, "0", "default", "default")
    monkeypatch.setenv("OP_TOOLS_FIRST", "4")
    assert value("first").value == 4
    monkeypatch.setenv("OP_OBSERVE_FIRST", "5")
    assert value("first") == (5, "5", "environment", "environment variable OP_OBSERVE_FIRST")
    assert value("first", "capture").value == 4
    assert value("first", first=6) == (6, "6", "argument", "option 'first'")
    assert value("first", first=None).value == 5  # None is not given


def test_keywords_take_python_values():
    assert value("steps", steps=[1, "3-4"]).text == "1,3-4"
    assert value("steps", steps=range(3)).text == "0,1,2"
    assert value("list", list=("torch.add", "torch.mul")).text == "torch.add,torch.mul"
    assert value("cpu", cpu=True).value is True
    assert value("log_queue", log_queue="1MiB").value == 1 << 20


def test_patterns_have_a_value_per_key(monkeypatch):
    monkeypatch.setenv("STD_OP_DTYPE_CAST_DICT", "torch.float16->torch.float64")
    casts = value("op_dtype_cast_dict", "autocompare", exp_op_dtype_cast_dict="torch.half->torch.float")
    assert casts["STD"].source == "environment"
    assert casts["EXP"].text == "torch.half->torch.float"
    assert casts["LINEAR"].source == "default"
    assert "op_dtype_cast_dict" not in settings.resolve_tool("observe")


@pytest.mark.parametrize(
    ("variable", "text", "parts"),
    [
        ("OP_TOOLS_CONSOL", "full", ["OP_TOOLS_CONSOL", "did you mean OP_TOOLS_CONSOLE?"]),
        ("OP_OBSERVE_LSIT", ".*", ["OP_OBSERVE_LSIT", "did you mean OP_OBSERVE_LIST?"]),
        ("OP_CAPTURE_LAYOUTS", "files", ["did you mean OP_CAPTURE_LAYOUT?"]),
        ("OP_OBSERVE_CONSOLE", "loud", ["OP_OBSERVE_CONSOLE is 'loud'", "short|full|off"]),
        ("OP_TOOLS_STEPS", "6-4", ["OP_TOOLS_STEPS is '6-4'", "such as 4-6,9"]),
        ("OP_TOOLS_EVERY", "0", ["OP_TOOLS_EVERY is '0'", "from 1 to"]),
        ("OP_OBSERVE_LIST", "a(b", ["OP_OBSERVE_LIST", "'a(b'", "position 1"]),
        ("OP_OBSERVE_DISABLE_LIST", "torch.ad", ["has no function 'torch.ad'", "torch.add"]),
        ("OP_OBSERVE_INCLUDE", "re:*", ["OP_OBSERVE_INCLUDE", "nothing to repeat"]),
    ],
)
def test_bad_variable_is_refused_at_start(variable, text, parts, monkeypatch):
    observe = OpObserve()
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError) as caught:
        observe.start()
    for part in parts:
        assert part in str(caught.value)
    assert not observe.is_active and not tool.active_tools()
    monkeypatch.delenv(variable)
    with observe:  # and the tool is as good as new
        torch.ones(2, device="cuda") + 1
    assert observe.counts()["applied"] == 2


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"everyy": 1}, "'everyy' is not an option of observe; did you mean 'every'?"),
        ({"layout": "files"}, "'layout' is an option of capture, not of observe"),
        ({"level": "cuda"}, "option 'level' is 'cuda'; valid values are torch|aten"),
        ({"numel_min": 10, "numel_max": 5}, "more than numel_max"),
        ({"view": "table", "log": 0}, "needs the log"),
    ],
)
def test_bad_keyword_is_refused_at_start(arguments, part):
    observe = OpObserve(**arguments)
    with pytest.raises(ValueError) as caught:
        observe.start()
    assert part in str(caught.value)
    assert not observe.is_active


def test_foreign_variables_are_left_alone(monkeypatch):
    monkeypatch.setenv("OP_SOMETHING", "1")
    monkeypatch.setenv("OPERATOR_LIST", "1")
    monkeypatch.setenv("OP_TOOLS_GARBAGE_COLLECTION_CYCLE", "50")
    with OpObserve():
        pass


def test_i15_environment_is_never_written():
    before = dict(os.environ)
    with OpObserve(cpu=True, first=None):
        torch.ones(2) + 1
    settings.resolve_tool("time_measure")
    assert dict(os.environ) == before
    assert value("max_cache_size", "autocompare").value == 100
    assert value("max_cache_size", "time_measure").value == 5000
    assert value("max_cache_size", "process_monitor").value == 1


def test_old_names_work(monkeypatch):
    monkeypatch.setenv("OP_DISPATCH_WATCH_LIST", "torch.Tensor.mul")
    monkeypatch.setenv("OP_DISPATCH_WATCH_DISABLE_LIST", "torch.Tensor.add")
    assert value("list").text == "torch.Tensor.mul"
    assert value("disable_list").text == "torch.Tensor.add"


# Changes while a tool is on


def test_change_of_environ_takes_effect_at_the_next_call(monkeypatch):
    x = torch.ones(3, device="cuda")
    with OpObserve() as observe:
        x + 1
        monkeypatch.setenv("OP_OBSERVE_LIST", "torch.Tensor.mul")
        x + 1
        x * 2
        assert observe.counts()["applied"] == 2
        monkeypatch.setenv("OP_OBSERVE_LIST", "")
        x * 2
        assert observe.counts()["applied"] == 2
        monkeypatch.delenv("OP_OBSERVE_LIST")
        x + 1
        assert observe.counts()["applied"] == 3
        os.putenv("OP_TOOLS_NUMEL_MIN", "4")  # past os.environ
        x + 1
        assert observe.counts()["applied"] == 3
        os.unsetenv("OP_TOOLS_NUMEL_MIN")
        x + 1
        assert observe.counts()["applied"] == 4


def test_i14_bad_change_never_fails_an_operator(monkeypatch, capsys):
    x = torch.ones(3, device="cuda")
    with OpObserve(list="torch.Tensor.add") as observe:
        for name, text in (("OP_OBSERVE_DISABLE_LIST", "(("), ("OP_TOOLS_NONSENSE", "1"), ("OP_TOOLS_EVERY", "x")):
            monkeypatch.setenv(name, text)
            assert (x + 1).sum().item() == 6
            monkeypatch.delenv(name)
        x + 1
    assert observe.counts()["applied"] == 4
    said = capsys.readouterr().err
    assert said.count("the options before this change stay") == 3
    assert "'((' (character 1 of the list) is not a regular expression" in said


def test_option_that_cannot_change_now_is_said(monkeypatch, capsys):
    x = torch.ones(3, device="cuda")
    with OpObserve() as observe:
        monkeypatch.setenv("OP_OBSERVE_LEVEL", "aten")
        x + 1
        assert "a change of level takes effect at the next start()" in capsys.readouterr().err
    observe.stop()
    with observe:
        torch.nn.functional.linear(x, torch.ones(2, 3, device="cuda"))
    names = {record["name"] for record in observe.calls()}
    assert names and all(name.startswith("aten::") for name in names)


def test_watch_counts_only_our_variables(monkeypatch):
    with OpObserve():
        pass
    before = _C.environ_generation()
    monkeypatch.setenv("SOMETHING_ELSE", "1")
    monkeypatch.delenv("SOMETHING_ELSE")
    os.environ.get("OP_OBSERVE_LIST")
    assert _C.environ_generation() == before
    for count, name in enumerate(("OP_OBSERVE_LIST", "OP_TOOLS_X", "LINEAR_OP_DTYPE_CAST_DICT", "label"), 1):
        monkeypatch.setenv(name, "torch.add")
        assert _C.environ_generation() == before + count


def test_watch_refuses_what_cannot_be_called():
    with pytest.raises(TypeError, match="callable"):
        _C.environ_watch(3)


def test_refused_audit_hook_is_said(python, tmp_path):
    answer = python(
        """
        import sys
        def hook(event, args):
            if event == "sys.addaudithook":
                raise RuntimeError("no")
        sys.addaudithook(hook)
        import os, torch, ditorch
        from op_tools import OpObserve
        with OpObserve(cpu=True) as t:
            torch.ones(2) + 1
        print(t.counts()["applied"])
        """,
        cwd=tmp_path,
    )
    assert answer.stdout.strip() == "2"
    assert "changes of os.environ take effect at the next start()" in answer.stderr


def test_config_file_of_the_command_line(python, tmp_path):
    (tmp_path / "options.toml").write_text("[op_tools.observe]\nlist = ['torch.Tensor.mul']\n")
    code = "import torch\nfrom op_tools import OpObserve\nx = torch.ones(2, device='cuda')\n"
    code += "with OpObserve() as t:\n    x + 1\n    x * 1\nprint(t.counts()['applied'])\n"
    (tmp_path / "program.py").write_text(code)
    answer = python("-m", "ditorch", "--config", "options.toml", "program.py", cwd=tmp_path)
    assert answer.stdout.strip() == "1"
