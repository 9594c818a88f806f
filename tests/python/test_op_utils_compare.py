"""op_tools.utils.compare_result and its parts: the original's own tests by name, then one test per defect."""

import math
import sys

import pytest
import torch
from op_tools.utils import compare_result, get_error_tolerance, tensor_cos_similarity

TOLERANCE = "AUTOCOMPARE_ERROR_TOLERANCE"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    import os

    for name in list(os.environ):
        if TOLERANCE in name:
            monkeypatch.delenv(name)


@pytest.fixture(params=["native", "torch"], autouse=True)
def engine(request, monkeypatch):
    """Every test runs with the fused pass in C where it exists, and without."""
    if request.param == "torch":
        monkeypatch.setitem(sys.modules, "ditorch._C", None)
    else:
        import ditorch  # noqa: F401
    return request.param


def check_close(a, b, **options):
    result = compare_result("test", a, b, **options)
    assert result["allclose"] is True
    assert result["max_abs_diff"] == 0
    assert result["max_relative_diff"] == 0
    return result


def check_far(a, b, **options):
    result = compare_result("test", a, b, **options)
    assert result["allclose"] is False
    return result


# The original's test_compare_result


def test_same_tensor(device):
    x = torch.randn(3, 4, 5)
    for a, b in ((x, x.clone()), (x.to(device), x), (x.to(device), x.to(device))):
        result = check_close(a, b)
        assert result["error_info"] == ""
        assert isinstance(result["result_list"], list)


def check_randn(a, b, flat_a, flat_b):
    result = check_far(a, b)
    assert result["max_abs_diff"] == max((x - y).abs().max().item() for x, y in zip(flat_a, flat_b, strict=True))
    relative = max(((x - y).abs() / (x.abs() + 1e-6)).max().item() for x, y in zip(flat_a, flat_b, strict=True))
    assert result["max_relative_diff"] == pytest.approx(relative, abs=1e-3, rel=1e-6)
    assert result["error_info"] == ""
    assert len(result["result_list"]) == len(flat_a)


def test_randn_tensor():
    a, b = torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    check_randn(a, b, [a], [b])


def test_randn_tensor_list():
    a, b = [torch.randn(7) for _ in range(4)], [torch.randn(7) for _ in range(4)]
    check_randn(a, b, a, b)


def test_same_int_list():
    check_close(list(range(10)), list(range(10)))


def test_diff_int_list():
    result = check_far(list(range(10)), [2 * t for t in range(10)])
    assert result["max_abs_diff"] == 9
    assert result["max_relative_diff"] <= 1


def test_same_torch_return_type(device):
    x = torch.randn(5, 6)
    check_close(x.to(device).sort(), x.sort())


def test_diff_torch_return_type():
    check_far(torch.randn(5, 6).sort(), torch.randn(5, 6).sort())


def test_same_int():
    for i in range(-3, 10):
        check_close(i, i)


def test_different_int():
    for i in range(10):
        a, b = i, 2 * i + 10
        result = check_far(a, b)
        assert result["max_abs_diff"] == i + 10
        assert result["max_relative_diff"] < abs(a - b) / b


def test_same_float():
    check_close(0.25, 0.25)


def test_different_float():
    result = check_far(0.5, 2.5)
    assert result["max_abs_diff"] == 2.0
    assert result["max_relative_diff"] < 2.0 / 2.5


def test_same_bool():
    check_close(True, True)
    check_close(False, False)


def test_different_bool():
    result = check_far(True, False)
    assert math.isnan(result["max_abs_diff"]) and math.isnan(result["max_relative_diff"])


def test_empty_tensor(device):
    check_close(torch.empty(0, 3, device=device), torch.empty(0, 3))


def test_empty_list():
    result = check_close([], [])
    assert result["result_list"] == []


def test_diff_shape_tensor():
    result = check_far(torch.randn(2, 3), torch.randn(3, 2))
    assert "Inconsistent shape" in result["error_info"]
    assert (result["atol"], result["rtol"]) == (0, 0)


def test_mixed_types():
    check_far([1, 2.0], [1.0, 2])


