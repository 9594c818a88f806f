"""Finding and loading captured calls: every layout that captures have had, containers, logs, single files; what is
broken costs only itself."""

import base64
import json
import os
import pathlib
import shutil
import struct
import sys
import zlib

import ditorch  # noqa: F401
import pytest
import torch
from op_tools.reader import Case, CaseError, CaseRef, Limits, find_cases, load_case
from op_tools.reader.tagged import Described, restore
from record_log import Log

CASES = pathlib.Path(__file__).parent / "fixtures" / "cases"
TIME = "2024-10-09-11-42-15"
X = torch.arange(6.0).view(2, 3)


def save(folder, what="input", name="torch.add", args=(X, 1), kwargs=None, **more):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{what}.pth")
    torch.save({"name": name, "args": args, "kwargs": kwargs or {}, "identifier": f"1/{TIME}/{what}", **more}, path)
    return path


def make_folder(root, name="torch.add", pid=7, number=1):
    return os.path.join(root, "op_capture_results", name, str(pid), str(number), TIME)


# The layouts


@pytest.mark.parametrize(
    "layout, operator, pid, number, time, roles",
    [
        ("time-first", "torch.add", 4242, 7, "2024-08-02--10-20", ["plain"]),
        ("device-first", "torch.Tensor.sort", None, 13, "2024-08-06--09-15", ["plain"]),
        ("name-first", "torch.Tensor.sort", 4242, 13, "", ["plain"]),
        ("mismatch", "torch.nn.functional.linear", 4242, None, "", ["device", "cpu"]),
        ("compared", "torch.mm", 4242, 21, "2024-10-09-11-42-16", ["device", "cpu"]),
    ],
)
def test_layouts_by_their_paths(layout, operator, pid, number, time, roles):
    refs = list(find_cases(CASES / layout))
    assert [ref.role for ref in refs] == roles
    for ref in refs:
        assert (ref.layout, ref.operator, ref.pid, ref.id, ref.time, ref.error) == (
            layout,
            operator,
            pid,
            number,
            time,
            "",
        )
        assert load_case(ref).name == operator


def test_everything_at_once_is_sorted():
    refs = list(find_cases(CASES))
    assert len(refs) == 11 and not any(ref.error for ref in refs)
    assert [ref.operator for ref in refs] == sorted(ref.operator for ref in refs)
    for ref in refs:
        case = load_case(ref)
        assert isinstance(case, Case) and case.path == ref.path and case.role == ref.role and case.name == ref.operator


def test_the_first_layout_keeps_keywords_in_args():
    (ref,) = find_cases(CASES / "time-first")
    case = load_case(ref)
    assert case.args[1:] == (2,) and torch.equal(case.args[0], X) and case.kwargs == {"alpha": 3}
    assert torch.equal(case.output, X + 6)


def test_a_pair_of_a_tuple_and_a_dictionary_stays_what_it_is(tmp_path):
    """A call of today with two such arguments is not one of the first layout; one without an identifier is."""
    args = ((X, 1), {"alpha": 2})
    save(make_folder(tmp_path), args=args)
    (case,) = map(load_case, find_cases(tmp_path))
    assert len(case.args) == 2 and case.args[1] == {"alpha": 2} and case.kwargs == {}
    torch.save({"name": "torch.add", "args": args, "kwargs": {}}, tmp_path / "x.pth")
    case = load_case(tmp_path / "x.pth")
    assert case.args[1] == 1 and case.kwargs == {"alpha": 2}


def test_r3_slices_results_and_vendors_functions():
    cases = {case.name: case for case in map(load_case, find_cases(CASES / "files"))}
    index = cases["torch.Tensor.__getitem__"].args[1]
    assert index == (slice(0, None, None), Ellipsis, slice(1, 3))
    assert cases["torch.Tensor.__getitem__"].args[0].requires_grad
    assert cases["torch.Tensor.__getitem__"].grad_outputs[0].shape == (2, 2)
    assert type(cases["torch.topk"].output) is torch.return_types.topk
    (case,) = map(load_case, find_cases(CASES / "vendor"))
    first, second = case.args
    assert first.shape == (2, 2) and first.stride() == (3, 1) and first.storage_offset() == 1
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert not [name for name in sys.modules if name.startswith("torch_npu")]


