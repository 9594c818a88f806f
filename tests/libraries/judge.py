"""Does a program's answer on the device agree with the CPU's?

Texts, truths, counts and token numbers must be equal. Floating numbers are compared as vectors, by the largest
difference over the largest number, with a tolerance that follows from the unit roundoff of the arithmetic: float32
runs differ by the order of sums alone; mixed runs round at other places, because autocast has another list of
operators for each device, and fp16 is held against float32.
"""

from __future__ import annotations

import math
from typing import Any

TOLERANCES = {
    "float32": {"losses": 2e-6, "grad_norms": 2e-6, "values": 2e-5, "weights": 1e-3},
    "bf16": {"losses": 2**-7, "grad_norms": 2**-5, "weights": math.inf},
    "fp16": {"losses": 2**-9, "grad_norms": 2**-6, "weights": math.inf},
    "adafactor": {"losses": 1e-4, "grad_norms": 1e-3, "weights": math.inf},
}
"""Kind of arithmetic -> part of the answer -> tolerance; other parts have that of the losses. Weights of mixed runs are
not compared: Adam divides a gradient by its own size, so a rounding error in a small one moves a weight by a step.
Adafactor divides by the size of a whole tensor's update, so the noise in key biases moves the rest of that tensor."""

NOISE = ("key.bias", "k_proj.bias", "c_attn.bias", "qkv.bias", "k.bias", "in_proj_bias")
"""Softmax does not see what is added to all keys: the gradient of these is rounding error alone."""


def kind_of(name: str) -> str:
    """The arithmetic that a program's name tells."""
    if "bf16" in name or "bfloat16" in name:
        return "bf16"
    if name.endswith("adafactor"):
        return "adafactor"
    return "fp16" if "fp16" in name or "float16" in name or "_16" in name or name.endswith("_half") else "float32"


def _is_number(value: Any) -> bool:
    return isinstance(value, float)


def _flatten(value: Any, path: str, numbers: list, others: list) -> None:
    if isinstance(value, dict):
        for key in value:
            _flatten(value[key], f"{path}.{key}", numbers, others)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            _flatten(entry, f"{path}[{index}]", numbers, others)
    elif _is_number(value):
        numbers.append((path, value))
    else:
        others.append((path, value))


def compare(mine: Any, wanted: Any, tolerance: float, path: str) -> list[str]:
    """What differs, as text."""
    my_numbers, my_others, their_numbers, their_others = [], [], [], []
    _flatten(mine, path, my_numbers, my_others)
    _flatten(wanted, path, their_numbers, their_others)
    if my_others != their_others:
        differing = [(a, b) for a, b in zip(my_others, their_others, strict=False) if a != b]
        return [f"{path}: device {a[1]!r}, CPU {b[1]!r} at {a[0]}" for a, b in differing[:3]] or [
            f"{path}: {len(my_others)} entries on the device, {len(their_others)} on the CPU"
        ]
    if [place for place, _ in my_numbers] != [place for place, _ in their_numbers]:
        return [f"{path}: {len(my_numbers)} numbers on the device, {len(their_numbers)} on the CPU"]
    size = max((abs(value) for _, value in their_numbers), default=0.0) or 1.0
    found = []
    for (place, a), (_, b) in zip(my_numbers, their_numbers, strict=True):
        if not math.isfinite(a) or not abs(a - b) <= tolerance * size:
            found.append(f"{place}: device {a!r}, CPU {b!r}, tolerance {tolerance * size:g}")
    return found[:3]


def judge(name: str, mine: dict, wanted: dict) -> list[str]:
    """Every disagreement between two answers of the program `name`."""
    tolerances = TOLERANCES[kind_of(name)]
    if mine.keys() != wanted.keys():
        return [f"parts {sorted(mine)} on the device, {sorted(wanted)} on the CPU"]
    found = []
    for part in mine:
        a, b = mine[part], wanted[part]
        tolerance = tolerances.get(part, tolerances["losses"])
        if part == "weights":
            a, b = ({key: value for key, value in side.items() if not key.endswith(NOISE)} for side in (a, b))
        found += compare(a, b, tolerance, part)
    return found
