"""Fuzzing of the reader of captured cases (op_tools.reader): damaged and hostile files give a Case or a CaseError.

    python tests/fuzz/fuzz_case.py --seconds 600 --seed 1 [--state FILE] [--keep FOLDER]

Seeds are valid files of every kind, made here, the fixtures of the old layouts, and the corpus. Each input is written
to a folder of its own and read as a user would read it. Anything but a Case or a CaseError stops the run and leaves the
input in --keep: another exception, a module imported, a file outside touched, a tensor outside its storage, more than
SLOW seconds. Input number n of a seed is always the same; --state goes on where the last run stopped.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pathlib
import pickle
import pickletools
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib

import torch

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
FIXTURES = HERE.parent / "python" / "fixtures" / "cases"
SLOW = 20.0
FORBIDDEN = ("import", "os.", "subprocess.", "socket.", "exec", "compile", "ctypes.", "shutil.", "code.", "pickle.")
HARMLESS = ("os.listdir", "os.scandir", "os.walk")
INTERESTING = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
)


class Failure(Exception):
    """An input did what no input may do."""


# The guard: what a file must never make the process do


class Guard:
    """Watches the interpreter's audit events while an input is read. There is no way to remove such a hook: one guard
    per process."""

    def __init__(self) -> None:
        self.on = False
        self.root = ""
        self.seen: list[str] = []
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple) -> None:
        if not self.on:
            return
        if event == "open":
            path, _mode, flags = arguments
            inside = isinstance(path, int) or os.path.realpath(os.fsdecode(path)).startswith(self.root)
            if not inside or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.seen.append(f"open {path!r} {flags}")
        elif event.startswith(FORBIDDEN) and event not in HARMLESS:
            self.seen.append(f"{event} {str(arguments)[:200]}")

    def __enter__(self) -> None:
        self.seen, self.on = [], True

    def __exit__(self, *_exception) -> None:
        self.on = False


# Valid files


def make_values() -> dict[str, object]:
    x = torch.arange(24.0).view(4, 6)
    parameter = torch.nn.Parameter(x.clone())
    attributed = x.clone()
    attributed.note = 1
    sparse = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    return {
        "plain": ((x, 2, [x[1:, ::2], None]), {"alpha": 1.5, "text": "é", "flag": True}),
        "views": ((x, x.t(), x[2], x.view(-1)[3:9], x.expand(3, 4, 6)), {}),
        "index": ((x, (slice(1, None, 2), Ellipsis, None)), {"r": range(4), "c": 1 + 2j, "s": {1, "a"}}),
        "parameter": ((parameter, attributed), {"dtype": torch.float16, "device": torch.device("cuda", 1)}),
        "results": ((torch.sort(x), torch.Size([2, 3]), b"\x00\xff", 1 << 100), {"layout": torch.strided}),
        "sparse": ((sparse.to_sparse(), sparse.to_sparse_csr()), {}),
        "quantized": (
            (
                torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
                torch.quantize_per_channel(x, torch.ones(4), torch.zeros(4), 0, torch.qint8),
            ),
            {},
        ),
        "odd": (
            (
                torch.randn(3, dtype=torch.complex64).conj(),
                torch.ones(2, dtype=torch.uint16),
                torch.ones(2, device="meta"),
            ),
            {"g": torch.Generator()},
        ),
        "nested": ((torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),), {}),
        "tagged": (
            ({"__ditorch__": "slice", "start": 1, "stop": None, "step": 2}, {"__ditorch__": "ellipsis"}),
            {
                "n": {"__ditorch__": "namedtuple", "type": "a.P", "fields": ["x", "y"], "values": (x, 1)},
                "f": {"__ditorch__": "function", "name": "torch.nn.functional.relu"},
                "e": {"__ditorch__": "enum", "type": "torch.x", "name": "a", "value": 1},
                "b": {
                    "__ditorch__": "buffer",
                    "type": "numpy.ndarray",
                    "format": "<f",
                    "itemsize": 4,
                    "shape": (2,),
                    "data": torch.zeros(8, dtype=torch.uint8),
                },
                "d": {"__ditorch__": "dict", "items": [(1, 2), ((3, 4), [5])]},
                "i": {"__ditorch__": "int", "hex": "f" * 600},
                "t": {"__ditorch__": "return_type", "type": "torch.return_types.sort", "values": (x, x)},
            },
        ),
    }


def make_numpy():
    import numpy

    return ((numpy.float32(2), numpy.ones((2, 3)), numpy.asfortranarray(numpy.ones((2, 2)))), {})


def make_seeds() -> list[tuple[str, bytes]]:
    """(kind, bytes): "pth" is read as one file, "dpack" as a container, "json" as a companion."""
    torch.manual_seed(0)
    values = {**make_values(), "numpy": make_numpy()}
    seeds = []
    for name, (args, kwargs) in values.items():
        item = {"name": f"torch.{name}", "args": args, "kwargs": kwargs, "identifier": "1/2024-10-09-11-42-15/input"}
        for options in ({}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False}):
            file = io.BytesIO()
            torch.save(item, file, **options)
            seeds.append(("pth", file.getvalue()))
    for path in sorted(FIXTURES.rglob("*.pth")):
        seeds.append(("pth", path.read_bytes()))
    return seeds + [(get_kind(path), path.read_bytes()) for path in list_corpus()]


def list_corpus() -> list[pathlib.Path]:
    return sorted(path for path in CORPUS.iterdir() if path.suffix in (".pth", ".dpack", ".json"))


def get_kind(path: pathlib.Path) -> str:
    return path.suffix.removeprefix(".")


# Hostile streams


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


SNIPPETS = [
    name("os", "system") + text("touch hostile") + b"\x85R",
    name("posix", "system") + text("touch hostile") + b"\x85R",
    name("builtins", "eval") + text("1") + b"\x85R",
    name("__builtin__", "exec") + text("1") + b"\x85R",
    name("builtins", "getattr") + name("torch", "device") + text("__class__") + b"\x86R",
    name("torch._utils", "_import_dotted_name") + text("os.system") + b"\x85R",
    name("torch.hub", "load") + text("a") + text("b") + b"\x86R",
    name("torch.serialization", "load") + text("/etc/passwd") + b"\x85R",
    name("torch.storage", "_load_from_bytes") + b"C\x04abcd\x85R",
    name("collections", "OrderedDict") + b"]" + b"\x85R",
    name("numpy", "load") + text("/etc/passwd") + b"\x85R",
    name("numpy.core.multiarray", "_reconstruct") + name("os", "stat_result") + b")C\x01b\x87R",
    name("antigravity", "x") + b"0",
    name("xml.dom.minidom", "parseString") + text("<a/>") + b"\x85R",
    text("os") + text("system") + b"\x93",
    text("\u043es") + text("system") + b"\x93",
    text("os\0") + text("system") + b"\x93",
    text("torch") + text("device.__init__") + b"\x93",
    text("torch._utils") + text("_rebuild_tensor_v2.__globals__") + b"\x93",
    b"\x82\x01",
    b"\x83\x01\x00",
    b"\x84\x01\x00\x00\x00",
    b"(ios\nsystem\n",
    b"(" + name("os", "system") + text("a") + b"o",
    b"Pkey\n",
    text("key") + b"Q",
    b")Q",
    text("storage") + b"\x85Q",
    b"(" + text("storage") + name("torch", "FloatStorage") + text("0") + text("cpu") + b"J\xff\xff\xff\x7ftQ",
    b"(" + text("storage") + name("torch", "FloatStorage") + text("../../x") + text("cpu") + b"K\x01tQ",
    b"\x97",
    b"\x98",
    b"\x8b\xff\xff\xff\x7f",
    b"\x8b\xff\xff\xff\xff",
    b"I" + b"9" * 5000 + b"\n",
    b"L" + b"9" * 5000 + b"L\n",
    b"F1e999999\n",
    b"r\xff\xff\xff\xff",
    b"j\xff\xff\xff\xff",
    b"\x8d" + b"\xff" * 8,
    b"\x96" + struct.pack("<Q", 1 << 62),
    b"]2a",
    b"]q\x00h\x00a",
    b"(" * 300 + b"t" * 300,
    b"}" + b"]" + b"Ns",
    b")" + b"\x85" * 500,
    b"\x8f(" + b")\x85" * 20 + b"\x90",
    name("torch", "Tensor") + b")\x81",
    name("a", "b") + b"K\x01\x85\x81",
    name("a", "b") + b"K\x01\x85\x81}b",
    name("torch", "Size") + b"(K\x01Nt\x85R",
    name("torch", "device") + text("cuda:9999999999") + b"\x85R",
    b"Vos\n",
    b"S'x'\n",
]
"""Each a piece of a stream: calls of what must not be called, names with tricks, sizes without end."""


def parse(stream: bytes) -> list[bytes]:
    """A sound stream as its instructions."""
    places = [place for _code, _argument, place in pickletools.genops(stream)]
    return [stream[a:b] for a, b in zip(places, [*places[1:], len(stream)], strict=True)]


def mutate_stream(rng: random.Random, stream: bytes, other: bytes) -> bytes:
    try:
        codes = parse(stream)
        others = parse(other)
    except (ValueError, IndexError, pickle.UnpicklingError, UnicodeDecodeError, struct.error, EOFError):
        return mutate_bytes(rng, stream, other)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(1, max(len(codes), 2))
        action = rng.randrange(8)
        if action == 0:
            codes[place:place] = [rng.choice(SNIPPETS)]
        elif action == 1 and len(codes) > 2:
            del codes[place : place + rng.choice((1, 1, 3))]
        elif action == 2:
            codes[place:place] = codes[place : place + rng.choice((1, 4, 20))] * rng.choice((1, 2, 50))
        elif action == 3:
            begin = rng.randrange(len(others))
            codes[place:place] = others[begin : begin + rng.choice((1, 5, 30))]
        elif action == 4 and place < len(codes):
            codes[place] = rng.choice(others)
        elif action == 5 and place < len(codes):
            codes[place] = mutate_bytes(rng, codes[place], b"")
        elif action == 6 and place < len(codes):
            swap = rng.randrange(1, len(codes))
            codes[place], codes[swap] = codes[swap], codes[place]
        elif place < len(codes):
            number = rng.choice(INTERESTING)
            codes[place] = rng.choice(
                (b"\x8a\x09" + struct.pack("<Qb", number, 0), b"J" + struct.pack("<I", number & 0xFFFFFFFF))
            )
    return b"".join(codes)


def mutate_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not made:
            break
        place, action = rng.randrange(len(made)), rng.randrange(8)
        if action == 0:
            made[place] ^= 1 << rng.randrange(8)
        elif action == 1:
            made[place] = rng.randrange(256)
        elif action == 2:
            del made[place:]
        elif action == 3:
            del made[place : place + rng.randrange(1, 64)]
        elif action == 4:
            made[place:place] = made[place : place + rng.randrange(1, 256)]
        elif action == 5 and other:
            begin = rng.randrange(len(other))
            made[place : place + rng.randrange(64)] = other[begin : begin + rng.randrange(1, 256)]
        elif action == 6:
            form = rng.choice(("<H", "<I", "<Q"))
            value = struct.pack(form, rng.choice(INTERESTING) & (1 << 8 * struct.calcsize(form)) - 1)
            made[place : place + len(value)] = value
        else:
            made[place:place] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 16)))
    return bytes(made)


# Containers of streams


def open_archive(data: bytes) -> list[tuple[str, bytes]] | None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [(item.filename, archive.read(item)) for item in archive.infolist()]
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, RuntimeError, zlib.error, KeyError):
        return None


def mutate_archive(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Records changed, and the archive around them sound, or nearly."""
    records = open_archive(data)
    others = open_archive(other) or []
    if not records:
        return mutate_bytes(rng, data, other)
    pickles = [content for where, content in others if where.endswith("data.pkl")]
    changed = []
    for where, content in records:
        if where.endswith("data.pkl"):
            content = mutate_stream(rng, content, rng.choice(pickles) if pickles else content)
        elif rng.random() < 0.1:
            content = mutate_bytes(rng, content, data)
        changed.append((where, content))
    if rng.random() < 0.05:
        changed.append(rng.choice(changed))
    if rng.random() < 0.05:
        changed.append((rng.choice(("/etc/passwd", "../x", "a/data.pkl", "x/../../y", "C:\\x", "")), b"x"))
    if rng.random() < 0.05 and len(changed) > 1:
        del changed[rng.randrange(len(changed))]
    file = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if rng.random() < 0.02 else zipfile.ZIP_STORED
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore")
        for where, content in changed:
            archive.writestr(zipfile.ZipInfo(where or "x"), content)
    made = file.getvalue()
    return damage_directory(rng, made) if rng.random() < 0.1 else made


