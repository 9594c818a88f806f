"""Arguments of an operator as plain values (for tables and JSON), and as files.

A tensor becomes a mapping of its metadata; nothing here reads its values except the file itself.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

import torch

from .containers import rebuild_sequence
from .utils import is_readable

RESULTS = "op_tools_results/op_capture_results"


def _attempt(read: Any, otherwise: Any) -> Any:
    """What sparse, meta, fake and wrapped tensors cannot answer."""
    try:
        return read()
    except (RuntimeError, NotImplementedError, AttributeError):
        return otherwise


def data_pointer(tensor: torch.Tensor) -> int:
    """Address of the first element; 0 for a tensor without memory."""
    return _attempt(tensor.data_ptr, 0) if is_readable(tensor) else 0


def tensor_to_dict(tensor: torch.Tensor) -> dict[str, Any]:
    """Metadata of one tensor; the order of the keys is the order of the columns."""
    return {
        "device": str(tensor.device),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "numel": _attempt(tensor.numel, 0),
        "shape": str(tuple(tensor.shape)),
        "stride": _attempt(tensor.stride, ()),
        "requires_grad": tensor.requires_grad,
        "layout": str(tensor.layout),
        "data_ptr": data_pointer(tensor),
    }


def _serialize(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tensor_to_dict(value)
    if isinstance(value, torch.Size):
        return str(value)
    if isinstance(value, (list, tuple)):
        return rebuild_sequence(value, [_serialize(item) for item in value])
    if isinstance(value, dict):
        return {key: _serialize(item) for key, item in value.items()}
    return str(value)


def serialize_args_to_dict(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """{"args": (...), "kwargs": {...} only if there are any}: tensors as mappings, containers as they are, everything
    else as text."""
    data: dict[str, Any] = {"args": tuple(_serialize(arg) for arg in args)}
    if kwargs:
        data["kwargs"] = {key: _serialize(value) for key, value in kwargs.items()}
    return data


def _text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _text_keys(item) for key, item in value.items()}
    return [_text_keys(item) for item in value] if isinstance(value, (list, tuple)) else value


def args_to_json(name: str, *args: Any, **kwargs: Any) -> str:
    """The text of a capture's companion file."""
    content = serialize_args_to_dict(*args, **kwargs)
    content["op"] = name
    return json.dumps(_text_keys(content), indent=4)


def _write_atomic(path: str, write: Any) -> None:
    """`write(file name)` under a temporary name, then renamed: a failure leaves nothing behind."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".tmp-", suffix=os.path.basename(path))
    os.close(handle)
    try:
        write(temporary)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _save_files(path: str, item: dict) -> None:
    if "ditorch" in sys.modules:  # its import may change what "cuda" is: not here
        from .capture import save_item

        save_item(path, item)
        return
    text = args_to_json(item["name"], *item["args"], **item["kwargs"])
    _write_atomic(path, lambda temporary: torch.save(item, temporary))
    _write_atomic(path + ".json", lambda temporary: _write_text(temporary, text))


def _describe(value: Any) -> str:
    text = str(_serialize(value))
    return text if len(text) <= 200 else text[:200] + "..."


def save_op_args(name: str, identifier: str, *args: Any, **kwargs: Any) -> None:
    """Write op_tools_results/op_capture_results/<name>/<pid>/<identifier>.pth and its .json, and say so. What cannot be
    written is said too and stops nothing."""
    path = f"{RESULTS}/{name}/{os.getpid()}/{identifier}.pth"
    try:
        if ".." in path.split("/"):
            raise ValueError(f"{path!r} leaves the results directory")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _save_files(path, {"name": name, "args": args, "kwargs": kwargs, "identifier": identifier})
        print(f"{path} saved")
    except Exception as error:  # the user's program goes on, whatever the disk or a pickled object says
        print(f"{_describe(args)} {_describe(kwargs)} can not save for {name} because {error}")


def load(path: str | os.PathLike) -> dict[str, Any]:
    """Read a file of a capture without executing anything in it; tensors are on the CPU."""
    from .reader import load_item

    return load_item(path)
