"""The order in which the collectives of a graph run: the one in which they start, on all ranks."""

from __future__ import annotations

import itertools
import operator

import torch
from torch import fx

from cotune.torch import compat, declarations, regions
from cotune.torch.program_node import ProgramNode
from cotune.torch.program_text import Refusal


def chain(graph: fx.Graph, made: list[ProgramNode], found: regions.Found) -> None:
    """Lets all collectives run in the order of starts, those that are left alone, too.

    Inductor orders operators that do not depend on each other by sizes at the time of tracing,
    which are not equal on all ranks, and ranks with different orders wait for each other, also if
    the programs are of two groups or devices. It keeps the order that its own collectives
    have when all passes are done: one that a program delays would let the next one start first.
    So a program has a result of the collective before it as a last input more than it declares,
    unless it reads one already, and a collective that is left alone gets a dependency on the one
    before it.
    """
    items: list[tuple[int, ProgramNode | fx.Node]] = [(each.region.first, each) for each in made]
    items += [(found.starts[each.node], each.node) for each in found.left]
    known = {each.node for each in found.left}
    members = {node for each in made for node in each.region.collectives}
    items += [
        (place, node)
        for node, place in found.starts.items()
        if node not in known and node not in members
    ]
    dependencies: dict[fx.Node, fx.Node] = {}
    in_order = [each for _, each in sorted(items, key=lambda item: item[0])]
    for last, each in itertools.pairwise(in_order):
        result = last.smallest_result if isinstance(last, ProgramNode) else _first_tensor(graph, last)
        if isinstance(each, fx.Node):
            dependencies[each] = result
            continue
        results = last.results if isinstance(last, ProgramNode) else [result]
        if set(results).isdisjoint(each.node.kwargs["inputs"]):
            each.node.kwargs = {**each.node.kwargs, "inputs": [*each.node.kwargs["inputs"], result]}
    if dependencies:
        compat.depend_on(graph, dependencies)


def _first_tensor(graph: fx.Graph, collective: fx.Node) -> fx.Node:
    """The result of a collective, or the first of several. The token of an operator with an effect is none of them."""
    value = collective.meta.get("val")
    if not isinstance(value, (list, tuple)):
        return collective
    begin = 0 if declarations.wrapped_in(collective) is None else 1
    index = next(index for index, each in enumerate(value) if index >= begin and isinstance(each, torch.Tensor))
    with graph.inserting_after(collective):
        first = graph.call_function(operator.getitem, (collective, index))
    first.meta["val"] = value[index]
    return first


def sort(graph: fx.Graph) -> None:
    """Puts every node after its operands; keeps the order of nodes that do not depend on each other."""
    seen: set[fx.Node] = set()
    for node in graph.nodes:
        if any(each not in seen for each in node.all_input_nodes):
            break
        seen.add(node)
    else:
        return
    sort_graph = compat.sort_graph()
    if sort_graph is None:
        raise Refusal("this torch has no function that sorts a graph")
    sort_graph(graph)
