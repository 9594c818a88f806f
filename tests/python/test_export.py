"""`ditorch export` and ditorch.export.read: every view against a golden file, choice of records, damage, bad input.

The logs come from record_log.py, which writes the documented format by itself. DIT_GOLDEN=1 writes the golden files.
"""

import ast
import csv
import ctypes
import gc
import io
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from conftest import HERE, child_environment, run_python
from ditorch import _C, export, library
from record_log import Log, Tensor, Unsigned

GOLDEN = os.path.join(HERE, "golden", "export")
SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def leaves(number):
    weight = Tensor("float32", (3,), data=64, grad=True)
    return {
        "args.0": Tensor("float32", (2, 3), data=16 * number),
        "args.1": weight,
        "kwargs.alpha": 2,
        "out": Tensor("float32", (2, 3), data=16 * number + 8, grad=True),
    }


def add_time(
    log, number, begin, kind="forward", name="torch.add", host=1_234_567, device=-1, thread=100, step=0, **rest
):
    fields = {"id": Unsigned(number), "name": name, "kind": kind, "step": step, "begin_ns": begin, "duration_ns": host}
    fields |= {"device_ns": device, "signature": "float32[2,3];float32[3]", "round": rest.pop("round", 0)}
    log.add("time", begin + host, fields | rest, thread=thread)


def make_first():
    """Rank 0: every type of record, every kind of value."""
    log = Log(rank=0, pid=100, salt=11, process="aaaa")
    log.add("tool", SECOND + 1000, {"tool": "OpObserve", "event": "start", "text": "level=torch\nranks=all"})
    fields = {
        "id": Unsigned(1),
        "name": "torch.add",
        "tool": "observe",
        "step": 3,
        "location": "train.py:12 step: a + b",
    }
    log.add("call", SECOND + 2000, fields | {"module": "encoder.0", "host_ns": 12_345} | leaves(1))
    fields = {"id": Unsigned(2), "name": "torch.cat", "tool": "observe", "step": 4, "host_ns": 5_000_000}
    fields |= {"args.0.0": Tensor("bfloat16", (4,), data=7), "args.0.1": Tensor("bfloat16", (1,), data=9), "args.1": 0}
    log.add("call", SECOND + 3000, fields | {"out": Tensor("bfloat16", (5,))})
    fields = {"id": Unsigned(3), "name": "torch.sort", "tool": "observe", "step": 4, "host_ns": 999}
    fields |= {"args.0": Tensor("float64", (), "cpu", -1), "kwargs.dim": -1, "kwargs.shape": [2, 3], "kwargs.on": True}
    fields |= {"kwargs.scale": 1e-5, "kwargs.mode": 'it\'s "quoted"', "out.0": Tensor("float64", (), "cpu", -1)}
    log.add("call", SECOND + 4000, fields | {"out.1": Tensor("int64", (), "cpu", -1)})
    fields = {"id": Unsigned(9), "name": "torch.mm", "tool": "observe", "step": 4, "host_ns": 40}
    log.add("call", SECOND + 4500, fields | {"args.0": "None", "error": "shapes \x1b[31m do not fit"})
    fields = {"id": Unsigned(1), "name": "torch.add", "step": 4, "round": 0, "complete": True, "host_ns": 7_000}
    fields |= {"grad_out.0": Tensor("float32", (2, 3), data=5), "grad_in.0": Tensor("float32", (2, 3), data=6)}
    log.add("backward", SECOND + 5000, fields, thread=101)
    fields = {"id": Unsigned(2), "name": "torch.log", "kind": "forward", "step": 4, "location": "train.py:13 step: log"}
    fields |= {"module": "head", "nan": 3, "inf": 0, "verdict": "producer", "in.0.min": -1.5, "in.0.max": float("nan")}
    log.add("finding", SECOND + 6000, fields, flags=5)
    fields = {"id": Unsigned(2), "name": "torch.log", "what": "input", "path": "torch.log/input.pth", "bytes": 1234}
    log.add("capture", SECOND + 7000, fields)
    log.add("note", SECOND + 8000, {"text": b"not UTF-8: \xff \xc3\xa9"})
    log.add(40, SECOND + 9000, [("key", 1), ("key", 2), ("type", "taken"), ("data", float("-inf"))])
    return log


