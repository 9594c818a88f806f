"""Nested containers of arguments and results: what is inside, and the same container with other contents.

list, tuple, set, dict, dataclass and their subclasses (torch.Size, torch.return_types, named tuples) are opened; every
other object is one item. A container that contains itself is one item where it comes up again.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

_MAX_DEPTH = 200  # of nested containers; a deeper one is one item


def _is_dataclass(obj: Any) -> bool:
    return dataclasses.is_dataclass(obj) and not isinstance(obj, type)


def _flatten(obj: Any, out: list, path: set[int]) -> None:
    if isinstance(obj, (torch.Tensor, str, int, float)) or obj is None:
        out.append(obj)
        return
    if isinstance(obj, dict):
        items: Iterable = (part for pair in obj.items() for part in pair)
    elif isinstance(obj, (list, tuple, set, frozenset)):
        items = obj
    elif _is_dataclass(obj):
        items = (getattr(obj, field.name) for field in dataclasses.fields(obj) if hasattr(obj, field.name))
    else:
        out.append(obj)
        return
    if id(obj) in path or len(path) >= _MAX_DEPTH:
        out.append(obj)
        return
    path.add(id(obj))
    for item in items:
        _flatten(item, out, path)
    path.discard(id(obj))


def traverse_container(container: Any) -> Iterator[Any]:
    """The items of nested list, tuple, set, dict (each key, then its value) and dataclass; torch.Size and
    torch.return_types are tuples. Every other object, a storage or an array too, is one item."""
    out: list = []
    _flatten(container, out, set())
    return iter(out)


def rebuild_sequence(obj: Any, items: list) -> Any:
    """`items` in a container of the type of `obj`."""
    kind = type(obj)
    if kind in (list, tuple, set, frozenset):
        return kind(items)
    if isinstance(obj, tuple):
        if hasattr(kind, "_make"):
            return kind._make(items)
        if kind is torch.Size and not all(isinstance(item, int) for item in items):
            return tuple(items)
    try:
        return kind(items)
    except TypeError:  # a subclass with a constructor of its own
        return next(base for base in (list, tuple, set, frozenset) if isinstance(obj, base))(items)


def _rebuild_dict(obj: dict, pairs: list[tuple]) -> dict:
    if type(obj) is dict:
        return dict(pairs)
    if all(key is old or key == old for (key, _), old in zip(pairs, obj, strict=True)):
        result = copy.copy(obj)
        for key, (_, value) in zip(list(obj), pairs, strict=True):
            result[key] = value
        return result
    return dict(pairs)


def map_container(obj: Any, func: Callable[[Any], Any]) -> Any:
    """`func` of every item of nested list, tuple, set, dict (keys too) and dataclass, in containers of the same types:
    torch.return_types, named tuples, OrderedDict and defaultdict stay what they are."""
    if isinstance(obj, (list, tuple, set, frozenset)):
        return rebuild_sequence(obj, [map_container(item, func) for item in obj])
    if isinstance(obj, dict):
        return _rebuild_dict(obj, [(map_container(k, func), map_container(v, func)) for k, v in obj.items()])
    if _is_dataclass(obj):
        result = copy.copy(obj)
        for field in dataclasses.fields(obj):
            if hasattr(obj, field.name):
                object.__setattr__(result, field.name, map_container(getattr(obj, field.name), func))
        return result
    return func(obj)
