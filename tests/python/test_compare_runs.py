"""ditorch compare on runs: alignment against known truth, what is told and with which status, hostile logs."""

from __future__ import annotations

import json
import os
import random
import struct
import sys

import pytest
import record_log
from align_truth import count_right, list_pairs, measure
from conftest import HERE, run_python
from ditorch import cli

pytestmark = pytest.mark.usefixtures("warm_children")

STATS = {"stats.numel": 64, "stats.mean": 0.25, "stats.min": -1.0, "stats.max": 1.0, "stats.dtype": "float32"}


def write_log(path, calls, **header):
    """`calls`: dictionaries with name and what else is known; ids and times are counted."""
    log = record_log.Log(**{"type.23": "compare"}, **header)
    for number, call in enumerate(calls, 1):
        call = dict(call)
        kind, size = call.pop("type", "call"), call.pop("shape", [4, 4])
        fields = {"id": record_log.Unsigned(call.pop("id", number)), "name": call.pop("name"), "step": 0}
        fields |= {"host_ns": 1000, "location": "m.py:1 f: x", "args.0": record_log.Tensor("float32", size)}
        log.add(kind, 2_000_000_000 + number * 1000, fields | call)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(bytes(log.data))
    return str(path)


def make_newer(data):
    """The same log as a later version would have written it."""
    data = bytearray(data)
    data[8] = 9
    (length,) = struct.unpack_from("<I", data, 12)
    struct.pack_into("<I", data, length - 4, record_log.crc32c(0, bytes(data[: length - 4])))
    return data


def make_call(name, value=1.0, **more):
    return {"name": name, "stats.norm": 8.0 * value, "stats.hash": record_log.Unsigned(hash(value)), **STATS, **more}


def compare(capsys, *words):
    """(status, standard output, standard error)"""
    status = cli.main(["compare", *map(str, words)])
    answer = capsys.readouterr()
    return status, answer.out, answer.err


def compare_json(capsys, *words):
    status, out, _ = compare(capsys, *words, "--json")
    return status, json.loads(out)


@pytest.fixture
def runs(tmp_path):
    """A function that writes the logs a and b and gives their paths."""

    def write(a, b):
        return [write_log(str(tmp_path / name / "x.dlog"), calls) for name, calls in (("a", a), ("b", b))]

    return write


# Alignment against the truth


def check_truth(a, b, least=0.99):
    calls, pairs, right = measure(a, b)
    assert calls > 300 and pairs > 150
    assert right >= least, right


