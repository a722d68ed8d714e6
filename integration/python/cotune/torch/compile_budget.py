"""The time in which functions are compiled before a tune, equal on all ranks of a process group.

A rank that stops to compile earlier than the others would decide for all of them which functions race.
"""

from __future__ import annotations

import logging
from typing import Any

from cotune.torch.log import log
from cotune.torch.meeting import Place


def agreed_s(words: list[dict[str, Any]], place: Place) -> float:
    """The smallest of the ranks' times, which the words of a meeting have as "compile_s". Rank 0 warns if they differ."""
    found = [float(word.get("compile_s", 0.0)) for word in words]
    if len(set(found)) > 1:
        each = ", ".join(f"rank {rank} has {seconds:g}" for rank, seconds in zip(place.global_ranks, found, strict=True))
        log.log(
            logging.WARNING if place.rank == 0 else logging.INFO,
            "functions_compile_budget_s differs between the ranks of process group %r: %s; all of them use the smallest, %g s; "
            "give cotune.torch.enable() the same value on all ranks",
            place.name, each, min(found),
        )  # fmt: skip
    return min(found)
