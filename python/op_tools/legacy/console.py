"""The console of the original, byte for byte (OP_TOOLS_CONSOLE=full): one class per watching tool.

The engine calls `console(kind, event)` for every event of a tool: "apply" and "skip" (name), "forward" (id, name,
func, args, kwargs, result, location, extra, error) and "backward" (id, name, grad_outputs, grad_inputs, location,
round, extra). An event is printed in one piece, so that threads do not mix. Text is made here, from the live objects;
nothing is kept but the rows of the time table.
"""

from __future__ import annotations

import csv
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from ..containers import traverse_container
from ..pretty_print import dict_data_list_to_table, packect_data_to_dict_list
from ..save_op_args import serialize_args_to_dict
from ..utils import is_inf_or_nan, is_readable, wants_stack, write_stack

GAP = "\n\n\n"


def args_rows(label: str, *args: Any, **kwargs: Any) -> list[dict]:
    return packect_data_to_dict_list(label, serialize_args_to_dict(*args, **kwargs))


def table(rows: list[dict]) -> str:
    return str(dict_data_list_to_table(rows))


def _forward_table(event: dict) -> str:
    name = event["name"]
    rows = args_rows(f"{name} inputs", *event["args"], **(event["kwargs"] or {}))
    return table(rows + args_rows(f"{name} outputs", event["result"]))


# Features of tensors


def tensor_features(tensor: torch.Tensor) -> dict[str, Any]:
    """inf_or_nan, min, max, mean, std, norm of the values in float32 (float64 in its own precision, complex numbers by
    magnitude); a nested tensor those of all its parts. An empty tensor has only a norm, one without memory nothing, nor
    has one of torch.func whose values may not be looked at (vmap)."""
    if not is_readable(tensor) or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return {"inf_or_nan": False}
    with torch.no_grad():
        values = tensor.detach()
        values = values.values() if values.is_nested else values
        values = (values.to_dense() if values.layout != torch.strided else values).cpu()
        features = {"inf_or_nan": is_inf_or_nan(values)}
        values = values.abs() if values.is_complex() else values
        values = values if values.dtype == torch.float64 else values.float()
        if values.numel() == 0:
            return {**features, "min": "", "max": "", "mean": "", "std": "", "norm": 0.0}
        features.update(min=values.min().item(), max=values.max().item(), mean=values.mean().item())
        features["std"] = values.std().item() if values.numel() > 1 else float("nan")
        features["norm"] = values.norm().item()
    return features


def _feature_row(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, torch.Tensor):
        return {"name": name, **tensor_features(value)}
    return {"name": name, "inf_or_nan": is_inf_or_nan(value)}


# Consoles


class Console:
    """What all tools print alike: apply and skip lines once per operator, and the stack if it is wanted (`print_stack`;
    None: by OP_TOOLS_PRINT_STACK)."""

    hook = ""

    def __init__(self, write: Callable[[str], Any] | None = None, print_stack: bool | None = None):
        self._write = write
        self._print_stack = print_stack
        self._lock = threading.Lock()
        self._seen: set[tuple[str, str]] = set()
        self._stack_shown = threading.local()

    def console(self, kind: str, event: dict) -> None:
        """Print one event."""
        if kind in ("apply", "skip"):
            self._say_once(kind, event["name"])
        elif kind == "forward":
            self._show_stack(first=False)
            self._put(self.forward(event))
        elif kind == "backward":
            self._put(self.backward(event))

    __call__ = console

    def forward(self, event: dict) -> str:
        raise NotImplementedError

    def backward(self, event: dict) -> str:
        return ""

    def close(self) -> None:
        """End of the run."""

    def _put(self, text: str) -> None:
        if text:
            with self._lock:
                try:
                    (self._write or sys.stdout.write)(text)
                except (OSError, ValueError, AttributeError):
                    pass  # a closed or missing standard output is no reason to stop a training

    def _say_once(self, kind: str, name: str) -> None:
        if kind == "apply":
            self._show_stack(first=True)
        with self._lock:
            if (kind, name) in self._seen:
                return
            self._seen.add((kind, name))
        self._put(f"{kind} {self.hook} on {name}\n")

    def _wants_stack(self) -> bool:
        try:
            return wants_stack() if self._print_stack is None else self._print_stack
        except ValueError:  # the variable became nonsense while the tool runs; start() refuses it
            return False

    def _show_stack(self, first: bool) -> None:
        """The stack stands before everything else of a call: before its apply line where it has one."""
        shown = getattr(self._stack_shown, "value", False)
        self._stack_shown.value = first
        if (first or not shown) and self._wants_stack():
            write_stack(self._put)


