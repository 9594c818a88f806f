"""One run of a bisection in one process of the program: some operators leave the device, and what is called is noted.

The order is a file that the bisection wrote (`ditorch.bisect.runner`). Names of operators are written at once, before
their first call, so that a crash leaves the culprit's; all else goes to `probe-r<rank>-p<pid>.json` at the end. Names
are those of ATen without overload and without the underscore of an in-place operator.
"""

from __future__ import annotations

import atexit
import functools
import json
import linecache
import os
import sys
import threading
from importlib import import_module
from typing import Any

from ditorch import _C
from ditorch.command.spec import Spec
from ditorch.output import write_whole

from . import console, modules, observer, results, selection
from .dtype_cast import OpDtypeCast
from .fallback import OpFallback
from .program import Program

MOST_CALLS = 200_000
"""Calls of the culprits that are noted one by one."""
_OWN = tuple(
    os.path.dirname(os.path.abspath(import_module(name).__file__)) + os.sep for name in ("op_tools", "ditorch", "torch")
)
_LEFT_OUT = ("profiler::", "ditorch::", "aten::empty", "aten::_local_scalar_dense", "aten::_copy_from", "aten::resize_")


def simplify(name: str) -> str:
    """aten::add of aten::add_.Tensor."""
    base = name.partition(".")[0]
    return base[:-1] if base.endswith("_") and not base.endswith("__") else base


def is_view(name: str) -> bool:
    """Computes nothing: every form of it gives back its argument's memory."""
    import torch

    schemas = torch._C._jit_get_schemas_for_operator(name)
    return bool(schemas) and all(_gives_view(schema) for schema in schemas)


def _gives_view(schema: Any) -> bool:
    aliases = [value.alias_info for value in schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


def find_place() -> str:
    """`<file>:<line>` of the program's innermost line, or the autograd node that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OWN) and not name.startswith("<"):
            line = linecache.getline(name, frame.f_lineno).strip()
            return f"{name}:{frame.f_lineno} {frame.f_code.co_name}: {line}"
        frame = frame.f_back
    return ""


class _ByName:
    """A tool that takes the operators for which `wants(name)` says yes; asked once per name, before its first call."""

    announces = False
    wants: Any = None

    def _apply(self, chosen: Any) -> None:
        super()._apply(chosen)
        self._engine.set_matcher(self.wants)


class _Fallback(_ByName, OpFallback):
    pass


class _Cast(_ByName, OpDtypeCast):
    pass


class Windows:
    """Which module made an autograd node: spans of sequence numbers, so that the backward has a module too."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int, str]] = []
        self.open: list[int] = []
        self.handles: list[Any] = []

    def start(self) -> None:
        from torch.nn.modules import module

        self.handles = [
            module.register_module_forward_pre_hook(self._enter),
            module.register_module_forward_hook(self._leave, always_call=True),
        ]

    def stop(self) -> None:
        while self.handles:
            self.handles.pop().remove()

    def _enter(self, module: Any, inputs: Any) -> None:
        import torch

        self.open.append(torch._C._autograd._get_sequence_nr())

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        import torch

        begin, end = self.open.pop() if self.open else 0, torch._C._autograd._get_sequence_nr()
        if end > begin and modules._local.stack:
            self.spans.append((begin, end, modules._local.stack[-1][1]))
            del self.spans[:-20000]

    def find_now(self) -> tuple[str, str]:
        """(module, autograd node) of the call that is being made."""
        import torch

        stack = modules._local.stack
        node = torch._C._current_autograd_node()
        if node is None or stack:
            return (stack[-1][1] if stack else ""), (node.name() if node is not None else "")
        inner = [span for span in self.spans if span[0] <= node._sequence_nr() < span[1]]
        path = min(inner, key=lambda span: span[1] - span[0])[2] if inner else ""
        return path, node.name()


class Culprit:
    """Calls of one operator: numbered, noted, and chosen by signature, module and number."""

    def __init__(self, owner: Probe, limits: list[list[Any]], notes: bool):
        self.owner, self.notes = owner, notes
        self.limits = [(level, set(keys)) for level, keys in limits]
        self.number, self.lock = 0, threading.Lock()
        self.kinds: dict[tuple, int] = {}
        self.calls: list[list[int]] = []

    def choose(self, *args: Any, **kwargs: Any) -> bool:
        with self.lock:
            self.number += 1
            number = self.number
        module, node = self.owner.windows.find_now()
        facts = {"signature": describe_arguments(args, kwargs), "module": module, "call": number}
        if self.notes and len(self.calls) < MOST_CALLS:
            kind = (facts["signature"], module, node, find_place())
            self.calls.append([self.kinds.setdefault(kind, len(self.kinds)), self.owner.steps])
        return all(facts[level] in keys for level, keys in self.limits)

    def describe(self) -> dict[str, Any]:
        names = ("signature", "module", "node", "place")
        return {"kinds": [dict(zip(names, kind, strict=True)) for kind in self.kinds], "calls": self.calls}


def describe_arguments(args: tuple, kwargs: dict[str, Any]) -> str:
    """`float32[4, 8] float32[8, 4]/(1, 8)`: the tensors of a call, with strides where they are not contiguous."""
    import torch

    words = []
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor):
                strided = item.layout is torch.strided and not item.is_contiguous()
                strides = f"/{tuple(item.stride())}" if strided else ""
                words.append(f"{str(item.dtype).removeprefix('torch.')}{list(item.shape)}{strides}")
    return " ".join(words[:12]) + (" ..." if len(words) > 12 else "")


