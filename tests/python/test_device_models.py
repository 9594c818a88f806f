"""`ditorch test-device --model`: recorded calls of models against the CPU; a broken operator turns its calls red."""

from __future__ import annotations

import json

import pytest
import torch
from ditorch.device_suite import arguments, model_entry, models
from ditorch.models import corpus

GIB = 1 << 30


def test_one_broken_operator_turns_its_calls_red_and_no_other(python, tmp_path):
    """Two operators of two models, once sound and once broken in one of them."""
    words = ["-m", "ditorch", "test-device", "--model", "resnet50,vit", "--ops", "relu_,gelu", "--scale", "0.02"]
    words += ["--jobs", "1", "--json", "out.json"]
    sound = python(*words, check=False, cwd=tmp_path)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["results"]
    assert {tuple(row["models"]) for row in rows} == {("resnet50",), ("vit",)}
    assert all(row["verdict"] == "pass" and row["samples"] == 2 for row in rows)
    assert "resnet50" in sound.stdout and "no reference" in sound.stdout

    broken = python(*words, check=False, cwd=tmp_path, DITORCH_FAULT="value:relu_")
    assert broken.returncode == 1, broken.stdout + broken.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["results"]
    wrong = {row["entry"].partition(" ")[0] for row in rows if row["verdict"] == "wrong"}
    assert wrong == {"aten::relu_"}, broken.stdout
    assert {row["entry"].partition(" ")[0] for row in rows if row["verdict"] == "pass"} == {"aten::gelu"}


def _samples(text, scale=1.0, limit=GIB):
    op = model_entry.ModelOp(corpus.parse_call(text), scale, limit)
    return op, list(op.sample_inputs("cpu", torch.float32, False))


def test_inputs_have_the_recorded_shapes_strides_and_indices_that_exist():
    op, samples = _samples("aten::index_select float32[7,5]{1,7} 0 int64[4]")
    assert len(samples) == 3 and op.name == "index_select" and op.judged_name == "aten::index_select"
    for sample in samples:
        assert sample.input.shape == (7, 5) and sample.input.stride() == (1, 7)
        assert sample.args[1].min() >= 0 and sample.args[1].max() < 5
        assert op(sample.input, *sample.args).shape == (4, 5)
    assert samples[0].input.min() < 0 < samples[1].input.min()
    again = _samples("aten::index_select float32[7,5]{1,7} 0 int64[4]")[1]
    assert all(torch.equal(a.input, b.input) for a, b in zip(samples, again, strict=True))


def test_a_smaller_form_that_the_cpu_refuses_is_left_out():
    """At this scale the form with images of 8 x 8 fits no convolution of stride 2; the one that keeps them does."""
    text = (
        "aten::convolution_backward float32[32,96,14,14] float32[32,48,28,28] float32[96,48,1,1] <0> <2,2> <0,0> <1,1>"
        " false <0,0> 1 <true,true,false>"
    )
    op, samples = _samples(text, scale=0.05)
    assert op.call.args[1].shape[2:] == (28, 28) and op.call.args[1].shape[0] == 8
    assert len(samples) == 2


def test_too_large_and_not_installed_say_so():
    with pytest.raises(model_entry.TooLarge, match=r"4\.0 GiB of arguments; --memory is 1\.0 GiB"):
        _samples("aten::relu float32[1024,1024,1024]")
    with pytest.raises(LookupError, match=r"nosuch::relu belongs to nosuch, which is not installed"):
        _samples("nosuch::relu float32[4]")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--model", "resnet51"), "resnet50"),
        (("--model", ","), "names no model"),
        (("--model", "resnet50", "--ops", "rlu_"), "relu_"),
        (("--model", "resnet50", "--dtypes", "float64", "--jobs", "1"), "no chosen call has such a first tensor"),
        (("--model", "resnet50", "--suite", "nn"), "are two runs"),
        (("--model", "resnet50", "--quick"), "--scale makes models smaller"),
        (("--scale", "0.5"), "give --model NAME too"),
    ],
)
def test_wrong_words_are_answered(words, text, capsys):
    from ditorch import cli

    try:
        status = cli.main(["test-device", *words])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert text in capsys.readouterr().err


def test_calls_that_become_the_same_are_one_pair_of_all_their_models():
    options = arguments.make_parser().parse_args(["--model", "resnet50,tsn", "--scale", "0.02"])
    calls = models.choose_calls(models.read_models(options.model), "relu_", options.scale)
    assert calls and all(users == ["resnet50", "tsn"] for _, users in calls.values())
    found = {str(entry.call) for entry in corpus.read("resnet50").entries if entry.call.name == "aten::relu_"}
    assert len(calls) < len(found)
