"""Functions of the caller that run collectives. They are choices that race with those of the backends."""

import ctypes
import dataclasses
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from cotune import _structs
from cotune._constant_names import constant
from cotune._interrupt import callback, keeper
from cotune.buffers import Operand, operand
from cotune.constants import Collective, DType, Reduction, Result
from cotune.errors import CotuneError, usage_error


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionCall:
    """One call of a function.

    Attributes:
      collective, dtype, count: the call as in the C API. `count` has the C API's meaning for each collective: for example, the
        elements of one rank's block for all_gather and reduce_scatter.
      reduction: None if the collective does not reduce.
      root: the rank whose data a broadcast sends; 0 for other collectives.
      rank, world_size: the rank of this process in the group, and the number of ranks.
      send: the operand. On host memory it is a copy, to which the function may write.
      recv: the memory for the result.
      stream: the address of the CUDA stream on which the function enqueues; None on host memory.
      timeout_s: the seconds that are left for the call.
      group: the object that Functions.open has returned for this group of ranks.
    """

    collective: Collective
    dtype: DType
    count: int
    reduction: Reduction | None
    root: int
    rank: int
    world_size: int
    send: Operand
    recv: Operand
    stream: int | None
    timeout_s: float
    group: Any


@dataclasses.dataclass(frozen=True)
class Function:
    """A function that runs collectives.

    Attributes:
      name: its name among the choices: "ring" or "ring?chunk=65536", of a-z, 0-9, "_", "." and "-".
      run: runs a call. On host memory it runs the call to its end, on a thread of cotune; on CUDA memory it enqueues the call
        on the stream. It writes the result to call.recv and returns None, or, on host memory only, returns a buffer that has
        the result. If it raises an exception, the call fails with that reason.
      collectives: the collectives that it can run.
      dtypes, reductions: the dtypes and reductions that it can run; empty for all.
      is_capturable: on CUDA memory, it only enqueues work, which may be captured in a CUDA graph.
      is_reproducible: its results have the same bits on every rank and in every run.
    """

    name: str
    run: Callable[[FunctionCall], Any]
    collectives: Collection[Collective | str]
    dtypes: Collection[DType | str] = ()
    reductions: Collection[Reduction | str] = ()
    is_capturable: bool = False
    is_reproducible: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionGroup:
    """The ranks that begin to use the functions.

    Attributes:
      name: a name that is unique in the job; each attempt has a new one.
      rank, world_size: the rank of this process among them, and their number.
      job_ranks: the rank in the job of each of them.
      device: the ordinal of the GPU; None for host memory.
      timeout_s: the seconds within which the ranks have to be ready.
    """

    name: str
    rank: int
    world_size: int
    job_ranks: tuple[int, ...]
    device: int | None
    timeout_s: float


@dataclasses.dataclass(frozen=True)
class Functions:
    """The functions of a group. All ranks give functions of the same names, in the same order.

    Attributes:
      functions: the functions, at least one.
      name: their backend in the ids of choices: "caller/ring". No plugin in use may have this name.
      version: a text that changes with everything else that their times depend on. Ranks with different versions do not use
        the functions together, and results of another version are measured anew.
      open: is called on all ranks when a group of ranks begins to use the functions, and again after a call has failed
        or has not returned. Its result is FunctionCall.group. It may communicate with the other ranks.
      close: is called with that result when the ranks stop using it, possibly while a function still runs.
    """

    functions: Sequence[Function]
    name: str = "caller"
    version: str = ""
    open: Callable[[FunctionGroup], Any] | None = None
    close: Callable[[Any], None] | None = None


# All adapters are kept, because a thread of C code may still enter a function when its group is gone.
_adapters: list["FunctionsAdapter"] = []
_NO_GROUP = 1  # the first state that a group gets; the C API has NULL for no state


