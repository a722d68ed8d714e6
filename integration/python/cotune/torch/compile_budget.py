"""The time for compiling functions before a tune, equal on all ranks of a process group.

A function that one rank has not compiled is left out on all ranks. If one rank stopped compiling earlier than the others, their
further work would be wasted, and that rank alone would decide which functions race.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

from cotune.torch.log import log
from cotune.torch.meeting import Place

# The differing budgets, in the order of the ranks, about which each process group has warned: its ranks meet often.
_warned: weakref.WeakKeyDictionary[Any, set[tuple[float, ...]]] = weakref.WeakKeyDictionary()


def agreed_s(words: list[dict[str, Any]], place: Place, process_group: Any) -> float:
    """Returns the smallest budget of the ranks, in seconds, from "compile_s" in the words that they give at a meeting.

    If they differ, rank 0 warns once for the process group.
    """
    found = [float(word.get("compile_s", 0.0)) for word in words]
    warned = _warned.setdefault(process_group, set())
    if len(set(found)) > 1 and tuple(found) not in warned:
        warned.add(tuple(found))
        each = ", ".join(f"rank {rank} has {seconds:g}" for rank, seconds in zip(place.global_ranks, found, strict=True))
        log.log(
            logging.WARNING if place.rank == 0 else logging.INFO,
            "functions_compile_budget_s differs between the ranks of process group %r: %s; all of them use the smallest, %g s; "
            "give cotune.torch.enable() the same value on all ranks",
            place.name, each, min(found),
        )  # fmt: skip
    return min(found)
