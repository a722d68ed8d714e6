"""Handles Ctrl-C while the library runs and calls back: no exception may pass through C, and no interrupt may be lost.

Python runs the handler of SIGINT in the Python code that the main thread runs next. While the library runs, that is a callback,
where an exception ends in "Exception ignored". `Keeper` installs its own handler for that time. It keeps the interrupt until the
call of the library returns to Python, and raises it at that place, not in later code of the program or in a finalizer.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType

_callbacks: set[CodeType] = set()


def callback(function: Callable) -> Callable:
    """Marks a function that the library calls."""
    _callbacks.add(function.__code__)
    return function


def _is_in_callback(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _callbacks:
            return True
        frame = frame.f_back
    return False


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


class Keeper:
    """Keeps a SIGINT that comes inside of a callback until the main thread has left the call of the library.

    It does nothing on other threads, or if the handler of SIGINT is not a Python function. The process has one keeper.
    """

    def __init__(self) -> None:
        self._before: Callable | None = None
        self._is_open = False  # between begin and end
        self._is_kept = False
        self._when_kept: Callable[[], object] = lambda: None

    @property
    def ends_tune(self) -> bool:
        """True if a SIGINT is kept that will be a KeyboardInterrupt. A handler of the user's own may do something else."""
        return self._is_kept and self._before is signal.default_int_handler and _is_main()

    def when_kept(self, function: Callable[[], object]) -> None:
        """Sets a function that is called in each callback that keeps a SIGINT, to make C code raise it again on its return to Python."""
        self._when_kept = function

    def begin(self) -> None:
        """Starts to keep interrupts. It is called on the thread of the call, before the call or in its first callback."""
        if not _is_main():
            return
        self._is_open = True
        self._install()

    def end(self) -> None:
        """Stops to keep interrupts. It is called after the call, and then raises a kept one, or in the last callback of the call."""
        if not _is_main():
            return
        self._is_open = False
        if not self._is_kept:
            self._restore()
        if self._is_kept:
            self._install()  # A SIGINT may have come while the handler was being restored.
            self.raise_kept()

    def raise_later(self) -> None:
        """Keeps an interrupt as if it came now. A callback calls it that has caught a KeyboardInterrupt itself."""
        if not _is_main():
            return
        self._install()
        if self._before is not None:
            self._keep()

    def raise_kept(self) -> None:
        """Raises a kept interrupt, unless the code that runs is itself in a callback. It is called after a call of the library."""
        if self._is_kept and _is_main() and not _is_in_callback(sys._getframe()):
            self._handle(signal.SIGINT, sys._getframe())

    def _keep(self) -> None:
        self._is_kept = True
        self._when_kept()

    def _install(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and handler != self._handle:
            self._before = handler
            signal.signal(signal.SIGINT, self._handle)

    def _restore(self) -> None:
        if self._before is not None and signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._before)
        self._before = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if _is_in_callback(frame):
            self._keep()
            return
        self._is_kept = False
        # The handler is restored here as well, because a call that failed may have had no last callback.
        before = self._before
        if not self._is_open:
            self._restore()
        if before is None:
            return
        try:
            before(number, frame)
        except BaseException:
            self._restore()
            raise


keeper = Keeper()
