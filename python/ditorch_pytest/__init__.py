"""The pytest plugin of ditorch: operator tools around tests. A package of its own, because pytest imports it in every
session that has ditorch installed: it imports nothing but pytest until a test wants a tool.

    pytest --ditorch-compare                                     every test: is an operator wrong?
    pytest --ditorch-nan                                         does one make NaN or Inf?
    @pytest.mark.ditorch(tool="autocompare,nan", include="torch.nn.*")      one test, with options of the tools
    @pytest.mark.ditorch(tool="")                                none for this one

A finding is a failure of the test, with its block; a test that fails by itself keeps its failure and gets the blocks as
a section.
"""

from __future__ import annotations

from typing import Any

import pytest

_FLAGS = {"ditorch_compare": "autocompare", "ditorch_nan": "nan"}
_MARKER = "ditorch(tool='', **options): run the test under these ditorch tools (autocompare, nan); '' for none"


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("ditorch", "operators of the device")
    group.addoption("--ditorch-compare", action="store_true", help="every operator of a test once more on the CPU")
    group.addoption(
        "--ditorch-nan", action="store_true", help="a test fails when one of its operators makes NaN or Inf"
    )
    group.addoption(
        "--ditorch-option",
        action="append",
        default=[],
        metavar="TOOL.NAME=VALUE",
        help="any option of a tool, such as autocompare.reference=cpu",
    )


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", _MARKER)
    if config.option.ditorch_option:
        from ditorch.command.spec import SpecError, parse_option

        try:
            config._ditorch_options = [parse_option(text) for text in config.option.ditorch_option]
        except SpecError as error:
            raise pytest.UsageError(str(error)) from None
    if any(getattr(config.option, name) for name in _FLAGS):
        import ditorch  # noqa: F401  # "cuda" has a device before the tests are collected


def _choose(item: Any) -> tuple[list[str], dict[str, Any]]:
    """Tools for a test, and options of its marker."""
    marker = item.get_closest_marker("ditorch")
    chosen = [tool for flag, tool in _FLAGS.items() if getattr(item.config.option, flag)]
    if marker is None:
        return chosen, {}
    options = dict(marker.kwargs)
    wanted = options.pop("tool", marker.args[0] if marker.args else None)
    if wanted is None:
        return chosen or ["autocompare"], options
    from ditorch.command.spec import SpecError, parse_tools

    try:
        names = parse_tools(wanted if isinstance(wanted, str) else ",".join(wanted))
    except SpecError as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from None
    other = [name for name in names if name not in _FLAGS.values()]
    if other:
        raise pytest.UsageError(f"{item.nodeid}: tool {other[0]!r} finds nothing; valid: autocompare, nan")
    return names, options


def _make(item: Any, names: list[str], options: dict[str, Any]) -> list[Any]:
    """The tools; results of what they save are in the test session's temporary folder."""
    import op_tools
    from ditorch.command.spec import TOOLS

    given = getattr(item.config, "_ditorch_options", [])
    tools = []
    for name in names:
        own = {key: value for tool, key, value in given if tool == name}
        common = {"console": "off", "log": False, "save": False, "module_paths": True}
        if name == "autocompare":
            common["rows"] = "none"
        tools.append(getattr(op_tools, TOOLS[name][0])(**{**common, **own, **options}))
    return tools


def _describe(name: str, tool: Any) -> list[str]:
    from op_tools import autocompare, overflow_check
    from op_tools.console import format_block

    module = autocompare if name == "autocompare" else overflow_check
    return [
        format_block(f"{type(tool).__name__}: {module.format_headline(finding)}", module.list_facts(finding))
        for finding in tool.findings()
    ]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Any:
    if not (item.config.option.ditorch_compare or item.config.option.ditorch_nan) and not item.get_closest_marker(
        "ditorch"
    ):
        yield
        return
    names, options = _choose(item)
    tools = dict(zip(names, _make(item, names, options), strict=True))
    started: list[Any] = []
    try:
        for tool in tools.values():
            started.append(tool.start())
        outcome = yield
    finally:
        for tool in reversed(started):
            tool.stop()
    blocks = [block for name, tool in tools.items() for block in _describe(name, tool)]
    if not blocks:
        return
    text = "\n\n".join(blocks)
    if outcome.excinfo is not None:
        item.add_report_section("call", "ditorch", text)
        return
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception as failure:
        outcome.force_exception(failure) if hasattr(outcome, "force_exception") else _raise(outcome, failure)


def _raise(outcome: Any, failure: BaseException) -> None:
    """Of pluggy before 1.1."""
    outcome._excinfo = (type(failure), failure, failure.__traceback__)
