"""How long the operators of a model take: every distinct call of a training step, timed on one device or several.

A call is made once at its recorded shapes, strides and dtypes (`--scale` makes them smaller), run until it is warm, and
then timed in rounds that the devices take in turns. Floats are between 0.5 and 1.5, integers are 0 (an index that every
tensor has), truth values alternate: the time of an operator hardly depends on them, its result is not looked at.

Depends on corpus.py, shrink.py, run.py and torch.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from . import run, shrink
from .corpus import Call, Corpus, Tensor, parse_call

ROUND_SECONDS = 0.002
"""A round repeats a quick call so often that the clock can tell."""
SILENT = ("aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided")


@dataclasses.dataclass
class Row:
    """One distinct call. `seconds`: the quickest round per device (what else runs on the machine only adds), missing
    where the call could not be run; `problems`: why."""

    call: Call
    count: int
    moved: int
    """Bytes read and written at least: every tensor once."""
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    problems: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def operator(self) -> str:
        return self.call.name

    def describe(self) -> str:
        """The first tensor, which says the most."""
        first = next(self.call.tensors(), None)
        return "" if first is None else str(first._replace(alias=None, strides=None))


def make_values(shape: Sequence[int], dtype: torch.dtype, device: Any) -> torch.Tensor:
    shape = tuple(shape)
    if dtype == torch.bool:
        return (torch.arange(math.prod(shape), device=device) % 2 == 0).reshape(shape)
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.zeros(shape, dtype=dtype, device=device)
    return (torch.rand(shape, device=device) + 0.5).to(dtype)


def list_calls(found: Corpus) -> list[tuple[Call, int]]:
    """Distinct calls that compute or move something."""
    return [
        (entry.call, entry.count)
        for entry in found.entries
        if entry.call.name.partition(".")[0] not in SILENT and not run.is_view(entry.call.name)
    ]


def list_valid_forms(call: Call, scale: float) -> list[Call]:
    """Smaller forms that the operator accepts as far as its meta kernel tells, the smallest first."""
    forms = list(shrink.list_forms(call, scale))
    found = []
    for form in forms[:-1]:
        try:
            run.run(run.materialize(form, "meta", torch.empty))
        except NotImplementedError:  # no meta kernel: the device will tell
            pass
        except Exception:  # what an operator says of sizes that do not fit is any exception
            continue
        found.append(form)
    return [*found, forms[-1]]


def count_bytes(call: Call, result: Any) -> int:
    made = [x for x in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(x, torch.Tensor)]
    read = sum(_count_memory(tensor) for tensor in call.tensors())
    return read + sum(tensor.numel() * tensor.element_size() for tensor in made)


def _count_memory(tensor: Tensor) -> int:
    """Bytes of a tensor; a dimension of stride 0 is read once."""
    strides = tensor.strides or (1,) * len(tensor.shape)
    sizes = [size for size, stride in zip(tensor.shape, strides, strict=True) if stride]
    return math.prod(sizes) * (tensor.nbytes // max(tensor.numel, 1))


def synchronize(device: str) -> None:
    if not device.startswith("cpu"):
        torch.cuda.synchronize(device)


def _time_round(made: Any, device: str, repeats: int) -> float:
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(repeats):
        run.run(made)
    synchronize(device)
    return (time.perf_counter() - begin) / repeats


def _prepare(row: Row, devices: Sequence[str], limit: int) -> dict[str, tuple[Any, int]]:
    """What can be run, warm, and how often in a round; the rest goes to the row's problems."""
    needed = sum(tensor.nbytes for tensor in row.call.tensors())
    made: dict[str, tuple[Any, int]] = {}
    for device in devices:
        if needed > limit:
            row.problems[device] = f"needs {needed / 2**30:.1f} GiB of arguments; --memory is {limit / 2**30:.1f} GiB"
            continue
        try:
            ready = run.materialize(row.call, device, make_values)
            row.moved = row.moved or count_bytes(row.call, run.run(ready))
            once = max(_time_round(ready, device, 1), 1e-9)
            made[device] = ready, max(1, min(1000, int(ROUND_SECONDS / once)))
        except Exception as error:  # any exception of an operator is a fact about it
            row.problems[device] = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
    return made


def measure_call(forms: Sequence[Call], count: int, devices: Sequence[str], rounds: int, limit: int) -> Row:
    """The first form that runs on a device. `limit`: bytes that the arguments of a call may take."""
    for form in forms:
        row = Row(form, count, 0)
        made = _prepare(row, devices, limit)
        if made:
            break
    times: dict[str, list[float]] = {device: [] for device in made}
    for _ in range(rounds):
        for device, (ready, repeats) in made.items():
            times[device].append(_time_round(ready, device, repeats))
    row.seconds = {device: min(values) for device, values in times.items()}
    return row


def measure_copy(device: str, size: int = 64 << 20) -> float:
    """Bytes per second of a copy (read and written), the roof for operators that are bound by memory."""
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = []
    for _ in range(7):
        synchronize(device)
        begin = time.perf_counter()
        target.copy_(source)
        synchronize(device)
        seconds.append(time.perf_counter() - begin)
    return 2 * size / min(seconds)


def plan(
    found: Corpus, scale: float = 1.0, is_wanted: Callable[[str], bool] = lambda name: True
) -> list[tuple[list[Call], int]]:
    """Forms and number of calls of each row, in the order of the corpus; calls that become the same at this scale are
    one row."""
    rows: dict[str, tuple[list[Call], int]] = {}
    for call, count in list_calls(found):
        if is_wanted(call.name):
            forms = list_valid_forms(call, scale)
            key = str(forms[0])
            rows[key] = rows.get(key, (forms, 0))[0], rows.get(key, (forms, 0))[1] + count
    return list(rows.values())


def measure(
    found: Corpus,
    devices: Sequence[str],
    *,
    scale: float = 1.0,
    rounds: int = 5,
    limit: int = 4 << 30,
    is_wanted: Callable[[str], bool] = lambda name: True,
) -> Iterator[Row]:
    """Rows as of `plan`."""
    for forms, count in plan(found, scale, is_wanted):
        yield measure_call(forms, count, devices, rounds, limit)


# In a worker (ditorch.call_worker): calls are texts


def start_worker(devices: Sequence[str]) -> dict[str, Any]:
    """Facts about the machine: how fast its devices copy."""
    for device in devices:
        try:
            torch.empty(1, device=device)
        except Exception as error:
            raise ValueError(f"--device {device}: {str(error).splitlines()[0]}") from None
    return {"roofs": {device: measure_copy(device) for device in devices}}


def measure_texts(forms: Sequence[str], count: int, devices: Sequence[str], rounds: int, limit: int) -> dict[str, Any]:
    row = measure_call([parse_call(text) for text in forms], count, devices, rounds, limit)
    return {"call": str(row.call), "moved": row.moved, "seconds": row.seconds, "problems": row.problems}


def read_row(value: dict[str, Any], count: int) -> Row:
    """What `measure_texts` gave."""
    return Row(parse_call(value["call"]), count, value["moved"], value["seconds"], value["problems"])


def count_rows(found: Corpus, is_wanted: Callable[[str], bool]) -> int:
    return sum(is_wanted(call.name) for call, _ in list_calls(found))


def mean_ratio(rows: Sequence[Row], device: str, other: str) -> float | None:
    """Geometric mean of the other device's time over this one's; None when no call ran on both."""
    both = [row for row in rows if device in row.seconds and other in row.seconds]
    if not both:
        return None
    return math.exp(sum(math.log(row.seconds[other] / row.seconds[device]) for row in both) / len(both))
