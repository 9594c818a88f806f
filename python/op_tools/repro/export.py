"""A captured call as a folder that runs with torch alone: for the engineer who has the device and not this package.

`write_repro` makes repro.py (the call, readable, and the rule of the verdict), data.pt (bytes, read with
weights_only=True) and README.md. Names and values of the capture get into the script as literals only; a function that
is not an operator is refused, unless the user names its package. Depends on: reader,
replay.operator_lookup, values, template.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from ditorch import _C, device_autocast, other_ways

from ..containers import traverse_container
from ..reader import Case
from ..reader.limits import one_line
from ..replay.operator_lookup import LookupFailure, check_arguments, find_function
from . import moves, rule, template
from .values import Parts, ReproError, Writer, is_dotted, is_tensor, write_literal

__all__ = ["ReproError", "write_literal", "write_repro"]

# The traits that rule.py and template.py ask for.
_TRAITS = {"cancels", "chained", "contraction", "distinct", "exact", "frequent", "last", "loose", "mixes", "pointwise"}
_TRAITS |= {"private", "scan", "scatter", "ties", "transfer", "uninitialised", "view"}
_DETAILS = ("name", "dim", "index", "places", "sorted", "unless", "unless_place", "loose", "private", "length")
_DETAILS += ("reason",)
_VENDOR = re.compile(r"torch_\w+", re.ASCII)


def write_repro(
    case: Case, directory: str | os.PathLike, *, device: str = "cuda", modules: Sequence[str] = ()
) -> dict[str, Any]:
    """Write repro.py, data.pt and README.md into a folder (made when missing). `modules`: packages beyond torch and the
    vendors' (torch_...) whose functions the script may call. ReproError when the call cannot be exported.

    Returns what was seen while writing: `folder`, `verdict` of the captured results ("PASS", "FAIL" or "" when they
    cannot be judged here) and `lines` of the judgement."""
    is_here = _check_operator(case, modules)
    if not re.fullmatch(r"[a-z_0-9]+(:\d+)?", device, re.ASCII):
        raise ReproError(f"device {device!r} is no name of a device, such as cuda or npu:0")
    try:
        call, args, kwargs = _make_call(case)
        verdict, lines = _judge(call, device) if is_here else ("", ["not judged: the operator is not torch's own"])
        script = _write_script(call, args, kwargs, device)
        readme = _write_readme(case, call, device, lines)
        os.makedirs(directory, exist_ok=True)
        torch.save(call.data, os.path.join(directory, "data.pt"))
    except (RuntimeError, TypeError, ValueError) as error:
        reason = template.get_line(error)
        raise ReproError(f"{one_line(case.path)}: cannot be exported: {one_line(reason)}") from error
    for name, text in (("repro.py", script), ("README.md", readme)):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)
    return {"folder": os.fspath(directory), "verdict": verdict, "lines": lines}


def _make_call(case: Case) -> tuple[template.Call, str, str]:
    """The call, and its args and kwargs as text."""
    writer = Writer(case)
    args, kwargs = writer.write(tuple(case.args)), writer.write(dict(case.kwargs))
    grads = [writer.parts.add_tensor(g, False) if is_tensor(g) else None for g in _flatten(case.grad_outputs)]
    call = template.Call(
        case.name,
        writer.parts.tensors,
        lambda inputs: (writer.make(tuple(case.args), inputs), writer.make(dict(case.kwargs), inputs)),
        list(writer.parts.order),
        grads,
        _make_state(case),
        _C.judge_constants(),
        _find_row(case.name),
        _make_data(case, writer.parts),
    )
    return call, args, kwargs


def _find_row(name: str) -> dict[str, Any]:
    """What the rule needs to know about the operator; nothing when the table does not have it."""
    row = _C.operator_find(name)
    if row is None:
        return {}
    traits = sorted(row["traits"] & _TRAITS)
    return {"traits": traits, **{key: row[key] for key in _DETAILS}}


def _check_operator(case: Case, modules: Sequence[str]) -> bool:
    """True for an operator that may run here and now; False for one of a vendor's package, which only the script's
    reader decides to import. ReproError for everything else."""
    package = case.name.partition(".")[0]
    try:
        if not re.fullmatch(r"\w+(::\w+)?(\.\w+)*", case.name, re.ASCII):
            raise LookupFailure(f"{one_line(case.name, 100)!r} is no name of an operator")
        check_arguments(case.args, case.kwargs)
        if "::" not in case.name and package not in modules and _VENDOR.fullmatch(package):
            if not is_dotted(case.name):
                raise LookupFailure(f"{one_line(case.name, 100)!r} is no name of an operator")
            return False
        find_function(case.name, modules)
        return True
    except ImportError:
        return False
    except LookupFailure as error:
        raise ReproError(f"{one_line(case.path)}: {error}") from None


def _flatten(values: Any) -> list[Any]:
    return [] if values is None else list(traverse_container(values))


def _make_data(case: Case, parts: Parts) -> dict[str, Any]:
    order, grads = _match_gradients(case, parts)
    outputs = _flatten(case.output) if "output" in case.meta.get("parts", ("output",)) else []
    known = (torch.Tensor, str, bool, int, float, complex, type(None))
    return {
        "memory": parts.memory,
        "whole": parts.whole,
        "generators": parts.generators,
        "arrays": parts.arrays,
        "random": {key: state for key, state in case.meta.get("random", {}).items() if is_tensor(state)},
        "order": order,
        "output": [_settle(v) for v in outputs] if all(isinstance(v, known) for v in outputs) else [],
        "grad_inputs": [_settle(v) for v in grads],
    }


def _match_gradients(case: Case, parts: Parts) -> tuple[list[int], list[Any]]:
    """Captured gradients and the tensors they belong to: one per tensor of the arguments, as captures are today, or
    those that are there to the tensors that want one, in order, as they were."""
    grads = _flatten(case.grad_inputs)
    if len(set(parts.order)) != len(parts.order):
        return [], []  # of a tensor that comes twice it is not known which part is meant
    if len(grads) == len(parts.order):
        return parts.order, grads
    there = [grad for grad in grads if is_tensor(grad)]
    wanted = [n for n in parts.order if isinstance(parts.tensors[n][-1], str) and "grad" in parts.tensors[n][-1]]
    return (wanted, there) if len(there) == len(wanted) else ([], [])


def _settle(value: Any) -> Any:
    return template.to_cpu(value).clone() if is_tensor(value) and not value.is_meta else value


def _make_state(case: Case) -> dict[str, Any]:
    """Autocast dtypes, determinism, grad mode."""
    state: dict[str, Any] = {"grad": _needs_grad(case)}
    if isinstance(case.meta.get("deterministic"), bool):
        state["deterministic"] = case.meta["deterministic"]
    autocast = case.meta.get("autocast")
    dtypes = []
    for facts in autocast.values() if isinstance(autocast, dict) else ():
        text = str(facts.get("dtype", "")) if isinstance(facts, dict) and facts.get("enabled") else ""
        found = vars(torch).get(text.removeprefix("torch."))
        if isinstance(found, torch.dtype):
            dtypes.append(found)
    if dtypes:
        state["autocast"] = dtypes[:1]
    return state


def _needs_grad(case: Case) -> bool:
    noted = case.meta.get("grad_enabled")
    if isinstance(noted, bool):
        return noted
    inputs = [t for t in _flatten([case.args, case.kwargs]) if is_tensor(t)]
    if case.grad_outputs is not None or not any(t.requires_grad for t in inputs):
        return True
    results = [t for t in _flatten(case.output) if is_tensor(t) and (t.is_floating_point() or t.is_complex())]
    return not results or any(t.requires_grad for t in results)


def _judge(call: template.Call, device: str) -> tuple[str, list[str]]:
    """The captured results against the CPU of this machine; nothing where that cannot be."""
    captured = template.get_captured(call)
    if not captured:
        return "", []
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), torch.random.fork_rng(devices=[]):
            references = template.References(call, template.get_guest(device))
            failed = template.compare_values(references, captured, (), "")
    except Exception as error:  # an operator of a package that is not here, or anything that the operator says
        return "", [f"not judged: {one_line(template.explain(error))}"]
    lines = [line.strip() for line in output.getvalue().splitlines() if line.strip()]
    return ("FAIL" if failed else "PASS"), lines


def _get_text(module: ModuleType) -> str:
    """What a repro has of a module: the text from its mark on, to the next one if there is one."""
    with open(str(module.__file__), encoding="utf-8") as file:
        return file.read().partition("# begin\n")[2].partition("# end\n")[0].strip()


def _write_script(call: template.Call, args: str, kwargs: str, device: str) -> str:
    plain = ["argparse", "contextlib", "importlib", "math", "os", "sys", "types"]
    plain += ["collections"] if "collections.OrderedDict(" in args + kwargs else []
    guests = ["from torch.utils._pytree import tree_map", ""] if call.state.get("autocast") else [""]
    lines = [
        f'"""{call.operator} as it was called: see README.md. `python repro.py --help` tells how to run it."""',
        "",
        "from __future__ import annotations",
        "",
        *(f"import {name}" for name in sorted(plain)),
        "",
        "import torch",
        *guests,
        "# ---- the call; what follows it is the same for every operator: how it is run, and when a result is wrong",
        "",
        f"OPERATOR = {call.operator!r}",
        "# memory, dtype, shape, strides, offset, flags (grad: requires a gradient; cpu: is on the CPU everywhere)",
        "TENSORS = [",
        *(f"    {_write_recipe(recipe)},  # {number}" for number, recipe in enumerate(call.tensors)),
        "]",
        f"ORDER = {call.order}  # the tensors of the arguments, as they come",
        f"GRADS = {call.grads}  # of the results: numbers of tensors",
        f"STATE = {_write_state(call.state)}",
        f"RULE = {_write_flat(call.rule)}  # the numbers of the verdict",
        "# what is known about the operator",
        f"ROW = {_write_flat(call.row)}",
        "",
        "",
        "def make_arguments(c):",
        f"    args = {args}",
        f"    kwargs = {kwargs}",
        "    return args, kwargs",
        "",
        "",
        *(f"{_get_text(module)}\n\n" for module in _list_modules(call)),
        'if __name__ == "__main__":',
        "    DATA = load_data(os.path.dirname(os.path.abspath(__file__)))",
        "    CALL = Call(OPERATOR, TENSORS, make_arguments, ORDER, GRADS, STATE, RULE, ROW, DATA)",
        f"    sys.exit(main(CALL, {device!r}))",
        "",
    ]
    return "\n".join(lines)


def _list_modules(call: template.Call) -> list[ModuleType]:
    extra = [device_autocast] if call.state.get("autocast") else [other_ways] if call.has("scan") else []
    return [moves, rule, *extra, template]


def _write_flat(values: dict[str, Any]) -> str:
    parts = (f'"{key}": {json.dumps(value) if isinstance(value, str) else value}' for key, value in values.items())
    return "{" + ", ".join(parts) + "}"


def _write_recipe(recipe: tuple) -> str:
    if recipe[0] == "whole":
        return repr(recipe)
    memory, dtype, shape, strides, offset, flags = recipe
    return f"({memory}, {dtype}, {tuple(shape)}, {tuple(strides)}, {offset}, {flags!r})"


def _write_state(state: dict[str, Any]) -> str:
    parts = [f'"grad": {state["grad"]}']
    if "deterministic" in state:
        parts.append(f'"deterministic": {state["deterministic"]}')
    if "autocast" in state:
        parts.append(f'"autocast": [{", ".join(map(str, state["autocast"]))}]')
    return "{" + ", ".join(parts) + "}"


def _write_readme(case: Case, call: template.Call, device: str, lines: list[str]) -> str:
    rows = ["| tensor | dtype | shape | strides | offset | flags |", "|---|---|---|---|---|---|"]
    for number, recipe in enumerate(call.tensors):
        if recipe[0] == "whole":
            tensor = call.data["whole"][recipe[1]]
            rows.append(f"| {number} | {tensor.dtype} | {tuple(tensor.shape)} | {tensor.layout} | | |")
        else:
            cells = [str(recipe[1]), str(tuple(recipe[2])), str(tuple(recipe[3])), str(recipe[4]), recipe[5]]
            rows.append(f"| {number} | " + " | ".join(cells) + " |")
    observed = [f"    {line}" for line in lines] or ["    nothing: the capture has no results"]
    facts = {key: case.meta[key] for key in ("torch", "autocast", "deterministic", "time") if case.meta.get(key)}
    text = [
        f"# {call.operator}",
        "",
        "One call of this operator, captured from a program, that runs with torch alone:",
        "",
        f"    python repro.py                 # on {device}",
        "    python repro.py --device cpu    # anywhere",
        "    python repro.py --captured      # judge the captured results, without a device",
        "",
        "It runs the operator on the device, on the CPU, and on the CPU in float64, forward and (where gradients were",
        "captured) backward. It prints the error of each value and where it is worst, then PASS or FAIL; the exit",
        "status is 0, 1, or 2 when it could not be run. A value is right when its error against float64 is within",
        "four times the error that the CPU itself makes in the same precision, and an operator that rounds nothing on",
        "the CPU must be exact; repro.py says how that is computed. `none`: nothing can be said.",
        "",
        "## Seen when this was exported",
        "",
        *observed,
        "",
        f"Judged with torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}.",
        *([f"Captured with: {one_line(json.dumps(facts, default=str))}."] if facts else []),
        "",
        "## Tensors",
        "",
        *rows,
        "",
        "Tensors with the same first number in `TENSORS` of repro.py share memory. data.pt has the bytes and is read",
        "with `torch.load(weights_only=True)`; nothing in it is executed.",
        "",
    ]
    return "\n".join(text)
