"""Many processes: init_process_group("nccl") on the device, under torchrun and without it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import types
from datetime import timedelta

import ditorch  # noqa: F401
import pytest
import torch
import torch.distributed as dist
from conftest import HERE, child_environment, run_python, warm_interpreter
from ditorch import installation, settings, visible

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo")

SCRIPTS = os.path.join(HERE, "scripts")


def find_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def torchrun(processes, script, *arguments, check=True, timeout=900, **environment):
    """`torchrun --nproc_per_node=PROCESSES script arguments` on a port of its own; its agent and the ranks are warm."""
    command = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", f"--master_port={find_port()}"]
    script, environment = os.path.join(SCRIPTS, script), {"PYTHON_EXEC": warm_interpreter(), **environment}
    return run_python(*command, script, *map(str, arguments), check=check, timeout=timeout, warm=True, **environment)


def start_ranks(script, *arguments, sizes=(2, 2), ranks=(0, 1), port=None, **environment):
    """One process per rank without torchrun; `sizes` are the world sizes they are told."""
    port = port or find_port()
    processes = []
    for rank, size in zip(ranks, sizes, strict=True):
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": size, **environment}
        processes.append(
            subprocess.Popen(
                [warm_interpreter(), "-W", "ignore", os.path.join(SCRIPTS, script), *map(str, arguments)],
                env=child_environment(**variables),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return processes


def end(process, timeout=600):
    """What it said and its exit status. A process that does not end in time is a failure."""
    try:
        said, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        pytest.fail(f"the process still ran after {timeout} s\n{said[-3000:]}")
    return said, process.returncode


def read_problems(path, least):
    """The cases of an answer file that went wrong; there must be `least` cases."""
    answers = json.loads(path.read_text())
    assert len(answers) >= least, len(answers)
    return {name: text for name, text in answers.items() if text != "ok"}


def show(problems):
    return "\n".join(f"{name}: {text}" for name, text in list(problems.items())[:5])


# Every collective, every dtype


def check_collectives(folder, processes, **environment):
    answer = torchrun(processes, "dist_collectives.py", folder, **environment)
    for rank in range(processes):
        problems = read_problems(folder / f"answers{rank}.json", 350)
        assert not problems, f"{len(problems)} wrong on rank {rank}\n{show(problems)}"
    return answer


def test_every_collective_and_dtype(tmp_path):
    answer = check_collectives(tmp_path, 2)
    assert "Time stats are currently only collected" not in answer.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    "processes, environment",
    [
        (3, {}),
        (4, {}),
        (2, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
        (2, {"DITORCH_ALIAS": "python"}),
        (2, {"DITORCH_HOST_DEVICES": 1}),
    ],
)
def test_every_collective_in_other_ways(tmp_path, processes, environment):
    check_collectives(tmp_path, processes, **environment)


# Training

TRAININGS = [
    *("ddp", "ddp_many_buckets_as_views", "ddp_static_graph", "ddp_no_sync", "ddp_find_unused_parameters"),
    *("ddp_uneven_inputs", "ddp_comm_hooks", "ddp_power_sgd", "ddp_autocast", "zero_redundancy_optimizer"),
    *("sync_batch_norm", "sync_batch_norm_images", "fsdp2", "fsdp2_accumulation_and_clipping"),
    *("fsdp2_mixed_precision", "fsdp2_state_dict", "fsdp1", "checkpoint", "tensor_parallel", "bound_to_a_device"),
]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    answer = torchrun(2, "dist_training.py", folder)
    answers = json.loads((folder / "answers.json").read_text())
    answers["stderr"] = answer.stderr
    return answers


@pytest.mark.parametrize("name", TRAININGS)
def test_losses_are_those_of_one_process(trainings, name):
    assert trainings[name] == "ok", trainings[name]


def test_training_says_nothing_about_the_device(trainings):
    assert "only collected for CPU and CUDA" not in trainings["stderr"], trainings["stderr"]


@pytest.mark.full
@pytest.mark.parametrize("environment", [{"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, {"DITORCH_ALIAS": "python"}])
def test_trainings_in_other_ways(tmp_path, environment):
    torchrun(2, "dist_training.py", tmp_path, **environment)
    problems = read_problems(tmp_path / "answers.json", len(TRAININGS))
    assert not problems, show(problems)


@pytest.mark.full
def test_trainings_on_four(tmp_path):
    torchrun(4, "dist_training.py", tmp_path, timeout=600)
    problems = read_problems(tmp_path / "answers.json", len(TRAININGS))
    assert not problems, show(problems)


def test_unmodified_script():
    """Nothing in it says ditorch: `torchrun -m ditorch script`."""
    command = ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={find_port()}", "-m", "ditorch"]
    answer = run_python(*command, os.path.join(SCRIPTS, "dist_plain.py"))
    assert answer.stdout.strip() == "trained on 2 devices: cuda:0, True", answer.stdout
    assert "arning" not in answer.stderr, answer.stderr


# failures: the ranks that are left end soon, and say what happened


def test_killed_rank():
    ranks = start_ranks("dist_failure.py", "kill")
    said, status = end(ranks[0])
    assert end(ranks[1])[1] == -9 and status == 1
    what = r"DistBackendError: \[rank 0\] nccl all_reduce #\d+ of Float\[400200\] in group 0 \(2 ranks\)"
    assert re.search(f"{what} lost its connection: another rank ended or was killed", said), said
    assert "did not run, because the group failed before" in said  # what comes after does not hang


def test_d2_errors_of_collectives_are_told_and_d4_timeouts_honoured():
    ranks = start_ranks("dist_failure.py", "hang", DIST_TIMEOUT=2)
    said, status = end(ranks[0])
    ranks[1].kill()
    end(ranks[1])
    assert status == 1 and "got no answer within 2000 ms: a rank hangs, is late, or never made this call" in said, said


@pytest.mark.full
@pytest.mark.parametrize("kind, text", [("leave", "lost its connection"), ("abort", "was aborted")])
def test_rank_that_leaves_or_aborts(kind, text):
    ranks = start_ranks("dist_failure.py", kind)
    said, status = end(ranks[0])
    ranks[1].kill()
    end(ranks[1])
    assert status == 1 and text in said, said


@pytest.mark.full
def test_killed_rank_under_torchrun():
    answer = torchrun(2, "dist_failure.py", "kill", check=False, timeout=600)
    assert answer.returncode != 0 and "Signal 9 (SIGKILL)" in answer.stderr, answer.stderr


def test_world_size_mismatch():
    for rank, process in enumerate(start_ranks("dist_failure.py", "start", sizes=(2, 3))):
        said, status = end(process)
        assert status == 1 and f"world size mismatch: rank {rank} was started with world size {2 + rank}" in said, said


def test_missing_master_and_missing_ranks(monkeypatch):
    """torch's own errors, with nothing of ours left behind."""
    soon = timedelta(seconds=1)
    where = f"tcp://127.0.0.1:{find_port()}"
    with pytest.raises(dist.DistNetworkError, match=r"timed out .*127\.0\.0\.1"):
        dist.init_process_group("nccl", init_method=where, rank=1, world_size=2, timeout=soon)
    with pytest.raises(dist.DistStoreError, match="1/2 clients joined"):
        dist.init_process_group("nccl", init_method=where, rank=0, world_size=2, timeout=soon)
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="environment variable MASTER_ADDR expected, but not set"):
        dist.init_process_group("nccl", rank=0, world_size=1)
    assert not dist.is_initialized()


