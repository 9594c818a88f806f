"""The capture store against torch: the files it writes are those of torch.save, and torch.load reads them.

The C library is called through ctypes. The pickles come from torch.save itself, so that every dtype, view and shared
storage that torch can save takes part.
"""

import ctypes
import importlib.util
import io
import os
import zipfile

import pytest
import torch


class Blob(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("wait", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("identity", ctypes.c_uint64),
    ]


class Item(ctypes.Structure):
    _fields_ = [
        ("path", ctypes.c_char_p),
        ("pickle", ctypes.c_char_p),
        ("pickle_size", ctypes.c_size_t),
        ("json", ctypes.c_char_p),
        ("json_size", ctypes.c_size_t),
        ("blobs", ctypes.POINTER(Blob)),
        ("blob_count", ctypes.c_size_t),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("layout", ctypes.c_int),
        ("container", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("pressure", ctypes.c_int),
        ("block_ms", ctypes.c_int),
        ("queue_bytes", ctypes.c_int64),
        ("cap_bytes", ctypes.c_int64),
        ("cap_items", ctypes.c_int64),
    ]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 1024)]


FILES, PACKED = 0, 1


@pytest.fixture(scope="module")
def library():
    spec = importlib.util.find_spec("ditorch")
    return ctypes.CDLL(os.path.join(os.path.dirname(spec.origin), "lib", "libdit.so"))


def call(function, *arguments):
    """Call a function of the library whose last argument is the error."""
    error = Error()
    status = function(*arguments, ctypes.byref(error))
    assert status == 0, error.message.decode()


def make_item(data, path, json=None):
    """Split what torch.save makes of `data` into pickle and storages. Returns the item and what it borrows."""
    stream = io.BytesIO()
    torch.save(data, stream)
    with zipfile.ZipFile(stream) as archive:
        stem = archive.namelist()[0].split("/")[0]
        pickle = archive.read(f"{stem}/data.pkl")
        count = sum(name.startswith(f"{stem}/data/") for name in archive.namelist())
        storages = [archive.read(f"{stem}/data/{i}") for i in range(count)]
    buffers = [ctypes.create_string_buffer(storage, max(len(storage), 1)) for storage in storages]
    blobs = (Blob * max(count, 1))()
    for blob, buffer, storage in zip(blobs, buffers, storages, strict=False):
        blob.data, blob.size = ctypes.addressof(buffer), len(storage)
    item = Item(os.fsencode(path), pickle, len(pickle), json, len(json or b""), blobs, count)
    return item, (buffers, blobs, pickle, json)


def samples():
    """Objects of many kinds by name."""
    torch.manual_seed(5)
    base = torch.arange(24.0).reshape(4, 6)
    dtypes = [torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int64, torch.bool]
    dtypes += [torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64]
    return {
        "plain": {"name": "torch.add", "args": (torch.randn(3, 5), 2.5), "kwargs": {}, "identifier": "1/x/input"},
        "views": [base, base.t(), base[1:, ::2], base.view(-1)[5:7], base[0, 0]],
        "dtypes": [torch.ones(3, 7).to(dtype) for dtype in dtypes],
        "empty": [torch.empty(0), torch.empty(3, 0, 2), torch.tensor(4)],
        "nothing": {"a": (1, None, "text", [True, 1.5])},
        "grad": [torch.randn(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))],
        "large": torch.randn(700_001),
        "several": [torch.randn(130_000) for _ in range(5)],
        "many": [torch.full((3,), float(i)) for i in range(2000)],
    }


def assert_same(a, b):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert a.requires_grad == b.requires_grad and a.storage_offset() == b.storage_offset()
        assert (
            a.detach().contiguous().view(-1).view(torch.uint8).equal(b.detach().contiguous().view(-1).view(torch.uint8))
        )
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b


