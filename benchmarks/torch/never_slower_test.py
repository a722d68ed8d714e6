"""The judgement of times of models."""

import itertools
import math
import unittest

from never_slower import closest_to_slower, interval_of, judged


def cell(way: str, us: list[float], run: int = 0) -> dict:
    return {"model": "block", "tokens": 4, "way": way, "us": us, "run": run}


class NeverSlowerTest(unittest.TestCase):
    def test_the_interval_misses_the_median_once_in_a_hundred_times_at_most(self):
        for count in range(8, 15):
            low, middle, high = interval_of([float(each) for each in range(count)])
            # All outcomes of as many coins: each value is below the true median, or above it.
            missed = sum(not low < sum(coins) <= high for coins in itertools.product((0, 1), repeat=count))
            self.assertLessEqual(missed / 2**count, 0.01)
            narrower = sum(not low + 1 < sum(coins) <= high - 1 for coins in itertools.product((0, 1), repeat=count))
            self.assertGreater(narrower / 2**count, 0.01)
            self.assertEqual(middle, (count - 1) / 2)

    def test_few_values_show_nothing(self):
        self.assertEqual(interval_of([2.0] * 7), (0.0, 2.0, math.inf))

    def test_ratios_of_all_runs_count_together(self):
        quiet, loud = [1.0] * 5, [7.0] * 5
        for factor, is_slower in ((1.02, True), (1.0, False), (0.9, False)):
            cells = []
            for run, us in enumerate((quiet, loud, quiet)):
                cells += [cell("compile", us, run), cell("compile_cotune", [factor * each for each in us], run), cell("eager", us, run)]
            (found,) = judged(cells)
            self.assertEqual((found.model, found.tokens, found.way, found.runs), ("block", 4, "compile_cotune", 3))
            self.assertAlmostEqual(found.middle, factor)
            self.assertEqual(found.is_slower, is_slower)
            self.assertIn("SLOWER" if is_slower else "not slower", str(found))

    def test_an_interval_around_one_is_not_slower(self):
        us = [1.0] * 15
        mixed = [0.99] * 5 + [1.05] * 10
        (found,) = judged([cell("compile", us), cell("compile_cotune", mixed)])
        self.assertGreater(found.middle, 1)
        self.assertFalse(found.is_slower)

    def test_a_sentence_names_the_interval_that_reaches_furthest(self):
        self.assertEqual(closest_to_slower([]), "")
        us = [1.0] * 15
        graphs = [cell("compile_graphs", us), cell("compile_graphs_cotune", [0.9] * 7 + [0.95] * 8)]
        others = [cell("compile", us), cell("compile_cotune", [0.5] * 15)]
        self.assertEqual(
            closest_to_slower(others + graphs),
            "By 99 % intervals over 1 run, none of 2 ratios lies above 1; the interval that reaches furthest is that of block of 4 "
            "tokens, CUDA graphs: 0.950, from 0.900 to 0.950.",
        )
        self.assertIn("1 of 2 ratios lies above 1", closest_to_slower(graphs + [others[0], cell("compile_cotune", [1.1] * 15)]))


if __name__ == "__main__":
    unittest.main()
