"""What a finished request leaves in the engine's process: nothing that can be reached, and no garbage of ours."""

from __future__ import annotations

import collections
import gc
import sys
from typing import Any

from case_list import Setup, case, make_model
from engines import Ask, ask_all

REQUESTS, ROUNDS = 48, 4
OBJECTS, BLOCKS = 0.3, 3.0
"""Most of Python's collected objects, and of its blocks of memory, that may be more for each request: what is under way
when they are counted differs by some. One object with a dict that is kept is 1 and 4."""


def _count() -> tuple[int, int]:
    for _ in range(2):
        gc.collect()
    return len(gc.get_objects()), sys.getallocatedblocks()


def _find_garbage(engine: Any, asks: list[Ask]) -> collections.Counter[str]:
    """Modules of the objects that only the collector frees."""
    gc.disable()
    ask_all(engine, asks)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = collections.Counter(str(type(each).__module__) for each in gc.garbage)
    found += collections.Counter(str(each.__module__) for each in gc.garbage if type(each).__name__ == "function")
    gc.garbage.clear()
    gc.enable()
    return found


@case("no object of a request stays", fault="")
def nothing_stays(setup: Setup) -> tuple[bool, str]:
    """LMDeploy's own sequences are rings that the collector frees, and it asks for that rarely: docs/dlinfer.md."""
    folder, _ = make_model()
    asks = [Ask([(7 * i + j) % 255 + 1 for j in range(3 + i % 5 * 9)], 6 + i % 3 * 2) for i in range(REQUESTS)]
    with setup.open_engine(folder) as engine:
        for _ in range(2):
            ask_all(engine, asks)
        garbage = _find_garbage(engine, asks)
        before = _count()
        for _ in range(ROUNDS):
            ask_all(engine, asks)
        after = _count()
    objects, blocks = ((b - a) / REQUESTS / ROUNDS for a, b in zip(before, after, strict=True))
    ours = {
        name: number for name, number in garbage.items() if name.split(".")[0] in ("ditorch", "dlinfer", "op_tools")
    }
    note = f"{objects:+.2f} objects and {blocks:+.2f} blocks for each of {REQUESTS * ROUNDS} requests"
    return objects < OBJECTS and blocks < BLOCKS and not ours, note + (f", garbage {ours}" if ours else "")
