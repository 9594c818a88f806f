"""DIPU's environment variables: each is honoured, mapped to an option or refused by name, and the table is true."""

import importlib.util
import os
import warnings
from pathlib import Path

import pytest
from ditorch import _C, dipu_variables
from ditorch.dipu_variables import BUILD, HONOURED, MAPPED, TABLE, WARNED

ROWS = {row.name: row for row in TABLE}


def list_rows(*actions):
    return [row.name for row in TABLE if row.action in actions]


# The table


def test_the_table_has_every_variable_once_and_one_action_each():
    assert len(ROWS) == len(TABLE)
    assert {row.action for row in TABLE} <= {HONOURED, MAPPED, WARNED, BUILD}
    options = {row["name"] for row in _C.options()}
    for row in TABLE:
        assert bool(row.option) == (row.action == MAPPED), row
        assert row.option == "" or row.option in options, row
        assert row.note or row.action == MAPPED, row


VALUES = {
    "DIPU_PYTHON_DEVICE_AS_CUDA": ("False", False, "1"),
    "DIPU_AUTOLOAD": ("1", True, "0"),
    "DIPU_LOG_FALLBACK_INFO": ("1", True, "0"),
    "DIPU_TORCH_ALLOCATOR_CONF": ("max_split_size_mb:64", "max_split_size_mb:64", "max_split_size_mb:32"),
    "DIPU_DEVICE_MEMCACHING_ALGORITHM": ("BF", "bf", "bs"),
    "DIPU_HOST_MEMCACHING_ALGORITHM": ("RAW", "raw", "bs"),
    "DIPU_MAX_EXTEND_SIZE": ("4096", 4 << 30, "16MiB"),
    "DIPU_MAX_ASYNC_RESOURCE_POOL_LENGTH": ("12", 12, "13"),
    "DIPU_BS_ALLOCATOR_MIN_ALLOCATE_SIZE": ("2048", 2048, "1024"),
    "DIPU_BS_MORE_ADAPTABLE": ("1", True, "0"),
    "DIPU_DEBUG_ALLOCATOR": ("3", 3, "1"),
    "DIPU_MEM_CHECK": ("1", True, "0"),
    "DIPU_MEM_CHECK_ENABLE_BACKTRACE": ("1", True, "0"),
    "DIPU_MEM_CHECK_MAX_BLOCK": ("5", 5, "9"),
    "DIPU_MEM_CHECK_LOG_INTERVAL": ("6", 6, "9"),
    "DIPU_CPU_AFFINITY": ("2", 2, "3"),
    "DIPU_MOCK_CUDA": ("false", "off", "python"),
    "DIPU_FORCE_FALLBACK_OPS_LIST": ("add.out,mm", "add.out,mm", "bmm"),
    "DIPU_AUTOCOMPARE_OPS_LIST": (".*_backward", ".*_backward", "bmm"),
    "DIPU_DUMP_OP_ARGS": ("2", 2, "1"),
    "DIPU_SYNC_EXEC_MODE": ("1", True, "0"),
}
"""Text, the option's value, and a text of the option's own variable that gives another value."""


@pytest.fixture
def settings():
    """Options loaded from a changed environment are loaded once more from the true one."""
    from ditorch import installation, settings

    yield settings
    settings.load(installation.state.config, installation.state.overrides)


@pytest.mark.parametrize("name", list_rows(MAPPED))
def test_a_mapped_variable_sets_its_option(name, monkeypatch, settings):
    text, value, other = VALUES[name]
    monkeypatch.setenv(name, text)
    settings.load()
    assert settings.get(ROWS[name].option) == value
    dipu_variables.check(os.environ)
    own = next(row for row in _C.options() if row["name"] == ROWS[name].option)["environment"]
    monkeypatch.setenv(own, other)
    settings.load()
    assert settings.get(ROWS[name].option) != value, "a variable of ditorch's own wins"
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DIPU_MOCK_CUDA", "maybe"),
        ("DIPU_PYTHON_DEVICE_AS_CUDA", "maybe"),
        ("DIPU_DEVICE_MEMCACHING_ALGORITHM", "QUICK"),
        ("DIPU_MAX_EXTEND_SIZE", "-1"),
        ("DIPU_DEBUG_ALLOCATOR", "16"),
    ],
)
def test_a_bad_value_is_an_error_that_names_variable_and_value(name, text, monkeypatch, settings):
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=f"{name}.*{text}"):
        settings.load()
    monkeypatch.undo()


# Refusals


def test_what_keeps_pytorchs_own_fallbacks_says_what_to_use():
    given = {"DIPU_KEEP_TORCHOP_DEFAULT_IMPL_OPS": "add.out,mm"}
    with pytest.warns(RuntimeWarning, match=r"'add.out,mm' has no effect.*FORCE_FALLBACK_OPS_LIST.*OpFallback"):
        dipu_variables.check(given)


@pytest.mark.parametrize("name", list_rows(WARNED))
def test_what_has_no_effect_is_warned_about(name):
    with pytest.warns(RuntimeWarning, match=f"{name}='1' has no effect on the ditorch host device"):
        dipu_variables.check({name: "1"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dipu_variables.check({name: "0"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DIPU_MEMCHECK", "DIPU_MEM_CHECK"),
        ("DIPU_DUMP_OP_ARG", "DIPU_DUMP_OP_ARGS"),
        ("DIPU_XYZZY", "docs/dipu.md"),
    ],
)
def test_an_unknown_variable_is_warned_about(name, meant):
    with pytest.warns(RuntimeWarning, match=f"{name} is none of DIPU's.*{meant}"):
        dipu_variables.check({name: "1"})


@pytest.mark.parametrize("name", list_rows(HONOURED, BUILD))
def test_the_rest_is_silent(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dipu_variables.check({name: "1", "PATH": "/bin", "DITORCH_BACKEND": "host"})


def test_blocking_wait_takes_two_values():
    with pytest.raises(ValueError, match="DICL_BLOCKING_WAIT: 'yes' is not valid; valid: 0, 1"):
        dipu_variables.check({"DICL_BLOCKING_WAIT": "yes"})


# In a program


def test_dipu_19_refusal_autoload_and_every_fallback_by_name(python):
    program = """
        import os, sys, torch
        from importlib.metadata import entry_points

        if "ditorch" not in sys.modules:
            os.environ["DIPU_KEEP_TORCHOP_DEFAULT_IMPL_OPS"] = ".*"
            import warnings

            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                import ditorch  # an uninstalled tree has no entry point for torch to call
            said = [str(row.message) for row in caught if "DIPU_KEEP_TORCHOP_DEFAULT_IMPL_OPS" in str(row.message)]
            assert len(said) == 1 and "OpFallback" in said[0], said
        assert "torch_dipu" in sys.modules and torch.ones(1).dipu().is_dipu
        x = torch.rand(4, 4, device="dipu")
        torch.linalg.eigvals(x)
        torch.linalg.qr(x)
        torch.linalg.qr(x)
        """
    answer = python(program, DIPU_AUTOLOAD="1", DIPU_LOG_FALLBACK_INFO="1")
    text = answer.stdout + answer.stderr
    assert "eig" in text and "qr" in text, text


def test_the_tables_of_the_page_are_current():
    path = Path(__file__).resolve().parents[2] / "tools" / "gen_dipu_table.py"
    spec = importlib.util.spec_from_file_location("gen_dipu_table", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = Path(tool.PATH).read_text()
    assert tool.replace(page, "variables", tool.render_variables()) == page, "run tools/gen_dipu_table.py"
    assert tool.replace(page, "names", tool.render_names()) == page, "run tools/gen_dipu_table.py"
