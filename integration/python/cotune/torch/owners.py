"""The sizes at which programs with dynamic rows are tuned, and the calls that are counted until then.

A program with dynamic rows owns the kinds of collectives that it was the first to decide: at all numbers of elements, by
what was measured at some sizes of its grid. These sizes are settled. Calls at other sizes are counted by owner and size,
by collective and not by graph, so that all ranks have the same counts at calls that match. A size that has been called
CALLS times is due: its next call is where the ranks meet and tune it (docs/decisions/0030-sizes-as-they-come.md).

The numbers of calls lie in the operator library, which counts most calls without Python. Nothing here communicates. All
ranks do the same in the same order.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable

from cotune.torch.collective_key import Key, key_of
from cotune.torch.manifest import Entry, bytes_of
from cotune.torch.program_text import ALL, ONE, SHARE, Program, parse

# A size that is called less often is not tuned.
CALLS = 4
# The sizes of one tune.
SIZES_MAX = 3
# More elements than any call has.
_ELEMENTS_MAX = 2**62

# Adds calls to the counter of a number, which begins with 0, and returns the sum.
AddCalls = Callable[[int, int], int]


@dataclasses.dataclass(frozen=True)
class AdmittedCalls:
    """Calls of one program that are counted alike, by the elements of all inputs together: from `first_elements` to
    `last_elements`. Each adds one to each of `counters`."""

    first_elements: int
    last_elements: int
    counters: tuple[int, ...]


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Program:
    return parse(text)


def keys_at(text: str, rows: int, ranks: int) -> list[tuple[Key, bool]]:
    """The key of each collective of a program that is run with so many rows, and whether its operand has one row anyway."""
    program = _parsed(text)
    counts = {ONE: 1, ALL: rows, SHARE: rows // ranks}
    found = []
    for node in program.nodes:
        if node.is_collective:
            type_ = program.types[node.operands[0]]
            key = key_of(node, type_.dtype, counts[type_.rows] * type_.columns, ranks)
            found.append((key, type_.rows == ONE))
    return found


def _elements_at(text: str, rows: int, ranks: int) -> tuple[int, int]:
    """The elements of the inputs of a program that have one row, and of its others with so many rows."""
    counts = {ALL: rows, SHARE: rows // ranks}
    inputs = _parsed(text).inputs
    return (
        sum(each.columns for each in inputs if each.rows == ONE),
        sum(counts[each.rows] * each.columns for each in inputs if each.rows != ONE),
    )


class Sizes:
    """The grid of a program with dynamic rows: its row counts, ascending."""

    def __init__(self, entry: Entry, ranks: int):
        self.grid = entry.rows
        first = _parsed(entry.text).first_collective_type()
        self._row_bytes = first.columns * bytes_of(first.dtype)
        # The elements of each kind of collective at the first row count; of two equal kinds the first.
        self._elements: dict[str, int] = {}
        for key, has_one_row in keys_at(entry.text, self.grid[0], ranks):
            if not has_one_row:
                self._elements.setdefault(key.text, key.rows)

    def number_of(self, key: Key) -> int:
        """The place in the grid of the largest row count that is not above that of a call, -1 if all are.

        A collective that the program lacks counts by its bytes.
        """
        if key.text in self._elements:
            have, unit = key.rows * self.grid[0], self._elements[key.text]
        else:
            have, unit = key.rows * bytes_of(_parsed(key.text).inputs[0].dtype), self._row_bytes
        return sum(rows * unit <= have for rows in self.grid) - 1

    def bounds(self, key: Key) -> tuple[int, int]:
        """The fewest and the most elements of this collective that have the same place in the grid as a call."""
        if key.text in self._elements:
            have, unit = self.grid[0], self._elements[key.text]
        else:
            have, unit = bytes_of(_parsed(key.text).inputs[0].dtype), self._row_bytes
        number = self.number_of(key)
        first = -(-self.grid[number] * unit // have) if number > 0 else 1
        next_number = max(0, number) + 1
        if next_number == len(self.grid):
            return first, _ELEMENTS_MAX
        return first, -(-self.grid[next_number] * unit // have) - 1

    def near(self, key: Key) -> list[int]:
        """The places in the grid around a call; none has more than four times its rows, except the first of the grid."""
        number = self.number_of(key)
        return [each for each in range(number - 1, number + 2) if 0 <= each < len(self.grid)]


class Owner:
    """A program with dynamic rows, and its sizes.

    Attributes:
      text: of the program.
      name: short, equal on all ranks.
      meetings: how often the ranks have met for its sizes.
      has_chosen_sizes: the user has chosen its sizes, so that all of them are worth the time.
      is_closed: no size is tuned any more: on CUDA after the first tune, and in a group that does not tune.
    """

    def __init__(self, entry: Entry, ranks: int, add_calls: AddCalls, new_counters: Iterable[int]):
        self.text = entry.text
        self.name = hashlib.sha256(entry.text.encode()).hexdigest()[:16]
        self.meetings = 0
        self.is_closed = False
        self._sizes = Sizes(entry, ranks)
        self.has_chosen_sizes = entry.has_chosen_rows
        self._settled: set[int] = set()  # places in the grid, as all numbers here
        self._by_pytorch: set[int] = set()  # those at which PyTorch's form runs
        # The counters of sizes that were called and are not settled, in the order of their first calls.
        self._counters: dict[int, int] = {}
        self._add_calls = add_calls
        self._new_counters = iter(new_counters)

    def number_of(self, key: Key) -> int:
        """The place in the grid at which calls like this one are tuned."""
        return max(0, self._sizes.number_of(key))

    def is_settled(self, number: int) -> bool:
        return self.is_closed or number in self._settled

    def bounds(self, key: Key) -> tuple[int, int]:
        """The fewest and the most elements of calls of this collective that are counted like this one."""
        has_one_form = self.is_closed and not self._by_pytorch
        return (1, _ELEMENTS_MAX) if has_one_form or not key.waits_for_all else self._sizes.bounds(key)

    def number_of_rows(self, rows: int) -> int:
        """The place of a row count in the grid."""
        return self._sizes.grid.index(rows)

    def give_back(self, number: int) -> None:
        """Lets PyTorch's form run at a size."""
        self._by_pytorch.add(number)

    def is_by_pytorch(self, number: int) -> bool:
        return number in self._by_pytorch

    def counter_of(self, number: int) -> int:
        """The counter of the calls of a size."""
        if number not in self._counters:
            self._counters[number] = next(self._new_counters)
        return self._counters[number]

    def count(self, number: int) -> None:
        self._add_calls(self.counter_of(number), 1)

    def is_due(self, number: int, more_calls: int = 0) -> bool:
        """Returns true if the next call of this size is a meeting; `more_calls` come before it."""
        return not self.is_settled(number) and self._calls(number) + more_calls >= CALLS

    def _calls(self, number: int) -> int:
        return self._add_calls(self._counters[number], 0) if number in self._counters else 0

    def settle_near(self, key: Key) -> Entry:
        """Settles the sizes around a call. Returns what is tuned."""
        return self._settle(self._sizes.near(key))

    def settle_all(self) -> Entry:
        """Settles all sizes of the grid. Returns what is tuned."""
        return self._settle(list(range(len(self._sizes.grid))))

    def settle_called(self, key: Key) -> Entry:
        """Settles the size of a call, and others that were called, most often first. Returns what is tuned."""
        due = self.number_of(key)
        # Sizes with the same count stay in the order of their first calls, which is that of all ranks.
        by_calls = sorted(self._counters, key=self._calls, reverse=True)
        called = [number for number in by_calls if number not in self._settled | {due}]
        return self._settle([due, *called[: SIZES_MAX - 1]])

    def _settle(self, numbers: list[int]) -> Entry:
        self._settled.update(numbers)
        for number in numbers:
            self._counters.pop(number, None)
        rows = tuple(self._sizes.grid[number] for number in sorted(numbers))
        return Entry(self.text, rows, has_any_rows=True)


