"""Cases for a device whose memory the host cannot read; test_opaque.py runs them with vendor=opaque in one process.

A read of device memory by the host ends the process with SIGSEGV, so most of these cannot fail silently.
"""

import io

import ditorch
import numpy
import pytest
import torch
from ditorch import _C
from torch import nn

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.skipif(
    _C.device_properties(0)["host_accessible"], reason="for devices whose memory the host cannot read"
)


def both(function, *inputs):
    """The function's results on the device and on the CPU, side by side."""
    mine = function(*[value.to(DEVICE) for value in inputs])
    wanted = function(*[value.clone() for value in inputs])
    return mine.cpu() if isinstance(mine, torch.Tensor) else [part.cpu() for part in mine], wanted


def count_fallbacks(name):
    return next((row["fallback"]["calls"] for row in _C.ledger() if row["name"] == name), 0)


def test_first_steps():
    x = torch.randn(4, 4, device=DEVICE)
    assert abs((x @ x).sum().item() - (x.cpu() @ x.cpu()).sum().item()) < 1e-4
    assert "device='cuda:0'" in repr(x)


def test_copies_of_all_layouts_and_dtypes():
    base = torch.arange(4 * 6 * 5).reshape(4, 6, 5) % 100
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8):
        cpu = base.to(dtype)
        mine = cpu.to(DEVICE)
        for view in (lambda t: t, lambda t: t.mT, lambda t: t[::2, 1:, ::3], lambda t: t[:, :1].expand(4, 6, 5)):
            assert torch.equal(view(mine).cpu(), view(cpu))
            assert torch.equal(view(mine).to(torch.float64).cpu(), view(cpu).to(torch.float64))
            target = torch.zeros(view(cpu).shape, dtype=torch.int32)
            target.copy_(view(mine))
            assert torch.equal(target, view(cpu).to(torch.int32))
        into = torch.zeros(4, 6, 5, dtype=dtype, device=DEVICE)
        into[::2, 1:, ::3] = cpu[::2, 1:, ::3]
        wanted = torch.zeros(4, 6, 5, dtype=dtype)
        wanted[::2, 1:, ::3] = cpu[::2, 1:, ::3]
        assert torch.equal(into.cpu(), wanted)


def test_conjugate_and_negative_bits_travel():
    z = torch.randn(3, 4, dtype=torch.complex64)
    mine = z.to(DEVICE)
    assert torch.equal(mine.conj().cpu(), z.conj().resolve_conj())
    assert torch.equal(mine.conj().imag.cpu(), z.conj().imag.resolve_neg())
    assert mine.conj()[0, 0].item() == z.conj()[0, 0].item()
    target = torch.zeros(3, 4, dtype=torch.complex64, device=DEVICE)
    target.conj().copy_(z)
    assert torch.equal(target.cpu(), z.conj().resolve_conj())


