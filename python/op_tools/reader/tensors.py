"""The values that a captured file may hold beyond plain ones, made by our own code: tensors of every kind, storages,
types, devices, generators, arrays.

A stream names torch's (or a vendor's) rebuild function; the name only chooses a function of this file. Every size,
stride and offset is checked against the storage before a tensor is made, so that no tensor reaches outside its memory.
Everything is made on the CPU. Depends on: limits, values.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from .limits import Budget, Constructor, Refused, Unknown, make_set, one_line
from .values import (
    INT64,
    Generator,
    NumpyArray,
    NumpyDtype,
    check_bool,
    check_int,
    check_ints,
    check_span,
    check_type,
    get_numpy,
    make_complex,
    make_device,
    make_nothing,
    make_range,
    make_slice,
)

STORAGES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "BFloat16": torch.bfloat16,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
    "QUInt8": torch.quint8,
    "QInt8": torch.qint8,
    "QInt32": torch.qint32,
    "QUInt4x2": torch.quint4x2,
    "QUInt2x4": torch.quint2x4,
    "Untyped": None,
}
VENDOR = re.compile(r"torch_[a-z0-9]+(\.\w+)*", re.ASCII)
VENDOR_TENSOR = re.compile(r"_?rebuild_[a-z0-9]+_tensor", re.ASCII)
VENDOR_STORAGE = re.compile(r"([A-Z][A-Za-z0-9]*)Storage", re.ASCII)
LAYOUTS = {str(value): value for value in vars(torch).values() if isinstance(value, torch.layout)}
CONSTANTS = {
    name: value
    for name, value in vars(torch).items()
    if isinstance(value, (torch.dtype, torch.qscheme, torch.memory_format, torch.layout))
}


class StorageType:
    """The class in a storage's id: its element type, None for bytes."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.dtype = dtype


