"""`ditorch conform mutate`: which faults apply, how cases are chosen, and that caught and survived are told apart."""

from __future__ import annotations

import json

import pytest
from ditorch import diopi
from ditorch.conform import cli, expand, mutation, schema, selection


@pytest.fixture(scope="module")
def infos():
    return {info.name: info for info in diopi.list_functions()}


def test_rules_say_what_applies_and_why_not(infos):
    rules = mutation.read_rules()
    assert rules.find_reason("value", infos["diopiAdd"]) is None
    assert rules.find_reason("nan", infos["diopiEq"]).startswith("results are bool")
    assert rules.find_reason("input", infos["diopiZeroInp"]) == "the function has no input"
    assert rules.find_reason("value", infos["diopiEqual"]) == "the function has no output"
    applicable = sum(rules.find_reason(kind, info) is None for kind in rules.kinds for info in infos.values())
    assert applicable > 0.85 * len(rules.kinds) * len([info for info in infos.values() if info.kinds])


def test_every_exception_means_some_function(infos):
    shorts = [name.removeprefix("diopi") for name in infos]
    for exception in mutation.read_rules().exceptions:
        for pattern in exception.functions:
            assert any(mutation.fnmatch.fnmatchcase(short, pattern) for short in shorts), pattern


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kinds": {"value": "everything"}}, "'kinds' must map"),
        ({"kinds": {"value": "any"}, "exceptions": [{"kinds": ["burn"], "functions": ["*"], "reason": "x"}]}, "known"),
        ({"kinds": {"value": "any"}, "exceptions": [{"kinds": ["value"], "functions": ["*"]}]}, "a reason"),
    ],
)
def test_wrong_rules_are_an_error(tmp_path, data, message):
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(data))
    with pytest.raises(mutation.RulesError, match=message):
        mutation.read_rules(str(path))


def test_cases_are_chosen_from_all_layouts_and_dtypes():
    cases = selection.Selection(functions=("Exp",)).choose(expand.list_cases(schema.read_all()))
    chosen = mutation.choose_cases(cases, 30)
    assert len(chosen) == 30 and not any(case.layout == "error" for case in chosen)
    assert {case.layout for case in chosen} == {case.layout for case in cases} - {"error"}


def test_faults_are_caught_and_survivors_named(capsys, tmp_path):
    words = ["mutate", "--function", "Relu", "Complex", "--dtype", "float32", "--jobs", "1"]
    words += ["--json", str(tmp_path / "m")]
    status = cli.main(words)
    text = capsys.readouterr().out
    answer = json.loads((tmp_path / "m").read_text())
    functions = {row["function"]: row for row in answer["functions"]}
    assert functions["diopiRelu"]["survived"] == [] and len(functions["diopiRelu"]["caught"]) == 12
    assert functions["diopiComplex"]["survived"] == ["dtype"] and "survivor: dtype: diopiComplex" in text
    assert answer["summary"]["pairs"] == 24 and answer["summary"]["caught"] == 23 and status == 1
