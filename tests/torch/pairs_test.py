"""Ranks whose graphs differ end as they do in plain PyTorch, and a graph that is equal on all of them runs by cotune."""

import json
import unittest

from pair_ranks import case_text, cases
from testing.torchrun import Tree

# A case that hangs ends its ranks; new ones run the cases after it, so often.
STARTS_MAX = 4
PYTORCHS = ("c10d::allreduce_", "gloo:all_reduce", "cotune::program_plain")


class PairsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.tree = Tree()  # one cache of kernels for all ranks

    def start(self, ranks: int, first: int):
        state = self.tree.folder / f"state.{ranks}.{first}"
        state.mkdir()
        return self.tree.torchrun(ranks, "pair_ranks.py", str(first), STATE=str(state))

    def run_cases(self, ranks: int) -> None:
        first, errors, text = 0, [], ""
        for _ in range(STARTS_MAX):
            ended = self.start(ranks, first)
            text += ended.text
            records = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
            errors += [
                f"rank {each['rank']}, {self.name_of(each['case'], ranks)}: {each['error']}"
                for each in records
                if "error" in each
            ]
            hung = sorted((each["case"], each["rank"], each["hangs"]) for each in records if "hangs" in each)
            if not hung:
                break
            case, rank, stacks = hung[0]
            errors.append(f"rank {rank}, {self.name_of(case, ranks)} does not end:\n{stacks}")
            first = case + 1
            if first >= len(cases(ranks)):
                break
        self.assertEqual(errors, [], "\n".join([*errors, text[-6000:]]))
        self.assertEqual(ended.exit_code, 0, text)
        done = [each for each in records if "done" in each]
        self.assertEqual(sorted(each["rank"] for each in done), list(range(ranks)), text)
        for each in done:
            self.assertIn("group 0: a group of cotune on host", each["explains"])
            self.assertEqual([op for op in PYTORCHS if op in each["ops"]], [], each["explains"])
            self.assertIn("cotune::program", each["ops"])

    @staticmethod
    def name_of(case: int, ranks: int) -> str:
        return case_text(case, ranks) if case < len(cases(ranks)) else "the equal graph at the end"

    def test_all_pairs_of_two_ranks(self):
        self.run_cases(2)

    def test_three_ranks(self):
        self.run_cases(3)


if __name__ == "__main__":
    unittest.main()