def test_invalid_value_a():
    check_far("text", 1)


def test_invalid_value_b():
    check_far(1, "text")


def test_invalid_type():
    check_close({}, [])


def test_same_dict():
    check_close({"a": 1, "b": torch.ones(2)}, {"a": 1, "b": torch.ones(2)})


def test_same_dict_list_value():
    check_close({"a": [1, torch.ones(2)]}, {"a": [1, torch.ones(2)]})


def test_different_dict():
    check_far({"a": 1}, {"a": 2})


def test_different_dict2():
    check_far({"a": 1}, {"b": 1})


def test_different_dict_list_value():
    check_far({"a": [1, 2]}, {"a": [1, 3]})


def test_dict_different_shape():
    check_far({"a": torch.ones(2)}, {"a": torch.ones(3)})


def test_dict_different_list_shape():
    result = check_far({"a": [1, 2]}, {"a": [1]})
    assert result["error_info"].startswith("Inconsistent output length: 3 2, ")
    assert set(result) == {"allclose", "max_abs_diff", "max_relative_diff", "error_info", "atol", "rtol", "result_list"}
    assert math.isnan(result["atol"]) and math.isnan(result["max_abs_diff"]) and result["result_list"] == []


def test_invalid_input():
    check_close([], [])
    check_close(torch.empty(0), torch.empty(0))
    check_close([torch.ones(1), torch.ones(1)], [torch.ones(1), torch.ones(1)])
    check_close((), [])
    x = torch.rand(4) + 1
    check_far(x, -x)
    check_far("a", 1)


def test_cosine_similarity():
    x, y = torch.randn(100), torch.randn(100)
    assert abs(tensor_cos_similarity(x, x) - 1) < 1e-6
    assert abs(tensor_cos_similarity(x, -x) + 1) < 1e-6
    assert -1 <= tensor_cos_similarity(x, y) <= 1


def test_compare_device():
    check_far("cuda", "cpu")
    check_close("cuda", "cpu", ignore_index=0)
    check_close(["cuda", torch.device("cpu")], ["cuda", torch.device("cpu")])
    a, b = [torch.ones(2), 1, "cuda:0"], [torch.ones(2), 1, "cpu"]
    check_far(a, b)
    check_close(a, b, ignore_index=2)


# Rows


def test_row_format():
    a = torch.tensor([1.0, 2.0], dtype=torch.float16)
    result = compare_result("torch.add output", [a, 1], [a.double() + 1, 1])
    assert result["result_list"] == [
        {
            "name": "torch.add output[0]           ",
            "allclose": False,
            "cosine_similarity": f"{8 / math.sqrt(65):1.9f}",
            "max_abs_diff": "1.000000000",
            "max_relative_diff": f"{1 / (1 + 1e-6):10.9f}",
            "atol": "0.000100000",
            "rtol": "0.000100000",
            "error_info": "Inconsistent dtypes: torch.float16 torch.float64",
        },
        {
            "name": "torch.add output[1]           ",
            "allclose": True,
            "cosine_similarity": "1.000000000",
            "max_abs_diff": "0.000000000",
            "max_relative_diff": "0.000000000",
            "atol": "0.000001000",
            "rtol": "0.000001000",
            "error_info": "",
        },
    ]
    assert list(result) == (
        "allclose cos_similarity max_abs_diff max_relative_diff error_info atol rtol name result_list".split()  # noqa: SIM905
    )
    assert result["atol"] == 1e-4 and result["name"] == "torch.add output"


