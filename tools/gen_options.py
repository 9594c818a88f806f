"""Write docs/options.md from the option schema of libdit."""

from __future__ import annotations

import sys
from pathlib import Path

from ditorch import _C

PAGE = Path(__file__).resolve().parent.parent / "docs" / "options.md"
HEAD = """# Options

The same option can be a keyword (`python -m ditorch --set name=value`), an environment variable, or a key of the
`[ditorch]` table in the TOML file that `DITORCH_CONFIG` names; the first of these that is set wins. Unknown names and
bad values are errors that list the valid ones. This page is written by `make docs`.

| option | environment variable | type | default | meaning |
|---|---|---|---|---|
"""
TOOLS_HEAD = """
## Operator tools

An option of a tool is a keyword (`OpObserve(steps="4-6")`), an environment variable, or a key of the same TOML file:
`[op_tools]` for all tools, `[op_tools.capture]` and so on for one. The first of these that is set wins; within the
environment and within the file the tool's own spelling wins over the shared one. A change through `os.environ` takes
effect at the next operator call (options of files, caps and levels: at the next `start()`); the environment is never
written. Unknown variables with a prefix of the tools, unknown keys and bad values are errors at `start()` that name the
nearest valid one. An empty variable counts as unset, except for lists of operators: an empty `OP_OBSERVE_LIST` switches
the tool off. [Selection](tools/selection.md) explains lists, patterns and ranges.

```toml
[op_tools]
console = "short"
steps = "100-110"

[op_tools.capture]
list = ["torch.nn.functional.*", "torch.Tensor.matmul"]
layout = "packed"
```

| tool | keyword arguments of | variables | table |
|---|---|---|---|
"""
CLASSES = {
    "observe": "`OpObserve`",
    "time_measure": "`OpTimeMeasure`",
    "overflow_check": "`OpOverflowCheck`",
    "capture": "`OpCapture`",
    "fallback": "`OpFallback`",
    "autocompare": "`OpAutoCompare`",
    "dtype_cast": "`OpDtypeCast`",
}
OPTIONS_HEAD = """
| option | environment variables | tools | type | default | meaning |
|---|---|---|---|---|---|
"""
FOOT = """
`process_monitor` is a program of its own: it reads its variables and no file. Old names that still work:
`OP_DISPATCH_WATCH_LIST` and `OP_DISPATCH_WATCH_DISABLE_LIST` for those of `OP_OBSERVE`;
`OP_TOOLS_GARBAGE_COLLECTION_CYCLE` is accepted and has no effect. Types: *names* and *patterns* are lists
separated by commas; *ranges* look like `4-6,9,20-`; *casts* like `torch.float16->torch.float32`; *tolerance* is
`absolute,relative`.
"""


def describe_type(option: dict) -> str:
    return " \\| ".join(option["choices"]) if option["choices"] else option["type"]


def render_options() -> str:
    """The table of ditorch's own options."""
    rows = []
    for option in _C.options():
        rows.append(
            f"| `{option['name']}` | `{option['environment']}` | {describe_type(option)} | `{option['default']}` | "
            f"{option['help']} |"
        )
    return "\n".join(rows) + "\n" + render_aliases()


def render_aliases() -> str:
    """The variables of DIPU that set some of them."""
    text = "\n## Variables of DIPU\n\nThey set the option beside them, where its own variable is not set.\n\n"
    text += "| variable | option | unit |\n|---|---|---|\n"
    for variable, option, unit in _C.option_aliases():
        text += f"| `{variable}` | `{option}` | {unit} |\n"
    return text


def describe_variables(rows: list[dict]) -> str:
    """The variables of an option, with <TOOL> where every tool has one of its own."""
    first = rows[0]
    tools = [tool for row in rows for tool in row["tools"]]
    upper = first["name"].upper()
    if first["scope"] == "shared":
        own = f"OP_{tools[0].upper()}_{upper}" if len(tools) == 1 else f"OP_<TOOL>_{upper}"
        return f"`{own}`, `OP_TOOLS_{upper}`"
    if first["scope"] == "own" and len(tools) > 2:
        return f"`OP_<TOOL>_{upper}`"
    names = dict.fromkeys(names[0] for row in rows for names in row["tools"].values())
    return ", ".join(f"`{name}`" for name in names)


def describe_default(rows: list[dict]) -> str:
    if len(rows) == 1:
        return f"`{rows[0]['default']}`"
    return "; ".join(f"`{row['default']}` ({', '.join(row['tools'])})" for row in rows)


def describe_tools(rows: list[dict]) -> str:
    tools = [tool for row in rows for tool in row["tools"]]
    return "all" if set(tools) >= set(CLASSES) else ", ".join(tools)


def render_tools() -> str:
    """The section about the operator tools."""
    text = TOOLS_HEAD
    for tool in CLASSES:
        text += f"| {tool} | {CLASSES[tool]} | `OP_{tool.upper()}_...` | `[op_tools.{tool}]` |\n"
    text += OPTIONS_HEAD
    groups: dict[str, list[dict]] = {}
    for row in _C.tool_options():
        groups.setdefault(row["name"], []).append(row)
    for name, rows in groups.items():
        cells = [f"`{name}`", describe_variables(rows), describe_tools(rows), describe_type(rows[0])]
        default = describe_default(rows).replace("|", "\\|")
        text += f"| {' | '.join(cells)} | {default} | {rows[0]['help']} |\n"
    return text + FOOT


def render() -> str:
    """The whole page."""
    return HEAD + render_options() + render_tools()


def main() -> int:
    text = render()
    if "--check" in sys.argv:
        if PAGE.read_text() != text:
            print("docs/options.md is not current: run `make docs`")
            return 1
        return 0
    PAGE.write_text(text)
    print(f"wrote {PAGE.relative_to(PAGE.parent.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
