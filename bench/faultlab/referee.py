"""The referee: which operator a fault really hit, and whether the damage is large enough to be asked for.

It knows nothing of the tool under test. A dispatch mode sees every ATen operator, forward and backward, and reads the
counter of injected faults around it; the torch function around a forward operator is known from a torch-function mode,
the one behind a backward operator from the sequence number of the autograd node that is running. The damage is the
difference between the damaged result and the same operator run again without a fault; it counts when it exceeds four
times the error that the CPU makes in the same dtype against float64.
"""

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

FACTOR = 4.0


class Functions(TorchFunctionMode):
    """Names of the outermost torch functions, and the autograd nodes that each of them made."""

    def __init__(self):
        super().__init__()
        self.current = None
        self.windows = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = resolve_name(func) or f"{getattr(func, '__module__', '')}.{getattr(func, '__name__', func)}"
        begin = torch._C._autograd._get_sequence_nr()
        before, self.current = self.current, name
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.current = before
            end = torch._C._autograd._get_sequence_nr()
            if end > begin:
                self.windows.append((begin, end, name))

    def find(self, sequence):
        return next((name for begin, end, name in reversed(self.windows) if begin <= sequence < end), None)


class Referee(TorchDispatchMode):
    """`verdict` is None until a fault fires, then a dictionary: operator, culprit, direction, damage, own, counts."""

    def __init__(self, fault, operator):
        super().__init__()
        self.fault, self.operator = fault, operator.removeprefix("aten::").partition(".")[0]
        self.functions = Functions()
        self.verdict = None

    def __enter__(self):
        self.functions.__enter__()
        return super().__enter__()

    def __exit__(self, *exc_info):
        super().__exit__(*exc_info)
        self.functions.__exit__(*exc_info)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.verdict is not None or not touches_device((args, kwargs)):
            return func(*args, **kwargs)
        before = tree_map_only(torch.Tensor, lambda x: x.detach().clone(), (args, kwargs))
        count = self.fault.count
        result = func(*args, **kwargs)
        if self.fault.count > count:
            self.verdict = self.judge(func, before, (args, kwargs), result)
        return result

    def judge(self, func, before, after, result):
        node = torch._C._current_autograd_node()
        backward = node is not None
        culprit = self.functions.find(node._sequence_nr()) if backward else self.functions.current
        damaged = [x.detach().clone() for x in tensors((after, result))]
        self.fault.__exit__(None, None, None)  # it has fired: from here on the device is sound
        damage, own, dtype = measure(func, before, damaged)
        return {
            "operator": str(func),
            "culprit": culprit,
            "direction": "backward" if backward else "forward",
            "node": node.name() if backward else None,
            "dtype": dtype,
            "damage": damage,
            "own": own,
            "counts": bool(culprit) and damage > FACTOR * own,
        }


def tensors(tree):
    return [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]


def touches_device(tree):
    return any(x.device.type != "cpu" for x in tensors(tree))


def run(func, before, convert):
    """Results and arguments after the call, on converted copies of the arguments."""
    args, kwargs = tree_map_only(torch.Tensor, lambda x: convert(x.clone()), before)
    kwargs = {key: "cpu" if key == "device" and convert is not same else value for key, value in kwargs.items()}
    result = func(*args, **kwargs)
    return tensors(((args, kwargs), result))


def same(x):
    return x


def widen(x):
    return x.cpu().double() if x.is_floating_point() else x.cpu()


def distance(a, b):
    """Largest difference; infinite when one side alone is not finite."""
    a, b = a.detach().cpu(), b.detach().cpu()
    if a.shape != b.shape:
        return float("inf")
    if not a.is_floating_point():
        return float((a != b).any()) * float("inf") if bool((a != b).any()) else 0.0
    a, b = a.double(), b.double()
    if bool((a.isfinite() != b.isfinite()).any()):
        return float("inf")
    difference = (a - b).abs().nan_to_num(0.0, 0.0, 0.0)
    return float(difference.max()) if difference.numel() else 0.0


def measure(func, before, damaged):
    """(damage, own error of the CPU, dtype) of the tensor that was hit worst, relative to what it may be off by."""
    clean = run(func, before, same)
    try:
        cpu, wide = run(func, before, lambda x: x.cpu()), run(func, before, widen)
    except (RuntimeError, NotImplementedError):
        cpu = wide = None  # no such operator on the CPU
    worst = (0.0, 0.0, "")
    for i, (hurt, right) in enumerate(zip(damaged, clean, strict=True)):
        damage = distance(hurt, right)
        if not damage > 0:
            continue
        own = 0.0
        if right.is_floating_point():
            own = float(right.detach().abs().nan_to_num(0.0, 0.0, 0.0).max()) * torch.finfo(right.dtype).eps / 2
            if cpu is not None and cpu[i].shape == wide[i].shape == right.shape:
                own = distance(cpu[i], wide[i])
        if damage - FACTOR * own > worst[0] - FACTOR * worst[1] or not worst[2]:
            worst = (damage, own, str(right.dtype).removeprefix("torch."))
    return worst
