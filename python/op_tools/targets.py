"""What a user means by `ops`: from names, functions, methods and modules to the attributes that are to be replaced.

Nothing is changed here. A name that does not exist raises AttributeError (ImportError for a package); a thing that
exists but cannot carry a hook raises Refusal, which says why and what to give instead.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import torch
from ditorch import _C

from . import collectives

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<missing>"})()

_NAMESPACES = (
    *("torch", "torch.nn.functional", "torch.functional", "torch.linalg", "torch.special", "torch.fft", "torch.sparse"),
    *("torch.nested", "torch.nn.init", "torch.nn.utils", "torch.signal.windows", "torch.distributed"),
)
"""Where programs look functions of torch up, besides torch.Tensor."""

_MACHINERY = {
    *("__new__", "__init__", "__del__", "__class__", "__getattribute__", "__getattr__", "__setattr__", "__delattr__"),
    *("__torch_function__", "__torch_dispatch__", "__init_subclass__", "__class_getitem__", "__subclasshook__"),
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__hash__", "__instancecheck__"),
}
"""Methods that Python and torch need to make, find or copy objects at all."""


class Refusal(Exception):
    """This thing exists, but no hook can be put on it."""


class Target(NamedTuple):
    """One attribute that can be replaced."""

    name: str
    """Of the operator, for lists and logs."""
    owner: Any
    attribute: str
    raw: Any
    """What the owner itself holds there now; MISSING when the attribute is inherited or made on demand."""
    func: Any
    """What is to be wrapped."""
    wrap: Callable[[Any], Any]
    """From the hook to what is put in place."""
    path: str
    """Where it is: "torch.nn.functional.linear"."""

    @property
    def key(self) -> tuple[int, str]:
        return id(self.owner), self.attribute

    def read(self) -> Any:
        """What the owner itself holds there at this moment."""
        return vars(self.owner).get(self.attribute, MISSING)

    def put(self, value: Any) -> None:
        """Let the owner hold `value` there; MISSING: nothing. A class does not become a sequence by it."""
        is_class = isinstance(self.owner, type)
        if value is MISSING:
            (_C.type_attribute_delete if is_class else delattr)(self.owner, self.attribute)
        else:
            (_C.type_attribute_set if is_class else setattr)(self.owner, self.attribute, value)


def resolve(item: Any) -> Iterator[Target | Refusal]:
    """The places of one item of `ops`: a name, function, method or module."""
    if isinstance(item, str):
        yield from _resolve_text(item)
    elif isinstance(item, types.ModuleType):
        yield from _resolve_module(item)
    else:
        yield from _resolve_object(item)


# Names


def _resolve_text(text: str) -> Iterator[Target | Refusal]:
    if not text.strip():
        raise ValueError("ops is an empty name; give the name of a function, such as 'torch.add'")
    parts = [part.strip() for part in text.split(".")]
    path = ".".join(parts)
    owner, found = None, import_module(parts[0])
    for at, part in enumerate(parts[1:], 2):
        owner, found = found, _get(found, part, ".".join(parts[:at]))
    if isinstance(found, types.ModuleType):
        yield from _resolve_module(found)
        return
    try:
        yield make(unwrap(owner), parts[-1], path, path)
    except Refusal as refusal:
        yield refusal


def _get(owner: Any, name: str, path: str) -> Any:
    """An attribute, or the submodule of that name, which is imported when it was not."""
    try:
        return getattr(owner, name)
    except AttributeError:
        if not isinstance(owner, types.ModuleType) or not hasattr(owner, "__path__"):
            raise
        try:
            return import_module(f"{owner.__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{owner.__name__}.{name}":
                raise
        raise AttributeError(f"{path}: {owner.__name__} has neither an attribute nor a submodule {name!r}") from None


def make(owner: Any, attribute: str, name: str, path: str) -> Target:
    """The target at owner.attribute; Refusal when it cannot carry a hook."""
    if attribute in _MACHINERY:
        raise Refusal(f"{path}: Python and torch need it to make, find or copy objects")
    if not hasattr(owner, "__dict__"):
        raise Refusal(f"{path}: attributes of {type(owner).__name__} objects cannot be replaced")
    raw = vars(owner).get(attribute, MISSING)
    static = inspect.getattr_static(owner, attribute, getattr(owner, attribute)) if raw is MISSING else raw
    if type(static) is _C.Hook or type(getattr(static, "__func__", None)) is _C.Hook:
        static = _strip(static)
    if isinstance(owner, type) and isinstance(static, (staticmethod, classmethod)):
        return Target(name, owner, attribute, raw, static.__func__, type(static), path)
    if _is_data(static):
        raise Refusal(f"{path}: it is a property, not a function")
    is_bound = not isinstance(owner, (type, types.ModuleType))
    func = unwrap(getattr(owner, attribute)) if is_bound or raw is MISSING else static
    if inspect.isclass(func):
        raise Refusal(f"{path}: it is a class; give one of its methods, such as {path}.__call__ or {path}.forward")
    if not callable(func):
        raise Refusal(f"{path}: it is {type(func).__name__} {_shorten(func)}, which cannot be called")
    if isinstance(owner, type) and owner.__flags__ & _IMMUTABLE:
        raise Refusal(f"{path}: {owner.__name__} is a type of C, whose attributes cannot be replaced")
    if _is_own(func):
        raise Refusal(f"{path}: the tools do not watch themselves")
    if not _C.Hook.is_operator_name(name):
        raise Refusal(f"{path}: it computes nothing (a question or bookkeeping), and no tool looks at it")
    return Target(name, owner, attribute, raw, func, _keep, path)


_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE


def _keep(hook: Any) -> Any:
    return hook


def _is_data(static: Any) -> bool:
    return isinstance(static, property) or inspect.isdatadescriptor(static)


def _is_own(func: Any) -> bool:
    return (getattr(func, "__module__", None) or "").split(".")[0] in ("op_tools", "ditorch")


def _shorten(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


def unwrap(value: Any) -> Any:
    """The function behind a hook; anything else as it is."""
    while type(value) is _C.Hook:
        value = value.func
    return value


def _strip(static: Any) -> Any:
    if isinstance(static, (staticmethod, classmethod)):
        return type(static)(unwrap(static.__func__))
    return unwrap(static)


# Modules


def _resolve_module(module: types.ModuleType) -> Iterator[Target | Refusal]:
    """Every public function of a module that is its own business: not what it imported from elsewhere, and of torch
    only what computes."""
    ignored = torch.overrides.get_ignored_functions()
    root = module.__name__.split(".")[0]
    chosen = collectives.FUNCTIONS if module is sys.modules.get("torch.distributed") else vars(module)
    for attribute in sorted(set(chosen) & set(vars(module))):
        value = unwrap(vars(module)[attribute])
        if attribute.startswith("_") or not inspect.isroutine(value):
            continue
        home = (getattr(value, "__module__", None) or root).split(".")[0]
        if home != root or _is_ignored(value, ignored):
            continue
        path = f"{module.__name__}.{attribute}"
        try:
            yield make(module, attribute, path, path)
        except Refusal:
            continue  # a class, a question: nobody asked for it by name


_HELPERS = {"overload", "boolean_dispatch", "handle_torch_function"}
"""Of torch's own modules, besides has_torch_function and its variants."""


