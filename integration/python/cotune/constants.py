"""The constants of cotune.h as enumerations."""

import enum


class Result(enum.IntEnum):
    """Why a call failed (`cotune_result`)."""

    SUCCESS = 0
    ERROR_INTERNAL = 1
    ERROR_USAGE = 2
    ERROR_ENVIRONMENT = 3
    ERROR_WRONG_RESULT = 4
    ERROR_RANK_LOST = 5
    ERROR_DEADLINE = 6
    ERROR_DATABASE = 7
    ERROR_PLUGIN = 8
    ERROR_ABORTED = 9
    ERROR_UNSUPPORTED = 10
    ERROR_INTERRUPTED = 11
    ERROR_DISAGREEMENT = 12


class Collective(enum.IntEnum):
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BROADCAST = 5

    @property
    def reduces(self) -> bool:
        return self is Collective.ALL_REDUCE or self is Collective.REDUCE_SCATTER


class DType(enum.IntEnum):
    """The type of an element. The last three are stored, moved and cast, but never reduced."""

    F32 = 1
    F64 = 2
    F16 = 3
    BF16 = 4
    I32 = 5
    I64 = 6
    U8 = 7
    I8 = 8
    F8_E4M3 = 9  # without infinity
    F8_E5M2 = 10

    @property
    def size_bytes(self) -> int:
        return _SIZES_BYTES[self]


_SIZES_BYTES = {
    DType.F32: 4, DType.F64: 8, DType.F16: 2, DType.BF16: 2, DType.I32: 4, DType.I64: 8,
    DType.U8: 1, DType.I8: 1, DType.F8_E4M3: 1, DType.F8_E5M2: 1,
}  # fmt: skip


class Reduction(enum.IntEnum):
    SUM = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    AVERAGE = 5  # for integers the sum, which may wrap around, divided and rounded toward zero


class GroupMemory(enum.IntEnum):
    """The kind of memory that has the buffers of a group's calls."""

    HOST = 0
    CUDA = 1


class Numerics(enum.IntEnum):
    """The rule about the bits of results, which may depend on the choice that runs."""

    DEFAULT = 0  # the rule of the last tune of the group; before the first tune, the setting numerics
    ANY = 1  # any choice may run
    SAME = 2  # only choices with the same bits as the default choice may run
