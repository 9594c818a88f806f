"""The streams of captured items: every value comes back through torch.load(weights_only=True), storages are the
smallest that cover the tensors, and the JSON is what json.dumps would print."""

import dataclasses
import enum
import io
import json
import pickletools
import random
import zipfile
from collections import OrderedDict, namedtuple

import ditorch  # noqa: F401
import numpy
import pytest
import torch
from ditorch import _C
from op_tools.capture import save_item
from op_tools.reader import CaseError, load_item
from op_tools.reader.tagged import Described, restore


def parts(*args, **kwargs):
    return _C.capture_parts("torch.add", args, kwargs, "12/2024-10-09-11-42-15/input")


def assemble(stream, storages):
    """The archive that a store makes of an item, by hand."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("input/data.pkl", stream)
        archive.writestr("input/byteorder", "little")
        for index, data in enumerate(storages):
            archive.writestr(f"input/data/{index}", data)
        archive.writestr("input/version", "3\n")
    file.seek(0)
    return file


def load(*args, **kwargs):
    """What plain torch.load reads."""
    stream, _, storages = parts(*args, **kwargs)
    return torch.load(assemble(stream, storages), weights_only=True)


def round_trip(value):
    """The value as load_item restores it."""
    return restore(load(value)["args"][0])


def same(a, b):
    """Same metadata and same bits."""
    assert type(a) is type(b)
    assert (a.dtype, a.device, a.shape, a.stride(), a.requires_grad) == (
        b.dtype,
        b.device,
        b.shape,
        b.stride(),
        b.requires_grad,
    )
    assert (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
    a, b = a.detach().resolve_conj().resolve_neg().cpu(), b.detach().resolve_conj().resolve_neg().cpu()
    assert bits(a) == bits(b)


def bits(tensor):
    tensor = tensor.contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


# The whole


def test_the_item_has_exactly_the_documented_keys():
    x = torch.arange(6.0)
    item = load(x, 2, alpha=3)
    assert list(item) == ["name", "args", "kwargs", "identifier"]
    assert item["name"] == "torch.add" and item["identifier"] == "12/2024-10-09-11-42-15/input"
    assert type(item["args"]) is tuple and torch.equal(item["args"][0], x) and item["args"][1] == 2
    assert item["kwargs"] == {"alpha": 3}
    assert load()["args"] == () and load()["kwargs"] == {}


def test_the_stream_is_protocol_2_with_torchs_own_globals():
    stream, _, _ = parts(torch.ones(3), torch.nn.Parameter(torch.ones(2)), k=torch.float16)
    codes = list(pickletools.genops(stream))
    assert codes[0][0].name == "PROTO" and codes[0][1] == 2
    assert max(code.proto for code, _, _ in codes) == 2
    assert {argument for code, argument, _ in codes if code.name == "GLOBAL"} == {
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        "torch FloatStorage",
        "torch float16",
        "collections OrderedDict",
    }


def test_the_plain_unpickler_reads_it_too():
    stream, _, storages = parts(torch.arange(4).view(2, 2), 1.5, [None])
    item = torch.load(assemble(stream, storages), weights_only=False)
    assert item["args"][0].tolist() == [[0, 1], [2, 3]] and item["args"][1:] == (1.5, [None])


# Plain values


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        255,
        256,
        65535,
        65536,
        -1,
        2**31 - 1,
        -(2**31),
        2**31,
        2**63 - 1,
        -(2**63),
        2**63,
        -(2**63) - 1,
        2**2039 - 1,
        -(2**2039),
        2**2040,
        -(2**5000),
        0.0,
        1e-320,
        float("inf"),
        1 + 2j,
        "",
        "text",
        "é\n\U0001f600",
        "\ud800",
        "x" * 70000,
        b"",
        b"a\x00\xff",
        bytearray(b"\x01\xfe"),
        (),
        (1,),
        (1, 2),
        (1, 2, 3),
        (1, 2, 3, 4),
        [],
        [1, [2, (3, [4])]],
        {},
        {"a": 1, 2: "b", None: 3, True: 4, (1, "x"): 5},
        {1, 2, 3},
        set(),
        pytest.param(frozenset({1, "a"}), id="frozenset of 1 and a"),  # its repr depends on the hash seed
        {frozenset({1}): 2},
        {"__ditorch__": "mine", "x": 1},
        OrderedDict([("b", 1), ("a", 2)]),
        slice(1, None, 2),
        slice(None),
        ...,
        range(3, 9, 2),
        torch.Size([2, 3]),
        torch.float32,
        torch.float8_e4m3fn,
        torch.uint16,
        torch.device("cpu"),
        torch.device("cuda:0"),
        torch.device("cuda"),
        torch.strided,
        torch.sparse_coo,
        torch.channels_last,
        torch.preserve_format,
        torch.per_tensor_affine,
        torch.nn.functional.relu,
        torch.Tensor,
        len,
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)[:30]),
)
def test_values_come_back(value):
    got = round_trip(value)
    assert type(got) is type(value) and got == value


def test_nan_and_negative_zero_come_back():
    got = round_trip([float("nan"), -0.0])
    assert got[0] != got[0] and str(got[1]) == "-0.0"


def test_return_types_and_named_tuples():
    x = torch.tensor([[3.0, 1.0, 2.0]])
    got = round_trip(torch.sort(x))
    assert type(got) is torch.return_types.sort and got.values.tolist() == [[1, 2, 3]]
    assert load(torch.sort(x))["args"][0]["__ditorch__"] == "return_type"
    Point = namedtuple("Point", "x left")
    got = round_trip(Point(x, 2))
    assert isinstance(got, tuple) and got._fields == ("x", "left") and got.left == 2 and torch.equal(got.x, x)
    assert type(got).__name__ == "Point"


@dataclasses.dataclass
class Config:
    size: int
    weight: torch.Tensor


class Color(enum.Enum):
    RED = 1


class Count(enum.IntEnum):
    TWO = 2


class Text(str):
    pass


def test_objects_are_described_not_pickled():
    got = round_trip(Config(3, torch.ones(2)))
    assert isinstance(got, Described) and got.kind == "dataclass" and got.type.endswith("Config")
    assert got.fields["size"] == 3 and got.fields["weight"].tolist() == [1, 1]
    assert round_trip(Color.RED).kind == "enum" and round_trip(Color.RED).value == 1
    assert round_trip(Count.TWO) == 2 and round_trip(Text("a")) == "a"
    got = round_trip(test_objects_are_described_not_pickled)
    assert got.kind == "function" and got.facts["name"].endswith("test_objects_are_described_not_pickled")
    got = round_trip(object())
    assert got.kind == "object" and got.type == "builtins.object" and got.text.startswith("<object")


def test_an_object_that_cannot_be_printed_costs_only_itself():
    class Bad:
        def __str__(self):
            raise RuntimeError("no")

        __repr__ = __str__

    x = torch.arange(3.0)
    item = load(x, [x, Bad()], x)
    assert torch.equal(item["args"][2], x) and item["args"][2] is item["args"][0]
    assert item["args"][1][1]["__ditorch__"] == "object" and "text" not in item["args"][1][1]


def test_a_tensor_inside_a_failing_object_does_not_disturb_the_memo():
    x = torch.arange(3.0)

    class Odd(tuple):
        _fields = property(lambda self: None)

    @dataclasses.dataclass
    class Broken:
        weight: torch.Tensor
        other: int

    broken = Broken(x, 1)
    del broken.other
    item = load(broken, x, [x], Odd((x, 1)))
    assert torch.equal(item["args"][1], x) and item["args"][2][0] is item["args"][1]


def test_cycles_and_depth_end():
    loop = [1]
    loop.append(loop)
    assert round_trip(loop)[0] == 1 and round_trip(loop)[1].kind == "cycle"
    deep = []
    for _ in range(200):
        deep = [deep]
    got = round_trip(deep)
    depth = 0
    while isinstance(got, list):
        got, depth = got[0], depth + 1
    assert got.kind == "too_deep" and depth == 64
    twice = []
    twice += [twice, twice]
    json.loads(parts(twice)[1])


def test_generators_and_storages():
    generator = torch.Generator().manual_seed(3)
    torch.rand(2, generator=generator)
    wanted = generator.get_state()
    got = round_trip(generator)
    assert isinstance(got, torch.Generator) and torch.equal(got.get_state(), wanted)
    storage = torch.arange(3, dtype=torch.uint8).untyped_storage()
    assert bytes(round_trip(storage)) == b"\0\1\2"


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(6, dtype=numpy.int32).reshape(2, 3)[:, ::2],
        numpy.float32(1.5),
        numpy.int64(-3),
        numpy.array([1 + 2j]),
        numpy.array(True),
        numpy.zeros((0, 3)),
        numpy.arange(3, dtype=">i2"),
        numpy.arange(3, dtype="u8"),
    ],
    ids=repr,
)
def test_numpy(array):
    got = round_trip(array)
    assert got.dtype == array.dtype and got.shape == array.shape and (got == array).all()
    assert isinstance(got, type(array))


def test_arrays_of_objects_are_only_described():
    got = round_trip(numpy.array([object()]))
    assert isinstance(got, Described) and got.kind == "object"


# Tensors

DTYPES = sorted(
    {value for value in vars(torch).values() if isinstance(value, torch.dtype)} - {torch.quint4x2, torch.quint2x4},
    key=str,
)


def make(dtype, *shape):
    """A tensor of any type with bytes of its own."""
    count = 1
    for size in shape:
        count *= size
    raw = torch.arange(count * dtype.itemsize, dtype=torch.uint8)
    raw = raw % 2 if dtype == torch.bool else raw
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if not str(d).startswith("torch.q")], ids=str)
def test_every_dtype(dtype):
    x = make(dtype, 2, 4)
    for tensor in (x, x.t(), x[1:, ::2], x[:0], x[0, 0]):
        got = load(tensor)["args"][0]
        assert (got.dtype, got.shape, got.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
        size = 1 + sum((n - 1) * s for n, s in zip(got.shape, got.stride(), strict=True)) if got.numel() else 0
        assert got.untyped_storage().nbytes() == size * dtype.itemsize
        if got.numel():
            raw = got.untyped_storage()
            start = tensor.storage_offset() * dtype.itemsize
            assert bytes(raw) == bytes(tensor.untyped_storage())[start : start + raw.nbytes()]


@pytest.mark.parametrize("where", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.5),
        torch.empty(0),
        torch.empty(2, 0, 3),
        torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1),
        torch.ones(1).expand(5, 4),
        torch.arange(10)[3:8:2],
        torch.arange(24.0).view(2, 3, 4, 1).to(memory_format=torch.channels_last),
        torch.arange(9.0).as_strided((2, 2), (1, 1), 3),
        torch.arange(6.0).requires_grad_(),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3, dtype=torch.complex64).conj().imag,
        torch.nn.Parameter(torch.ones(2, 2)),
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
        torch.arange(64.0).view((1,) * 60 + (64,)),
    ],
    ids=lambda t: f"{tuple(t.shape)}"[:20],
)
def test_shapes_strides_and_bits(tensor, where):
    parameter = isinstance(tensor, torch.nn.Parameter)
    moved = tensor.detach().to(where)
    if where == "cuda" and tensor.stride() != moved.stride():
        moved = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=where)
    moved = torch.nn.Parameter(moved, tensor.requires_grad) if parameter else moved.requires_grad_(tensor.requires_grad)
    same(load(moved)["args"][0], moved)


def test_a_non_leaf_keeps_requires_grad():
    x = torch.ones(2, requires_grad=True) * 2
    got = load(x)["args"][0]
    assert got.requires_grad and got.is_leaf


def test_c2_a_view_saves_the_smallest_span():
    big = torch.arange(1000000.0)
    assert [len(s) for s in parts(big[10:14])[2]] == [16]
    assert [len(s) for s in parts(big.view(1000, 1000)[::100, 7])[2]] == [(1 + 9 * 100000) * 4]


def test_non_contiguous_inputs_so_strides_must_survive_capture():
    x = torch.arange(30.0).view(5, 6)
    for view in (x.t(), x[::2], x[:, 1::3], x[1:4, 2:5].t()):
        got = load(view)["args"][0]
        assert got.stride() == view.stride() and torch.equal(got, view)


# Aliasing


def test_the_same_object_comes_back_as_one():
    x = torch.ones(3)
    item = load(x, x, [x], out=x)
    assert item["args"][0] is item["args"][1] is item["args"][2][0] is item["kwargs"]["out"]
    assert len(parts(x, x)[2]) == 1


def test_overlapping_views_share_a_storage():
    x = torch.arange(100.0)
    a, b = load(x[10:20], x[15:30])["args"]
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    a[5] = -1
    assert b[0] == -1 and len(parts(x[10:20], x[15:30])[2][0]) == 80


def test_chunks_share_a_storage_and_stay_apart():
    q, k, v = load(*torch.arange(24.0).view(4, 6).chunk(3, dim=1))["args"]
    assert q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()
    q.fill_(-1)
    assert k.tolist()[0] == [2, 3] and v.tolist()[0] == [4, 5]


def test_views_without_common_bytes_are_stored_apart():
    x = torch.arange(1000.0)
    assert [len(s) for s in parts(x[:10], x[900:])[2]] == [40, 400]


def test_views_of_other_types_share_a_storage():
    x = torch.arange(8, dtype=torch.int32)
    odd, wide, byte = x[1:6], x[2:6].view(torch.int64), x.view(torch.uint8)[5:7]
    a, b, c = load(odd, wide, byte)["args"]
    assert torch.equal(a, odd) and torch.equal(b, wide) and torch.equal(c, byte)
    a[1] = 77
    assert b[0] == 77 | 3 << 32 and a.dtype == torch.int32 and c.dtype == torch.uint8
    complex_view = torch.arange(8.0).view(torch.complex64)
    a, b = load(complex_view, torch.view_as_real(complex_view)[1:])["args"]
    b[0, 0] = 9
    assert a[1] == 9 + 3j


def test_memory_at_odd_addresses():
    raw = bytearray(range(64))
    floats = torch.frombuffer(raw, dtype=torch.float32, offset=1, count=8)
    other = torch.frombuffer(raw, dtype=torch.float32, offset=3, count=8)
    doubles = torch.frombuffer(raw, dtype=torch.float64, offset=1, count=4)
    for got, wanted in zip(load(floats, other, doubles)["args"], (floats, other, doubles), strict=True):
        assert bits(got) == bits(wanted)


@pytest.mark.parametrize("seed", range(20))
def test_random_views_of_one_storage(seed):
    """Every pair of loaded tensors shares exactly the bytes that the originals share."""
    generator = random.Random(seed)
    base = torch.arange(240, dtype=torch.int16)
    views = []
    for _ in range(generator.randint(1, 40)):
        low = generator.randrange(0, 200)
        view = base[low : low + generator.randint(0, 40)]
        if generator.random() < 0.5:
            view = view[:: generator.randint(1, 4)]
        if generator.random() < 0.3 and view.numel() % 2 == 0 and view.numel():
            view = view.view(2, -1).t()
        views.append(view)
    got = load(*views)["args"]
    for index, view in enumerate(views):
        assert torch.equal(got[index], view) and got[index].stride() == view.stride(), f"seed {seed}"
    for index, view in enumerate(views):
        if view.numel():
            view.fill_(-index)
            got[index].fill_(-index)
            for a, b in zip(views, got, strict=True):
                assert torch.equal(a, b), f"seed {seed}"


def test_many_tensors():
    base = torch.arange(5000.0)
    views = [base[5 * i : 5 * i + 5] for i in range(999, -1, -1)]
    got = load(views, *views[:3])["args"]
    assert all(torch.equal(a, b) for a, b in zip(got[0], views, strict=True))
    assert got[1] is got[0][0] and len(parts(views)[2]) == 1000


# Tensors without plain memory


def test_sparse_tensors():
    sparse = torch.tensor([[0, 1.0], [2, 0]]).to_sparse()
    got = load(sparse)["args"][0]
    assert got.layout == torch.sparse_coo and torch.equal(got.to_dense(), sparse.to_dense()) and got.is_coalesced()
    for name in ("csr", "csc"):
        tensor = getattr(torch.tensor([[0, 1.0], [2, 0]]), f"to_sparse_{name}")()
        got = load(tensor)["args"][0]
        assert got.layout == tensor.layout and torch.equal(got.to_dense(), tensor.to_dense())


def test_quantized_tensors():
    x = torch.quantize_per_tensor(torch.arange(6.0).view(2, 3), 0.5, 3, torch.qint8)
    got = load(x)["args"][0]
    assert got.is_quantized and got.q_scale() == 0.5 and torch.equal(got.int_repr(), x.int_repr())
    x = torch.quantize_per_channel(
        torch.arange(6.0).view(2, 3), torch.tensor([0.5, 0.25]), torch.tensor([1, 2]), 0, torch.quint8
    )
    got = load(x)["args"][0]
    assert torch.equal(got.dequantize(), x.dequantize())


def test_meta_and_nested_tensors():
    meta = torch.empty(3, 4, device="meta").t()
    got = load(meta)["args"][0]
    assert got.device.type == "meta" and got.shape == (4, 3) and got.stride() == meta.stride()
    nested = torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])
    got = load(nested)["args"][0]
    assert got.is_nested and [t.tolist() for t in got.unbind()] == [[1, 1], [0, 0, 0]]


def test_tensors_without_memory_are_described():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2, 3))
    got = round_trip(fake)
    assert got.kind == "tensor" and got.shape == (2, 3) and got.dtype == "float32" and "Fake" in got.type
    item = load(torch.ones(2), fake, 3)
    assert item["args"][0].tolist() == [1, 1] and item["args"][2] == 3


def test_subclasses_with_memory_are_saved_as_plain_tensors():
    class Mine(torch.Tensor):
        pass

    got = load(torch.arange(3.0).as_subclass(Mine))["args"][0]
    assert type(got) is torch.Tensor and got.tolist() == [0, 1, 2]


# The companion text


def wanted_json(name, args, kwargs):
    """json.dumps of the original's mapping."""

    def one(value):
        if isinstance(value, torch.Tensor):
            return {
                "device": str(value.device),
                "dtype": str(value.dtype)[6:],
                "numel": value.numel(),
                "shape": str(tuple(value.shape)),
                "stride": value.stride(),
                "requires_grad": value.requires_grad,
                "layout": str(value.layout),
                "data_ptr": value.data_ptr(),
            }
        if isinstance(value, torch.Size):
            return str(value)
        if isinstance(value, (list, tuple)):
            return [one(item) for item in value]
        if isinstance(value, dict):
            return {key: one(item) for key, item in value.items()}
        return str(value)

    content = {"args": [one(arg) for arg in args]}
    if kwargs:
        content["kwargs"] = {key: one(value) for key, value in kwargs.items()}
    content["op"] = name
    return json.dumps(content, indent=4)


