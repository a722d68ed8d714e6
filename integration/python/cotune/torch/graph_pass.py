"""The pass over Inductor's post-grad graphs that puts programs in for collectives."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import itertools
import operator
import pathlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from cotune.torch import (
    compat,
    custom_choices,
    custom_operators,
    decisions,
    declarations,
    forced_operators,
    given_back,
    groups,
    manifest,
    origins,
    process_groups,
    regions,
    sizes,
    whole_graph,
)
from cotune.torch.collectives import GroupFacts
from cotune.torch.program_text import ONE, Refusal, ValueType, in_one_line
from cotune.torch.region import Output, Region
from cotune.torch.settings import Settings

aten = torch.ops.aten

# Files whose change makes other graphs; the caches of compiled graphs key on them. Modules that only warn, as forced_operators,
# or act when a graph runs, as compile_budget, are not among them.
_FILES = (
    "aten_ops",
    "collectives",
    "compat",
    "composites",
    "custom_choices",
    "declarations",
    "given_back",
    "graph_pass",
    "manifest",
    "process_groups",
    "program_text",
    "region",
    "regions",
    "settings",
    "settings_file",
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
        decisions.note_lookup(compat.compile_id(), is_compiled=True)
        for each in _passes(self.before):
            each(graph)
        rewrite(graph, self.settings)

    def uuid(self) -> Any:
        """What compiled graphs depend on: code, settings, declared operators, those with functions, collectives that were given back, process groups,
        probed values, the uuid of the pass before.

        None, which turns the caches off, if the pass before has none, or the process groups are not known.
        """
        # A graph from the cache runs without the pass.
        groups.drop_stale()
        decisions.note_lookup(compat.compile_id(), is_compiled=False)
        known = process_groups.known_groups()
        if known is None:
            return None
        before = []
        for each in _passes(self.before):
            found = each.uuid() if hasattr(each, "uuid") else None
            if found is None:
                return None
            before.append(found)
        facts = (bool(known), tuple(sorted((name, *found) for name, found in known.items())))
        own = code_digest(), repr(self.settings), declarations.key(), custom_choices.key(), given_back.key()
        # A rank that takes the graph of another one from the cache could not compare it with what it is without programs.
        rank = process_groups.global_rank() if groups.races_plain() else -1
        return ("cotune", *own, rank, facts, compat.probed_values(), tuple(before))

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
        known = process_groups.known_groups()
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
    undeclared = custom_operators.in_graph(graph)
    custom_calls = custom_operators.calls_in(graph)
    calls_custom = not all(map(_is_declared, custom_calls))
    original = _copy_to_compare(graph)
    found = regions.find_regions(
        graph, settings, group_facts, lambda region: _why_not(graph, region)
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
    """Replaces the regions that were found in a graph by programs. Keeps `whole` until the ranks meet for one of them."""
    entries: dict[str, list[manifest.Entry]] = {}
    made: list[_Made] = []
    programs = []
    replaced: dict[fx.Node, fx.Node] = {}
    starts = sorted(found.starts, key=found.starts.__getitem__)
    orders_declared = len(starts) >= 2 and any(map(_is_declared, starts))
    for region in found.regions:
        # An operand may have been a member of a region that is replaced already.
        region.input_nodes = [replaced.get(node, node) for node in region.input_nodes]
        decision = _decision(region, settings)
        text = in_one_line(decision.text)
        entry = manifest.Entry(text, tuple(decision.rows), manifest.has_any_rows(region), manifest.has_chosen_rows(region, settings))
        entries.setdefault(region.group, []).append(entry)
        programs.append(decision)
        made.append(_replace(graph, region, text, replaced))
    made.sort(key=lambda each: each.region.first)
    _write_manifests(made, entries, whole)
    # Inductor orders its own collectives by itself, and not declared operators.
    if made or orders_declared:
        _chain(graph, made, found)
        _sort(graph)
    return programs


# The comparison of the whole graph with and without its programs (whole_graph.py).


def _copy_to_compare(graph: fx.Graph) -> fx.Graph | None:
    """A copy of a graph with collectives; None if nothing is compared."""
    if not groups.races_plain() or graph.owning_module is None or not any(map(_is_collective, graph.nodes)):
        return None
    return whole_graph.copied(graph)


def _is_collective(node: fx.Node) -> bool:
    return getattr(node.target, "namespace", "") == "_c10d_functional" or _is_declared(node)


def _to_compare(
    root: Any, original: fx.Graph, settings: Settings, group_facts: Callable[[str], GroupFacts], found: regions.Found
) -> whole_graph.WholeGraph:
    """The graph without programs, for the meeting of its process group."""
    names = {region.group for region in found.regions}
    names |= {str(declarations.arguments_of(each.node).get("group_name", "")) for each in found.left}

    def put(graph: fx.Graph) -> None:
        with sizes.remembering():
            again = regions.find_regions(graph, settings, group_facts, lambda region: _why_not(graph, region))
            _put_programs(graph, settings, again)

    return whole_graph.WholeGraph.of(root, original, whole_graph.why_not(original, names), put)


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


def _why_not(graph: fx.Graph, region: Region) -> str:
    """Why a region cannot be an operator; "" if it can."""
    size_nodes = sizes.SizeNodes(graph, region.input_nodes)
    text = in_one_line(region.program.to_text())
    reason = manifest.why_no_argument("the name of its group", region.group)
    reason = reason or manifest.why_no_argument("its program", text)
    if reason or region.is_alone:
        # The sizes of a collective by itself come from its operand.
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


# Rewriting. The operator stands after the last member that computes, and programs are chained in the
# order in which their collectives start. The sort at the end moves what has to come later.


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
    replaced: dict[fx.Node, fx.Node],
) -> _Made:
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
            replaced.update(_redirect(graph, region, output, result, size_nodes))
    _erase(graph, region)
    return _Made(region, program, results)


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
    """The sizes of a collective's result, from those of its operand."""
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


