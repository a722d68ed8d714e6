"""Translates functional collectives to collectives of programs: their arguments, and the meaning of their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from torch import fx

from cotune.torch import compat, declarations, sizes
from cotune.torch.program_text import (
    ALL,
    COLUMNS_MAX,
    ONE,
    REDUCING,
    SHARE,
    STORED_ONLY,
    Node,
    Refusal,
    ValueType,
)
from cotune.torch.region import STATIC_HINT, Region
from cotune.torch.settings import Settings

_REDUCTIONS = {
    "sum": "sum",
    "avg": "average",
    "product": "product",
    "min": "min",
    "max": "max",
}


# The operator by which a DTensor on GPUs changes the dimension that it is sharded by. Not a functional collective.
_DTENSOR_ALL_TO_ALL = "_dtensor::shard_dim_alltoall"


@dataclasses.dataclass(frozen=True)
class GroupFacts:
    """Facts about a process group when a graph is compiled. `reason`: why its collectives are left alone, or ""."""

    world_size: int = 0
    reason: str = ""


def is_start(node: fx.Node) -> bool:
    """Returns true if a node is a collective, or has one in a body, which starts where the node stands."""
    return next(started_by(node), None) is not None


def started_by(node: fx.Node) -> Iterator[fx.Node]:
    """The collectives that a node starts: itself, or those in the bodies of its branches, its loop or its call."""
    pending = [node]
    while pending:
        each = pending.pop()
        if _is_collective(each):
            yield each
        pending += [inner for body in compat.bodies_of(each) for inner in body.graph.nodes]


def _is_collective(node: fx.Node) -> bool:
    """Returns true for functional collectives, declared ones, that of DTensor, and operators of cotune that a model calls."""
    if node.op != "call_function":
        return False
    if declarations.wrapped_in(node) is not None:
        return True
    target = node.args[0] if node.target in compat.functionalizers() else node.target
    if not isinstance(target, compat.operator_type()):
        return False
    if target.namespace == "_c10d_functional":
        return target is not compat.collective_overload("wait_tensor")
    return target.namespace == "cotune" or target._schema.name == _DTENSOR_ALL_TO_ALL or declarations.of(target) is not None


def collective_node(
    kind: str, arguments: dict[str, Any], world_size: int, settings: Settings
) -> Node:
    """Returns the node of a program for a collective. Its operand is still to be set.

    `arguments` are those of declarations.arguments_of. Raises Refusal for a collective that programs do not have. The answer
    depends on the collective alone, so that all ranks get the same.
    """
    reduction, named = "", ()
    if kind in ("all_reduce", "reduce_scatter"):
        reduction = _reduction(arguments)
    # A declared operator has neither a size of its group nor splits.
    group_size = arguments.get("group_size", world_size)
    if kind in ("all_gather", "reduce_scatter") and group_size != world_size:
        raise Refusal(f"its group has {world_size} ranks, and its argument group_size is {group_size}")
    if kind == "all_to_all" and "output_split_sizes" in arguments:
        _check_splits(arguments, world_size, settings)
    if kind == "broadcast":
        named = (("root", _root(arguments["src"], world_size)),)
    return Node(kind, (0,), named, "", reduction)


def _reduction(arguments: dict[str, Any]) -> str:
    word = str(arguments["reduce_op"]).lower()
    if word not in _REDUCTIONS:
        raise Refusal(f"programs have no reduction {word}")
    facts = sizes.facts_of(arguments.get("input", arguments.get("self")))
    if word == "avg" and facts is not None and not facts.value.dtype.is_floating_point:
        raise Refusal("it averages integers")
    return _REDUCTIONS[word]


def _root(source: Any, world_size: int) -> int:
    if not isinstance(source, int) or not 0 <= source < world_size:
        raise Refusal(f"its root {source} is no rank of the group")
    return source


def _check_splits(arguments: dict[str, Any], world_size: int, settings: Settings) -> None:
    """Raises Refusal unless the splits are equal and the user has stated that they are so on all ranks.

    A rank cannot know that from its own splits: they may be equal on it by chance, and they may be numbers on one rank and
    expressions on another.
    """
    if not settings.all_to_all:
        raise Refusal(
            "one rank cannot see the splits of the others; give all_to_all=True if the splits of all ranks are equal",
            is_unsupported=False,
        )
    splits = [*arguments["output_split_sizes"], *arguments["input_split_sizes"]]
    if len(splits) != 2 * world_size:
        raise Refusal("it has no split for each rank")
    first = _size_of(splits[0])
    if first is None or any(_size_of(each) != first for each in splits):
        raise Refusal("its splits are uneven", is_unsupported=False)
    facts = sizes.facts_of(arguments.get("input", arguments.get("self")))
    rows = facts.dims[0] if facts is not None and facts.dims else None
    if isinstance(first, int) and isinstance(rows, int) and rows != first * world_size:
        raise Refusal("its splits are not an equal share of the rows", is_unsupported=False)


def _size_of(split: Any) -> Any:
    """A split as an int or an expression."""
    value = split.meta.get("val") if isinstance(split, fx.Node) else split
    return None if value is None else compat.size_expression(value)


def check_taken(node: fx.Node, kind: str) -> None:
    """Raises Refusal for a collective whose dtype no program has, or that has no elements.

    Ranks whose collectives match get the same answer, whatever their graphs are: a collective with dynamic sizes that has no
    elements in a call runs by PyTorch as well.
    """
    operand = sizes.facts_of(declarations.operand_of(node))
    if operand is None or sizes.facts_of(node) is None:
        raise Refusal("its operand is no tensor")
    if operand.word not in sizes.DTYPES or operand.word == "bool":
        raise Refusal(f"programs have no {operand.word.removeprefix('torch.')}")
    if kind in REDUCING and operand.word in STORED_ONLY:
        raise Refusal(f"{operand.word} values are moved by collectives, and not reduced")
    if any(isinstance(size, int) and size == 0 for size in operand.dims):
        raise Refusal("it has no elements")


def check_declared(node: fx.Node, kind: str, world_size: int) -> None:
    """Raises Refusal for a declared operator whose result cannot be that of its kind, by dtype, device or sizes.

    The fake function of the operator, which is the same on all ranks, decides these.
    """
    if declarations.of(node.target) is None:
        return
    operand, result = sizes.facts_of(declarations.operand_of(node)), sizes.facts_of(node)
    own = operand.value.dtype, operand.value.device
    if (result.value.dtype, result.value.device) != own:
        raise Refusal(
            f"its result is {result.value.dtype} on {result.value.device}, and its operand {own[0]} on {own[1]}, so that it is "
            f"more than the {kind} that it is declared to be",
            is_unsupported=False,
        )
    if sizes.has_gaps(result):
        raise Refusal("its result has gaps in memory, which no collective leaves", is_unsupported=False)
    # Ranks may compile the same call with symbolic or with static sizes, so that both decide by the sizes of the call.
    if not _has_sizes_of_kind(kind, sizes.hints_of(operand), sizes.hints_of(result), world_size):
        raise Refusal(
            f"the sizes of its result are {_sizes_text(result)}, and those of its operand {_sizes_text(operand)}, which is no "
            f"{kind} of {world_size} ranks by the first dimension",
            is_unsupported=False,
        )


def _sizes_text(facts: sizes.TensorFacts) -> str:
    return f"[{', '.join(str(size) for size in facts.dims)}]"


def _has_sizes_of_kind(kind: str, operand: sizes.Dims, result: sizes.Dims, ranks: int) -> bool:
    if kind == "all_reduce":
        return operand == result
    if not operand or not result or operand[1:] != result[1:]:
        return False
    first = operand[0]
    if kind == "all_gather":
        return result[0] == first * ranks
    if isinstance(first, int) and first % ranks != 0:
        return False
    if kind == "all_to_all":
        return result[0] == first
    return result[0] * ranks == first or result[0] == compat.floor_division(first, ranks)


def declare_elements(region: Region, node: fx.Node, kind: str) -> ValueType:
    """Sets R and R/n of a region whose rows are single elements. Returns the type of the operand."""
    operand = sizes.facts_of(declarations.operand_of(node))
    count = sizes.product(operand.dims)
    if kind == "all_gather":
        region.share, region.rows = count, count * region.world_size
        return ValueType(operand.word, SHARE, 1)
    region.rows = count
    if kind == "reduce_scatter":
        region.share = sizes.product(sizes.facts_of(node).dims)
    return ValueType(operand.word, ALL, 1)


def declare_rows(region: Region, node: fx.Node, kind: str) -> ValueType:
    """Sets R and R/n of a region by its first collective. Returns the type of the operand."""
    operand, result = sizes.facts_of(declarations.operand_of(node)), sizes.facts_of(node)
    if operand is None or result is None:
        raise Refusal("its operand is no tensor")
    if not sizes.is_contiguous(result):
        raise Refusal("its result is not contiguous")
    keeps = kind in ("all_reduce", "broadcast")
    if keeps and sizes.product(operand.lead) == 1 and _fits(operand.columns):
        return ValueType(operand.word, ONE, operand.columns)
    if len(operand.dims) >= 2 and _fits(operand.columns):
        _declare(region, kind, operand, result)
        rows = SHARE if kind == "all_gather" else ALL
        return ValueType(operand.word, rows, operand.columns)
    columns = _tile(kind, operand, region.world_size)
    # The rows of a tile do not follow from the leading sizes, so that those are not declared as rows.
    rows = SHARE if kind == "all_gather" else ALL
    count = sizes.product(operand.lead) * (operand.columns // columns)
    region.rows = count * (region.world_size if rows == SHARE else 1)
    if kind == "all_gather":
        region.share = count
    elif kind == "reduce_scatter":
        region.share = count // region.world_size
    return ValueType(operand.word, rows, columns)


def _fits(columns: Any) -> bool:
    return isinstance(columns, int) and 1 <= columns <= COLUMNS_MAX


def _declare(region: Region, kind: str, operand: Any, result: Any) -> None:
    for facts, rows in (
        (operand, SHARE if kind == "all_gather" else ALL),
        (result, SHARE if kind == "reduce_scatter" else ALL),
    ):
        # The sizes of an all_to_all's result may be other expressions than its operand's, with equal values.
        lead = operand.lead if kind == "all_to_all" else facts.lead
        region.set_rows(facts.lead, rows, sizes.product(lead))


def _tile(kind: str, operand: sizes.TensorFacts, world_size: int) -> int:
    """Returns the columns of a collective whose last dimension cannot be the columns: a divisor of its size."""
    columns = operand.columns
    if not isinstance(columns, int):
        raise Refusal(f"its last dimension is not static{STATIC_HINT}")
    if len(operand.dims) == 1 and kind in ("reduce_scatter", "all_to_all"):
        columns //= world_size
    for pieces in range(-(-columns // COLUMNS_MAX), max(columns // 64, 1) + 1):
        if columns % pieces == 0:
            return columns // pieces
    raise Refusal(f"its last dimension has no divisor up to {COLUMNS_MAX}")
