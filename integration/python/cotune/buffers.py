"""Converts buffers of users to addresses: numpy arrays, torch tensors, and objects with the buffer protocol.

Neither numpy nor torch is imported here: if a buffer is an object of theirs, the user has imported them.
"""

import ctypes
import dataclasses
import math
import sys
from typing import Any

from cotune import _structs
from cotune._constant_names import constant
from cotune.constants import DType
from cotune.errors import UsageError, usage_error

# The dtypes by the names that numpy, ml_dtypes and torch have for them.
_DTYPES_BY_NAME = {
    "float32": DType.F32, "float64": DType.F64, "float16": DType.F16, "bfloat16": DType.BF16,
    "int32": DType.I32, "int64": DType.I64, "uint8": DType.U8, "int8": DType.I8, "bool": DType.U8,
    "float8_e4m3fn": DType.F8_E4M3, "float8_e5m2": DType.F8_E5M2,
}  # fmt: skip
# The dtypes by the format characters of the buffer protocol and the bytes of an element.
_DTYPES_BY_FORMAT = {
    ("f", 4): DType.F32, ("d", 8): DType.F64, ("e", 2): DType.F16, ("?", 1): DType.U8,
    **{(sign, 1): DType.I8 for sign in "b"}, **{(sign, 1): DType.U8 for sign in "Bc"},
    **{(sign, 4): DType.I32 for sign in "il"}, **{(sign, 8): DType.I64 for sign in "lq"},
}  # fmt: skip


@dataclasses.dataclass(slots=True)
class Operand:
    """Contiguous elements in memory, with the facts that a call of the C API needs.

    Attributes:
      address: the address of the first element; 0 if there is no memory.
      dtype: the type of an element. Booleans are U8.
      sizes: the dimensions, row-major; () for one element.
      count: the number of elements, computed from sizes.
      device: the ordinal of the GPU that has the memory; None for host memory.
      is_writable: true if calls may write to it.
      is_bool: true if the elements are booleans, which are 0 or 1.
      owner: an object that keeps the memory alive.
    """

    address: int
    dtype: DType
    sizes: tuple[int, ...]
    device: int | None = None
    is_writable: bool = True
    is_bool: bool = False
    owner: Any = dataclasses.field(default=None, repr=False, compare=False)
    count: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.count = math.prod(self.sizes)


@dataclasses.dataclass(frozen=True, slots=True)
class Typed:
    """A buffer whose elements are of another type than its own dtype: bfloat16 in an array of uint16.

    Attributes:
      buffer: anything that `operand` takes.
      dtype: the type of its elements, or its name ("bf16"); they have as many bytes as the buffer's.
    """

    buffer: Any
    dtype: DType | str


# A numpy array, a torch tensor, an object with the buffer protocol, Typed or Operand.
Buffer = Any


def operand(buffer: Buffer, where: str) -> Operand:
    """Returns the address, type and sizes of a buffer. `where` names the buffer in errors.

    Raises UsageError if cotune does not have its type, or if it is not contiguous.
    """
    if isinstance(buffer, Operand):
        return buffer
    wanted = None
    if isinstance(buffer, Typed):
        buffer, wanted = buffer.buffer, constant(DType, buffer.dtype, where)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        return _of_tensor(buffer, wanted, where)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(buffer, numpy.ndarray):
        return _of_array(buffer, wanted, where)
    return _of_protocol(buffer, wanted, where)


def require_writable(made: Operand, where: str) -> Operand:
    """Returns the operand. Raises UsageError if it is read-only."""
    if not made.is_writable:
        raise usage_error(
            "the buffer is read-only",
            where,
            "results are written there",
            "give a writable one, as numpy.copy() or bytearray() makes it",
        )
    return made


def tensors(operands: list[Operand]) -> ctypes.Array:
    """Returns an array of cotune_tensor, which is valid as long as its operands are."""
    made = (_structs.Tensor * len(operands))()
    for tensor, each in zip(made, operands, strict=True):
        tensor.struct_size = ctypes.sizeof(_structs.Tensor)
        tensor.dtype = each.dtype
        tensor.data = each.address if each.count else None
        tensor.size_count = len(each.sizes)
        # ctypes keeps the array alive that is assigned to a pointer field.
        tensor.sizes = (ctypes.c_int64 * len(each.sizes))(*each.sizes)
    return made


