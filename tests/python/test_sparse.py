"""Sparse tensors of the device: construction, parts, conversions, writes, gradients, training, files; every result
against the CPU's."""

import concurrent.futures
import copy
import io
import pickle

import ditorch
import pytest
import torch
from torch import nn

LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]
COMPRESSED = LAYOUTS[1:]
pytestmark = pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*beta state")


def dense(rows=6, columns=8, dtype=torch.float32):
    """A matrix of which half is zero."""
    values = torch.randint(1, 9, (rows, columns)).to(dtype)
    return values * (torch.rand(rows, columns) < 0.5)


def convert(tensor, layout):
    block = (2, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    return tensor.to_sparse(layout=layout, blocksize=block)


def get_parts(tensor):
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def check(mine, wanted):
    """A sparse or dense tensor of the device and one of the CPU."""
    assert mine.is_cuda and not wanted.is_cuda
    assert (mine.layout, mine.dtype, mine.shape) == (wanted.layout, wanted.dtype, wanted.shape)
    if wanted.layout is torch.strided:
        torch.testing.assert_close(mine.detach().cpu(), wanted.detach(), equal_nan=True)
        return
    assert mine._nnz() == wanted._nnz() and mine.sparse_dim() == wanted.sparse_dim()
    if wanted.layout is torch.sparse_coo:
        assert mine.is_coalesced() == wanted.is_coalesced()
    for part, other in zip(get_parts(mine.detach()), get_parts(wanted.detach()), strict=True):
        assert part.is_cuda
        torch.testing.assert_close(part.cpu(), other, equal_nan=True)


def uncoalesced():
    indices = torch.tensor([[2, 0, 2, 1], [1, 0, 1, 3]])
    return torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0, 4.0]), (3, 4))


# Construction, parts, copies


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.bool])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_to_the_device_and_back(layout, dtype):
    wanted = convert(dense(dtype=dtype), layout)
    mine = wanted.cuda()
    check(mine, wanted)
    back = mine.cpu()
    assert back.device.type == "cpu" and torch.equal(back.to_dense(), wanted.to_dense())
    check(mine.clone(), wanted)
    check(mine.detach(), wanted)
    check(mine.to(torch.complex64), wanted.to(torch.complex64))
    check(torch.empty_like(mine).copy_(mine), wanted)
    if dtype is not torch.bool:
        check(torch.zeros_like(mine), torch.zeros_like(wanted))
    assert get_parts(mine)[-1].data_ptr() != get_parts(mine.clone())[-1].data_ptr()


@pytest.mark.parametrize("layout", COMPRESSED, ids=str)
def test_compressed_from_parts(layout):
    wanted = convert(dense(), layout)
    parts = [part.cuda() for part in get_parts(wanted)]
    mine = torch.sparse_compressed_tensor(*parts, wanted.shape, layout=layout, check_invariants=True)
    check(mine, wanted)
    assert mine.values().data_ptr() == parts[2].data_ptr()
    check(torch.sparse_compressed_tensor(*get_parts(wanted), layout=layout, device="cuda"), wanted)
    with pytest.raises(RuntimeError, match=r"crow_indices|ccol_indices|compressed_indices"):
        torch.sparse_compressed_tensor(parts[0] + 1, *parts[1:], wanted.shape, layout=layout, check_invariants=True)


def test_coo_from_parts():
    wanted = uncoalesced()
    indices, values = wanted._indices().cuda(), wanted._values().cuda()
    mine = torch.sparse_coo_tensor(indices, values, (3, 4), check_invariants=True)
    check(mine, wanted)
    assert mine._values().data_ptr() == values.data_ptr()  # no copy
    check(torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], device="cuda"), torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0]))
    check(torch.sparse_coo_tensor(size=(2, 3), device="cuda"), torch.sparse_coo_tensor(size=(2, 3)))
    for layout in LAYOUTS[:3]:
        made = torch.empty(2, 3, layout=layout, device="cuda")
        assert made.is_cuda and made.layout is layout and made.shape == (2, 3) and made._nnz() == 0
        check(torch.zeros(2, 3, layout=layout, device="cuda"), torch.zeros(2, 3, layout=layout))
    check(mine.coalesce(), wanted.coalesce())
    assert not mine.is_coalesced() and mine.coalesce().is_coalesced()
    with pytest.raises(RuntimeError, match="uncoalesced"):
        mine.indices()
    with pytest.raises(RuntimeError, match=r"size is inconsistent with indices|found index"):
        torch.sparse_coo_tensor(indices, values, (2, 2), check_invariants=True)


