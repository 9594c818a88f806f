"""op_tools.utils: containers, devices, names, location, options. The original's tests by name, then the defects."""

import collections
import dataclasses
import inspect
import math
import os

import pytest
import torch
from op_tools.utils import (
    current_location,
    get_dtype_cast_dict_form_str,
    get_function_from_string,
    get_option,
    is_cpu_op,
    is_inf_or_nan,
    is_inplace_op,
    is_opname_match,
    is_view_op,
    map_container,
    set_option_if_empty,
    to_device,
    traverse_container,
)

# The original's test_current_location


def innermost_function():
    return current_location(stack_depth=-2, print_stack=True)


def middle_function():
    return innermost_function()


def outer_function():
    return middle_function()


def test_current_location(capsys):
    location = outer_function()
    assert isinstance(location, str)
    assert "innermost_function" in location and os.path.basename(__file__) in location
    line = innermost_function.__code__.co_firstlineno + 1
    source = "return current_location(stack_depth=-2, print_stack=True)"
    assert location == f"{__file__}:{line} innermost_function: {source}"
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].startswith(f"{__file__}:") and printed[-1].endswith(
        " middle_function return innermost_function()"
    )
    assert any(" outer_function return middle_function()" in text for text in printed)
    assert not any("innermost_function return current_location" in text for text in printed)


def test_location_of_the_user_not_of_torch():
    class Module(torch.nn.Module):
        def forward(self):
            return self.register

    places = []
    model = torch.nn.Linear(2, 2)
    model.register_forward_hook(lambda *args: places.append(current_location()))
    model(torch.ones(2))
    assert f"{__file__}:" in places[0] and "<lambda>" in places[0]


def test_i17_user_files_with_torch_in_their_path(tmp_path, python):
    folder = tmp_path / "torch_project"
    folder.mkdir()
    (folder / "torch_train.py").write_text("from op_tools.utils import current_location\nprint(current_location())\n")
    answer = python(str(folder / "torch_train.py")).stdout
    assert answer == f"{folder}/torch_train.py:2 <module>: print(current_location())\n"


def test_print_stack_variable(monkeypatch, capsys):
    monkeypatch.setenv("OP_TOOLS_PRINT_STACK", "1")
    current_location()
    assert capsys.readouterr().out
    monkeypatch.setenv("OP_TOOLS_PRINT_STACK", "0")
    current_location()
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("OP_TOOLS_PRINT_STACK", "yes")
    with pytest.raises(ValueError, match="OP_TOOLS_PRINT_STACK='yes'"):
        current_location()


# The original's test_get_function_from_string

FUNCTIONS = """torch.add torch.sub torch.mul torch.div torch.exp torch.cat torch.stack torch.einsum torch.matmul
torch.sort torch.Tensor.add torch.Tensor.add_ torch.Tensor.sub torch.Tensor.mul torch.Tensor.div torch.Tensor.sort
torch.Tensor.__getitem__ torch.Tensor.__setitem__ torch.nn.functional.linear torch.nn.functional.relu
torch.nn.functional.cross_entropy torch.functional.norm torch.linalg.inv torch.fft.fft torch.special.erf"""


def test_get_function_from_string():
    names = FUNCTIONS.split()
    assert len(names) == 25
    for name in names:
        assert inspect.isroutine(get_function_from_string(name)), name


def test_get_class_from_string():
    assert get_function_from_string("torch.nn.Conv2d") is torch.nn.Conv2d
    assert get_function_from_string("torch.Tensor") is torch.Tensor


def test_n7_packages_that_are_not_imported_yet(tmp_path, python):
    package = tmp_path / "alpha_package" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "alpha_package" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "leaf.py").write_text("def function(): return 7\n")
    program = """
        from op_tools.utils import get_function_from_string as get
        assert get("alpha_package.inner.leaf.function")() == 7
        assert get(" alpha_package . inner.leaf .function")() == 7
        for name, error in (("alpha_package.none", AttributeError), ("", ValueError), ("torch.ad", AttributeError),
                            ("torch..add", ValueError), ("alpha_package.inner.leaf.none", AttributeError)):
            try:
                get(name)
            except error:
                pass
            else:
                raise AssertionError(name)
    """
    python(program, cwd=str(tmp_path), PYTHONSAFEPATH=None)