def test_pinned_memory_and_streams():
    pinned = torch.arange(1000.0).pin_memory()
    assert pinned.is_pinned()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        mine = pinned.to(DEVICE, non_blocking=True)
        doubled = mine * 2
    torch.cuda.current_stream().wait_stream(side)
    back = torch.empty(1000).pin_memory()
    back.copy_(doubled, non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(back, pinned * 2)


def test_serialization_and_deepcopy():
    import copy

    x = torch.randn(5, 3, device=DEVICE)
    view = x[1:, ::2]
    buffer = io.BytesIO()
    torch.save({"x": x, "view": view}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)
    assert loaded["x"].device == x.device and torch.equal(loaded["view"].cpu(), view.cpu())
    assert loaded["x"].untyped_storage().data_ptr() == loaded["view"].untyped_storage().data_ptr()
    assert torch.equal(copy.deepcopy(view).cpu(), view.cpu())


# The copying fallback. geqrf, lu_factor ... have no C implementation; the ledger says that they fell back.


def test_fallback_results_and_ledger():
    a = torch.randn(5, 5)
    before = count_fallbacks("aten::geqrf")
    mine, wanted = both(torch.geqrf, a)
    for got, should in zip(mine, wanted, strict=True):
        torch.testing.assert_close(got, should)
    assert count_fallbacks("aten::geqrf") == before + 1
    row = next(row for row in _C.ledger() if row["name"] == "aten::geqrf")
    assert row["fallback"]["bytes"] >= 2 * 100 and row["fallback"]["nanoseconds"] > 0


def test_fallback_of_views_reads_the_right_part():
    big = torch.randn(40, 50)
    for view in (lambda t: t[3:9, 7:13], lambda t: t[::4, ::5].T, lambda t: t[2], lambda t: t[5:5]):
        mine, wanted = both(lambda t, view=view: torch.cumulative_trapezoid(view(t), dim=-1), big)
        torch.testing.assert_close(mine, wanted)
    mine, wanted = both(lambda t: torch.linalg.qr(t[3:9, 7:13]).R, big)
    torch.testing.assert_close(mine, wanted)


def test_fallback_in_place_writes_only_the_view():
    def change(t):
        t[1:4, ::2].polygamma_(1)
        t[5:, 1:].lgamma_()
        return t

    mine, wanted = both(change, torch.rand(8, 6) + 0.5)
    torch.testing.assert_close(mine, wanted)


def test_fallback_out_of_every_kind():
    a = torch.randn(4, 4) + 4 * torch.eye(4)
    for make in (
        lambda device: torch.empty(0, device=device),
        lambda device: torch.full((4, 4), 7.0, device=device),
        lambda device: torch.full((9, 9), 7.0, device=device)[2:6, ::2][:, :4],
        lambda device: torch.full((64,), 7.0, device=device)[10:10],
    ):
        out, wanted = make(DEVICE), make("cpu")
        returned = torch.linalg.inv(a.to(DEVICE), out=out)
        torch.linalg.inv(a, out=wanted)
        assert returned is out
        torch.testing.assert_close(out.cpu(), wanted)
        if out._base is not None:
            torch.testing.assert_close(out._base.cpu(), wanted._base)


def test_arguments_that_share_memory_stay_shared():
    x = torch.rand(10, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"overlap|single memory location"):
        torch.special.i0e(x[:-1], out=x[1:])
    y = torch.rand(3, 1, device=DEVICE).expand(3, 4)
    with pytest.raises(RuntimeError, match=r"single memory location|overlap"):
        y.lgamma_()
    z = torch.rand(6, device=DEVICE)
    kept = z.clone()
    torch.special.i0e(z, out=z)
    torch.testing.assert_close(z.cpu(), torch.special.i0e(kept.cpu()))


def test_views_that_fall_back_stay_views():
    x = torch.arange(12.0, device=DEVICE)
    part = torch.ops.aten.diagonal(x.view(3, 4), 0, 0, 1)
    part.mul_(10)
    assert x[5].item() == 50 and x.cpu()[1] == 1
    z = torch.randn(4, dtype=torch.complex64, device=DEVICE)
    torch.view_as_real(z)[0, 0] = 3
    assert z[0].real.item() == 3


def test_running_statistics():
    x = torch.randn(6, 3, 4)
    norms = [nn.BatchNorm1d(3), nn.BatchNorm1d(3).to(DEVICE)]
    torch.testing.assert_close(norms[1](x.to(DEVICE)).cpu(), norms[0](x))
    torch.testing.assert_close(norms[1].running_mean.cpu(), norms[0].running_mean)


def test_random_numbers_and_generators():
    torch.cuda.manual_seed(5)
    state = torch.cuda.get_rng_state()
    first = [torch.randn(7, device=DEVICE), torch.poisson(torch.full((9,), 4.0, device=DEVICE))]
    torch.cuda.set_rng_state(state)
    again = [torch.randn(7, device=DEVICE), torch.poisson(torch.full((9,), 4.0, device=DEVICE))]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_sparse_and_nested():
    dense = torch.tensor([[0, 2.0, 0], [3, 0, 4]])
    sparse = dense.to(DEVICE).to_sparse()
    assert torch.equal((sparse + sparse).to_dense().cpu(), 2 * dense)
    assert torch.equal(torch.sparse.mm(sparse, dense.T.to(DEVICE)).cpu(), dense @ dense.T)
    csr = dense.to(DEVICE).to_sparse_csr()
    assert torch.equal((csr @ torch.ones(3, 1, device=DEVICE)).cpu(), dense.sum(1, keepdim=True))
    other = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 3), device=DEVICE)
    other.mul_(3)
    assert other.coalesce().values().tolist() == [9.0]
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], device=DEVICE)
    assert [part.sum().item() for part in (nested * 2).unbind()] == [12.0, 6.0]