class Rebuilder:
    """Constructors for one file. `storage(key, size in bytes)` gives an untyped storage of the file."""

    def __init__(self, storage: Callable[[str, int], torch.UntypedStorage], budget: Budget) -> None:
        self.get_storage, self.budget = storage, budget
        self.bytes = 0
        self.unsettled = False
        """Something was made that settle() must finish."""
        self.locations: dict[int, str] = {}
        """Where storages were, by the address of their C object."""
        self.swap = False
        """The file has the other byte order."""
        self.swapped: dict[str, torch.dtype] = {}
        self.table = self._make_table()

    # Names

    def find(self, module: str, name: str) -> Any:
        """The value of a name; Unknown for one that is in no table."""
        found = self.table.get((module, name))
        if found is not None:
            return found
        if module == "torch.return_types":
            return self._find_return_type(name)
        if module in ("torch", "torch.cuda", "torch.storage") or VENDOR.fullmatch(module):
            match = VENDOR_STORAGE.fullmatch(name)
            if match and match[1] in STORAGES:
                return StorageType(STORAGES[match[1]])
            if re.fullmatch(r"[A-Z][A-Za-z0-9]*Tensor", name, re.ASCII):
                return f"{module}.{name}"  # Tensor.type() takes it as text, too
        if VENDOR.fullmatch(module):
            if VENDOR_TENSOR.fullmatch(name):
                return Constructor(f"{module}.{name}", self.make_vendor_tensor)
            if name == "Format":  # of memory on the device: says nothing about the bytes of the file
                return Constructor(f"{module}.{name}", lambda number: check_int(number, "a format", -1))
        return Unknown(f"{module}.{name}")

    def _find_return_type(self, name: str) -> Any:
        kind = vars(torch.return_types).get(name)
        if not isinstance(kind, type) or not issubclass(kind, tuple):
            return Constructor(f"torch.return_types.{one_line(name, 40)}", lambda values, *_: tuple(values))

        def make(values: Any, _names: Any = None) -> Any:
            if type(values) not in (tuple, list) or len(values) != kind.n_sequence_fields:
                raise Refused(f"torch.return_types.{name} has {kind.n_sequence_fields} members")
            return kind(tuple(values))

        return Constructor(f"torch.return_types.{name}", make)

    def _make_table(self) -> dict[tuple[str, str], Any]:
        table: dict[tuple[str, str], Any] = {("torch", name): value for name, value in CONSTANTS.items()}
        for builtins in ("builtins", "__builtin__"):
            table[builtins, "Ellipsis"] = Ellipsis
            table[builtins, "NotImplemented"] = NotImplemented
        for name, make in self._list_constructors().items():
            module, _, last = name.rpartition(".")
            for place in {module, module.replace("builtins", "__builtin__")}:
                table[place, last] = Constructor(name, make)
        return table

    def _list_constructors(self) -> dict[str, Callable]:
        return {
            "builtins.slice": make_slice,
            "builtins.range": make_range,
            "builtins.xrange": make_range,
            "builtins.complex": make_complex,
            "builtins.set": lambda items=(): make_set(set, check_type(items, (list, tuple), "a set"), self.budget),
            "builtins.frozenset": lambda items=(): make_set(
                frozenset, check_type(items, (list, tuple), "a set"), self.budget
            ),
            "builtins.bytearray": self.make_bytearray,
            "builtins.bytes": lambda *items: bytes(self.make_bytearray(*items)),
            "_codecs.encode": self.make_bytes,
            "collections.OrderedDict": self.make_ordered_dict,
            "torch.Size": lambda values=(): torch.Size(check_ints(values, "torch.Size", -INT64)),
            "torch.device": make_device,
            "torch.serialization._get_layout": lambda name: LAYOUTS[check_type(name, str, "a layout")],
            "torch.Generator": self.make_generator,
            "torch._C.Generator": self.make_generator,
            "torch._utils._rebuild_tensor": self.make_tensor,
            "torch._utils._rebuild_tensor_v2": self.make_tensor_v2,
            "torch._utils._rebuild_tensor_v3": self.make_tensor_v3,
            "torch._utils._rebuild_parameter": make_parameter,
            "torch._utils._rebuild_parameter_with_state": make_parameter,
            "torch._utils._rebuild_qtensor": self.make_quantized,
            "torch._utils._rebuild_sparse_tensor": self.make_sparse,
            "torch._utils._rebuild_sparse_csr_tensor": self.make_sparse,
            "torch._utils._rebuild_nested_tensor": self.make_nested,
            "torch._utils._rebuild_meta_tensor_no_storage": self.make_meta,
            "torch._utils._rebuild_device_tensor_from_cpu_tensor": self.make_converted,
            "torch._utils._rebuild_device_tensor_from_numpy": self.make_converted,
            "torch._utils._rebuild_xla_tensor": self.make_converted,
            "torch._tensor._rebuild_from_type": self.make_typed,
            "torch._tensor._rebuild_from_type_v2": self.make_typed,
            "numpy.dtype": self.make_numpy_dtype,
            "numpy.core.multiarray.scalar": self.make_numpy_scalar,
            "numpy._core.multiarray.scalar": self.make_numpy_scalar,
            "numpy.core.multiarray._reconstruct": self.make_numpy_array,
            "numpy._core.multiarray._reconstruct": self.make_numpy_array,
            "numpy._core.numeric._frombuffer": self.make_numpy_from_buffer,
            "numpy.core.numeric._frombuffer": self.make_numpy_from_buffer,
            "numpy.ndarray": make_nothing,
        }

    # Plain values

    def make_bytes(self, text: Any, code: Any = "latin1") -> bytes:
        if type(text) is not str or code not in ("latin1", "latin-1", "utf-8", "utf8", "ascii"):
            raise Refused("bytes are not written as text")
        self.budget.charge(0, len(text))
        return text.encode("latin1" if code in ("latin1", "latin-1") else "utf-8")

    def make_bytearray(self, data: Any = b"", code: Any = "latin-1") -> bytearray:
        if type(data) is str:
            data = self.make_bytes(data, code)
        self.budget.charge(0, len(check_type(data, (bytes, bytearray), "a bytearray")))
        return bytearray(data)

    def make_ordered_dict(self, items: Any = ()) -> OrderedDict:
        if type(items) not in (tuple, list) or items:
            raise Refused("an OrderedDict is filled by its constructor")  # Python 3 fills it afterwards
        return OrderedDict()

    # Tensors

    def load_storage(self, identity: Any) -> Any:
        """A storage by its persistent id."""
        key, kind, count = parse_identity(identity)
        dtype = kind or torch.uint8
        storage = self.get_storage(key, count * dtype.itemsize)
        if self.swap:
            self._swap_bytes(key, storage, dtype)
        self.locations[storage._cdata] = one_line(identity[3], 64) if type(identity[3]) is str else ""
        if kind is None:
            return storage
        return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)

    def _swap_bytes(self, key: str, storage: torch.UntypedStorage, dtype: torch.dtype) -> None:
        if key not in self.swapped:
            self.swapped[key] = dtype
            if storage.nbytes():
                storage.byteswap(dtype)
        elif self.swapped[key] is not dtype:
            raise Refused("a storage of the other byte order has tensors of several types")

    def _count_bytes(self, numel: int, dtype: torch.dtype) -> None:
        self.bytes += numel * dtype.itemsize
        if self.bytes > self.budget.limits.bytes:
            raise Refused(f"its tensors have more than {self.budget.limits.bytes} bytes")

    def make_tensor(self, storage: Any, offset: Any, size: Any, stride: Any, dtype: Any = None) -> torch.Tensor:
        untyped, own = split_storage(storage)
        dtype = own if dtype is None else check_type(dtype, torch.dtype, "the type of a tensor")
        size, stride = check_ints(size, "the size of a tensor"), check_ints(stride, "the stride of a tensor")
        check_int(offset, "the offset of a tensor")
        numel = check_span(size, stride, offset, untyped.nbytes() // dtype.itemsize)
        self._count_bytes(numel, dtype)
        return torch.empty(0, dtype=dtype).set_(untyped, offset, size, stride)

    def make_tensor_v2(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        requires_grad: Any = False,
        _hooks: Any = None,
        metadata: Any = None,
        dtype: Any = None,
    ) -> torch.Tensor:
        tensor = self.make_tensor(storage, offset, size, stride, dtype)
        if metadata:
            set_metadata(tensor, metadata)
        return tensor.requires_grad_() if check_bool(requires_grad, "requires_grad") else tensor

    def make_tensor_v3(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        grad: Any,
        _hooks: Any,
        dtype: Any,
        metadata: Any = None,
    ) -> torch.Tensor:
        return self.make_tensor_v2(storage, offset, size, stride, grad, None, metadata, dtype)

    def make_vendor_tensor(self, *arguments: Any) -> torch.Tensor:
        """torch_npu.utils.storage._rebuild_npu_tensor and the like: torch's own six arguments, then the vendor's."""
        if len(arguments) < 4:
            raise Refused("a vendor's tensor has too few parts")
        return self.make_tensor_v2(*arguments[:6])

    def make_typed(self, function: Any, _kind: Any, arguments: Any, _state: Any) -> torch.Tensor:
        """A tensor with Python attributes, or of a subclass: the plain tensor."""
        if not isinstance(function, Constructor) or type(arguments) is not tuple:
            raise Refused("a tensor is not made by a function of torch")
        return check_type(function.make(*arguments), torch.Tensor, "what should be a tensor")

    def make_converted(self, data: Any, dtype: Any, _device: Any, requires_grad: Any = False) -> torch.Tensor:
        if isinstance(data, NumpyArray):
            data = torch.from_numpy(data.get().copy())
        check_dense(data, "the data of a tensor")
        self._count_bytes(data.numel(), check_type(dtype, torch.dtype, "the type of a tensor"))
        tensor = data.detach().to(dtype)
        return tensor.requires_grad_() if check_bool(requires_grad, "requires_grad") else tensor

    def make_meta(self, dtype: Any, size: Any, stride: Any, requires_grad: Any = False) -> torch.Tensor:
        size, stride = check_ints(size, "the size of a tensor"), check_ints(stride, "the stride of a tensor")
        check_type(dtype, torch.dtype, "the type of a tensor")
        check_span(size, stride, 0, INT64 >> 5)
        made = torch.empty_strided(size, stride, dtype=dtype, device="meta")
        return made.requires_grad_() if check_bool(requires_grad, "requires_grad") else made

    def make_quantized(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        scheme: Any,
        requires_grad: Any = False,
        _hooks: Any = None,
    ) -> torch.Tensor:
        untyped, dtype = split_storage(storage)
        size, stride = check_ints(size, "the size of a tensor"), check_ints(stride, "the stride of a tensor")
        packed = {torch.quint4x2: 2, torch.quint2x4: 4}.get(dtype, 1)
        room = untyped.nbytes() // dtype.itemsize * packed
        numel = check_span(size, stride, check_int(offset, "the offset of a tensor"), room)
        if numel > room or packed > 1:
            raise Refused("a quantized tensor is larger than its storage, or packed below one byte")
        if type(scheme) is not tuple or not scheme:
            raise Refused("a quantized tensor has no scheme")
        self._count_bytes(numel, dtype)
        made = make_empty_quantized(size, dtype, scheme)
        made.set_(storage, offset, size, stride)
        return made

    def make_sparse(self, layout: Any, data: Any) -> torch.Tensor:
        if type(data) is not tuple or not 3 <= len(data) <= 4:
            raise Refused("a sparse tensor has not the parts of one")
        if layout is torch.sparse_coo:
            indices, values, size = data[:3]
            flag = check_bool(data[3], "is_coalesced") if len(data) == 4 and data[3] is not None else None
            tensors = (indices, values)
        else:
            check_type(layout, torch.layout, "the layout of a sparse tensor")
            compressed, plain, values, size = data
            tensors = (compressed, plain, values)
        for tensor in tensors:
            check_dense(tensor, "a part of a sparse tensor")
        shape = check_ints(size, "the size of a sparse tensor")
        check_span(shape, (0,) * len(shape), 0, 1)
        if layout is torch.sparse_coo:
            return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True, is_coalesced=flag)
        return torch.sparse_compressed_tensor(*tensors, shape, layout=layout, check_invariants=True)

    def make_nested(self, buffer: Any, sizes: Any, strides: Any, offsets: Any) -> torch.Tensor:
        for tensor in (buffer, sizes, strides, offsets):
            check_dense(tensor, "a part of a nested tensor")
        same = sizes.shape == strides.shape and sizes.dim() == 2 and offsets.shape == sizes.shape[:1]
        whole = all(t.dtype == torch.int64 and t.is_contiguous() for t in (sizes, strides, offsets))
        if not (same and whole) or buffer.dim() != 1 or not buffer.is_contiguous():
            raise Refused("a nested tensor has not the parts of one")
        self.budget.charge(sizes.numel() + strides.numel() + offsets.numel())
        for size, stride, offset in zip(sizes.tolist(), strides.tolist(), offsets.tolist(), strict=True):
            size, stride = check_ints(size, "the size of a tensor"), check_ints(stride, "the stride of a tensor")
            check_span(size, stride, check_int(offset, "the offset of a tensor"), buffer.numel())
        return torch._nested_view_from_buffer(buffer, sizes, strides, offsets)

    # What is finished afterwards

    def make_generator(self, device: Any = "cpu") -> Generator:
        self.unsettled = True
        return Generator(device if isinstance(device, torch.device) else make_device(device))

    def make_numpy_dtype(self, code: Any, *_flags: Any) -> NumpyDtype:
        if type(code) is not str or not re.fullmatch(r"b1|[iu][1248]|f[248]|c8|c16", code, re.ASCII):
            raise Refused("an array is not one of numbers")
        self.unsettled = True
        return NumpyDtype(code)

    def make_numpy_scalar(self, dtype: Any, data: Any = b"") -> Any:
        kind = check_type(dtype, NumpyDtype, "the type of an array").get()
        if type(data) is not bytes or len(data) != kind.itemsize:
            raise Refused("a number of an array has not the bytes of one")
        return get_numpy().frombuffer(data, dtype=kind)[0]

    def make_numpy_array(self, _kind: Any, _shape: Any, _code: Any) -> Any:
        return NumpyArray(self.budget)

    def make_numpy_from_buffer(self, data: Any, dtype: Any, shape: Any, order: Any) -> Any:
        array = NumpyArray(self.budget)
        array.build((1, shape, dtype, order == "F", bytes(check_type(data, (bytes, bytearray), "an array"))))
        return array