def test_r6_the_role_is_recorded():
    device, cpu = find_cases(CASES / "compared")
    assert (device.role, cpu.role) == ("device", "cpu")
    assert torch.equal(load_case(device).output, load_case(cpu).output + 0.5) and load_case(cpu).role == "cpu"


def test_gradients_and_further_passes(tmp_path):
    folder = make_folder(tmp_path)
    save(folder)
    save(folder, "output", args=((X, [X]),))
    for what in ("grad_outputs", "grad_inputs", "grad_outputs_1", "grad_inputs_1"):
        save(folder, what, args=(X, None))
    save(folder, "error", args=("builtins.RuntimeError", "line 1\nline 2"))
    save(folder, "something_else")
    case = load_case(folder)
    assert type(case.output) is tuple and case.grad_inputs[1] is None and torch.equal(case.grad_outputs[0], X)
    assert sorted(case.meta["more"]) == ["grad_inputs_1", "grad_outputs_1"]
    assert case.meta["error"] == ("builtins.RuntimeError", "line 1\\x0aline 2")
    assert case.meta["id"] == 1 and case.meta["pid"] == 7 and "something_else" in case.meta["parts"]


def test_overflow_findings(tmp_path):
    folder = tmp_path / "op_overflow_check_results" / "torch.log" / "7" / "12_forward"
    save(folder, name="torch.log", args=(X,))
    save(folder, "output", args=(X.log(),))
    save(tmp_path / "op_overflow_check_results" / "torch.log" / "7" / "13_backward", "grad_inputs")
    (ref,) = find_cases(tmp_path)
    assert (ref.operator, ref.id, ref.layout) == ("torch.log", 12, "overflow") and load_case(ref).output.shape == (2, 3)


def test_operators_of_the_dispatcher(tmp_path):
    save(make_folder(tmp_path, "aten::add"), name="aten::add")
    (ref,) = find_cases(tmp_path)
    assert ref.operator == "aten::add"


# What a path may be


def test_a_folder_a_file_and_text(tmp_path):
    folder = make_folder(tmp_path)
    path = save(folder)
    for place in (tmp_path, pathlib.Path(folder), path, pathlib.Path(path)):
        (ref,) = find_cases(place)
        assert ref.operator == "torch.add" and ref.id == 1 and load_case(ref).args[1] == 1
    assert load_case(folder).name == load_case(path).name == "torch.add"
    save(make_folder(tmp_path, number=2))
    with pytest.raises(CaseError, match="holds 2 cases"):
        load_case(tmp_path)


def test_a_relative_path_says_as_much(tmp_path, monkeypatch):
    folder = make_folder(tmp_path)
    save(folder)
    monkeypatch.chdir(folder)
    (ref,) = find_cases(".")
    assert (ref.operator, ref.id, ref.time) == ("torch.add", 1, TIME)
    (ref,) = find_cases("input.pth")
    assert (ref.operator, ref.id) == ("torch.add", 1)


def test_files_under_any_name(tmp_path):
    shutil.move(save(tmp_path / "a", name="torch.mul"), tmp_path / "renamed.pth")
    (ref,) = find_cases(tmp_path / "renamed.pth")
    assert (ref.operator, ref.id, ref.time, ref.layout) == ("torch.mul", 1, TIME, "single")
    assert load_case(ref).name == "torch.mul"
    save(tmp_path / "my case", name="torch.div")
    (ref,) = find_cases(tmp_path / "my case")
    assert (ref.operator, ref.layout) == ("torch.div", "unknown") and load_case(ref).name == "torch.div"


def test_sorted_by_operator_then_number(tmp_path):
    for name, number in (("torch.mul", 10), ("torch.mul", 9), ("torch.add", 11), ("torch.mul", 100)):
        save(make_folder(tmp_path, name, number=number), name=name)
    assert [(r.operator, r.id) for r in find_cases(tmp_path)] == [
        ("torch.add", 11),
        ("torch.mul", 9),
        ("torch.mul", 10),
        ("torch.mul", 100),
    ]


def test_a_path_that_does_not_exist(tmp_path):
    with pytest.raises(CaseError, match="no such file or folder"):
        find_cases(tmp_path / "nothing")
    assert list(find_cases(tmp_path)) == []


# What comes back


