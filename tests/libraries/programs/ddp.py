"""Data parallel training in several processes: `python -m programs.ddp KIND FOLDER`, under torchrun.

The first process prints the losses and norms of the weights as JSON. One process with the whole batch must give the
same.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from . import DEVICE, seed_all, summary

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
BATCH = 8


def train_transformer(folder: Path) -> dict:
    import transformers

    from .trainer import gpt2, options, sentences

    seed_all()
    arguments = options(folder, per_device_train_batch_size=BATCH // WORLD, max_steps=3, disable_tqdm=True)
    trainer = transformers.Trainer(model=gpt2(), args=arguments, train_dataset=sentences())
    assert trainer.args.world_size == WORLD
    trainer.train()
    assert next(trainer.model.parameters()).device.type == DEVICE
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return {"losses": losses, "weights": summary(trainer.model), "backend": backend()}


def train_lightning(folder: Path) -> dict:
    import lightning

    from .acceleration import data
    from .lightning_loop import ACCELERATOR, Model

    lightning.seed_everything(5, verbose=False)

    class Logged(Model):
        def training_step(self, batch, index):
            tokens, labels = batch
            hidden = self.net.layer(self.net.embedding(tokens))  # batch normalisation sees other batches: left out
            loss = torch.nn.functional.cross_entropy(self.net.output(hidden).flatten(0, 1), labels.flatten())
            self.losses.append(float(self.trainer.strategy.reduce(loss.detach(), reduce_op="mean")))
            return loss

    sampler = torch.utils.data.DistributedSampler(data(), WORLD, RANK, shuffle=False)
    loader = torch.utils.data.DataLoader(data(), batch_size=BATCH // WORLD, sampler=sampler)
    trainer = lightning.Trainer(
        accelerator=ACCELERATOR,
        devices=WORLD,
        strategy="ddp_find_unused_parameters_true" if WORLD > 1 else "auto",
        max_epochs=1,
        use_distributed_sampler=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=str(folder),
    )
    model = Logged()
    trainer.fit(model, loader)
    return {"losses": model.losses, "weights": summary(model.net), "backend": backend()}


def train_sharded(folder: Path) -> dict:
    """accelerate's plugin for FSDP2 around a Llama; one process trains it whole."""
    import accelerate

    from .trainer import llama, sentences

    seed_all()
    plugin = None
    if WORLD > 1:
        plugin = accelerate.FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
            reshard_after_forward=True,
        )
    accelerator = accelerate.Accelerator(cpu=DEVICE == "cpu", fsdp_plugin=plugin)
    model = llama(tie_word_embeddings=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(sentences(), batch_size=BATCH // WORLD)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if WORLD > 1:
        shards = [value for value in model.parameters() if isinstance(value, torch.distributed.tensor.DTensor)]
        assert shards and shards[0].to_local().numel() * WORLD == shards[0].numel()
    losses = []
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(accelerator.reduce(loss.detach(), "mean")))
    state = accelerator.get_state_dict(model)
    weights = {name: float(value.double().norm()) for name, value in state.items()} if RANK == 0 else {}
    return {"losses": losses, "weights": weights, "backend": backend()}


KINDS = {"trainer": train_transformer, "lightning": train_lightning, "sharded": train_sharded}


def backend() -> str:
    return torch.distributed.get_backend() if torch.distributed.is_initialized() else ""


if __name__ == "__main__":
    answer = KINDS[sys.argv[1]](Path(sys.argv[2]))
    if RANK == 0:
        print("\n" + json.dumps(answer), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
