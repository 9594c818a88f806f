"""Operator libraries (DIOPI) from Python: open one, ask what it has, call a function by name on tensors.

    library = diopi.Library("host")
    library.call("diopiAddScalar", out, x, 2.0, 1)

Tensors are anything with data_ptr(), shape, stride() and dtype, such as CPU tensors of PyTorch; the library sees their
memory as memory of its device, so this works with libraries for host memory alone. No torch is imported here.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from .library import DIRECTORY

SUCCESS, NO_IMPLEMENT, FORCE_FALLBACK, DTYPE_NOT_SUPPORTED = 0, 13, 14, 1000
DTYPES = {
    "int8": 0,
    "uint8": 1,
    "int16": 2,
    "uint16": 3,
    "int32": 4,
    "uint32": 5,
    "int64": 6,
    "uint64": 7,
    "float16": 8,
    "float32": 9,
    "float64": 10,
    "bool": 11,
    "bfloat16": 12,
    "tfloat32": 13,
    "complex32": 14,
    "complex64": 15,
    "complex128": 16,
}
_FLOATING = {8, 9, 10, 12, 13}


class Error(RuntimeError):
    """A function returned another code than success; `code` is its number, `name` its name in the standard."""

    def __init__(self, function: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{function}: {name} ({code})" + (f": {text}" if text else ""))
        self.function, self.code, self.name, self.text = function, code, name, text


class Info(NamedTuple):
    """A function of the standard: kinds has a letter per parameter (include/dit/diopi.h)."""

    name: str
    header: str
    family: str
    kinds: str
    parameters: tuple[str, ...]


class _Size(ctypes.Structure):
    _fields_ = (("data", ctypes.POINTER(ctypes.c_int64)), ("len", ctypes.c_int64))


class _ScalarValue(ctypes.Union):
    _fields_ = (("fval", ctypes.c_double), ("ival", ctypes.c_int64))


class _Scalar(ctypes.Structure):
    _fields_ = (("stype", ctypes.c_int), ("value", _ScalarValue))


class _Value(ctypes.Union):
    _fields_ = (
        ("pointer", ctypes.c_void_p),
        ("i", ctypes.c_int64),
        ("d", ctypes.c_double),
        ("size", _Size),
    )


class _Info(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_char_p) for name in ("name", "header", "family", "kinds", "names"))


class _View(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("numel", ctypes.c_int64),
        ("storage", ctypes.c_void_p),
        ("handle", ctypes.c_void_p),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int16),
        ("device_index", ctypes.c_int8),
        ("flags", ctypes.c_uint8),
    )


class _Error(ctypes.Structure):
    _fields_ = (("status", ctypes.c_int), ("message", ctypes.c_char * 1024))


class _Support(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("struct_size", "dtypes", "layouts", "flags"))


class _Library(ctypes.Structure):
    """struct dit_diopi_library; its table has one pointer per function."""


class Generator(ctypes.Structure):
    """Seed and offset of a random generator; a call moves the offset."""

    _fields_ = (("seed", ctypes.c_uint64), ("offset", ctypes.c_uint64))


class Required:
    """Place for a result that the library makes itself: afterwards `shape`, `strides`, `dtype` (its number in PyTorch)
    and the bytes of its elements from the first to the last, `data`."""

    def __init__(self) -> None:
        self.handle = ctypes.c_void_p()
        self.shape: tuple[int, ...] = ()
        self.strides: tuple[int, ...] = ()
        self.dtype = -1
        self.data = b""


def _open_core() -> ctypes.CDLL:
    core = ctypes.CDLL(os.path.join(DIRECTORY, "libdit.so"))
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    for name, result, arguments in (
        ("dit_diopi_get_functions", ctypes.POINTER(_Info), [ctypes.POINTER(integer)]),
        ("dit_diopi_find_function", integer, [ctypes.c_char_p]),
        ("dit_diopi_get_error_name", ctypes.c_char_p, [integer]),
        ("dit_diopi_library_open", integer, [ctypes.c_char_p, ctypes.POINTER(pointer), ctypes.POINTER(_Error)]),
        ("dit_diopi_library_close", None, [pointer]),
        ("dit_diopi_library_get", pointer, [pointer, integer]),
        ("dit_diopi_library_get_error", ctypes.c_char_p, [pointer]),
        ("dit_diopi_invoke", integer, [pointer, integer, ctypes.POINTER(_Value)]),
        ("dit_diopi_context_create", pointer, [integer, pointer]),
        ("dit_diopi_context_destroy", None, [pointer]),
        ("dit_diopi_tensor_get_view", ctypes.POINTER(_View), [pointer]),
        ("dit_diopi_tensor_destroy", None, [pointer]),
        ("dit_dtype_find", integer, [ctypes.c_char_p]),
        ("dit_dtype_get_size", ctypes.c_size_t, [integer]),
        ("dit_diopi_tensor_create", pointer, [pointer, integer, pointer, pointer, integer, integer]),
    ):
        function = getattr(core, name)
        function.restype, function.argtypes = result, arguments
    return core


_core = _open_core()


def list_functions() -> list[Info]:
    """Every function of the standard, in the order of their numbers."""
    count = ctypes.c_int()
    rows = _core.dit_diopi_get_functions(ctypes.byref(count))
    found = []
    for index in range(count.value):
        row = rows[index]
        names = tuple(name for name in row.names.decode().split(",") if name)
        found.append(Info(row.name.decode(), row.header.decode(), row.family.decode(), row.kinds.decode(), names))
    return found


_functions = list_functions()
_Library._fields_ = (
    ("functions", ctypes.c_void_p * len(_functions)),
    ("ext_get_version", ctypes.c_void_p),
    ("ext_get_support", ctypes.c_void_p),
    ("ext_infer_outputs", ctypes.c_void_p),
    ("ext_get_last_error", ctypes.c_void_p),
    ("ext_list_begin", ctypes.c_void_p),
    ("ext_list_end", ctypes.c_void_p),
    ("implemented", ctypes.c_int),
    ("handle", ctypes.c_void_p),
    ("path", ctypes.c_char * 4096),
    ("refused", ctypes.c_char * 256),
)
_numbers = {info.name: number for number, info in enumerate(_functions)}


class _Call:
    """The arguments of one call as C values, and everything that must stay alive until it returns."""

    def __init__(self) -> None:
        self.keep: list[Any] = []
        self.tensors: list[int] = []
        self.required: list[Required] = []

    def close(self) -> None:
        for handle in self.tensors:
            _core.dit_diopi_tensor_destroy(handle)

    def _array(self, kind: Any, values: Sequence[Any]) -> Any:
        array = (kind * max(len(values), 1))(*values)
        self.keep.append(array)
        return array

    def _tensor(self, tensor: Any) -> int:
        if tensor is None:
            return 0
        dtype = _core.dit_dtype_find(str(tensor.dtype).encode())
        sizes, strides = list(tensor.shape), list(tensor.stride())
        handle = _core.dit_diopi_tensor_create(
            tensor.data_ptr(),
            len(sizes),
            self._array(ctypes.c_int64, sizes),
            self._array(ctypes.c_int64, strides),
            dtype,
            0,
        )
        if not handle:
            raise ValueError(f"no DIOPI tensor has shape {tuple(sizes)} and dtype {tensor.dtype}")
        self.keep.append(tensor)
        self.tensors.append(handle)
        return handle

    def _size(self, values: Sequence[int] | None) -> _Size:
        if values is None:
            return _Size(None, 0)
        values = list(values)
        return _Size(ctypes.cast(self._array(ctypes.c_int64, values), ctypes.POINTER(ctypes.c_int64)), len(values))

    def _scalar(self, value: Any) -> Any:
        dtype, number = value if isinstance(value, tuple) else (None, value)
        if dtype is None:
            dtype = "bool" if isinstance(number, bool) else "int64" if isinstance(number, int) else "float64"
        scalar = _Scalar(DTYPES[dtype])
        if scalar.stype in _FLOATING:
            scalar.value.fval = number
        else:
            scalar.value.ival = int(number)
        self.keep.append(scalar)
        return ctypes.addressof(scalar)

    def _pointer(self, kind: Any, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, ctypes.Array):  # the caller's own memory: C may write to it
            self.keep.append(value)
            return ctypes.addressof(value)
        values = [value] if isinstance(value, (bool, int, float)) else list(value)
        return ctypes.addressof(self._array(kind, values))

    def _tensors(self, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, Required):
            self.required.append(value)
            return ctypes.addressof(value.handle)
        if value and all(isinstance(item, Required) for item in value):
            raise TypeError("one result of unknown size is one Required, not a list")
        return ctypes.addressof(self._array(ctypes.c_void_p, [self._tensor(item) for item in value]))

    def convert(self, kind: str, value: Any) -> _Value:
        """Argument of a kind (include/dit/diopi.h) from a Python value; None is NULL where C has a pointer."""
        out = _Value()
        if kind in "ot":
            out.pointer = self._tensor(value)
        elif kind in "OT":
            out.pointer = self._tensors(value)
        elif kind in "ibrmy":
            out.i = int(value)
        elif kind in "fd":
            out.d = float(value)
        elif kind == "z":
            out.size = self._size(value)
        elif kind == "Z":
            size = None if value is None else self._size(value)
            self.keep.append(size)
            out.pointer = None if size is None else ctypes.addressof(size)
        elif kind == "s":
            out.pointer = None if value is None else self._scalar(value)
        elif kind in "IBD":
            types = {"I": ctypes.c_int64, "B": ctypes.c_bool, "D": ctypes.c_double}
            out.pointer = self._pointer(types[kind], value)
        elif kind == "C":
            text = None if value is None else ctypes.create_string_buffer(value.encode())
            self.keep.append(text)
            out.pointer = None if text is None else ctypes.addressof(text)
        elif kind == "g":
            self.keep.append(value)
            out.pointer = None if value is None else ctypes.addressof(value)
        elif kind == "G":
            self.keep.append(value)
            addresses = [ctypes.addressof(item) for item in value or []]
            out.pointer = None if value is None else ctypes.addressof(self._array(ctypes.c_void_p, addresses))
        else:
            raise TypeError(f"arguments of kind {kind!r} cannot be made from Python")
        return out


def _read_required(result: Required) -> None:
    if not result.handle.value:
        return
    view = _core.dit_diopi_tensor_get_view(result.handle).contents
    result.shape = tuple(view.sizes[i] for i in range(view.ndim))
    result.strides = tuple(view.strides[i] for i in range(view.ndim))
    result.dtype = view.dtype
    width = _core.dit_dtype_get_size(view.dtype)
    last = sum((size - 1) * stride for size, stride in zip(result.shape, result.strides, strict=True))
    result.data = ctypes.string_at(view.data, (last + 1) * width) if view.numel else b""


class Library:
    """An open operator library: a name ("host") or the path of a file."""

    def __init__(self, name: str) -> None:
        error = _Error()
        self._handle = ctypes.c_void_p()
        if _core.dit_diopi_library_open(str(name).encode(), ctypes.byref(self._handle), ctypes.byref(error)) != 0:
            raise OSError(error.message.decode(errors="replace"))

    def close(self) -> None:
        """Unload it; calling it again does nothing."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle.value:
            _core.dit_diopi_library_close(handle)

    def has(self, function: str) -> bool:
        """Does the library have this function?"""
        return function in _numbers and bool(_core.dit_diopi_library_get(self._handle, _numbers[function]))

    def list_implemented(self) -> list[str]:
        """Names of the functions it has."""
        return [info.name for info in _functions if self.has(info.name)]

    def describe(self) -> dict[str, Any]:
        """What the library says about itself."""
        native = _Library.from_address(self._handle.value)
        answers: dict[str, Any] = {"library": native.path.decode(errors="replace")}
        for label, function in (("vendor", "diopiGetVendorName"), ("version", "diopiGetImplVersion")):
            address = _core.dit_diopi_library_get(self._handle, _numbers[function])
            text = ctypes.CFUNCTYPE(ctypes.c_char_p)(address)() if address else None
            answers[label] = text.decode(errors="replace") if text else "does not say"
        version = ctypes.CFUNCTYPE(ctypes.c_uint32)(native.ext_get_version)() if native.ext_get_version else None
        answers["extension"] = "none" if version is None else f"{version >> 16}.{version & 0xFFFF}"
        if native.refused:
            answers["extension"] = f"refused: {native.refused.decode(errors='replace')}"
        return answers

    def get_support(self, function: str) -> tuple[int | None, list[str]]:
        """The code of the library's capability query (None: it has none) and the dtypes the function takes."""
        native = _Library.from_address(self._handle.value)
        if not native.ext_get_support:
            return None, []
        query = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_Support))(native.ext_get_support)
        support = _Support(ctypes.sizeof(_Support))
        code = query(function.encode(), ctypes.byref(support))
        return code, [name for name, number in DTYPES.items() if code == SUCCESS and support.dtypes >> number & 1]

    def can_infer(self, function: str) -> bool | None:
        """Does the library tell shapes and dtypes of the function's results before a call? None: it tells none."""
        native = _Library.from_address(self._handle.value)
        if not native.ext_infer_outputs:
            return None
        pointer, count = ctypes.c_void_p, ctypes.c_int64(0)
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, pointer, ctypes.c_int64, pointer, pointer)
        answer = kind(native.ext_infer_outputs)(function.encode(), None, 0, None, ctypes.addressof(count))
        return answer == SUCCESS

    def invoke(self, function: str, *arguments: Any, has_context: bool = True) -> int:
        """Call a function with everything after its context; returns the code."""
        info = _functions[_numbers[function]]
        kinds = info.kinds[1:]
        if len(arguments) != len(kinds):
            raise TypeError(
                f"{function} takes {len(kinds)} arguments after ctx, not {len(arguments)}: {info.parameters}"
            )
        call = _Call()
        context = _core.dit_diopi_context_create(0, None)
        try:
            values = (_Value * len(info.kinds))()
            values[0].pointer = context if has_context else None
            for index, (kind, value) in enumerate(zip(kinds, arguments, strict=True), 1):
                values[index] = call.convert(kind, value)
            code = _core.dit_diopi_invoke(self._handle, _numbers[function], values)
            for result in call.required:
                _read_required(result)
            return code
        finally:
            call.close()
            _core.dit_diopi_context_destroy(context)

    def get_error(self) -> str:
        """The library's text for the last error of this thread."""
        return _core.dit_diopi_library_get_error(self._handle).decode(errors="replace")

    def call(self, function: str, *arguments: Any) -> None:
        """The same; raises Error when the code is not success."""
        code = self.invoke(function, *arguments)
        if code != SUCCESS:
            text = "" if code == NO_IMPLEMENT else self.get_error()
            raise Error(function, code, _core.dit_diopi_get_error_name(code).decode(), text)
