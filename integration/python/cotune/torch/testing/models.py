"""Small functions with collectives, one for each pattern that the pass meets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F

Inputs = Callable[[int, torch.Generator], list[torch.Tensor]]


@dataclasses.dataclass(frozen=True)
class Model:
    """A function of (group name, *inputs), its inputs on a rank, and what the pass makes of it.

    Attributes:
      programs: the first words of the texts of its programs, sorted.
      reasons: a part of the reason of each collective that is left alone.
      dynamic: compiled with symbolic rows, and run with a second size.
      backward: the gradients of all inputs that need one are compared as well.
    """

    function: Callable[..., Any]
    inputs: Inputs
    programs: list[str]
    reasons: tuple[str, ...] = ()
    dynamic: bool = False
    backward: bool = False


def _tensors(*shapes: Any, dtype: torch.dtype = torch.float32) -> Inputs:
    """Normal numbers of these shapes; "R" stands for the number of rows."""

    def make(rows: int, generator: torch.Generator) -> list[torch.Tensor]:
        sizes = [[rows if size == "R" else size for size in shape] for shape in shapes]
        return [torch.randn(size, generator=generator).to(dtype) for size in sizes]

    return make


def _sum(group: str, x: torch.Tensor) -> torch.Tensor:
    return funcol.all_reduce(x, "sum", group)


def _linear_bias_relu(group, x, weight, bias):
    return torch.relu(_sum(group, x @ weight) + bias)


def _residual_norm(group, x, residual, gamma):
    stream = _sum(group, x) + residual
    return F.rms_norm(stream, (x.shape[-1],), gamma, 1e-6), stream


def _handwritten_norm(group, x, residual, gamma):
    stream = _sum(group, x) + residual
    wide = stream.float()
    normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return normal.to(x.dtype) * gamma, stream


def _layer_norm(group, x, gamma, beta):
    return F.layer_norm(_sum(group, x), (x.shape[-1],), gamma, beta)


def _gather_rows(group, x):
    return funcol.all_gather_tensor(x, 0, group) * 2.5


def _gather_columns(group, x):
    return funcol.all_gather_tensor(x, 1, group) + 1


def _scatter_rows(group, x, bias):
    return funcol.reduce_scatter_tensor(x, "sum", 0, group) + bias


def _scatter_columns(group, x):
    return funcol.reduce_scatter_tensor(x, "sum", 1, group) * 0.5


def _exchange(group, x):
    return funcol.all_to_all_single(x, None, None, group) * 2


def _exchange_uneven(group, x):
    if torch.distributed.get_rank() == 0:
        return funcol.all_to_all_single(x, [2, 2], [2, 4], group) * 2
    return funcol.all_to_all_single(x, [4, 4], [2, 4], group) * 2


def _spread(group, x):
    return funcol.broadcast(x, 1, group).tanh()


def _coalesced(group, x, y):
    return [each + 1 for each in funcol.all_reduce_coalesced([x, y], "sum", group)]


def _other_user(group, x):
    work = torch.ops._c10d_functional.all_reduce.default(x, "sum", group)
    done = torch.ops._c10d_functional.wait_tensor.default(work)
    return done + 1, work.view(-1).shape[0] * torch.ops._c10d_functional.wait_tensor.default(work)


def _early_user(group, x, weight):
    total = _sum(group, x)
    early = total @ weight
    return early.cos(), (total * 2 + 1).relu() + x


def _dependent_operand(group, x, weight):
    total = _sum(group, x)
    return total * 2 + (total @ weight)


def _overlapped(group, x, weight):
    work = torch.ops._c10d_functional.all_reduce.default(x, "sum", group)
    beside = x @ weight
    return torch.ops._c10d_functional.wait_tensor.default(work) + beside.sin()


def _scaled_wide(group, x):
    return _sum(group, x.float() * 0.5).to(x.dtype) + 1


def _sequence_norm(group, x, gamma):
    share = funcol.reduce_scatter_tensor(x, "sum", 0, group)
    return funcol.all_gather_tensor(F.rms_norm(share, (x.shape[-1],), gamma, 1e-6), 0, group)


def _view_of_rows(group, x, y):
    return _sum(group, x).view(-1, x.shape[-1]) + y


def _activations(group, x):
    return F.gelu(_sum(group, x)) + F.silu(_sum(group, x * 2)) + F.gelu(x, approximate="tanh")


def _softmax(group, x):
    return F.softmax(_sum(group, x), -1)


def _choices(group, x):
    total = _sum(group, x)
    masked = torch.where(total <= 0.5, total, x * 2).clamp(-1, 2)
    return masked, total > 0, total.masked_fill(total < 0, float("-inf"))


def _gathered_vector(group, x):
    return funcol.all_gather_tensor(x, 0, group) + 1


def _scalar(group, x):
    return _sum(group, x.sum()) / 2


def _integers(group, x):
    return (_sum(group, (x * 100).to(torch.int64)) + 3) * 2


def _two_chains(group, x, y):
    first = _sum(group, x) + 1
    second = _sum(group, y) * first
    return first, second


def _reduced_rows(group, x, y):
    total = _sum(group, x)
    return total.sum(-1), total.amax(-1, keepdim=True) * y


def _transposed(group, x):
    return _sum(group, x.t()) + 1


def _trained(group, x, weight, gamma):
    return F.rms_norm(_sum(group, x @ weight) + x, (x.shape[-1],), gamma, 1e-6).relu()


_BF16 = torch.bfloat16
MODELS: dict[str, Model] = {
    "linear_bias_relu": Model(
        _linear_bias_relu, _tensors(("R", 32), (32, 64), (64,)), ["all_reduce_add_relu"]
    ),
    "residual_norm": Model(
        _residual_norm, _tensors(("R", 64), ("R", 64), (64,)), ["all_reduce_add_rms"]
    ),
    "residual_norm_dynamic": Model(
        _residual_norm, _tensors(("R", 64), ("R", 64), (64,)), ["all_reduce_add_rms"], dynamic=True
    ),
    "handwritten_norm": Model(
        _handwritten_norm,
        _tensors(("R", 64), ("R", 64), (64,), dtype=_BF16),
        ["all_reduce_add_rms"],
    ),
    "layer_norm": Model(_layer_norm, _tensors(("R", 64), (64,), (64,)), ["all_reduce_norm"]),
    "gather_rows": Model(_gather_rows, _tensors(("R", 16)), ["all_gather_mul"]),
    "gather_rows_dynamic": Model(
        _gather_rows, _tensors(("R", 16)), ["all_gather_mul"], dynamic=True
    ),
    "gather_columns": Model(_gather_columns, _tensors(("R", 16)), ["all_gather"]),
    "scatter_rows": Model(
        _scatter_rows, _tensors(("R", 16), (16,)), ["reduce_scatter_add"]
    ),
    "scatter_rows_dynamic": Model(
        _scatter_rows, _tensors(("R", 16), (16,)), ["reduce_scatter_add"], dynamic=True
    ),
    "scatter_columns": Model(_scatter_columns, _tensors(("R", 16)), ["reduce_scatter_mul"]),
    "exchange": Model(_exchange, _tensors(("R", 16)), ["all_to_all_mul"]),
    "exchange_dynamic": Model(
        _exchange, _tensors(("R", 16)), ["all_to_all_mul"], dynamic=True
    ),
    "exchange_uneven": Model(
        _exchange_uneven, _tensors((6, 16)), [], ("splits",)
    ),
    "spread": Model(_spread, _tensors(("R", 16)), ["broadcast_tanh"]),
    "coalesced": Model(
        _coalesced, _tensors(("R", 16), ("R", 8)), [], ("no all_reduce_coalesced",)
    ),
    "other_user": Model(_other_user, _tensors(("R", 16)), ["all_reduce_add_mul"]),
    "early_user": Model(
        _early_user, _tensors(("R", 16), (16, 16)), ["all_reduce_mul_add_relu"]
    ),
    "dependent_operand": Model(
        _dependent_operand, _tensors(("R", 16), (16, 16)), ["all_reduce_mul"]
    ),
    "overlapped": Model(
        _overlapped, _tensors(("R", 16), (16, 16)), ["all_reduce_add"]
    ),
    "scaled_wide": Model(
        _scaled_wide, _tensors(("R", 16), dtype=_BF16), ["all_reduce_mul_add"]
    ),
    "sequence_norm": Model(
        _sequence_norm, _tensors(("R", 16), (16,)), ["reduce_scatter_all_gather_rms"]
    ),
    "view_of_rows": Model(
        _view_of_rows, _tensors((2, 4, 16), (8, 16)), ["all_reduce_add"]
    ),
    "activations": Model(
        _activations, _tensors(("R", 16)), ["all_reduce_gelu", "all_reduce_mul_neg_exp_add"]
    ),
    "softmax": Model(
        _softmax, _tensors(("R", 16)), ["all_reduce_row_max_sub_exp_row_sum"]
    ),
    "choices": Model(_choices, _tensors(("R", 16)), ["all_reduce_less_equal_max_where"]),
    "gathered_vector": Model(_gathered_vector, _tensors((24,)), ["all_gather_add"]),
    "scalar": Model(_scalar, _tensors(("R", 16)), ["all_reduce_div"]),
    "integers": Model(_integers, _tensors(("R", 16)), ["all_reduce_mul_add"]),
    "two_chains": Model(
        _two_chains, _tensors(("R", 16), ("R", 16)), ["all_reduce_add", "all_reduce_mul"]
    ),
    "reduced_rows": Model(
        _reduced_rows, _tensors(("R", 16), ("R", 16)), ["all_reduce_row_sum_row_max_mul"]
    ),
    "transposed": Model(_transposed, _tensors((16, 8)), ["all_reduce_add"]),
    "trained": Model(
        _trained,
        _tensors(("R", 32), (32, 32), (32,)),
        ["all_reduce_add_rms", "all_reduce"],
        backward=True,
    ),
}
