"""Python functions as choices of custom operators that nobody has declared, on real ranks."""

import json
import unittest

import function_cases
from testing.torchrun import Tree

# Each rank compiles its graphs, and takes none from the cache that another rank has put there in the same run.
NO_GRAPH_CACHE = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
ONCE, REPEATED = "python/once", "python/repeated?times=12"


class UndeclaredTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Compiling is not what most tests are about, and takes most of their time.
        cls.inductor = Tree().inductor

    def run_ranks(self, case: str, ranks: int = 2, tree: Tree | None = None, **environment: str):
        ended = (tree or Tree(inductor=self.inductor)).start(ranks, "undeclared_ranks.py", case, **environment)
        self.assertEqual(ended.exit_code, 0, ended.text)
        found = sorted(map(json.loads, ended.out.splitlines()), key=lambda each: each["rank"])
        self.assertEqual([each["rank"] for each in found], list(range(ranks)), ended.text)
        self.assertEqual([each["error"] for each in found], [""] * ranks)
        return found

    def run_case(self, name: str, ranks: int = 2, tree: Tree | None = None, **environment: str):
        found = self.run_ranks(function_cases.CASES[name].argument, ranks, tree, **environment)
        self.assertEqual([function_cases.errors(name, each) for each in found], [""] * ranks)
        return found

    def test_a_function_that_does_less_work_than_the_body_runs_at_each_shape(self):
        for each in self.run_case("faster", ranks=4, **NO_GRAPH_CACHE):
            self.check_faster(each)

    def check_faster(self, each: dict):
        self.assertNotIn("not declared", each["explains"])
        self.assertNotIn("0", each["groups"], "functions run in a process group of their own")
        self.assertEqual(each["timeout_s"], 300, "which has the timeout of the user's")
        self.assertGreater(each["runs"], 12, "it was measured")

    def test_the_next_process_takes_the_verdict_from_the_file_unless_the_function_has_changed(self):
        tree = Tree(inductor=self.inductor)
        for each in self.run_case("faster", tree=tree, **NO_GRAPH_CACHE):
            self.check_faster(each)
        for each in self.run_ranks("faster", tree=tree, **NO_GRAPH_CACHE):
            self.assertIn("runs python/once, from the verdict file", each["explains"])
            self.assertEqual(each["runs"], 8, "the function has run in 4 calls of the model, and twice in the check of each shape")
        for each in self.run_ranks("faster", tree=tree, HELPER_ADDS="1", **NO_GRAPH_CACHE):
            self.assertRegex(each["explains"], "runs its body: python/once was dropped: .* values are wrong")

    def test_a_function_with_a_fault_is_dropped_on_all_ranks(self):
        self.run_case("faulty")

    def test_a_compiled_function_that_is_faster_runs_with_its_options_in_this_and_in_the_next_process(self):
        tree = Tree(inductor=self.inductor)
        for run in range(2):
            for each in self.run_case("compiled", tree=tree, **NO_GRAPH_CACHE):
                self.assertEqual(each["sleeps"], 0, "the model runs what was compiled")
                self.assertEqual("from the verdict file" in each["explains"], run == 1)
                self.assertEqual(each["compilations"], 4 - 2 * run, "the next process compiles the winner of each shape alone")
                if run == 0:
                    self.assertEqual((each["asserted"], each["not_asserted"]), (1, 1), "one graph of each form fits both shapes")

    def test_a_failure_to_compile_on_one_rank_is_kept(self):
        tree = Tree(inductor=self.inductor)
        for run in range(2):
            for each in self.run_case("uncompiled", tree=tree):
                self.assertEqual("from the verdict file" in each["explains"], run == 1)
                self.assertEqual(each["compilations"], 4 - 4 * run, "no function is compiled again")

    def test_functions_race_as_they_are_alone_if_there_is_no_time_to_compile(self):
        for each in self.run_ranks("compiled", OPTIONS='{"functions_compile_budget_s": 0}'):
            self.assertNotIn("compiled", each["explains"].replace("compiled graphs", "").replace("compiled in this", ""))
            self.assertIn("python/lazy: ", each["explains"])
            self.assertEqual(each["compilations"], 0)

    def test_operands_in_another_layout_have_a_verdict_of_their_own(self):
        self.run_case("transposed")

    def test_a_threshold_that_no_function_reaches_keeps_the_body(self):
        for each in self.run_ranks("faster", THRESHOLD="1000"):
            self.assertRegex(each["explains"], r"float32\[4, 16\].*: runs its body\n")
            self.assertIn(f"{ONCE}: ", each["explains"])

    def test_settings_that_allow_no_function_keep_the_body(self):
        for options, reason in (('{"numerics": "same"}', "numerics is not any"), ('{"tunes": false}', "tunes is off")):
            for each in self.run_ranks("faster", OPTIONS=options):
                self.assertRegex(each["explains"], f"runs its body: {reason}")
                self.assertEqual(each["runs"], 0)

    def test_a_forced_choice_runs_without_a_race(self):
        for case, choice, text in (
            ("faster", REPEATED, r"runs python/repeated\?times=12, forced"),
            ("faster", "body", "runs its body, forced"),
            ("compiled", function_cases.PATCHED, r"runs python/lazy\.compiled\?size_asserts=false, forced"),
            ("uncompiled", "python/untraceable.compiled", "runs its body: python/untraceable.compiled was not compiled: rank 0: "),
        ):
            for each in self.run_ranks(case, OPTIONS=json.dumps({"force": {"undeclared::linear": choice}})):
                self.assertRegex(each["explains"], text)
                self.assertNotIn(" us\n", each["explains"])

    def test_the_variable_forces_a_choice_beside_those_of_collectives(self):
        forced = f"undeclared::linear={REPEATED},all_reduce=host/ring?chunk=65536"
        for each in self.run_ranks("faster", COTUNE_FORCE=forced, COLLECTIVE="all_reduce"):
            self.assertRegex(each["explains"], r"runs python/repeated\?times=12, forced")
            self.assertRegex(each["explains"], r"host/ring\?chunk=65536 .*forced, whatever was measured")

    def test_ranks_with_other_functions_run_the_body(self):
        for each in self.run_ranks("differs"):
            self.assertIn("runs its body: rank 1 of the process group has registered other functions", each["explains"])
            self.assertEqual(each["runs"], 0)

    def test_a_rank_that_does_not_come_to_the_meeting_keeps_the_body_of_the_others(self):
        found = self.run_ranks("late")
        self.assertRegex(found[0]["explains"], "runs its body: .*has not called undeclared::linear with the same shapes .*: rank 1")

    def test_operands_that_the_body_rejects_come_from_functions_of_the_user(self):
        for each in self.run_ranks("indices"):
            self.assertRegex(each["explains"], "runs its body: rank [01] could not run .*IndexError.*; if it rejects .*input_gen_fns")
        for each in self.run_ranks("indices", GENERATES="yes"):
            self.assertIn("runs python/pick_once", each["explains"])

    def test_an_operator_whose_result_has_a_size_that_depends_on_data_runs_its_body(self):
        for each in self.run_ranks("sizes"):
            self.assertRegex(each["explains"], "runs its body: rank [01] could not infer the layout .*no sizes that depend on data")
            self.assertEqual(each["runs"], 0)

    def test_a_result_has_the_layout_of_the_operator(self):
        self.run_case("permutes")


if __name__ == "__main__":
    unittest.main()
