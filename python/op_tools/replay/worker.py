"""One case at a time: what `ditorch replay` does with it, and the process that does it for others.

As a process (python -m op_tools.replay.worker): standard input brings lines of JSON, first the options, then tasks;
standard output answers each with one line. Whatever operators print goes to standard error. The end of the input is the
end of the process. A case that kills the process, or hangs, costs this process alone.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from typing import Any

from .report import clean

PARTS = ("accuracy", "speed", "memory")
STORED = "stored"
"""In the place of a device: what was captured is judged, and nothing is run there."""


def choose_device(name: str) -> str:
    """The device of "cuda@library", with that operator library in place."""
    device, _, library = name.partition("@")
    if library:
        from ditorch import _C

        _C.diopi_activate(library)
    return device


def run_task(task: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The parts of a task that were asked for. What goes wrong is in `error` (stage, type, text), never raised."""
    begin = time.perf_counter()
    answer: dict[str, Any] = {"index": task["index"], "name": "", "error": None}
    stage, case = "load", None
    try:
        from ..reader import CaseRef, load_case

        case = load_case(CaseRef(**task["ref"]))
        answer["name"] = case.name
        stage = "run"
        device = choose_device(task["device"])
        for part in PARTS:
            if part in task["parts"] and (part == "accuracy" or device != STORED):
                answer[part] = _DO[part](case, device, options)
    except Exception as error:
        if stage == "run" and case.meta.get("error"):
            answer["accuracy"] = [_judge_exception(error, case)]
        else:
            answer["error"] = describe_error(error, stage)
    _release(task["device"].partition("@")[0])
    answer["seconds"] = time.perf_counter() - begin
    return clean(answer)


def _judge_exception(error: Exception, case: Any) -> dict[str, Any]:
    """The call failed when it was captured too."""
    captured = ": ".join(map(str, case.meta["error"]))
    found = describe_error(error, "run")
    return {
        "against": "stored",
        "verdict": "pass",
        "reason": f"raises {found['type']}: {found['text']}; captured was {captured}"[:500],
        "values": [],
    }


def describe_error(error: BaseException, stage: str) -> dict[str, str]:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return {"stage": stage, "type": type(error).__name__, "text": (lines[0] if lines else "")[:500]}


def _make_runner(case: Any, device: str, options: dict[str, Any]) -> Any:
    from ..op_runner import OpRunner

    return OpRunner(case, device=device, modules=options["modules"], quiet=True)


def _do_accuracy(case: Any, device: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    from . import accuracy

    references = accuracy.References(case, options["forward_only"], tuple(options["modules"]))
    if device == STORED:
        return [accuracy.judge_captured(case, references)]
    return accuracy.check(_make_runner(case, device, options), options["against"], references)


def _do_speed(case: Any, device: str, options: dict[str, Any]) -> dict[str, Any]:
    from .measure import measure_speed

    return measure_speed(
        _make_runner(case, device, options),
        options["run_times"],
        options["warm_up"],
        options["forward_only"],
        options["flush_cache"],
    )


def _do_memory(case: Any, device: str, options: dict[str, Any]) -> dict[str, Any] | None:
    from .measure import measure_memory

    return measure_memory(_make_runner(case, device, options), options["forward_only"])


_DO = {"accuracy": _do_accuracy, "speed": _do_speed, "memory": _do_memory}


def _release(device: str) -> None:
    """Cached memory goes back, so that one large case does not starve the next."""
    torch = sys.modules.get("torch")
    module = getattr(torch, device.partition(":")[0], None) if device != "cpu" else None
    if hasattr(module, "empty_cache"):
        module.empty_cache()


def prepare(options: dict[str, Any]) -> dict[str, Any]:
    """Import everything and look at the devices: {"error"} or facts about them."""
    import torch

    if options.get("threads"):
        torch.set_num_threads(options["threads"])
    facts = {"torch": torch.__version__, "devices": {}}
    for name in options["devices"]:
        if name == STORED:
            facts["devices"][name] = "what was captured"
            continue
        try:
            device = torch.device(choose_device(name))
            torch.empty(1, device=device)
            describe = getattr(getattr(torch, device.type, None), "get_device_name", None)
            facts["devices"][name] = describe(device) if describe else device.type
        except Exception as error:
            lines = str(error).splitlines()
            return {"error": f"device {name!r} cannot be used: {lines[0] if lines else type(error).__name__}"}
    return facts


def main() -> int:
    """Serve tasks until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer, allow_nan=False) + "\n")
        answers.flush()

    options = json.loads(sys.stdin.readline())
    facts = prepare(options)
    send({"ready": facts})
    if "error" in facts:
        return 2
    for line in sys.stdin:
        send(run_task(json.loads(line), options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
