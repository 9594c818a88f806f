"""The restricted reader: everything that captures hold comes back; everything else is one CaseError, and nothing that a
file names is called, imported or touched."""

import collections
import io
import math
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zipfile

import ditorch  # noqa: F401 (before any device is made: "cuda" is what it says)
import numpy
import pytest
import torch
from op_tools.reader import CaseError, Limits, torch_file, values
from op_tools.reader import limits as reading_limits
from op_tools.reader.tagged import Described

FUZZ = pathlib.Path(__file__).resolve().parents[1] / "fuzz" / "fuzz_case.py"
FORMATS = {
    "archive": {},
    "protocol 4": {"pickle_protocol": 4},
    "protocol 5": {"pickle_protocol": 5},
    "stream": {"_use_new_zipfile_serialization": False},
}
Point = collections.namedtuple("Point", "x y")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=FORMATS, ids=lambda name: name.replace(" ", "-"))
def trip(request, tmp_path):
    """Function that saves a value and reads it."""

    def save_and_load(value, **options):
        path = tmp_path / "x.pth"
        torch.save(value, path, **FORMATS[request.param])
        return torch_file.load(path, **options)

    return save_and_load


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        facts = [(t.dtype, t.shape, t.layout, t.requires_grad, t.is_conj(), t.is_neg()) for t in (a, b)]
        assert facts[0] == facts[1] and b.device.type in ("cpu", "meta")
        if a.is_meta:
            return
        if a.layout is torch.strided:
            assert a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
        assert str(a) == str(b)
    elif isinstance(a, numpy.ndarray):
        assert (
            a.dtype == b.dtype
            and a.shape == b.shape
            and (a == b).all()
            and a.flags.f_contiguous == b.flags.f_contiguous
        )
    elif isinstance(a, torch.Generator):
        assert torch.equal(a.get_state(), b.get_state())
    elif isinstance(a, (torch.UntypedStorage, torch.storage.TypedStorage)):
        assert list(a) == list(b)
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert a == b


# What is read


def make_attributed():
    tensor = torch.ones(2)
    tensor.note = 1
    return tensor


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, {2: (None, 1.5, "é", b"\xff", 2**200, -5, True)}], None: ()},
        [slice(1, None), ..., range(2, 9, 3), 1 + 2j, {1, "a"}, frozenset({(1, 2)}), bytearray(b"x"), NotImplemented],
        [
            torch.float32,
            torch.float8_e4m3fn,
            torch.strided,
            torch.sparse_coo,
            torch.per_tensor_affine,
            torch.Size([2, 0]),
        ],
        [torch.device("cuda", 1), torch.device("cpu"), collections.OrderedDict(b=1, a=2)],
        torch.sort(torch.rand(3)),
        [torch.Generator().manual_seed(7)],
        [torch.ones(2).untyped_storage(), torch.ones(2)._typed_storage()],
        [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2), requires_grad=False)],
        [torch.ones(3).requires_grad_(), torch.tensor(2.5), torch.empty(0), torch.empty(2, 0, 3)],
        [torch.eye(3).to_sparse(), torch.eye(2).to_sparse_csr(), torch.eye(4).to_sparse_bsr((2, 2))],
        [torch.ones(2, device="meta"), torch.ones(2, dtype=torch.uint16), torch.ones(3).to(torch.float8_e5m2)],
        [torch.randn(3, dtype=torch.complex64).conj(), torch.randn(3, dtype=torch.complex64).conj().imag],
        [
            torch.arange(24.0).view(4, 6)[1:3, ::2],
            torch.ones(1).expand(5, 4),
            torch.arange(9).as_strided((2, 2), (1, 1), 3),
        ],
        [numpy.float32(2), numpy.arange(6, dtype=">i2").reshape(2, 3), numpy.asfortranarray(numpy.ones((2, 3)))],
        [],
    ],
    ids=lambda value: str(type(value[0] if isinstance(value, list) and value else value).__name__),
)
def test_values_come_back(trip, value):
    same(value, trip(value))


def test_r3_what_weights_only_refuses_is_read(trip):
    value = {"args": (slice(1, 2), torch.sort(torch.rand(3)), Point(torch.ones(2), 3))}
    got = trip(value)["args"]
    assert got[0] == slice(1, 2) and type(got[1]) is torch.return_types.sort
    assert type(got[2]) is tuple and got[2][0].tolist() == [1, 1] and got[2][1] == 3


def test_attributes_and_subclasses_become_plain_tensors(trip):
    got = trip([make_attributed(), torch.nn.Buffer(torch.ones(1))])
    assert [type(item) for item in got] == [torch.Tensor] * 2 and not hasattr(got[0], "note")


@pytest.mark.parametrize("scheme", ["tensor", "channel"])
def test_quantized_tensors(trip, scheme):
    x = torch.arange(6.0).view(2, 3)
    if scheme == "tensor":
        value = torch.quantize_per_tensor(x, 0.5, 2, torch.quint8)
    else:
        scales, zeros = torch.tensor([0.5, 1], dtype=torch.float64), torch.tensor([0, 1])
        value = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
    got = trip(value)
    assert torch.equal(got.int_repr(), value.int_repr()) and torch.equal(got.dequantize(), value.dequantize())


