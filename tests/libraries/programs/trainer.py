"""Hugging Face's Trainer over tiny models made from configurations; nothing is downloaded.

Dropout is off: the CPU and a device draw different numbers from one seed.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
import transformers
from torch.utils.data import Dataset

from . import DEVICE, case, rows, summary, variants

transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore", module="transformers|torch")

VOCABULARY = 64
STEPS = 6
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
PRECISIONS = {"float32": {}, "bf16": {"bf16": True}, "fp16": {"fp16": DEVICE == "cuda"}}
"""The CPU does not train with fp16: its answer to compare with is float32's."""


class Items(Dataset):
    """Equal dictionaries by index."""

    def __init__(self, **columns: torch.Tensor):
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


def gpt2(attention: str = "sdpa", **changes) -> transformers.GPT2LMHeadModel:
    sizes = {"vocab_size": VOCABULARY, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2}
    config = transformers.GPT2Config(**{**sizes, **quiet, **changes})
    config._attn_implementation = attention
    return transformers.GPT2LMHeadModel(config)


def bert() -> transformers.BertForSequenceClassification:
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": 3}
    config = transformers.BertConfig(vocab_size=VOCABULARY, intermediate_size=64, **SMALL, **quiet)
    return transformers.BertForSequenceClassification(config)


def llama(attention: str = "sdpa", **changes) -> transformers.LlamaForCausalLM:
    sizes = {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64, **SMALL}
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, **{"tie_word_embeddings": True, **sizes, **changes})
    config._attn_implementation = attention
    return transformers.LlamaForCausalLM(config)


def qwen_moe() -> transformers.Qwen2MoeForCausalLM:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
    sizes = {"intermediate_size": 64, "shared_expert_intermediate_size": 32, "num_key_value_heads": 2, **SMALL}
    config = transformers.Qwen2MoeConfig(
        vocab_size=VOCABULARY, output_router_logits=True, max_position_embeddings=64, **experts, **sizes
    )
    return transformers.Qwen2MoeForCausalLM(config)


def t5() -> transformers.T5ForConditionalGeneration:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
    config = transformers.T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **sizes)
    return transformers.T5ForConditionalGeneration(config)


def vit() -> transformers.ViTForImageClassification:
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": 4}
    config = transformers.ViTConfig(image_size=16, patch_size=4, intermediate_size=64, **SMALL, **quiet)
    return transformers.ViTForImageClassification(config)


def sentences(count: int = 24, seed: int = 5) -> Items:
    tokens = rows(count, 12, VOCABULARY, seed)
    return Items(input_ids=tokens, labels=tokens)


def classified(count: int = 24, seed: int = 5) -> Items:
    tokens = rows(count, 12, VOCABULARY, seed)
    return Items(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens[:, 0] % 3)


def images(count: int = 24, seed: int = 5) -> Items:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    pixels = torch.randn(count, 3, 16, 16, generator=generator) + labels.view(-1, 1, 1, 1)
    return Items(pixel_values=pixels, labels=labels)


def translated(count: int = 24, seed: int = 5) -> Items:
    tokens = rows(count, 10, VOCABULARY, seed)
    return Items(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=(tokens[:, :6] + 1) % VOCABULARY)


def options(folder, kind=transformers.TrainingArguments, **changes):
    """Training arguments that write only into `folder`."""
    values = {
        "output_dir": str(folder / "out"),
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "learning_rate": 5e-3,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": True,
        "seed": 11,
        "use_cpu": DEVICE == "cpu",
    }
    return kind(**{**values, **changes})


def losses(trainer) -> list[float]:
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def norms(trainer) -> list[float]:
    return [float(row["grad_norm"]) for row in trainer.state.log_history if "grad_norm" in row]


def answer(trainer) -> dict:
    """What a run is judged by."""
    assert next(trainer.model.parameters()).device.type == DEVICE
    assert trainer.args.device.type == DEVICE
    return {"losses": losses(trainer), "grad_norms": norms(trainer), "weights": summary(trainer.model)}


def fit(folder, model, data, **changes) -> dict:
    trainer = transformers.Trainer(model=model, args=options(folder, **changes), train_dataset=data)
    trainer.train()
    return answer(trainer)


@variants("Trainer: GPT-2", PRECISIONS)
def trainer_gpt2(folder, **precision):
    return fit(folder, gpt2(), sentences(), **precision)


@variants("Trainer: BERT classification", PRECISIONS)
def trainer_bert(folder, **precision):
    return fit(folder, bert(), classified(), **precision)


@variants("Trainer: Llama", PRECISIONS)
def trainer_llama(folder, **precision):
    return fit(folder, llama(), sentences(), **precision)


@variants("Trainer: Qwen2-MoE", PRECISIONS)
def trainer_qwen_moe(folder, **precision):
    return fit(folder, qwen_moe(), sentences(), **precision)


