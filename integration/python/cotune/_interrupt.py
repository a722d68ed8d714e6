"""Ctrl-C while the library works and calls back: nothing may be raised through C, and no interrupt may be lost.

Python runs the handler of SIGINT in whatever Python code the main thread runs next. While the library works, that
is a function that it calls back, where an exception ends in "Exception ignored". `Keeper` puts its own handler there
for that time. It keeps the interrupt until the call of the library returns to Python, and raises it there: later code of the
program, or a finalizer, is no place for it.
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

    It does nothing on other threads, and where the handler of SIGINT is none of Python's.
    """

    def __init__(self) -> None:
        self._before: Callable | None = None
        self._is_open = False  # between begin and end
        self._is_kept = False
        self._when_kept: Callable[[], object] = lambda: None

    @property
    def ends_tune(self) -> bool:
        """Whether a SIGINT is kept that will be a KeyboardInterrupt. A handler of the program's own may just take note."""
        return self._is_kept and self._before is signal.default_int_handler and _is_main()

    def when_kept(self, function: Callable[[], object]) -> None:
        """Calls a function in each callback in which a SIGINT is kept: C code that returns to Python sends it again there."""
        self._when_kept = function

    def begin(self) -> None:
        """Called on the thread of the call, before it or in its first callback."""
        if not _is_main():
            return
        self._is_open = True
        self._install()

    def end(self) -> None:
        """Called after the call, where it raises what was kept, or in its last callback: then the caller gets it."""
        if not _is_main():
            return
        self._is_open = False
        if not self._is_kept:
            self._restore()
        if self._is_kept:
            self._install()  # A SIGINT may have come while the handler was being put back.
            self.raise_kept()

    def raise_later(self) -> None:
        """For a callback that has caught a KeyboardInterrupt itself."""
        if not _is_main():
            return
        self._install()
        if self._before is not None:
            self._keep()

    def raise_kept(self) -> None:
        """Called in Python after a call of the library: raises what was kept, unless that call was made in a callback."""
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
        # Here, too, when the call has failed without its last callback.
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