class ObserveConsole(Console):
    hook = "OpObserveHook"

    def forward(self, event: dict) -> str:
        return f"{GAP}{event['name']}  {event['id']}\n{event['location']}\n{_forward_table(event)}\n{GAP}"


class OverflowConsole(Console):
    hook = "OpOverflowCheckHook"

    def forward(self, event: dict) -> str:
        name = event["name"]
        features = [_feature_row(f"{name} input[{i}]", v) for i, v in enumerate(traverse_container(event["args"]))]
        features += [_feature_row(f"{name} output[{i}]", v) for i, v in enumerate(traverse_container(event["result"]))]
        head = f"{GAP}{name}    forward_id: {event['id']}\n{event['location']}\n"
        return f"{head}{_forward_table(event)}\n{table(features)}\n{GAP}"

    def backward(self, event: dict) -> str:
        name, inputs, outputs = event["name"], event["grad_inputs"], event["grad_outputs"]
        rows = args_rows(f"{name} grad_output", *outputs) + args_rows(f"{name} grad_inputs", *inputs)
        values = [(f"grad_inputs[{i}]", v) for i, v in enumerate(inputs)]
        values += [(f"grad_outputs[{i}]", v) for i, v in enumerate(outputs)]
        features = [_feature_row(f"{name} {label}", v) for label, v in values if isinstance(v, torch.Tensor)]
        head = f"{GAP}{name}     forward_id: {event['id']}\n{event['location']}\n"
        return f"{head}{table(rows)}\n{table(features)}\n"


class CaptureConsole(Console):
    """`extra` brings "key" (<id>/<timestamp>) and "saved" (paths of files, in the order of saving)."""

    hook = "OpCaptureHook"

    def forward(self, event: dict) -> str:
        key, saved = self._extra(event)
        head = f"{event['name']}    forward_id:{key}    {event['location']} \n"
        return f"{saved}{head}{_forward_table(event)} \n\n\n\n\n"

    def backward(self, event: dict) -> str:
        key, saved = self._extra(event)
        name = event["name"]
        rows = args_rows(f"{name} grad_output", *event["grad_outputs"])
        rows += args_rows(f"{name} grad_inputs", *event["grad_inputs"])
        return f"{saved}{name} forward_id:{key}\n{table(rows)} \n\n\n\n\n"

    @staticmethod
    def _extra(event: dict) -> tuple[str, str]:
        extra = event.get("extra") or {}
        return extra.get("key", event["id"]), "".join(f"{path} saved\n" for path in extra.get("saved", ()))


# Time

TIME_COLUMNS = ("name", "forward_id", "forward_elasped", "backward_elasped", "unit")
TIME_FILE_COLUMNS = (*TIME_COLUMNS, "input", "output", "grad_inputs", "grad_outputs")