@variants("Trainer: ViT", PRECISIONS)
def trainer_vit(folder, **precision):
    return fit(folder, vit(), images(), **precision)


@variants("Seq2SeqTrainer: T5, evaluated by generation", PRECISIONS)
def trainer_t5(folder, **precision):
    """Seq2SeqTrainer: trains, then evaluates what the model generates."""
    arguments = options(
        folder,
        transformers.Seq2SeqTrainingArguments,
        predict_with_generate=True,
        generation_max_length=8,
        per_device_eval_batch_size=4,
        **precision,
    )
    seen = []

    def score(prediction):
        seen.append(np.asarray(prediction.predictions).tolist())
        return {"equal": float((prediction.predictions[:, 1:7] == prediction.label_ids[:, :6]).mean())}

    trainer = transformers.Seq2SeqTrainer(
        model=t5(), args=arguments, train_dataset=translated(), eval_dataset=translated(8, 6), compute_metrics=score
    )
    trainer.train()
    evaluation = trainer.evaluate()
    found = answer(trainer)
    found["eval_loss"] = evaluation["eval_loss"]
    if not precision:
        found["tokens"] = seen[0]
    return found


@variants(
    "Trainer: padded batches by attention implementation",
    {"eager": {"attention": "eager"}, "sdpa": {"attention": "sdpa"}},
)
def trainer_attention(folder, attention):
    """A padded batch, so that attention masks matter."""
    tokens = rows(24, 12, VOCABULARY)
    mask = torch.ones_like(tokens)
    mask[::3, 8:] = 0
    data = Items(input_ids=tokens, attention_mask=mask, labels=torch.where(mask.bool(), tokens, -100))
    return fit(folder, llama(attention), data)


def count_calls(module) -> list[int]:
    calls = [0]
    module.register_forward_pre_hook(lambda *_: calls.__setitem__(0, calls[0] + 1))
    return calls


@variants("Trainer: gradient checkpointing", {"reentrant": {"reentrant": True}, "plain": {"reentrant": False}})
def trainer_checkpointing(folder, reentrant):
    """Gradient checkpointing: every block runs twice a step."""
    model = gpt2()
    calls = count_calls(model.transformer.h[0].mlp)
    extra = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
    found = fit(folder, model, sentences(), **extra)
    return {**found, "calls": calls[0]}


@case("Trainer: gradient accumulation")
def trainer_accumulation(folder):
    return fit(folder, gpt2(), sentences(), gradient_accumulation_steps=3, per_device_train_batch_size=2)


@case("Trainer: torch_compile=True")
def trainer_compile(folder):
    return fit(folder, gpt2(), sentences(), torch_compile=True, max_steps=3)


@variants(
    "Trainer: other optimizers",
    {"adafactor": {"optim": "adafactor"}, "sgd": {"optim": "sgd"}, "torch_fused": {"optim": "adamw_torch_fused"}},
)
def trainer_optimizer(folder, **choice):
    return fit(folder, gpt2(), sentences(), **choice)


@case("Trainer: metrics, best model at the end, predictions")
def trainer_evaluation(folder):
    """Metrics, label names, best model at the end, predictions."""
    columns = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "accuracy", "save_total_limit": 1}
    arguments = options(folder, **columns, **best, per_device_eval_batch_size=8)

    def score(prediction):
        return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}

    trainer = transformers.Trainer(
        model=bert(),
        args=arguments,
        train_dataset=classified(),
        eval_dataset=classified(20, 6),
        compute_metrics=score,
    )
    trainer.train()
    rest = trainer.predict(classified(9, 8))
    found = answer(trainer)
    found["history"] = [
        [row["eval_loss"], row["eval_accuracy"]] for row in trainer.state.log_history if "eval_loss" in row
    ]
    found["predictions"] = rest.predictions.tolist()
    return found


@case("Trainer: resume from a checkpoint, the same to the last bit")
def trainer_resume(folder):
    """Three steps, a checkpoint, three more in a new Trainer: as six in one go, to the last bit on one device."""
    saving = {"save_strategy": "steps", "save_steps": 3}
    whole = transformers.Trainer(model=gpt2(), args=options(folder / "whole", **saving), train_dataset=sentences())
    start = {name: value.clone() for name, value in whole.model.state_dict().items()}
    whole.train()
    model = gpt2()
    model.load_state_dict(start)
    again = transformers.Trainer(model=model, args=options(folder / "again", **saving), train_dataset=sentences())
    again.train(resume_from_checkpoint=str(folder / "whole" / "out" / "checkpoint-3"))
    same = all(
        torch.equal(a, b)
        for a, b in zip(whole.model.state_dict().values(), again.model.state_dict().values(), strict=True)
    )
    first, second = losses(whole), losses(again)
    return {**answer(again), "same_weights": same, "same_losses": first == second}
