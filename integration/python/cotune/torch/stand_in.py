"""The operators in Python, for a process that cannot load the library that defines them.

Such a rank compiles the same graphs as the others. When an operator first runs, the rank informs the other ranks of the process
group that it cannot take part, and all of them run by PyTorch's own collectives.
"""

from __future__ import annotations

import functools

import torch

from cotune.torch import agreement, groups, operators, plain, process_groups

SCHEMAS = (
    "program(Tensor[] inputs, Tensor(a!)[] outputs, str program, str group_name, str manifest) -> ()",
    "all_reduce(Tensor x, str reduce_op, str group_name) -> Tensor",
    "all_gather(Tensor x, int world_size, str group_name) -> Tensor",
    "reduce_scatter(Tensor x, str reduce_op, int world_size, str group_name) -> Tensor",
    "all_to_all(Tensor x, str group_name) -> Tensor",
    "broadcast(Tensor x, int root, str group_name) -> Tensor",
)
_DTYPE_WORDS = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8",
    torch.bool: "u8",
}  # fmt: skip


def _meet(group_name: str, x: torch.Tensor) -> None:
    groups.ensure(group_name, x.get_device() if x.is_cuda else -1)


def _run_program(inputs, outputs, program: str, group_name: str, manifest: str) -> None:
    agreement.run_program(inputs, outputs, program, group_name, manifest)


def _run_collective(x: torch.Tensor, result: torch.Tensor, rows: str, line: str, group_name: str) -> torch.Tensor:
    x = x.contiguous()
    _meet(group_name, x)
    word = _DTYPE_WORDS.get(x.dtype)
    if word is None:
        raise RuntimeError(f"cotune: collectives of {x.dtype} are not supported; cast the tensor to another dtype")
    text = f"program plain\n%x = input {word} [{rows}, 1]\n%y = {line}\nreturn %y\n"
    plain.run_plain([x], [result], text, group_name)
    return result


def _word(reduce_op: str) -> str:
    return "average" if reduce_op.lower() == "avg" else reduce_op.lower()


def _check_world_size(world_size: int, name: str, group_name: str) -> None:
    group = process_groups.resolve_group(group_name)
    if group is not None and group.size() != world_size:
        raise RuntimeError(f"cotune: {name} is given world_size={world_size}, and the group has {group.size()} ranks")


def _all_reduce(x, reduce_op, group_name):
    operators.check_reduces(x, reduce_op, "all_reduce")
    return _run_collective(x, torch.empty_like(x), "R", f"all_reduce {_word(reduce_op)} %x", group_name)


def _all_gather(x, world_size, group_name):
    _check_world_size(world_size, "all_gather", group_name)
    result = x.new_empty((x.shape[0] * world_size, *x.shape[1:]))
    return _run_collective(x, result, "R/n", "all_gather %x", group_name)


def _reduce_scatter(x, reduce_op, world_size, group_name):
    operators.check_reduces(x, reduce_op, "reduce_scatter")
    _check_world_size(world_size, "reduce_scatter", group_name)
    result = x.new_empty((x.shape[0] // world_size, *x.shape[1:]))
    return _run_collective(x, result, "R", f"reduce_scatter {_word(reduce_op)} %x", group_name)


def _all_to_all(x, group_name):
    return _run_collective(x, torch.empty_like(x), "R", "all_to_all %x", group_name)


def _broadcast(x, root, group_name):
    return _run_collective(x, torch.empty_like(x), "R", f"broadcast %x, root={root}", group_name)


@functools.cache
def define() -> torch.library.Library:
    """Defines the operators, once a process."""
    defined = torch.library.Library("cotune", "FRAGMENT")
    for schema in SCHEMAS:
        defined.define(schema)
    functions = (_run_program, _all_reduce, _all_gather, _reduce_scatter, _all_to_all, _broadcast)
    for schema, function in zip(SCHEMAS, functions, strict=True):
        defined.impl(schema.split("(")[0], function, "CompositeExplicitAutograd")
    return defined