# One process


@pytest.fixture
def group():
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_a_group_of_one(group):
    assert dist.get_backend() == "nccl" and dist.is_nccl_available()
    x = torch.arange(3.0, device="cuda")
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.tolist() == [0, 1, 2]
    work = dist.all_reduce(x, async_op=True)
    assert work.wait() and work.get_future().wait()[0] is not None
    dist.barrier(device_ids=[0])
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        dist.all_reduce(torch.ones(2))


def test_a_rank_sends_to_itself(group):
    """As NCCL's groups of messages do: the receive may come first, several arrive in order, views are written."""
    numbers = torch.arange(6.0, device="cuda")
    got = torch.full((2, 6), -1.0, device="cuda")
    requests = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, got[0, ::2], 0),
            dist.P2POp(dist.irecv, got[1], 0),
            dist.P2POp(dist.isend, numbers[3:], 0),
            dist.P2POp(dist.isend, numbers, 0),
        ]
    )
    for request in requests:
        request.wait()
    assert got.tolist() == [[3, -1, 4, -1, 5, -1], [0, 1, 2, 3, 4, 5]]
    dist.isend(numbers, 0)
    numbers.zero_()
    request = dist.irecv(got[0], 0)
    request.wait()
    assert got[0].tolist() == [0, 1, 2, 3, 4, 5]
    dist.isend(numbers, 0)
    with pytest.raises(RuntimeError, match=r"a message of 24 bytes.*a tensor of 8 bytes"):
        dist.recv(got[0, :2], 0)


