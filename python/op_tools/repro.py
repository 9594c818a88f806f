"""A captured call as a folder that runs with torch alone: for the engineer who has the device and not this package.

`write_repro` makes repro.py (the call, readable, and the rule of the verdict), data.pt (bytes, read with
weights_only=True) and README.md. Names and values of the capture get into the script as literals only; a function that
is not an operator is refused, unless the user names its package. Depends on: case, operator_lookup, repro_template.
"""

from __future__ import annotations

import contextlib
import io
import json
import keyword
import math
import os
import platform
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import repro_template
from .case import Case, CaseError
from .containers import traverse_container
from .described import Described
from .operator_lookup import LookupFailure, find_function
from .safe_pickle import one_line

__all__ = ["ReproError", "write_repro"]

_VENDOR = re.compile(r"torch_\w+", re.ASCII)
_DEVICE = re.compile(
    r"(?!cpu|meta)(cuda|npu|mlu|musa|xpu|hpu|mps|xla|privateuseone|sdaa|gcu|supa|dipu)(:\d+)?", re.ASCII
)


class ReproError(CaseError):
    """A case that cannot be exported; the text says why."""


@dataclass
class _Parts:
    """What the call is made of: numbered tensors, and the data that goes into data.pt."""

    tensors: list[tuple] = field(default_factory=list)
    memory: list[torch.Tensor] = field(default_factory=list)
    whole: list[torch.Tensor] = field(default_factory=list)
    generators: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    arrays: list[torch.Tensor] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    """Numbers of the tensors of the arguments, as they come."""
    numbers: dict[int, int] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    """Objects whose ids are keys above."""

    def add_tensor(self, tensor: torch.Tensor, stays: bool) -> int:
        if id(tensor) not in self.numbers:
            self.kept.append(tensor)
            self.numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(self._describe(tensor, stays))
        return self.numbers[id(tensor)]

    def _describe(self, tensor: torch.Tensor, stays: bool) -> tuple:
        plain = tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested or tensor.is_meta)
        if not plain:
            self.whole.append(tensor.detach())
            return ("whole", len(self.whole) - 1)
        flags = [name for name, is_on in self._flags(tensor, stays) if is_on]
        memory = self.add_storage(tensor.untyped_storage())
        return (memory, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), " ".join(flags))

    @staticmethod
    def _flags(tensor: torch.Tensor, stays: bool) -> list[tuple[str, bool]]:
        return [
            ("grad", tensor.requires_grad),
            ("conj", tensor.is_conj()),
            ("neg", tensor.is_neg()),
            ("cpu", stays),
        ]

    def add_storage(self, storage: torch.UntypedStorage) -> int:
        key = storage._cdata
        if key not in self.storages:
            self.kept.append(storage)
            self.storages[key] = len(self.memory)
            self.memory.append(torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,)))
        return self.storages[key]


# ---- from values to the script


