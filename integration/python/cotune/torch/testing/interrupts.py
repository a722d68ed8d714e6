"""Waits for what becomes of a SIGINT that cotune keeps, on events."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from unittest import mock

from cotune import _interrupt

_WAIT_S = 5.0


def await_handler() -> None:
    """Returns when the handler of cotune has had the SIGINT. Raises queue.Empty if that does not come."""
    _interrupt.keeper._answers.get(timeout=_WAIT_S)


@contextlib.contextmanager
def looks() -> Iterator[Callable[[], None]]:
    """Gives a function that returns when the thread that sends a kept SIGINT has found the main thread in a callback, twice.

    After the first look it could have sent the signal, before the second. The function raises TimeoutError without two looks.
    """
    look, seen = _interrupt._is_in_callback, threading.Semaphore(0)

    def count(frame: FrameType | None) -> bool:
        is_in_callback = look(frame)
        if is_in_callback and threading.current_thread().name == "cotune interrupt":
            seen.release()
        return is_in_callback

    def await_looks() -> None:
        for _ in range(2):
            if not seen.acquire(timeout=_WAIT_S):
                raise TimeoutError("no thread looks whether the main thread has left the callback")

    with mock.patch.object(_interrupt, "_is_in_callback", count):
        yield await_looks