def _is_ignored(value: Any, ignored: set) -> bool:
    name = getattr(value, "__name__", "")
    try:
        return value in ignored or name in _HELPERS or name.startswith("has_torch_function")
    except TypeError:  # not hashable
        return False


# Objects


def _resolve_object(item: Any) -> Iterator[Target | Refusal]:
    func = unwrap(item)
    try:
        if isinstance(func, types.MethodType):
            yield _make_bound(func)
        else:
            places = list(_find_places(func))
            name = find_name(func)
            for owner, attribute, path in places:
                yield make(owner, attribute, name or path, path)
    except Refusal as refusal:
        yield refusal


def find_name(func: Any) -> str:
    """The name under which started tools know a function of torch; empty for others."""
    try:
        name = torch.overrides.resolve_name(func)
    except (TypeError, ValueError):
        return ""
    if not name:
        return ""
    space, _, last = name.rpartition(".")
    own = getattr(func, "__name__", last)
    if own == last or own.startswith("__"):
        return name
    owner: Any = sys.modules.get(space) or (torch.Tensor if space == "torch.Tensor" else None)
    return f"{space}.{own}" if owner is not None and unwrap(getattr(owner, own, None)) is func else name


def _make_bound(method: types.MethodType) -> Target:
    owner, attribute = method.__self__, method.__func__.__name__
    if isinstance(owner, torch.Tensor):
        raise Refusal(f"{attribute} of one tensor: give the method of the class, torch.Tensor.{attribute}")
    kind = owner if isinstance(owner, type) else type(owner)
    path = f"{kind.__module__}.{kind.__qualname__}.{attribute}"
    if getattr(owner, attribute, None) != method:
        raise Refusal(f"{path}: its object does not hold it under this name")
    return make(owner, attribute, path, path if isinstance(owner, type) else f"{path} of one object")