def test_nested_tensors(trip):
    value = torch.nested.nested_tensor([torch.ones(2), torch.arange(3.0)])
    assert [part.tolist() for part in trip(value).unbind()] == [[1, 1], [0, 1, 2]]


def test_sharing_inside_a_file_is_kept(trip):
    x = torch.arange(24.0).view(4, 6)
    a, b, c, again = trip((x, x.t(), x[2:, 1:3], x))
    a[2, 1] = -1
    assert b[1, 2] == -1 and c[0, 0] == -1 and again is a and c.storage_offset() == 13


def test_a_storage_with_tensors_of_several_types(tmp_path):
    """torch.save refuses to write it; captures have it."""
    stream = storage_id(b"Long", "0", 2, "x") + storage_id(b"Int", "0", 4, "y")
    write(
        tmp_path / "x.pth",
        b"\x80\x02(" + tensor(b"Long", 2, [2], [1]) + tensor(b"Int", 4, [4], [1]) + b"t.",
        {"0": bytes(16)},
    )
    a, b = torch_file.load(tmp_path / "x.pth")
    b[3] = 1
    assert a.tolist() == [0, 1 << 32] and stream


def test_devices_are_told_and_tensors_are_on_the_cpu(tmp_path):
    """Of every device, also of one that this torch does not know."""
    places = {}
    write(tmp_path / "x.pth", b"\x80\x02" + tensor(b"Float", 2, [2], [1], place="npu:3") + b".", {"0": bytes(8)})
    got = torch_file.load(tmp_path / "x.pth", locations=places)
    assert got.device.type == "cpu" and places == {got.untyped_storage()._cdata: "npu:3"}
    stream = b"\x80\x02ctorch\ndevice\n" + text("npu") + b"K\x02\x86R."
    write(tmp_path / "x.pth", stream)
    assert torch_file.load(tmp_path / "x.pth") == torch.device("cuda", 2)


def test_generators_of_other_devices(tmp_path):
    state = tensor(b"Byte", 16, [16], [1])
    stream = b"\x80\x02ctorch\nGenerator\nctorch\ndevice\n" + text("cuda") + b"\x85R\x85RK\x00N" + state + b"\x87b."
    write(tmp_path / "x.pth", stream, {"0": bytes(16)})
    got = torch_file.load(tmp_path / "x.pth")
    if isinstance(got, Described):
        assert got.kind == "generator" and got.facts["state"].tolist() == [0] * 16
    else:
        assert got.device.type == "cuda"


def test_the_other_byte_order(tmp_path):
    stream = b"\x80\x02" + tensor(b"Short", 3, [3], [1]) + b"."
    data = struct.pack(">3h", 1, 2, 3) if sys.byteorder == "little" else struct.pack("<3h", 1, 2, 3)
    write(tmp_path / "x.pth", stream, {"0": data}, byteorder="big" if sys.byteorder == "little" else "little")
    assert torch_file.load(tmp_path / "x.pth").tolist() == [1, 2, 3]


def test_large_files_are_mapped_and_never_written(tmp_path):
    path = tmp_path / "x.pth"
    torch.save([torch.arange(2 << 20), torch.ones(3)], path)
    before = path.read_bytes()
    tracemalloc.start()
    big, small = torch_file.load(path)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
    assert big[-1] == (2 << 20) - 1 and big.data_ptr() % 64 == 0 and small.tolist() == [1, 1, 1]
    with open("/proc/self/maps") as maps:
        assert str(path) in maps.read()
    big.fill_(5)
    assert big[7] == 5 and path.read_bytes() == before


def test_vendors_names_need_no_vendor(tmp_path):
    name = b"ctorch_mlu.utils.tensor\n_rebuild_mlu_tensor\n"
    stream = b"\x80\x02" + tensor(b"Half", 3, [1, 2], [2, 1], offset=1, function=name) + b"."
    write(tmp_path / "x.pth", stream, {"0": struct.pack("<3e", 1, 2, 3)})
    assert torch_file.load(tmp_path / "x.pth").tolist() == [[2, 3]] and "torch_mlu" not in sys.modules


# Files by hand


def text(value):
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def number(value):
    data = value.to_bytes(20, "little", signed=True)
    return b"\x8a\x14" + data


def numbers(values):
    return b"(" + b"".join(number(value) for value in values) + b"t"


def storage_id(kind, key, count, place="cpu"):
    return b"(" + text("storage") + b"ctorch\n" + kind + b"Storage\n" + text(key) + text(place) + number(count) + b"tQ"


def tensor(kind, count, size, stride, offset=0, key="0", function=b"ctorch._utils\n_rebuild_tensor_v2\n", place="cpu"):
    """The instructions that make a tensor."""
    parts = storage_id(kind, key, count, place) + number(offset) + numbers(size) + numbers(stride) + b"\x89N"
    return function + b"(" + parts + b"tR"


