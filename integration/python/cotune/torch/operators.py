"""Registers with torch the shapes (fakes), gradients and Inductor layouts of cotune's operators.

The operator library defines their schemas:
  program(Tensor[] inputs, Tensor(a!)[] outputs, str program, str group_name, str manifest) -> ()
  all_reduce(Tensor x, str reduce_op, str group_name) -> Tensor
  all_gather(Tensor x, int world_size, str group_name) -> Tensor
  reduce_scatter(Tensor x, str reduce_op, int world_size, str group_name) -> Tensor
  all_to_all(Tensor x, str group_name) -> Tensor
  broadcast(Tensor x, int root, str group_name) -> Tensor
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from cotune.torch import compat, process_groups

NAMES = ("program", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
_DIFFERENTIABLE = ("sum", "avg")


@functools.cache
def register() -> None:
    """Registers fakes, gradients and layouts, once a process. The schemas must be defined before."""
    compat.check_version()
    _register_fakes()
    _register_gradients()
    compat.keep_calls(torch.ops.cotune.program.default)
    lower = compat.lowering()
    for name in NAMES:
        overload = getattr(torch.ops.cotune, name).default
        if not compat.has_lowering(overload):
            # Without this, Inductor may pass operands with any strides.
            lower.make_fallback(overload, layout_constraint=lower.require_contiguous, warn=False)


def check_reduces(x: torch.Tensor, reduce_op: str, name: str) -> None:
    """Raises RuntimeError for a reduction of bool whose result is no bool."""
    if x.dtype == torch.bool and reduce_op.lower() not in ("min", "max"):
        raise RuntimeError(
            f"cotune: {name} of bool takes min or max, and not {reduce_op}; cast the tensor to a "
            "dtype of numbers"
        )


def _check_dims(x: torch.Tensor, name: str) -> None:
    torch._check(x.dim() > 0, lambda: f"cotune::{name} takes a tensor of one dimension or more")


def _register_fakes() -> None:
    fake = torch.library.register_fake

    @fake("cotune::program")
    def _(inputs: Any, outputs: Any, program: str, group_name: str, manifest: str) -> None:
        return None

    @fake("cotune::all_reduce")
    def _(x: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
        check_reduces(x, reduce_op, "all_reduce")
        return x.new_empty(x.shape)

    @fake("cotune::all_gather")
    def _(x: torch.Tensor, world_size: int, group_name: str) -> torch.Tensor:
        _check_dims(x, "all_gather")
        return x.new_empty((x.shape[0] * world_size, *x.shape[1:]))

    @fake("cotune::reduce_scatter")
    def _(x: torch.Tensor, reduce_op: str, world_size: int, group_name: str) -> torch.Tensor:
        _check_dims(x, "reduce_scatter")
        check_reduces(x, reduce_op, "reduce_scatter")
        torch._check(
            x.shape[0] % world_size == 0,
            lambda: f"cotune::reduce_scatter: {x.shape[0]} rows are no multiple of {world_size}",
        )
        return x.new_empty((x.shape[0] // world_size, *x.shape[1:]))

    @fake("cotune::all_to_all")
    def _(x: torch.Tensor, group_name: str) -> torch.Tensor:
        _check_dims(x, "all_to_all")
        return x.new_empty(x.shape)

    @fake("cotune::broadcast")
    def _(x: torch.Tensor, root: int, group_name: str) -> torch.Tensor:
        return x.new_empty(x.shape)


def _check_reduction(name: str, reduce_op: str) -> None:
    if reduce_op not in _DIFFERENTIABLE:
        raise RuntimeError(
            f"cotune::{name} with {reduce_op} has no gradient; sum and avg have one. Call it under "
            "torch.no_grad(), or detach its operand"
        )


def _register_gradients() -> None:
    ops = torch.ops.cotune
    autograd = torch.library.register_autograd

    def keep_reduction(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.reduce_op, ctx.group_name = inputs[1].lower(), inputs[-1]
        ctx.world_size = inputs[2] if len(inputs) == 4 else 0

    def all_reduce_gradient(ctx: Any, gradient: torch.Tensor) -> Any:
        _check_reduction("all_reduce", ctx.reduce_op)
        return ops.all_reduce(gradient.contiguous(), ctx.reduce_op, ctx.group_name), None, None

    autograd("cotune::all_reduce", all_reduce_gradient, setup_context=keep_reduction)

    def reduce_scatter_gradient(ctx: Any, gradient: torch.Tensor) -> Any:
        _check_reduction("reduce_scatter", ctx.reduce_op)
        gathered = ops.all_gather(gradient.contiguous(), ctx.world_size, ctx.group_name)
        if ctx.reduce_op == "avg":
            gathered = gathered / ctx.world_size
        return gathered, None, None, None

    autograd("cotune::reduce_scatter", reduce_scatter_gradient, setup_context=keep_reduction)

    def keep_world(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.world_size, ctx.group_name = inputs[1:]

    def all_gather_gradient(ctx: Any, gradient: torch.Tensor) -> Any:
        share = ops.reduce_scatter(gradient.contiguous(), "sum", ctx.world_size, ctx.group_name)
        return share, None, None

    autograd("cotune::all_gather", all_gather_gradient, setup_context=keep_world)

    def keep_group(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.group_name = inputs[-1]

    def all_to_all_gradient(ctx: Any, gradient: torch.Tensor) -> Any:
        return ops.all_to_all(gradient.contiguous(), ctx.group_name), None

    autograd("cotune::all_to_all", all_to_all_gradient, setup_context=keep_group)

    def keep_root(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.root, ctx.group_name = inputs[1:]

    def broadcast_gradient(ctx: Any, gradient: torch.Tensor) -> Any:
        total = ops.all_reduce(gradient.contiguous(), "sum", ctx.group_name)
        group = process_groups.resolve_group(ctx.group_name)
        if group is None:
            raise RuntimeError(f"there is no group '{ctx.group_name}' in this process")
        return (total if group.rank() == ctx.root else torch.zeros_like(total)), None, None

    autograd("cotune::broadcast", broadcast_gradient, setup_context=keep_root)
