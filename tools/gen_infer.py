"""Write what standard/dlinfer.tsv says into the files that need it: the C header for chip makers, the rows of the
door, the Python module of the operators and the table of docs/dlinfer.md.

    python tools/gen_infer.py           write
    python tools/gen_infer.py --check   exit status 1 when a file is not current
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "standard" / "dlinfer.tsv"
COLUMNS = ["name", "where", "operator", "results", "Python signature", "dtypes", "modes", "contract"]
TYPES = {  # of the schema -> kind in C, declaration in C
    "Tensor": ("t", "struct dit_tensor_view {};"),
    "Tensor?": ("T", "struct dit_tensor_view {};  ///< or absent (handle NULL)"),
    "float": ("d", "double {};"),
    "int": ("i", "int64_t {};"),
    "ScalarType": ("i", "int64_t {};  ///< enum dit_dtype"),
    "bool": ("b", "bool {};"),
}
MADE = "Written by tools/gen_infer.py from standard/dlinfer.tsv."


class Row(NamedTuple):
    name: str
    where: str  # c: a slot of the table, torch: an operator made of others, python: a function alone
    operator: str
    results: list[str]
    signature: str
    dtypes: list[str]  # of the floating (or quantised) tensors that C takes; others are composed
    modes: str  # head sizes, quantisation: what C takes of them
    contract: str

    @property
    def arguments(self) -> list[tuple[str, str, bool]]:
        """(type, name, written) of the operator's arguments."""
        inside = self.operator[1 : self.operator.index(") ->")]
        found = []
        for argument in inside.split(", "):
            kind, name = argument.split(" ")
            found.append((re.sub(r"\(\w!\)", "", kind), name, "!" in kind))
        return found


def read() -> list[Row]:
    lines = TABLE.read_text().splitlines()
    if lines[0].split("\t") != COLUMNS:
        raise SystemExit(f"{TABLE}: the first line must be the columns {COLUMNS}")
    rows = [line.split("\t") for line in lines[1:]]
    return [
        Row(name, where, op, results.split(), call, dtypes.split(), modes, text)
        for name, where, op, results, call, dtypes, modes, text in rows
    ]


def wrap(text: str, prefix: str) -> str:
    return textwrap.fill(text, 120, initial_indent=prefix, subsequent_indent=prefix, break_long_words=False)


def render_struct(row: Row) -> str:
    fields = [f"  struct dit_tensor_view {name};  ///< result" for name in row.results]
    for kind, name, written in row.arguments:
        text = TYPES[kind][1].format(name)
        fields.append(f"  {text}  ///< written" if written else f"  {text}")
    return (
        f"{wrap(f'{row.name}: {row.contract}.', '/// ')}\nstruct dit_infer_{row.name} {{\n" + "\n".join(fields) + "\n};"
    )


def render_header(rows: list[Row]) -> str:
    slots = "\n".join(
        f"  enum dit_status (*{row.name})(void *stream, const struct dit_infer_{row.name} *call,\n"
        f"      struct dit_error *err);"
        for row in rows
    )
    names = "\n".join(f"  DIT_INFER_{row.name.upper()}," for row in rows)
    structs = "\n\n".join(render_struct(row) for row in rows)
    return f"""\
/// Fused operators of LLM inference that a chip maker may offer: one struct of functions, one struct of arguments each.
///
/// An operator library (dit/diopi.h) that has some exports dit_infer_get_table. Slots that are NULL, and calls that a
/// function answers with DIT_ERR_UNSUPPORTED before it wrote anything, are composed of PyTorch's operators. libdit has
/// checked shapes and dtypes, and made the results, before a function is called (src/ops/llm_checks.c); what stands in
/// tensors (slots, block numbers, lengths) is the function's to check: DIT_ERR_INVALID with the argument's name.
/// Tensors are of the call's device, except small integer tensors (lengths, indices), whose flags tell where they are.
/// Elements of a tensor's last dimension lie side by side (stride 1); all other strides are free. The table only grows
/// at its end. {MADE}
#ifndef DIT_INFER_H
#define DIT_INFER_H

#include <stdbool.h>

#include "dit/export.h"
#include "dit/tensor.h"

DIT_EXTERN_C_BEGIN

#define DIT_INFER_VERSION 1

enum dit_infer_function {{
{names}
  DIT_INFER_COUNT
}};

{structs}

struct dit_infer_table {{
  uint32_t version;  ///< DIT_INFER_VERSION
  uint32_t size;     ///< sizeof(struct dit_infer_table) of the library; slots beyond it count as NULL
{slots}
}};

/// What a library exports.
typedef const struct dit_infer_table *dit_infer_get_table_function(void);

/// For frameworks: the name of function `number` (NULL beyond the last), and whether a table (NULL: none) has it.
DIT_API const char *dit_infer_get_name(int number);
DIT_API bool dit_infer_has(const struct dit_infer_table *table, int number);

DIT_EXTERN_C_END

#endif
"""


