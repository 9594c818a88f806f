"""A tiny random Llama with a tokenizer, to try a server on: it writes nonsense, by the same code as a real one.

python -m ditorch.infer.tiny_model FOLDER
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

import torch

VOCABULARY = 256


def save_tokenizer(folder: pathlib.Path) -> None:
    """A character for each number: ASCII where it can be printed, so that a model can be made to write JSON."""
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import WordLevel

    letters = [chr(i) if 32 <= i < 127 else chr(256 + i) for i in range(VOCABULARY)]
    tokenizer = Tokenizer(WordLevel({letter: i for i, letter in enumerate(letters)}, unk_token=letters[3]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=letters[3],
        eos_token=letters[0],
        bos_token=letters[1],
        pad_token=letters[0],
        chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",
    ).save_pretrained(folder)


def spread_weights(model: torch.nn.Module) -> None:
    """Weights of a size at which every layer moves the result as much as its input does. With those of a fresh model
    the embeddings decide alone, and an operator could be wrong without a token changing."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            size = 1.0 if "embed" in name else 1.7 / parameter.shape[-1] ** 0.5
            parameter.data.normal_(0, size)


def save(folder: pathlib.Path, **more: Any) -> None:
    """A checkpoint of 2 layers in float16, as transformers and LMDeploy load it."""
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024}
    sizes |= {"eos_token_id": 0, "bos_token_id": 1, "pad_token_id": 0, "tie_word_embeddings": False}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **more})).eval()
    spread_weights(model)
    model.half().save_pretrained(folder)
    save_tokenizer(folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ditorch.infer.tiny_model", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        print(f"{folder} is there already and not empty; give another folder", file=sys.stderr)
        return 1
    save(folder)
    print(f"{folder}: a Llama of 2 layers with random weights, and its tokenizer")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
