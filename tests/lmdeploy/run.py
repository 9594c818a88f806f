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
import engines
import models
import torch
from engines import LIMIT, PROMPTS, compare
from faulty import break_operator

FAULTS = {
    "llama": "rms_norm add_rms_norm silu_and_mul apply_rotary_pos_emb fill_kv_cache prefill_attention "
    "paged_prefill_attention paged_decode_attention linear",
    "qwen2-moe": "fused_moe",
    "qwen3-moe": "fused_moe moe_gating_topk_softmax",
    "mixtral": "fused_moe moe_gating_topk_softmax",
    "deepseek-v2": "fused_moe paged_decode_attention",
}
"""Model -> operators that are broken, one after the other: the comparison must notice each."""


def generate(folder: str, arguments: argparse.Namespace) -> list[list[int]]:
    """The tokens of each prompt, all in one batch."""
    more = {"tp": arguments.tp, "distributed_executor_backend": "mp"} if arguments.tp > 1 else {}
    with engines.open_engine(folder, arguments.device, arguments.graph, **more) as engine:
        answers = engines.ask_all(engine, [engines.Ask(prompt, arguments.tokens) for prompt in PROMPTS])
    return [answer.tokens for answer in answers]


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
        and (arguments.tp > 1 or (REPLAYS[0] > 0) == arguments.graph),  # of workers, not of this process
        "operators": {name: n for name, n in counts.items() if name.startswith("dlinfer") and n},
    }


def run_faults(arguments: argparse.Namespace) -> bool:
    """Is every broken operator noticed?"""
    noticed = []
    for kind, names in FAULTS.items():
        whole = run_model(kind, arguments)
        if not whole["right"]:
            print(f"{kind:12} {whole['device']:6} {whole['mode']:6} WRONG with nothing broken: NOT NOTICED", flush=True)
            noticed.append(False)
            continue
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
    parser.add_argument("--tp", type=int, default=1, help="devices that share each layer (DITORCH_HOST_DEVICES)")
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
