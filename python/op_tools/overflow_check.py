"""OpOverflowCheck: which operator made the first NaN or Inf."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from typing import Any

import torch
from ditorch import _C
from ditorch.table import Table
from torch.utils._pytree import tree_map_only

from . import console, results
from .keywords import OverflowCheckKeywords
from .selection import NameList
from .tool import call_weakly
from .traits import get_traits

FOLDER = "op_overflow_check_results"
NAN, INF = 1, 2
SHOWN_TENSORS = 3


class OpOverflowCheck(OverflowCheckKeywords):
    """Find the operator that makes the first NaN or Inf, forward or backward: one line per finding, not per call.

    An operator is named when its result is not finite although its inputs were (producer), or when it read memory that
    nobody wrote; those that pass it on are counted. Numbers given as arguments (a mask's -inf) and operators on
    `allow_list` are intended. `stop=True` raises FloatingPointError at the first finding, `save=True` saves what the
    operator was given."""

    kind = "overflow"
    name = "overflow_check"
    verb = "checked"

    def _set_up(self) -> None:
        self._allowed: NameList | None = None
        self._told = 0
        self._saved: list[str] = []
        self._exact: set[str] = set()
        """Those in which all is as it was before the call."""
        self._held: dict[str, str] = {}
        """Folders of findings that a gradient scaler may excuse, and what to say of them if none does."""
        self._callbacks = {
            "report": call_weakly(self._report),
            "excuse": call_weakly(self._forget_held),
            "scaler": is_scaler_at_work,
            "allow": call_weakly(self._allow),
        }

    def engine_options(self, options: Any) -> dict[str, Any]:
        at_once = options.get_value("stop") or options.get_value("save")
        extra: dict[str, Any] = {"at_once": at_once, "torch_flags": get_flags, "torch_stats": get_stats}
        if at_once:
            extra["read_every"] = 1
        if options.get_value("save"):
            extra["hold"] = hold_arguments
        return {**super().engine_options(options), **self._callbacks, **extra}

    def check(self, options: Any) -> None:
        option = options["allow_list"]
        self._allowed = NameList(option.text, option.origin)
        if options.get_value("save"):
            results.check_directory(options, self._title)

    def started(self) -> None:
        self._told = 0
        self._saved = []
        self._exact = set()
        self._held = {}

    # Results

    def findings(self, verdict: str | None = "producer") -> list[dict[str, Any]]:
        """What was found since the last start, first one first. `verdict`: producer (with operators whose bad inputs
        nobody was seen to make), propagator, allowed, or None for all."""
        if verdict not in (None, "producer", "propagator", "allowed"):
            raise ValueError(f"OpOverflowCheck: {verdict!r} is no verdict; valid: producer, propagator, allowed, None")
        found = self.describe().get("findings", [])
        if verdict == "producer":
            return [finding for finding in found if _is_news(finding)]
        return [finding for finding in found if verdict in (None, finding["verdict"])]

    def saved(self) -> list[str]:
        """Directories with what was saved."""
        return list(self._saved)

    def find_cause(self, finding: dict[str, Any]) -> str:
        """What the CPU makes of the same inputs, in words; "" when they were not saved as they were."""
        from .replay.cause import find_cause

        name = f"{finding['id']}_{finding['kind']}"
        return next((find_cause(folder) for folder in self._exact if os.path.basename(folder) == name), "")

    def table(self) -> Table:
        """The findings as a table that prints itself."""
        columns = ("op", "dir", "made", "times", "first step", "last step", "why", "place")
        return Table(columns, [_format_row(finding) for finding in self.findings()])

    def summary(self) -> str:
        facts = self.describe()
        if not facts:
            return ""
        found = self.findings()
        passed = sum(facts[kind]["propagator"] for kind in ("forward", "backward"))
        allowed = sum(facts[kind]["allowed"] for kind in ("forward", "backward")) - facts["scaled"]
        lines = [str(self.table())] if found else []
        text = f"{console.count(len(found), 'finding')}" if found else "clean: no operator made a NaN or Inf"
        text += f" in {console.count(facts['checked'], 'check')}"
        text += f"; {console.count(passed)} passed on what they were given" if passed else ""
        text += f"; {console.count(allowed)} intended (masks, constants, allow_list)" if allowed else ""
        lines.append(f"OpOverflowCheck: {text}")
        if facts["scaled"]:
            lines.append(
                f"OpOverflowCheck: {console.count(facts['scaled'], 'gradient overflow')} seen by the gradient scaler, "
                "which skips such a step; expected while its scale adapts"
            )
        if facts["unchecked"]:
            lines.append(f"OpOverflowCheck: {console.count(facts['unchecked'], 'tensor')} could not be read")
        if facts["unwritten_dropped"]:
            buffers = console.count(facts["unwritten_dropped"], "uninitialised buffer")
            lines.append(f"OpOverflowCheck: {buffers} more than are followed at once; what they hold counts as written")
        if facts["dropped"]:
            lines.append(f"OpOverflowCheck: {console.count(facts['dropped'], 'more finding')} than the table holds")
        return "\n".join(lines)

    # Called by the engine

    def _allow(self, name: str) -> int:
        """Which of NaN and Inf an operator may make."""
        if self._allowed is not None and self._allowed.match(name):
            return NAN | INF
        return INF if "masks" in get_traits(name) else 0  # infinities are put where it is told to; a NaN is never meant

    def _report(self, finding: dict[str, Any]) -> None:
        """A new finding. An exception from here reaches the program: only `stop` wants that. A held one is told later,
        or excused: what it was given is saved while it is at hand."""
        objects = finding.pop("objects", None)
        if finding.get("held"):
            if self._options.get_value("save"):
                self._held[self._get_folder(finding)] = self._save(finding, objects)
            return
        text = format_finding(finding)
        facts = list_facts(finding)
        if self._options.get_value("save"):
            saved = self._held.pop(self._get_folder(finding), "") or self._save(finding, objects)
            text += f"; {saved}"
            facts.append(("saved", saved.removeprefix("saved in ")))
        self._told += 1
        advice = _advise(finding, self._options.get_value("save"))
        self.tell_finding(format_headline(finding), facts, self._told, advice)
        if self._options.get_value("stop") and finding["verdict"] == "producer":
            raise FloatingPointError(text)

    def _forget_held(self) -> None:
        for folder in self._held:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty
                os.removedirs(os.path.dirname(folder))
            self._exact.discard(folder)
        self._saved = [folder for folder in self._saved if folder not in self._held]
        self._held = {}

    def _get_folder(self, finding: dict[str, Any]) -> str:
        root = os.path.join(results.get_rank_directory(self._options), FOLDER)
        return os.path.join(root, finding["name"], str(os.getpid()), f"{finding['id']}_{finding['kind']}")

    def _save(self, finding: dict[str, Any], objects: tuple | None) -> str:
        if objects is None:
            return "not saved: the call is over"
        from .capture import save_item

        held, args, kwargs, result = objects
        cap = self._options.get_value("cap_calls")
        if cap and len(self._saved) >= cap:
            return f"not saved: {cap} calls are saved (cap_calls)"
        folder = self._get_folder(finding)
        forward = finding["kind"] == "forward"
        names = ("input", "output") if forward else ("grad_outputs", "grad_inputs")
        identifier = f"{finding['id']}"
        state = _C.call_settings() if forward else held.state if held is not None else None
        items = [(names[0], args, kwargs), (names[1], _as_tuple(result), None)]
        if not forward and held is not None:
            items.insert(0, ("input", held.args, held.kwargs))
        try:
            os.makedirs(folder, exist_ok=True)
            for name, values, keywords in items:
                item = {"name": finding["name"], "args": values, "kwargs": keywords or {}, "identifier": identifier}
                save_item(os.path.join(folder, f"{name}.pth"), {**item, "state": state})
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            return f"not saved: {error}"
        self._saved.append(folder)
        if forward or held is not None:
            self._exact.add(folder)
        if not forward and held is None:
            return f"saved in {results.shorten(folder)} (the gradients alone: the forward's inputs were not kept)"
        if not forward and (held.is_changed() or finding["name"].endswith("_")):
            self._exact.discard(folder)
            return f"saved in {results.shorten(folder)} (inputs as they are now: they were changed after the forward)"
        changed = any(tensor["when"] == "before" and "min" not in tensor for tensor in finding["in"] if tensor["numel"])
        if changed:
            self._exact.discard(folder)
        return f"saved in {results.shorten(folder)}" + (" (inputs as the call left them)" if changed else "")


def is_scaler_at_work() -> bool:
    """Has the program a gradient scaler that has scaled a loss? It may be anywhere, so all objects are looked at."""
    kind = torch.amp.GradScaler
    scalers = (thing for thing in gc.get_objects() if issubclass(type(thing), kind))
    return any(scaler.is_enabled() and scaler._scale is not None for scaler in scalers)


class Held:
    """What a forward was given, until its backward has run: over the same memory, without the graph."""

    def __init__(self, args: tuple, kwargs: dict[str, Any] | None):
        self.tensors: list[tuple[torch.Tensor, int]] = []
        self.state = _C.call_settings()
        self.args, self.kwargs = tree_map_only(torch.Tensor, self._detach, (args, kwargs or {}))

    def _detach(self, tensor: torch.Tensor) -> torch.Tensor:
        mine = tensor.detach()
        self.tensors.append((mine, mine._version))
        return mine.requires_grad_(tensor.requires_grad)

    def is_changed(self) -> bool:
        return any(tensor._version != version for tensor, version in self.tensors)


def hold_arguments(args: tuple, kwargs: dict[str, Any] | None) -> Held:
    """For the engine: an object that lives as long as the backward of the call may run."""
    return Held(args, kwargs)


# Text


def format_headline(finding: dict[str, Any]) -> str:
    """`torch.Tensor.div made 12 Inf, 0 NaN of 4,096 (inputs finite)`."""
    backward = finding["kind"] == "backward"
    name = f"the backward of {finding['name']}" if backward else finding["name"]
    return f"{name} {_format_made(finding)}"


def list_facts(finding: dict[str, Any]) -> list[tuple[str, str]]:
    """What there is to say about a finding: a label and a text each."""
    tensors = [_format_tensor(tensor) for tensor in finding["in"][:SHOWN_TENSORS] if tensor["numel"]]
    if len(finding["in"]) > SHOWN_TENSORS:
        tensors.append(f"{len(finding['in']) - SHOWN_TENSORS} more inputs")
    bad = [_format_tensor(tensor) for tensor in finding["out"] if tensor["values"] != "finite"][:SHOWN_TENSORS]
    return [
        ("call", f"step {finding['step']}, forward_id {finding['id']}"),
        ("place", f"at {results.format_location(finding['location'])}" if finding["location"] else ""),
        ("module", finding["module"] or ""),
        ("inputs", "; ".join(tensors)),
        ("result", "; ".join(bad)),
    ]


def format_finding(finding: dict[str, Any]) -> str:
    """The same in one line, for an exception."""
    (_, call), *more = list_facts(finding)
    facts = [f"module {text}" if label == "module" else text for label, text in more if text]
    return "; ".join([f"{call}: {format_headline(finding)}", *facts])


def _format_made(finding: dict[str, Any]) -> str:
    inputs = "gradients that came in" if finding["kind"] == "backward" else "inputs"
    verb = "made" if finding["verdict"] == "producer" else "passed on"
    if finding["numel"] >= 0:
        what = f"{verb} {finding['inf']:,} Inf, {finding['nan']:,} NaN of {finding['numel']:,}"
    else:
        what = f"{verb} {finding['output_values'].replace('nan', 'NaN').replace('inf', 'Inf')}"
    reason = {
        "inputs finite": f"{inputs} finite",
        "NaN from Inf": f"{inputs} hold Inf but no NaN",
        "source not watched": f"{inputs} not finite, made by something that is not watched",
        "uninitialised memory": _format_junk(finding),
    }.get(finding["reason"], finding["reason"])
    if finding["input_values"] == "unknown":
        reason = f"{inputs} that it overwrote were not seen before"
    return f"{what} ({reason})"


def _format_junk(finding: dict[str, Any]) -> str:
    """Which tensors nobody wrote: `in.0 is uninitialised memory: no watched operator wrote it`."""
    unwritten = [tensor for tensor in finding["in"] + finding["out"] if tensor["written"] != "all"]
    names = ", ".join(tensor["tensor"] for tensor in unwritten[:SHOWN_TENSORS])
    names += f" and {len(unwritten) - SHOWN_TENSORS} more" if len(unwritten) > SHOWN_TENSORS else ""
    part = any(tensor["written"] == "part" for tensor in unwritten)
    verb = "are" if len(unwritten) > 1 else "is"
    return (
        f"{names or 'an input'} {verb} uninitialised memory{' in part' if part else ''}: no watched operator wrote it"
    )


def _format_tensor(tensor: dict[str, Any]) -> str:
    shape = ",".join(map(str, tensor["shape"]))
    text = f"{tensor['tensor']} {tensor['dtype']}[{shape}]"
    if "min" not in tensor:
        return f"{text} {tensor['values'].replace('nan', 'NaN').replace('inf', 'Inf')} before"
    return f"{text} min {tensor['min']:.3g} max {tensor['max']:.3g} mean {tensor['mean']:.3g}"


def _format_row(finding: dict[str, Any]) -> dict[str, Any]:
    made = "" if finding["numel"] < 0 else f"{finding['inf']:,} Inf, {finding['nan']:,} NaN of {finding['numel']:,}"
    return {
        "op": finding["name"],
        "dir": "fwd" if finding["kind"] == "forward" else "bwd",
        "made": made or finding["output_values"],
        "times": finding["count"],
        "first step": finding["step"],
        "last step": finding["last_step"],
        "why": finding["reason"],
        "place": results.format_location(finding["location"], source=False),
    }


def _advise(finding: dict[str, Any], saves: bool) -> list[str]:
    name = finding["name"]
    if finding["reason"] == "source not watched":
        return ["watch more (list, cpu=1, level=aten), or look at the data and the weights that were loaded"]
    if finding["reason"] == "uninitialised memory":
        return [
            "fill the buffer before it is read (torch.zeros in place of torch.empty)",
            f'if a kernel outside of torch writes it: allow_list="{name}"',
        ]
    wishes = ["OpOverflowCheck(stop=True) raises there"]
    if not saves:
        wishes.append("OpOverflowCheck(save=True) saves what it was given")
    return [*wishes, f'if it is meant to be so: allow_list="{name}"']


def _is_news(finding: dict[str, Any]) -> bool:
    return finding["verdict"] == "producer" or finding["reason"] == "source not watched"


def _as_tuple(result: Any) -> tuple:
    return result if type(result) is tuple else (result,)


# Devices without a helper: torch's own operators


def get_flags(tensor: torch.Tensor) -> int:
    """1 for a NaN, 2 for an infinity, 3 for both. One reduction for a tensor that is finite, three for others."""
    if tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("a stream that is being captured into a CUDA graph cannot be read")
    with torch.no_grad():
        values = _plain(tensor)
        if bool(torch.isfinite(values).all()):
            return 0
        return (NAN if bool(torch.isnan(values).any()) else 0) | (INF if bool(torch.isinf(values).any()) else 0)


def get_stats(tensor: torch.Tensor) -> dict[str, float]:
    """Numbers of one tensor for a finding."""
    with torch.no_grad():
        values = _plain(tensor)
        values = values.abs() if values.is_complex() else values
        values = values.double() if values.device.type != "mps" else values.float()
        known = values[~torch.isnan(values)]
        empty = known.numel() == 0
        return {
            "nan": float(torch.isnan(values).sum()),
            "pos_inf": float(torch.isposinf(values).sum()),
            "neg_inf": float(torch.isneginf(values).sum()),
            "zero": float((values == 0).sum()),
            "min": float("nan") if empty else float(known.min()),
            "max": float("nan") if empty else float(known.max()),
            "mean": float(values.mean()),
            "std": float(values.std()) if values.numel() > 1 else float("nan"),
            "norm": float(values.norm()),
        }


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """What can be looked at: of a sparse tensor the values that it stores."""
    values = tensor.detach()
    if values.layout is torch.sparse_coo:
        values = values._values()
    elif values.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        values = values.values()
    if values.dtype.is_floating_point and values.dtype.itemsize == 1:
        values = values.float()  # float8 has few operators
    return values
