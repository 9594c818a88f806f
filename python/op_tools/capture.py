"""OpCapture: the inputs, results and gradients of operator calls as files. op_tools.reader reads them again."""

from __future__ import annotations

import os
from typing import Any

from ditorch import _C, settings

from . import results
from .console import count, format_bytes
from .keywords import CaptureKeywords

__all__ = ["OpCapture", "save_item"]


class OpCapture(CaptureKeywords):
    """Save what every operator was given and what it gave: inputs as they were before the call, the result, and the
    gradients of its backward.

    `layout="files"` writes <results>/op_capture_results/<operator>/<pid>/<id>/<time>/<what>.pth with a .json beside it;
    `layout="packed"` one container per process, which `ditorch export` turns into the same files. `write_ahead=True`
    has the inputs on disk before the operator runs. Caps: `cap_bytes` (10 GiB) and `cap_calls` (100,000) per
    process."""

    kind = "capture"
    name = "capture"
    verb = "captured"

    def engine_options(self, options: settings.ToolOptions) -> dict[str, Any]:
        return {**super().engine_options(options), "shown": options["results"].text or "."}

    def check(self, options: settings.ToolOptions) -> None:
        results.check_directory(options, type(self).__name__)

    def flush(self) -> None:
        """Have everything captured so far on disk; also after stop(), when a backward pass has run since."""
        if self._engine is not None:
            self._engine.flush()
        super().flush()

    def summary(self) -> str:
        facts = self.describe()
        size = facts["bytes"] - facts["shared"]
        text = (
            f"OpCapture: {count(facts['items'], 'item')} ({format_bytes(size)}) in {facts['root']} as {facts['layout']}"
        )
        for key, words in (("failed", "could not be saved"), ("lost", "were lost"), ("errors", "calls failed")):
            if facts[key]:
                text += f"; {count(facts[key])} {words}"
        return f"{text}; {facts['problem']}" if facts["problem"] else text


def save_item(path: str | os.PathLike, item: dict[str, Any]) -> None:
    """Write {"name", "args", "kwargs", "identifier"}, and "state" (_C.call_settings) where there is one, as a file of a
    capture, with its .json, atomically."""
    words = (item["name"], tuple(item["args"]), dict(item["kwargs"]), item["identifier"], item.get("state"))
    _C.capture_write(path, *words)