X = torch.arange(24.0).view(2, 3, 4)


@pytest.mark.parametrize(
    "args,kwargs",
    [
        ((), {}),
        ((X,), {}),
        ((X.t() if X.dim() == 2 else X.permute(2, 0, 1), torch.tensor(1), torch.empty(0, 3)), {}),
        ((X.requires_grad_() * 1, X.cuda()), {"dim": 1, "keepdim": True}),
        (([X, [X[0]], ()], {"a": X, 2: [2], None: 3, True: 4.5}), {"x": {}}),
        ((None, True, 1, -5, 10**30, 1.5, 1e300, float("nan"), 1j, 'é"\\\n\t\x7f\U0001f600', b"a"), {}),
        ((torch.float16, torch.device("cuda:0"), torch.Size([2, 3]), slice(1, None), ..., torch.channels_last), {}),
        ((torch.sort(torch.ones(2)), {1}, range(3), torch.strided), {}),
    ],
    ids=range(8),
)
def test_the_json_is_byte_for_byte_json_dumps(args, kwargs):
    assert parts(*args, **kwargs)[1] == wanted_json("torch.add", args, kwargs)


def test_golden_json():
    text = parts(torch.tensor([[1, 2, 3]], dtype=torch.int16), 2, alpha=None)[1]
    head, tail = text.split('"data_ptr": ')
    assert head == (
        '{\n    "args": [\n        {\n            "device": "cpu",\n            "dtype": "int16",\n'
        '            "numel": 3,\n            "shape": "(1, 3)",\n            "stride": [\n                3,\n'
        '                1\n            ],\n            "requires_grad": false,\n'
        '            "layout": "torch.strided",\n            '
    )
    assert tail.split("\n", 1)[1] == (
        '        },\n        "2"\n    ],\n    "kwargs": {\n        "alpha": "None"\n    },\n    "op": "torch.add"\n}'
    )


