"""The OpenAI server under load: 64 requests at a time, each compared with the same request alone.

A product of many rows is summed in another order than one of few, and float16 rounds the sums: two logits that are
nearly equal may change places, and with them what a seed draws. So answers are judged by how near the choice was;
under DITORCH_HOST_BATCH_INVARIANT, which takes one order for all, each must be the one alone, to the letter.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
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
"""Bytes that the second half of the rounds may add: allocators of several threads settle slowly."""
TEMPERATURE, BEST = 0.7, 20
INVARIANT = {"DITORCH_HOST_BATCH_INVARIANT": "1"}


def _requests() -> list[dict[str, Any]]:
    """Greedy and seeded ones, whole and streamed, of several lengths."""
    found = []
    for number in range(16):
        body = {"prompt": TEXTS[number % len(TEXTS)], "max_tokens": 8 + number % 4 * 4, "stream": number % 3 == 0}
        body["skip_special_tokens"] = False
        greedy = {"temperature": 0}
        seeded = {"temperature": TEMPERATURE, "top_k": BEST, "seed": number}
        found.append(body | (greedy if number < 8 else seeded))
    return found


async def _ask(session: aiohttp.ClientSession, running: server.Server, body: dict[str, Any]) -> tuple[int, str, str]:
    if body["prompt"] == TEXTS[0]:
        rest = {name: value for name, value in body.items() if name not in ("prompt", "stream")}
        return await server.chat(session, running, body["prompt"], **rest)
    return await server.complete(session, running, **body)


@dataclasses.dataclass
class Load:
    """What came back: each answer is (status, text, reason)."""

    alone: list[tuple[int, str, str]]
    rounds: list[list[tuple[int, str, str]]]
    memory: list[int]  # after each round
    wrong: tuple[int, str, str]  # the answer to a bad request

    def answers(self) -> list[tuple[int, tuple[int, str, str]]]:
        """(number of the request, answer) of all rounds."""
        return [(i % len(self.alone), answer) for each in self.rounds for i, answer in enumerate(each)]

    def differing(self) -> list[str]:
        """The answers that are not those of the request alone: which request, from which token on, both texts."""
        found = []
        for number, (status, text, reason) in self.answers():
            other = self.alone[number][1]
            if (status, text, reason) != self.alone[number]:
                first = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), None)
                found.append(f"request {number} from token {first}: {text!r} {reason}, alone {other!r}")
        return found

    def growth(self) -> int:
        """Bytes that the second half of the rounds added."""
        return self.memory[-1] - self.memory[len(self.memory) // 2 - 1]


async def put_load(running: server.Server, rounds: int, seconds: float) -> Load:
    """`rounds` of 64 requests, or what `seconds` suffice for, at least two."""
    bodies, memory, found, end = _requests(), [], [], time.monotonic() + seconds
    timeout = aiohttp.ClientTimeout(total=max(seconds, SECONDS))
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        alone = [await _ask(session, running, body) for body in bodies]
        while len(found) < rounds and (len(found) < 2 or time.monotonic() < end):
            found.append(await asyncio.gather(*(_ask(session, running, body) for body in bodies * 4)))
            memory.append(running.resident_bytes())
        wrong = await server.chat(session, running, "x", response_format={"type": "regex_schema", "regex_schema": "(("})
        found.append([await _ask(session, running, body) for body in bodies[:2]])
    return Load(alone, found, memory, wrong)


def could_draw(logits: torch.Tensor, token: int, number: float, limit: float) -> bool:
    """Is `token` what `number` (from 0 to 1) draws among the best, if every logit may be off by half of `limit`? Each
    token that is nearly as likely may stand before it or behind it."""
    best = logits.topk(BEST).values
    parts = (logits.double() / TEMPERATURE).softmax(-1)
    parts = parts / parts.topk(BEST).values.sum()
    kept = logits >= best[-1] - limit
    parts = torch.where(kept, parts, 0)
    before = parts[logits > logits[token] + limit].sum().item()
    upto = parts[logits >= logits[token] - limit].sum().item()
    slack = 2 * limit / TEMPERATURE
    return bool(kept[token]) and before * (1 - slack) <= number <= upto * (1 + slack)


def _is_right(tokenizer: Any, model: Any, body: dict[str, Any], text: str) -> bool:
    """Against transformers in float32: greedy ones by the gap, seeded ones by what the seed may draw."""
    from ditorch.infer.lmdeploy_sampling import uniform

    prompt, tokens = tokenizer.encode(body["prompt"]), tokenizer.encode(text)
    if len(tokens) != body["max_tokens"]:
        return False

    def change(index: int, tokens: list[int], row: torch.Tensor) -> torch.Tensor:
        row[0] = -torch.inf  # the end, which is to be ignored
        return row

    if not body["temperature"]:
        return compare(model, prompt, tokens, change)[1] < LIMIT
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    seeds = torch.full((len(tokens),), body["seed"])
    numbers = uniform(seeds, torch.arange(len(tokens)) + len(prompt)).tolist()
    return all(
        could_draw(change(i, tokens, row.clone()), token, numbers[i], LIMIT * row.std().item())
        for i, (row, token) in enumerate(zip(logits, tokens, strict=True))
    )


def judge(load: Load, folder: str, model: Any) -> tuple[bool, str]:
    """Is every answer right, whether or not it is the one alone; and what is there to say."""
    import transformers

    tokenizer, bodies, answers = transformers.AutoTokenizer.from_pretrained(folder), _requests(), load.answers()
    fine = sum(status == 200 and reason == "length" for _, (status, _, reason) in answers)
    texts = {(number, answer[1]) for number, answer in [*enumerate(load.alone), *answers]}
    right = sum(_is_right(tokenizer, model, bodies[number], text) for number, text in texts)
    refused = load.wrong[0] != 200 or load.wrong[2] == "error"
    same = len(answers) - len(load.differing())
    note = f"{same} of {len(answers)} answers as alone"
    if fine != len(answers) or right != len(texts) or not refused or load.growth() >= GROWTH:
        note += f", {fine} without error, {right} of {len(texts)} texts right, bad request refused {refused}"
        note += f", memory {[size >> 20 for size in load.memory]} MiB; " + "; ".join(sorted(set(load.differing())))
        return False, note
    return True, note


def _serve(setup: Setup, environment: dict[str, str]) -> tuple[Load, bool, str]:
    folder, model = make_model()
    with server.start(folder, setup.device, setup.graph, environment=environment) as running:
        load = asyncio.run(put_load(running, ROUNDS, SECONDS))
        foreign = running.foreign_addresses()
    right, note = judge(load, folder, model)
    return load, right and not foreign, note + (f", {foreign}" if foreign else "")


@case("OpenAI server, 64 requests at a time", fault="add_rms_norm", devices=("maca",))
def openai_server(setup: Setup) -> tuple[bool, str]:
    return _serve(setup, {})[1:]


@case("OpenAI server, one kernel for every batch: every answer as alone", fault="add_rms_norm", devices=("maca",))
def openai_server_invariant(setup: Setup) -> tuple[bool, str]:
    load, right, note = _serve(setup, INVARIANT)
    different = sorted(set(load.differing()))
    return right and not different, "; ".join([note, *different])


def _read_commands() -> list[list[str]]:
    """The three commands of docs/dlinfer.md."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/dlinfer.md").read_text()
    block = page.split("<!-- begin served -->")[1].split("<!-- end served -->")[0].split("```")[1]
    lines = block.replace("\\\n", " ").split("\n", 1)[1]
    return [shlex.split(line) for line in re.split(r"\n(?=python|curl)", lines.strip())]


@case("the three commands of this page", fault="", devices=("maca",), modes=("eager",))
def newcomer(setup: Setup) -> tuple[bool, str]:
    """They are run as they stand there, in an empty folder and on a port that is free."""
    save, serve, ask = _read_commands()
    port = server.free_port()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, *save[1:]], cwd=folder, check=True)
        command = [sys.executable, *serve[1:], "--server-port", str(port), "--server-name", "127.0.0.1"]
        with server.run(command, port, serve[serve.index("api_server") + 1], cwd=folder):
            asked = [word.replace("23333", str(port)) for word in ask]
            done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    text = json.loads(done.stdout)["choices"][0]["text"]
    return len(text) == 12, f"{len(text)} tokens"
