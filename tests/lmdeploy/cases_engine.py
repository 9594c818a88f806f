"""What LMDeploy's engine does besides a plain batch: long prompts, prefix caching, sampling, cancelled requests, errors
of one request, guided decoding."""

from __future__ import annotations

import json
import re
from typing import Any

import torch
from case_list import Setup, add_up, case, make_model
from ditorch import ledger
from engines import LIMIT, PROMPTS, Answer, Ask, ask_all, compare


def _count(operator: str) -> int:
    return sum(row["calls"] for row in ledger.operators() if row["operator"] == f"dlinfer::{operator}")


def _judge(model: Any, asks: list[Ask], answers: list[Answer], change: Any = None) -> list[tuple[int, float]]:
    return [compare(model, ask.prompt, answer.tokens, change) for ask, answer in zip(asks, answers, strict=True)]


@case("long prompts in chunks of 64 tokens", fault="paged_prefill_attention")
def long_prompts(setup: Setup) -> tuple[bool, str]:
    folder, model = make_model()
    asks = [Ask([(i * i * k + k) % 255 + 1 for i in range(length)]) for k, length in ((3, 100), (5, 257), (7, 400))]
    before = _count("paged_prefill_attention")
    with setup.open_engine(folder) as engine:
        answers = ask_all(engine, asks)
    right, note = add_up(_judge(model, asks, answers), answers, 12)
    return right and _count("paged_prefill_attention") > before, note


@case("prefix caching, the same prompts twice", fault="paged_prefill_attention")
def prefix_caching(setup: Setup) -> tuple[bool, str]:
    folder, model = make_model()
    asks = [Ask(prompt) for prompt in PROMPTS]
    with setup.open_engine(folder, enable_prefix_caching=True) as engine:
        ask_all(engine, asks)
        answers = ask_all(engine, asks)
    right, note = add_up(_judge(model, asks, answers), answers, 12)
    cached, given = sum(answer.cached for answer in answers), sum(map(len, PROMPTS))
    return right and cached > 0.8 * given, f"{note}, {cached} of {given} tokens from the cache"


@case("a small engine, then a larger one", fault="prefill_attention")
def two_engines(setup: Setup) -> tuple[bool, str]:
    folder, model = make_model()
    asks = [[Ask([5, 9])], [Ask([i % 250 + 1 for i in range(400)]), Ask(PROMPTS[4])]]
    with setup.open_engine(folder, num_gpu_blocks=17) as engine:
        answers = ask_all(engine, asks[0])
    with setup.open_engine(folder, max_prefill_token_num=1024) as engine:
        answers += ask_all(engine, asks[1])
    return add_up(_judge(model, asks[0] + asks[1], answers), answers, 12)


@case("greedy with penalties: repetition, forbidden tokens, least length", fault="rms_norm")
def penalties(setup: Setup) -> tuple[bool, str]:
    folder, model = make_model()
    banned, penalty = list(range(0, 256, 3)), 1.6
    settings = {"repetition_penalty": penalty, "bad_token_ids": banned, "ignore_eos": False, "min_new_tokens": 12}
    asks = [Ask(prompt, settings={**settings, "stop_token_ids": [1, 4, 7, 10]}) for prompt in PROMPTS]

    def change(index: int, tokens: list[int], row: torch.Tensor) -> torch.Tensor:
        seen = torch.tensor(sorted(set(tokens)), dtype=torch.int64)
        row[seen] = torch.where(row[seen] < 0, row[seen] * penalty, row[seen] / penalty)
        row[[*banned, 1, 4, 7, 10]] = -torch.inf
        return row

    with setup.open_engine(folder) as engine:
        answers = ask_all(engine, asks)
    return add_up(_judge(model, asks, answers, change), answers, 12)