def _find_places(func: Any) -> Iterator[tuple[Any, str, str]]:
    if inspect.isclass(func):
        raise Refusal(f"{func.__module__}.{func.__qualname__}: it is a class; give one of its methods")
    if isinstance(func, torch.nn.Module):
        raise Refusal(f"a {type(func).__name__} object: give its method, such as model.forward")
    if _is_data(func):
        raise Refusal(f"{getattr(func, '__name__', _shorten(func))}: it is a property, not a function")
    if not callable(func):
        raise Refusal(f"{type(func).__name__} {_shorten(func)}: wanted is a name, a function, a method or a module")
    if isinstance(getattr(func, "__self__", None), torch.Tensor):
        raise Refusal(f"{func.__name__} of one tensor: give the method of the class, torch.Tensor.{func.__name__}")
    places = list(_find_overload(func) or _find_public(func) or _find_by_name(func) or _find_anywhere(func))
    if not places:
        raise Refusal(
            f"{_shorten(func)}: no module or class holds it under a name; give the name by which it is called"
        )
    yield from places


def _find_overload(func: Any) -> list[tuple[Any, str, str]]:
    """torch.ops.aten.add and torch.ops.aten.add.Tensor."""
    packet = getattr(func, "_overloadpacket", func)
    name = getattr(packet, "_qualified_op_name", None)
    if not isinstance(name, str) or "::" not in name:
        return []
    space, _, last = name.partition("::")
    path = f"torch.ops.{space}.{last}"
    if packet is func:
        return [(getattr(torch.ops, space), last, path)]
    return [(packet, func._overloadname, f"{path}.{func._overloadname}")]


def _find_public(func: Any) -> list[tuple[Any, str, str]]:
    """All names by which programs know a function of torch: F.conv1d is torch.conv1d."""
    found = []
    for space in _NAMESPACES:
        module = sys.modules.get(space)
        for attribute, value in list(vars(module).items()) if module is not None else ():
            if unwrap(value) is func and not attribute.startswith("_"):
                found.append((module, attribute, f"{space}.{attribute}"))
    for attribute in dir(torch.Tensor):
        value = inspect.getattr_static(torch.Tensor, attribute, None)
        if _strip(value) is func:
            found.append((torch.Tensor, attribute, f"torch.Tensor.{attribute}"))
    return found


def _find_by_name(func: Any) -> list[tuple[Any, str, str]]:
    """By the name that the function itself has."""
    module = sys.modules.get(getattr(func, "__module__", None) or "")
    parts = (getattr(func, "__qualname__", None) or "").split(".")
    owner: Any = module
    for part in parts[:-1]:
        owner = getattr(owner, part, None)
    if owner is None or not parts[-1]:
        return []
    static = _strip(inspect.getattr_static(owner, parts[-1], None))
    if getattr(static, "__func__", static) is not func:
        return []
    return [(owner, parts[-1], ".".join([module.__name__, *parts]))]  # type: ignore[union-attr]


def _find_anywhere(func: Any) -> list[tuple[Any, str, str]]:
    """Some module that holds it; a public name before a private one, a short one before a long one."""
    found = []
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType):
            for attribute, value in list(vars(module).items()):
                if unwrap(value) is func:
                    found.append((module, attribute, f"{module.__name__}.{attribute}"))
    found.sort(key=lambda place: ("._" in place[2], len(place[2]), place[2]))
    return found[:1]