class Owners:
    """The owners of one process group on one device, and the keys that were decided by themselves."""

    def __init__(self, ranks: int, add_calls: AddCalls):
        self._ranks = ranks
        self._add_calls = add_calls
        self._new_counters = itertools.count()
        self._by_text: dict[str, Owner] = {}  # by the text of the collective's key
        self._exact: set[Key] = set()

    def decide(self, key: Key) -> None:
        """Notes that a key is decided by itself, unless its collective has an owner."""
        if key.text not in self._by_text:
            self._exact.add(key)

    def claim(self, entry: Entry) -> Owner | None:
        """Makes a program the owner of its collectives that have none. Returns None if all of them have one."""
        made = Owner(entry, self._ranks, self._add_calls, self._new_counters)
        for key, has_one_row in keys_at(entry.text, entry.rows[0], self._ranks):
            if has_one_row:
                self.decide(key)
            else:
                self._by_text.setdefault(key.text, made)
        return made if made in self._by_text.values() else None

    def close(self) -> None:
        """Closes all owners, because no size is ever tuned."""
        for owner in self._by_text.values():
            owner.is_closed = True

    def owner_of(self, key: Key) -> Owner | None:
        """The owner that decides a key; None if the key is decided by itself, or not at all."""
        return None if key in self._exact else self._by_text.get(key.text)

    def is_owned_by(self, key: Key, text: str) -> bool:
        """Returns true if a program decides a collective, at which the ranks meet."""
        owner = self.owner_of(key)
        return owner is not None and owner.text == text and key.waits_for_all

    def give_back(self, rows: int, keys: Iterable[Key]) -> None:
        """Lets PyTorch's form of a program that owns these keys run at a row count of its grid."""
        for owner in {self._by_text[each.text].name: self._by_text[each.text] for each in keys}.values():
            owner.give_back(owner.number_of_rows(rows))

    def is_by_pytorch(self, key: Key) -> bool:
        """Returns true if PyTorch's form runs at the size of a call of a key that has an owner."""
        owner = self.owner_of(key)
        return owner is not None and key.rows > 0 and owner.is_by_pytorch(owner.number_of(key))

    def due_owner(self, key: Key) -> Owner | None:
        """The owner for whose sizes the ranks meet before this call; None if they do not."""
        counted = self._counted(key)
        return counted[0] if counted is not None and counted[0].is_due(counted[1]) else None

    def is_due_within(self, keys: list[Key]) -> bool:
        """Returns true if one of these calls, one after the other, is a meeting."""
        before: collections.Counter[tuple[Owner, int]] = collections.Counter()
        for counted in filter(None, map(self._counted, keys)):
            if counted[0].is_due(counted[1], before[counted]):
                return True
            before[counted] += 1
        return False

    def count(self, keys: Iterable[Key]) -> None:
        """Counts calls that have run."""
        for owner, number in filter(None, map(self._counted, keys)):
            owner.count(number)

    def calls_like(self, text: str, rows: int) -> AdmittedCalls:
        """The calls of a program that are counted like one with so many rows, all of whose keys are agreed.

        This changes only at a meeting, and never for calls without counters.
        """
        found = keys_at(text, rows, self._ranks)
        counted = filter(None, (self._counted(key) for key, _ in found))
        counters = tuple(owner.counter_of(number) for owner, number in counted)
        of_one_row, of_all = _elements_at(text, rows, self._ranks)
        if of_all == 0:
            return AdmittedCalls(of_one_row, of_one_row, counters)
        first_rows, last_rows = 1, _ELEMENTS_MAX
        # A collective of one row is the same for all rows of the program.
        for key in (key for key, has_one_row in found if not has_one_row):
            first, last = self._bounds(key)
            first_rows = max(first_rows, -(-first * rows // key.rows))
            last_rows = min(last_rows, last * rows // key.rows)
        return AdmittedCalls(
            of_one_row + -(-of_all * first_rows // rows),
            min(of_one_row + of_all * last_rows // rows, _ELEMENTS_MAX),
            counters,
        )

    def _bounds(self, key: Key) -> tuple[int, int]:
        """The fewest and the most elements of calls of a collective that are counted like this one."""
        owner = self.owner_of(key)
        if owner is None or key.rows == 0:
            return key.rows, key.rows
        first, last = owner.bounds(key)
        alone = [each.rows for each in self._exact if each.text == key.text]
        return (
            max([first, *(rows + 1 for rows in alone if rows < key.rows)]),
            min([last, *(rows - 1 for rows in alone if rows > key.rows)]),
        )

    def _counted(self, key: Key) -> tuple[Owner, int] | None:
        """The owner and the size for which a call is counted; None if it is not."""
        owner = self.owner_of(key)
        # The ranks cannot meet at a broadcast.
        if owner is None or not key.waits_for_all:
            return None
        number = owner.number_of(key)
        return None if owner.is_settled(number) else (owner, number)