def test_objects_without_order():
    class Odd:
        def __eq__(self, other):
            raise RuntimeError("no comparison")

        __hash__ = object.__hash__

    result = check_far(Odd(), Odd())
    assert result["error_info"].startswith("no comparison value: ")
    assert compare_result("t", slice(1, 2), slice(1, 2))["error_info"] == " value: slice(1, 2, None) slice(1, 2, None)"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_against_float64(dtype, device):
    seed = 1700
    generator = torch.Generator().manual_seed(seed)
    for shape, step in (((1,), 1), ((7, 9), 1), ((40, 33), 2), ((3, 1, 5), 1)):
        a = torch.randn(shape, generator=generator, dtype=torch.complex64 if dtype.is_complex else torch.float32)
        b = (a + 1e-3 * torch.randn(shape, generator=generator)).to(dtype)[::step]
        a = a.to(dtype)[::step]
        wide = torch.complex128 if dtype.is_complex else torch.float64
        difference = (a.to(wide) - b.to(wide)).abs()
        result = compare_result("t", a.to(device), b)
        atol, rtol = get_error_tolerance(dtype, "t")
        close = bool((difference <= atol + rtol * b.to(wide).abs()).all())
        message = f"seed {seed} {dtype} {shape}"
        assert result["allclose"] is close, message
        assert result["max_abs_diff"] == pytest.approx(difference.max().item(), rel=1e-6), message
        relative = (difference / (a.to(wide).abs() + 1e-6)).max().item()
        assert result["max_relative_diff"] == pytest.approx(relative, rel=1e-9), message


# Defects of the original


def test_a1_tolerance_of_the_operator_not_of_the_label(monkeypatch):
    monkeypatch.setenv("LINEAR_" + TOLERANCE + "_FLOAT32", "1e-1,0")
    a, b = torch.zeros(3), torch.full((3,), 0.05)
    assert compare_result("torch.nn.functional.linear output", a, b)["allclose"]
    assert compare_result("any label", a, b, op_name="torch.nn.functional.linear")["allclose"]
    assert not compare_result("torch.add output", a, b)["allclose"]
    assert not compare_result("torch.nn.functional.linear output", a, b, op_name="torch.add")["allclose"]


def test_a10_equal_infinities_and_nans_differ_by_nothing():
    special = torch.tensor([math.inf, -math.inf, math.nan, 1.0])
    check_close(special, special.clone())
    check_close(math.inf, math.inf)
    check_close(-math.inf, -math.inf)
    check_close(math.nan, math.nan)
    result = check_far(torch.tensor([math.inf, 1.0]), torch.tensor([-math.inf, 1.0]))
    assert result["max_abs_diff"] == math.inf and result["max_relative_diff"] == math.inf
    assert check_far(torch.tensor([math.inf]), torch.tensor([1.0]))["max_relative_diff"] == math.inf
    assert math.isnan(check_far(torch.tensor([math.nan, 9.0]), torch.tensor([1.0, 0.0]))["max_abs_diff"])
    assert check_far(math.inf, 1.0)["max_abs_diff"] == math.inf


def test_a10_zero_vectors_have_a_cosine():
    zero, one = torch.zeros(4), torch.ones(4)
    assert tensor_cos_similarity(zero, zero) == 1
    assert tensor_cos_similarity(zero, one) == 0
    assert compare_result("t", zero, zero)["cos_similarity"] == 1


def test_a10_unsigned_difference_does_not_wrap():
    a, b = torch.tensor([1], dtype=torch.uint8), torch.tensor([3], dtype=torch.uint8)
    assert compare_result("t", a, b)["max_abs_diff"] == 2
    big = torch.tensor([2**62 + 1, 5]), torch.tensor([2**62, 5])
    result = compare_result("t", *big)
    assert result["max_abs_diff"] == 1 and result["allclose"]


def test_a10_half_precision_does_not_overflow():
    a, b = torch.tensor([60000.0], dtype=torch.float16), torch.tensor([-60000.0], dtype=torch.float16)
    limit = torch.finfo(torch.float16).max
    assert compare_result("t", a, b)["max_abs_diff"] == 2 * a.item() > limit
    x, y = torch.tensor([1.0, 3.0]).bfloat16(), torch.tensor([1.0, 3.0 + 2**-6]).bfloat16()
    assert compare_result("t", x, y)["max_abs_diff"] == 2**-6


def test_a10_worst_item_is_reported():
    result = compare_result("t", [True, 1.0], [False, 1.0])
    assert math.isnan(result["max_abs_diff"])
    assert result["cos_similarity"] == -1
    result = compare_result("t", [torch.ones(3), torch.ones(3)], [torch.ones(3), -torch.ones(3)])
    assert result["cos_similarity"] == pytest.approx(-1)


