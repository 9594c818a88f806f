"""`ditorch bench infer`: how fast a language model generates on the device, beside the CPU where asked for."""

from __future__ import annotations

import csv
import json
import sys
from typing import Any

from .parser import Parser
from .tree import Head

WIDTHS = (6, 8, 6, 10, 10, 8, 8, 9)
DTYPES = ("float32", "bfloat16", "float16")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


_count.__name__ = "whole number of at least 1"


def make_parser() -> Parser:
    parser = Parser(
        "ditorch bench infer",
        "How fast a language model generates: time to the first token, time between tokens, tokens per second. Without "
        "a model folder one with random weights is made; nothing is downloaded. Every combination of -c, -pt and -ct "
        "is measured; devices and engines take turns in each round.",
        examples=[
            ("ditorch bench infer", "a tiny random Llama on the device"),
            ("ditorch bench infer --size 24m -c 1 8 --device cuda cpu", "24 M parameters, beside the CPU"),
            ("ditorch bench infer ./my-model --dtype float16 --engine paged graph", "a local model, two engines"),
        ],
        exits={0: "measured", 2: "wrong use, or the model cannot be loaded or run so"},
    )
    add = parser.add_argument
    add("model", nargs="?", metavar="FOLDER", help="a model of transformers (config.json and safetensors)")
    add("--size", choices=("tiny", "24m", "110m"), default="tiny", help="of the random model (tiny)")
    many = {"nargs": "+", "type": _count, "metavar": "N"}
    add("-c", "--concurrency", default=[1], help="sequences at a time (1)", **many)
    add("-pt", "--prompt-tokens", default=[64], help="length of the prompts (64)", **many)
    add("-ct", "--completion-tokens", default=[32], help="new tokens (32)", **many)
    add("-tr", "--test-round", type=_count, default=3, metavar="N", help="measured rounds (3)")
    add("-w", "--warmup", type=int, default=1, metavar="N", help="rounds before them (1)")
    add("--dtype", choices=DTYPES, default="float32", help="of the weights and the cache (float32)")
    add("--device", nargs="+", choices=("cuda", "cpu"), default=["cuda"], help="where (cuda: the device)")
    add(
        "--engine",
        nargs="+",
        metavar="NAME",
        choices=("paged", "graph", "transformers"),
        default=["paged"],
        help="paged (the fused operators), graph (their replay) or transformers; the CPU has the last alone",
    )
    add("--json", metavar="FILE", help="write the rows as JSON; - for standard output, without the table")
    add("--csv", metavar="FILE", help="write the rows as CSV")
    return parser


def flatten(row: dict[str, Any]) -> dict[str, Any]:
    """The row without tables inside: first_token_ms_p50 ..."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat.update(
            {f"{name}_{key}": number for key, number in value.items()} if isinstance(value, dict) else {name: value}
        )
    return flat


def show(rows: list[dict[str, Any]]) -> None:
    names = ("batch", "prompt", "new", "first ms", "token ms", "p95", "p99", "tok/s")
    print(f"{'device, engine':20}" + "".join(f"{name:>{width}}" for name, width in zip(names, WIDTHS, strict=True)))
    for row in rows:
        first, token = row["first_token_ms"], row["token_ms"]
        cells = [token.get(name, float("nan")) for name in ("p50", "p95", "p99")]
        print(
            f"{row['device'] + ' ' + row['engine']:20}{row['batch']:6}{row['prompt_tokens']:8}"
            f"{row['completion_tokens']:6}{first['p50']:10.2f}{cells[0]:10.2f}{cells[1]:8.2f}{cells[2]:8.2f}"
            f"{row['throughput']:9.1f}"
        )


def _measure(options: Any, head: Head) -> list[dict[str, Any]]:
    import torch

    import ditorch

    ditorch.install(head.config, **head.options)
    from ..infer import measure

    dtype = getattr(torch, options.dtype)
    length = max(options.prompt_tokens) + max(options.completion_tokens)
    if options.model:
        model = measure.load_model(options.model, dtype)
    else:
        model = measure.make_model(options.size, dtype, length)
    places = [
        measure.Place(device, engine)
        for device in dict.fromkeys(options.device)
        for engine in (dict.fromkeys(options.engine) if device == "cuda" else ["transformers"])
    ]
    models = {place: measure.place_model(model, place) for place in places}
    return [
        row
        for batch in options.concurrency
        for prompt in options.prompt_tokens
        for count in options.completion_tokens
        for row in measure.measure(models, batch, prompt, count, options.test_round, max(0, options.warmup))
    ]


def main(words: list[str], head: Head) -> int:
    parser = make_parser()
    options = parser.parse_args(words)
    try:
        rows = _measure(options, head)
    except ImportError as error:
        if error.name != "transformers":
            raise
        parser.exit(2, "ditorch bench infer needs transformers: pip install transformers\n")
    except (ValueError, OSError) as error:
        parser.exit(2, f"ditorch bench infer: {error}\n")
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(flatten(rows[0])))
            writer.writeheader()
            writer.writerows(map(flatten, rows))
    if options.json == "-":
        json.dump(rows, sys.stdout, indent=1)
        print()
        return 0
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    show(rows)
    return 0
