"""What needs real CUDA kernels is refused with a clear error, by the library or by ditorch; nothing fails silently."""

from __future__ import annotations

import pytest
import torch

transformers = pytest.importorskip("transformers")
from programs.generation import save_gpt2  # noqa: E402
from programs.trainer import gpt2, options, sentences  # noqa: E402


@pytest.mark.feature("transformers", "8-bit and 4-bit weights (bitsandbytes)", outcome="refused")
@pytest.mark.parametrize("kind", ["load_in_8bit", "load_in_4bit"])
def test_bitsandbytes_is_refused(kind, tmp_path) -> None:
    config = transformers.BitsAndBytesConfig(**{kind: True})
    with pytest.raises((ImportError, RuntimeError), match="bitsandbytes"):
        transformers.AutoModelForCausalLM.from_pretrained(save_gpt2(tmp_path), quantization_config=config)


@pytest.mark.feature("transformers", "flash_attention_2", outcome="refused")
def test_flash_attention_2_is_refused(tmp_path) -> None:
    with pytest.raises((ImportError, ValueError), match=r"(?i)flash.?attn|flash.?attention"):
        transformers.AutoModelForCausalLM.from_pretrained(
            save_gpt2(tmp_path), attn_implementation="flash_attention_2", dtype=torch.bfloat16, device_map="cuda"
        )


@pytest.mark.feature("transformers", "Trainer: optimizers of packages that are not installed", outcome="refused")
def test_optimizer_of_a_missing_package_is_refused(tmp_path) -> None:
    trainer = transformers.Trainer(
        model=gpt2(), args=options(tmp_path, optim="adamw_bnb_8bit"), train_dataset=sentences()
    )
    with pytest.raises((ImportError, ValueError), match="bitsandbytes"):
        trainer.train()
