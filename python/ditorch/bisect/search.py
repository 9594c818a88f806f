"""The smallest part of a list without which a run is wrong, in few questions.

Questions are monotone: more operators away from the device never make a run worse. One or two culprits are by far the
most likely, so every single and every pair is kept as a possible answer until a question rules it out; each question is
the one that halves what is still possible, so that one answer tells about all culprits at once. One culprit of n takes
about log2(n) + 2 questions, two take 2 log2(n). When neither a single nor a pair is left, delta debugging goes on with
what is known: the shortest beginning of the list that is enough is found by halving, its last item is needed, and the
same is asked of what stands before it. The answer of one or two has always been asked for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, combinations
from typing import TypeVar

Item = TypeVar("Item")
PAIRS = 2 / 3
"""How likely two culprits are beside one. Much less costs two the run limit, much more costs one culprit a run more."""
MOST_ITEMS = 400
"""Of longer lists there are too many pairs to keep: they are halved."""


def find_smallest(items: Sequence[Item], is_enough: Callable[[list[Item]], bool], most: int = 0) -> list[Item] | None:
    """`is_enough(all of them)` is known to be true and `is_enough([])` to be false. None: more than `most` are needed.
    The answer has the order of `items`."""
    recall = _Recall(items, is_enough)
    count = len(items)
    found = _find_few(count, recall) if 1 < count <= MOST_ITEMS else None
    if found is None:
        found = _find_by_halving(recall.find_least(), recall, most)
    if found is None or (most and len(found) > most):
        return None
    return [items[i] for i in found]


class _Recall:
    """Asks by indices what the answers so far do not settle. What is wrong is asked again with less: a run that was
    wrong for another reason, once, must not make innocent operators needed."""

    def __init__(self, items: Sequence[Item], is_enough: Callable[[list[Item]], bool]):
        self.items, self.is_enough = items, is_enough
        self.enough: list[set[int]] = []
        self.wanting: list[set[int]] = []

    def __call__(self, chosen: Sequence[int]) -> bool:
        these = set(chosen)
        if any(these >= known for known in self.enough):
            return True
        if these in self.wanting:
            return False
        answer = self.is_enough([self.items[i] for i in chosen])
        (self.enough if answer else self.wanting).append(these)
        return answer

    def was_asked(self, chosen: Sequence[int]) -> bool:
        return set(chosen) in self.enough

    def find_least(self) -> list[int]:
        """The shortest list known to be enough."""
        return sorted(min(self.enough, key=len, default=range(len(self.items))))


def _find_few(count: int, recall: _Recall) -> list[int] | None:
    """The one or two of `count` that are enough and needed; None where there are more."""
    pairs = PAIRS / max(math.comb(count, 2), 1)
    possible = {(i,): (1 - PAIRS) / count for i in range(count)}
    possible.update((pair, pairs) for pair in combinations(range(count), 2))
    while possible:
        if len(possible) > 1:
            chosen = sorted(_halve(count, possible))
        else:
            chosen = list(next(iter(possible)))
            if recall.was_asked(chosen):
                return chosen
        these, answer = set(chosen), recall(chosen)
        possible = {few: weight for few, weight in possible.items() if these.issuperset(few) == answer}
    return None


def _halve(count: int, possible: dict[tuple[int, ...], float]) -> list[int]:
    """The items that hold about half of what is possible: so many of the likeliest."""
    shares = [0.0] * count
    for few, weight in possible.items():
        for i in few:
            shares[i] += weight
    order = sorted(range(count), key=lambda i: (-shares[i], i))
    places = {i: place for place, i in enumerate(order)}
    complete = [0.0] * count
    """What becomes complete with the item at this place."""
    for few, weight in possible.items():
        complete[max(places[i] for i in few)] += weight
    sums = list(accumulate(complete))
    best = min(range(count), key=lambda place: abs(sums[place] - sums[-1] / 2))
    return order[: best + 1]


def _find_by_halving(items: list[int], is_enough: Callable[[list[int]], bool], most: int) -> list[int] | None:
    kept: list[int] = []
    rest = items
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
