"""Emits the operations of one node of a graph into the program of its region."""

from __future__ import annotations

from typing import Any

from torch import fx

from cotune.torch import aten_ops, sizes
from cotune.torch.composites import Composites
from cotune.torch.program_text import ONE, Number, Operand, Refusal, ValueType
from cotune.torch.region import Region


class Emission:
    """The context in which the operations of one node are emitted; see aten_ops.Context."""

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
        """Rows and columns of an operand that is a member and has the sizes of the result, which then has them too; or None."""
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
        """Rows and columns of an operand that broadcasting repeats to the result's sizes. Raises Refusal if programs cannot."""
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


def emit(region: Region, node: fx.Node, composites: Composites) -> int:
    """Adds the operations of a node to the program of a region, and returns the value. Raises Refusal if that is not possible."""
    facts = sizes.facts_of(node)
    if facts is None:
        raise Refusal("its value is no tensor")
    rule, composite = aten_ops.RULES.get(node.target), composites.of.get(node)
    if node.target is aten_ops.EXPAND:
        return _emit_expand(region, node, facts)
    if rule is None and composite is None:
        raise Refusal("programs have no such operation")
    if not sizes.is_contiguous(facts):
        raise Refusal("its value is not contiguous")
    if composite is None and rule.is_view:
        return _emit_view(region, node)
    is_rowwise = (composite or rule).is_rowwise
    operands = composites.operands_of(node)
    emission = Emission(region, operands, facts, is_rowwise)
    if composite is not None:
        value = composite.emit(emission)
    else:
        value = rule.emit(emission, aten_ops.arguments_of(node))
    if is_rowwise and sizes.facts_of(operands[0]).lead == facts.dims:
        emission.drops_last = True
    _check_result(region, node, facts, emission, value)
    return value


def _check_result(
    region: Region, node: fx.Node, facts: Any, emission: Emission, value: Operand
) -> None:
    if not isinstance(value, int):
        raise Refusal("it computes with numbers only")
    type_ = region.program.types[value]
    if type_.dtype != ("u8" if facts.word == "bool" else facts.word):
        raise Refusal(f"aten gives {facts.word}")
    if emission.drops_last:
        return
    rows, columns = emission.result_type
    if (type_.rows, type_.columns) == (rows, columns):
        return
    if not emission.reads_narrow:
        raise Refusal("its value has another shape than its operands")
    region.narrow.add(node)


def _emit_view(region: Region, node: fx.Node) -> int:
    source = node.args[0]
    if source not in region.values or source in region.narrow:
        raise Refusal("a repeated value is viewed")
    region.views.add(node)
    return region.values[source]


def _emit_expand(region: Region, node: fx.Node, facts: sizes.TensorFacts) -> int:
    source = node.args[0]
    if source not in region.values or source in region.narrow:
        raise Refusal("a repeated value is viewed")
    before = sizes.facts_of(source)
    if len(before.dims) != len(facts.dims) or before.lead != facts.lead:
        raise Refusal("it repeats rows")
    value = region.values[source]
    type_ = region.program.types[value]
    rows, _ = region.type_of(before)
    if (rows, before.columns) != (type_.rows, type_.columns):
        raise Refusal("a value is read in another layout")
    region.views.add(node)
    region.narrow.add(node)
    return value
