"""Comparison of one operator's results on the device with its results on the CPU.

Everything here works on pairs of nested containers (what an operator returns): values, shapes, dtypes, strides, and how
results alias the inputs. Values are judged by the one rule (docs/verdict.md) unless the user gave a tolerance. A
difference is raised as `Difference` with one sentence; nothing is printed. Depends on torch and ditorch.judge.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..judge import Judgement, Runs, judge
from .tolerance import Tolerance

NO_TOLERANCE = Tolerance({})


class Difference(AssertionError):
    """The device disagrees with the CPU."""


def leaves(tree: Any) -> list[torch.Tensor]:
    """Tensors of a nested container, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def significant_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Strides that address memory: those of dimensions longer than one, none for an empty tensor."""
    if tensor.numel() == 0:
        return None
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=False) if size > 1)


def is_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested


def to_plain(value: Any) -> Any:
    """A tensor of the CPU whose numbers can be compared; everything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.is_nested:
        parts = [part.reshape(-1) for part in value.unbind()]
        return torch.cat(parts).cpu() if parts else value.cpu()
    value = value.dequantize() if value.is_quantized else value
    return (value if value.layout is torch.strided else value.to_dense()).cpu()


@dataclass
class Call:
    """One call whose values are judged: its operator, its arguments as they were, and its further runs on the CPU,
    whose values are in the order of those that are compared."""

    name: str
    args: Sequence[Any]
    kwargs: dict[str, Any]
    runs: Runs
    what: str = "output"
    careful: bool = False

    def judge(self, value: torch.Tensor, cpu: torch.Tensor, index: int) -> Judgement:
        return judge(
            self.name,
            value,
            cpu,
            self.runs,
            args=self.args,
            kwargs=self.kwargs,
            inputs=leaves([list(self.args), self.kwargs]),
            what=self.what,
            index=index,
            careful=self.careful,
        )


class Comparison:
    """What is compared, and how closely. Counts values that are right, among them those that differ from the CPU's
    (`settled`), and values of which nothing can be said (`undecided`)."""

    def __init__(self, tolerance: Tolerance = NO_TOLERANCE, strides: bool = True) -> None:
        self.tolerance = tolerance
        self.strides = strides
        self.right = self.settled = self.undecided = 0
        self.reason = ""
        """Why the last value was left undecided."""

    def check(self, device: Any, cpu: Any, what: str, device_type: str, call: Call | None = None) -> None:
        """Compare two results of any nesting; values too where there is a `call` that can judge them. Scalars compare
        exactly but for float rounding."""
        flat_device, spec_device = pytree.tree_flatten(device)
        flat_cpu, spec_cpu = pytree.tree_flatten(cpu)
        if len(flat_device) != len(flat_cpu) or str(spec_device) != str(spec_cpu):
            raise Difference(f"{what}: structure {spec_device}, CPU has {spec_cpu}")
        for index, (a, b) in enumerate(zip(flat_device, flat_cpu, strict=True)):
            label = what if len(flat_cpu) == 1 else f"{what}[{index}]"
            if isinstance(b, torch.Tensor) != isinstance(a, torch.Tensor):
                raise Difference(f"{label}: {type(a).__name__}, CPU has {type(b).__name__}")
            if isinstance(b, torch.Tensor):
                check_metadata(a, b, label, device_type, self.strides)
                if call is not None:
                    self._check_values(a, b, label, index, call)
            elif call is not None:
                check_scalar(a, b, label)

    def _check_values(self, device: torch.Tensor, cpu: torch.Tensor, what: str, index: int, call: Call) -> None:
        got, wanted = to_plain(device), to_plain(cpu)
        counts = call.what != "input"  # arguments that nobody wrote to say nothing about the operator
        with contextlib.suppress(RuntimeError):  # a few dtypes have no torch.equal
            if torch.equal(got, wanted):
                self.right += counts
                return  # the usual case, and a hundred times faster to find out
        width = self.tolerance.find(cpu.dtype)
        if width is not None:
            check_width(got, wanted, *width, what)
            self.right += counts
            return
        found = call.judge(got, wanted, index)
        if found.is_wrong:
            raise Difference(f"{what}: {describe_wrong(found, got.shape)}")
        self.right += counts and found.verdict == "right"
        self.settled += found.verdict == "right"
        self.undecided += found.verdict == "unknown"
        self.reason = found.reason if found.verdict == "unknown" else self.reason


def check_width(got: torch.Tensor, wanted: torch.Tensor, rtol: float, atol: float, what: str) -> None:
    """By the user's tolerance."""
    try:
        torch.testing.assert_close(got, wanted, equal_nan=True, rtol=rtol, atol=atol)
    except AssertionError as error:
        raise Difference(f"{what}: beyond the tolerance: {' '.join(str(error).split())[:300]}") from None


def describe_wrong(found: Judgement, shape: torch.Size) -> str:
    """In one sentence."""
    if found.index < 0:
        return found.reason
    place, at = [], found.index
    for size in reversed(shape):
        place.append(at % size)
        at //= size
    text = f"values differ: {found.value:.9g} at {place[::-1]}, the reference is {found.reference:.9g}"
    if found.allowed > 0 and math.isfinite(found.error):
        text += f": off by {found.error:.3g}, allowed {found.allowed:.3g}"
    return f"{text} ({found.reason}); {found.wrong} of {found.numel} elements"


