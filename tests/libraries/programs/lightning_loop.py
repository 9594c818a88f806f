"""Lightning: Trainer with accelerator="gpu" and Fabric. The model has batch normalisation and tied weights."""

from __future__ import annotations

import logging
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from torch import nn

from . import DEVICE, case, summary, variants
from .acceleration import Tied, data

for name in ("lightning", "lightning.pytorch", "lightning.fabric", "pytorch_lightning"):
    logging.getLogger(name).setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning|torch")

ACCELERATOR = "gpu" if DEVICE == "cuda" else "cpu"
PRECISIONS = {
    "32": {"precision": 32},
    "bf16_mixed": {"precision": "bf16-mixed"},
    "16_mixed": {"precision": "16-mixed" if DEVICE == "cuda" else 32},
    "bf16_true": {"precision": "bf16-true"},
    "64": {"precision": 64},
}


class Model(lightning.LightningModule):
    def __init__(self, rate: float = 1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = Tied()
        self.losses: list[float] = []

    def step(self, batch) -> torch.Tensor:
        tokens, labels = batch
        assert tokens.device.type == DEVICE and self.device.type == DEVICE
        return nn.functional.cross_entropy(self.net(tokens).flatten(0, 1).float(), labels.flatten())

    def training_step(self, batch, index):
        loss = self.step(batch)
        self.losses.append(float(loss))
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.step(batch))

    def test_step(self, batch, index):
        self.log("test_loss", self.step(batch))

    def predict_step(self, batch, index):
        return self.net(batch[0]).argmax(-1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2)}


def loader(count: int = 40, seed: int = 3, shuffle: bool = False):
    generator = torch.Generator().manual_seed(1)
    return torch.utils.data.DataLoader(data(count, seed), batch_size=8, shuffle=shuffle, generator=generator)


def trainer(folder, **arguments) -> lightning.Trainer:
    values = {
        "accelerator": ACCELERATOR,
        "devices": 1,
        "max_epochs": 2,
        "default_root_dir": str(folder),
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "log_every_n_steps": 1,
    }
    return lightning.Trainer(**{**values, **arguments})


@variants('Trainer(accelerator="gpu"): fit, validate, test, predict', PRECISIONS)
def lightning_fit(folder, **precision):
    """fit, validate, test, predict."""
    lightning.seed_everything(5, verbose=False)
    model, run = Model(), trainer(folder, **precision)
    run.fit(model, loader(shuffle=True), loader(16, 4))
    checked = run.validate(model, loader(16, 4), verbose=False)[0]["val_loss"]
    tested = run.test(model, loader(16, 6), verbose=False)[0]["test_loss"]
    predicted = torch.cat(run.predict(model, loader(8, 8)))
    return {
        "losses": model.losses,
        "checked": [checked, tested],
        "shape": list(predicted.shape),
        "weights": summary(model.net),
        "tied": model.net.output.weight is model.net.embedding.weight,
    }


@case("Trainer: checkpoints, resume, load on the CPU")
def lightning_checkpoint(folder):
    """Best checkpoint, resume from it, load on the CPU; the learning rate monitor and early stopping run."""
    lightning.seed_everything(5, verbose=False)
    keep = ModelCheckpoint(dirpath=str(folder), filename="{epoch}", monitor="val_loss", save_top_k=-1)
    stop = EarlyStopping("val_loss", patience=5)
    whole = Model()
    run = trainer(folder, max_epochs=3, callbacks=[keep, stop], enable_checkpointing=True)
    run.fit(whole, loader(), loader(16, 4))
    again = Model()
    trainer(folder, max_epochs=3).fit(again, loader(), loader(16, 4), ckpt_path=str(folder / "epoch=0.ckpt"))
    pairs = zip(whole.net.state_dict().values(), again.net.state_dict().values(), strict=True)
    same = all(torch.equal(a, b) for a, b in pairs)
    plain = Model.load_from_checkpoint(keep.best_model_path, map_location="cpu")
    on_cpu = {value.device.type for value in plain.state_dict().values()} == {"cpu"}
    raw = torch.load(keep.best_model_path, map_location="cpu", weights_only=True)
    return {
        "losses": whole.losses,
        "same": same,
        "on_cpu": on_cpu,
        "best": float(keep.best_model_score),
        "keys": sorted(raw["state_dict"]),
    }


@variants(
    "Trainer: gradient clipping and accumulation",
    {"clip": {"gradient_clip_val": 0.5}, "accumulate": {"accumulate_grad_batches": 2}},
)
def lightning_option(folder, **options):
    lightning.seed_everything(5, verbose=False)
    model = Model()
    trainer(folder, callbacks=[], **options).fit(model, loader())
    return {"losses": model.losses, "weights": summary(model.net)}


@case("Trainer: loggers, callbacks, fast_dev_run")
def lightning_tools(folder):
    """The CSV logger, the learning rate monitor, a fast development run and the sanity check of validation."""
    from lightning.pytorch.loggers import CSVLogger

    lightning.seed_everything(5, verbose=False)
    model = Model()
    log = CSVLogger(str(folder), name="log")
    run = trainer(folder, logger=log, callbacks=[LearningRateMonitor()], num_sanity_val_steps=2)
    run.fit(model, loader(), loader(16, 4))
    lines = (folder / "log" / "version_0" / "metrics.csv").read_text().splitlines()
    trainer(folder, fast_dev_run=True).fit(Model(), loader(), loader(16, 4))
    return {"losses": model.losses, "rows": len(lines)}


@variants("Fabric", {name: PRECISIONS[name] for name in ("32", "bf16_mixed", "16_mixed")})
def fabric_loop(folder, precision):
    fabric = lightning.Fabric(accelerator=ACCELERATOR, devices=1, precision=precision)
    fabric.launch()
    lightning.seed_everything(5, verbose=False)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = fabric.setup(model, optimizer)
    batches = fabric.setup_dataloaders(loader())
    found = []
    for tokens, labels in batches:
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), labels.flatten())
        optimizer.zero_grad()
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        found.append(float(loss))
    fabric.save(str(folder / "fabric.ckpt"), {"model": model, "optimizer": optimizer})
    state = {"model": model, "optimizer": optimizer}
    fabric.load(str(folder / "fabric.ckpt"), state)
    return {"losses": found, "weights": summary(model.module), "tied": model.output.weight is model.embedding.weight}
