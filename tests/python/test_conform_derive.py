"""Cases by property: what is derived from an ordinary row, that functions with an axis reach it, and the rules."""

import json
import os

import pytest
from ditorch.conform import derive, derive_axes, derive_rows, expand, quick, schema
from ditorch.conform.data import make_values

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="module")
def entries():
    return schema.read_all()


def take(entries, function, name="basic", row=0):
    entry = next(e for e in entries if function in e.functions and e.name == name)
    return derive_rows.take(entry, row)


def test_a_size_changes_in_all_arguments_alike(entries):
    row = take(entries, "diopiAdd")
    found = [candidate for group in derive_axes.propose_size(row, "float32") for candidate in group]
    shapes = [(c["input"]["shape"], c["other"]["shape"]) for c in found]
    assert ([3, 21846], [3, 21846]) in shapes and all(one == two for one, two in shapes)


def test_dimensions_are_added_and_dims_follow(entries):
    row = take(entries, "diopiSoftmax", row=1)
    groups = list(derive_axes.propose_rank(row, "float32"))
    lead, tail = groups[0][0], groups[0][1]
    assert lead["input"]["shape"] == [2, 2, 3, 4, 5] and lead["dim"] == row["dim"] + 1
    assert tail["input"]["shape"] == [2, 3, 4, 5, 2] and tail["dim"] == row["dim"]
    assert {len(group[0]["input"]["shape"]) for group in groups} == {5, 6, 8}


def test_every_negative_dim(entries):
    row = take(entries, "diopiSoftmax", row=1)
    dims = {candidate["dim"] for group in derive_axes.propose_dim(row, "float32") for candidate in group}
    assert dims == {-4, -3, -2, -1}


def test_rows_hold_what_breaks_reductions():
    import torch

    values = make_values("rows", [19, 5], "float32", "text", None, 0)
    rows = {str(row[0].item()) for row in values if torch.equal(row.isnan(), row[:1].isnan().expand(5))}
    assert {"-inf", "nan", "0.0", "-0.0", "inf", "1.0"} <= rows and bool((values == 1.401298464324817e-45).any())
    assert any(bool(row.isneginf().sum() == 4) for row in values)


def test_calm_rows_are_finite():
    values = make_values("calm", [19, 5], "float32", "text", None, 0)
    assert bool(values.isfinite().all()) and bool((values == 1.401298464324817e-45).any())
    assert int((values == 0).all(1).sum()) >= 4


def test_calm_rows_stand_in_for_rows_alone():
    """A function has whole rows of everything, or, where the rules leave these open, of finite values."""
    wanted = {p.name: p for p in derive_axes.PROPERTIES}
    rules = [derive.Exemption(("rows",), ("Remainder",), "left open")]
    assert derive.is_wanted(rules, wanted["calm"], "diopiRemainder")
    assert not derive.is_wanted(rules, wanted["rows"], "diopiRemainder")
    assert not derive.is_wanted(rules, wanted["calm"], "diopiSoftmax")
    assert derive.is_wanted(rules, wanted["rows"], "diopiSoftmax")


def test_parameters_that_repeat_a_size_change_with_it():
    row = {"xyz": {"shape": [2, 20, 3], "values": "points3d"}, "B": 2, "N": 20, "outputs": {}}
    found = [candidate for group in derive_axes.propose_threads(row, "float32") for candidate in group]
    assert all(row["B"] == row["xyz"]["shape"][0] and row["N"] == row["xyz"]["shape"][1] for row in found)
    assert all(row["xyz"]["shape"][2] == 3 for row in found) and len(found) == 3


def test_a_function_without_an_axis_is_named_with_a_reason():
    names = {p.name for p in derive_axes.PROPERTIES}
    for rule in derive.read_rules():
        assert set(rule.properties) <= names and len(rule.reason) > 20 and rule.functions
        assert len(rule.properties) < 4, "a reason for everything is none"


def test_every_rule_means_a_function(entries):
    functions = {function for entry in entries for function in entry.functions}
    for rule in derive.read_rules():
        for pattern in rule.functions:
            assert any(derive.fnmatch.fnmatchcase(name.removeprefix("diopi"), pattern) for name in schema.standard()), (
                pattern
            )
    assert functions <= set(schema.standard())


@pytest.mark.parametrize("name", ["size", "rank", "dim", "threads"])
def test_functions_reach_the_axis_or_say_why_not(entries, name):
    """New functions: run `ditorch conform derive --function NAME`, or name the reason in derive_rules.json."""
    rules = derive.read_rules()
    reached = {f for e in entries for f in e.functions if e.name.startswith(f"{name}-")}
    missing = []
    for function in {f for e in entries for f in e.functions if not derive.is_derived(e.name)}:
        parameters = set(schema.standard()[function].parameters)
        if name == "dim" and not parameters & derive_rows.DIM_PARAMETERS:
            continue
        if function not in reached and derive.find_reason(rules, name, function) is None:
            missing.append(function)
    assert not sorted(missing)


def test_files_are_as_they_are_written(tmp_path):
    folder = derive.os.path.join(schema.DIRECTORY, "property")
    derive.write(str(tmp_path), derive.prune(derive.read(folder)))
    for name in derive.os.listdir(folder):
        with open(derive.os.path.join(folder, name), encoding="utf-8") as stream:
            assert (tmp_path / name).read_text() == stream.read(), name


def test_a_function_is_derived_again_as_it_stands(entries):
    (function, tables), *_ = derive.derive_functions(("diopiRelu",))
    own = [t for _, t in derive.read(derive.os.path.join(schema.DIRECTORY, "property")) if t["functions"] == [function]]
    assert json.dumps([t for _, t in tables], sort_keys=True) == json.dumps(own, sort_keys=True)


def test_every_refused_row_has_a_reason_and_stands_in_the_docs():
    known = set(schema.standard())
    for reason, rows in derive.read_refusals():
        assert len(reason) > 30 and set(rows) <= known and all(rows.values())
    refused = derive.read_refused()
    assert all(len(set(digests)) == len(digests) for digests in refused.values())
    with open(os.path.join(ROOT, "docs", "conformance-refused.md"), encoding="utf-8") as stream:
        assert stream.read() == derive.format_refusals(), "make docs"


def test_quick_selection_names_cases_that_exist(entries):
    ids = {str(case) for case in expand.list_cases(entries)}
    table = quick.read()
    assert table, "python -m ditorch conform mutate --write-quick"
    unknown = [f"{function}/{case}" for function, cases in table.items() for case in cases]
    assert not [case for case in unknown if case not in ids]


def test_quick_selection_takes_what_noticed_most():
    answer = {"function": "diopiAdd", "caught": dict.fromkeys("abcdefgh", "diopiAdd/x/float32/strided/0")}
    answer["caught"]["i"] = "diopiAdd/y/float32/error/1"
    answer["caught"]["j"] = "crash"
    assert quick.choose([answer], 0.8) == {"diopiAdd": ["x/float32/strided/0"]}
    assert len(quick.choose([answer], 1.0)["diopiAdd"]) == 2
