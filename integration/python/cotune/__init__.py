"""cotune finds the fastest way to run each collective on your machine, and runs it that way.

    import cotune
    import numpy

    # Started by `cotune run --ranks 2 -- python program.py`, by torchrun, mpirun, ...
    with cotune.Group() as group:
        values = numpy.full(1 << 16, group.rank + 1, dtype=numpy.float32)
        group.all_reduce(values)

libcotune is loaded when a group or a program is made: from this package, or from the file that the
variable COTUNE_LIBRARY names.
"""

from cotune._native import VERSION, library
from cotune.buffers import Buffer, Operand, Typed, operand
from cotune.constants import Collective, DType, GroupMemory, Numerics, Reduction, Result
from cotune.errors import (
    AbortedError,
    CallInterruptedError,
    CotuneError,
    DatabaseError,
    DeadlineError,
    DisagreementError,
    InternalError,
    MachineError,
    PluginError,
    RankLostError,
    UnsupportedError,
    UsageError,
    WrongResultError,
)
from cotune.functions import Function, FunctionCall, FunctionGroup, Functions
from cotune.group import Group
from cotune.memory import Memory
from cotune.program import Program, Shape, Value
from cotune.store import Store
from cotune.tune import Node, TuneReport

__version__ = ".".join(map(str, VERSION))


def version() -> str:
    """Returns the version of libcotune, "0.1.0". Raises MachineError if it cannot be loaded."""
    return library().cotune_version().decode()


def exit_code(failure: CotuneError) -> int:
    """Returns the exit code that the command line gives for this failure: 1 to 5, 7, 8 or 130."""
    return library().cotune_exit_code(failure.result)


__all__ = [
    "AbortedError", "Buffer", "CallInterruptedError", "Collective", "CotuneError", "DType",
    "DatabaseError", "DeadlineError", "DisagreementError", "Function", "FunctionCall",
    "FunctionGroup", "Functions", "Group", "GroupMemory", "InternalError",
    "MachineError", "Memory", "Node", "Numerics", "Operand", "PluginError", "Program",
    "RankLostError", "Reduction", "Result", "Shape", "Store", "TuneReport", "Typed",
    "UnsupportedError", "UsageError", "Value", "WrongResultError", "exit_code", "operand",
    "version",
]  # fmt: skip
