"""What the pass decided, for people and as data. The list is bounded: old graphs are dropped."""

from __future__ import annotations

import collections
import dataclasses
import logging
import threading
from typing import Any

from cotune.torch import compat
from cotune.torch.log import log

GRAPHS_KEPT = 256


@dataclasses.dataclass
class ProgramDecision:
    """A region that became a program.

    Attributes:
      text: the program's text.
      group: the name of its process group.
      collectives: names of the nodes of its collectives.
      fused: the number of nodes that it stands for, collectives and waits included.
      rows: the row counts for which it is tuned.
      stops: (name, reason) of nodes that use its values and stay outside.
    """

    text: str
    group: str
    collectives: list[str]
    fused: int
    rows: list[int]
    stops: list[tuple[str, str]]


@dataclasses.dataclass
class LeftDecision:
    """A collective that is left alone: node, operator, group and reason.

    `is_unsupported`: programs lack its dtype, its layout or its kind, whatever the settings are.
    """

    node: str
    operator: str
    group: str
    reason: str
    is_unsupported: bool = False


@dataclasses.dataclass
class GraphDecision:
    """The decisions about one graph, in the order of its nodes. Time is in seconds."""

    number: int
    nodes: int
    seconds: float
    programs: list[ProgramDecision]
    left: list[LeftDecision]


_graphs: collections.deque[GraphDecision] = collections.deque(maxlen=GRAPHS_KEPT)
_lock = threading.Lock()
_count = 0
_has_warned = False


def record(
    nodes: int, seconds: float, programs: list[ProgramDecision], left: list[LeftDecision]
) -> None:
    """Adds a graph. A graph without a collective is not kept."""
    global _count
    if not programs and not left:
        return
    with _lock:
        _graphs.append(GraphDecision(_count, nodes, seconds, programs, left))
        _count += 1
    _warn_once([each for each in left if each.is_unsupported])


def _warn_once(unsupported: list[LeftDecision]) -> None:
    """Warns about the first graph of the process with such collectives; on global rank 0."""
    global _has_warned
    with _lock:
        if _has_warned or not unsupported:
            return
        _has_warned = True
    log.log(
        logging.WARNING if compat.global_rank() == 0 else logging.INFO,
        "cotune leaves %s of this graph to PyTorch: %s (%s): %s; cotune.torch.explain() lists %s",
        _count_text(unsupported, "collective"),
        unsupported[0].node,
        unsupported[0].operator,
        unsupported[0].reason,
        "it" if len(unsupported) == 1 else "them",
    )


def clear() -> None:
    """Forgets all graphs."""
    with _lock:
        _graphs.clear()


def graphs() -> list[GraphDecision]:
    """The graphs that are kept, oldest first."""
    with _lock:
        return list(_graphs)


def explain_data() -> list[dict[str, Any]]:
    """The decisions as plain data: one dict a graph, as GraphDecision has it."""
    return [dataclasses.asdict(graph) for graph in graphs()]


def explain() -> str:
    """The decisions as text: each program, each collective that is left alone, and why."""
    lines = []
    for graph in graphs():
        lines.append(
            f"graph {graph.number}: {graph.nodes} nodes, {_count_text(graph.programs, 'program')}, "
            f"{_count_text(graph.left, 'collective')} left alone, {graph.seconds * 1e3:.1f} ms"
        )
        for program in graph.programs:
            lines.append(
                f"  {program.text.splitlines()[0]}: group {program.group}, "
                f"{_count_text(program.collectives, 'collective')}, {program.fused} nodes, "
                f"rows {_rows_text(program.rows)}"
            )
            lines += [f"    {name} stays outside: {reason}" for name, reason in program.stops]
        for left in graph.left:
            lines.append(f"  {left.node} ({left.operator}, group {left.group}): {left.reason}")
    if not lines:
        return (
            "no graph with a collective was compiled in this process; a graph that came out of a cache runs its "
            "programs by cotune, and is not listed\n"
        )
    return "\n".join(lines) + "\n"


def _count_text(items: list[Any], word: str) -> str:
    return f"{len(items)} {word}" + ("" if len(items) == 1 else "s")


def _rows_text(rows: list[int]) -> str:
    return str(rows[0]) if len(rows) == 1 else f"{rows[0]} to {rows[-1]}"
