"""Write docs/diopi-support.md: what the host library has, and which operators of PyTorch run on it."""

from __future__ import annotations

import sys
from pathlib import Path

from ditorch import _C, diopi_report

PAGE = Path(__file__).resolve().parent.parent / "docs" / "diopi-support.md"
HEAD = """# What the host library has

The functions of [the standard](diopi.md) that the library of the embedded device implements, the dtypes of their
first input, and the operators of PyTorch that run on them (the row of the operator table; forms for numbers and
in-place forms may be used by the same operators). Written by `make docs`.
"""
SHORT = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
    **{f"{sign}int{bits}": f"{sign[:1] or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def write_page() -> str:
    """Text of the page."""
    functions = diopi_report.collect("host")["functions"]
    behind: dict[str, list[str]] = {}
    for operator, function in _C.operators_diopi().items():
        behind.setdefault(function, []).append(operator.removeprefix("aten::"))
    have = [row for row in functions if row["state"] == "implemented"]
    operators = _C.operators_c()
    lines = [
        HEAD,
        f"{len(have)} of {len(functions)} functions; {len(operators)} overloads of PyTorch's operators run in C, "
        f"{len(_C.operators_diopi())} of them by a row of the table below.",
        "",
        f"{sum(bool(row['inference']) for row in have)} of them tell shapes and dtypes of their results before a call "
        "(`diopiExtInferOutputs`).",
        "",
        "| family | functions | here |",
        "|---|---:|---:|",
    ]
    families = list(dict.fromkeys(row["family"] for row in functions))
    for family in families:
        own = [row for row in functions if row["family"] == family]
        lines.append(f"| {family} | {len(own)} | {sum(row['state'] == 'implemented' for row in own)} |")
    for family in families:
        own = [row for row in have if row["family"] == family]
        if not own or family == "library_info":
            continue
        lines += ["", f"## {family.replace('_', ' ')}", "", "| function | dtypes | operators |", "|---|---|---|"]
        for row in own:
            dtypes = " ".join(SHORT.get(name, name) for name in row["dtypes"])
            names = ", ".join(f"`{name}`" for name in behind.get(row["name"], []))
            lines.append(f"| `{row['name']}` | {dtypes} | {names} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    text = write_page()
    if "--check" in sys.argv:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.name} is not current; run make docs", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
