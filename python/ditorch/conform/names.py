"""Names that the parts of the suite share, and numbers from text. No torch: packs run without it."""

from __future__ import annotations

import hashlib

DTYPE_NAMES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
)
DTYPE_SETS = {
    "floating": ("float32", "float64", "float16", "bfloat16"),
    "full": ("float32", "float64"),
    "half": ("float16", "bfloat16"),
    "integer": ("int32", "int64", "int8", "uint8", "int16"),
    "complex": ("complex64", "complex128"),
    "plain": ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8", "int16", "bool"),
    "any": (
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int32",
        "int64",
        "int8",
        "uint8",
        "int16",
        "bool",
        "complex64",
        "complex128",
    ),
}
LAYOUTS = ("contiguous", "transposed", "strided", "offset", "expanded", "mixed", "channels_last")
THREADS = ("threads", "shared")
RUNS = (*THREADS, "far")
"""Not layouts of memory but ways to call, chosen like layouts: several threads at once, each with a context of its own,
or all with one; tensors that span more than 2^31 elements."""
INTEGERS = {"int8", "uint8", "int16", "int32", "int64", "uint16", "uint32", "uint64"}


def derive_number(text: str, bits: int = 63) -> int:
    """A number from 0 to 2^bits - 1, by the text alone."""
    return int.from_bytes(hashlib.shake_128(text.encode()).digest(8), "little") >> (64 - bits)
