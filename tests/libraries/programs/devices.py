"""Two devices in one process: the Trainer's DataParallel, and a model spread over both by device_map.

Run with DITORCH_HOST_DEVICES=2. On the CPU the same programs use one device.
"""

from __future__ import annotations

import torch
import transformers

from . import DEVICE, case
from .generation import prompts, save_gpt2
from .trainer import answer, fit, gpt2, options, sentences

COUNT = torch.cuda.device_count() if DEVICE == "cuda" else 1


@case("Trainer: DataParallel over two devices")
def trainer_parallel(folder):
    return fit(folder, gpt2(), sentences(), per_device_train_batch_size=8 // COUNT, max_steps=3)


@case("Trainer: evaluation over two devices")
def evaluation_parallel(folder):
    arguments = options(folder, per_device_train_batch_size=8 // COUNT, per_device_eval_batch_size=8 // COUNT)
    trainer = transformers.Trainer(
        model=gpt2(), args=arguments, train_dataset=sentences(), eval_dataset=sentences(16, 6)
    )
    trainer.train()
    assert trainer.args.n_gpu == (COUNT if DEVICE == "cuda" else 0)
    return {**answer(trainer), "eval_loss": trainer.evaluate()["eval_loss"]}


@case("from_pretrained with device_map over two devices")
def model_parallel(folder):
    """Blocks on both devices; activations follow by accelerate's hooks."""
    names = ("wte", "wpe", "h.0", "h.1", "ln_f")
    table = {f"transformer.{name}": int(name in ("h.1", "ln_f")) for name in names} | {"lm_head": 0}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        save_gpt2(folder), device_map=table if DEVICE == "cuda" else "cpu"
    )
    places = {str(value.device) for value in model.parameters()}
    tokens = prompts()[0].to(DEVICE)
    with torch.no_grad():
        logits = model(tokens).logits
        created = model.generate(tokens, max_new_tokens=5, do_sample=False)
    return {
        "spread": len(places) == COUNT,
        "values": logits.double().flatten(1).norm(dim=1).tolist(),
        "tokens": created.tolist(),
    }