class _Writer:
    """Values as source text, and as values of one run: the same walk twice, so that the script and what is measured
    here cannot differ."""

    def __init__(self, case: Case) -> None:
        self.case, self.parts = case, _Parts()
        homes = case.meta.get("devices") or []
        tensors = [v for v in traverse_container([case.args, list(case.kwargs.values())]) if _is_tensor(v)]
        away = any(home not in ("", "cpu", "meta") for home in homes)
        known = away and len(homes) == len(tensors)
        self.stays = {id(t) for t, home in zip(tensors, homes, strict=False) if known and home in ("", "cpu")}
        for tensor in tensors:
            self.parts.order.append(self.parts.add_tensor(tensor, id(tensor) in self.stays))

    def write(self, value: Any) -> str:
        """An expression; `c` is the Inputs of a run."""
        return self._walk(value, _text)

    def make(self, value: Any, inputs: Any) -> Any:
        return self._walk(value, lambda kind, *facts: _value(inputs, kind, *facts))

    def _walk(self, value: Any, give: Callable[..., Any]) -> Any:
        if _is_tensor(value):
            return give("tensor", self.parts.add_tensor(value, id(value) in self.stays))
        if isinstance(value, torch.device):
            return give("literal", value) if value.type in ("cpu", "meta") else give("device")
        if isinstance(value, str) and _DEVICE.fullmatch(value):
            return give("device name")
        if isinstance(value, torch.dtype):
            return give("dtype", value)
        if isinstance(value, torch.Generator):
            return give("generator", self._add_generator(value.device.type, value.get_state()))
        if isinstance(value, Described) and value.kind == "generator" and _is_tensor(value.facts.get("state")):
            return give("generator", self._add_generator(str(value.facts.get("device")), value.facts["state"]))
        if isinstance(value, (torch.UntypedStorage, torch.storage.TypedStorage)):
            untyped = value if isinstance(value, torch.UntypedStorage) else value._untyped_storage
            return give("storage", self.parts.add_storage(untyped))
        if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
            return give("array", self._add_array(value))
        return self._walk_container(value, give)

    def _walk_container(self, value: Any, give: Callable[..., Any]) -> Any:
        if isinstance(value, torch.Size):
            return give("literal", value)
        if isinstance(value, dict):
            pairs = [(self._walk(key, give), self._walk(item, give)) for key, item in value.items()]
            return give("ordered" if isinstance(value, OrderedDict) else "dict", pairs)
        for kind in (tuple, list, set, frozenset):
            if isinstance(value, kind):
                return give(kind.__name__, [self._walk(item, give) for item in value])
        if isinstance(value, slice):
            return give("slice", [self._walk(part, give) for part in (value.start, value.stop, value.step)])
        return give("literal", value)

    def _add_generator(self, kind: str, state: torch.Tensor) -> int:
        self.parts.generators.append((kind.split(":")[0], state.cpu().clone()))
        return len(self.parts.generators) - 1

    def _add_array(self, array: Any) -> int:
        import numpy

        try:
            self.parts.arrays.append(torch.from_numpy(numpy.array(array, dtype=array.dtype.newbyteorder("="))))
        except TypeError as error:
            raise ReproError(f"{one_line(self.case.path)}: {one_line(error)}") from None
        return len(self.parts.arrays) - 1


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _value(inputs: Any, kind: str, *facts: Any) -> Any:
    """One value of a run."""
    simple = {
        "tensor": lambda number: inputs.tensor(number),
        "device": lambda: inputs.get_device(),
        "device name": lambda: str(inputs.get_device()),
        "dtype": lambda dtype: inputs.dtype(dtype),
        "generator": lambda number: inputs.generator(number),
        "array": lambda number: inputs.array(number),
        "storage": lambda number: inputs.storage(number),
        "literal": lambda value: value,
        "dict": dict,
        "ordered": OrderedDict,
        "slice": lambda parts: slice(*parts),
        "tuple": tuple,
        "list": list,
        "set": set,
        "frozenset": frozenset,
    }
    return simple[kind](*facts)


def _text(kind: str, *facts: Any) -> str:
    """The same as an expression."""
    if kind == "literal":
        return write_literal(facts[0])
    if kind == "dtype":
        return f"c.dtype({facts[0]})"
    if kind in ("tensor", "generator", "array", "storage"):
        return f"c.{kind}({facts[0]})"
    if kind in ("device", "device name"):
        return "c.get_device()" if kind == "device" else "str(c.get_device())"
    items = facts[0]
    if kind in ("dict", "ordered"):
        if kind == "dict":
            return "{" + ", ".join(f"{key}: {item}" for key, item in items) + "}"
        return "collections.OrderedDict([" + ", ".join(f"({key}, {item})" for key, item in items) + "])"
    inside = ", ".join(items)
    if kind == "tuple":
        return f"({inside},)" if len(items) == 1 else f"({inside})"
    return {"list": "[{}]", "set": "set([{}])", "frozenset": "frozenset([{}])", "slice": "slice({})"}[kind].format(
        inside
    )