def check_file(path, data):
    """zipfile and torch.load in both ways accept the file, and the data is what it was."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    assert_same(data, torch.load(path, weights_only=True))
    assert_same(data, torch.load(path, weights_only=True, mmap=True))


def without_id(path):
    """The file's bytes with the serialization id and its checksum blanked: torch's depends on its hash tables."""
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{path.stem}/.data/serialization_id")
        value, check = archive.read(info), info.CRC.to_bytes(4, "little")
    assert len(value) == 40 and value.isdigit()
    for part in (value, check, check):
        at = content.rindex(part)
        content[at : at + len(part)] = bytes(len(part))
    return bytes(content)


@pytest.mark.parametrize("name", list(samples()))
def test_file_is_the_file_of_torch_save(library, tmp_path, name):
    data = samples()[name]
    ours, theirs = tmp_path / "a" / "b" / "input.pth", tmp_path / "input.pth"
    item, _keep = make_item(data, "unused", b'{"op": 1}')
    call(library.dit_store_write_file, os.fsencode(ours), ctypes.byref(item))
    torch.save(data, theirs)
    assert without_id(ours) == without_id(theirs)
    check_file(ours, data)
    assert (tmp_path / "a" / "b" / "input.pth.json").read_bytes() == b'{"op": 1}'
    assert ours.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(ours.parent)) == ["input.pth", "input.pth.json"]


def test_aliasing_is_kept(library, tmp_path):
    base = torch.arange(10.0)
    item, _keep = make_item([base, base[2:5]], "unused")
    path = tmp_path / "x.pth"
    call(library.dit_store_write_file, os.fsencode(path), ctypes.byref(item))
    first, second = torch.load(path, weights_only=True)
    second[0] = 99
    assert first[2] == 99 and not (tmp_path / "x.pth.json").exists()


def put_all(library, root, layout, container=None):
    store = ctypes.c_void_p()
    options = Options(layout=layout, container=container)
    call(library.dit_store_create, os.fsencode(root), ctypes.byref(options), ctypes.byref(store))
    keep = []
    for name, data in samples().items():
        for call_id in range(2):
            item, borrowed = make_item(data, f"{name}/{call_id}/input.pth", f'{{"id": {call_id}}}'.encode())
            keep.append(borrowed)
            kept = ctypes.c_bool()
            call(library.dit_store_put, store, ctypes.byref(item), ctypes.c_bool(call_id == 0), ctypes.byref(kept))
            assert kept.value
    call(library.dit_store_flush, store, 30000)
    call(library.dit_store_destroy, store, 30000)


def test_layouts_give_the_same_files(library, tmp_path):
    files, packed, unpacked = tmp_path / "files", tmp_path / "packed", tmp_path / "unpacked"
    put_all(library, files, FILES)
    put_all(library, packed, PACKED, b"all.dpack")
    written = ctypes.c_uint64()
    call(library.dit_store_unpack, os.fsencode(packed / "all.dpack"), os.fsencode(unpacked), ctypes.byref(written))
    assert written.value == 2 * len(samples())
    expected = {p.relative_to(files): p.read_bytes() for p in files.rglob("*") if p.is_file()}
    assert len(expected) == 4 * len(samples())
    assert {p.relative_to(unpacked): p.read_bytes() for p in unpacked.rglob("*") if p.is_file()} == expected
    for name, data in samples().items():
        check_file(unpacked / name / "1" / "input.pth", data)
    total = sum(p.stat().st_size for p in files.rglob("*.pth"))
    assert (packed / "all.dpack").stat().st_size < 0.75 * total  # the second call's storages are there already


def test_name_without_extension_and_not_ascii(library, tmp_path):
    for name in ("plain", ".pth", "gr\u00fc\u00dfe.v2.pth"):
        item, _keep = make_item(torch.ones(3), "unused")
        call(library.dit_store_write_file, os.fsencode(tmp_path / name), ctypes.byref(item))
        check_file(tmp_path / name, torch.ones(3))


def test_more_entries_than_a_short_directory_counts(library, tmp_path):
    """More than 65535 records: the counts are in the ZIP64 end record alone."""
    count = 65540
    item, keep = make_item(torch.arange(16.0), "unused")
    one = ctypes.create_string_buffer(bytes(range(4)), 4)
    blobs = (Blob * count)()
    for i in range(count):
        blobs[i] = keep[1][0] if i == 0 else Blob(ctypes.addressof(one), 4)
    item.blobs, item.blob_count = blobs, count
    path = tmp_path / "wide.pth"
    call(library.dit_store_write_file, os.fsencode(path), ctypes.byref(item))
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == count + 6
        assert archive.read(f"wide/data/{count - 1}") == bytes(range(4))
    assert torch.load(path, weights_only=True).equal(torch.arange(16.0))


@pytest.mark.full
def test_more_than_four_gibibytes(library, tmp_path):
    """Sizes and offsets beyond 32 bits: ZIP64 as torch writes it. Takes twice the size on disk for a moment."""
    large = torch.empty((4 << 30) + 100, dtype=torch.uint8)
    large[-3:] = torch.tensor([7, 8, 9], dtype=torch.uint8)
    data = [large, torch.arange(5, dtype=torch.uint8)]
    ours, theirs = tmp_path / "a" / "huge.pth", tmp_path / "huge.pth"
    torch.save(data, theirs)
    with zipfile.ZipFile(theirs) as archive:
        pickle = archive.read("huge/data.pkl")
    blobs = (Blob * 2)(*[Blob(tensor.data_ptr(), tensor.numel()) for tensor in data])
    item = Item(b"unused", pickle, len(pickle), None, 0, blobs, 2)
    call(library.dit_store_write_file, os.fsencode(ours), ctypes.byref(item))
    different = 0
    with open(ours, "rb") as a, open(theirs, "rb") as b:
        for x in iter(lambda: a.read(1 << 24), b""):
            y = b.read(1 << 24)
            assert len(x) == len(y)
            different += 0 if x == y else sum(i != j for i, j in zip(x, y, strict=True))
        assert not b.read(1)
    assert different <= 40 + 4 + 4  # the serialization id and its checksum, twice
    theirs.unlink()
    first, second = torch.load(ours, weights_only=True, mmap=True)
    assert first.numel() == large.numel() and first[-3:].tolist() == [7, 8, 9] and second.tolist() == [0, 1, 2, 3, 4]
    with zipfile.ZipFile(ours) as archive:
        assert archive.testzip() is None