class FunctionsAdapter:
    """The C table of Functions. It lives as long as the process."""

    def __init__(self, functions: Functions):
        self._functions = functions
        self._lock = threading.RLock()  # a garbage collection in a thread that holds it may run a finalizer
        self._groups: dict[int, Any] = {}
        self._running: dict[int, int] = {}  # calls that have not returned, by group
        # The last result of each group, which C code reads after the call.
        self._results: dict[int, Any] = {}
        self._next = _NO_GROUP
        listed = list(functions.functions)
        _adapters.append(self)
        if not listed:
            raise usage_error("there is no function", "cotune.Functions", next_step="give one or more")
        # The array copies the entries, and the copies do not keep the memory alive that they point to.
        self._made = [self._entry(each) for each in listed]
        self._entries = (_structs.Function * len(listed))(*self._made)
        self.table = _structs.Functions(
            name=functions.name.encode(),
            version=functions.version.encode(),
            functions=self._entries,
            function_count=len(listed),
            open=_structs.FUNCTIONS_OPEN(self._on_open),
            close=_structs.FUNCTIONS_CLOSE(self._on_close),
        )

    def _entry(self, function: Function) -> _structs.Function:
        where = f"function {function.name!r}"
        flags = (function.is_capturable * _structs.FunctionFlag.CAPTURABLE) | (
            function.is_reproducible * _structs.FunctionFlag.REPRODUCIBLE
        )
        return _structs.Function(
            flags=flags,
            name=function.name.encode(),
            collectives=_bits(Collective, function.collectives, f"{where}: collectives"),
            dtypes=_bits(DType, function.dtypes, f"{where}: dtypes"),
            reductions=_bits(Reduction, function.reductions, f"{where}: reductions"),
            run=_structs.FUNCTION_RUN(self._runner(function)),
        )

    def _runner(self, function: Function) -> Callable[..., int]:
        @callback
        def on_run(_, group: int, call, reason: int, size: int) -> int:
            return self._guarded(lambda: self._run(function, group, call.contents), reason, size)

        return on_run

    def _run(self, function: Function, group: int, call: _structs.FunctionCall) -> None:
        with self._lock:
            if group not in self._groups:
                raise RuntimeError("its group was closed before it began")
            state = self._groups[group]
            self._running[group] = self._running.get(group, 0) + 1
        try:
            result = function.run(_call_of(call, state))
            if result is None:
                return
            made = operand(result, f"function {function.name!r}: result")
            _check_result(function.name, call, made)
            with self._lock:
                # If C code has given the call up meanwhile, it does not read the result.
                if group in self._groups:
                    self._results[group] = made
                    call.result = made.address
        finally:
            with self._lock:
                if group in self._running:
                    self._running[group] -= 1

    @callback
    def _on_open(self, _, info, group, reason: int, size: int) -> int:
        def open_group() -> None:
            given = info.contents
            made = FunctionGroup(
                given.name.decode(),
                given.rank,
                given.world_size,
                tuple(given.job_ranks[: given.world_size]),
                given.device if given.device >= 0 else None,
                _left_s(given.deadline_ns),
            )
            state = None if self._functions.open is None else self._functions.open(made)
            with self._lock:
                key, self._next = self._next, self._next + 1
                self._groups[key] = state
            group[0] = key

        return self._guarded(open_group, reason, size)

    @callback
    def _on_close(self, _, group: int) -> None:
        with self._lock:
            state = self._groups.pop(group, None)
            self._running.pop(group, None)
            self._results.pop(group, None)
        if self._functions.close is not None:
            self._guarded(lambda: self._functions.close(state), 0, 0)

    def _guarded(self, call: Callable[[], None], reason: int, size: int) -> int:
        """Runs the call, and returns a result. A failure is written to `reason`, because no exception may pass through C."""
        try:
            call()
            return Result.SUCCESS
        except BaseException as failure:  # noqa: BLE001
            is_clear = isinstance(failure, CotuneError) or getattr(failure, "is_clear_by_text", False)
            text = str(failure) if is_clear else f"{type(failure).__name__}: {failure}"
            if isinstance(failure, KeyboardInterrupt):
                keeper.raise_later()
                text = "interrupted (Ctrl-C)"
            if size > 0:
                line = _within(" ".join(text.split()), size - 1)
                ctypes.memmove(reason, line + b"\0", len(line) + 1)
            return getattr(failure, "result", Result.ERROR_ENVIRONMENT)


def _bits(kind: type, values: Collection[Any], where: str) -> int:
    if isinstance(values, str):
        values = (values,)
    return sum(1 << each for each in {constant(kind, value, where) for value in values})


def _within(line: str, bytes_max: int) -> bytes:
    """Returns the line in at most `bytes_max` bytes: if it is longer, its first words and "..."."""
    encoded = line.encode(errors="replace")
    if len(encoded) <= bytes_max:
        return encoded
    words = encoded[: bytes_max - 2].rpartition(b" ")[0] or encoded[: bytes_max - 3]
    return words.decode(errors="ignore").rstrip().encode() + b"..."


def _left_s(deadline_ns: int) -> float:
    return max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)


def _call_of(call: _structs.FunctionCall, group: Any) -> FunctionCall:
    collective, dtype, size = Collective(call.collective), DType(call.dtype), call.world_size
    device = call.device if call.device >= 0 else None
    blocks = size if collective in (Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL) else 1
    result_blocks = size if collective in (Collective.ALL_GATHER, Collective.ALL_TO_ALL) else 1
    return FunctionCall(
        collective=collective,
        dtype=dtype,
        count=call.count,
        reduction=Reduction(call.reduction) if call.reduction else None,
        root=call.root,
        rank=call.rank,
        world_size=size,
        send=Operand(call.send or 0, dtype, (call.count * blocks,), device),
        recv=Operand(call.recv or 0, dtype, (call.count * result_blocks,), device),
        stream=None if device is None else call.stream or 0,
        timeout_s=_left_s(call.deadline_ns),
        group=group,
    )


def _check_result(name: str, call: _structs.FunctionCall, result: Operand) -> None:
    if call.device >= 0:
        raise usage_error(
            f"function {name!r} has returned a buffer",
            Collective(call.collective).name.lower(),
            "on CUDA memory the result has to be in call.recv when the stream has run the call",
            "write to call.recv and return None",
        )
    expected = _call_of(call, None).recv
    if (result.dtype, result.count, result.device) == (expected.dtype, expected.count, None):
        return
    raise usage_error(
        f"the result of function {name!r} has {result.count} elements of {result.dtype.name.lower()}"
        f"{'' if result.device is None else ' on a GPU'}",
        Collective(call.collective).name.lower(),
        f"the result of this call has {expected.count} of {expected.dtype.name.lower()} on host memory",
        "return such a buffer, or write to call.recv and return None",
    )
