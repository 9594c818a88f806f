"""Hugging Face's Trainer over a tiny GPT-2 under each tool: `make test-libraries`, in an environment of its own.

The model is made from a configuration, nothing is downloaded. Watching tools must leave every loss bit for bit as it
is; the ones that act must train as well.
"""

import contextlib

import ditorch
import op_tools
import pytest
import torch

transformers = pytest.importorskip("transformers")

WATCHERS = ["OpObserve", "OpTimeMeasure", "OpOverflowCheck", "OpCapture", "OpAutoCompare"]
ACTORS = ["OpFallback", "OpDtypeCast"]
STEPS = 4


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count=16, length=12):
        generator = torch.Generator().manual_seed(5)
        self.rows = torch.randint(0, 60, (count, length), generator=generator)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def train(folder, tool=None, dropout=0.1, **arguments):
    """(losses, final weights) of a few steps of the Trainer."""
    transformers.set_seed(7)
    sizes = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
    config = transformers.GPT2Config(**sizes, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)
    model = transformers.GPT2LMHeadModel(config)
    options = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        **arguments,
    )
    trainer = transformers.Trainer(model=model, args=options, train_dataset=Sentences())
    assert next(trainer.model.parameters()).device.type == "cuda"
    with tool or contextlib.nullcontext():
        trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) == STEPS
    return losses, [value.detach().cpu().clone() for value in trainer.model.state_dict().values()]


def is_same(a, b):
    return a[0] == b[0] and all(torch.equal(x, y) for x, y in zip(a[1], b[1], strict=True))


@pytest.mark.parametrize("precision", [{}, {"bf16": True}], ids=["float32", "bf16"])
@pytest.mark.parametrize("name", WATCHERS)
def test_watching_changes_nothing(tmp_path, name, precision):
    bare = train(tmp_path, **precision)
    tool = getattr(op_tools, name)(results=str(tmp_path / "results"), console="off")
    watched = train(tmp_path, tool, **precision)
    assert is_same(bare, watched)
    assert tool.counts()["applied"] > 100
    if name == "OpAutoCompare":
        assert tool.findings() == []


@pytest.mark.parametrize("name", ACTORS)
def test_acting_trains_as_well(tmp_path, name):
    bare = train(tmp_path, dropout=0.0)  # the CPU draws other numbers
    tool = getattr(op_tools, name)(results=str(tmp_path / "results"), console="off")
    acted = train(tmp_path, tool, dropout=0.0)
    assert acted[0] == pytest.approx(bare[0], rel=1e-3)
    assert tool.counts()["applied"] > 100


def test_gradient_checkpointing(tmp_path):
    arguments = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}
    bare = train(tmp_path, **arguments)
    tool = op_tools.OpAutoCompare(results=str(tmp_path / "results"), console="off")
    assert is_same(bare, train(tmp_path, tool, **arguments))
    assert tool.findings() == []


def test_a_broken_operator_is_named(tmp_path):
    tool = op_tools.OpAutoCompare(results=str(tmp_path / "results"), console="off")
    with ditorch.fault("value:aten::native_layer_norm,call=3,scale=0.1"):
        train(tmp_path, tool)
    assert [finding["name"] for finding in tool.findings()][:1] == ["torch.nn.functional.layer_norm"]