def _has_layout_of_its_own(output: Output) -> bool:
    """True for the result of a declared operator that is not row-major, as its operand may not be on this rank."""
    facts = sizes.facts_of(output.node)
    return declarations.of(output.node.target) is not None and not sizes.is_contiguous(facts)


def _with_layout(graph: fx.Graph, output: Output, result: fx.Node) -> fx.Node:
    """The result with the strides of the value that it stands for: readers may depend on them, as as_strided does."""
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


def _redirect(
    graph: fx.Graph,
    region: Region,
    output: Output,
    result: fx.Node,
    size_nodes: sizes.SizeNodes,
) -> dict[fx.Node, fx.Node]:
    """Lets all users of a value read the result. Views of it stay, and read it as well.

    Nodes that are tensors of their own in PyTorch may have one value in the program. A reader that
    may write to one of them gets a copy, if another one of them is read, too.
    Returns the new node of each node that has one.
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
    """The result, or a copy of it, for each owner of memory among nodes that have its value."""
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

    READ = enum.auto()  # by nodes of the graph, or by none
    LEAVES = enum.auto()  # with the outputs of the graph, to which the caller may write
    WRITTEN = enum.auto()  # by a node of the graph


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
    """True if the result of a node shares the memory of an operand."""
    if node.target is operator.getitem:
        return True
    rule = regions.aten_ops.RULES.get(node.target)
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable:
        return False
    return (rule is not None and rule.is_view) or any(each.alias_info for each in schema.returns)


def _only_reads(node: fx.Node) -> bool:
    """True if a node makes results of its own, and writes to no operand."""
    if node.target in compat.functionalizers():
        return True  # it copies the operands that its operator writes to
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.is_mutable


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


def _write_manifests(
    made: list[_Made], entries: dict[str, list[manifest.Entry]], whole: whole_graph.WholeGraph | None
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


def _chain(graph: fx.Graph, made: list[_Made], found: regions.Found) -> None:
    """Lets all collectives run in the order of starts, those that are left alone, too.

    Inductor orders operators that do not depend on each other by sizes at the time of tracing,
    which are not equal on all ranks, and ranks with different orders wait for each other, also if
    the programs are of two groups or devices. It keeps the order that its own collectives
    have when all passes are done: one that a program delays would let the next one start first.
    So a program has a result of the collective before it as a last input more than it declares,
    unless it reads one already, and a collective that is left alone gets a dependency on the one
    before it.
    """
    items: list[tuple[int, _Made | fx.Node]] = [(each.region.first, each) for each in made]
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
        result = last.smallest_result if isinstance(last, _Made) else _first_tensor(graph, last)
        if isinstance(each, fx.Node):
            dependencies[each] = result
            continue
        results = last.results if isinstance(last, _Made) else [result]
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
