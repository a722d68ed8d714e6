"""Finds the regions of a graph that become programs. It does not change the graph.

A member whose value is used outside of its region is an output. Sweeps over the graph (sweep.py) are repeated without the nodes
that do not fit, until all regions can be programs. All decisions depend on the graph alone, which may differ between the ranks
(docs/decisions/0025-agreement-by-keys.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from torch import fx

from cotune.torch.collectives import GroupFacts
from cotune.torch.composites import Composites
from cotune.torch.program_text import OUTPUTS_MAX
from cotune.torch.region import Output, Region, is_wait
from cotune.torch.settings import Settings
from cotune.torch.sweep import Left, Sweep


@dataclasses.dataclass
class Found:
    """The result for the collectives of a graph.

    Attributes:
      regions: become programs.
      left: the collectives that are left alone.
      starts: the place of each collective in the order of starts.
    """

    regions: list[Region]
    left: list[Left]
    starts: dict[fx.Node, int]


def find_regions(
    graph: fx.Graph,
    settings: Settings,
    group_facts: Callable[[str], GroupFacts],
    why_not: Callable[[Region], str] = lambda region: "",
) -> Found:
    """Returns the regions of a graph, and the collectives that are left alone with the reasons.

    `why_not` returns the reason for which a region cannot be a program, or "". Each collective of such a region becomes a program
    by itself, and is left alone only if that is not possible either.
    """
    forbidden: frozenset[fx.Node] = frozenset()
    alone: frozenset[fx.Node] = frozenset()
    composites = Composites(list(graph.nodes))
    while True:
        sweep = Sweep(graph, settings, group_facts, composites, forbidden, alone)
        sweep.run()
        for region in sweep.regions:
            _find_outputs(region, composites)
        misfits = forbidden | {node for region in sweep.regions for node in _misfits(region)}
        # The loop ends: a collective is no misfit, so that each round forbids a further node or makes a collective alone.
        if misfits > forbidden:
            forbidden = misfits
            continue
        reasons = {region.index: _why_dropped(region) or why_not(region) for region in sweep.regions}
        parted = [each for each in sweep.regions if reasons[each.index] and not each.is_alone]
        if not parted:
            break
        alone |= {node for region in parted for node in region.collectives}
    kept = []
    for region in sweep.regions:
        if reasons[region.index]:
            sweep.left += [Left(node, reasons[region.index]) for node in region.collectives]
        else:
            kept.append(region)
    return Found(kept, sweep.left, sweep.starts)


def _why_dropped(region: Region) -> str:
    if len(region.outputs) > OUTPUTS_MAX:
        return f"a program has at most {OUTPUTS_MAX} outputs"
    return ""


def _find_outputs(region: Region, composites: Composites) -> None:
    """Fills the outputs of a region: the values that a node outside reads, in order of the members.

    A collective whose value no node reads is an output as well, so that it stays: the other ranks wait for this one.
    """
    found: dict[int, Output] = {}
    roots: dict[int, fx.Node] = {}
    read = {operand for node in region.program.nodes for operand in node.operands}
    for node in region.members:
        value = region.values[node]
        if node not in region.narrow:
            roots.setdefault(value, node)
        is_read = any(not composites.is_inside(user, region.values) for user in node.users)
        if is_read or (node in region.collectives and value not in read):
            output = found.get(value)
            if output is None:
                output = found[value] = Output(roots.get(value, node), value, [])
            output.same.append(node)
    region.outputs = list(found.values())
    region.vanishing = composites.vanishing(region.values)
    region.program.outputs = [(output.value, -1) for output in region.outputs]


def _misfits(region: Region) -> list[fx.Node]:
    """Returns members that cannot stay: readers outside would have to repeat the value, no node uses it, or outputs are too many."""
    computed = region.narrow - region.views
    misfits = [each for output in region.outputs for each in output.same if each in computed]
    read = {operand for node in region.program.nodes for operand in node.operands}
    read |= {output.value for output in region.outputs}
    opening = set(region.collectives)
    # A declared operator has no wait after it, so that its readers are operations.
    opening |= {node for c in region.collectives for node in c.users if is_wait(node)}
    misfits += [node for node in region.members if region.values[node] not in read]
    if len(region.outputs) > OUTPUTS_MAX:
        misfits.append(region.members[-1])
    return [node for node in misfits if node not in opening]
