"""Captured operator calls of every age: what lies below a path, and one call as values.

`find_cases` looks at names (and at the lists of containers and logs); `load_case` reads one call, `load_item` one file.
Nothing in a file is executed or imported (torch_file). Everything comes back on the CPU, with strides, offsets and
sharing between the tensors of one file kept; `meta["devices"]` tells where the tensors were. docs/tools/case-files.md
lists the layouts. Depends on: torch_file, source, tagged; ditorch for record logs alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..containers import traverse_container
from .limits import Refused, one_line, survey
from .pack import MAGIC as PACK_MAGIC
from .source import FILE, PACK, FileSource, FolderSource, PackSource, Source, open_pack
from .tagged import restore
from .torch_file import CaseError, Limits, load, open_bytes, refuse

__all__ = ["Case", "CaseError", "CaseRef", "Limits", "find_cases", "load_case", "load_item"]

PARTS = ("input", "output", "grad_outputs", "grad_inputs")
LOG = ".dlog"
MAX_NAME = 1000
_SECOND, _MINUTE = r"\d{4}(?:-\d\d){5}", r"\d{4}-\d\d-\d\d--\d\d-\d\d"
LAYOUTS = [
    ("compared", rf"(?P<name>[^/]+)/(?P<pid>\d+)/autocompare/(?P<id>\d+)/(?P<time>{_SECOND})/(?P<role>device|cpu)"),
    ("files", rf"(?P<name>[^/]+)/(?P<pid>\d+)/(?P<id>\d+)/(?P<time>{_SECOND})"),
    ("overflow", r"(?P<name>[^/]+)/(?P<pid>\d+)/(?P<id>\d+)_forward"),
    ("time-first", rf"(?P<time>{_MINUTE})/(?P<pid>\d+)/(?P<name>[^/]+)/(?P<id>\d+)"),
    ("device-first", rf"\d+/(?P<time>{_MINUTE})/(?P<name>[^/]+)/(?P<id>\d+)"),
    ("name-first", r"(?P<name>[^/]*[^/\d][^/]*)/(?P<pid>\d+)/(?P<id>\d+)"),
    ("mismatch", r"(?P<name>[^/]*[^/\d][^/]*)/(?P<pid>\d+)/(?P<role>device|cpu)"),
]
"""Ends of the path of a case's folder, the newest first. time-first: the first version, with (args, kwargs) in args."""
_PATTERNS = [(name, re.compile(rf"(?:^|.*/){text}", re.ASCII | re.DOTALL)) for name, text in LAYOUTS]
_STATE = ("torch", "autocast", "deterministic", "random", "grad_enabled", "inference")


@dataclass(frozen=True)
class CaseRef:
    """Where one captured call lies, and what its path says about it."""

    path: str
    """The case's folder, a .pth file, or `container.dpack#folder`."""
    operator: str = ""
    pid: int | None = None
    id: int | None = None
    time: str = ""
    role: str = "plain"
    """`device` or `cpu` for the two sides of a comparison, else `plain`."""
    layout: str = "unknown"
    error: str = ""
    """Why it cannot be read; empty for a case that may be loaded."""


@dataclass
class Case:
    """One captured call; everything on the CPU."""

    name: str
    args: tuple
    kwargs: dict[str, Any]
    output: Any = None
    grad_outputs: tuple | None = None
    grad_inputs: tuple | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    """`devices` of the tensors of args and kwargs, in order; `layout`, `pid`, `id`, `time`; `parts`: what is there;
    `error`: type and text of the exception that the operator raised; `more`: parts of further backward passes; and,
    where the capture has them, torch, autocast, deterministic, random, grad_enabled, inference."""
    role: str = "plain"
    path: str = ""


# Finding


