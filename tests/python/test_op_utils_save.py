"""op_tools.save_op_args, op_tools.pretty_print and ditorch.utils."""

import collections
import csv
import io
import json
import os
import sys

import pytest
import torch
from ditorch.utils import copy_inp, copy_inp_advanced, div_inp, is_to_fp32_tensor, tensor_op_inp, to_fp32_if_tensor
from op_tools.pretty_print import dict_data_list_to_table, packect_data_to_dict_list
from op_tools.save_op_args import load, save_op_args, serialize_args_to_dict

Pair = collections.namedtuple("Pair", "left right")
COLUMNS = ["device", "dtype", "numel", "shape", "stride", "requires_grad", "layout", "data_ptr"]

# Serialisation


def test_tensor_mapping(device):
    x = torch.randn(2, 3, device=device, requires_grad=True)
    data = serialize_args_to_dict(x.t())
    assert list(data) == ["args"]
    assert list(data["args"][0]) == COLUMNS
    assert data["args"][0] == {
        "device": "cuda:0",
        "dtype": "float32",
        "numel": 6,
        "shape": "(3, 2)",
        "stride": (1, 3),
        "requires_grad": True,
        "layout": "torch.strided",
        "data_ptr": x.data_ptr(),
    }


def test_other_values():
    values = (torch.float16, torch.device("cpu"), torch.Size([2]), None, True, 1e-05, slice(1), "x", [1, (2,)])
    data = serialize_args_to_dict(*values, dim={"k": 1})
    assert data["args"] == (
        *("torch.float16", "cpu", "torch.Size([2])", "None", "True", "1e-05", "slice(None, 1, None)", "x"),
        ["1", ("2",)],
    )
    assert data["kwargs"] == {"dim": {"k": "1"}}


def test_i12_named_tuples_and_return_types():
    x = torch.randn(3, 4)
    data = serialize_args_to_dict(Pair(x, 1), x.sort())
    assert type(data["args"][0]) is Pair and data["args"][0].right == "1"
    assert data["args"][1].indices["dtype"] == "int64"


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_tensors_without_memory():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(2)
    for odd in (torch.empty(2, device="meta"), fake, torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()):
        (row,) = serialize_args_to_dict(odd)["args"]
        assert list(row) == COLUMNS and isinstance(row["data_ptr"], int)


# Files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["native", "torch"])
def writer(request, monkeypatch):
    """The writer of captures, and torch.save where ditorch is not loaded."""
    if request.param == "torch":
        monkeypatch.delitem(sys.modules, "ditorch")
    return request.param


def test_save_op_args(folder, capsys, writer):
    x = torch.randn(2, 3, requires_grad=True)
    save_op_args("torch.add", "12/2024-10-09-11-42-15/input", x, 2, alpha=0.5)
    path = f"op_tools_results/op_capture_results/torch.add/{os.getpid()}/12/2024-10-09-11-42-15/input.pth"
    assert capsys.readouterr().out == f"{path} saved\n"
    assert sorted(os.listdir(os.path.dirname(path))) == ["input.pth", "input.pth.json"]
    item = torch.load(path, weights_only=True)
    assert sorted(item) == ["args", "identifier", "kwargs", "name"]
    assert item["name"] == "torch.add" and item["identifier"] == "12/2024-10-09-11-42-15/input"
    assert torch.equal(item["args"][0], x) and item["args"][0].requires_grad and item["args"][1] == 2
    assert item["kwargs"] == {"alpha": 0.5}
    with open(path + ".json", encoding="utf-8") as file:
        text = file.read()
    content = json.loads(text)
    assert list(content) == ["args", "kwargs", "op"] and content["op"] == "torch.add"
    assert list(content["args"][0]) == COLUMNS and content["args"][0]["stride"] == [3, 1]
    assert text == json.dumps(content, indent=4)


def test_c4_failure_leaves_nothing_and_says_little(folder, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "ditorch")

    class Unwilling:
        def __reduce__(self):
            raise RuntimeError("will not")

    save_op_args("torch.add", "1/now/input", Unwilling(), torch.ones(10**4))
    text = capsys.readouterr().out
    assert " can not save for torch.add because " in text and len(text) < 1000
    left = [name for _, _, names in os.walk(folder) for name in names]
    assert left == []


def test_unwritable_folder_stops_nothing(folder, capsys):
    (folder / "op_tools_results").write_text("a file")
    save_op_args("torch.add", "1/now/input", 1)
    assert "can not save for torch.add because" in capsys.readouterr().out


def test_name_that_leaves_the_folder(folder, capsys):
    save_op_args("../../../evil", "1/now/input", 1)
    assert "can not save" in capsys.readouterr().out
    assert os.listdir(folder) == []


