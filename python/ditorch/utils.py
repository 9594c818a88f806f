"""In-place helpers on tensors and parameters, and "run this function in fp32" for collectives.

A parameter is changed through its `.data`, so that a leaf that requires grad may be written; everything is done in
place, to save memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def tensor_op_inp(tensor: torch.Tensor, op_name: str, *op_args: Any, **op_kwargs: Any) -> torch.Tensor:
    """tensor.<op_name>(*op_args, **op_kwargs) for an in-place operator such as div_, on `.data` of a parameter."""
    assert op_name.endswith("_"), f"{op_name} must be an in-place operator, such as div_"
    assert isinstance(tensor, torch.Tensor), f"tensor must be a torch.Tensor, not {type(tensor).__name__}"
    target = tensor.data if isinstance(tensor, torch.nn.Parameter) else tensor
    return getattr(target, op_name)(*op_args, **op_kwargs)


def copy_inp(tensor_dest: torch.Tensor, tensor_src: torch.Tensor) -> torch.Tensor:
    """Copy into a tensor or parameter."""
    return tensor_op_inp(tensor_dest, "copy_", tensor_src)


def div_inp(tensor: torch.Tensor, divisor: Any) -> torch.Tensor:
    """Divide a tensor or parameter."""
    return tensor_op_inp(tensor, "div_", divisor)


def copy_inp_advanced(tensors_dest: Any, tensors_src: Any) -> Any:
    """Copy every tensor of a nested list, tuple or dict into its counterpart; other values are left alone."""
    if isinstance(tensors_dest, (list, tuple)):
        assert isinstance(tensors_src, (list, tuple)), f"a list was expected, not {type(tensors_src).__name__}"
        assert len(tensors_dest) == len(tensors_src), f"{len(tensors_dest)} and {len(tensors_src)} items"
        return [copy_inp_advanced(dest, src) for dest, src in zip(tensors_dest, tensors_src, strict=True)]
    if isinstance(tensors_dest, dict):
        assert isinstance(tensors_src, dict), f"a dict was expected, not {type(tensors_src).__name__}"
        assert tensors_dest.keys() == tensors_src.keys(), f"keys {[*tensors_dest]} and {[*tensors_src]}"
        return {key: copy_inp_advanced(dest, tensors_src[key]) for key, dest in tensors_dest.items()}
    if not isinstance(tensors_dest, torch.Tensor) or tensors_dest is tensors_src:
        return None
    assert isinstance(tensors_src, torch.Tensor), f"a tensor was expected, not {type(tensors_src).__name__}"
    return copy_inp(tensors_dest, tensors_src)


def to_fp32_if_tensor(in_tensors: Any) -> tuple[Any, Any]:
    """(the same with floating-point tensors in float32, their old dtypes in the same places). Integers and complex
    numbers stay: float32 would not give them back."""
    if isinstance(in_tensors, torch.Tensor):
        wanted = torch.float32 if in_tensors.is_floating_point() else in_tensors.dtype
        return in_tensors.to(wanted), in_tensors.dtype
    if isinstance(in_tensors, (list, tuple)):
        pairs = [to_fp32_if_tensor(item) for item in in_tensors]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if isinstance(in_tensors, dict):
        table = {key: to_fp32_if_tensor(value) for key, value in in_tensors.items()}
        return {key: pair[0] for key, pair in table.items()}, {key: pair[1] for key, pair in table.items()}
    return in_tensors, None


def is_to_fp32_tensor(to_fp32: bool) -> Callable:
    """Decorator: with True, the function gets float32 copies of its tensors, and their contents are written back."""

    def decorate(func: Callable) -> Callable:
        if not to_fp32:
            return func

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            args_fp32, _ = to_fp32_if_tensor(args)
            kwargs_fp32, _ = to_fp32_if_tensor(kwargs)
            result = func(*args_fp32, **kwargs_fp32)
            copy_inp_advanced(args, args_fp32)
            copy_inp_advanced(kwargs, kwargs_fp32)
            return result

        print(f"{func.__name__} mocked by fp32.")
        return wrapper

    return decorate
