"""A stand-in for the counters of calls that the operator library keeps for a group."""

from __future__ import annotations

import collections


class Counters:
    """The counters of a group's calls, as the operator library keeps them."""

    def __init__(self) -> None:
        self.calls: collections.Counter[int] = collections.Counter()

    def add(self, counter: int, calls: int) -> int:
        self.calls[counter] += calls
        return self.calls[counter]