def test_dense_dimensions_and_empty_ones():
    cpu = torch.randn(3, 4, 5)
    check(cpu.cuda().to_sparse(1), cpu.to_sparse(1))
    check(cpu.cuda().to_sparse(2), cpu.to_sparse(2))
    empty = torch.zeros(0, 4).to_sparse()
    check(empty.cuda(), empty)
    check(empty.cuda().to_dense(), empty.to_dense())
    scalar = torch.tensor(3.0).to_sparse()
    check(scalar.cuda(), scalar)
    check(scalar.cuda() * 2, scalar * 2)
    five = torch.randn(2, 3, 2, 2, 3).to_sparse()
    check(five.cuda().transpose(-1, 1), five.transpose(-1, 1))
    large = torch.zeros(70_000).index_fill_(0, torch.arange(0, 70_000, 3), 1.5)
    check(large.cuda().to_sparse(), large.to_sparse())


@pytest.mark.parametrize("to", [*LAYOUTS, torch.strided], ids=str)
@pytest.mark.parametrize("start", LAYOUTS, ids=str)
def test_conversions(start, to):
    wanted = convert(dense(), start)

    def run(tensor):
        return tensor.to_dense() if to is torch.strided else convert(tensor, to)

    try:
        result = run(wanted)
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error)):
            run(wanted.cuda())
    else:
        check(run(wanted.cuda()), result)


def test_copies_between_layouts_and_devices():
    wanted = uncoalesced()
    mine = torch.sparse_coo_tensor(size=(3, 4), device="cuda")
    check(mine.copy_(wanted), wanted)  # from the CPU
    cpu = torch.sparse_coo_tensor(size=(3, 4))
    cpu.copy_(mine)
    assert cpu.device.type == "cpu" and torch.equal(cpu._indices(), wanted._indices())
    check(torch.zeros(3, 4).cuda().add_(mine), wanted.to_dense())
    with pytest.raises(RuntimeError):
        torch.zeros(3, 4, device="cuda").copy_(mine)  # PyTorch refuses it as well


def test_on_another_device(python):
    answer = python(
        """
        import torch, ditorch
        x = torch.eye(3).to_sparse().to("cuda:1")
        y = torch.eye(3).to_sparse_csr().to("cuda:1")
        for t in (x, x + x, x.clone(), torch.sparse_coo_tensor([[0]], [1.0], device="cuda:1"), x.to_dense(), y,
                  y.clone(), y @ torch.ones(3, 2, device="cuda:1"), torch.empty(2, 2, layout=torch.sparse_coo,
                  device="cuda:1"), x.cuda(0).cuda(1), torch.randn(3, 3, device="cuda:1").to_sparse_csr()):
            assert t.device.index == 1 and t.sum().device.index == 1, t
        assert x.cuda(0)._values().device.index == 0
        try:
            x + x.cuda(0)
        except RuntimeError as error:
            print(error)
        """,
        DITORCH_HOST_DEVICES=2,
    )
    assert "same device" in answer.stdout


# Writes


def test_in_place_writes_arrive():
    for change in (
        lambda t: t.add_(t * 2),
        lambda t: t.mul_(3),
        lambda t: t.zero_(),
        lambda t: t.neg_(),
        lambda t: t.div_(2),
        lambda t: t.sub_(t.coalesce()),
        lambda t: t.resize_as_(torch.zeros(3, 4, device=t.device).to_sparse()),
        lambda t: t.sparse_resize_((5, 6), 2, 0),
        lambda t: t.sparse_resize_and_clear_((7,), 1, 0),
        lambda t: t._coalesced_(True),
        lambda t: t.coalesce().transpose_(0, 1),
        lambda t: t.coalesce().sin_(),
    ):
        wanted = uncoalesced()
        mine = wanted.cuda()
        result = change(mine)
        check(result, change(wanted))
        check(mine, wanted)