def make_second():
    """Rank 1, times only: joined over a distance, device time, several rounds, a backward and a forward alone."""
    log = Log(rank=1, pid=100, salt=12, process="bbbb")
    base = SECOND + 2500
    grad = {"grad_out.0": Tensor("float32", (2, 3), data=5), "grad_in.1": Tensor("float32", (3,), data=6)}
    add_time(log, 1, base, **leaves(1))
    add_time(log, 2, base + 2_000_000, name='odd "name", comma', device=98_765_432_100, step=1, **leaves(2))
    add_time(
        log, 3, base + 4_000_000, name="torch.relu", step=1, **{"args.0": Tensor("float32", (2, 3)), "out": "None"}
    )
    add_time(log, 2, base + 6_000_000, "backward", 'odd "name", comma', device=50_000, thread=101, step=1, **grad)
    add_time(log, 1, base + 8_000_000, "backward", thread=101, host=1, **grad)
    add_time(log, 1, base + 9_000_000, "backward", thread=101, host=2, round=1, **grad)
    add_time(log, 77, base + 9_500_000, "backward", "torch.lost", thread=101, **grad)
    return log


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    make_first().write(folder / "ops-r0-p100.dlog")
    make_second().write(folder / "ops-r1-p100.dlog")
    return str(folder)


def run_export(*words):
    """The exit status and what went to the files; in this process."""
    return export.main([str(word) for word in words])


def exported(tmp_path, *words):
    out = tmp_path / "out"
    assert run_export(*words, "-o", out) == 0
    return out.read_bytes()


@pytest.mark.parametrize("view", ["jsonl", "csv", "trace", "text", "legacy-csv"])
def test_golden(view, logs, tmp_path):
    got = exported(tmp_path, logs, "--format", view)
    path = os.path.join(GOLDEN, f"{view}.golden")
    if os.environ.get("DIT_GOLDEN"):
        with open(path, "wb") as file:
            file.write(got)
    with open(path, "rb") as file:
        assert got.decode() == file.read().decode()


def test_jsonl_equals_read(logs, tmp_path):
    lines = exported(tmp_path, logs, "--format", "jsonl").decode().splitlines()
    records = list(export.read(logs))
    assert len(lines) == len(records) == 17
    for line, record in zip(lines, records, strict=True):
        assert json.loads(line) == json.loads(json.dumps(record), parse_constant=str)
    assert [r["time"] for r in records] == sorted(r["time"] for r in records)