def find_cases(path: str | os.PathLike = "op_tools_results") -> Iterator[CaseRef]:
    """The captured calls at a path, by operator, then id: a folder with everything below it, one case's folder, one
    .pth file, a container (.dpack), `container#folder`, or a record log (.dlog). What cannot be read yields a CaseRef
    with `error`. CaseError when the path does not exist."""
    path = os.fspath(path)
    container, sign, entry = path.partition(f"{PACK}#")
    if sign:
        found: Iterable[CaseRef] = [ref for ref in _find_packed(container + PACK) if ref.path == path or ref.error]
        found = found or [CaseRef(path, error=f"{one_line(path)}: the container has no case {one_line(entry)!r}")]
    elif os.path.isdir(path):
        found = _find_below(path)
    elif os.path.lexists(path):
        found = _find_in_file(path)
    else:
        raise CaseError(f"{one_line(path, 1000)}: there is no such file or folder")
    return iter(sorted(found, key=_order))


def _order(ref: CaseRef) -> tuple:
    number, pid = (-1 if value is None else value for value in (ref.id, ref.pid))
    names = [(int(name), "") if name.isdecimal() and len(name) <= 18 else (-1, name) for name in ref.path.split("/")]
    return ref.operator, number, pid, ref.time, ref.role != "device", names


def _find_below(root: str) -> Iterator[CaseRef]:
    problems: list[OSError] = []
    for folder, _folders, names in os.walk(root, onerror=problems.append):
        here = {name[: -len(FILE)] for name in names if name.endswith(FILE)}
        if "input" in here:
            yield describe(folder)
        elif here & {"output", "grad_outputs", "grad_inputs"} and not folder.endswith("_backward"):
            yield _fail(describe(folder, name_from_file=False), f"{folder}: there is no input.pth")
        for name in names:
            if name.endswith(PACK):
                yield from _find_packed(os.path.join(folder, name))
    for problem in problems:
        yield CaseRef(os.fspath(problem.filename), error=f"{one_line(problem.filename)}: {problem.strerror}")


def _find_in_file(path: str) -> Iterable[CaseRef]:
    if path.endswith(PACK):
        return _find_packed(path)
    if path.endswith(LOG):
        return _find_logged(path)
    try:
        with refuse(path):
            if bytes(open_bytes(path, Limits())[:8]) == PACK_MAGIC:
                return _find_packed(path)
    except CaseError as error:
        return [CaseRef(path, layout="single", error=str(error))]
    if os.path.basename(path) == "input.pth":
        return [describe(os.path.dirname(path) or ".")]
    return [_name_by_file(CaseRef(path, layout="single"), path)]


def describe(folder: str, name_from_file: bool = True) -> CaseRef:
    """What the path of a case's folder says about it; the file's own word where it says nothing."""
    whole = os.path.abspath(folder).replace(os.sep, "/")
    ref = _describe_path(folder, whole)
    if ref.operator or not name_from_file:
        return ref
    return _name_by_file(ref, os.path.join(folder, "input.pth"))


def _describe_path(path: str, text: str) -> CaseRef:
    for layout, pattern in _PATTERNS:
        match = pattern.fullmatch(text)
        if match is None:
            continue
        facts = match.groupdict()
        if any(len(facts.get(key) or "") > 18 for key in ("pid", "id")):
            continue
        numbers = {key: int(facts[key]) for key in ("pid", "id") if facts.get(key) is not None}
        return CaseRef(
            path,
            facts["name"],
            time=facts.get("time") or "",
            role=facts.get("role") or "plain",
            layout=layout,
            **numbers,
        )
    return CaseRef(path)


def _name_by_file(ref: CaseRef, file: str) -> CaseRef:
    try:
        item = _check_item(load(file, verify=False), file)
    except CaseError as error:
        return _fail(ref, str(error))
    match = re.match(
        rf"(?:autocompare/)?(\d{{1,18}})/({_SECOND})(?:/(device|cpu))?(?:/|$)", str(item.get("identifier"))
    )
    if match:
        ref = replace(ref, id=int(match[1]), time=match[2], role=match[3] or ref.role)
    return replace(ref, operator=item["name"])


def _fail(ref: CaseRef, reason: str) -> CaseRef:
    return replace(ref, error=one_line(reason, 2000))