def test_load(folder, capsys):
    save_op_args("torch.Tensor.__getitem__", "1/now/input", torch.arange(3), (slice(1, None), Ellipsis), Pair(1, 2))
    path = capsys.readouterr().out.removesuffix(" saved\n")
    item = load(path)
    assert item["name"] == "torch.Tensor.__getitem__" and item["args"][0].tolist() == [0, 1, 2]
    assert item["args"][1] == (slice(1, None), Ellipsis)


# The original's test_pretty_print


def test_pretty_print(device):
    x = [torch.randn(2, 3, device=device) for _ in range(3)]
    rows = packect_data_to_dict_list("torch.add inputs", serialize_args_to_dict(x[0], x[1]))
    rows += packect_data_to_dict_list("torch.stack inputs", serialize_args_to_dict(x, dim=0))
    assert [row["name"] for row in rows] == [
        "torch.add inputs[0]",
        "torch.add inputs[1]",
        "torch.stack inputs [0][0]",
        "torch.stack inputs [0][1]",
        "torch.stack inputs [0][2]",
        "torch.stack inputs dim",
    ]
    table = dict_data_list_to_table(rows)
    assert len(str(table).splitlines()) == 10
    lines = list(csv.reader(io.StringIO(table.get_csv_string())))
    assert lines[0] == ["name", *COLUMNS, "value"] and len(lines) == 7 and lines[6][-1] == "0"


def test_rows():
    x = torch.ones(2)
    (row,) = packect_data_to_dict_list("L", serialize_args_to_dict(x))
    assert row["name"] == "L" and list(row) == ["name", *COLUMNS]
    assert packect_data_to_dict_list("L", serialize_args_to_dict("v")) == [{"name": "L", "value": "v"}]
    rows = packect_data_to_dict_list("L", serialize_args_to_dict(1, [2, x], out=x, dims=[1, 2]))
    assert [row["name"] for row in rows] == ["L[0]", "L [1][0]", "L [1][1]", "L out", "L dims"]
    assert rows[4]["value"] == ["1", "2"]
    keyword = packect_data_to_dict_list("L", serialize_args_to_dict(input=x))
    assert dict_data_list_to_table(keyword).field_names == [*COLUMNS, "name"]
    assert str(dict_data_list_to_table([])) == "++\n||\n++\n++"
    with pytest.raises(AssertionError):
        dict_data_list_to_table([1])


# The original's ditorch/test/individual/test_utils


def test_is_to_fp32_tensor(capsys, device):
    seen = []

    @is_to_fp32_tensor(True)
    def function(tensor, tensors, table, number):
        for item in (tensor, *tensors, table["k"]):
            seen.append(item.dtype)
            item.add_(1)
        return number

    assert capsys.readouterr().out == "function mocked by fp32.\n"
    one, two, three = (torch.zeros(3, dtype=torch.float16, device=device) for _ in range(3))
    assert function(one, [two], table={"k": three}, number=5) == 5
    assert seen == [torch.float32] * 3
    for tensor in (one, two, three):
        assert tensor.dtype == torch.float16 and tensor.cpu().tolist() == [1, 1, 1]
    plain = is_to_fp32_tensor(False)(len)
    assert plain is len


def test_fp32_leaves_integers_alone():
    big = torch.tensor([2**24 + 1])
    converted, dtypes = to_fp32_if_tensor([big, torch.ones(1).half(), "x"])
    assert converted[0] is big and converted[1].dtype == torch.float32
    assert dtypes == [torch.int64, torch.float16, None]


def test_tensor_op_inp(device):
    x = torch.full((3,), 6.0, device=device)
    assert div_inp(x, 2) is x and x.tolist() == [3, 3, 3]
    parameter = torch.nn.Parameter(torch.full((3,), 6.0, device=device))
    div_inp(parameter, 3)
    assert parameter.tolist() == [2, 2, 2] and parameter.requires_grad
    tensor_op_inp(x, "add_", torch.ones(3, device=device), alpha=2)
    assert x.tolist() == [5, 5, 5]
    copy_inp(parameter, x)
    assert parameter.tolist() == [5, 5, 5]
    with pytest.raises(AssertionError, match="add must be an in-place"):
        tensor_op_inp(x, "add", 1)
    with pytest.raises(AssertionError):
        tensor_op_inp([x], "add_", 1)


def test_copy_inp_advanced():
    target = [torch.zeros(2), {"k": (torch.zeros(1), "text")}, 3]
    copy_inp_advanced(target, [torch.ones(2), {"k": (torch.ones(1), "other")}, 4])
    assert target[0].tolist() == [1, 1] and target[1]["k"][0].item() == 1 and target[2] == 3
    for wrong in ([torch.ones(2)], {"k": 1}):
        with pytest.raises(AssertionError):
            copy_inp_advanced(target, wrong)
