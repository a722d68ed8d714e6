"""Makes groups by the C API: the options, the caller's store, and the errors."""

import ctypes
import os
from collections.abc import Mapping, Sequence

from cotune import _structs
from cotune._interrupt import keeper
from cotune._native import library
from cotune.constants import Result
from cotune.errors import CotuneError, error_of, usage_error
from cotune.store import Store, StoreAdapter


def create(options: _structs.GroupOptions, store: Store | None) -> int:
    """Makes a group, and returns its address. Raises a CotuneError, whose cause is the first exception of the store, if any."""
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
        keeper.raise_kept()
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
    """Returns forced choices as a text for the C API. A dict is converted, and a text is returned as it is."""
    if force is None or isinstance(force, str):
        return force
    return ",".join(f"{collective}={choice}" for collective, choice in force.items())


def settings_text(settings: "Mapping[str, object] | None") -> str | None:
    """Returns settings as lines "name=value" for the C API."""
    if settings is None:
        return None
    return "\n".join(f"{name}={_checked_value(name, value)}" for name, value in settings.items())


# Settings that have no effect here, because an argument of Group decides them.
_ARGUMENTS = {"memory": "memory"}
# The separators of lists that are not separated by commas.
_SEPARATORS = {"plugin_path": ":"}


def _checked_value(name: object, value: object) -> str:
    """Returns the text of a setting. Raises UsageError for a value of a type that no setting has."""
    where = f"setting {name}"
    if not isinstance(name, str):
        raise usage_error(f"{name!r} is no name of a setting", "settings", "", "give a str")
    if name in _ARGUMENTS:
        raise usage_error(
            f"{value!r} has no effect",
            where,
            "the argument of Group decides it, whatever the settings are",
            f"give cotune.Group({_ARGUMENTS[name]}={value!r}), and leave the setting out",
        )
    if name == "force" and isinstance(value, Mapping):
        value = force_text(value)
    parts = value if isinstance(value, list | tuple) else [value]
    for each in parts:
        if not isinstance(each, str | os.PathLike | bool | int | float):
            raise usage_error(
                f"{each!r} is {type(each).__name__}, which no setting is",
                where,
                "a value is a str, a path, a number, a bool, or a list of them",
                "leave the setting out for its default" if each is None else "give its text",
            )
    text = _SEPARATORS.get(name, ",").join(map(_setting_value, parts))
    if "\n" in f"{name}{text}":
        raise usage_error(f"{value!r} has a line break", where)
    return text


def _setting_value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str | os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, float):
        # The format has no exponent, which the library would refuse in durations.
        return f"{value:.9f}"
    return str(value)


def nanoseconds(seconds: float, where: str) -> int:
    rounded = round(seconds * 1e9)
    if rounded <= 0:
        raise usage_error(
            f"{seconds} s is no positive time", where, next_step="give seconds, for example 30.0"
        )
    return rounded