def _find_packed(path: str) -> list[CaseRef]:
    try:
        with refuse(path):
            pack = open_pack(path, Limits())
            refs = []
            for folder in pack.folders:
                ref = replace(_describe_path(f"{path}#{folder}", folder), layout="packed")
                if f"{folder}/input.pth" not in pack.items:
                    ref = _fail(ref, f"{ref.path}: there is no input.pth")
                refs.append(ref)
            return refs
    except CaseError as error:
        return [CaseRef(path, layout="packed", error=str(error))]


def _find_logged(path: str) -> list[CaseRef]:
    """The cases that the capture records of a log name, which lie beside the log's folder."""
    from ditorch import export

    folder = os.path.dirname(os.path.abspath(path))
    root = os.path.dirname(folder) if os.path.basename(folder) == "log" else folder
    packed = _list_packed(root)
    refs: dict[str, CaseRef] = {}
    try:
        for record in export.read(path, types=["capture"]):
            place = os.path.dirname(str(record.get("path", "")))
            if place not in refs:
                refs[place] = _find_recorded(root, place, packed)
    except (OSError, ValueError, NotImplementedError, export.ExportError) as error:
        refs[""] = CaseRef(path, layout="log", error=one_line(error))
    return list(refs.values())


def _list_packed(root: str) -> dict[str, CaseRef]:
    names = sorted(name for name in os.listdir(root) if name.endswith(PACK))
    found = [ref for name in names for ref in _find_packed(os.path.join(root, name))]
    return {ref.path.partition(f"{PACK}#")[2]: ref for ref in found}


def _find_recorded(root: str, place: str, packed: dict[str, CaseRef]) -> CaseRef:
    if not place or os.path.isabs(place) or ".." in place.split("/"):
        return CaseRef(one_line(place), layout="log", error=f"{one_line(place)}: a log names files beside it alone")
    if place in packed:
        return packed[place]
    folder = os.path.join(root, place)
    if not os.path.isfile(os.path.join(folder, "input.pth")):
        return _fail(_describe_path(folder, place), f"{folder}: the log names it, but there is no input.pth")
    return describe(folder)


# Loading


def load_case(ref: CaseRef | str | os.PathLike, limits: Limits | None = None, verify: bool = True) -> Case:
    """Read one call. CaseError, one line, for anything that is wrong with it. `verify=False` does not check the
    checksums of files (torch can be told to write none)."""
    ref = ref if isinstance(ref, CaseRef) else _get_ref(os.fspath(ref))
    if ref.error:
        raise CaseError(ref.error)
    limits = limits or Limits()
    if f"{PACK}#" in ref.path:
        source: Source = PackSource(ref.path, limits)
    elif os.path.isdir(ref.path):
        source = FolderSource(ref.path, limits, verify)
    else:
        source = FileSource(ref.path, limits, verify)
    return _make_case(ref, source)


def load_item(path: str | os.PathLike, limits: Limits | None = None, verify: bool = True) -> dict[str, Any]:
    """One file of a call: {"name", "args", "kwargs", "identifier"}, on the CPU. CaseError as of load_case."""
    return _read_part(FileSource(os.fspath(path), limits or Limits(), verify), "input", "single")


def _get_ref(path: str) -> CaseRef:
    if os.path.isdir(path) and os.path.lexists(os.path.join(path, "input.pth")):
        return describe(path, name_from_file=False)
    refs = list(find_cases(path))
    if len(refs) != 1:
        raise CaseError(f"{one_line(path, 1000)}: holds {len(refs)} cases; give one of what find_cases() lists")
    return refs[0]


def _check_item(item: Any, file: str) -> dict[str, Any]:
    with refuse(file):
        if not isinstance(item, dict) or "name" not in item or "args" not in item:
            raise Refused("it is no captured call: expected a dictionary with name, args and kwargs")
        if type(item["name"]) is not str or not 0 < len(item["name"]) <= MAX_NAME:
            raise Refused("it is no captured call: its name is no text")
        kwargs = item.get("kwargs") or {}
        if not isinstance(item["args"], (tuple, list)) or not isinstance(kwargs, dict):
            raise Refused("it is no captured call: its args are no tuple or its kwargs no dictionary")
        if any(type(key) is not str for key in kwargs):
            raise Refused("it is no captured call: a keyword is no text")
        return {**item, "args": tuple(item["args"]), "kwargs": dict(kwargs)}


