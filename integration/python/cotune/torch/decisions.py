"""Keeps the decisions of the pass, and gives them as text for people and as data. Only the newest GRAPHS_KEPT graphs are kept."""

from __future__ import annotations

import collections
import dataclasses
import logging
import threading
from collections.abc import Callable
from typing import Any

from cotune.torch import custom_operators, process_groups
from cotune.torch.custom_operators import UndeclaredOperator
from cotune.torch.log import log
from cotune.torch.origins import Origin
from cotune.torch.program_text import in_one_line

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
      origin: the line that calls its first collective; None if the graph does not have it.
    """

    text: str
    group: str
    collectives: list[str]
    fused: int
    rows: list[int]
    stops: list[tuple[str, str]]
    origin: Origin | None = None


@dataclasses.dataclass
class LeftDecision:
    """A collective that is left alone.

    Attributes:
      node: the name of its node.
      operator: the name of a functional collective without its namespace, or of a declared operator with it.
      group: the name of its process group.
      reason: why it is left alone.
      is_unsupported: programs lack its dtype, its layout or its kind, whatever the settings are.
      origin: the line that calls it; None if the graph does not have it.
    """

    node: str
    operator: str
    group: str
    reason: str
    is_unsupported: bool = False
    origin: Origin | None = None


@dataclasses.dataclass
class GraphDecision:
    """The decisions about one graph, in the order of its nodes.

    Attributes:
      number: in the order of compilation.
      nodes: how many the graph has.
      seconds: the time that the pass took.
      origin: the compiled function, with the line that leads to the first collective.
      compile_id: the id that TORCH_LOGS and tlparse show, such as "0/1"; "" if none is known.
      undeclared: custom operators that have a group argument, and that nobody had declared.
      raced: custom operators that are not declared and have functions: they run by their body or by one of these.
    """

    number: int
    nodes: int
    seconds: float
    programs: list[ProgramDecision]
    left: list[LeftDecision]
    origin: Origin | None = None
    compile_id: str = ""
    undeclared: list[UndeclaredOperator] = dataclasses.field(default_factory=list)
    raced: list[UndeclaredOperator] = dataclasses.field(default_factory=list)


_graphs: collections.deque[GraphDecision] = collections.deque(maxlen=GRAPHS_KEPT)
# The compilations for which Inductor has looked into its caches, by their ids: true if the pass has run in them.
_lookups: collections.OrderedDict[str, bool] = collections.OrderedDict()
_lock = threading.Lock()
_count = 0
_has_warned = False
_calls_custom = False


def record(
    nodes: int,
    seconds: float,
    programs: list[ProgramDecision],
    left: list[LeftDecision],
    origin: Origin | None = None,
    compile_id: str = "",
    undeclared: list[UndeclaredOperator] | None = None,
    calls_custom: bool = False,
    raced: list[UndeclaredOperator] | None = None,
) -> None:
    """Adds a graph. A graph without a collective, and without an operator that may be one, is not kept.

    `calls_custom`: true if the graph calls custom operators that nobody has declared, with a group argument or without one.
    """
    global _count, _calls_custom
    undeclared = undeclared or []
    _calls_custom = _calls_custom or calls_custom or bool(undeclared)
    if not programs and not left and not undeclared and not raced:
        return
    with _lock:
        _graphs.append(GraphDecision(_count, nodes, seconds, programs, left, origin, compile_id, undeclared, raced or []))
        _count += 1
    _warn_once([each for each in left if each.is_unsupported])


def _warn_once(unsupported: list[LeftDecision]) -> None:
    """Warns about unsupported collectives, for the first graph of the process that has any; on global rank 0."""
    global _has_warned
    with _lock:
        if _has_warned or not unsupported:
            return
        _has_warned = True
    log.log(
        logging.WARNING if process_groups.global_rank() == 0 else logging.INFO,
        "cotune leaves %s of this graph to PyTorch: %s (%s): %s; cotune.torch.explain() lists %s",
        _count_text(unsupported, "collective"),
        unsupported[0].node,
        unsupported[0].operator,
        unsupported[0].reason,
        "it" if len(unsupported) == 1 else "them",
    )


def note_lookup(compile_id: str, is_compiled: bool) -> None:
    """Notes that Inductor looks for the graph of a compilation in its caches, or (`is_compiled`) that it compiles the graph."""
    if not compile_id:
        return
    with _lock:
        _lookups[compile_id] = is_compiled or _lookups.get(compile_id, False)
        if len(_lookups) > GRAPHS_KEPT:
            _lookups.popitem(last=False)


def cached_ids() -> set[str]:
    """The ids of compilations whose graphs came out of a cache."""
    with _lock:
        return {each for each, is_compiled in _lookups.items() if not is_compiled}


def clear() -> None:
    """Forgets all graphs."""
    global _calls_custom
    with _lock:
        _graphs.clear()
        _lookups.clear()
        _calls_custom = False


def calls_custom_operators() -> bool:
    """Returns true if a graph that was compiled here calls a custom operator that nobody had declared."""
    return _calls_custom


def graphs() -> list[GraphDecision]:
    """The graphs that are kept, oldest first."""
    with _lock:
        return list(_graphs)


def explain_data() -> list[dict[str, Any]]:
    """The decisions as plain data: one dict a graph, as GraphDecision has it."""
    return [dataclasses.asdict(graph) for graph in graphs()]


def origins_of(group: str, text: str) -> list[Origin]:
    """Returns the origins of a program in compiled graphs, the oldest first. `text`: the program in one line."""
    found = [
        program.origin
        for graph in graphs()
        for program in graph.programs
        if program.origin is not None and program.group == group and in_one_line(program.text) == text
    ]
    return list(dict.fromkeys(found))


def _nothing(program: ProgramDecision) -> list[str]:
    return []


def explain(lines_of: Callable[[ProgramDecision], list[str]] = _nothing) -> str:
    """Returns the decisions as text: each program, each collective that is left alone with the reason, each undeclared operator.

    `lines_of` returns further lines about a program.
    """
    lines = []
    for graph in graphs():
        lines.append(
            f"graph {graph.number}{place(graph.origin)}: {graph.nodes} nodes, {_count_text(graph.programs, 'program')}, "
            f"{_count_text(graph.left, 'collective')} left alone, {_undeclared_count_text(graph)}{graph.seconds * 1e3:.1f} ms"
            f"{', compile id ' + graph.compile_id if graph.compile_id else ''}"
        )
        for program in graph.programs:
            lines.append(
                f"  {program.text.splitlines()[0]}{place(program.origin)}: group {program.group}, "
                f"{_count_text(program.collectives, 'collective')}, {program.fused} nodes, "
                f"rows {_rows_text(program.rows)}"
            )
            lines += lines_of(program)
            lines += [f"    {name} stays outside: {reason}" for name, reason in program.stops]
        for left in graph.left:
            lines.append(f"  {left.node} ({left.operator}, group {left.group}){place(left.origin)}: {left.reason}")
        lines += [line for each in graph.undeclared for line in undeclared_lines(each)]
        lines += [_raced_line(each) for each in graph.raced]
    if not lines:
        return "no graph with a collective was compiled in this process\n"
    return "\n".join(lines) + "\n"


def undeclared_lines(operator: UndeclaredOperator) -> list[str]:
    """Two lines: an undeclared operator, and how it is declared."""
    groups = f"group {' and '.join(operator.groups)}" if operator.groups else "a group"
    calls = "1 call" if operator.calls == 1 else f"{operator.calls} calls"
    head = f"  {operator.operator}{place(operator.origin)}: {calls}, {groups} as {operator.argument}; not declared"
    if custom_operators.is_declared_now(operator):
        return [f"{head} when the graph was compiled", "    it is now: torch.compiler.reset() lets the function be compiled anew"]
    if operator.why_not:
        return [head, f"    if it is a collective, it cannot be declared: {operator.why_not}"]
    return [head, f"    if it is a collective: {operator.declaration}"]


def _raced_line(operator: UndeclaredOperator) -> str:
    groups = f"group {' and '.join(operator.groups)}" if operator.groups else "a group"
    calls = "1 call" if operator.calls == 1 else f"{operator.calls} calls"
    head = f"  {operator.operator}{place(operator.origin)}: {calls}, {groups}"
    if operator.why_body:
        return f"{head}; runs its body: {operator.why_body}"
    return f"{head}; runs its body or a function that is registered for it"


def _undeclared_count_text(graph: GraphDecision) -> str:
    if not graph.undeclared:
        return ""
    return f"{_count_text(graph.undeclared, 'custom operator')} not declared, "


def place(origin: Origin | None) -> str:
    """Returns " of ORIGIN", which follows the name of a program or a graph; "" if the origin is not known."""
    return f" of {origin}" if origin is not None else ""


def _count_text(items: list[Any], word: str) -> str:
    return f"{len(items)} {word}" + ("" if len(items) == 1 else "s")


def _rows_text(rows: list[int]) -> str:
    return str(rows[0]) if len(rows) == 1 else f"{rows[0]} to {rows[-1]}"
