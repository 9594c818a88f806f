"""Child processes: fork before and after use, spawn, forkserver, DataLoader workers."""

import os

import pytest

PROGRAM = """
import sys, torch
import torch.multiprocessing as multiprocessing

def child(queue):
    try:
        queue.put(["ok", torch.ones(2, device="cuda").sum().item(), torch.cuda.device_count()])
    except RuntimeError as error:
        queue.put(["error", str(error)])

if __name__ == "__main__":
    if sys.argv[2] == "used":
        torch.ones(1, device="cuda")
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    answer = queue.get(timeout=600)
    process.join()
    print(answer, process.exitcode)
    print(torch.ones(3).cuda().sum().item())
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.mark.parametrize("method, use", [("fork", "unused"), ("spawn", "used"), ("forkserver", "used")])
def test_children_get_the_device_and_the_options(python, script, method, use):
    answer = python("-m", "ditorch", "--set", "banner=0", "--set", "host_devices=2", script, method, use)
    assert answer.stdout.splitlines() == ["['ok', 2.0, 2] 0", "3.0"] and answer.stderr == ""


def test_fork_after_use_is_refused_in_torchs_words(python, script):
    answer = python("-m", "ditorch", script, "fork", "used")
    first, second = answer.stdout.splitlines()
    assert "Cannot re-initialize CUDA in forked subprocess" in first and "spawn" in first and second == "3.0"


def test_lazy_functions_after_a_bad_fork(python):
    answer = python(
        """
        import os, torch, ditorch
        x = torch.ones(2, device="cuda")
        pid = os.fork()
        if pid == 0:
            torch.manual_seed(3)
            for attempt in (torch.cuda.init, lambda: torch.zeros(1, device="cuda"), lambda: x + 1,
                            lambda: torch.ones(1).cuda(),
                            torch.cuda.current_stream, lambda: torch.cuda.Stream()):
                try:
                    attempt()
                    print("worked", flush=True)
                except RuntimeError as error:
                    print("Cannot re-initialize CUDA in forked subprocess" in str(error), flush=True)
            print(torch.rand(2).shape[0], torch.cuda._is_in_bad_fork(), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        """
    )
    assert answer.stdout.splitlines() == ["True"] * 6 + ["2 True"]


def test_worker_processes_that_touch_only_the_cpu(python):
    answer = python(
        """
        import torch, ditorch
        class Numbers(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, i): return torch.rand(2) + i
        torch.ones(1, device="cuda")
        loader = torch.utils.data.DataLoader(Numbers(), num_workers=2)
        print(len([batch.cuda() for batch in loader]), len([batch for batch in loader]))
        """
    )
    assert answer.stdout.split() == ["4", "4"]


def test_environment_is_never_written(python, script):
    answer = python(
        """
        import os, sys
        before = dict(os.environ)
        import ditorch, torch
        torch.ones(1, device="cuda")
        assert dict(os.environ) == before
        print("same")
        """
    )
    assert answer.stdout.strip() == "same"


def test_a_spawned_child_finds_what_the_program_put_on_its_path(python, tmp_path):
    import ditorch

    home = os.path.dirname(os.path.dirname(os.path.abspath(ditorch.__file__)))
    (tmp_path / "program.py").write_text(
        f"""
import sys
sys.path.append({home!r})
import multiprocessing, torch, ditorch

def work(_):
    return torch.ones(3, device="cuda").sum().item()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [0]))
"""
    )
    assert python(str(tmp_path / "program.py"), PYTHONPATH=None).stdout.splitlines()[-1] == "[3.0]"
