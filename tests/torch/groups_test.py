"""Several process groups, ranks that do not come, and process groups that are not what a compiled graph was made for."""

import json
import re
import unittest

from testing.torchrun import Outcome, Tree

PLAIN = "run by PyTorch's own collectives"


def records_of(out: str) -> list[dict]:
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda each: each["rank"])


class GroupsTest(unittest.TestCase):
    def run_ranks(self, case: str, ranks: int, tree: Tree | None = None, **environment: str) -> tuple[list[dict], Outcome]:
        ended = (tree or Tree()).torchrun(ranks, "group_ranks.py", case, **environment)
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = records_of(ended.out)
        self.assertEqual([each["rank"] for each in records], list(range(ranks)), ended.text)
        return records, ended

    def run_case(self, case: str, ranks: int, tree: Tree | None = None, **environment: str) -> tuple[list[dict], Outcome]:
        records, ended = self.run_ranks(case, ranks, tree, **environment)
        for each in records:
            self.assertEqual((each["error"], each["raised"]), ("", ""), ended.text)
        return records, ended

    def check_cached(self, first: str) -> None:
        """Rank 0 of two has the graph of a run in one process in its cache, and rank 1 has none."""
        tree = Tree()
        caches = str(tree.folder / "caches")
        self.run_case(first, 1, tree, CACHES=caches)
        records, ended = self.run_case("plain_sum", 2, tree, CACHES=caches)
        for each in records:
            self.assertIn("a group of cotune on host", each["explains"], ended.text)

    def test_a_graph_that_one_rank_compiled_alone(self):
        self.check_cached("plain_sum")

    def test_a_graph_of_a_dry_run(self):
        self.check_cached("dry_run")

    def test_splits_that_are_equal_on_one_rank_by_chance(self):
        records, _ = self.run_case("uneven_by_chance", 2)
        for each in records:
            self.assertIn("give all_to_all=True", each["explains"])

    def check_one_without(self, without: str) -> None:
        records, ended = self.run_ranks("one_without", 2, WITHOUT=without)
        self.assertIn("has waited for 12 s", records[0]["raised"], ended.text)
        self.assertRegex(records[0]["raised"], r"not come to its first operator of process group '\w+': rank 1\b")
        self.assertNotEqual(records[1]["raised"], "", ended.text)
        self.assertEqual(ended.err.count("rank 0 has waited for 1 s"), 1, ended.text)

    def test_a_rank_that_does_not_enable(self):
        self.check_one_without("enable")

    def test_a_rank_with_another_pytorch(self):
        self.check_one_without("pytorch")

    def test_a_late_rank_is_named_and_waited_for(self):
        records, ended = self.run_case("late", 3)
        warnings = [line for line in ended.err.splitlines() if "has waited for 1 s" in line]
        # On a busy machine another rank is late, too: those that wait then name both of them, each rank once.
        waiting = [re.search(r"rank (\d) has waited", line)[1] for line in warnings]
        self.assertTrue(waiting, ended.text)
        self.assertEqual(len(waiting), len(set(waiting)), ended.text)
        for line in warnings:
            self.assertRegex(line, r": (rank [02], )?rank 1(, rank [02])?\. They may be compiling")
        for each in records:
            self.assertIn("a group of cotune on host", each["explains"], ended.text)

    def test_an_unexpected_error_while_the_ranks_meet(self):
        records, ended = self.run_case("meeting_fails", 2)
        warnings = [line for line in ended.err.splitlines() if PLAIN in line]
        self.assertEqual(len(warnings), 2, ended.text)
        self.assertIn("rank 1: PermissionError: no boot_id here", warnings[0])
        self.assertIn("rank 1: ValueError: it cannot be used", warnings[1])
        for each in records:
            self.assertEqual(each["explains"].count(": plain: rank 1: "), 2, ended.text)

    def test_names_that_other_ranks_had(self):
        self.run_case("reused_names", 4)

    def check_tables(self, records: list[dict], ended: Outcome) -> None:
        """One process prints, for each of its groups once.

        Two groups have one program: the later one may find in the database what the other has saved, and prints nothing.
        """
        printed = [line for line in ended.err.splitlines() if not line.startswith("[rank")]
        feet = [found[1] for line in printed if (found := re.match(r"cotune: .* tuned in .*\(group '(\w+)'\)", line))]
        known = re.findall(r"^\[rank0\]:.* of process group '(\w+)' were known$", ended.err, re.MULTILINE)
        self.assertEqual(sorted([*feet, *known]), sorted(records[0]["groups"]), ended.text)
        # Two programs of the data-parallel group may be one.
        tables = sum(line.startswith("TUNE ") for line in printed)
        self.assertIn(tables, (len(feet), len(feet) + 1), ended.text)

    def test_two_axes(self):
        records, ended = self.run_case("two_axes", 4, TORCH_LOGS="+cotune.torch")
        self.check_tables(records, ended)
        for rank, record in enumerate(records):
            self.assertEqual(record["explains"].count("a group of cotune on host"), 3, ended.text)
            lines = [line for line in ended.err.splitlines() if line.startswith(f"[rank{rank}]:")]
            for name in record["groups"]:
                self.assertTrue(any(f"(group '{name}')" in line and "tuning" in line for line in lines), ended.text)
        self.assertTrue(any("TUNE " in line for line in ended.err.splitlines() if line.startswith("[rank2]:")), ended.text)

    def test_a_group_of_some_ranks(self):
        records, ended = self.run_case("some_ranks", 4)
        self.assertEqual([each["explains"].count("a group of cotune on host") for each in records], [2, 2, 2, 1], ended.text)

    def check_interrupted(self, case: str) -> None:
        records, ended = self.run_case(case, 2)
        for each in records:
            self.assertIn("a group of cotune on host", each["explains"], ended.text)
        self.assertIn("not tuned: the tune was interrupted", ended.text)
        # Python writes this of a KeyboardInterrupt in a finalizer or in a function that C calls.
        self.assertNotIn("Exception ignored", ended.text)

    def test_ctrl_c_ends_a_tune_and_its_call_and_no_later_one(self):
        self.check_interrupted("interrupted")

    def test_ctrl_c_in_a_tune_within_a_graph_with_gradients(self):
        self.check_interrupted("interrupted_within_a_graph")

    def test_ctrl_c_in_a_program_of_pytorchs_collectives(self):
        _, ended = self.run_case("interrupted_plain", 2)
        self.assertNotIn("Exception ignored", ended.text)

    def test_ctrl_c_on_one_rank_does_not_keep_it_from_a_collective(self):
        self.check_interrupted("interrupted_on_one_rank")

    def test_ctrl_c_while_a_rank_waits_for_another(self):
        records, ended = self.run_case("interrupted_in_a_meeting", 2)
        for each in records:
            self.assertIn("a group of cotune on host", each["explains"], ended.text)

    def test_one_rank(self):
        records, ended = self.run_case("alone", 1)
        self.assertIn("its group has one rank", records[0]["explains"])
        self.assertIn("plain: it has one rank", records[0]["explains"], ended.text)


if __name__ == "__main__":
    unittest.main()
