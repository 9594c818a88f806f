"""Case files, their schema, and that a case is the same whenever it is made."""

import hashlib
import json

import pytest
import torch
from ditorch import diopi
from ditorch.conform import expand, pack, references, schema
from ditorch.conform.case import RequiredArgument, TensorArgument
from ditorch.conform.data import GENERATORS, apply_layout, make_values
from ditorch.conform.names import RUNS

ENTRY = {
    "name": "basic",
    "functions": ["diopiSoftmax"],
    "arguments": {"input": {"shape": [[3, 5], [4]]}, "dim": [1, 0]},
}


@pytest.fixture(scope="module")
def entries():
    return schema.read_all()


@pytest.fixture(scope="module")
def cases(entries):
    return expand.list_cases(entries)


def pick(cases, text):
    return next(case for case in cases if str(case) == text)


def write(tmp_path, *tables, **more):
    path = tmp_path / "family.json"
    path.write_text(json.dumps({"family": "softmax", "entries": list(tables), **more}))
    return str(path)


# Coverage


def test_numbers(cases):
    ids = [str(case) for case in cases]
    assert len(set(ids)) == len(ids) >= 5000
    assert {case.dtype for case in cases} >= {"bfloat16", "float16", "float64", "int8", "bool", "complex64", "uint16"}
    assert {case.layout for case in cases} == {*schema.STANDARD_LAYOUTS, *RUNS, "inplace", "error"}


def test_every_exported_function_has_a_case(cases):
    library = diopi.Library("host")
    queries = {info.name for info in diopi.list_functions() if info.family == "library_info"}
    without = sorted(set(library.list_implemented()) - queries - {case.function for case in cases})
    library.close()
    assert not without, f"no case for {', '.join(without)}: write one in python/ditorch/conform/cases"


def test_every_function_with_cases_has_a_reference_and_its_family(entries):
    families = {info.name: info.family for info in diopi.list_functions()}
    for entry in entries:
        for function in entry.functions:
            assert references.find(entry.reference or function), f"{function} has no reference"
            assert families[function] == entry.family


def test_every_reference_has_cases(cases):
    assert set(references.REFERENCES) <= {case.function for case in cases}


def test_a_large_reduction_per_reducing_function(cases):
    large = {case.function for case in cases if case.entry.name.startswith("large")}
    for name in ("Sum", "Mean", "Std", "Max", "Min", "Amax", "Argmax", "Norm", "Prod", "Cumsum", "Softmax", "Mm"):
        assert f"diopi{name}" in large


# The same case every time


def get_inputs(case):
    digest = hashlib.sha256()
    for argument in case.arguments:
        for part in argument if isinstance(argument, list) else [argument]:
            if isinstance(part, TensorArgument) and part.role != "out":
                data = (
                    part.tensor.contiguous().reshape(-1).view(torch.uint8) if part.tensor.numel() else torch.tensor([])
                )
                digest.update(bytes(data.tolist()))
    return digest.hexdigest()[:16]


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("diopiAdd/basic/float32/strided/0", "ae8cc15dd2d62e5f"),
        ("diopiSort/ties/int64/contiguous/0", "d4f23559cb33ea9b"),
        ("diopiEmbedding/basic/bfloat16/expanded/1", "5f374c693d83e4d1"),
        ("diopiMul/special/float16/contiguous/0", "40d496f37f6be6d9"),
    ],
)
def test_inputs_are_pinned(cases, text, digest):
    """The values follow from the id alone, on every machine and with every version."""
    assert get_inputs(expand.build(pick(cases, text))) == digest