# The original's test_is_cpu_op


def test_is_cpu_op(device):
    x = torch.randn(3)
    assert is_cpu_op(x) == (True, torch.device("cpu"))
    assert is_cpu_op(x.to(device))[0] is False
    assert is_cpu_op(x, device="cpu") == (True, torch.device("cpu"))
    assert is_cpu_op(x, device="cuda")[0] is False
    assert is_cpu_op(3, device=0)[0] is False
    assert is_cpu_op(x, "cuda:0")[1] == torch.device("cuda:0")
    assert is_cpu_op(x, torch.device("cuda"))[0] is False
    assert is_cpu_op([x, {"k": (x, x.to(device))}])[1] == x.to(device).device
    assert is_cpu_op(x, "sum", "ij,jk->ik", None, 1.5, slice(1)) == (True, torch.device("cpu"))


def test_i8_keyword_tensors_are_seen(device):
    x = torch.randn(3, device=device)
    assert is_cpu_op(input=x, other=x) == (False, x.device)
    assert is_cpu_op(tensors=[torch.ones(1), x]) == (False, x.device)
    assert is_cpu_op(input=torch.ones(1), reduction="mean", dim=1) == (True, torch.device("cpu"))
    assert is_cpu_op(input=x, device="cpu") == (False, x.device)


def test_i9_tensors_without_memory(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    meta = torch.empty(2, device="meta")
    assert is_cpu_op(meta) == (True, torch.device("cpu"))
    assert is_cpu_op(torch.ones(2), device="meta") == (True, torch.device("cpu"))
    assert is_cpu_op(torch.ones(2), torch.device("meta"), "meta") == (True, torch.device("cpu"))
    with FakeTensorMode():
        fake = torch.empty(2)
    assert is_cpu_op(fake) == (True, torch.device("cpu"))
    assert is_inf_or_nan(meta) is False and is_inf_or_nan(fake) is False


# The original's test_is_inf_or_nan


def test_is_inf_or_nan(device):
    for value in (math.inf, -math.inf, math.nan):
        for place in ("cpu", device):
            assert is_inf_or_nan(torch.tensor([1.0, value], device=place)) is True
        assert is_inf_or_nan(value) is True
    assert is_inf_or_nan([math.inf, 1.0]) == [True, False]
    assert is_inf_or_nan([torch.tensor(math.nan), 1, "text", None]) == [True, False, False, False]
    assert is_inf_or_nan(torch.randn(10, device=device).sum()) is False
    answer = is_inf_or_nan(torch.randn(4, 5, device=device).sort())
    assert answer == (False, False) and type(answer) is tuple


def test_is_inf_or_nan_of_every_kind():
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.float8_e5m2):
        assert is_inf_or_nan(torch.tensor([1.0, math.inf]).to(dtype)) is True, dtype
        assert is_inf_or_nan(torch.tensor([1.0, 2.0]).to(dtype)) is False, dtype
    for dtype in (torch.int64, torch.uint8, torch.bool):
        assert is_inf_or_nan(torch.ones(3).to(dtype)) is False
    assert is_inf_or_nan(torch.tensor([[0.0, math.nan]]).to_sparse()) is True
    assert is_inf_or_nan(torch.empty(0)) is False
    assert is_inf_or_nan(complex(1, math.inf)) is True
    assert is_inf_or_nan(10**400) is False
    assert is_inf_or_nan({"k": math.nan}) == {"k": True}


# The original's test_opname_match

NAMES = """torch.add torch.sub torch.mul torch.div torch.nn.functional.linear torch.nn.functional.relu torch.Tensor.add
torch.Tensor.add_ torch.Tensor.sub torch.Tensor.sub_ torch.Tensor.mul torch.Tensor.mul_ torch.Tensor.div
torch.Tensor.div_ torch.Tensor.__getitem__ torch.Tensor.__setitem__ torch.Tensor.sort torch.exp torch.cat torch.stack
torch_mlu.fused_l2_norm npu.npu_fusion_attention"""


