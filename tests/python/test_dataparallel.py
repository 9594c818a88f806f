"""Two devices: copies, guards, DataParallel and its pieces. Runs in one child process with two devices."""

import pytest

PROLOGUE = """
import torch, ditorch
import torch.nn as nn
assert torch.cuda.device_count() == 2
"""

CASES = {
    "copies": """
        a = torch.arange(12.0, device="cuda:0").view(3, 4)
        for view in (a, a.t(), a[:, ::2], a[1:], a[:0]):
            b = view.to("cuda:1")
            assert b.device == torch.device("cuda:1") and torch.equal(b.cpu(), view.cpu())
            c = torch.empty_like(b).copy_(view)
            assert torch.equal(c.cpu(), view.cpu())
        d = torch.zeros(3, 4, dtype=torch.float64, device="cuda:1")
        d.t()[:] = a.t()
        assert torch.equal(d.cpu().float(), a.cpu())
    """,
    "mixed ordinals": """
        try:
            torch.ones(2, device="cuda:0") + torch.ones(2, device="cuda:1")
        except RuntimeError as error:
            assert "Expected all tensors to be on the same device" in str(error), error
            assert "cuda:0" in str(error) and "cuda:1" in str(error), error
        else:
            raise SystemExit("no error")
        try:
            torch.ones(2, 2, device="cuda:0") @ torch.ones(2, 2, device="cuda:1")
        except RuntimeError as error:
            assert "same device" in str(error), error
        else:
            raise SystemExit("no error")
    """,
    "guards": """
        assert torch.cuda.current_device() == 0
        with torch.cuda.device(1):
            assert torch.cuda.current_device() == 1
            assert torch.ones(1, device="cuda").device.index == 1
            x = torch.ones(2, device="cuda:0")
            assert (x + 1).device.index == 0            # follows the data, not the current device
            assert torch.cuda.current_device() == 1
        assert torch.cuda.current_device() == 0
        with torch.cuda.device_of(torch.ones(1, device="cuda:1")):
            assert torch.cuda.current_device() == 1
        torch.cuda.set_device(1)
        assert torch.ones(1).cuda().device.index == 1
        torch.cuda.set_device(0)
    """,
    "memory counted apart": """
        before = torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)
        x = torch.empty(1 << 20, device="cuda:1")
        assert torch.cuda.memory_allocated(0) == before[0]
        assert torch.cuda.memory_allocated(1) - before[1] == 4 << 20
    """,
    "seeds apart": """
        torch.cuda.manual_seed_all(3)
        a, b = torch.rand(4, device="cuda:0"), torch.rand(4, device="cuda:1")
        assert torch.equal(a.cpu(), b.cpu())
        with torch.cuda.device(1):
            torch.cuda.manual_seed(9)
        state = torch.cuda.get_rng_state_all()
        assert len(state) == 2 and not torch.equal(state[0], state[1])
        c = torch.rand(4, device="cuda:1")
        torch.cuda.set_rng_state_all(state)
        assert torch.equal(torch.rand(4, device="cuda:1"), c)
    """,
    "streams and events across devices": """
        s = torch.cuda.Stream(device="cuda:1")
        with torch.cuda.stream(s):
            assert torch.cuda.current_device() == 1
            x = torch.ones(1000, device="cuda:1")
            for _ in range(10):
                x = x * 2
            event = s.record_event()
        assert torch.cuda.current_device() == 0
        torch.cuda.current_stream(0).wait_event(event)
        assert x.to("cuda:0").sum().item() == 1000 * 1024
    """,
    "backward across devices": """
        a = torch.ones(3, device="cuda:0", requires_grad=True)
        b = torch.ones(3, device="cuda:1", requires_grad=True)
        ((a * 2).to("cuda:1") * b * 3).sum().backward()
        assert a.grad.device.index == 0 and a.grad.tolist() == [6, 6, 6]
        assert b.grad.device.index == 1 and b.grad.tolist() == [6, 6, 6]
    """,
    "pieces of data parallel": """
        from torch.nn.parallel import replicate, scatter, gather, parallel_apply
        import torch.cuda.comm as comm
        model = nn.Linear(3, 2).cuda()
        copies = replicate(model, [0, 1])
        assert [m.weight.device.index for m in copies] == [0, 1]
        parts = scatter(torch.arange(12.0, device="cuda").view(4, 3), [0, 1])
        assert [p.device.index for p in parts] == [0, 1]
        outs = parallel_apply(copies, [(p,) for p in parts])
        both = gather(outs, 0)
        assert torch.allclose(both, model(torch.arange(12.0, device="cuda").view(4, 3)))
        assert [t.device.index for t in comm.broadcast(torch.ones(2, device="cuda"), [0, 1])] == [0, 1]
        assert comm.reduce_add([torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")]).tolist() == [2, 2]
        assert [t.tolist() for t in comm.scatter(torch.arange(4.0), [0, 1])] == [[0, 1], [2, 3]]
    """,
    "data parallel equals one device": """
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).cuda()
        model.eval()
        x = torch.randn(6, 4, device="cuda")
        single = model(x)
        single.sum().backward()
        wanted = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        parallel = nn.DataParallel(model)
        assert torch.allclose(parallel(x), single, atol=1e-6)
        parallel(x).sum().backward()
        for p, grad in zip(model.parameters(), wanted):
            assert p.grad.device.index == 0
            torch.testing.assert_close(p.grad, grad)
    """,
    "serialization keeps the ordinal": """
        import io
        file = io.BytesIO()
        torch.save(torch.ones(2, device="cuda:1"), file)
        file.seek(0)
        assert torch.load(file, weights_only=True).device.index == 1
        file.seek(0)
        assert torch.load(file, weights_only=True, map_location={"cuda:1": "cuda:0"}).device.index == 0
    """,
    "visible devices": """
        import os, subprocess, sys
        code = "import torch, ditorch; print(torch.cuda.device_count())"
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "1"}
        out = subprocess.run([sys.executable, "-c", code], text=True, env=environment, capture_output=True)
        assert out.stdout.strip() == "1", out
    """,
}


@pytest.fixture(scope="module")
def outcomes():
    import textwrap

    from conftest import run_python

    program = textwrap.dedent(PROLOGUE) + "import traceback, json\nresults = {}\n"
    for name, body in CASES.items():
        program += f"try:\n    exec({textwrap.dedent(body)!r}, dict(globals()))\n    results[{name!r}] = ''\n"
        program += f"except BaseException:\n    results[{name!r}] = traceback.format_exc()\n"
    program += "print(json.dumps(results))\n"
    import json

    return json.loads(run_python(program, DITORCH_HOST_DEVICES=2).stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_two_devices(name, outcomes):
    assert outcomes[name] == ""


def test_one_device_by_default(python):
    assert python("import torch, ditorch\nprint(torch.cuda.device_count())\n").stdout.strip() == "1"
