"""CompLayerAcc: what every layer of a model is given and what it gives, forward and backward, as files.

Forward hooks on every module copy inputs before and outputs after each call; gradients.py reads the backward. The
program is not changed: no result is replaced (but for fixed inputs), outputs may be changed in place, exceptions pass,
and a failure of the tool itself is said once and stops nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from op_tools import compile_stance, console

from . import gradients, snapshot, store
from .calls import Counter, Frame
from .naming import is_wrapper, join_names, list_names, name_replica, parse_steps, unwrap

MAX_BYTES = 10 << 30


class _Hook:
    """A forward hook; it keeps the tool as long as there is the model. A copy of a module (deepcopy, pickle) gets one
    that does nothing."""

    def __init__(self, method: Callable, name: str) -> None:
        self._method = method
        self._name = name

    def __call__(self, module: torch.nn.Module, *rest: Any) -> Any:
        return self._method(self._name, module, *rest)

    def __deepcopy__(self, memo: dict) -> Callable:
        return ignore

    def __reduce__(self) -> tuple:
        return _get_ignore, ()


def ignore(*_: Any) -> None:
    """The hook of a copied module."""


def _get_ignore() -> Callable:
    return ignore


class CompLayerAcc:
    """Save inputs, outputs, gradients and weights of every layer below <data_path>/rank<RANK>.

    `is_dump_benchmark=True` writes the folder `expected`, False the folder `real`. `is_fixed_input=True` gives every
    layer the input that is stored in `expected`, so that an error of one layer does not reach the next.

        tool = CompLayerAcc(model, True, False, "accuracy_data")
        model = tool.insert_hook()
        for batch in data:
            ...                 # forward, backward, optimizer.step()
            tool.step()
        tool.remove()           # or: with CompLayerAcc(...) as tool:

    `steps` chooses iterations (None: all, 3, [0, 5], "0,4-6"); `weights=False` leaves parameters, buffers and their
    gradients out, `backward=False` gradients. After `max_bytes` of tensors nothing more is written. Without calls of
    `step()`, an iteration ends with the step of an optimizer of this model (`auto_step`)."""

    def __init__(
        self,
        model: torch.nn.Module,
        is_dump_benchmark: bool,
        is_fixed_input: bool = False,
        data_path: str | os.PathLike = "accuracy_data",
        *,
        steps: int | str | Iterable[int] | None = None,
        weights: bool = True,
        backward: bool = True,
        auto_step: bool = True,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"CompLayerAcc: model is a {type(model).__name__}; expected a torch.nn.Module")
        self.model = model
        self.is_dump_benchmark = is_dump_benchmark
        self.is_fixed_input = is_fixed_input
        self.data_path = os.fspath(data_path)
        folder = os.path.join(os.path.abspath(self.data_path), f"rank{store.get_rank()}")
        self.path = os.path.join(folder, "expected" if is_dump_benchmark else "real")
        self._expected = os.path.join(folder, "expected")
        self._check()
        self._is_chosen = parse_steps(steps)
        self._wants_weights = weights
        self._wants_backward = backward
        self._auto_step = auto_step
        self._max_bytes = max_bytes
        self._root = unwrap(model)
        self._lock = threading.RLock()
        self._local = threading.local()
        self._active, self._pid = False, os.getpid()
        self._handles: list[Any] = []
        self._known: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
        self._partial: set[gradients.Call] = set()
        self._leaf_handles: list[Any] = []
        self._writer: store.Writer | None = None
        self._fixed = store.Run(self._expected)
        self._step = 0
        self._step_ended = False
        self._said: set[str] = set()
        self._reset_step()

    def _check(self) -> None:
        assert not (self.is_fixed_input and self.is_dump_benchmark), (
            "is_fixed_input=True reads the folder 'expected', which is_dump_benchmark=True writes: use "
            "is_dump_benchmark=False with fixed inputs"
        )
        assert not self.is_fixed_input or os.path.isdir(os.path.join(self._expected, "forward")), (
            f"is_fixed_input=True needs stored inputs in {self._expected!r}, which does not exist: run once with "
            "is_dump_benchmark=True and the same data_path and RANK first"
        )

    # Life

    def insert_hook(self) -> torch.nn.Module:
        """Start: hooks on every module, the list of all layers; the model as it is."""
        if self._active:
            return self.model
        print(self.model)
        self._make_folders()
        if self.is_fixed_input:
            self._fixed = store.open_run(self._expected)
        self._writer = store.Writer(self.path, self._max_bytes)
        self._step, self._step_ended = 0, False
        self._reset_step()
        self._active, self._pid = True, os.getpid()
        if self._root is not self.model:  # DataParallel calls copies of the root, on several threads
            self._handles.append(self.model.register_forward_pre_hook(_Hook(self._enter_wrapper, "")))
        self._hook_modules()
        self._hook_globally()
        compile_stance.acquire()
        _open_tools.add(self)
        self._finalizer = weakref.finalize(self, _abandon, self._handles, self._writer)
        self._finalizer.atexit = False
        return self.model

    def _make_folders(self) -> None:
        try:
            os.makedirs(self.path, exist_ok=True)
            if store.clear(self.path):
                console.say(f"CompLayerAcc: what an earlier run left in {self.path!r} is replaced")
            for kind in ("forward", "backward"):
                os.makedirs(os.path.join(self.path, kind), exist_ok=True)
        except OSError as error:
            raise OSError(
                f"CompLayerAcc: {self.path!r} cannot be written: {error}; choose another data_path"
            ) from error

    def _hook_globally(self) -> None:
        """Modules that are added later; the steps of optimizers."""
        from torch.nn.modules import module
        from torch.optim import optimizer

        added, before, after = (
            weakref.WeakMethod(m) for m in (self._module_added, self._before_optimizer, self._after_optimizer)
        )
        self._handles += [
            module.register_module_module_registration_hook(_weak(added)),
            optimizer.register_optimizer_step_pre_hook(_weak(before)),
            optimizer.register_optimizer_step_post_hook(_weak(after)),
        ]

    def _hook_modules(self) -> None:
        pairs = list_names(self._root)
        fresh = False
        for name, module in pairs:
            if module not in self._known:
                self._hook_module(name, module)
                fresh = True
        if fresh:
            self._write_lines(store.NAMES, list(dict.fromkeys(name for name, _ in pairs)))

    def _hook_module(self, name: str, module: torch.nn.Module) -> None:
        self._known[module] = name
        if is_wrapper(module):
            return  # what is inside has its name
        try:
            self._handles.append(module.register_forward_pre_hook(_Hook(self._enter, name), with_kwargs=True))
            self._handles.append(
                module.register_forward_hook(_Hook(self._leave, name), with_kwargs=True, always_call=True)
            )
        except (RuntimeError, TypeError) as error:  # a scripted module may refuse
            self._say(f"{name} takes no hooks ({error}); its calls are not seen")

    def _module_added(self, parent: torch.nn.Module, name: str, child: torch.nn.Module | None) -> None:
        if self._active and child is not None and parent in self._known:
            self._guard(self._hook_child, parent, name, child)

    def _hook_child(self, parent: torch.nn.Module, name: str, child: torch.nn.Module) -> None:
        self._added = True
        for path, module in child.named_modules():
            if module not in self._known:
                self._hook_module(join_names(self._known[parent], name, path), module)

    def remove(self) -> None:
        """Stop: no hooks any more, everything on disk."""
        if not self._active:
            return
        self._end_step()
        self._active = False
        self._finalizer.detach()
        _release(self._handles)
        self._known.clear()
        _open_tools.discard(self)
        if self._writer is not None:
            self._writer.close()

    def flush(self) -> None:
        """Have everything that was seen so far on disk."""
        self._finish_backward()
        self._write_order()
        if self._writer is not None:
            self._writer.flush()

    def step(self) -> None:
        """An iteration ended; what comes belongs to the next one."""
        self._auto_step = False
        self._next_step()

    def _next_step(self) -> None:
        self._end_step()
        with self._lock:
            self._step += 1
            self._step_ended = False
            self._reset_step()

    def _reset_step(self) -> None:
        self._counter = Counter()
        self._begun = False
        self._added = False
        self._graded: set[str] = set()

    def _end_step(self) -> None:
        self._finish_backward()
        self._forget_leaves()
        if self._begun:
            self._guard(self._save_gradients)
        self._write_order()

    def __enter__(self) -> CompLayerAcc:
        self.insert_hook()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.remove()

    # Failures of the tool stop nothing

    def _guard(self, function: Callable, *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            self._say(f"internal problem, this call is not saved: {type(error).__name__}: {error}")
            return None

    def _say(self, text: str) -> None:
        if text not in self._said and len(self._said) < 100:
            self._said.add(text)
            console.say(f"CompLayerAcc: {text}")

    # Forward

    def _get_stack(self) -> list[Frame]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        return self._local.stack

    def _is_off(self) -> bool:
        return not self._active or self._pid != os.getpid() or torch.jit.is_tracing() or torch.compiler.is_compiling()

    def _enter(self, name: str, module: torch.nn.Module, args: tuple, kwargs: dict) -> Any:
        if self._is_off():
            return None
        stack = self._get_stack()
        if module is self._root and gradients.get_graph_task() == -1:
            stack.clear()
            self._guard(self._begin_forward)
        if getattr(module, "_is_replica", False):
            name += name_replica(args, kwargs)
        frame = Frame(name, module)
        stack.append(frame)
        if not self._is_chosen(self._step):
            return None
        return self._guard(self._start_call, frame, args, kwargs)

    def _enter_wrapper(self, name: str, module: torch.nn.Module, args: tuple) -> None:
        if not self._is_off():
            self._guard(self._begin_forward)

    def _begin_forward(self) -> None:
        self._finish_backward()
        if self._step_ended and self._auto_step:
            self._next_step()
        self._hook_modules()

    def _start_call(self, frame: Frame, args: tuple, kwargs: dict) -> Any:
        with self._lock:
            if not self._begun:
                self._begun = True
                if self._wants_weights:
                    self._save_weights()
        frame.input, frame.kwargs = snapshot.take((args, kwargs))
        frame.step, frame.counter = self._step, self._counter
        frame.counter.begin(frame)
        result = None
        if self.is_fixed_input:
            args, kwargs = result = self._fix(frame, args, kwargs)
            frame.input, frame.kwargs = snapshot.take((args, kwargs))
        if self._wants_backward and torch.is_grad_enabled():
            frame.entered = gradients.Call(args, kwargs, gradients.get_sequence(), self._make_owner(frame))
        return result

    def _fix(self, frame: Frame, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        stepped = self._fixed.stepped
        key = store.Key(frame.name, frame.step, frame.call) if stepped else store.Key(frame.name)
        path = self._fixed.get_files("forward", stepped).get(key)
        if path is None:
            where = f" in step {frame.step}, call {frame.call}" if stepped else ""
            self._say(f"no stored input of {frame.name}{where}: it keeps its own")
            return args, kwargs
        try:
            item = store.load(path)
        except (OSError, ValueError) as error:
            self._say(f"{error}; {frame.name} keeps its own input")
            return args, kwargs
        replacement = snapshot.Replacement()
        args = tuple(replacement.apply(args, item.get("input", ()), "input"))
        if "kwargs" in item:
            kwargs = dict(replacement.apply(kwargs, item["kwargs"], "kwargs"))
        for problem in replacement.problems[:3]:
            self._say(f"{frame.name} keeps its own {problem}")
        return args, kwargs

    def _leave(self, name: str, module: torch.nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        stack = self._get_stack()
        if not any(frame.module == id(module) for frame in stack):
            return
        frame = stack.pop()
        while frame.module != id(module):  # of calls that ended by KeyboardInterrupt and the like
            frame = stack.pop()
        if frame.step >= 0 and not self._is_off():
            error = sys.exc_info()[1]
            self._guard(self._end_call, frame, output, None if error is frame.error else error)

    def _end_call(self, frame: Frame, output: Any, error: BaseException | None) -> None:
        if frame.again and type(error).__name__ == "_StopRecomputationError":
            return  # torch needs no more of this recomputation
        item = {
            "layer_name": frame.name,
            "input": frame.input,
            "kwargs": frame.kwargs,
            "output": None if error else snapshot.take(output),
            "step": frame.step,
            "call": frame.call,
            "index": frame.counter.end(frame),  # type: ignore[union-attr]
            "recompute": bool(frame.again),
        }
        if error:
            item["error"] = f"{type(error).__name__}: {error}"
        self._put("forward", store.Key(frame.name, frame.step, frame.call, frame.again), item)
        if not error and frame.entered is not None:
            frame.entered.watch(output)

    # Backward

    def _make_owner(self, frame: Frame) -> gradients.Owner:
        name, step, call, again = frame.name, frame.step, frame.call, frame.again
        reference = weakref.ref(self)

        def done(number: int, grad_input: tuple, grad_kwargs: dict, grad_output: tuple) -> None:
            tool = reference()
            if tool is None:
                return
            item = {
                "layer_name": name,
                "grad_input": grad_input,
                "grad_kwargs": grad_kwargs,
                "grad_output": grad_output,
                "step": step,
                "call": call,
                "recompute": bool(again),
            }
            # Gradients of a recomputed call arrive once, at the recomputed nodes.
            tool._put("backward", store.Key(name, step, call, f"round{number}" if number else ""), item)

        def run(function: Callable, *args: Any) -> None:
            tool = reference()
            if tool is not None and tool._active:
                tool._guard(function, *args)

        return gradients.Owner(done, run, self._partial, self._leaf_handles)

    def _forget_leaves(self) -> None:
        while self._leaf_handles:
            self._leaf_handles.pop().remove()

    def _finish_backward(self) -> None:
        for call in self._partial.copy():
            self._guard(call.finish)

    # Weights

    def _save_weights(self) -> None:
        for module, name in list(self._known.items()):
            parameters = {key: value for key, value in module._parameters.items() if value is not None}
            buffers = {key: value for key, value in module._buffers.items() if value is not None}
            if parameters or buffers:
                item = {"layer_name": name, "parameters": parameters, "buffers": buffers, "step": self._step}
                self._put("weights", store.Key(name, self._step), snapshot.take(item))

    def _save_gradients(self, chosen: set[int] | None = None) -> None:
        """Of the layers of which they are not saved in this step; `chosen`: parameters by identity."""
        for module, name in list(self._known.items()) if self._wants_weights else ():
            owned = {key: value for key, value in module._parameters.items() if value is not None}
            if name in self._graded or (chosen is not None and not any(id(p) in chosen for p in owned.values())):
                continue
            grads = {key: value.grad for key, value in owned.items() if value.is_leaf and value.grad is not None}
            if grads:
                self._graded.add(name)
                item = {"layer_name": name, "gradients": grads, "step": self._step}
                self._put("gradients", store.Key(name, self._step), snapshot.take(item))

    def save_weights(self) -> None:
        """Parameters and buffers as they are now, in the place of those of this step."""
        self._guard(self._save_weights)

    def _before_optimizer(self, optimizer: Any, args: tuple, kwargs: dict) -> None:
        """Here gradients are reduced, unscaled and clipped, and not yet zeroed."""
        if self._active and self._begun:
            self._guard(self._save_gradients, _list_parameters(optimizer))

    def _after_optimizer(self, optimizer: Any, args: tuple, kwargs: dict) -> None:
        if self._active and self._auto_step and not self._step_ended:
            mine = {id(parameter) for parameter in self._root.parameters()}
            self._step_ended = bool(mine & _list_parameters(optimizer))

    # Files

    def _put(self, kind: str, key: store.Key, item: dict) -> None:
        plain = None if key.again else f"{kind}/{store.make_stem(key.name)}.pt"
        if self._writer is not None:
            self._writer.put(store.make_path(kind, key), plain, item, snapshot.count_bytes(item))

    def _write_order(self) -> None:
        if self._counter.order:
            self._write_lines(f"modules_full_name_run.step{self._step}.txt", self._counter.order)
            self._write_lines(store.ORDER, self._counter.order)
        if self._added:
            self._added = False
            self._write_lines(store.NAMES, list(dict.fromkeys(name for name, _ in list_names(self._root))))

    def _write_lines(self, name: str, lines: list[str]) -> None:
        if self._pid != os.getpid():
            return
        try:
            store.write_lines(os.path.join(self.path, name), lines)
        except OSError as error:
            self._say(f"{name} in {self.path!r} cannot be written: {error}")


# Helpers

_open_tools: weakref.WeakSet[CompLayerAcc] = weakref.WeakSet()


def _release(handles: list[Any]) -> None:
    while handles:
        handles.pop().remove()
    compile_stance.release()


def _abandon(handles: list[Any], writer: store.Writer) -> None:
    """The model and its tool are gone; what is queued is still written."""
    _release(handles)
    writer.abandon()


@atexit.register
def _close_all() -> None:
    for tool in list(_open_tools):
        tool.remove()


def _weak(method: weakref.WeakMethod) -> Callable:
    def call(*args: Any) -> None:
        target = method()
        if target is not None:
            target(*args)

    return call


def _list_parameters(optimizer: Any) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
