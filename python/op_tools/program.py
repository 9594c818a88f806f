"""The tools of `ditorch run` in one process of the program: start, steps, end, summary, and the file about the run.

Steps are found without a word from the program: one ends when the first optimizer that ever stepped has stepped again
(or a gradient scaler left its step out), or when the function that --step-marker names returns. Results go to one
folder per run; every process writes `run-r<rank>-p<pid>.json` beside its log.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shlex
import sys
import time
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ditorch import _C, effect, export
from ditorch.command import session as launch
from ditorch.command.spec import TOOLS, Spec
from ditorch.output import write_whole

from . import console, observer, results, selection, session
from .explanation import explain_idle

FORMAT, VERSION = "ditorch-run", 1
LAUNCHERS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed", "torchx")
LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
BASE = "ditorch_runs"
MOST_STEPS = 100_000
"""Steps whose times and memory are kept."""

current: Program | None = None


def is_launcher() -> bool:
    """This process starts others and computes nothing itself."""
    if os.path.basename(sys.argv[0] if sys.argv else "") in LAUNCHERS:
        return True
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = getattr(spec, "name", "") or (sys.orig_argv[2] if sys.orig_argv[1:2] == ["-m"] else "")
    return name in LAUNCHER_MODULES


def make_folder(base: str = BASE) -> str:
    """A folder that was not there before; the ranks of one launcher agree on it without talking."""
    group = os.environ.get("TORCHELASTIC_RUN_ID") or os.environ.get("MASTER_PORT")
    if group and "RANK" in os.environ:
        path = os.path.abspath(os.path.join(base, f"run-{group}-{os.getppid()}"))
        os.makedirs(path, exist_ok=True)
        return path
    for number in range(1, 100000):
        path = os.path.abspath(os.path.join(base, f"run-{number:03}"))
        try:
            os.makedirs(path)
            return path
        except FileExistsError:
            continue
    raise OSError(f"{base!r} is full of runs")


def begin(spec: Spec) -> Program | None:
    """Start the tools in this process; once."""
    global current
    if current is None and (spec.tools or spec.probe) and not is_launcher():
        if spec.probe:
            from .probe import Probe

            current = Probe(spec)
        else:
            current = Program(spec)
        current.start()
    return current


class Program:
    """The tools that watch this process, from begin() to the exit."""

    def __init__(self, spec: Spec):
        self.spec = spec
        spec.out = os.path.abspath(spec.out or make_folder())
        self.tools: dict[str, Any] = {}
        self.steps, self.pid = 0, os.getpid()
        self.begin = time.time()
        self._leader: Any = None
        self._optimizer_steps = 0
        self._step_begin = time.perf_counter()
        self._times: list[float] = []
        self._memory: list[tuple[int, int, int]] = []
        self._watched: list[bool] = []
        self._losses = observer.Losses()
        self.is_over = False

    def start(self) -> None:
        """ValueError or OSError say what is wrong with an option; tools that are on by then are off again."""
        try:
            for name in self.spec.tools:
                tool = getattr(import_module("op_tools"), TOOLS[name][0])(**self.spec.make_options(name))
                tool.announces = False
                tool.start()
                self.tools[name] = tool
        except BaseException:
            for tool in self.tools.values():
                tool.stop()
            raise
        self._find_steps()
        self._losses.start()
        atexit.register(self.finish)

    # Steps

    def _find_steps(self) -> None:
        if self.spec.step_marker:
            self._mark(self.spec.step_marker)
            return
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._after_optimizer)
        self._watch_scaler()

    def _watch_scaler(self) -> None:
        """A step that the scaler skips for its overflow is one of the program's steps all the same."""
        from torch.amp.grad_scaler import GradScaler

        step = GradScaler.step

        @functools.wraps(step)
        def watched(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._optimizer_steps
            result = step(scaler, optimizer, *args, **kwargs)
            if self._optimizer_steps == before:
                self._after_optimizer(optimizer)
            return result

        GradScaler.step = watched

    def _after_optimizer(self, optimizer: Any, *_: Any) -> None:
        self._optimizer_steps += 1
        leader = self._leader() if self._leader is not None else None
        if leader is None:
            self._leader = weakref.ref(optimizer)
        elif leader is not optimizer:
            return
        self.step()

    def _mark(self, name: str, tell: Callable[[Any], None] | None = None) -> None:
        """The function `package.module:Class.method` ends a step, or `tell` gets what it returns."""
        module, colon, path = name.partition(":")
        flag = "--result" if tell else "--step-marker"
        if not colon:
            raise ValueError(f"{flag} {name!r}: expected module:function, such as torch:Tensor.backward")
        owner: Any = import_module(module)
        *parents, last = path.split(".")
        try:
            for part in parents:
                owner = getattr(owner, part)
            function = getattr(owner, last)
        except AttributeError as error:
            raise ValueError(f"{flag} {name!r}: {error}") from None

        depth = 0

        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            depth += 1  # torch's functions call themselves again under a tool
            try:
                result = function(*args, **kwargs)
            finally:
                depth -= 1
            if not depth:
                tell(result) if tell else self.step()
            return result

        setattr(owner, last, marked)

    def step(self) -> None:
        if self.is_over:
            return
        now = time.perf_counter()
        if self.steps < MOST_STEPS:
            self._times.append(now - self._step_begin)
            self._watched.append(any(tool._due for tool in self.tools.values()))
            self._memory.append(_read_memory())
        self.steps += 1
        session.step()
        self._step_begin = time.perf_counter()

    # The end

    def finish(self) -> None:
        """Stop the tools, write the file about the run, and say in ten lines what was looked at and found."""
        if self.is_over or self.pid != os.getpid():  # a forked child has its parent's list of last things
            return
        self.is_over = True
        for tool in reversed(self.tools.values()):
            try:
                tool.stop()
            except Exception as error:
                console.say(f"{type(tool).__name__}: stop() at the end failed: {error}")
        facts = self.describe()
        try:
            os.makedirs(self.spec.out, exist_ok=True)
            write_whole(os.path.join(self.spec.out, f"run-r{facts['rank']}-p{os.getpid()}.json"), _to_json(facts))
        except OSError as error:
            console.say(f"ditorch run: what was found is not saved: {error}")
        did_something = self.steps or any(facts["counts"][name].get("seen") for name in self.tools)
        if not self.spec.quiet and (did_something or launch.wanted is not None):
            console.say("\n".join(summarise(facts)))
        if self.spec.report and not self.spec.quiet:
            self._write_report()

    def _write_report(self) -> None:
        from ditorch.command.run import count_ranks, is_first_rank, wait_for_ranks, write_report

        results.close_log()
        if not is_first_rank():
            return
        if count_ranks() > 1:
            wait_for_ranks(self.spec.out, self.begin)
        write_report(self.spec.out)

    def _add_times(self, findings: list[dict[str, Any]]) -> None:
        """When each was made (ns of the wall clock), by the log: other ranks are ordered by it."""
        results.flush_log()
        files = [file for tool in self.tools.values() if tool._log for file in tool._log.get_files()]
        try:
            records = list(export.read(files, types=["finding"])) if files else []
        except (export.ExportError, OSError, ValueError) as error:
            console.say(f"ditorch run: the times of the findings are not known: {error}")
            return
        times = {_key(record): record["time"] for record in reversed(records)}
        for finding in findings:
            finding["time"] = times.get(_key(finding))

    def describe(self) -> dict[str, Any]:
        import torch

        findings = []
        for name, tool in self.tools.items():
            for finding in tool.findings() if hasattr(tool, "findings") else ():
                findings.append({"tool": name, **_plain(finding)})
        made = [finding for finding in findings if finding["tool"] == "nan"]
        if made:
            made[0]["cause"] = self.tools["nan"].find_cause(made[0])
        if findings and selection.get_world_size() > 1:
            self._add_times(findings)
        times = self.tools["time"].rows() if "time" in self.tools else []
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "command": self.spec.command or " ".join(map(shlex.quote, sys.argv)),
            "tools": self.spec.tools,
            "selection": {
                name: getattr(self.spec, name) for name in ("steps", "every", "ranks", "include", "exclude", "budget")
            },
            "rank": selection.get_rank(),
            "world_size": selection.get_world_size(),
            "pid": os.getpid(),
            "begin": self.begin,
            "seconds": time.time() - self.begin,
            "steps": self.steps,
            "step_seconds": self._times,
            "step_memory": self._memory,
            "device": _describe_device(),
            "torch": torch.__version__,
            "ditorch": _C.version(),
            "python": sys.version.split()[0],
            "counts": {name: tool.counts() for name, tool in self.tools.items()},
            "idle": {name: explain_idle(tool, tool.counts()) for name, tool in self.tools.items()},
            "facts": {name: _count_facts(name, tool) for name, tool in self.tools.items()},
            "findings": findings,
            "saved": self.tools["nan"].saved() if "nan" in self.tools else [],
            "times": [_plain(row) for row in times[:200]],
            "operators_ns": sum(row["total_ns"] for row in times),
            "fallbacks": _list_fallbacks(),
            "losses": self._losses.stop(),
            "memory": observer.get_memory(),
            "out": self.spec.out,
        }
        return {**facts, "observer": _plain(observer.measure(facts, self._watched))}