def parse_identity(identity: Any) -> tuple[str, torch.dtype | None, int]:
    """Key, type and number of elements of ("storage", type, key, location, number of elements)."""
    if type(identity) is not tuple or len(identity) not in (5, 6):
        raise Refused("a storage has no id that is known")
    word, kind, key, _location, count = identity[:5]
    if type(word) is not str or word != "storage" or not isinstance(kind, StorageType) or type(key) is not str:
        raise Refused("a storage has no id that is known")
    if len(identity) == 6 and identity[5] is not None:
        raise Refused("a storage is a part of another one, as torch wrote it before 0.4")
    return key, kind.dtype, check_int(count, "the number of elements of a storage")


def check_dense(tensor: Any, what: str) -> None:
    """What is copied or walked must not be larger than its memory, as a tensor with a stride of 0 is."""
    check_type(tensor, torch.Tensor, what)
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested or tensor.is_quantized:
        raise Refused(f"{what} is no plain tensor")
    if tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
        raise Refused(f"{what} is larger than its storage")


def split_storage(storage: Any) -> tuple[torch.UntypedStorage, torch.dtype]:
    if isinstance(storage, torch.UntypedStorage):
        return storage, torch.uint8
    if isinstance(storage, torch.storage.TypedStorage):
        return storage._untyped_storage, storage.dtype
    raise Refused("a tensor has no storage")


