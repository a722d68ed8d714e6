"""Python functions as choices of custom operators, on real ranks."""

import json
import unittest

import function_cases
from function_cases import COMPILED, EAGER, RIGHT
from testing.torchrun import Tree


class FunctionsTest(unittest.TestCase):
    def run_ranks(self, case: str, ranks: int = 2, tree: Tree | None = None, **environment: str):
        ended = (tree or Tree()).start(ranks, "function_ranks.py", case, **environment)
        self.assertEqual(ended.exit_code, 0, ended.text)
        found = sorted(map(json.loads, ended.out.splitlines()), key=lambda each: each["rank"])
        self.assertEqual([each["rank"] for each in found], list(range(ranks)), ended.text)
        self.assertEqual([each["error"] for each in found], [""] * ranks)
        return found, ended

    def run_case(self, name: str, ranks: int = 2):
        case = function_cases.CASES[name]
        found, ended = self.run_ranks(case.argument, ranks, **case.environment)
        self.assertEqual([function_cases.errors(name, each) for each in found], [""] * ranks)
        return found, ended

    def test_functions_race_beside_the_choices_of_backends(self):
        for ranks in (2, 4):
            found, _ = self.run_case("declared_right", ranks)
            self.assertEqual(len({each["runs"] for each in found}), 1, "all ranks run one choice")
            for each in found:
                self.assertEqual(sorted(each["choices"]), sorted(RIGHT))
                self.assertEqual(len(each["groups"]), 1, "one process group of their own")
                self.assertNotIn("0", each["groups"], "which is not that of the model")
                # The eager calls that the values are compared with: an all_reduce and an all_gather in each of 4 calls.
                self.assertIn("this process has made 8 in its process group", each["explains"])

    def test_a_forced_function_runs_in_the_compiled_graph(self):
        for choice in ("python/by_library", "python/by_gathering?pieces=3", "python/by_gathering.compiled?pieces=3"):
            found, _ = self.run_ranks("right", FORCE=json.dumps({"all_reduce": choice, "all_gather": "python/gathers"}))
            for each in found:
                self.assertIn(f" {choice} ", each["explains"])

    def test_functions_race_as_they_are_alone_if_there_is_no_time_to_compile(self):
        found, _ = self.run_ranks("right", OPTIONS='{"functions_compile_budget_s": 0}')
        for each in found:
            self.assertEqual(sorted(each["choices"]), sorted(EAGER))

    def test_a_compiled_function_that_is_faster_runs_in_this_and_in_the_next_process(self):
        # Without a plugin only functions race, and all but the compiled one sleep.
        tree = Tree(without=("cotune_host.so",))
        alone = {"OPTIONS": '{"epilogues": false, "prologues": false}', "COTUNE_KEEP_UNSTEADY": "on"}
        for since in ("measured by this process", "from the database"):
            found, _ = self.run_ranks("slow", tree=tree, **alone)
            for each in found:
                self.assertEqual(each["runs"], "python/slow.compiled", each["times"])
                self.assertLess(each["times"]["python/slow.compiled"], each["times"]["python/slow"] / 2)
                self.assertEqual(each["sleeps"], 0, "the model runs what was compiled")
                self.assertRegex(each["explains"], rf"python/slow\.compiled .* {since}")

    def test_a_size_that_is_measured_again_has_compiled_functions(self):
        # Without a plugin only functions race. The first process leaves a size whose times vary too much.
        tree = Tree(without=("cotune_host.so",))
        alone = {"OPTIONS": '{"epilogues": false, "prologues": false}'}
        found, _ = self.run_ranks("erratic", tree=tree, **alone)
        self.assertEqual((found[0]["unsteady"], found[0]["not_raced"]), (True, []))
        found, _ = self.run_ranks("erratic", tree=tree, ERRATIC="no", **alone)
        for each in found:
            self.assertGreater(each["naps"], 20, "this process has measured it again; the model has called it 4 times")
        self.assertIn(found[0]["choices"]["python/erratic.compiled"][0], function_cases.RACED, found[0]["choices"])

    def test_functions_that_are_new_since_a_size_was_measured_race_compiled(self):
        tree = Tree()
        found, _ = self.run_ranks("absent", tree=tree, COTUNE_KEEP_UNSTEADY="on")
        self.assertEqual((found[0]["unsteady"], found[0]["not_raced"], found[0]["choices"]), (False, [], {}))
        found, _ = self.run_ranks("right", tree=tree, COTUNE_KEEP_UNSTEADY="on")
        for name in COMPILED:
            self.assertIn(found[0]["choices"][name][0], function_cases.RACED, name)

    def test_a_function_that_one_rank_cannot_compile_races_as_it_is(self):
        self.run_case("declared_uncompiled")

    def test_a_function_with_a_fault_on_one_rank_is_left_out_on_all(self):
        found, _ = self.run_case("declared_faulty")
        for each in found:
            self.assertGreater(len(each["groups"]), 1, "a new process group after each failure")

    def test_ranks_with_other_functions_run_without_them(self):
        _, ended = self.run_case("declared_differs")
        self.assertRegex(ended.err, r"the functions of the caller \(python\) are left out: rank 0 has 'python .*', rank 1 has 'python ")


if __name__ == "__main__":
    unittest.main()
