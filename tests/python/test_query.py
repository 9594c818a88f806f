"""ditorch query and ditorch export --format parquet; skipped where duckdb or pyarrow are not installed."""

from __future__ import annotations

import json
import sys

import pytest
import record_log
from ditorch import cli

NEEDS = "optional: pip install 'ditorch[query]'"


@pytest.fixture
def engines():
    """For tests that need both libraries."""
    pytest.importorskip("pyarrow", reason=NEEDS)
    pytest.importorskip("duckdb", reason=NEEDS)


def make_log(path, rank, calls=5):
    log = record_log.Log(rank=rank, pid=100 + rank, host=f"node{rank}")
    for number in range(1, calls + 1):
        place = {
            "id": record_log.Unsigned(number),
            "name": "torch.mm" if number % 2 else "torch.add",
            "step": number // 3,
        }
        log.add(
            "call",
            2_000_000_000 + number,
            {
                **place,
                "module": "M.a",
                "host_ns": 1000 * number,
                "out": record_log.Tensor("float32", [2, 3]),
                "stats.hash": record_log.Unsigned(2**64 - number),
                "stats.norm": 0.5 * number,
            },
        )
        times = {"kind": "forward", "duration_ns": 10 * number, "device_ns": -1 if number == 1 else 7 * number}
        log.add("time", 2_000_000_000 + number, {**place, **times})
    finding = {"id": record_log.Unsigned(2), "name": "torch.add", "step": 0, "kind": "forward", "verdict": "producer"}
    log.add("finding", 2_000_000_100, {**finding, "nan": 3, "location": "m.py:2 f: y"})
    path.parent.mkdir(exist_ok=True)
    return log.write(path)


@pytest.fixture
def run(tmp_path):
    for rank in (0, 1):
        make_log(tmp_path / "run" / f"{rank}.dlog", rank)
    return str(tmp_path / "run")


def ask(capsys, sql, *words):
    """(status, rows, standard error)"""
    status = cli.main(["query", sql, *map(str, words), "--format", "json"])
    answer = capsys.readouterr()
    return status, json.loads(answer.out) if answer.out else None, answer.err


def test_calls_of_all_ranks(engines, run, capsys):
    sql = "select rank, name, count(*) n, sum(host_ns) ns from calls group by all order by rank, name"
    status, rows, err = ask(capsys, sql, run)
    assert status == 0 and not err
    assert rows[0] == {"rank": 0, "name": "torch.add", "n": 2, "ns": 6000} and len(rows) == 4


def test_every_view_has_what_the_page_says(engines, run, capsys):
    call = ask(capsys, "select * from calls where id = 3 and rank = 1", run)[1][0]
    assert (call["dtype"], call["shape"], call["device"], call["module"]) == ("float32", "2x3", "cuda", "M.a")
    assert call["stats_norm"] == 1.5 and call["stats_hash"] == -3 and call["backward"] is False
    times = ask(capsys, "select device_ns, duration_ns from times where rank = 0 order by id", run)[1]
    assert times[0] == {"device_ns": None, "duration_ns": 10} and times[1] == {"device_ns": 14, "duration_ns": 20}
    (finding,) = ask(capsys, "select * from findings where rank = 1", run)[1]
    assert (finding["nan"], finding["verdict"], finding["location"]) == (3, "producer", "m.py:2 f: y")
    ranks = ask(capsys, "select rank, host, records, missing from ranks order by rank", run)[1]
    assert ranks[1] == {"rank": 1, "host": "node1", "records": 11, "missing": 0}


NO_STEP = dict.fromkeys(("step", "allocated", "reserved", "resident"))


def test_memory_comes_from_the_notes_of_the_run(engines, run, tmp_path, capsys):
    note = {"format": "ditorch-run", "rank": 1, "pid": 7, "memory": {"host_peak": 5, "device_peak": 6}}
    (tmp_path / "run" / "run-r1-p7.json").write_text(json.dumps(note))
    (tmp_path / "run" / "run-r2-p8.json").write_text("{")
    (row,) = ask(capsys, "select * from memory", run)[1]
    assert row == {"rank": 1, "pid": 7, "host_peak": 5, "device_peak": 6, **NO_STEP}
    note["step_memory"] = [[1, 2, 3], [10, 20, 30], "x", [1], [4, None, 1 << 80]]
    (tmp_path / "run" / "run-r1-p7.json").write_text(json.dumps(note))
    rows = ask(capsys, "select * exclude (rank, pid) from memory order by step nulls first", run)[1]
    assert rows[0] == {"host_peak": 5, "device_peak": 6, **NO_STEP} and len(rows) == 4
    steps = [[row[name] for name in ("step", "allocated", "reserved", "resident")] for row in rows[1:]]
    assert steps == [[0, 1, 2, 3], [1, 10, 20, 30], [4, 4, None, None]]
    grown = "select step, allocated - lag(allocated) over (order by step) g from memory where step is not null"
    assert ask(capsys, f"{grown} order by g desc nulls last limit 1", run)[1] == [{"step": 1, "g": 9}]


