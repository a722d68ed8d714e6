"""A model whose batches have many sizes: which sizes are tuned at which call, and that a known graph costs no meeting.

The output has the time of each call, for people: no test depends on it.
"""

import json
import unittest

from testing.torchrun import Tree

RANKS = 2
# The grid of the MLP in size_ranks.py begins with 4 rows, which are 1 KB.
FIRST_BATCHES = ("8x2", "12x2", "5", "7x2", "12x2")
LATER_BATCHES = ("100x4", "300x2", "1100x2", "4500", "100", "4500x3", "100x2", "4500", "300", "4500x2", "12")


def rows_of(words: tuple[str, ...]) -> int:
    """The number of calls of some batches."""
    return sum(int(word.partition("x")[2] or "1") for word in words)


class SizesTest(unittest.TestCase):
    def run_batches(self, tree: Tree, *words: str, **environment: str):
        # Other tests use the processors at the same time, and the next process measures unsteady sizes again.
        ended = tree.start(RANKS, "size_ranks.py", *words, COTUNE_KEEP_UNSTEADY="on", **environment)
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = sorted((json.loads(line) for line in ended.out.splitlines() if line.startswith("{")), key=lambda each: each["rank"])
        self.assertEqual([each["rank"] for each in records], list(range(RANKS)), ended.text)
        for each in records:
            self.assertEqual((each["error"], each["plain"]), ("", False), ended.text)
        for call in records[0]["calls"]:
            print(
                f"{call['rows']:5} rows: {1e3 * call['seconds']:10.2f} ms, uncompiled by PyTorch "
                f"{1e3 * call['plain_seconds']:8.2f} ms; tuned {call['tuned']}"
            )
        return [each["calls"] for each in records], ended

    def assert_tuned(self, calls: list[dict], wanted: dict[int, list[int]]) -> None:
        """`wanted` has the row counts of the only program that is tuned in a call, by the number of the call."""
        for number, call in enumerate(calls):
            expected = [[wanted[number]]] if number in wanted else []
            self.assertEqual(call["tuned"], expected, f"call {number}, of {call['rows']} rows")

    def test_sizes_are_tuned_as_they_come(self):
        tree = Tree()
        first = rows_of(FIRST_BATCHES)
        due = first + 4 + 2 + 2 + 1
        wanted = {0: [8], 2: [4, 16], due: [64, 256, 1024], due + 6: [4096]}
        ranks, ended = self.run_batches(tree, *FIRST_BATCHES, *LATER_BATCHES)
        for calls in ranks:
            self.assertEqual((calls[due]["rows"], calls[due + 6]["rows"]), (100, 4500))
            self.assert_tuned(calls, wanted)
            for call in calls:
                self.assertEqual(call["meetings"] > 0, len(call["tuned"]) > 0, call)
                self.assertEqual(call["asks"] > 0, len(call["tuned"]) > 0, call)
            self.assertEqual(sum(each["measured"] for each in calls), 7)
            self.assertEqual(sum(each["known"] for each in calls), 0)
            # The first calls of a size of the grid come to Python, and again after a meeting until that size is tuned.
            # The static graph has decided 8 rows, so that 5 rows and 12 are admitted apart.
            comes = [0, 2, 4, first, first + 4, first + 6, first + 8, due, due + 1, due + 6, due + 7]
            self.assertEqual([number for number, call in enumerate(calls) if call["python"] > 0], comes)

        again, ended = self.run_batches(tree, *FIRST_BATCHES, *LATER_BATCHES)
        for calls in again:
            self.assert_tuned(calls, wanted)
            self.assertEqual(sum(each["measured"] for each in calls), 0, ended.text)
            self.assertEqual(sum(each["known"] for each in calls), 7)

    def test_the_second_size_of_a_model_tunes_three_sizes_at_most(self):
        ranks, _ = self.run_batches(Tree(), "40", "24", "400")
        for calls in ranks:
            # None has more than 4 times the bytes of the call, and the next size waits for more calls.
            self.assert_tuned(calls, {0: [40], 1: [4, 16, 64]})

    def test_ranks_whose_graphs_differ_meet_at_the_same_calls(self):
        first = rows_of(FIRST_BATCHES)
        due = first + 4 + 2 + 2 + 1
        ranks, ended = self.run_batches(Tree(), *FIRST_BATCHES, *LATER_BATCHES, OTHER_FROM=str(first + 1))
        for calls in ranks:
            self.assert_tuned(calls, {0: [8], 2: [4, 16], due: [64, 256, 1024], due + 6: [4096]})
            self.assertEqual([number for number, call in enumerate(calls) if call["meetings"]], [0, 2, due, due + 6], ended.text)


if __name__ == "__main__":
    unittest.main()