def test_equal_ids_give_equal_packs(cases):
    for case in cases[:: len(cases) // 60]:
        assert pack.encode(expand.build(case)) == pack.encode(expand.build(case)), str(case)


def test_the_seed_changes_values_and_nothing_else(cases):
    case = pick(cases, "diopiAdd/basic/float32/strided/0")
    first, second = expand.build(case, 0), expand.build(case, 1)
    assert get_inputs(first) != get_inputs(second)
    assert [a.tensor.stride() for a in first.arguments[:3]] == [a.tensor.stride() for a in second.arguments[:3]]


def test_find_case_names_what_is_near(entries):
    assert str(expand.find_case(entries, "diopiExp/basic/float32/contiguous/0")).startswith("diopiExp/")
    with pytest.raises(ValueError, match="cases of diopiExp look like diopiExp/basic"):
        expand.find_case(entries, "diopiExp/basic/float32/contiguous/99")
    with pytest.raises(ValueError, match="no function 'diopiNothing'"):
        expand.find_case(entries, "diopiNothing/basic/float32/contiguous/0")


# What cases hold


def test_layouts():
    tensor = torch.arange(24.0).reshape(2, 3, 4)
    for layout in schema.STANDARD_LAYOUTS:
        for written in (False, True):
            placed = apply_layout(tensor, layout, 1, written)
            if layout != "expanded":
                assert torch.equal(placed, tensor), layout
    assert not apply_layout(tensor, "transposed", 0, False).is_contiguous()
    assert apply_layout(tensor, "transposed", 0, True).is_contiguous()
    strides = [apply_layout(tensor, "strided", number, True).stride() for number in (0, 1)]
    assert strides[0] != strides[1] and strides[0][-1] > 1
    assert apply_layout(tensor, "offset", 0, True).storage_offset() > 0
    assert 0 in apply_layout(tensor, "expanded", 0, False).stride()
    assert 0 not in apply_layout(tensor, "expanded", 0, True).stride()
    image = apply_layout(torch.zeros(2, 3, 4, 5), "channels_last", 0, True)
    assert image.is_contiguous(memory_format=torch.channels_last)


def test_gaps_hold_no_usable_value():
    placed = apply_layout(torch.ones(3, 4), "strided", 0, False)
    whole = placed.as_strided((placed.untyped_storage().nbytes() // 4,), (1,), 0)
    assert int(whole.isnan().sum()) == whole.numel() - 12


def test_inplace_and_error_cases(cases):
    shared = expand.build(pick(cases, "diopiAdd/basic/float32/inplace/0"))
    assert shared.arguments[0].alias == 1 and shared.arguments[0].tensor is shared.arguments[1].tensor
    kinds = set()
    for case in cases:
        if case.layout == "error" and case.function in ("diopiAdd", "diopiGather", "diopiSoftmax"):
            built = expand.build(case)
            kinds.add(built.tags["what"].split()[0])
            assert built.expect == "error"
            for argument in built.arguments:
                if isinstance(argument, TensorArgument) and argument.role != "in":
                    assert argument.check == "untouched" and argument.expected is None
    assert kinds == {"null", "shape", "overlap", "partial", "context", "host", "entry"}


def test_error_cases_without_context_and_on_the_host(cases):
    def find(function, what):
        return expand.build(next(c for c in cases if c.function == function and c.what == what))

    assert find("diopiAdd", "context ctx").no_context
    out, x, other, _ = find("diopiAdd", "host input").arguments
    assert (out.on_host, x.on_host, other.on_host) == (False, True, False)
    assert [item.on_host for item in find("diopiCat", "host tensors").arguments[1]][:2] == [True, False]
    assert find("diopiZeros", "host out").arguments[0].on_host
    has = {(c.function, c.what.split()[0]) for c in cases if c.layout == "error"}
    lacks = {(f, kind) for f in {c.function for c in cases} for kind in ("context", "host") if (f, kind) not in has}
    assert lacks == {("diopiTensorDestructionHook", "host")}, "it takes no tensor"


def test_results_of_unknown_size(cases):
    built = expand.build(pick(cases, "diopiNonzero/basic/float32/contiguous/0"))
    assert isinstance(built.arguments[0], RequiredArgument) and built.arguments[0].dtype == torch.int64


def test_special_values_have_all_kinds():
    column = schema.Column("input", True, [[40]])
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        values = make_values("special", [40], dtype, "x", column, 0)
        info = torch.finfo(values.dtype)
        assert values.isnan().any() and values.isinf().any() and (values == info.max).any()
        subnormal = (values != 0) & (values.abs() < info.smallest_normal)
        assert subnormal.any() and ((values == 0) & values.signbit()).any()


def test_every_generator_is_used(entries):
    used = {kind for entry in entries for column in entry.arguments.values() for kind in column.values}
    assert used == set(GENERATORS)


# The schema


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"colour": 1}, "colour: unknown key; valid: arguments"),
        ({"functions": ["diopiNothing"]}, "functions: the standard has no 'diopiNothing'"),
        ({"functions": "diopiSoftmax"}, "functions: is str, must be list"),
        ({"functions": []}, "functions: is missing or empty"),
        ({"dtypes": ["float31"]}, "dtypes: 'float31'"),
        ({"layouts": ["diagonal"]}, "layouts: 'diagonal'; valid: contiguous"),
        ({"no_errors": ["nothing"]}, "no_errors: 'nothing'; valid: null"),
        (
            {"arguments": {"input": {"shape": [[3]]}, "dim": [0], "size": [1]}},
            "arguments.size: diopiSoftmax has no such",
        ),
        ({"arguments": {"input": {"shape": [[3]]}}}, "arguments: diopiSoftmax needs 'dim'"),
        ({"arguments": {"input": {"shape": [[3]]}, "dim": ["0"]}}, "arguments.dim: '0' is no value"),
        ({"arguments": {"input": {"shape": [[3]]}, "dim": [True]}}, "arguments.dim: True is no value"),
        ({"arguments": {"input": {"shape": [[-3]]}, "dim": [0]}}, r"arguments.input.shape: \[-3\] is no shape"),
        ({"arguments": {"input": [3], "dim": [0]}}, "arguments.input: is a tensor"),
        ({"arguments": {"input": {"shape": []}, "dim": [0]}}, "arguments.input.shape: is missing or empty"),
        ({"arguments": {"input": {"shape": [[3]], "values": "chaos"}, "dim": [0]}}, "'chaos' is no generator"),
        ({"arguments": {"input": {"shape": [[3]], "dtype": "quad"}, "dim": [0]}}, "'quad' is no dtype"),
        ({"arguments": {"input": {"shape": [[3]], "genfunc": "x"}, "dim": [0]}}, "genfunc: unknown key"),
        (
            {"arguments": {"input": {"shape": [[3], [4], [5]]}, "dim": [0, 0]}},
            "arguments.dim: has 2 rows; others have 3",
        ),
        ({"arguments": {"input": {"shape": [[3]], "values": "data"}, "dim": [0]}}, "arguments.input.data: goes with"),
        ({"errors": [{"axis": 1}]}, r"errors\[0\].axis: is no argument"),
        ({"errors": [3]}, r"errors\[0\]: must be an object"),
        ({"inplace": {"result": "input"}}, "inplace: no function of the entry has a parameter 'result'"),
        ({"name": "a/b"}, "name: must not have"),
    ],
)
def test_schema_errors_name_file_entry_and_key(tmp_path, change, text):
    with pytest.raises(schema.SchemaError, match=text) as caught:
        schema.read_file(write(tmp_path, {**ENTRY, **change}))
    assert str(caught.value).startswith("family.json: entry ")


