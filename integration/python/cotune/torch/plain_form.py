"""The plain form of a program: PyTorch's own collectives, and the operations around them compiled by Inductor.

It is made from the program's text, so that a rank whose graph came out of a cache can make it as well. Inductor compiles the same
operations alike in a graph without cotune, except that it may fuse them with their neighbours there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cotune.torch import compat, plain, process_groups, sizes
from cotune.torch.program_text import ALL, ONE, SHARE, Node, ValueType, parse

# The name of the plain form among the choices of a program.
NAME = "torch/plain"

# Runs a form. It takes and returns tensors of two dimensions, the rows and columns of the program's values.
Form = Callable[..., Any]


def example_inputs(text: str, rows: int, ranks: int, device: torch.device) -> list[torch.Tensor]:
    """Makes operands to time a program at a row count."""
    counts = {ONE: 1, ALL: rows, SHARE: rows // ranks}
    return [_example(counts[type_.rows], type_, device) for type_ in parse(text).inputs]


def example_outputs(text: str, rows: int, ranks: int, device: torch.device) -> list[torch.Tensor]:
    """Makes tensors for the results of a program that is timed at a row count."""
    counts, program = {ONE: 1, ALL: rows, SHARE: rows // ranks}, parse(text)
    types = [program.types[value] for value, _ in program.outputs]
    return [torch.empty((counts[each.rows], each.columns), dtype=sizes.DTYPES[each.dtype], device=device) for each in types]


def bytes_of(text: str, rows: int, ranks: int) -> int:
    """Returns the most memory that a race of a program takes, in bytes: for operands twice, and for results once."""
    counts, program = {ONE: 1, ALL: rows, SHARE: rows // ranks}, parse(text)
    types = [*program.inputs, *program.inputs, *(program.types[value] for value, _ in program.outputs)]
    return sum(counts[each.rows] * each.columns * sizes.DTYPES[each.dtype].itemsize for each in types)


def _example(rows: int, type_: ValueType, device: torch.device) -> torch.Tensor:
    return filled(torch.empty((rows, type_.columns), dtype=sizes.DTYPES[type_.dtype], device=device))


def filled(tensor: torch.Tensor) -> torch.Tensor:
    """Fills a tensor with values that take no special time, and returns it: small floats, and zeros for integers, as these may be
    indices.

    It does not use the random number generators of the process.
    """
    if not tensor.dtype.is_floating_point:
        return tensor.zero_()
    flat = tensor.view(-1)
    # It is filled in chunks, because temporaries of the whole size would take several times the memory of the tensor.
    ramp = ((torch.arange(13 << 16, device=tensor.device) % 13 - 6) / 16).to(tensor.dtype)
    for begin in range(0, flat.numel(), ramp.numel()):
        chunk = flat[begin : begin + ramp.numel()]
        chunk.copy_(ramp[: chunk.numel()])
    return tensor


def compiled(text: str, inputs: list[torch.Tensor], group_name: str) -> Form:
    """Compiles the plain form for operands of these sizes, in the process group of that name."""
    ranks = torch.distributed.get_world_size(process_groups.resolve_group(group_name))

    def collective(node: Node, x: torch.Tensor, _: Any) -> torch.Tensor:
        return plain.by_pytorch(node, x, group_name, ranks)

    def form(*operands: torch.Tensor) -> list[torch.Tensor]:
        return plain.Run(text, list(operands), group_name, collective).results()

    return compat.compile_graph(compat.traced(form, inputs), inputs)


def collectives_alone(text: str, rows: int, ranks: int, device: torch.device, group_name: str) -> Form:
    """Returns a function that runs PyTorch's collectives of a program and no operation.

    Its time is a lower bound for every form of the program by PyTorch.
    """
    program = parse(text)
    counts = {ONE: 1, ALL: rows, SHARE: rows // ranks}
    calls = []
    for node in program.nodes:
        if node.is_collective:
            type_ = program.types[node.operands[0]]
            calls.append((node, _example(counts[type_.rows], type_, device)))

    def run() -> None:
        for node, operand in calls:
            plain.collective_alone(node, operand, group_name, ranks)

    return run
