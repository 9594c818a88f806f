"""The functions of torch.distributed under the tools.

Collectives do not go through torch's own dispatch, so they are hooked by name: by apply_feature where it is asked to,
and by every started tool (level torch) for as long as it is on. Tools see them as functions that return what they
wrote: all_reduce its tensor, all_gather its list, whatever the program gets back.

Work that is not waited for is not looked at: with async_op=True the program gets a handle that behaves like its own and
shows the call to the tools when the program waits. Until then nothing waits, so the order of calls between ranks is the
program's. See collective_reference.py for comparisons. Depends on features.py for the places.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from ditorch import _C

from . import session

_TENSORS = {
    **dict.fromkeys(("all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "scatter", "recv", "irecv"), 0),
    **dict.fromkeys(("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single"), 0),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single"), 0),
    **dict.fromkeys(("all_to_all", "all_to_all_single"), 0),
    "gather": 1,
    **dict.fromkeys(("send", "isend", "barrier", "monitored_barrier"), None),
}
"""Functions that move tensors or make ranks wait, and the argument that each writes to."""
_OBJECTS = (
    *("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list"),
    *("send_object_list", "recv_object_list"),
)
FUNCTIONS = (*_TENSORS, "batch_isend_irecv", *_OBJECTS)
"""The names that are hooked. A release of torch has most of them."""
_ALWAYS_ASYNC = ("isend", "irecv")
_METADATA_ONLY = {"observe", "time"}
"""Kinds of tools that do not read values."""

_users = 0
_placed: list[Any] = []


# Hooks of started tools


def begin(kind: str) -> None:
    """A tool of this kind starts, whether attached or not."""
    if kind == "compare" and f"{__package__}.collective_reference" in sys.modules:
        sys.modules[f"{__package__}.collective_reference"].reset()


def acquire() -> None:
    """A tool starts; every call needs a release(). Under session.lock."""
    global _users
    _users += 1
    module = sys.modules.get("torch.distributed")
    if _users > 1 or module is None or not module.is_available():
        return
    from . import features, targets

    for name in FUNCTIONS:
        if hasattr(module, name):
            path = f"torch.distributed.{name}"
            try:
                entry = features.place(targets.make(module, name, path, path))
            except targets.Refusal:  # somebody put a class or another thing there
                continue
            entry.users += 1
            entry.update()
            _placed.append(entry)


def release() -> None:
    """A tool stops; the last one takes the hooks away that nobody else uses."""
    global _users
    _users = max(_users - 1, 0)
    if _users == 0 and _placed:
        from . import features

        for entry in _placed:
            entry.users = max(entry.users - 1, 0)
            entry.update()
        features.tidy(_placed)
        _placed.clear()


def prepare(hook: Any, name: str) -> None:
    """A new hook on a function of this name: its calls go through one of the directors below."""
    if name in _TENSORS:
        hook.director = functools.partial(_direct, name)
    elif name == "batch_isend_irecv":
        hook.director = _direct_batch
    if name in _ALWAYS_ASYNC:
        _keep_p2p(+1)


def forget(name: str) -> None:
    """The hook on a function of this name is gone."""
    if name in _ALWAYS_ASYNC:
        _keep_p2p(-1)


_p2p: list[Any] = [0, None]  # hooks on isend and irecv; P2POp's own __init__


def _keep_p2p(change: int) -> None:
    """batch_isend_irecv tells sends from receives by `op is isend`: its entries hold the functions, never a hook."""
    p2p_op = torch.distributed.P2POp
    _p2p[0] += change
    if _p2p[0] == 1 and change > 0:
        original = _p2p[1] = p2p_op.__init__

        @functools.wraps(original)
        def init(self: Any, op: Any, *args: Any, **kwargs: Any) -> None:
            original(self, op.func if type(op) is _C.Hook else op, *args, **kwargs)

        p2p_op.__init__ = init
    elif _p2p[0] == 0:
        p2p_op.__init__ = _p2p[1]


# One call


def _direct(name: str, hook: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    if _is_coalescing(_get_argument(hook.func, "group", args, kwargs, None)):
        return hook.func(*args, **kwargs)  # only noted down: it runs when the block ends
    args, kwargs = _place_first(name, hook.func, args, kwargs)
    kinds = _find_kinds(hook)
    call = _Call(name, hook, args, kwargs)
    if "compare" in kinds:
        call.publish()
    if name in _ALWAYS_ASYNC or _get_argument(hook.func, "async_op", args, kwargs, False):
        return _launch(call, bool(kinds - _METADATA_ONLY))
    hook.show(call, args, kwargs, True, call.reference is not None)
    return call.outcome


def _is_coalescing(group: Any) -> bool:
    """Inside torch.distributed._coalescing_manager."""
    state = getattr(getattr(torch.distributed.distributed_c10d, "_world", None), "pg_coalesce_state", None)
    return bool(state) and (group or torch.distributed.group.WORLD) in state


def _place_first(name: str, func: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The argument that is written to, and those before it, by position: that is how tools know it."""
    target = _TENSORS[name]
    if target is None or len(args) > target or not kwargs:
        return args, kwargs
    rest, first = dict(kwargs), list(args)
    for parameter in _list_parameters(func)[len(args) : target + 1]:
        if parameter not in rest:
            break
        first.append(rest.pop(parameter))
    return tuple(first), rest


@functools.lru_cache(maxsize=256)
def _list_parameters(func: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(func).parameters)
    except (TypeError, ValueError):
        return ()


def _get_argument(func: Any, name: str, args: tuple, kwargs: dict[str, Any], default: Any) -> Any:
    if name in kwargs:
        return kwargs[name]
    names = _list_parameters(func)
    at = names.index(name) if name in names else len(args)
    return args[at] if at < len(args) else default


