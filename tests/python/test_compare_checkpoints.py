"""ditorch compare on checkpoints: safetensors and files of torch.save, sharded ones, hostile ones."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct

import pytest
import torch
from ditorch import cli
from op_tools.compare import weights

NAMES = {dtype: name for name, dtype in weights.DTYPES.items()}


def save(path, tensors, **changes):
    """A .safetensors file, written after its description; `changes` replace entries of the header."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        place = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        data += raw
    header |= changes
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def make_state(seed=0):
    torch.manual_seed(seed)
    shapes = {"embed.weight": (17, 8), "layers.0.w": (8, 8), "layers.1.w": (8, 8), "norm.bias": (8,)}
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def compare(capsys, *words):
    status = cli.main(["compare", *map(str, words)])
    answer = capsys.readouterr()
    return status, answer.out, answer.err


def compare_json(capsys, *words):
    status, out, _ = compare(capsys, *words, "--json")
    return status, json.loads(out)


def test_two_formats_of_one_checkpoint_are_the_same(tmp_path, capsys):
    state = make_state()
    a = save(tmp_path / "a.safetensors", state)
    torch.save(state, tmp_path / "b.pt")
    status, out, err = compare(capsys, a, tmp_path / "b.pt")
    assert status == 0 and "4 tensors compared: 4 equal to the bit" in out and not err


@pytest.mark.parametrize("dtype", NAMES, ids=NAMES.get)
def test_every_dtype_is_read(dtype, tmp_path, capsys):
    tensor = torch.tensor([0, 1, 3, 2]).to(torch.float32).to(dtype) if dtype.itemsize else None
    a = save(tmp_path / "a.safetensors", {"odd": torch.tensor([True]), "x": tensor})
    torch.save({"x": tensor, "odd": torch.tensor([True])}, tmp_path / "b.pt")
    status, facts = compare_json(capsys, a, tmp_path / "b.pt")
    assert status == 0 and all(row["same_bits"] for row in facts["tensors"])


def test_a_difference_is_told(tmp_path, capsys):
    state = make_state()
    other = {name: tensor.clone() for name, tensor in state.items()}
    other["layers.1.w"][3, 4] += 0.5
    status, facts = compare_json(
        capsys, save(tmp_path / "a.safetensors", state), save(tmp_path / "b.safetensors", other)
    )
    (row,) = [row for row in facts["tensors"] if row["differ"]]
    assert status == 1 and row["name"] == "layers.1.w" and abs(row["max_abs"] - 0.5) < 1e-6 and row["unequal"] == 1
    assert compare(capsys, tmp_path / "a.safetensors", tmp_path / "b.safetensors", "--tolerance", "1")[0] == 0


def test_another_dtype_is_close(tmp_path, capsys):
    state = make_state()
    a = save(tmp_path / "a.safetensors", state)
    b = save(tmp_path / "b.safetensors", {name: tensor.bfloat16() for name, tensor in state.items()})
    assert compare(capsys, a, b)[0] == 0
    assert compare(capsys, a, b, "--strict")[0] == 1


def test_missing_and_renamed_tensors_and_shapes(tmp_path, capsys):
    state = make_state()
    other = {f"module.{name}": tensor for name, tensor in state.items()}
    a, b = save(tmp_path / "a.safetensors", state), save(tmp_path / "b.safetensors", other)
    status, facts = compare_json(capsys, a, b)
    assert status == 0 and {row["name_b"] for row in facts["tensors"]} == set(other)
    other = {**state, "layers.0.weight": state["layers.0.w"] + 1, "norm.bias": torch.zeros(9)}
    del other["layers.0.w"], other["embed.weight"]
    status, facts = compare_json(capsys, a, save(tmp_path / "b.safetensors", other))
    names = {row["name"]: row for row in facts["tensors"]}
    assert status == 1 and names["layers.0.w"]["name_b"] == "layers.0.weight"
    assert names["norm.bias"]["reason"] == "shapes [8] and [9]" and facts["only_a"] == ["embed.weight"]


def test_a_training_checkpoint_is_looked_through(tmp_path, capsys):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    for name, epoch in (("a.pt", 3), ("b.pt", 4)):
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, tmp_path / name)
    status, facts = compare_json(capsys, tmp_path / "a.pt", tmp_path / "b.pt")
    assert status == 0 and "optimizer.state.0.exp_avg" in {row["name"] for row in facts["tensors"]}
    assert facts["values"] == [{"name": "epoch", "a": "3", "b": "4"}]