def test_strides_offsets_and_sharing(tmp_path):
    x = torch.arange(24.0).view(4, 6)
    args = (x.t(), x[1:, ::2], x.t())
    save(make_folder(tmp_path), args=args, kwargs={"out": x[3]})
    case = load_case(make_folder(tmp_path))
    for got, wanted in zip([*case.args, case.kwargs["out"]], [*args, x[3]], strict=True):
        assert got.stride() == wanted.stride() and got.storage_offset() == wanted.storage_offset()
        assert torch.equal(got, wanted)
    case.kwargs["out"].fill_(-1)
    assert case.args[0][0, 3] == -1 and case.args[1][2, 0] == -1


def test_where_the_tensors_were(tmp_path):
    """The order is that of args, then kwargs, as containers are walked."""
    path = save(make_folder(tmp_path), args=(X, [torch.ones(2), 1]), kwargs={"out": torch.ones(3)})
    data = pathlib.Path(path).read_bytes()
    assert load_case(path).meta["devices"] == ["cpu", "cpu", "cpu"]
    assert data


def test_the_state_of_the_process(tmp_path):
    folder = make_folder(tmp_path)
    path = save(folder)
    random = torch.get_rng_state()
    state = {
        "torch": "2.13.0",
        "autocast": {"cuda": {"enabled": True, "dtype": "bfloat16"}},
        "deterministic": True,
        "grad_enabled": False,
        "random": {"cpu": base64.b64encode(random.numpy().tobytes()).decode(), "cuda": "no base64!"},
        "other": 1,
    }
    pathlib.Path(path + ".json").write_text(json.dumps({"args": [], "op": "torch.add", "state": state}))
    meta = load_case(folder).meta
    assert (
        meta["torch"] == "2.13.0" and meta["autocast"]["cuda"]["dtype"] == "bfloat16" and meta["deterministic"] is True
    )
    assert meta["grad_enabled"] is False and torch.equal(meta["random"]["cpu"], random)
    assert list(meta["random"]) == ["cpu"] and "other" not in meta
    os.remove(path + ".json")
    save(folder, state={"random": {"cpu": random}, "deterministic": False})
    meta = load_case(folder).meta
    assert torch.equal(meta["random"]["cpu"], random) and meta["deterministic"] is False


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b'{"state": 1}',
        b'{"state": {"random": 5}}',
        b"[" * 100_000,
        b"9" * 10_000,
        "{}".encode("utf-32"),
    ],
    ids=range(8),
)
def test_a_broken_companion_costs_nothing(tmp_path, content):
    path = save(make_folder(tmp_path))
    pathlib.Path(path + ".json").write_bytes(content)
    before = set(sys.modules)
    assert load_case(path).name == "torch.add" and set(sys.modules) == before


