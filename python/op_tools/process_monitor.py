"""Watch one process and its children: time, CPU, memory, and what it uses of an accelerator.

    python -m op_tools.process_monitor --pid 4711 [--interval 1]

Every sample is printed as a table and appended to a CSV file below op_tools_results/process_monitor_result. Reads /proc
(psutil where there is none) and one vendor probe; imports no torch. A sample that a probe cannot take is taken without
it; the end of the process and Ctrl-C are ordinary ends.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

if __package__:
    from .monitor_probes import MB, PROBES, Probe, find_probe
else:  # run by its path: python op_tools/process_monitor.py
    from monitor_probes import MB, PROBES, Probe, find_probe  # type: ignore[no-redef]

KEPT_ROWS = 10000  # while the disk refuses them

# Processes


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    created: float  # seconds since the epoch
    cpu: float  # seconds used
    rss: int  # bytes
    alive: bool = True  # False: ended, waits for its parent


class ProcFiles:
    """Linux: /proc/<pid>/stat."""

    def __init__(self, root: str = "/proc"):
        self.root = root
        self.tick = os.sysconf("SC_CLK_TCK")
        self.page = os.sysconf("SC_PAGE_SIZE")
        with open(f"{root}/stat", encoding="ascii") as file:
            self.boot = next(float(line.split()[1]) for line in file if line.startswith("btime"))

    def read(self, pid: int) -> Process | None:
        try:
            with open(f"{self.root}/{pid}/stat", "rb") as file:
                text = file.read()
        except OSError:
            return None
        fields = text[text.rindex(b")") + 2 :].split()  # the name before may hold blanks and brackets
        cpu = (int(fields[11]) + int(fields[12])) / self.tick
        created = self.boot + int(fields[19]) / self.tick
        return Process(pid, int(fields[1]), created, cpu, int(fields[21]) * self.page, fields[0] not in (b"Z", b"X"))

    def all(self) -> list[Process]:
        found = (self.read(int(name)) for name in os.listdir(self.root) if name.isdigit())
        return [process for process in found if process is not None]


class PsutilProcesses:
    """Systems without /proc."""

    def __init__(self) -> None:
        import psutil

        self.psutil = psutil

    def read(self, pid: int) -> Process | None:
        try:
            process = self.psutil.Process(pid)
            with process.oneshot():
                times = process.cpu_times()
                alive = process.status() != self.psutil.STATUS_ZOMBIE
                rss = process.memory_info().rss if alive else 0
                return Process(pid, process.ppid(), process.create_time(), times.user + times.system, rss, alive)
        except self.psutil.Error:
            return None

    def all(self) -> list[Process]:
        return [process for process in map(self.read, self.psutil.pids()) if process is not None]


def processes() -> ProcFiles | PsutilProcesses:
    return ProcFiles() if os.path.exists("/proc/self/stat") else PsutilProcesses()


def descendants(pid: int, everything: list[Process]) -> list[Process]:
    """The living children of a process, their children and so on; the monitor itself and its commands do not count."""
    children: dict[int, list[Process]] = {}
    for process in everything:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        process = waiting.pop()
        if process.pid not in (pid, os.getpid()) and process.alive:
            found.append(process)
            waiting += children.get(process.pid, ())
    return sorted(found, key=lambda process: process.pid)


# Samples


class Sampler:
    """Samples of one process. CPU shares are of the time since the sample before."""

    def __init__(self, pid: int, probe: Probe | None, children: bool = True):
        self.source = processes()
        self.pid, self.probe, self.children = pid, probe, children
        self.first = self.source.read(pid)
        self.before: dict[tuple[int, float], float] = {}
        self.clock = time.monotonic()
        if self.first is not None:
            self._shares([self.first, *self._children()])

    def _children(self) -> list[Process]:
        return descendants(self.pid, self.source.all()) if self.children else []

    def _shares(self, found: list[Process]) -> list[float]:
        """CPU share of each process in percent; a process that is new counts from its start."""
        now = time.monotonic()
        passed, self.clock = max(now - self.clock, 1e-3), now
        used = [process.cpu - self.before.get((process.pid, process.created), 0.0) for process in found]
        self.before = {(process.pid, process.created): process.cpu for process in found}
        return [100.0 * seconds / passed for seconds in used]

    def sample(self) -> dict[str, str] | None:
        """One row; None when the process has ended (or its number belongs to another one)."""
        process = self.source.read(self.pid)
        if process is None or self.first is None or not process.alive or process.created != self.first.created:
            return None
        tree = [process, *self._children()]
        shares = self._shares(tree)
        now = time.time()
        info = {
            "runningtime(Seconds)": f"{now - process.created:.7f}",
            "time_str": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)),
            "time(Seconds)": f"{now:.7f}",
            "cpu_percent(%)": f"{shares[0]:.1f}",
            "rss(MB)": f"{process.rss // MB} ",
        }
        held = self._device(info, [member.pid for member in tree])
        if self.children:
            info["children"] = str(len(tree) - 1)
            info["tree_cpu_percent(%)"] = f"{sum(shares):.1f}"
            info["tree_rss(MB)"] = str(sum(member.rss for member in tree) // MB)
            if held is not None:
                info["tree_device_memusage(MB)"] = str(held)
        return info

    def _device(self, info: dict[str, str], pids: list[int]) -> int | None:
        if self.probe is None:
            return None
        memory = self.probe.memory(pids)
        mine = memory.get(self.pid, {})
        cards = sorted({card for pid in pids for card in memory.get(pid, ())})
        if not cards and not self.probe.label:
            return None  # nobody uses the embedded device: no columns for it
        info["device_memusage(MB)"] = " ".join(str(mine[card]) for card in sorted(mine)) or "0"
        info["device_cards"] = str([str(card) for card in cards]) if len(cards) > 1 else "".join(map(str, cards))
        info.update(self.probe.usage(cards))
        return sum(used for pid in pids for used in memory.get(pid, {}).values())


class ResultFile:
    """The CSV file: header once; a column that appears later is added at the end and empty in the rows before."""

    def __init__(self, pid: int, device: str, limit: int, say: Callable[[str], None] = print):
        self.say = say
        stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
        label = os.environ.get("label", "")  # noqa: SIM112 - the name it always had
        name = f"process_monitor_result_{device}_pid{pid}_{label}_{stamp}.csv"
        self.path = f"op_tools_results/process_monitor_result/{name}"
        self.limit = limit
        self.columns: list[str] = []
        self.rows: list[dict[str, str]] = []

    def append(self, row: dict[str, str]) -> None:
        self.rows.append(row)
        if len(self.rows) > self.limit:
            self.flush()

    def flush(self) -> None:
        if not self.rows:
            return
        rows, self.rows = self.rows, []
        known = len(self.columns)
        self.columns = list(dict.fromkeys([*self.columns, *(key for row in rows for key in row)]))
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            if known and len(self.columns) > known:
                self._widen(known)
            if not known:
                self._create()
            with open(self.path, "a", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([row.get(column, "") for column in self.columns] for row in rows)
        except OSError as error:
            print(f"op process monitor result can not be saved to {self.path}: {error}", file=sys.stderr)
            self.columns, self.rows = self.columns[:known], rows[-KEPT_ROWS:]  # once more with the next sample
            return
        self.say(f"op process monitor result saved to {self.path}")

    def _create(self) -> None:
        """A file of our own: another monitor of the same process may have begun in the same second."""
        stem = self.path.removesuffix(".csv")
        for number in range(2, 100):
            try:
                with open(self.path, "x", newline="", encoding="utf-8") as file:
                    csv.writer(file).writerow(self.columns)
                return
            except FileExistsError:
                self.path = f"{stem}_{number}.csv"

    def _widen(self, known: int) -> None:
        with open(self.path, newline="", encoding="utf-8") as file:
            old = list(csv.reader(file))[1:]
        temporary = self.path + ".tmp"
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows(row + [""] * (len(self.columns) - known) for row in old)
        os.replace(temporary, self.path)


def centred(text: str, width: int) -> str:
    """As PrettyTable centres: an odd blank goes before texts of even length and behind the others."""
    before = (width - len(text) + (len(text) + 1) % 2) // 2
    return " " * before + text + " " * (width - len(text) - before)


def table(info: dict[str, str]) -> str:
    """Two columns in PrettyTable's form, which need not be installed."""
    rows = [("key", "value"), *info.items()]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    border = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = ["| " + " | ".join(map(centred, row, widths)) + " |" for row in rows]
    return "\n".join([border, lines[0], border, *lines[1:], border])