def _find_kinds(hook: Any) -> set[str]:
    """Of the tools that may see this call."""
    kinds = {tool.kind for tool, _ in hook.features if tool.active}
    if hook.open and _C.mode_is_on():
        kinds |= {tool.kind for tool in session.active if not tool._attached}
    return kinds


class _Call:
    """What tools see as the function. Called first it runs the collective; called again (by a comparison, with CPU
    copies of the arguments) it computes what should have come out."""

    def __init__(self, name: str, hook: Any, args: tuple, kwargs: dict[str, Any]):
        self.name, self.hook, self.args, self.kwargs = name, hook, args, kwargs
        self.run: Callable[..., Any] = hook.func
        self.reference: Any = None
        self.outcome: Any = None
        self.done = False
        self.__name__ = name

    def publish(self) -> None:
        """Give the other ranks what they need to compute theirs; before the collective begins."""
        from . import collective_reference

        def argument(name: str, default: Any = None) -> Any:
            return _get_argument(self.hook.func, name, self.args, self.kwargs, default)

        self.reference = self.hook.hide(collective_reference.publish, self.name, argument)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.done:
            return self._compute(args, kwargs)
        self.outcome = self.run(*args, **kwargs)
        self.done = True
        return self._get_target(args)

    def _get_target(self, args: tuple) -> Any:
        target = _TENSORS[self.name]
        return args[target] if target is not None and target < len(args) else self.outcome

    def _compute(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        def argument(name: str, default: Any = None) -> Any:
            return _get_argument(self.hook.func, name, args, kwargs, default)

        if self.reference is None:
            raise RuntimeError("other processes take part")
        self.reference.compute(argument)
        return self._get_target(args)


# Calls whose result comes later


def _launch(call: _Call, reads: bool) -> Any:
    """Begin the collective. What tools see is kept as it is now: the collective may overwrite it before they look."""
    args, kwargs, copies = (
        call.hook.hide(_copy_tensors, call.args, call.kwargs) if reads else (call.args, call.kwargs, [])
    )
    work = call.hook.func(*call.args, **call.kwargs)
    if not isinstance(work, torch.distributed.Work):
        return work  # this rank is not in the group

    def finish(wait: Callable[[], Any]) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            answer = wait()
            call.hook.hide(_copy_back, copies)
            return answer

        call.run = run
        call.hook.show(call, args, kwargs, False, call.reference is not None)
        return call.outcome

    return _get_work_type()(work, finish)


def _direct_batch(hook: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Each entry is shown as a call (isend or irecv, tensor, rank in the group, tag) when its work is waited for."""
    entries = args[0] if args else kwargs.get("p2p_op_list")
    works = hook.func(*args, **kwargs)
    if not isinstance(entries, list) or not isinstance(works, list) or not works:
        return works
    pending = [(entry.op.__name__, entry.tensor, entry.group_peer, entry.tag) for entry in entries]
    alone = len(works) == len(pending)  # otherwise the backend made one work of all

    def show(calls: list[tuple], wait: Callable[[], Any]) -> Any:
        answers: list[Any] = []

        def run(kind: str, tensor: Any, *rest: Any) -> Any:
            if not answers:
                answers.append(wait())
            return tensor if kind == "irecv" else None

        for call in calls:
            hook.show(run, call)
        return answers[0]

    kind = _get_work_type()
    if alone:
        return [kind(work, functools.partial(show, [call])) for work, call in zip(works, pending, strict=True)]
    return [kind(works[0], functools.partial(show, pending)), *works[1:]]


def _copy_tensors(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any], list]:
    """The arguments with copies in the tensors' places, and the pairs (copy, tensor)."""
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def copy(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            pairs.append((value.detach().clone(), value))
            return pairs[-1][0]
        if type(value) in (list, tuple):
            return type(value)(copy(item) for item in value)
        return value

    return copy(args), {name: copy(value) for name, value in kwargs.items()}, pairs


def _copy_back(pairs: list) -> None:
    with torch.no_grad():
        for copy, tensor in pairs:
            copy.copy_(tensor)


@functools.cache
def _get_work_type() -> type:
    """A Work that passes everything on to the program's own; waiting for it shows the call to the tools first."""
    base = torch.distributed.Work

    class TrackedWork(base):
        def __init__(self, work: Any, finish: Callable[[Callable[[], Any]], Any]):
            super().__init__()
            self._work, self._finish = work, finish

        def _complete(self, wait: Callable[[], Any]) -> Any:
            finish, self._finish = self._finish, None
            return wait() if finish is None else finish(wait)

        def wait(self, *args: Any, **kwargs: Any) -> Any:
            return self._complete(lambda: self._work.wait(*args, **kwargs))

        def synchronize(self, *args: Any, **kwargs: Any) -> Any:
            return self._complete(lambda: self._work.synchronize(*args, **kwargs))

        def is_completed(self) -> bool:
            done = self._work.is_completed()
            if done and self._finish is not None:
                with contextlib.suppress(Exception):  # a failure is told by wait()
                    self._complete(self._work.wait)
            return done

        def get_future(self) -> Any:
            if self._finish is None:
                return self._work.get_future()

            def seen(future: Any) -> Any:
                value = future.value()  # raises what the work raised
                self._complete(lambda: True)  # waiting here would wait for ourselves
                return value

            return self._work.get_future().then(seen)

    def pass_on(name: str) -> Any:
        @functools.wraps(getattr(base, name))
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(self._work, name)(*args, **kwargs)

        return method

    for name in dir(base):
        if not name.startswith("_") and name not in vars(TrackedWork):
            setattr(TrackedWork, name, pass_on(name))
    TrackedWork.__name__ = TrackedWork.__qualname__ = base.__name__
    return TrackedWork
