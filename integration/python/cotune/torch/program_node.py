"""Puts a region into the graph as one operator, cotune::program.

Its results have the sizes, dtypes and strides of the members that they replace. The operator stands after the last member that
is not a wait.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch
from torch import fx

from cotune.torch import compat, declarations, manifest, result_memory, sizes
from cotune.torch.program_text import ONE, ValueType, in_one_line
from cotune.torch.region import Output, Region

aten = torch.ops.aten


@dataclasses.dataclass
class ProgramNode:
    """A program operator in the graph, and the nodes of its outputs."""

    region: Region
    node: fx.Node
    results: list[fx.Node]

    @property
    def smallest_result(self) -> fx.Node:
        """A result with one row if there is one, and with the fewest columns of those."""
        types = [self.region.program.types[output.value] for output in self.region.outputs]
        keys = [(type_.rows != ONE, type_.columns) for type_ in types]
        return self.results[keys.index(min(keys))]


def why_not(graph: fx.Graph, region: Region) -> str:
    """Returns why a region cannot be an operator of the graph; "" if it can."""
    size_nodes = sizes.SizeNodes(graph, region.input_nodes)
    text = in_one_line(region.program.to_text())
    reason = manifest.why_no_argument("the name of its group", region.group)
    reason = reason or manifest.why_no_argument("its program", text)
    if reason or region.is_alone:
        # The sizes of a single collective are made from those of its operand.
        return reason
    types = region.program.types
    tensors = [(output.node, types[output.value]) for output in region.outputs]
    wanted = [size for node, _ in tensors for size in sizes.facts_of(node).dims]
    tensors += zip(region.input_nodes, region.program.inputs, strict=True)
    for node, type_ in tensors:
        wanted += sizes.tensor_dims(sizes.facts_of(node), type_.columns)
    for size in wanted:
        if not size_nodes.can_make(size):
            return f"the size {size} cannot be computed from the operands"
    return ""


def replace(
    graph: fx.Graph,
    region: Region,
    text: str,
    replaced: dict[fx.Node, fx.Node],
) -> ProgramNode:
    size_nodes = sizes.SizeNodes(graph, region.input_nodes)
    with graph.inserting_before(region.last_computed.next):
        empties = [_empty(graph, region, output, size_nodes) for output in region.outputs]
        inputs = [
            _as_rows(graph, node, type_, size_nodes)
            for node, type_ in zip(region.input_nodes, region.program.inputs, strict=True)
        ]
        program = _program_node(graph, region, text, inputs, empties)
        listed = graph.call_function(operator.getitem, (program, 1))
        listed.meta["val"] = program.meta["val"][1]
        results = []
        for index, output in enumerate(region.outputs):
            result = graph.call_function(operator.getitem, (listed, index))
            result.meta["val"] = empties[index].meta["val"]
            results.append(result)
            result = _with_sizes(graph, output, result, size_nodes)
            result = _with_dtype(graph, output, result)
            result = _with_layout(graph, output, result)
            replaced.update(result_memory.redirect(graph, region, output, result, size_nodes))
    _erase(graph, region)
    return ProgramNode(region, program, results)


def _program_node(
    graph: fx.Graph, region: Region, text: str, inputs: list[fx.Node], empties: list[fx.Node]
) -> fx.Node:
    keywords = {
        "inputs": inputs,
        "outputs": empties,
        "program": text,
        "group_name": region.group,
        "manifest": "",
    }
    target = torch.ops.cotune.program.default
    node = graph.call_function(compat.auto_functionalized(), (target,), keywords)
    node.meta["val"] = (None, [each.meta["val"] for each in empties])
    return node


def _empty(
    graph: fx.Graph, region: Region, output: Output, size_nodes: sizes.SizeNodes
) -> fx.Node:
    facts = sizes.facts_of(output.node)
    dims = sizes.tensor_dims(facts, region.program.types[output.value].columns)
    if region.is_alone:
        shape = _shape_alone(graph, region)
    else:
        shape = [size_nodes.node(size) for size in dims]
    dtype = torch.uint8 if facts.word == "bool" else facts.value.dtype
    keywords = {"dtype": dtype, "device": facts.value.device, "pin_memory": False}
    made = graph.call_function(aten.empty.memory_format, (shape,), keywords)
    value = facts.value if dims == facts.dims else facts.value.new_empty(_values_of(shape))
    if _has_layout_of_its_own(output):
        value = facts.value.new_empty(_values_of(shape))
    made.meta["val"] = value if dtype == value.dtype else value.to(dtype)
    return made


def _shape_alone(graph: fx.Graph, region: Region) -> list[Any]:
    """Makes the sizes of a collective's result from those of its operand."""
    operand, kind = region.input_nodes[0], region.program.nodes[0].op
    shape = []
    for dim, size in enumerate(operand.meta["val"].shape):
        made = size
        if not isinstance(compat.size_expression(size), int):
            made = graph.call_function(torch.ops.aten.sym_size.int, (operand, dim))
            made.meta["val"] = size
        if dim == 0 and kind == "all_gather":
            made = _with_size(graph, operator.mul, made, region.world_size)
        elif dim == 0 and kind == "reduce_scatter":
            made = _with_size(graph, operator.floordiv, made, region.world_size)
        shape.append(int(made) if not isinstance(made, fx.Node) else made)
    return shape