def test_a_companion_without_end(tmp_path):
    path = save(make_folder(tmp_path))
    with open(path + ".json", "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(CaseError, match="the limit is"):
        load_case(path)


# Broken cases


def test_r1_a_broken_case_costs_only_itself(tmp_path):
    """The original's batch ended at the first missing or truncated file."""
    for number in range(1, 6):
        save(make_folder(tmp_path, number=number))
        save(make_folder(tmp_path, number=number), "output", args=(X,))
    folders = [make_folder(tmp_path, number=number) for number in range(1, 6)]
    data = pathlib.Path(folders[1], "input.pth").read_bytes()
    pathlib.Path(folders[1], "input.pth").write_bytes(data[: len(data) // 2])
    os.remove(os.path.join(folders[2], "input.pth"))
    pathlib.Path(folders[3], "output.pth").write_bytes(b"")
    results = []
    for ref in find_cases(tmp_path):
        try:
            results.append(load_case(ref).name)
        except CaseError as error:
            assert "\n" not in str(error)
            results.append(str(error).partition(": ")[2] + "|" + str(error).partition(": ")[0][-10:])
    assert results[0] == results[4] == "torch.add"
    assert results[1] == "its archive has no end: the file is truncated or something else|/input.pth"
    assert results[2].startswith("there is no input.pth") and results[3] == "it is empty|output.pth"


@pytest.mark.parametrize(
    "item, words",
    [
        ([1], "no captured call"),
        ({"a": 1}, "no captured call"),
        ({"name": 5, "args": ()}, "its name is no text"),
        ({"name": "", "args": ()}, "its name is no text"),
        ({"name": "x" * 5000, "args": ()}, "its name is no text"),
        ({"name": "torch.add", "args": 5}, "no tuple"),
        ({"name": "torch.add", "args": (), "kwargs": [1]}, "no dictionary"),
        ({"name": "torch.add", "args": (), "kwargs": {1: 2}}, "a keyword is no text"),
    ],
)
def test_files_that_are_no_calls(tmp_path, item, words):
    torch.save(item, tmp_path / "x.pth")
    (ref,) = find_cases(tmp_path / "x.pth")
    assert words in ref.error
    with pytest.raises(CaseError, match=words):
        load_case(ref)
    with pytest.raises(CaseError, match=words):
        load_case(CaseRef(str(tmp_path / "x.pth")))


def test_folders_that_cannot_be_entered(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("the superuser enters everything")
    folder = tmp_path / "closed"
    save(make_folder(folder))
    folder.chmod(0)
    (ref,) = find_cases(tmp_path)
    folder.chmod(0o700)
    assert "Permission denied" in ref.error


def test_links_and_pipes(tmp_path):
    folder = make_folder(tmp_path)
    os.makedirs(folder)
    os.mkfifo(os.path.join(folder, "input.pth"))
    (ref,) = find_cases(tmp_path)
    with pytest.raises(CaseError, match="it is not a file"):
        load_case(ref)
    os.remove(os.path.join(folder, "input.pth"))
    os.symlink("/etc/hostname", os.path.join(folder, "input.pth"))
    with pytest.raises(CaseError):
        load_case(ref)
    os.symlink(tmp_path, tmp_path / "op_capture_results" / "loop")
    assert len(list(find_cases(tmp_path))) == 1


def test_limits_reach_every_source(tmp_path):
    path = save(make_folder(tmp_path), args=(torch.ones(1000),))
    with pytest.raises(CaseError, match="the limit is 100"):
        load_case(path, Limits(bytes=100))


# Tagged values


@pytest.mark.parametrize(
    "tag",
    [
        {"__ditorch__": "function", "name": "torch._dynamo.config"},
        {"__ditorch__": "function", "name": "torch.onnx.export.x"},
        {"__ditorch__": "function", "name": "torch.nn"},
        {"__ditorch__": "class", "name": "torch.nn.functional.relu.__globals__"},
        {"__ditorch__": "function", "name": "builtins.exit.eof"},
        {"__ditorch__": "return_type", "type": "torch.return_types.__class__", "values": ("x",)},
        {"__ditorch__": "enum", "type": "builtins.list", "name": "x"},
        {"__ditorch__": "enum", "type": "torch.Tensor", "name": "x"},
        {"__ditorch__": "namedtuple", "type": "P", "fields": ["__len__"], "values": (1,)},
        {"__ditorch__": "namedtuple", "type": "P", "fields": ["__class__", "x"], "values": (1, 2)},
        {"__ditorch__": "namedtuple", "type": "P", "fields": ["x", "x"], "values": (1, 2)},
        {"__ditorch__": "namedtuple", "type": "P", "fields": ["x"], "values": (1, 2)},
        {"__ditorch__": "int", "hex": "f" * 200_000},
        {"__ditorch__": "dict", "items": [(i, 0) for i in range(3000)]},
        {"__ditorch__": "set", "values": [[1]]},
        {"__ditorch__": "storage", "data": torch.ones(1).expand(1 << 40)},
        {
            "__ditorch__": "buffer",
            "type": "numpy.ndarray",
            "format": "O",
            "itemsize": 8,
            "shape": (1,),
            "data": torch.ones(2),
        },
        {
            **{"__ditorch__": "buffer", "type": "numpy.ndarray", "format": "f", "itemsize": 4, "shape": (1 << 38,)},
            "data": torch.ones(1).expand(1 << 38),
        },
        {"__ditorch__": "range", "start": "a", "stop": 1, "step": 1},
        {"__ditorch__": "memory_format", "name": "load"},
        {"__ditorch__": "generator", "device": "cpu", "state": torch.ones(3, dtype=torch.uint8)},
    ],
    ids=lambda tag: tag["__ditorch__"],
)
def test_tags_make_nothing_else(tag):
    before = set(sys.modules)
    got = restore(tag)
    assert isinstance(got, Described) and got.kind == tag["__ditorch__"] and set(sys.modules) == before


# Containers


def frame(kind, number, payload, salt=9, path=0, blobs=0, pickle=0, text=0, flags=0):
    head = b"\xc3\x7a\xd0\xa5" + struct.pack("<HHQQIIQQ", kind, flags, number, len(payload), path, blobs, pickle, text)
    head += bytes(60 - len(head))
    data = head + struct.pack("<I", zlib.crc32(head, salt)) + payload + struct.pack("<I", zlib.crc32(payload))
    return data + bytes(-len(data) % 64)


def header(salt=9, major=1, order=1):
    data = b"\x8aDPACK\r\n" + struct.pack("<HHIqIiIB", major, 0, 64, 0, 7, 0, salt, order)
    data += bytes(60 - len(data))
    return data + struct.pack("<I", zlib.crc32(data))


STREAM = (
    b"\x80\x02}(X\x04\x00\x00\x00nameX\x09\x00\x00\x00torch.addX\x04\x00\x00\x00args"
    b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000"
    b"X\x06\x00\x00\x00cuda:0K\x02tQK\x00K\x02\x85K\x01\x85\x89NtR\x85u."
)
FOLDER = f"op_capture_results/torch.add/7/1/{TIME}"


def make_item(number, offset, blob=1, size=8, path=FOLDER + "/input.pth", stream=STREAM, text=b"{}"):
    name = path.encode()
    payload = struct.pack("<QQQ", blob, offset, size) + name + stream + text
    return frame(2, number, payload, path=len(name), blobs=1, pickle=len(stream), text=len(text), flags=1)


def make_pack():
    """A container of one case, by the documented format."""
    blob = frame(1, 1, struct.pack("<2f", 1.5, 2.5))
    return header() + blob + make_item(2, 64)


@pytest.fixture
def pack(tmp_path):
    path = tmp_path / "capture-r0-p7.dpack"
    path.write_bytes(make_pack())
    return path


@pytest.mark.parametrize("layout", ["packed", "files"])
def test_captures_that_become_shorter_while_they_are_used(tmp_path, layout):
    count = 3 << 20
    if layout == "packed":
        file, blob = tmp_path / "capture-r0-p7.dpack", frame(1, 1, b"\1" * (4 * count))
        stream = STREAM.replace(b"K\x02tQK\x00K\x02", b"J%stQK\x00J%s" % ((struct.pack("<i", count),) * 2))
        file.write_bytes(header() + blob + make_item(2, 64, size=4 * count, stream=stream))
        (ref,) = find_cases(file)
    else:
        file = pathlib.Path(save(make_folder(tmp_path), args=(torch.full((count,), 7),)))
        (ref,) = find_cases(tmp_path)
    case = load_case(ref)
    first = case.args[0][0].item()
    os.truncate(file, 4096)
    assert (case.args[0] == first).all()  # memory of its own: a mapping would end the process here
    with pytest.raises(CaseError):
        load_case(ref)


def order_bytes(data, width):
    count = len(data) // width
    planes = b"".join(data[plane : count * width : width] for plane in range(width))
    return planes + data[count * width :]


def make_compressed(data, width=4, method=1, size=None, stored=None, packed=None, offset=64):
    size = len(data) if size is None else size
    content = zlib.compress(order_bytes(data, width), 1) if stored is None else stored
    packed = len(content) if packed is None else packed
    content += bytes(max(-(-size // 256) - len(content), 0)) if stored is None else b""
    blob = frame(4, 1, content, path=method, blobs=width, pickle=size, text=packed)
    stream = STREAM.replace(b"K\x02tQK\x00K\x02", b"J%stQK\x00J%s" % ((struct.pack("<i", size // 4),) * 2))
    return header(major=2) + blob + make_item(2, offset, size=size, stream=stream)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_compressed_blobs(pack, width):
    values = torch.arange(20003.0)
    pack.write_bytes(make_compressed(values.numpy().tobytes(), width))
    assert load_case(f"{pack}#{FOLDER}").args[0].equal(values)
    pack.write_bytes(make_compressed(bytes(4 << 20), width))  # shrinks by more than 256
    assert load_case(f"{pack}#{FOLDER}").args[0].eq(0).all()


@pytest.mark.parametrize(
    "broken",
    [
        {"method": 3},
        {"width": 3},
        {"packed": 0},
        {"packed": 1 << 40},
        {"size": 4 << 30},  # promises more than it gives, and more than it may
        {"size": 400 << 8, "stored": zlib.compress(bytes(1 << 20))},  # gives more than it promises
        {"stored": zlib.compress(bytes(800))[:-5]},
        {"stored": b"no zlib at all"},
        {"method": 2, "stored": b"no zstd at all"},
    ],
    ids=str,
)
def test_damaged_compression_is_refused(pack, broken):
    with pytest.raises(CaseError):
        pack.write_bytes(make_compressed(bytes(800), **broken))
        load_case(f"{pack}#{FOLDER}")


def test_fillers_are_passed_over(pack):
    filler = frame(3, 3, bytes(60))
    pack.write_bytes(make_pack() + filler + make_item(4, 64, path=FOLDER.replace("/1/", "/2/") + "/input.pth"))
    assert [ref.id for ref in find_cases(pack)] == [1, 2]


def test_a_container_by_the_documented_format(pack):
    for place in (pack, pack.parent, f"{pack}#{FOLDER}"):
        (ref,) = find_cases(place)
        assert (ref.operator, ref.pid, ref.id, ref.time, ref.layout) == ("torch.add", 7, 1, TIME, "packed")
        case = load_case(ref)
        assert case.args[0].tolist() == [1.5, 2.5] and case.meta["devices"] == ["cuda:0"]
    assert ref.path == f"{pack}#{FOLDER}" and load_case(f"{pack}#{FOLDER}").name == "torch.add"
    renamed = pack.with_name("renamed")
    pack.rename(renamed)
    (ref,) = find_cases(renamed)
    assert ref.operator == "torch.add"


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "header is wrong"),
        (b"x" * 100, "header is wrong"),
        (header(major=3), "container of format 3"),
        (header(order=2), "other byte order"),
    ],
)
def test_containers_that_are_none(pack, content, words):
    pack.write_bytes(content)
    (ref,) = find_cases(pack)
    assert words in ref.error and str(pack) in ref.error


def test_a_container_that_names_no_such_case(pack):
    (ref,) = find_cases(f"{pack}#other")
    assert "the container has no case 'other'" in ref.error


def rewrite(path, data, stamps=iter(range(1, 10_000))):  # noqa: B008 (one clock for all)
    """Another content at another time: files of one moment and size are taken for the same."""
    path.write_bytes(data)
    os.utime(path, (1, next(stamps)))


def test_damage_in_a_container(pack):
    data, item = make_pack(), 192
    second = make_item(3, 64, path=FOLDER.replace("/1/", "/2/") + "/input.pth")
    rewrite(pack, data + second)
    assert [ref.id for ref in find_cases(pack)] == [1, 2]
    for place in (item, item + 8, item + 60, item + 64, item + 64 + 30):  # marker, number, checksum, reference, path
        broken = bytearray(data + second)
        broken[place] ^= 1
        rewrite(pack, broken)
        assert [ref.id for ref in find_cases(pack)] == [2]
    broken = bytearray(data + second)
    broken[64 + 64] ^= 1  # the blob's bytes
    rewrite(pack, broken)
    for ref in find_cases(pack):
        with pytest.raises(CaseError, match="checksum is wrong"):
            load_case(ref)
    for cut in range(1, len(second)):
        rewrite(pack, (data + second)[:-cut])
        assert [ref.id for ref in find_cases(pack)][:1] == [1]


@pytest.mark.parametrize(
    "changes",
    [
        {"offset": 1 << 60},
        {"offset": 65},
        {"offset": 128},
        {"size": 4},
        {"size": 1 << 60},
        {"size": 0},
        {"blob": 5},
    ],
    ids=str,
)
def test_references_to_blobs(pack, changes):
    item = make_item(2, **{"offset": 64, **changes})
    pack.write_bytes(header() + frame(1, 1, struct.pack("<2f", 1.5, 2.5)) + item)
    (ref,) = find_cases(pack)
    with pytest.raises(CaseError, match=r"not where it should be|has 0 bytes"):
        load_case(ref)


@pytest.mark.parametrize(
    "path", ["/etc/x/input.pth", "../input.pth", "a/../../input.pth", "a//input.pth", "a/\0/input.pth"]
)
def test_paths_that_leave_a_container(pack, path):
    pack.write_bytes(header() + frame(1, 1, struct.pack("<2f", 1.5, 2.5)) + make_item(2, 64, path=path))
    assert list(find_cases(pack)) == []


def test_frames_inside_frames_end(pack):
    """Heads that all claim the rest of the file, with nothing behind it: each would be checked to the end, which is
    quadratic work."""
    count = 3000
    body = b""
    for number in range(count):
        size = max((count - number - 1) * 64 - 4, 1)
        head = b"\xc3\x7a\xd0\xa5" + struct.pack("<HHQQIIQQ", 2, 0, number + 1, size, 0, 0, size, 0)
        head += bytes(60 - len(head))
        body += head + struct.pack("<I", zlib.crc32(head, 9))
    pack.write_bytes(header() + body + bytes(64))
    (ref,) = find_cases(pack)
    assert "its frames overlap" in ref.error


def test_a_changed_container_is_read_again(pack):
    assert len(list(find_cases(pack))) == 1
    data = pack.read_bytes() + make_item(3, 64, path=FOLDER.replace("/1/", "/2/") + "/input.pth")
    pack.write_bytes(data)
    assert len(list(find_cases(pack))) == 2


# Logs


def write_log(root, *paths):
    log = Log()
    for number, path in enumerate(paths, 1):
        log.add("capture", number, {"id": number, "name": "torch.add", "what": "input", "path": path})
    os.makedirs(root / "log", exist_ok=True)
    return log.write(root / "log" / "ops-r0-p7.dlog")


def test_a_log_names_its_cases(tmp_path):
    save(make_folder(tmp_path))
    save(make_folder(tmp_path, number=2))
    (tmp_path / "capture-r0-p7.dpack").write_bytes(make_pack().replace(b"/7/1/", b"/7/1/"))
    log = write_log(
        tmp_path, f"{FOLDER}/input.pth", f"{FOLDER}/output.pth", FOLDER.replace("/1/", "/3/") + "/input.pth"
    )
    refs = list(find_cases(log))
    assert [ref.id for ref in refs] == [1, 3]
    assert "there is no input.pth" in refs[1].error and load_case(refs[0]).name == "torch.add"


@pytest.mark.parametrize(
    "path", ["/etc/passwd/input.pth", "../../x/input.pth", "a/../../../b/input.pth", "input.pth", ""]
)
def test_a_log_names_files_beside_it_alone(tmp_path, path):
    (ref,) = find_cases(write_log(tmp_path, path))
    assert "a log names files beside it alone" in ref.error


def test_a_log_that_is_none(tmp_path):
    os.makedirs(tmp_path / "log")
    (tmp_path / "log" / "x.dlog").write_bytes(b"nonsense")
    (ref,) = find_cases(tmp_path / "log" / "x.dlog")
    assert "x.dlog" in ref.error


# What OpCapture writes


@pytest.mark.parametrize("layout", ["files", "packed"])
def test_what_opcapture_writes(layout, tmp_path, device):
    from op_tools import OpCapture

    x = torch.randn(3, 4, device=device, requires_grad=True)
    with OpCapture(layout=layout, results=str(tmp_path)):
        values, _ = torch.sort(x[1:, ...], dim=1)
        values.square().sum().backward()
        x.detach().add_(1, alpha=2)
    cases = {case.name: case for case in map(load_case, find_cases(tmp_path))}
    assert (
        sorted(cases)
        == [
            *("torch.Tensor.__getitem__", "torch.Tensor.add_", "torch.Tensor.square", "torch.Tensor.sum", "torch.sort"),
        ]
        or "torch.Tensor.detach" in cases
    )
    case = cases["torch.sort"]
    assert torch.equal(case.output.values, values.detach().cpu()) and type(case.output) is torch.return_types.sort
    assert case.args[0].device.type == "cpu" and case.args[0].requires_grad and case.meta["devices"] == ["cuda:0"]
    assert cases["torch.Tensor.__getitem__"].args[1] == (slice(1, None, None), Ellipsis)
    assert torch.equal(case.grad_outputs[0], 2 * values.detach().cpu()) and case.grad_inputs[0].shape == (2, 4)
    assert cases["torch.Tensor.add_"].kwargs == {"alpha": 2}