def test_a10_types_of_the_items():
    result = compare_result("t", [1], [1.0])
    assert result["error_info"] == "Inconsistent types: <class 'int'> <class 'float'>"


def test_a10_length_message_shows_no_values():
    result = compare_result("t", [torch.ones(1000)], [torch.ones(1000), 1])
    assert len(result["error_info"]) < 200


def test_tensors_without_memory_are_not_comparable():
    result = compare_result("t", torch.empty(3, device="meta"), torch.ones(3))
    assert result["allclose"] is False and "not comparable" in result["error_info"]


def test_sparse_tensors():
    x = torch.eye(3).to_sparse()
    check_close(x, x.clone())
    check_far(x, (2 * x).coalesce())


# The original's test_get_error_tolerance


BUILT_IN = {torch.float16: 1e-4, torch.bfloat16: 1e-3, torch.float32: 1e-5, torch.float64: 1e-8}


def test_default():
    for dtype, value in BUILT_IN.items():
        assert get_error_tolerance(dtype, "test.op_name") == (value, value)


def test_environment_variable_override(monkeypatch):
    monkeypatch.setenv(TOLERANCE, "1e-2,2e-2")
    assert get_error_tolerance(torch.float32, "test.op_name") == (1e-2, 2e-2)
    monkeypatch.setenv(TOLERANCE + "_FLOAT32", "3e-2,4e-2")
    assert get_error_tolerance(torch.float32, "test.op_name") == (3e-2, 4e-2)
    assert get_error_tolerance(torch.float16, "test.op_name") == (1e-2, 2e-2)


def test_operation_specific_override(monkeypatch):
    monkeypatch.setenv(TOLERANCE, "1e-2,2e-2")
    monkeypatch.setenv(TOLERANCE + "_FLOAT32", "3e-2,4e-2")
    monkeypatch.setenv("OP_NAME_" + TOLERANCE + "_FLOAT32", "5e-2,6e-2")
    assert get_error_tolerance(torch.float32, "test.op_name") == (5e-2, 6e-2)
    assert get_error_tolerance(torch.float32, "test.other") == (3e-2, 4e-2)


def test_unknown_dtype(monkeypatch):
    assert get_error_tolerance(torch.int32, "test.op_name") == (1e-3, 1e-3)
    monkeypatch.setenv(TOLERANCE, "1e-2,2e-2")
    assert get_error_tolerance(torch.int32, "test.op_name") == (1e-2, 2e-2)


def test_get_error_tolerance():
    for dtype in (*BUILT_IN, torch.int8, torch.bool):
        assert min(get_error_tolerance(dtype, "torch.add")) > 0


def test_a16_inplace_operator_finds_the_plain_variable(monkeypatch):
    monkeypatch.setenv("MUL_" + TOLERANCE + "_FLOAT32", "5e-2,6e-2")
    assert get_error_tolerance(torch.float32, "torch.Tensor.mul_") == (5e-2, 6e-2)
    monkeypatch.setenv("MUL__" + TOLERANCE + "_FLOAT32", "7e-2,8e-2")
    assert get_error_tolerance(torch.float32, "torch.Tensor.mul_") == (7e-2, 8e-2)


def test_tolerance_is_relative_to_the_reference(monkeypatch):
    monkeypatch.setenv(TOLERANCE, "0,0.6")
    for make in (torch.tensor, lambda value: torch.tensor(value).double()):
        assert compare_result("t", make([1.0]), make([2.0]))["allclose"]
        assert not compare_result("t", make([2.0]), make([1.0]))["allclose"]


def test_bad_tolerance_names_the_variable(monkeypatch):
    monkeypatch.setenv(TOLERANCE, "1e-2")
    with pytest.raises(ValueError, match=r"AUTOCOMPARE_ERROR_TOLERANCE='1e-2'.*atol,rtol"):
        get_error_tolerance(torch.float32, "torch.add")
