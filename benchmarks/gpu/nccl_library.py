"""NCCL by its C calls: what its users call, without a framework in between."""

import contextlib
import ctypes

SUM = 0
# ncclDataType_t, by name; the bytes of an element.
DTYPES = {"f16": (6, 2), "f32": (7, 4), "bf16": (9, 2)}
WINDOW_SYMMETRIC = 1
UNIQUE_ID_BYTES = 128


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * UNIQUE_ID_BYTES)]


class Failed(RuntimeError):
    """A call of NCCL failed."""


def loaded_path() -> str:
    """The copy that this process has already."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if "libnccl.so" in line:
                return line[line.index("/"):].rstrip("\n")
    return "libnccl.so.2"


class Communicator:
    """All ranks of a job; `share` gives every rank the bytes of rank 0."""

    def __init__(self, rank: int, ranks: int, share, path: str | None = None):
        self._nccl = ctypes.CDLL(path or loaded_path())
        self._declare()
        unique = UniqueId()
        if rank == 0:
            self._check(self._nccl.ncclGetUniqueId(ctypes.byref(unique)))
        ctypes.memmove(ctypes.byref(unique), share(bytes(unique)), UNIQUE_ID_BYTES)
        self.rank, self.ranks = rank, ranks
        self._comm = ctypes.c_void_p()
        self._check(self._nccl.ncclCommInitRank(ctypes.byref(self._comm), ranks, unique, rank))

    def _declare(self) -> None:
        nccl, pointer, size, number = self._nccl, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        for name, arguments in {
            "ncclGetUniqueId": [pointer],
            "ncclGetVersion": [pointer],
            "ncclCommInitRank": [pointer, number, UniqueId, number],
            "ncclAllReduce": [pointer, pointer, size, number, number, pointer, pointer],
            "ncclAllGather": [pointer, pointer, size, number, pointer, pointer],
            "ncclReduceScatter": [pointer, pointer, size, number, number, pointer, pointer],
            "ncclBroadcast": [pointer, pointer, size, number, number, pointer, pointer],
            "ncclSend": [pointer, size, number, number, pointer, pointer],
            "ncclRecv": [pointer, size, number, number, pointer, pointer],
            "ncclGroupStart": [],
            "ncclGroupEnd": [],
        }.items():
            getattr(nccl, name).argtypes = arguments
            getattr(nccl, name).restype = number
        nccl.ncclGetErrorString.argtypes = [number]
        nccl.ncclGetErrorString.restype = ctypes.c_char_p

    def _check(self, result: int) -> None:
        if result != 0:
            raise Failed(self._nccl.ncclGetErrorString(result).decode())

    @property
    def version(self) -> str:
        number = ctypes.c_int()
        self._check(self._nccl.ncclGetVersion(ctypes.byref(number)))
        return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"

    def call(self, collective: str, send: int, recv: int, count: int, root: int, stream: int, dtype: str = "bf16") -> None:
        """Addresses and a cudaStream_t; reductions are sums."""
        nccl, comm = self._nccl, self._comm
        kind, element_bytes = DTYPES[dtype]
        if collective == "all_reduce":
            self._check(nccl.ncclAllReduce(send, recv, count, kind, SUM, comm, stream))
        elif collective == "all_gather":
            self._check(nccl.ncclAllGather(send, recv, count, kind, comm, stream))
        elif collective == "reduce_scatter":
            self._check(nccl.ncclReduceScatter(send, recv, count, kind, SUM, comm, stream))
        elif collective == "broadcast":
            self._check(nccl.ncclBroadcast(send, recv, count, kind, root, comm, stream))
        else:
            self._all_to_all(send, recv, count, stream, kind, count * element_bytes)

    @contextlib.contextmanager
    def group(self):
        """Calls within are one."""
        self._check(self._nccl.ncclGroupStart())
        yield
        self._check(self._nccl.ncclGroupEnd())

    def _all_to_all(self, send: int, recv: int, count: int, stream: int, kind: int, block: int) -> None:
        nccl, comm = self._nccl, self._comm
        if hasattr(nccl, "ncclAlltoAll"):  # since 2.28
            pointer = ctypes.c_void_p
            nccl.ncclAlltoAll.argtypes = [pointer, pointer, ctypes.c_size_t, ctypes.c_int, pointer, pointer]
            self._check(nccl.ncclAlltoAll(send, recv, count, kind, comm, stream))
            return
        with self.group():
            for peer in range(self.ranks):
                self._check(nccl.ncclSend(send + peer * block, count, kind, peer, comm, stream))
                self._check(nccl.ncclRecv(recv + peer * block, count, kind, peer, comm, stream))

    def symmetric_memory(self, size_bytes: int) -> int:
        """The address of new memory that all ranks have registered as symmetric; it lives as long as the process.
        Collective."""
        nccl, address, window = self._nccl, ctypes.c_void_p(), ctypes.c_void_p()
        nccl.ncclMemAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        nccl.ncclCommWindowRegister.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
                                                ctypes.c_int]
        self._check(nccl.ncclMemAlloc(ctypes.byref(address), size_bytes))
        self._check(nccl.ncclCommWindowRegister(self._comm, address, size_bytes, ctypes.byref(window),
                                                WINDOW_SYMMETRIC))
        return address.value
