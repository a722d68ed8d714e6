"""A stand-in for a process group, with what a meeting of its ranks needs."""

from __future__ import annotations

import threading
from typing import Any

import torch.distributed as dist


class StandInGroup:
    """A rank of a process group that moves no data. Ranks meet if they have one store.

    Attributes:
      aborted: is set when somebody ends the collectives of this rank.
    """

    group_name = "own"

    def __init__(self, rank: int = 0, store: Any = None, size: int = 2):
        """`store`: a new one if it is None."""
        self._rank, self._size = rank, size
        self._store = dist.HashStore() if store is None else store
        self.aborted = threading.Event()

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def get_group_store(self) -> Any:
        return self._store


def ranks_of_group(size: int = 2) -> list[StandInGroup]:
    """All ranks of one process group."""
    store = dist.HashStore()
    return [StandInGroup(rank, store, size) for rank in range(size)]
