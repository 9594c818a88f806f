"""The referee: which operator a fault really hit, and whether the damage is large enough to be asked for.

It knows nothing of the tool under test. A dispatch mode sees every ATen operator, forward and backward, and reads the
counter of injected faults around it; the torch function around a forward operator is known from a torch-function mode,
the one behind a backward operator from the sequence number of the autograd node that is running. The damage is the
difference between the damaged result and the same operator run again without a fault; it counts when it exceeds four
times the error that the CPU makes in the same dtype against float64, which is at least the rounding of the value
itself, or nothing where the operator copies values and the CPU is exact.

Two levels: at "torch" the culprit is the torch function; sums of gradients that autograd makes by itself belong to no
function, and an input that is changed behind the walls of a composite function is not to be seen from outside: these
do not count. At "aten" the culprit is the operator itself, and both count.
"""

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

FACTOR = 4.0
EXACT = ("cat", "clone", "embedding", "gather", "index", "index_select", "stack", "relu", "where", "masked_fill")
"""Operators that round nothing: of them not even the rounding of the value is forgiven."""
EXACT_FUNCTIONS = (*EXACT, "contiguous", "reshape", "flatten", "getitem", "repeat_interleave")
"""Torch functions likewise: an exact operator inside of one that rounds is judged with it."""


class Functions(TorchFunctionMode):
    """Names of the outermost torch functions, and the autograd nodes that each of them made."""

    def __init__(self):
        super().__init__()
        self.current, self.arguments = None, ()
        self.windows = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = resolve_name(func) or f"{getattr(func, '__module__', '')}.{getattr(func, '__name__', func)}"
        begin = torch._C._autograd._get_sequence_nr()
        before = self.current, self.arguments
        self.current, self.arguments = name, (args, kwargs)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.current, self.arguments = before
            end = torch._C._autograd._get_sequence_nr()
            if end > begin:
                self.windows.append((begin, end, name))

    def is_argument(self, tensor):
        addresses = {x.untyped_storage().data_ptr() for x in tensors(self.arguments)}
        return tensor.untyped_storage().data_ptr() in addresses

    def find(self, sequence):
        return next((name for begin, end, name in reversed(self.windows) if begin <= sequence < end), None)


class Referee(TorchDispatchMode):
    """`verdict` is None until a fault fires, then a dictionary: operator, culprit, direction, damage, own, counts."""

    def __init__(self, fault, level):
        super().__init__()
        self.fault, self.level = fault, level
        self.functions = Functions()
        self.verdict = None

    def __enter__(self):
        self.functions.__enter__()
        return super().__enter__()

    def __exit__(self, *exc_info):
        super().__exit__(*exc_info)
        self.functions.__exit__(*exc_info)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunction():  # what the referee does is no call of the program
            return self.watch(func, args, kwargs or {})

    def watch(self, func, args, kwargs):
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
        given = tensors(after)
        damaged = [x.detach().clone() for x in tensors((after, result))]
        if hasattr(self.fault, "switch_off"):  # it has fired: from here on the device is sound
            self.fault.switch_off()
        else:
            self.fault.__exit__(None, None, None)
        culprit = self.find_culprit(func, node)
        worst = measure(func, before, damaged, self.must_be_exact(func, node, culprit))
        hidden = worst["place"] < len(given) and not is_written(func) and not self.is_visible(node, given, worst)
        return {
            "hit": str(func),
            "culprit": culprit,
            "direction": "forward" if node is None else "backward",
            "node": node.name() if node is not None else None,
            **worst,
            "blind": self.level == "aten" and not worst["known"],  # there is no reference to be compared with
            "counts": bool(culprit) and not hidden and worst["damage"] > FACTOR * worst["own"],
        }

    def must_be_exact(self, func, node, culprit):
        if self.level == "aten":
            return is_exact(func)
        return is_exact(func) and node is None and (culprit or "").rpartition(".")[2].strip("_") in EXACT_FUNCTIONS

    def is_visible(self, node, given, worst):
        return self.level == "aten" or (node is None and self.functions.is_argument(given[worst["place"]]))

    def find_culprit(self, func, node):
        if self.level == "aten":
            return func.name()
        if node is None:
            return self.functions.current
        name = func.name().partition(".")[0]
        return None if name in ("aten::add", "aten::add_") else self.functions.find(node._sequence_nr())


def is_exact(func):
    return func.name().removeprefix("aten::").partition(".")[0] in EXACT


def is_written(func):
    return func._schema.is_mutable


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


def measure(func, before, damaged, exact=False):
    """The tensor that was hit worst: damage, own (what the CPU is off by, at least the rounding of the value), dtype,
    place among the arguments and results."""
    clean = run(func, before, same)
    try:
        cpu, wide = run(func, before, lambda x: x.cpu()), run(func, before, widen)
    except (RuntimeError, NotImplementedError):
        cpu = wide = None  # no such operator on the CPU
    worst = {"damage": 0.0, "own": 0.0, "dtype_hit": "", "place": len(damaged), "known": cpu is not None}
    for i, (hurt, right) in enumerate(zip(damaged, clean, strict=True)):
        damage, own = distance(hurt, right), 0.0
        scratch = (
            right.dtype is torch.uint8 and "_rnn" in func.name()
        )  # bytes that only the device's kernels understand
        if scratch or not damage > 0:
            continue
        if right.is_floating_point():
            own = 0.0 if exact else rounding(hurt, right)
            if cpu is not None and cpu[i].shape == wide[i].shape == right.shape:
                own = max(own, distance(cpu[i], wide[i]))
        if damage - FACTOR * own > worst["damage"] - FACTOR * worst["own"] or not worst["dtype_hit"]:
            name = str(right.dtype).removeprefix("torch.")
            worst |= {"damage": damage, "own": own, "dtype_hit": name, "place": i}
    return worst


def rounding(hurt, right):
    """Half a unit in the last place of the value that is off most, subnormal numbers included."""
    right = right.detach().cpu().double().nan_to_num(0.0, 0.0, 0.0)
    off = (hurt.detach().cpu().double() - right).abs().nan_to_num(float("inf")).flatten()
    kind = torch.finfo(hurt.dtype)
    return max(float(right.flatten()[off.argmax()].abs()), kind.smallest_normal) * kind.eps / 2
