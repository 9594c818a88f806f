"""What processes use of an accelerator, by vendor: the probes of process_monitor.

A probe says which memory processes hold, per card, and how busy cards are. It never raises: what a vendor's tool does
not say, or says in an unknown form, is left out. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from typing import Protocol

MB = 1 << 20
COMMAND_TIMEOUT = 20.0

Memory = dict[int, dict[int, int]]  # pid -> card -> MB


class Probe(Protocol):
    label: str  # in the name of the result file

    @classmethod
    def is_here(cls) -> bool:
        """Whether this machine has such cards."""
        ...

    def memory(self, pids: list[int]) -> Memory:
        """What these processes hold (others may be among the answers)."""
        ...

    def usage(self, cards: list[int]) -> dict[str, str]:
        """Names and values as the vendor's tool gives them; with several cards the names begin with `<card>_`."""
        ...


def add(memory: Memory, pid: int, card: int, used: int) -> None:
    cards = memory.setdefault(pid, {})
    cards[card] = cards.get(card, 0) + used


def run(*command: str) -> str:
    """Standard output of a vendor's command; empty when it fails, hangs or is not there."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=COMMAND_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def key_values(text: str) -> dict[str, str]:
    """Lines `key : value`; the value may hold further colons."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon and key.strip()}


def prefixed(cards: list[int], tables: list[dict[str, str]]) -> dict[str, str]:
    several = len(cards) > 1
    return {
        f"{card}_{key}" if several else key: value
        for card, table in zip(cards, tables, strict=True)
        for key, value in table.items()
    }


class Ascend:
    """npu-smi. A line of its process table: | 0  0 | 4711 | python | 1250 |"""

    label = "ascend"
    line = re.compile(r"^\|\s*(\d+)\s+\d+\s*\|\s*(\d+)\s*\|[^|]*\|\s*(\d+)\s*\|")

    @classmethod
    def is_here(cls) -> bool:
        return shutil.which("npu-smi") is not None and run("npu-smi", "info") != ""

    def memory(self, pids: list[int]) -> Memory:
        found: Memory = {}
        for match in filter(None, map(self.line.match, run("npu-smi", "info").splitlines())):
            card, pid, used = map(int, match.groups())
            add(found, pid, card, used)
        return found

    def usage(self, cards: list[int]) -> dict[str, str]:
        texts = [run("npu-smi", "info", "-t", "usages", "-i", str(card)) for card in cards]
        return prefixed(cards, [key_values(text) for text in texts])


class Cambricon:
    """cnmon. A line of its process table: |  0    /    4711   python   1250 MiB |"""

    label = "camb"
    line = re.compile(r"^\|\s*(\d+)\s+\S+\s+(\d+)\s+\S.*?\s(\d+)\s*(?:MiB|MB)?\s*\|?\s*$")

    @classmethod
    def is_here(cls) -> bool:
        return shutil.which("cnmon") is not None and run("cnmon") != ""

    def memory(self, pids: list[int]) -> Memory:
        found: Memory = {}
        _, _, table = run("cnmon").partition("Processes")
        for match in filter(None, map(self.line.match, table.splitlines())):
            card, pid, used = map(int, match.groups())
            add(found, pid, card, used)
        return found

    def usage(self, cards: list[int]) -> dict[str, str]:
        tables = []
        for card in cards:
            text = run("cnmon", "info", "--card", str(card), "--bandwidth", "--util", "--memory")
            tables.append(key_values("\n".join(line for line in text.splitlines() if "MLU" in line)))
        return prefixed(cards, tables)


class NvidiaCommand:
    """nvidia-smi."""

    label = "nvidia"
    columns = {
        "GPU Utilization(%)": "utilization.gpu",
        "Memory Utilization(%)": "utilization.memory",
        "Memory Used(MB)": "memory.used",
        "Memory Total(MB)": "memory.total",
    }

    @classmethod
    def is_here(cls) -> bool:
        return shutil.which("nvidia-smi") is not None and run("nvidia-smi", "-L") != ""

    @staticmethod
    def query(what: str, columns: str) -> list[list[str]]:
        text = run("nvidia-smi", f"--query-{what}={columns}", "--format=csv,noheader,nounits")
        return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]

    def memory(self, pids: list[int]) -> Memory:
        cards = {row[1]: int(row[0]) for row in self.query("gpu", "index,uuid") if len(row) == 2 and row[0].isdigit()}
        found: Memory = {}
        for row in self.query("compute-apps", "pid,gpu_uuid,used_memory"):
            if len(row) == 3 and row[0].isdigit() and row[1] in cards:
                used = int(row[2]) if row[2].isdigit() else 0  # "[N/A]" where the driver does not tell
                add(found, int(row[0]), cards[row[1]], used)
        return found

    def usage(self, cards: list[int]) -> dict[str, str]:
        rows = {row[0]: row[1:] for row in self.query("gpu", ",".join(["index", *self.columns.values()]))}
        return prefixed(cards, [dict(zip(self.columns, rows.get(str(card), ()), strict=False)) for card in cards])


