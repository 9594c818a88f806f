"""`ditorch bench --model`: the calls of a corpus, timed; what cannot be run is named, wrong words are answered."""

from __future__ import annotations

import json

import pytest
from ditorch import cli
from ditorch.models import corpus, measure


def _bench(capsys, *words):
    try:
        status = cli.main(["bench", "--model", *words])
    except SystemExit as end:
        status = end.code
    answer = capsys.readouterr()
    return status, answer.out, answer.err


def test_two_devices_side_by_side(capsys, tmp_path):
    file = tmp_path / "out.json"
    words = ("--scale", "0.02", "--rounds", "1", "--device", "cuda", "--device", "cpu", "--json", str(file))
    status, out, _ = _bench(capsys, "resnet50", "--op", "relu_", "--op", "aten::convolution", *words)
    assert status == 0
    data = json.loads(file.read_text(encoding="utf-8"))
    assert {row["operator"] for row in data["rows"]} == {"aten::relu_", "aten::convolution"}
    assert all(set(row["seconds"]) == {"cuda", "cpu"} and min(row["seconds"].values()) > 0 for row in data["rows"])
    called = sum(row["calls"] for row in data["rows"])
    entries = corpus.read("resnet50").entries
    assert called == sum(e.count for e in entries if e.call.name in ("aten::relu_", "aten::convolution"))
    assert "geometric mean of cpu's time over cuda's" in out and "relu_" in out


def test_what_does_not_run_is_named_and_the_rest_is_measured(monkeypatch):
    found = corpus.read("resnet50")
    native = measure.run.run

    def fail(made, gradients=False):
        if made[0].name() == "aten::relu_" and made[1][0].device.type != "meta":
            raise RuntimeError("no such kernel\nmore")
        return native(made, gradients)

    monkeypatch.setattr(measure.run, "run", fail)
    wanted = ("aten::relu_", "aten::mean.dim")
    rows = list(measure.measure(found, ["cpu"], scale=0.02, rounds=1, is_wanted=lambda name: name in wanted))
    bad = [row for row in rows if row.operator == "aten::relu_"]
    assert bad and all(row.problems == {"cpu": "no such kernel"} and not row.seconds for row in bad)
    assert all(row.seconds for row in rows if row.operator == "aten::mean.dim")


def test_too_large_is_not_tried():
    found = corpus.read("resnet50")
    rows = list(measure.measure(found, ["cpu"], rounds=1, limit=1, is_wanted=lambda name: name == "aten::mm"))
    assert all("--memory is" in row.problems["cpu"] for row in rows)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("resnet5",), "resnet50"),
        (("resnet50", "--op", "convolutoin"), "is no operator of resnet50"),
        (("resnet50", "--scale", "2"), "at most 1"),
        (("resnet50", "--device", "nowhere"), "--device nowhere"),
    ],
)
def test_wrong_words_are_answered(capsys, words, text):
    status, _, err = _bench(capsys, *words)
    assert status == 2 and text in err
