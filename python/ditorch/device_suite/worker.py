"""The process that checks entries: lines of JSON on standard input (first the options, then tasks), one answer each.

The operator database is imported before the device is loaded (see `COMMAND`), so that its dtype tables describe the CPU
and CUDA as PyTorch was built, not the device under test. What operators print goes to standard error. What runs at a
moment stands in the notes, a file with a slot per task, for the report of a crash or a hang.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from ..worker_notes import Notes

COMMAND = (
    "from torch.testing._internal import common_methods_invocations\n"
    "from ditorch.device_suite import worker\nraise SystemExit(worker.main())"
)


def list_entries() -> dict[str, Any]:
    from torch.testing._internal import common_methods_invocations

    from .entry import entry_name

    return {entry_name(op): op for op in common_methods_invocations.op_db}


def make_catalog() -> dict[str, Any]:
    """The entries and their dtypes on the CPU and on CUDA."""

    def names(dtypes: Any) -> list[str]:
        return sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)

    return {
        name: {"cpu": names(op.supported_dtypes("cpu")), "cuda": names(op.supported_dtypes("cuda"))}
        for name, op in list_entries().items()
    }


def free_the_seeds() -> None:
    """The database runs random operators under a fixed seed and restores it; here the seeds are set by entry.py."""

    def call(op: Any, *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal") and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = call


def forget_absent_devices() -> None:
    """torch.manual_seed queues the seed for device types that are not there, with a traceback: 2 ms for each sample."""
    import torch

    for name in ("xpu", "mtia"):
        module = getattr(torch, name, None)
        if module is not None and not module.is_available():
            module.manual_seed_all = lambda seed: None


def run_task(task: dict[str, Any], options: dict[str, Any], op: Any, notes: Notes) -> dict[str, Any]:
    """The answer to one task: status pass, fail, undecided or cpu_fails, message, counts. Nothing is raised."""
    import torch

    from . import compare, tolerance
    from .entry import CpuFails, Entry, describe_crash

    begin = time.perf_counter()
    answer: dict[str, Any] = {"index": task["index"], "status": "pass", "message": ""}
    dtype = getattr(torch, task["dtype"])
    kind: Any = Entry
    if options["compiled"]:
        from .compiled import CompiledEntry

        kind = functools.partial(CompiledEntry, backend=options["compiled"], dynamic=options.get("dynamic", False))
    entry = kind(
        op,
        dtype,
        options["device"],
        tolerance.choose(dtype, task["table"], task["tolerance"]),
        task["table"]["checks"],
        task["samples"],
        task["table"]["database"],
        lambda text: notes.write(task["index"], text),
    )
    try:
        entry.run()
        if entry.is_undecided:
            answer.update(status="undecided", message=entry.comparison.reason)
    except CpuFails as error:
        answer.update(status="cpu_fails", message=str(error))
    except compare.Difference as error:
        answer.update(status="fail", message=str(error))
    except Exception as error:
        answer.update(status="fail", message=describe_crash(error))
    seconds = round(time.perf_counter() - begin, 3)
    if options["compiled"]:
        answer["compiled"] = entry.made
    if options.get("models"):
        answer["call"] = str(op.call)
    return {**answer, **entry.counts, "seconds": seconds, "c": entry.ledger.c, "fallback": entry.ledger.fallback}


def prepare(options: dict[str, Any]) -> dict[str, Any]:
    """Load the device and look at it: {"error"} or facts about it and the database."""
    import torch

    import ditorch

    if options["load"] and options["load"] != "ditorch":
        __import__(options["load"])
    torch.set_num_threads(1)
    name = options["device"]
    try:
        device = torch.device(name)
        torch.zeros(2, device=device).add_(1)
        describe = getattr(getattr(torch, device.type, None), "get_device_name", None)
        text = describe(device) if describe else device.type
    except Exception as error:
        lines = str(error).splitlines()
        return {"error": f"device {name!r} cannot be used: {lines[0] if lines else type(error).__name__}"}
    torch.set_float32_matmul_precision("highest")  # the CPU has no such rounding as TF32
    torch._C._set_cudnn_allow_tf32(False)  # the database's import locks torch.backends.cudnn
    entries = {} if options.get("models") else make_catalog()
    return {"device": text, "torch": torch.__version__, "backend": ditorch.backend, "entries": entries}


def is_usable(device: str) -> bool:
    """False after an error that stays, such as an assertion in a CUDA kernel: every later call would fail."""
    import torch

    try:
        return torch.ones(2, device=device).cpu().tolist() == [1.0, 1.0]
    except Exception:
        return False


def choose_finder(options: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """What a task is about: an entry of the database, or a recorded call of a model."""
    if options.get("models"):
        from .model_entry import make_op

        return make_op
    table = list_entries()
    return lambda task: table[task["entry"]]


def main() -> int:
    """Serve tasks until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    faulthandler.enable()
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    options = json.loads(sys.stdin.readline())
    facts = prepare(options)
    free_the_seeds()
    forget_absent_devices()
    find, notes = choose_finder(options), Notes(options["notes"])
    send({"ready": facts})
    if "error" in facts:
        return 2
    for line in sys.stdin:
        task = json.loads(line)
        answer = run_task(task, options, find(task), notes)
        if answer["status"] == "fail" and not is_usable(options["device"]):
            send({**answer, "last": True})
            return 0
        send(answer)
    return 0
