"""The text of programs: a builder that gives every value a type, a writer and a parser.

docs/programs.md defines the language. Nothing here knows torch: dtypes are the words of the
language ("f32", "bf16", ...), rows are "1", "R" or "R/n", and columns are integers.
"""

from __future__ import annotations

import dataclasses
import math
import re

from cotune import _language

OPS_MAX = 64
INPUTS_MAX = 16
OUTPUTS_MAX = 16
COLLECTIVES_MAX = 16
DEPENDENT_COLLECTIVES_MAX = 4
COLUMNS_MAX = 65536
TEXT_BYTES_MAX = 64 * 1024

ONE, ALL, SHARE = "1", "R", "R/n"


def _dtypes(kind: str) -> frozenset[str]:
    return frozenset(name for name, (_, _, each) in _language.DTYPES.items() if each == kind)


COMPUTED_FLOATS, COMPUTED_INTEGERS, STORED_ONLY = map(_dtypes, ("float", "integer", "stored"))
DTYPES = frozenset(_language.DTYPES)

_INTEGER_RANGES = {"i32": (-(2**31), 2**31), "i64": (-(2**63), 2**63), "u8": (0, 256)}

COLLECTIVES = tuple(_language.COLLECTIVES)
REDUCING = frozenset(name for name, (_, reduces) in _language.COLLECTIVES.items() if reduces)
REDUCTIONS = frozenset(_language.REDUCTIONS)


def _operations(*rules: str) -> frozenset[str]:
    """Returns the operations whose results are typed by one of these rules."""
    return frozenset(name for name, (_, rule) in _language.OPERATIONS.items() if rule in rules)


_ARITY = {name: operands for name, (operands, _) in _language.OPERATIONS.items()}
_FLOAT = _operations("same_float")
_COMPARE = _operations("compares")
ELEMENTWISE = _operations("same_dtype", "same_float", "compares", "selects")
ROW_REDUCTIONS = _operations("reduces_row")
_CONSTANTS = {"clamp": ("low", "high"), "rms_norm": ("eps",), "layer_norm": ("eps",)}
_DEFAULTS = {"rms_norm": 1e-6, "layer_norm": 1e-5}
_WITH_DTYPE = _operations("casts", "scales", "quantizes")


class Refusal(Exception):
    """A program cannot express something; the message is the reason, for users.

    `is_unsupported`: true if no setting can change that.
    """

    def __init__(self, reason: str, is_unsupported: bool = True):
        super().__init__(reason)
        self.is_unsupported = is_unsupported


@dataclasses.dataclass(frozen=True)
class ValueType:
    """The type of a value: dtype, rows ("1", "R" or "R/n") and columns."""

    dtype: str
    rows: str
    columns: int

    def __str__(self) -> str:
        return f"{self.dtype} [{self.rows}, {self.columns}]"


@dataclasses.dataclass(frozen=True)
class Number:
    """A number as an operand."""

    value: float


Operand = int | Number


@dataclasses.dataclass(frozen=True)
class Node:
    """One line of a program: an operation or a collective.

    Operands are indexes of values (inputs first, then one value a node) or numbers; `named` holds
    eps, low, high and root; `to` is the dtype after "to="; `reduction` is "" for all but collectives.
    """

    op: str
    operands: tuple[Operand, ...]
    named: tuple[tuple[str, float], ...] = ()
    to: str = ""
    reduction: str = ""

    @property
    def is_collective(self) -> bool:
        return self.op in COLLECTIVES


