"""One region of a graph: its members, its program, and the rows that the sizes of its tensors stand for."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import fx

from cotune.torch import compat, sizes
from cotune.torch.program_text import ALL, ONE, SHARE, Program, Refusal, ValueType


@dataclasses.dataclass
class Output:
    """An output of a program: the node that it stands for, its value, and all members with that value that are read outside."""

    node: fx.Node
    value: int
    same: list[fx.Node]


# A hint for users, after the reason that a last dimension is not static.
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
        # The places of its first and last collective in the order of starts. No other collective starts between them.
        self.first = self.last = 0
        self.is_alone = False  # it has one collective, and nothing is fused with it
        self.why_alone = ""
        self.program = Program()
        self.members: list[fx.Node] = []
        self.values: dict[fx.Node, int] = {}
        self.views: set[fx.Node] = set()  # members that share the memory of their first argument
        # Members whose value in the program has fewer rows or columns than their tensor: readers repeat it.
        self.narrow: set[fx.Node] = set()
        # Nodes outside that no node reads any more when the members are erased.
        self.vanishing: list[fx.Node] = []
        self.input_nodes: list[fx.Node] = []
        self.stops: list[tuple[str, str]] = []
        self.outputs: list[Output] = []
        self.collectives: list[fx.Node] = []
        self.rows: Any = None  # R as an int or an expression; None if no value has R rows
        self.share: Any = None
        self.rows_facts: sizes.TensorFacts | None = None
        self._kinds: dict[Any, str] = {}
        self._inputs: dict[tuple[fx.Node, ValueType], int] = {}

    # Rows.

    def set_rows(self, lead: Any, kind: str, rows: Any) -> None:
        """Declares that a tuple of leading sizes stands for R or R/n rows (`kind`), and that these are `rows`.

        Raises Refusal if the region has another R or R/n already.
        """
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
        """Returns the rows that leading sizes stand for: "1", "R" or "R/n". Raises Refusal for other sizes."""
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
        """Returns the rows and columns of a tensor whose last dimension is the columns. Raises Refusal for other sizes."""
        if not isinstance(facts.columns, int):
            raise Refusal(f"the last dimension is not static{STATIC_HINT}")
        return self.kind_of(facts.lead), facts.columns

    # Values.

    def input_value(self, node: fx.Node, type_: ValueType) -> int:
        """Returns the value of the input for a node outside, which is added if it is new."""
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
        """Returns the member that owns the memory of a member: itself, or the one of which it is a view."""
        while node in self.views:
            node = node.args[0]
        return node

    def mark(self) -> tuple[Any, ...]:
        return self.program.mark(), dict(self._inputs), dict(self._kinds), self.rows, self.share

    def rollback(self, mark: tuple[Any, ...]) -> None:
        """Removes all that was emitted since `mark`, for a node that could not join."""
        program, self._inputs, self._kinds, self.rows, self.share = mark
        self.program.rollback(program)
        del self.input_nodes[len(self._inputs) :]

    @property
    def last_computed(self) -> fx.Node:
        """The last member that is not a wait. The operator of the program is put after it."""
        computed = [node for node in self.members if not is_wait(node)]
        return computed[-1]

    def join(self, node: fx.Node, value: int) -> None:
        self.members.append(node)
        self.values[node] = value


def is_wait(node: fx.Node) -> bool:
    """Returns true if the node waits for a functional collective."""
    return node.target is compat.collective_overload("wait_tensor")
