"""Settings of the groups that operators make, which enable() takes by their names in cotune's settings file.

Such an option counts for groups that are made from now on. It takes precedence over COTUNE_ variables, these over the settings
file, and that over Inductor's own options of collective benchmarks. The latter count only if the user has changed them, and
last, because the variables and the file are meant for cotune alone.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from cotune.torch import compat, process_groups, settings_file
from cotune.torch.log import log

FUSION_TYPES = ("epilogue", "prologue", "cross_subgraph")


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(least: float, most: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _is_whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_fusion_types(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(each in FUSION_TYPES for each in value)


_SWITCH = (_is_switch, "True or False")
_TIMEOUT_S = (0.001, 3600)
_NRUNS = (1, 10_000)
_TIMEOUT = (_is_number(*_TIMEOUT_S), "seconds from 0.001 to 3600")
# For each option a test of its values, and their description for errors. integration/settings/setting_table.cc has the same bounds.
ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "collective_pre_sync_timeout": _TIMEOUT,
    "collective_autotune_timeout": _TIMEOUT,
    "collective_benchmark_nruns": (_is_whole(*_NRUNS), "a whole number from 1 to 10000"),
    "enable_collective_multitemplate": _SWITCH,
    "collective_fusion_enabled": _SWITCH,
    "enable_custom_op_fusion": _SWITCH,
    "custom_op_fusion_types": (_is_fusion_types, f"a list of {', '.join(FUSION_TYPES)}"),
    "benchmark_collective_epilogue_fusion": _SWITCH,
    "enable_recursive_fusion": _SWITCH,
    "max_fusion_depth": (_is_whole(1, 8), "a whole number from 1 to 8"),
    "fusion_speedup_threshold": (_is_number(1, 10), "a number from 1 to 10"),
    "precompile_threads": (_is_whole(0, 1024), "a whole number from 0 to 1024"),
    "max_autotune_gemm_threads": (_is_whole(0, 1024), "a whole number from 0 to 1024"),
}
# Each pair has two names of one setting.
_ALIASES = {"enable_custom_op_fusion": "collective_fusion_enabled", "max_autotune_gemm_threads": "precompile_threads"}


def check_pairs(options: Mapping[str, Any]) -> None:
    """Raises TypeError if both names of a setting are given, with different values."""
    for alias, name in _ALIASES.items():
        if alias in options and name in options and options[alias] != options[name]:
            raise TypeError(
                f"option '{name}' is {options[name]!r}, and '{alias}', another name of it, is {options[alias]!r}; give one of them"
            )


def with_defaults(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a group: those in `chosen`, and those that follow from Inductor's changed options.

    An option of Inductor counts only if neither `chosen` nor a variable of cotune or the settings file gives the setting. A
    value of Inductor that cotune cannot use is changed or left out, with a warning, so that it never keeps a group from being
    made.
    """
    found = _of_inductor(chosen)
    named = {_ALIASES.get(name, name): value for name, value in chosen.items()}
    if "custom_op_fusion_types" in named:
        named["custom_op_fusion_types"] = ",".join(named["custom_op_fusion_types"]) or "none"
    return found | named


# The settings that options of Inductor may give: the names of the options, and the limits of the settings.
_INDUCTORS: dict[str, tuple[str, tuple[float, float]]] = {
    "collective_benchmark_nruns": ("collective_benchmark_nruns", _NRUNS),
    "collective_autotune_timeout": ("collective_benchmark_timeout", _TIMEOUT_S),
}


def _of_inductor(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings from Inductor's changed options, within cotune's limits, without those that the user gives to cotune."""
    found = {}
    for name, value in compat.changed_benchmark_options().items():
        if name in chosen or settings_file.given(name) is not None:
            continue
        option, (least, most) = _INDUCTORS[name]
        if name == "collective_benchmark_nruns":
            least = max(least, _fewest_rounds(most))
        if (used := _within(value, least, most, is_whole=name == "collective_benchmark_nruns")) is not None:
            found[name] = used
        if used is None or used != value:
            _warn_of_inductor(option, repr(value), name, "its default" if used is None else repr(used))
    return found


def _fewest_rounds(most: float) -> int:
    """Returns the user's min_rounds, at most `most`, or 1: a group with fewer benchmark runs than min_rounds would be refused."""
    fewest = settings_file.given("min_rounds")
    return min(int(fewest.value), int(most)) if fewest is not None and fewest.value.isdecimal() else 1


def _within(value: Any, least: float, most: float, is_whole: bool) -> float | None:
    """Returns the nearest value within the limits; None for a value that is no number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        return None
    nearest = min(max(value, least), most)
    return int(nearest) if is_whole else nearest


@functools.cache
def _warn_of_inductor(option: str, value: str, name: str, used: str) -> None:
    # Rank 0 warns for all: ranks with another value learn of it from the tune, which names a setting that differs.
    log.log(
        logging.WARNING if process_groups.global_rank() == 0 else logging.INFO,
        "torch._inductor.config.%s is %s, which the setting %s cannot have; cotune uses %s. To choose another value, give %s to "
        "cotune.torch.enable(), in the settings file or as COTUNE_%s",
        option, value, name, used, name, name.upper(),
    )  # fmt: skip


# The default of the setting collective_autotune_timeout.
_AUTOTUNE_TIMEOUT_S = 30.0


def autotune_timeout_s(chosen: Mapping[str, Any]) -> float:
    """Returns the deadline of one measurement: from the options, the variable, the settings file or Inductor, in this order."""
    found = with_defaults(chosen).get("collective_autotune_timeout")
    if found is None:
        found = _given_timeout_s()
    return float(found)


def _given_timeout_s() -> float:
    """Returns the deadline from the variable or the settings file, or the default if neither has a valid one."""
    given = settings_file.given("collective_autotune_timeout")
    if given is None:
        return _AUTOTUNE_TIMEOUT_S
    least, most = _TIMEOUT_S
    try:
        seconds = settings_file.seconds(given.value)
    except ValueError as failure:
        _warn_of_timeout(given, str(failure))
        return _AUTOTUNE_TIMEOUT_S
    if not least <= seconds <= most:
        _warn_of_timeout(given, f"{given.value!r} is not from 1ms to 1h")
        return _AUTOTUNE_TIMEOUT_S
    return seconds


@functools.cache
def _warn_of_timeout(given: settings_file.Given, why: str) -> None:
    log.log(
        logging.WARNING if process_groups.global_rank() == 0 else logging.INFO,
        "collective_autotune_timeout (%s) is left out: %s; functions and PyTorch's forms are measured with a deadline of %g s",
        given.origin, why, _AUTOTUNE_TIMEOUT_S,
    )  # fmt: skip
