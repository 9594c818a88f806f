"""Logs that lie: bytes that were changed, records whose fields are of any kind. What reads logs says what is wrong, or
makes the best of it; it never fails in another way."""

import json
import random

import pytest
from ditorch import cli, report
from ditorch.export import ExportError
from op_tools.merge import merge
from record_log import Tensor, Unsigned
from report_runs import EVIL, describe_process, make_log, write, write_run

KEYS = (
    *("id", "name", "step", "module", "location", "kind", "what", "verdict", "tool", "index", "duration_ns"),
    *("device_ns", "begin_ns", "signature", "error_size", "allowed", "wrong", "numel", "nan", "inf", "text", "path"),
    *("max_abs_diff", "round", "event", "out", "reason", "at", "stats.hash", "stats.norm", "stats.numel"),
)
TYPES = ("call", "backward", "time", "compare", "finding", "tool", "capture", "note")
VALUES = (
    *(0, 1, -1, 2**62, -(2**62), 0.5, float("nan"), float("inf"), -float("inf"), "", "x", EVIL, "\0", "torch.mm"),
    *(Unsigned(2**64 - 1), Unsigned(0), Tensor("float32", [2, 3]), Tensor("int64", [])),
    *("wrong", "right", "forward", "backward", "output", "overflow", "compare", "producer", "start", [1, 2], []),
)


def write_any(folder, seed):
    numbers = random.Random(seed)
    log = make_log(numbers.choice((0, 3)), 100 + seed)
    for _ in range(200):
        keys = numbers.sample(KEYS, numbers.randrange(len(KEYS)))
        log.add(numbers.choice(TYPES), numbers.randrange(1 << 40), {key: numbers.choice(VALUES) for key in keys})
    process = describe_process(0, 100 + seed)
    for key in numbers.sample(sorted(set(process) - {"format", "rank", "pid"}), 8):
        process[key] = numbers.choice((None, 7, -1, "x", [], [[1]], {"a": EVIL}, [{"name": 3, "step": "x"}], True))
    return write(folder, log, process)


def write_changed(folder, seed):
    """A sound log with some bytes of it changed, cut, or doubled."""
    numbers = random.Random(seed)
    write_run(folder)
    (path,) = (folder / "log").iterdir()
    data = bytearray(path.read_bytes())
    for _ in range(numbers.randrange(1, 30)):
        data[numbers.randrange(len(data))] = numbers.randrange(256)
    if seed % 3 == 1:
        del data[numbers.randrange(len(data)) :]
    if seed % 3 == 2:
        place = numbers.randrange(len(data))
        data[place:place] = data[: numbers.randrange(200)]
    path.write_bytes(bytes(data))
    return folder


def write_one(folder, seed):
    return (write_any if seed % 2 else write_changed)(folder, seed)


@pytest.mark.parametrize("seed", range(24))
def test_merge_and_report(seed, tmp_path, capsys):
    folder = write_one(tmp_path / "run", seed)
    summary = merge([folder])
    json.dumps(summary.as_dict())
    assert summary.as_text() is not None and summary.as_csv()
    try:
        page, _ = report.make([folder])
        assert page.count("<script") == 3 and "<img" not in page
        json.dumps(report.make_numbers([folder]), allow_nan=False)
    except ExportError as error:
        assert str(error).startswith("nothing could be read: ") and not seed % 2
    assert cli.main(["compare", str(folder), str(folder)]) in (0, 1, 2, 3)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(12))
def test_query(seed, tmp_path, capsys):
    pytest.importorskip("pyarrow", reason="optional: pip install 'ditorch[query]'")
    pytest.importorskip("duckdb", reason="optional: pip install 'ditorch[query]'")
    folder = write_one(tmp_path / "run", seed)
    for view in ("records", "calls", "times", "findings", "ranks", "memory"):
        assert cli.main(["query", f"select * from {view}", str(folder), "--format", "json"]) in (0, 1, 2)
    assert "Traceback" not in capsys.readouterr().err