def write_shards(folder, state):
    folder.mkdir()
    names = list(state)
    parts = {"model-1.safetensors": names[:2], "model-2.safetensors": names[2:]}
    for file, part in parts.items():
        save(folder / file, {name: state[name] for name in part})
    table = {name: file for file, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    return folder


def test_shards_are_one_checkpoint(tmp_path, capsys):
    state = make_state()
    folder = write_shards(tmp_path / "shards", state)
    whole = save(tmp_path / "whole.safetensors", state)
    assert compare(capsys, folder, whole)[0] == 0
    assert compare(capsys, folder / "model.safetensors.index.json", whole)[0] == 0
    os.remove(folder / "model.safetensors.index.json")
    assert compare(capsys, folder, whole)[0] == 0


@pytest.mark.parametrize("file", ["../whole.safetensors", "/etc/passwd", "..", "", 7, "gone.safetensors"])
def test_an_index_leads_nowhere_else(file, tmp_path, capsys):
    folder = write_shards(tmp_path / "shards", make_state())
    whole = save(tmp_path / "whole.safetensors", make_state())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"norm.bias": file}}))
    status, _, err = compare(capsys, folder, whole)
    assert status == 2 and len(err.splitlines()) == 1


def test_nothing_in_common_is_not_the_same(tmp_path, capsys):
    a = save(tmp_path / "a.safetensors", {"x": torch.ones(3)})
    status, out, _ = compare(capsys, a, save(tmp_path / "b.safetensors", {"yyyy": torch.zeros(4, 4)}))
    assert status == 3 and "nothing was compared" in out
    assert compare(capsys, a, save(tmp_path / "b.safetensors", {}))[0] == 3


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_nothing_is_executed(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"x": torch.ones(3), "y": Evil()}, tmp_path / "evil.pt")
    (tmp_path / "raw.bin").write_bytes(pickle.dumps(Evil()))
    a = save(tmp_path / "a.safetensors", {"x": torch.ones(3)})
    for name in ("evil.pt", "raw.bin"):
        status, _, err = compare(capsys, a, tmp_path / name)
        assert status == 2 and len(err.splitlines()) == 1
    assert not (tmp_path / "executed").exists()


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({**ENTRY, "dtype": "F33"}, "dtype F33 is not known"),
        ({**ENTRY, "dtype": ["F32"]}, "is not known"),
        ({**ENTRY, "shape": [-2]}, "shape [-2] is none"),
        ({**ENTRY, "shape": [2.0]}, "is none"),
        ({**ENTRY, "shape": [1] * 65}, "is none"),
        ({**ENTRY, "shape": [1 << 61, 1 << 61]}, "are not 8 bytes"),
        ({**ENTRY, "shape": [3]}, "are not 8 bytes"),
        ({**ENTRY, "data_offsets": [0, 1 << 40]}, "do not lie within"),
        ({**ENTRY, "data_offsets": [8, 0]}, "do not lie within"),
        ({**ENTRY, "data_offsets": [True, 8]}, "do not lie within"),
        ({**ENTRY, "data_offsets": [4, 12]}, "overlap or gap"),
        ("x", "its entry is no object"),
    ],
)
def test_a_wrong_entry_is_refused(entry, expected, tmp_path, capsys):
    good = save(tmp_path / "good.safetensors", {"x": torch.ones(2)})
    bad = save(tmp_path / "bad.safetensors", {"x": torch.ones(4)}, x=entry)
    status, _, err = compare(capsys, good, bad)
    assert status == 2 and expected in err and "bad.safetensors" in err


def test_a_wrong_header_is_refused(tmp_path, capsys):
    good = save(tmp_path / "good.safetensors", {"x": torch.ones(2)})
    data = good.read_bytes()
    cases = {
        "too few": b"123",
        "at most": struct.pack("<Q", 1 << 60) + data[8:],
        "cut off": data[:40],
        "behind the last tensor": data + b"x",
        "no JSON": struct.pack("<Q", 4) + b"\xff\xfe{}" + data[8:],
        "no JSON object": struct.pack("<Q", 2) + b"[]",
        "is there twice": struct.pack("<Q", 14) + b'{"a":1,"a":22}',
        "do not lie within": data[:-4],
    }
    for expected, content in cases.items():
        (tmp_path / "bad.safetensors").write_bytes(content)
        status, _, err = compare(capsys, good, tmp_path / "bad.safetensors")
        assert status == 2 and expected in err, expected
    (tmp_path / "bad.safetensors").write_bytes(struct.pack("<Q", 100_000) + b"[" * 100_000)
    assert compare(capsys, good, tmp_path / "bad.safetensors")[0] == 2


def test_random_bytes_never_break_the_reader(tmp_path, capsys):
    numbers = random.Random(3)
    good = save(tmp_path / "good.safetensors", make_state())
    data = good.read_bytes()
    for _ in range(200):
        broken = bytearray(data[: numbers.choice([len(data), numbers.randrange(len(data))])])
        for _ in range(numbers.randrange(1, 6)):
            broken[numbers.randrange(min(len(broken), 400) or 1) :][:1] = b""
            if broken:
                broken[numbers.randrange(min(len(broken), 400))] = numbers.randrange(256)
        (tmp_path / "bad.safetensors").write_bytes(broken)
        assert compare(capsys, good, tmp_path / "bad.safetensors")[0] in (0, 1, 2, 3)


def test_options_of_runs_do_not_fit(tmp_path, capsys):
    a = save(tmp_path / "a.safetensors", make_state())
    status, _, err = compare(capsys, a, a, "--steps", "1")
    assert status == 2 and "--steps is about runs" in err
