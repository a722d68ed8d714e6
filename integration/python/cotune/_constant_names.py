"""The names by which users may write the constants of cotune.h."""

import enum
from typing import TypeVar

from cotune.errors import usage_error

_Enum = TypeVar("_Enum", bound=enum.IntEnum)


def constant(kind: type[_Enum], value: "_Enum | str | int", where: str) -> _Enum:
    """Returns the constant that `value` is or names: "sum" gives Reduction.SUM.

    Raises UsageError if there is none. `where` names the argument in its text.
    """
    if type(value) is kind:
        return value
    try:
        return kind[value.upper()] if isinstance(value, str) else kind(value)
    except (KeyError, ValueError):
        names = ", ".join(each.name.lower() for each in kind)
        raise usage_error(
            f"there is no {kind.__name__} {value!r}", where, next_step=f"use one of {names}"
        ) from None