class Probe(Program):
    """What the order says, from the start of the process to its end."""

    def __init__(self, spec: Spec):
        super().__init__(spec)
        with open(spec.probe, encoding="utf-8") as file:
            self.order = dict(json.load(file))
        self.names: list[str] = []
        self.values: list[float] = []
        self.culprits: dict[str, Culprit] = {}
        self.windows = Windows()
        self._file = -1

    def start(self) -> None:
        order = self.order
        self.chosen, self.all = set(order.get("names", ())), bool(order.get("all"))
        for name, limits in order.get("limits", {}).items():
            self.culprits[name] = Culprit(self, limits, bool(order.get("notes")))
        if order.get("observe"):
            path = os.path.join(self.spec.out, f"names-r{selection.get_rank()}-p{os.getpid()}.jsonl")
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if order.get("observe") or order.get("by") == "tool":
            self._start_tools()
        self._find_steps()
        if order.get("losses"):
            self._losses.start()
        if order.get("result"):
            self._mark(order["result"], self._note_result)
        atexit.register(self.finish)

    def _start_tools(self) -> None:
        kind = _Cast if self.order.get("how") == "float32" else _Fallback
        common = {"level": "aten", "console": "off", "log": False, "threads": "all", "results": self.spec.out}
        if self.culprits:
            self.windows.start()  # before the tools: at a module's end its path still stands on their stack
        for name, culprit in self.culprits.items():
            tool = kind(**common, module_paths=True, condition_func=culprit.choose)
            tool.wants = functools.partial(_is_one, name)
            self.tools[name] = tool.start()
        tool = kind(**common)
        tool.wants = self._wants
        self.tools["all"] = tool.start()

    def _wants(self, name: str) -> bool:
        simple = simplify(name)
        if self._file >= 0 and simple not in self.names and not simple.startswith(_LEFT_OUT) and not is_view(name):
            self.names.append(simple)
            row = {"name": simple, "place": find_place(), "step": self.steps}
            os.write(self._file, json.dumps(row).encode() + b"\n")
        return simple not in self.culprits and (self.all or simple in self.chosen)

    def _note_result(self, value: Any) -> None:
        try:
            self.values.append(float(value))
        except (TypeError, ValueError):
            console.say_once(f"ditorch bisect: {self.order['result']} gave {type(value).__name__}, which is no number")

    def finish(self) -> None:
        if self.is_over or self.pid != os.getpid():
            return
        self.is_over = True
        for tool in reversed(self.tools.values()):
            try:
                tool.stop()
            except Exception as error:
                console.say(f"ditorch bisect: stop() at the end failed: {error}")
        self.windows.stop()
        path = os.path.join(self.spec.out, f"probe-r{selection.get_rank()}-p{os.getpid()}.json")
        try:
            write_whole(path, json.dumps(self.describe()) + "\n")
        except OSError as error:
            console.say(f"ditorch bisect: {results.shorten(path)} is not written: {error}")

    def describe(self) -> dict[str, Any]:
        import ditorch

        embedded = ditorch.is_installed() and ditorch.backend in ("host", "nvidia")
        rows = _C.ledger() if embedded else []
        forms: dict[str, list[str]] = {}
        for row in rows:
            simple, base = simplify(row["name"]), row["name"].partition(".")[0]
            if (row["c"]["calls"] or row["fallback"]["calls"]) and not simple.startswith(_LEFT_OUT):
                forms.setdefault(simple, []).append(base)
        return {
            "rank": selection.get_rank(),
            "pid": os.getpid(),
            "steps": self.steps,
            "step_seconds": self._times[:10000],
            "embedded": embedded,
            "ran": {name: sorted(set(bases)) for name, bases in forms.items()},
            "losses": self._losses.stop(),
            "memory": observer.get_memory(),
            "values": [repr(value) for value in self.values[-10000:]],
            "culprits": {name: culprit.describe() for name, culprit in self.culprits.items()},
            "handled": sum(tool.counts().get("applied", 0) for tool in self.tools.values()),
        }


def _is_one(wanted: str, name: str) -> bool:
    return simplify(name) == wanted