def test_a_wait_that_runs_out_of_time_says_so(group):
    request = dist.irecv(torch.ones(2, device="cuda"), 0)
    with pytest.raises(dist.DistBackendError, match=r"caught collective operation timeout.*50 ms"):
        request.wait(timedelta(milliseconds=50))
    dist.isend(torch.ones(2, device="cuda"), 0)
    request.wait()


def test_memory_outlives_its_tensor(group):
    """The tensor and its work are dropped at once; the memory must not be given to another tensor before the end."""
    for _ in range(50):
        dist.all_reduce(torch.ones(1 << 16, device="cuda"), async_op=True)
        other = torch.zeros(1 << 16, device="cuda")
        assert other.sum().item() == 0
    torch.cuda.synchronize()


def test_autograd_and_views_are_left_alone(group):
    x = torch.ones(4, device="cuda", requires_grad=True)
    y = x * 2
    with torch.no_grad():
        dist.broadcast(y[1:3], 0)
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 4


def test_torch_asks_nccl_questions(group):
    assert torch.cuda.nccl.version() >= (2, 10)
    assert dist.distributed_c10d._get_process_group_uid(group) != -1
    dist.distributed_c10d._add_ephemeral_timeout_for_all_pgs(dist.default_pg_timeout)
    backend = group._get_backend(torch.device("cuda"))
    with pytest.raises(NotImplementedError, match="register_mem_pool"):
        backend.register_mem_pool(None)
    assert isinstance(backend, dist.ProcessGroupNCCL) and not isinstance(3, dist.ProcessGroupNCCL)


def test_devices_of_a_machine(monkeypatch):
    """torchrun's LOCAL_WORLD_SIZE gives each process of the machine a device of its own to set."""
    settings.load(None, {})
    monkeypatch.delenv("DITORCH_HOST_DEVICES", raising=False)
    for text, count in (("3", 3), ("1", 1), ("1000", 64), ("many", 1), ("-2", 1), ("", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", text)
        settings.load(None, {})
        assert visible.count_devices() == count, text
    settings.load(None, {"host_devices": 2})
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "5")
    assert visible.count_devices() == 2
    monkeypatch.undo()
    settings.load(installation.state.config, installation.state.overrides)


def test_devices_of_a_vendor_that_counts_them_itself(monkeypatch):
    """Their number is the vendor's, whatever host_devices says, and its driver obeys CUDA_VISIBLE_DEVICES."""
    before = list(visible.ordinals)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert visible.is_outdated()
    monkeypatch.setattr(
        visible,
        "_C",
        types.SimpleNamespace(is_active=lambda: True, counts_by_option=lambda: False, device_count=lambda: 4),
    )
    try:
        visible.take()
        assert visible.ordinals == [0, 1, 2, 3] and not visible.is_outdated()
    finally:
        visible.ordinals[:] = before


def test_refused_by_name(group):
    x = torch.ones(4, 4, device="cuda")
    with pytest.raises(ValueError, match="Tensors must be contiguous, but one has sizes"):
        dist.all_reduce(x.t()[1:])
    with pytest.raises(TypeError, match=r"ReduceOp\.AVG with Boolean"):
        dist.all_reduce(x > 0, dist.ReduceOp.AVG)
    with pytest.raises(ValueError, match=r"ReduceOp\.BXOR needs integers or booleans, not Float"):
        dist.all_reduce(x, dist.ReduceOp.BXOR)
    with pytest.raises(RuntimeError, match="ordinal"):
        dist.barrier(device_ids=[77])


def test_gloo_takes_device_tensors():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for device in ("cpu", "cuda"):
            x = torch.ones(3, device=device, dtype=torch.float64)
            dist.all_reduce(x)
            assert x.tolist() == [1.0] * 3
        assert dist.get_backend() == "gloo"
    finally:
        dist.destroy_process_group()


def test_inference_tensors(group):
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16, torch.int32):
            x = torch.full((3,), 2, dtype=dtype, device="cuda")
            dist.all_reduce(x, dist.ReduceOp.AVG)
            gathered = [torch.zeros(3, 2, dtype=dtype, device="cuda")[:, 0]]
            dist.all_gather(gathered, x)
            assert gathered[0].tolist() == [2] * 3


def test_uninstall_takes_it_back():
    program = """
    import torch, ditorch
    import torch.distributed as dist
    assert dist.is_nccl_available()
    assert dist.ProcessGroupNCCL.Options()._timeout == dist.constants.default_pg_nccl_timeout
    ditorch.uninstall()
    assert not dist.is_nccl_available() and not hasattr(dist, "ProcessGroupNCCL")
    assert dist.constants.default_pg_nccl_timeout is None
    assert not hasattr(torch._C._distributed_c10d.Backend, "perform_nocolor_split")
    """
    run_python(program)
