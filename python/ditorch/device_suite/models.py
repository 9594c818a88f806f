"""`ditorch test-device --model`: the operator calls of recorded training steps instead of the operator database.

A distinct call of the chosen models is a pair, named by its text at the wanted scale; calls that become the same are
one. The workers make inputs and check it as an entry of the database (model_entry.py). Depends on main.py and the
corpora; no torch.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from typing import Any

from ..command.parser import suggest
from ..models import corpus, shrink
from ..table import format_table
from .arguments import Pair, UsageError, choose_dtypes
from .expect import DTYPES, Expectations, find_shipped
from .main import Run


def read_models(text: str) -> list[corpus.Corpus]:
    names = corpus.list_names() if text == "all" else [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError(f"--model {text!r} names no model")
    try:
        return [corpus.read(name) for name in names]
    except corpus.CorpusError as error:
        raise UsageError(f"--model: {error}") from None


def spell(name: str) -> tuple[str, str, str]:
    """What aten::add.Tensor is called: by its name, add.Tensor, add."""
    short = name.partition("::")[2]
    return name, short, short.partition(".")[0]


def matches(name: str, pattern: str) -> bool:
    """By one of its spellings, or by a shell pattern of them."""
    return any(fnmatch.fnmatchcase(text, pattern) for text in spell(name))


def choose_calls(found: list[corpus.Corpus], ops: str | None, scale: float) -> dict[str, tuple[corpus.Call, list[str]]]:
    """Per text of the smallest form: the call as it was recorded, and the models that make it."""
    patterns = [part.strip() for part in (ops or "*").split(",") if part.strip()]
    names = {entry.call.name for model in found for entry in model.entries}
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            spellings = {text for name in names for text in spell(name)}
            raise UsageError(f"--ops: no call of these models is {pattern!r}{suggest(pattern, spellings)}")
    calls: dict[str, tuple[corpus.Call, list[str]]] = {}
    for model in found:
        for entry in model.entries:
            if any(matches(entry.call.name, pattern) for pattern in patterns):
                _, users = calls.setdefault(str(next(shrink.list_forms(entry.call, scale))), (entry.call, []))
                if model.name not in users:
                    users.append(model.name)
    return calls


def get_dtype(call: corpus.Call) -> str:
    """That a pair is counted under: the first tensor's."""
    first = next(call.tensors(), None)
    return first.dtype if first is not None and first.dtype in DTYPES else "float32"


class ModelRun(Run):
    """All calls of one run of the command."""

    def __init__(self, options: argparse.Namespace, environment: dict[str, str]) -> None:
        super().__init__(options, environment)
        self.models = read_models(options.model)
        self.calls = choose_calls(self.models, options.ops, options.scale)

    def _make_words(self) -> dict[str, Any]:
        return {**super()._make_words(), "models": True}

    def _prepare(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        if not self.options.expect:
            self.expectations = Expectations(find_shipped(facts["backend"], bool(self.options.compiled)))
        self.expectations.guard = {"references": False, "c_entries": {}}  # they speak of the whole database
        dtypes = choose_dtypes(self.options.dtypes, self.expectations) if self.options.dtypes else None
        pairs = [Pair(text, get_dtype(call), 0, False) for text, (call, _) in self.calls.items()]
        self.pairs = [pair for pair in pairs if dtypes is None or pair.dtype in dtypes]
        if not self.pairs:
            raise UsageError(f"--dtypes {self.options.dtypes}: no chosen call has such a first tensor")
        self.timeout = self.options.timeout or float(self.expectations.device["timeout"])

    def _make_task(self, index: int, pair: Pair) -> dict[str, Any]:
        call, _ = self.calls[pair.entry]
        limit = int(self.options.memory * 2**30)
        return {**super()._make_task(index, pair), "call": str(call), "scale": self.options.scale, "limit": limit}

    def _is_complete(self) -> dict[str, bool]:
        return {}

    def _report(self, results: list[dict[str, Any]], seconds: float) -> int:
        for result in results:
            result["models"] = self.calls[result["entry"]][1]
        print(self._render_models(results))
        return super()._report(results, seconds)

    def _render_models(self, results: list[dict[str, Any]]) -> str:
        rows: list[list[Any]] = []
        for model in self.models:
            own = [result for result in results if model.name in result["models"]]
            fell = sum(bool(result["fallback"]) for result in own)
            verdicts = [sum(r["verdict"] == v for r in own) for v in ("pass", "wrong", "undecided", "no_reference")]
            rows.append([model.name, len(own), *verdicts, fell])
        columns = ("model", "calls", "pass", "wrong", "undecided", "no reference", "fell back")
        return format_table(columns, rows, sys.stdout)
