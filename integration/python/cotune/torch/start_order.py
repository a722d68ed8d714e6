"""Makes the collectives of a graph run in the order in which they start, which is the same on all ranks."""

from __future__ import annotations

import copy
import itertools
import operator

import torch
from torch import fx

from cotune.torch import compat, declarations, regions
from cotune.torch.program_node import ProgramNode
from cotune.torch.program_text import Refusal


def chain(graph: fx.Graph, made: list[ProgramNode], found: regions.Found) -> None:
    """Adds dependencies by which all collectives run in the order of starts, including those that are left alone.

    Inductor orders operators that do not depend on each other by sizes at the time of tracing, which may differ between the
    ranks. Ranks with different orders would wait for each other for ever, even if the programs are of two groups or devices.
    Inductor keeps the order that its own collectives have after all passes; but if a program delays one of them, the next one
    would start first. Therefore a program gets a result of the collective before it as a last input, which it does not declare,
    unless it reads such a result already. A collective that is left alone gets a dependency on the one before it. So does a
    branch or a loop with collectives in its bodies, because Inductor orders it as any other operator.
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
    result: fx.Node | None = None
    for last, each in itertools.pairwise(in_order):
        # A loop may return numbers only; the collective after it then depends on the one before the loop.
        result = (last.smallest_result if isinstance(last, ProgramNode) else _first_tensor(graph, last)) or result
        if result is None:
            continue
        if isinstance(each, fx.Node):
            if _is_decomposed_later(each):
                _read_also(graph, each, result)
            else:
                dependencies[each] = result
            continue
        results = last.results if isinstance(last, ProgramNode) else [result]
        if set(results).isdisjoint(each.node.kwargs["inputs"]):
            each.node.kwargs = {**each.node.kwargs, "inputs": [*each.node.kwargs["inputs"], result]}
    if dependencies:
        compat.depend_on(graph, dependencies)


def _is_decomposed_later(node: fx.Node) -> bool:
    """Returns true for scan and map. Inductor turns them into while_loop after this pass, but cannot do so inside control_deps."""
    return bool(compat.bodies_of(node)) and not compat.has_lowering(node.target) and isinstance(node.args[-1], (tuple, list))


def _read_also(graph: fx.Graph, node: fx.Node, value: fx.Node) -> None:
    """Adds an input to a loop and its body that the body does not read. The last argument of the loop is its list of inputs."""
    root = graph.owning_module
    bodies = compat.bodies_of(node)
    for each in [each for each in node.all_input_nodes if each.op == "get_attr"]:
        body = getattr(root, str(each.target))
        if not any(body is known for known in bodies):
            continue
        # The body is copied, because another node may run it as well.
        body = copy.deepcopy(body)
        *_, last = (inner for inner in body.graph.nodes if inner.op == "placeholder")
        with body.graph.inserting_after(last):
            body.graph.placeholder("order").meta["val"] = value.meta["val"]
        body.recompile()
        name = f"{each.target}_of_{node.name}"
        setattr(root, name, body)
        with graph.inserting_before(node):
            node.replace_input_with(each, graph.get_attr(name))
    node.args = (*node.args[:-1], type(node.args[-1])((*node.args[-1], value)))


def _first_tensor(graph: fx.Graph, collective: fx.Node) -> fx.Node | None:
    """Returns the result of a collective, or the first tensor of several results; None if no result is a tensor.

    The token that an operator with an effect returns first does not count.
    """
    value = collective.meta.get("val")
    if not isinstance(value, (list, tuple)):
        return collective
    begin = 0 if declarations.wrapped_in(collective) is None else 1
    index = next((index for index, each in enumerate(value) if index >= begin and isinstance(each, torch.Tensor)), None)
    if index is None:
        return None
    with graph.inserting_after(collective):
        first = graph.call_function(operator.getitem, (collective, index))
    first.meta["val"] = value[index]
    return first


def sort(graph: fx.Graph) -> None:
    """Moves every node after its operands, and keeps the order of nodes that do not depend on each other."""
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