def _not_contiguous(where: str, how: str) -> UsageError:
    return usage_error(
        "the buffer is not contiguous",
        where,
        "calls work on rows that follow each other without a gap",
        f"give a copy ({how}), and copy results back",
    )


def _dtype_of(
    known: DType | None, name: object, size_bytes: int, wanted: DType | None, where: str
) -> DType:
    """Returns the type of the elements: `wanted`, the type of a Typed, or else `known`.

    Raises UsageError if `wanted` has another size, or if both are None. `name` is the type for the text.
    """
    if wanted is not None and wanted.size_bytes == size_bytes:
        return wanted
    if wanted is not None:
        raise usage_error(
            f"elements of type {name} have {size_bytes} bytes, and {wanted.name.lower()} has "
            f"{wanted.size_bytes}",
            where,
            next_step="give a buffer of integers of that size",
        )
    if known is not None:
        return known
    names = ", ".join(each.name.lower() for each in DType)
    raise usage_error(
        f"cotune has no elements of type {name}",
        where,
        next_step=f"convert them to one of {names}",
    )


def _of_tensor(tensor: Any, wanted: DType | None, where: str) -> Operand:
    name = str(tensor.dtype).removeprefix("torch.")
    dtype = _dtype_of(_DTYPES_BY_NAME.get(name), tensor.dtype, tensor.element_size(), wanted, where)
    if tensor.device.type not in ("cpu", "cuda"):
        raise usage_error(
            f"the tensor is on {tensor.device}",
            where,
            "only cpu and cuda have memory that ranks reach",
            "move it with Tensor.to()",
        )
    if str(tensor.layout) != "torch.strided" or not tensor.is_contiguous():
        raise _not_contiguous(where, "Tensor.contiguous()")
    if tensor.is_neg():
        raise usage_error(
            "the tensor is a lazy negation",
            where,
            "its memory holds the other sign",
            "give Tensor.resolve_neg()",
        )
    return Operand(
        address=tensor.data_ptr(),
        dtype=dtype,
        sizes=tuple(tensor.shape),
        device=tensor.device.index if tensor.device.type == "cuda" else None,
        is_bool=name == "bool" and wanted is None,
        owner=tensor,
    )


def _of_array(array: Any, wanted: DType | None, where: str) -> Operand:
    name = array.dtype.name
    known = _DTYPES_BY_NAME.get(name) if array.dtype.isnative else None
    dtype = _dtype_of(known, array.dtype, array.itemsize, wanted, where)
    if not array.flags.c_contiguous:
        raise _not_contiguous(where, "numpy.ascontiguousarray()")
    return Operand(
        address=array.__array_interface__["data"][0],
        dtype=dtype,
        sizes=array.shape,
        is_writable=array.flags.writeable,
        is_bool=name == "bool" and wanted is None,
        owner=array,
    )


def _of_protocol(buffer: Any, wanted: DType | None, where: str) -> Operand:
    try:
        view = memoryview(buffer)
    except TypeError:
        raise usage_error(
            f"a {type(buffer).__name__} is no buffer",
            where,
            next_step="give a numpy array, a torch tensor or an array.array",
        ) from None
    if not view.c_contiguous:
        raise _not_contiguous(where, "bytearray()")
    kind = view.format
    if kind[:1] in ("@", "=", "<" if sys.byteorder == "little" else ">"):
        kind = kind[1:]
    known = _DTYPES_BY_FORMAT.get((kind, view.itemsize))
    dtype = _dtype_of(known, repr(view.format), view.itemsize, wanted, where)
    return Operand(
        address=_address_of(view),
        dtype=dtype,
        sizes=tuple(view.shape),
        is_writable=not view.readonly,
        is_bool=kind == "?" and wanted is None,
        owner=view,  # a view also keeps an array.array from being resized
    )


class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python's stable ABI. Only `buf` is read."""

    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    ]  # fmt: skip


def _address_of(view: memoryview) -> int:
    """Returns the address of a view. ctypes' from_buffer cannot be used, because it refuses read-only memory."""
    found = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(found), 0)
    address = found.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(found))
    return address or 0
