"""Who runs a program. A contender has operands in memory of its own kind and enqueues whole programs, or a part of one, on
the current stream."""

import abc
import contextlib

import cotune_library
import program_cases

SYMM_MEM_BYTES_MAX = 64 * program_cases.MIB  # of one shot; far beyond where it is of use
# Of operands in memory that is shared out: as GPUs have it at least.
ALIGNMENT_BYTES = 512


class Slab:
    """Memory of one address, shared out anew for each case; at the same places on all ranks."""

    def __init__(self, platform, address: int, size_bytes: int):
        self.platform, self.address, self.size_bytes, self.used_bytes = platform, address, size_bytes, 0

    def clear(self) -> None:
        self.used_bytes = 0

    def empty(self, shape: program_cases.Shape):
        begin = self.used_bytes
        self.used_bytes += -(-shape.bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if self.used_bytes > self.size_bytes:
            raise ValueError(f"{self.size_bytes} bytes are too few")
        return self.platform.at(self.address + begin, shape)


def slab_bytes(case: program_cases.Case) -> int:
    """For all values of a case."""
    return sum(shape.bytes + ALIGNMENT_BYTES for shape in case.shapes.values())


class Run(abc.ABC):
    """Of one case. `values` are arrays by name; what a run gives back is in `outputs` after it, or nothing is."""

    def __init__(self, platform, case: program_cases.Case):
        self.platform, self.case, self.values, self.outputs = platform, case, {}, {}

    def fill(self) -> None:
        """Every input as the case has it; what is written is cleared."""
        inputs = [name for name in self.values if name in self.case.inputs]
        # First what is no input: in place it is one as well.
        for name in self.values.keys() - set(inputs):
            self.platform.clear(self.values[name], -1)
        for name in inputs:
            filled = self.platform.filled(self.case.inputs[name], self.case.seed(name, self.platform.rank))
            self.platform.store(self.values[name], filled)

    @abc.abstractmethod
    def enqueue(self) -> None:
        """Once."""

    def settle(self) -> None:
        """Before many calls on the same operands."""


class ProgramRun(Run):
    """cotune's: the program as one call."""

    def __init__(self, platform, case, text: str, group: cotune_library.Group, memory):
        super().__init__(platform, case)
        self.values = {name: memory.empty(shape) for name, shape in case.inputs.items()}
        self.values |= {name: memory.empty(case.shapes[name]) for name, into in case.outputs if not into}
        overwrites = dict(case.outputs)
        self.outputs = {name: self.values[overwrites[name] or name] for name in overwrites}
        self._call = group.program_call(text, [self._operand(name) for name in case.inputs],
                                        [self._operand(into or name) for name, into in case.outputs])

    def _operand(self, name: str) -> cotune_library.Operand:
        shape = self.case.shapes[name]
        return cotune_library.Operand(self.platform.address(self.values[name]), shape.dtype, shape.rows, shape.columns)

    def enqueue(self) -> None:
        self._call()


class CollectivesRun(Run):
    """The program's collectives alone."""

    def __init__(self, platform, case, transport, in_place: bool = False):
        super().__init__(platform, case)
        self.transport = transport
        for each in case.collectives:
            self.values[each.operand] = transport.send_memory.empty(case.shapes[each.operand])
            self.values[each.name] = (self.values[each.operand] if in_place
                                      else transport.recv_memory.empty(case.shapes[each.name]))
        self.in_place = in_place

    def enqueue(self) -> None:
        self.transport.call(self.case.collectives, self.values)

    def settle(self) -> None:
        """Sums in place would grow; zeros stay zeros."""
        if self.in_place:
            for each in self.case.collectives:
                self.platform.clear(self.values[each.operand], 0)


class PartRun(Run):
    """The program's part alone, as cotune has it."""

    def __init__(self, platform, case, parts, names):
        super().__init__(platform, case)
        self._parts = parts
        slots = parts.collective_slots()
        inputs = [self._array(names.of_input(value.slot, slots)) for value in parts.inputs(0)]
        outputs = [inputs[value.into] if value.into >= 0 else self._array(names.of_output(value.slot))
                   for value in parts.outputs(0)]
        self._addresses = [[platform.address(each) for each in arrays] for arrays in (inputs, outputs)]

    def _array(self, name: str):
        if name not in self.values:
            self.values[name] = self.platform.empty(self.case.shapes[name])
        return self.values[name]

    def enqueue(self) -> None:
        self._parts.launch(0, *self._addresses, self.platform.stream_handle())


class CompiledRun(CollectivesRun):
    """As a user has it without programs: collectives, and what lies between them compiled by torch. `compiled` is the user's
    function; what a collective sends it writes where that collective wants it."""

    def __init__(self, platform, case, transport, compiled, in_place: bool = False):
        super().__init__(platform, case, transport, in_place)
        self._compiled = compiled
        for name, shape in case.inputs.items():
            if name not in self.values:
                self.values[name] = platform.empty(shape)

    def enqueue(self) -> None:
        self.transport.call(self.case.before, self.values)
        made = self._compiled(self.values)
        self.transport.call(self.case.after, self.values)
        # What the function returns by name, else what it has overwritten or a collective has received.
        self.outputs = {name: made.get(name, self.values.get(into or name)) for name, into in self.case.outputs}


class CompiledPartRun(Run):
    """torch's kernels alone."""

    def __init__(self, platform, case, compiled):
        super().__init__(platform, case)
        self._compiled = compiled
        given = list(case.inputs) + [each.name for each in case.before] + [each.operand for each in case.after]
        self.values = {name: platform.empty(case.shapes[name]) for name in dict.fromkeys(given)}

    def enqueue(self) -> None:
        self._compiled(self.values)


def users_function(platform, case: program_cases.Case):
    """The workload's, with a place for the value that a collective sends."""
    store, user = platform.store, case.workload.user

    def function(torch, values):
        made = user(torch, values)
        if case.after:
            store(values[program_cases.VALUE], made.pop(program_cases.VALUE))
        return made

    return function


# ---- Who moves data ----


class Transport:
    """A library's collectives, with the memory that it wants for what is sent and for what is received."""

    def __init__(self, platform):
        self.platform = platform
        self.send_memory = self.recv_memory = platform  # any

    def call(self, collectives: list[program_cases.Collective], values: dict) -> None:
        """Enqueues them as one where the library can."""
        if not collectives:
            return
        with self.together(len(collectives)):
            for each in collectives:
                self.call_one(each, values[each.operand], values[each.name])

    def together(self, _count: int):
        return contextlib.nullcontext()

    def call_one(self, collective: program_cases.Collective, send, recv) -> None:
        raise NotImplementedError


class CotuneTransport(Transport):
    def __init__(self, platform, group: cotune_library.Group):
        super().__init__(platform)
        self._group = group

    def call_one(self, collective, send, recv):
        self._group.call(collective.kind, self.platform.address(send), self.platform.address(recv), collective.count,
                         dtype=collective.dtype)


class NcclTransport(Transport):
    """NCCL as it decides itself; on windows that are registered as symmetric where there are two slabs."""

    def __init__(self, platform, communicator, windows: list[Slab] | None = None):
        super().__init__(platform)
        self._communicator = communicator
        if windows:
            self.send_memory, self.recv_memory = windows

    def together(self, count):
        return self._communicator.group() if count > 1 else contextlib.nullcontext()

    def call_one(self, collective, send, recv):
        self._communicator.call(collective.kind, self.platform.address(send), self.platform.address(recv),
                                collective.count, 0, self.platform.stream_handle(), collective.dtype)


class SymmMemMemory:
    """torch's symmetric memory, made once for each shape and place in a case: each is a meeting of the ranks."""

    def __init__(self, platform):
        self._platform, self._made, self._given = platform, {}, {}

    def clear(self) -> None:
        self._given = {}

    def empty(self, shape: program_cases.Shape):
        index = self._given[shape] = self._given.get(shape, -1) + 1
        if (shape, index) not in self._made:
            self._made[shape, index] = self._platform.symmetric(shape)
        return self._made[shape, index]


class SymmMemTransport(Transport):
    """torch's one_shot_all_reduce_out, or two_shot_all_reduce_, which works in place."""

    def __init__(self, platform, memory: SymmMemMemory, in_place: bool):
        super().__init__(platform)
        self.send_memory, self._in_place = memory, in_place

    def offers(self, case: program_cases.Case) -> bool:
        sizes = [case.shapes[each.operand].bytes for each in case.collectives]
        if any(each.kind != "all_reduce" for each in case.collectives):
            return False
        # Its vectors have 16 bytes.
        if self._in_place:
            return all(size % (16 * case.ranks) == 0 for size in sizes)
        return all(size % 16 == 0 and size <= SYMM_MEM_BYTES_MAX for size in sizes)

    def call_one(self, collective, send, recv):
        ops, name = self.platform.symm_mem_ops, self.platform.group_name
        if self._in_place:
            ops.two_shot_all_reduce_(send, "sum", name)
        else:
            ops.one_shot_all_reduce_out(send, "sum", name, recv)
