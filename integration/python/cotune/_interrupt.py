"""Ctrl-C while the library works and calls back: nothing may be raised through C, and no interrupt may be lost.

Python runs the handler of SIGINT in whatever Python code the main thread runs next. While the library works, that
is a function that it calls back, where an exception ends in "Exception ignored". `Keeper` puts its own handler there
for that time.
"""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType

# How often a thread looks whether the main thread has left a callback.
_LOOK_S = 0.001

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
    """Keeps a SIGINT that comes inside of a callback until the main thread has left it.

    It does nothing on other threads, and where the handler of SIGINT is none of Python's.
    """

    def __init__(self) -> None:
        self._before: Callable | None = None
        self._is_open = False  # between begin and end
        self._is_kept = False
        self._is_sending = False
        self._answers: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def ends_tune(self) -> bool:
        """Whether a SIGINT is kept that will be a KeyboardInterrupt. A handler of the program's own may just take note."""
        return self._is_kept and self._before is signal.default_int_handler and _is_main()

    def begin(self) -> None:
        """Called on the thread of the call, before it or in its first callback."""
        if not _is_main():
            return
        self._is_open = True
        self._install()

    def end(self) -> None:
        """Called behind the call, where it raises what was kept, or in its last callback: then the caller gets it."""
        if not _is_main():
            return
        self._is_open = False
        if not self._is_kept:
            self._restore()
        elif _is_in_callback(sys._getframe()):
            self._send_later()
        else:
            self._handle(signal.SIGINT, sys._getframe())

    def raise_later(self) -> None:
        """For a callback that has caught a KeyboardInterrupt itself."""
        if not _is_main():
            return
        self._install()
        if self._before is not None:
            self._is_kept = True
            self._send_later()

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
        self._is_kept = is_in_callback = _is_in_callback(frame)
        # The thread that sends the signal goes on at once, and sends it again if it is kept.
        self._answers.put(None)
        if is_in_callback:
            return
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

    def _send_later(self) -> None:
        if not self._is_sending:
            self._is_sending = True
            threading.Thread(target=self._send, name="cotune interrupt", daemon=True).start()

    def _send(self) -> None:
        main = threading.main_thread().ident
        while self._is_kept:
            while _is_in_callback(sys._current_frames().get(main)):
                time.sleep(_LOOK_S)
            while not self._answers.empty():
                self._answers.get()
            if self._is_kept:
                signal.pthread_kill(main, signal.SIGINT)
                self._answers.get()
        self._is_sending = False


keeper = Keeper()
