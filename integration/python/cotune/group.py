"""Groups of ranks, which run and tune collectives and programs."""

import ctypes
import json
import logging
import os
import weakref
from collections.abc import Callable, Mapping, Sequence

from cotune import _structs
from cotune._constant_names import constant
from cotune._creation import (
    create,
    created_error,
    encoded,
    force_text,
    joined,
    nanoseconds,
    settings_text,
)
from cotune._handle import GroupHandle
from cotune._interrupt import keeper
from cotune._native import library
from cotune.buffers import Buffer, operand, require_writable, tensors
from cotune.calls import CALL_NAMES, check_counts, check_place, elements_dtype
from cotune.constants import Collective, DType, GroupMemory, Numerics, Reduction, Result
from cotune.errors import usage_error
from cotune.functions import Functions, FunctionsAdapter
from cotune.log import Log, LogAdapter
from cotune.memory import Memory
from cotune.program import Program, Shape, shape_operand
from cotune.store import Store
from cotune.tune import Node, TuneReport, TuneRequest

_EXPLAIN_BYTES = 8192


class Group:
    """Ranks that run collectives and programs by a tuned table. Every process of a job is one rank.

    A group is collective: all of its ranks make the same calls in the same order, except `explain`,
    the properties and `abort`. One thread at a time may use it; a second one gets UsageError. Any
    thread may call `abort`. Calls release Python's global lock while they run. Ctrl-C is raised when
    the call has ended.

    After RankLostError, DeadlineError or AbortedError the group is stopped: every later call raises
    the same error. Destroy it then. After every other error it can be used, with the table that it
    had.

    A group that was not destroyed leaves the job when its last reference is deleted, and when the
    process ends. (Processes of the module multiprocessing run no code at their end: use `with`
    there.) A forked child gets UsageError, and its end does not disturb the parent.
    """

    def __init__(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        job_id: str | None = None,
        store: Store | None = None,
        socket_path: "str | os.PathLike[str] | None" = None,
        memory: GroupMemory | str = GroupMemory.HOST,
        plugin_path: "str | os.PathLike[str] | Sequence[str] | None" = None,
        backends: Sequence[str] | None = None,
        join_timeout_s: float = 60.0,
        call_timeout_s: float = 30.0,
        log: "Log | logging.Logger | None" = None,
        ignores_database: bool = False,
        functions: Functions | None = None,
        force: "Mapping[str, str] | str | None" = None,
        settings: "Mapping[str, object] | None" = None,
    ):
        """Joins the job and makes its group of all ranks.

        Args:
          rank, world_size: give both or none. None: those of the launcher's environment (cotune run,
            torchrun, mpirun, hydra, srun); without a launcher the group has this process alone.
          job_id: a text that is equal on all ranks of a group, and different for every group. It is
            needed with rank and world_size, unless store is given.
          store: a store that all ranks can use, by which they find each other instead (see Store).
          socket_path: the path of the control channel, equal on all ranks, and different for every
            group.
          memory: "host", or "cuda": the GPU whose context is current on this thread (make a tensor
            there first); without a context, the GPU with the number of the rank on its host.
          plugin_path: folders with plugins. None: the setting plugin_path, or else those of the
            installation.
          backends: names, in order of priority. None: all.
          join_timeout_s: the longest time to wait until all ranks have come, in seconds.
          call_timeout_s: the longest time for one collective call, in seconds.
          log: is called with each line of the log (see cotune.log.Log), from any thread, one at a
            time. It must not call the group. None: warnings and errors go to standard error.
          ignores_database: true to begin with the default choices, without a tuned database.
          functions: functions of the caller that run collectives, which race with the choices of the
            backends (see cotune.Functions).
          force: the choices that collectives run whatever was measured, equal on all ranks: a dict,
            {"all_reduce": "host/ring?chunk=65536"}, or a text, "all_reduce=host/ring?chunk=65536".
            If a call cannot run its forced choice, it runs as without it. None: the setting
            force_choice.
          settings: settings by name for this group and those split from it. They take precedence over
            the environment and the settings file: {"collective_benchmark_nruns": 20,
            "collective_pre_sync_timeout": "5s"}. Values are texts as in the file, numbers, bools,
            or lists of them; "force" may be a dict. The setting memory is refused: give the
            argument.

        Raises UsageError for options that do not fit together, RankLostError or DeadlineError if
        ranks do not come in time, MachineError and PluginError if no backend can be used. Make one
        group at a time for a job.
        """
        if (rank is None) != (world_size is None):
            raise usage_error(
                "one of rank and world_size is given",
                "cotune.Group",
                next_step="give both, or none",
            )
        options = _structs.GroupOptions(
            rank=rank or 0,
            world_size=world_size or 0,
            memory=constant(GroupMemory, memory, "memory"),
            job_id=encoded(job_id),
            socket_path=encoded(socket_path),
            plugin_path=encoded(joined(plugin_path, ":")),
            backends=encoded(joined(backends, ",")),
            join_timeout_ns=nanoseconds(join_timeout_s, "join_timeout_s"),
            call_timeout_ns=nanoseconds(call_timeout_s, "call_timeout_s"),
            ignores_database=int(ignores_database),
            force=encoded(force_text(force)),
            settings=encoded(settings_text(settings)),
        )
        if world_size is not None and world_size < 1:
            raise usage_error(
                f"world_size is {world_size}", "cotune.Group", "", "a group has 1 rank at least"
            )
        log_adapter = None if log is None else LogAdapter(log)
        if log_adapter is not None:
            options.log = log_adapter.function
        functions_adapter = None if functions is None else FunctionsAdapter(functions)
        if functions_adapter is not None:
            options.functions = ctypes.pointer(functions_adapter.table)
        self._take(create(options, store), log_adapter, functions_adapter)

    def _take(
        self, address: int, log: LogAdapter | None, functions: FunctionsAdapter | None
    ) -> None:
        self._library = library()
        self._handle = GroupHandle(address, log, functions)
        self._rank = self._library.cotune_group_rank(address)
        self._size = self._library.cotune_group_size(address)
        device = self._library.cotune_group_device(address)
        self._device = device if device >= 0 else None
        # It also runs at the end of the process, for the last group first, while Python can still run a log.
        weakref.finalize(self, self._handle.end)

    def split(self, name: str, ranks: Sequence[int]) -> "Group":
        """Makes a group of some ranks of this one. Only those call it, with the same arguments.

        Args:
          name: a name that no other group of the job has had.
          ranks: ranks[i] is the rank in this group of the new group's rank i.

        The two groups may be destroyed in either order.
        """
        listed = (ctypes.c_int32 * len(ranks))(*ranks)
        made, error = ctypes.c_void_p(), _structs.Error()
        with self._handle.exclusive() as address:
            result = self._library.cotune_group_split(
                address, name.encode(), listed, len(ranks), ctypes.byref(made), ctypes.byref(error)
            )
        if result != Result.SUCCESS:
            self._handle.raise_interrupt()
            raise created_error(result, error)
        group = object.__new__(type(self))
        group._take(made.value, self._handle.log, self._handle.functions)
        self._handle.raise_interrupt()
        return group

    def abort(self, reason: str | None = None) -> None:
        """Aborts the job of the group. Any thread may call it, also while another one is in a call.

        Every group of the job that this rank is in is stopped on all of its ranks: their calls
        raise AbortedError with the reason. It does not wait for that. It does nothing if the group
        is destroyed.
        """
        self._handle.abort(reason)

    def destroy(self) -> None:
        """Leaves the job; the group cannot be used afterwards. A second call does nothing.

        Raises UsageError while another thread is in a call: call abort() first.
        """
        self._handle.destroy()

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_) -> None:
        self.destroy()

    def __repr__(self) -> str:
        return f"<cotune.Group rank {self._rank} of {self._size}>"

    @property
    def rank(self) -> int:
        """The rank of this process in the group."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def device(self) -> int | None:
        """The CUDA ordinal that the group's buffers and streams belong to; None for host memory."""
        return self._device

    @property
    def table_digest(self) -> int:
        """A digest of the dispatch table by which calls run, equal on all ranks; 0 without a table."""
        with self._handle.exclusive() as address:
            return self._library.cotune_table_digest(address)

    @property
    def table_generation(self) -> int:
        """The number of dispatch tables that this group has taken into force."""
        with self._handle.exclusive() as address:
            return self._library.cotune_table_generation(address)

    def set_stream(self, stream: "object | int | None") -> None:
        """Sets the stream on which later calls are enqueued.

        Args:
          stream: a torch.cuda.Stream, or a cudaStream_t as a number; None for the default stream.

        Raises UsageError for a group of host memory.
        """
        handle = getattr(stream, "cuda_stream", stream)
        self._handle.call(self._library.cotune_group_set_stream, handle or None)

    def check(self) -> None:
        """Raises the error of enqueued calls that have run and failed.

        If it raises none after the stream was synchronized, the data of all calls is right.
        """
        self._handle.call(self._library.cotune_group_check)

    # ---- Collectives ----
    #
    # On host memory the result is complete when a call returns. On CUDA memory the call is enqueued
    # and returns at once: the buffers have to stay until the stream has run it. Only the number of
    # elements of a buffer counts, not its dimensions.

    def all_reduce(
        self, send: Buffer, recv: Buffer | None = None, op: Reduction | str = "sum"
    ) -> Buffer:
        """Computes recv[i] = the reduction of send[i] of all ranks. Returns recv.

        Args:
          send: n elements.
          recv: n elements; None: in place.
          op: "sum", "product", "min", "max" or "average".
        """
        return self._run_collective(Collective.ALL_REDUCE, send, recv, op)

    def all_gather(self, send: Buffer, recv: Buffer) -> Buffer:
        """Computes recv[r * n + i] = send[i] of rank r. Returns recv.

        Args:
          send: n elements; in place: the n elements of recv from rank * n on.
          recv: n * size elements.
        """
        return self._run_collective(Collective.ALL_GATHER, send, recv)

    def reduce_scatter(self, send: Buffer, recv: Buffer, op: Reduction | str = "sum") -> Buffer:
        """Computes recv[i] = the reduction of send[rank * n + i] of all ranks. Returns recv.

        Args:
          send: n * size elements.
          recv: n elements; in place: the n elements of send from rank * n on.
          op: as in all_reduce.
        """
        return self._run_collective(Collective.REDUCE_SCATTER, send, recv, op)

    def all_to_all(self, send: Buffer, recv: Buffer | None = None) -> Buffer:
        """Computes recv[r * n + i] = send[rank * n + i] of rank r. Returns recv.

        Args:
          send: n * size elements.
          recv: n * size elements; None: in place.
        """
        return self._run_collective(Collective.ALL_TO_ALL, send, recv)

    def broadcast(self, recv: Buffer, root: int = 0, send: Buffer | None = None) -> Buffer:
        """Computes recv[i] = send[i] of the root. Returns recv.

        Args:
          recv: n elements.
          root: the rank whose elements all ranks get.
          send: n elements, which are read on the root only; None: the elements of recv, in place.
        """
        source = recv if send is None or self._rank != root else send
        self._run_collective(Collective.BROADCAST, source, recv, root=root)
        return recv

    def _run_collective(
        self,
        collective: Collective,
        send: Buffer,
        recv: Buffer | None,
        op: Reduction | str = 0,
        root: int = 0,
    ) -> Buffer:
        names = CALL_NAMES[collective]
        given = operand(send, names.send)
        to = given if recv is None or recv is send else operand(recv, names.recv)
        require_writable(to, names.recv)
        check_place(given, self._device, names.send)
        check_place(to, self._device, names.recv)
        count = check_counts(collective, given, to, self._size)
        reduction = constant(Reduction, op, names.op) if collective.reduces else None
        dtype = elements_dtype(collective, given, reduction)
        arguments = [given.address, to.address, count, dtype]
        if collective is Collective.BROADCAST:
            arguments.append(root)
        elif reduction is not None:
            arguments.append(reduction)
        self._handle.call(getattr(self._library, names.function), *arguments)
        return send if recv is None else recv

    # ---- Programs ----

    def run(self, program: Program, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> None:
        """Runs a program. All ranks call it with the same program and the same number of rows.

        Args:
          inputs, outputs: as many buffers as the text has, each with the sizes of its value: rows
            (any dimensions with that product), then columns if it has more than one. An output that
            overwrites an input (`into`) is that input's buffer.

        Raises UsageError if operands do not fit; the call has done nothing then. After any other
        error the group is stopped, and the contents of the outputs are undefined.
        """
        self._run_program(self._library.cotune_program_run, program, inputs, outputs)

    def prepare(
        self,
        program: Program,
        inputs: "Sequence[Buffer | Shape]",
        outputs: "Sequence[Buffer | Shape]",
    ) -> None:
        """Prepares a call of run(), so that it can be captured in a CUDA graph.

        A Shape stands for memory that is not registered. All ranks call it in the same order.
        """
        self._run_program(self._library.cotune_program_prepare, program, inputs, outputs)

    def _run_program(self, function: Callable[..., int], program: Program, inputs, outputs) -> None:
        given = [shape_operand(each, f"input {i + 1}") for i, each in enumerate(inputs)]
        into = [
            require_writable(shape_operand(each, f"output {i + 1}"), f"output {i + 1}")
            for i, each in enumerate(outputs)
        ]
        for i, each in enumerate(given + into):
            if each.address:
                check_place(each, self._device, f"operand {i + 1}")
        self._handle.call(
            function, program.handle, tensors(given), len(given), tensors(into), len(into)
        )

    # ---- Tables ----

    def tune(
        self,
        nodes: Sequence[Node] | None = None,
        *,
        collectives: "Sequence[Collective | str] | None" = None,
        dtypes: Sequence[DType | str] | None = None,
        reduction: Reduction | str | None = None,
        sizes: Sequence[int] | None = None,
        in_place: bool = False,
        symmetric: bool = False,
        budget_s: float = 0,
        database: "str | os.PathLike[str] | None" = None,
        numerics: Numerics | str = Numerics.DEFAULT,
        progress: Callable[[int, int, str], object] | None = None,
    ) -> TuneReport:
        """Measures on all ranks, agrees on choices, and runs later calls by the result.

        Results of earlier tunes and databases stay in force for other collectives and sizes. All
        ranks give the same arguments.

        Args:
          nodes: the programs and collectives to tune. None: all combinations of the next five:
          collectives, dtypes, reduction, in_place, symmetric: the calls to tune. None: all five
            collectives, f32, sum.
          sizes: bytes, for nodes without sizes. None: 1 KiB to 4 MiB in steps of 4. Sizes without an
            element for every rank, such as 0, are left out with a warning.
          budget_s: seconds after which measuring stops; 0: the setting.
          database: a file on rank 0. Cells that it has are not measured again, and new ones are
            added. "": the file with which the group began; if that cannot be used, the tune warns.
          numerics: "any", or "same": only choices that give the same bits as the default.
          progress: is called on this thread before each cell is measured, and about four times a
            second in a long one, with the number of the cell from 1, the number of cells, and a
            description of the cell.

        Ctrl-C on the main thread ends the tune on all ranks before the next sample, and is raised
        then; ranks without a Ctrl-C of their own raise CallInterruptedError. The table stays, and a
        database that no other tune is writing keeps the cells that were measured. If the program has
        its own handler of SIGINT, the tune goes on. Raises DisagreementError if the ranks gave
        different nodes, MachineError if no choice ran, UsageError if no size has an element for every
        rank.
        """
        request = TuneRequest(
            nodes,
            collectives,
            dtypes,
            reduction,
            sizes,
            in_place,
            symmetric,
            budget_s,
            database,
            numerics,
            progress,
        )
        report = _structs.TuneReport()
        keeper.begin()
        try:
            self._handle.call(
                self._library.cotune_tune, ctypes.byref(request.options()), ctypes.byref(report)
            )
        finally:
            keeper.end()
        return TuneReport(report.measured, report.known, report.skipped, report.is_tuned != 0)

    def load(self, database: "str | os.PathLike[str] | None" = None) -> None:
        """Runs later calls by a tuned database, which rank 0 reads; None: the one with which groups begin.

        Raises DatabaseError if it cannot be used, DisagreementError if the ranks differ. The table
        that the group had stays in force then.
        """
        self._handle.call(self._library.cotune_load, encoded(database))

    def save(self, database: "str | os.PathLike[str]") -> None:
        """Adds the results that this group has tuned or loaded to a tuned database. Rank 0 writes it."""
        self._handle.call(self._library.cotune_save, encoded(database))

    def explain(self, what: "Collective | str | Program", count: int = 1, **call) -> str:
        """Explains in lines of text which choice a call runs and why. It is not collective.

        Args:
          what: a collective, or a program.
          count: for a collective the count of the C API, in elements; for a program the rows.
          **call: for a collective its dtype ("f32"), op ("sum"), root (0), in_place (False).
        """
        return self._explain("", what, count, **call)

    def explain_dict(self, what: "Collective | str | Program", count: int = 1, **call) -> dict:
        """Returns the same facts as explain(), in the object that cotune.h describes at cotune_explain_json."""
        return json.loads(self._explain("_json", what, count, **call))

    def _explain(
        self,
        suffix: str,
        what: "Collective | str | Program",
        count: int,
        *,
        dtype: DType | str = "f32",
        op: Reduction | str = "sum",
        root: int = 0,
        in_place: bool = False,
    ) -> str:
        if isinstance(what, Program):
            function = getattr(self._library, f"cotune_explain_program{suffix}")
            return self._text_of(function, what.handle, count)
        collective = constant(Collective, what, "explain")
        call = _structs.Call(
            collective=collective,
            dtype=constant(DType, dtype, "dtype"),
            reduction=constant(Reduction, op, "op") if collective.reduces else 0,
            root=root,
            is_in_place=int(in_place),
            count=count,
        )
        return self._text_of(getattr(self._library, f"cotune_explain{suffix}"), ctypes.byref(call))

    def _text_of(self, function: Callable[..., int], *arguments) -> str:
        size, length = _EXPLAIN_BYTES, ctypes.c_size_t()
        while True:
            text = ctypes.create_string_buffer(size)
            self._handle.call(function, *arguments, text, size, ctypes.byref(length))
            if length.value < size:
                return text.value.decode(errors="replace")
            size = length.value + 1

    # ---- Memory that all ranks can read and write ----

    def allocate(self, size_bytes: int) -> Memory:
        """Allocates memory on the group's GPU that all ranks can read and write. Collective; all ranks give the same size.

        Calls whose buffers are in it, at the same offset on all ranks, have further choices. Raises
        UnsupportedError for groups of host memory, and if no backend supports such memory.
        """
        data = ctypes.c_void_p()
        self._handle.call(self._library.cotune_memory_allocate, size_bytes, ctypes.byref(data))
        return Memory(data.value or 0, size_bytes, self._device)

    def free(self, memory: Memory) -> None:
        """Frees memory of allocate(). All ranks free theirs in the same order.

        No call that uses the memory may still run. CUDA graphs with such a call keep the memory
        until they are destroyed.
        """
        self._handle.call(self._library.cotune_memory_free, memory.address)

    def register(self, buffer: Buffer) -> None:
        """Gives memory of the caller the same role as that of allocate().

        It is collective. The memory has to be one mapping of the GPU (see cotune_memory_register).
        """
        given = operand(buffer, "register")
        self._handle.call(
            self._library.cotune_memory_register,
            given.address,
            given.count * given.dtype.size_bytes,
        )

    def unregister(self, buffer: Buffer) -> None:
        """Ends the registration of a buffer. Call it before the memory is freed."""
        self._handle.call(
            self._library.cotune_memory_unregister, operand(buffer, "unregister").address
        )
