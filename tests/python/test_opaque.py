"""A device whose memory the host cannot read (vendor=opaque): the cases of opaque_cases.py, and its mishaps.

The whole (make test-opaque) runs the device's own tests, the tools' tests and the training scripts on it.
"""

import os

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
CLOSED = {"DITORCH_VENDOR": "opaque"}


def test_cases_on_a_closed_device(python):
    answer = python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", os.path.join(HERE, "opaque_cases.py"), check=False, **CLOSED
    )
    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr[-2000:]
    assert " skipped" not in answer.stdout.splitlines()[-1]


def test_missing_functions_fall_back(python):
    """Without products, sums, copies on the device and one dtype the results are the same, by copies."""
    answer = python(
        """
        import torch, ditorch
        x = torch.randn(6, 5)
        mine = x.cuda()
        torch.testing.assert_close((mine @ mine.T).cpu(), x @ x.T)
        torch.testing.assert_close(mine.sum(0).cpu(), x.sum(0))
        torch.testing.assert_close(mine.T.contiguous().cpu(), x.T)
        assert torch.equal(mine.to(torch.float64)[::2, 1:].cpu(), x.to(torch.float64)[::2, 1:])
        torch.testing.assert_close((mine.bfloat16() + 1).cpu(), x.bfloat16() + 1)
        norms = [torch.nn.BatchNorm1d(5), torch.nn.BatchNorm1d(5).cuda()]
        torch.testing.assert_close(norms[1](mine).cpu(), norms[0](x))
        for name in ("running_mean", "running_var"):  # no schema says that they are written
            torch.testing.assert_close(getattr(norms[1], name).cpu(), getattr(norms[0], name))
        fallen = {row["operator"] for row in ditorch.fallbacks()}
        print(sorted(fallen & {"aten::mm", "aten::native_batch_norm", "aten::sum.dim_IntList"}))
        """,
        DITORCH_OPAQUE_MISSING="diopiMm,diopiMatmul,diopiAddmm,diopiBmm,diopiSum,diopiBatchNorm*,kernel:*,"
        "diopiCopyInp,dtype:bfloat16",
        **CLOSED,
    )
    assert answer.stdout.strip() == "['aten::mm', 'aten::native_batch_norm', 'aten::sum.dim_IntList']"


def test_functions_with_several_results_in_one_list(python):
    """All that the library made comes back under the caller's addresses."""
    functions = ["diopiDynamicPointToVoxelMmcv", "diopiIndiceConvBackwardMmcv"]
    words = ["conform", "run", "--library", "opaque", "--vendor", "opaque", "--share", "0.3", "--function", *functions]
    answer = python("-m", "ditorch", *words, "--quiet", DITORCH_BACKEND="none")
    assert "2 functions: 2 pass" in answer.stdout, answer.stdout


# A child per mishap: torch is imported once, the device starts in the child.
DRIVER = """
import os, sys, torch

def step():
    import ditorch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(8, 4).cuda(), torch.randint(2, (8,)).cuda()
    for _ in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    torch.linalg.inv(torch.eye(3, device="cuda")).cpu()
    return loss.item()

def relu():
    import ditorch
    x = torch.ones(4, device="cuda")
    for _ in range(9):
        x = torch.relu(x)
    torch.cuda.synchronize()

def run(work):
    try:
        return f"done {work()}"
    except torch.OutOfMemoryError as error:
        return "memory " + str(error).splitlines()[0]
    except RuntimeError as error:
        return "failed " + str(error).splitlines()[0]

for word in sys.argv[1:]:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        name, _, mishap = word.partition("/")
        os.environ["DITORCH_OPAQUE"] = mishap
        text = run(globals()[name])
        try:
            torch.ones(3, device="cuda").sum().item()
            text += " / well"
        except RuntimeError as error:
            text += " / " + str(error).splitlines()[0]
        assert torch.ones(3).sum().item() == 3
        print(word, text)
        sys.exit(0)
    print(word, "status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run_mishaps(python, words):
    """What the child of each word said, and whether it ended in order."""
    answer = python("-c", DRIVER, *words, timeout=900, **CLOSED)
    lines = [line for line in answer.stdout.splitlines() if "/" in line.split()[0]]
    said = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if line.split()[1] != "status"}
    status = {line.split()[0]: int(line.split()[2]) for line in lines if line.split()[1] == "status"}
    assert status == dict.fromkeys(words, 0), (status, answer.stdout[-2000:], answer.stderr[-2000:])
    return said


def test_mishaps_end_in_words(python):
    """A failure comes with the next wait or call, names its operator and stays; a refused allocation is an error."""
    said = run_mishaps(python, ["relu/fail:5", "step/lose:30", "step/nomem:1", "step/slow:100"])
    assert "failed" in said["relu/fail:5"] and said["relu/fail:5"].count("opaque device 0: diopiRelu failed") == 2
    assert said["step/lose:30"].startswith("failed") and said["step/lose:30"].count("fell off the bus") == 2
    assert said["step/nomem:1"].split()[0] in ("memory", "done") and said["step/nomem:1"].endswith("well")
    assert said["step/slow:100"].startswith("done") and said["step/slow:100"].endswith("well")


@pytest.mark.full
def test_every_piece_of_work_and_every_allocation_may_fail(python):
    """In turn: an error in words or a result, never a crash or a hang."""
    words = [f"step/{kind}:{number}" for kind in ("fail", "lose") for number in range(1, 150, 3)]
    words += [f"step/nomem:{number}" for number in range(1, 8)]
    said = run_mishaps(python, words)
    kinds = {text.split()[0] for text in said.values()}
    assert {"failed", "done"} <= kinds <= {"failed", "done", "memory"}
