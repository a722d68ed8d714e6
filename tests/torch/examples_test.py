"""Runs examples/custom_all_reduce.py as its first lines describe."""

import unittest

from testing.torchrun import Tree

FUNCTIONS = ("python/library", "python/ring?chunk_size=4096", "python/ring?chunk_size=65536", "python/tree")


class ExamplesTest(unittest.TestCase):
    def run_example(self, name: str, ranks: int) -> str:
        ended = Tree().torchrun(ranks, f"../../examples/{name}.py")
        self.assertEqual(ended.exit_code, 0, ended.text)
        self.assertIn("compiled and eager are equal", ended.out, ended.text)
        return ended.text

    def test_functions_of_the_user_race_with_the_choices_of_backends(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                text = self.run_example("custom_all_reduce", ranks)
                table = [line.split() for line in text.splitlines() if line.startswith("  ") and " ms " in line]
                times = {line[0]: float(line[1]) for line in table}
                for function in FUNCTIONS:
                    self.assertGreater(times.get(function, 0), 0, f"{function} has no time\n{text}")
                self.assertTrue(any(choice.startswith("host/") for choice in times), text)
                self.assertEqual(sum("(runs" in line for line in text.splitlines()), 1, text)


if __name__ == "__main__":
    unittest.main()
