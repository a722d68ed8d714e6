"""Functional collectives as collectives of programs: arguments, and what their rows are."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import fx

from cotune.torch import compat, sizes
from cotune.torch.program_text import ALL, COLUMNS_MAX, ONE, SHARE, Node, Refusal, ValueType
from cotune.torch.region import Region
from cotune.torch.settings import Settings

_REDUCTIONS = {
    "sum": "sum",
    "avg": "average",
    "product": "product",
    "min": "min",
    "max": "max",
}


@dataclasses.dataclass(frozen=True)
class GroupFacts:
    """What is known of a group when the graph is compiled; `reason` says why it is not taken."""

    world_size: int = 0
    reason: str = ""


def collective_node(
    kind: str, arguments: dict[str, Any], world_size: int, settings: Settings
) -> Node:
    """The node of a program for the arguments of a functional collective; without its operand.

    Raises Refusal for what programs do not have.
    """
    reduction, named = "", ()
    if kind in ("all_reduce", "reduce_scatter"):
        reduction = _reduction(arguments)
    if kind in ("all_gather", "reduce_scatter") and arguments["group_size"] != world_size:
        raise Refusal(f"its group has {world_size} ranks, and it has {arguments['group_size']}")
    if kind == "all_to_all":
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
    splits = [*arguments["output_split_sizes"], *arguments["input_split_sizes"]]
    if len(splits) != 2 * world_size:
        raise Refusal("it has no split for each rank")
    first = splits[0]
    if any(each is not first and not (isinstance(each, int) and each == first) for each in splits):
        raise Refusal("its splits are uneven")
    facts = sizes.facts_of(arguments.get("input", arguments.get("self")))
    rows = facts.dims[0] if facts is not None and facts.dims else None
    if isinstance(first, fx.Node):
        if not _is_share(first, rows, world_size):
            raise Refusal("its splits cannot be shown to be even on all ranks")
        return
    if rows != first * world_size:
        raise Refusal("its splits are not an equal share of the rows")
    if not settings.all_to_all:
        raise Refusal(
            "its splits are even on this rank, which says nothing about the others; give all_to_all=True where "
            "the splits of all ranks are equal"
        )


def _is_share(split: fx.Node, rows: Any, world_size: int) -> bool:
    """Whether a size is the rows divided by the number of ranks."""
    value = split.meta.get("val")
    if value is None or rows is None:
        return False
    return compat.size_expression(value) == compat.floor_division(rows, world_size)


def declare_rows(region: Region, node: fx.Node, kind: str) -> ValueType:
    """Sets R and R/n of a region by its first collective. Returns the type of the operand."""
    operand, result = sizes.facts_of(node.all_input_nodes[0]), sizes.facts_of(node)
    if operand is None or result is None:
        raise Refusal("its operand is no tensor")
    if operand.word not in sizes.DTYPES or operand.word == "bool":
        raise Refusal(f"programs have no {operand.word.removeprefix('torch.')}")
    if not sizes.is_contiguous(result):
        raise Refusal("its result is not contiguous")
    if any(isinstance(size, int) and size == 0 for size in operand.dims):
        raise Refusal("it has no elements")
    keeps = kind in ("all_reduce", "broadcast")
    if keeps and sizes.product(operand.lead) == 1 and _fits(operand.columns):
        return ValueType(operand.word, ONE, operand.columns)
    if len(operand.dims) >= 2 and _fits(operand.columns):
        _declare(region, kind, operand, result)
        rows = SHARE if kind == "all_gather" else ALL
        return ValueType(operand.word, rows, operand.columns)
    columns = _tile(kind, operand, region.world_size)
    # The leading sizes do not tell the rows of a tile, so that none is declared.
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
        # The sizes of an all_to_all's result may be written otherwise than its operand's.
        lead = operand.lead if kind == "all_to_all" else facts.lead
        region.set_rows(facts.lead, rows, sizes.product(lead))


def _tile(kind: str, operand: sizes.TensorFacts, world_size: int) -> int:
    """The columns of a collective whose last dimension cannot be the columns."""
    columns = operand.columns
    if not isinstance(columns, int):
        raise Refusal("its last dimension is not static")
    if len(operand.dims) == 1 and kind in ("reduce_scatter", "all_to_all"):
        columns //= world_size
    for pieces in range(-(-columns // COLUMNS_MAX), max(columns // 64, 1) + 1):
        if columns % pieces == 0:
            return columns // pieces
    raise Refusal(f"its last dimension has no divisor up to {COLUMNS_MAX}")
