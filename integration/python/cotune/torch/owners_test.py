"""The sizes of programs with dynamic rows: which are tuned first, which calls are counted, and when a size is due."""

from __future__ import annotations

import collections
import unittest

from cotune.torch.collective_key import Key
from cotune.torch.manifest import Entry
from cotune.torch.owners import CALLS, AdmittedCalls, Owners, Sizes, keys_at
from cotune.torch.testing.counters import Counters

SUM = "program a; %x = input f32 [R, 64]; %y = all_reduce sum %x; return %y"
WIDE_SUM = "program b; %x = input f32 [R, 256]; %y = all_reduce sum %x; %z = relu %y; return %z"
TWO_SUMS = (
    "program c; %x = input f32 [R, 64]; %w = input f32 [R, 128]; %y = all_reduce sum %x; %z = all_reduce sum %w; "
    "return %y, %z"
)
GATHER = "program d; %x = input bf16 [R/n, 64]; %y = all_gather %x; return %y"
SPREAD = "program e; %x = input f32 [R, 64]; %y = broadcast %x, root=0; %z = all_reduce sum %y; return %z"
ONE_ROW = "program f; %x = input f32 [R, 64]; %w = input f32 [1, 8]; %y = all_reduce sum %x; %z = all_reduce max %w; return %y, %z"
MIXED = (
    "program g; %x = input f32 [R, 64]; %w = input f32 [1, 40000]; %y = all_reduce sum %x; %z = all_reduce sum %w; "
    "return %y, %z"
)
ONLY_ONE_ROW = (
    "program h; %x = input f32 [R, 64]; %w = input f32 [1, 40000]; %y = relu %x; %z = all_reduce sum %w; return %y, %z"
)
ROW_MAX = "program i; %x = input f32 [R, 4096]; %m = row_max %x; %y = all_reduce max %m; return %y"
STATIC = "program j; %w = input f32 [1, 40000]; %z = all_reduce sum %w; %y = relu %z; return %y"
GRID = (4, 16, 64, 256, 1024)


def entry(text: str) -> Entry:
    return Entry(text, GRID, has_any_rows=True)


def keys(text: str, rows: int) -> list[Key]:
    return [key for key, _ in keys_at(text, rows, 2)]


def key(text: str, rows: int) -> Key:
    return keys(text, rows)[0]


class SizesTest(unittest.TestCase):
    def _near(self, text: str, call: Key) -> list[int]:
        sizes = Sizes(entry(text), 2)
        return [sizes.grid[number] for number in sizes.near(call)]

    def test_the_first_sizes_lie_around_the_call(self) -> None:
        for rows, wanted in (
            (1, [4]), (3, [4]), (4, [4, 16]), (15, [4, 16]), (16, [4, 16, 64]), (63, [4, 16, 64]), (64, [16, 64, 256]),
            (1023, [64, 256, 1024]), (1024, [256, 1024]), (10**9, [256, 1024]),
        ):  # fmt: skip
            with self.subTest(rows=rows):
                self.assertEqual(self._near(SUM, key(SUM, rows)), wanted)
                self.assertTrue(all(each <= 4 * rows for each in wanted) or wanted == [4])

    def test_a_call_of_another_program_counts_by_its_elements(self) -> None:
        self.assertEqual(self._near(SUM, key(WIDE_SUM, 4)), [4, 16, 64])
        self.assertEqual(self._near(WIDE_SUM, key(SUM, 64)), [4, 16, 64])

    def test_a_program_without_the_collective_counts_by_bytes(self) -> None:
        # 64 rows of 128 bytes, and 32 rows of 256 bytes.
        self.assertEqual(self._near(SUM, key(GATHER, 64)), [4, 16, 64])
        self.assertEqual(self._near(GATHER, key(SUM, 32)), [16, 64, 256])

    def test_of_two_equal_collectives_the_first_counts(self) -> None:
        first, second = keys(TWO_SUMS, 16)
        self.assertEqual(self._near(TWO_SUMS, first), [4, 16, 64])
        self.assertEqual(self._near(TWO_SUMS, second), [4, 16, 64])
        self.assertEqual(self._near(TWO_SUMS, key(TWO_SUMS, 15)), [4, 16])