@case("sampling with seeds, alone and in a batch", fault="add_rms_norm")
def sampling(setup: Setup) -> tuple[bool, str]:
    folder, model = make_model()
    settings = [{"top_k": 4, "temperature": 1.5, "random_seed": seed, "do_sample": True} for seed in range(8)]
    asks = [Ask(PROMPTS[i % 5], settings=each) for i, each in enumerate(settings)]
    with setup.open_engine(folder) as engine:
        answers = ask_all(engine, asks)
        alone = [ask_all(engine, [ask])[0] for ask in asks]
    rows = [compare(model, ask.prompt, answer.tokens, best=4) for ask, answer in zip(asks, answers, strict=True)]
    right, note = add_up(rows, answers, 12)
    same = sum(a.tokens == b.tokens for a, b in zip(answers, alone, strict=True))
    varied = len({tuple(answer.tokens) for answer in answers}) == len(answers)
    return right and varied and same == len(asks), f"{note} among the best 4, {same}/{len(asks)} the same alone"


@case("log probabilities", fault="linear")
def log_probabilities(setup: Setup) -> tuple[bool, str]:
    folder, model = make_model()
    import asyncio

    from lmdeploy import GenerationConfig

    async def ask(engine: Any) -> tuple[list[int], list[dict[int, float]]]:
        engine.start_loop()
        tokens, found = [], []
        config = GenerationConfig(max_new_tokens=8, ignore_eos=True, top_k=1, logprobs=3)
        async for step in engine.create_instance().async_stream_infer(1, PROMPTS[1], gen_config=config):
            tokens += step.token_ids
            found += step.logprobs or []
        return tokens, found

    with setup.open_engine(folder, logprobs_mode="raw_logprobs") as engine:
        tokens, found = asyncio.get_event_loop().run_until_complete(ask(engine))
    with torch.no_grad():
        logits = model(torch.tensor([PROMPTS[1] + tokens])).logits[0, len(PROMPTS[1]) - 1 : -1].log_softmax(-1)
    errors = [abs(value - logits[i, token].item()) for i, row in enumerate(found) for token, value in row.items()]
    right = len(found) == 8 and len(errors) >= 24 and max(errors) < 0.03
    return right, f"{len(errors)} numbers" + (f", largest error {max(errors):.3f}" if not right and errors else "")


@case("a cancelled request", fault="paged_decode_attention")
def cancelled(setup: Setup) -> tuple[bool, str]:
    folder, model = make_model()
    asks = [Ask(prompt, 20, cancel=4 if i % 2 else 0) for i, prompt in enumerate(PROMPTS)]
    with setup.open_engine(folder) as engine:
        free = engine.scheduler.block_manager.get_num_free_gpu_blocks()
        answers = ask_all(engine, asks)
        later = ask_all(engine, [Ask(PROMPTS[3])])
        left = engine.scheduler.block_manager.get_num_free_gpu_blocks()
    ended = [answer.status for answer in answers] == ["FINISH", "CANCEL", "FINISH", "CANCEL", "FINISH"]
    short = all(4 <= len(answers[i].tokens) < 20 for i in (1, 3))
    others = [answers[i] for i in (0, 2, 4)]
    right, note = add_up(_judge(model, [asks[i] for i in (0, 2, 4)], others), others, 20)
    again, _ = add_up(_judge(model, [Ask(PROMPTS[3])], later), later, 12)
    return right and again and ended and short and free == left, f"{note} of the others, all blocks free again"


def _raise(tokens: Any, scores: Any) -> Any:
    raise RuntimeError("a caller's mistake")


ERRORS = {
    "a schema that is none": Ask([5], settings={"response_format": {"type": "json_schema", "json_schema": "{]"}}),
    "a regular expression that is none": Ask(
        [5], settings={"response_format": {"type": "regex_schema", "regex_schema": "(("}}
    ),
    "an unknown form of answer": Ask([5], settings={"response_format": {"type": "poem"}}),
    "a token beyond the vocabulary": Ask([5, 256]),
    "a forbidden token beyond the vocabulary": Ask([5], settings={"bad_token_ids": [999]}),
    "no token": Ask([]),
    "more tokens than a session may have": Ask([5] * 600),
    "a logits processor that raises": Ask([5], settings={"logits_processors": [_raise]}),
}