def number_text(value: float) -> str:
    """Returns the shortest text that reads back to the same double."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if float(value) == int(value) and abs(value) < 1e16 and not _is_minus_zero(value):
        return str(int(value))
    return repr(float(value))


def _is_minus_zero(value: float) -> bool:
    return value == 0 and math.copysign(1, value) < 0


def _unique(items: list[str]) -> list[str]:
    return list(dict.fromkeys(items))


class Program:
    """A program that is being built, or that parse() has read. Every value has a type."""

    def __init__(self) -> None:
        self.name = ""
        self.inputs: list[ValueType] = []
        self.replicated: list[bool] = []
        self.nofuse: list[bool] = []  # inputs whose readers never run inside of a collective
        self.nodes: list[Node] = []
        self.node_types: list[ValueType] = []
        self.outputs: list[tuple[int, int]] = []  # (value, the input it overwrites or -1)
        # Values are numbered as they are added, so that an input may come after a node. The text
        # numbers inputs first.
        self.types: list[ValueType] = []
        self._behind: list[int] = []  # collectives on the longest path to a value
        self._input_of: dict[int, int] = {}
        self._known: dict[str, int] = {}

    # Values.

    def add_input(self, type_: ValueType, replicated: bool = False, nofuse: bool = False) -> int:
        """Adds an input and returns its value. Raises Refusal if no program has such an input."""
        if type_.dtype not in DTYPES:
            raise Refusal(f"programs have no {type_.dtype}")
        if not 1 <= type_.columns <= COLUMNS_MAX:
            raise Refusal(f"it has {type_.columns} columns; programs have 1 to {COLUMNS_MAX}")
        if len(self.inputs) == INPUTS_MAX:
            raise Refusal(f"a program has at most {INPUTS_MAX} inputs")
        self._input_of[len(self.types)] = len(self.inputs)
        self.inputs.append(type_)
        self.replicated.append(replicated)
        self.nofuse.append(nofuse)
        return self._define(type_, 0)

    def add(self, node: Node) -> int:
        """Adds a node and returns its value. An equal operation is not added again.

        Raises Refusal if no program has such a node.
        """
        # The text is compared, because 0 and -0 are equal numbers and differ as operands.
        key = repr(node)
        if key in self._known:
            return self._known[key]
        if len(self.nodes) == OPS_MAX:
            raise Refusal(f"a program has at most {OPS_MAX} operations")
        type_ = self._collective_type(node) if node.is_collective else self._compute_type(node)
        behind = max((self._behind[v] for v in node.operands if isinstance(v, int)), default=0)
        if node.is_collective:
            behind += 1
            if behind > DEPENDENT_COLLECTIVES_MAX:
                raise Refusal(f"{behind} collectives depend on each other")
            if sum(each.is_collective for each in self.nodes) == COLLECTIVES_MAX:
                raise Refusal(f"a program has at most {COLLECTIVES_MAX} collectives")
        self.nodes.append(node)
        self.node_types.append(type_)
        value = self._define(type_, behind)
        # Two equal collectives are two collectives: a rank may not leave one out.
        if not node.is_collective:
            self._known[key] = value
        return value

    def op(self, name: str, *operands: Operand, to: str = "", **named: float) -> int:
        """Adds the operation `name`; see `add`."""
        return self.add(Node(name, tuple(operands), tuple(named.items()), to))

    def cast(self, value: int, dtype: str) -> int:
        """Adds a cast of a value, and returns the result; returns the value itself if it has the dtype already."""
        return value if self.types[value].dtype == dtype else self.op("cast", value, to=dtype)

    def _define(self, type_: ValueType, behind: int) -> int:
        self.types.append(type_)
        self._behind.append(behind)
        return len(self.types) - 1

    def depth(self, value: int) -> int:
        """Returns the number of collectives on the longest path to a value, including the one that makes it."""
        return self._behind[value]

    def mark(self) -> tuple[int, int, int]:
        """Returns the present state, for rollback()."""
        return len(self.types), len(self.inputs), len(self.nodes)

    def rollback(self, mark: tuple[int, int, int]) -> None:
        """Removes all inputs and nodes that were added since `mark`."""
        values, inputs, nodes = mark
        for value in range(values, len(self.types)):
            self._input_of.pop(value, None)
        for node in self.nodes[nodes:]:
            self._known.pop(repr(node), None)
        del self.types[values:], self._behind[values:]
        del self.inputs[inputs:], self.replicated[inputs:], self.nofuse[inputs:]
        del self.nodes[nodes:], self.node_types[nodes:]

    # Types, by the rules of docs/programs.md.

    def _collective_type(self, node: Node) -> ValueType:
        (value,) = node.operands
        type_ = self.types[value]
        if (node.op in REDUCING) != (node.reduction in REDUCTIONS):
            raise Refusal(f"{node.op} with the reduction '{node.reduction}'")
        if node.op in REDUCING and type_.dtype in STORED_ONLY:
            raise Refusal(f"{type_.dtype} values are moved by collectives, and not reduced")
        keeps_one = node.op in ("all_reduce", "broadcast")
        wanted = SHARE if node.op == "all_gather" else ALL
        if type_.rows != wanted and not (keeps_one and type_.rows == ONE):
            raise Refusal(f"{node.op} does not take {type_}")
        if node.op == "all_gather":
            return dataclasses.replace(type_, rows=ALL)
        if node.op == "reduce_scatter":
            return dataclasses.replace(type_, rows=SHARE)
        return type_

    def _compute_type(self, node: Node) -> ValueType:
        if len(node.operands) != _ARITY.get(node.op, -1):
            raise Refusal(f"{node.op} with {len(node.operands)} operands")
        values = [self.types[v] for v in node.operands if isinstance(v, int)]
        if not values:
            raise Refusal(f"{node.op} of numbers only")
        if node.op == "cast":
            return dataclasses.replace(values[0], dtype=node.to)
        if node.op in ELEMENTWISE:
            return self._elementwise_type(node)
        return self._rowwise_type(node, values)

    def _elementwise_type(self, node: Node) -> ValueType:
        dtype, rows, columns = "", ONE, 1
        for place, operand in enumerate(node.operands):
            if isinstance(operand, Number):
                continue
            type_ = self.types[operand]
            if node.op == "where" and place == 0:
                if type_.dtype != "u8":
                    raise Refusal(f"the condition of where is {type_}")
            else:
                takes_integers = node.op not in _FLOAT
                is_integer = type_.dtype in COMPUTED_INTEGERS
                if type_.dtype in STORED_ONLY or (is_integer and not takes_integers):
                    raise Refusal(f"{node.op} does not compute with {type_.dtype}")
                if dtype and dtype != type_.dtype:
                    raise Refusal(f"{node.op} of {dtype} and {type_.dtype}")
                dtype = type_.dtype
            if type_.rows != ONE:
                if rows not in (ONE, type_.rows):
                    raise Refusal(f"{node.op} of values with R and R/n rows")
                rows = type_.rows
            if type_.columns != 1:
                if columns not in (1, type_.columns):
                    raise Refusal(f"{node.op} of {columns} and {type_.columns} columns")
                columns = type_.columns
        if not dtype:
            raise Refusal(f"{node.op} of numbers only")
        _check_numbers(node, dtype)
        return ValueType("u8" if node.op in _COMPARE else dtype, rows, columns)

    def _rowwise_type(self, node: Node, values: list[ValueType]) -> ValueType:
        x = values[0]
        if x.dtype not in COMPUTED_FLOATS:
            raise Refusal(f"{node.op} does not compute with {x.dtype}")
        if node.op in ROW_REDUCTIONS or node.op == "quantize_scale":
            return ValueType("f64" if x.dtype == "f64" else "f32", x.rows, 1)
        if node.op == "quantize":
            return dataclasses.replace(x, dtype=node.to)
        for other in values[1:]:
            if (other.rows, other.columns) != (ONE, x.columns) or other.dtype not in (
                x.dtype,
                "f32",
            ):
                raise Refusal(f"{node.op} of {x} with {other}")
        return x

    # Text.

    def numbers(self) -> list[int]:
        """Returns the number that each value has in the text: inputs first, then nodes, each in order."""
        inputs, nodes = 0, len(self.inputs)
        numbers = []
        for value in range(len(self.types)):
            if value in self._input_of:
                numbers.append(inputs)
                inputs += 1
            else:
                numbers.append(nodes)
                nodes += 1
        return numbers

    def to_text(self) -> str:
        """Returns the text of the program. Equal programs have equal texts on every rank."""
        number = self.numbers()
        lines = [f"program {self.name or self.suggested_name()}"]
        for index, type_ in enumerate(self.inputs):
            flags = (" replicated" if self.replicated[index] else "") + (" nofuse" if self.nofuse[index] else "")
            lines.append(f"%{index} = input {type_}{flags}")
        for index, node in enumerate(self.nodes, len(self.inputs)):
            lines.append(f"%{index} = {_node_text(node, number)}")
        outputs = (f"%{number[v]}" + (f" into %{i}" if i >= 0 else "") for v, i in self.outputs)
        return "\n".join([*lines, "return " + ", ".join(outputs)]) + "\n"

    def suggested_name(self) -> str:
        """Returns a name made from the collectives and the first operations, such as `all_reduce_add_rms`."""
        words = _unique([node.op for node in self.nodes if node.is_collective])[:3]
        ops = [node.op for node in self.nodes if not node.is_collective and node.op != "cast"]
        if "rsqrt" in ops and {"row_mean", "row_mean_square"} & set(ops):
            first = next(i for i, op in enumerate(ops) if op.startswith("row_mean"))
            ops = [op for op in ops[:first] if op not in ("mul", "sub")]
            ops.append("norm" if "sub" in [n.op for n in self.nodes] else "rms")
        return "_".join(words + _unique(ops)[:4])[:80]

    def first_collective_type(self) -> ValueType:
        """Returns the type whose bytes are the size of a call.

        It is the operand or result of the first collective that has R rows, or else of the first collective.
        """
        chosen = None
        for index, node in enumerate(self.nodes):
            if not node.is_collective:
                continue
            value = self.types[node.operands[0]]
            result = self.node_types[index]
            larger = result if result.rows == ALL else value
            if larger.rows == ALL:
                return larger
            chosen = chosen or larger
        return chosen

    def is_input(self, value: int) -> bool:
        """Returns true if the value is an input."""
        return value in self._input_of


def _check_numbers(node: Node, dtype: str) -> None:
    numbers = [
        each.value
        for place, each in enumerate(node.operands)
        if isinstance(each, Number) and not (node.op == "where" and place == 0)
    ]
    if any(math.isnan(number) for number in numbers):
        raise Refusal(f"{node.op} with NaN")
    if node.op == "clamp":
        low, high = (dict(node.named).get(name, math.nan) for name in ("low", "high"))
        if not low <= high:
            raise Refusal(f"clamp from {low} to {high}")
        numbers += [bound for bound in (low, high) if math.isfinite(bound)]
    if dtype not in _INTEGER_RANGES:
        return
    low, end = _INTEGER_RANGES[dtype]
    for number in numbers:
        # The text is read as a double, which cannot hold every integer beyond 2^53.
        if not (math.isfinite(number) and low <= number < end and number == math.trunc(number)):
            raise Refusal(f"{dtype} has no {number_text(number)}")
        if abs(number) > 2**53:
            raise Refusal(f"the text cannot hold {number}")


def _node_text(node: Node, number: list[int]) -> str:
    text = node.op + (f" {node.reduction}" if node.reduction else "")
    operands = [
        number_text(each.value) if isinstance(each, Number) else f"%{number[each]}"
        for each in node.operands
    ]
    named = [f"{name}={number_text(value)}" for name, value in node.named]
    to = [f"to={node.to}"] if node.to else []
    return f"{text} " + ", ".join(operands + named + to)


_INPUT = re.compile(r"input\s+(\w+)\s*\[\s*(1|R|R/n)\s*,\s*(\d+)\s*\]((?:\s+(?:replicated|nofuse))*)$")


def numbered_statements(text: str) -> list[tuple[int, str]]:
    """Returns the statements of a text, with the numbers of their lines. A line's end or a semicolon ends a statement."""
    return [
        (index, statement.strip())
        for index, line in enumerate(text.splitlines(), 1)
        for statement in line.split("#", 1)[0].split(";")
        if statement.strip()
    ]


