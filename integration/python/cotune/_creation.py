"""Groups as the C API makes them: options, the caller's store, errors."""

import ctypes
import os
from collections.abc import Mapping, Sequence

from cotune import _structs
from cotune._native import library
from cotune.constants import Result
from cotune.errors import CotuneError, error_of, usage_error
from cotune.store import Store, StoreAdapter


def create(options: _structs.GroupOptions, store: Store | None) -> int:
    """The address of a new group. The first exception of the store is the cause of the error."""
    made, error = ctypes.c_void_p(), _structs.Error()
    adapter = None if store is None else StoreAdapter(store)
    if adapter is not None:
        options.store = ctypes.pointer(adapter.table)
    result = library().cotune_group_create(
        ctypes.byref(options), ctypes.byref(made), ctypes.byref(error)
    )
    failure = None
    if adapter is not None:
        adapter.release()
        failure = adapter.failure
    if result != Result.SUCCESS:
        raise created_error(result, error) from failure
    return made.value


def created_error(result: int, error: _structs.Error) -> CotuneError:
    return error_of(
        result, error.text.decode(errors="replace"), error.rank if error.rank >= 0 else None
    )


def encoded(text: "str | os.PathLike[str] | None") -> bytes | None:
    return None if text is None else os.fsencode(text)


def joined(parts: "str | os.PathLike[str] | Sequence[str] | None", separator: str) -> str | None:
    if parts is None or isinstance(parts, str | os.PathLike):
        return None if parts is None else os.fspath(parts)
    return separator.join(os.fspath(part) for part in parts)


def force_text(force: "Mapping[str, str] | str | None") -> str | None:
    """The text of forced choices, which a dict may have as well."""
    if force is None or isinstance(force, str):
        return force
    return ",".join(f"{collective}={choice}" for collective, choice in force.items())


def settings_text(settings: "Mapping[str, object] | None") -> str | None:
    """The lines of settings by name."""
    if settings is None:
        return None
    for name, value in settings.items():
        if "\n" in f"{name}{value}":
            raise usage_error(f"{value!r} has a line break", f"setting {name}")
    return "\n".join(f"{name}={_setting_value(value)}" for name, value in settings.items())


def _setting_value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if isinstance(value, float):
        # Without an exponent, which durations do not have.
        return f"{value:.9f}"
    if isinstance(value, Sequence):
        return ",".join(map(_setting_value, value))
    return str(value)


def nanoseconds(seconds: float, where: str) -> int:
    rounded = round(seconds * 1e9)
    if rounded <= 0:
        raise usage_error(
            f"{seconds} s is no time to wait", where, next_step="give seconds, for example 30.0"
        )
    return rounded