def set_metadata(tensor: torch.Tensor, metadata: Any) -> None:
    if type(metadata) is not dict or not set(metadata) <= {"conj", "neg"}:
        raise Refused("a tensor has properties other than conj and neg")
    flags = {name: check_bool(value, name) for name, value in metadata.items()}
    if flags.get("conj") and not tensor.is_complex():
        raise Refused("a tensor that is not complex is said to be conjugated")
    if flags.get("neg") and not (tensor.is_floating_point() or tensor.is_complex()):
        raise Refused("a tensor of whole numbers is said to be negated")
    torch._C._set_tensor_metadata(tensor, flags)


def make_parameter(data: Any, requires_grad: Any, _hooks: Any = None, _state: Any = None) -> torch.nn.Parameter:
    check_type(data, torch.Tensor, "the data of a parameter")
    return torch.nn.Parameter(data.detach(), check_bool(requires_grad, "requires_grad"))


def make_empty_quantized(size: tuple[int, ...], dtype: torch.dtype, scheme: tuple) -> torch.Tensor:
    if scheme[0] is torch.per_tensor_affine and len(scheme) == 3:
        scale, zero = check_type(scheme[1], float, "a scale"), check_int(scheme[2], "a zero point", -INT64)
        return torch._empty_affine_quantized(size, scale=scale, zero_point=zero, dtype=dtype)
    if scheme[0] not in (torch.per_channel_affine, torch.per_channel_affine_float_qparams) or len(scheme) != 4:
        raise Refused("a quantized tensor has a scheme that is not known")
    axis = check_int(scheme[3], "the axis of a quantized tensor", 0, len(size) - 1)
    for part in scheme[1:3]:
        check_dense(part, "a scale of a quantized tensor")
        if part.shape != (size[axis],):
            raise Refused("the scales of a quantized tensor do not fit its size")
    return torch._empty_per_channel_affine_quantized(
        size, scales=scheme[1], zero_points=scheme[2], axis=axis, dtype=dtype
    )