def show(info: dict[str, str]) -> None:
    print(table(info))
    print("\n\n", flush=True)


# The program


def cache_size() -> int:
    text = os.environ.get("OP_TOOLS_MAX_CACHE_SIZE", "").strip() or "1"
    if not text.isdigit():
        sys.exit(f"OP_TOOLS_MAX_CACHE_SIZE={text!r} is no whole number; wanted is the number of rows to hold, e.g. 1")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pid", type=int, required=True, help="id of the process to monitor")
    parser.add_argument("--interval", type=float, default=1, help="seconds from sample to sample (default 1)")
    parser.add_argument("--count", type=int, default=0, help="stop after this many samples (default: when it ends)")
    parser.add_argument("--json", action="store_true", help="a JSON object per sample and line, instead of the table")
    parser.add_argument("--no-children", action="store_true", help="the process alone, and the original columns alone")
    parser.add_argument(
        "--probe",
        default="auto",
        choices=["auto", "none", *PROBES],
        metavar="NAME",
        help=f"where device numbers come from: auto, none, {', '.join(PROBES)}",
    )


def parse_arguments(arguments: list[str] | None, parser: argparse.ArgumentParser | None = None) -> argparse.Namespace:
    if parser is None:
        parser = argparse.ArgumentParser(prog="process_monitor", description="Monitor a process and its children")
        add_arguments(parser)
    options = parser.parse_args(arguments)
    if not 0 < options.interval < 1e6:
        parser.error(f"--interval {options.interval:g}: wanted is a number of seconds above 0")
    return options


