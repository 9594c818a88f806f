"""One run of the program with some of its operators away from the device, and the verdict about it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..command.spec import Spec
from ..command.tree import Head
from ..effect import from_bits
from .metric import Condition, MissingError, Series, is_near, read_values

GOOD, BAD, UNKNOWN = "right", "wrong", "unknown"
ORDER = "order.json"
CANNOT_TELL = 125
"""Exit status of --check, as of git bisect."""
MOST_TEXT = 64 << 20
"""Bytes of output that are searched for metrics, from the end."""


@dataclasses.dataclass
class Choice:
    """Which operators leave the device, and how. `limits`: of some, only calls with these signatures, modules,
    numbers."""

    names: list[str] = dataclasses.field(default_factory=list)
    all: bool = False
    by: str = ""
    """control: the door of the embedded device; tool: op_tools; empty: nothing leaves."""
    how: str = "cpu"
    observe: bool = False
    notes: bool = False
    losses: bool = False
    """Note every loss (for `ditorch run --baseline`)."""
    limits: dict[str, list[list[Any]]] = dataclasses.field(default_factory=dict)

    def to_key(self) -> str:
        """The same for choices that mean the same."""
        values = dataclasses.asdict(self)
        values["names"] = sorted(values["names"])
        return json.dumps(values, sort_keys=True)


@dataclasses.dataclass
class Outcome:
    """`values`: numbers by name; `facts`: what the processes wrote."""

    verdict: str
    reason: str
    seconds: float = 0.0
    values: Series = dataclasses.field(default_factory=dict)
    status: int = 0
    folder: str = ""
    facts: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    votes: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return self.verdict == GOOD

    @property
    def is_flaky(self) -> bool:
        return len(set(self.votes)) > 1


@dataclasses.dataclass
class Question:
    """What makes a run right: --metric, --check or --ref; without them, that it ends with status 0."""

    condition: Condition | None = None
    names: list[str] = dataclasses.field(default_factory=list)
    pattern: re.Pattern | None = None
    check: str = ""
    reference: Series | None = None
    within: float = 0.01
    result: str = ""
    is_noted: bool = False
    """The one name stands for the losses that backward() is called of, not for what is printed."""

    def judge(self, status: int, values: Series, folder: str) -> tuple[str, str]:
        """(verdict, reason)"""
        if self.check:
            return self._ask(status, folder)
        if status:
            return BAD, describe_status(status)
        shown = ", ".join(f"{name} {values[name][-1]:.6g}" for name in self.names if values.get(name))
        if self.reference is not None:
            for name, wanted in self.reference.items():
                if not is_near(values.get(name, []), wanted, self.within):
                    return BAD, _describe_difference(name, values.get(name, []), wanted, self.within)
            return GOOD, shown
        if self.condition is not None:
            try:
                return (GOOD if self.condition.test(values) else BAD), shown
            except MissingError as error:
                return BAD, f"no value of {error.args[0]!r} in the output"
        return GOOD, shown or "it ended well"

    def _ask(self, status: int, folder: str) -> tuple[str, str]:
        environment = {**os.environ, "DITORCH_BISECT_STATUS": str(status), "DITORCH_BISECT_FOLDER": folder}
        with open(os.path.join(folder, "stdout.txt"), "rb") as file:
            answer = subprocess.run(
                self.check, shell=True, stdin=file, capture_output=True, text=True, env=environment, errors="replace"
            )
        words = (answer.stdout or answer.stderr).strip().splitlines()
        reason = f"--check ended with {answer.returncode}" + (f": {words[-1][:80]}" if words else "")
        if answer.returncode in (CANNOT_TELL, 126, 127):
            return UNKNOWN, reason
        return (GOOD if answer.returncode == 0 else BAD), reason


def _describe_difference(name: str, mine: list[float], wanted: list[float], within: float) -> str:
    if len(mine) != len(wanted):
        return f"{len(mine)} values of {name!r}, the reference has {len(wanted)}"
    for number, (a, b) in enumerate(zip(mine, wanted, strict=True)):
        if not is_near([a], [b], within):
            return f"{name} {a:.6g}, the reference has {b:.6g}" + (f" (value {number + 1})" if len(mine) > 1 else "")
    return ""


def describe_status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


# Running

Start = Callable[[list[str], dict[str, str], str, float], tuple[int, bool]]
"""start(words, environment, folder, timeout) -> (status, was it too long); output goes to files of the folder."""


class Runner:
    """Runs of one program. `start` may be replaced (the benches fork)."""

    def __init__(self, program: list[str], is_command: bool, question: Question, head: Head, folder: str):
        self.program, self.is_command, self.question, self.head = program, is_command, question, head
        self.folder, self.timeout, self.step_marker = folder, 0.0, ""
        self.start: Start = start_process
        self.width = 1

    def run(self, choice: Choice) -> Outcome:
        """KeyboardInterrupt leaves no process behind."""
        folder, environment = self.make_order(choice)
        begin = time.monotonic()
        status, is_late = self.start(self.make_words(), environment, folder, self.timeout)
        return self.judge(folder, status, is_late, time.monotonic() - begin)

    def run_many(self, choices: Sequence[Choice]) -> list[Outcome]:
        """At once where `width` is more than 1."""
        return [self.run(choice) for choice in choices]

    def make_order(self, choice: Choice) -> tuple[str, dict[str, str]]:
        """A new folder with what the run is to do, and its environment."""
        folder = self._make_folder()
        spec = Spec(out=folder, step_marker=self.step_marker, quiet=True, probe=os.path.join(folder, ORDER))
        with open(spec.probe, "w", encoding="utf-8") as file:
            order = {**dataclasses.asdict(choice), "result": self.question.result}
            json.dump({**order, "losses": choice.losses or self.question.is_noted}, file)
        return folder, self._make_environment(spec, choice)

    def judge(self, folder: str, status: int, is_late: bool, seconds: float) -> Outcome:
        facts = read_facts(folder, "probe-")
        values = self._read(folder, facts, seconds)
        if is_late:
            verdict, reason = BAD, f"stopped after {self.timeout:.0f} s (--timeout)"
        else:
            verdict, reason = self.question.judge(status, values, folder)
        return Outcome(verdict, reason, seconds, values, status, folder, facts)

    def _make_folder(self) -> str:
        for number in range(1, 100000):
            path = os.path.join(self.folder, "probes", f"{number:03}")
            with contextlib.suppress(FileExistsError):
                os.makedirs(path)
                return path
        raise OSError(f"{self.folder!r} is full")

    def make_words(self) -> list[str]:
        if self.is_command:
            return self.program
        return [sys.executable, "-m", "ditorch", "run", *self.program]

    def _make_environment(self, spec: Spec, choice: Choice) -> dict[str, str]:
        from ..command.run import make_environment

        environment = {**make_environment(spec, self.head), "DITORCH_BANNER": "0", "PYTHONUNBUFFERED": "1"}
        environment.pop("DITORCH_TOOLS", None)
        if choice.by == "control":
            patterns = [".*"] if choice.all else [make_pattern(name) for name in choice.names]
            own = environment.get("DITORCH_FORCE_FALLBACK") or environment.get("DIPU_FORCE_FALLBACK_OPS_LIST", "")
            environment["DITORCH_FORCE_FALLBACK"] = ",".join([*filter(None, [own]), *patterns])
        return environment

    def _read(self, folder: str, facts: list[dict[str, Any]], seconds: float) -> Series:
        names = self.question.names
        if self.question.is_noted:
            return {names[0]: [from_bits(text) for fact in facts[:1] for text in fact["losses"]]}
        values: Series = {name: [] for name in names}
        for stream in ("stdout.txt", "stderr.txt"):
            missing = [name for name in names if not values[name]]
            if missing:
                values.update(read_values(read_end(os.path.join(folder, stream)), missing, self.question.pattern))
        if self.question.result:
            values[names[0]] = [float(text) for fact in facts[:1] for text in fact["values"]]
        if "seconds" in names and not values["seconds"]:
            values["seconds"] = [seconds]
        if "step_time" in names and not values["step_time"]:
            values["step_time"] = [middle for fact in facts if (middle := find_middle(fact["step_seconds"][1:]))]
        return values


def find_middle(numbers: list[float]) -> float:
    return sorted(numbers)[len(numbers) // 2] if numbers else 0.0


def make_pattern(name: str) -> str:
    """What the control takes for an operator and its in-place form."""
    return f"{name}_?"


def read_end(path: str) -> str:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MOST_TEXT))
        return file.read().decode("utf-8", "replace")


def read_facts(folder: str, prefix: str) -> list[dict[str, Any]]:
    """Every JSON object of the files with this beginning, by rank; half-written ones are left out."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name.startswith(prefix):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                for line in file:
                    with contextlib.suppress(ValueError):
                        value = json.loads(line)
                        if isinstance(value, dict):
                            found.append(value)
    return found


def start_process(words: list[str], environment: dict[str, str], folder: str, timeout: float) -> tuple[int, bool]:
    """In a session of its own, so that all of its processes can be ended."""
    with (
        open(os.path.join(folder, "stdout.txt"), "wb") as out,
        open(os.path.join(folder, "stderr.txt"), "wb") as error,
        subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=error, start_new_session=True
        ) as child,
    ):
        try:
            return child.wait(timeout or None), False
        except subprocess.TimeoutExpired:
            _end(child)
            return child.returncode, True
        except BaseException:
            _end(child)
            raise


def _end(child: subprocess.Popen) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
    child.wait()
