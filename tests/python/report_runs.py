"""Folders as `ditorch run` leaves them, written byte by byte: input for the tests of the report."""

import json

from record_log import TYPES, Log, Tensor, Unsigned

TYPES.setdefault("compare", 23)
NORM = "torch.nn.functional.layer_norm"
LINEAR = "torch.nn.functional.linear"


def make_log(rank=0, pid=100, **metadata):
    return Log(rank, pid, host="a", torch="2.13.0", **metadata)


def add_call(log, number, name, step=0, module="GPT.head", ns=1_000_000, wrong=False, backward=False):
    """What a timed and compared call leaves."""
    when = 2_000_000_000 + number * 3_000_000
    common = {"id": Unsigned(number), "name": name, "step": step, "module": module}
    times = {"kind": "forward", "begin_ns": when, "duration_ns": ns, "device_ns": -1, "signature": "float32[4,8]"}
    log.add("time", when, {**common, **times, "out": Tensor("float32", [4, 8])})
    verdict = {"what": "output", "index": -1, "verdict": "right", "max_abs_diff": 1e-7 * (1 + number % 5)}
    if wrong:
        verdict |= {
            "verdict": "wrong",
            "close": False,
            "error_size": 0.5,
            "allowed": 2e-6,
            "wrong": 31,
            "numel": 32,
            "at": 3,
        }
    log.add("compare", when, {**common, "tool": "compare", "location": "train.py:7 main: y = f(x)", **verdict})
    if backward:
        log.add("time", when + 10, {**common, **times, "kind": "backward", "round": 0}, thread=101)


def add_finding(log, number, name, **more):
    fields = {"id": Unsigned(number), "name": name, "tool": "compare", "step": 0, "kind": "forward", "verdict": "wrong"}
    log.add("finding", 3_000_000_000, {**fields, "location": "train.py:7 main: y = f(x)", **more})


def describe_process(rank=0, pid=100, **more):
    """The file about a process, as op_tools.program writes it."""
    counts = {"seen": 90, "applied": 80, "cpu": 10, "step": 0}
    return {
        "format": "ditorch-run",
        "version": 1,
        "command": "train.py --lr 0.1",
        "tools": ["autocompare", "time"],
        "selection": {"steps": "0-9", "ranks": ""},
        "rank": rank,
        "world_size": 2,
        "pid": pid,
        "begin": 1_700_000_000.0,
        "seconds": 3.5,
        "steps": 10,
        "step_seconds": [0.3] * 10,
        "step_memory": [[1 << 20, 2 << 20, 300 << 20]] * 10,
        "device": "<ditorch adapter host>",
        "torch": "2.13.0",
        "counts": {"autocompare": counts},
        "facts": {"autocompare": {"skipped": {"random": 4, "share": 0}}},
        "findings": [],
        "fallbacks": [{"operator": "aten::kthvalue", "calls": 3, "bytes": 4096, "milliseconds": None}],
        **more,
    }


def write(folder, log, process=None):
    (folder / "log").mkdir(parents=True, exist_ok=True)
    name = f"r{process['rank']}-p{process['pid']}" if process else "r0-p100"
    log.write(folder / "log" / f"ops-{name}.dlog")
    if process:
        (folder / f"run-{name}.json").write_text(json.dumps(process))
    return folder


def write_run(folder, rank=0):
    """Ten steps of a model whose layer norms are wrong."""
    log = make_log(rank, 100 + rank)
    number = 0
    for step in range(10):
        for block in range(2):
            for name, part in ((NORM, "norm"), (LINEAR, "mlp.0"), ("torch.nn.functional.gelu", "mlp.1")):
                number += 1
                add_call(log, number, name, step, f"GPT.blocks.{block}.{part}", wrong=name == NORM, backward=True)
    add_finding(log, 1, NORM, error_size=0.5, allowed=2e-6, wrong=31, numel=32, module="GPT.blocks.0.norm")
    told = {"tool": "autocompare", "name": NORM, "kind": "forward", "step": 0, "id": 1, "error": 0.5, "allowed": 2e-6}
    told |= {
        "wrong": 31,
        "numel": 32,
        "at": [0, 3],
        "value": -2.0,
        "reference": -2.5,
        "dtype": "float32",
        "shape": [4, 8],
    }
    told |= {"module": "GPT.blocks.0.norm", "location": "train.py:7 main: y = f(x)", "folder": "op_capture_results/x"}
    return write(folder, log, describe_process(rank, 100 + rank, findings=[told]))


EVIL = "</script><script>window.pwned = 1</script><img src=x onerror=pwned=1>"


def write_hostile(folder):
    """Every text of it is markup, some numbers are none."""
    log = make_log(0, 100, program=EVIL)
    for number in range(1, 30):
        add_call(log, number, EVIL if number % 2 else f"<!--{number}", number, EVIL, wrong=bool(number % 2))
    for broken in ({"id": "x"}, {"name": 7}, {"duration_ns": "now"}, {"device_ns": float("nan")}, {"step": "first"}):
        times = {
            "id": Unsigned(1),
            "name": "a",
            "step": 0,
            "kind": "forward",
            "begin_ns": 1,
            "duration_ns": 1,
            "device_ns": 1,
        }
        log.add("time", 3_000_000_000, {**times, **broken})
    log.add("time", 3_000_000_000, {"name": [1, 2]})
    log.add("tool", 3_000_000_000, {"tool": EVIL, "event": "start", "text": EVIL})
    add_finding(log, 1, EVIL, error_size=float("inf"), allowed=0.0, module=EVIL, location=EVIL, path=EVIL)
    process = describe_process(command=EVIL, tools=[EVIL, 3, None], counts={EVIL: {"cpu": "x", "step": 3}, "a": 4})
    process |= {"findings": [7, {"tool": "nan", "name": EVIL, "nan": EVIL}], "step_memory": [[EVIL], 3, [1, 2, 3]]}
    process |= {"fallbacks": [{"operator": EVIL, "calls": EVIL}, 4], "selection": [], "steps": EVIL, "device": EVIL}
    return write(folder, log, process)