@case("errors in single requests of a batch", fault="silu_and_mul")
def errors(setup: Setup) -> tuple[bool, str]:
    folder, model = make_model()
    with setup.open_engine(folder) as engine:
        asks = [Ask(prompt) for prompt in PROMPTS[:2]]
        answers = ask_all(engine, [asks[0], *ERRORS.values(), asks[1]], limit=60)
        later = ask_all(engine, asks, limit=60)
    wrong = [answer for answer in answers[1:-1] if not answer.status.endswith("_ERROR") or answer.tokens]
    found = [answers[0], answers[-1], *later]
    right, note = add_up(_judge(model, asks * 2, found), found, 12)
    return right and not wrong, f"{len(ERRORS) - len(wrong)}/{len(ERRORS)} refused, {note} of the others"


@case("an exception in an operator", fault="silu_and_mul")
def exceptions(setup: Setup) -> tuple[bool, str]:
    """It ends the requests of the batch; those after it are served, and the blocks are free again."""
    import ditorch

    folder, model = make_model()
    ended, asks = 0, [Ask(prompt) for prompt in PROMPTS[:3]]
    with setup.open_engine(folder) as engine:
        free = engine.scheduler.block_manager.get_num_free_gpu_blocks()
        answers = ask_all(engine, asks, limit=60)
        for rule in (
            "error:dlinfer::fill_kv_cache,call=1",
            "error:dlinfer::silu_and_mul,call=9",
            "error:mm|addmm|linear|matmul",
        ):
            with ditorch.fault(rule):
                broken = ask_all(engine, asks, limit=60)
            ended += sum(answer.status.endswith("_ERROR") for answer in broken)
            if not broken[0].status.endswith("_ERROR"):
                return False, f"{rule}: {[answer.status for answer in broken]}"
            answers += ask_all(engine, asks, limit=60)
        left = engine.scheduler.block_manager.get_num_free_gpu_blocks()
    right, note = add_up(_judge(model, asks * 4, answers), answers, 12)
    return right and left == free and ended >= 7, f"{ended} requests ended, {note} of those around"


SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "size": {"enum": [1, 22, 333]}},
    "required": ["ok", "size"],
    "additionalProperties": False,
}
FORMATS = [
    {"type": "json_schema", "json_schema": {"name": "test", "schema": SCHEMA}},
    {"type": "regex_schema", "regex_schema": "(cat|dog|bird)-[0-9]{3}"},
]


def _compile(folder: str, chosen: dict[str, Any]) -> Any:
    import transformers
    import xgrammar

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=256))
    if chosen["type"] == "regex_schema":
        return tokenizer, compiler.compile_regex(chosen["regex_schema"])
    return tokenizer, compiler.compile_json_schema(json.dumps(SCHEMA))


@case("guided decoding: a JSON schema, a regular expression", fault="apply_rotary_pos_emb")
def guided(setup: Setup) -> tuple[bool, str]:
    import xgrammar

    folder, model = make_model()
    until = {"ignore_eos": False, "stop_token_ids": [0]}
    asks = [Ask(PROMPTS[1], 64, settings={"response_format": each, **until}) for each in FORMATS]
    asks.append(Ask(PROMPTS[3], 12))
    with setup.open_engine(folder) as engine:
        answers = ask_all(engine, asks)
    free, _ = add_up([compare(model, asks[2].prompt, answers[2].tokens)], answers[2:], 12)
    texts, gaps = [], []
    for ask, answer, chosen in zip(asks, answers, FORMATS, strict=False):
        tokenizer, grammar = _compile(folder, chosen)

        def change(index: int, tokens: list[int], row: torch.Tensor, grammar: Any = grammar) -> torch.Tensor:
            matcher, mask = xgrammar.GrammarMatcher(grammar), xgrammar.allocate_token_bitmask(1, 256)
            for token in tokens:
                matcher.accept_token(token)
            matcher.fill_next_token_bitmask(mask, 0)
            xgrammar.apply_token_bitmask_inplace(row.unsqueeze(0), mask)
            return row

        gaps.append(compare(model, ask.prompt, answer.tokens, change)[1])
        texts.append(tokenizer.decode(answer.tokens, skip_special_tokens=True))
    try:
        fits = set(json.loads(texts[0])) == {"ok", "size"} and re.fullmatch(FORMATS[1]["regex_schema"], texts[1])
    except json.JSONDecodeError:
        fits = False
    return bool(free and fits and max(gaps) < LIMIT), " and ".join(f"`{text}`" for text in texts)
