"""libparts.so by ctypes: parts of a program as a plugin prepares them."""

import ctypes
import dataclasses

MEMORY_HOST, MEMORY_CUDA = 1, 2
# Dtypes of cotune.h, by their number.
DTYPES = ("", "f32", "f64", "f16", "bf16", "i32", "i64", "u8", "i8", "f8_e4m3", "f8_e5m2")
ERROR_BYTES = 4096


class Failed(RuntimeError):
    """A part cannot be prepared or launched; cotune's own words."""


class _Value(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int32), ("into", ctypes.c_int32), ("rows", ctypes.c_uint64),
                ("columns", ctypes.c_uint64), ("slot", ctypes.c_int32), ("reserved", ctypes.c_uint32)]


@dataclasses.dataclass(frozen=True)
class Value:
    """What a part reads or writes. `slot` is its place in the program: inputs, then outputs, then values between steps."""

    dtype: str
    rows: int
    columns: int
    slot: int
    into: int  # of an output: the input of the part that it overwrites, or -1


class Parts:
    """The parts of one program at one number of rows. Use it as a context manager, or call close."""

    def __init__(self, library: str, plugin: str, text: str, rows: int, ranks: int, memory: int, device: int = 0):
        self._library = ctypes.CDLL(library)
        self._declare()
        self._error = ctypes.create_string_buffer(ERROR_BYTES)
        self._parts = self._library.cotune_parts_prepare(plugin.encode(), text.encode(), rows, ranks, memory, device,
                                                          self._error, ERROR_BYTES)
        if not self._parts:
            raise Failed(self._error.value.decode(errors="replace"))
        self.count = self._library.cotune_parts_count(self._parts)

    def _declare(self) -> None:
        library, pointer, number, index = self._library, ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64
        text = ctypes.c_char_p
        for name, result, arguments in (
                ("cotune_parts_prepare", pointer, [text, text, index, number, number, number, text, index]),
                ("cotune_parts_free", None, [pointer]),
                ("cotune_parts_count", index, [pointer]),
                ("cotune_parts_value_count", index, [pointer, index, number]),
                ("cotune_parts_value", _Value, [pointer, index, number, index]),
                ("cotune_parts_collective_slot", number, [pointer, index]),
                ("cotune_parts_launch", number, [pointer, index, ctypes.POINTER(pointer), ctypes.POINTER(pointer), pointer, text,
                                          index])):
            getattr(library, name).restype = result
            getattr(library, name).argtypes = arguments

    def _values(self, part: int, is_output: bool) -> list[Value]:
        values = []
        for i in range(self._library.cotune_parts_value_count(self._parts, part, is_output)):
            seen = self._library.cotune_parts_value(self._parts, part, is_output, i)
            values.append(Value(DTYPES[seen.dtype], seen.rows, seen.columns, seen.slot, seen.into))
        return values

    def inputs(self, part: int) -> list[Value]:
        return self._values(part, False)

    def outputs(self, part: int) -> list[Value]:
        return self._values(part, True)

    def collective_slots(self) -> list[int]:
        """The slots of the values that the program's collectives define, in their order."""
        slots = []
        while (slot := self._library.cotune_parts_collective_slot(self._parts, len(slots))) >= 0:
            slots.append(slot)
        return slots

    def launch(self, part: int, inputs: list[int], outputs: list[int], stream: int = 0) -> None:
        """Addresses, in the order of `inputs` and `outputs`."""
        addresses = [(ctypes.c_void_p * len(each))(*each) for each in (inputs, outputs)]
        if self._library.cotune_parts_launch(self._parts, part, *addresses, stream, self._error, ERROR_BYTES):
            raise Failed(self._error.value.decode(errors="replace"))

    def close(self) -> None:
        if self._parts:
            self._library.cotune_parts_free(self._parts)
        self._parts = None

    def __enter__(self) -> "Parts":
        return self

    def __exit__(self, *_) -> None:
        self.close()
