"""Values that take several nodes of a graph, and one operation of a program.

They are the results of operators with several results, which a graph selects by getitem, and the
exact gelu, which Inductor decomposes into operators around erf.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from cotune.torch import aten_ops

aten = torch.ops.aten

_ROOT_OF_HALF = 0.7071067811865476


@dataclasses.dataclass(frozen=True)
class Composite:
    """The operation that computes the value of a node from operands earlier in the graph.

    Attributes:
      operands: the nodes that the operation reads.
      emit: adds the operation and returns its value.
      is_rowwise: it computes along rows.
    """

    operands: list[fx.Node]
    emit: Callable[[aten_ops.Context], int]
    is_rowwise: bool


class Composites:
    """The composites of a graph by their last node, and the nodes that vanish with them."""

    def __init__(self, nodes: list[fx.Node]):
        self.of: dict[fx.Node, Composite] = {}
        self.absorbed: dict[fx.Node, None] = {}  # in graph order
        for node in nodes:
            if node.target in aten_ops.RESULT_RULES:
                self._add_results(node)
            elif node.target is aten.erf.default:
                self._add_gelu(node)

    def operands_of(self, node: fx.Node) -> list[fx.Node]:
        """Returns the nodes that a node reads; for a composite, those that its operation reads."""
        composite = self.of.get(node)
        return composite.operands if composite is not None else node.all_input_nodes

    def is_inside(self, node: fx.Node, members: dict[fx.Node, Any]) -> bool:
        """Returns true if the node is a member, or vanishes because only members and vanishing nodes read it."""
        if node in members:
            return True
        if node not in self.absorbed:
            return False
        return bool(node.users) and all(self.is_inside(each, members) for each in node.users)

    def vanishing(self, members: dict[fx.Node, Any]) -> list[fx.Node]:
        """The nodes that vanish with these members, in graph order."""
        return [node for node in self.absorbed if self.is_inside(node, members)]

    def _add_results(self, node: fx.Node) -> None:
        emit = aten_ops.RESULT_RULES[node.target]
        self.absorbed[node] = None
        for user in node.users:
            if user.target is operator.getitem:
                bound = functools.partial(_emit_result, emit, node, user.args[1])
                self.of[user] = Composite(node.all_input_nodes, bound, True)

    def _add_gelu(self, erf: fx.Node) -> None:
        scaled, shifted = erf.args[0], _only_user(erf)
        x = _scaled_by(scaled, _ROOT_OF_HALF)
        if x is None or shifted is None or not _adds_one(shifted, erf):
            return
        product = _only_user(shifted)
        if product is None or product.target is not aten.mul.Tensor:
            return
        halves = [each for each in product.args if each is not shifted]
        if len(halves) != 1 or _scaled_by(halves[0], 0.5) is not x:
            return
        if _only_user(scaled) is not erf or _only_user(halves[0]) is not product:
            return
        for node in (scaled, halves[0], erf, shifted):
            self.absorbed[node] = None
        self.of[product] = Composite([x], functools.partial(_emit_gelu, x), False)


def _emit_result(
    emit: aten_ops.ResultEmit, source: fx.Node, index: int, context: aten_ops.Context
) -> int:
    return emit(context, aten_ops.arguments_of(source), index)


def _emit_gelu(x: fx.Node, context: aten_ops.Context) -> int:
    return context.program.op("gelu", context.operand(x, context.word))


def _only_user(node: Any) -> fx.Node | None:
    if not isinstance(node, fx.Node) or len(node.users) != 1:
        return None
    return next(iter(node.users))


def _scaled_by(node: Any, factor: float) -> fx.Node | None:
    """Returns x if the node is x times the factor; None otherwise."""
    if not isinstance(node, fx.Node) or node.target not in (aten.mul.Tensor, aten.mul.Scalar):
        return None
    x, number = node.args
    return x if isinstance(number, float) and number == factor else None


def _adds_one(node: fx.Node, operand: fx.Node) -> bool:
    is_addition = node.target in (aten.add.Tensor, aten.add.Scalar) and not node.kwargs
    return is_addition and node.args[0] is operand and node.args[1] == 1
