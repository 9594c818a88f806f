"""A case as text: the call, its inputs, what must come out."""

from __future__ import annotations

from typing import Any

from . import schema
from .case import Case, GeneratorArgument, NumberArgument, RequiredArgument, TensorArgument


def _format_tensor(name: str, item: TensorArgument | RequiredArgument) -> str:
    if isinstance(item, RequiredArgument):
        return f"{name}: made by the library, {str(item.dtype)[6:]} {tuple(item.expected.shape)}"
    tensor = item.tensor
    text = f"{name}: {item.role} {str(tensor.dtype)[6:]} {tuple(tensor.shape)}, strides {tensor.stride()}"
    if tensor.storage_offset():
        text += f", offset {tensor.storage_offset()}"
    if item.alias is not None:
        text += f", shares the memory of argument {item.alias}"
    return text + ("" if item.role == "out" else f"\n{tensor}")


def _format_expected(item: TensorArgument | RequiredArgument) -> str:
    if isinstance(item, TensorArgument) and (item.role == "in" or item.check == "untouched"):
        return ""
    lines = [f"  judged by: {item.check}"]
    if item.expected is not None:
        lines.append(f"  expected: {item.expected}")
    if item.tolerance is not None and item.tolerance.numel():
        lines.append(f"  tolerance: {float(item.tolerance.min()):.3g} to {float(item.tolerance.max()):.3g}")
    if isinstance(item, TensorArgument) and item.bounds:
        lines.append(f"  bounds: {item.bounds}")
    return "\n".join(lines)


def _format_argument(name: str, value: Any) -> str:
    if isinstance(value, (TensorArgument, RequiredArgument)):
        return "\n".join(part for part in (_format_tensor(name, value), _format_expected(value)) if part)
    if isinstance(value, list) and any(isinstance(item, (TensorArgument, RequiredArgument)) for item in value):
        return "\n".join(_format_argument(f"{name}[{number}]", item) for number, item in enumerate(value))
    if isinstance(value, GeneratorArgument):
        return f"{name}: generator, seed {value.seed}, offset {value.offset}"
    if isinstance(value, NumberArgument):
        return f"{name}: expected {value.expected} (tolerance {value.tolerance:g})"
    return f"{name}: {'NULL' if value is None else value}"


def format_case(case: Case) -> str:
    """The call as text."""
    lines = [f"{case.id}\n{case.function}: expect {case.expect}"]
    lines += [f"{key}: {value}" for key, value in sorted(case.tags.items())]
    names = schema.standard()[case.function].parameters[1:]
    lines += [_format_argument(name, value) for name, value in zip(names, case.arguments, strict=True)]
    return "\n".join(lines)
