"""LMDeploy's engine, what is asked of it, and how its tokens are judged."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

PROMPTS = [
    [5, 9, 200],
    list(range(1, 41)),
    [7],
    [3, 1, 4, 1, 5, 9, 2, 6] * 20,
    [(7 * i * i + 3) % 255 + 1 for i in range(230)],
]
LIMIT = 0.008
"""Of the spread of the logits: float16 may choose another token that is this near. A few roundings of 2**-11."""


@dataclasses.dataclass
class Ask:
    """One request. `settings` are GenerationConfig's; after `cancel` tokens the caller goes away."""

    prompt: list[int]
    tokens: int = 12
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    cancel: int = 0
    images: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Answer:
    """What came back: tokens, LMDeploy's last status, and how many tokens of the prompt were in the cache."""

    tokens: list[int]
    status: str
    cached: int


@contextlib.contextmanager
def open_engine(folder: str, device: str, graph: bool = False, **more: Any) -> Iterator[Any]:
    """A small engine over the checkpoint in `folder`."""
    from lmdeploy import PytorchEngineConfig
    from lmdeploy.pytorch.engine import Engine

    settings = {
        "block_size": 16,
        "num_gpu_blocks": 128,
        "max_batch_size": 8,
        "dtype": "float16",
        "session_len": 512,
        "max_prefill_token_num": 64,  # the longest prompts come in chunks
    }
    config = PytorchEngineConfig(device_type=device, eager_mode=not graph, **{**settings, **more})
    engine = Engine.from_pretrained(folder, trust_remote_code=True, engine_config=config)
    try:
        yield engine
    finally:
        engine.close()


async def _ask_one(engine: Any, session: int, ask: Ask) -> Answer:
    from lmdeploy import GenerationConfig

    settings = {"ignore_eos": True, "top_k": 1, **ask.settings}
    config = GenerationConfig(max_new_tokens=ask.tokens, **settings)
    answer, instance = Answer([], "", 0), engine.create_instance()
    async for step in instance.async_stream_infer(
        session, ask.prompt, gen_config=config, multimodal=ask.images or None
    ):
        answer.tokens += step.token_ids
        answer.status = step.status.name
        metrics = getattr(step, "req_metrics", None)
        answer.cached = max(answer.cached, getattr(metrics, "cached_tokens", 0) or 0)
        if ask.cancel and len(answer.tokens) >= ask.cancel and step.status.name == "SUCCESS":
            await instance.async_cancel(session)
    return answer


_sessions = iter(range(1, 1 << 30))


async def _ask_all(engine: Any, asks: list[Ask], limit: float) -> list[Answer]:
    engine.start_loop()
    return await asyncio.wait_for(
        asyncio.gather(*(_ask_one(engine, next(_sessions), ask) for ask in asks)), timeout=limit
    )


def ask_all(engine: Any, asks: list[Ask], limit: float = 300) -> list[Answer]:
    """All at once, each in a session of its own."""
    return asyncio.get_event_loop().run_until_complete(_ask_all(engine, asks, limit))


Change = Callable[[int, list[int], torch.Tensor], torch.Tensor]
"""(index of the new token, tokens made before it, logits) -> the logits after penalties."""


def compare(model: torch.nn.Module, prompt: list[int], tokens: list[int], change: Change | None = None, best: int = 1):
    """How many tokens are among the `best` logits, and how far the worst is from them, as a part of the spread. The
    logits are transformers' in float32 over the same text: a near tie counts as one, not as everything after it."""
    if not tokens:
        return 0, float("inf")
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    spread = logits.std(-1)
    if change is not None:
        logits = torch.stack([change(i, tokens[:i], row.clone()) for i, row in enumerate(logits)])
    least = logits.topk(best).values[:, -1]
    gaps = (least - logits.gather(1, torch.tensor(tokens).unsqueeze(1)).squeeze(1)).clamp_min(0)
    return int((gaps == 0).sum()), (gaps / spread).max().item()
