"""A stand-in for the operator library: the same schemas, run by torch itself."""

from __future__ import annotations

import dataclasses
import functools

import torch

from cotune.torch import compat, manifest, operators, plain, process_groups

_SCHEMAS = (
    "program(Tensor[] inputs, Tensor(a!)[] outputs, str program, str group_name, str manifest)"
    " -> ()",
    "all_reduce(Tensor x, str reduce_op, str group_name) -> Tensor",
    "all_gather(Tensor x, int world_size, str group_name) -> Tensor",
    "reduce_scatter(Tensor x, str reduce_op, int world_size, str group_name) -> Tensor",
    "all_to_all(Tensor x, str group_name) -> Tensor",
    "broadcast(Tensor x, int root, str group_name) -> Tensor",
)


@dataclasses.dataclass
class Call:
    """One run of the program operator."""

    program: str
    group_name: str
    manifest: list[manifest.Entry]
    is_contiguous: bool


calls: list[Call] = []


def _program(inputs, outputs, program: str, group_name: str, manifest_text: str) -> None:
    listed = manifest.parse_manifest(manifest_text) if manifest_text else []
    tensors = [*inputs, *outputs]
    calls.append(Call(program, group_name, listed, all(t.is_contiguous() for t in tensors)))
    plain.run_plain(inputs, outputs, program, group_name)


def _waited(result: torch.Tensor) -> torch.Tensor:
    return compat.functional_collectives().wait_tensor(result)


def _all_reduce(x, reduce_op: str, group_name: str):
    return _waited(compat.functional_collectives().all_reduce(x, reduce_op.lower(), group_name))


def _all_gather(x, world_size: int, group_name: str):
    ops = compat.functional_collectives()
    return _waited(ops.all_gather_into_tensor(x, world_size, group_name))


def _reduce_scatter(x, reduce_op: str, world_size: int, group_name: str):
    ops = compat.functional_collectives()
    reduced = ops.reduce_scatter_tensor(x, reduce_op.lower(), world_size, group_name)
    return _waited(reduced)


def _all_to_all(x, group_name: str):
    ranks = process_groups.resolve_group(group_name).size()
    splits = [x.shape[0] // ranks] * ranks
    return _waited(compat.functional_collectives().all_to_all_single(x, splits, splits, group_name))


def _broadcast(x, root: int, group_name: str):
    return _waited(compat.functional_collectives().broadcast(x, root, group_name))


@functools.cache
def define() -> torch.library.Library:
    """Defines the operators and registers them; once a process."""
    library = torch.library.Library("cotune", "DEF")
    functions = (_program, _all_reduce, _all_gather, _reduce_scatter, _all_to_all, _broadcast)
    for schema, function in zip(_SCHEMAS, functions, strict=True):
        library.define(schema)
        library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")
    operators.register()
    plain.register_plain_operator()
    return library
