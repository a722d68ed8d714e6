"""Owns a cotune_group: checks that the right process uses it, by one thread at a time, and destroys it."""

import ctypes
import os
import threading
from collections.abc import Callable

from cotune._interrupt import keeper
from cotune._native import library
from cotune.constants import Result
from cotune.errors import error_of, usage_error
from cotune.functions import FunctionsAdapter
from cotune.log import LogAdapter

# At the end of the process, seconds to wait for a thread in a call of a group, which has been aborted.
_END_WAIT_S = 10


class GroupHandle:
    """A group of the C API. While a call runs, every other call except `abort` and `end` raises UsageError."""

    def __init__(self, address: int, log: LogAdapter | None, functions: FunctionsAdapter | None):
        self._library = library()
        self._address: int | None = address
        self._process = os.getpid()
        self._call_lock = threading.Lock()
        # Held while abort() uses the address without the call lock, and while the address is removed.
        self._address_lock = threading.Lock()
        # The references keep both alive, because C calls them as long as this group or one split from it lives.
        self.log = log
        self.functions = functions

    def call(self, function: Callable[..., int], *arguments) -> None:
        """Calls a function of the C API whose first argument is the group. Raises the error of the call."""
        address = self.enter()
        try:
            result = function(address, *arguments)
            # The text is valid until the next call on the group.
            text = self._library.cotune_last_error(address) if result else b""
        finally:
            self.leave()
        self.raise_interrupt()
        if result:
            raise error_of(result, text.decode(errors="replace"))

    def exclusive(self) -> "_Exclusive":
        """Returns a context for `with` that gives the address. Until its end, calls of other threads raise UsageError."""
        return _Exclusive(self)

    def raise_interrupt(self) -> None:
        """Raises an exception that a callback has kept, for example KeyboardInterrupt. It is called after C code has returned."""
        if self.log is not None and self.log.interrupt is not None:
            interrupt, self.log.interrupt = self.log.interrupt, None
            raise interrupt
        keeper.raise_kept()

    def enter(self) -> int:
        if os.getpid() != self._process:
            raise usage_error(
                "the group was made before this process was forked",
                "cotune.Group",
                "a child cannot use the groups of its parent",
                "make a group in the child, or start it with the method spawn",
            )
        if not self._call_lock.acquire(blocking=False):
            raise usage_error(
                "another thread is in a call of this group, or this is its log",
                "cotune.Group",
                "a group is used by one thread at a time",
                "wait for that thread, or make a group for each one (Group.split)",
            )
        if self._address is None:
            self._call_lock.release()
            raise usage_error(
                "the group is destroyed",
                "cotune.Group",
                next_step="use it inside of its `with`, or make another one",
            )
        return self._address

    def leave(self) -> None:
        self._call_lock.release()

    def abort(self, reason: str | None) -> None:
        """Aborts the group. Any thread may call it, also while another is in a call. It does nothing for a destroyed group."""
        if os.getpid() != self._process:
            raise usage_error(
                "the group was made before this process was forked", "cotune.Group.abort"
            )
        with self._address_lock:
            if self._address is None:
                return
            encoded = None if reason is None else reason.encode(errors="replace")
            result = self._library.cotune_group_abort(self._address, encoded)
        if result != Result.SUCCESS:
            raise error_of(result, "the group could not be aborted (cotune.Group.abort)")

    def destroy(self) -> None:
        """Leaves the job. It does nothing for a group that is destroyed already, or in a forked child of its process."""
        if self._address is None or os.getpid() != self._process:
            return
        self.enter()
        self._end()
        self.raise_interrupt()

    def end(self) -> None:
        """Does the same as destroy() at the end of the process, or when the last reference is deleted.

        If a thread is in a call, the group is aborted first. If the call does not return then, the group is not destroyed.
        """
        if self._address is None or os.getpid() != self._process:
            return
        if not self._call_lock.acquire(blocking=False):
            self.abort("the process ends while a thread is in a call")
            if not self._call_lock.acquire(timeout=_END_WAIT_S):
                return
        if self._address is None:
            self._call_lock.release()
            return
        self._end()

    def _end(self) -> None:
        """Destroys the group. The caller holds the call lock, which this releases."""
        with self._address_lock:
            address, self._address = self._address, None
        try:
            self._library.cotune_group_destroy(ctypes.c_void_p(address))
        finally:
            self._call_lock.release()


class _Exclusive:
    def __init__(self, handle: GroupHandle):
        self._handle = handle

    def __enter__(self) -> int:
        return self._handle.enter()

    def __exit__(self, *_) -> None:
        self._handle.leave()