def test_exported_files_are_asked_too(engines, run, tmp_path, capsys):
    import pyarrow.parquet as pq

    assert cli.main(["export", run, "-o", str(tmp_path / "run.parquet")]) == 0
    table = pq.read_table(tmp_path / "run.parquet")
    assert table.num_rows == 22 and table.schema.metadata[b"ditorch.version"] == b"1"
    status, rows, _ = ask(capsys, "select count(*) n from times", tmp_path / "run.parquet")
    assert status == 0 and rows == [{"n": 10}]
    assert cli.main(["export", run, "-o", str(tmp_path / "few.parquet"), "--type", "call", "--step", "0"]) == 0
    assert pq.read_table(tmp_path / "few.parquet").num_rows == 4


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("frobnicate 1", "syntax error"),
        ("select * from cals", "calls"),
        ("select nombre from calls", "nombre"),
        ("select 1; select 2", "one statement that reads"),
        ("", "one statement that reads"),
        ("create table x (a int)", "one statement that reads"),
        ("copy calls to '/tmp/out.csv'", "one statement that reads"),
        ("set memory_limit='99GB'", "one statement that reads"),
        ("attach '/tmp/x.db'", "one statement that reads"),
        ("select * from read_csv('/etc/passwd')", "disabled by configuration"),
        ("select * from read_text('/etc/passwd')", "disabled by configuration"),
        ("select * from '/etc/passwd'", ""),
    ],
)
def test_what_is_wrong_or_does_more_than_read_is_refused(sql, expected, engines, run, capsys):
    status, rows, err = ask(capsys, sql, run)
    assert status == 2 and rows is None and expected in err and len(err.splitlines()) == 1


def test_forms(engines, run, tmp_path, capsys):
    sql = "select name, stats_norm from calls where rank = 0 and id <= 2 order by id"
    assert cli.main(["query", sql, run]) == 0
    assert capsys.readouterr().out.splitlines()[2] == "torch.mm          0.5"
    assert cli.main(["query", sql, run, "--format", "csv", "-o", str(tmp_path / "x.csv")]) == 0
    assert (tmp_path / "x.csv").read_text().splitlines() == ["name,stats_norm", "torch.mm,0.5", "torch.add,1.0"]
    status, rows, _ = ask(capsys, "select 'NaN'::double a, 'inf'::double b, [1.5] c", run)
    assert status == 0 and rows == [{"a": "NaN", "b": "Infinity", "c": [1.5]}]


def test_hostile_files_are_a_sentence_each(engines, run, tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "foreign.dlog").write_bytes(b"PK\x03\x04")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    pq.write_table(pa.table({"type": ["x"]}), tmp_path / "other.parquet")
    for name, expected in (("foreign.dlog", "skipped"), ("broken.parquet", "left out"), ("other.parquet", "left out")):
        status, _, err = ask(capsys, "select 1", tmp_path / name)
        assert status == 1 and expected in err and "nothing could be read" in err
        status, rows, err = ask(capsys, "select count(*) n from calls", tmp_path / name, run)
        assert status == 0 and rows == [{"n": 10}] and expected in err
    with open(f"{run}/0.dlog", "rb") as file:
        data = file.read()
    (tmp_path / "cut.dlog").write_bytes(data[: len(data) // 2])
    status, rows, err = ask(capsys, "select count(*) n from records", tmp_path / "cut.dlog")
    assert status == 0 and 0 < rows[0]["n"] < 11 and "torn end" in err
    (tmp_path / "empty.dlog").write_bytes(b"")
    status, rows, err = ask(capsys, "select count(*) n from calls", tmp_path / "empty.dlog")
    assert status == 0 and rows == [{"n": 0}] and "the log is empty" in err


def test_wrong_paths(engines, tmp_path, capsys):
    status, _, err = ask(capsys, "select 1", tmp_path / "nothing")
    assert status == 2 and "does not exist" in err
    status, _, err = ask(capsys, "select 1", tmp_path)
    assert status == 2 and "no .dlog or .parquet files" in err


@pytest.mark.parametrize("name", ["duckdb", "pyarrow"])
def test_a_missing_library_is_one_sentence(name, run, capsys, monkeypatch):
    if name == "pyarrow":
        pytest.importorskip("duckdb", reason=NEEDS)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert cli.main(["query", "select 1", run]) == 2
    err = capsys.readouterr().err
    assert f"needs {name}: pip install 'ditorch[query]'" in err and len(err.splitlines()) == 1


def test_export_without_pyarrow_is_one_sentence(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert cli.main(["export", run, "-o", str(tmp_path / "x.parquet")]) == 2
    assert "needs pyarrow" in capsys.readouterr().err and not (tmp_path / "x.parquet").exists()
    assert cli.main(["export", run, "--format", "parquet"]) == 2
    assert "needs a file" in capsys.readouterr().err
