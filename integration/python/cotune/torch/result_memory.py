"""Decides which tensors the readers of a program's results get.

Results that do not share memory in PyTorch share none here either, if one of their readers may write to it.
"""

from __future__ import annotations

import enum
import operator

import torch
from torch import fx

from cotune.torch import aten_ops, compat, sizes
from cotune.torch.region import Output, Region

aten = torch.ops.aten


def redirect(
    graph: fx.Graph,
    region: Region,
    output: Output,
    result: fx.Node,
    size_nodes: sizes.SizeNodes,
) -> dict[fx.Node, fx.Node]:
    """Replaces a value by the result of the program in all nodes that use it. Views of it stay, and read the result.

    Nodes that are separate tensors in PyTorch may have one value in the program. If a reader may write to one of them, and
    another one is read as well, the reader gets a copy. Returns the new node for each node that is replaced.
    """
    dims = sizes.facts_of(output.node).dims
    nodes = [node for node, value in region.values.items() if value == output.value]
    tensors = _tensors(graph, region, nodes, result)
    replaced = {}
    for node in nodes:
        if node in region.narrow:
            continue
        facts, tensor = sizes.facts_of(node), tensors[region.owner_of(node)]
        if facts.dims == dims:
            replaced[node] = tensor
        elif node not in region.views:
            shape = [size_nodes.node(size) for size in facts.dims]
            viewed = graph.call_function(aten.reshape.default, (tensor, shape))
            viewed.meta["val"] = facts.value
            replaced[node] = viewed
    for node, new in replaced.items():
        node.replace_all_uses_with(new)
    return replaced


def _tensors(
    graph: fx.Graph, region: Region, nodes: list[fx.Node], result: fx.Node
) -> dict[fx.Node, fx.Node]:
    """Returns the result, or a copy of it, for each of the nodes of one value that owns its memory."""
    accesses = {owner: _access(owner, region) for owner in map(region.owner_of, nodes)}
    is_written = _Access.WRITTEN in accesses.values()
    tensors, is_taken = {}, False
    for owner, access in accesses.items():
        needs_own = access is not _Access.READ or is_written
        tensors[owner] = _copied(graph, result) if needs_own and is_taken else result
        is_taken = is_taken or needs_own
    return tensors


class _Access(enum.Enum):
    """The use of a node's memory outside of its region."""

    READ = enum.auto()  # nodes of the graph only read it, or none uses it
    LEAVES = enum.auto()  # it is an output of the graph, to which the caller may write
    WRITTEN = enum.auto()  # a node of the graph may write to it


def _access(node: fx.Node, region: Region) -> _Access:
    pending, seen = [node], {node}
    found = _Access.READ
    while pending:
        for user in pending.pop().users:
            if user in seen or (user in region.values and user not in region.views):
                continue
            if user in region.views or _is_view(user):
                seen.add(user)
                pending.append(user)
            elif user.op == "output":
                found = _Access.LEAVES
            elif not _only_reads(user):
                return _Access.WRITTEN
    return found


def _copied(graph: fx.Graph, node: fx.Node) -> fx.Node:
    made = graph.call_function(aten.clone.default, (node,))
    made.meta["val"] = torch.empty_like(node.meta["val"])
    return made


def _is_view(node: fx.Node) -> bool:
    """Returns true if the result of a node shares the memory of an operand."""
    if node.target is operator.getitem:
        return True
    rule = aten_ops.RULES.get(node.target)
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable:
        return False
    return (rule is not None and rule.is_view) or any(each.alias_info for each in schema.returns)


def _only_reads(node: fx.Node) -> bool:
    """Returns true if a node writes to no operand."""
    if node.target in compat.functionalizers():
        return True  # it copies the operands to which its operator writes
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.is_mutable
