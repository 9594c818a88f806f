"""What `dir()` and type checkers see of the packages."""

import importlib
import inspect
import pydoc
from pathlib import Path
from typing import Literal

import pytest
from ditorch import _C


@pytest.mark.parametrize("name", ["ditorch", "op_tools", "module_tools"])
def test_dir_shows_public_names_that_exist(name):
    package = importlib.import_module(name)
    names = [word for word in dir(package) if word != "__version__"]
    assert names == sorted(package.__all__) and not [word for word in names if word.startswith("_")]
    for word in names:
        getattr(package, word)


@pytest.mark.parametrize("name", ["ditorch", "op_tools", "module_tools", "dlinfer", "torch_dipu", "dicp"])
def test_packages_are_typed(name):
    assert (Path(__file__).resolve().parents[2] / "python" / name / "py.typed").exists()


TOOLS = ("AutoCompare", "Capture", "DtypeCast", "Fallback", "Observe", "OverflowCheck", "TimeMeasure")


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_shows_every_option_with_type_default_and_a_line(name):
    tool = getattr(importlib.import_module("op_tools"), f"Op{name}")
    shown = inspect.signature(tool).parameters
    rows = {row["name"]: row for row in _C.tool_options() if tool.name in row["tools"] and row["scope"] != "pattern"}
    assert ["condition_func", *rows] == [parameter for parameter in shown if parameter != "per_operator"]
    text = pydoc.render_doc(tool, renderer=pydoc.plaintext)
    for option, row in rows.items():
        assert shown[option].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[option].annotation is not inspect.Parameter.empty
        assert str(int(value) if isinstance(value := shown[option].default, bool) else value) == row["default"]
        assert f"{option}: {row['help']}" in text
    assert shown["level"].annotation == Literal["torch", "aten"]


def test_a_class_of_ones_own_has_its_own_signature():
    from op_tools import OpObserve

    class Mine(OpObserve):
        def __init__(self, path):
            super().__init__(results=path, log=False)

    assert list(inspect.signature(Mine).parameters) == ["path"] and not Mine("x").options.get_value("log")
