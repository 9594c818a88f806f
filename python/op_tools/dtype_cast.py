"""OpDtypeCast: operators run in another dtype, on their own device."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from ditorch import _C
from ditorch.table import Table

from . import console
from .keywords import DtypeCastKeywords
from .selection import Selection
from .utils import get_dtype_cast_dict_form_str

CONVERSIONS = {
    *("double", "float", "half", "bfloat16", "long", "int", "short", "bool", "byte", "char"),
    *("chalf", "cfloat", "cdouble", "__complex__", "__float__", "__int__", "__bool__", "__index__"),
    *("float_power", "float_power_"),
}
"""Last parts of names: operators whose purpose is another dtype, or that compute in one of their own."""
COPIES = {
    *("clone", "contiguous", "copy_", "as_strided_", "__array__", "__array_wrap__", "expand_copy", "view_copy"),
    *("alias_copy", "detach_copy", "lift", "lift_fresh_copy", "_copy_from", "_copy_from_and_resize"),
}
"""Operators that move values without computing any."""
FILLS = {
    *("zero_", "zero", "fill_", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"),
    *(
        "new_tensor",
        "as_tensor",
        "tensor",
        "asarray",
        "scalar_tensor",
        "constant_",
        "zeros_",
        "ones_",
        "eye_",
        "dirac_",
    ),
}
"""Operators that read no values of their tensors."""
DRAWS = {
    *("bernoulli_", "normal_", "uniform_", "random_", "exponential_", "geometric_", "log_normal_", "cauchy_"),
    *("rand_like", "randn_like", "randint_like", "trunc_normal_", "xavier_normal_", "xavier_uniform_"),
    *("kaiming_normal_", "kaiming_uniform_", "orthogonal_", "sparse_", "xavier_normal", "xavier_uniform"),
    *("kaiming_normal", "kaiming_uniform", "uniform", "random"),
}
"""Operators that fill a tensor with random numbers: in another dtype they would draw other ones."""
LEFT = {
    "nothing": "had no tensor of a dtype in the map",
    "dtype": "name a dtype themselves",
    "index": "only index",
    "unusual": "have tensors that cannot be cast as they are (subclass, sparse, wrapped)",
    "view": "show the memory of an argument",
    "no_tensor": "answer a question",
    "refused": "do not run in the other dtype",
}
"""Why a call was run as it is: keys of the counts, and words."""


class OpDtypeCast(DtypeCastKeywords):
    """Run operators in another dtype: cast what goes in, run, and give back the dtypes the program would have got.

    `dtype_cast_dict` is the map ("torch.float16->torch.float32,...", or a dictionary of dtypes), with
    `<operator>_op_dtype_cast_dict` for one operator. In-place and out= operators write into the program's own tensors,
    gradients keep their dtype, nothing changes its device."""

    kind = "cast"
    name = "dtype_cast"
    verb = "looked at"
    live = frozenset({"dtype_cast_dict", "op_dtype_cast_dict"})

    def _set_up(self) -> None:
        self._maps = Maps("", {})
        reference = weakref.ref(self)

        def plan(name: str) -> tuple[str, dict] | None:
            tool = reference()
            return tool._maps.find(name) if tool is not None else None

        self._plan = plan

    def engine_options(self, options: Any) -> dict[str, Any]:
        """The maps are asked for by name, once per operator, so that they can change while the tool is on."""
        return {"plan": self._plan}

    def check(self, options: Any) -> None:
        _read_maps(options)

    def _apply(self, selection: Selection) -> None:
        self._maps = _read_maps(self._options)
        match = selection.match

        def match_cast(name: str) -> bool:
            if is_cast(name):
                return match(name)
            selection.rejected.add(name)
            return False

        selection.match = match_cast  # type: ignore[method-assign]
        super()._apply(selection)

    # Results

    def ledger(self, top: int = 0) -> Table:
        """What was cast since the last start, per operator, the most bytes first: calls, tensors cast on the way in
        and back, arguments written back, bytes made, time in the operator and around it."""
        rows = sorted(self._rows(), key=lambda row: (-row["bytes"], row["name"]))
        columns = ("op", "calls", "cast", "back", "written", "bytes", "op ms", "cast ms", "left", "map")
        return Table(columns, [_format_row(row) for row in rows[: top or None]])

    def _rows(self) -> list[dict[str, Any]]:
        rows = self.describe().get("ops", ())
        return [row for row in rows if row["calls"] or any(row["left"].get(key) for key in _TOLD)]

    def summary(self) -> str:
        rows = self.describe().get("ops", ())
        total = {key: sum(row[key] for row in rows) for key in ("calls", "casts", "backs", "written", "bytes")}
        lines = [str(self.ledger(20))] if self._rows() else []
        more = len(self._rows()) - 20
        if more > 0:
            lines.append(f"OpDtypeCast: {console.count(more, 'more operator')}; ledger() has all")
        spent = sum(row["tool_ns"] for row in rows) / 1e6
        lines.append(
            f"OpDtypeCast: {console.count(total['calls'], 'call')} cast: {console.count(total['casts'], 'tensor')} on "
            f"the way in, {console.count(total['backs'])} back, {console.count(total['written'])} written back, "
            f"{total['bytes'] / 2**20:,.1f} MiB, {spent:,.1f} ms"
        )
        for key in _TOLD:
            names = [row["name"] for row in rows if row["left"].get(key)]
            if names:
                calls = sum(row["left"].get(key, 0) for row in rows)
                shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
                lines.append(f"OpDtypeCast: left as they are: {console.count(calls, 'call')} that {LEFT[key]}: {shown}")
        return "\n".join(lines)


_TOLD = ("unusual", "refused")


class Maps:
    """The map of each operator: its own, else the one of all."""

    def __init__(self, text: str, own: dict[str, str]):
        self.common = (text, get_dtype_cast_dict_form_str(text))
        self.own = {key.upper(): (text, get_dtype_cast_dict_form_str(text)) for key, text in own.items()}

    def find(self, name: str) -> tuple[str, dict[torch.dtype, torch.dtype]]:
        """Text and map for an operator: by the last part of its name in upper case, with or without the underscore of
        an in-place operator."""
        last = _get_last(name).upper()
        bare = last[:-1] if last.endswith("_") and not last.endswith("__") else last
        return self.own.get(last) or self.own.get(bare) or self.common


def is_cast(name: str) -> bool:
    """Can casting the tensors of this operator mean anything? False for views, transfers, copies, conversions,
    collectives, uninitialised memory, and what only draws random numbers."""
    last = _get_last(name)
    if last in CONVERSIONS or last in COPIES or last in FILLS or last in DRAWS:
        return False
    kind = _C.engine_classify(name)
    return not (kind["view"] or kind["transfer"] or kind["collective"] or kind["uninitialised"])


def _get_last(name: str) -> str:
    return name.replace("::", ".").rpartition(".")[2]


def _read_maps(options: Any) -> Maps:
    common = options["dtype_cast_dict"]
    own = options.get("op_dtype_cast_dict") or {}
    for option in (common, *own.values()):
        try:
            get_dtype_cast_dict_form_str(option.text)
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{option.origin} is {option.text!r}: {error}") from None
    return Maps(common.text, {key: option.text for key, option in own.items()})


def _format_row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "op": row["name"],
        "calls": row["calls"],
        "cast": row["casts"],
        "back": row["backs"],
        "written": row["written"],
        "bytes": row["bytes"],
        "op ms": f"{row['op_ns'] / 1e6:.3f}",
        "cast ms": f"{row['tool_ns'] / 1e6:.3f}",
        "left": sum(row["left"].get(key, 0) for key in LEFT if key != "nothing"),
        "map": row["config"].replace("torch.", ""),
    }
