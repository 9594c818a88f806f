"""From the graph of AOTAutograd to words: views become layouts, elementwise operators and reductions become nodes that
C fuses, everything else a call by name."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, statically_known_true

from ..compiler import is_on_device
from .batch_norm import BatchNorm
from .nodes import FUSED_DTYPES, Refused, Unfused, Value, is_number
from .words import ISLAND, POINT, ROW, UnsupportedGraph, Words

VIEWS = {"_unsafe_view", "alias", "detach", "lift_fresh"}
"""Views that no schema calls so."""
UNSURE = "aten::_embedding_bag"
"""How operators begin whose results, or what their backward is given, have other shapes than the trace says."""
FILLS = {
    "full": None, "full_like": None, "new_full": None, "scalar_tensor": None, "zeros": 0, "zeros_like": 0,
    "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
}  # fmt: skip
"""Tensors of one number; None: the last argument is it."""


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


def _is_empty(fake: torch.Tensor | Value) -> bool:
    """Without asking about sizes that only a run tells."""
    return any(isinstance(size, int) and size == 0 for size in fake.shape)


def _is_evaluation(name: str, args: list[Any]) -> bool:
    """A batch_norm that saves no statistics, whatever the trace says."""
    return name.endswith("batch_norm_legit_no_training") or (name.endswith("native_batch_norm") and args[5] is False)


def _drop_unused(node: torch.fx.Node, out: Any) -> Any:
    """None for a result that nobody takes: it need not be what tracing supposes (batch_norm's statistics in eval)."""
    if not isinstance(out, (list, tuple)) or any(user.target is not operator.getitem for user in node.users):
        return out
    taken = {user.args[1] for user in node.users}
    return [leaf if place in taken else None for place, leaf in enumerate(out)]


class Lowering(BatchNorm):
    """Walks one graph; `words` is the result."""

    def __init__(
        self, module: torch.fx.GraphModule, operations: dict[str, int], has_row, supports, count: int | None = None
    ) -> None:
        """`count`: how many results the program gets; None: all of them."""
        super().__init__(operations, supports)
        self.module, self.has_row = module, has_row
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        self.given = set(filter(None, output.args[0][:count]))  # the rest waits for the backward
        self.values: dict[torch.fx.Node, Any] = {}
        self.constants: list[torch.Tensor] = []
        self.late_copies: list[tuple[int, Any]] = []
        self.islands: dict[str, str] = {}
        self.refused: dict[str, str] = {}  # rows that would be fused, had the engine taken their operations
        self.origins: list[torch.fx.Node] = []  # of each node of the words: what it came from
        self.out_places: list[tuple[str, Any]] = []
        self.tensor_places: list[int] = []  # arguments of the graph that are tensors of the words,
        self.number_places: list[int] = []  # and those that are their integers

    def fuse(self, name: str, overload: str, args: list[Any], kwargs: dict[str, Any], out: Any) -> Any:
        """The operator as nodes that C fuses."""
        if name.startswith("_foreach_") and isinstance(out, (list, tuple)):
            return self._foreach(name.removeprefix("_foreach_"), args, kwargs, out)
        norm, count = self._find_norm(name, overload)
        if norm is not None and not kwargs and len(args) == count and args[0].on_device and not _is_empty(args[0]):
            return norm(args, out)
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

    def _find_norm(self, name: str, overload: str) -> tuple[Any, int]:
        """What writes the operator, and the number of its arguments."""
        return {
            "native_layer_norm": (self.layer_norm, 5),
            "native_layer_norm_backward": (self.layer_norm_backward, 8),
            "_fused_rms_norm": (self.rms_norm, 4),
            "_fused_rms_norm_backward": (self.rms_norm_backward, 6),
            "_native_batch_norm_legit_no_training": (self.evaluate_batch_norm, 7),
            "_native_batch_norm_legit_functional": (self.train_batch_norm, 8),
            "_native_batch_norm_legit": (self.train_batch_norm, 6 if overload == "no_stats" else -1),
            "native_batch_norm_backward": (self.batch_norm_backward, 10),
        }.get(name, (None, 0))

    def _foreach(self, name: str, args: list[Any], kwargs: dict[str, Any], outs) -> list[Value]:
        made = []
        for i, out in enumerate(outs):
            each = [arg[i] if isinstance(arg, (list, tuple)) else arg for arg in args]
            if name in ("addcmul", "addcdiv") and len(each) == 4:
                kwargs = {"value": each.pop()}
                if not is_number(kwargs["value"]):
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
