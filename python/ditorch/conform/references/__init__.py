"""References of the standard's functions, a module per group of families."""

from . import (
    activation,
    attention,
    conv,
    create,
    index,
    loss,
    matrix,
    norm,
    optimizer,
    pointwise,
    pool,
    random,
    reduce,
    shape,
    sort,
)
from .base import REFERENCES, Call, Result, find

__all__ = [
    "REFERENCES",
    "Call",
    "Result",
    "activation",
    "attention",
    "conv",
    "create",
    "find",
    "index",
    "loss",
    "matrix",
    "norm",
    "optimizer",
    "pointwise",
    "pool",
    "random",
    "reduce",
    "shape",
    "sort",
]