def test_trace_is_json_with_tracks(logs, tmp_path):
    events = json.loads(exported(tmp_path, logs, "--format", "trace"))["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(names.values()) == {"backward, thread 101", "device cuda:0"}
    spans = [e for e in events if e["ph"] == "X"]
    device = [e for e in spans if names.get((e["pid"], e["tid"])) == "device cuda:0"]
    assert [e["dur"] for e in device] == [98_765_432.1, 50.0]
    assert device[1]["ts"] == pytest.approx(device[0]["ts"] + device[0]["dur"])  # one after the other
    backward = [e for e in spans if "backward" in names.get((e["pid"], e["tid"]), "")]
    assert len(backward) == 5 and all(e["args"].get("kind", "backward") == "backward" for e in backward)


def read_rows(data):
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


def test_a15_t3_legacy_header_once_and_rows_joined(logs, tmp_path):
    data = exported(tmp_path, logs, "--format", "legacy-csv")
    assert data.count(b"forward_elasped") == 1 and data.count(b"\r\n") == data.count(b"\n")
    rows = read_rows(data)
    expected = "name,forward_id,forward_elasped,backward_elasped,unit,input,output,grad_inputs,grad_outputs"
    assert ",".join(rows[0]) == expected
    assert [row[:5] for row in rows[1:]] == [
        ["torch.add", "1", "1.23456700", "0.00000100", "ms"],
        ["torch.add", "1", "-", "0.00000200", "ms"],
        ['odd "name", comma', "2", "98765.43210000", "0.05000000", "ms"],
        ["torch.relu", "3", "1.23456700", "-", "ms"],
        ["torch.lost", "77", "-", "1.23456700", "ms"],
    ]
    tensor = {"device": "cuda:0", "dtype": "float32", "numel": 6, "shape": "(2, 3)", "stride": (3, 1)}
    tensor |= {"requires_grad": False, "layout": "torch.strided"}
    weight = tensor | {"numel": 3, "shape": "(3,)", "stride": (1,), "requires_grad": True, "data_ptr": 64}
    first = ast.literal_eval(rows[1][5])
    assert first == {"args": (tensor | {"data_ptr": 16}, weight), "kwargs": {"alpha": "2"}}
    assert str(first) == rows[1][5], "not what Python prints"
    assert ast.literal_eval(rows[1][6]) == {"args": (tensor | {"data_ptr": 24, "requires_grad": True},)}
    assert ast.literal_eval(rows[1][7]) == {"args": (("None", weight | {"requires_grad": False, "data_ptr": 6}),)}
    assert ast.literal_eval(rows[4][6]) == {"args": ("None",)}
    assert rows[4][7:] == ["-", "-"]


def test_legacy_values_are_python_text(tmp_path):
    """str() of every float and repr() of every text, against Python itself."""
    draw = random.Random(4)
    floats = [0.0, -0.0, 1e16, 1e15, 9999999999999998.0, 1e-4, 1e-5, 123456.75, 5e-324, 1.7976931348623157e308, 0.1]
    floats += [draw.uniform(-1, 1) * 10.0 ** draw.randrange(-30, 30) for _ in range(300)]
    floats += [float("inf"), float("-inf"), float("nan")]
    texts = [
        "plain",
        "it's",
        'say "x"',
        "both ' and \"",
        "tab\t line\n cr\r back\\",
        "\x00\x1f\x7f",
        "\x80\xa0\xad\xff",
        "é漢😀",
        "",
    ]
    log = Log()
    for number, value in enumerate(floats + texts):
        add_time(log, number, number * 10, **{"args.0": value if value != "" else b"", "out": True})
    rows = read_rows(exported(tmp_path, log.write(tmp_path / "a.dlog"), "--format", "legacy-csv"))
    for value, row in zip(floats + texts, rows[1:], strict=True):
        assert row[5] == str({"args": (str(value),)}), repr(value)


def test_legacy_nesting(tmp_path):
    log = Log()
    fields = [("args.0.0", 1), ("args.0.1.0", 2), ("args.0.1.2", 3), ("args.2.key", 4), ("args.2.other.0", 5)]
    add_time(log, 1, 0, **dict(fields), **{"out.1.0": 6})
    rows = read_rows(exported(tmp_path, log.write(tmp_path / "a.dlog"), "--format", "legacy-csv"))
    assert rows[1][5] == "{'args': (['1', ['2', [], '3']], [], {'key': '4', 'other': ['5']})}"
    assert rows[1][6] == "{'args': (('None', ('6',)),)}"


def test_legacy_ids_belong_to_a_process(tmp_path):
    """The same rank, pid and id in two runs are two calls."""
    paths = []
    for run in ("one", "two"):
        log = Log(process=run, wall=1_700_000_000_000_000_000 + (run == "two") * SECOND)
        add_time(log, 5, SECOND, name=f"torch.{run}")
        if run == "two":
            add_time(log, 5, SECOND + 10, "backward", name=f"torch.{run}", host=3)
        paths.append(log.write(tmp_path / f"{run}.dlog"))
    rows = read_rows(exported(tmp_path, *paths, "--format", "legacy-csv"))
    assert [row[:4] for row in rows[1:]] == [
        ["torch.one", "5", "1.23456700", "-"],
        ["torch.two", "5", "1.23456700", "0.00000300"],
    ]


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--type", "call"], 4),
        (["--type", "call,note"], 5),
        (["--type", "40"], 1),
        (["--type", "18"], 7),
        (["--name", r"torch\.add"], 5),
        (["--name", "add"], 0),
        (["--name", r"torch\..*"], 12),
        (["--step", "3"], 1),
        (["--step", "3-4"], 6),
        (["--step", "0,3"], 5),
        (["--step", "1-"], 9),
        (["--step", "1-", "--type", "time", "--name", ".*relu"], 1),
    ],
)
def test_choice(words, expected, logs, tmp_path):
    assert len(exported(tmp_path, logs, "--format", "jsonl", *words).splitlines()) == expected


def test_read_nothing(tmp_path):
    assert list(export.read([])) == list(export.read(tmp_path)) == []


def test_read_choice(logs):
    names = [r["name"] for r in export.read([logs], types=["call"], steps="4", name=".*(cat|sort)")]
    assert names == ["torch.cat", "torch.sort"]
    (record,) = export.read(logs, types=["40"])
    assert (record["key"], record["key[1]"], record["type"], record["type[1]"]) == (1, 2, "40", "taken")


