"""Write the DIOPI headers, the list of functions and their reference from standard/diopi.tsv.

One row of the table is one function: name, header, family, C signature, contract. Everything else that must know all
functions (declarations, loader, forwarders, calls by name, conformance suite, docs) comes from what is written here.

    python tools/gen_diopi.py           write
    python tools/gen_diopi.py --check   exit status 1 when a file is not current
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "standard" / "diopi.tsv"
WIDTH = 120

HEADERS = {
    "functions.h": "The operators of general use, and what a library says about itself.",
    "functions_ext.h": "Operators of large models: attention, normalisation, rotary embedding, fused optimizers.",
    "functions_mmcv.h": "Operators of computer vision, as the library mmcv has them.",
    "functions_lmdeploy.h": "Fused operators of a serving engine for large language models.",
    "functions_sparse.h": "Operators on sparse tensors.",
}

# A C type -> the letter of the parameter in a list of kinds, and the expression that takes it from a dit_diopi_value.
KINDS: dict[str, tuple[str, str]] = {
    "diopiContextHandle_t": ("c", "{v}.context"),
    "diopiTensorHandle_t": ("o", "{v}.tensor"),
    "diopiConstTensorHandle_t": ("t", "{v}.tensor"),
    "diopiTensorHandle_t*": ("O", "{v}.tensors"),
    "diopiConstTensorHandle_t*": ("T", "(diopiConstTensorHandle_t *){v}.tensors"),
    "int64_t": ("i", "{v}.i"),
    "int32_t": ("i", "(int32_t){v}.i"),
    "int": ("i", "(int){v}.i"),
    "bool": ("b", "{v}.i != 0"),
    "float": ("f", "(float){v}.d"),
    "double": ("d", "{v}.d"),
    "diopiSize_t": ("z", "{v}.size"),
    "diopiSize_t*": ("Z", "{v}.sizes"),
    "diopiScalar_t*": ("s", "{v}.scalar"),
    "int64_t*": ("I", "{v}.ints"),
    "bool*": ("B", "{v}.bools"),
    "double*": ("D", "{v}.doubles"),
    "char*": ("C", "{v}.string"),
    "diopiGeneratorHandle_t": ("g", "{v}.generator"),
    "diopiGeneratorHandle_t*": ("G", "{v}.generators"),
    "diopiReduction_t": ("r", "(diopiReduction_t){v}.i"),
    "diopiRoundMode_t": ("m", "(diopiRoundMode_t){v}.i"),
    "diopiMemoryFormat_t": ("y", "(diopiMemoryFormat_t){v}.i"),
    "void*": ("p", "{v}.pointer"),
}

# The letter of a kind -> the member of a dit_diopi_value, and the cast that takes qualifiers away.
MEMBERS: dict[str, tuple[str, str]] = {
    "c": ("context", ""),
    "o": ("tensor", ""),
    "t": ("tensor", "(diopiTensorHandle_t)"),
    "O": ("tensors", ""),
    "T": ("tensors", "(diopiTensorHandle_t *)"),
    "i": ("i", ""),
    "b": ("i", ""),
    "f": ("d", ""),
    "d": ("d", ""),
    "z": ("size", ""),
    "Z": ("sizes", ""),
    "s": ("scalar", "(diopiScalar_t *)"),
    "I": ("ints", "(int64_t *)"),
    "B": ("bools", "(bool *)"),
    "D": ("doubles", "(double *)"),
    "C": ("string", ""),
    "g": ("generator", ""),
    "G": ("generators", ""),
    "r": ("i", "(int64_t)"),
    "m": ("i", "(int64_t)"),
    "y": ("i", "(int64_t)"),
    "p": ("pointer", ""),
}


class Parameter(NamedTuple):
    """One parameter of a function: its C type as the standard spells it, its name, the letter of its kind, and how many
    results the library puts there."""

    type: str
    name: str
    kind: str
    results: int = 1

    @property
    def declaration(self) -> str:
        return f"{self.type[:-1]} *{self.name}" if self.type.endswith("*") else f"{self.type} {self.name}"

    def value(self, index: int) -> str:
        """The argument, taken out of an array of values."""
        return KINDS[_plain(self.type)][1].format(v=f"v[{index}]")

    @property
    def packed(self) -> str:
        """The argument as an initialiser of a value."""
        member, cast = MEMBERS[self.kind]
        return f"{{.{member} = {cast}{self.name}}}"


class Function(NamedTuple):
    """One row of the table."""

    name: str
    header: str
    family: str
    returns: str
    parameters: tuple[Parameter, ...]
    contract: str


def _plain(type_: str) -> str:
    return type_.removeprefix("const ").strip()


def _parse_parameter(text: str, function: str) -> Parameter:
    """`diopiTensorHandle_t outlist[4]` is a pointer to C; the table says how many results the library puts there."""
    match = re.fullmatch(r"(.+?)\s*(\w+)(?:\[(\d+)\])?", text)
    type_ = match and (match[1] + "*" if match[3] else match[1])
    if match is None or _plain(type_) not in KINDS:
        raise ValueError(f"{function}: parameter {text!r} has no known type; known: {', '.join(KINDS)}")
    return Parameter(type_, match[2], KINDS[_plain(type_)][0], int(match[3] or 1))


def read_table(path: Path = TABLE) -> list[Function]:
    """Read all functions, in the order of the table; ValueError names a row that is not well formed."""
    functions = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            match = re.fullmatch(r"(diopiError_t|const char\*) \((.*)\)", row["signature"])
            if match is None or row["header"] not in HEADERS:
                raise ValueError(
                    f"{row['name']}: signature {row['signature']!r} in {row['header']!r} is not well formed"
                )
            texts = [text for text in match[2].split(", ") if text]
            parameters = tuple(_parse_parameter(text, row["name"]) for text in texts)
            functions.append(
                Function(row["name"], row["header"], row["family"], match[1], parameters, row["contract"].strip())
            )
    bare = [function.name for function in functions if not function.contract]
    if bare:
        raise ValueError(f"{path.name} has functions without a contract: {', '.join(bare)}")
    names = [function.name for function in functions]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"{path.name} names functions twice: {', '.join(sorted(repeated))}")
    return functions


def _declare(function: Function) -> list[str]:
    lines = textwrap.wrap(
        function.contract, WIDTH, initial_indent="/// ", subsequent_indent="/// ", break_on_hyphens=False
    )
    returns = "const char *" if function.returns == "const char*" else "diopiError_t "
    start = f"DIOPI_API {returns}{function.name}("
    line = start
    for index, parameter in enumerate(function.parameters):
        text = parameter.declaration + (", " if index + 1 < len(function.parameters) else "")
        if len(line) + len(text.rstrip()) + 2 > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(start)
        line += text
    lines.append(line + (");" if function.parameters else "void);"))
    return lines


def write_header(name: str, functions: list[Function]) -> str:
    """Text of one header."""
    guard = f"DIOPI_{name.removesuffix('.h').upper()}_H"
    lines = [
        f"/// {HEADERS[name]}",
        "///",
        "/// Written by tools/gen_diopi.py from standard/diopi.tsv. Rules that hold for every operator: diopirt.h.",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        '#include "diopi/diopirt.h"',
        "",
        "// clang-format off",
        "DIOPI_EXTERN_C_BEGIN",
    ]
    family = None
    for function in functions:
        if function.family != family:
            family = function.family
            lines += ["", f"// {family.replace('_', ' ')}"]
        lines += ["", *_declare(function)]
    return "\n".join([*lines, "", "DIOPI_EXTERN_C_END", "// clang-format on", "", "#endif", ""])


def write_list(functions: list[Function]) -> str:
    """Text of the list that other code includes with DIOPI_FUNCTION defined."""
    lines = [
        "// Every function of the standard. Written by tools/gen_diopi.py from standard/diopi.tsv.",
        "//",
        "// Define DIOPI_FUNCTION(name, header, family, parameters, values, packed, kinds, names) and, where wanted,",
        "// DIOPI_QUERY(name, header, family), then include this file; it undefines all. Parameters are in",
        "// parentheses; values, too, takes each argument out of an array `const union dit_diopi_value *v`; packed is",
        "// PACK(...) of the initialisers that put the arguments into such an array, to be defined as __VA_ARGS__;",
        "// kinds has one letter per parameter (dit/diopi.h), names are separated by commas. Functions return",
        "// diopiError_t, queries a text; those take nothing. DIOPI_RESULTS(name, parameter, count), where wanted, is",
        "// for parameters by number at which the library puts several results.",
        "#ifndef DIOPI_QUERY",
        "#define DIOPI_QUERY(name, header, family)",
        "#endif",
        "#ifndef DIOPI_RESULTS",
        "#define DIOPI_RESULTS(name, parameter, count)",
        "#endif",
    ]
    for function in functions:
        if function.returns != "diopiError_t":
            lines.append(f'DIOPI_QUERY({function.name}, "{function.header}", "{function.family}")')
            continue
        declared = ", ".join(p.declaration for p in function.parameters)
        names = [p.name for p in function.parameters]
        values = ", ".join(p.value(i) for i, p in enumerate(function.parameters))
        packed = ", ".join(p.packed for p in function.parameters)
        kinds = "".join(p.kind for p in function.parameters)
        lines.append(
            f'DIOPI_FUNCTION({function.name}, "{function.header}", "{function.family}", ({declared}), '
            f'({values}), PACK({packed}), "{kinds}", "{",".join(names)}")'
        )
        several = [(i, p.results) for i, p in enumerate(function.parameters) if p.results > 1]
        lines += [f"DIOPI_RESULTS({function.name}, {index}, {count})" for index, count in several]
    return "\n".join([*lines, "#undef DIOPI_FUNCTION", "#undef DIOPI_QUERY", "#undef DIOPI_RESULTS", ""])


def write_reference(functions: list[Function]) -> str:
    """Text of docs/diopi-reference.md."""
    lines = [
        "# DIOPI reference",
        "",
        f"{len(functions)} functions, written by `tools/gen_diopi.py` from `standard/diopi.tsv`. The rules for all of",
        "them (ownership, streams, aliasing, promotion, errors) are in [the standard](diopi.md).",
    ]
    for header in HEADERS:
        own = [function for function in functions if function.header == header]
        lines += ["", f"## {header}", "", HEADERS[header]]
        for family in dict.fromkeys(function.family for function in own):
            lines += ["", f"### {family.replace('_', ' ')}", ""]
            for function in own:
                if function.family == family:
                    declared = ", ".join(p.declaration for p in function.parameters) or "void"
                    lines.append(f"- `{function.name}({declared})`: {function.contract}")
    return "\n".join([*lines, ""])


def write_all(functions: list[Function]) -> dict[Path, str]:
    """Every generated file and its text."""
    files = {
        ROOT / "include" / "diopi" / name: write_header(name, [f for f in functions if f.header == name])
        for name in HEADERS
    }
    files[ROOT / "include" / "diopi" / "functions.inc"] = write_list(functions)
    files[ROOT / "docs" / "diopi-reference.md"] = write_reference(functions)
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 when a file is not current")
    arguments = parser.parse_args()
    stale = []
    for path, text in write_all(read_table()).items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
    if arguments.check and stale:
        print(f"not current: {', '.join(stale)}; run python tools/gen_diopi.py", file=sys.stderr)
        return 1
    print(f"{len(stale)} files written" if stale else "diopi: everything current")
    return 0


if __name__ == "__main__":
    sys.exit(main())
