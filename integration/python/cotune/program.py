"""Programs: collectives with the local operations around them (docs/programs.md)."""

import ctypes
import dataclasses
import pathlib
import weakref

from cotune import _structs
from cotune._constant_names import constant
from cotune._native import library
from cotune.buffers import Buffer, Operand, operand, tensors
from cotune.constants import DType, Result
from cotune.errors import CotuneError, MachineError, error_of, usage_error


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """The type of an output of a call.

    Attributes:
      dtype: the type of an element.
      rows, columns: the shape [rows, columns].
      into: the number, from 0, of the input that it overwrites; None if it overwrites none.
      is_replicated: true if it is equal on every rank, given that inputs marked `replicated` are.
    """

    dtype: DType
    rows: int
    columns: int
    into: int | None
    is_replicated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The type of an operand without its memory, for Program.infer and Group.prepare."""

    dtype: DType | str
    sizes: tuple[int, ...]


class Program:
    """A parsed program. It belongs to no group, and any thread may use it."""

    def __init__(self, text: str):
        """Parses a text of at most 64 KiB. Raises UsageError, which names line and column, for a text that is no program."""
        self.text = text
        self._library = library()
        encoded = text.encode()
        handle, error = ctypes.c_void_p(), _structs.Error()
        result = self._library.cotune_program_parse(
            encoded, len(encoded), ctypes.byref(handle), ctypes.byref(error)
        )
        if result != Result.SUCCESS:
            raise error_of(result, error.text.decode(errors="replace"))
        self._handle = handle
        # The program is not freed at the end of the process, because a group may still use it.
        weakref.finalize(self, self._library.cotune_program_free, handle).atexit = False

    @classmethod
    def parse(cls, text: str) -> "Program":
        return cls(text)

    @classmethod
    def read(cls, path: str | pathlib.Path) -> "Program":
        """Reads and parses a file. Raises MachineError if it cannot be read, and UsageError if its text is no program.

        Both name the file.
        """
        try:
            return cls(pathlib.Path(path).read_text(encoding="utf-8"))
        except OSError as failure:
            raise MachineError(f"the program cannot be read ({path}): {failure.strerror or failure}") from failure
        except UnicodeDecodeError as failure:
            raise usage_error(
                f"byte {failure.start + 1} is no UTF-8", str(path), "the file is no text", "give the file of a program"
            ) from failure
        except CotuneError as failure:
            raise type(failure)(f"{path}: {failure.text}", failure.rank) from failure

    @property
    def handle(self) -> ctypes.c_void_p:
        """The cotune_program of the C API. This object owns it."""
        return self._handle

    @property
    def digest(self) -> int:
        """A number that is equal for programs that differ only in names."""
        return self._library.cotune_program_digest(self._handle)

    @property
    def input_count(self) -> int:
        return self._library.cotune_program_input_count(self._handle)

    @property
    def output_count(self) -> int:
        return self._library.cotune_program_output_count(self._handle)

    def infer(self, inputs: "list[Buffer | Shape]", world_size: int) -> list[Value]:
        """Returns the types of the outputs for these inputs in a group of world_size ranks.

        Args:
          inputs: buffers or shapes; only their types and sizes count.
          world_size: the number of ranks.

        Raises UsageError if the inputs do not fit the program.
        """
        made = tensors([shape_operand(each, f"input {i + 1}") for i, each in enumerate(inputs)])
        count = self.output_count
        outputs = (_structs.ProgramValue * count)()
        for each in outputs:
            each.struct_size = ctypes.sizeof(_structs.ProgramValue)
        error = _structs.Error()
        result = self._library.cotune_program_infer(
            self._handle, world_size, made, len(made), outputs, count, ctypes.byref(error)
        )
        if result != Result.SUCCESS:
            raise error_of(result, error.text.decode(errors="replace"))
        return [
            Value(DType(each.dtype), each.rows, each.columns, each.into if each.into >= 0 else None,
                  each.is_replicated != 0)
            for each in outputs
        ]  # fmt: skip

    def __repr__(self) -> str:
        return f"<cotune.Program {self.digest:016x}>"


def shape_operand(buffer: "Buffer | Shape", where: str) -> Operand:
    """Returns the operand of a buffer, or of a Shape, which has the address 0."""
    if not isinstance(buffer, Shape):
        return operand(buffer, where)
    if any(size < 0 for size in buffer.sizes):
        raise usage_error(f"a size of {tuple(buffer.sizes)} is negative", where)
    return Operand(address=0, dtype=constant(DType, buffer.dtype, where), sizes=tuple(buffer.sizes))
