"""A program that ends right after backward(), with work still in flight, exits with 0 and says nothing."""

import concurrent.futures
import os

import ditorch  # noqa: F401
import pytest

RUNS = int(os.environ.get("DIT_EXIT_RUNS", "20"))

AFTER_BACKWARD = """
import torch, ditorch
x = torch.randn(64, 64, device="cuda", requires_grad=True)
loss = torch.nn.functional.gelu(x @ x).softmax(-1).square().sum()
loss.backward()
"""

ENDINGS = {
    "with a stream at work": """
        import torch, ditorch
        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            x = torch.ones(400, 400, device="cuda")
            for _ in range(50):
                x = (x @ x).clamp(max=1)
    """,
    "with tensors held by modules": """
        import torch, ditorch, sys
        sys.keep = [torch.ones(10, device="cuda").pow(i) for i in range(10)]
        torch.keep = torch.nn.Linear(4, 4).cuda()
    """,
    "from a thread": """
        import threading, torch, ditorch
        def work():
            x = torch.ones(50, 50, device="cuda", requires_grad=True)
            (x @ x).sum().backward()
        t = threading.Thread(target=work); t.start(); t.join()
    """,
    "with collectives at work": """
        import torch, ditorch
        import torch.distributed as dist
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        for _ in range(6):
            dist.all_reduce(torch.ones(1 << 24, device="cuda"), async_op=True)
    """,
    "without using the device": """
        import torch, ditorch
        torch.ones(3).sum()
    """,
    "with a collective that is the last owner of a tensor whose object takes its time": """
        import tempfile, time, torch, ditorch
        import torch.distributed as dist
        class Slow:
            def __del__(self, sleep=time.sleep):
                sleep(0.3)
        dist.init_process_group("nccl", init_method="file://" + tempfile.mkdtemp() + "/s", rank=0, world_size=1)
        large = torch.ones(1 << 22, device="cuda")
        for _ in range(20):
            dist.all_reduce(large, async_op=True)
        x = torch.ones(4, device="cuda")
        x.slow = Slow()
        dist.all_reduce(x, async_op=True)
        del x
    """,
    "with a loader and pinned memory": """
        import torch, ditorch
        loader = torch.utils.data.DataLoader(torch.arange(8.0), num_workers=1, pin_memory=True, persistent_workers=True)
        for x in loader:
            x.cuda(non_blocking=True)
    """,
}


def check(answer):
    assert answer.returncode == 0, f"exit status {answer.returncode}: {answer.stderr[-2000:]}"
    for word in ("Fatal", "Traceback", "terminate called", "Aborted", "core dumped"):
        assert word not in answer.stderr, answer.stderr


@pytest.mark.parametrize("name", ENDINGS)
def test_endings(name, python):
    check(python(ENDINGS[name], check=False, warm=False))


def test_exit_right_after_backward(python):
    """Some in interpreters of their own, most in forks of one that has imported torch: those differ in their start."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for answer in pool.map(lambda n: python(AFTER_BACKWARD, check=False, warm=n >= 3), range(RUNS)):
            check(answer)


@pytest.mark.full
def test_exit_right_after_backward_many_times(python):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: python(AFTER_BACKWARD, check=False, warm=False), range(max(RUNS, 200))):
            check(answer)


def test_exit_status_of_the_program_is_kept(python):
    for code in (0, 3):
        text = "import torch, ditorch, sys\nx = torch.ones(3, device='cuda', requires_grad=True)\nx.sum().backward()\n"
        text += f"sys.exit({code})\n"
        assert python(text, check=False).returncode == code
    answer = python("import torch, ditorch\nx = torch.ones(3, device='cuda')\nraise ValueError('mine')\n", check=False)
    assert answer.returncode == 1 and "ValueError: mine" in answer.stderr
