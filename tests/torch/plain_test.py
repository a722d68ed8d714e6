"""Programs that race against PyTorch's form of them, on real ranks."""

import json
import unittest

from testing.torchrun import Tree


class PlainTest(unittest.TestCase):
    def run_ranks(self, case: str, ranks: int = 2, tree: Tree | None = None, **environment: str) -> list[dict]:
        ended = (tree or Tree()).start(ranks, "plain_ranks.py", case, **environment)
        self.assertEqual(ended.exit_code, 0, ended.text)
        found = sorted(map(json.loads, ended.out.splitlines()), key=lambda each: each["rank"])
        self.assertEqual([each["rank"] for each in found], list(range(ranks)), ended.text)
        self.assertEqual([each["error"] for each in found], [""] * ranks)
        for each in found:
            self.assertEqual(each["verdicts"], found[0]["verdicts"], "all ranks come to one verdict")
            self.assertEqual(each["graphs"], found[0]["graphs"])
        return found

    def test_a_program_that_is_faster_than_pytorchs_collective_alone_stays(self):
        for each in self.run_ranks("faster", ranks=4):
            (verdict,) = each["verdicts"]
            self.assertTrue(verdict["is_bound"])
            self.assertFalse(verdict["gives_back"])
            self.assertLess(verdict["ratio"][2], 1)
            (graph,) = each["graphs"]
            self.assertEqual(graph["why_not"], "")
            self.assertEqual(len(each["programs"]), 2 if graph["gives_back"] else 1, "a graph that wins is not compiled anew")
            self.assertIn("torch/plain (its collectives alone)", each["explains"])

    def test_a_program_that_loses_is_left_to_inductor_in_the_graph(self):
        tree = Tree()
        for each in self.run_ranks("slower", tree=tree):
            (verdict,) = each["verdicts"]
            self.assertTrue(verdict["gives_back"])
            self.assertFalse(verdict["is_bound"])
            self.assertGreater(verdict["ratio"][0], 1)
            self.assertTrue(verdict["is_measured_here"])
            self.assertEqual(each["programs"], [1, 0], "the second graph is that without the program")
            self.assertEqual(each["calls"], 0, "no call comes to the operator any more")
            self.assertRegex(each["explains"], r"all_reduce \(all_reduce, group 0\) of .*: torch/plain is faster: .* us")
        first = verdict
        # The next start measures nothing, and decides the same, though the program is not slow there.
        for each in self.run_ranks("warm", tree=tree):
            (verdict,) = each["verdicts"]
            self.assertEqual(verdict, first | {"is_measured_here": False})
        # Another database knows nothing of it.
        for each in self.run_ranks("warm", tree=tree, COTUNE_DATABASE=str(tree.folder / "other.tdb")):
            self.assertFalse(each["verdicts"][0]["gives_back"])

    def test_each_program_by_itself_comes_to_the_same(self):
        for each in self.run_ranks("immediate"):
            (verdict,) = each["verdicts"]
            self.assertEqual((verdict["is_bound"], verdict["why_not"]), (True, ""))

    def test_a_graph_that_loses_gets_back_a_region_that_wins_alone(self):
        for each in self.run_ranks("cut"):
            (verdict,) = each["verdicts"]
            self.assertLess(verdict["ratio"][2], 1, "the program is faster than PyTorch's form of it")
            (graph,) = each["graphs"]
            self.assertEqual(graph["why_not"], "")
            self.assertGreater(graph["ratio"][0], 1, "the graph with it is slower than without it")
            self.assertTrue(graph["gives_back"])
            self.assertEqual(each["programs"], [1, 0])
            self.assertIn("its whole graph is faster without it", each["explains"])

    def test_a_form_that_fails_on_one_rank_drops_out_on_all(self):
        for case, reason in (
            ("compile", "rank 1 could not compile PyTorch's form: LookupError: no compiler"),
            ("raises", "rank 1 could not run PyTorch's form: LookupError: no route"),
            ("waits", "rank [01] could not run PyTorch's form: .*(Timed out|closed)"),
        ):
            for each in self.run_ranks(case):
                (verdict,) = each["verdicts"]
                self.assertRegex(verdict["why_not"], reason)
                self.assertFalse(verdict["gives_back"])
                self.assertRegex(each["explains"], f"not compared with torch/plain: {reason}")
                # The form of the graph has a new process group, in which nothing is left over.
                self.assertEqual(each["graphs"][0]["why_not"], "")

    def test_the_setting_turns_it_off(self):
        for each in self.run_ranks("off"):
            self.assertEqual((each["verdicts"], each["graphs"]), ([], []))
            self.assertNotIn("torch/plain ", each["explains"])

    def test_a_collective_that_was_decided_before_stays_with_cotune(self):
        for each in self.run_ranks("known"):
            back = [verdict["name"] for verdict in each["verdicts"] if verdict["gives_back"]]
            self.assertEqual(back, ["all_reduce_mul"])
            first, *_, last = each["programs"]
            self.assertEqual((first, last), (1, 1), "the new graph has one program, and leaves the other collective alone")

    def test_a_graph_that_was_decided_in_part_is_judged_by_the_rest(self):
        for each in self.run_ranks("partly"):
            self.assertEqual(each["forms"], [[2, 0], [1, 1]], "the program that was decided before is in both forms")
            self.assertEqual(each["graphs"][-1]["why_not"], "")

    def test_averages_are_compared(self):
        for each in self.run_ranks("average"):
            (verdict,) = each["verdicts"]
            self.assertEqual(verdict["why_not"], "")
            self.assertEqual(each["graphs"][0]["why_not"], "")

    def test_the_bound_of_time_ends_the_races_of_all_ranks(self):
        for each in self.run_ranks("late"):
            reasons = sorted(verdict["why_not"] for verdict in each["verdicts"] + each["graphs"])
            self.assertEqual(reasons[0], "", "what has run counts")
            for reason in reasons[1:]:
                self.assertRegex(reason, "the 600 s for races .* were over")
            self.assertEqual(len(reasons), 3)
            self.assertIn("not compared with torch/plain: the 600 s for races", each["explains"])
            self.assertEqual(each["programs"], [2], "the rest keeps cotune's programs")

    def test_a_rank_without_memory_keeps_nobody_waiting(self):
        for each in self.run_ranks("memory"):
            for verdict in each["verdicts"] + each["graphs"]:
                self.assertRegex(verdict["why_not"], "rank 1 could not make .*: MemoryError: its operands have")
            self.assertEqual(each["programs"], [1])

    def test_sizes_at_which_the_form_wins_run_it_in_the_operator(self):
        for each in self.run_ranks("sizes"):
            by_rows = {verdict["rows"]: verdict["gives_back"] for verdict in each["verdicts"]}
            self.assertEqual(by_rows, {64: False, 256: True, 1024: True})
            self.assertEqual(each["programs"], [1], "the graph keeps its program for the other sizes")
            self.assertRegex(each["graphs"][0]["why_not"], "its sizes are dynamic")

    def test_nothing_of_the_user_is_written_or_drawn(self):
        for each in self.run_ranks("writes"):
            self.assertEqual(each["graphs"][0]["why_not"], "")

    def test_graphs_that_are_not_compared(self):
        for case, reason in (("differs", "the ranks have different graphs"), ("random", "rank 0: .* gives random numbers"), ("embedded", "indices that the graph computes")):
            for each in self.run_ranks(case):
                self.assertRegex(each["graphs"][0]["why_not"], reason)


if __name__ == "__main__":
    unittest.main()
