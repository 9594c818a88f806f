"""A recorded call of a model in the shape of an entry of the operator database, so that entry.py can check it.

Of the smaller forms of a call the first that the CPU runs is taken; an operator of a package (torchvision's) wants that
package installed. What cannot be run on the CPU has no reference, and says why.

Two samples: floats around 0, and floats between 0.25 and 1.75 for operators that want them positive. Integers are
indices that every dimension has (in a third sample zeros, for dimensions of size 1); truth values are random.
Depends on torch and the corpora.
"""

from __future__ import annotations

import contextlib
import importlib
import types
from collections.abc import Iterator
from typing import Any

import torch

from ..models import corpus, measure, run
from .samples import SEED

NOTHING = object()
"""The first argument of calls that have none."""


class TooLarge(Exception):
    """The arguments need more memory than allowed."""


def make_op(task: dict[str, Any]) -> ModelOp:
    return ModelOp(corpus.parse_call(task["call"]), task["scale"], task["limit"])


def find_limit(call: corpus.Call) -> int:
    """Every index below it is one of every dimension that is longer than 1."""
    sizes = [size for tensor in call.tensors() for size in tensor.shape if size > 1]
    return min(sizes, default=1)


def find_function(name: str) -> Any:
    """torch.ops.aten.add.Tensor; a package that brings the operator is imported."""
    space = name.partition("::")[0]
    if space != "aten":
        with contextlib.suppress(ImportError):
            importlib.import_module(space)
    try:
        return run.find_operator(name)
    except AttributeError:
        raise LookupError(f"{name} belongs to {space}, which is not installed") from None


def choose_form(forms: list[corpus.Call], limit: int) -> corpus.Call:
    """The first that fits into the memory and that the CPU runs; the last one's trouble is raised."""
    trouble: Exception = LookupError("the call has no form")
    for form in forms:
        needed = sum(tensor.nbytes for tensor in form.tensors())
        if needed > limit:
            trouble = TooLarge(f"{needed / 2**30:.1f} GiB of arguments; --memory is {limit / 2**30:.1f} GiB")
            continue
        try:
            run.run(run.materialize(form, "cpu", measure.make_values))
        except Exception as error:  # what an operator says of sizes that do not fit is any exception
            trouble = error
            continue
        return form
    raise trouble


class ModelOp:
    """What entry.py asks of an entry."""

    variant_test_name = ""
    supports_out = False

    def __init__(self, call: corpus.Call, scale: float, limit: int) -> None:
        self.call, self.scale, self.limit = call, scale, limit
        self.judged_name = call.name
        self.name = call.name.partition("::")[2].partition(".")[0]
        self.supports_autograd = call.name in run.COMPOSITE

    def __call__(self, first: Any, *args: Any, **kwargs: Any) -> Any:
        return self._function(*(() if first is NOTHING else (first,)), *args, **kwargs)

    def get_inplace(self) -> None:
        return None

    def supported_backward_dtypes(self, device: str) -> set[torch.dtype]:
        return {torch.float16, torch.bfloat16, torch.float32, torch.float64}

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
        self._function = find_function(self.call.name)
        self.call = choose_form(measure.list_valid_forms(self.call, self.scale), self.limit)
        has_integers = any(t.dtype.lstrip("u").startswith("int") for t in self.call.tensors())
        for number, (low, high) in enumerate(((-2.0, 2.0), (0.25, 1.75))):
            yield self._make_sample(low, high, find_limit(self.call), SEED + number, requires_grad)
        if has_integers:
            yield self._make_sample(0.25, 1.75, 1, SEED, requires_grad)

    def _make_sample(self, low: float, high: float, limit: int, seed: int, requires_grad: bool) -> Any:
        generator = torch.Generator().manual_seed(seed)

        def make(shape: Any, dtype: torch.dtype, device: str) -> torch.Tensor:
            shape = tuple(shape)
            if dtype == torch.bool:
                return torch.rand(shape, generator=generator) < 0.5
            if not (dtype.is_floating_point or dtype.is_complex):
                return torch.randint(0, limit, shape, generator=generator).to(dtype)
            wide = torch.complex64 if dtype.is_complex else torch.float32
            values = torch.rand(shape, dtype=wide, generator=generator)
            return values.mul_(high - low).add_(low).to(dtype)

        _, args, kwargs = run.materialize(self.call, "cpu", make)
        if requires_grad:
            args = [
                x.requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() and place < 3 else x
                for place, x in enumerate(args)
            ]
        first = args[0] if args else NOTHING
        return types.SimpleNamespace(
            input=first, args=tuple(args[1:]), kwargs=kwargs, output_process_fn_grad=None, broadcasts_input=False
        )