def _key(finding: dict[str, Any]) -> tuple:
    return finding.get("id"), finding.get("name"), finding.get("kind")


def _describe_device() -> str:
    import ditorch

    return f"{ditorch.adapter!r}" if ditorch.adapter is not None else f"backend {ditorch.backend}"


def _read_memory() -> tuple[int, int, int]:
    """Bytes at the end of a step: tensors on the device, held by its allocator, resident in the host."""
    import torch

    try:
        device = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    except Exception:  # no device, or one that does not count
        device = 0, 0
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        resident = 0
    return *device, resident


def _list_fallbacks() -> list[dict[str, Any]]:
    import ditorch

    try:
        return [_plain(row) for row in ditorch.fallbacks()]
    except Exception:  # no embedded device: there is no ledger
        return []


def _count_facts(name: str, tool: Any) -> dict[str, Any]:
    facts = tool.describe()
    wanted = {"autocompare": ("forward", "backward", "skipped"), "nan": ("checked", "forward", "backward", "scaled")}
    return {key: _plain(facts[key]) for key in wanted.get(name, ()) if key in facts}


def _plain(value: Any) -> Any:
    """Only what JSON has; NaN and infinities as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return value if isinstance(value, (int, str, bool)) or value is None else str(value)


def _to_json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=1, allow_nan=False) + "\n"


# The summary


def summarise(facts: dict[str, Any]) -> list[str]:
    """Ten lines at most: what was looked at, what was found, what to type next."""
    rank = f" rank {facts['rank']} of {facts['world_size']}," if facts["world_size"] > 1 else ""
    title = (
        f"== ditorch run:{rank} {facts['steps']} steps in {facts['seconds']:.1f} s, tools {', '.join(facts['tools'])}"
    )
    lines = [title]
    for name in facts["tools"]:
        lines.append(_tell_tool(name, facts))
        if facts["idle"][name] and facts["idle"][name] not in "".join(lines):
            lines.append(f"  {'':<9}{facts['idle'][name]}")
    lines.append(f"  effect   {effect.describe(facts['observer'])}")
    if not facts["steps"]:
        lines.append("  steps    no optimizer.step was seen: all of it is step 0")
    wrong = [finding for finding in facts["findings"] if finding["tool"] == "autocompare"]
    made = [finding for finding in facts["findings"] if finding["tool"] == "nan"]
    for finding in (*wrong[:2], *made[:2]):
        verb = "is wrong" if finding["tool"] == "autocompare" else "made NaN or Inf"
        place = results.format_location(finding.get("location") or "", source=False)
        way = "the backward of " if finding["kind"] == "backward" else ""
        lines.append(f"  found    {way}{finding['name']} {verb}, step {finding['step']}{', ' + place if place else ''}")
        if finding.get("cause"):
            lines.append(f"  cause    {finding['cause']}")
    folder, following = results.shorten(facts["out"]), suggest_next(facts)
    tail = [f"  results  {folder}", f"  report   ditorch report {folder}", f"  next     {following}"]
    if following == f"ditorch report {folder}":
        del tail[1]
    return [*lines[: 10 - len(tail)], *tail]


def _tell_tool(name: str, facts: dict[str, Any]) -> str:
    counts, own = facts["counts"][name], facts["facts"][name]
    seen, applied = counts.get("seen", 0), counts.get("applied", 0)
    text = f"{console.count(applied)} of {console.count(seen, 'call')}"
    if name == "autocompare" and own:
        done = sum(own[kind]["compared"] for kind in ("forward", "backward"))
        number = sum(finding["tool"] == name for finding in facts["findings"])
        verdict = console.count(number, "finding") if number else "all right" if done else "nothing was compared"
        text = f"{console.count(done, 'comparison')} of {console.count(seen, 'call')}: {verdict}"
    elif name == "nan" and own:
        number = sum(finding["tool"] == name for finding in facts["findings"])
        scaled = own.get("scaled", 0)
        clean = "none but what the gradient scaler is for" if scaled else "no NaN or Inf was made"
        text = f"{text}: {console.count(number, 'finding') if number else clean}"
        text += f" ({console.count(scaled, 'gradient overflow')}; it skips such a step)" if scaled else ""
    elif name == "time" and facts["times"]:
        whole = facts["operators_ns"] or 1
        totals: dict[str, int] = {}
        for row in facts["times"]:  # a row per signature
            label = row["name"].rpartition(".")[2] + (" (backward)" if row["kind"] == "backward" else "")
            totals[label] = totals.get(label, 0) + row["total_ns"]
        most = sorted(totals, key=totals.__getitem__, reverse=True)[:3]
        best = ", ".join(f"{label} {totals[label] / whole:.0%}" for label in most)
        text = f"{text}, {whole / 1e6:.3g} ms in operators; most time: {best}"
    return f"  {name:<9}{text}" if len(name) < 9 else f"  {name} {text}"


def suggest_next(facts: dict[str, Any]) -> str:
    """One command."""
    for finding in facts["findings"]:
        if finding["tool"] == "autocompare" and finding.get("folder"):
            return f"ditorch replay {results.shorten(finding['folder'])}"
        if finding["tool"] == "nan" and facts["saved"]:
            return f"ditorch replay {results.shorten(facts['saved'][0])}"
        if finding["tool"] == "nan":
            return f"ditorch nan -- {facts['command']}"
    if "capture" in facts["tools"]:
        return f"ditorch replay {results.shorten(facts['out'])}"
    return f"ditorch report {results.shorten(facts['out'])}"
