"""Who is measured. A contender has buffers of its own kind and enqueues one call on the current stream."""

import abc
import dataclasses
from typing import Any

import cotune_library
import problems


@dataclasses.dataclass
class Buffers:
    """Of one call; `send` and `recv` are what the platform calls an array."""

    send: Any
    recv: Any


class Contender(abc.ABC):
    """`platform` is where its arrays lie: a GPU, or host memory in tests."""

    name = ""

    def __init__(self, platform, options):
        self.platform = platform
        self.options = options

    def offers(self, problem: problems.Problem) -> bool:
        """The same on all ranks."""
        del problem
        return True

    def buffers(self, problem: problems.Problem) -> Buffers:
        """Collective. Plain memory."""
        return Buffers(self.platform.array("send", problem.send_count), self.platform.array("recv", problem.recv_count))

    @abc.abstractmethod
    def call(self, problem: problems.Problem, buffers: Buffers) -> None:
        """Enqueues it."""

    def check(self) -> None:
        """Raises what has gone wrong on the device."""

    def close(self) -> None:
        """After the last graph is gone."""


class Cotune(Contender):
    """Tuned: by the database that this run has made."""

    name = "cotune"

    def __init__(self, platform, options):
        super().__init__(platform, options)
        memory = cotune_library.MEMORY_CUDA if platform.is_cuda else cotune_library.MEMORY_HOST
        self.group = cotune_library.Group(options.library, memory, options.plugins)
        self.group.load(options.database)
        if platform.is_cuda:
            self.group.set_stream(platform.stream_handle)

    def call(self, problem, buffers):
        self.group.call(problem.collective, self.platform.address(buffers.send), self.platform.address(buffers.recv),
                        problem.count, problem.root)

    def check(self):
        self.group.check()

    def close(self):
        self.group.destroy()


class CotuneRegistered(Cotune):
    """The same on buffers in memory that all ranks have registered."""

    name = "cotune_registered"

    def __init__(self, platform, options):
        super().__init__(platform, options)
        self.memory = [platform.array_at(self.group.allocate(options.bytes_max), options.bytes_max) for _ in range(2)]

    def buffers(self, problem):
        send, recv = self.memory
        return Buffers(send[: problem.send_count], recv[: problem.recv_count])


class Nccl(Contender):
    """NCCL as it decides itself."""

    name = "nccl"

    def __init__(self, platform, options):
        super().__init__(platform, options)
        import nccl_library

        self.communicator = nccl_library.Communicator(platform.rank, platform.ranks, platform.share)

    def call(self, problem, buffers):
        self.communicator.call(problem.collective, self.platform.address(buffers.send),
                               self.platform.address(buffers.recv), problem.count, problem.root,
                               self.platform.stream_handle)


class NcclSymmetric(Nccl):
    """NCCL on buffers in windows that are registered as symmetric."""

    name = "nccl_symmetric"

    def __init__(self, platform, options):
        super().__init__(platform, options)
        # One window for what is sent and one for what is received: at the same place on all ranks.
        self.windows = [platform.array_at(self.communicator.symmetric_memory(options.bytes_max), options.bytes_max)
                        for _ in range(2)]

    def buffers(self, problem):
        send, recv = self.windows
        return Buffers(send[: problem.send_count], recv[: problem.recv_count])


class SymmMemOneShot(Contender):
    """torch's one_shot_all_reduce_out."""

    name = "symm_mem_one_shot"
    bytes_max = 64 * problems.MIB  # far beyond where it is of use

    def __init__(self, platform, options):
        super().__init__(platform, options)
        self.symmetric = platform.symmetric_array(min(self.bytes_max, options.bytes_max) // problems.ELEMENT_BYTES)

    def offers(self, problem):
        # Its vectors have 16 bytes.
        return (problem.collective == "all_reduce" and problem.bytes <= self.bytes_max and problem.bytes % 16 == 0)

    def buffers(self, problem):
        return Buffers(self.symmetric[: problem.count], self.platform.array("recv", problem.count))

    def call(self, problem, buffers):
        self.platform.symm_mem_ops.one_shot_all_reduce_out(buffers.send, "sum", self.platform.group_name, buffers.recv)


class SymmMemTwoShot(SymmMemOneShot):
    """torch's two_shot_all_reduce_, which works in place: timed on zeros, which stay zeros."""

    name = "symm_mem_two_shot"
    bytes_max = 1 << 40

    def offers(self, problem):
        return super().offers(problem) and problem.bytes % (16 * problem.ranks) == 0

    def buffers(self, problem):
        array = self.symmetric[: problem.count]
        return Buffers(array, array)

    def call(self, problem, buffers):
        self.platform.symm_mem_ops.two_shot_all_reduce_(buffers.send, "sum", self.platform.group_name)


CONTENDERS = {each.name: each for each in (Cotune, CotuneRegistered, Nccl, NcclSymmetric, SymmMemOneShot, SymmMemTwoShot)}
