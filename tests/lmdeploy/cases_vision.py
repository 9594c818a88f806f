"""Vision models: prompts with two images, one and none, in one batch."""

from __future__ import annotations

import tempfile

import torch
import vision
from case_list import Setup, add_up, case
from engines import Ask, ask_all, compare


class _Seeing(torch.nn.Module):
    """The reference with its images: what `compare` calls is a model of tokens."""

    def __init__(self, model: torch.nn.Module, kind: str, images: torch.Tensor) -> None:
        super().__init__()
        self.model, self.kind, self.images = model, kind, images

    def forward(self, tokens: torch.Tensor):
        return self.model(input_ids=tokens, **vision.show(self.kind, self.images, tokens))


def _forbid(index: int, made: list[int], logits: torch.Tensor) -> torch.Tensor:
    """The token of an image's places is not for the text."""
    return logits.index_fill(0, torch.tensor(vision.IMAGE), float("-inf"))


def _look(setup: Setup, kind: str) -> tuple[bool, str]:
    image, images = [vision.START, *[vision.IMAGE] * vision.PLACES, vision.START - 1], vision.make_images(kind, 3)
    prompts = [[5, 9, *image, 17, 30, *image, 200, 7], [*image, 11], list(range(1, 41))]
    shown = [images[:2], images[2:], images[:0]]
    offsets = [[3, 7 + vision.PLACES], [1], []]
    placed = [vision.place(kind, *each) for each in zip(shown, offsets, strict=True)]
    settings = {"bad_token_ids": [vision.IMAGE]}
    asks = [Ask(prompt, settings=settings, images=each) for prompt, each in zip(prompts, placed, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        model = vision.make(kind, folder)
        with setup.open_engine(folder) as engine:
            answers = ask_all(engine, asks)
    rows = [
        compare(_Seeing(model, kind, seen), prompt, answer.tokens, _forbid)
        for prompt, seen, answer in zip(prompts, shown, answers, strict=True)
    ]
    blind = compare(_Seeing(model, kind, images[1:]), prompts[0], answers[0].tokens, _forbid)[
        0
    ]  # other images must matter
    right, note = add_up(rows, answers, 12)
    return right and blind < 12, note


@case("InternVL 3 (transformers' form), images", fault="prefill_attention")
def internvl(setup: Setup) -> tuple[bool, str]:
    return _look(setup, "internvl")


@case("InternVL 1.5 and 2 (InternVLChatModel), images", fault="prefill_attention")
def internvl_chat(setup: Setup) -> tuple[bool, str]:
    return _look(setup, "internvl-chat")


@case("Qwen2-VL, images", fault="prefill_attention")
def qwen2_vl(setup: Setup) -> tuple[bool, str]:
    return _look(setup, "qwen2-vl")


@case("Qwen2.5-VL, images", fault="prefill_attention")
def qwen2_5_vl(setup: Setup) -> tuple[bool, str]:
    return _look(setup, "qwen2.5-vl")
