"""Intervals of medians. Times of real ranks are in tests/torch."""

import itertools
import unittest

from cotune.torch.timed_rounds import ROUNDS_MIN, interval_of, ratio_of


def chance_outside(count: int, outside: int) -> float:
    """The chance that the true median is not between the values at these places, by counting all outcomes of coins."""
    unlucky = 0
    for coins in itertools.product((0, 1), repeat=count):
        below = sum(coins)
        unlucky += below <= outside or below >= count - outside
    return unlucky / 2**count


class IntervalTest(unittest.TestCase):
    def test_the_bounds_leave_out_as_many_values_as_99_percent_allow(self):
        for count in range(ROUNDS_MIN, 16):
            found = interval_of(range(count))
            self.assertLessEqual(chance_outside(count, found.low), 0.01)
            self.assertGreater(chance_outside(count, found.low + 1), 0.01, "a narrower one would do")
            self.assertEqual(found.low, count - 1 - found.high)
            self.assertEqual(found.middle, (count - 1) / 2)

    def test_too_few_values_have_none(self):
        with self.assertRaisesRegex(ValueError, "it takes 8"):
            interval_of([1.0] * (ROUNDS_MIN - 1))
        self.assertIsNone(ratio_of([1.0] * 7, [1.0] * 7))

    def test_ratios_are_those_of_one_round(self):
        # The machine is ten times slower in half of the rounds, which meets both ways.
        slow = [1.0, 10.0] * 5
        found = ratio_of([each * 1.1 for each in slow], slow)
        self.assertAlmostEqual(found.low, 1.1)
        self.assertAlmostEqual(found.high, 1.1)
        self.assertEqual(str(found), "1.100 [1.100, 1.100]")


if __name__ == "__main__":
    unittest.main()