def test_schema_errors_of_files(tmp_path):
    assert len(schema.read_file(write(tmp_path, ENTRY))) == 1
    with pytest.raises(schema.SchemaError, match="diopiSoftmax has two entries of this name"):
        schema.read_file(write(tmp_path, ENTRY, ENTRY))
    with pytest.raises(schema.SchemaError, match=r"family.json: version: unknown key"):
        schema.read_file(write(tmp_path, ENTRY, version=2))
    path = tmp_path / "family.json"
    path.write_text('{"family": "a", "family": "b", "entries": []}')
    with pytest.raises(schema.SchemaError, match="'family' stands twice"):
        schema.read_file(str(path))
    for text in ("", "[]", '{"family": "a"}', '{"entries": []}', "{"):
        path.write_text(text)
        with pytest.raises(schema.SchemaError, match=r"family\.json"):
            schema.read_file(str(path))
    with pytest.raises(schema.SchemaError, match="No such file"):
        schema.read_file(str(tmp_path / "absent.json"))


def test_a_dim_named_twice_is_an_error_wherever_dims_are_listed(entries):
    wrong = {
        function
        for entry in entries
        for change in entry.errors
        for name in ("dim", "dims")
        if isinstance(change.get(name), list) and len(change[name]) > len({dim % 2 for dim in change[name]})
        for function in entry.functions
    }
    lists = {
        info.name
        for info in schema.standard().values()
        for kind, name in zip(info.kinds[1:], info.parameters[1:], strict=True)
        if kind in "zZ" and name in ("dim", "dims")
    }
    assert lists - wrong == {"diopiRoll"}  # each shift of a dim counts there, as in PyTorch


def test_every_function_is_called_with_elements_far_apart(cases):
    far = {case.function for case in cases if case.layout == "far"}
    reads = {info.name for info in schema.standard().values() if set(info.kinds) & set("tT")}
    assert reads - far == {"diopiAmpUpdateScaleInp"}  # each of its tensors is one number
