"""From the graph of AOTAutograd to words: views become layouts, elementwise operators and reductions become nodes that
C fuses, everything else a call by name."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, statically_known_true

from ..compiler import is_on_device
from .words import DTYPES, ISLAND, POINT, REDUCE, ROW, UnsupportedGraph, Words

FUSED_DTYPES = {
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
}  # fmt: skip
HOST = 8
"""DIT_GRAPH_HOST"""
MAX_ROW = 8192
"""DIT_REGION_MAX_ROW"""
HALVES = (torch.bfloat16, torch.float16)
VIEWS = {"_unsafe_view", "alias", "detach", "lift_fresh"}
"""Views that no schema calls so."""
UNSURE = "aten::_embedding_bag"
"""How operators begin whose results, or what their backward is given, have other shapes than the trace says."""
UNARY = {
    "neg": "NEG", "abs": "ABS", "sign": "SIGN", "sqrt": "SQRT", "rsqrt": "RSQRT", "reciprocal": "RECIPROCAL",
    "exp": "EXP", "expm1": "EXPM1", "log": "LOG", "log2": "LOG2", "log10": "LOG10", "log1p": "LOG1P", "sin": "SIN",
    "cos": "COS", "tanh": "TANH", "erf": "ERF", "floor": "FLOOR", "ceil": "CEIL", "trunc": "TRUNC", "relu": "RELU",
    "sigmoid": "SIGMOID", "silu": "SILU", "bitwise_not": "NOT", "round": "ROUND",
}  # fmt: skip
BINARY = {
    "mul": "MUL", "maximum": "MAXIMUM", "minimum": "MINIMUM", "bitwise_and": "AND", "bitwise_or": "OR",
    "bitwise_xor": "XOR", "logical_and": "AND", "logical_or": "OR", "logical_xor": "XOR",
}  # fmt: skip
COMPARE = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}
GRADS = {"tanh_backward": "TANH_GRAD", "sigmoid_backward": "SIGMOID_GRAD", "silu_backward": "SILU_GRAD"}
FOLDS = {"sum": "SUM", "amax": "MAX", "amin": "MIN"}
ANY_DTYPE = {"CAST", "COPY", "ADD", "MUL", "MAXIMUM", "MINIMUM", "WHERE", "EQ", "NE", "LT", "LE", "GT", "GE"}
BITS = {"NOT", "AND", "OR", "XOR"}
NUMBERS = {"NEG", "ABS", "SIGN", "RELU", "SUB", "CLAMP_MIN", "CLAMP_MAX"}
"""Operations of integers too; what is in none of these is of floating dtypes alone."""

FILLS = {
    "full": None, "full_like": None, "new_full": None, "scalar_tensor": None, "zeros": 0, "zeros_like": 0,
    "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
}  # fmt: skip
"""Tensors of one number; None: the last argument is it."""


class Unfused(Exception):
    """This operator, as it is called here, is not written as elementwise nodes."""


class Refused(Unfused):
    """It could be, but the engine does not run one of them."""


@dataclasses.dataclass(eq=False)
class Value:
    """A tensor of the graph: its number, and the fake tensor that says what it is."""

    tensor_index: int
    storage: int
    base: Any  # storage offset where its storage begins
    shape: tuple
    strides: tuple
    dtype: torch.dtype
    on_device: bool
    is_contiguous: bool


@dataclasses.dataclass(eq=False)
class Unsaid:
    """Something that the words cannot say; the operators that use it run as they are. `place`: the argument of the
    graph that it is."""

    reason: str
    place: int = -1


def _name_kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        lazily = "conjugated " if value.is_conj() else "negated " if value.is_neg() else ""
        return f"a {lazily}tensor of {value.layout}, {value.dtype} and {value.dim()} dimensions"
    return f"a {type(value).__name__}"


def _pick_arguments(values: list[Any]) -> list[int]:
    """Which values the words can say: integers, and tensors with sizes that are told by those of these values."""
    kinds = (torch.Tensor, torch.SymInt, int)
    told = [i for i, value in enumerate(values) if isinstance(value, kinds) and not isinstance(value, bool)]
    while True:
        words = Words()
        for number, place in enumerate(told):
            words.note_symbols(values[place], number)
        kept = [place for place in told if words.can_say(values[place])]
        if len(kept) == len(told):
            return told
        told = kept


def _acts(node: torch.fx.Node) -> bool:
    """An operator that gives nothing and is there for what it does, such as an assertion."""
    is_operator = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns
    return is_operator and not node.target._schema.name.startswith("aten::sym_constrain_range")


def _is_contiguous(fake: torch.Tensor) -> bool:
    try:
        return fake.is_contiguous()
    except GuardOnDataDependentSymNode:
        return False


def contiguous_strides(sizes) -> tuple:
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def _is_empty(fake: torch.Tensor) -> bool:
    """Without asking about sizes that only a run tells."""
    return any(isinstance(size, int) and size == 0 for size in fake.shape)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, torch.SymInt))


def _make_sample(value: Any) -> Any:
    """Something that promotes as the argument does."""
    if isinstance(value, Value):
        return torch.empty((1,) * len(value.shape), dtype=value.dtype, device="meta")
    return 1 if isinstance(value, torch.SymInt) else value


def _is_evaluation(name: str, args: list[Any]) -> bool:
    """A batch_norm that saves no statistics, whatever the trace says."""
    return name.endswith("batch_norm_legit_no_training") or (name.endswith("native_batch_norm") and args[5] is False)


def _drop_unused(node: torch.fx.Node, out: Any) -> Any:
    """None for a result that nobody takes: it need not be what tracing supposes (batch_norm's statistics in eval)."""
    if not isinstance(out, (list, tuple)) or any(user.target is not operator.getitem for user in node.users):
        return out
    taken = {user.args[1] for user in node.users}
    return [leaf if place in taken else None for place, leaf in enumerate(out)]


class Lowering:
    """Walks one graph; `words` is the result."""

    def __init__(
        self, module: torch.fx.GraphModule, operations: dict[str, int], has_row, supports, count: int | None = None
    ) -> None:
        """`supports` says whether the engine runs an operation on dtypes and a rank; None: there is no engine."""
        self.module, self.operations, self.has_row, self.supports = module, operations, has_row, supports
        self.fuses = supports is not None
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        self.given = set(filter(None, output.args[0][:count]))  # what the program gets; the rest waits for the backward
        self.words = Words()
        self.values: dict[torch.fx.Node, Any] = {}
        self.constants: list[torch.Tensor] = []
        self.late_copies: list[tuple[int, Any]] = []
        self.islands: dict[str, str] = {}
        self.refused: dict[str, str] = {}  # rows that would be fused, had the engine taken their operations
        self.origins: list[torch.fx.Node] = []  # of each node of the words: what it came from
        self.out_places: list[tuple[str, Any]] = []
        self.tensor_places: list[int] = []  # arguments of the graph that are tensors of the words,
        self.number_places: list[int] = []  # and those that are their integers

    # Tensors

    def describe(self, fake: torch.Tensor, storage: int, base: Any, flags: int = 0) -> Value:
        if fake.layout is not torch.strided or fake.is_conj() or fake.is_neg():
            raise UnsupportedGraph(f"a tensor of layout {fake.layout}")
        sizes, strides = tuple(fake.shape), tuple(fake.stride())
        offset = fake.storage_offset() - base
        on_device = is_on_device(fake)
        flags |= 0 if on_device else HOST
        index = self.words.add_tensor(fake.dtype, sizes, strides, storage, offset, flags)
        return Value(index, storage, base, sizes, strides, fake.dtype, on_device, _is_contiguous(fake))

    def make(self, shape, dtype: torch.dtype, strides=None) -> Value:
        """A tensor for the result of a node."""
        shape = tuple(shape)
        dense = contiguous_strides(shape)
        strides = dense if strides is None else tuple(strides)
        storage = self.words.add_storage()
        index = self.words.add_tensor(dtype, shape, strides, storage)
        is_dense = all(statically_known_true(a == b) for a, b in zip(strides, dense, strict=True))
        return Value(index, storage, 0, shape, strides, dtype, True, is_dense)

    # Nodes

    def ask(self, name: str, args: list[Any], dtype: torch.dtype, shape, folded: int = 0) -> None:
        """Unfused where the engine does not run the operation."""
        dtypes = [DTYPES[arg.dtype] if isinstance(arg, Value) else -1 for arg in args]
        if not self.supports(self.operations[name], folded, len(shape), (*dtypes, DTYPES[dtype])):
            work = next((arg.dtype for arg in reversed(args) if isinstance(arg, Value)), dtype)
            of = str(work) if work == dtype else f"{work} to {dtype}"
            raise Refused(f"the engine does not take {name} of {of.replace('torch.', '')}")

    def point(self, name: str, args: list[Any], dtype: torch.dtype, shape, strides=None) -> Value:
        for arg in args:
            if isinstance(arg, Value):
                if not arg.on_device or arg.dtype not in FUSED_DTYPES:
                    raise Unfused(f"a tensor of {arg.dtype}" if arg.on_device else "a tensor of the CPU")
            elif not _is_number(arg):
                raise Unfused(f"an argument that is a {type(arg).__name__}")
        if dtype not in FUSED_DTYPES:
            raise Unfused(f"a result of {dtype}")
        work = next((arg.dtype for arg in reversed(args) if isinstance(arg, Value)), dtype)
        is_one = work.is_floating_point if name not in BITS else not work.is_floating_point
        if not is_one and name not in ANY_DTYPE and (name not in NUMBERS or work is torch.bool):
            raise Unfused(f"{name.lower()} of {work}")
        self.ask(name, args, dtype, shape)
        out = self.make(shape, dtype, strides)
        self.words.add_node(POINT, self.operations[name], 0, ("", "", ""), args, [out.tensor_index])
        return out

    def cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, Value) and value.dtype != dtype:
            return self.point("CAST", [value], dtype, value.shape)
        return value

    def fold(self, name: str, value: Value, dims: list[int]) -> Value:
        """A reduction that keeps its dimensions, over the first or the last ones."""
        ndim = len(value.shape)
        dims = sorted({dim % ndim for dim in dims}) if ndim else []
        if not ndim:
            return value
        if dims == list(range(ndim - len(dims), ndim)):
            folded, kept = len(dims), ndim - len(dims)
        elif dims == list(range(len(dims))):
            folded, kept = -len(dims), ndim - len(dims)
        else:
            raise Unfused("a reduction over dimensions in the middle")
        if not value.is_contiguous and (len(dims) > 1 or (folded < 0 and kept > 1)):
            value = self.point("COPY", [value], value.dtype, value.shape)
        if value.dtype not in FUSED_DTYPES or not value.on_device:
            raise Unfused(f"a reduction of {value.dtype}")
        self.ask(name, [value], value.dtype, value.shape, folded)
        out = self.make([1 if dim in dims else size for dim, size in enumerate(value.shape)], value.dtype)
        self.words.add_node(REDUCE, self.operations[name], folded, ("", "", ""), [value], [out.tensor_index])
        return out

    def drop_dims(self, value: Value, dims: list[int]) -> Value:
        """The same memory without dimensions of size 1."""
        dims = [dim % max(len(value.shape), 1) for dim in dims]
        kept = [i for i in range(len(value.shape)) if i not in dims]
        shape, strides = [value.shape[i] for i in kept], [value.strides[i] for i in kept]
        index = self.words.add_tensor(value.dtype, shape, strides, value.storage)
        return dataclasses.replace(value, tensor_index=index, shape=tuple(shape), strides=tuple(strides))

    # Elementwise operators: `out` is the fake result

    def _like(self, name: str, args: list[Any], out: torch.Tensor, work: torch.dtype | None = None) -> Value:
        """Arguments cast to the dtype of the result (or `work`, which is then rounded to it)."""
        dtype = work or out.dtype
        cast = [self.cast(arg, dtype) for arg in args]
        if not any(isinstance(arg, Value) for arg in cast):
            raise Unfused("numbers alone")
        if dtype == out.dtype:
            return self.point(name, cast, dtype, out.shape, out.stride())
        value = self.point(name, cast, dtype, out.shape)
        return self.point("CAST", [value], out.dtype, out.shape, out.stride())

    @staticmethod
    def _work(out: torch.Tensor) -> torch.dtype:
        """What several operations of one operator are computed in."""
        return torch.float32 if out.dtype in HALVES else out.dtype

    def elementwise(self, name: str, args: list[Any], kwargs: dict[str, Any], out: torch.Tensor) -> Value:
        """One operator by its word; Unfused where it is not one of ours."""
        shape, strides, dtype = out.shape, out.stride(), out.dtype
        if name in ("floor", "ceil", "trunc", "round") and not dtype.is_floating_point:
            name, args = "clone", args[:1]
        is_unary = name in UNARY and len(args) == 1 and not kwargs
        if is_unary and (args[0].dtype == dtype or dtype.is_floating_point):
            return self._like(UNARY[name], args, out)
        if name in BINARY and len(args) == 2 and not kwargs:
            return self._like(BINARY[name], args, out)
        if name in ("add", "sub") and len(args) in (2, 3):
            alpha = args[2] if len(args) == 3 else kwargs.get("alpha", 1)
            if alpha == 1:
                return self._like(name.upper(), args[:2], out)
            if dtype.is_floating_point and isinstance(args[1], Value) and isinstance(args[0], Value):
                return self._like("ADD_SCALED", [*args[:2], float(alpha) if name == "add" else -float(alpha)], out)
        if name == "rsub" and kwargs.get("alpha", 1) == 1 and len(args) == 2:
            return self._like("SUB", [args[1], args[0]], out)
        if name == "div" and len(args) == 2 and not kwargs and dtype.is_floating_point:
            return self._like("DIV", args, out)
        if name in COMPARE:
            common = torch.result_type(*map(_make_sample, args))
            return self.point(COMPARE[name], [self.cast(a, common) for a in args], torch.bool, shape, strides)
        if name == "logical_not":
            return self.point("NOT", [self.cast(args[0], torch.bool)], torch.bool, shape, strides)
        if name == "isnan" and args[0].dtype.is_floating_point:
            return self.point("ISNAN", args, torch.bool, shape, strides)
        if name == "where" and len(args) == 3:
            picked = [self.cast(arg, dtype) for arg in args[1:]]
            return self.point("WHERE", [self.cast(args[0], torch.bool), *picked], dtype, shape, strides)
        if name == "pow":
            return self._power(args, out)
        if name in ("clamp", "clamp_min", "clamp_max", "hardtanh"):
            return self._clamp(name, args, kwargs, out)
        return self._activation(name, args, kwargs, out)

    def _activation(self, name: str, args: list[Any], kwargs: dict[str, Any], out: torch.Tensor) -> Value:
        work = self._work(out)
        if name == "gelu":
            return self._like("GELU_TANH" if kwargs.get("approximate") == "tanh" else "GELU", args[:1], out)
        if name == "gelu_backward":
            tanh = kwargs.get("approximate") == "tanh"
            return self._like("GELU_TANH_GRAD" if tanh else "GELU_GRAD", args[:2], out)
        if name in GRADS and len(args) == 2:
            return self._like(GRADS[name], args, out)
        if name == "threshold_backward" and isinstance(args[1], Value):
            test = self.point("LE", [args[1], args[2]], torch.bool, args[1].shape)
            return self.point("WHERE", [test, 0, self.cast(args[0], out.dtype)], out.dtype, out.shape, out.stride())
        if name == "leaky_relu":
            slope = args[1] if len(args) > 1 else 0.01
            test = self.point("GT", [args[0], 0], torch.bool, args[0].shape)
            scaled = self.point("MUL", [args[0], slope], out.dtype, out.shape)
            return self.point("WHERE", [test, args[0], scaled], out.dtype, out.shape, out.stride())
        if name in ("addcmul", "addcdiv") and out.dtype.is_floating_point:
            scale = kwargs.get("value", 1)
            first, second, third = (self.cast(arg, work) for arg in args[:3])
            if scale != 1:
                second = self.point("MUL", [second, float(scale)], work, second.shape)
            if name == "addcmul":  # rounds once, as the operator does
                return self._like("ADD_SCALED", [first, second, third], out, work)
            quotient = self.point("DIV", [second, third], work, out.shape)
            return self._like("ADD", [first, quotient], out, work)
        if name == "lerp" and out.dtype.is_floating_point:
            return self._like("LERP", args[:3], out)
        if name in ("clone", "_to_copy", "copy", "convert_element_type"):
            source = args[1] if name == "copy" else args[0]
            if source.dtype == out.dtype:
                return self.point("COPY", [source], out.dtype, out.shape, out.stride())
            return self.point("CAST", [source], out.dtype, out.shape, out.stride())
        if name == "masked_fill" and len(args) == 3 and (_is_number(args[2]) or isinstance(args[2], Value)):
            filled = self.cast(args[2], out.dtype)
            return self.point(
                "WHERE", [args[1], filled, self.cast(args[0], out.dtype)], out.dtype, out.shape, out.stride()
            )
        raise Unfused("")

    def _power(self, args: list[Any], out: torch.Tensor) -> Value:
        base, exponent = args
        if isinstance(base, Value) and isinstance(exponent, (int, float)) and out.dtype.is_floating_point:
            base = self.cast(base, out.dtype)
            if exponent == 2:
                return self._like("MUL", [base, base], out)
            if exponent in (0.5, -0.5, -1):
                return self._like({0.5: "SQRT", -0.5: "RSQRT", -1: "RECIPROCAL"}[exponent], [base], out)
        if out.dtype.is_floating_point:
            if out.dtype in HALVES:
                return self._like("POW", args, out, torch.float32)
            return self._like("POW", args, out)
        raise Unfused("")

    def _clamp(self, name: str, args: list[Any], kwargs: dict[str, Any], out: torch.Tensor) -> Value:
        low, high = kwargs.get("min"), kwargs.get("max")
        if name in ("clamp", "hardtanh"):
            low = args[1] if len(args) > 1 else (-1.0 if name == "hardtanh" else low)
            high = args[2] if len(args) > 2 else (1.0 if name == "hardtanh" else high)
        else:
            low, high = (args[1], None) if name == "clamp_min" else (None, args[1])
        if low is None and high is None:
            raise Unfused("")
        value: Any = self.cast(args[0], out.dtype)
        if low is not None:
            value = self._like("CLAMP_MIN", [value, low], out)
        return value if high is None else self._like("CLAMP_MAX", [value, high], out)

    # Reductions

    def reduction(self, name: str, args: list[Any], kwargs: dict[str, Any], out: torch.Tensor) -> Value:
        value = args[0]
        ndim = len(value.shape)
        dims = args[1] if len(args) > 1 else kwargs.get("dim")
        dims = [dims] if isinstance(dims, int) else dims
        dims = [dim % max(ndim, 1) for dim in dims] if dims else list(range(ndim))
        keep = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        if name in ("amax", "amin"):
            folded = self.fold(FOLDS[name], self.cast(value, out.dtype), dims)
        else:
            work = self._work(out)
            folded = self.fold("SUM", self.cast(value, work), dims)
            if name == "mean":
                count: Any = 1
                for dim in dims:
                    count = count * value.shape[dim] if ndim else 1
                folded = self.point("DIV", [folded, count], work, folded.shape)
            folded = self.cast(folded, out.dtype)
        if not ndim:
            return self.point("COPY", [folded], out.dtype, out.shape, out.stride())
        return folded if keep else self.drop_dims(folded, dims)

    def softmax(self, args: list[Any], out: torch.Tensor, is_log: bool) -> Value:
        value, dim = args[0], args[1]
        ndim = len(value.shape)
        if not ndim or dim % ndim != ndim - 1 or args[2] or not out.dtype.is_floating_point:
            raise Unfused("a softmax over another dimension than the last")
        work = self._work(out)
        value = self.cast(value, work)
        top = self.fold("MAX", value, [ndim - 1])
        shifted = self.point("SUB", [value, top], work, value.shape)
        powers = self.point("EXP", [shifted], work, value.shape)
        total = self.fold("SUM", powers, [ndim - 1])
        if is_log:
            return self._like("SUB", [shifted, self.point("LOG", [total], work, total.shape)], out, work)
        factor = self.point("RECIPROCAL", [total], work, total.shape)  # as the device's own softmax
        return self._like("MUL", [powers, factor], out, work)

    def softmax_backward(self, args: list[Any], out: torch.Tensor, is_log: bool) -> Value:
        gradient, result, dim = args[0], args[1], args[2]
        ndim = len(result.shape)
        if not ndim or dim % ndim != ndim - 1:
            raise Unfused("a softmax over another dimension than the last")
        work = self._work(out)
        gradient, result = self.cast(gradient, work), self.cast(result, work)
        if is_log:
            total = self.fold("SUM", gradient, [ndim - 1])
            power = self.point("EXP", [result], work, result.shape)
            return self._like("SUB", [gradient, self.point("MUL", [power, total], work, result.shape)], out, work)
        product = self.point("MUL", [gradient, result], work, result.shape)
        total = self.fold("SUM", product, [ndim - 1])
        return self._like("SUB", [product, self.point("MUL", [result, total], work, result.shape)], out, work)

    def _get_norm_dims(self, value: Value, shape: Any) -> tuple[list[int], int]:
        """The last dimensions, and how many elements they have; Unfused where a row is too long to stay close."""
        count = 1
        for size in shape:
            if not isinstance(size, int):
                raise Unfused("a norm over a size that changes")
            count *= size
        if not value.is_contiguous or not 0 < count <= MAX_ROW or not value.dtype.is_floating_point:
            raise Unfused("a norm over rows that are long or not contiguous")
        return list(range(len(value.shape) - len(shape), len(value.shape))), count

    def _scale(self, value: Value, weight: Any, bias: Any, out: torch.Tensor, work: torch.dtype) -> Value:
        if weight is not None:
            value = self.point("MUL", [value, self.cast(weight, work)], work, out.shape)
        if bias is not None:
            value = self.point("ADD", [value, self.cast(bias, work)], work, out.shape)
        return self.point("COPY" if work == out.dtype else "CAST", [value], out.dtype, out.shape, out.stride())

    def layer_norm(self, args: list[Any], outs: Any) -> list[Any]:
        """input, shape, weight, bias, epsilon -> result, mean, 1 / deviation."""
        dims, count = self._get_norm_dims(args[0], args[1])
        work = torch.float64 if args[0].dtype == torch.float64 else torch.float32
        if any(out.dtype != work for out in outs[1:]):
            raise Unfused("statistics of another dtype")
        value = self.cast(args[0], work)
        total = self.fold("SUM", value, dims)
        mean = self.point("DIV", [total, count], work, total.shape)
        rest = self.point("SUB", [value, mean], work, value.shape)
        square = self.point("MUL", [rest, rest], work, value.shape)
        variance = self.fold("SUM", square, dims)
        variance = self.point("DIV", [variance, count], work, variance.shape)
        shifted = self.point("ADD", [variance, float(args[4])], work, variance.shape)
        factor = self.point("RSQRT", [shifted], work, variance.shape)
        scaled = self.point("MUL", [rest, factor], work, value.shape)
        return [self._scale(scaled, args[2], args[3], outs[0], work), mean, factor]

    def rms_norm(self, args: list[Any], outs: Any) -> list[Any]:
        """input, shape, weight, epsilon -> result, 1 / root of the mean square."""
        dims, count = self._get_norm_dims(args[0], args[1])
        work = torch.float64 if args[0].dtype == torch.float64 else torch.float32
        if outs[1].dtype != work or args[3] is None:
            raise Unfused("statistics of another dtype")
        value = self.cast(args[0], work)
        square = self.point("MUL", [value, value], work, value.shape)
        mean = self.fold("SUM", square, dims)
        mean = self.point("DIV", [mean, count], work, mean.shape)
        shifted = self.point("ADD", [mean, float(args[3])], work, mean.shape)
        factor = self.point("RSQRT", [shifted], work, mean.shape)
        scaled = self.point("MUL", [value, factor], work, value.shape)
        return [self._scale(scaled, args[2], None, outs[0], work), factor]

    def layer_norm_backward(self, args: list[Any], outs: Any) -> list[Any]:
        """gradient, input, shape, mean, 1 / deviation, weight, bias, mask -> gradients of input, weight and bias."""
        gradient, value, shape, mean, factor, weight = args[:6]
        return self._norm_backward(gradient, value, shape, mean, factor, weight, outs)

    def rms_norm_backward(self, args: list[Any], outs: Any) -> list[Any]:
        """gradient, input, shape, 1 / root of the mean square, weight, mask -> gradients of input and weight."""
        gradient, value, shape, factor, weight = args[:5]
        return self._norm_backward(gradient, value, shape, None, factor, weight, outs)

    def _norm_backward(
        self, gradient: Value, value: Value, shape: Any, mean: Value | None, factor: Value, weight: Any, outs: Any
    ) -> list[Any]:
        """With x the normalized input and g = gradient * weight: factor * (g - average(g) - x * average(g * x)) by rows
        (without average(g) where no mean is taken away), and sums of gradient * x and of gradient by columns."""
        dims, count = self._get_norm_dims(value, shape)
        work = torch.float64 if value.dtype == torch.float64 else torch.float32
        if not gradient.is_contiguous or gradient.shape != value.shape or factor.dtype != work:
            raise Unfused("a gradient that is not contiguous, or statistics of another dtype")
        gradient, rest = self.cast(gradient, work), self.cast(value, work)
        if mean is not None:
            rest = self.point("SUB", [rest, mean], work, value.shape)
        normal = self.point("MUL", [rest, factor], work, value.shape)
        made: list[Any] = [None] * len(outs)
        if outs[0] is not None:
            scaled = gradient
            if weight is not None:
                scaled = self.point("MUL", [gradient, self.cast(weight, work)], work, value.shape)
            product = self.point("MUL", [scaled, normal], work, value.shape)
            slope = self.fold("SUM", product, dims)
            slope = self.point("DIV", [slope, count], work, slope.shape)
            left = scaled
            if mean is not None:
                level = self.fold("SUM", scaled, dims)
                level = self.point("DIV", [level, count], work, level.shape)
                left = self.point("SUB", [scaled, level], work, value.shape)
            along = self.point("MUL", [normal, slope], work, value.shape)
            left = self.point("SUB", [left, along], work, value.shape)
            made[0] = self._like("MUL", [left, factor], outs[0], work)
        if outs[1] is not None:
            made[1] = self._sum_columns(self.point("MUL", [gradient, normal], work, value.shape), dims, outs[1])
        if len(outs) > 2 and outs[2] is not None:
            made[2] = self._sum_columns(gradient, dims, outs[2])
        return made

    def _sum_columns(self, value: Value, dims: list[int], out: torch.Tensor) -> Value:
        """The sum over all but the last dimensions `dims`."""
        outer = list(range(dims[0]))
        if outer:
            value = self.drop_dims(self.fold("SUM", value, outer), outer)
        return self.point("COPY" if value.dtype == out.dtype else "CAST", [value], out.dtype, out.shape, out.stride())

    def evaluate_batch_norm(self, args: list[Any], outs: Any) -> list[Any]:
        """input, weight, bias, mean, variance, momentum, epsilon -> result, mean, 1 / deviation. The statistics are
        there as the trace has them, which no kernel gives."""
        value, weight, bias, mean, variance = args[:5]
        work = torch.float64 if value.dtype == torch.float64 else torch.float32
        if any(saved.dtype != work or tuple(saved.shape) != mean.shape for saved in outs[1:]):
            raise Unfused("statistics of another dtype")
        mean, variance = self.cast(mean, work), self.cast(variance, work)
        shifted = self.point("ADD", [variance, float(args[6])], work, variance.shape)
        factor = self.point("RSQRT", [shifted], work, variance.shape)
        scale = factor if weight is None else self.point("MUL", [factor, self.cast(weight, work)], work, factor.shape)
        rest = self.point("SUB", [self.cast(value, work), self.spread(mean, value)], work, value.shape)
        shift = None if bias is None else self.spread(self.cast(bias, work), value)
        made = self._scale(rest, self.spread(scale, value), shift, outs[0], work)
        return [made, self.point("COPY", [mean], work, mean.shape), factor]

    def spread(self, value: Value, like: Value) -> Value:
        """One element per channel as a view over the second dimension of `like`."""
        after = [1] * (len(like.shape) - 2)
        shape, strides = (value.shape[0], *after), (value.strides[0], *after)
        index = self.words.add_tensor(value.dtype, shape, strides, value.storage)
        self.words.tensors[index][4:6] = self.words.tensors[value.tensor_index][4:6]  # the offset
        return dataclasses.replace(value, tensor_index=index, shape=shape, strides=strides, is_contiguous=False)

    def fuse(self, name: str, overload: str, args: list[Any], kwargs: dict[str, Any], out: Any) -> Any:
        """The operator as nodes that C fuses."""
        if name.startswith("_foreach_") and isinstance(out, (list, tuple)):
            return self._foreach(name.removeprefix("_foreach_"), args, kwargs, out)
        if name == "_native_batch_norm_legit_no_training" and is_on_device(out[0]) and not _is_empty(out[0]):
            return self.evaluate_batch_norm(args, out)
        norms = {"native_layer_norm": (self.layer_norm, 5), "_fused_rms_norm": (self.rms_norm, 4)}
        is_norm = name in norms and not kwargs and len(args) == norms[name][1]
        if is_norm and is_on_device(out[0]) and not _is_empty(out[0]):
            return norms[name][0](args, out)
        backward = {
            "native_layer_norm_backward": (self.layer_norm_backward, 8),
            "_fused_rms_norm_backward": (self.rms_norm_backward, 6),
        }
        if name in backward and not kwargs and len(args) == backward[name][1] and not _is_empty(args[1]):
            return backward[name][0](args, out)
        if not isinstance(out, torch.Tensor):
            raise Unfused("")
        if not is_on_device(out):
            raise Unfused("a result that is no tensor of the device")
        if "out" in overload or _is_empty(out):
            raise Unfused("an empty tensor")
        if name in ("sum", "mean", "amax", "amin"):
            kwargs = {key: value for key, value in kwargs.items() if key != "dtype"}
            return self.reduction(name, args, kwargs, out)
        if name in ("_softmax", "_log_softmax"):
            return self.softmax(args, out, name == "_log_softmax")
        if name in ("_softmax_backward_data", "_log_softmax_backward_data"):
            return self.softmax_backward(args, out, name == "_log_softmax_backward_data")
        if name in FILLS and FILLS[name] is not None:
            return self.point("COPY", [FILLS[name]], out.dtype, out.shape, out.stride())
        if name in FILLS:
            value = kwargs.get("fill_value", kwargs.get("s", args[-1] if args else None))
            return self.point("COPY", [value], out.dtype, out.shape, out.stride())
        if name in ("clone", "_to_copy", "copy", "convert_element_type"):
            kwargs = {}
        return self.elementwise(name, args, kwargs, out)

    def _foreach(self, name: str, args: list[Any], kwargs: dict[str, Any], outs) -> list[Value]:
        made = []
        for i, out in enumerate(outs):
            each = [arg[i] if isinstance(arg, (list, tuple)) else arg for arg in args]
            if name in ("addcmul", "addcdiv") and len(each) == 4:
                kwargs = {"value": each.pop()}
                if not _is_number(kwargs["value"]):
                    raise Unfused("a list of numbers in a tensor")
            if not is_on_device(out) or _is_empty(out):
                raise Unfused("a list with an empty tensor, or one of the CPU")
            made.append(self.elementwise(name, each, kwargs, out))
        return made

    # Calls

    def call(
        self, target: torch._ops.OpOverload, args: list[Any], kwargs: dict[str, Any], out: Any, why: str,
        is_refused: bool = False,
    ) -> Any:  # fmt: skip
        schema = target._schema
        name, overload = schema.name, schema.overload_name
        if schema.is_mutable:
            raise UnsupportedGraph(f"{name} writes to its arguments")
        is_kept = isinstance(out, (list, tuple)) and any(leaf is not None for leaf in out[1:])
        if name.startswith(UNSURE) or (is_kept and _is_evaluation(name, args)):
            raise UnsupportedGraph(f"{name} has other shapes when it runs than when it is traced")
        whole = []
        for i, argument in enumerate(schema.arguments):
            whole.append(args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value))
        leaves = torch.utils._pytree.tree_leaves(out)
        outs, made = [], []
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                value = self.describe(leaf, self.words.add_storage(), leaf.storage_offset())
                made.append(value)
                outs.append(value.tensor_index)
            elif leaf is None:
                made.append(None)
                outs.append(-1)
            elif isinstance(leaf, (int, torch.SymInt)):  # attention's lengths: known while tracing
                self.words.get_dim(leaf)
                made.append(leaf)
                outs.append(-1)
            else:
                raise UnsupportedGraph(f"{name} gives a {type(leaf).__name__}")
        draws = torch.Tag.nondeterministic_seeded in target.tags
        kind = ROW if self.has_row(name, overload) else ISLAND
        reason = why or "an operator of PyTorch's own"
        if kind == ISLAND:
            self.islands[f"{name}.{overload}".rstrip(".")] = reason
        elif is_refused:
            self.refused[f"{name}.{overload}".rstrip(".")] = reason
        told = reason if kind == ISLAND or is_refused else ""
        self.words.add_node(kind, 0, int(draws), (name, overload, told), whole, outs)
        return made if isinstance(out, (list, tuple)) else made[0]

    def operator(self, node: torch.fx.Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        target, out = node.target, node.meta.get("val")
        if not isinstance(target, torch._ops.OpOverload):
            raise UnsupportedGraph(f"{target} is no operator")
        name = target._schema.name.split("::")[1]
        returns = target._schema.returns
        is_view = name in VIEWS or any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        if is_view and isinstance(args[0], Value):
            base = args[0]
            leaves = out if isinstance(out, (list, tuple)) else [out]
            if all(leaf.dtype == base.dtype for leaf in leaves):
                if name == "as_strided":
                    self._check_reach(base, leaves[0])
                made = [self.describe(leaf, base.storage, base.base) for leaf in leaves]
                return made if isinstance(out, (list, tuple)) else made[0]
        if name == "copy_":
            return self.write(args[0], args[1])
        if name == "native_batch_norm_backward" and args[7] is False:
            args[5:7] = [None, None]  # saved statistics, which are empty where the program got them too
        why, is_refused = "", False
        if self.fuses and target._schema.name.split("::")[0] in ("aten", "prims") and not self._gives_statistics(node):
            mark = (len(self.words.nodes), len(self.words.tensors), len(self.words.args), self.words.storages)
            try:
                return self.fuse(name, target._schema.overload_name, args, kwargs, out)
            except Unfused as reason:
                why, is_refused = str(reason), isinstance(reason, Refused)
                del self.words.nodes[mark[0] :], self.words.tensors[mark[1] :], self.words.args[mark[2] :]
                self.words.storages = mark[3]
        return self.call(target, args, kwargs, _drop_unused(node, out), why, is_refused)

    def _gives_statistics(self, node: torch.fx.Node) -> bool:
        """A batch_norm in evaluation whose statistics the program gets: eager mode gives it empty ones."""
        if node.target is not torch.ops.aten._native_batch_norm_legit_no_training.default:
            return False
        return any(user.args[1] > 0 and user in self.given for user in node.users)

    def _check_reach(self, base: Value, view: torch.Tensor) -> None:
        """`as_strided` may show what the tensor that the graph was given does not cover."""
        if base.storage not in self.input_storages:
            return

        def reach(sizes, strides) -> Any:
            return sum(((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)), 1)

        given = self.input_reach[base.storage]
        begin = view.storage_offset() - base.base
        is_inside = statically_known_true(begin + reach(view.shape, view.stride()) <= given)
        if not statically_known_true(begin >= 0) or not is_inside:
            raise UnsupportedGraph("as_strided beyond the elements of a tensor that the graph is given")

    def write(self, target: Value, source: Any) -> Value:
        """`copy_` to an input: AOTAutograd's way of saying that a graph changes it."""
        if self._can_write(target, source):
            op = "COPY" if source.dtype == target.dtype else "CAST"
            row = self.words.tensors[self.input_storages[target.storage]]
            row[3] |= 4  # written: it must come with the strides of the trace
            self.words.add_node(POINT, self.operations[op], 0, ("", "", ""), [source], [target.tensor_index])
            return target
        if target.storage not in self.input_storages or target.tensor_index != self.input_storages[target.storage]:
            raise UnsupportedGraph("a part of an input is written")
        place = list(self.input_storages).index(target.storage)
        self.late_copies.append((place, source))
        return target if not isinstance(source, Value) else source

    def _can_write(self, target: Value, source: Any) -> bool:
        """Can a node of the graph write to the input?"""
        if not self.fuses or target.storage not in self.input_storages or not isinstance(source, Value):
            return False
        if not all(side.on_device and side.dtype in FUSED_DTYPES for side in (target, source)):
            return False
        try:
            self.ask("COPY" if source.dtype == target.dtype else "CAST", [source], target.dtype, target.shape)
        except Unfused:
            return False
        return True

    # The walk

    def run(self) -> Lowering:
        self.input_storages: dict[int, int] = {}
        self.input_reach: dict[int, Any] = {}
        places = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        arguments = [node.meta.get("val") for node in places]
        told = _pick_arguments(arguments)
        for number, place in enumerate(told):
            self.words.note_symbols(arguments[place], number)
        for place, node in enumerate(places):
            is_told = place in told
            reason = f"an input that is {_name_kind(arguments[place])}"
            self.values[node] = self._take_argument(arguments[place], place) if is_told else Unsaid(reason, place)
        for node in self.module.graph.nodes:
            try:
                if node.op == "get_attr":
                    self.values[node] = self._take_constant(node)
                elif node.op == "call_function":
                    self.values[node] = self._visit(node)
                elif node.op == "output":
                    self._finish(node)
                elif node.op != "placeholder":
                    raise UnsupportedGraph(f"a node of kind {node.op}")
            except GuardOnDataDependentSymNode as error:
                raise UnsupportedGraph("a size that only a run of the program tells", node) from error
            except UnsupportedGraph as error:
                raise UnsupportedGraph(str(error.args[0]), error.node or node) from error
            self.origins += [node] * (len(self.words.nodes) - len(self.origins))
        return self

    def _take_argument(self, value: Any, place: int) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensor_places.append(place)
            return self._take_input(value)
        self.number_places.append(place)
        self.words.inputs.append((-1, -1))
        return value

    def _take_input(self, value: torch.Tensor) -> Value:
        storage = self.words.add_storage()
        made = self.describe(value, storage, value.storage_offset(), 1)
        self.input_storages[storage] = made.tensor_index
        self.input_reach[storage] = sum(((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)), 1)
        self.words.inputs.append((made.tensor_index, -1))
        return made

    def _take_constant(self, node: torch.fx.Node) -> Any:
        """A tensor becomes an input; what else the module holds (the branches of torch.cond) is for its users."""
        constant = operator.attrgetter(str(node.target))(self.module)
        if not isinstance(constant, torch.Tensor):
            return Unsaid(f"{node.target}, a {type(constant).__name__}")
        if not _pick_arguments([constant]):
            return Unsaid(f"a constant that is {_name_kind(constant)}")
        self.constants.append(constant)
        return self._take_input(constant)

    def _visit(self, node: torch.fx.Node) -> Any:
        def read(value: Any) -> Any:
            value = self.values[value] if isinstance(value, torch.fx.Node) else value
            if isinstance(value, Unsaid):
                raise UnsupportedGraph(f"it takes {value.reason}")
            return value

        if node.target is operator.getitem:
            return self.values[node.args[0]][node.args[1]]
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
            if isinstance(value, torch.SymInt) and value.node.expr.free_symbols - self.words.symbols.keys():
                raise UnsupportedGraph(f"it gives {value}, which only a run of the program tells")
            return value
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise UnsupportedGraph("a higher-order operator")
        if isinstance(value, (torch.SymBool, torch.SymFloat, bool, float)):
            if isinstance(node.target, torch._ops.OpOverload):
                raise UnsupportedGraph(f"it gives {_name_kind(value)}")
            return Unsaid(_name_kind(value))
        if value is None and not _acts(node):
            return None
        args = list(torch.fx.node.map_aggregate(node.args, read))
        kwargs = {key: torch.fx.node.map_aggregate(item, read) for key, item in node.kwargs.items()}
        return self.operator(node, args, kwargs)

    def _finish(self, node: torch.fx.Node) -> None:
        for place, source in self.late_copies:
            self.words.outputs.append((source.tensor_index, 0, 0, 0))
            self.out_places.append(("copy", place))
        for result in node.args[0]:
            value = self.values[result] if isinstance(result, torch.fx.Node) else result
            if isinstance(value, Value):
                self.words.outputs.append((value.tensor_index, 0, 0, 0))
                self.out_places.append(("tensor", None))
            elif isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
                self.words.outputs.append((-1, 1, *self._get_number(result, value)))
                self.out_places.append(("number", None))
            elif isinstance(value, Unsaid) and value.place >= 0:
                self.out_places.append(("argument", value.place))
            elif isinstance(value, Unsaid) and result.op == "call_function":
                raise UnsupportedGraph(f"it gives {value.reason}", result)
            elif value is None or isinstance(value, (bool, float)):
                self.out_places.append(("value", value))
            else:
                raise UnsupportedGraph(f"a result that is {_name_kind(value)}")

    def _get_number(self, result: Any, value: Any) -> tuple[int, int]:
        """A result that is an integer; where the words cannot compute it, the node that gives it is to blame."""
        try:
            return self.words.get_dim(value)
        except UnsupportedGraph as error:
            can_split = isinstance(result, torch.fx.Node) and result.op == "call_function"
            raise UnsupportedGraph(str(error), result if can_split else None) from error
