"""libcotune by ctypes: what a program in another language has of cotune.h."""

import ctypes
import dataclasses
from collections.abc import Callable

MEMORY_HOST, MEMORY_CUDA = 0, 1
SUM = 1
# cotune_dtype, by name.
DTYPES = {"f32": 1, "f64": 2, "f16": 3, "bf16": 4, "i32": 5, "i64": 6, "u8": 7, "i8": 8, "f8_e4m3": 9, "f8_e5m2": 10}


class Error(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("result", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("reserved", ctypes.c_uint32), ("text", ctypes.c_char * 1024)]


class GroupOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("rank", ctypes.c_int32), ("world_size", ctypes.c_int32),
                ("memory", ctypes.c_int32), ("job_id", ctypes.c_char_p), ("socket_path", ctypes.c_char_p),
                ("plugin_path", ctypes.c_char_p), ("backends", ctypes.c_char_p), ("join_timeout_ns", ctypes.c_int64),
                ("call_timeout_ns", ctypes.c_int64), ("log", ctypes.c_void_p), ("log_context", ctypes.c_void_p),
                ("ignores_database", ctypes.c_int32), ("reserved", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    """Two dimensions; `sizes` has to outlive it."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("dtype", ctypes.c_int32), ("data", ctypes.c_void_p),
                ("size_count", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("sizes", ctypes.POINTER(ctypes.c_int64))]


@dataclasses.dataclass(frozen=True)
class Operand:
    """Of a program's call: an address, and what lies there."""

    address: int
    dtype: str
    rows: int
    columns: int


class Failed(RuntimeError):
    """A call of cotune failed; its own words."""


class Group:
    """The group of all ranks that the environment names (COTUNE_RANK, ...)."""

    def __init__(self, library: str, memory: int, plugins: str = ""):
        self._library = ctypes.CDLL(library)
        self._declare()
        options = GroupOptions(struct_size=ctypes.sizeof(GroupOptions), memory=memory,
                               plugin_path=plugins.encode() or None, ignores_database=1)
        error = Error(struct_size=ctypes.sizeof(Error))
        self._group = ctypes.c_void_p()
        if self._library.cotune_group_create(ctypes.byref(options), ctypes.byref(self._group), ctypes.byref(error)):
            raise Failed(error.text.decode())

    def _declare(self) -> None:
        library, pointer = self._library, ctypes.c_void_p
        call = [pointer, pointer, pointer, ctypes.c_uint64, ctypes.c_int32]
        for name, arguments in {
            "cotune_all_reduce": [*call, ctypes.c_int32],
            "cotune_all_gather": call,
            "cotune_reduce_scatter": [*call, ctypes.c_int32],
            "cotune_all_to_all": call,
            "cotune_broadcast": [*call, ctypes.c_int32],
            "cotune_group_set_stream": [pointer, pointer],
            "cotune_group_check": [pointer],
            "cotune_load": [pointer, ctypes.c_char_p],
            "cotune_memory_allocate": [pointer, ctypes.c_uint64, ctypes.POINTER(pointer)],
            "cotune_group_create": [pointer, pointer, pointer],
            "cotune_program_parse": [ctypes.c_char_p, ctypes.c_size_t, pointer, pointer],
            "cotune_program_run": [pointer, pointer, pointer, ctypes.c_size_t, pointer, ctypes.c_size_t],
        }.items():
            getattr(library, name).argtypes = arguments
            getattr(library, name).restype = ctypes.c_int32
        library.cotune_group_destroy.argtypes = [pointer]
        library.cotune_last_error.argtypes = [pointer]
        library.cotune_last_error.restype = ctypes.c_char_p
        for name in ("cotune_group_rank", "cotune_group_size"):
            getattr(library, name).argtypes = [pointer]

    def _check(self, result: int) -> None:
        if result != 0:
            raise Failed(self._library.cotune_last_error(self._group).decode())

    @property
    def rank(self) -> int:
        return self._library.cotune_group_rank(self._group)

    @property
    def size(self) -> int:
        return self._library.cotune_group_size(self._group)

    def set_stream(self, stream: int) -> None:
        self._check(self._library.cotune_group_set_stream(self._group, stream))

    def load(self, database: str) -> None:
        self._check(self._library.cotune_load(self._group, database.encode()))

    def allocate(self, size_bytes: int) -> int:
        """The address of new memory that all ranks reach; it goes with the group."""
        data = ctypes.c_void_p()
        self._check(self._library.cotune_memory_allocate(self._group, size_bytes, ctypes.byref(data)))
        return data.value

    def check(self) -> None:
        """Whether what ran so far went well."""
        self._check(self._library.cotune_group_check(self._group))

    def call(self, collective: str, send: int, recv: int, count: int, root: int = 0, dtype: str = "bf16") -> None:
        """send and recv are addresses; reductions are sums."""
        function = getattr(self._library, "cotune_" + collective)
        last = {"all_reduce": [SUM], "reduce_scatter": [SUM], "broadcast": [root]}.get(collective, [])
        self._check(function(self._group, send, recv, count, DTYPES[dtype], *last))

    def program_call(self, text: str, inputs: list[Operand], outputs: list[Operand]) -> Callable[[], None]:
        """What runs a program on these operands; both live as long as the group."""
        error, program = Error(struct_size=ctypes.sizeof(Error)), ctypes.c_void_p()
        encoded = text.encode()
        if self._library.cotune_program_parse(encoded, len(encoded), ctypes.byref(program), ctypes.byref(error)):
            raise Failed(error.text.decode())
        tensors = [self._tensors(inputs), self._tensors(outputs)]
        return lambda: self._check(self._library.cotune_program_run(self._group, program, tensors[0], len(inputs), tensors[1],
                                                                    len(outputs)))

    @staticmethod
    def _tensors(operands: list[Operand]):
        made = (Tensor * len(operands))()
        for tensor, operand in zip(made, operands, strict=True):
            tensor.struct_size, tensor.dtype = ctypes.sizeof(Tensor), DTYPES[operand.dtype]
            tensor.data, tensor.size_count = operand.address, 2
            # ctypes keeps what a pointer field was given alive.
            tensor.sizes = (ctypes.c_int64 * 2)(operand.rows, operand.columns)
        return made

    def destroy(self) -> None:
        self._library.cotune_group_destroy(self._group)
        self._group = ctypes.c_void_p()