def test_out_arguments():
    a, b = dense().to_sparse(), dense().to_sparse()
    wanted = torch.add(a, b, out=torch.sparse_coo_tensor(size=(6, 8)))
    out = torch.sparse_coo_tensor(size=(6, 8), device="cuda")
    assert torch.add(a.cuda(), b.cuda(), out=out) is out
    check(out, wanted)
    result = torch.empty(0, device="cuda")
    torch.mm(a.cuda(), b.to_dense().t().cuda(), out=result)
    check(result, a.to_dense() @ b.to_dense().t())
    csr = dense().to_sparse_csr()
    out = torch.empty_like(csr.cuda())
    check(torch.sin(csr.cuda(), out=out), csr.sin())


def test_parts_share_memory():
    x = dense().to_sparse().cuda()
    assert x._values().data_ptr() == x.values().data_ptr()
    before = x.to_dense()
    x.values().mul_(2)
    check(x.to_dense(), (before * 2).cpu())
    x._values().zero_()
    assert not x.to_dense().any()
    y = dense().to_sparse_csr().cuda()
    y.values().fill_(7)
    assert set(y.to_dense().unique().tolist()) <= {0.0, 7.0}
    values = torch.ones(2, device="cuda")
    z = torch.sparse_coo_tensor(torch.tensor([[0, 1]], device="cuda"), values, (2,))
    values.mul_(4)
    check(z.to_dense(), torch.full((2,), 4.0))


def test_versions_are_counted():
    x = dense().to_sparse().cuda()
    version = x._version
    x.mul_(2)
    assert x._version == version + 1
    y = dense().to_sparse().cuda()
    version = y._version
    y.values().mul_(2)
    assert y._version == version + 1  # a view of it


# Operators

TWO = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b * 2,
    "mul": lambda a, b: a * b,
    "mm": lambda a, b: torch.sparse.mm(a, b.transpose(0, 1)),
    "dense": lambda a, b: a @ b.to_dense().t(),
    "addmm": lambda a, b: torch.sparse.addmm(torch.ones(6, 6, device=a.device), a, b.to_dense().t(), beta=2),
    "mv": lambda a, b: torch.mv(a, torch.arange(8.0, device=a.device)),
    "sum": lambda a, b: a.sum(),
    "reduce": lambda a, b: torch.sparse.sum(a, 0),
    "softmax": lambda a, b: torch.sparse.softmax(a, 1),
    "log_softmax": lambda a, b: torch.sparse.log_softmax(a, 1),
    "transpose": lambda a, b: a.t(),
    "select": lambda a, b: a.index_select(0, torch.tensor([2, 0], device=a.device)),
    "row": lambda a, b: a[2],
    "mask": lambda a, b: b.to_dense().sparse_mask(a),
    "sampled_addmm": lambda a, b: torch.sparse.sampled_addmm(a, torch.ones(6, 3, device=a.device), b.to_dense()[:3]),
    "cat": lambda a, b: torch.cat([a, b]),
    "norm": lambda a, b: a.norm(),
    "relu": lambda a, b: (-a).relu(),
    "abs": lambda a, b: a.neg().abs().sqrt().isnan(),
    "any": lambda a, b: a.bool().any(),
    "half": lambda a, b: a.to(torch.bfloat16) * 2,
    "unsqueeze": lambda a, b: a.unsqueeze(0),
    "pow": lambda a, b: a.pow(2),
    "bmm": lambda a, b: torch.bmm(torch.stack([a, b]), torch.ones(2, 8, 3, device=a.device)),
    "spsolve": lambda a, b: torch.triangular_solve(torch.ones(6, 1, device=a.device), a[:, :6]),
    "equal": lambda a, b: a.is_same_size(b) and a.sparse_dim(),
    "foreach": lambda a, b: torch._foreach_norm([a, b])[1],
}


@pytest.mark.parametrize("layout", LAYOUTS[:4], ids=str)
@pytest.mark.parametrize("name", TWO)
def test_operators(name, layout):
    a, b = convert(dense() + torch.eye(6, 8), layout), convert(dense(), layout)
    try:
        wanted = TWO[name](a, b)
    except (RuntimeError, NotImplementedError, IndexError) as error:
        with pytest.raises(type(error)):
            TWO[name](a.cuda(), b.cuda())
        return
    mine = TWO[name](a.cuda(), b.cuda())
    if not isinstance(wanted, torch.Tensor):
        assert mine == wanted
    else:
        check(mine, wanted)


