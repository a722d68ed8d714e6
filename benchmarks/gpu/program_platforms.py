"""Where whole programs are measured: one GPU a rank by torch, or host memory to test the rest without one."""

import array

import part_platforms
import platforms
import program_cases


class Gpu(part_platforms.Gpu):
    """This rank's GPU. Needs torch."""

    is_cuda = True

    def __init__(self, rank: int, ranks: int, port: int):
        super().__init__(rank)
        # It has the ranks' barrier; its stream is the current one from here on.
        self.ranked = platforms.Gpu(rank, ranks, port)
        self.rank, self.ranks, self.device = rank, ranks, rank
        self.share_bytes, self.meet, self.time_us = self.ranked.share, self.ranked.meet, self.ranked.time_us
        self.capture, self.synchronize = self.ranked.capture, self.ranked.synchronize
        self.symm_mem_ops, self.group_name = self.ranked.symm_mem_ops, self.ranked.group_name

    def empty(self, shape: program_cases.Shape):
        return self.torch.empty(shape.rows, shape.columns, dtype=self.dtypes[shape.dtype], device="cuda")

    def at(self, address: int, shape: program_cases.Shape):
        """Memory that somebody else has made."""
        even = shape.bytes + shape.bytes % 2  # array_at counts in elements of 2 bytes
        flat = self.ranked.array_at(address, even).view(self.dtypes[shape.dtype])
        return flat[: shape.count].view(shape.rows, shape.columns)

    def symmetric(self, shape: program_cases.Shape):
        """Collective."""
        made = self.ranked.symm_mem.empty(shape.rows, shape.columns, dtype=self.dtypes[shape.dtype],
                                          device=self.ranked.device)
        self.ranked.symm_mem.rendezvous(made, self.group_name)
        return made

    def filled(self, shape: program_cases.Shape, seed: int):
        index = self.torch.arange(shape.count, dtype=self.torch.int64, device="cuda")
        period = program_cases.PERIOD
        eighths = (7 * index + seed) % period - period // 2
        return (eighths.float() / 8).view(shape.rows, shape.columns).to(self.dtypes[shape.dtype])

    @staticmethod
    def store(target, source) -> None:
        target.copy_(source)

    def clear(self, tensor, number: float) -> None:
        # By way of f32: not every small type can be filled.
        tensor.copy_(self.torch.full(tensor.shape, number, dtype=self.torch.float32, device="cuda"))

    @staticmethod
    def total(tensors: list):
        return sum(each.float() for each in tensors)

    @staticmethod
    def share(tensor, index: int, of: int):
        rows = tensor.shape[0] // of
        return tensor[index * rows : (index + 1) * rows]

    def joined(self, tensors: list):
        return self.torch.cat(tensors)

    @staticmethod
    def replay(graph) -> None:
        graph.replay()

    def about(self) -> dict:
        return super().about() | self.ranked.versions()


class Host(part_platforms.Host):
    """Lists of f32, which remember nothing of rows: shares are of their elements. `torch` is what a workload is given."""

    is_cuda = False
    torch = None
    device = 0

    def __init__(self, rank: int, ranks: int, _port: int = 0):
        self.rank, self.ranks = rank, ranks

    @staticmethod
    def empty(shape: program_cases.Shape):
        if shape.dtype != "f32":
            raise ValueError(f"no values of {shape.dtype} here")
        return array.array("f", bytes(shape.bytes))

    @staticmethod
    def filled(shape: program_cases.Shape, seed: int):
        return array.array("f", [program_cases.number(i, seed) for i in range(shape.count)])

    @staticmethod
    def store(target, source) -> None:
        target[:] = array.array("f", source)

    @staticmethod
    def clear(values, number: float) -> None:
        values[:] = array.array("f", [number]) * len(values)

    @staticmethod
    def total(lists: list):
        return [sum(each) for each in zip(*lists, strict=True)]

    @staticmethod
    def share(values, index: int, of: int):
        count = len(values) // of
        return values[index * count : (index + 1) * count]

    @staticmethod
    def joined(lists: list):
        return [each for values in lists for each in values]

    @staticmethod
    def replay(graph) -> None:
        graph()

    def synchronize(self) -> None:
        """Calls on host memory are done when they return."""

    def meet(self) -> None:
        """The calls themselves meet."""
