"""The options of `enable`, `enabled` and `options`, and the values that each of them may have."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from typing import Any

from cotune.constants import Collective
from cotune.torch import job_settings, settings_file

# The library takes a budget as nanoseconds in 64 bits.
_SECONDS_MAX = 9e9


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_budget(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value is None or value == "auto" or (is_number and 0 <= value <= _SECONDS_MAX)


def _is_database(value: Any) -> bool:
    return value is None or isinstance(value, (str, os.PathLike))


def _is_force(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 3600


def _is_seconds_or_none(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool) or _is_seconds(value)


_COLLECTIVES = [each.name.lower() for each in Collective]

# More row counts than a tune measures in any sensible time.
SIZES_MAX = 64


def _is_sizes(value: Any) -> bool:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= SIZES_MAX:
        return False
    return all(isinstance(each, int) and not isinstance(each, bool) and 0 < each < 2**40 for each in value)


_SWITCH: tuple[Callable[[Any], bool], str] = (_is_switch, "True or False")

# For each option of Settings, of TuneSettings and of the tables, a test of its values, and their description for errors.
_ALLOWED = {
    **dict.fromkeys(("epilogues", "prologues", "overlap", "all_to_all", "export"), _SWITCH),
    "tunes": _SWITCH,
    "budget_s": (_is_budget, '"auto", a number of seconds, or 0 or None for the setting budget'),
    "numerics": (lambda value: value in ("any", "same"), '"any" or "same"'),
    "database": (_is_database, 'a path, "" for the database of this machine, or None for none'),
    "force": (
        _is_force,
        'a dict from collectives to ids of choices, such as {"all_reduce": "nccl/auto"}, or None for the setting force_choice',
    ),
    "races_plain": _SWITCH,
    "races_plain_budget_s": (_is_seconds, "a number of seconds above 0 and up to 3600"),
    "functions_compile_budget_s": (_is_seconds_or_none, "a number of seconds from 0, which compiles no function, to 3600"),
    "tables": _SWITCH,
    "rows": (_is_sizes, f"a list of 1 to {SIZES_MAX} positive numbers of rows"),
    "collective_multi_kernel_hints": (_is_sizes, f"a list of 1 to {SIZES_MAX} positive numbers of bytes"),
    **job_settings.ALLOWED,
}

# Names that users may expect as options, because PyTorch or the original design has them, and what to use instead.
_INSTEAD = {
    "collective_benchmark_timeout": "PyTorch's option of that name counts where collective_autotune_timeout is not given",
    "force_extern_kernel_in_multi_template": 'give force={"all_reduce": "host/ring?chunk=65536"}',
    "return_multi_template": "enable_collective_multitemplate=True defers the decision to the end of the graph",
    "benchmark_epilogue_fusion": "that option of Inductor is about its own kernels; give benchmark_collective_epilogue_fusion",
    "process_group": "each collective names its own group",
    "is_collective": "cotune knows collectives by their operators; declare_collective() declares others",
    "max_autotune": "cotune tunes whatever it takes; tunes=False keeps it from tuning",
}


def check_force(force: Mapping[str, str] | None) -> None:
    """Raises ValueError for a name or a choice of the option `force` that no set of plugins and functions could have."""
    for name, choice in (force or {}).items():
        if not name.strip() or not choice.strip():
            missing = "choice" if name.strip() else "collective"
            raise ValueError(f"option 'force' has {name!r}: {choice!r}, which names no {missing}; give for example {{'all_reduce': 'nccl/auto'}}")
        if "::" in name and not settings_file.is_operator_name(name):
            raise ValueError(f"option 'force': {settings_file.no_operator_name(name)}")
        if "::" not in name and name not in _COLLECTIVES:
            near = difflib.get_close_matches(name, _COLLECTIVES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"option 'force' has {name!r}, which is no collective; known are {', '.join(_COLLECTIVES)}{hint}")


def check(options: Mapping[str, Any]) -> None:
    """Raises TypeError for an unknown option, and for a value that is not allowed."""
    for name, value in options.items():
        if name in _INSTEAD:
            raise TypeError(f"'{name}' is no option of cotune: {_INSTEAD[name]}")
        if name not in _ALLOWED:
            near = difflib.get_close_matches(name, _ALLOWED, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"unknown option '{name}'; known are {', '.join(_ALLOWED)}{hint}")
        is_allowed, allowed = _ALLOWED[name]
        if not is_allowed(value):
            raise TypeError(f"option '{name}' is {allowed}, and not {value!r}")
    job_settings.check_pairs(options)
    if "rows" in options and "collective_multi_kernel_hints" in options:
        raise TypeError("options 'rows' and 'collective_multi_kernel_hints' both give the sizes of dynamic programs; give one of them")
