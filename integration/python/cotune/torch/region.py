"""One region of a graph: its members, its program, and the rows that sizes of its tensors stand for."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import fx

from cotune.torch import compat, sizes
from cotune.torch.program_text import ALL, ONE, SHARE, Program, Refusal, ValueType


@dataclasses.dataclass
class Output:
    """An output of a program: the node whose value it is, and what else reads the same value."""

    node: fx.Node
    value: int
    same: list[fx.Node]


# Follows the reason that a last dimension is not static.
STATIC_HINT = "; torch._dynamo.mark_static(x, 1) makes that of a 2-D input x static"


class Region:
    """Nodes that become one program.

    Attributes:
      members: the nodes, in graph order.
      values: the program's value of each member.
      input_nodes: the operand of each input of the program; tensors of any shape, whose
        row-major elements are the rows and columns of the input.
      stops: (name, reason) of each node that uses a member and stays outside.
    """

    def __init__(self, index: int, group: str, world_size: int, epoch: int, device: Any):
        self.index = index
        self.group = group
        self.world_size = world_size
        self.epoch = epoch
        self.device = device
        # The places of its collectives in the order of starts; no other one starts in between.
        self.first = self.last = 0
        self.is_alone = False  # nothing is fused with its collective
        self.why_alone = ""
        self.program = Program()
        self.members: list[fx.Node] = []
        self.values: dict[fx.Node, int] = {}
        self.views: set[fx.Node] = set()  # members that share the memory of their first argument
        # Members whose value is repeated over rows or columns only where it is read.
        self.narrow: set[fx.Node] = set()
        # Outside nodes that nothing reads once the members are gone.
        self.vanishing: list[fx.Node] = []
        self.input_nodes: list[fx.Node] = []
        self.stops: list[tuple[str, str]] = []
        self.outputs: list[Output] = []
        self.collectives: list[fx.Node] = []
        self.rows: Any = None  # R of the static or symbolic sizes; None: nothing has R
        self.share: Any = None
        self.rows_facts: sizes.TensorFacts | None = None
        self._kinds: dict[Any, str] = {}
        self._inputs: dict[tuple[fx.Node, ValueType], int] = {}

    # Rows.

    def set_rows(self, lead: Any, kind: str, rows: Any) -> None:
        """Declares what a tuple of leading sizes stands for: `rows` rows, which are R or R/n."""
        if kind == ALL:
            if self.rows is not None and self.rows != rows:
                raise Refusal("its rows are not those of the collective before it")
            self.rows = rows
        elif kind == SHARE:
            if self.share is not None and self.share != rows:
                raise Refusal("its rows are not those of the collective before it")
            self.share = rows
        self._kinds[lead] = kind

    def kind_of(self, lead: Any) -> str:
        """What leading sizes stand for: "1", "R" or "R/n"."""
        kind = self._kinds.get(lead)
        if kind is None:
            rows = sizes.product(lead)
            if isinstance(rows, int) and rows == 1:
                kind = ONE
            elif self.rows is not None and rows == self.rows:
                kind = ALL
            elif self.share is not None and rows == self.share:
                kind = SHARE
            else:
                raise Refusal("a value has other rows than the collective")
            self._kinds[lead] = kind
        return kind

    def type_of(self, facts: sizes.TensorFacts) -> tuple[str, int]:
        """Rows and columns of a tensor whose last dimension is that of the program."""
        if not isinstance(facts.columns, int):
            raise Refusal(f"the last dimension is not static{STATIC_HINT}")
        return self.kind_of(facts.lead), facts.columns

    # Values.

    def input_value(self, node: fx.Node, type_: ValueType) -> int:
        """The input for an outside node, made when it is new."""
        known = self._inputs.get((node, type_))
        if known is None:
            facts = sizes.facts_of(node)
            if facts.value.device != self.device:
                raise Refusal(f"an operand is on {facts.value.device}")
            known = self.program.add_input(type_)
            self._inputs[node, type_] = known
            self.input_nodes.append(node)
        return known

    def owner_of(self, node: fx.Node) -> fx.Node:
        """The member whose memory a member reads: itself, or what it is a view of."""
        while node in self.views:
            node = node.args[0]
        return node

    def mark(self) -> tuple[Any, ...]:
        return self.program.mark(), dict(self._inputs), dict(self._kinds), self.rows, self.share

    def rollback(self, mark: tuple[Any, ...]) -> None:
        """Forgets what was emitted for a node that could not join."""
        program, self._inputs, self._kinds, self.rows, self.share = mark
        self.program.rollback(program)
        del self.input_nodes[len(self._inputs) :]

    @property
    def last_computed(self) -> fx.Node:
        """The last member that is no wait: the program stands after it."""
        computed = [node for node in self.members if not is_wait(node)]
        return computed[-1]

    def join(self, node: fx.Node, value: int) -> None:
        self.members.append(node)
        self.values[node] = value


def is_wait(node: fx.Node) -> bool:
    """Returns true if the node waits for a functional collective."""
    return node.target is compat.collective_overload("wait_tensor")
