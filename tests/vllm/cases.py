"""What vLLM's engine does besides greedy batches: each case is a function that tells whether it was right."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import models
import torch
from engines import PROMPTS
from run import TOKENS, ask, judge, open_engine, tokens_of


def _compare(options: dict[str, Any], dtype: str = "float32") -> bool:
    """The engine with these options against the reference."""
    with tempfile.TemporaryDirectory() as folder:
        reference = models.make("llama", folder)
        with open_engine(folder, dtype, **options) as engine:
            made = tokens_of(ask(engine, PROMPTS))
    return judge(reference, PROMPTS, made)[1] < 1e-4


def chunks() -> bool:
    """Prompts of up to 230 tokens, 64 at a time, beside other sequences that decode."""
    return _compare({"max_num_batched_tokens": 64, "enable_chunked_prefill": True, "max_num_seqs": 4})


def preemption() -> bool:
    """A cache of 33 blocks for prompts of 28 and their tokens: sequences are put off and computed again."""
    return _compare({"num_gpu_blocks_override": 33, "max_model_len": 512, "kv_cache_memory_bytes": None})


def measured_memory() -> bool:
    """The engine measures what the model takes and gives the rest to the cache."""
    return _compare({"kv_cache_memory_bytes": None})


def larger_blocks() -> bool:
    return _compare({"block_size": 64})


def prefix_caching() -> bool:
    """The same prompts twice: the second time most of their tokens are in the cache."""
    with tempfile.TemporaryDirectory() as folder:
        reference = models.make("llama", folder)
        with open_engine(folder, enable_prefix_caching=True) as engine:
            first, again = ask(engine, PROMPTS), ask(engine, PROMPTS)
    cached = sum(result.num_cached_tokens or 0 for result in again)
    right = judge(reference, PROMPTS, tokens_of(again))[1] < 1e-4
    return right and tokens_of(first) == tokens_of(again) and cached > sum(map(len, PROMPTS)) // 2


def log_probabilities() -> bool:
    """Of the prompt's tokens and of the new ones."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        reference = models.make("qwen2", folder)
        with open_engine(folder) as engine:
            results = ask(engine, PROMPTS, {"logprobs": 2, "prompt_logprobs": 1})
    for prompt, result in zip(PROMPTS, results, strict=True):
        tokens = list(result.outputs[0].token_ids)
        with torch.no_grad():
            expected = reference(torch.tensor([prompt + tokens])).logits[0].log_softmax(-1)
        given = [*result.prompt_logprobs[1:], *result.outputs[0].logprobs]
        for row, token, found in zip(expected, (prompt + tokens)[1:], given, strict=False):
            worst = max(worst, abs(row[token].item() - found[token].logprob))
    return worst < 1e-3


def seeds() -> bool:
    """A request with a seed has the same tokens alone and in a batch, and others with another seed."""
    drawn = {"temperature": 1.0, "top_p": 0.9, "top_k": 40}
    with tempfile.TemporaryDirectory() as folder:
        models.make("llama", folder)
        with open_engine(folder) as engine:
            settings = [{**drawn, "seed": i} for i in range(len(PROMPTS))]
            together = tokens_of(ask(engine, PROMPTS, settings))
            alone = [tokens_of(ask(engine, [PROMPTS[i]], [settings[i]]))[0] for i in range(len(PROMPTS))]
            other = tokens_of(ask(engine, [PROMPTS[1]], [{**drawn, "seed": 77}]))[0]
    return together == alone and other != together[1]


def penalties() -> bool:
    """No token twice, where repeating one costs more than any logit; none that is forbidden."""
    settings = {"presence_penalty": 2.0, "frequency_penalty": 2.0, "repetition_penalty": 50.0}
    with tempfile.TemporaryDirectory() as folder:
        models.make("llama", folder)
        with open_engine(folder) as engine:
            made = tokens_of(ask(engine, PROMPTS, settings))
            banned = tokens_of(ask(engine, PROMPTS, {"allowed_token_ids": list(range(10, 20))}))
    once = all(len(set(tokens)) == TOKENS for tokens in made)
    return once and all(10 <= token < 20 for tokens in banned for token in tokens)


def structured() -> bool:
    """A regular expression, beside requests without one."""
    import re

    from vllm.sampling_params import StructuredOutputsParams

    form = StructuredOutputsParams(regex="[0-9]{3}-[a-f]{4}")
    settings = [
        {"structured_outputs": form, "detokenize": True, "ignore_eos": False} if i % 2 else {} for i in range(5)
    ]
    with tempfile.TemporaryDirectory() as folder:
        reference = models.make("llama", folder)
        with open_engine(folder) as engine:
            results = ask(engine, PROMPTS, settings)
    texts = [result.outputs[0].text for result in results[1::2]]
    free = judge(reference, PROMPTS[::2], tokens_of(results[::2]))[1] < 1e-4
    return free and all(re.fullmatch("[0-9]{3}-[a-f]{4}", text) for text in texts)


def bad_request() -> bool:
    """A request that is refused leaves the engine as it was."""
    with tempfile.TemporaryDirectory() as folder:
        reference = models.make("llama", folder)
        with open_engine(folder) as engine:
            try:
                ask(engine, [[100000]])
                return False
            except Exception as error:
                refused = "out of vocabulary" in str(error)
            made = tokens_of(ask(engine, PROMPTS))
    return refused and judge(reference, PROMPTS, made)[1] < 1e-4


CASES: dict[str, Callable[[], bool]] = {
    "long prompts in chunks of 64 tokens": chunks,
    "a small cache: sequences are put off": preemption,
    "memory for the cache is measured": measured_memory,
    "blocks of 64 tokens": larger_blocks,
    "prefix caching, the same prompts twice": prefix_caching,
    "log probabilities of prompts and tokens": log_probabilities,
    "sampling with seeds, alone and in a batch": seeds,
    "penalties, allowed tokens": penalties,
    "guided decoding: a regular expression": structured,
    "a refused request": bad_request,
}


def run_all(part: str = "") -> bool:
    results = []
    for name, case in CASES.items():
        if part not in name:
            continue
        try:
            results.append(case())
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
            results.append(False)
        print(f"{name}: {'right' if results[-1] else 'WRONG'}", flush=True)
    return all(results)