class NvmlProcess(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class NvmlMemory(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    ]


class Nvidia:
    """NVML, the library behind nvidia-smi, called directly."""

    label = "nvidia"
    unknown = (1 << 64) - 1

    def __init__(self) -> None:
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if self.nvml.nvmlInit_v2() != 0:
            raise OSError("NVML does not start")
        count = ctypes.c_uint()
        self.nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        self.handles = [ctypes.c_void_p() for _ in range(count.value)]
        for index, handle in enumerate(self.handles):
            self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))

    @classmethod
    def is_here(cls) -> bool:
        try:
            probe = cls()
            needed = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMemoryInfo_v2")
            return bool(probe.handles) and all(hasattr(probe.nvml, name) for name in needed)
        except (OSError, AttributeError):  # no library, or an old one: nvidia-smi is tried next
            return False

    def running(self, handle: ctypes.c_void_p) -> list[NvmlProcess]:
        count = ctypes.c_uint(256)
        for _ in range(3):  # processes may appear between the two calls
            found = (NvmlProcess * count.value)()
            status = self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), found)
            if status == 0:
                return list(found[: count.value])
            if status != 7:  # NVML_ERROR_INSUFFICIENT_SIZE
                return []
            count.value += 64
        return []

    def memory(self, pids: list[int]) -> Memory:
        found: Memory = {}
        for card, handle in enumerate(self.handles):
            for process in self.running(handle):
                used = 0 if process.used == self.unknown else process.used // MB
                add(found, process.pid, card, used)
        return found

    def usage(self, cards: list[int]) -> dict[str, str]:
        tables = []
        for card in cards:
            rates, memory = (ctypes.c_uint * 2)(), NvmlMemory(version=ctypes.sizeof(NvmlMemory) | 2 << 24)
            table = {}
            if self.nvml.nvmlDeviceGetUtilizationRates(self.handles[card], rates) == 0:
                table = {"GPU Utilization(%)": str(rates[0]), "Memory Utilization(%)": str(rates[1])}
            if self.nvml.nvmlDeviceGetMemoryInfo_v2(self.handles[card], ctypes.byref(memory)) == 0:
                table["Memory Used(MB)"] = str(memory.used // MB)
                table["Memory Total(MB)"] = str(memory.total // MB)
            tables.append(table)
        return prefixed(cards, tables)


class Embedded:
    """ditorch's embedded device: a process that uses it has a page of shared memory with what it holds (written by
    vendors/host/status.c): "DITHOST1", then 64-bit numbers: pid, count, bytes one device has, bytes held of each."""

    label = ""
    magic = b"DITHOST1"
    name = "memfd:dit-host-memory"

    @classmethod
    def is_here(cls) -> bool:
        return os.path.isdir("/proc/self/fd")

    def pages(self, pid: int) -> Iterator[bytes]:
        folder = f"/proc/{pid}/fd"
        for fd in os.listdir(folder):
            if self.name in os.readlink(f"{folder}/{fd}"):
                with open(f"{folder}/{fd}", "rb") as file:
                    yield file.read(4096)

    @staticmethod
    def own_number(pid: int) -> int:
        """The pid as the process itself knows it (inside a container it is another one)."""
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            numbers = next((line.split() for line in file if line.startswith("NSpid:")), None)
        return int(numbers[-1]) if numbers else pid

    def read(self, pid: int) -> dict[int, int]:
        try:
            for page in self.pages(pid):
                if len(page) < 32 or page[:8] != self.magic:
                    continue
                owner, count = struct.unpack_from("=2Q", page, 8)
                if owner == self.own_number(pid):  # else inherited by a fork
                    count = min(count, (len(page) - 32) // 8)
                    used = struct.unpack_from(f"={count}Q", page, 32)
                    return {card: size // MB for card, size in enumerate(used) if size}
        except OSError:  # ended, or another user's
            pass
        return {}

    def memory(self, pids: list[int]) -> Memory:
        found = {pid: self.read(pid) for pid in pids}
        return {pid: cards for pid, cards in found.items() if cards}

    def usage(self, cards: list[int]) -> dict[str, str]:
        return {}


PROBES: dict[str, type[Probe]] = {
    "ascend": Ascend,
    "camb": Cambricon,
    "nvidia": Nvidia,
    "nvidia-smi": NvidiaCommand,
    "embedded": Embedded,
}


def find_probe(wanted: str) -> Probe | None:
    """The first vendor whose tools answer on this machine; the embedded device otherwise."""
    if wanted == "none":
        return None
    if wanted != "auto":
        return PROBES[wanted]()
    return next((probe() for probe in PROBES.values() if probe.is_here()), None)
