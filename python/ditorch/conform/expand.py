"""Entries to cases. A case is a pure function of its id and the seed: function/entry/dtype/layout/number.

The layouts of an entry run on its first rows (layout_rows), "contiguous" on every row; "inplace" gives the output the
memory of an input; "error" makes calls that must fail: those of the entry, and automatic ones (an absent tensor, an
output of the wrong shape, an output that overlaps itself or an input, no context, a tensor in the host's memory).
Depends on schema, data, references, tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..command.parser import suggest
from . import references, tolerance
from .case import Case, GeneratorArgument, NumberArgument, RequiredArgument, SparseArgument, TensorArgument
from .data import DTYPES, SparseMatrix, apply_layout, make_sparse, make_values
from .names import RUNS, THREADS, derive_number
from .references import Call, Result
from .schema import AUTOMATIC_ERRORS, Column, Entry, standard

ERROR_DTYPES = ("float32", "int64", "bool", "complex64")


@dataclass(frozen=True)
class CaseId:
    """One case before it is made."""

    entry: Entry
    function: str
    dtype: str
    layout: str
    number: int
    what: str = ""
    """Of an error: which."""

    def __str__(self) -> str:
        return f"{self.function}/{self.entry.name}/{self.dtype}/{self.layout}/{self.number}"


def _get_shapes(column: Column, row: int) -> list[list[int]]:
    shape = column.at(row)
    if shape is None:
        return []
    if shape and isinstance(shape[0], list):
        return shape
    return [shape]


def _suits(entry: Entry, row: int, layout: str) -> bool:
    """Does this layout change any tensor of the row?"""
    shapes = [s for c in entry.arguments.values() if c.is_tensor for s in _get_shapes(c, row)]
    if layout == "channels_last":
        return any(len(shape) == 4 for shape in shapes)
    if layout == "transposed":
        return any(sum(size > 1 for size in shape) > 1 for shape in shapes)
    if layout == "expanded":
        return any(max(shape, default=0) > 1 for shape in shapes)
    if layout == "far":
        return any(max(shape, default=0) > 1 and 0 not in shape for shape in shapes)
    return bool(shapes) or layout in ("strided", "offset", "mixed")


def _list_errors(entry: Entry, function: str) -> list[str]:
    """Names of the error cases: "null input", "shape out", "overlap out", "partial out", "entry 0" ..."""
    info = standard()[function]
    found = [f"entry {number}" for number in range(len(entry.errors))]
    automatic = [kind for kind in AUTOMATIC_ERRORS if kind not in entry.no_errors]
    for kind, name in zip(info.kinds[1:], info.parameters[1:], strict=True):
        column = entry.arguments.get(name)
        given = column is not None and column.is_tensor and column.at(0) is not None
        is_output = kind == "o" and column is None and entry.outputs.get(name, [""])[0] is not None
        if "null" in automatic and name not in entry.optional and kind in "to" and (given or is_output):
            found.append(f"null {name}")
        if is_output:
            found += [f"{what} {name}" for what in ("shape", "overlap") if what in automatic]
    outputs = [n for k, n in zip(info.kinds, info.parameters, strict=True) if k == "o" and n not in entry.arguments]
    if "partial" in automatic and len(outputs) == 1:
        found.append(f"partial {outputs[0]}")
    if "context" in automatic:
        found.append("context ctx")
    if "host" in automatic:
        found.append(f"host {_find_tensor(entry, info)}")
    return found


def _find_tensor(entry: Entry, info: Any) -> str:
    """The first tensor or list of them that is read; of functions that read none, the first that is written."""
    for kinds in ("tT", "oO"):
        for kind, name in zip(info.kinds[1:], info.parameters[1:], strict=True):
            column = entry.arguments.get(name)
            given = column is not None and bool(column.at(0) if kind in "TO" else column.at(0) is not None)
            if kind in kinds and (given or (kind == "o" and column is None)):
                return name
    raise ExpansionError(f"{entry.name}: {info.name} has no tensor")


def list_entry(entry: Entry, function: str, is_first: bool) -> Iterator[CaseId]:
    """Every case of a function in an entry. The automatic errors belong to the function's first entry."""
    for dtype in entry.dtypes:
        for row in range(entry.rows):
            yield CaseId(entry, function, dtype, "contiguous", row)
        rows = range(min(entry.layout_rows, entry.rows))
        for layout in entry.layouts:
            for row in rows:
                if layout != "contiguous" and _suits(entry, row, layout):
                    yield CaseId(entry, function, dtype, layout, row)
        if any(name in standard()[function].parameters for name in entry.inplace):
            for row in rows:
                yield CaseId(entry, function, dtype, "inplace", row)
    dtype = next((name for name in ERROR_DTYPES if name in entry.dtypes), entry.dtypes[0])
    if is_first and "far" not in entry.layouts and _suits(entry, 0, "far"):
        yield CaseId(entry, function, dtype, "far", 0)
    errors = [name for name in _list_errors(entry, function) if is_first or name.startswith("entry")]
    for number, what in enumerate(errors):
        yield CaseId(entry, function, dtype, "error", number, what)


