"""Makes the operands on which a function is compared with the body of its operator, and checks its result."""

from __future__ import annotations

from typing import Any

import torch

from cotune.torch.custom_choices import CustomOperator

# The largest integer in made operands, so that products and sums are exact; 1 for all other floats, as bfloat16 has only 8 bits.
_LARGEST = {torch.float32: 4, torch.float64: 4}


def check_result(result: Any, expected: torch.Tensor, operands: dict[str, Any]) -> None:
    """Raises TypeError or ValueError for a result of a function that is not the result of the body, value by value."""
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"it has returned {type(result).__name__}, and the operator returns a tensor")
    found, wanted = ((each.dtype, tuple(each.shape), each.device) for each in (result, expected))
    if found != wanted:
        raise ValueError(f"it has returned {_facts_text(*found)}, and the operator returns {_facts_text(*wanted)}")
    memory = {each.untyped_storage().data_ptr() for each in operands.values() if isinstance(each, torch.Tensor) and each.numel()}
    if result.numel() and result.untyped_storage().data_ptr() in memory:
        raise ValueError("its result shares memory with an argument")
    differs = (result != expected) & ~((result != result) & (expected != expected))
    if bool(differs.any()):
        place = differs.reshape(-1).nonzero()[0].item()
        values = result.reshape(-1)[place].item(), expected.reshape(-1)[place].item()
        raise ValueError(f"{int(differs.sum())} of {result.numel()} values are wrong; element {place} is {values[0]} and not {values[1]}")


def check_results_are_new(results: list[torch.Tensor]) -> None:
    """Raises ValueError if results of several calls, all of which are still there, lie in the same memory."""
    memory = [each.untyped_storage().data_ptr() for each in results if each.numel()]
    if len(set(memory)) < len(memory):
        raise ValueError("its results of two calls share memory, and each call has to return a new tensor")


def _facts_text(dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> str:
    return f"{dtype} of {shape} on {device}"


def made_operands(operator: CustomOperator, values: dict[str, Any], rank: int, trial: int = 0) -> dict[str, Any]:
    """Arguments like those of a call, with tensors of small integers that are different on each rank and in each trial."""
    made = dict(values)
    for number, (name, value) in enumerate(values.items()):
        if isinstance(value, torch.Tensor):
            made[name] = _made_operand(operator, name, value, 1 + 1000 * (2 * rank + trial) + number)
    return made


def _made_operand(operator: CustomOperator, name: str, value: torch.Tensor, seed: int) -> torch.Tensor:
    made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
    generate = operator.input_gen_fns.get(name)
    if generate is not None:
        given = generate(made)
        is_like = isinstance(given, torch.Tensor) and (given.shape, given.dtype, given.device) == (value.shape, value.dtype, value.device)
        if not is_like:
            raise ValueError(f"the function of input_gen_fns for {name} has returned no tensor like the argument: {given!r:.100}")
        return given if given.stride() == made.stride() else made.copy_(given)
    if value.dtype.is_complex:
        raise ValueError(f"its argument {name} is {value.dtype}; give a function of input_gen_fns for it")
    generator = torch.Generator().manual_seed(seed)
    # An integer may be an index: 0 and 1 are the most likely to be valid.
    low, high = (-_LARGEST.get(value.dtype, 1), _LARGEST.get(value.dtype, 1)) if value.dtype.is_floating_point else (0, 1)
    return made.copy_(torch.randint(low, high + 1, value.shape, generator=generator, dtype=torch.int8))


def unlike_copies(values: dict[str, Any]) -> str:
    """Returns the name of a tensor whose copy would have another layout, as its elements overlap or have gaps; "" without one."""
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            empty = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
            if torch.empty_like(empty).stride() != value.stride():
                return name
    return ""


def copied(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in values.items()}
