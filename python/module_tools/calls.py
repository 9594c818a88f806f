"""Which call of a layer this is: counted from 0 in each step; repeated ones (recomputed activations) told apart."""

from __future__ import annotations

import hashlib
import sys
import threading
from typing import Any

import torch

from . import gradients, snapshot

_MAX_CALLS = 1_000_000  # of one step; a program that never ends a step must not fill the memory


class Frame:
    """A call that is under way on this thread."""

    __slots__ = ("again", "call", "counter", "entered", "error", "input", "kwargs", "module", "name", "step")

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self.name = name
        self.module = id(module)
        self.error = sys.exc_info()[1]
        self.entered: gradients.Call | None = None
        self.step = -1
        self.counter: Counter | None = None
        self.call = 0
        self.again = ""
        self.input: Any = ()
        self.kwargs: Any = {}


class Counter:
    """The calls of one step."""

    def __init__(self) -> None:
        self.order: list[str] = []
        """Names, in the order in which the calls ended."""
        self._lock = threading.Lock()
        self._calls: dict[str, int] = {}
        self._marks: dict[str, list[bytes]] = {}
        self._again: dict[tuple[str, int], int] = {}

    def begin(self, frame: Frame) -> None:
        """Number a call. One inside a backward pass repeats an earlier one: that with the same input, the last one
        first."""
        mark = _digest((frame.input, frame.kwargs))
        with self._lock:
            count = self._calls.get(frame.name, 0)
            if gradients.get_graph_task() == -1 or not count:
                frame.call = count
                self._calls[frame.name] = count + 1
                if count < _MAX_CALLS:
                    self._marks.setdefault(frame.name, []).append(mark)
                return
            same = [i for i, other in enumerate(self._marks[frame.name]) if other == mark] or [count - 1]
            fewest = min(self._again.get((frame.name, i), 0) for i in same)
            frame.call = max(i for i in same if self._again.get((frame.name, i), 0) == fewest)
            self._again[frame.name, frame.call] = fewest + 1
            frame.again = f"recompute{fewest}"

    def end(self, frame: Frame) -> int:
        """The place of a call in the order of its step."""
        with self._lock:
            index = len(self.order)
            if not frame.again and index < _MAX_CALLS:
                self.order.append(frame.name)
            return index


def _digest(value: Any) -> bytes:
    """Of the values of a snapshot."""
    items: list[Any] = []
    paths: list[str] = []
    snapshot.flatten(value, items, paths)
    native = getattr(sys.modules.get("ditorch._C"), "tensor_hash", None)
    digest = hashlib.blake2b(digest_size=16)
    for path, item in zip(paths, items, strict=True):
        digest.update(path.encode(errors="replace"))
        if isinstance(item, torch.Tensor):
            digest.update(_digest_tensor(item, native))
        elif not isinstance(item, dict):
            digest.update(repr(item).encode(errors="replace"))
    return digest.digest()


def _digest_tensor(tensor: torch.Tensor, native: Any) -> bytes:
    with snapshot.quiet():
        try:
            if native is not None:
                return repr(native(tensor)).encode()
            flat = tensor.contiguous().reshape(-1)
            return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return repr((tensor.dtype, tuple(tensor.shape))).encode()