def list_cases(entries: list[Entry]) -> list[CaseId]:
    """Every case, function by function in the order of the standard."""
    by_function: dict[str, list[Entry]] = {}
    for entry in entries:
        for function in entry.functions:
            by_function.setdefault(function, []).append(entry)
    found: list[CaseId] = []
    for function in standard():
        for number, entry in enumerate(by_function.get(function, [])):
            found += list_entry(entry, function, number == 0)
    return found


# Making one


class ExpansionError(ValueError):
    """A case that cannot be made: its text names it."""


class _Builder:
    def __init__(self, case: CaseId, seed: int) -> None:
        self.case, self.entry = case, case.entry
        self.info = standard()[case.function]
        self.text = f"{seed}/{case}"
        self.layout = case.layout if case.layout not in ("inplace", "error", *RUNS) else "contiguous"
        self.row = 0 if case.layout == "error" else case.number
        self.changes: dict[str, Any] = {}
        if case.what.startswith("entry "):
            self.changes = self.entry.errors[int(case.what.split()[1])]

    # -- arguments

    def _get_dtype(self, column: Column, change: dict[str, Any]) -> str:
        dtypes = column.dtypes
        name = change.get("dtype", dtypes[self.row if len(dtypes) > 1 else 0])
        if name == "same":
            return self.case.dtype
        if name == "real":
            return {"complex64": "float32", "complex128": "float64"}.get(self.case.dtype, self.case.dtype)
        if name == "wide":
            return {"float16": "float32", "bfloat16": "float32"}.get(self.case.dtype, self.case.dtype)
        return name

    def _make_tensor(self, column: Column, shape: list[int] | None, item: int, place: int, change: Any) -> Any:
        if shape is None:
            return None
        values = column.values
        kind = values[self.row if len(values) > 1 else 0]
        dtype = self._get_dtype(column, change)
        if "data" in change:
            tensor = torch.tensor(change["data"]).to(DTYPES[dtype]).reshape(shape)
        else:
            tensor = make_values(kind, shape, dtype, f"{self.text}/{column.name}/{item}", column, self.row)
        written = self.info.kinds[self.info.parameters.index(column.name)] in "oO"
        if column.sparse:
            return make_sparse(tensor, column.sparse, f"{self.text}/{column.name}", column.layout or self.layout)
        return apply_layout(tensor, column.layout or self.layout, place + item, written)

    def _make_argument(self, column: Column, place: int) -> Any:
        change = self.changes.get(column.name)
        value = column.at(self.row)
        if not column.is_tensor:
            value = value if column.name not in self.changes else change
            return tuple(value) if isinstance(value, list) and value and isinstance(value[0], str) else value
        table = change if isinstance(change, dict) else {}
        shape = value
        if column.name in self.changes:
            shape = table.get("shape", value) if isinstance(change, dict) else change
        is_list = self.info.kinds[self.info.parameters.index(column.name)] in "TO"
        if not is_list:
            return self._make_tensor(column, shape, 0, place, table)
        if shape is None:
            return None
        return [self._make_tensor(column, part, item, place, table) for item, part in enumerate(shape)]

    def _make_arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for place, (kind, name) in enumerate(zip(self.info.kinds[1:], self.info.parameters[1:], strict=True)):
            column = self.entry.arguments.get(name)
            if kind == "g":
                found[name] = GeneratorArgument(derive_number(f"{self.text}/{name}", 32), 0)
            elif kind == "G":
                numbers = range(found["batch_size"])
                found[name] = [GeneratorArgument(derive_number(f"{self.text}/{name}/{i}", 32), 0) for i in numbers]
            elif column is not None:
                found[name] = self._make_argument(column, place)
                if kind == "f":
                    found[name] = float(torch.tensor(found[name], dtype=torch.float32))
        for name, column in self.entry.arguments.items():
            if column.count and column.name not in self.changes:
                found[name] = len(found[column.count] or [])
        return found

    # -- outputs

    def _judge(self, result: Result, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
        value = result.value
        if result.check == "selection":
            return value.to(tolerance.get_wide(value.dtype)), None
        rounded = tolerance.round_to(value, dtype)
        if result.exact or not (dtype.is_floating_point or dtype.is_complex):
            return rounded, None
        allowed = tolerance.compute(value, dtype, result.scale, result.terms, result.ops, result.compute)
        wide = value.to(tolerance.get_wide(dtype))
        if not wide.is_complex():
            wide = torch.where(torch.isinf(rounded), rounded, wide)
        return wide, allowed.expand(value.shape).contiguous()

    def _make_output(self, name: str, result: Result, place: int, given: Any, item: int | None) -> Any:
        dtype = self._get_output_dtype(name, result, given)
        expected, allowed = (None, None) if result.check in ("moments", "anything") else self._judge(result, dtype)
        if result.required:
            return RequiredArgument(dtype, result.value if expected is None else expected, allowed, result.check)
        source = None
        if result.source:
            source = self.info.parameters.index(result.source) - 1
        if given is not None:
            tensor, role = given, "inout"
        else:
            empty = torch.zeros(result.value.shape, dtype=dtype)
            tensor, role = apply_layout(empty, self.layout, place + (item or 0), True), "out"
        return TensorArgument(tensor, role, result.check, expected, allowed, result.bounds, source)

    def _get_output_dtype(self, name: str, result: Result, given: Any) -> torch.dtype:
        if given is not None:
            return given.dtype
        wanted = self.entry.outputs.get(name)
        if wanted and name not in self.entry.arguments:
            chosen = wanted[self.row if len(wanted) > 1 else 0]
            if isinstance(chosen, str) and chosen != "same":
                return DTYPES[chosen]
        return result.dtype or DTYPES[self.case.dtype]

    def _chooses_dtype(self) -> bool:
        """Does the entry name a dtype of an output, so that it does not follow from the inputs?"""
        wanted = [value for name, value in self.entry.outputs.items() if name not in self.entry.arguments]
        return any(isinstance(dtype, str) and dtype != "same" for dtypes in wanted for dtype in dtypes)

    def _is_unwanted(self, name: str) -> bool:
        wanted = self.entry.outputs.get(name)
        return bool(wanted) and wanted[self.row if len(wanted) > 1 else 0] is None

    def _make_value(self, kind: str, name: str, place: int, values: dict[str, Any], results: dict[str, Any]) -> Any:
        given, result = values.get(name), results.get(name)
        if kind in "BDI" and isinstance(result, Result):
            return NumberArgument(result.value, 0.0 if result.exact else float(result.scale or 0.0))
        if kind in "to":
            if self._is_unwanted(name) or (given is None and result is None):
                return None
            if isinstance(given, SparseMatrix):
                return SparseArgument(given.whole, "in", parts=[TensorArgument(part, "in") for part in given.parts])
            if kind == "t" or result is None:
                return TensorArgument(given, "in")
            return self._make_output(name, result, place, given, None)
        if kind in "TO" and isinstance(result, list):
            parts = given or [None] * len(result)
            return [self._make_output(name, r, place, g, i) for i, (r, g) in enumerate(zip(result, parts, strict=True))]
        if kind == "O" and isinstance(result, Result):
            return self._make_output(name, result, place, None, None)
        if kind in "TO":
            return None if given is None else [x if x is None else TensorArgument(x, "in") for x in given]
        return given

    def _refer(self, values: dict[str, Any]) -> dict[str, Any]:
        name = self.entry.reference or self.case.function
        function = references.find(name)
        if function is None:
            raise ExpansionError(f"{self.case}: no reference for {name}")
        try:
            with torch.no_grad():
                return function(Call(self.case.function, DTYPES[self.case.dtype], values))
        except Exception as error:
            raise ExpansionError(f"{self.case}: the reference fails: {type(error).__name__}: {error}") from error

    def build(self) -> Case:
        values = self._make_arguments()
        valid = values
        if self.changes:
            changes, self.changes = self.changes, {}
            valid, self.changes = self._make_arguments(), changes
        results = self._refer(valid)
        arguments = []
        for place, (kind, name) in enumerate(zip(self.info.kinds[1:], self.info.parameters[1:], strict=True)):
            arguments.append(self._make_value(kind, name, place, values, results))
        random = self.entry.random
        tags = {"dtype": self.case.dtype, "layout": self.case.layout, "entry": self.entry.name}
        tags["family"] = self.entry.family
        case = Case(str(self.case), self.case.function, arguments, tags=tags, deterministic=True)
        if random:
            tags["random"] = "yes"
        if self._chooses_dtype():
            tags["output"] = "chosen"
        if self.case.layout in RUNS:
            tags["threads" if self.case.layout in THREADS else self.case.layout] = self.case.layout
        if self.case.layout == "inplace":
            self._share(case)
        if self.case.layout == "error":
            case.expect = "error"
            tags["what"] = self.case.what
            self._break(case)
        return case

    def _share(self, case: Case) -> None:
        """An output in the memory of an input."""
        names = self.info.parameters[1:]
        for output, source in self.entry.inplace.items():
            if output not in names:
                continue
            out, given = case.arguments[names.index(output)], case.arguments[names.index(source)]
            if out.tensor.shape != given.tensor.shape or out.tensor.dtype != given.tensor.dtype:
                raise ExpansionError(
                    f"{case.id}: {output} {tuple(out.tensor.shape)} {out.tensor.dtype} cannot take the memory of "
                    f"{source} {tuple(given.tensor.shape)} {given.tensor.dtype}"
                )
            out.tensor, out.role, out.alias = given.tensor, "inout", names.index(source)

    def _break(self, case: Case) -> None:
        """Make the call wrong."""
        for argument in case.arguments:
            for part in argument if isinstance(argument, list) else [argument]:
                if isinstance(part, TensorArgument) and part.role != "in":
                    part.check, part.expected, part.tolerance = "untouched", None, None
        kind, _, name = self.case.what.partition(" ")
        names = self.info.parameters[1:]
        if kind == "entry":
            for output in set(self.changes) - set(self.entry.arguments):
                self._reshape(case.arguments[names.index(output)], self.changes[output])
            return
        if kind == "context":
            case.no_context = True
            return
        place = names.index(name)
        argument = case.arguments[place]
        if kind == "host":
            (argument[0] if isinstance(argument, list) else argument).on_host = True
        elif kind == "null":
            case.arguments[place] = None
        elif kind == "shape":
            shape = list(argument.tensor.shape)
            self._reshape(argument, [*shape[:-1], shape[-1] + 1] if shape else [2])
        elif kind == "overlap":
            wide = [dim for dim, size in enumerate(argument.tensor.shape) if size > 1]
            if wide and argument.tensor.numel() > 1:
                one = argument.tensor.narrow(wide[0], 0, 1).contiguous()
                argument.tensor = one.expand(argument.tensor.shape)
            else:
                self._drop(case, place)
        elif kind == "partial" and not self._overlap(case, place):
            self._drop(case, place)

    def _drop(self, case: Case, place: int) -> None:
        """Where an output cannot overlap anything: make it absent, or of another shape if it may be absent."""
        name = self.info.parameters[place + 1]
        if name in self.entry.optional:
            self._reshape(case.arguments[place], [*case.arguments[place].tensor.shape, 3])
            case.tags["what"] = f"shape {name}"
        else:
            case.arguments[place] = None
            case.tags["what"] = f"null {name}"

    def _reshape(self, argument: TensorArgument, shape: Any) -> None:
        dtype = argument.tensor.dtype
        if isinstance(shape, dict):
            dtype, shape = DTYPES[shape.get("dtype", str(dtype)[6:])], shape.get("shape", list(argument.tensor.shape))
        argument.tensor = torch.zeros(shape, dtype=dtype)

    def _overlap(self, case: Case, place: int) -> bool:
        """The output begins one element after an input of its dtype, in one storage; False when it has none."""
        out = case.arguments[place]
        for given in case.arguments:
            if not isinstance(given, TensorArgument) or given is out or given.tensor.dtype != out.tensor.dtype:
                continue
            if isinstance(given, SparseArgument):
                continue
            if given.tensor.numel() < 3 or out.tensor.numel() < 2:
                continue
            count, size = given.tensor.numel(), out.tensor.numel()
            base = torch.zeros(max(count, size) + 1, dtype=out.tensor.dtype)
            base[:count] = given.tensor.reshape(-1)
            given.tensor = base[:count].view(given.tensor.shape)
            out.tensor = base[1 : size + 1].view(out.tensor.shape)
            return True
        return False


def build(case: CaseId, seed: int = 0) -> Case:
    """The case of an id, bit for bit the same whenever the id and the seed are the same."""
    return _Builder(case, seed).build()


def find_case(entries: list[Entry], text: str) -> CaseId:
    """The case with this id; ValueError names what is near."""
    parts = text.split("/")
    cases = list_cases(entries)
    for case in cases:
        if str(case) == text:
            return case
    near = [str(case) for case in cases if case.function == parts[0]][:3]
    hint = (
        f"cases of {parts[0]} look like {', '.join(near)}"
        if near
        else f"no function {parts[0]!r} has cases" + suggest(parts[0], {case.function for case in cases})
    )
    raise ValueError(f"no case {text!r}: {hint}")
