"""The calls of a model as conformance cases: data from the seed, expected results from the references of the suite.

A call (ditorch/models/corpus) becomes an entry of one row, and the entry a case, as those of cases/*.json do; shapes,
strides and dtypes are those of the call, or smaller ones that the reference accepts (models/shrink.py). What cannot be
a case is kept, with its reason. Depends on expand, schema and models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..models import corpus, shrink
from . import expand, schema
from .case import Case
from .data import DTYPES, GENERATORS

LAYOUT = "model"
_DRAWN = {"index", "signed_index", "data", "special", "nonfinite", "rows"}
_BELOW = {
    ("diopiEmbedding", "indices"): ("weight", 0),
    ("diopiGather", "index"): ("input", "dim"),
    ("diopiGatherBackward", "index"): ("input", "dim"),
    ("diopiScatter", "index"): ("input", "dim"),
    ("diopiScatterInp", "index"): ("input", "dim"),
    ("diopiScatterScalar", "index"): ("input", "dim"),
    ("diopiScatterInpScalar", "index"): ("input", "dim"),
    ("diopiIndexSelect", "index"): ("input", "dim"),
    ("diopiNLLLoss", "target"): ("input", 1),
    ("diopiNLLLossBackward", "target"): ("input", 1),
    ("diopiNLLLossV2", "target"): ("input", 1),
    ("diopiNLLLossV2Backward", "target"): ("input", 1),
    ("diopiCrossEntropyLoss", "target"): ("input", 1),
    ("diopiCrossEntropyLossBackward", "target"): ("input", 1),
}
"""Integers that point into a dimension of another argument: a number, or the parameter that names it."""
_COUNTED = {("diopiEmbeddingBackward", "indices"): "num_weights"}
"""... or are below a parameter."""


@dataclass(frozen=True)
class ModelCall:
    """One distinct call of the standard in a model."""

    model: str
    call: corpus.Call
    number: int
    count: int

    @property
    def function(self) -> str:
        return self.call.name

    @property
    def dtype(self) -> str:
        """Of the first floating tensor that is read; of a call without one, of its first tensor."""
        info = schema.standard()[self.function]
        read = [v for k, v in zip(info.kinds[1:], self.call.args, strict=True) if k in "tT"]
        parts = list(corpus.Call("", tuple(read)).tensors()) or list(self.call.tensors())
        floating = [t.dtype for t in parts if DTYPES[t.dtype].is_floating_point or DTYPES[t.dtype].is_complex]
        return (floating or [t.dtype for t in parts] or ["float32"])[0]

    @property
    def entry(self) -> Any:
        return self

    @property
    def family(self) -> str:
        return schema.standard()[self.function].family

    @property
    def layout(self) -> str:
        return LAYOUT

    def __str__(self) -> str:
        return f"{self.function}/{self.model}/{self.dtype}/{LAYOUT}/{self.number}"


def list_calls(found: corpus.Corpus) -> list[ModelCall]:
    """Distinct calls of the standard, in the order of the model, numbered per function."""
    counts: dict[str, list[Any]] = {}
    for entry in found.entries:
        for call in entry.functions:
            row = counts.setdefault(str(call), [call, 0])
            row[1] += entry.count
    numbers: dict[str, int] = {}
    calls = []
    for call, count in counts.values():
        number = numbers.get(call.name, 0)
        numbers[call.name] = number + 1
        calls.append(ModelCall(found.name, call, number, count))
    return calls


def list_without(found: corpus.Corpus) -> dict[str, dict[str, int]]:
    """Reason to operators that become no call of the standard, and how many distinct calls they have."""
    reasons: dict[str, dict[str, int]] = {}
    for entry in found.entries:
        if entry.reason:
            row = reasons.setdefault(entry.reason, {})
            row[entry.call.name] = row.get(entry.call.name, 0) + 1
    return reasons


def _list_generators() -> dict[tuple[str, str], str]:
    """What the suite's own cases put into an argument first, where it says something about values alone."""
    found: dict[tuple[str, str], str] = {}
    for entry in schema.read_all():
        for function in entry.functions:
            for name, column in entry.arguments.items():
                kind = column.values[0] if column.is_tensor and column.values else ""
                if kind in GENERATORS and kind not in _DRAWN:
                    found.setdefault((function, name), kind)
    return found


