"""Programs in processes of their own: accelerate's test scripts, unmodified, in one process and in two, and data
parallel training in two."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import ditorch
import pytest
from conftest import HERE, plain_environment
from judge import judge

accelerate = pytest.importorskip("accelerate")

SCRIPTS = Path(accelerate.__file__).parent / "test_utils" / "scripts"
NAMES = ["test_script.py", "test_ops.py", "test_sync.py", "test_distributed_data_loop.py", "test_ddp_comm_hook.py"]


def environment(**changes: str) -> dict[str, str]:
    home = os.path.dirname(os.path.dirname(os.path.abspath(ditorch.__file__)))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DITORCH_")}
    paths = os.pathsep.join(path for path in (home, inherited.get("PYTHONPATH", "")) if path)
    return {**inherited, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **changes}


def run(words: list[str], folder: Path, **changes: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(**{"HF_HOME": str(folder), **changes}),
        timeout=300,
    )
    assert answer.returncode == 0, f"{answer.stdout[-2000:]}\n{answer.stderr[-4000:]}"
    return answer.stdout + answer.stderr


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


@pytest.mark.feature("accelerate", "its own test scripts, one process", "")
@pytest.mark.parametrize("name", NAMES[:3])
def test_script_in_one_process(name: str, tmp_path) -> None:
    text = run(["-m", "ditorch", str(SCRIPTS / name)], tmp_path)
    if name == "test_script.py":
        assert "Device: cuda" in text


@pytest.mark.feature("accelerate", "accelerate launch", "")
def test_launcher(tmp_path) -> None:
    words = [
        "-m",
        "accelerate.commands.launch",
        "--num_processes",
        "1",
        "--num_machines",
        "1",
        "--dynamo_backend",
        "no",
    ]
    words += ["--mixed_precision", "bf16", "--module", "ditorch", str(SCRIPTS / "test_script.py")]
    text = run(words, tmp_path)
    assert "Device: cuda" in text and "Mixed precision type: bf16" in text


@pytest.mark.feature("accelerate", "its own test scripts, two processes (nccl)", "")
@pytest.mark.parametrize("name", NAMES)
def test_script_in_two_processes(name: str, tmp_path) -> None:
    if name == "test_distributed_data_loop.py":
        pytest.importorskip("torchdata")
    words = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", free_port()]
    text = run([*words, "-m", "ditorch", str(SCRIPTS / name)], tmp_path)
    if name == "test_script.py":
        assert "Num processes: 2" in text and "Device: cuda:1" in text


@pytest.mark.feature("transformers", "Trainer: DistributedDataParallel, two processes", "")
def test_trainer_in_two_processes(tmp_path) -> None:
    check_two_processes("trainer", tmp_path)


@pytest.mark.feature("lightning", 'Trainer(strategy="ddp"), two processes', "")
def test_lightning_in_two_processes(tmp_path) -> None:
    pytest.importorskip("lightning")
    check_two_processes("lightning", tmp_path)


@pytest.mark.feature("accelerate", "FSDP2 plugin around a Llama, two processes", "")
def test_sharded_in_two_processes(tmp_path) -> None:
    pytest.importorskip("transformers")
    check_two_processes("sharded", tmp_path)


def check_two_processes(kind: str, folder: Path) -> None:
    """Two processes of the device with half the batch each, against one process of the CPU with all of it."""
    program = ["-m", "programs.ddp", kind, str(folder)]
    alone = subprocess.run(
        [sys.executable, "-W", "ignore", *program], capture_output=True, text=True, cwd=HERE, env=plain_environment()
    )
    assert alone.returncode == 0, alone.stderr[-4000:]
    words = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", free_port()]
    text = run([*words, "-m", "ditorch", *program], HERE, HF_HOME=str(folder))
    mine = json.loads(next(line for line in text.splitlines() if line.startswith('{"losses"')))
    wanted = json.loads(alone.stdout.strip().splitlines()[-1])
    assert mine.pop("backend") == "nccl"
    wanted.pop("backend")
    assert judge(kind, mine, wanted) == []


DEVICES = {
    "trainer_parallel": "Trainer: DataParallel over two devices",
    "evaluation_parallel": "Trainer: evaluation over two devices",
    "model_parallel": "from_pretrained with device_map over two devices",
}


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory):
    """The answers of programs/devices.py with two devices and on the CPU."""
    pytest.importorskip("transformers")
    answers = []
    for name in ("cpu", "cuda"):
        folder = tmp_path_factory.mktemp(name)
        start, changes = ([], plain_environment()) if name == "cpu" else (["-m", "ditorch"], environment())
        answer = subprocess.run(
            [sys.executable, "-W", "ignore", *start, "-m", "programs", "devices", str(folder)],
            capture_output=True,
            text=True,
            cwd=HERE,
            env={**changes, **({"DITORCH_HOST_DEVICES": "2"} if name == "cuda" else {})},
            timeout=300,
        )
        assert answer.returncode == 0, answer.stderr[-4000:]
        answers.append(json.loads(answer.stdout.strip().splitlines()[-1]))
    return answers


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.feature("transformers", text, "")) for name, text in DEVICES.items()]
)
def test_two_devices(name: str, two_devices) -> None:
    wanted, mine = (side[name] for side in two_devices)
    assert "error" not in wanted, wanted["error"]
    assert "error" not in mine, mine["error"]
    assert (wanted["device"], mine["device"]) == ("cpu", "cuda")
    assert judge(name, mine["answer"], wanted["answer"]) == []