def write(path, stream, storages=None, byteorder="little", stem="archive", method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(f"{stem}/data.pkl", stream)
        archive.writestr(f"{stem}/byteorder", byteorder)
        for key, data in (storages or {}).items():
            archive.writestr(f"{stem}/data/{key}", data)
        archive.writestr(f"{stem}/version", "3\n")
    return path


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Function that reads a stream, with its storages, and returns the one line it is refused with."""
    monkeypatch.chdir(tmp_path)

    def check(stream, storages=None, limits=None, **options):
        path = write(tmp_path / "x.pth", stream, storages, **options)
        before = set(sys.modules)
        with pytest.raises(CaseError) as caught:
            torch_file.load(path, limits)
        assert set(sys.modules) == before and os.listdir(tmp_path) == ["x.pth"]
        message = str(caught.value)
        assert "\n" not in message and message.startswith(f"{path}: ") and len(message) < 2000
        return message.removeprefix(f"{path}: ")

    return check


# Hostile streams


class Evil:
    def __reduce__(self):
        return os.system, ("touch hostile",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_call_of_the_system(refused, protocol):
    assert (
        "wants to call 'posix.system'" in refused(pickle.dumps({"name": "x", "args": (Evil(),)}, protocol))
        or protocol < 2
    )


@pytest.mark.parametrize(
    "module, name",
    [
        *(("os", "system"), ("posix", "system"), ("nt", "system"), ("subprocess", "Popen"), ("builtins", "eval")),
        *(("__builtin__", "exec"), ("builtins", "getattr"), ("builtins", "__import__"), ("importlib", "import_module")),
        *(("torch", "load"), ("torch.hub", "load"), ("torch.serialization", "load"), ("torch.jit", "load")),
        *(("torch._utils", "_import_dotted_name"), ("torch.storage", "_load_from_bytes"), ("torch", "from_file")),
        *(("numpy", "load"), ("numpy", "fromfile"), ("runpy", "run_path"), ("antigravity", "fly_potato")),
        *(("torch.utils.cpp_extension", "load_inline"), ("torch.package", "PackageImporter"), ("functools", "partial")),
        *(
            ("torch._utils._rebuild_tensor_v2", "__globals__"),
            ("torch", "device.__init__"),
            ("torch.ops", "load_library"),
        ),
        *(("collections", "defaultdict"), ("copyreg", "_reconstructor"), ("operator", "methodcaller"), ("", "")),
        *(("os ", "system"), ("\u043es", "system"), ("os\0", "system"), ("torch", "Size\0"), ("TORCH", "SIZE")),
        *(("torch_npu", "system"), ("torch_npu.utils", "rebuild"), ("torch_npu.os", "_rebuild_npu_tensorx")),
    ],
)
@pytest.mark.parametrize("how", ["global", "stack"])
def test_names_outside_the_table_are_never_called(refused, module, name, how):
    named = f"c{module}\n{name}\n".encode() if how == "global" else text(module) + text(name) + b"\x93"
    message = refused(b"\x80\x04" + named + text("touch hostile") + b"\x85R.")
    assert "not called from files" in message
    assert "not read from files" in refused(b"\x80\x04" + named + b".")  # nor kept as values


def test_chains_of_calls(refused):
    chain = b"\x80\x02cbuiltins\ngetattr\n(cbuiltins\n__import__\n" + text("os") + b"\x85R" + text("system") + b"tR."
    assert "'builtins.__import__'" in refused(chain)
    inner = b"ctorch\nSize\n(K\x01t\x85R"
    assert "wants to call 'Size'" in refused(b"\x80\x02" + inner + b"(K\x01t\x85R.")
    assert "wants to call 'int'" in refused(b"\x80\x02K\x01)R.")
    assert "no tuple of arguments" in refused(b"\x80\x02ctorch\nSize\n]R.")


def test_types_of_tensors_are_no_way_in(refused):
    """The class of a subclass is thrown away; the function beside it must be one of ours."""
    head = b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n("
    assert "not made by a function of torch" in refused(head + b"cos\nsystem\ncos\nsystem\n" + text("x") + b"\x85}tR.")
    assert "is a Size" in refused(head + b"ctorch\nSize\ncos\nsystem\n)}tR.")


@pytest.mark.parametrize(
    "stream, words",
    [
        (b"\x82\x01.", "instruction 0x82"),
        (b"\x83\x01\x00.", "instruction 0x83"),
        (b"\x84\x01\x00\x00\x00.", "instruction 0x84"),
        (b"(ios\nsystem\n.", "instruction 0x69"),
        (b"(cos\nsystem\no.", "instruction 0x6f"),
        (b"Pkey\n.", "instruction 0x50"),
        (b"\x97.", "instruction 0x97"),
        (b"\x98.", "instruction 0x98"),
        (b"\x80\x63.", "protocol 99"),
        (text("x") + b"Q.", "no id that is known"),
        (b"(" + text("module") + b"NNNNtQ.", "no id that is known"),
        (b"(" + text("storage") + text("x") * 4 + b"tQ.", "no id that is known"),
        (b"K\x01}b.", "which takes none"),
        (b"ctorch\nSize\n)R}b.", "which takes none"),
        (b"cmodule\nName\nK\x01\x85\x81}b.", "which takes none"),
        (b"cmodule\nName\n)\x81.", "wants to call 'module.Name'"),
        (b"ctorch\ndevice\n.", "no value"),
        (b"]ctorch\ndevice\na.", "not a value"),
        (b"(.", "one value"),
        (b".", "one value"),
        (b"NN.", "one value"),
        (b"0.", "not there"),
        (b"(R.", "not there"),
        (b"t.", "mark that is not there"),
        (b"h\x05.", "refers to a value"),
        (b"j\xff\xff\xff\xff.", "refers to a value"),
        (b"X\xff\xff\xff\xffa.", "ends in the middle"),
        (b"\x8d" + b"\xff" * 8 + b".", "ends in the middle"),
        (b"\x96" + b"\xff" * 8 + b".", "ends in the middle"),
        (b"\x95" + b"\xff" * 8 + b".", "ends in the middle"),
        (b"T\xff\xff\xff\xffa.", "ends in the middle"),
        (b"N", "ends in the middle"),
        (b"X\x01\x00\x00\x00\xff.", "not UTF-8"),
        (b"cto\xffrch\nx\n.", "not UTF-8"),
        (b"c" + b"a" * 5000, "does not end"),
        (b"Ix\n.", "number that is none"),
        (b"L--1L\n.", "number that is none"),
        (b"F\n.", "number that is none"),
        (b"]Na" + b"K\x01a", "ends in the middle"),
        (b"NNa.", "no list"),
        (b"NNNs.", "no dictionary"),
        (b"}]Ns.", "cannot be the key"),
        (b"}(N" + b"Nu" + b"N.", "one value"),
        (b"}(Nu.", "no dictionary"),
        (b"\x8f(]\x90.", "cannot be the key"),
    ],
    ids=lambda value: value[:20].hex() if isinstance(value, bytes) else "",
)
def test_broken_streams(refused, stream, words):
    assert words in refused(stream)


@pytest.mark.parametrize(
    "call, words",
    [
        (b"ctorch\nSize\n(K\x01Nt\x85R", "an entry of torch.Size is a NoneType"),
        (b"ctorch\nSize\n(" + b"K\x01" * 65 + b"t\x85R", "65 entries"),
        (b"ctorch\ndevice\n" + text("cuda:1000") + b"\x85R", "number of a device"),
        (b"ctorch\ndevice\n" + text("../x") + b"\x85R", "no name"),
        (b"ctorch.serialization\n_get_layout\n" + text("os") + b"\x85R", "_get_layout"),
        (b"cbuiltins\nslice\n)R", "one to three"),
        (b"cbuiltins\nrange\n" + text("a") + b"\x85R", "a part of a range"),
        (b"cbuiltins\nset\nK\x05\x85R", "a set is a int"),
        (b"cbuiltins\ncomplex\n" + text("1") + b"\x85R", "no numbers"),
        (b"cbuiltins\nbytearray\n" + number(1 << 40) + b"\x85R", "a bytearray is a int"),
        (b"cbuiltins\nbytes\n" + number(1 << 40) + b"\x85R", "a bytearray is a int"),
        (b"c_codecs\nencode\n" + text("x") + text("rot13") + b"\x86R", "not written as text"),
        (b"ccollections\nOrderedDict\n]]K\x01aK\x02aa\x85R", "filled by its constructor"),
        (b"ctorch.return_types\nsort\n(K\x01t}\x86R", "has 2 members"),
        (b"cnumpy\ndtype\n" + text("O8") + b"\x85R", "not one of numbers"),
        (b"cnumpy\ndtype\n" + text("f4,f4") + b"\x85R", "not one of numbers"),
        (b"ctorch._C\nGenerator\n" + text("cpu") + b"\x85RK\x01b", "no state"),
        (b"ctorch._utils\n_rebuild_parameter\n(K\x01\x88NtR", "data of a parameter is a int"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))\x89NtR", "no storage"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R", "missing"),
        (b"ctorch._utils\n_rebuild_sparse_tensor\n(ctorch\nsparse_coo\nK\x01tR", "not the parts"),
    ],
    ids=lambda value: value.split(b"\n")[1].decode() if isinstance(value, bytes) else "",
)
def test_constructors_check_what_they_are_given(refused, call, words):
    assert words in refused(b"\x80\x02" + call + b".")


# Sizes


def test_integers_of_a_million_digits(refused):
    assert "integer of 1000000 bytes" in refused(b"\x8b" + struct.pack("<i", 10**6) + bytes(10**6) + b".")
    assert "integer of -1 bytes" in refused(b"\x8b\xff\xff\xff\xff.")
    assert "does not end" in refused(b"I" + b"9" * 10**6 + b"\n.")
    assert "number that is none" in refused(b"L" + b"9" * 3000 + b"L\n.")


@pytest.mark.parametrize(
    "opening, closing", [(b"]" * 5000, b"a" * 4999), (b")", b"\x85" * 5000), (b"}" * 5000, b"Ns" * 0)]
)
def test_deep_nesting(refused, opening, closing):
    if opening.startswith(b"}"):
        stream = b"".join(b"}" + text("k") for _ in range(5000)) + b"N" + b"s" * 5000
    else:
        stream = opening + closing
    assert "nested more than 256 levels" in refused(stream + b".")


def test_depth_does_not_reach_the_hash_of_a_key(refused):
    """hash() of a tuple that is 100,000 levels deep would end the process."""
    assert "too many parts" in refused(b"})" + b"\x85" * 100_000 + b"Ns.")


def test_values_that_hold_themselves(refused):
    assert "holds itself" in refused(b"]q\x00h\x00a.")
    assert "holds itself" in refused(b"}q\x00" + text("a") + b"h\x00s.")
    assert "holds itself" in refused(b"]q\x00(h\x00ta.")


def test_shared_parts_that_multiply(refused):
    """Thirty lists, each twice in the next one: a billion values for whoever walks them."""
    stream = b"]q\x000"
    for level in range(30):
        stream += b"](h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1]) + b"0"
    assert "more than 4000000 values" in refused(stream + b"h\x1e.")
    stream = b")q\x000"
    for level in range(30):
        stream += b"h" + bytes([level]) + b"h" + bytes([level]) + b"\x86q" + bytes([level + 1]) + b"0"
    assert "too many parts" in refused(stream + b"}h\x1eNs.")


def test_memory_of_the_machine_is_not_taken(refused):
    tracemalloc.start()
    assert "refers to" in refused(b"Nr\xff\xff\xff\xff0j\xfe\xff\xff\xff.")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_texts_that_multiply(refused):
    copies = b"c_codecs\nencode\nq\x01h\x00" + text("latin1") + b"\x86R"
    stream = text("x" * 100_000) + b"q\x00]q\x02(" + copies * 2000 + b"e."
    assert "texts take more than" in refused(stream)
    stream = b"](" + b"K\x01" * 1000 + b"eq\x00](" + b"cbuiltins\nfrozenset\nh\x00\x85R" * 2000 + b"e."
    assert "more than 200000 parts" in refused(stream, limits=Limits(items=200_000))


def test_keys_that_collide(refused):
    keys = b"".join(number(i * (2**61 - 1)) + b"N" for i in range(3000))
    assert "keys that are not text" in refused(b"}(" + keys + b"u.")


def test_limits_are_options(tmp_path):
    path = tmp_path / "x.pth"
    torch.save([torch.ones(1000), list(range(100)), [[[[1]]]]], path)
    torch_file.load(path)
    for limits, words in (
        (Limits(bytes=1000), "the limit is 1000"),
        (Limits(pickle=100), "the limit is 100"),
        (Limits(items=50), "more than 50 parts"),
        (Limits(depth=3), "more than 3 levels"),
    ):
        with pytest.raises(CaseError, match=words):
            torch_file.load(path, limits)
    torch.save(torch.ones(1).expand(2000), path)
    with pytest.raises(CaseError, match="its tensors have more than 4000 bytes"):
        torch_file.load(path, Limits(bytes=4000))


# Tensors outside their memory

STORAGE = {"0": bytes(32)}


@pytest.mark.parametrize(
    "size, stride, offset, words",
    [
        ([9], [1], 0, "reaches to element 8 of a storage of 8"),
        ([8], [1], 1, "reaches to element 8"),
        ([2, 2], [7, 1], 0, "reaches to element 8"),
        ([2], [1 << 62], 0, "reaches to element"),
        ([1], [1], 1 << 62, "reaches to element"),
        ([1], [1], -1, "the offset of a tensor is -1"),
        ([-1], [1], 0, "an entry of the size of a tensor is -1"),
        ([2], [-1], 7, "an entry of the stride of a tensor is -1"),
        ([2, 2], [1], 0, "2 sizes and 1 strides"),
        ([1 << 40] * 2, [0, 0], 0, "2\\*\\*63 elements"),
        ([0, 1 << 62, 1 << 62], [1, 1, 1], 0, "2\\*\\*63 elements"),
        ([0, 4], [1 << 62, 1], 0, None),
        ([1 << 62, 0], [4, 1], 0, "beyond 2"),
        ([1 << 70], [1], 0, "expected a whole number"),
        ([1 << 37], [0], 0, "its tensors have more than"),
        ([1] * 65, [1] * 65, 0, "65 entries"),
    ],
    ids=str,
)
@pytest.mark.parametrize("function", ["torch", "vendor"])
def test_tensors_outside_their_storage(refused, tmp_path, size, stride, offset, words, function):
    name = {"torch": b"ctorch._utils\n_rebuild_tensor_v2\n", "vendor": b"ctorch_npu.utils\n_rebuild_npu_tensor\n"}[
        function
    ]
    stream = b"\x80\x02" + tensor(b"Float", 8, size, stride, offset, function=name) + b"."
    if words is None:
        assert torch_file.load(write(tmp_path / "y.pth", stream, STORAGE)).numel() == 0
    else:
        assert pytest.importorskip("re").search(words, refused(stream, STORAGE))


@pytest.mark.parametrize(
    "kind, count, words",
    [
        (b"Float", 9, "has 32 bytes, not 36"),
        (b"Float", 7, "has 32 bytes, not 28"),
        (b"Float", 1 << 61, "has 32 bytes, not"),
        (b"Float", -8, "number of elements of a storage is -8"),
        (b"Double", 8, "has 32 bytes, not 64"),
    ],
)
def test_storages_of_another_size(refused, kind, count, words):
    assert words in refused(b"\x80\x02" + tensor(kind, count, [1], [1]) + b".", STORAGE)


def test_storages_that_are_not_there(refused):
    for key in ("1", "../../etc/passwd", "0/..", "", "\0"):
        assert "lacks the storage" in refused(b"\x80\x02" + tensor(b"Float", 8, [1], [1], key=key) + b".", STORAGE)


def test_one_storage_as_two_sizes(refused):
    stream = b"\x80\x02(" + tensor(b"Float", 8, [1], [1]) + tensor(b"Byte", 31, [1], [1]) + b"t."
    assert "has 32 bytes, not 31" in refused(stream, STORAGE)


def test_every_span_is_that_of_torch():
    """check_span against brute force."""
    import itertools

    for size in itertools.product(range(3), repeat=2):
        for stride in itertools.product(range(4), repeat=2):
            for offset in range(3):
                places = [offset + i * stride[0] + j * stride[1] for i in range(size[0]) for j in range(size[1])]
                fits = all(place < 5 for place in places)
                try:
                    assert values.check_span(size, stride, offset, 5) == len(places)
                    assert fits
                except reading_limits.Refused:
                    assert not fits


@pytest.mark.parametrize(
    "metadata, words",
    [
        (text("conj") + b"\x88s", "not complex"),
        (text("x") + b"\x88s", "other than conj"),
        (text("neg") + b"K\x05s", "neither True"),
    ],
)
def test_properties_of_tensors(refused, metadata, words):
    stream = tensor(b"Float", 8, [1], [1])[:-2] + b"}" + metadata + b"tR."
    assert words in refused(b"\x80\x02" + stream, STORAGE)


def sparse(indices, size):
    parts = tensor(b"Long", 2, [1, 2], [2, 1], key="i") + tensor(b"Float", 2, [2], [1], key="v") + numbers(size) + b"N"
    stream = b"\x80\x02ctorch._utils\n_rebuild_sparse_tensor\n(ctorch\nsparse_coo\n(" + parts + b"ttR."
    return stream, {"i": struct.pack("<2q", *indices), "v": bytes(8)}


def test_sparse_tensors_with_indices_outside(refused, tmp_path):
    stream, storages = sparse([0, 2], [3])
    assert torch_file.load(write(tmp_path / "y.pth", stream, storages)).to_dense().tolist() == [0, 0, 0]
    os.remove(tmp_path / "y.pth")
    for indices, size in (([0, 3], [3]), ([-1, 0], [3]), ([0, 1 << 60], [3])):
        assert "_rebuild_sparse_tensor" in refused(*sparse(indices, size))
    assert "2**63" in refused(*sparse([0, 1], [1 << 62, 1 << 62]))


def test_nested_tensors_outside_their_buffer(refused):
    def nested(size, stride, offset):
        parts = [tensor(b"Float", 4, [4], [1], key="b")]
        parts += [tensor(b"Long", 1, [1, 1], [1, 1], key=key) for key in "st"] + [tensor(b"Long", 1, [1], [1], key="o")]
        stream = b"\x80\x02ctorch._utils\n_rebuild_nested_tensor\n(" + b"".join(parts) + b"tR."
        return stream, {
            "b": bytes(16),
            **{k: struct.pack("<q", v) for k, v in (("s", size), ("t", stride), ("o", offset))},
        }

    assert "reaches to element 4" in refused(*nested(5, 1, 0))
    assert "reaches to element 6" in refused(*nested(4, 2, 0))
    assert "offset of a tensor is -1" in refused(*nested(1, 1, -1))


def test_tensors_that_would_be_copied_are_not_larger_than_their_storage(refused):
    """A stride of 0 makes 32 bytes a tensor of 32 GiB, which the conversion would have to take."""
    name = b"ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n("
    stream = b"\x80\x02" + name + tensor(b"Float", 8, [1 << 32], [0]) + b"ctorch\nfloat64\n" + text("x") + b"\x89tR."
    assert "larger than its storage" in refused(stream, STORAGE)
    meta = (
        b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n"
        + numbers([1 << 40])
        + numbers([1])
        + b"\x89tR"
    )
    stream = b"\x80\x02" + name + meta + b"ctorch\nfloat64\n" + text("x") + b"\x89tR."
    assert "no plain tensor" in refused(stream, STORAGE)


def test_quantized_tensors_larger_than_their_storage(refused):
    def quantized(size, stride, scheme):
        parts = storage_id(b"QUInt8", "0", 8) + b"K\x00" + numbers(size) + numbers(stride) + scheme + b"\x89N"
        return b"\x80\x02ctorch._utils\n_rebuild_qtensor\n(" + parts + b"tR."

    affine = b"ctorch\nper_tensor_affine\nG" + struct.pack(">d", 0.5) + b"K\x00\x87"
    data = {"0": bytes(8)}
    assert "larger than its storage" in refused(quantized([1 << 35], [0], affine), data)
    assert "reaches to element" in refused(quantized([9], [1], affine), data)
    assert "a scheme that is not known" in refused(quantized([8], [1], b"ctorch\nper_tensor_affine\n\x85"), data)
    channel = b"(ctorch\nper_channel_affine\n" + tensor(b"Byte", 8, [8], [1]) * 2 + number(9) + b"t"
    assert "the axis of a quantized tensor is 9" in refused(quantized([8], [1], channel), data)


# Archives


def patch_central(path, name, offset, form, value):
    """A number of a record's entry in the central directory."""
    data = bytearray(path.read_bytes())
    place = data.find(b"PK\x01\x02")
    while data[place + 46 : place + 46 + len(name)] != name:
        place = data.find(b"PK\x01\x02", place + 4)
        assert place >= 0
    struct.pack_into(form, data, place + offset, value)
    path.write_bytes(data)


def read_error(path):
    with pytest.raises(CaseError) as caught:
        torch_file.load(path)
    reason = str(caught.value).partition(": ")[2]
    assert reason
    return reason


PLAIN = b"\x80\x02K\x01."


@pytest.fixture
def archive(tmp_path):
    return write(tmp_path / "x.pth", PLAIN, {"0": b"abcd"})


def test_the_archive_itself_is_sound(archive):
    assert torch_file.load(archive) == 1


@pytest.mark.parametrize(
    "offset, form, value, words",
    [
        (8, "<H", 1, "encrypted"),
        (10, "<H", 8, "compressed"),
        (10, "<H", 99, "compressed"),
        (20, "<I", 3, "compressed"),
        (34, "<H", 3, "one part of several"),
        (38, "<I", 0o120777 << 16, "is a link"),
        (42, "<I", 0x7FFFFFFF, "has no header"),
        (42, "<I", 4, "has no header"),
        (42, "<I", 0xFFFFFFFF, "64-bit size"),
        (28, "<H", 0xFFFF, "damaged directory"),
        (30, "<H", 0xFFFF, "damaged directory"),
        (32, "<H", 0xFFFF, "damaged directory"),
        (0, "<I", 0, "damaged directory"),
    ],
)
def test_entries_of_the_directory(archive, offset, form, value, words):
    if value == 0o120777 << 16:
        patch_central(archive, b"archive/data.pkl", 4, "<H", 3 << 8 | 20)
    patch_central(archive, b"archive/data.pkl", offset, form, value)
    assert words in read_error(archive)


def test_sizes_of_the_directory(archive):
    for value in (0x7FFFFFFF, 1000):
        write(archive, PLAIN, {"0": b"abcd"})
        patch_central(archive, b"archive/data/0", 20, "<I", value)
        patch_central(archive, b"archive/data/0", 24, "<I", value)
        assert "outside the file" in read_error(archive) or "overlap" in read_error(archive)


def test_records_that_overlap(archive):
    """The bomb of many names for the same bytes."""
    data = archive.read_bytes()
    first = data.find(b"PK\x03\x04")
    inner = data.find(b"PK\x03\x04", first + 4)
    size = len(data[first:inner]) - 30 - len(b"archive/data.pkl") + 40
    for offset in (20, 24):
        patch_central(archive, b"archive/data.pkl", offset, "<I", size)
    assert "overlap" in read_error(archive)


def test_compressed_records_are_refused(tmp_path):
    path = write(tmp_path / "x.pth", PLAIN, {"0": bytes(20_000_000)}, method=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20 and "compressed" in read_error(path)


def test_wrong_checksums_are_reported(tmp_path):
    path = tmp_path / "x.pth"
    torch.save(torch.arange(100.0), path)
    data = bytearray(path.read_bytes())
    place = data.find(struct.pack("<f", 57.0))
    data[place] ^= 1
    path.write_bytes(data)
    assert "is damaged (its checksum is wrong)" in read_error(path)
    assert torch_file.load(path, verify=False)[57] != 57


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "a\\b", "C:/x"])
def test_names_that_leave_the_archive(tmp_path, name):
    path = write(tmp_path / "x.pth", PLAIN)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"x")
    assert "which leaves it" in read_error(path)


