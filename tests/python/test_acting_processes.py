"""The tools that act in processes of their own: memory over many steps, two ranks on gloo."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from conftest import HERE, child_environment

pytestmark = pytest.mark.usefixtures("warm_children")

COMMON = f"import sys; sys.path.insert(0, {HERE!r})\n"


def run(program, folder, *command, check=True, **environment):
    script = folder / "program.py"
    script.write_text(COMMON + textwrap.dedent(program))
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", *command, str(script)],
        capture_output=True, text=True, timeout=600, cwd=folder, env=child_environment(**environment),
    )  # fmt: skip
    assert not check or answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-5000:]
    return answer


MEMORY = """
    import os
    import torch, ditorch
    import torch.nn.functional as F
    import op_tools
    from training import LeNet

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LeNet().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(8, 1, 28, 28, device="cuda"), torch.randint(0, 10, (8,), device="cuda")

    def rss():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    tool = getattr(op_tools, os.environ["TOOL"])(console="off", level=os.environ["LEVEL"])

    def repeat(times):
        for _ in range(times):
            step()
            tool.step()
    if os.environ["AGAIN"] == "1":
        for i in range(53):
            with tool:
                repeat(1)
            if i == 2:
                before = rss()
    else:
        with tool:
            repeat(3)
            before = rss()
            repeat(50)
    print("grown", rss() - before)
"""


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer keeps freed memory")
@pytest.mark.parametrize(
    "tool,level,again",
    [
        ("OpAutoCompare", "torch", 0),
        pytest.param("OpAutoCompare", "torch", 1, marks=pytest.mark.full),
        pytest.param("OpAutoCompare", "aten", 0, marks=pytest.mark.full),
        pytest.param("OpFallback", "torch", 0, marks=pytest.mark.full),
        pytest.param("OpDtypeCast", "torch", 0, marks=pytest.mark.full),
    ],
)
def test_fifty_steps_of_lenet_grow_memory_by_ten_mebibytes_at_most(tool, level, again, tmp_path):
    answer = run(MEMORY, tmp_path, TOOL=tool, LEVEL=level, AGAIN=again)
    assert int(answer.stdout.split("grown")[1]) <= 10 << 20


RANKS = """
    import json, os
    import torch, ditorch
    import torch.distributed as dist
    import torch.nn.functional as F
    from op_tools import OpAutoCompare, OpDtypeCast, OpFallback, step as next_step

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def train():
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        data = torch.Generator().manual_seed(rank)
        losses = []
        for _ in range(3):
            loss = model(torch.randn(4, 6, generator=data).cuda()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            for p in model.parameters():
                grad = p.grad.cpu()
                dist.all_reduce(grad)
                p.grad.copy_(grad / dist.get_world_size())
            optimizer.step()
            losses.append(loss.item())
            next_step()
        return losses, [p.detach().cpu().tolist() for p in model.parameters()]

    bare = train()
    compare = OpAutoCompare(console="off")
    with compare:
        compared = train()
    with OpFallback(console="off", list="torch.nn.functional.gelu") as fallback:
        elsewhere, _ = train()
    with OpDtypeCast(console="off", dtype_cast_dict="torch.float32->torch.float64") as cast:
        wide, _ = train()
    broken = OpAutoCompare(console="off")
    with ditorch.fault("value:gelu,scale=0.2" if rank else ""), broken:
        train()
    def train_parallel():
        torch.manual_seed(rank)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(5, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 5)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.tolist() for p in model.parameters()]

    alone = train_parallel()
    with OpAutoCompare(console="off", cpu=True) as parallel:
        watched = train_parallel()
    answer = {
        "parallel": [alone == watched, parallel.ok, parallel.describe()["forward"]["compared"]],
        "same": compared == bare, "ok": compare.ok, "compared": compare.describe()["forward"]["compared"],
        "weights": bare[1], "losses": [bare[0], elsewhere, wide], "fallback": fallback.counts()["applied"],
        "cast": len(cast.ledger()), "accused": sorted({f["name"] for f in broken.findings()}),
        "folders": [f["folder"] for f in broken.findings()],
        "csv": [compare.describe()["csv"], broken.describe()["csv"]],
    }
    with open(f"answer{rank}.json", "w") as file:
        json.dump(answer, file)
    dist.barrier()
    dist.destroy_process_group()
"""


def test_two_ranks_by_torchrun_keep_their_results_apart(tmp_path):
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--rdzv-backend=c10d",
                "--rdzv-endpoint=localhost:0"]  # fmt: skip
    run(RANKS, tmp_path, *torchrun)
    answers = [json.loads((tmp_path / f"answer{rank}.json").read_text()) for rank in range(2)]
    for rank, answer in enumerate(answers):
        assert answer["same"] and answer["ok"] and answer["compared"] > 20
        bare, elsewhere, wide = (torch.tensor(losses) for losses in answer["losses"])
        torch.testing.assert_close(elsewhere, bare, rtol=1e-5, atol=0)
        torch.testing.assert_close(wide, bare, rtol=1e-5, atol=0)
        assert answer["parallel"][:2] == [True, True] and answer["parallel"][2] >= 9
        assert answer["fallback"] == 3 and answer["cast"] > 3
        assert all(f"/rank{rank}/" in path and os.path.getsize(path) > 0 for path in answer["csv"])
    assert answers[0]["weights"] == answers[1]["weights"] and answers[0]["losses"] != answers[1]["losses"]
    assert answers[0]["accused"] == [] and answers[1]["accused"] == ["torch.nn.functional.gelu"]
    assert all("/rank1/" in folder and os.path.isdir(folder) for folder in answers[1]["folders"])
    logs = sorted(path.name for path in tmp_path.rglob("*.dlog"))
    assert len(logs) == 2 and "-r0-" in logs[0] and "-r1-" in logs[1]


def test_a_step_may_be_told_before_the_first_tool(tmp_path):
    answer = run(
        """
        import torch, ditorch, op_tools
        print("number", op_tools.step(), op_tools.step())
        with op_tools.OpAutoCompare(console="off") as tool:
            torch.ones(3, device="cuda").add(1)
        print("ok", tool.ok)
        """,
        tmp_path,
    )
    assert "number 1 2" in answer.stdout and "ok True" in answer.stdout
