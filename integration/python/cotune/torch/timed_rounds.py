"""Times alternative calls ("ways") on all ranks of a process group, in rounds, and compares two of them.

Every way is called in every round, so that other load of the machine affects all of them. The time of a sample is the largest
over the ranks. All ranks get that time, and therefore come to the same verdict.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

ROUNDS = 15
# With fewer rounds the smallest and largest ratio do not bound a 99 % interval of the median.
ROUNDS_MIN = 8
_SAMPLE_US = {"cpu": 4_000.0, "cuda": 2_000.0}
_CALLS_MAX = 200
_WARM_CALLS = 3
_OUTSIDE_PERCENT = 1.0

Call = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Interval:
    """A median, and the bounds of its 99 % confidence interval."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3f} [{self.low:.3f}, {self.high:.3f}]"


def interval_of(values: Sequence[float]) -> Interval:
    """Returns the 99 % confidence interval of the median of a sample of any distribution: two of its order statistics.

    Raises ValueError for fewer than ROUNDS_MIN values.
    """
    count = len(values)
    if count < ROUNDS_MIN:
        raise ValueError(f"{count} values have no 99 % interval; it takes {ROUNDS_MIN}")
    outside, chance = 0, 2 * 0.5**count
    while True:
        chance += 2 * math.comb(count, outside + 1) * 0.5**count
        if chance * 100 > _OUTSIDE_PERCENT:
            break
        outside += 1
    ordered = sorted(values)
    return Interval(ordered[outside], statistics.median(ordered), ordered[-1 - outside])


def ratio_of(times: Sequence[float], of_times: Sequence[float]) -> Interval | None:
    """Returns the interval of the ratio of two ways, which is taken in each round; None if the rounds are too few."""
    ratios = [each / of for each, of in zip(times, of_times, strict=True)]
    return interval_of(ratios) if len(ratios) >= ROUNDS_MIN else None


class Rounds:
    """Times alternative calls. Collective over a process group that has no other use meanwhile.

    All ranks give the same ways in the same order. An error of a way is passed on. The ranks are at different places then, so
    that the process group must not be used any more.
    """

    def __init__(self, process_group: Any, device: int):
        self._group = process_group
        self._device = torch.device("cpu") if device < 0 else torch.device("cuda", device)

    def time(self, ways: dict[str, Call], limit_s: float, is_over: Callable[[], bool] = lambda: False) -> dict[str, list[float]]:
        """Returns the time of each way in each round, in microseconds, equal on all ranks.

        The ranks stop together, before a round, when one of them has spent `limit_s` seconds or its `is_over` returns true.
        """
        begin_s = time.monotonic()
        counts = {name: self._calls_of(way) for name, way in ways.items()}
        order = list(ways)
        samples: list[list[float]] = []
        for number in range(ROUNDS):
            if self._largest([float(is_over() or time.monotonic() - begin_s > limit_s)])[0]:
                break
            turn = number % len(order)
            found = {name: self._sample(ways[name], counts[name]) for name in order[turn:] + order[:turn]}
            samples.append(self._largest([found[name] for name in order]))
        return {name: [each[place] for each in samples] for place, name in enumerate(order)}

    def _calls_of(self, way: Call) -> int:
        """Warms a way up, and returns the number of calls for one sample of it, equal on all ranks."""
        for _ in range(_WARM_CALLS):
            way()
        once_us = self._largest([self._sample(way, _WARM_CALLS)])[0]
        return max(1, min(_CALLS_MAX, round(_SAMPLE_US[self._device.type] / max(once_us, 0.1))))

    def _sample(self, way: Call, calls: int) -> float:
        """Returns the time of one call on this rank, in microseconds. The ranks begin together."""
        self._largest([0.0])
        if self._device.type == "cpu":
            begin_s = time.perf_counter()
            for _ in range(calls):
                way()
            return (time.perf_counter() - begin_s) * 1e6 / calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            way()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / calls

    def _largest(self, numbers: list[float]) -> list[float]:
        """Returns the largest of each number over the ranks. No rank returns before all have called it."""
        shared = torch.tensor(numbers, dtype=torch.float64, device=self._device)
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX, group=self._group)
        return shared.tolist()
