"""Comparison of one operator's results on the device with its results on the CPU.

Everything here works on pairs of nested containers (what an operator returns): values, shapes, dtypes, strides, and how
results alias the inputs. A difference is raised as `Difference` with one sentence; nothing is printed.
Depends on torch alone.
"""

import math

import torch
from torch.utils import _pytree as pytree


class Difference(AssertionError):
    """The device disagrees with the CPU."""


def leaves(tree):
    """Tensors of a nested container, in order."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def significant_strides(tensor):
    """Strides that address memory: those of dimensions longer than one, none for an empty tensor."""
    if tensor.numel() == 0:
        return None
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=False) if size > 1)


def is_strided(tensor):
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested


def check_metadata(device, cpu, what, device_type):
    if device.device.type != device_type:
        raise Difference(f"{what}: result is on {device.device}, wanted {device_type}")
    for name in ("dtype", "layout"):
        if getattr(device, name) != getattr(cpu, name):
            raise Difference(f"{what}: {name} {getattr(device, name)}, CPU has {getattr(cpu, name)}")
    if tuple(device.shape) != tuple(cpu.shape):
        raise Difference(f"{what}: shape {tuple(device.shape)}, CPU has {tuple(cpu.shape)}")
    if is_strided(cpu) and significant_strides(device) != significant_strides(cpu):
        raise Difference(f"{what}: strides {device.stride()}, CPU has {cpu.stride()} for shape {tuple(cpu.shape)}")
    if is_strided(cpu) and (device.is_conj(), device.is_neg()) != (cpu.is_conj(), cpu.is_neg()):
        raise Difference(f"{what}: conjugate or negative bit differs from the CPU's")
    if device.requires_grad != cpu.requires_grad:
        raise Difference(f"{what}: requires_grad {device.requires_grad}, CPU has {cpu.requires_grad}")


def check_values(device, cpu, what, tolerance):
    try:
        torch.testing.assert_close(device.detach().cpu(), cpu.detach(), equal_nan=True, **tolerance)
    except AssertionError as error:
        text = " ".join(str(error).split())
        raise Difference(f"{what}: values differ: {text[:300]}") from None


def check_tree(device, cpu, what, device_type, tolerance, values=True):
    """Compare two results of any nesting. Scalars compare exactly but for float rounding."""
    flat_device, spec_device = pytree.tree_flatten(device)
    flat_cpu, spec_cpu = pytree.tree_flatten(cpu)
    if len(flat_device) != len(flat_cpu) or str(spec_device) != str(spec_cpu):
        raise Difference(f"{what}: structure {spec_device}, CPU has {spec_cpu}")
    for index, (a, b) in enumerate(zip(flat_device, flat_cpu, strict=False)):
        label = what if len(flat_cpu) == 1 else f"{what}[{index}]"
        if isinstance(b, torch.Tensor) != isinstance(a, torch.Tensor):
            raise Difference(f"{label}: {type(a).__name__}, CPU has {type(b).__name__}")
        if isinstance(b, torch.Tensor):
            check_metadata(a, b, label, device_type)
            if values:
                check_values(a, b, label, tolerance)
        elif values:
            check_scalar(a, b, label)


def check_scalar(a, b, label):
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


def alias_of(out, inputs):
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


def check_aliases(device_out, device_in, cpu_out, cpu_in, what):
    for index, (a, b) in enumerate(zip(leaves(device_out), leaves(cpu_out), strict=False)):
        mine, wanted = alias_of(a, leaves(device_in)), alias_of(b, leaves(cpu_in))
        if mine != wanted:
            raise Difference(f"{what}[{index}]: aliasing {mine}, CPU has {wanted}")


def run_moments(results):
    """Per run: mean and mean square of a bounded image of all results (heavy tails stay harmless)."""
    firsts, seconds = [], []
    for scale, result in results:
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


def typical_size(result):
    parts = [t.detach().cpu().abs().double().flatten() for t in leaves(result)]
    flat = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
    flat = flat[torch.isfinite(flat) & (flat > 0)]
    return flat.median().item() if flat.numel() else 1.0


def check_statistics(device_results, cpu_results, what):
    """Means and mean squares of many runs agree within six standard errors of the run-to-run scatter."""
    if not cpu_results:
        return
    scale = typical_size(cpu_results[0])
    mine = run_moments([(scale, r) for r in device_results])
    wanted = run_moments([(scale, r) for r in cpu_results])
    for name, a, b in zip(("mean", "mean square"), mine, wanted, strict=False):
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
