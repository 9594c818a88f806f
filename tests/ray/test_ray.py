"""`--ray`: a cluster of three machines, played by three Ray nodes here. Reports are those of a run without it; a worker
that is killed, and a machine that goes away, cost nothing but time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

psutil = pytest.importorskip("psutil")
ray = pytest.importorskip("ray", reason="the package ray is not installed (make test-ray makes an environment)")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONFORM = ("conform", "run", "--library", "host", "--function", "Add*", "Softmax", "--quiet")
TRAIN = """
import torch
torch.manual_seed(0)
layer, x = torch.nn.Linear(8, 8).cuda(), torch.randn(32, 8).cuda()
y = torch.nn.functional.gelu(layer(x)).tanh()
print("loss", torch.softmax(y.sigmoid() * 2 + 1, -1).log().abs().sqrt().square().mean().item())
"""
CAPTURE = """
import torch, op_tools
torch.manual_seed(0)
x = torch.randn(64, 64, device="cuda", requires_grad=True)
with op_tools.OpCapture():
    torch.softmax(torch.nn.functional.gelu(x @ x), -1).square().sum().backward()
"""


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    found.machines = [found.add_node(num_cpus=1) for _ in range(3)]
    yield found
    found.shutdown()


@pytest.fixture
def environment(monkeypatch):
    values = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), "DITORCH_BANNER": "0"}
    values.pop("COLUMNS", None)
    return values


def start(folder, environment, *words):
    command = [sys.executable, "-m", "ditorch", *words]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **streams)


def run(folder, environment, *words, status=0):
    process = start(folder, environment, *words)
    out, err = process.communicate(timeout=300)
    assert process.returncode == status, out + err
    return out, err


def find_seats():
    """Processes of workers of the cluster, children of this process's Ray nodes."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::Seat"):
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come in time")


def drop(value, *names):
    """Without times and names of files."""
    if isinstance(value, dict):
        return {key: drop(item, *names) for key, item in value.items() if key not in names}
    return [drop(item, *names) for item in value] if isinstance(value, list) else value


def read(path, *names):
    return json.dumps(drop(json.loads(path.read_text()), "seconds", *names), sort_keys=True)


def test_conform_with_a_killed_worker_and_a_lost_machine(cluster, tmp_path, environment):
    run(tmp_path, environment, *CONFORM, "--jobs", "2", "--json", "here.json")
    journal = tmp_path / "journal.jsonl"
    words = ("--ray", cluster.address, "--json", "there.json", "--journal", "journal.jsonl")
    process = start(tmp_path, environment, *CONFORM, *words)
    try:
        seats = wait_for(lambda: [seat for seat in find_seats() if "work" in seat.cmdline()[0]])
        seats[0].kill()
        wait_for(lambda: journal.exists() and journal.read_text().count("\n") > 1)
        cluster.remove_node(cluster.machines.pop(), allow_graceful=False)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, out + err
    assert "a worker of the cluster was lost; another one does its task again" in err
    assert read(tmp_path / "here.json") == read(tmp_path / "there.json")
    wait_for(lambda: not find_seats(), 30)


def test_replay_and_bench_and_test_device(cluster, tmp_path, environment):
    (tmp_path / "capture.py").write_text(CAPTURE)
    run(tmp_path, environment, "capture.py")
    address = ("--ray", cluster.address)
    for name, more in (("here", ("--jobs", "2")), ("there", ("--jobs", "2", *address))):
        run(tmp_path, environment, "replay", "op_tools_results", "--accuracy", *more, "--json", f"replay-{name}.json")
        words = ("test-device", "--ops", "add,softmax,nn.functional.gelu", "--dtypes", "float32")
        run(tmp_path, environment, *words, *more, "--json", f"device-{name}.json")
    for name, more in (("here", ()), ("there", address)):
        words = ("bench", "--model", "llama2", "--scale", "0.02", "--rounds", "1", "--op", "add", "--op", "mm")
        run(tmp_path, environment, *words, *more, "--json", f"bench-{name}.json")
    for kind in ("replay", "device", "bench"):
        files = [tmp_path / f"{kind}-{name}.json" for name in ("here", "there")]
        assert '"cases": []' not in files[0].read_text()
        one, two = (read(file, "time", "json", "date", "copy_bytes_per_second") for file in files)
        assert one == two, kind


ENDS = """
import os, sys, time
from ditorch import call_worker
from ditorch.worker_pool import open_pool

for call, values in ((os._exit, [3, 4]), (time.sleep, [60, 0]), (os.fspath, ["right", 5])):
    tasks = [{"index": index, "arguments": [value]} for index, value in enumerate(values)]
    with open_pool(sys.argv[1], call_worker.make_options(call), 2, 5.0, call_worker.COMMAND) as pool:
        for _, answer in sorted(pool.run(tasks), key=lambda pair: pair[0]["index"]):
            print(answer)
"""


def test_a_crash_and_a_hang_of_a_task_are_the_tasks_own(cluster, tmp_path, environment):
    """What ends its process is an answer, not a lost worker."""
    (tmp_path / "ends.py").write_text(ENDS)
    values = {**environment, "DITORCH_BACKEND": "none"}
    found = [
        subprocess.run(
            [sys.executable, "ends.py", address], cwd=tmp_path, env=values, capture_output=True, text=True, timeout=300
        )
        for address in ("", cluster.address)
    ]
    assert [process.returncode for process in found] == [0, 0], found[0].stderr + found[1].stderr
    for text in ("exit status 3", "exit status 4", "no end after 5 s", "'value': 'right'", "TypeError"):
        assert text in found[0].stdout
    assert found[0].stdout == found[1].stdout and "was lost" not in found[1].stderr


def test_bisect(cluster, tmp_path, environment):
    (tmp_path / "train.py").write_text(TRAIN)
    broken = {**environment, "DITORCH_FAULT": "value:aten::gelu,scale=9"}
    words = (
        "bisect",
        "--ref",
        "cpu",
        "--metric",
        "loss",
        "--within",
        "0.00001",
        "--json",
        "--fresh",
        "--out",
        "bisection",
    )
    one, first = run(tmp_path, broken, *words, "train.py", status=1)
    two, second = run(tmp_path, broken, *words, "--ray", cluster.address, "train.py", status=1)
    assert drop(json.loads(one), "seconds") == drop(json.loads(two), "seconds")
    told = [re.sub(r", \d+\.\d s|, \d+ s|; at most.*", "", text) for text in (first, second)]
    assert [line for line in told[1].splitlines() if line.startswith("[")] == [
        line for line in told[0].splitlines() if line.startswith("[")
    ]


def test_an_interrupt_leaves_a_journal_that_goes_on(cluster, tmp_path, environment):
    words = (*CONFORM, "--ray", cluster.address, "--journal", "journal.jsonl", "--resume", "--json", "out.json")
    journal = tmp_path / "journal.jsonl"
    process = start(tmp_path, environment, *words)
    wait_for(lambda: journal.exists() and journal.read_text().count("\n") > 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in err and "Traceback" not in err
    wait_for(lambda: not find_seats(), 30)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert 0 < len(lines) - 1 < 2334
    run(tmp_path, environment, *words)
    run(tmp_path, environment, *CONFORM, "--json", "here.json")
    assert read(tmp_path / "out.json") == read(tmp_path / "here.json")


def test_an_address_without_a_cluster_is_said(tmp_path, environment):
    _, err = run(tmp_path, environment, *CONFORM, "--ray", "127.0.0.1:1", status=2)
    assert "--ray 127.0.0.1:1: no connection to a Ray cluster" in err and "Traceback" not in err