def test_fallbacks_are_counted_and_refusals_clear():
    x = dense().to_sparse().cuda()
    before = {row["operator"]: row["calls"] for row in ditorch.fallbacks()}
    x + x
    after = {row["operator"]: row["calls"] for row in ditorch.fallbacks()}
    assert after["aten::add.Tensor"] == before.get("aten::add.Tensor", 0) + 1
    with pytest.raises(NotImplementedError, match=r"Could not run 'aten::.*' with arguments from the 'SparseCUDA'"):
        torch.cumsum(x, 0)
    with pytest.raises(NotImplementedError, match="with arguments from the 'SparseCsrCUDA' backend"):
        torch.cumsum(dense().to_sparse_csr().cuda(), 0)


def test_names():
    x = dense().to_sparse().cuda()
    assert x.type() == "torch.cuda.sparse.FloatTensor" and isinstance(x, torch.cuda.sparse.FloatTensor)
    assert not isinstance(x, torch.cuda.FloatTensor) and not isinstance(x.cpu(), torch.cuda.sparse.FloatTensor)
    made = torch.cuda.sparse.DoubleTensor(x.indices(), x.values().double(), x.shape)
    assert made.is_cuda and made.dtype is torch.float64 and torch.equal(made.to_dense(), x.to_dense().double())
    assert torch.cuda.sparse.FloatTensor(2, 3).shape == (2, 3)
    text = repr(x)
    assert "device='cuda:0'" in text and "layout=torch.sparse_coo" in text and "nnz=" in text
    assert "layout=torch.sparse_csr" in repr(dense().to_sparse_csr().cuda())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_files(layout):
    wanted = convert(dense(), layout)
    mine = wanted.cuda()
    check(pickle.loads(pickle.dumps(mine)), wanted)
    buffer = io.BytesIO()
    torch.save({"x": mine}, buffer)
    buffer.seek(0)
    check(torch.load(buffer)["x"], wanted)
    buffer.seek(0)
    assert torch.load(buffer, map_location="cpu")["x"].device.type == "cpu"
    if layout is torch.sparse_coo:  # PyTorch has none for the others
        check(copy.deepcopy(mine), wanted)


# Gradients


@pytest.mark.parametrize("layout", LAYOUTS[:2], ids=str)
def test_gradients(layout):
    def run(device):
        torch.manual_seed(3)
        matrix = convert(dense(), layout).to(device).requires_grad_()
        other = torch.randn(8, 3).to(device).requires_grad_()
        loss = (torch.sparse.mm(matrix, other) * 2).sum() + matrix.to_dense().pow(2).sum()
        loss.backward()
        return matrix.grad, other.grad, loss

    for mine, wanted in zip(run("cuda"), run("cpu"), strict=True):
        check(mine, wanted)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_gradients_of_reducing_products(reduce):
    """The CPU's kernel keeps what the backward pass reads only for tensors that require gradients."""

    def run(device):
        torch.manual_seed(3)
        matrix = dense().to_sparse_csr().to(device).requires_grad_()
        other = torch.randn(8, 3).to(device).requires_grad_()
        return torch.autograd.grad(torch.sparse.mm(matrix, other, reduce).pow(2).sum(), [matrix, other])

    for mine, wanted in zip(run("cuda"), run("cpu"), strict=True):
        check(mine, wanted)


def test_gradients_of_values_and_masks():
    def run(device):
        torch.manual_seed(3)
        values = torch.randn(4).to(device).requires_grad_()
        x = torch.sparse_coo_tensor(uncoalesced()._indices().to(device), values, (3, 4))
        y = torch.sparse.softmax(x.coalesce(), 1)
        other = torch.randn(3, 4).to(device).requires_grad_()
        loss = (y.values() * 3).sum() + torch.sparse.sum(x * x) + other.sparse_mask(x.coalesce()).values().sum()
        loss.backward()
        return values.grad, other.grad, loss

    for mine, wanted in zip(run("cuda"), run("cpu"), strict=True):
        check(mine, wanted)


