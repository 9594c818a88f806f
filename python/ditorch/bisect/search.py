"""The smallest part of a list without which a run is wrong.

A delta debugging search for questions that are monotone (more operators away from the device never make a run worse):
the shortest beginning of the list that is enough is found by halving; its last item is needed. It is kept, and the same
is asked of what stands before it, until what is kept is enough. One culprit of n costs log2(n) + 1 questions, each
further one as many again; the answer itself has always been asked for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def find_smallest(items: Sequence[Item], is_enough: Callable[[list[Item]], bool], most: int = 0) -> list[Item] | None:
    """`is_enough(all of them)` is known to be true and `is_enough([])` to be false. None: more than `most` are needed.
    The answer has the order of `items`."""
    kept: list[Item] = []
    rest = list(items)
    while rest:
        low, high = 0, len(rest)
        while high - low > 1:
            middle = (low + high) // 2
            if is_enough([*rest[:middle], *kept]):
                high = middle
            else:
                low = middle
        kept.insert(0, rest[high - 1])
        rest = rest[: high - 1]
        if not rest or is_enough(kept):
            return kept
        if most and len(kept) >= most:
            return None
    return kept


class _Unknown(Exception):
    """A question without an answer yet."""


def look_ahead(
    items: Sequence[Item], answers: dict[tuple[Item, ...], bool], count: int, most: int = 0
) -> list[list[Item]]:
    """The questions that `find_smallest` asks next after these answers: first the one that it asks now, then those that
    follow its answer yes or no, and so on; at most `count`."""
    found: dict[tuple[Item, ...], list[Item]] = {}
    branches: deque[dict[tuple[Item, ...], bool]] = deque([answers])
    while branches and len(found) < count:
        known = branches.popleft()

        def answer(chosen: list[Item], known: dict[tuple[Item, ...], bool] = known) -> bool:
            if tuple(chosen) not in known:
                raise _Unknown(chosen)
            return known[tuple(chosen)]

        try:
            find_smallest(items, answer, most)
        except _Unknown as question:
            chosen = question.args[0]
            found[tuple(chosen)] = chosen
            branches += [{**known, tuple(chosen): True}, {**known, tuple(chosen): False}]
    return list(found.values())


def estimate(count: int) -> int:
    """Runs that a search over `count` operators may take, the two before it included: 3 + 2 log2(n)."""
    return 3 + math.ceil(2 * math.log2(max(count, 1)))
