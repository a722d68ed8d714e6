"""The sizes at which programs with dynamic rows are tuned, and the calls that are counted until then.

The first program with dynamic rows that decides a kind of collective owns it. It decides the collective for all numbers of
elements, by measurements at some sizes of its grid; these sizes are settled. Calls at other sizes are counted by owner and size.
They are counted for each collective and not for each graph, so that all ranks have the same counts at calls that match. A size
that has been called CALLS times is due: at its next call the ranks meet and tune it
(docs/decisions/0030-sizes-as-they-come.md).

The operator library keeps the counters, because it counts most calls without Python. This module does not communicate. All ranks
call it in the same order, and get the same answers.
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

# A size is tuned after so many calls.
CALLS = 4
# One tune of an owner has at most so many sizes.
SIZES_MAX = 3
# No call has so many elements.
_ELEMENTS_MAX = 2**62

# Adds calls (second argument) to a counter (its number is the first argument) that begins with 0, and returns the sum.
AddCalls = Callable[[int, int], int]


@dataclasses.dataclass(frozen=True)
class AdmittedCalls:
    """Calls of one program that add one to the same counters.

    Attributes:
      first_elements: the fewest elements of all inputs together.
      last_elements: the most elements of all inputs together.
      counters: the numbers of the counters.
    """

    first_elements: int
    last_elements: int
    counters: tuple[int, ...]


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Program:
    return parse(text)


def keys_at(text: str, rows: int, ranks: int) -> list[tuple[Key, bool]]:
    """Returns the key of each collective of a program at a row count, and whether its operand has one row at any count."""
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
    """Returns the number of elements of those inputs of a program that have one row, and that of its others at a row count."""
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
        # The elements of each kind of collective at the first row count. If a kind comes twice, its first one counts.
        self._elements: dict[str, int] = {}
        for key, has_one_row in keys_at(entry.text, self.grid[0], ranks):
            if not has_one_row:
                self._elements.setdefault(key.text, key.rows)

    def number_of(self, key: Key) -> int:
        """Returns the place in the grid of the largest row count that is not above that of a call; -1 if all are above it.

        A collective that the program lacks is compared by its bytes.
        """
        if key.text in self._elements:
            have, unit = key.rows * self.grid[0], self._elements[key.text]
        else:
            have, unit = key.rows * bytes_of(_parsed(key.text).inputs[0].dtype), self._row_bytes
        return sum(rows * unit <= have for rows in self.grid) - 1

    def bounds(self, key: Key) -> tuple[int, int]:
        """Returns the fewest and the most elements of this collective that have the same place in the grid as a call."""
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
        """Returns the places in the grid around a call, from one below it to one above it."""
        number = self.number_of(key)
        return [each for each in range(number - 1, number + 2) if 0 <= each < len(self.grid)]


class Owner:
    """A program with dynamic rows, and its sizes.

    Attributes:
      text: the text of the program.
      name: a short name, equal on all ranks.
      meetings: how often the ranks have met for its sizes.
      has_chosen_sizes: the user has chosen its sizes, so that all of them are tuned.
      is_closed: no further size is tuned: on CUDA after the first tune, and in a group that does not tune.
    """

    def __init__(self, entry: Entry, ranks: int, add_calls: AddCalls, new_counters: Iterable[int]):
        self.text = entry.text
        self.name = hashlib.sha256(entry.text.encode()).hexdigest()[:16]
        self.meetings = 0
        self.is_closed = False
        self._sizes = Sizes(entry, ranks)
        self.has_chosen_sizes = entry.has_chosen_rows
        # Sizes are numbered by their places in the grid.
        self._settled: set[int] = set()
        self._by_pytorch: set[int] = set()  # sizes at which PyTorch's form runs
        # The counter of each size that was called and is not settled, in the order of the first calls.
        self._counters: dict[int, int] = {}
        self._add_calls = add_calls
        self._new_counters = iter(new_counters)

    def number_of(self, key: Key) -> int:
        """Returns the size at which calls like this one are tuned."""
        return max(0, self._sizes.number_of(key))

    def is_settled(self, number: int) -> bool:
        return self.is_closed or number in self._settled

    def bounds(self, key: Key) -> tuple[int, int]:
        """Returns the fewest and the most elements of calls of this collective that add to the same counter as this one."""
        has_one_form = self.is_closed and not self._by_pytorch
        return (1, _ELEMENTS_MAX) if has_one_form or not key.waits_for_all else self._sizes.bounds(key)

    def number_of_rows(self, rows: int) -> int:
        """Returns the size of a row count of the grid."""
        return self._sizes.grid.index(rows)

    def give_back(self, number: int) -> None:
        """Notes that PyTorch's form runs at a size."""
        self._by_pytorch.add(number)

    def is_by_pytorch(self, number: int) -> bool:
        return number in self._by_pytorch

    def counter_of(self, number: int) -> int:
        """Returns the counter for the calls of a size."""
        if number not in self._counters:
            self._counters[number] = next(self._new_counters)
        return self._counters[number]

    def count(self, number: int) -> None:
        self._add_calls(self.counter_of(number), 1)

    def is_due(self, number: int, more_calls: int = 0) -> bool:
        """Returns true if the ranks meet at the call of this size that follows after `more_calls` others."""
        return not self.is_settled(number) and self._calls(number) + more_calls >= CALLS

    def _calls(self, number: int) -> int:
        return self._add_calls(self._counters[number], 0) if number in self._counters else 0

    def settle_near(self, key: Key) -> Entry:
        """Settles the sizes around a call. Returns the program with these sizes, to tune it."""
        return self._settle(self._sizes.near(key))

    def settle_all(self) -> Entry:
        """Settles all sizes of the grid. Returns the program with these sizes, to tune it."""
        return self._settle(list(range(len(self._sizes.grid))))

    def settle_called(self, key: Key) -> Entry:
        """Settles the size of a call, and others by how often they were called. Returns the program with them, to tune it."""
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
    """The owners of one process group on one device, and the keys that were decided without an owner, for one size."""

    def __init__(self, ranks: int, add_calls: AddCalls):
        self._ranks = ranks
        self._add_calls = add_calls
        self._new_counters = itertools.count()
        self._by_text: dict[str, Owner] = {}  # by the text of the collective's key
        self._exact: set[Key] = set()

    def decide(self, key: Key) -> None:
        """Notes that a key was decided for its size alone, unless its collective has an owner."""
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
        """Returns the owner that decides a key; None if the key was decided for its size alone, or not at all."""
        return None if key in self._exact else self._by_text.get(key.text)

    def is_owned_by(self, key: Key, text: str) -> bool:
        """Returns true if a program owns a collective, and if it is one at which the ranks can meet."""
        owner = self.owner_of(key)
        return owner is not None and owner.text == text and key.waits_for_all

    def give_back(self, rows: int, keys: Iterable[Key]) -> None:
        """Notes that PyTorch's form of a program that owns these keys runs at a row count of its grid."""
        for owner in {self._by_text[each.text].name: self._by_text[each.text] for each in keys}.values():
            owner.give_back(owner.number_of_rows(rows))

    def is_by_pytorch(self, key: Key) -> bool:
        """Returns true if PyTorch's form runs at the size of a call of a key that has an owner."""
        owner = self.owner_of(key)
        return owner is not None and key.rows > 0 and owner.is_by_pytorch(owner.number_of(key))

    def due_owner(self, key: Key) -> Owner | None:
        """Returns the owner for whose sizes the ranks meet before this call; None if they do not meet."""
        counted = self._counted(key)
        return counted[0] if counted is not None and counted[0].is_due(counted[1]) else None

    def is_due_within(self, keys: list[Key]) -> bool:
        """Returns true if the ranks meet at one of these calls, which follow one another."""
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
        """Returns the calls of a program that add to the same counters as one with so many rows, all of whose keys are agreed.

        The answer changes only at a meeting, and never for calls without counters.
        """
        found = keys_at(text, rows, self._ranks)
        counted = filter(None, (self._counted(key) for key, _ in found))
        counters = tuple(owner.counter_of(number) for owner, number in counted)
        of_one_row, of_all = _elements_at(text, rows, self._ranks)
        if of_all == 0:
            return AdmittedCalls(of_one_row, of_one_row, counters)
        first_rows, last_rows = 1, _ELEMENTS_MAX
        # A collective of one row does not depend on the rows of the program.
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
        """Returns the fewest and the most elements of calls of a collective that add to the same counter as this one."""
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
        """Returns the owner and the size for which a call is counted; None if it is not counted."""
        owner = self.owner_of(key)
        # The ranks cannot meet at a broadcast.
        if owner is None or not key.waits_for_all:
            return None
        number = owner.number_of(key)
        return None if owner.is_settled(number) else (owner, number)