def _is_old(item: dict[str, Any], layout: str) -> bool:
    """The first version of the original kept (args, kwargs) in args."""
    args = item["args"]
    pair = not item["kwargs"] and len(args) == 2 and isinstance(args[0], tuple) and isinstance(args[1], dict)
    return pair and (layout == "time-first" or "identifier" not in item)


def _read_part(source: Source, part: str, layout: str) -> dict[str, Any]:
    file = source.get_path(part)
    item = _check_item(source.read(part), file)
    if _is_old(item, layout):
        args, kwargs = item["args"]
        item = _check_item({**item, "args": args, "kwargs": kwargs}, file)
    with refuse(file):
        return {**item, "args": restore(item["args"]), "kwargs": restore(item["kwargs"])}


def _make_case(ref: CaseRef, source: Source) -> Case:
    parts = source.list_parts()
    if "input" not in parts:
        raise CaseError(f"{one_line(ref.path, 1000)}: there is no input.pth")
    item = _read_part(source, "input", ref.layout)
    case = Case(item["name"], item["args"], item["kwargs"], role=ref.role, path=ref.path)
    case.meta = {"layout": ref.layout, "pid": ref.pid, "id": ref.id, "time": ref.time, "parts": parts}
    case.meta["devices"] = _list_devices(case, source.locations)
    case.meta.update(_read_state(source, item))
    for part in parts:
        if re.fullmatch(r"output|error|grad_(?:in|out)puts(?:_\d+)?", part):
            _take_part(case, part, _read_part(source, part, ref.layout)["args"])
    return case


def _take_part(case: Case, part: str, args: tuple) -> None:
    if part == "output":
        case.output = args[0] if len(args) == 1 else args
    elif part in ("grad_inputs", "grad_outputs"):
        setattr(case, part, args)
    elif part == "error":
        case.meta["error"] = tuple(one_line(value, 2000) for value in traverse_container(args))
    else:
        case.meta.setdefault("more", {})[part] = args


def _list_devices(case: Case, locations: dict[int, str]) -> list[str]:
    found = []
    for value in traverse_container([case.args, list(case.kwargs.values())]):
        if isinstance(value, torch.Tensor):
            plain = value._values() if value.layout is torch.sparse_coo else value
            plain = plain.values() if plain.layout not in (torch.strided, torch.sparse_coo) else plain
            storage = None if plain.is_meta else plain.untyped_storage()
            found.append("meta" if storage is None else locations.get(storage._cdata, ""))
    return found


def _read_state(source: Source, item: dict[str, Any]) -> dict[str, Any]:
    """The state of the process, from the companion's (or the item's) member "state". One that is no sound JSON, as an
    interrupted run leaves it, says nothing."""
    state = item.get("state")
    text = source.read_json() if not isinstance(state, dict) else None
    if text is not None:
        try:
            content = json.loads(text.decode("utf-8"))  # of bytes, json would guess the encoding, and import it
        except (ValueError, RecursionError):
            return {}
        state = content.get("state") if isinstance(content, dict) else None
    if not isinstance(state, dict):
        return {}
    with refuse(source.get_path("input")):
        survey(state, Limits(items=10_000, depth=8))
    found = {key: state[key] for key in _STATE if key in state}
    if "random" in found:
        found["random"] = _read_random(found["random"])
    return found


def _read_random(states: Any) -> dict[str, torch.Tensor]:
    """Generator states by device: base64 text in the companion, tensors of bytes in an item."""
    found = {}
    for device, state in states.items() if isinstance(states, dict) else ():
        if isinstance(state, str):
            try:
                data = base64.b64decode(state, validate=True)
            except (binascii.Error, ValueError):
                continue
            state = torch.frombuffer(bytearray(data), dtype=torch.uint8).clone() if data else None
        if isinstance(state, torch.Tensor) and state.dtype == torch.uint8 and state.dim() == 1:
            found[str(device)] = state
    return found
