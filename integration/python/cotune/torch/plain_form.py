"""The plain form of a program: PyTorch's own collectives, and the operations around them compiled by Inductor.

It is made of the program's text, so that a rank whose graph came out of a cache has it as well. It is what Inductor makes of
the same operations in a graph without cotune, but for what it would fuse with their neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cotune.torch import compat, plain, process_groups, sizes
from cotune.torch.program_text import ALL, ONE, SHARE, Node, ValueType, parse

# The name of the plain form among the choices of a program.
NAME = "torch/plain"

# Runs a form. It takes and gives tensors of two dimensions, the rows and columns of the program's values.
Form = Callable[..., Any]


def example_inputs(text: str, rows: int, ranks: int, device: torch.device) -> list[torch.Tensor]:
    """Operands for a program that is timed."""
    counts = {ONE: 1, ALL: rows, SHARE: rows // ranks}
    return [_example(counts[type_.rows], type_, device) for type_ in parse(text).inputs]


def example_outputs(text: str, rows: int, ranks: int, device: torch.device) -> list[torch.Tensor]:
    """Memory for the results of a program that is timed."""
    counts, program = {ONE: 1, ALL: rows, SHARE: rows // ranks}, parse(text)
    types = [program.types[value] for value, _ in program.outputs]
    return [torch.empty((counts[each.rows], each.columns), dtype=sizes.DTYPES[each.dtype], device=device) for each in types]


def bytes_of(text: str, rows: int, ranks: int) -> int:
    """The memory that a race of a program takes at most: two lists of operands, and one of results."""
    counts, program = {ONE: 1, ALL: rows, SHARE: rows // ranks}, parse(text)
    types = [*program.inputs, *program.inputs, *(program.types[value] for value, _ in program.outputs)]
    return sum(counts[each.rows] * each.columns * sizes.DTYPES[each.dtype].itemsize for each in types)


def _example(rows: int, type_: ValueType, device: torch.device) -> torch.Tensor:
    return filled(torch.empty((rows, type_.columns), dtype=sizes.DTYPES[type_.dtype], device=device))


def filled(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with values that cost no special time: small ones, or zeros if they may be indices.

    The generators of random numbers of the process stay as they are.
    """
    if not tensor.dtype.is_floating_point:
        return tensor.zero_()
    flat = tensor.view(-1)
    # In chunks: temporaries of the whole size would take several times the memory of the tensor.
    ramp = ((torch.arange(13 << 16, device=tensor.device) % 13 - 6) / 16).to(tensor.dtype)
    for begin in range(0, flat.numel(), ramp.numel()):
        chunk = flat[begin : begin + ramp.numel()]
        chunk.copy_(ramp[: chunk.numel()])
    return tensor


def compiled(text: str, inputs: list[torch.Tensor], group_name: str) -> Form:
    """The plain form for operands of these sizes, in the process group of that name."""
    ranks = torch.distributed.get_world_size(process_groups.resolve_group(group_name))

    def collective(node: Node, x: torch.Tensor, _: Any) -> torch.Tensor:
        return plain.by_pytorch(node, x, group_name, ranks)

    def form(*operands: torch.Tensor) -> list[torch.Tensor]:
        return plain.Run(text, list(operands), group_name, collective).results()

    return compat.compile_graph(compat.traced(form, inputs), inputs)


def collectives_alone(text: str, rows: int, ranks: int, device: torch.device, group_name: str) -> Form:
    """PyTorch's collectives of a program without any operation: no form of it by PyTorch takes less time."""
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
