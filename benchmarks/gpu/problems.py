"""What is measured: collectives, sizes, and how bytes are counted (as nccl-tests does)."""

import dataclasses

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
ELEMENT_BYTES = 2  # bf16
MIB = 1 << 20
# Every power of two, and three sizes that are none.
SIZES = sorted([1 << bit for bit in range(10, 30)] + [12 * 1024 + 16, 3 * MIB, 100_000_002])
QUICK_SIZES = [1024, 16 * 1024, 12 * 1024 + 16, 256 * 1024, MIB, 16 * MIB]


@dataclasses.dataclass(frozen=True)
class Problem:
    """One collective over `ranks` ranks; count as in NCCL."""

    collective: str
    ranks: int
    count: int
    root: int = 0

    @property
    def has_blocks(self) -> bool:
        return self.collective in ("all_gather", "reduce_scatter", "all_to_all")

    @property
    def send_count(self) -> int:
        return self.count * (self.ranks if self.collective in ("reduce_scatter", "all_to_all") else 1)

    @property
    def recv_count(self) -> int:
        return self.count * (self.ranks if self.collective in ("all_gather", "all_to_all") else 1)

    @property
    def bytes(self) -> int:
        """The larger of one rank's send and receive buffer."""
        return max(self.send_count, self.recv_count) * ELEMENT_BYTES

    @property
    def calls(self) -> int:
        """In one graph: enough that a replay takes much longer than what surrounds it."""
        return 20 if self.bytes <= 16 * MIB else 5


def problem_of(collective: str, ranks: int, size_bytes: int) -> Problem:
    """The largest one that does not exceed size_bytes."""
    one = Problem(collective, ranks, 1)
    return Problem(collective, ranks, max(1, size_bytes // one.bytes))


def bus_factor(collective: str, ranks: int) -> float:
    """By which nccl-tests turns bytes a second into what the busiest link carries."""
    if collective == "broadcast":
        return 1.0
    return (2.0 if collective == "all_reduce" else 1.0) * (ranks - 1) / ranks


def bus_GBps(collective: str, ranks: int, size_bytes: int, time_us: float) -> float:
    return size_bytes * bus_factor(collective, ranks) / time_us / 1e3


# The data: element i of rank r is PERIOD's remainder of i, plus r. All sums are whole numbers below 256, exact in bf16.
PERIOD = 13


def sent(rank: int, index: int) -> int:
    return index % PERIOD + rank


def right(problem: Problem, rank: int, index: int) -> int:
    """Element `index` of what `rank` receives."""
    ranks, count = problem.ranks, problem.count
    if problem.collective == "all_gather":
        return sent(index // count, index % count)
    if problem.collective == "all_to_all":
        return sent(index // count, rank * count + index % count)
    if problem.collective == "broadcast":
        return sent(problem.root, index)
    at = index + (rank * count if problem.collective == "reduce_scatter" else 0)
    return ranks * sent(0, at) + ranks * (ranks - 1) // 2
