"""Words that the ranks of a process group exchange by its own store.

Nothing here knows what a word means. A meeting has a name; at it each rank gives one word and reads those of all others.
"""

from __future__ import annotations

import datetime
import json
import logging
import time
import weakref
from typing import Any

import torch

from cotune.torch import compat
from cotune.torch.log import log

# A meeting that lasts longer names the ranks that are missing.
LATE_S = 10.0
_MET, _OVER = b"met", b"over"

Word = dict[str, Any]


# The GPUs on which this rank has used a process group, in the order of their first use.
_gpus: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()


def _kind(process_group: Any, device: int) -> str:
    """The word for a device that is equal on all ranks: they use the GPUs of a process group in one order, as for NCCL."""
    if device < 0:
        return "host"
    used = _gpus.setdefault(process_group, [])
    if device not in used:
        used.append(device)
    number = used.index(device)
    return f"cuda{number}" if number else "cuda"


class Place:
    """The place where the ranks of one process group meet, for operands on one device, as long as the group lives.

    One thread at a time uses it.
    """

    def __init__(self, name: str, process_group: Any, device: int):
        self.name = name
        self.rank = process_group.rank()
        self.size = process_group.size()
        self.global_ranks = compat.global_ranks(process_group)
        self.timeout_s = compat.group_timeout_s(process_group, device)
        store = process_group.get_group_store()
        try:
            store = store.clone()
        except (RuntimeError, AttributeError):
            pass  # a store without connections
        members = "-".join(str(rank) for rank in self.global_ranks)
        self.store = torch.distributed.PrefixStore(f"cotune/{_kind(process_group, device)}/{members}", store)

    def leave_word(self, meeting: str, word: Word) -> None:
        """Gives the word of this rank to a meeting without waiting for the others."""
        self.store.set(f"{meeting}/{self._open_attempt(meeting, 0)}/{self.rank}", json.dumps(word))

    def share(
        self, meeting: str, word: Word, what: str, timeout_s: float | None = None, hint: str = ""
    ) -> tuple[list[Word], str]:
        """Gives the word of this rank, and returns those of all ranks, and the name of the attempt that all have come to.

        A rank that has waited in vain marks the attempt as over, and a rank that comes to an attempt that has ended goes
        on to the next one: either all ranks come to the end of an attempt, or none. A store may outlive a process group;
        the meetings of its ranks have ended as well. Raises TimeoutError, which names the ranks that have not done
        `what` at the end of the timeout; `hint` is the likely reason.
        """
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + timeout_s
        warner = _LateWarner(self, what, hint)
        attempt = 0
        while True:
            attempt = self._open_attempt(meeting, attempt)
            base = f"{meeting}/{attempt}"
            self.store.set(f"{base}/{self.rank}", json.dumps(word))
            keys = [f"{base}/{rank}" for rank in range(self.size)]
            failure = None
            try:
                is_met = self._await(base, keys, deadline_s, warner)
            except KeyboardInterrupt as interrupt:
                is_met, failure = False, interrupt
            if self._end(base, is_met) == _MET:
                if failure is not None:
                    raise failure
                return [json.loads(self.store.get(key)) for key in keys], base
            if failure is not None:
                raise failure
            if not is_met and time.monotonic() >= deadline_s:
                late = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
                raise TimeoutError(warner.text(late, timeout_s))

    def _open_attempt(self, meeting: str, attempt: int) -> int:
        while self.store.check([f"{meeting}/{attempt}/end"]):
            attempt += 1
        return attempt

    def _end(self, base: str, is_met: bool) -> bytes:
        """The end of the attempt, which the first rank that comes to one decides."""
        return self.store.compare_set(f"{base}/end", "", (_MET if is_met else _OVER).decode())

    def _await(self, base: str, keys: list[str], deadline_s: float, warner: _LateWarner) -> bool:
        """Returns true if all words are there; False at the deadline, and if the attempt is over."""
        while True:
            begin_s = time.monotonic()
            # A timeout of 0 is none.
            slice_s = max(0.01, min(LATE_S, deadline_s - begin_s))
            try:
                self.store.wait(keys, datetime.timedelta(seconds=slice_s))
                return True
            except RuntimeError:
                # Torch has no class of its own for a timeout; a store that is gone fails sooner.
                if time.monotonic() - begin_s < 0.9 * slice_s:
                    raise
            if self.store.check([f"{base}/end"]):
                return self.store.get(f"{base}/end") == _MET
            late = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
            if not late:
                return True
            if time.monotonic() >= deadline_s:
                return False
            warner.warn(late, slice_s)


class _LateWarner:
    """Warns once of the ranks that are missing at a meeting."""

    def __init__(self, place: Place, what: str, hint: str):
        self._place = place
        self._what = what
        self._hint = hint
        self._has_warned = False

    def warn(self, late: list[int], seconds: float) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        # The first of the ranks that wait warns.
        is_first = all(rank in late for rank in range(self._place.rank))
        log.log(logging.WARNING if is_first else logging.INFO, "%s", self.text(late, seconds))

    def text(self, late: list[int], seconds: float) -> str:
        place = self._place
        who = ", ".join(f"rank {place.global_ranks[rank]}" for rank in late)
        return (
            f"rank {place.global_ranks[place.rank]} has waited for {round(seconds, 1):g} s, since each of these has not "
            f"{self._what} of process group {place.name!r}: {who}{self._hint}"
        )