def damage_directory(rng: random.Random, data: bytes) -> bytes:
    """A number of the central directory or of the end."""
    made = bytearray(data)
    begin = max(made.find(b"PK\x01\x02"), 0)
    for _ in range(rng.choice((1, 2))):
        place = rng.randrange(begin, len(made))
        value = struct.pack("<I", rng.choice(INTERESTING) & 0xFFFFFFFF)[: rng.choice((2, 4))]
        made[place : place + len(value)] = value
    return bytes(made)


def mutate_pack(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A frame changed, and its checksums made right again."""
    made = bytearray(data)
    places = [place for place in range(64, len(made) - 68, 64) if made[place : place + 4] == b"\xc3\x7a\xd0\xa5"]
    if not places or rng.random() < 0.2:
        return mutate_bytes(rng, data, other)
    salt = struct.unpack_from("<I", made, 32)[0]
    for _ in range(rng.choice((1, 1, 3))):
        place = rng.choice(places)
        size = struct.unpack_from("<Q", made, place + 16)[0]
        if rng.random() < 0.5 and place + 64 + size + 4 <= len(made):
            content = mutate_bytes(rng, bytes(made[place + 64 : place + 64 + size]), other)[:size].ljust(size, b"\0")
            made[place + 64 : place + 64 + size] = content
            struct.pack_into("<I", made, place + 64 + size, zlib.crc32(content))
        else:
            where = place + rng.choice((4, 6, 8, 16, 24, 28, 32, 40))
            form = rng.choice(("<H", "<I", "<Q"))
            struct.pack_into(form, made, where, rng.choice(INTERESTING) & (1 << 8 * struct.calcsize(form)) - 1)
        struct.pack_into("<I", made, place + 60, zlib.crc32(bytes(made[place : place + 60]), salt))
    return bytes(made)


def make_input(seed: int, number: int, seeds: list[tuple[str, bytes]]) -> tuple[str, bytes]:
    """Input `number` of a run."""
    rng = random.Random(f"{seed}/{number}")
    kind, data = rng.choice(seeds)
    other = rng.choice(seeds)[1]
    if kind == "dpack":
        return kind, mutate_pack(rng, data, other)
    if kind == "pth" and data[:2] == b"PK" and rng.random() < 0.7:
        return kind, mutate_archive(rng, data, other)
    if kind == "pth" and rng.random() < 0.5:
        return kind, mutate_stream(rng, data, other) if data[:1] == b"\x80" else mutate_bytes(rng, data, other)
    return kind, mutate_bytes(rng, data, other)


# The corpus


def write_corpus() -> int:
    """Hostile files by hand, one thing each; failures of the past are added as they were."""
    for number, snippet in enumerate(SNIPPETS):
        write(str(CORPUS / f"stream-{number:02}.pth"), make_archive(b"\x80\x02" + wrap(snippet) + b"."))
    head = b"".join(pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    write(str(CORPUS / "old-call.pth"), head + b"\x80\x02" + wrap(SNIPPETS[0]) + b"." + pickle.dumps([], 2))
    sound = make_archive(b"\x80\x02" + wrap(b"N") + b".")
    changes = {
        "zip-encrypted": (8, b"\x01\x00"),
        "zip-compressed": (10, b"\x08\x00"),
        "zip-checksum": (16, b"\0\0\0\0"),
        "zip-huge": (20, b"\xf0\xff\xff\x7f" * 2),
        "zip-wide": (20, b"\xff" * 8),
        "zip-name": (28, b"\xff\xff"),
        "zip-link": (38, b"\0\0\xff\xa1"),
        "zip-header": (42, b"\xff\xff\xff\x7f"),
    }
    for title, (offset, value) in changes.items():
        data = bytearray(sound)
        place = data.find(b"PK\x01\x02") + offset
        data[place : place + len(value)] = value
        write(str(CORPUS / f"{title}.pth"), bytes(data))
    for number, place in enumerate((4, 8, 12, 16)):
        data = bytearray(sound)
        data[len(data) - 22 + place : len(data) - 20 + place] = b"\xff\xff"
        write(str(CORPUS / f"zip-end-{number}.pth"), bytes(data))
    state = {"autocast": 5, "random": {"cpu": "AAAA", "cuda": "?"}, "torch": ["x"] * 20, "deterministic": None}
    write(str(CORPUS / "state.json"), json.dumps({"args": [], "op": "x", "state": state}).encode())
    write(str(CORPUS / "deep.json"), b'{"state":' * 3000)
    write(str(CORPUS / "number.json"), b'{"state": {"torch": ' + b"9" * 5000 + b"}}")
    return len(list_corpus())


def wrap(piece: bytes) -> bytes:
    """A captured call around the value that a piece of a stream makes."""
    return b"}(" + text("name") + text("torch.add") + text("args") + piece + b"\x85" + text("kwargs") + b"}u"


def make_archive(stream: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("x/data.pkl"), stream)
        archive.writestr(zipfile.ZipInfo("x/data/0"), bytes(64))
        archive.writestr(zipfile.ZipInfo("x/version"), "3\n")
    return file.getvalue()


# Reading one input


class Reader:
    """Reads inputs and judges what happens."""

    def __init__(self, root: str, guard: Guard) -> None:
        from op_tools.reader import CaseError, find_cases, load_case

        self.errors, self.find, self.load = CaseError, find_cases, load_case
        self.root, self.guard = root, guard
        guard.root = os.path.realpath(root)
        self.counts = {"case": 0, "error": 0}
        self.slowest = 0.0
        self.reasons: dict[str, int] = {}
        torch.save({"name": "torch.add", "args": (torch.ones(2),), "kwargs": {}}, os.path.join(root, "input.pth"))
        self._warm_up()

    def _warm_up(self) -> None:
        """Whatever is imported at first use."""
        for _kind, data in make_seeds()[:40]:
            self._read("pth", data)
        traceback.format_exc()
        self.counts = {"case": 0, "error": 0}

    def read(self, kind: str, data: bytes) -> None:
        """Failure unless it gave a case or an error."""
        modules = set(sys.modules)
        start = time.perf_counter()
        with self.guard:
            self._read(kind, data)
        seconds = time.perf_counter() - start
        self.slowest = max(self.slowest, seconds)
        if self.guard.seen:
            raise Failure("; ".join(self.guard.seen[:5]))
        if seconds > SLOW:
            raise Failure(f"took {seconds:.1f} s")
        added = set(sys.modules) - modules
        if added:
            raise Failure(f"imported {sorted(added)[:5]}")

    def _read(self, kind: str, data: bytes) -> None:
        path = os.path.join(self.root, f"x.{kind}")
        self.guard.on, watched = False, self.guard.on
        if kind == "json":
            path = os.path.join(self.root, "input.pth")
            write(path + ".json", data)
        else:
            write(path, data)
        self.guard.on = watched
        try:
            for ref in self.find(path):
                if ref.error:
                    self._note(ref.error)
                else:
                    self._use(self.load(ref))
        except self.errors as error:
            self._note(str(error))

    def _note(self, text: str) -> None:
        if "\n" in text or not text:
            raise Failure(f"an error of {text.count(chr(10)) + 1} lines")
        self.counts["error"] += 1
        words = text.partition(": ")[2]
        key = "".join(c for c in words.partition("'")[0] if not c.isdigit())[:50]
        self.reasons[key] = self.reasons.get(key, 0) + 1

    def _use(self, case) -> None:
        """What a runner does first: every tensor must lie inside its memory."""
        from op_tools.containers import traverse_container

        for value in traverse_container([case.args, case.kwargs, case.output, case.grad_inputs, case.grad_outputs]):
            if isinstance(value, torch.Tensor):
                check_tensor(value)
        json.dumps({key: value for key, value in case.meta.items() if key not in ("random", "more")}, default=repr)
        self.counts["case"] += 1


def check_tensor(tensor: torch.Tensor) -> None:
    if tensor.is_nested:
        for part in tensor.unbind():
            check_tensor(part)
        return
    if tensor.layout is not torch.strided:
        tensor.values() if tensor.layout is not torch.sparse_coo else tensor._values()
        return
    if tensor.is_meta:
        return
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    if tensor.numel() and (last + 1) * tensor.itemsize > tensor.untyped_storage().nbytes():
        raise Failure(f"a tensor reaches to element {last} of {tensor.untyped_storage().nbytes()} bytes")
    if tensor.numel() < 100_000:
        tensor.int_repr() if tensor.is_quantized else tensor.detach().clone()


def write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


# The loop


def run(reader: Reader, seed: int, first: int, seconds: float, keep: str, count: int = sys.maxsize) -> int:
    """Inputs from number `first` on; the number after the last one."""
    seeds = make_seeds()
    end = time.monotonic() + seconds
    number = first
    while time.monotonic() < end and number < first + count:
        kind, data = make_input(seed, number, seeds)
        try:
            reader.read(kind, data)
        except BaseException:
            name = os.path.join(keep, f"failure-{seed}-{number}.{kind}")
            write(name, data)
            print(f"seed {seed}, input {number} ({kind}, {len(data)} bytes), kept as {name}", file=sys.stderr)
            raise
        number += 1
    return number


def truncate(reader: Reader) -> int:
    """Every small valid file, cut at every byte."""
    done = 0
    for kind, data in make_seeds():
        if len(data) <= 2600:
            for length in range(len(data)):
                reader.read(kind, data[:length])
                done += 1
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", help="JSON file with the number of the next input; made when missing")
    parser.add_argument("--keep", default=".", help="folder for inputs that fail")
    parser.add_argument("--write-corpus", action="store_true", help="make the files by hand in corpus/ again, and end")
    parser.add_argument("--count", type=int, default=sys.maxsize, help="inputs at most")
    parser.add_argument("--no-truncation", action="store_true", help="leave the cuts at every byte out")
    options = parser.parse_args()
    if options.write_corpus:
        print(write_corpus(), "files in", CORPUS)
        return 0
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    first = 0
    if options.state and os.path.exists(options.state):
        with open(options.state) as file:
            first = json.load(file).get(str(options.seed), 0)
    work = tempfile.mkdtemp(prefix="fuzz-case-")
    start = time.monotonic()
    try:
        reader = Reader(work, Guard())
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for path in list_corpus():
            try:
                reader.read(get_kind(path), path.read_bytes())
            except BaseException:
                print(f"corpus: {path}", file=sys.stderr)
                raise
        cuts = 0 if options.no_truncation else truncate(reader)
        left = options.seconds - (time.monotonic() - start)
        number = run(reader, options.seed, first, left, options.keep, options.count)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if options.state:
        with open(options.state, "w") as file:
            json.dump({str(options.seed): number}, file)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    print(f"seed {options.seed}: inputs {first} to {number}, {cuts} cuts, {time.monotonic() - start:.0f} s")
    print(
        f"{reader.counts['case']} cases, {reader.counts['error']} errors of {len(reader.reasons)} kinds; slowest",
        end=" ",
    )
    print(f"{reader.slowest:.2f} s; peak memory grew by {grown:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
