"""Groups of ranks: made, split, tuned, and called."""

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

    A group is collective: all of its ranks make the same calls in the same order; `explain`, the
    properties and `abort` excepted. It is used by one thread at a time, but `abort` by any; another
    thread gets UsageError. Calls release Python's global lock while they run. Ctrl-C is seen when
    the call has ended.

    After RankLostError, DeadlineError or AbortedError the group is stopped: every later call raises
    the same. Destroy it. After every other error it can be used, with the table that it had.

    A group that was not destroyed leaves the job when its last reference goes, and when the process
    ends. (Processes of the module multiprocessing run nothing at their end: use `with` there.) A
    child that is forked gets UsageError, and its end does not disturb the parent.
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
          rank, world_size: both or none. None: those of the launcher's environment (cotune run,
            torchrun, mpirun, hydra, srun); without one the group has this process alone.
          job_id: equal on all ranks of a group, and another one for every group. Needed with rank
            and world_size, unless store is given.
          store: a store that all ranks reach, by which they find each other instead (see Store).
          socket_path: of the control channel; equal on all ranks, another one for every group.
          memory: "host", or "cuda": the GPU whose context is current on this thread (make a tensor
            there first); with none, the one whose number is that of the rank on its host.
          plugin_path: folders with plugins. None: the setting plugin_path, else those of the
            installation.
          backends: names, in order of priority. None: all.
          join_timeout_s: how long to wait until all ranks have come.
          call_timeout_s: how long one collective call may take.
          log: takes each line of the log (see cotune.log.Log), from any thread, one at a time; it
            calls nothing of the group. None: warnings and errors go to standard error.
          ignores_database: begin with the default choices; no tuned database is looked for.
          functions: functions of the caller that run collectives, which race with the choices of the
            backends (see cotune.Functions).
          force: the choices that collectives run whatever was measured, as a dict, {"all_reduce":
            "host/ring?chunk=65536"}, or a text, "all_reduce=host/ring?chunk=65536", equal on all
            ranks; a call for which one is refused or not listed runs what it would run otherwise.
            None: the setting force_choice.
          settings: settings of this group and those split from it by name, which count more than the
            environment and the settings file: {"collective_benchmark_nruns": 20,
            "collective_pre_sync_timeout": "5s"}. Values are texts as in the file, numbers, bools,
            or lists of them; "force" may be a dict. The setting memory is refused: give the
            argument.

        Raises UsageError for options that do not fit together, RankLostError or DeadlineError when
        ranks do not come in time, MachineError and PluginError when no backend can be used. One
        call at a time for a job.
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
        # At the end of the process too, the last group first, while Python can still run a log.
        weakref.finalize(self, self._handle.end)

    def split(self, name: str, ranks: Sequence[int]) -> "Group":
        """The group of some ranks of this one. Only those call it, with the same arguments.

        Args:
          name: new in the job.
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
        """Gives up the job of the group, from any thread, also while another one is in a call.

        Every group of the job that this rank is in is stopped on all of its ranks: their calls
        raise AbortedError with the reason. It does not wait. A group that is destroyed is left
        alone.
        """
        self._handle.abort(reason)

    def destroy(self) -> None:
        """Leaves the job; the group cannot be used afterwards. A second time it does nothing.

        Raises UsageError while another thread is in a call: abort first.
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
        """A digest of the rows of the table that calls run by, equal on all ranks; 0: no table."""
        with self._handle.exclusive() as address:
            return self._library.cotune_table_digest(address)

    @property
    def table_generation(self) -> int:
        """How often this group has got a table."""
        with self._handle.exclusive() as address:
            return self._library.cotune_table_generation(address)

    def set_stream(self, stream: "object | int | None") -> None:
        """The stream that later calls are enqueued on.

        Args:
          stream: a torch.cuda.Stream, or a cudaStream_t as a number; None: the default stream.

        Raises UsageError for a group of host memory.
        """
        handle = getattr(stream, "cuda_stream", stream)
        self._handle.call(self._library.cotune_group_set_stream, handle or None)

    def check(self) -> None:
        """Raises the error of what was enqueued so far, as far as it has run.

        After the stream is synchronized, no error means that the data of all calls is right.
        """
        self._handle.call(self._library.cotune_group_check)

    # ---- Collectives ----
    #
    # On host memory a call ends with its data there. On CUDA memory it is enqueued and returns: the
    # buffers stay until the stream has come so far. Sizes count elements, whatever dimensions the
    # buffers have.

    def all_reduce(
        self, send: Buffer, recv: Buffer | None = None, op: Reduction | str = "sum"
    ) -> Buffer:
        """recv[i] = the reduction of send[i] of all ranks. Gives recv.

        Args:
          send: n elements.
          recv: n elements; None: in place.
          op: "sum", "product", "min", "max" or "average".
        """
        return self._run_collective(Collective.ALL_REDUCE, send, recv, op)

    def all_gather(self, send: Buffer, recv: Buffer) -> Buffer:
        """recv[r * n + i] = send[i] of rank r. Gives recv.

        Args:
          send: n elements; in place: those of recv that begin at rank * n.
          recv: n * size elements.
        """
        return self._run_collective(Collective.ALL_GATHER, send, recv)

    def reduce_scatter(self, send: Buffer, recv: Buffer, op: Reduction | str = "sum") -> Buffer:
        """recv[i] = the reduction of send[rank * n + i] of all ranks. Gives recv.

        Args:
          send: n * size elements.
          recv: n elements; in place: those of send that begin at rank * n.
          op: as in all_reduce.
        """
        return self._run_collective(Collective.REDUCE_SCATTER, send, recv, op)

    def all_to_all(self, send: Buffer, recv: Buffer | None = None) -> Buffer:
        """recv[r * n + i] = send[rank * n + i] of rank r. Gives recv.

        Args:
          send: n * size elements.
          recv: n * size elements; None: in place.
        """
        return self._run_collective(Collective.ALL_TO_ALL, send, recv)

    def broadcast(self, recv: Buffer, root: int = 0, send: Buffer | None = None) -> Buffer:
        """recv[i] = send[i] of the root. Gives recv.

        Args:
          recv: n elements.
          root: the rank whose elements all ranks get.
          send: n elements, looked at on the root only; None: those of recv, in place.
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
        """Runs a program; all ranks call it with the same one and the same number of rows.

        Args:
          inputs, outputs: as many as the text has, each with the sizes of its value: rows (any
            dimensions that multiply to them), then columns, where it has more than one. An output
            that overwrites an input (`into`) is that input's buffer.

        Raises UsageError when operands do not fit: nothing has begun. After any other error the
        group is stopped, and the outputs hold anything.
        """
        self._run_program(self._library.cotune_program_run, program, inputs, outputs)

    def prepare(
        self,
        program: Program,
        inputs: "Sequence[Buffer | Shape]",
        outputs: "Sequence[Buffer | Shape]",
    ) -> None:
        """Makes ready what that call would run, so that the call can be captured in a CUDA graph.

        A Shape stands for memory that is not registered. All ranks do it in the same order.
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
        """Measures on all ranks, agrees, and runs calls by the result from then on.

        What was tuned or loaded before stays for other collectives and sizes. All ranks give the
        same arguments.

        Args:
          nodes: what to tune; or, instead, the product of:
          collectives, dtypes, reduction, in_place, symmetric: None: all five, f32, sum.
          sizes: bytes, for nodes that have no sizes of their own. None: 1 KiB to 4 MiB in steps of
            4. Sizes without an element for every rank, such as 0, are left out with a warning.
          budget_s: measuring stops when it is used up; 0: the setting.
          database: a file on rank 0: cells that it holds are not measured again, and new ones are
            added. "": the one that the group began with; where that cannot be used, a warning says
            so.
          numerics: "any", or "same": only choices that give the same bits.
          progress: called on this thread before each cell is measured, and about four times a second
            in a long one, with its number from 1, how many there are, and what it is.

        Ctrl-C on the main thread ends the tune on all ranks before the next sample, and is raised
        then; ranks that have had none raise CallInterruptedError. The table stays, and a database
        that no other tune is writing keeps what was measured. With a handler of SIGINT of its own
        a program goes on. Raises DisagreementError when the ranks gave different nodes,
        MachineError when no choice ran, UsageError when no size has an element for every rank.
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
        """Runs calls by a tuned database, which rank 0 reads; None: the one groups begin with.

        Raises DatabaseError when it cannot be used, DisagreementError when the ranks differ; the
        table stays.
        """
        self._handle.call(self._library.cotune_load, encoded(database))

    def save(self, database: "str | os.PathLike[str]") -> None:
        """Adds what this group has tuned or loaded to a tuned database. Rank 0 writes it."""
        self._handle.call(self._library.cotune_save, encoded(database))

    def explain(self, what: "Collective | str | Program", count: int = 1, **call) -> str:
        """What a call runs and why, in lines of text. Not collective.

        Args:
          what: a collective, or a program.
          count: of a collective: elements, counted as its call counts them; of a program: rows.
          **call: of a collective: dtype ("f32"), op ("sum"), root (0), in_place (False).
        """
        return self._explain("", what, count, **call)

    def explain_dict(self, what: "Collective | str | Program", count: int = 1, **call) -> dict:
        """The same as the object that cotune.h describes at cotune_explain_json."""
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

    # ---- Memory that all ranks reach ----

    def allocate(self, size_bytes: int) -> Memory:
        """New memory on the group's GPU that all ranks reach. All ranks give the same size.

        Calls whose buffers lie in it, at the same distance from its begin on all ranks, have
        choices of their own. Raises UnsupportedError for groups of host memory, and where no
        backend takes such memory.
        """
        data = ctypes.c_void_p()
        self._handle.call(self._library.cotune_memory_allocate, size_bytes, ctypes.byref(data))
        return Memory(data.value or 0, size_bytes, self._device)

    def free(self, memory: Memory) -> None:
        """All ranks do it in the same order. No call that uses it is on its way. CUDA graphs that
        hold a call with it keep it until they are destroyed."""
        self._handle.call(self._library.cotune_memory_free, memory.address)

    def register(self, buffer: Buffer) -> None:
        """The same for memory of the caller, one mapping of the GPU (cotune_memory_register)."""
        given = operand(buffer, "register")
        self._handle.call(
            self._library.cotune_memory_register,
            given.address,
            given.count * given.dtype.size_bytes,
        )

    def unregister(self, buffer: Buffer) -> None:
        """Before the memory is freed."""
        self._handle.call(
            self._library.cotune_memory_unregister, operand(buffer, "unregister").address
        )