def record(folder, *words, world=1):
    script = os.path.join(HERE, "compare_truth.py")
    tool = ["-m", "ditorch", "run", "--tool", "observe", "--option", "observe.stats=1", "--out", folder]
    if world > 1:
        tool += ["--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", world]
        tool += ["--master-port", random.randint(20000, 60000)]
    run_python(*tool, script, *words)
    return sorted(str(path) for path in (folder / "log").glob("*.dlog"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return record(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("words", [["again"], ["fused"], ["fused", "again"]], ids="-".join)
def test_another_program_is_aligned_with_the_truth(plain, words, tmp_path):
    check_truth(plain, record(tmp_path, *words))


def test_checkpointing_alone_changes_no_value(plain, tmp_path, capsys):
    other = record(tmp_path, "again")
    status, facts = compare_json(capsys, plain[0], other[0])
    counts = facts["counts"]
    assert status == 0 and counts["differ"] == 0 and counts["only_a"] == 0
    assert counts["recomputed_b"] > 50 and counts["compared"] > 200


@pytest.mark.full
def test_another_number_of_ranks_is_aligned_with_the_truth(plain, tmp_path, capsys):
    logs = record(tmp_path, world=2)
    assert len(logs) == 2
    for log in logs:
        check_truth(plain, [log])
    _, facts = compare_json(capsys, os.path.dirname(plain[0]), tmp_path)
    assert facts["ranks"] == [{"a": 0, "b": 0}, {"a": 0, "b": 1}]


def mutate(calls, random_numbers, rate):
    """Leave calls out, put new ones in, replace three by one, and do a stretch twice, marked as recomputed."""
    out, at = [], 0
    while at < len(calls):
        draw = random_numbers.random()
        if draw < rate:
            at += 1
        elif draw < 2 * rate:
            name = random_numbers.choice(["add", "mul", "cat"])
            out.append({"name": name, "module": calls[at]["module"], "own": len(out)})
        elif draw < 3 * rate:
            out.append({"name": "fused", "module": calls[at]["module"], "own": len(out)})
            at += 3
        elif draw < 3.5 * rate:
            out += [{**call, "recompute": True, "own": i} for i, call in enumerate(calls[at - 20 : at], len(out))]
            out.append(calls[at])
            at += 1
        else:
            out.append(calls[at])
            at += 1
    return out


@pytest.mark.parametrize("seed", range(3))
def test_a_mutilated_run_is_aligned_with_the_truth(seed, tmp_path):
    numbers = random.Random(seed)
    names = ["linear", "matmul", "softmax", "matmul", "linear", "add", "mul", "gelu", "linear", "add"]
    base = [
        {"name": name, "module": f"M.layers.{layer}", "own": f"{step}.{layer}.{i}", "step": step}
        for step in range(3)
        for layer in range(60)
        for i, name in enumerate(names)
    ]
    calls = [{"step": 0, **call} for call in mutate(base, numbers, 0.02)]
    step = 0
    for call in calls:  # what was put in belongs to the step around it
        step = call["step"] = max(step, call["step"])

    def write(name, rows):
        rows = [{key: value for key, value in row.items() if key != "own"} for row in rows]
        return [write_log(str(tmp_path / name), rows)]

    paths = write("a.dlog", base), write("b.dlog", calls)
    owns = [[row["own"] for row in rows] for rows in (base, calls)]
    pairs = list_pairs(*paths)
    for pair in pairs:
        for side in (0, 1):
            if pair[side]:
                pair[side]["own"] = owns[side][pair[side]["id"] - 1]
    assert count_right(pairs, lambda call: call["own"]) >= 0.99


def test_pairs_hold_every_call_once(tmp_path):
    numbers = random.Random(7)
    calls = [[make_call(numbers.choice("abc"), step=numbers.randrange(3)) for _ in range(80)] for _ in range(2)]
    paths = [[write_log(str(tmp_path / f"{side}.dlog"), calls[side])] for side in (0, 1)]
    pairs = list_pairs(*paths)
    for side in (0, 1):
        assert sorted(pair[side]["id"] for pair in pairs if pair[side]) == list(range(1, 81))
    assert all(pair[0]["step"] == pair[1]["step"] and pair[0]["name"] == pair[1]["name"] for pair in pairs if all(pair))


# What is told


def test_equal_runs_are_the_same(runs, capsys):
    calls = [make_call("torch.mm", i) for i in range(1, 9)]
    status, out, err = compare(capsys, *runs(calls, calls))
    assert status == 0 and "== ditorch compare: the same" in out and "8 equal to the bit" in out and not err


def test_the_first_divergence_is_told_with_its_place(runs, capsys):
    a = [make_call("torch.mm", i, module=f"M.{i}", location=f"m.py:{i} f: x") for i in range(1, 9)]
    b = [dict(call) for call in a]
    for call in b[4:]:
        call["stats.norm"] *= 1.5
        call["stats.hash"] = record_log.Unsigned(call["stats.hash"] + 1)
    status, facts = compare_json(capsys, *runs(a, b))
    assert status == 1 and facts["counts"]["differ"] == 4
    first = facts["first"]
    assert (first["module"], first["location"], first["a"]["id"]) == ("M.5", "m.py:5 f: x", 5)
    status, out, _ = compare(capsys, *runs(a, b))
    assert "first divergence\n  torch.mm in M.5, step 0, at m.py:5 (x)\n  error 0.33, tolerance 1e-05" in out


def test_the_tolerance_decides(runs, capsys):
    a, b = [make_call("torch.mm", 1.0)], [make_call("torch.mm", 1.001)]
    assert compare(capsys, *runs(a, b))[0] == 1
    assert compare(capsys, *runs(a, b), "--tolerance", "0.01")[0] == 0
    assert compare(capsys, *runs(a, b), "--tolerance", "-1")[0] == 2
    b[0]["stats.dtype"] = "bfloat16"
    assert compare(capsys, *runs(a, b))[0] == 0


def test_a_difference_that_only_the_hash_shows(runs, capsys):
    """Integers may not differ at all; of floats nobody knows how far apart they are."""
    a, b = [make_call("torch.argsort")], [make_call("torch.argsort", **{"stats.hash": record_log.Unsigned(9)})]
    status, out, _ = compare(capsys, *runs(a, b))
    assert status == 0 and "first difference in bits, within the tolerance" in out and "error in bits alone" in out
    assert compare(capsys, *runs(a, b), "--tolerance", "0")[0] == 1
    a[0]["stats.dtype"] = b[0]["stats.dtype"] = "int64"
    assert compare(capsys, *runs(a, b))[0] == 1


def test_nan_on_one_side_is_a_difference(runs, capsys):
    a, b = [make_call("torch.log")], [make_call("torch.log", **{"stats.nan": 3, "stats.hash": record_log.Unsigned(9)})]
    assert compare(capsys, *runs(a, b))[0] == 1
    assert compare(capsys, *runs(b, b))[0] == 0


def test_calls_of_one_run_alone_are_told_and_count_when_strict(runs, capsys):
    a = [make_call("torch.mm", i, module="M.a") for i in range(1, 6)]
    b = [*a[:2], make_call("torch.add", 9, module="M.a"), *a[2:]]
    status, out, _ = compare(capsys, *runs(a, b))
    assert status == 0 and "0 calls of A and 1 of B have no partner" in out and "A: nothing; B: add" in out
    assert compare(capsys, *runs(a, b), "--strict")[0] == 1


def test_a_replaced_stretch_is_judged_by_its_last_result(runs, capsys):
    ends = [make_call("torch.mm", 1), make_call("torch.add", 2)]
    a = [ends[0], make_call("torch.matmul", 5), make_call("torch.softmax", 6), ends[1]]
    status, facts = compare_json(capsys, *runs(a, [ends[0], make_call("torch.sdpa", 6), ends[1]]))
    (region,) = facts["alone"]
    assert status == 0 and region["agree"] == 1 and (region["a"], region["b"]) == ("matmul, softmax", "sdpa")
    _, facts = compare_json(capsys, *runs(a, [ends[0], make_call("torch.sdpa", 7), ends[1]]))
    assert facts["alone"][0]["differ"] == 1


def test_a_run_that_ended_early_differs(runs, capsys):
    a = [make_call("torch.mm", i, step=i) for i in range(4)]
    status, out, _ = compare(capsys, *runs(a, a[:2]))
    assert status == 1 and "only A has the steps 2-3" in out
    assert compare(capsys, *runs(a, a[:2]), "--steps", "0-1")[0] == 0


def test_a_finding_of_one_run_is_a_difference(runs, capsys):
    calls = [make_call("torch.log", 1), make_call("torch.mm", 2)]
    finding = {"type": "finding", "name": "torch.log", "id": 1, "kind": "forward", "verdict": "producer"}
    status, facts = compare_json(capsys, *runs(calls, [*calls, finding]))
    assert status == 1 and facts["counts"]["findings"] == 1
    assert compare(capsys, *runs(calls, [*calls, {**finding, "verdict": "allowed"}]))[0] == 0


def test_verdicts_of_autocompare_are_compared(runs, capsys):
    one = {"type": 23, "name": "torch.mm", "what": "output", "index": -1, "verdict": "right"}
    assert compare(capsys, *runs([one], [one]))[0] == 0
    assert compare(capsys, *runs([one], [{**one, "verdict": "wrong"}]))[0] == 1
    assert compare(capsys, *runs([one], [{**one, "verdict": "unknown"}]))[0] == 3


def test_without_values_nothing_was_compared(runs, capsys):
    calls = [{"name": "torch.mm"}, {"name": "torch.add"}]
    status, out, _ = compare(capsys, *runs(calls, calls))
    assert status == 3 and "nothing was compared" in out and "observe.stats=1" in out
    assert compare(capsys, *runs(calls, calls), "--no-values")[0] == 0
    assert compare(capsys, *runs(calls, calls[:1]), "--no-values")[0] == 1
    assert compare(capsys, *runs([calls[0]], [calls[1]]))[0] == 3


def test_ranks_are_paired(tmp_path, capsys):
    for run, ranks in (("a", 2), ("b", 4)):
        for rank in range(ranks):
            write_log(str(tmp_path / run / f"{rank}.dlog"), [make_call("torch.mm", 1)], rank=rank)
    status, facts = compare_json(capsys, tmp_path / "a", tmp_path / "b")
    assert [(pair["a"], pair["b"]) for pair in facts["ranks"]] == [(0, 0), (1, 1), (0, 2), (1, 3)]
    assert status == 1 and facts["missing_ranks"] == {"a": [2, 3], "b": []}
    assert compare_json(capsys, tmp_path / "a", tmp_path / "b", "--ranks", "1")[1]["ranks"] == [{"a": 1, "b": 1}]
    status, _, err = compare(capsys, tmp_path / "a", tmp_path / "b", "--ranks", "7")
    assert status == 2 and "no run has rank 7; there are 0, 1, 2, 3" in err


def test_wrappers_of_modules_do_not_matter(runs, capsys):
    paths = ["Model.layers.0", "DistributedDataParallel.module.layers.0", "OptimizedModule._orig_mod.layers.0"]
    for path in paths[1:]:
        a = [make_call("torch.mm", 1, module=paths[0]), make_call("torch.mm", 2, module="Model.layers.1")]
        b = [make_call("torch.mm", 2, module=path.replace("0", "1"))]
        _, facts = compare_json(capsys, *runs(a, b))
        assert facts["counts"]["equal"] == 1


# What is wrong with the input


def test_hostile_logs_are_a_sentence_each(tmp_path, capsys):
    good = write_log(str(tmp_path / "good" / "x.dlog"), [make_call("torch.mm", i) for i in range(200)])
    with open(good, "rb") as file:
        data = file.read()
    cases = {
        "empty": (b"", "the log is empty"),
        "foreign": (b"PK\x03\x04" + bytes(100), "left out"),
        "newer": (make_newer(data), "record log of format 9"),
        "damaged": (data[:20] + b"?" + data[21:], "has no header that can be read"),
        "only a header": (data[: data.index(b"\xdb\x1e\xc3\xa5")], "the log holds no calls"),
    }
    for name, (content, expected) in cases.items():
        path = tmp_path / f"{name}.dlog"
        path.write_bytes(content)
        status, out, err = compare(capsys, good, path)
        assert status == 3 and expected in err and "nothing was compared" in out, name
    cut = tmp_path / "cut.dlog"
    cut.write_bytes(data[: len(data) * 2 // 3])
    status, _, err = compare(capsys, good, cut)
    assert status in (0, 1) and "torn end" in err


def test_mixed_versions_leave_the_readable_rank(tmp_path, capsys):
    for run in "ab":
        write_log(str(tmp_path / run / "x.dlog"), [make_call("torch.mm")])
    (tmp_path / "b" / "y.dlog").write_bytes(make_newer((tmp_path / "b" / "x.dlog").read_bytes()))
    status, _, err = compare(capsys, tmp_path / "a", tmp_path / "b")
    assert status == 0 and "y.dlog" in err and "left out" in err


def test_wrong_use(tmp_path, capsys):
    log = write_log(str(tmp_path / "a" / "x.dlog"), [make_call("torch.mm")])
    status, _, err = compare(capsys, log, tmp_path / "nothing")
    assert status == 2 and "does not exist" in err
    (tmp_path / "other").mkdir()
    status, _, err = compare(capsys, log, tmp_path / "other")
    assert status == 2 and "holds neither logs" in err
    (tmp_path / "x.safetensors").write_bytes(b"")
    status, _, err = compare(capsys, log, tmp_path / "x.safetensors")
    assert status == 2 and "not comparable" in err
    assert compare(capsys, log, log, "--steps", "x")[0] == 2
    assert compare(capsys, log)[0] == 2


def test_the_memory_is_bounded(runs, capsys):
    calls = [make_call("torch.mm", i) for i in range(3000)]
    status, _, err = compare(capsys, *runs(calls, calls), "--memory", "0.0001")
    assert status == 3 and "choose fewer steps" in err


def test_random_bytes_never_break_the_comparison(tmp_path, capsys):
    numbers = random.Random(1)
    path = write_log(str(tmp_path / "x" / "x.dlog"), [make_call("torch.mm", i, module="M.a") for i in range(40)])
    with open(path, "rb") as file:
        data = file.read()
    for _ in range(30):
        broken = bytearray(data)
        for _ in range(numbers.randrange(1, 20)):
            broken[numbers.randrange(len(broken))] = numbers.randrange(256)
        (tmp_path / "y.dlog").write_bytes(broken)
        assert compare(capsys, path, tmp_path / "y.dlog")[0] in (0, 1, 3)


def test_fields_of_other_types_never_break_the_comparison(tmp_path, capsys):
    numbers = random.Random(2)
    keys = ["id", "name", "step", "module", "location", "round", "recompute", "error", "kind", "verdict", "what"]
    keys += ["host_ns", "args.0", "grad_out.0", *STATS, "stats.hash", "stats.norm", "stats.nan", "stats.inf"]
    values = [0, -1, 1 << 62, record_log.Unsigned((1 << 64) - 1), 0.5, float("nan"), float("inf"), True, "", "x" * 3000]
    values += ["a.b", ".", "...", b"\xff\xfe", [1, 2, 3], record_log.Tensor("float32", [1] * 64), "backward", "grad"]
    logs = []
    for name in "ab":
        log = record_log.Log(**{"type.23": "compare"})
        for number in range(300):
            fields = [("id", record_log.Unsigned(number % 40)), ("name", "torch.mm"), ("step", number % 3)]
            fields = numbers.sample(fields, numbers.choice([2, 3, 3, 3]))
            fields += [(numbers.choice(keys), numbers.choice(values)) for _ in range(numbers.randrange(12))]
            log.add(numbers.choice(["call", "backward", "time", "finding", 23]), number, fields)
        logs.append(log.write(tmp_path / f"{name}.dlog"))
    assert compare(capsys, *logs)[0] == 1
    assert compare_json(capsys, *logs)[0] == 1


# Captured tensors


CAPTURING = """
import sys
import torch, ditorch, op_tools
torch.manual_seed(0)
x = torch.randn(8, 8, device="cuda")
with op_tools.OpCapture(results=sys.argv[1], console="off"):
    y = x @ x
    y = torch.relu(y + float(sys.argv[2]))
"""


def test_captured_tensors_of_both_runs_are_compared(tmp_path, capsys):
    for name, shift in (("a", 0), ("b", 0), ("c", 0.5)):
        run_python(CAPTURING, tmp_path / name, shift)
    status, facts = compare_json(capsys, tmp_path / "a", tmp_path / "b")
    assert status == 0 and facts["counts"]["captures"] == 3 and not facts["captures"]
    status, out, _ = compare(capsys, tmp_path / "a", tmp_path / "c")
    assert status == 1 and "captured tensors: 3 calls of both runs, 2 differ" in out
    assert compare(capsys, tmp_path / "a", tmp_path / "c", "--no-captures")[0] == 3
