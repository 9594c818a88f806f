"""Quantised weights and caches. Their references round the same numbers; a limit larger than float16's is left for
values that lie between two of them."""

from __future__ import annotations

import os
import pathlib
import tempfile

import models
import quantize
from case_list import Setup, case
from engines import LIMIT, PROMPTS, Ask, ask_all, compare

INT8_LIMIT = 0.15
"""Of the spread: an int8 that is rounded the other way moves its sum by about a hundredth."""


def _run(setup: Setup, form: str, limit: float) -> tuple[bool, str]:
    asks = [Ask(prompt) for prompt in PROMPTS]
    with tempfile.TemporaryDirectory() as folder:
        model = quantize.make(form, folder)
        with setup.open_engine(folder) as engine:
            answers = ask_all(engine, asks)
    rows = [compare(model, ask.prompt, answer.tokens) for ask, answer in zip(asks, answers, strict=True)]
    made = sum(len(answer.tokens) for answer in answers)
    note = f"{sum(same for same, _ in rows)}/{made}, largest gap {max(gap for _, gap in rows):.3f}"
    return made == 12 * len(asks) and all(gap < limit for _, gap in rows), note


@case("AWQ, 4 bits in groups of 32", fault="weight_quant_matmul")
def awq(setup: Setup) -> tuple[bool, str]:
    return _run(setup, "awq", LIMIT)


@case("SmoothQuant W8A8", fault="linear_w8a8 rms_norm_w8a8 add_rms_norm_w8a8 dynamic_quant")
def w8a8(setup: Setup) -> tuple[bool, str]:
    return _run(setup, "smooth_quant", INT8_LIMIT)


@case("int8 caches (quant_policy 8)", fault="fill_kv_cache", devices=("ascend",), modes=("eager",))
def kv_int8(setup: Setup) -> tuple[bool, str]:
    rows, made = [], 0
    with tempfile.TemporaryDirectory() as folder:
        model = models.make("llama", folder)
        record = pathlib.Path(folder) / "scales.txt"
        quantize.write_cache_scales(record, models.SIZES["num_hidden_layers"])
        os.environ["ASCEND_QUANT_RECORD_FILE"] = str(record)
        with setup.open_engine(folder, quant_policy=8, max_prefill_token_num=1024) as engine:
            answers = ask_all(engine, [Ask(prompt) for prompt in PROMPTS])
        for prompt, answer in zip(PROMPTS, answers, strict=True):
            quantize.round_caches(model, len(prompt))
            rows.append(compare(model, prompt, answer.tokens))
            made += len(answer.tokens)
    note = f"{sum(same for same, _ in rows)}/{made}, largest gap {max(gap for _, gap in rows):.3f}"
    return made == 12 * len(PROMPTS) and all(gap < INT8_LIMIT for _, gap in rows), note
