"""The OpenAI server under load: 64 requests at a time, each compared with the same request alone."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import server
import torch
from case_list import Setup, case, make_model
from engines import LIMIT, compare

ROUNDS, SECONDS = 6, 180
TEXTS = ["Hello", "The quick brown fox " * 6, "x", "1 + 1 = 2; " * 20, "{}[]()" * 30, "Zzz", "abcdefghij" * 12, "?!"]
GROWTH = 24 << 20
"""Bytes that three rounds may add: allocators of several threads settle slowly."""


def _requests() -> list[dict[str, Any]]:
    """Greedy and seeded ones, whole and streamed, of several lengths."""
    found = []
    for number in range(16):
        body = {"prompt": TEXTS[number % len(TEXTS)], "max_tokens": 8 + number % 4 * 4, "stream": number % 3 == 0}
        body["skip_special_tokens"] = False
        greedy = {"temperature": 0}
        seeded = {"temperature": 0.7, "top_k": 20, "seed": number}
        found.append(body | (greedy if number < 8 else seeded))
    return found


async def _ask(session: aiohttp.ClientSession, running: server.Server, body: dict[str, Any]) -> tuple[int, str, str]:
    if body["prompt"] == TEXTS[0]:
        rest = {name: value for name, value in body.items() if name not in ("prompt", "stream")}
        return await server.chat(session, running, body["prompt"], **rest)
    return await server.complete(session, running, **body)


async def _load(running: server.Server) -> tuple[list[Any], list[list[Any]], list[int]]:
    """(answers alone, answers of the rounds, memory after each round)."""
    bodies, memory, rounds, end = _requests(), [], [], time.monotonic() + SECONDS
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        alone = [await _ask(session, running, body) for body in bodies]
        while len(rounds) < ROUNDS and (len(rounds) < 2 or time.monotonic() < end):
            rounds.append(await asyncio.gather(*(_ask(session, running, body) for body in bodies * 4)))
            memory.append(running.resident_bytes())
        wrong = await server.chat(session, running, "x", response_format={"type": "regex_schema", "regex_schema": "(("})
        rounds.append([await _ask(session, running, body) for body in bodies[:2]])
    return [*alone, wrong], rounds, memory


def _is_right(folder: str, model: Any, body: dict[str, Any], text: str) -> bool:
    import transformers

    if body["temperature"]:
        return True  # compared with itself alone
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompt, tokens = tokenizer.encode(body["prompt"]), tokenizer.encode(text)

    def change(index: int, tokens: list[int], row: torch.Tensor) -> torch.Tensor:
        row[0] = -torch.inf  # the end, which is to be ignored
        return row

    return len(tokens) == body["max_tokens"] and compare(model, prompt, tokens, change)[1] < LIMIT


@case("OpenAI server, 64 requests at a time", fault="add_rms_norm", devices=("maca",))
def openai_server(setup: Setup) -> tuple[bool, str]:
    folder, model = make_model()
    with server.start(folder, setup.device, setup.graph) as running:
        alone, rounds, memory = asyncio.run(_load(running))
        foreign = running.foreign_addresses()
    status, _, reason = alone.pop()
    refused = status != 200 or reason == "error"
    bodies = _requests()
    answers = [answer for each in rounds for answer in each]
    same = sum(answer == alone[i % len(bodies)] for each in rounds for i, answer in enumerate(each))
    fine = sum(status == 200 and reason == "length" for status, _, reason in answers)
    exact = all(_is_right(folder, model, body, answer[1]) for body, answer in zip(bodies, alone, strict=True))
    grown = memory[-1] - memory[len(memory) // 2 - 1]
    right = exact and refused and not foreign and same == fine == len(answers) and grown < GROWTH
    note = f"{same} of {len(answers)} answers as alone"
    if not right:
        note += f", {fine} without error, exact {exact}, bad request refused {refused}, {foreign}, {memory}"
    return right, note
