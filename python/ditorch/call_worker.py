"""A worker (worker_pool.py) whose tasks are calls of one function: python -m ditorch.call_worker.

The options name the function as "module:name", and one that is called first with `arguments` (its answer, a dictionary,
is the worker's facts). A task has the arguments of a call. Arguments and answers are JSON. What is printed goes to
standard error.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

COMMAND = [sys.executable, "-W", "ignore", "-m", "ditorch.call_worker"]


def make_options(
    call: Callable[..., Any], start: Callable[..., Any] | None = None, arguments: Sequence[Any] = ()
) -> dict:
    """For Pool: functions of modules, found again by their names."""
    return {"call": _name(call), "start": _name(start) if start else "", "arguments": list(arguments)}


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def _find(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _describe(error: Exception) -> dict[str, str]:
    return {"stage": "raise", "type": type(error).__name__, "text": str(error)}


def main() -> int:
    """Serve tasks until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    options = json.loads(sys.stdin.readline())
    try:
        function = _find(options["call"])
        facts = _find(options["start"])(*options["arguments"]) if options["start"] else {}
    except Exception as error:  # whatever it is, the parent tells it
        send({"ready": {"error": f"{type(error).__name__}: {error}"}})
        return 2
    send({"ready": {"function": options["call"], **(facts or {})}})
    for line in sys.stdin:
        task = json.loads(line)
        try:
            answer = {"value": function(*task["arguments"])}
        except Exception as error:
            answer = {"error": _describe(error)}
        send({"index": task["index"], **answer})
    return 0


if __name__ == "__main__":
    sys.exit(main())