def append_csv(path: str, columns: tuple[str, ...], rows: list[dict]) -> None:
    """Rows in PrettyTable's form of CSV (CRLF, minimal quoting) at the end of a file; the header only once."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(columns)
        writer.writerows([row.get(column, "-") for column in columns] for row in rows)


class TimeConsole(Console):
    """`extra` brings "elasped_ms". Rows are held until there are more than `limit`, or until close(); then a table of
    them is printed and `save(rows)` (by default into the original's CSV file) may return a path to be told."""

    hook = "OpTimeMeasureHook"

    def __init__(
        self,
        write: Callable[[str], Any] | None = None,
        limit: int = 5000,
        save: Callable[[list[dict]], str | None] | None = None,
        print_stack: bool | None = None,
    ):
        super().__init__(write, print_stack)
        self.limit = limit
        self._save = save or self._save_csv
        self._path, self._pid = "", 0
        self._rows: dict[int, dict] = {}

    def forward(self, event: dict) -> str:
        elapsed = self._elapsed(event, "forward_elasped")
        head = f"{GAP}{event['name']}    forward_id: {event['id']}\n{event['location']}\n"
        text = f"{head}{_forward_table(event)}\n{table([elapsed])}\n{GAP}"
        inputs = serialize_args_to_dict(*event["args"], **(event["kwargs"] or {}))
        return text + self._keep({**elapsed, "input": inputs, "output": serialize_args_to_dict(event["result"])})

    def backward(self, event: dict) -> str:
        name, inputs, outputs = event["name"], event["grad_inputs"], event["grad_outputs"]
        elapsed = self._elapsed(event, "backward_elasped")
        rows = args_rows(f"{name} grad_outputs", outputs) + args_rows(f"{name} grad_inputs", inputs)
        text = f"\n\n {name}    forward_id: {event['id']}\n{table(rows)}\n{table([elapsed])} \n\n\n"
        texts = {"grad_inputs": serialize_args_to_dict(inputs), "grad_outputs": serialize_args_to_dict(outputs)}
        return text + self._keep({**elapsed, **texts})

    def close(self) -> None:
        """The table of all rows that are held."""
        with self._lock:
            text = self._flush()
        self._put(text)

    @staticmethod
    def _elapsed(event: dict, column: str) -> dict[str, Any]:
        elapsed = (event.get("extra") or {}).get("elasped_ms", float("nan"))
        return {"name": event["name"], "forward_id": event["id"], column: f"{elapsed:>10.8f}", "unit": "ms"}

    def _keep(self, row: dict) -> str:
        with self._lock:
            self._rows.setdefault(row["forward_id"], {}).update(row)
            return self._flush() if len(self._rows) > self.limit else ""

    def _flush(self) -> str:
        rows, self._rows = list(self._rows.values()), {}
        if not rows:
            return ""
        text = table([{column: row.get(column, "-") for column in TIME_COLUMNS} for row in rows]) + "\n"
        try:
            path = self._save(rows)
        except OSError as error:  # the disk's trouble is not the program's
            return f"{text}op elasped info can not be saved: {error}\n"
        return text + (f"op elasped info saved to {path}\n" if path else "")

    def _save_csv(self, rows: list[dict]) -> str:
        if self._pid != os.getpid():  # the first time, and in a forked child
            self._pid, stamp = os.getpid(), time.strftime("%Y-%m-%d-%H-%M-%S")
            directory = "op_tools_results/op_time_measure_result"
            self._path = f"{directory}/op_elasped_info_pid{self._pid}_{stamp}.csv"
        append_csv(self._path, TIME_FILE_COLUMNS, rows)
        return self._path


CONSOLES: dict[str, type[Console]] = {
    "observe": ObserveConsole,
    "time": TimeConsole,
    "overflow": OverflowConsole,
    "capture": CaptureConsole,
}


_ACTING = {
    "cast": ("dtype_cast", "CastConsole"),
    "compare": ("autocompare", "CompareConsole"),
    "fallback": ("fallback", "FallbackConsole"),
}
"""Consoles of the tools that act, in modules of their own."""


def create(kind: str, **options: Any) -> Console:
    """The console of a tool, by its kind."""
    if kind not in CONSOLES and kind in _ACTING:
        module, name = _ACTING[kind]
        CONSOLES[kind] = getattr(import_module(f".{module}", __package__), name)
    if kind not in CONSOLES:
        raise ValueError(f"no full console for {kind!r}; valid: {', '.join([*CONSOLES, *_ACTING])}")
    return CONSOLES[kind](**options)