def render_rows(rows: list[Row]) -> str:
    lines = [
        f"// {MADE}",
        "// INFER(name, results, arguments, kinds, offsets ...): the operator dlinfer::name (llm.c).",
    ]
    for row in rows:
        kinds = "r" * len(row.results) + "".join(TYPES[kind][0] for kind, _, _ in row.arguments)
        fields = [*row.results, *[name for _, name, _ in row.arguments]]
        head = f'INFER({row.name}, {len(row.results)}, {len(row.arguments)}, "{kinds}",'
        places = ", ".join(f"AT({row.name},{field})" for field in fields)
        lines.append(
            head + "\n" + textwrap.fill(f"{places})", 118, initial_indent="      ", subsequent_indent="      ")
        )
    return "\n".join(lines) + "\n"


def name_parameters(signature: str) -> list[str]:
    return [part.split("=")[0].strip() for part in re.split(r", (?![^()]*\))", signature[1:-1])]


def render_python(rows: list[Row]) -> str:
    lines = [
        f'"""dlinfer.ops, what inference frameworks call. {MADE}"""',
        "",
        "import torch",
        "",
        "from . import front",
        "",
    ]
    lines.append("OPERATORS = {")
    for row in rows:
        if row.operator:
            text = "\n".join(f"        {part!r}" for part in textwrap.wrap(row.operator, 100, drop_whitespace=False))
            lines.append(f"    {row.name!r}: (\n{text}\n    ),")
    lines.append("}")
    lines.append('"""Operator of torch.ops.dlinfer -> its schema."""')
    lines.append(f"IN_C = {tuple(row.name for row in rows if row.where == 'c')!r}")
    lines.append('"""Those with a slot in include/dit/infer.h."""')
    lines.append("MODES = {")
    lines += [f"    {row.name!r}: ({tuple(row.dtypes)!r}, {row.modes!r})," for row in rows if row.where == "c"]
    lines.append("}")
    lines.append('"""What those take in C: dtypes, and head sizes or quantisation."""')
    for row in rows:
        names = name_parameters(row.signature)
        passed = ", ".join(names)
        text = row.contract[0].upper() + row.contract[1:]
        lines.append(f"\n\ndef {row.name}{row.signature}:")
        lines.append(f'    """{textwrap.fill(text, 108, subsequent_indent="    ", break_long_words=False)}."""')
        lines.append(f"    return front.{row.name}({passed})")
    return "\n".join(lines) + "\n"


def render_docs(rows: list[Row]) -> str:
    lines = ["| function | meaning |", "|---|---|"]
    lines += [f"| `{row.name}` | {row.contract} |" for row in rows]
    return "\n".join(lines) + "\n"


def render_modes(rows: list[Row]) -> str:
    """Operators x libraries x modes. The library of the embedded device has every slot (test_infer_ops.py asks it);
    those of NVIDIA by C and of the closed test device have none."""
    lines = ["| function | embedded device | NVIDIA by C, closed devices | other devices of PyTorch | dtypes | modes |"]
    lines.append("|---" * 6 + "|")
    for row in rows:
        own = "C" if row.where == "c" else "composed"
        modes = row.modes or "any"
        dtypes = ", ".join(row.dtypes) or "any"
        lines.append(f"| `{row.name}` | {own} | composed on the device | composed | {dtypes} | {modes} |")
    return "\n".join(lines) + "\n"


def replace(page: str, mark: str, table: str) -> str:
    begin, end = f"<!-- begin {mark} -->\n", f"<!-- end {mark} -->\n"
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"docs/dlinfer.md has no markers 'begin {mark}' and 'end {mark}'")
    return f"{head}{begin}\n{table}\n{end}{tail}"


def format_text(path: Path, text: str) -> str:
    """As the formatters of `make lint` want it."""
    import subprocess

    tools = Path(sys.executable).parent
    command = {".h": ["clang-format", f"--assume-filename={path}"], ".py": ["ruff", "format", "-q", "-"]}.get(
        path.suffix
    )
    if command is None or not (tools / command[0]).exists():
        return text
    done = subprocess.run(
        [str(tools / command[0]), *command[1:]], input=text, capture_output=True, text=True, cwd=ROOT, check=True
    )
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    rows = read()
    slots = [row for row in rows if row.where == "c"]
    page = ROOT / "docs" / "dlinfer.md"
    files = {
        ROOT / "include" / "dit" / "infer.h": render_header(slots),
        ROOT / "src" / "ops" / "rows_llm.inc": render_rows(slots),
        ROOT / "python" / "ditorch" / "infer" / "ops.py": render_python(rows),
        page: replace(replace(page.read_text(), "operators", render_docs(rows)), "modes", render_modes(rows)),
    }
    stale = []
    for path, text in files.items():
        wanted = format_text(path, text)
        if not path.exists() or path.read_text() != wanted:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(wanted)
    if stale:
        print(("out of date: " if check else "written: ") + ", ".join(stale))
    return bool(stale and check)


if __name__ == "__main__":
    sys.exit(main())