class Ending:
    """Set by Ctrl-C and SIGTERM: the sample under way is finished first. A second signal does not wait."""

    def __init__(self) -> None:
        self.event = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle)

    def handle(self, number: int, frame: Any) -> None:
        if self.event.is_set():
            raise KeyboardInterrupt
        self.event.set()

    def wait(self, seconds: float) -> bool:
        return self.event.wait(seconds)


def show_line(info: dict[str, str]) -> None:
    print(json.dumps(info), flush=True)


def say_aside(text: str) -> None:
    """Standard output is for the samples."""
    print(text, file=sys.stderr)


def watch(
    sampler: Sampler, result: ResultFile, ending: Ending, interval: float, count: int, tell: Callable[..., None]
) -> None:
    if ending.wait(min(interval, 0.1)):  # a CPU share needs two looks
        return
    start = time.monotonic()
    taken = 0
    while True:
        info = sampler.sample()
        if info is None:
            result.say(f"process {sampler.pid} has ended")
            return
        tell(info)
        result.append(info)
        taken += 1
        # Samples are due at full intervals after the first: a slow probe drops some, it does not shift the others.
        if taken == count or ending.wait(interval - (time.monotonic() - start) % interval):
            return


def main(arguments: list[str] | None = None, parser: argparse.ArgumentParser | None = None) -> int:
    options = parse_arguments(arguments, parser)
    limit = cache_size()
    ending = Ending()
    probe = find_probe(options.probe)
    sampler = Sampler(options.pid, probe, not options.no_children)
    if sampler.first is None:
        print(f"process {options.pid} does not exist", file=sys.stderr)
        return 1
    result = ResultFile(options.pid, probe.label if probe else "", limit, say_aside if options.json else print)
    try:
        watch(sampler, result, ending, options.interval, options.count, show_line if options.json else show)
    except KeyboardInterrupt:
        pass
    finally:
        result.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