def test_foreach_half_and_empty():
    tensors = [torch.rand(3) + 1, torch.rand(2, 2) + 1, torch.rand(0)]
    mine = [t.to(DEVICE) for t in tensors]
    torch._foreach_lgamma_(mine)
    for got, start in zip(mine, tensors, strict=True):
        torch.testing.assert_close(got.cpu(), start.lgamma())
    half = torch.randn(2, 1, 5, 5).bfloat16()
    grid = torch.rand(2, 4, 4, 2).bfloat16()
    sampled = torch.nn.functional.grid_sample(half.to(DEVICE), grid.to(DEVICE), align_corners=False)
    assert sampled.dtype == torch.bfloat16 and sampled.shape == (2, 1, 4, 4)
    assert torch.linalg.inv(torch.rand(0, 3, 3, device=DEVICE)).shape == (0, 3, 3)


def test_errors_of_kernels_leave_the_process_well():
    with pytest.raises(RuntimeError, match=r"singular|diagonal"):
        torch.linalg.inv(torch.zeros(3, 3, device=DEVICE))
    with pytest.raises(RuntimeError):
        torch.linalg.cholesky(-torch.eye(2, device=DEVICE))
    with pytest.raises(IndexError):
        torch.arange(3, device=DEVICE)[torch.tensor([5], device=DEVICE)]
    assert torch.ones(3, device=DEVICE).sum().item() == 3


def test_threads():
    import threading

    a = torch.randn(6, 6) + 6 * torch.eye(6)
    wanted = torch.linalg.inv(a)
    found = []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            mine = a.to(DEVICE)
            for _ in range(20):
                found.append(torch.linalg.inv(mine).cpu())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 60
    for got in found:
        torch.testing.assert_close(got, wanted)


def test_dlpack_is_refused_or_right():
    x = torch.arange(4.0, device=DEVICE)
    same = torch.from_dlpack(x)
    assert same.device == x.device and same.data_ptr() == x.data_ptr()
    again = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert again.device == x.device and again.data_ptr() == x.data_ptr() and again.tolist() == [0, 1, 2, 3]
    with pytest.raises((TypeError, RuntimeError, BufferError)):
        numpy.from_dlpack(x)
    with pytest.raises(TypeError):
        numpy.asarray(x)


def test_fault_hook_damages_closed_memory():
    with ditorch.fault("value:aten::mul*"):
        damaged = torch.ones(8, device=DEVICE) * 2
    assert damaged.cpu().ne(2).sum() == 1


@pytest.mark.parametrize("bias", [True, False])
def test_a_training_step_is_the_cpus(bias):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 8, bias=bias), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    import copy

    nets = [net, copy.deepcopy(net).to(DEVICE)]
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    losses = []
    for module, device in zip(nets, ("cpu", DEVICE), strict=True):
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) < 1e-5


# Operators of LLM inference that the device's library lacks: composed on the device


def test_comparison_on_a_device_without_helpers_says_once_that_the_cpu_does_it(capfd, tmp_path, monkeypatch):
    from op_tools import OpAutoCompare

    monkeypatch.chdir(tmp_path)
    with OpAutoCompare(reference="device", save=False) as tool:
        x = torch.randn(8, 8, device=DEVICE)
        torch.nn.functional.gelu(x @ x)
        torch.tanh(x)
    facts = tool.describe()
    said = "".join(capfd.readouterr())
    assert said.count('reference="device" needs helpers in C') == 1, said
    assert facts["on_device"] == 0 and facts["forward"]["compared"] > 2 and tool.ok


