"""Reads the settings of cotune that the user gives outside of the program: in the settings file and by COTUNE_ variables.

The library resolves settings by itself when a group is made. This module reads those that are needed earlier: which settings are
given, where, and the sizes that compiled graphs need. A test compares it with the library. The library itself is not asked,
because it may be missing on one rank, whose programs then run by PyTorch: its compiled graphs must not differ. A file that cannot
be read counts as empty, because the library refuses it and names the wrong line.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping

from cotune.constants import Collective

# The characters that the library takes as blanks; those of Unicode are none. A line of a file may end with a carriage return.
_BLANKS = " \t\r"
_BLANKS_IN_LISTS = " \t"
_LINE = re.compile(
    r"""[ \t\r]*(?P<name>[A-Za-z0-9_.-]+)[ \t\r]*=[ \t\r]*(?:"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>[^']*)'|(?P<bare>[^#]*))"""
)
_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = r"(\d+)([KMGTkmgt]?)"
_RANGE = re.compile(rf"{_SIZE}(?::{_SIZE}(?::(?:x(?P<factor>\d+)|\+(?P<step>\d+)(?P<unit>[KMGTkmgt]?)))?)?", re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|ms|s|m|h|)", re.ASCII)
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
# The largest size that a setting may have, and the largest number of sizes.
_SIZE_BYTES_MAX = 2**40
_SIZES_MAX = 1000
# The other names of settings.
_ALIASES = {
    "collective_fusion_enabled": ("enable_custom_op_fusion",),
    "precompile_threads": ("max_autotune_gemm_threads",),
    "force_choice": ("force",),
}


@dataclasses.dataclass(frozen=True)
class Given:
    """The value of a setting, as text, and the place that gives it: a variable, or "PATH:LINE"."""

    value: str
    origin: str


def given(name: str) -> Given | None:
    """Returns the value that the user gives for a setting, the variable before the file; None if neither has it."""
    names = (name, *_ALIASES.get(name, ()))
    for each in names:
        if (in_variable := _in_variable(each)) is not None:
            return in_variable
    in_file = _in_file()
    return next((in_file[each] for each in names if each in in_file), None)


def _in_variable(name: str) -> Given | None:
    variable = f"COTUNE_{name.upper()}"
    value = os.environ.get(variable)
    return Given(value, variable) if value else None


def force_parts() -> tuple[str, dict[str, str], str]:
    """Reads the setting force_choice: its elements for collectives as text, the choices of custom operators, and its origin.

    Raises ValueError for a list that cannot be read. That may happen on this rank alone, so that a caller for whose rank others
    wait has to share the text with them. Names of collectives and choices are not checked here, but by the library.
    """
    _check_names_of_force()
    found = given("force_choice")
    if found is None:
        return "", {}, ""
    of_collectives, of_operators = _parts_of(found)
    return _text_of(of_collectives), of_operators, found.origin


def _check_names_of_force() -> None:
    """Raises ValueError if one source gives both names of the setting force_choice with different lists, as neither takes
    precedence."""
    names, in_file = ("force_choice", *_ALIASES["force_choice"]), _in_file()
    for read in (in_file.get, _in_variable):
        by_name, by_alias = (read(name) for name in names)
        if by_name is None or by_alias is None:
            continue
        first, second = _parts_of(by_name), _parts_of(by_alias)
        if first != second:
            raise ValueError(
                f"{names[0]} is {_sorted_text(first)}, and its alias {names[1]} is {_sorted_text(second)} "
                f"({by_name.origin} and {by_alias.origin}): both are names of one setting; remove one of them, or give both one value"
            )


def _text_of(choices: Mapping[str, str]) -> str:
    return ",".join(f"{name}={choice}" for name, choice in choices.items())


def _sorted_text(parts: tuple[dict[str, str], dict[str, str]]) -> str:
    """Returns the list as the library writes it: collectives in their order, and then operators by their names."""
    order = {each.name.lower(): each for each in Collective}
    of_collectives = dict(sorted(parts[0].items(), key=lambda each: order.get(each[0], len(order) + 1)))
    return _text_of(of_collectives | dict(sorted(parts[1].items())))