@pytest.mark.parametrize(
    "name,pattern,answer",
    [
        ("torch.add", "torch.add", True),
        ("torch.add", "torch.addc", False),
        ("torch.addc", "torch.add", False),
        ("torch.subc", ".*", True),
        ("torch.subc", "torch.add,.*", True),
        ("torch.add", "", False),
        ("torch_mlu.fused_l2_norm", "torch_mlu.*", True),
        ("torch.add", "(torch.add)", True),
        ("torch.add", "add", False),
        ("torch.add", ".*add", True),
        (None, ".*", False),
        ("torch.add", None, True),
    ],
)
def test_opname_match(name, pattern, answer):
    assert is_opname_match(name, pattern) is answer


def test_long_op_list():
    names = NAMES.split()
    assert len(names) == 22
    joined = ",".join(names)
    for name in names:
        assert is_opname_match(name, joined)
    assert not is_opname_match("conv2d", joined)


@pytest.mark.parametrize(
    "name,pattern,answer",
    [
        ("torch.sub", "torch.add, torch.sub ", True),
        ("torch.addc", "torch.add|torch.addc", True),
        ("torch.add", "(torch).(add)", True),
        ("torchXadd", "torch.add", False),
        ("torch.add", "torch.[a,d]+", True),
        ("torch.aa", r"torch.a{1,2},x", True),
        ("torch.add", r"torch\.(sub|add)", True),
        ("torch.addmm", "torch.(add),", False),
        (" ", " , ", False),
    ],
)
def test_i14_whole_names_and_whole_entries(name, pattern, answer):
    assert is_opname_match(name, pattern) is answer


def test_i14_bad_pattern_is_named():
    with pytest.raises(ValueError, match=r"'torch\.\(add'.*position 6"):
        is_opname_match("torch.add", "torch.sub,torch.(add")


def test_inplace_op():
    assert is_inplace_op("torch.Tensor.add_") and is_inplace_op("torch.Tensor.__setitem__")
    assert is_inplace_op("torch.Tensor.to") and is_inplace_op("torch.Tensor.contiguous")
    assert not is_inplace_op("torch.Tensor.__getitem__") and not is_inplace_op("torch.add_")
    assert not is_inplace_op("torch.Tensor.add")


def test_a3_out_is_found_by_identity():
    x, y = torch.ones(3), torch.ones(3)
    assert is_inplace_op("torch.exp", x, out=x)
    assert not is_inplace_op("torch.exp", y, x.clone(), out=x)
    assert is_inplace_op("torch.nn.functional.relu", x, inplace=True)
    assert not is_inplace_op("torch.nn.functional.relu", x, inplace=False)


def test_view_op():
    assert is_view_op("torch.Tensor.view") and is_view_op("torch.Tensor.T")
    assert not is_view_op("torch.Tensor.add_")


MAP = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}


def test_get_dtype_cast_dict_from_config():
    text = "torch.float16->torch.float32,torch.bfloat16->torch.float32,torch.float32->torch.float64"
    assert get_dtype_cast_dict_form_str(text) == MAP


def test_get_dtype_cast_dict_from_config2():
    text = " torch.half  ->  torch.float32 , torch.bfloat16-> torch.float32 ,  torch.float32 ->torch.float64 "
    assert get_dtype_cast_dict_form_str(text) == MAP


def test_a16_empty_and_bad_dtype_maps():
    assert get_dtype_cast_dict_form_str("") == get_dtype_cast_dict_form_str(None) == {}
    for bad, word in (("torch.float16", "form"), ("a->b->c", "form"), ("torch.add->torch.float32", "torch.add")):
        with pytest.raises(ValueError, match=word):
            get_dtype_cast_dict_form_str(bad)


# Containers

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass(frozen=True)
class Box:
    value: object
    note: str = "n"


def test_traverse_container_sort():
    assert len(list(traverse_container(torch.randn(3, 4).sort()))) == 2


def test_traverse_container_with_dtype():
    assert list(traverse_container(torch.float16)) == [torch.float16]


