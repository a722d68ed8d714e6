"""Facts about the tensors of a graph, and sizes as nodes of the graph. This module adds no guard to a compiled function."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from cotune.torch import compat
from cotune.torch.program_text import Refusal

DTYPE_WORDS = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.float8_e4m3fn: "f8_e4m3",
    torch.float8_e5m2: "f8_e5m2",
    # Programs have no bool. Comparisons give u8, 0 or 1, which stands for it inside of a program.
    torch.bool: "bool",
}
DTYPES = {word: dtype for dtype, word in DTYPE_WORDS.items()}

# Sizes as the pass compares them: an int, or a sympy expression.
Dims = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class TensorFacts:
    """Facts of a graph about a tensor.

    Attributes:
      value: the fake tensor.
      word: the dtype in the language of programs, "bool", or torch's name of a dtype that programs do not have.
      dims: the sizes, ints or sympy expressions.
    """

    value: torch.Tensor
    word: str
    dims: Dims

    @property
    def lead(self) -> Dims:
        return self.dims[:-1]

    @property
    def columns(self) -> Any:
        return self.dims[-1] if self.dims else 1


_remembered = threading.local()


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """Caches the facts of nodes in the block, on this thread, because they are used many times."""
    _remembered.facts = {}
    try:
        yield
    finally:
        _remembered.facts = None


def facts_of(node: Any) -> TensorFacts | None:
    """Returns the facts of a node whose value is a tensor; None for any other."""
    if not isinstance(node, fx.Node):
        return None
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    known = getattr(_remembered, "facts", None)
    if known is None:
        return _make_facts(value)
    facts = known.get(node)
    if facts is None or facts.value is not value:
        facts = known[node] = _make_facts(value)
    return facts


def _make_facts(value: torch.Tensor) -> TensorFacts:
    dims = tuple(compat.size_expression(size) for size in value.shape)
    return TensorFacts(value, DTYPE_WORDS.get(value.dtype, str(value.dtype)), dims)


def product(dims: Dims) -> Any:
    """The product of sizes: an int, or a sympy expression."""
    result = 1
    for size in dims:
        result = result * size
    return result


def tensor_dims(facts: TensorFacts, columns: int) -> Dims:
    """Returns sizes for the elements of a tensor of which the last is `columns`; with one column, the sizes as they are."""
    if columns in (1, facts.columns):
        return facts.dims
    if isinstance(facts.columns, int) and facts.columns % columns == 0:
        return product(facts.lead) * (facts.columns // columns), columns
    count = product(facts.dims)
    if isinstance(count, int):
        return count // columns, columns
    return compat.floor_division(count, columns), columns


def is_contiguous(facts: TensorFacts) -> bool:
    """Returns true if the strides are those of a row-major tensor without gaps."""
    expected = 1
    strides = facts.value.stride()
    for size, stride in zip(reversed(facts.dims), reversed(strides), strict=True):
        if isinstance(size, int) and size == 1:
            continue
        if compat.size_expression(stride) != expected:
            return False
        expected = expected * size
    return True


def stride_order(facts: TensorFacts) -> list[int]:
    """Returns the dimensions of a tensor from the largest stride to the smallest; in their order if strides are not known."""
    strides = [_hint_or_expression(each) for each in facts.value.stride()]
    if not all(isinstance(each, int) for each in strides):
        return list(range(len(strides)))
    return sorted(range(len(strides)), key=lambda dim: -strides[dim])


def has_gaps(facts: TensorFacts) -> bool:
    """Returns true if a tensor does not fill its memory in any order of its dimensions, as far as its sizes are known."""
    expected = 1
    dims, strides = hints_of(facts), [_hint_or_expression(each) for each in facts.value.stride()]
    for dim in reversed(stride_order(facts)):
        if dims[dim] == 1:
            continue
        if isinstance(strides[dim], int) and isinstance(expected, int) and strides[dim] != expected:
            return True
        expected = expected * dims[dim]
    return False


def hints_of(facts: TensorFacts) -> Dims:
    """Returns the sizes of a tensor in the call for which the graph is compiled, even if they are symbolic.

    A size that is not known at that time is an expression.
    """
    return tuple(_hint_or_expression(each) for each in facts.value.shape)


def _hint_or_expression(size: Any) -> Any:
    hint = compat.size_hint(size)
    return compat.size_expression(size) if hint is None else hint


class SizeNodes:
    """Makes nodes for sizes from the sizes of a program's operands and the symbolic inputs of the graph."""

    def __init__(self, graph: fx.Graph, operands: list[fx.Node]):
        self._graph = graph
        self._known: dict[Any, Any] = {}
        self._sources: dict[Any, tuple[fx.Node, int]] = {}
        for node in graph.nodes:
            if node.op != "placeholder":
                break
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                self._known.setdefault(compat.size_expression(value), node)
        for operand in operands:
            for dim, size in enumerate(facts_of(operand).dims):
                if not isinstance(size, int):
                    self._sources.setdefault(size, (operand, dim))

    def can_make(self, size: Any) -> bool:
        """Returns true if node() can make the size."""
        if isinstance(size, int) or getattr(size, "is_Integer", False):
            return True
        if size in self._known or size in self._sources:
            return True
        if size.is_Mul or size.is_Add or compat.is_floor_division(size):
            return all(self.can_make(argument) for argument in size.args)
        return False

    def node(self, size: Any) -> Any:
        """Returns the size as an int, or as a node that is put at the graph's insertion point. Raises Refusal if it cannot."""
        if isinstance(size, int) or getattr(size, "is_Integer", False):
            return int(size)
        if size not in self._known:
            self._known[size] = self._make(size)
        return self._known[size]

    def _make(self, size: Any) -> fx.Node:
        if size in self._sources:
            operand, dim = self._sources[size]
            made = self._graph.call_function(torch.ops.aten.sym_size.int, (operand, dim))
            made.meta["val"] = operand.meta["val"].shape[dim]
            return made
        if not self.can_make(size):
            raise Refusal(f"the size {size} cannot be computed from the operands")
        function = (
            operator.mul if size.is_Mul else operator.add if size.is_Add else operator.floordiv
        )
        return functools.reduce(
            functools.partial(self._call, function), [self.node(each) for each in size.args]
        )

    def _call(self, function: Any, left: Any, right: Any) -> Any:
        values = [each.meta["val"] if isinstance(each, fx.Node) else each for each in (left, right)]
        if not any(isinstance(each, fx.Node) for each in (left, right)):
            return function(*values)
        made = self._graph.call_function(function, (left, right))
        made.meta["val"] = function(*values)
        return made
