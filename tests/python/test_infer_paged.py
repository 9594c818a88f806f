"""The paged engine (ditorch/infer/paged.py) and `ditorch bench infer`: tokens of the same model on the CPU."""

from __future__ import annotations

import copy
import csv
import json

import ditorch  # noqa: F401
import pytest
import torch

transformers = pytest.importorskip("transformers")
from ditorch.command import bench_infer  # noqa: E402
from ditorch.command.tree import COMMANDS, Head  # noqa: E402
from ditorch.infer import measure  # noqa: E402
from ditorch.infer.paged import PagedModel  # noqa: E402

SIZES = {
    **{"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
    **{f"{name}_token_id": None for name in ("bos", "eos", "pad")},
}
FAMILIES = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 32},
    "Mistral": {"sliding_window": 5},
}


def _make(family, **options):
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **FAMILIES.get(family, {}), **options})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 1.0 if "embed" in name else 1.7 / parameter.shape[-1] ** 0.5)
        elif "bias" in name:
            parameter.data.normal_()
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_the_cpu(family):
    model, prompts = _make(family), torch.randint(1, 128, (3, 61))
    expected = model.generate(prompts, max_new_tokens=8, do_sample=False, pad_token_id=0)[:, 61:]
    engine = PagedModel(copy.deepcopy(model).cuda(), 3, 80)  # the tokens cross a border of two blocks
    assert torch.equal(engine.generate(prompts.cuda(), 8).cpu(), expected)
    assert torch.equal(engine.generate(prompts.cuda(), 8).cpu(), expected)  # what was there is forgotten
    engine.prefill(prompts.cuda())
    engine.capture()
    assert torch.equal(engine.generate(prompts.cuda(), 8).cpu(), expected)


def test_a_broken_operator_is_noticed(monkeypatch):
    model, prompts = _make("Llama"), torch.randint(1, 128, (2, 9))
    expected = model.generate(prompts, max_new_tokens=6, do_sample=False, pad_token_id=0)[:, 9:]
    engine = PagedModel(copy.deepcopy(model).cuda(), 2, 32)
    engine.layers[1].scale *= 3
    assert not torch.equal(engine.generate(prompts.cuda(), 6).cpu(), expected)


def test_ten_operators_for_each_layer():
    """Views aside: what a decoding step costs beyond its arithmetic."""
    from torch.utils._python_dispatch import TorchDispatchMode

    views = {"view", "split", "split_with_sizes", "t", "transpose", "detach", "slice", "unsqueeze", "_unsafe_view"}

    class Count(TorchDispatchMode):
        number = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.number += func._schema.name.split("::")[1] not in views
            return func(*args, **(kwargs or {}))

    found = []
    for layers in (1, 3):
        engine = PagedModel(_make("Llama", num_hidden_layers=layers).cuda(), 1, 32)
        engine.prefill(torch.ones(1, 4, dtype=torch.int64).cuda())
        with Count() as count:
            engine.decode()
        found.append(count.number)
    assert (found[1] - found[0]) / 2 == 10


def test_what_does_not_fit_is_said():
    model = _make("Llama").cuda()
    with pytest.raises(ValueError, match="llama, mistral, qwen2, qwen3"):
        PagedModel(_make("GPTNeoX").cuda(), 1, 8)
    engine = PagedModel(model, 2, 16)
    with pytest.raises(ValueError, match="do not fit a cache of 16"):
        engine.generate(torch.ones(2, 12, dtype=torch.int64).cuda(), 5)
    with pytest.raises(ValueError, match="prompts are 1 x 4; valid: 2 x 1 to 16"):
        engine.prefill(torch.ones(1, 4, dtype=torch.int64).cuda())


def test_percentiles():
    values = measure.summarize([i / 1e3 for i in range(100, 0, -1)])
    assert values == {"min": 1, "mean": 50.5, "p50": 50, "p75": 75, "p95": 95, "p99": 99}
    assert measure.summarize([0.004])["p99"] == 4 and measure.summarize([]) == {}


def test_bench_infer(tmp_path, capsys):
    words = [
        "infer",
        "-c",
        "1",
        "2",
        "-pt",
        "5",
        "-ct",
        "3",
        "-tr",
        "1",
        "-w",
        "0",
        "--device",
        "cuda",
        "cpu",
        "--engine",
        "paged",
        "graph",
        "transformers",
    ]
    files = tmp_path / "rows.json", tmp_path / "rows.csv"
    assert COMMANDS["bench"].run([*words, "--json", str(files[0]), "--csv", str(files[1])], Head()) == 0
    shown = capsys.readouterr().out.splitlines()
    rows = json.loads(files[0].read_text())
    assert len(rows) == 8 == len(shown) - 1 == len(list(csv.DictReader(files[1].open())))
    assert [f"{row['device']} {row['engine']}" for row in rows[:4]] == [
        "cuda paged", "cuda graph", "cuda transformers", "cpu transformers"
    ]  # fmt: skip
    for row in rows:
        assert row["throughput"] > 0 and row["token_ms"]["p50"] > 0 and row["first_token_ms"]["min"] > 0
        assert row["prompt_tokens"] == 5 and row["completion_tokens"] == 3


def test_bench_infer_of_a_folder(tmp_path, capsys):
    _make("Qwen2").save_pretrained(tmp_path / "model")
    capsys.readouterr()
    assert bench_infer.main([str(tmp_path / "model"), "-pt", "4", "-ct", "1", "-tr", "1", "--json", "-"], Head()) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["engine"] == "paged" and row["token_ms"] == {}  # one token: there is no time between tokens


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "no model folder"),
        (["--engine", "pagd"], "did you mean 'paged'"),
        (["-c", "0"], "'0'"),
    ],
)
def test_bench_infer_wrong_use(words, said, capsys):
    with pytest.raises(SystemExit) as end:
        bench_infer.main(words, Head())
    assert end.value.code == 2 and said in capsys.readouterr().err