def test_the_json_agrees_with_the_python_helper():
    from op_tools.save_op_args import args_to_json

    args, kwargs = (X, [1, (2.5, None)], "text"), {"k": torch.int8, "l": X[1]}
    assert parts(*args, **kwargs)[1] == args_to_json("torch.add", *args, **kwargs)


def test_the_json_of_tensors_without_memory():
    text = json.loads(parts(torch.eye(2).to_sparse(), torch.empty(3, device="meta"))[1])
    assert [arg["layout"] for arg in text["args"]] == ["torch.sparse_coo", "torch.strided"]
    assert [arg["device"] for arg in text["args"]] == ["cpu", "meta"]
    assert [arg["shape"] for arg in text["args"]] == ["(2, 2)", "(3,)"]
    assert [arg["data_ptr"] for arg in text["args"]] == [0, 0]


# Files


def test_save_item_and_load_item(tmp_path):
    path = tmp_path / "input.pth"
    item = {"name": "torch.add", "args": (X, slice(1, 2)), "kwargs": {"out": None}, "identifier": "1/t/input"}
    save_item(path, item)
    got = load_item(path)
    assert torch.equal(got["args"][0], X) and got["args"][1] == slice(1, 2) and got["kwargs"] == {"out": None}
    assert (tmp_path / "input.pth.json").read_text() == wanted_json("torch.add", item["args"], item["kwargs"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["input.pth", "input.pth.json"]


def test_save_item_says_what_is_wrong(tmp_path):
    item = {"name": "torch.add", "args": (), "kwargs": {}, "identifier": "1/t/input"}
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        save_item(tmp_path / "file" / "input.pth", item)


def test_load_item_executes_nothing(tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return (exec, ("raise SystemExit('executed')",))

    path = tmp_path / "input.pth"
    torch.save({"name": "x", "args": (Evil(),), "kwargs": {}, "identifier": ""}, path, pickle_module=pickle)
    with pytest.raises(CaseError, match=r"exec"):
        load_item(path)
    torch.save({"a": 1}, path)
    with pytest.raises(CaseError, match="no captured call"):
        load_item(path)


def test_tags_of_others_stay_descriptions():
    for value in (
        {"__ditorch__": "of tomorrow", "x": 1},
        {"__ditorch__": "slice"},
        {"__ditorch__": "memory_format", "name": "torch.load"},
        {"__ditorch__": "return_type", "type": "os.system", "values": ("true",)},
        {"__ditorch__": "function", "name": "os.system"},
        {"__ditorch__": "class", "name": "subprocess.Popen"},
        {"__ditorch__": "function", "name": "torch.no.such"},
    ):
        got = restore(value)
        assert isinstance(got, Described) and got.kind == value["__ditorch__"]


def test_the_first_layout_of_the_original_is_read(tmp_path):
    path = tmp_path / "input.pth"
    torch.save({"name": "torch.add", "args": ((torch.ones(2), 1), {"alpha": 2}), "kwargs": {}}, path)
    got = load_item(path)
    assert got["args"][0].tolist() == [1, 1] and got["args"][1] == 1 and got["kwargs"] == {"alpha": 2}
