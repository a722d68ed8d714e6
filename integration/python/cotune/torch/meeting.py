"""Meetings at which the ranks of a process group exchange messages ("words") through its store.

A meeting has a name. Each rank gives one word to it, a dict that can be JSON, and reads the words of all others. This module does
not interpret the words.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from cotune._interrupt import keeper
from cotune.errors import CotuneError
from cotune.torch import process_groups
from cotune.torch.log import log

# After so many seconds a rank that waits warns of the ranks that are missing, and Ctrl-C can end the meeting.
LATE_S = 10.0
# A rank that waits checks at this interval whether another rank has ended the attempt or has died.
_LOOK_S = 1.0
# A rank that waits asks the store for a missing word at least this often. It does not use `Store.wait`, because TCPStore then
# writes two warnings at each timeout.
_POLL_S = 0.1
# The store lives in the process of a rank. If that rank dies, its group learns of the death within so many seconds after the
# store has failed.
_DEATH_S = 3.0
_MET, _OVER = b"met", b"over"

Word = dict[str, Any]


# The GPUs on which this rank has used a process group, in the order of their first use.
_gpus: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()


def _kind(process_group: Any, device: int) -> str:
    """Returns the name of a device in the store's keys.

    It is equal on all ranks, because they use the GPUs of a process group in one order, as NCCL requires.
    """
    if device < 0:
        return "host"
    used = _gpus.setdefault(process_group, [])
    if device not in used:
        used.append(device)
    number = used.index(device)
    return f"cuda{number}" if number else "cuda"


class Place:
    """The place where the ranks of one process group meet, for operands on one device.

    It serves as long as the process group lives, and one thread at a time may use it.
    """

    def __init__(self, name: str, process_group: Any, device: int):
        self.name = name
        self.rank = process_group.rank()
        self.size = process_group.size()
        self.global_ranks = process_groups.global_ranks(process_group)
        self.timeout_s = process_groups.group_timeout_s(process_group, device)
        store = process_group.get_group_store()
        try:
            store = store.clone()
        except (RuntimeError, AttributeError):
            pass  # a store without connections cannot be cloned
        members = "-".join(str(rank) for rank in self.global_ranks)
        self.store = torch.distributed.PrefixStore(f"cotune/{_kind(process_group, device)}/{members}", store)
        self._own_words: list[str] = []  # keys of words that this rank has given and not deleted

    def leave_word(self, meeting: str, word: Word) -> None:
        """Gives the word of this rank to a meeting without waiting for the others; this rank does not come to it later."""
        text = _text(word, is_left=True)
        # The word for later attempts is set first: a rank that ends the open attempt now finds it in the next one.
        self.store.set(f"{meeting}/left/{self.rank}", text)
        self.store.set(f"{meeting}/{self._open_attempt(meeting, 0)}/{self.rank}", text)

    def share(
        self,
        meeting: str,
        word: Word,
        what: str,
        timeout_s: float | None = None,
        hint: str = "",
        check: Callable[[], None] | None = None,
    ) -> tuple[list[Word], str]:
        """Gives the word of this rank. Returns the words of all ranks, and the name of the attempt at which all have met.

        A meeting may take several attempts. A rank that gives up marks its attempt as over, and a rank that finds an attempt
        over goes on to the next one, so that an attempt succeeds for all ranks or for none. The marks stay in the store, so
        that a rank that comes again to a meeting of this name does not find old words. Words from leave_word() are not marked,
        and stay valid. A later process group cannot find them, because it has another name or another store: Gloo cannot
        connect a process group whose store holds the addresses of an earlier one of that name (PyTorch 2.13).

        Raises TimeoutError at the timeout. Its text names the ranks that have not done `what`, and ends with `hint`, the likely
        reason. While this rank waits, it calls `check` repeatedly, and a CotuneError of that ends the meeting. Ctrl-C ends a
        meeting that has lasted LATE_S; before that the others may have met already and gone on. If the meeting has succeeded
        nevertheless, this rank goes on with the others, and KeyboardInterrupt is raised later.
        """
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        wait = _Wait(self, what, hint, timeout_s, check or (lambda: None))
        attempt = 0
        while True:
            attempt = self._open_attempt(meeting, attempt)
            base = f"{meeting}/{attempt}"
            self._give_word(meeting, attempt, word)
            keys = [f"{base}/{rank}" for rank in range(self.size)]
            interrupt = None
            try:
                is_met = self._await(base, keys, wait)
            except KeyboardInterrupt as failure:
                is_met, interrupt = False, failure
            except CotuneError:
                # The store is gone if it was in the process of the rank that has died.
                with contextlib.suppress(RuntimeError):
                    self._end(base, is_met=False)
                raise
            if self._end(base, is_met) == _MET:
                if interrupt is not None:
                    keeper.raise_later()
                return self._read_words(keys), base
            if interrupt is not None:
                raise interrupt
            if not is_met and wait.left_s() <= 0:
                raise TimeoutError(wait.text(self._late_ranks(keys), timeout_s))

    def _give_word(self, meeting: str, attempt: int, word: Word) -> None:
        self._own_words.append(f"{meeting}/{attempt}/{self.rank}")
        self.store.set(self._own_words[-1], _text(word, is_left=False))
        if attempt == 0:
            return
        # Words that other ranks have left count in each later attempt.
        for rank in range(self.size):
            if rank != self.rank and self.store.check([f"{meeting}/left/{rank}"]):
                self.store.set(f"{meeting}/{attempt}/{rank}", self.store.get(f"{meeting}/left/{rank}"))

    def _read_words(self, keys: list[str]) -> list[Word]:
        """Reads the words of a meeting that has succeeded, and deletes own words of earlier meetings if all have read them."""
        found = [json.loads(self.store.get(key)) for key in keys]
        if not any(each["is_left"] for each in found):
            # All ranks have come here, so that they have read the words of the meetings before. A rank that has left its word
            # has not come, and may not have read them. Left words are never deleted, because a rank may still need them.
            before, self._own_words = self._own_words[:-1], self._own_words[-1:]
            for key in before:
                self._delete(key)
        return [each["word"] for each in found]

    def _delete(self, key: str) -> None:
        # A store that cannot delete keeps the word, which no rank reads again.
        with contextlib.suppress(RuntimeError, NotImplementedError):
            self.store.delete_key(key)

    def _open_attempt(self, meeting: str, attempt: int) -> int:
        while self.store.check([f"{meeting}/{attempt}/end"]):
            attempt += 1
        return attempt

    def _end(self, base: str, is_met: bool) -> bytes:
        """Marks the end of an attempt, unless another rank has. Returns the mark that counts, which is that of the first rank."""
        return self.store.compare_set(f"{base}/end", "", (_MET if is_met else _OVER).decode())

    def _late_ranks(self, keys: list[str]) -> list[int]:
        return [rank for rank, key in enumerate(keys) if not self.store.check([key])]

    def _await(self, base: str, keys: list[str], wait: _Wait) -> bool:
        """Waits for all words. Returns false at the deadline, and if another rank has ended the attempt without success."""
        begin_s = look_s = time.monotonic()
        missing = iter(keys)
        key = next(missing, None)
        while key is not None:
            if self._has(key, wait):
                key = next(missing, None)
                continue
            now_s = time.monotonic()
            if wait.left_s() <= 0:
                return False
            if now_s >= look_s + _LOOK_S:
                look_s = now_s
                wait.check()
                if self.store.check([f"{base}/end"]):
                    return self.store.get(f"{base}/end") == _MET
            if wait.is_late():
                wait.warn(keys)
                if keeper.ends_tune:
                    raise KeyboardInterrupt
            # The interval grows: ranks that come together meet at once, and a long wait asks the store rarely.
            time.sleep(min(max(0.0002, (now_s - begin_s) / 20), _POLL_S, max(0.0, wait.left_s())))
        return True

    def _has(self, key: str, wait: _Wait) -> bool:
        try:
            return self.store.check([key])
        except RuntimeError:
            # The store is gone, perhaps because its rank has died. The error of the group, which check() raises, names that rank.
            gone_s = time.monotonic()
            while time.monotonic() < gone_s + _DEATH_S:
                wait.check()
                time.sleep(_POLL_S)
            raise


def _text(word: Word, is_left: bool) -> str:
    return json.dumps({"word": word, "is_left": is_left})


class _Wait:
    """The wait of this rank at one meeting, over all attempts. It warns once of the ranks that are missing."""

    def __init__(self, place: Place, what: str, hint: str, timeout_s: float, check: Callable[[], None]):
        self._place = place
        self._what = what
        self._hint = hint
        self._begin_s = time.monotonic()
        self._timeout_s = timeout_s
        self._has_warned = False
        self.check = check

    def left_s(self) -> float:
        return self._begin_s + self._timeout_s - time.monotonic()

    def is_late(self) -> bool:
        return time.monotonic() >= self._begin_s + LATE_S

    def warn(self, keys: list[str]) -> None:
        if self._has_warned:
            return
        late = self._place._late_ranks(keys)
        if not late:
            return
        self._has_warned = True
        # The first of the ranks that wait warns.
        is_first = all(rank in late for rank in range(self._place.rank))
        log.log(logging.WARNING if is_first else logging.INFO, "%s", self.text(late, LATE_S))

    def text(self, late: list[int], seconds: float) -> str:
        place = self._place
        who = ", ".join(f"rank {place.global_ranks[rank]}" for rank in late)
        return (
            f"rank {place.global_ranks[place.rank]} has waited for {round(seconds, 1):g} s, since each of these has not "
            f"{self._what} of process group {place.name!r}: {who}{self._hint}"
        )
