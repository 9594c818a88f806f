"""The folder of one run of one rank: names of files, writing in the background, finding and reading.

    <data_path>/rank<N>/expected|real/
        forward/<layer>.pt                        the last call: dict layer_name, input, output (the original's file)
        forward/step<k>/<layer>.call<j>.pt        every call; .call<j>.recompute<i>.pt when activations are recomputed
        backward/...                              dict layer_name, grad_input, grad_output; .call<j>.round<i>.pt when
                                                  the same graph is walked again
        weights/...  gradients/step<k>/<layer>.pt parameters and buffers; gradients of the parameters
        modules_full_name.txt                     all layers, one per line
        modules_full_name_run.txt                 layers in the order in which their calls ended, of the last step
        modules_full_name_run.step<k>.txt         the same, of each step

The plain files are hard links to the last stepped ones. Files are written under another name first, so that a reader
never sees half of one. Nothing read here is executed: torch.load(weights_only=True) and no other way.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import shutil
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from op_tools import console

KINDS = ("forward", "backward", "weights", "gradients")
NAMES = "modules_full_name.txt"
ORDER = "modules_full_name_run.txt"
_CALL = re.compile(r"(?P<stem>.+)\.call(?P<call>\d{1,9})(?:\.(?P<again>recompute|round)(?P<number>\d{1,9}))?")
_STEP = re.compile(r"step(\d{1,9})")
_RUN_STEP = re.compile(r"modules_full_name_run\.step(\d{1,9})\.txt")
_RANK = re.compile(r"rank(\d{1,9})")
_LONGEST = 180
QUEUE_BYTES = 256 << 20


class Key(NamedTuple):
    """One file of a kind. `again` tells a recomputation or a second walk of the graph: "recompute0", "round1"."""

    name: str
    step: int = 0
    call: int = 0
    again: str = ""


# Names of files


def make_stem(name: str) -> str:
    """A layer's name as part of a file name: letters that a file system does not take are escaped, long ones cut."""
    stem = re.sub(r"[%/\\\0:*?\"<>|\s]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), name)
    if len(stem.encode()) > _LONGEST:
        stem = (
            stem.encode()[: _LONGEST - 20].decode(errors="ignore") + "~" + hashlib.sha1(name.encode()).hexdigest()[:16]
        )
    return stem


def make_path(kind: str, key: Key) -> str:
    """Below the folder of the run."""
    if kind in ("weights", "gradients"):
        return f"{kind}/step{key.step}/{make_stem(key.name)}.pt"
    again = f".{key.again}" if key.again else ""
    return f"{kind}/step{key.step}/{make_stem(key.name)}.call{key.call}{again}.pt"


def get_rank() -> int:
    """RANK, else that of torch.distributed where it is in use, else 0."""
    text = os.environ.get("RANK", "").strip()
    if text:
        if not text.isdecimal():
            raise ValueError(f"RANK={text!r} is no rank; expected a number such as 0")
        return int(text)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return 0


def list_ranks(data_dir: str) -> list[tuple[int, str]]:
    """(rank, folder) of every rank<N> folder, in the order of the ranks."""
    found = []
    for entry in os.listdir(data_dir):
        match = _RANK.fullmatch(entry)
        if match and os.path.isdir(os.path.join(data_dir, entry)):
            found.append((int(match[1]), os.path.join(data_dir, entry)))
    return sorted(found)


def clear(root: str) -> int:
    """Take away what an earlier run left in its folder; the number of entries. Foreign files stay."""
    count = 0
    for kind in KINDS:
        folder = os.path.join(root, kind)
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            path = os.path.join(folder, entry)
            if _STEP.fullmatch(entry) and os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif entry.endswith(".pt"):
                os.unlink(path)
            else:
                continue
            count += 1
    for entry in os.listdir(root) if os.path.isdir(root) else ():
        if entry in (NAMES, ORDER) or _RUN_STEP.fullmatch(entry):
            os.unlink(os.path.join(root, entry))
            count += 1
    return count


# Writing


def _replace_file(path: str, write: Callable[[str], None]) -> None:
    temporary = os.path.join(os.path.dirname(path), f".{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_lines(path: str, lines: list[str]) -> None:
    """A text file, in one piece or not at all."""

    def write(temporary: str) -> None:
        with open(temporary, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)

    os.makedirs(os.path.dirname(path), exist_ok=True)
    _replace_file(path, write)


def _link(path: str, plain: str) -> None:
    """`plain` is the same file from now on; a copy where the file system has no hard links."""

    def write(temporary: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)

    _replace_file(plain, write)


class Writer:
    """Writes items in the background, in order, through a queue of bounded size.

    A disk that does not take them is said once and counted: the program goes on. After `max_bytes` nothing more is
    written, which is said once too."""

    def __init__(self, root: str, max_bytes: int) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.written = self.bytes = self.failed = self.refused = 0
        self._condition = threading.Condition()
        self._queue: deque[tuple[str, str | None, dict, int]] = deque()
        self._queued = 0
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def put(self, path: str, plain: str | None, item: dict, size: int) -> None:
        """An item for `path` below the root, and under the name `plain` too. Waits while the queue is full."""
        if self._pid != os.getpid():
            return  # a forked child writes nothing into its parent's folder, and its lock may be held by nobody
        with self._condition:
            if self._closed:
                return
            if self.bytes + size > self.max_bytes:
                self._refuse()
                return
            self.bytes += size
            while self._queued > QUEUE_BYTES:
                self._condition.wait()
            self._queue.append((path, plain, item, size))
            self._queued += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="module_tools-writer", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def _refuse(self) -> None:
        self.refused += 1
        if self.refused == 1:
            console.say(
                f"CompLayerAcc: {self.max_bytes:,} bytes are written (max_bytes); the rest of this run is not. "
                "Choose steps=... or a larger max_bytes"
            )

    def flush(self) -> None:
        """Until everything is on disk."""
        if self._pid != os.getpid():
            return
        with self._condition:
            while self._queue or self._busy:
                self._condition.wait()

    def close(self) -> None:
        """Everything on disk, and no thread any more."""
        if self._pid != os.getpid():
            return
        self.flush()
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()

    def abandon(self) -> None:
        """Nothing more comes; the thread ends when it has written what it has. Waits for nothing."""
        self._closed = True
        if self._pid == os.getpid() and self._condition.acquire(blocking=False):
            self._condition.notify_all()
            self._condition.release()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._queue and not self._closed:
                    self._condition.wait(5)  # abandon() may not be able to wake it
                if not self._queue:
                    return
                path, plain, item, size = self._queue.popleft()
                self._busy = True
            try:
                self._write(path, plain, item)
            except Exception as error:  # whatever the disk or the pickler says
                self._fail(path, error)
            finally:
                del item
                with self._condition:
                    self._busy = False
                    self._queued -= size
                    self._condition.notify_all()

    def _write(self, path: str, plain: str | None, item: dict) -> None:
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        _replace_file(full, lambda temporary: torch.save(item, temporary))
        if plain is not None:
            _link(full, os.path.join(self.root, plain))
        self.written += 1

    def _fail(self, path: str, error: Exception) -> None:
        self.failed += 1
        if self.failed == 1:
            console.say(f"CompLayerAcc: {path!r} below {self.root!r} cannot be written: {error}; the program goes on")


# Reading


def load(path: str, expected: type = dict) -> Any:
    """The data of a file, on the CPU. ValueError says what is wrong with it; nothing in it is executed."""
    try:
        item = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path!r} holds more than plain data and is not read: {str(error).splitlines()[0]}"
        ) from error
    except OSError:
        raise
    except Exception as error:  # a damaged file fails in many ways: zip, pickle, unicode, struct
        text = str(error).splitlines()[0] if str(error) else ""
        raise ValueError(f"{path!r} cannot be read ({type(error).__name__}): {text}") from error
    if not isinstance(item, expected):
        raise ValueError(f"{path!r} holds a {type(item).__name__}; expected a {expected.__name__}")
    return item


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n") for line in file if line.strip()]
    except OSError:
        return []


