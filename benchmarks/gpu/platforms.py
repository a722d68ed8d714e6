"""Where contenders are measured: a GPU by torch, or host memory to test the rest without one."""

import array
import datetime
import struct
import time

import problems

# On the GPU, in front of the ranks' barrier: everything that is timed is queued before it has passed.
GATE_CYCLES = 1_000_000  # about 0.5 ms
# Once at first: a GPU that was idle runs at a low clock.
WAKE_CYCLES = 500_000_000


class Gpu:
    """This rank's GPU. Arrays are bf16 tensors. Needs torch."""

    is_cuda = True

    def __init__(self, rank: int, ranks: int, port: int):
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem

        self.torch, self.symm_mem = torch, symm_mem
        self.rank, self.ranks = rank, ranks
        self.device = torch.device("cuda", rank)
        torch.cuda.set_device(self.device)
        # No collective of it is ever called, so that it makes no communicator.
        dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks,
                                timeout=datetime.timedelta(seconds=120))
        self.store = dist.distributed_c10d._get_default_store()
        self.group_name = dist.group.WORLD.group_name
        self.symm_mem_ops = torch.ops.symm_mem
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        self.barrier_memory = symm_mem.empty(4096, dtype=torch.uint8, device=self.device)
        self.barrier_handle = symm_mem.rendezvous(self.barrier_memory, self.group_name)
        self.arrays = {}
        self.shared = 0
        torch.cuda._sleep(WAKE_CYCLES)
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    @property
    def stream_handle(self) -> int:
        return self.stream.cuda_stream

    def share(self, data: bytes) -> bytes:
        """The bytes of rank 0 on all ranks."""
        self.shared += 1
        key = f"shared/{self.shared}"
        if self.rank == 0:
            self.store.set(key, data.hex())
        return bytes.fromhex(self.store.get(key).decode())

    def array(self, name: str, count: int):
        if name not in self.arrays or self.arrays[name].numel() < count:
            self.arrays.pop(name, None)
            self.arrays[name] = self.torch.empty(count, dtype=self.torch.bfloat16, device=self.device)
        return self.arrays[name][:count]

    def array_at(self, address: int, size_bytes: int):
        """Memory that somebody else has made."""

        class Memory:
            __cuda_array_interface__ = {"shape": (size_bytes // 2,), "typestr": "<i2", "data": (address, False),
                                        "version": 3}

        return self.torch.as_tensor(Memory(), device=self.device).view(self.torch.bfloat16)

    def symmetric_array(self, count: int):
        """Collective."""
        made = self.symm_mem.empty(count, dtype=self.torch.bfloat16, device=self.device)
        self.symm_mem.rendezvous(made, self.group_name)
        return made

    @staticmethod
    def address(tensor) -> int:
        return tensor.data_ptr()

    def _sent(self, rank: int, first: int, count: int):
        index = self.torch.arange(first, first + count, dtype=self.torch.int32, device=self.device)
        return (index % problems.PERIOD + rank).to(self.torch.bfloat16)

    def fill(self, tensor) -> None:
        tensor.copy_(self._sent(self.rank, 0, tensor.numel()))

    def poison(self, tensor) -> None:
        tensor.fill_(-1)

    def zero(self, tensor) -> None:
        tensor.zero_()

    def is_right(self, problem: problems.Problem, tensor) -> bool:
        """On this rank."""
        self.synchronize()
        ranks, count = problem.ranks, problem.count
        if problem.collective in ("all_gather", "all_to_all"):
            first = self.rank * count if problem.collective == "all_to_all" else 0
            return all(self.torch.equal(tensor[rank * count : (rank + 1) * count], self._sent(rank, first, count))
                       for rank in range(ranks))
        if problem.collective == "broadcast":
            return self.torch.equal(tensor, self._sent(problem.root, 0, count))
        first = self.rank * count if problem.collective == "reduce_scatter" else 0
        return self.torch.equal(tensor, self._sent(0, first, count) * ranks + ranks * (ranks - 1) // 2)

    def synchronize(self) -> None:
        self.stream.synchronize()

    def meet(self) -> None:
        """All ranks, on their GPUs."""
        self.barrier_handle.barrier(channel=0)
        self.synchronize()

    def capture(self, enqueue, calls: int):
        """Something that time_us takes; goes with its last reference."""
        graph = self.torch.cuda.CUDAGraph()
        self.synchronize()
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(calls):
            enqueue()
        graph.capture_end()
        return graph

    def time_us(self, graph) -> float:
        """Of one replay, from a moment that the ranks have in common."""
        self.torch.cuda._sleep(GATE_CYCLES)
        self.barrier_handle.barrier(channel=0)
        self.start.record()
        graph.replay()
        self.end.record()
        self.end.synchronize()
        return self.start.elapsed_time(self.end) * 1e3

    def close(self) -> None:
        """Leaves without taking anything down: a communicator may wait for peers that are gone."""

    def versions(self) -> dict[str, str]:
        return {"torch": self.torch.__version__, "cuda": self.torch.version.cuda}


class Host:
    """Host memory: the same interface, for tests. Arrays hold the bits of bf16."""

    is_cuda = False
    stream_handle = 0
    group_name = ""

    def __init__(self, rank: int, ranks: int, _port: int = 0):
        self.rank, self.ranks = rank, ranks

    def array(self, _name: str, count: int):
        return array.array("H", bytes(2 * count))

    @staticmethod
    def address(values) -> int:
        return values.buffer_info()[0]

    @staticmethod
    def bits(number: int) -> int:
        return struct.unpack("<I", struct.pack("<f", number))[0] >> 16

    def fill(self, values) -> None:
        for i in range(len(values)):
            values[i] = self.bits(problems.sent(self.rank, i))

    def poison(self, values) -> None:
        for i in range(len(values)):
            values[i] = 0xBF80

    def zero(self, values) -> None:
        for i in range(len(values)):
            values[i] = 0

    def is_right(self, problem: problems.Problem, values) -> bool:
        return all(value == self.bits(problems.right(problem, self.rank, i)) for i, value in enumerate(values))

    def synchronize(self) -> None:
        """Calls on host memory are done when they return."""

    def meet(self) -> None:
        """The calls themselves meet."""

    def capture(self, enqueue, calls: int):
        return lambda: [enqueue() for _ in range(calls)]

    def time_us(self, graph) -> float:
        began = time.perf_counter()
        graph()
        return (time.perf_counter() - began) * 1e6

    def close(self) -> None:
        """Nothing to take down."""

    def versions(self) -> dict[str, str]:
        return {}