@pytest.mark.parametrize(
    "output, start",
    [
        ("a.jsonl", '{"type":'),
        ("a.ndjson", '{"type":'),
        ("a.csv", "type,seq,"),
        ("a.json", '{"displayTimeUnit"'),
        ("a.TXT", "22:13:20"),
    ],
)
def test_format_by_extension(output, start, logs, tmp_path):
    assert run_export(logs, "-o", tmp_path / output) == 0
    assert (tmp_path / output).read_text().startswith(start)


def test_default_is_text_on_the_console(logs):
    answer = run_python("-m", "ditorch", "export", logs, TZ="UTC")
    with open(os.path.join(GOLDEN, "text.golden")) as file:
        assert answer.stdout.endswith(file.read())


@pytest.mark.parametrize(
    "words, status, message",
    [
        (["/nowhere/at/all"], 2, "'/nowhere/at/all' does not exist"),
        (["{logs}", "--format", "xml"], 2, "invalid choice: 'xml'"),
        (["{logs}", "-o", "out.xyz"], 2, "no format is known for 'out.xyz'; valid: --format jsonl|csv"),
        (["{logs}", "-o", "{tmp}"], 2, "no format is known"),
        (["{logs}", "-o", "{tmp}", "--format", "csv"], 2, "is a directory"),
        (["{logs}", "-o", "{logs}/ops-r0-p100.dlog", "--format", "csv"], 2, "is one of the inputs"),
        (["{logs}", "--format", "csv", "-o", "/nowhere/a.csv"], 2, "cannot be written: No such file"),
        (
            ["{logs}", "--name", "a(b"],
            2,
            "'a(b' is no regular expression: missing ), unterminated subpattern at position 1",
        ),
        (["{logs}", "--step", "4-2"], 2, "the range '4-2' is empty"),
        (["{logs}", "--step", "x"], 2, "'x' is no step; expected numbers and ranges: 4-6,9"),
        (["{logs}", "--type", "calls"], 2, "--type 'calls' is unknown; valid: call, backward, time"),
        (["{logs}", "--format", "legacy-csv", "--type", "call"], 2, "records of type time only"),
        (["{logs}", "--format", "files"], 2, "no .dpack files in"),
        (["{logs}", "--format", "files", "--step", "1"], 2, "--step does not go with --format files"),
        (["{tmp}/empty"], 2, "no .dlog files in"),
        (["{tmp}/foreign.dlog"], 1, "is not a record log"),
        ([], 2, "the following arguments are required"),
    ],
)
def test_bad_input(words, status, message, logs, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign.dlog").write_bytes(b"PK\x03\x04 something else")
    assert run_export(*[word.format(logs=logs, tmp=tmp_path) for word in words]) == status
    assert message in capsys.readouterr().err
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_foreign_file_among_logs_is_skipped_and_said(logs, tmp_path, capsys):
    with open(os.path.join(logs, "x.dlog"), "wb") as file:
        file.write(b"something else")
    assert len(exported(tmp_path, logs, "--format", "jsonl").splitlines()) == 17
    assert "x.dlog' is not a record log" in capsys.readouterr().err


def test_torn_end_damage_and_drops_are_said_and_repaired(tmp_path, capsys):
    log = make_second()
    log.drops(4)
    place = log.add("note", SECOND, {"text": "after the drops"})
    log.data[place + 20] ^= 1
    log.add("note", SECOND, {"text": "whole"})
    log.add("note", SECOND, {"text": "torn"})
    del log.data[-3:]
    path = log.write(tmp_path / "a.dlog")
    assert b"whole" in exported(tmp_path, path, "--format", "jsonl")
    said = capsys.readouterr().err
    assert "torn end of" in said and "(--repair cuts it off)" in said and "4 records dropped or lost" in said
    assert "skipped at 1 place" in said and "1 record missing" in said
    before = os.path.getsize(path)
    assert b"whole" in exported(tmp_path, path, "--format", "jsonl", "--repair")
    said = capsys.readouterr().err
    assert "cut off" in said and "ignored" not in said and os.path.getsize(path) < before


def test_damaged_files_never_crash_a_reader(tmp_path, capsys):
    """Seeded damage through every view and the iterator; what is written stays well-formed."""
    draw = random.Random(2024)
    whole = bytes(make_second().data)
    path, out = tmp_path / "a.dlog", tmp_path / "out"
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(bytes(data[: draw.randrange(len(data))] if draw.random() < 0.3 else data))
        view = draw.choice(["jsonl", "csv", "trace", "text", "legacy-csv"])
        if run_export(path, "--format", view, "-o", out) != 0:
            continue
        text = out.read_text()
        if view == "jsonl":
            assert len([json.loads(line) for line in text.splitlines()]) == len(list(export.read(path)))
        elif view == "trace":
            json.loads(text)
        elif view == "legacy-csv":
            assert {len(row) for row in csv.reader(io.StringIO(text))} == {9}
    capsys.readouterr()


def test_output_appears_only_when_complete(logs, tmp_path, monkeypatch):
    out = tmp_path / "a.csv"
    out.write_text("before")

    class Broken:
        def __init__(self, *arguments):
            pass

        def close(self):
            pass

        def export(self, *arguments):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(export._C, "LogReader", Broken)
    assert run_export(logs, "-o", out) == 1
    assert out.read_text() == "before" and sorted(os.listdir(tmp_path)) == ["a.csv", "log"]


def test_full_device_and_closed_pipe(logs, capsys):
    if os.path.exists("/dev/full"):
        assert run_export(logs, "--format", "csv", "-o", "/dev/full") == 1
        assert "no space left" in capsys.readouterr().err
    command = f"'{sys.executable}' -m ditorch export '{logs}' --format jsonl 2>err | head -c 10"
    answer = subprocess.run(
        command, shell=True, capture_output=True, env=child_environment(), cwd=os.path.dirname(logs)
    )
    assert answer.returncode == 0
    with open(os.path.join(os.path.dirname(logs), "err")) as file:
        assert "Traceback" not in file.read()


def test_reader_object_rules(logs):
    path = os.path.join(logs, "ops-r0-p100.dlog")
    reader = _C.LogReader([path])
    assert reader.header(0)["metadata"]["process"] == "aaaa" and reader.header(1) is None
    assert reader.counts()["records"] == 0 and next(reader)["type"] == "tool" and reader.counts(0)["records"] == 1
    reader.close()
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(reader)
    with pytest.raises(ValueError, match="view 'xml' is unknown; valid: jsonl, csv, trace, text, legacy-csv"):
        _C.LogReader([path]).export("xml", 1)
    with pytest.raises(OSError, match="absent"):
        _C.LogReader(["/absent"])
    with pytest.raises(TypeError):
        _C.LogReader([path], None, [1])
    with pytest.raises(TypeError):
        _C.LogReader([path], None, None, 5)

    def bad(name):
        raise KeyError(name)

    with pytest.raises(KeyError, match=r"torch\.add"):
        list(_C.LogReader([path], None, None, bad))
    with pytest.raises(KeyError, match=r"torch\.add"), open(os.devnull, "wb") as out:
        _C.LogReader([path], None, None, bad).export("csv", out.fileno())
    nested = _C.LogReader([path], None, None, lambda name: next(nested) is None)
    with pytest.raises(RuntimeError, match="in use"):
        list(nested)


def test_readers_leak_nothing(logs):
    """Complete, abandoned, failing and refused readers: memory stays flat (one lost reader would be 256 KiB)."""
    path = os.path.join(logs, "ops-r0-p100.dlog")

    def fail(name):
        raise ValueError(name)

    def use(out):
        for _ in export.read(logs, types=["call"], steps="3-4", name=".*"):
            pass
        next(export.read(path))
        for view in ("csv", "trace", "legacy-csv"):
            _C.LogReader([path]).export(view, out)
        for arguments in (([path], None, None, fail), ([path, "/absent"],), ([path], None, [1]), ([path, 3],)):
            with pytest.raises((ValueError, OSError, TypeError)):
                list(_C.LogReader(*arguments))

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    with open(os.devnull, "wb") as null:
        for _ in range(100):
            use(null.fileno())
        gc.collect()
        objects, memory = len(gc.get_objects()), resident()
        for _ in range(400):
            use(null.fileno())
        gc.collect()
    assert len(gc.get_objects()) - objects < 50
    assert resident() - memory < 2 << 20


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise KeyError", "threading.Thread(target=sys.exit).start()"])
def test_a15_records_survive_the_end_of_python(end, tmp_path):
    """A process that ends by itself keeps what was queued, although nobody closed the log."""
    program = f"""
import ctypes, struct, sys, threading
options = struct.pack("NiiiiQiiPN", 0, 0, 0, 0, 60000, 0, 0, 0, 0, 0)  # dit_record_options: a minute of linger_ms
lib = ctypes.CDLL({os.path.join(library.DIRECTORY, "libdit.so")!r})
lib.dit_record_builder_get_local.restype = ctypes.c_void_p
writer, key = ctypes.c_void_p(), ctypes.c_uint32()
builder = ctypes.c_void_p(lib.dit_record_builder_get_local())
assert lib.dit_record_intern(b"text", ctypes.c_size_t(4), ctypes.byref(key), None) == 0
assert lib.dit_record_writer_create({str(tmp_path)!r}.encode(), options, ctypes.byref(writer), None) == 0
for number in range(2000):
    lib.dit_record_begin(builder, 22, 0, ctypes.c_int64(0))
    lib.dit_record_field_i64(builder, key, ctypes.c_int64(number))
    lib.dit_record_commit(builder, writer, None)
{end}
"""
    subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=600)
    assert [record["text"] for record in export.read(tmp_path)] == list(range(2000))


