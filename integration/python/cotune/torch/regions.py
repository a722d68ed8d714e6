"""Finds the regions of a graph that become programs. Pure: it changes nothing.

A region grows forward from a collective in one sweep over the graph: a node joins when its
operation is in the table and all its operands are members, or do not depend on the region. What
else uses a member's value makes it an output. Casts and scalings in front of a collective join
when nothing else uses them. All decisions depend on the graph only, which may be another one on
each rank (docs/decisions/0025-agreement-by-keys.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import fx

from cotune.torch import aten_ops, compat, declarations, given_back, sizes
from cotune.torch.collective_key import key_of
from cotune.torch.collectives import (
    GroupFacts,
    check_declared,
    check_taken,
    collective_node,
    declare_elements,
    declare_rows,
)
from cotune.torch.composites import Composites
from cotune.torch.program_text import ONE, OUTPUTS_MAX, Node, Operand, Refusal
from cotune.torch.region import Emission, Output, Region, is_wait
from cotune.torch.settings import Settings

_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
}


@dataclasses.dataclass
class Left:
    """A collective that is left alone; `is_unsupported`: programs lack its dtype, layout or kind."""

    node: fx.Node
    reason: str
    is_unsupported: bool = False


class Sweep:
    """One pass over a graph that grows all its regions."""

    def __init__(
        self,
        graph: fx.Graph,
        settings: Settings,
        group_facts: Callable[[str], GroupFacts],
        composites: Composites,
        forbidden: frozenset[fx.Node] = frozenset(),
        alone: frozenset[fx.Node] = frozenset(),
    ):
        self._nodes = list(graph.nodes)
        self._composites = composites
        self._settings = settings
        self._group_facts = group_facts
        self._forbidden = forbidden
        self._alone = alone
        self._overlap = [] if settings.overlap else compat.overlap_passes()
        self._is_reordered = compat.reorders_for_locality()
        self._wait = compat.collective_overload("wait_tensor")
        self._kinds = {
            compat.collective_overload(name): kind for name, kind in _COLLECTIVES.items()
        } | declarations.kinds()
        self._namespace = "_c10d_functional"
        self._functionalizers = compat.functionalizers()
        self.regions: list[Region] = []
        self.left: list[Left] = []
        self._of: dict[fx.Node, Region] = {}
        self._masks: dict[fx.Node, int] = {}  # regions that a node depends on, itself outside
        self._reach: list[int] = []  # regions that the region's operands depend on
        self._epochs: dict[fx.Node, int] = {}
        self.starts: dict[fx.Node, int] = {}  # collectives by their place in the order of starts
        self._latest: dict[fx.Node, int] = {}  # the last collective that a node depends on, or -1

    def run(self) -> None:
        """Fills `regions` and `left`."""
        epoch = 0
        for node in self._nodes:
            self._masks[node] = self._mask_of(node)
            latest = [self._latest[each] for each in node.all_input_nodes]
            if self._is_start(node):
                self.starts[node] = len(self.starts)
                latest.append(self.starts[node])
            self._latest[node] = max(latest, default=-1)
            if node.op == "call_function":
                epoch += _is_barrier(node)
                self._epochs[node] = epoch
                self._visit(node)
        for region in self.regions:
            _find_outputs(region, self._composites)

    def _is_start(self, node: fx.Node) -> bool:
        """Also for custom operators that are declared, and for collectives that a model calls as operators of cotune."""
        if node.op != "call_function":
            return False
        if declarations.wrapped_in(node) is not None:
            return True
        target = node.args[0] if node.target in self._functionalizers else node.target
        namespace = getattr(target, "namespace", "")
        return target in self._kinds or namespace == "cotune" or (namespace == self._namespace and target is not self._wait)

    # Dependencies.

    def _mask_of(self, node: fx.Node) -> int:
        mask = 0
        for each in node.all_input_nodes:
            region = self._of.get(each)
            mask |= self._masks[each] if region is None else 1 << region.index
        return mask

    def _outer_mask(self, node: fx.Node, region: Region) -> int:
        """The regions that the operands outside of `region` depend on, directly or not."""
        mask = 0
        for each in self._composites.operands_of(node):
            of = self._of.get(each)
            if of is not region:
                mask |= self._masks[each] if of is None else 1 << of.index
        return self._closure(mask)

    def _closure(self, mask: int) -> int:
        pending, seen = mask, 0
        while pending:
            lowest = pending & -pending
            seen |= lowest
            pending = (pending | self._reach[lowest.bit_length() - 1]) & ~seen
        return seen

    # Visits.

    def _visit(self, node: fx.Node) -> None:
        target = node.target
        if target in self._kinds:
            left = self._start(node, self._kinds[target])
            if left is not None:
                self.left.append(left)
            return
        if declarations.wrapped_in(node) is not None:
            self.left.append(Left(node, declarations.EFFECT_HINT))
            return
        if target is self._wait:
            region = self._of.get(node.args[0])
            if region is not None:
                self._take(region, node, region.values[node.args[0]])
                region.views.add(node)
            return
        if getattr(target, "namespace", "") == self._namespace:
            name = target._schema.name.split("::")[1]
            self.left.append(Left(node, f"programs have no {name}", is_unsupported=True))
            return
        # The last node of a composite joins for all of it.
        if node not in self._composites.absorbed:
            self._grow(node)

    def _take(self, region: Region, node: fx.Node, value: int) -> None:
        self._reach[region.index] |= self._outer_mask(node, region) & ~(1 << region.index)
        region.join(node, value)
        self._of[node] = region

    def _grow(self, node: fx.Node) -> None:
        """Adds the node to the last region that it can join."""
        candidates: dict[int, Region] = {}
        for each in self._composites.operands_of(node):
            region = self._of.get(each)
            if region is not None:
                candidates[region.index] = region
        for index in sorted(candidates, reverse=True):
            region = candidates[index]
            try:
                self._add(region, node)
                return
            except Refusal as refusal:
                region.stops.append((node.name, f"{_target_name(node)}: {refusal}"))

    def _add(self, region: Region, node: fx.Node) -> None:
        """Adds a node to a region. Raises Refusal, and then nothing has changed."""
        if region.is_alone:
            raise Refusal(f"nothing is fused with it: {region.why_alone}")
        if not self._settings.epilogues and node not in region.collectives:
            raise Refusal("epilogues are not fused by the settings")
        self._check_legal(region, node)
        mark = region.mark()
        try:
            self._take(region, node, self._emit(region, node))
        except Refusal:
            region.rollback(mark)
            raise

    def _check_legal(self, region: Region, node: fx.Node) -> None:
        if node in self._forbidden:
            raise Refusal("its value cannot be an output")
        if self._epochs[node] != region.epoch:
            raise Refusal("something that writes memory stands in between")
        if self._outer_mask(node, region) >> region.index & 1:
            raise Refusal("an operand depends on the region")
        if any(self._latest_of(each, region) > region.last for each in self._composites.operands_of(node)):
            raise Refusal("an operand depends on a collective that starts later")

    def _latest_of(self, operand: fx.Node, region: Region) -> int:
        """The last collective that runs before an operand of the region is there."""
        of = self._of.get(operand)
        if of is region:
            return -1
        return self._latest[operand] if of is None else of.last

    def _emit(self, region: Region, node: fx.Node) -> int:
        facts = sizes.facts_of(node)
        if facts is None:
            raise Refusal("its value is no tensor")
        rule, composite = aten_ops.RULES.get(node.target), self._composites.of.get(node)
        if node.target is aten_ops.EXPAND:
            return self._emit_expand(region, node, facts)
        if rule is None and composite is None:
            raise Refusal("programs have no such operation")
        if not sizes.is_contiguous(facts):
            raise Refusal("its value is not contiguous")
        if composite is None and rule.is_view:
            return self._emit_view(region, node)
        is_rowwise = (composite or rule).is_rowwise
        operands = self._composites.operands_of(node)
        emission = Emission(region, operands, facts, is_rowwise)
        if composite is not None:
            value = composite.emit(emission)
        else:
            value = rule.emit(emission, aten_ops.arguments_of(node))
        if is_rowwise and sizes.facts_of(operands[0]).lead == facts.dims:
            emission.drops_last = True
        self._check_result(region, node, facts, emission, value)
        return value

    def _check_result(
        self, region: Region, node: fx.Node, facts: Any, emission: Emission, value: Operand
    ) -> None:
        if not isinstance(value, int):
            raise Refusal("it computes with numbers only")
        type_ = region.program.types[value]
        if type_.dtype != ("u8" if facts.word == "bool" else facts.word):
            raise Refusal(f"aten gives {facts.word}")
        if emission.drops_last:
            return
        rows, columns = emission.result_type
        if (type_.rows, type_.columns) == (rows, columns):
            return
        if not emission.reads_narrow:
            raise Refusal("its value has another shape than its operands")
        region.narrow.add(node)

    def _emit_view(self, region: Region, node: fx.Node) -> int:
        source = node.args[0]
        if source not in region.values or source in region.narrow:
            raise Refusal("a repeated value is viewed")
        region.views.add(node)
        return region.values[source]

    def _emit_expand(self, region: Region, node: fx.Node, facts: sizes.TensorFacts) -> int:
        source = node.args[0]
        if source not in region.values or source in region.narrow:
            raise Refusal("a repeated value is viewed")
        before = sizes.facts_of(source)
        if len(before.dims) != len(facts.dims) or before.lead != facts.lead:
            raise Refusal("it repeats rows")
        value = region.values[source]
        type_ = region.program.types[value]
        rows, _ = region.type_of(before)
        if (rows, before.columns) != (type_.rows, type_.columns):
            raise Refusal("a value is read in another layout")
        region.views.add(node)
        region.narrow.add(node)
        return value

    # Collectives.

    def _start(self, node: fx.Node, kind: str) -> Left | None:
        """Starts a region with a collective, or adds it to one; None, or why it is left alone."""
        arguments = declarations.arguments_of(node)
        group = arguments["group_name"]
        reason = self._why_not_tried(group) or self._why_out_of_order(node)
        if reason:
            return Left(node, reason)
        world_size = self._group_facts(group).world_size
        try:
            made = collective_node(kind, arguments, world_size, self._settings)
            check_taken(node, kind)
            check_declared(node, kind, world_size)
            _check_not_given_back(node, made, group, world_size)
        except Refusal as refusal:
            return Left(node, str(refusal), is_unsupported=refusal.is_unsupported)
        try:
            if node in self._alone:
                raise Refusal("a larger program cannot be an operator of the graph")
            self._join_or_open(node, kind, made, group, world_size)
        except Refusal as refusal:
            self._open_alone(node, kind, made, group, world_size)
            self.regions[-1].why_alone = str(refusal)
        return None

    def _why_not_tried(self, group: Any) -> str:
        """Why the group or the settings leave a collective alone."""
        if isinstance(group, fx.Node):
            return "its group is a value of the graph"
        if not isinstance(group, str):
            return "its group has no name"
        reason = self._group_facts(group).reason
        if not reason and self._overlap:
            reason = (
                f"it may run beside other work: {', '.join(self._overlap)} is on; overlap=True takes it, and it does not overlap "
                "any more"
            )
        return reason

    def _why_out_of_order(self, node: fx.Node) -> str:
        """Why a declared operator may not be in the place in which the user calls it; "" if it is there."""
        if not self._is_reordered or declarations.of(node.target) is None:
            return ""
        return (
            f"{compat.locality_option()} of Inductor is on and may have moved it, so that ranks could call declared operators in "
            "different orders; call cotune.torch.declare_collective before cotune.torch.options(), and leave the option off"
        )

    def _new_region(self, node: fx.Node, group: str, world_size: int) -> Region:
        facts = sizes.facts_of(declarations.operand_of(node))
        if facts is None:
            raise Refusal("its operand is no tensor")
        region = Region(
            len(self.regions), group, world_size, self._epochs[node], facts.value.device
        )
        region.first = region.last = self.starts[node]
        return region

    def _open_alone(
        self, node: fx.Node, kind: str, made: Node, group: str, world_size: int
    ) -> None:
        """Makes a program of the collective and nothing else, whatever its sizes are."""
        region = self._new_region(node, group, world_size)
        region.is_alone = True
        type_ = declare_elements(region, node, kind)
        self._reach.append(0)
        value = region.input_value(declarations.operand_of(node), type_)
        self._take(region, node, region.program.add(dataclasses.replace(made, operands=(value,))))
        region.collectives.append(node)
        self.regions.append(region)

    def _join_or_open(
        self, node: fx.Node, kind: str, made: Node, group: str, world_size: int
    ) -> None:
        source = declarations.operand_of(node)
        region = self._of.get(source)
        if region is not None and region.group == group and self._settings.epilogues:
            try:
                self._join_collective(region, node, kind, made)
                return
            except Refusal as refusal:
                region.stops.append((node.name, f"{kind}: {refusal}"))
        chain = self._prologue(source) if self._settings.prologues else []
        while True:
            region = self._new_region(node, group, world_size)
            failed = self._open(region, node, kind, made, chain)
            if failed is None:
                return
            chain = chain[failed + 1 :]

    def _open(
        self, region: Region, node: fx.Node, kind: str, made: Node, chain: list[fx.Node]
    ) -> int | None:
        """Makes the region. Returns the place of the chain's node that failed, or None."""
        type_ = declare_rows(region, node, kind)
        self._reach.append(0)
        for place, each in enumerate(chain):
            try:
                self._check_legal(region, each)
                value = self._emit(region, each)
                self._take(region, each, value)
            except Refusal:
                self._undo(region)
                return place
        try:
            source = declarations.operand_of(node)
            if source in region.values:
                value = region.values[source]
                have = region.program.types[value]
                if (have.rows, have.columns) != (type_.rows, type_.columns):
                    self._undo(region)
                    return len(chain) - 1
            else:
                value = region.input_value(source, type_)
            result = region.program.add(dataclasses.replace(made, operands=(value,)))
            self._take(region, node, result)
        except Refusal:
            self._undo(region)
            raise
        region.collectives.append(node)
        self.regions.append(region)
        return None

    def _undo(self, region: Region) -> None:
        """Forgets a region that was not opened."""
        for member in region.members:
            del self._of[member]
        self._reach.pop()

    def _join_collective(self, region: Region, node: fx.Node, kind: str, made: Node) -> None:
        if region.is_alone:
            raise Refusal(f"nothing is fused with it: {region.why_alone}")
        if region.last != self.starts[node] - 1:
            raise Refusal("another collective starts in between")
        self._check_legal(region, node)
        source = declarations.operand_of(node)
        facts = sizes.facts_of(node)
        if source in region.narrow:
            raise Refusal("its operand is repeated")
        if declarations.of(node.target) is not None and not sizes.is_contiguous(facts):
            raise Refusal("its result is not contiguous")
        mark = region.mark()
        try:
            value = region.values[source]
            have = region.program.types[value]
            if (have.rows, have.columns) != region.type_of(sizes.facts_of(source)):
                raise Refusal("its operand has another layout")
            result = region.program.add(dataclasses.replace(made, operands=(value,)))
            if region.program.depth(result) < max(
                region.program.depth(region.values[each]) for each in region.collectives
            ):
                # A program runs its collectives by their depth.
                raise Refusal("it would run before a collective that starts earlier")
            kind_of_result = region.program.types[result].rows
            if kind_of_result != ONE:
                region.set_rows(facts.lead, kind_of_result, sizes.product(facts.lead))
            self._take(region, node, result)
        except Refusal:
            region.rollback(mark)
            raise
        region.collectives.append(node)
        region.last = self.starts[node]

    def _prologue(self, source: fx.Node) -> list[fx.Node]:
        """The cheap nodes in front of a collective, each used by the next one only; first first."""
        chain: list[fx.Node] = []
        while True:
            rule = aten_ops.RULES.get(source.target)
            if rule is None or not rule.is_cheap or len(source.users) != 1:
                break
            if source in self._of or self._epochs.get(source) is None:
                break
            facts = sizes.facts_of(source)
            same = [each for each in source.all_input_nodes if _has_elements_of(each, facts)]
            if len(same) != 1 or (rule.is_view and source.args[0] is not same[0]):
                break
            chain.append(source)
            source = same[0]
        # A view that nothing is computed behind stays outside: its base is the operand.
        while chain and aten_ops.RULES[chain[-1].target].is_view:
            chain.pop()
        return list(reversed(chain))


