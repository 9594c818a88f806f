"""Numbers over a long axis in bounded memory: when the axis outgrows the bins, neighbours become one."""

from __future__ import annotations

BINS = 256


class Series:
    """The sum, or the maximum, of what falls into each of at most `bins` equal stretches from 0 on."""

    __slots__ = ("bins", "is_sum", "values", "width")

    def __init__(self, is_sum: bool = False, bins: int = BINS, width: int = 1):
        self.is_sum, self.bins, self.width = is_sum, bins, width
        self.values: dict[int, float] = {}

    def add(self, x: int, y: float) -> None:
        """Numbers below 0 belong to no place and are passed over."""
        if x < 0:
            return
        while x // self.width >= self.bins:
            self.widen()
        place = x // self.width
        before = self.values.get(place)
        if before is None:
            self.values[place] = y
        else:
            self.values[place] = before + y if self.is_sum else max(before, y)

    def widen(self) -> None:
        """Stretches twice as long."""
        old, self.values = self.values, {}
        self.width *= 2
        for place, y in old.items():
            before = self.values.get(place // 2)
            if before is None:
                self.values[place // 2] = y
            else:
                self.values[place // 2] = before + y if self.is_sum else max(before, y)

    def as_points(self) -> list[tuple[int, float]]:
        """(beginning of the stretch, value), in order."""
        return [(place * self.width, y) for place, y in sorted(self.values.items())]


def align(series: list[Series]) -> int:
    """Give all of them the same stretches; their width."""
    width = max((one.width for one in series), default=1)
    for one in series:
        while one.width < width:
            one.widen()
    return width
