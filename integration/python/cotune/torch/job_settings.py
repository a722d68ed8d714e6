"""Settings of the groups that operators make, by the names that they have in cotune's settings file.

An option of this table counts for groups that are made from now on, and more than COTUNE_ variables and the settings file do.
Inductor's own options of collective benchmarks are the defaults of those here if the user has changed them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from cotune.torch import compat

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
_TIMEOUT = (_is_number(0.001, 3600), "seconds from 0.001 to 3600")
# The values that each may have. The bounds are those of integration/settings/setting_table.cc.
ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "collective_pre_sync_timeout": _TIMEOUT,
    "collective_autotune_timeout": _TIMEOUT,
    "collective_benchmark_nruns": (_is_whole(1, 10_000), "a whole number from 1 to 10000"),
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
# Two names of one setting each.
_ALIASES = {"enable_custom_op_fusion": "collective_fusion_enabled", "max_autotune_gemm_threads": "precompile_threads"}


def check_pairs(options: Mapping[str, Any]) -> None:
    """Raises TypeError for two names of one setting that have different values."""
    for alias, name in _ALIASES.items():
        if alias in options and name in options and options[alias] != options[name]:
            raise TypeError(
                f"option '{name}' is {options[name]!r}, and '{alias}', another name of it, is {options[alias]!r}; give one of them"
            )


def with_defaults(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a group: those that were chosen, and those of Inductor that the user has changed.

    A variable of cotune counts more than an option of Inductor, because it is meant for cotune alone.
    """
    found = {
        name: value
        for name, value in compat.changed_benchmark_options().items()
        if not os.environ.get(f"COTUNE_{name.upper()}")
    }
    named = {_ALIASES.get(name, name): value for name, value in chosen.items()}
    if "custom_op_fusion_types" in named:
        named["custom_op_fusion_types"] = ",".join(named["custom_op_fusion_types"]) or "none"
    return found | named


# The default of the setting collective_autotune_timeout.
_AUTOTUNE_TIMEOUT_S = 30.0


def autotune_timeout_s(chosen: Mapping[str, Any]) -> float:
    """The deadline of one measurement, as far as the options of cotune and of Inductor give it."""
    return float(with_defaults(chosen).get("collective_autotune_timeout", _AUTOTUNE_TIMEOUT_S))
