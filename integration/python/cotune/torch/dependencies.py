"""The dependencies between the nodes of a graph and the regions that grow in it.

They decide whether a node may join a region: a region becomes one operator, which runs at one place of the graph.
"""

from __future__ import annotations

from torch import fx

from cotune.torch.collectives import is_start
from cotune.torch.composites import Composites
from cotune.torch.program_text import Refusal
from cotune.torch.region import Region


class Dependencies:
    """The regions, writes to memory and collectives that each node depends on which a sweep over the graph has passed.

    Attributes:
      starts: the place in the order of starts of each collective, and of each node with collectives in its bodies.
      epochs: the number of nodes up to each node that write to memory.
    """

    def __init__(self, composites: Composites):
        self._composites = composites
        self._of: dict[fx.Node, Region] = {}
        self._masks: dict[fx.Node, int] = {}  # bit mask of the regions that a node depends on by its operands
        self._reach: list[int] = []  # for each region, bit mask of the other regions that its operands depend on
        self._latest: dict[fx.Node, int] = {}  # the last collective that a node depends on, or -1
        self._epoch = 0
        self.starts: dict[fx.Node, int] = {}
        self.epochs: dict[fx.Node, int] = {}

    def note(self, node: fx.Node) -> None:
        """Adds the next node of the graph."""
        self._masks[node] = self._mask_of(node)
        latest = [self._latest[each] for each in node.all_input_nodes]
        if is_start(node):
            self.starts[node] = len(self.starts)
            latest.append(self.starts[node])
        self._latest[node] = max(latest, default=-1)
        if node.op == "call_function":
            self._epoch += _is_barrier(node)
            self.epochs[node] = self._epoch

    def region_of(self, node: fx.Node) -> Region | None:
        """The region of which a node is a member; None if it is outside of all."""
        return self._of.get(node)

    def open_region(self) -> None:
        """Adds a region without members. Its index is the number of regions before it."""
        self._reach.append(0)

    def drop_region(self, region: Region) -> None:
        """Forgets the region that was opened last."""
        for member in region.members:
            del self._of[member]
        self._reach.pop()

    def take(self, region: Region, node: fx.Node) -> None:
        """Makes a node a member of a region."""
        self._reach[region.index] |= self._outer_mask(node, region) & ~(1 << region.index)
        self._of[node] = region

    def check_order(self, region: Region, node: fx.Node) -> None:
        """Raises Refusal if a node cannot run where its region does."""
        if self.epochs[node] != region.epoch:
            raise Refusal("something that writes memory stands in between")
        if self._outer_mask(node, region) >> region.index & 1:
            raise Refusal("an operand depends on the region")
        if any(self._latest_of(each, region) > region.last for each in self._composites.operands_of(node)):
            raise Refusal("an operand depends on a collective that starts later")

    def _latest_of(self, operand: fx.Node, region: Region) -> int:
        """Returns the place of the last collective that has to start before an operand of the region is computed, or -1."""
        of = self._of.get(operand)
        if of is region:
            return -1
        return self._latest[operand] if of is None else of.last

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


def _is_barrier(node: fx.Node) -> bool:
    """Returns true if the node writes memory that others read."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable
