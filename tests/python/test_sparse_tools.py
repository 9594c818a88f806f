"""The operator tools over a program with sparse tensors: nothing breaks, results stay, NaN is found at its maker."""

import ditorch
import op_tools
import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*beta state")


def train():
    """Forward and backward through COO and CSR tensors, and a step of SparseAdam."""
    x = torch.arange(16.0).reshape(4, 4).cuda().requires_grad_()
    coo = torch.eye(4).to_sparse().cuda().requires_grad_()
    csr = torch.eye(4).to_sparse_csr().cuda()
    results = [torch.sparse.mm(coo, x), csr @ x, (coo + coo).coalesce(), x.to_sparse(), csr * 2, csr.to_dense()]
    results += [coo.detach().clone().mul_(2), torch.sparse.softmax(coo, 1), coo.detach().coalesce().values()]
    results += [torch.sparse_coo_tensor(coo._indices(), coo._values() * 3, (4, 4)), csr.to_sparse_csc()]
    (results[0].sum() + coo.to_dense().pow(2).sum() + torch.sparse.sum(coo)).backward()
    torch.manual_seed(2)
    table = torch.nn.Embedding(5, 3, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(table.parameters())
    table(torch.tensor([1, 2, 1], device="cuda")).pow(2).sum().backward()
    optimizer.step()
    return [*results, x.grad, coo.grad, table.weight.grad, table.weight]


TOOLS = {
    "OpAutoCompare": {},
    "OpFallback": {},
    "OpCapture": {},
    "OpOverflowCheck": {},
    "OpDtypeCast": {"dtype_cast_dict": "torch.float32->torch.float64"},
    "OpTimeMeasure": {},
    "OpObserve": {},
}


@pytest.mark.parametrize("level", ["torch", "aten"])
@pytest.mark.parametrize("name", TOOLS)
def test_tools_change_nothing(name, level, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wanted = train()
    options = dict(TOOLS[name], level=level)
    with getattr(op_tools, name)(**options):
        mine = train()
    for i, (a, b) in enumerate(zip(mine, wanted, strict=True)):
        assert a.is_cuda and (a.layout, a.dtype, a.shape) == (b.layout, b.dtype, b.shape), i
        torch.testing.assert_close(a.detach().to_dense(), b.detach().to_dense())


def test_nan_in_stored_values_is_seen(tmp_path, monkeypatch, capsys):
    """The reader of a sparse tensor with a NaN is not accused, its maker is."""
    monkeypatch.chdir(tmp_path)
    indices = torch.arange(4, device="cuda").expand(2, 4).contiguous()
    zero = torch.zeros(4, device="cuda")
    with op_tools.OpOverflowCheck() as tool:
        sparse = torch.sparse_coo_tensor(indices, zero + 1, (4, 4)).coalesce()
        bad = sparse / 0
        bad.to_dense()
        csr = bad.to_sparse_csr()
        csr.to_dense()
    findings = [row["name"] for row in tool.findings() if row["verdict"] == "producer"]
    assert findings == ["torch.Tensor.div"], tool.findings()
    assert "could not be read" not in capsys.readouterr().out


def test_wrong_results_are_told(tmp_path, monkeypatch):
    """A fault spoils the dense result of a sparse product, which the fallback computed."""
    monkeypatch.chdir(tmp_path)
    sparse = torch.eye(4).to_sparse().cuda()
    x = torch.ones(4, 4, device="cuda")
    with ditorch.fault("nan:aten::addmm"), op_tools.OpAutoCompare() as tool:
        torch.sparse.mm(sparse, x)
    assert [finding["name"].rpartition(".")[2] for finding in tool.findings()] == ["_sparse_mm"], tool.findings()