@dataclass
class Run:
    """What the folder of one run holds."""

    root: str
    names: list[str] = field(default_factory=list)
    orders: dict[int, list[str]] = field(default_factory=dict)
    """Per step: layers in the order in which their calls ended."""
    files: dict[str, dict[Key, str]] = field(default_factory=dict)
    latest: dict[str, dict[Key, str]] = field(default_factory=dict)
    """The plain files, as step 0 and call 0."""
    stepped: bool = False

    def get_files(self, kind: str, stepped: bool) -> dict[Key, str]:
        return self.files.get(kind, {}) if stepped else self.latest.get(kind, {})


def open_run(root: str) -> Run:
    """Find the files of a run, of ours or of the original. FileNotFoundError when there is none."""
    if not any(os.path.isdir(os.path.join(root, kind)) for kind in KINDS):
        raise FileNotFoundError(f"{root!r} is no folder of a run: it has neither forward/ nor backward/")
    run = Run(root)
    above = os.path.dirname(os.path.abspath(root))
    run.names = _read_lines(os.path.join(root, NAMES)) or _read_lines(os.path.join(above, NAMES))
    run.orders = _read_orders(root) or _read_orders(above)
    known = {make_stem(name): name for name in run.names}
    known.update({make_stem(name): name for order in run.orders.values() for name in order})
    for kind in KINDS:
        folder = os.path.join(root, kind)
        run.files[kind], run.latest[kind] = {}, {}
        for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            path = os.path.join(folder, entry)
            match = _STEP.fullmatch(entry)
            if match and os.path.isdir(path):
                _list_step(kind, int(match[1]), path, known, run.files[kind])
            elif entry.endswith(".pt"):
                run.latest[kind][Key(_get_name(entry[:-3], known))] = path
    run.stepped = bool(run.files["forward"] or run.files["backward"])
    return run


def _read_orders(root: str) -> dict[int, list[str]]:
    orders = {}
    for entry in os.listdir(root) if os.path.isdir(root) else ():
        match = _RUN_STEP.fullmatch(entry)
        if match:
            orders[int(match[1])] = _read_lines(os.path.join(root, entry))
    if not orders:
        lines = _read_lines(os.path.join(root, ORDER))
        return {0: lines} if lines else {}
    return dict(sorted(orders.items()))


def _get_name(stem: str, known: dict[str, str]) -> str:
    return known.get(stem) or urllib.parse.unquote(stem)


def _list_step(kind: str, step: int, folder: str, known: dict[str, str], files: dict[Key, str]) -> None:
    for entry in sorted(os.listdir(folder)):
        if not entry.endswith(".pt"):
            continue
        path = os.path.join(folder, entry)
        if kind in ("weights", "gradients"):
            files[Key(_get_name(entry[:-3], known), step)] = path
            continue
        match = _CALL.fullmatch(entry[:-3])
        if match:
            again = f"{match['again']}{match['number']}" if match["again"] else ""
            files[Key(_get_name(match["stem"], known), step, int(match["call"]), again)] = path
