"""The store by which the ranks of a group find each other, and its adapter to the C API."""

import ctypes
import threading
import traceback
from collections.abc import Callable
from typing import Protocol

from cotune import _structs
from cotune.constants import Result
from cotune.errors import CotuneError


class Store(Protocol):
    """A key-value store that all ranks of a job can use, for example torch's TCPStore.

    All ranks are on one host, and the store only passes the address of rank 0, a value of at most
    4 KiB. A group calls the methods one at a time, on a thread of cotune, while it is made. They must
    not use a group. A call that has not returned 2 s after its timeout counts as failed.
    """

    def put(self, key: str, value: bytes, timeout_s: float) -> None:
        """Sets the value of the key, or replaces it."""

    def get(self, key: str, timeout_s: float) -> bytes:
        """Returns the value of the key, and waits for it if it is missing. Raises TimeoutError after timeout_s."""

    def erase(self, key: str, timeout_s: float) -> None:
        """Removes the key. It is no error if the key is missing."""


# Adapters whose store was still in a call when the making of the group ended: C code still uses them.
_left_behind: list["StoreAdapter"] = []


class StoreAdapter:
    """The C table of a Store. It lives until the last of its calls has returned."""

    def __init__(self, store: Store):
        self._store = store
        self._calls = 0
        self._calls_lock = threading.Lock()
        # The first exception of the store, which is the reason if the group cannot be made.
        self.failure: BaseException | None = None
        self._put = _structs.STORE_PUT_FUNCTION(self._on_put)
        self._get = _structs.STORE_GET_FUNCTION(self._on_get)
        self._erase = _structs.STORE_ERASE_FUNCTION(self._on_erase)
        self.table = _structs.Store(put=self._put, get=self._get, erase=self._erase)

    def release(self) -> None:
        """Ends the use of the adapter, after the group was made or that has failed. It stays alive for calls that still run."""
        with self._calls_lock:
            if self._calls > 0:
                _left_behind.append(self)

    def _on_put(self, _, key: bytes, data: int, size: int, timeout_ns: int) -> int:
        value = ctypes.string_at(data, size) if size else b""
        return self._run(lambda: self._store.put(key.decode(), value, timeout_ns / 1e9))

    def _on_get(self, _, key: bytes, data: int, capacity: int, size, timeout_ns: int) -> int:
        def get() -> None:
            value = bytes(self._store.get(key.decode(), timeout_ns / 1e9))
            ctypes.memmove(data, value, min(capacity, len(value)))
            size[0] = len(value)

        return self._run(get)

    def _on_erase(self, _, key: bytes, timeout_ns: int) -> int:
        return self._run(lambda: self._store.erase(key.decode(), timeout_ns / 1e9))

    def _run(self, call: Callable[[], object]) -> int:
        with self._calls_lock:
            self._calls += 1
        try:
            call()
            return Result.SUCCESS
        except TimeoutError:
            return Result.ERROR_DEADLINE
        except BaseException as failure:  # noqa: BLE001  nothing may be raised through C
            if self.failure is None:
                self.failure = failure
            else:
                traceback.print_exception(failure)
            return failure.result if isinstance(failure, CotuneError) else Result.ERROR_ENVIRONMENT
        finally:
            with self._calls_lock:
                self._calls -= 1
