"""OpRunner: one captured operator call, run again as often as wanted, forward and backward, on any device.

    runner = OpRunner("op_tools_results/op_capture_results/torch.mm/7/1/2024-10-09-11-42-15", MyHook())
    runner.run_forward()
    runner.run_backward()

Every run gets arguments of its own (placement.py), so that operators that write to them see the captured values each
time and gradients do not add up. Gradients are asked for with torch.autograd.grad, each stored grad_output at its own
result. The state that the capture noted (autocast, random generators, determinism, grad mode) is set for the call and
taken back after it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from ditorch.device_autocast import run_under_autocast
from ditorch.judge import Request, run_other_way

from .containers import traverse_container
from .reader import Case, CaseRef, load_case
from .replay.call_state import find_device_autocast, get_module, get_random_states, make_contexts
from .replay.operator_lookup import check_arguments, find_function
from .replay.placement import Placed, Placement
from .utils import is_inplace_op

_LEAF_ERRORS = ("a leaf Variable that requires grad", "a view of a leaf Variable that requires grad")


class OpRunnerHook:
    """What happens around the runs: subclass it, override what you need. `runner` is set by OpRunner.add_hook."""

    def __init__(self) -> None:
        self.runner: OpRunner | None = None

    def before_forward(self) -> None:
        """The arguments are in place."""

    def after_forward(self) -> None:
        """`runner.result` is there (None when the operator raised); the device may still be at work."""

    def before_backward(self) -> None:
        """Before torch.autograd.grad."""

    def after_backward(self) -> None:
        """`runner.grad_inputs` is there."""


class OpRunner:
    """One captured call.

    `case`: its folder (or what case.find_cases yields, or a Case). `device`: where it runs. `modules`: packages beyond
    torch whose functions may be called, when the capture names one. `request` makes one of the judge's further runs
    (ditorch/judge.py) of it, on the CPU; `exact`: of an operator that computes nothing, for its results alone; `guest`:
    the device whose autocast that run is under, where the capture was under one (without it, it is the CPU's own).
    `quiet` does not print the folder.

    Attributes: `name`, `func`; the captured values on the CPU: `args_cpu`, `kwargs_cpu`, `output_cpu`,
    `grad_outputs_cpu`, `grad_inputs_cpu`; the same on the device, of the latest run: `args`, `kwargs`, `grad_outputs`,
    `grad_inputs` (as computed, once run_backward() has run; the captured ones before), `output` (as captured); and
    `result`, what the latest run returned."""

    def __init__(
        self,
        case: str | os.PathLike | CaseRef | Case,
        hook: OpRunnerHook | None = None,
        *,
        device: Any = "cuda",
        modules: Sequence[str] = (),
        request: Request | None = None,
        exact: bool = False,
        guest: str = "",
        quiet: bool = False,
    ) -> None:
        self.case = case if isinstance(case, Case) else load_case(case)
        self.dir = self.case.path
        if not quiet:
            print(f"dir: {self.dir}")
        self.device = torch.device(device)
        self.name = self.case.name
        self.func: Callable[..., Any] = find_function(self.name, modules)
        check_arguments(self.case.args, self.case.kwargs)
        self.args_cpu, self.kwargs_cpu = tuple(self.case.args), dict(self.case.kwargs)
        self.output_cpu = self.case.output
        self.grad_outputs_cpu, self.grad_inputs_cpu = self.case.grad_outputs, self.case.grad_inputs
        self.hooks: list[OpRunnerHook] = []
        self.result: Any = None
        self.random: set[str] = set()
        """Types of device whose generators got the captured state."""
        self.random_watch: Callable[[bool], Any] | None = None
        """Called after each forward: did it draw random numbers?"""
        self._grad = "leaf"
        self._without_grad = False
        self._placed: Placed | None = None
        self._versions: list[int] = []
        self._gradients: tuple | None = None
        self._request, self._guest = request, guest
        writes = is_inplace_op(self.name, *self.args_cpu, **self.kwargs_cpu)
        self._placement = Placement(
            self.args_cpu,
            self.kwargs_cpu,
            self.device,
            request=request,
            exact=exact,
            writes=writes,
            homes=self.case.meta.get("devices"),
        )
        self._stored: dict[str, Any] = {}
        if writes:
            self._expect_writes([self.kwargs_cpu.get("out"), *self.args_cpu[:1]])
        if hook is not None:
            self.add_hook(hook)

    def add_hook(self, hook: OpRunnerHook) -> None:
        hook.runner = self
        self.hooks.append(hook)

    # Values on the device

    @property
    def args(self) -> tuple:
        return self._get_placed().args

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._get_placed().kwargs

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors of the arguments of the latest run, in order; as it left them."""
        return self._get_placed().tensors

    def get_memory(self) -> list[torch.Tensor]:
        """The memory behind the arguments of the latest run."""
        return self._get_placed().memory

    @property
    def output(self) -> Any:
        return self._get_stored("output", self.output_cpu)

    @property
    def grad_outputs(self) -> tuple | None:
        return self._get_stored("grad_outputs", self.grad_outputs_cpu)

    @property
    def grad_inputs(self) -> tuple | None:
        return self._gradients if self._gradients is not None else self._get_stored("grad_inputs", self.grad_inputs_cpu)

    def _get_placed(self) -> Placed:
        if self._placed is None:
            self.prepare()
        return self._placed

    def _get_stored(self, what: str, values: Any) -> Any:
        if what not in self._stored:
            self._stored[what] = Placement((values,), {}, self.device).make("none").args[0]
        return self._stored[what]

    # Running

    def writes(self) -> bool:
        """Whether the latest run left other values in its arguments."""
        return self._placement.differs(self._get_placed())

    def prepare(self, fresh: bool = True) -> None:
        """New arguments for the next run; `fresh=False`: in the same memory as ever, for operators that do not
        write."""
        self._placed = None  # its memory may be used again
        self._placed = self._placement.make(self._grad, fresh)
        self._versions = _get_versions(self._placed.tensors)

    def run_forward(self, fresh: bool = True) -> Any:
        """Call the operator with fresh arguments. Its exception is the caller's."""
        self.result = self._gradients = None
        self.prepare(fresh)
        try:
            self._call()
        except RuntimeError as error:
            if self._grad != "leaf" or not any(text in str(error) for text in _LEAF_ERRORS):
                raise
            self._expect_writes(self.tensors)
            self.prepare(fresh)
            self._call()
        return self.result

    def _expect_writes(self, written: list[Any]) -> None:
        """It writes to tensors that require grad. A parameter can only be written to without grad mode."""
        if self.grad_outputs_cpu is None and any(isinstance(value, torch.nn.Parameter) for value in written):
            self._without_grad = True
        else:
            self._grad = "inner"

    def _call(self) -> None:
        with contextlib.ExitStack() as stack:
            for hook in self.hooks:
                hook.before_forward()
                stack.callback(hook.after_forward)  # the last one first, also when the operator raises
            with self.state(), self._watch_random():
                self.result = self._apply(*self._placed.args, **self._placed.kwargs)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        dtype = find_device_autocast(self.case.meta)
        if dtype is None and self._request is not None and self._request.kind == "other":
            return run_other_way(self.name, args, kwargs)
        if dtype is None or not self._guest or not self._is_native():
            return self.func(*args, **kwargs)
        return run_under_autocast(self.func, args, kwargs, self._guest, dtype)

    def _is_native(self) -> bool:
        """A run of the judge in the program's own dtypes, so under the program's autocast too."""
        request = self._request
        return request is not None and request.kind in ("native", "jitter", "other") and not request.narrow

    def run_backward(self) -> tuple | None:
        """The gradients of the arguments' tensors, one per tensor (None: none) for the captured grad_outputs; None when
        the call has no backward. After run_forward()."""
        compute = self.make_backward()
        if compute is None:
            return None
        with contextlib.ExitStack() as stack:
            for hook in self.hooks:
                hook.before_backward()
                stack.callback(hook.after_backward)
            compute()
        return self._gradients

    def make_backward(self) -> Callable[[], None] | None:
        """A function that does the backward of the latest run and nothing else; None when there is none."""
        pairs = self.get_backward_pairs()
        if not pairs:
            return None
        leaves = self._placed.leaves
        wanted = [leaf for leaf in leaves if leaf is not None]
        outputs, grads = zip(*pairs, strict=True)

        def compute() -> None:
            found = iter(torch.autograd.grad(outputs, wanted, grads, retain_graph=True, allow_unused=True))
            self._gradients = tuple(None if leaf is None else next(found) for leaf in leaves)

        return compute

    def get_backward_pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Results and the captured gradients that belong to them, of the latest run."""
        stored = self.grad_outputs
        if stored is None or self._placed is None or all(leaf is None for leaf in self._placed.leaves):
            return []
        grads = list(_flatten_gradients(stored))
        outputs = [value for value in traverse_container(self.result) if isinstance(value, torch.Tensor)]
        for tensor, version in zip(self._placed.tensors, self._versions, strict=True):
            changed = _get_version(tensor) != version
            if changed and not any(tensor is output for output in outputs):
                outputs.append(tensor)
        with torch._C.DisableTorchFunction():
            return [
                (output, self._move_gradient(grad, place).to(output.dtype))
                for place, (output, grad) in enumerate(zip(outputs, grads, strict=False))
                if grad is not None and output.requires_grad and grad.shape == output.shape
            ]

    def _move_gradient(self, grad: torch.Tensor, place: int) -> torch.Tensor:
        return grad if self._request is None else self._request.move(grad, place, gradient=True)

    # State of the process

    @contextlib.contextmanager
    def state(self) -> Iterator[None]:
        """What the capture noted about the process, for the time of the block."""
        with contextlib.ExitStack() as stack:
            if not self._needs_grad():
                stack.enter_context(torch.no_grad())
            autocast = self._request is None or (self._is_native() and not self._guest)
            for context in make_contexts(self.case.meta, self.device, self.random, autocast):
                stack.enter_context(context)
            yield

    @contextlib.contextmanager
    def _watch_random(self) -> Iterator[None]:
        if self.random_watch is None:
            yield
            return
        before = get_random_states(self.device)
        yield
        after = get_random_states(self.device)
        self.random_watch(any(not torch.equal(a, b) for a, b in zip(before, after, strict=True)))

    def _needs_grad(self) -> bool:
        """False for a call that was made without grad mode: its result requires none though its arguments did."""
        if self._without_grad:
            return False
        noted = self.case.meta.get("grad_enabled")
        if noted is not None:
            return bool(noted)
        if self.grad_outputs_cpu is not None or not any(t.requires_grad for t in _tensors(self.args_cpu)):
            return True
        results = [t for t in _tensors(self.output_cpu) if t.is_floating_point() or t.is_complex()]
        return not results or any(t.requires_grad for t in results)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (item for item in traverse_container(value) if isinstance(item, torch.Tensor))


def _flatten_gradients(stored: Any) -> Iterator[torch.Tensor | None]:
    for value in traverse_container(stored):
        yield value if isinstance(value, torch.Tensor) else None


def _get_version(tensor: torch.Tensor) -> int:
    try:
        return tensor._version
    except RuntimeError:  # inference tensors do not count
        return -1


def _get_versions(tensors: list[torch.Tensor]) -> list[int]:
    return [_get_version(tensor) for tensor in tensors]


# The original's hooks


class _ToolHook(OpRunnerHook):
    """A tool of the engine around the operator alone, in the console format of the original.

    The tool is attached from the first run to close(). Hooks of several runners may share one: then who made it stops
    it."""

    def __init__(self, tool: Any = None) -> None:
        super().__init__()
        self._tool = tool
        self._owns = tool is None
        self._plain: Callable[..., Any] | None = None

    @staticmethod
    def make_tool() -> Any:
        raise NotImplementedError

    @property
    def tool(self) -> Any:
        if self._tool is None:
            self._tool = self.make_tool()
        return self._tool

    def before_forward(self) -> None:
        self.tool.attach()
        self._plain = self.runner.func
        hook = _get_hook(self.runner.name, getattr(self._plain, "func", self._plain))
        hook.features = [*(self._plain.features if hook is self._plain else ()), (self.tool._engine, None)]
        self.runner.func = hook

    def after_forward(self) -> None:
        self.runner.func.features = ()
        self.runner.func = self._plain

    def close(self) -> None:
        """Switch the tool off, print and write what it collected."""
        if self._tool is not None and self._owns:
            close_tool(self._tool)


@functools.lru_cache(maxsize=4096)
def _get_hook(name: str, function: Callable[..., Any]) -> Any:
    """The function with room for tools around it. Kept: the engine keeps what it knows of each one for ever."""
    from ditorch import _C

    return _C.Hook(name, function)


def close_tool(tool: Any) -> None:
    """Stop a tool, and have the original's table of what it collected now instead of at exit."""
    tool.stop()
    if tool._console is not None:
        tool._console.close()


class TimePrinter(OpRunnerHook):
    """A line per run with its time, the device synchronised around it, as the original printed them."""

    def before_forward(self) -> None:
        self._begin = self._read_clock()

    def after_forward(self) -> None:
        self._tell("forward")

    before_backward = before_forward

    def after_backward(self) -> None:
        self._tell("backward")

    def _read_clock(self) -> float:
        module = get_module(self.runner.device)
        if module is not None:
            module.synchronize(self.runner.device)
        return time.perf_counter()

    def _tell(self, what: str) -> None:
        elapsed = (self._read_clock() - self._begin) * 1e3
        print(f"SyncExecuteTimer: {self.runner.name} {what} elasped {elapsed:.8f} ms", flush=True)


class SyncExecuteTimer(_ToolHook):
    """Times each run with the device synchronised around it (OpTimeMeasure, the original's tables)."""

    @staticmethod
    def make_tool() -> Any:
        from . import OpTimeMeasure

        return OpTimeMeasure(console="full", sync=True, cpu=True)


class OpAccyChecker(_ToolHook):
    """Compares each run with the CPU (OpAutoCompare, the original's tables and files)."""

    @staticmethod
    def make_tool() -> Any:
        from . import OpAutoCompare

        return OpAutoCompare(console="full", cpu=True)