def write_literal(value: Any) -> str:
    """A value that Python or torch has a notation for. ReproError for others."""
    if value is None or value is Ellipsis or isinstance(value, (bool, bytes, bytearray)):
        return repr(value)
    if isinstance(value, int):
        return hex(value) if abs(value) >= 1 << 64 else repr(int(value))
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    if isinstance(value, complex):
        return f"complex({write_literal(value.real)}, {write_literal(value.imag)})"
    if isinstance(value, str):
        return ascii(str(value))
    if isinstance(value, (torch.memory_format, torch.layout, torch.qscheme)):
        return str(value)
    if isinstance(value, torch.Size):
        return f"torch.Size({list(value)})"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, range):
        return repr(value)
    name = _name_function(value) if callable(value) else None
    if name is None:
        what = f"a description of a {value.kind}" if isinstance(value, Described) else f"a {type(value).__name__}"
        raise ReproError(f"the call has {what} among its arguments, which cannot be written down")
    return name


def _name_function(value: Any) -> str | None:
    """torch.nn.functional.relu, when that is what it is."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    candidates = [torch.overrides.resolve_name(value), f"{module}.{name}"]
    for text in candidates:
        if isinstance(text, str) and text.startswith("torch.") and _is_dotted(text):
            with contextlib.suppress(AttributeError):
                found: Any = torch
                for part in text.split(".")[1:]:
                    found = getattr(found, part)
                if found is value:
                    return text
    return None


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() and part.isascii() and not keyword.iskeyword(part) for part in name.split("."))


# ---- the folder


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
    writer = _Writer(case)
    args, kwargs = writer.write(tuple(case.args)), writer.write(dict(case.kwargs))
    grads = [writer.parts.add_tensor(g, False) if _is_tensor(g) else None for g in _flatten(case.grad_outputs)]
    data = _make_data(case, writer.parts)
    state = _make_state(case)
    call = repro_template.Call(
        case.name,
        writer.parts.tensors,
        lambda inputs: (writer.make(tuple(case.args), inputs), writer.make(dict(case.kwargs), inputs)),
        grads,
        state,
        data,
    )
    verdict, lines = _judge(call) if is_here else ("", ["not judged: the operator is not torch's own"])
    script = _write_script(call, args, kwargs, device)
    os.makedirs(directory, exist_ok=True)
    torch.save(data, os.path.join(directory, "data.pt"))
    for name, text in (("repro.py", script), ("README.md", _write_readme(case, call, device, lines))):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)
    return {"folder": os.fspath(directory), "verdict": verdict, "lines": lines}


def _check_operator(case: Case, modules: Sequence[str]) -> bool:
    """True for an operator that may run here and now; False for one of a vendor's package, which only the script's
    reader decides to import. ReproError for everything else."""
    package = case.name.partition(".")[0]
    try:
        if not re.fullmatch(r"\w+(::\w+)?(\.\w+)*", case.name, re.ASCII):
            raise LookupFailure(f"{one_line(case.name, 100)!r} is no name of an operator")
        if "::" not in case.name and package not in modules and _VENDOR.fullmatch(package):
            if not _is_dotted(case.name):
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


def _make_data(case: Case, parts: _Parts) -> dict[str, Any]:
    order, grads = _match_gradients(case, parts)
    outputs = _flatten(case.output) if "output" in case.meta.get("parts", ("output",)) else []
    known = (torch.Tensor, str, bool, int, float, complex, type(None))
    return {
        "memory": parts.memory,
        "whole": parts.whole,
        "generators": parts.generators,
        "arrays": parts.arrays,
        "random": {key: state for key, state in case.meta.get("random", {}).items() if _is_tensor(state)},
        "order": order,
        "output": [_settle(v) for v in outputs] if all(isinstance(v, known) for v in outputs) else [],
        "grad_inputs": [_settle(v) for v in grads],
    }


def _match_gradients(case: Case, parts: _Parts) -> tuple[list[int], list[Any]]:
    """Captured gradients and the tensors they belong to: one per tensor of the arguments, as captures are today, or
    those that are there to the tensors that want one, in order, as they were."""
    grads = _flatten(case.grad_inputs)
    if len(set(parts.order)) != len(parts.order):
        return [], []  # of a tensor that comes twice it is not known which part is meant
    if len(grads) == len(parts.order):
        return parts.order, grads
    there = [grad for grad in grads if _is_tensor(grad)]
    wanted = [n for n in parts.order if isinstance(parts.tensors[n][-1], str) and "grad" in parts.tensors[n][-1]]
    return (wanted, there) if len(there) == len(wanted) else ([], [])


def _settle(value: Any) -> Any:
    return repro_template.to_cpu(value).clone() if _is_tensor(value) and not value.is_meta else value


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
    inputs = [t for t in _flatten([case.args, case.kwargs]) if _is_tensor(t)]
    if case.grad_outputs is not None or not any(t.requires_grad for t in inputs):
        return True
    results = [t for t in _flatten(case.output) if _is_tensor(t) and (t.is_floating_point() or t.is_complex())]
    return not results or any(t.requires_grad for t in results)


def _judge(call: repro_template.Call) -> tuple[str, list[str]]:
    """The captured results against the CPU of this machine; nothing where that cannot be."""
    captured = repro_template.get_captured(call)
    if not captured:
        return "", []
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), torch.random.fork_rng(devices=[]):
            facts = repro_template.references(call)
            failed = repro_template.compare(call, captured, (), "", facts)
    except Exception as error:  # an operator of a package that is not here, or anything that the operator says
        return "", [f"not judged: {one_line(repro_template.explain(error))}"]
    lines = [line.strip() for line in output.getvalue().splitlines() if line.strip()]
    return ("FAIL" if failed else "PASS"), lines


def _get_body() -> str:
    """The template from its mark on."""
    with open(repro_template.__file__, encoding="utf-8") as file:
        text = file.read()
    return text.partition("# begin\n")[2]


def _write_script(call: repro_template.Call, args: str, kwargs: str, device: str) -> str:
    body = _get_body().rstrip()
    imports, _, rest = body.partition("import torch\n")
    collections = "import collections\n" if "collections.OrderedDict(" in args + kwargs else ""
    imports = imports.replace("import argparse\n", f"import argparse\n{collections}")
    lines = [
        f'"""{call.operator} as it was called: see README.md. `python repro.py --help` tells how to run it."""',
        "",
        imports.rstrip(),
        "",
        "import torch",
        "",
        "# ---- the call",
        "",
        f"OPERATOR = {call.operator!r}",
        "# memory, dtype, shape, strides, offset, flags (grad: requires a gradient; cpu: is on the CPU everywhere)",
        "TENSORS = [",
        *(f"    {_write_recipe(recipe)},  # {number}" for number, recipe in enumerate(call.tensors)),
        "]",
        f"GRADS = {call.grads}  # of the results: numbers of tensors",
        f"STATE = {_write_state(call.state)}",
        "",
        "",
        "def make_arguments(c):",
        f"    args = {args}",
        f"    kwargs = {kwargs}",
        "    return args, kwargs",
        "",
        "",
        "# ---- how it is run and judged: the error against float64 on the CPU must be within 4 times the error that",
        "# the CPU itself makes in the same precision: 4 * (2u|r| + residual), with the unit roundoff u of the dtype,",
        "# the value r in float64, and the largest part of the CPU's error beyond 2u|r| as residual",
        rest.rstrip(),
        "",
        "",
        'if __name__ == "__main__":',
        "    DATA = load_data(os.path.dirname(os.path.abspath(__file__)))",
        "    CALL = Call(OPERATOR, TENSORS, make_arguments, GRADS, STATE, DATA)",
        f"    sys.exit(main(CALL, {device!r}))",
        "",
    ]
    return "\n".join(lines)


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


def _write_readme(case: Case, call: repro_template.Call, device: str, lines: list[str]) -> str:
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
        "four times the error that the CPU itself makes in the same precision; repro.py says how that is computed.",
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
