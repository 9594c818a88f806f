"""What the operator table (standard/operators.tsv) knows about a name: the C side's rows, kept once asked for.

Names of every spelling are understood: torch.Tensor.view, aten::view, aten.view.default, view.
"""

from __future__ import annotations

import functools

from ditorch import _C


@functools.lru_cache(maxsize=4096)
def get_traits(name: str) -> frozenset[str]:
    """The traits of an operator, such as {"pointwise", "exact"}; none for names that the table lacks."""
    row = _C.operator_find(name)
    return row["traits"] if row else frozenset()