def check_metadata(device: torch.Tensor, cpu: torch.Tensor, what: str, device_type: str, strides: bool) -> None:
    if device.device.type != device_type:
        raise Difference(f"{what}: result is on {device.device}, wanted {device_type}")
    for name in ("dtype", "layout"):
        if getattr(device, name) != getattr(cpu, name):
            raise Difference(f"{what}: {name} {getattr(device, name)}, CPU has {getattr(cpu, name)}")
    if tuple(device.shape) != tuple(cpu.shape):
        raise Difference(f"{what}: shape {tuple(device.shape)}, CPU has {tuple(cpu.shape)}")
    if is_strided(cpu) and strides and significant_strides(device) != significant_strides(cpu):
        raise Difference(f"{what}: strides {device.stride()}, CPU has {cpu.stride()} for shape {tuple(cpu.shape)}")
    if is_strided(cpu) and strides and (device.is_conj(), device.is_neg()) != (cpu.is_conj(), cpu.is_neg()):
        raise Difference(f"{what}: conjugate or negative bit differs from the CPU's")
    if device.requires_grad != cpu.requires_grad:
        raise Difference(f"{what}: requires_grad {device.requires_grad}, CPU has {cpu.requires_grad}")


def check_scalar(a: Any, b: Any, label: str) -> None:
    if isinstance(b, torch.device) or type(b).__module__.startswith("torch.Generator"):
        return
    if isinstance(b, (float, complex)) and isinstance(a, (float, complex)):
        try:
            torch.testing.assert_close(a, b, equal_nan=True)
            return
        except AssertionError:
            pass
    if a != b:
        raise Difference(f"{label}: {a!r}, CPU has {b!r}")


def alias_of(out: torch.Tensor, inputs: list[torch.Tensor]) -> Any:
    """Which input shares memory with `out` and at what byte distance, and whether autograd calls it a view."""
    if not is_strided(out) or out.numel() == 0:
        return None
    relation = None
    for index, tensor in enumerate(inputs):
        if not is_strided(tensor) or tensor.numel() == 0:
            continue
        if tensor is out:
            relation = (index, "same object", 0)
            break
        if tensor.untyped_storage().data_ptr() == out.untyped_storage().data_ptr():
            relation = (index, "shared memory", out.data_ptr() - tensor.data_ptr())
            break
    return relation, out._is_view()


def check_aliases(device_out: Any, device_in: Any, cpu_out: Any, cpu_in: Any, what: str) -> None:
    for index, (a, b) in enumerate(zip(leaves(device_out), leaves(cpu_out), strict=False)):
        mine, wanted = alias_of(a, leaves(device_in)), alias_of(b, leaves(cpu_in))
        if mine != wanted:
            raise Difference(f"{what}[{index}]: aliasing {mine}, CPU has {wanted}")


# Random results


def run_moments(results: list[Any], scale: float) -> tuple[list[float], list[float]]:
    """Per run: mean and mean square of a bounded image of all results (heavy tails stay harmless)."""
    firsts, seconds = [], []
    for result in results:
        parts = [t.detach().cpu().to(torch.float64).flatten() for t in leaves(result) if not t.is_complex()]
        parts += [
            torch.view_as_real(t.detach().cpu().resolve_conj()).double().flatten()
            for t in leaves(result)
            if t.is_complex()
        ]
        if not parts:
            continue
        flat = torch.cat(parts).nan_to_num(nan=0.0, posinf=1e30, neginf=-1e30)
        if flat.numel() == 0:
            continue
        image = torch.atan(flat / scale)
        firsts.append(image.mean().item())
        seconds.append(image.square().mean().item())
    return firsts, seconds


def typical_size(result: Any) -> float:
    parts = [t.detach().cpu().abs().double().flatten() for t in leaves(result)]
    flat = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
    flat = flat[torch.isfinite(flat) & (flat > 0)]
    return flat.median().item() if flat.numel() else 1.0


def check_statistics(device_results: list[Any], cpu_results: list[Any], what: str) -> None:
    """Means and mean squares of many runs agree within six standard errors of the run-to-run scatter."""
    if not cpu_results:
        return
    scale = typical_size(cpu_results[0])
    mine, wanted = run_moments(device_results, scale), run_moments(cpu_results, scale)
    for name, a, b in zip(("mean", "mean square"), mine, wanted, strict=True):
        if len(a) < 2 or len(b) < 2:
            continue
        a, b = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
        error = math.sqrt(a.var().item() / len(a) + b.var().item() / len(b))
        distance = abs(a.mean().item() - b.mean().item())
        if distance > 6 * error + 1e-6:
            raise Difference(
                f"{what}: {name} of {len(a)} runs is {a.mean().item():.5g}, CPU has {b.mean().item():.5g} "
                f"(after atan(x / {scale:.3g})), {distance / max(error, 1e-12):.1f} standard errors apart"
            )