def test_names_that_come_twice(tmp_path):
    path = write(tmp_path / "x.pth", PLAIN)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("archive/data.pkl", b"N.")
    assert "twice" in read_error(path)


def test_another_name_in_the_header(archive):
    data = archive.read_bytes()
    archive.write_bytes(data.replace(b"archive/data.pkl", b"archive/data.pk1", 1))
    assert "another name in its header" in read_error(archive)


def test_archives_without_their_parts(tmp_path):
    path = tmp_path / "x.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/version", "3")
    assert "no data.pkl" in read_error(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", PLAIN)
        archive.writestr("b/data.pkl", PLAIN)
    assert "no data.pkl, or several" in read_error(path)
    write(path, PLAIN, byteorder="middle")
    assert "no byte order" in read_error(path)


def test_programs_are_refused(tmp_path):
    path = tmp_path / "x.pt"
    torch.jit.script(torch.nn.ReLU()).save(str(path))
    assert "TorchScript" in read_error(path)


@pytest.mark.parametrize("value", [0, 5, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF])
@pytest.mark.parametrize("offset, form", [(4, "<H"), (8, "<H"), (10, "<H"), (12, "<I"), (16, "<I"), (20, "<H")])
def test_the_end_of_the_directory(archive, offset, form, value):
    data = bytearray(archive.read_bytes())
    before = struct.unpack_from(form, data, len(data) - 22 + offset)[0]
    value &= 0xFFFF if form == "<H" else 0xFFFFFFFF
    struct.pack_into(form, data, len(data) - 22 + offset, value)
    archive.write_bytes(data)
    if value == before:
        assert torch_file.load(archive) == 1
    else:
        assert "its archive" in read_error(archive)


def test_archives_with_64_bit_numbers(tmp_path):
    """torch writes them for large files; here by hand around a small one."""
    data = bytearray(write(tmp_path / "x.pth", PLAIN).read_bytes())
    end = len(data) - 22
    count, size, offset = struct.unpack_from("<HII", data, end + 10)
    wide = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1)
    tail = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path = tmp_path / "y.pth"
    path.write_bytes(data[:end] + wide + locator + tail)
    assert torch_file.load(path) == 1
    for place, value in ((24, 1 << 60), (32, 1 << 60), (40, 1 << 60), (48, 1 << 60)):
        broken = bytearray(wide)
        struct.pack_into("<Q", broken, place, value)
        path.write_bytes(data[:end] + broken + locator + tail)
        assert "its archive" in read_error(path)
    path.write_bytes(data[:end] + wide + b"PK\x06\x07" + struct.pack("<IQI", 0, 1 << 60, 1) + tail)
    assert "64-bit end" in read_error(path)