def _with_size(graph: fx.Graph, function: Any, size: Any, ranks: int) -> Any:
    if not isinstance(size, fx.Node):
        return function(size, ranks)
    made = graph.call_function(function, (size, ranks))
    made.meta["val"] = function(size.meta["val"], ranks)
    return made


def _values_of(shape: list[Any]) -> list[Any]:
    return [size.meta["val"] if isinstance(size, fx.Node) else size for size in shape]


def _as_rows(
    graph: fx.Graph, node: fx.Node, type_: ValueType, size_nodes: sizes.SizeNodes
) -> fx.Node:
    """Reshapes an operand, if that is needed, so that its last size is the columns of the program's input."""
    facts = sizes.facts_of(node)
    dims = sizes.tensor_dims(facts, type_.columns)
    return node if dims == facts.dims else _reshaped(graph, node, dims, size_nodes)


def _with_sizes(
    graph: fx.Graph, output: Output, result: fx.Node, size_nodes: sizes.SizeNodes
) -> fx.Node:
    """Reshapes a result, if that is needed, to the sizes of the value that it replaces."""
    dims = sizes.facts_of(output.node).dims
    if sizes.facts_of(result).dims == dims:
        return result
    return _reshaped(graph, result, dims, size_nodes)


def _reshaped(
    graph: fx.Graph, node: fx.Node, dims: sizes.Dims, size_nodes: sizes.SizeNodes
) -> fx.Node:
    shape = [size_nodes.node(size) for size in dims]
    made = graph.call_function(aten.reshape.default, (node, shape))
    made.meta["val"] = node.meta["val"].new_empty(_values_of(shape))
    return made


def _with_dtype(graph: fx.Graph, output: Output, result: fx.Node) -> fx.Node:
    """Converts a result to bool if it replaces a bool; returns it as it is otherwise."""
    value = output.node.meta["val"]
    if value.dtype != torch.bool:
        return result
    convert = torch.ops.prims.convert_element_type.default
    made = graph.call_function(convert, (result, torch.bool))
    made.meta["val"] = value
    return made


def _has_layout_of_its_own(output: Output) -> bool:
    """Returns true for the result of a declared operator that is not row-major on this rank, as its operand may not be either."""
    facts = sizes.facts_of(output.node)
    return declarations.of(output.node.target) is not None and not sizes.is_contiguous(facts)


def _with_layout(graph: fx.Graph, output: Output, result: fx.Node) -> fx.Node:
    """Gives a result the strides of the value that it replaces, because readers such as as_strided depend on them."""
    if not _has_layout_of_its_own(output):
        return result
    order = sizes.stride_order(sizes.facts_of(output.node))
    steps = (
        (aten.permute.default, (order,), {}),
        (aten.clone.default, (), {"memory_format": torch.contiguous_format}),
        (aten.permute.default, ([order.index(dim) for dim in range(len(order))],), {}),
    )
    for target, arguments, keywords in steps:
        made = graph.call_function(target, (result, *arguments), keywords)
        made.meta["val"] = target(result.meta["val"], *arguments, **keywords)
        result = made
    return result


def _erase(graph: fx.Graph, region: Region) -> None:
    """Erases the members and vanishing nodes of a region that no node reads any more."""
    pending = [*region.vanishing, *region.members]
    while pending:
        unread = [node for node in pending if not node.users]
        if not unread:
            return
        for node in reversed(pending):
            if not node.users:
                graph.erase_node(node)
                unread.append(node)
        gone = set(unread)
        pending = [node for node in pending if node not in gone]