class OwnersTest(unittest.TestCase):
    def setUp(self) -> None:
        self.counters = Counters()
        self.owners = Owners(2, self.counters.add)

    def _claim(self, text: str, call: Key) -> None:
        self.owner = self.owners.claim(entry(text))
        self.assertIsNotNone(self.owner)
        self.owner.settle_near(call)

    def _are_settled(self, calls: list[Key]) -> bool:
        """Returns true if counting these calls changes no counter."""
        return not any(map(self.owners._counted, calls))

    def _alike(self, text: str, rows: int) -> tuple[int, int, int]:
        """The first and last even row counts of calls that are counted like one, and the number of their counters.

        Each row count by itself has to give the same calls.
        """
        found = self.owners.calls_like(text, rows)
        row, one_row = {SUM: (64, 0), WIDE_SUM: (256, 0), GATHER: (32, 0), TWO_SUMS: (192, 0), ONE_ROW: (64, 8), SPREAD: (64, 0)}[text]
        alike = []
        for other in range(2, 1200, 2):
            alone = self.owners.calls_like(text, other)
            self.assertTrue(alone.first_elements <= one_row + other * row <= alone.last_elements, other)
            if found.first_elements <= one_row + other * row <= found.last_elements:
                self.assertEqual(alone, found, other)
                alike.append(other)
            else:
                self.assertNotEqual(alone, found, other)
        self.assertEqual(alike, list(range(alike[0], alike[-1] + 1, 2)))
        return alike[0], alike[-1], len(found.counters)

    def _count(self, text: str, rows: int, calls: int) -> None:
        for _ in range(calls):
            self.assertIsNone(self.owners.due_owner(key(text, rows)))
            self.owners.count(keys(text, rows))

    def test_a_program_owns_what_has_no_owner(self) -> None:
        self._claim(SUM, key(SUM, 16))
        self.assertIsNone(self.owners.claim(entry(WIDE_SUM)))
        self.assertIs(self.owners.owner_of(key(WIDE_SUM, 5)), self.owner)
        self.assertIsNone(self.owners.owner_of(key(GATHER, 64)))
        gathers = self.owners.claim(entry(GATHER))
        self.assertIs(self.owners.owner_of(key(GATHER, 64)), gathers)

    def test_a_size_is_due_after_some_calls(self) -> None:
        self._claim(SUM, key(SUM, 16))
        self._count(SUM, 256, CALLS - 1)
        # Calls of the same size with other rows, and in another program.
        self._count(WIDE_SUM, 100, 1)
        self.assertIs(self.owners.due_owner(key(SUM, 1023)), self.owner)
        self.assertIsNone(self.owners.due_owner(key(SUM, 1024)))
        self.assertEqual(self.owner.settle_called(key(SUM, 300)).rows, (256,))
        self.assertIsNone(self.owners.due_owner(key(SUM, 256)))
        self.assertTrue(self._are_settled(keys(SUM, 256)))

    def test_settled_sizes_are_never_due(self) -> None:
        self._claim(SUM, key(SUM, 16))
        for rows in (1, 4, 16, 255):
            self.assertTrue(self._are_settled(keys(SUM, rows)))
            self._count(SUM, rows, 2 * CALLS)

    def test_a_later_tune_has_at_most_three_sizes(self) -> None:
        self._claim(SUM, key(SUM, 1))
        for rows, calls in ((16, 1), (64, 2), (1024, 2), (256, CALLS)):
            self._count(SUM, rows, calls)
        self.assertEqual(self.owner.settle_called(key(SUM, 256)).rows, (64, 256, 1024))
        self.assertFalse(self._are_settled(keys(SUM, 16)))
        self._count(SUM, 16, CALLS - 1)
        self.assertEqual(self.owner.settle_called(key(SUM, 16)).rows, (16,))

    def test_a_program_whose_own_calls_make_a_size_due(self) -> None:
        self._claim(TWO_SUMS, key(TWO_SUMS, 4))
        self.owners.count(keys(SUM, 300) * (CALLS - 1))
        self.assertIsNone(self.owners.due_owner(key(SUM, 300)))
        self.assertFalse(self.owners.is_due_within(keys(SUM, 300)))
        # Its second collective has as many elements as one of twice the rows.
        self.assertFalse(self.owners.is_due_within(keys(TWO_SUMS, 100)))
        self.assertTrue(self.owners.is_due_within(keys(TWO_SUMS, 300)))

    def test_keys_that_are_decided_by_themselves_are_not_counted(self) -> None:
        self.owners.decide(key(SUM, 256))
        self._claim(SUM, key(SUM, 4))
        self.assertTrue(self._are_settled(keys(SUM, 256)))
        self._count(SUM, 256, 2 * CALLS)
        self.assertFalse(self._are_settled(keys(SUM, 257)))
        # After there is an owner no key is decided by itself.
        self.owners.decide(key(SUM, 257))
        self.assertFalse(self._are_settled(keys(SUM, 257)))

    def test_a_collective_of_one_row_is_decided_by_itself(self) -> None:
        self._claim(ONE_ROW, key(ONE_ROW, 4))
        of_rows, of_one = keys(ONE_ROW, 256)
        self.assertFalse(self._are_settled([of_rows]))
        self.assertTrue(self._are_settled([of_one]))
        self.assertIsNone(self.owners.owner_of(of_one))

    def test_broadcasts_are_not_counted(self) -> None:
        self._claim(SPREAD, key(SPREAD, 4))
        spread, summed = keys(SPREAD, 256)
        self.assertTrue(self._are_settled([spread]))
        self.assertFalse(self._are_settled([summed]))

    def test_sizes_of_one_place_in_the_grid_are_counted_alike(self) -> None:
        self._claim(SUM, key(SUM, 16))
        self.assertEqual(self._alike(SUM, 300), (256, 1022, 1))
        self.assertEqual(self._alike(SUM, 20), (16, 62, 0))
        self.assertEqual(self._alike(SUM, 2), (2, 14, 0))
        self.assertEqual(self._alike(SUM, 1024), (1024, 1198, 1))
        self.assertGreater(self.owners.calls_like(SUM, 1024).last_elements, 2**40)
        counters = {self.owners.calls_like(SUM, rows).counters for rows in (256, 300, 1024)}
        self.assertEqual(len(counters), 2)

    def test_calls_of_other_programs_are_counted_together(self) -> None:
        self._claim(SUM, key(SUM, 16))
        # 256 rows of 64 columns are 64 of 256.
        self.assertEqual(self._alike(WIDE_SUM, 64), (64, 254, 1))
        self.assertEqual(self.owners.calls_like(WIDE_SUM, 64).counters, self.owners.calls_like(SUM, 256).counters)
        self._claim(GATHER, key(GATHER, 16))
        self.assertEqual(self._alike(GATHER, 300), (256, 1022, 1))
        self.assertNotEqual(self.owners.calls_like(GATHER, 300).counters, self.owners.calls_like(SUM, 300).counters)

    def test_each_collective_of_a_program_limits_what_is_counted_alike(self) -> None:
        self._claim(TWO_SUMS, key(TWO_SUMS, 4))
        # The second collective has as many elements as the first has with twice the rows.
        self.assertEqual(self._alike(TWO_SUMS, 100), (64, 126, 2))
        self.assertEqual(self._alike(TWO_SUMS, 200), (128, 254, 2))
        self.assertEqual(len(set(self.owners.calls_like(TWO_SUMS, 100).counters)), 1)
        self.assertEqual(len(set(self.owners.calls_like(TWO_SUMS, 200).counters)), 2)

    def test_operands_of_one_row_and_broadcasts_do_not_limit_what_is_counted_alike(self) -> None:
        self._claim(ONE_ROW, key(ONE_ROW, 4))
        self.assertEqual(self._alike(ONE_ROW, 300), (256, 1022, 1))
        self.owners = Owners(2, self.counters.add)
        self._claim(SPREAD, key(SPREAD, 4))
        self.assertEqual(self._alike(SPREAD, 300), (256, 1022, 1))

    def _assert_counts(self, text: str, rows: int) -> None:
        """A call that Python counts adds to the counters that the library adds to for an admitted one."""
        admitted = self.owners.calls_like(text, rows).counters
        before = self.counters.calls.copy()
        self.owners.count(keys(text, rows))
        self.assertEqual(self.counters.calls - before, collections.Counter(admitted), (text, rows))

    def test_admitted_calls_add_what_python_adds(self) -> None:
        for first in (SUM, TWO_SUMS, ONE_ROW, SPREAD, GATHER, MIXED, ROW_MAX):
            with self.subTest(first=first):
                self.owners, self.counters.calls = Owners(2, self.counters.add), collections.Counter()
                self._claim(first, key(first, 16))
                for text in (SUM, WIDE_SUM, TWO_SUMS, ONE_ROW, SPREAD, GATHER, MIXED, ROW_MAX, STATIC):
                    for rows in (2, 64, 300, 1024):
                        self._assert_counts(text, rows)

    def test_collectives_of_one_row_are_counted_if_their_kind_has_an_owner(self) -> None:
        self._claim(SUM, key(SUM, 16))
        (summed,) = keys(STATIC, 1)
        self.assertFalse(self._are_settled([summed]))
        # Alone, beside a collective of R rows, and as the only one of a program with R rows.
        of_one = self.owners.calls_like(STATIC, 1)
        self.assertEqual((of_one.first_elements, of_one.last_elements, len(of_one.counters)), (40000, 40000, 1))
        self.assertEqual(self.owners.calls_like(MIXED, 16).counters, of_one.counters)
        spread = self.owners.calls_like(ONLY_ONE_ROW, 16)
        self.assertEqual((spread.counters, spread.first_elements), (of_one.counters, 40000 + 64))
        self.assertGreater(spread.last_elements, 2**40)

    def test_the_last_sizes_fit_into_the_library(self) -> None:
        self._claim(ROW_MAX, key(ROW_MAX, 16))
        for is_closed in (False, True):
            self.owner.is_closed = is_closed
            calls = self.owners.calls_like(ROW_MAX, 10**6)
            self.assertLessEqual(4096 * 10**6, calls.last_elements)
            self.assertLess(calls.last_elements, 2**63)

    def test_keys_that_are_decided_by_themselves_are_apart(self) -> None:
        for rows in (300, 500):
            self.owners.decide(key(SUM, rows))
        self._claim(SUM, key(SUM, 4))
        self.assertEqual(self._alike(SUM, 300), (300, 300, 0))
        self.assertEqual(self._alike(SUM, 400), (302, 498, 1))
        self.assertEqual(self._alike(SUM, 600), (502, 1022, 1))

    def test_a_program_without_an_owner_is_alone(self) -> None:
        self.owners.decide(key(SUM, 256))
        self.assertEqual(self.owners.calls_like(SUM, 256), AdmittedCalls(64 * 256, 64 * 256, ()))

    def test_a_closed_owner_is_settled(self) -> None:
        self._claim(SUM, key(SUM, 4))
        self._count(SUM, 256, CALLS)
        self.assertIs(self.owners.due_owner(key(SUM, 256)), self.owner)
        self.owners.close()
        self.assertIsNone(self.owners.due_owner(key(SUM, 256)))
        self.assertTrue(self._are_settled(keys(SUM, 1024)))


if __name__ == "__main__":
    unittest.main()
