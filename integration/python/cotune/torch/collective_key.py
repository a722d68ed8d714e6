"""The key of a collective: the facts about a call that are equal on all ranks, whatever graph contains it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib

from cotune.torch.program_text import ALL, SHARE, Node, Program, ValueType, in_one_line

# Collectives that end on no rank before all ranks have begun them. PyTorch may let the root of a broadcast end earlier.
_SYNCHRONISING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})


@dataclasses.dataclass(frozen=True)
class Key:
    """A collective without the operations around it. Calls of ranks that match have equal keys.

    `text` is the program of the collective by itself, whose rows are its elements, and `rows` their number.
    """

    kind: str
    text: str
    rows: int

    @property
    def waits_for_all(self) -> bool:
        """True if PyTorch's collective ends on no rank before all ranks have begun it."""
        return self.kind in _SYNCHRONISING and self.rows > 0

    @property
    def name(self) -> str:
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:16]
        return f"{self.kind}/{digest}/{self.rows}"


def key_of(node: Node, dtype: str, elements: int, world_size: int) -> Key:
    """Returns the key of a collective whose operand has `elements` elements on this rank."""
    gathers = node.op == "all_gather"
    return Key(node.op, _text_of(node, dtype), elements * (world_size if gathers else 1))


@functools.lru_cache(maxsize=1024)
def _text_of(node: Node, dtype: str) -> str:
    """The program of a collective by itself."""
    alone = Program()
    value = alone.add_input(ValueType(dtype, SHARE if node.op == "all_gather" else ALL, 1))
    value = alone.add(dataclasses.replace(node, operands=(value,)))
    alone.outputs = [(value, -1)]
    return in_one_line(alone.to_text())
