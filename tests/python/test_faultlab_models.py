"""The fault laboratory over recorded models: scenarios of a corpus, and names that do not exist."""

import random
import sys
from pathlib import Path

import pytest

LAB = str(Path(__file__).parents[2] / "bench" / "faultlab")
sys.path.append(LAB)

import corpora  # noqa: E402
import plan  # noqa: E402
from ditorch.models.corpus import CorpusError  # noqa: E402


@pytest.fixture
def few(monkeypatch):
    """A dozen calls of the model: the whole of it takes seconds."""
    whole = corpora.list_calls("vgg16")
    assert len(whole) > 12
    monkeypatch.setattr(corpora, "list_calls", lambda name: whole[:12])
    return whole[:12]


def test_scenarios_of_a_recorded_model(device, few):
    scenarios = plan.make_faults(10, 3, models=["vgg16"])
    again = plan.make_faults(10, 3, models=["vgg16"])
    assert scenarios == again and len({scenario["name"] for scenario in scenarios}) == 10
    made = {call.name for call in few}
    for scenario in scenarios:
        assert scenario["model"] == "vgg16" and scenario["level"] == "aten" and scenario["dtype"] == "float32"
        assert scenario["operator"] in made, scenario
    clean = plan.make_clean(3, 3, models=["vgg16"])
    assert {(row["model"], row["level"]) for row in clean} == {("vgg16", "aten")}


def test_a_fault_in_a_recorded_model_is_found(device, few):
    from run import run_scenario

    operator = "aten::convolution"
    assert any(call.name == operator for call in few)
    base = {"model": "vgg16", "dtype": "float32", "level": "aten", "seed": random.Random(1).randint(0, 9)}
    fault = {"kind": "value", "operator": operator, "call": 1, "text": f"value:{operator},call=1", "reference": None}
    answer = run_scenario({**base, **fault, "name": "a fault"})
    assert answer.get("error") is None, answer
    assert answer["fired"] and answer["counts"] and answer["first"] and answer["innocents"] == 0, answer
    answer = run_scenario({**base, "clean": True, "name": "clean", "reference": None})
    assert answer["findings"] == [] and answer["calls"] > 10, answer


def test_a_model_that_does_not_exist():
    with pytest.raises(CorpusError, match="no model 'vgg17'; near: vgg16"):
        plan.choose_models(["vgg17"])
    assert plan.choose_models() == ("gpt", "cnn", "lstm", "vit", "wide")
