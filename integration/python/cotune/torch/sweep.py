"""One sweep over a graph that grows its regions.

A region grows forward from a collective: a node joins if aten_ops.py can translate it, and if each of its operands is a member or
does not depend on the region. Casts and scalings before a collective join if no other node uses them.
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
from cotune.torch.dependencies import Dependencies
from cotune.torch.emission import emit
from cotune.torch.program_text import ONE, Node, Refusal
from cotune.torch.region import Region
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
    """A collective that is left alone. `is_unsupported`: programs lack its dtype, layout or kind, whatever the settings are."""

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
        self._is_branch = compat.is_branch_or_loop(graph)
        self._wait = compat.collective_overload("wait_tensor")
        self._kinds = {
            compat.collective_overload(name): kind for name, kind in _COLLECTIVES.items()
        } | declarations.kinds()
        self._namespace = "_c10d_functional"
        self.regions: list[Region] = []
        self.left: list[Left] = []
        self._dependencies = Dependencies(composites)

    def run(self) -> None:
        """Fills `regions` and `left`."""
        for node in self._nodes:
            self._dependencies.note(node)
            if node.op == "call_function":
                self._visit(node)

    @property
    def starts(self) -> dict[fx.Node, int]:
        """The place of each collective in the order of starts."""
        return self._dependencies.starts

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
            region = self._dependencies.region_of(node.args[0])
            if region is not None:
                self._take(region, node, region.values[node.args[0]])
                region.views.add(node)
            return
        if getattr(target, "namespace", "") == self._namespace:
            name = target._schema.name.split("::")[1]
            self.left.append(Left(node, f"programs have no {name}", is_unsupported=True))
            return
        # The last node of a composite joins for all of its nodes.
        if node not in self._composites.absorbed:
            self._grow(node)

    def _take(self, region: Region, node: fx.Node, value: int) -> None:
        self._dependencies.take(region, node)
        region.join(node, value)

    def _grow(self, node: fx.Node) -> None:
        """Adds the node to the last of the regions of its operands that it can join, or to none."""
        candidates: dict[int, Region] = {}
        for each in self._composites.operands_of(node):
            region = self._dependencies.region_of(each)
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
        """Adds a node to a region. Raises Refusal if it cannot join; then nothing has changed."""
        if region.is_alone:
            raise Refusal(f"nothing is fused with it: {region.why_alone}")
        if not self._settings.epilogues and node not in region.collectives:
            raise Refusal("epilogues are not fused by the settings")
        self._check_legal(region, node)
        mark = region.mark()
        try:
            self._take(region, node, emit(region, node, self._composites))
        except Refusal:
            region.rollback(mark)
            raise

    def _check_legal(self, region: Region, node: fx.Node) -> None:
        if node in self._forbidden:
            raise Refusal("its value cannot be an output")
        self._dependencies.check_order(region, node)

    # Collectives.

    def _start(self, node: fx.Node, kind: str) -> Left | None:
        """Starts a region with a collective, or adds it to one. Returns None, or the reason for which it is left alone."""
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
        """Returns why the place in the graph, the group or the settings leave a collective alone; or ""."""
        if self._is_branch:
            return "it is in a branch or a loop (torch.cond, torch.while_loop), and Inductor cannot compile a program there"
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
        """Returns why a declared operator may not be at the place of the user's call; "" if it is."""
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
            len(self.regions), group, world_size, self._dependencies.epochs[node], facts.value.device
        )
        region.first = region.last = self.starts[node]
        return region

    def _open_alone(
        self, node: fx.Node, kind: str, made: Node, group: str, world_size: int
    ) -> None:
        """Makes a program of the collective alone, whatever its sizes are."""
        region = self._new_region(node, group, world_size)
        region.is_alone = True
        type_ = declare_elements(region, node, kind)
        self._dependencies.open_region()
        value = region.input_value(declarations.operand_of(node), type_)
        self._take(region, node, region.program.add(dataclasses.replace(made, operands=(value,))))
        region.collectives.append(node)
        self.regions.append(region)

    def _join_or_open(
        self, node: fx.Node, kind: str, made: Node, group: str, world_size: int
    ) -> None:
        source = declarations.operand_of(node)
        region = self._dependencies.region_of(source)
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
        """Opens a region with a prologue `chain` and a collective.

        Returns None, or the place in the chain of the node that cannot join. Raises Refusal if the collective cannot.
        """
        type_ = declare_rows(region, node, kind)
        self._dependencies.open_region()
        for place, each in enumerate(chain):
            try:
                self._check_legal(region, each)
                value = emit(region, each, self._composites)
                self._take(region, each, value)
            except Refusal:
                self._dependencies.drop_region(region)
                return place
        try:
            source = declarations.operand_of(node)
            if source in region.values:
                value = region.values[source]
                have = region.program.types[value]
                if (have.rows, have.columns) != (type_.rows, type_.columns):
                    self._dependencies.drop_region(region)
                    return len(chain) - 1
            else:
                value = region.input_value(source, type_)
            result = region.program.add(dataclasses.replace(made, operands=(value,)))
            self._take(region, node, result)
        except Refusal:
            self._dependencies.drop_region(region)
            raise
        region.collectives.append(node)
        self.regions.append(region)
        return None

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
                # A program runs its collectives in the order of their depth.
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
        """Returns the chain of cheap nodes before a collective, in graph order. Only the next node uses each of them."""
        chain: list[fx.Node] = []
        while True:
            rule = aten_ops.RULES.get(source.target)
            if rule is None or not rule.is_cheap or len(source.users) != 1:
                break
            if self._dependencies.region_of(source) is not None or source not in self._dependencies.epochs:
                break
            facts = sizes.facts_of(source)
            same = [each for each in source.all_input_nodes if _has_elements_of(each, facts)]
            if len(same) != 1 or (rule.is_view and source.args[0] is not same[0]):
                break
            chain.append(source)
            source = same[0]
        # A view whose base is not computed by the chain stays outside: its base is the operand.
        while chain and aten_ops.RULES[chain[-1].target].is_view:
            chain.pop()
        return list(reversed(chain))


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


def _target_name(node: fx.Node) -> str:
    return str(node.target) if hasattr(node.target, "_schema") else node.name


def _has_elements_of(node: fx.Node, facts: sizes.TensorFacts | None) -> bool:
    """Returns true if a tensor has as many elements as another."""
    own = sizes.facts_of(node)
    if own is None or facts is None:
        return False
    return own.dims == facts.dims or sizes.product(own.dims) == sizes.product(facts.dims)