@dataclasses.dataclass
class Found:
    """What becomes of the collectives of a graph; `starts` has the place of each in the order of starts."""

    regions: list[Region]
    left: list[Left]
    starts: dict[fx.Node, int]


def find_regions(
    graph: fx.Graph,
    settings: Settings,
    group_facts: Callable[[str], GroupFacts],
    why_not: Callable[[Region], str] = lambda region: "",
) -> Found:
    """The regions of a graph, and the collectives that are left alone with the reason.

    `why_not` returns the reason for which a region cannot be a program. Each of its collectives is one by itself then, and left alone only if
    that cannot be either.
    """
    forbidden: frozenset[fx.Node] = frozenset()
    alone: frozenset[fx.Node] = frozenset()
    composites = Composites(list(graph.nodes))
    while True:
        sweep = Sweep(graph, settings, group_facts, composites, forbidden, alone)
        sweep.run()
        misfits = forbidden | {node for region in sweep.regions for node in _misfits(region)}
        # A collective is no misfit, so that each round forbids a node more, or leaves one alone.
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
    """Fills the outputs of a region: values that a node outside reads, in order of the members.

    A collective whose value nothing reads is an output, too: the other ranks wait for this one.
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
    """Members that cannot stay: the value is repeated outside, nothing uses it, or too many."""
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


def _check_not_given_back(node: fx.Node, made: Node, group: str, world_size: int) -> None:
    """Raises Refusal for a collective that the ranks have given back to PyTorch."""
    facts = sizes.facts_of(declarations.operand_of(node))
    elements = None if facts is None else sizes.product(facts.dims)
    if not isinstance(elements, int):
        return
    dtype = "u8" if facts.word == "bool" else facts.word
    reason = given_back.reason_of(group, facts.value.device, key_of(made, dtype, elements, world_size))
    if reason:
        raise Refusal(reason, is_unsupported=False)


def _is_barrier(node: fx.Node) -> bool:
    """Whether the node writes memory that others read."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _target_name(node: fx.Node) -> str:
    return str(node.target) if hasattr(node.target, "_schema") else node.name


def _has_elements_of(node: fx.Node, facts: sizes.TensorFacts | None) -> bool:
    """Whether a tensor has as many elements as another."""
    own = sizes.facts_of(node)
    if own is None or facts is None:
        return False
    return own.dims == facts.dims or sizes.product(own.dims) == sizes.product(facts.dims)
