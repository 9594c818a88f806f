"""Saved files interchange with CUDA machines and with plain CPU torch."""

import copy
import io
import os
import pickle
import subprocess
import sys
import zipfile

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn as nn

pytestmark = pytest.mark.usefixtures("warm_children")


def save(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


def test_the_file_says_cuda():
    with zipfile.ZipFile(save({"x": torch.ones(3, device="cuda")})) as archive:
        text = next(archive.read(n) for n in archive.namelist() if n.endswith("data.pkl"))
    assert b"cuda:0" in text
    assert b"dit" not in text and b"privateuse" not in text.lower()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("weights_only", [True, False])
def test_round_trip(zipped, weights_only):
    values = {
        str(d): torch.arange(6).to(d).cuda().view(2, 3).t()
        for d in (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64)
    }
    loaded = torch.load(save(values, _use_new_zipfile_serialization=zipped), weights_only=weights_only)
    for name, value in values.items():
        assert loaded[name].device == torch.device("cuda:0") and loaded[name].stride() == value.stride()
        assert torch.equal(loaded[name], value)


@pytest.mark.parametrize(
    "location,wanted",
    [
        ("cpu", "cpu"),
        ("cuda", "cuda"),
        ("cuda:0", "cuda"),
        (torch.device("cpu"), "cpu"),
        (torch.device("cuda"), "cuda"),
        ({"cuda:0": "cpu"}, "cpu"),
        (lambda storage, tag: storage, "cpu"),
        (lambda storage, tag: storage.cuda(), "cuda"),
    ],
    ids=lambda value: "function" if callable(value) else str(value),
)
def test_map_location(location, wanted):
    loaded = torch.load(save(torch.arange(3.0, device="cuda")), map_location=location, weights_only=True)
    assert loaded.device.type == wanted and loaded.tolist() == [0, 1, 2]


def test_cpu_files_load_onto_the_device():
    loaded = torch.load(save(nn.Linear(2, 2).state_dict()), map_location="cuda", weights_only=True)
    assert all(v.is_cuda for v in loaded.values())


def test_memory_mapped_load(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.arange(5.0, device="cuda"), path)
    assert torch.load(path, map_location="cpu", mmap=True, weights_only=True).tolist() == [0, 1, 2, 3, 4]


def test_plain_torch_reads_and_writes_our_files(tmp_path, python):
    """A process without ditorch reads with map_location, refuses without it in torch's own words, and writes for us."""
    path, back = tmp_path / "device.pt", tmp_path / "back.pt"
    torch.save({"w": torch.arange(4.0, device="cuda"), "n": 7}, path)
    code = f"""
import torch
assert not torch.cuda.is_available()
state = torch.load({str(path)!r}, map_location="cpu", weights_only=True)
assert state["w"].tolist() == [0, 1, 2, 3] and state["n"] == 7
try:
    torch.load({str(path)!r}, weights_only=True)
except RuntimeError as error:
    assert "deserialize object on a CUDA device" in str(error), error
else:
    raise SystemExit("no error")
torch.save(state, {str(back)!r})
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DITORCH")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert torch.load(back, map_location="cuda:0", weights_only=True)["w"].is_cuda


def test_views_share_memory_after_loading():
    base = torch.arange(6.0, device="cuda")
    first, second = torch.load(save([base[:3], base[2:]]), weights_only=True)
    first[2] = 99
    assert second[0].item() == 99


def test_modules_and_optimizers(close):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3, device="cuda")).sum().backward()
    optimizer.step()
    whole = torch.load(save(model), weights_only=False)
    assert all(p.is_cuda for p in whole.parameters())
    state = torch.load(save(optimizer.state_dict()), weights_only=True)
    assert state["state"][0]["exp_avg"].is_cuda
    fresh = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    fresh.load_state_dict(model.state_dict())
    assert not fresh[0].weight.is_cuda
    torch.testing.assert_close(fresh[1].running_mean, model[1].running_mean.cpu())


def test_deepcopy_keeps_device_sharing_and_gradients():
    x = torch.ones(3, device="cuda", requires_grad=True)
    (x * 2).sum().backward()
    y = copy.deepcopy(x)
    assert y.is_cuda and y.requires_grad and y.grad.tolist() == [2, 2, 2] and y.data_ptr() != x.data_ptr()
    pair = copy.deepcopy([x.detach(), x.detach()[1:]])
    pair[0].fill_(5)
    assert pair[1].tolist() == [5, 5]
    assert copy.copy(x).is_cuda


def test_pickle_of_tensors_devices_and_parameters():
    for value in (
        torch.arange(4.0, device="cuda"),
        nn.Parameter(torch.ones(2, device="cuda")),
        torch.ones(2, 3, device="cuda").t(),
    ):
        again = pickle.loads(pickle.dumps(value))
        assert (
            again.is_cuda
            and torch.equal(again, value)
            and type(again) is type(value)
            and again.stride() == value.stride()
        )
    assert pickle.loads(pickle.dumps(torch.device("cuda:0"))) == torch.device("cuda:0")
    assert pickle.dumps(torch.device("cuda:0")).find(b"cuda") > 0


def test_storages():
    storage = torch.arange(4, dtype=torch.uint8, device="cuda").untyped_storage()
    assert storage.device.type == "cuda" and storage.is_cuda and storage.nbytes() == 4
    assert list(storage.cpu()) == [0, 1, 2, 3]
    assert storage.cpu().cuda().device.type == "cuda"
    again = torch.load(save(storage), weights_only=False)
    assert again.device.type == "cuda"


def test_printing_says_cuda():
    x = torch.ones(2, device="cuda")
    assert repr(x) == "tensor([1., 1.], device='cuda:0')"
    assert str(x.device) == "cuda:0" and repr(x.device) == "device(type='cuda', index=0)"
    assert "cuda" in repr(nn.Parameter(x))
    assert x.type() == "torch.cuda.FloatTensor"