def wide(*values):
    return [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in values]


def make_caches():
    return [torch.randn(64, 16, 2, 32) for _ in range(2)]


def run_inference(x, caches, slots, table, lengths):
    """Every operator with a slot in dit/infer.h, composed or not; `slots`, `table` and `lengths` may be anywhere."""
    from ditorch.infer import operators  # noqa: F401  defines them

    op = torch.ops.dlinfer
    weight, outs = x[0, :64], []
    query, key = x[:, :128].unflatten(1, (4, 32)), x[:, 128:192].unflatten(1, (2, 32))
    outs += [op.rms_norm(x[:, :64], weight, 1e-6), *op.add_rms_norm(x[:, :64], x[:, 64:128], weight, 1e-6)]
    outs += [*op.rms_norm_w8a8(x[:, :64], weight, 1e-6, torch.int8)]
    outs += [*op.add_rms_norm_w8a8(x[:, :64], x[:, 64:128], weight, 1e-6, torch.int8)]
    outs += [op.silu_and_mul(x), *op.dynamic_quant(x, torch.int8), op.linear(x, x, None)]
    outs += [*op.apply_rotary_pos_emb(query, key, x[:, :32], x[:, 32:64])]
    outs += [*op.apply_rotary_pos_emb_interleaved(query, key, x[:, :32], x[:, 32:64])]
    op.fill_kv_cache(key, key * 2, *caches, slots, None, None, None, None, 0)
    dense, paged, decoded = (torch.empty_like(query) for _ in range(3))
    starts = torch.tensor([0, 2, 6], dtype=torch.int32)
    op.prefill_attention(query, key, key, starts, True, 0.2, None, None, -1, 0.0, dense)
    rest = (0.2, None, None, -1, 0.0, None, None, 0)
    op.paged_prefill_attention(query, *caches, table[:2], starts, lengths[:2], *rest, paged)
    op.paged_decode_attention(query, *caches, table, None, lengths, *rest, decoded)
    outs += [*caches, dense, paged, decoded]
    weights, ids = op.moe_gating_topk_softmax(x[:, :4], 2, -1)
    experts = x[:4, :128].reshape(4, 2, 64).repeat(1, 4, 1), x[:4, :64].reshape(4, 16, 4).repeat(1, 4, 1)
    outs += [weights, ids, op.fused_moe(x[:, :64], *experts, weights, ids, True)]
    return [out.clone() for out in outs]


def test_inference_operators_fetch_nothing():
    from ditorch import ledger

    x = torch.randn(6, 192)
    slots, lengths = torch.tensor([5, -1, 80, 5, 300, 1023]), torch.tensor([20, 33, 7, 6, 40, 50], dtype=torch.int32)
    table = torch.arange(24, dtype=torch.int32).view(6, 4)
    caches = make_caches()
    wanted = run_inference(*wide(x), wide(*caches), slots, table, lengths)
    for where in (DEVICE, "cpu"):
        mine, given = [cache.to(DEVICE) for cache in caches], x.to(DEVICE)
        indices = [index.to(where) for index in (slots, table, lengths)]
        ledger.reset_counters()
        got = run_inference(given, mine, *indices)
        assert {row["operator"]: row["calls"] for row in ledger.fallbacks()} == {}
        for a, b in zip(got, wanted, strict=True):
            if a.is_floating_point():
                torch.testing.assert_close(a.cpu().double(), b.double(), rtol=1e-4, atol=1e-4)
            else:
                assert (a.cpu().long() - b.long()).abs().max() <= 1


def test_inference_capability():
    from ditorch.infer import operators

    assert {how.runs for how in operators.capability().values()} == {"composed"}  # its library has no table
