"""Rewrites a graph: replaces its regions by programs, and records the reason for each collective that is left alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch import fx

from cotune.torch import (
    compat,
    custom_choices,
    custom_operators,
    decisions,
    declarations,
    forced_operators,
    groups,
    manifest,
    origins,
    program_node,
    regions,
    sizes,
    start_order,
    whole_graph,
)
from cotune.torch.collectives import GroupFacts, started_by
from cotune.torch.program_node import ProgramNode
from cotune.torch.program_text import in_one_line
from cotune.torch.region import Region
from cotune.torch.settings import Settings


def rewrite(graph: fx.Graph, settings: Settings, group_facts: Callable[[str], GroupFacts]) -> None:
    """Replaces collectives of a functional graph by programs, and records the decisions."""
    with sizes.remembering():
        _rewrite(graph, settings, group_facts)


def _rewrite(
    graph: fx.Graph, settings: Settings, group_facts: Callable[[str], GroupFacts]
) -> None:
    begin = time.perf_counter()
    nodes = len(graph.nodes)
    undeclared = custom_operators.in_graph(graph)
    custom_calls = custom_operators.calls_in(graph)
    calls_custom = not all(map(_is_declared, custom_calls))
    original = _copy_to_compare(graph)
    found = regions.find_regions(
        graph, settings, group_facts, lambda region: program_node.why_not(graph, region)
    )
    starts = sorted(found.starts, key=found.starts.__getitem__)
    origin = origins.of_graph(starts or custom_calls)
    left_decisions = [
        _left_decision(each.node, each.reason, each.is_unsupported) for each in found.left
    ]
    whole = None
    if original is not None:
        whole = _to_compare(graph.owning_module, original, settings, group_facts, found)
    programs = _put_programs(graph, settings, found, whole)
    raced = [] if settings.export else custom_choices.replace(graph, compat.captures_graphs())
    forced_operators.warn_of_unknown()
    undeclared = [each for each in undeclared if each.operator not in {other.operator for other in raced}]
    seconds = time.perf_counter() - begin
    decisions.record(nodes, seconds, programs, left_decisions, origin, compat.compile_id(), undeclared, calls_custom, raced)


def _put_programs(
    graph: fx.Graph, settings: Settings, found: regions.Found, whole: whole_graph.WholeGraph | None = None
) -> list[decisions.ProgramDecision]:
    """Replaces the regions that were found in a graph by programs, and keeps `whole` for the meeting of the ranks."""
    entries: dict[str, list[manifest.Entry]] = {}
    made: list[ProgramNode] = []
    programs = []
    replaced: dict[fx.Node, fx.Node] = {}
    starts = sorted(found.starts, key=found.starts.__getitem__)
    orders_declared = len(starts) >= 2 and any(_is_declared(each) for start in starts for each in started_by(start))
    for region in found.regions:
        # An operand may be the result of a region that is replaced already.
        region.input_nodes = [replaced.get(node, node) for node in region.input_nodes]
        decision = _decision(region, settings)
        text = in_one_line(decision.text)
        entry = manifest.Entry(text, tuple(decision.rows), manifest.has_any_rows(region), manifest.has_chosen_rows(region, settings))
        entries.setdefault(region.group, []).append(entry)
        programs.append(decision)
        made.append(program_node.replace(graph, region, text, replaced))
    made.sort(key=lambda each: each.region.first)
    _write_manifests(made, entries, whole)
    # Inductor keeps the order of its own collectives, but not that of declared operators, and of bodies that call them.
    if made or orders_declared:
        start_order.chain(graph, made, found)
        start_order.sort(graph)
    return programs


def _write_manifests(
    made: list[ProgramNode], entries: dict[str, list[manifest.Entry]], whole: whole_graph.WholeGraph | None
) -> None:
    """Puts the manifest of each group into its first operator. `made` is in the order of starts."""
    pending = dict(entries)
    for each in made:
        listed = pending.pop(each.region.group, None)
        if listed is not None:
            text = manifest.manifest_text(listed, "" if whole is None else whole.digest)
            each.node.kwargs = {**each.node.kwargs, "manifest": text}
            if whole is not None:
                whole_graph.keep(each.region.group, text, whole)


# The race of the whole graph against its form without programs (whole_graph.py).


def _copy_to_compare(graph: fx.Graph) -> fx.Graph | None:
    """Returns a copy of a graph with collectives, for a race; None if it does not race."""
    if not groups.races_plain() or graph.owning_module is None or not any(map(_is_collective, graph.nodes)):
        return None
    return whole_graph.copied(graph)


def _is_collective(node: fx.Node) -> bool:
    return getattr(node.target, "namespace", "") == "_c10d_functional" or _is_declared(node)


def _to_compare(
    root: Any, original: fx.Graph, settings: Settings, group_facts: Callable[[str], GroupFacts], found: regions.Found
) -> whole_graph.WholeGraph:
    """Returns the graph without programs, for the race at the meeting of its process group."""
    names = {region.group for region in found.regions}
    names |= {str(declarations.arguments_of(each.node).get("group_name", "")) for each in found.left}

    def put(graph: fx.Graph) -> None:
        with sizes.remembering():
            again = regions.find_regions(graph, settings, group_facts, lambda region: program_node.why_not(graph, region))
            _put_programs(graph, settings, again)

    return whole_graph.WholeGraph.of(root, original, whole_graph.why_not(original, names), put)


# Decisions.


def _is_declared(node: fx.Node) -> bool:
    return declarations.of(node.target) is not None or declarations.wrapped_in(node) is not None


def _left_decision(
    node: fx.Node, reason: str, is_unsupported: bool = False
) -> decisions.LeftDecision:
    wrapped = declarations.wrapped_in(node)
    declaration = declarations.of(node.target if wrapped is None else wrapped)
    arguments = declarations.arguments_of(node)
    return decisions.LeftDecision(
        node.name,
        declaration.operator if declaration is not None else node.target._schema.name.split("::")[1],
        str(arguments.get("group_name", "")),
        reason,
        is_unsupported,
        origins.of_nodes([node]),
    )


def _decision(region: Region, settings: Settings) -> decisions.ProgramDecision:
    return decisions.ProgramDecision(
        region.program.to_text(),
        region.group,
        [node.name for node in region.collectives],
        len(region.members),
        manifest.rows_of(region, settings),
        list(dict.fromkeys(region.stops)),
        origins.of_nodes([*region.collectives, *region.members]),
    )
