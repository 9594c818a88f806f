"""What `dir()` and type checkers see of the packages."""

import importlib
from pathlib import Path

import pytest


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
