"""LMDeploy's PyTorch engine on the embedded device: every generated token is compared with transformers in float32 on
the CPU over the same text (teacher forced), so that a near tie counts as a near tie and not as everything after it.

    python tests/lmdeploy/run.py maca llama mixtral --graph
    python tests/lmdeploy/run.py maca llama --break rms_norm     # one operator is wrong: must end with 1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import sys
import tempfile
from typing import Any

import dlinfer  # the device first: LMDeploy looks for it while it is imported
import models
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
FAULTS = {
    "llama": "rms_norm add_rms_norm silu_and_mul apply_rotary_pos_emb fill_kv_cache prefill_attention "
    "paged_prefill_attention paged_decode_attention linear",
    "qwen2-moe": "fused_moe",
    "qwen3-moe": "fused_moe moe_gating_topk_softmax",
    "mixtral": "fused_moe moe_gating_topk_softmax",
    "deepseek-v2": "fused_moe paged_decode_attention",
}
"""Model -> operators that are broken, one after the other: the comparison must notice each."""


async def _generate_one(engine: Any, number: int, prompt: list[int], count: int) -> list[int]:
    from lmdeploy import GenerationConfig

    settings, tokens = GenerationConfig(max_new_tokens=count, ignore_eos=True, top_k=1), []
    instance = engine.create_instance()
    async for step in instance.async_stream_infer(number, prompt, gen_config=settings):
        tokens += step.token_ids
    return tokens


async def _generate_all(engine: Any, count: int) -> list[list[int]]:
    engine.start_loop()
    return await asyncio.gather(
        *(_generate_one(engine, number, prompt, count) for number, prompt in enumerate(PROMPTS))
    )


def generate(folder: str, arguments: argparse.Namespace) -> list[list[int]]:
    """The tokens of each prompt, all in one batch."""
    from lmdeploy import PytorchEngineConfig
    from lmdeploy.pytorch.engine import Engine

    config = PytorchEngineConfig(
        device_type=arguments.device,
        eager_mode=not arguments.graph,
        block_size=16,
        num_gpu_blocks=128,
        max_batch_size=8,
        dtype="float16",
        session_len=512,
        max_prefill_token_num=64,  # the longest prompt comes in chunks
        enable_prefix_caching=arguments.prefix,
    )
    engine = Engine.from_pretrained(folder, trust_remote_code=True, engine_config=config)
    loop = asyncio.get_event_loop()
    results = loop.run_until_complete(_generate_all(engine, arguments.tokens))
    if arguments.prefix:
        results = loop.run_until_complete(_generate_all(engine, arguments.tokens))
    engine.close()
    return results


def compare(model: torch.nn.Module, prompt: list[int], tokens: list[int]) -> tuple[int, float]:
    """How many tokens are the largest logit, and the largest gap where they are not, as a part of the spread."""
    if not tokens:
        return 0, float("inf")
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    gaps = logits.max(-1).values - logits.gather(1, torch.tensor(tokens).unsqueeze(1)).squeeze(1)
    return int((gaps == 0).sum()), (gaps / logits.std(-1)).max().item()


def break_operator(name: str) -> Any:
    """Every second number that the operator returns is wrong by an eighth; the result takes that back."""
    from ditorch.infer import front

    right = getattr(front, name)

    def wrong(*given: Any, **named: Any) -> Any:
        if name == "fill_kv_cache":
            given = (given[0] * 1.125, *given[1:])
        result = right(*given, **named)
        for tensor in result if isinstance(result, tuple) else (result,):
            if tensor.is_floating_point() and name != "fill_kv_cache":
                tensor[..., ::2] *= 1.125
        return result

    setattr(front, name, wrong)
    return lambda: setattr(front, name, right)


def count_replays() -> list[int]:
    """How often a captured graph ran, from now on; graph mode that captures nothing would be eager mode."""
    right, count = torch.cuda.CUDAGraph.replay, [0]

    def replay(self: Any) -> None:
        count[0] += 1
        right(self)

    torch.cuda.CUDAGraph.replay = replay
    return count


REPLAYS = count_replays()


def run_model(kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    from ditorch import ledger

    before = {row["operator"]: row["calls"] for row in ledger.operators()}
    REPLAYS[0] = 0
    with tempfile.TemporaryDirectory() as folder:
        reference = models.make(kind, folder)
        results = generate(folder, arguments)
    rows = [compare(reference, prompt, tokens) for prompt, tokens in zip(PROMPTS, results, strict=True)]
    counts = {row["operator"]: row["calls"] - before.get(row["operator"], 0) for row in ledger.operators()}
    made = sum(map(len, results))
    return {
        "model": kind,
        "device": arguments.device,
        "mode": "graph" if arguments.graph else "eager",
        "tokens": made,
        "same": sum(same for same, _ in rows),
        "gap": max(gap for _, gap in rows),
        "replays": REPLAYS[0],
        "right": made == arguments.tokens * len(PROMPTS)
        and all(gap < LIMIT for _, gap in rows)
        and (REPLAYS[0] > 0) == arguments.graph,
        "operators": {name: n for name, n in counts.items() if name.startswith("dlinfer") and n},
    }


def run_faults(arguments: argparse.Namespace) -> bool:
    """Is every broken operator noticed?"""
    noticed = []
    for kind, names in FAULTS.items():
        for name in names.split():
            mend = break_operator(name)
            row = run_model(kind, arguments)
            mend()
            noticed.append(not row["right"])
            print(f"{kind:12} {row['device']:6} {row['mode']:6} {name} broken: {row['same']}/{row['tokens']}, gap "
                  f"{row['gap']:.3f}: {'noticed' if noticed[-1] else 'NOT NOTICED'}", flush=True)  # fmt: skip
    return all(noticed)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("device", choices=["ascend", "maca", "camb"])
    parser.add_argument("models", nargs="*", choices=[[], *models.MODELS], default=[])
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--prefix", action="store_true", help="prefix caching, and the prompts a second time")
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--break", dest="broken", help="an operator that computes wrongly")
    parser.add_argument("--faults", action="store_true", help="break operators: the comparison must notice each")
    parser.add_argument("--json", type=pathlib.Path, help="add the rows to this file")
    arguments = parser.parse_args()
    dlinfer.use_vendor(arguments.device)
    asyncio.set_event_loop(asyncio.new_event_loop())  # of all engines
    if arguments.broken:
        break_operator(arguments.broken)
    if arguments.faults:
        code = 0 if run_faults(arguments) else 1
        sys.stdout.flush()
        os._exit(code)
    rows = []
    for kind in arguments.models or models.MODELS:
        row = run_model(kind, arguments)
        rows.append(row)
        print(f"{row['model']:12} {row['device']:6} {row['mode']:6} {row['same']}/{row['tokens']} tokens, largest gap "
              f"{row['gap']:.3f} of the spread: {'right' if row['right'] else 'WRONG'}", flush=True)  # fmt: skip
    if arguments.json:
        with arguments.json.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    sys.stdout.flush()
    os._exit(0 if all(row["right"] for row in rows) else 1)  # the engine's threads do not end by themselves


if __name__ == "__main__":
    main()