@pytest.mark.parametrize("masked", [True, False])
def test_gradcheck(masked):
    x = dense(4, 4, torch.float64).to_sparse().cuda().requires_grad_()
    y = torch.randn(4, 2, dtype=torch.float64).cuda().requires_grad_()
    assert torch.autograd.gradcheck(lambda a: a.to_dense(masked_grad=masked), (x,), masked=masked)
    assert torch.autograd.gradcheck(lambda a, b: torch.sparse.mm(a, b), (x, y), masked=True)
    csr = dense(4, 4, torch.float64).to_sparse_csr().cuda().requires_grad_()
    assert torch.autograd.gradcheck(lambda a: a.to_dense(masked_grad=masked), (csr,), masked=masked)


# Training

OPTIMIZERS = {
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.05),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


def train(device, module, optimizer):
    torch.manual_seed(5)
    model = module().to(device)
    data = torch.randint(0, 12, (4, 6)).to(device)
    target = torch.randn(4, 5).to(device)
    chosen = OPTIMIZERS[optimizer](list(model.parameters()))
    for _ in range(4):
        chosen.zero_grad()
        out = model(data)
        out = out.mean(1) if out.dim() == 3 else out
        nn.functional.mse_loss(out, target).backward()
        assert all(p.grad.is_sparse for p in model.parameters())
        chosen.step()
    return [p.detach() for p in model.parameters()]


MODULES = {
    "Embedding": lambda: nn.Embedding(12, 5, sparse=True, padding_idx=0),
    "scaled": lambda: nn.Embedding(12, 5, sparse=True, scale_grad_by_freq=False),
    "sum": lambda: nn.EmbeddingBag(12, 5, sparse=True, mode="sum"),
    "mean": lambda: nn.EmbeddingBag(12, 5, sparse=True, mode="mean"),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("module", MODULES)
def test_training(module, optimizer):
    """The same weights as on the CPU after four steps."""
    for mine, wanted in zip(
        train("cuda", MODULES[module], optimizer), train("cpu", MODULES[module], optimizer), strict=True
    ):
        check(mine, wanted)


def test_clipping():
    """By hand; PyTorch's own clip_grad_norm_ takes sparse gradients on no device."""

    def run(device, clip):
        torch.manual_seed(5)
        layer = nn.Embedding(12, 5, sparse=True).to(device)
        layer(torch.tensor([1, 2, 1], device=device)).sum().backward()
        clip(layer.parameters())
        return layer.weight.grad.coalesce()

    def scale(parameters):
        for p in parameters:
            p.grad.mul_(0.5 / torch.linalg.vector_norm(p.grad.coalesce().values()))

    check(run("cuda", scale), run("cpu", scale))
    for device in ("cpu", "cuda"):
        with pytest.raises(NotImplementedError, match="linalg_vector_norm"):
            run(device, lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.05))


def test_buffers_move_with_the_module():
    layer = nn.Linear(2, 2)
    layer.register_buffer("table", dense().to_sparse())
    layer.register_buffer("rows", dense().to_sparse_csr())
    layer.cuda()
    assert layer.table.is_cuda and layer.rows.is_cuda
    check(layer.table, layer.table.cpu())
    layer.cpu()
    assert not layer.table.is_cuda and not layer.rows.is_cuda and not layer.rows.values().is_cuda


def test_on_a_stream():
    stream = torch.cuda.Stream()
    x = torch.randn(300, 300, device="cuda")
    wanted = (x.cpu() * 2).to_sparse()
    with torch.cuda.stream(stream):
        y = (x * 2).to_sparse()
        z = y @ x
    stream.synchronize()
    check(y, wanted)
    check(z, wanted @ x.cpu())


def test_threads():
    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        x = (torch.rand(20, 20, generator=generator) > 0.5).float()
        y = x.cuda().to_sparse()
        for _ in range(20):
            y = (y + y).coalesce()
            y.mul_(0.5)
        return torch.equal(y.to_dense().cpu(), x)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_collectives_are_refused_before_they_lose_their_result(python):
    """A collective ends after its call, when nobody writes the CPU's result back."""
    said = python(
        """
        import torch, ditorch, torch.distributed as dist
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        try:
            dist.all_reduce(torch.eye(3).to_sparse().cuda())
        except NotImplementedError as error:
            print(error)
        """
    ).stdout
    assert "c10d::allreduce_" in said and ".to_dense()" in said
