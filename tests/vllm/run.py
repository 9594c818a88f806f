"""vLLM on the embedded device: every greedy token is compared with transformers in float32 on the CPU over the same
text (teacher forced, as tests/lmdeploy/run.py does), then what the engine does besides, then with broken operators.

    python tests/vllm/run.py llama mixtral        # models and dtypes
    python tests/vllm/run.py --cases
    python tests/vllm/run.py --faults             # operators are wrong, one after the other: each must be noticed
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the engine's operators are counted and broken here
sys.path.append(str(pathlib.Path(__file__).parents[1] / "lmdeploy"))

import ditorch
import models
import torch
from engines import LIMIT, PROMPTS, compare
from vllm import LLM, SamplingParams

MODELS = ["llama", "qwen2", "qwen3", "mistral", "mixtral", "qwen2-moe", "qwen3-moe"]
DTYPES = ("float32", "float16")
FAULTS = {
    "llama": "rms_norm add_rms_norm silu_and_mul apply_rotary_pos_emb fill_kv_cache paged_prefill_attention "
    "paged_decode_attention",
    "mixtral": "fused_moe moe_gating_topk_softmax",
}
TOKENS = 12


@contextlib.contextmanager
def open_engine(folder: str, dtype: str = "float32", **options: Any) -> Iterator[LLM]:
    """An engine with a cache of 32 MiB."""
    from vllm.distributed import destroy_distributed_environment, destroy_model_parallel

    options = {"max_model_len": 1024, "kv_cache_memory_bytes": 32 << 20, "gpu_memory_utilization": 0.02, **options}
    engine = LLM(folder, dtype=dtype, disable_log_stats=True, **options)
    try:
        yield engine
    finally:
        del engine
        gc.collect()
        destroy_model_parallel()
        destroy_distributed_environment()


def ask(engine: LLM, prompts: list[list[int]], settings: list[dict] | dict | None = None) -> list[Any]:
    """The results of all prompts, asked at once."""
    each = settings if isinstance(settings, list) else [settings or {}] * len(prompts)
    fixed = {"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True, "detokenize": False}
    given = [{"prompt_token_ids": prompt} for prompt in prompts]
    return engine.generate(given, [SamplingParams(**{**fixed, **more}) for more in each], use_tqdm=False)


def tokens_of(results: list[Any]) -> list[list[int]]:
    return [list(result.outputs[0].token_ids) for result in results]


def judge(model: torch.nn.Module, prompts: list[list[int]], made: list[list[int]]) -> tuple[int, float]:
    """(tokens that are the reference's, largest gap); too few tokens are an endless gap."""
    rows = [compare(model, prompt, tokens) for prompt, tokens in zip(prompts, made, strict=True)]
    complete = all(len(tokens) == TOKENS for tokens in made)
    return sum(same for same, _ in rows), max(gap for _, gap in rows) if complete else float("inf")


def run_model(kind: str, dtype: str) -> bool:
    limit = LIMIT if dtype == "float16" else 1e-4
    with tempfile.TemporaryDirectory() as folder:
        reference = models.make(kind, folder)
        with open_engine(folder, dtype) as engine:
            made = tokens_of(ask(engine, PROMPTS))
    same, gap = judge(reference, PROMPTS, made)
    print(f"{kind:12} {dtype}: {same}/{TOKENS * len(PROMPTS)}, gap {gap:.4f}: {'right' if gap < limit else 'WRONG'}")
    return gap < limit


def check_operators() -> bool:
    """Did the C functions run, and did nothing of a model fall back?"""
    expected = {name for names in FAULTS.values() for name in names.split()}
    ran = {row["operator"].removeprefix("dlinfer::") for row in ditorch.ledger.operators() if row["calls"]}
    print(f"operators of dlinfer that did not run in C: {sorted(expected - ran) or 'none'}")
    return expected <= ran


class Broken:
    """torch.ops.dlinfer with one wrong function: every second number of what it returns or writes is off by an eighth
    (of fill_kv_cache: the keys)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        right = getattr(torch.ops.dlinfer, name)
        if name != self.name:
            return right

        def wrong(*given: Any) -> Any:
            if name == "fill_kv_cache":
                return right(given[0] * 1.125, *given[1:])
            result = right(*given)
            made = result if isinstance(result, (tuple, list)) else (given[-1] if "attention" in name else result,)
            for tensor in made:
                if tensor.is_floating_point():
                    tensor[..., ::2] *= 1.125
            return result

        return wrong


@contextlib.contextmanager
def broken(name: str) -> Iterator[None]:
    from ditorch.infer import vllm_attention, vllm_layers

    vllm_attention._ops = vllm_layers._ops = Broken(name)
    try:
        yield
    finally:
        vllm_attention._ops = vllm_layers._ops = torch.ops.dlinfer


def run_faults() -> bool:
    noticed = []
    for kind, names in FAULTS.items():
        for name in names.split():
            with broken(name):
                noticed.append(not run_model(kind, "float32"))
            print(f"{name} broken: {'noticed' if noticed[-1] else 'NOT NOTICED'}", flush=True)
    return all(noticed)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--cases", nargs="?", const="", help="all, or those with this text in their names")
    parser.add_argument("--faults", action="store_true")
    arguments = parser.parse_args()
    if arguments.faults:
        return 0 if run_faults() else 1
    if arguments.cases is not None:
        import cases

        return 0 if cases.run_all(arguments.cases) else 1
    right = [run_model(kind, dtype) for kind in arguments.models or MODELS for dtype in DTYPES]
    return 0 if all(right) and (arguments.models or check_operators()) else 1


if __name__ == "__main__":
    sys.modules["run"] = sys.modules["__main__"]
    raise SystemExit(main())