class StoreItem(ctypes.Structure):
    """struct dit_store_item of dit/store.h."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("pickle", ctypes.c_char_p),
        ("pickle_size", ctypes.c_size_t),
        ("json", ctypes.c_char_p),
        ("json_size", ctypes.c_size_t),
        ("blobs", ctypes.c_void_p),
        ("blob_count", ctypes.c_size_t),
    )


class StoreOptions(ctypes.Structure):
    """struct dit_store_options of dit/store.h."""

    _fields_ = (
        ("layout", ctypes.c_int),
        ("container", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("pressure", ctypes.c_int),
        ("block_ms", ctypes.c_int),
        ("queue_bytes", ctypes.c_int64),
        ("cap_bytes", ctypes.c_int64),
        ("cap_items", ctypes.c_int64),
    )


def write_container(root):
    lib = ctypes.CDLL(os.path.join(library.DIRECTORY, "libdit.so"))
    store = ctypes.c_void_p()
    options = StoreOptions(layout=1, rank=3)
    assert lib.dit_store_create(str(root).encode(), ctypes.byref(options), ctypes.byref(store), None) == 0
    for number in range(3):
        text = json.dumps({"number": number}).encode()
        pickle = b"\x80\x02K" + bytes([number]) + b"."
        item = StoreItem(f"torch.add/{number}/input.pth".encode(), pickle, len(pickle), text, len(text))
        assert lib.dit_store_put(store, ctypes.byref(item), False, None, None) == 0
    assert lib.dit_store_destroy(store, 30000, None) == 0


def test_files_unpacks_containers(tmp_path, capsys):
    write_container(tmp_path / "packed")
    out = tmp_path / "out"
    assert run_export(tmp_path / "packed", "--format", "files", "-o", out) == 0
    assert "3 items unpacked below" in capsys.readouterr().out
    for number in range(3):
        path = out / "torch.add" / str(number) / "input.pth"
        assert torch.load(path, weights_only=True) == number
        assert json.loads((path.parent / "input.pth.json").read_text()) == {"number": number}
    (pack,) = (tmp_path / "packed").glob("*.dpack")
    assert run_export(pack, "-o", tmp_path / "again") == 0  # a container means files
    assert (tmp_path / "again" / "torch.add" / "2" / "input.pth").exists()
    pack.write_bytes(b"something else")
    assert run_export(pack) == 1
    assert "nothing could be read" in capsys.readouterr().err


def test_many_files_beyond_the_limit_of_open_files(tmp_path):
    for rank in range(80):
        log = Log(rank=rank, salt=rank + 1)
        log.add("note", SECOND + (79 - rank), {"text": f"rank {rank}"})
        log.write(tmp_path / f"ops-r{rank}.dlog")
    program = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (70, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        from ditorch import export
        ranks = [record["rank"] for record in export.read({str(tmp_path)!r})]
        assert ranks == list(range(79, -1, -1)), ranks
        """
    run_python(program)


def test_interrupt_ends_an_export(tmp_path):
    """Ctrl-C while C code waits in write() for a pipe that nobody reads: KeyboardInterrupt, not a hang."""
    log = Log()
    for number in range(300):
        log.add("note", number, {"text": b"x" * 4000})
    path = log.write(tmp_path / "a.dlog")
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in background jobs
        f"from ditorch import _C; print('ready', flush=True); _C.LogReader([{path!r}]).export('jsonl', 1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment()
    ) as child:
        while b"ready" not in child.stdout.readline():
            pass
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        child.wait(600)
        assert b"KeyboardInterrupt" in child.stderr.read()