def estimate(call: corpus.Call) -> int:
    """Bytes that making the case takes: every element in float64, expected value, scale and tolerance of results."""
    return sum(tensor.numel for tensor in call.tensors()) * 8 * 6


class _Builder(expand._Builder):
    """As for an entry, with the strides and the dtypes of the call."""

    strides: dict[str, corpus.Tensor]
    kept = False

    def _make_tensor(self, column: Any, shape: Any, item: int, place: int, change: Any) -> Any:
        tensor = super()._make_tensor(column, shape, item, place, change)
        if column.name == "rois" and tensor is not None and tensor.shape[-1] == 5:
            tensor = self._make_regions(tensor)
        return _arrange(tensor, self.strides.get(column.name))

    def _make_regions(self, tensor: torch.Tensor) -> torch.Tensor:
        """Boxes inside of a map of the images that there are: number, x1, y1, x2, y2, of the drawn numbers."""
        whole, count = self.strides.get("input"), self.entry.arguments.get("batch_size")
        images = whole.shape[0] if whole is not None else int(count.at(0))
        number = torch.arange(len(tensor), dtype=tensor.dtype) % images
        first = tensor[:, 1:3].abs() * 16
        return torch.cat([number[:, None], first, first + 8 + tensor[:, 3:].abs() * 64], 1)

    def _make_output(self, name: str, result: Any, place: int, given: Any, item: int | None) -> Any:
        made = super()._make_output(name, result, place, given, item)
        told = self.strides.get(name)
        if given is None and told is not None and hasattr(made, "tensor"):
            if made.tensor.numel() != told.numel:
                raise expand.ExpansionError(f"{name} is {tuple(made.tensor.shape)}, the call has {told.shape}")
            self.kept |= tuple(made.tensor.shape) != told.shape  # a reduction keeps dimensions where its output does
            for part in ("tensor", "expected", "tolerance"):
                value = getattr(made, part)
                if value is not None and value.numel() == told.numel:
                    setattr(made, part, value.reshape(told.shape))
            made.tensor = _arrange(made.tensor, told)
        return made

    def _get_output_dtype(self, name: str, result: Any, given: Any) -> torch.dtype:
        told = self.strides.get(name)
        if given is None and told is not None:
            return DTYPES[told.dtype]
        return super()._get_output_dtype(name, result, given)


def _arrange(tensor: torch.Tensor | None, told: corpus.Tensor | None) -> torch.Tensor | None:
    """The same elements at the strides of the call; where it expands a dimension, its first element counts."""
    if tensor is None or told is None or told.strides is None or tensor.numel() == 0:
        return tensor
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, told.strides, strict=True))
    base = torch.zeros(last + 1, dtype=tensor.dtype)
    for dim, stride in enumerate(told.strides):
        tensor = tensor.narrow(dim, 0, 1) if stride == 0 else tensor
    base.as_strided(tensor.shape, told.strides).copy_(tensor)
    return base.as_strided(told.shape, told.strides)


