"""How fast a model generates: the time to the first token, between tokens, and tokens per second.

Engines: "paged" (paged.py: the fused operators), "graph" (its decoding steps replayed), "transformers" (the model as it
is; on the device with attention through dlinfer). Several of them take turns, round by round, so that a busy moment
hits all.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

ENGINES = ("paged", "graph", "transformers")
SIZES = {
    "tiny": {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "heads": (4, 2)},
    "24m": {
        **{"vocab_size": 12800, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8},
        "heads": (6, 2),
    },
    "110m": {
        **{"vocab_size": 16000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12},
        "heads": (12, 4),
    },
}
"""Llamas with random weights, about as large as their names say."""
PERCENTILES = (50, 75, 95, 99)


class Place(NamedTuple):
    """Where a model runs, and how."""

    device: str
    engine: str

    @property
    def name(self) -> str:
        return f"{self.device} {self.engine}"


def make_model(size: str, dtype: torch.dtype, length: int) -> Any:
    """A random model of SIZES on the CPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    numbers = dict(SIZES[size])
    heads, key_heads = numbers.pop("heads")
    special = {f"{name}_token_id": None for name in ("bos", "eos", "pad")}
    config = LlamaConfig(
        **numbers,
        **special,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=max(length, 2048),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval().to(dtype)


def load_model(folder: str, dtype: torch.dtype) -> Any:
    """The causal model of a local folder, on the CPU. Nothing is downloaded, unpickled or run from it."""
    from transformers import AutoModelForCausalLM

    if not os.path.exists(os.path.join(folder, "config.json")):
        raise ValueError(f"{folder!r} is no model folder: it has no config.json")
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, local_files_only=True, use_safetensors=True, trust_remote_code=False
    ).eval()


def _make_transformers(model: Any) -> tuple[Callable[[Tensor], None], Callable[[], None]]:
    state: dict[str, Any] = {}

    def run(tokens: Tensor, **past: Any) -> None:
        out = model(tokens, use_cache=True, logits_to_keep=1, **past)
        state["past_key_values"], state["token"] = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)

    return run, lambda: run(state["token"], past_key_values=state["past_key_values"])


def make_session(model: Any, engine: str, batch: int, length: int) -> tuple[Callable[[Tensor], Any], Callable[[], Any]]:
    """(start with prompts, one more token) of a model that lies on its device."""
    if engine == "transformers":
        return _make_transformers(model)
    from .paged import PagedModel

    paged = PagedModel(model, batch, length)
    if engine == "graph":
        paged.prefill(torch.zeros(batch, 1, dtype=torch.int64, device=model.device))
        paged.capture()
    return paged.prefill, paged.step


def place_model(model: Any, place: Place) -> Any:
    """A copy of the model for this place."""
    model = copy.deepcopy(model).to(place.device)
    if place.engine == "transformers" and place.device != "cpu":
        from .transformers_attention import use

        use(model)
    return model


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def summarize(seconds: list[float]) -> dict[str, float]:
    """Milliseconds: the least, the mean, percentiles (of few values: the next one that was measured)."""
    ordered = sorted(value * 1e3 for value in seconds)
    if not ordered:
        return {}
    found = {f"p{p}": ordered[min(len(ordered) - 1, -(-p * len(ordered) // 100) - 1)] for p in PERCENTILES}
    return {"min": ordered[0], "mean": sum(ordered) / len(ordered), **found}


@torch.no_grad()
def _run(session: tuple[Callable, Callable], prompts: Tensor, count: int, device: str) -> tuple[float, list[float]]:
    start, step = session
    before = time.perf_counter()
    start(prompts)
    _wait(device)
    first, steps = time.perf_counter() - before, []
    for _ in range(count - 1):
        before = time.perf_counter()
        step()
        _wait(device)
        steps.append(time.perf_counter() - before)
    return first, steps


def measure(
    models: dict[Place, Any], batch: int, prompt: int, count: int, rounds: int = 3, warmup: int = 1
) -> list[dict[str, Any]]:
    """One row for each place: `count` new tokens after prompts of `prompt` random ones, `rounds` times in turns."""
    sessions, firsts, steps, walls = {}, {}, {}, {}
    for place, model in models.items():
        sessions[place] = make_session(model, place.engine, batch, prompt + count)
        firsts[place], steps[place], walls[place] = [], [], []
    vocabulary = next(iter(models.values())).config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, vocabulary, (batch, prompt), generator=generator)
    for number in range(warmup + rounds):
        for place, session in sessions.items():
            first, more = _run(session, prompts.to(place.device), count, place.device)
            if number >= warmup:
                firsts[place].append(first)
                steps[place] += more
                walls[place].append(first + sum(more))
    rows = []
    for place in models:
        seconds = sorted(walls[place])[len(walls[place]) // 2]
        rows.append(
            {
                "device": place.device,
                "engine": place.engine,
                "batch": batch,
                "prompt_tokens": prompt,
                "completion_tokens": count,
                "rounds": rounds,
                "first_token_ms": summarize(firsts[place]),
                "token_ms": summarize(steps[place]),
                "throughput": batch * count / seconds,
                "total_throughput": batch * (prompt + count) / seconds,
            }
        )
    return rows