def test_traverse_container_with_shape():
    assert list(traverse_container(torch.ones(2, 3).shape)) == [2, 3]


def test_traverse_container_order():
    nested = {"a": [1, (2.0, {3})], ("b", "c"): Pair(None, Box(4))}
    assert list(traverse_container(nested)) == ["a", 1, 2.0, 3, "b", "c", None, 4, "n"]
    assert list(traverse_container("text")) == ["text"]


def test_i10_only_containers_are_walked():
    numpy = pytest.importorskip("numpy")
    array, storage = numpy.arange(10**6), torch.zeros(10**6).untyped_storage()
    assert len(list(traverse_container([array]))) == 1
    assert len(list(traverse_container(storage))) == 1
    tensor = torch.ones(1000)
    assert next(traverse_container(tensor)) is tensor


def test_i10_a_container_inside_itself():
    loop: list = [1]
    loop.append(loop)
    items = list(traverse_container(loop))
    assert items[0] == 1 and items[1] is loop and len(items) == 2
    shared = [2]
    assert list(traverse_container([shared, shared])) == [2, 2]
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    assert len(list(traverse_container(deep))) == 1


def test_i11_mapping_keeps_the_types(device):
    x = torch.randn(3, 4)
    moved = to_device(device, x.max(dim=1))
    assert type(moved) is type(x.max(dim=1)) and moved.values.device.type == "cuda"
    ordered = collections.OrderedDict(a=x)
    assert type(to_device(device, ordered)) is collections.OrderedDict
    default = collections.defaultdict(list, a=x)
    mapped = to_device(device, default)
    assert type(mapped) is collections.defaultdict and mapped["missing"] == []
    assert type(default["a"]) is torch.Tensor and default["a"].device.type == "cpu"
    box = to_device(device, Box([x]))
    assert type(box) is Box and box.value[0].device.type == "cuda"
    assert map_container(torch.Size([2, 3]), lambda n: n + 1) == torch.Size([3, 4])
    assert type(map_container(torch.Size([2, 3]), str)) is tuple


def test_i12_named_tuples(device):
    pair = Pair(torch.ones(2), "text")
    moved = to_device(device, pair)
    assert type(moved) is Pair and moved.left.device.type == "cuda" and moved.right == "text"


def test_to_device(device):
    x = torch.randn(3, requires_grad=True)
    args = (x, torch.device("cuda"), "cuda:0", "sum", 2, None)
    moved = to_device("cpu", args, dtype_cast_dict={torch.float32: torch.float64})
    assert moved[0].dtype == torch.float64 and moved[0].grad_fn is not None
    assert moved[1:] == (torch.device("cpu"), "cpu", "sum", 2, None)
    detached = to_device(device, x, detach=True)
    assert detached.is_leaf and detached.requires_grad and detached.device.type == "cuda"
    integers = to_device("cpu", x, detach=True, dtype_cast_dict={torch.float32: torch.int64})
    assert integers.dtype == torch.int64 and not integers.requires_grad


# Options


def test_i15_options_never_write_the_environment(monkeypatch, capsys):
    name = "OP_TOOLS_TEST_OPTION_A"
    monkeypatch.delenv(name, raising=False)
    assert get_option(name) is None
    assert get_option(name, "100") == "100"
    assert get_option(name, "5000") == "5000"
    set_option_if_empty(name, "7")
    assert name not in os.environ
    assert get_option(name, "100") == "7"
    set_option_if_empty(name, "8")
    assert get_option(name) == "7"
    monkeypatch.setenv(name, "9")
    assert get_option(name, "100") == "9"
    set_option_if_empty(name, "8")
    assert get_option(name) == "9"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"option: {name}=100" and lines.count(f"option: {name}=7") >= 1
    get_option(name, "100")
    assert capsys.readouterr().out == ""


# Imports


def test_i21_import_touches_no_device(python):
    program = """
        import sys
        import torch
        import op_tools.utils, op_tools.save_op_args, op_tools.pretty_print, op_tools.legacy.console
        for name in ("prettytable", "psutil"):
            assert name not in sys.modules, name
        assert not torch.cuda.is_initialized()
    """
    python(program)
