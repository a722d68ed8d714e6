"""One region of a graph: its members, its program, and how a node's operations are emitted."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import fx

from cotune.torch import aten_ops, compat, sizes
from cotune.torch.program_text import ALL, ONE, SHARE, Number, Operand, Program, Refusal, ValueType


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


class Emission:
    """The context in which one node's operations are emitted; see aten_ops.Context."""

    def __init__(
        self,
        region: Region,
        operands: list[fx.Node],
        facts: sizes.TensorFacts,
        is_rowwise: bool,
    ):
        self.region = region
        self.program = region.program
        self.device_type = region.device.type
        self.operands = operands
        self.facts = facts
        self.word = facts.word
        self.reads_narrow = False
        self.drops_last = False  # a reduction that leaves the last dimension out
        self._anchor = None if is_rowwise else self._flat_type()

    def _flat_type(self) -> tuple[str, int] | None:
        """The type of a member of exactly the result's sizes: those sizes stand for that type."""
        for argument in self.operands:
            if argument in self.region.values and argument not in self.region.narrow:
                facts = sizes.facts_of(argument)
                if facts.dims == self.facts.dims:
                    type_ = self.program.types[self.region.values[argument]]
                    return type_.rows, type_.columns
        return None

    @property
    def result_type(self) -> tuple[str, int]:
        """Rows and columns of the result."""
        return self._anchor or self.region.type_of(self.facts)

    def operand(self, argument: Any, dtype: str = "") -> Operand:
        if isinstance(argument, (bool, int, float)):
            return Number(float(argument) if isinstance(argument, float) else int(argument))
        literal = aten_ops.literal_of(argument)
        if literal is not None and argument not in self.region.values:
            return Number(literal)
        value = self._value(argument)
        # A bool is u8 inside of a program.
        return self.program.cast(value, dtype) if dtype else value

    def row_operand(self, argument: Any) -> int:
        if argument in self.region.narrow:
            raise Refusal("a repeated value is reduced")
        return self._value(argument, is_elementwise=False)

    def _value(self, argument: Any, is_elementwise: bool = True) -> int:
        facts = sizes.facts_of(argument)
        if facts is None:
            raise Refusal("an operand is no tensor")
        rows, columns = self._type(facts, is_elementwise)
        if argument in self.region.values:
            value = self.region.values[argument]
            type_ = self.program.types[value]
            if argument in self.region.narrow:
                self.reads_narrow = True
                if type_.rows in (ONE, rows) and type_.columns in (1, columns):
                    return value
            if (type_.rows, type_.columns) != (rows, columns):
                raise Refusal("a value is read in another layout")
            return value
        return self._outside(argument, facts, rows, columns)

    def _outside(self, argument: fx.Node, facts: Any, rows: str, columns: int) -> int:
        if argument.target is aten_ops.EXPAND:
            base = argument.args[0]
            base_facts = sizes.facts_of(base)
            if base_facts is not None and base_facts.word == facts.word:
                try:
                    base_rows, base_columns = self._aligned(base_facts)
                except Refusal:
                    pass
                else:
                    argument, facts, rows, columns = base, base_facts, base_rows, base_columns
        return self.region.input_value(argument, ValueType(facts.word, rows, columns))

    def _type(self, facts: sizes.TensorFacts, is_elementwise: bool) -> tuple[str, int]:
        if not is_elementwise:
            return self.region.type_of(facts)
        if facts.dims == self.facts.dims:
            return self.result_type
        return self._aligned(facts)

    def _aligned(self, facts: sizes.TensorFacts) -> tuple[str, int]:
        """Rows and columns of an operand that is repeated to the result's sizes."""
        if all(isinstance(size, int) and size == 1 for size in facts.dims):
            return ONE, 1
        rows, columns = self.result_type
        if (rows, columns) != self.region.type_of(self.facts):
            raise Refusal("a value is repeated over another layout")
        lead, result = facts.lead, self.facts.lead
        if not (facts.columns == columns or facts.columns == 1):
            raise Refusal("columns are repeated in part")
        if lead == result:
            return rows, facts.columns
        if all(isinstance(size, int) and size == 1 for size in lead):
            return ONE, facts.columns
        raise Refusal("a value is repeated over a middle dimension")