class Maker:
    """Makes cases of a scale. `problems` are calls that became none, with the reason."""

    def __init__(self, scale: float, memory: int, seed: int = 0) -> None:
        self.scale, self.memory, self.seed = scale, memory, seed
        self.problems: list[tuple[ModelCall, str]] = []
        self._generators = _list_generators()

    def _make_column(self, item: ModelCall, call: corpus.Call, kind: str, name: str, value: Any) -> Any:
        info = schema.standard()[call.name]
        values = dict(zip(info.parameters[1:], call.args, strict=True))
        if kind in "toTO":
            shapes = None if value is None else list(value.shape) if isinstance(value, corpus.Tensor) else None
            if isinstance(value, tuple) and not isinstance(value, (corpus.Tensor, corpus.Word)):
                shapes = [None if part is None else list(part.shape) for part in value]
                parts = [part.dtype for part in value if part is not None]
            else:
                parts = [value.dtype] if value is not None else ["float32"]
            generator, below = self._generators.get((call.name, name), "normal"), []
            limit = self._find_limit(call.name, name, values)
            if limit is not None:
                generator, below = "index", [limit]
            return schema.Column(name, True, [shapes], [generator], parts[:1] or ["float32"], below=below)
        if isinstance(value, corpus.Word):
            value = list(value.value) if value.kind == "scalar" else value.value
        value = bool(value) if kind == "b" else value
        return schema.Column(name, False, [value])

    def _find_limit(self, function: str, name: str, values: dict[str, Any]) -> int | None:
        counted = _COUNTED.get((function, name))
        if counted:
            return int(values[counted])
        if (function, name) not in _BELOW:
            return None
        other, dim = _BELOW[function, name]
        shape = values[other].shape
        dim = values[dim] if isinstance(dim, str) else dim
        return int(shape[dim if len(shape) > 1 else 0])

    def _build(self, item: ModelCall, call: corpus.Call) -> Case:
        info = schema.standard()[call.name]
        columns, outputs, told = {}, {}, {}
        for kind, name, value in zip(info.kinds[1:], info.parameters[1:], call.args, strict=True):
            is_list = isinstance(value, tuple) and not isinstance(value, (corpus.Tensor, corpus.Word))
            if is_list and len({part.dtype for part in value if part is not None}) > 1:
                raise expand.ExpansionError(f"{name} has tensors of several dtypes")
            if isinstance(value, corpus.Tensor):
                told[name] = value
            if kind == "o" and not self._is_read(call.name, name):
                outputs[name] = [None] if value is None else ["same"]
            elif kind not in "gGBDp" and not (kind == "O" and not is_list):
                columns[name] = self._make_column(item, call, kind, name, value)
        random = "g" in info.kinds
        entry = schema.Entry(
            item.family, item.model, (call.name,), "", (item.dtype,), (), 0, columns, 1, {}, [], (), outputs, (), random
        )
        case_id = expand.CaseId(entry, call.name, item.dtype, "contiguous", 0)
        builder = _Builder(case_id, self.seed)
        builder.strides = told
        case = builder.build()
        case.id, case.tags["layout"] = str(item), LAYOUT
        if builder.kept:
            case.tags["output"] = "kept"
        return case

    def _is_read(self, function: str, name: str) -> bool:
        """Does an argument that is written also go in? The suite's own cases give it values then."""
        return (function, name) in self._read

    @property
    def _read(self) -> set[tuple[str, str]]:
        if not hasattr(self, "_known"):
            self._known = {(f, n) for e in schema.read_all() for f in e.functions for n in e.arguments}
        return self._known

    def make(self, item: ModelCall) -> Case | None:
        """The case, in the smallest form that its reference accepts."""
        reason = ""
        for form in shrink.list_forms(item.call, self.scale):
            if estimate(form) > self.memory:
                needs, allowed = estimate(form) / 2**30, self.memory / 2**30
                reason = reason or f"needs about {needs:.1f} GiB, --memory allows {allowed:g}"
                continue
            try:
                return self._build(item, form)
            except Exception as error:
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        self.problems.append((item, reason))
        return None

    def make_all(self, items: Iterable[ModelCall], piece: int = 64 << 20) -> Iterator[list[Case]]:
        """Pieces of about so many bytes."""
        cases, size = [], 0
        for item in items:
            case = self.make(item)
            if case is None:
                continue
            cases.append(case)
            size += sum(math.prod(a.tensor.shape) * 8 for a in case.arguments if getattr(a, "tensor", None) is not None)
            if size > piece or len(cases) >= 400:
                yield cases
                cases, size = [], 0
        if cases:
            yield cases