# Other files


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "empty"),
        (b"\0" * 600, "instruction"),
        (b"not a pickle at all", "pickle"),
        (b"PK", "pickle"),
        (b"PK\x03\x04", "no end"),
        (b"\0" * 257 + b"ustar" + b"\0" * 300, "tar archive"),
        (PLAIN, "no file of torch.save"),
        (pickle.dumps(0x1950A86A20F9469CFC6C), "ends in the middle"),
        (pickle.dumps(0x1950A86A20F9469CFC6C) + pickle.dumps(1), "version that is not known"),
        (pickle.dumps(0x1950A86A20F9469CFC6C) + pickle.dumps(1001) + pickle.dumps([]), "byte order"),
    ],
    ids=range(10),
)
def test_files_that_are_something_else(tmp_path, content, words):
    (tmp_path / "x.pth").write_bytes(content)
    assert words in read_error(tmp_path / "x.pth")


def test_what_is_no_file(tmp_path):
    assert "it is not a file" in read_error(tmp_path)
    assert "No such file" in read_error(tmp_path / "x.pth")
    os.mkfifo(tmp_path / "fifo")
    assert "it is not a file" in read_error(tmp_path / "fifo")
    assert "it is not a file" in read_error("/dev/zero")
    with pytest.raises(CaseError, match=r"a\\x0ab: "):
        torch_file.load(tmp_path / "a\nb")


