"""Why a tool saw what it saw: the line at the end, and the answer to "why is my output empty?"."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ditorch import _C

from . import selection
from .console import count

if TYPE_CHECKING:
    from .tool import Tool

_REASONS = {
    "step": "in steps that are not selected",
    "condition": "refused by condition_func",
    "cpu": "on the CPU",
    "name": "not on the lists",
    "numel": "outside the limits of numel",
    "module": "from other modules",
    "first": "beyond the first {first} of their kind",
    "cap": "beyond the caps",
}


def explain(tool: Tool, counts: dict[str, int]) -> str:
    """`OpObserve: 1,103 calls seen, 1,090 observed; 13 on the CPU`."""
    title, verb = type(tool).__name__, tool.verb
    seen, applied = counts.get("seen", 0), counts.get("applied", 0)
    parts = _list_reasons(tool, counts)
    if applied:
        return "; ".join([f"{title}: {count(seen, 'call')} seen, {count(applied)} {verb}", *parts])
    return f"{title}: nothing was {verb}. {_explain_nothing(tool, counts, parts)}"


def explain_nothing(tool: Tool, counts: dict[str, int]) -> str:
    """Why no call reached the tool; empty when one did."""
    return "" if counts.get("applied", 0) else _explain_nothing(tool, counts, _list_reasons(tool, counts))


def explain_idle(tool: Tool, counts: dict[str, int]) -> str:
    """Why no call reached the tool, or which entries of its lists met none; empty when neither is so."""
    why = explain_nothing(tool, counts)
    if why or not counts.get("seen", 0):
        return why
    entries = tool._selection.list_idle()
    return f"no call is meant by {', '.join(map(repr, entries))}" if entries else ""


def _list_reasons(tool: Tool, counts: dict[str, int]) -> list[str]:
    first = tool._options.get_value("first")
    return [
        f"{count(counts[key])} {words.format(first=first)}" for key, words in _REASONS.items() if counts.get(key, 0) > 0
    ]


def _explain_nothing(tool: Tool, counts: dict[str, int], parts: list[str]) -> str:
    chosen, options = tool._selection, tool._options
    rank = selection.get_rank()
    if rank not in chosen.ranks:
        return f"This is rank {rank}; {options['ranks'].origin} selects {options['ranks'].text}"
    if tool._due_steps == 0:
        last = _C.engine_get_step()
        wanted = ", ".join(f"{name}={options[name].text}" for name in ("steps", "every") if _is_set(tool, name))
        hint = "" if last > tool._first_step else "; step() begins the next step"
        return f"No selected step came: {wanted} against steps {tool._first_step} to {last}{hint}"
    if counts.get("seen", 0) == 0 and tool._attached:
        return (
            "No hooked function was called; names that other modules imported before apply_feature are not reached "
            "(everywhere=True)"
        )
    if counts.get("seen", 0) == 0:
        return (
            "No operator was called between start() and stop() on the thread that started it; threads=all watches "
            "every thread, level=aten also sees operators that other libraries call"
        )
    hints = [f"Of {count(counts['seen'], 'call')} seen, {', '.join(parts) or 'none was an operator'}"]
    if counts.get("cpu", 0):
        hints.append("cpu=1 takes in calls that touch only the CPU")
    if counts.get("name", 0):
        hints += _explain_names(tool)
    for name in ("numel_min", "numel_max", "modules"):
        if _is_set(tool, name) and counts.get("module" if name == "modules" else "numel", 0):
            hints.append(f"{options[name].origin} is {options[name].text}")
    return "; ".join(hints)


def _explain_names(tool: Tool) -> list[str]:
    """The lists that were set, and those of the names that came which are nearest to what they want."""
    chosen, options = tool._selection, tool._options
    lists = [name for name in ("list", "disable_list", "include", "exclude") if _is_set(tool, name)]
    used = [f"{name} is {options[name].text!r}" for name in lists]
    if not chosen.names:
        return [f"the list is empty ({options['list'].origin}), which switches the tool off"]
    hints = [", ".join(used) if used else f"they are not among those that {type(tool).__name__} takes without a list"]
    wanted = chosen.include.text or chosen.names.text
    names = sorted(chosen.rejected)
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.3) or names[:3]
    if near:
        hints.append(f"names that came: {', '.join(near)}" + (" ..." if len(names) > len(near) else ""))
    return hints


def _is_set(tool: Tool, name: str) -> bool:
    return tool._options[name].source != "default"