def in_one_line(text: str) -> str:
    """Returns the same program without line breaks, because PyTorch 2.11 writes texts into comments as they are."""
    return "; ".join(statement for _, statement in numbered_statements(text))


def parse(text: str) -> Program:
    """Reads a program text. Raises Refusal, which names the line, for a text that is no program."""
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise Refusal(f"a program has at most {TEXT_BYTES_MAX} bytes of text")
    program, values = Program(), {}
    has_return = False
    for index, line in numbered_statements(text):
        try:
            if has_return:
                raise Refusal("there is text after the return")
            if line.startswith("%"):
                name, _, definition = line.partition("=")
                values[name.strip()] = _parse_definition(program, values, definition.strip())
            elif line.startswith("return "):
                _parse_return(program, values, line[len("return ") :])
                has_return = True
            elif line.startswith("program "):
                program.name = line[len("program ") :].strip()
            else:
                raise Refusal("a line begins with program, %value or return")
        except (Refusal, ValueError) as fault:
            raise Refusal(f"line {index}: {fault}") from None
    if not has_return:
        raise Refusal("there is no return")
    return program


def _parse_definition(program: Program, values: dict[str, int], text: str) -> int:
    matched = _INPUT.match(text)
    if matched:
        dtype, rows, columns, flags = matched.groups()
        words = flags.split()
        if len(words) != len(set(words)):
            raise Refusal("a flag of an input stands twice")
        type_ = ValueType(dtype, rows, int(columns))
        return program.add_input(type_, "replicated" in words, "nofuse" in words)
    op, _, rest = text.partition(" ")
    rest, reduction = rest.strip(), ""
    if op in REDUCING:
        reduction, _, rest = rest.partition(" ")
    operands, named, to = [], {}, ""
    for part in (each.strip() for each in rest.split(",")):
        key, equals, value = (each.strip() for each in part.partition("="))
        if equals and key == "to":
            to = value
        elif equals:
            named[key] = int(value) if key == "root" else float(value)
        elif part.startswith("%"):
            operands.append(_value(values, part))
        else:
            operands.append(Number(float(part)))
    if op in _DEFAULTS:
        named.setdefault("eps", _DEFAULTS[op])
    if op in _WITH_DTYPE and to not in DTYPES:
        raise Refusal(f"{op} needs a dtype")
    order = [name for name in _CONSTANTS.get(op, ("root",)) if name in named]
    pairs = tuple((name, named[name]) for name in order)
    return program.add(Node(op, tuple(operands), pairs, to, reduction))


def _value(values: dict[str, int], name: str) -> int:
    if name not in values:
        raise Refusal(f"{name} is not defined")
    return values[name]


def _parse_return(program: Program, values: dict[str, int], text: str) -> None:
    for part in (each.strip() for each in text.split(",")):
        name, _, into = part.partition(" into ")
        target = _value(values, into.strip()) if into else -1
        program.outputs.append((_value(values, name.strip()), target))
