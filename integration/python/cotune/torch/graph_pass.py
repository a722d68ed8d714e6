"""The pass over Inductor's post-grad graphs that puts programs in for collectives."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import operator
import pathlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from cotune.torch import compat, decisions, groups, manifest, regions, sizes
from cotune.torch.collectives import GroupFacts
from cotune.torch.program_text import ONE, Refusal, ValueType, in_one_line
from cotune.torch.region import Output, Region
from cotune.torch.settings import Settings

aten = torch.ops.aten

# Files whose change makes other graphs; the caches of compiled graphs key on them.
_FILES = (
    "aten_ops",
    "collectives",
    "compat",
    "composites",
    "graph_pass",
    "manifest",
    "program_text",
    "region",
    "regions",
    "settings",
    "sizes",
)


@functools.cache
def code_digest() -> str:
    """The SHA-256 of the code of the pass, in hex."""
    total = hashlib.sha256()
    for name in _FILES:
        total.update(pathlib.Path(__file__).with_name(f"{name}.py").read_bytes())
    return total.hexdigest()


class CotunePass(compat.custom_graph_pass()):
    """Replaces collectives, and the work around them, by operators that run programs.

    Args:
      settings: equal on all ranks.
      before: a pass, or a list or tuple of passes, that runs first; None for none.
    """

    def __init__(self, settings: Settings | None = None, before: Any = None):
        compat.check_version()
        self.settings = settings or Settings()
        self.before = before

    def __call__(self, graph: fx.Graph) -> None:
        groups.drop_stale()
        for each in _passes(self.before):
            each(graph)
        rewrite(graph, self.settings)

    def uuid(self) -> Any:
        """What compiled graphs depend on: code, settings, process groups, probed values, the uuid of the pass before.

        None, which turns the caches off, if the pass before has none, or the process groups are not known.
        """
        # A graph from the cache runs without the pass.
        groups.drop_stale()
        known = compat.process_groups()
        if known is None:
            return None
        before = []
        for each in _passes(self.before):
            found = each.uuid() if hasattr(each, "uuid") else None
            if found is None:
                return None
            before.append(found)
        facts = (bool(known), tuple(sorted((name, *found) for name, found in known.items())))
        return ("cotune", code_digest(), repr(self.settings), facts, compat.probed_values(), tuple(before))

    def __deepcopy__(self, memo: dict[int, Any]) -> CotunePass:
        # Ahead-of-time compilation copies its options; the pass has no state of its own.
        return self


def _passes(before: Any) -> tuple[Any, ...]:
    if before is None:
        return ()
    return tuple(before) if isinstance(before, (list, tuple)) else (before,)


def group_facts_of(settings: Settings) -> Callable[[str], GroupFacts]:
    """A function from the name of a group to what is known of it at compile time.

    It reads nothing but what the uuid of the pass has: another fact would be missing in the caches' keys.
    """

    @functools.cache
    def facts(name: str) -> GroupFacts:
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return GroupFacts(reason="torch.distributed is not initialised")
        known = compat.process_groups()
        if known is None:
            return GroupFacts(reason=f"torch {torch.__version__} has no list of process groups")
        if name not in known:
            return GroupFacts(reason=f"there is no group '{name}' in this process")
        size, is_fake = known[name]
        if size == 1:
            return GroupFacts(reason="its group has one rank")
        if is_fake and not settings.export:
            return GroupFacts(reason="its group has the fake backend, and export is off")
        return GroupFacts(world_size=size)

    return facts


def rewrite(
    graph: fx.Graph, settings: Settings, group_facts: Callable[[str], GroupFacts] | None = None
) -> None:
    """Puts programs into a functional graph, and records what was decided."""
    with sizes.remembering():
        _rewrite(graph, settings, group_facts or group_facts_of(settings))


def _rewrite(
    graph: fx.Graph, settings: Settings, group_facts: Callable[[str], GroupFacts]
) -> None:
    begin = time.perf_counter()
    nodes = len(graph.nodes)
    found, left = regions.find_regions(graph, settings, group_facts)
    left_decisions = [
        _left_decision(each.node, each.reason, each.is_unsupported) for each in left
    ]
    entries: dict[str, dict[str, list[int]]] = {}
    made: list[_Made] = []
    programs = []
    replaced: dict[fx.Node, fx.Node] = {}
    for region in found:
        # An operand may have been a member of a region that is replaced already.
        region.input_nodes = [replaced.get(node, node) for node in region.input_nodes]
        size_nodes = sizes.SizeNodes(graph, region.input_nodes)
        decision = _decision(region)
        text = in_one_line(decision.text)
        reason = _why_not(region, text, size_nodes)
        if reason:
            left_decisions += [_left_decision(node, reason) for node in region.collectives]
            continue
        entry = entries.setdefault(region.group, {})
        entry[text] = sorted({*entry.get(text, []), *decision.rows})
        programs.append(decision)
        made.append(_replace(graph, region, text, size_nodes, replaced))
    if made:
        _sort(graph)
        made = _in_graph_order(graph, made)
        _write_manifests(made, entries)
        _chain(made)
        _sort(graph)
    decisions.record(nodes, time.perf_counter() - begin, programs, left_decisions)


def _left_decision(
    node: fx.Node, reason: str, is_unsupported: bool = False
) -> decisions.LeftDecision:
    arguments = regions.aten_ops.arguments_of(node)
    return decisions.LeftDecision(
        node.name,
        node.target._schema.name.split("::")[1],
        str(arguments.get("group_name", "")),
        reason,
        is_unsupported,
    )


def _decision(region: Region) -> decisions.ProgramDecision:
    return decisions.ProgramDecision(
        region.program.to_text(),
        region.group,
        [node.name for node in region.collectives],
        len(region.members),
        manifest.rows_of(region),
        list(dict.fromkeys(region.stops)),
    )


def _why_not(region: Region, text: str, size_nodes: sizes.SizeNodes) -> str:
    reason = manifest.why_no_argument("the name of its group", region.group)
    reason = reason or manifest.why_no_argument("its program", text)
    if reason:
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


# Rewriting. The operator stands behind the last member; users of inner values that stand in front
# of it are moved behind it by the sort at the end.


@dataclasses.dataclass
class _Made:
    """A program operator in the graph, and the nodes of its outputs."""

    region: Region
    node: fx.Node
    results: list[fx.Node]

    @property
    def smallest_result(self) -> fx.Node:
        """The result with the fewest rows and columns."""
        types = [self.region.program.types[output.value] for output in self.region.outputs]
        keys = [(type_.rows != ONE, type_.columns) for type_ in types]
        return self.results[keys.index(min(keys))]


def _replace(
    graph: fx.Graph,
    region: Region,
    text: str,
    size_nodes: sizes.SizeNodes,
    replaced: dict[fx.Node, fx.Node],
) -> _Made:
    with graph.inserting_before(region.members[-1].next):
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
            replaced.update(_redirect(graph, region, output, result, size_nodes))
    _erase(graph, region)
    return _Made(region, program, results)


def _empty(
    graph: fx.Graph, region: Region, output: Output, size_nodes: sizes.SizeNodes
) -> fx.Node:
    facts = sizes.facts_of(output.node)
    dims = sizes.tensor_dims(facts, region.program.types[output.value].columns)
    shape = [size_nodes.node(size) for size in dims]
    dtype = torch.uint8 if facts.word == "bool" else facts.value.dtype
    keywords = {"dtype": dtype, "device": facts.value.device, "pin_memory": False}
    made = graph.call_function(aten.empty.memory_format, (shape,), keywords)
    value = facts.value if dims == facts.dims else facts.value.new_empty(_values_of(shape))
    made.meta["val"] = value if dtype == value.dtype else value.to(dtype)
    return made


def _values_of(shape: list[Any]) -> list[Any]:
    return [size.meta["val"] if isinstance(size, fx.Node) else size for size in shape]


def _as_rows(
    graph: fx.Graph, node: fx.Node, type_: ValueType, size_nodes: sizes.SizeNodes
) -> fx.Node:
    """The operand in sizes that the operator takes: its last one is the columns."""
    facts = sizes.facts_of(node)
    dims = sizes.tensor_dims(facts, type_.columns)
    return node if dims == facts.dims else _reshaped(graph, node, dims, size_nodes)


def _with_sizes(
    graph: fx.Graph, output: Output, result: fx.Node, size_nodes: sizes.SizeNodes
) -> fx.Node:
    """The result in the sizes of the value that it stands for."""
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


def _with_dtype(graph: fx.Graph, output: Output, result: fx.Node) -> fx.Node:
    """The result as the bool that it stands for, or as it is."""
    value = output.node.meta["val"]
    if value.dtype != torch.bool:
        return result
    convert = torch.ops.prims.convert_element_type.default
    made = graph.call_function(convert, (result, torch.bool))
    made.meta["val"] = value
    return made


def _redirect(
    graph: fx.Graph,
    region: Region,
    output: Output,
    result: fx.Node,
    size_nodes: sizes.SizeNodes,
) -> dict[fx.Node, fx.Node]:
    """Lets all users of a value read the result. Views of it stay, and read it as well.

    Returns the new node of each node that has one.
    """
    dims = sizes.facts_of(output.node).dims
    replaced = {}
    for node, value in region.values.items():
        if value != output.value or node in region.narrow:
            continue
        facts = sizes.facts_of(node)
        if facts.dims == dims:
            node.replace_all_uses_with(result)
            replaced[node] = result
        elif node not in region.views:
            shape = [size_nodes.node(size) for size in facts.dims]
            viewed = graph.call_function(aten.reshape.default, (result, shape))
            viewed.meta["val"] = facts.value
            node.replace_all_uses_with(viewed)
            replaced[node] = viewed
    return replaced


def _erase(graph: fx.Graph, region: Region) -> None:
    """Erases members, and what only they read, when nothing reads them any more."""
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


def _in_graph_order(graph: fx.Graph, made: list[_Made]) -> list[_Made]:
    by_node = {each.node: each for each in made}
    return [by_node[node] for node in graph.nodes if node in by_node]


def _write_manifests(made: list[_Made], entries: dict[str, dict[str, list[int]]]) -> None:
    """Puts the manifest of each group into its first operator. `made` is in graph order."""
    pending = dict(entries)
    for each in made:
        programs = pending.pop(each.region.group, None)
        if programs is not None:
            text = manifest.manifest_text(programs)
            each.node.kwargs = {**each.node.kwargs, "manifest": text}


def _chain(made: list[_Made]) -> None:
    """Lets each program depend on the one before it on its device. `made` is in graph order.

    Inductor orders operators that do not depend on each other by sizes at the time of tracing,
    which are not equal on all ranks, and ranks with different orders cannot go on, also where the
    programs are of two groups. So a program has a result of the one before it as a last input
    more than it declares, unless it reads one already.
    """
    before: dict[Any, _Made] = {}
    for each in made:
        last = before.get(each.region.device)
        before[each.region.device] = each
        if last is None or not set(last.results).isdisjoint(each.node.kwargs["inputs"]):
            continue
        inputs = [*each.node.kwargs["inputs"], last.smallest_result]
        each.node.kwargs = {**each.node.kwargs, "inputs": inputs}


def _sort(graph: fx.Graph) -> None:
    """Puts every node behind its operands; keeps the order where it can."""
    seen: set[fx.Node] = set()
    for node in graph.nodes:
        if any(each not in seen for each in node.all_input_nodes):
            break
        seen.add(node)
    else:
        return
    sort = compat.sort_graph()
    if sort is None:
        raise Refusal("this torch has no function that sorts a graph")
    sort(graph)