def _parts_of(found: Given) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the choices of collectives, and those of operators. Raises ValueError for a list that cannot be read."""
    if not found.value.strip(_BLANKS_IN_LISTS):
        return {}, {}
    of_collectives: dict[str, str] = {}
    of_operators: dict[str, str] = {}
    for number, element in enumerate(found.value.split(","), 1):
        element = element.strip(_BLANKS_IN_LISTS)
        name, _, choice = (each.strip(_BLANKS_IN_LISTS) for each in element.partition("="))
        if not element:
            raise _bad_force(found, f"element {number} of the list is empty")
        if not name or not choice:
            raise _bad_force(found, f'"{element}" names no choice' if name else f'"{element}" names no collective')
        if "::" in name and not is_operator_name(name):
            raise _bad_force(found, no_operator_name(name))
        part = of_operators if "::" in name else of_collectives
        if name in part:
            raise _bad_force(found, f"{name} stands twice: with {part[name]} and with {choice}")
        part[name] = choice
    return of_collectives, of_operators


def is_operator_name(name: str) -> bool:
    """Returns true for a name of the form lib::op, without blanks."""
    library, _, operator = name.partition("::")
    return library != "" and operator != "" and "::" not in operator and not any(each.isspace() for each in name)


def no_operator_name(name: str) -> str:
    """Returns the reason for which a name with "::" is refused."""
    return f'"{name}" is no name of an operator: give lib::op'


def forces_collectives() -> bool:
    """Returns true if the setting force_choice names collectives, or cannot be read: the library refuses it then."""
    return why_force_is_wrong() != "" or force_parts()[0] != ""


def why_force_is_wrong() -> str:
    """Returns why the setting force_choice cannot be read; "" if it can."""
    try:
        force_parts()
    except ValueError as failure:
        return str(failure)
    return ""


def _bad_force(found: Given, why: str) -> ValueError:
    return ValueError(
        f'bad value "{found.value}" for force_choice ({found.origin}): {why}; give collectives or custom operators and their '
        "choices, such as all_reduce=nccl/auto,lib::op=python/ring"
    )


def path() -> pathlib.Path | None:
    """Returns the settings file: the one that COTUNE_CONFIG names, or the user's own if it exists; None without one."""
    if named := os.environ.get("COTUNE_CONFIG"):
        return pathlib.Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not folder.startswith("/"):
        home = os.environ.get("HOME", "")
        if not home.startswith("/"):
            return None
        folder = f"{home}/.config"
    found = pathlib.Path(folder, "cotune", "config.toml")
    # Path.exists() would raise an error if a folder cannot be read. The library uses access() as well, and has no file then.
    return found if os.access(found, os.F_OK) else None


def _in_file() -> dict[str, Given]:
    """Returns the settings in the file, without those of backends, by the names that they have there."""
    if (file := path()) is None:
        return {}
    try:
        lines = file.read_bytes().decode(errors="surrogateescape").split("\n")
    except OSError:
        return {}
    found: dict[str, Given] = {}
    for number, line in enumerate(lines, 1):
        if line.lstrip(_BLANKS).startswith("["):
            break  # this section and all after it have settings of backends
        matched = _LINE.match(line)
        if matched:
            found[matched["name"]] = Given(_value(matched), f"{file}:{number}")
    return found


def _value(matched: re.Match[str]) -> str:
    if matched["double"] is not None:
        return re.sub(r"\\(.)", r"\1", matched["double"])
    return matched["single"] if matched["single"] is not None else matched["bare"].strip(_BLANKS)


def seconds(text: str) -> float:
    """Reads a duration such as "500ms", "30s" or "5m", in seconds. A number without a unit is seconds.

    Raises ValueError for another text.
    """
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is not a duration; write a number and a unit, for example 500ms, 30s or 5m")
    return float(matched[1]) * _UNITS_S[matched[2]]


def sizes_bytes(text: str) -> tuple[int, ...]:
    """Reads sizes in bytes such as "1K:16M:x2", "1K:64K:+4K" or "4K,1M", ascending. Raises ValueError for another text."""
    found: set[int] = set()
    for part in text.split(","):
        found.update(_range(part))
        if len(found) > _SIZES_MAX:
            raise ValueError(f"{text!r} has more than {_SIZES_MAX} sizes")
    return tuple(sorted(found))


def _range(text: str) -> list[int]:
    matched = _RANGE.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is no size; write for example 64K, 1K:16M:x2, 1K:64K:+4K or 1K,3M,100")
    first = _bytes(matched[1], matched[2])
    last = first if matched[3] is None else _bytes(matched[3], matched[4])
    step = 0 if matched["step"] is None else _bytes(matched["step"], matched["unit"])
    factor = 1 if matched["step"] is not None else int(matched["factor"] or 2)
    has_no_step = (factor < 2 and step < 1) or (last > first and first * factor + step <= first)
    if max(first, last, step) > _SIZE_BYTES_MAX or last < first or has_no_step:
        raise ValueError(f"{text!r} is no range of sizes from the smaller to the larger one, up to 1T")
    found = [first]
    while len(found) <= _SIZES_MAX and (size := found[-1] * factor + step) <= last and size > found[-1]:
        found.append(size)
    return found


def _bytes(number: str, unit: str) -> int:
    return int(number) * _BYTES[unit.upper()]