def test_old_streams_with_wrong_storages(tmp_path):
    path = tmp_path / "x.pth"
    torch.save([torch.arange(4.0), torch.ones(2)], path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    assert torch_file.load(path)[0].tolist() == [0, 1, 2, 3]
    place = data.rfind(struct.pack("<q", 4) + struct.pack("<f", 0))
    broken = bytearray(data)
    struct.pack_into("<q", broken, place, 1 << 60)
    path.write_bytes(broken)
    assert "not where it should be" in read_error(path)
    for cut in range(1, 40):
        path.write_bytes(data[:-cut])
        assert "truncated" in read_error(path) or "the file ends before" in read_error(path) or cut > 30
    evil = io.BytesIO()
    torch.save(Evil(), evil, _use_new_zipfile_serialization=False)
    path.write_bytes(evil.getvalue())
    assert "wants to call 'posix.system'" in read_error(path)


def test_every_truncation(tmp_path):
    path = tmp_path / "x.pth"
    for options in FORMATS.values():
        torch.save({"name": "torch.add", "args": (torch.ones(2), slice(1)), "kwargs": {}}, path, **options)
        data = path.read_bytes()
        for length in range(0, len(data), 1 if len(data) < 1000 else 17):
            path.write_bytes(data[:length])
            read_error(path)


def test_reading_executes_nothing_that_torch_load_would(tmp_path, monkeypatch):
    """The file is one that works: torch.load, told to trust it, runs the command."""
    monkeypatch.chdir(tmp_path)
    torch.save({"name": "torch.add", "args": (Evil(),), "kwargs": {}}, "x.pth")
    read_error("x.pth")
    assert not os.path.exists("hostile")
    torch.load("x.pth", weights_only=False)
    assert os.path.exists("hostile")


def test_numbers_are_exact(tmp_path):
    path = tmp_path / "x.pth"
    values = [0.1, math.inf, -0.0, 5e-324, 2**63, -(2**63), 255, 256, 65535, 65536, 2**31, -(2**31), 1 << 7990]
    for protocol in range(2, 6):
        torch.save(values, path, pickle_protocol=protocol)
        got = torch_file.load(path)
        assert got == values and [type(value) for value in got] == [type(value) for value in values]
    assert math.copysign(1, torch_file.load(path)[2]) == -1


# Fuzzing


def test_the_corpus_and_a_few_hundred_mutations(tmp_path):
    """The long loop is `make fuzz-cases`; the seed tells the inputs."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), OMP_NUM_THREADS="1")
    command = [sys.executable, FUZZ, "--seed", "5", "--count", "200", "--seconds", "100", "--no-truncation"]
    answer = subprocess.run(
        [*command, "--keep", tmp_path], capture_output=True, text=True, env=environment, timeout=600
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "inputs 0 to 200" in answer.stdout and os.listdir(tmp_path) == []
