"""The functions by which users let Python functions race for a custom operator, under the names that PyTorch has for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cotune.torch import compat, custom_choices, custom_race, declarations, function_choices, groups


class CustomOpConfig:
    """One way to run a custom operator: a function, and arguments that it gets beside those of the operator.

    PyTorch 2.13 has a class of this name and interface; this one serves PyTorch 2.11 as well.
    """

    def __init__(
        self,
        decomposition: Callable[..., Any] | None = None,
        config_patches: dict[str, Any] | None = None,
        **params: Any,
    ):
        """Makes a way to run an operator.

        Args:
          decomposition: the function; None for the operator itself, with these arguments.
          config_patches: options of Inductor for the compiled form of the function, by their names.
          params: arguments that the function gets by their names.

        Raises TypeError for a decomposition that cannot be called.
        """
        if decomposition is not None and not callable(decomposition):
            raise TypeError(f"CustomOpConfig: the decomposition is a function or None, and not {decomposition!r}")
        self.decomposition = decomposition
        self.config_patches = config_patches or {}
        self.params = params

    def __repr__(self) -> str:
        name = "default" if self.decomposition is None else getattr(self.decomposition, "__name__", "function")
        return f"CustomOpConfig({', '.join([name, *(f'{key}={value}' for key, value in self.params.items())])})"


def register(
    custom_op: Any,
    configs: Sequence[Any] | None,
    *,
    name: str | None,
    min_speedup_threshold: float,
    left_out: dict[str, Any],
) -> None:
    """See cotune.torch.register_custom_op_autotuning. `left_out`: its other arguments by their names; most of them are refused."""
    overload = _overload_of(custom_op)
    is_declared = declarations.of(overload) is not None
    generators = None if is_declared else left_out.pop("input_gen_fns", None)
    _check_left_out(left_out, min_speedup_threshold if is_declared else 1.0)
    ways = [_way(each) for each in _checked_configs(configs)]
    if name is not None and not isinstance(name, str):
        raise TypeError(f"register_custom_op_autotuning: name is a str or None, and not {name!r}")
    if not is_declared:
        threshold = _checked_threshold(min_speedup_threshold)
        custom_choices.register(overload, name or "", ways, threshold, generators, custom_race.run)
        return
    if entry := next((each for each in groups.entries() if each.group is not None), None):
        raise ValueError(
            f"register_custom_op_autotuning: process group {entry.name!r} has its group of cotune already, whose choices are known "
            "to all ranks; register before the first call of a compiled function"
        )
    function_choices.register(overload, name or "", ways)


def _overload_of(custom_op: Any) -> Any:
    found = getattr(custom_op, "_opoverload", custom_op)  # torch.library.custom_op gives an object that has it
    if isinstance(found, compat.operator_type()):
        return found
    raise TypeError(
        "register_custom_op_autotuning: the operator is what torch.library.custom_op returns or an overload as "
        f"torch.ops.lib.op.default, and not {custom_op!r}"
    )


def _checked_configs(configs: Any) -> Sequence[Any]:
    if not isinstance(configs, (list, tuple)) or not configs:
        raise ValueError(
            f"register_custom_op_autotuning: configs is a list of CustomOpConfig with one entry or more, and not {configs!r}"
        )
    configs = [CustomOpConfig(each) if callable(each) else each for each in configs]
    for each in configs:
        if not (hasattr(each, "decomposition") and hasattr(each, "params")):
            raise TypeError(f"register_custom_op_autotuning: each config is a CustomOpConfig, and not {each!r}")
        _check_patches(each)
    return configs


def _check_patches(config: Any) -> None:
    """Raises ValueError for options of Inductor that would have no effect or are not allowed."""
    patches, where = getattr(config, "config_patches", None) or {}, f"register_custom_op_autotuning: {config!r}"
    if patches and config.decomposition is None:
        raise ValueError(
            f"{where} has config_patches and no function; they are options of Inductor, which compiles functions and not the "
            "operator itself; leave them out, or give a function"
        )
    for name, value in patches.items():
        if not compat.has_inductor_option(name):
            raise ValueError(f"{where} has config_patches with {name!r}, and Inductor of torch {torch.__version__} has no such option")
        if name in config.params:
            raise ValueError(f"{where} has {name} as a parameter and in config_patches, and a choice is known by both; rename the parameter")
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise ValueError(
                f"{where} has config_patches with {name}={value!r}, and a choice is known by its options; give a number, a str, a bool "
                "or None"
            )
        if name == "triton.cudagraphs" and value:
            raise ValueError(f"{where} has config_patches with {name}, and cotune runs functions without CUDA graphs; leave it out")


def _checked_threshold(threshold: Any) -> float:
    is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not (is_number and 1.0 <= threshold < float("inf")):
        raise ValueError(
            f"register_custom_op_autotuning: min_speedup_threshold is {threshold!r}; it is the factor by which a function has to be "
            "faster than the operator, a number from 1.0 on"
        )
    return float(threshold)


def _way(config: Any) -> tuple[Callable[..., Any] | None, dict[str, Any], dict[str, Any]]:
    return config.decomposition, config.params, getattr(config, "config_patches", None) or {}


# Why cotune cannot use an argument that PyTorch's function has, and what to do.
_WHY_LEFT_OUT = {
    "config_generator": "cotune knows no sizes before the first call; list the configs, each runs at the sizes at which it is fastest",
    "input_gen_fns": "the operator is declared, and cotune measures with operands of its own, whose right results it knows; leave it out",
    "dispatch_on": "cotune chooses by the size of the collective, for each size that was measured; leave it out",
    "split_points": "cotune chooses by the size of the collective, for each size that was measured; leave it out",
    "benchmark_with_cudagraphs": "cotune itself decides how choices are timed; leave it out",
}


def _check_left_out(left_out: dict[str, Any], min_speedup_threshold: Any) -> None:
    for name, value in left_out.items():
        if value:
            raise ValueError(f"register_custom_op_autotuning: {name} is not used: {_WHY_LEFT_OUT[name]}")
    if min_speedup_threshold != 1.0:
        raise ValueError(
            f"register_custom_op_autotuning: min_speedup_threshold is {min_speedup_threshold}, and cotune takes another choice than "
            "the default if the difference is larger than the noise; leave it out, and set COTUNE_NOISE_PERCENT for a larger margin"
        )
