"""The runner of the GPU tests on a machine without a GPU: the same programs on host memory, programs that misbehave, and
what it makes of them."""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

sys.path.insert(0, "tests/gpu")

import cli_steps
import fault_steps
import forced_steps
import kernel_fault_steps
import program_steps
import runner
import step_types
import steps as gpu_steps
from rank_processes import RankEnd, rank_environment

TREE_FILES = {
    "cli/cotune": "bin/cotune",
    "integration/capi/libcotune.so.0": "lib/libcotune.so.0",
    "plugins/host/cotune_host.so": "lib/cotune/plugins/cotune_host.so",
    "plugins/ucx/cotune_ucx.so": "lib/cotune/plugins/cotune_ucx.so",
    "plugins/fake/cotune_fake.so": "fake/cotune_fake.so",
    "tests/gpu/rank": "tests/gpu/rank",
    "tests/gpu/calls": "tests/gpu/calls",
    "tests/gpu/run": "tests/gpu/run",
    "tests/gpu/runner.py": "tests/gpu/runner.py",
    "tests/gpu/cli_steps.py": "tests/gpu/cli_steps.py",
    "tests/gpu/fault_steps.py": "tests/gpu/fault_steps.py",
    "tests/gpu/forced_steps.py": "tests/gpu/forced_steps.py",
    "tests/gpu/kernel_fault_steps.py": "tests/gpu/kernel_fault_steps.py",
    "tests/gpu/memory_steps.py": "tests/gpu/memory_steps.py",
    "tests/gpu/program_steps.py": "tests/gpu/program_steps.py",
    "tests/gpu/step_types.py": "tests/gpu/step_types.py",
    "tests/gpu/steps.py": "tests/gpu/steps.py",
    "tests/gpu/rank_processes.py": "tests/gpu/rank_processes.py",
    "tests/gpu/machine.py": "tests/gpu/machine.py",
}
SUMMARY = "summary rank={} calls={} wrong={} choices host=3"


class TreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cotune.")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.work = self.root / "work"
        self.work.mkdir()
        for source, name in TREE_FILES.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)
            path.chmod(0o755)  # nobody else may write to a plugin
        shutil.copytree("examples/programs", self.root / "examples/programs")

    def tree(self) -> step_types.Tree:
        return step_types.Tree(self.root, self.work, "host", quick=True)

    def run_command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run([self.root / "tests/gpu/run", *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, "HOME": str(self.root), **environment})

    def run_rank(self, *arguments: str, limit_s: float = 60) -> step_types.Outcome:
        step = step_types.rank_step(self.tree(), "a case", "values", 2, limit_s, "rank", list(arguments), ("host",))
        return step.run(step)

    def run_with_fake(self, word: str) -> step_types.Outcome:
        """A case over the backend that misbehaves as it is told."""
        tree = step_types.Tree(self.root, self.work, "host")
        shutil.copy(self.root / "fake/cotune_fake.so", self.root / "lib/cotune/plugins/cotune_fake.so")
        step = step_types.rank_step(
            tree, "a case", "values", 2, 60, "rank",
            ["values", "--collectives", "all_reduce", "--dtypes", "f32", "--reductions", "sum", "--counts", "100",
             "--patterns", "exact", "--deadline-ms", "1000", "--set", f"fake.script=choice only default {word}"],
            ("fake",))
        return step.run(step)

    def test_all_steps_pass_on_host_memory(self):
        report = self.root / "report.json"
        done = self.run_command("--memory", "host", "--ranks", "2", "--quick", "--report", str(report))
        self.assertEqual(done.returncode, runner.ALL_PASSED, done.stdout + done.stderr)
        content = json.loads(report.read_text())
        listed = self.run_command("--memory", "host", "--ranks", "2", "--list").stdout.splitlines()
        self.assertGreater(len(content["steps"]), 20)
        self.assertLessEqual(len(content["steps"]), len(listed))
        self.assertEqual(done.stdout.splitlines()[-1], f"{len(content['steps'])} passed, 0 failed")
        self.assertTrue(all(step["ok"] for step in content["steps"]))
        self.assertEqual({step["part"] for step in content["steps"]}, set(runner.PARTS))
        self.assertIn("cotune", content["machine"]["cotune"])

    def test_four_gpus_are_tested_in_all_numbers_and_groups(self):
        tree = step_types.Tree(self.root, self.work, "cuda")
        names = [runner.label(step) for step in gpu_steps.all_steps(tree, 4)]
        for part in ("values: moves (4 ranks)", "values: moves (3 ranks)", "values: moves (2 ranks)",
                     "groups 0,2/1,3 (4 ranks)", "average by NCCL's choices (3 ranks)", "graph of all collectives, cuda",
                     "rank 3 by SIGSTOP in a graph, cuda", "mismatch: rank 3 calls with another dtype, cuda (4 ranks)",
                     "mismatch: rank 0 calls with another count, nccl (4 ranks)",
                     "mismatch: rank 3 calls with another reduction, calls compared, nccl (4 ranks)",
                     "C API: chain, calls compared, nccl (4 ranks)",
                     "C API: all_to_all between plain and registered buffers, captured, nccl (4 ranks)", "rank 0 by SIGKILL, nccl",
                     "programs: every choice of random ones (4 ranks)", "programs: C API, in one graph, nccl (2 ranks)",
                     "cotune tune --program add_residual_norm.cotune (4 ranks)",
                     "rank 3 by SIGSTOP in a graph in calls of a program, cuda",
                     "mismatch: rank 3 calls with another program, calls compared, nccl (4 ranks)",
                     "50 calls queued, cuda by copy_engine_segments (4 ranks)",
                     "late: rank 3 by 1.5 deadlines, cuda by copy_engine_broadcast (4 ranks)",
                     "50 calls queued, in a graph, nccl by nccl_ring (4 ranks)",
                     "late: rank 3 by 1.5 deadlines, cuda by zero_copy (4 ranks)",
                     "graph: all ranks go while a captured graph lives, nccl (4 ranks)",
                     "graph: a rank goes after rank 3 has left while a captured graph lives, nccl (4 ranks)",
                     "mismatch: ranks load different tables and run by that of rank 0, cuda (4 ranks)"):
            self.assertTrue(any(part in name for name in names), f"{part}: {names}")

    def test_eight_gpus_are_tested_in_all_numbers_and_as_two_groups_of_four(self):
        tree = step_types.Tree(self.root, self.work, "cuda")
        names = [runner.label(step) for step in gpu_steps.all_steps(tree, 8)]
        for part in ("values: moves (7 ranks)", "values: moves (6 ranks)", "values: moves (5 ranks)",
                     "values: moves (3 ranks)", "groups 0,1,2,3/4,5,6,7 (8 ranks)", "groups 0,2,4,6/1,3,5,7 (8 ranks)"):
            self.assertTrue(any(part in name for name in names), f"{part}: {names}")

    def test_more_ranks_than_gpus_use_own_kernels_on_gpus_in_turns(self):
        tree = step_types.Tree(self.root, self.work, "cuda", shared_gpus=2)
        self.assertEqual(tree.backends, ("cuda",))
        steps = gpu_steps.all_steps(tree, 4)
        self.assertNotIn("cli", {step.part for step in steps})
        self.assertFalse([step.name for step in steps if "nccl" in step.name.lower()])
        with unittest.mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "3,5"}):
            seen = [rank_environment(rank, 4, "job", tree.shared_gpus) for rank in range(4)]
        self.assertEqual([each["CUDA_VISIBLE_DEVICES"] for each in seen], ["3", "5", "3", "5"])
        self.assertEqual({each["COTUNE_SHARED_GPUS"] for each in seen}, {"1"})
        self.assertNotIn("COTUNE_SHARED_GPUS", rank_environment(0, 4, "job"))
        for arguments in (("--share-gpus",), ("--share-gpus", "--ranks", "4", "--memory", "host")):
            self.assertEqual(self.run_command(*arguments).returncode, 2)

    def test_calls_that_differ_are_found_where_calls_are_compared(self):
        # On host memory two ranks that both take themselves for the root of a broadcast only send.
        for what in ("count", "collective", "dtype", "reduction"):
            step = fault_steps.mismatch_step(self.tree(), what, 1, 2, "host", checks_calls=True)
            self.assertIn("calls compared", step.name)
            outcome = step.run(step)
            self.assertTrue(outcome.ok, outcome.text)

    def test_a_choice_is_forced_and_one_that_does_not_run_is_found(self):
        tree = self.tree()
        databases = forced_steps.Databases(tree, 2)
        right = forced_steps.forced(databases, forced_steps.kinds(tree, 2)[0])
        self.assertIn("host/ring", databases.choice("ring"))
        self.assertIn("host/one_shot", databases.choice("second"))
        with self.assertRaisesRegex(RuntimeError, "no choice is forced for third"):
            databases.choice("third")
        other = fault_steps.Forced("ring", right.arguments, {"COTUNE_DATABASE": str(databases.path("second"))})
        none = fault_steps.Forced("ring", right.arguments, {"COTUNE_DATABASE": str(databases.path("third"))})
        for choice, why in ((right, ""), (other, "another choice runs"), (none, "the group has no table")):
            step = fault_steps.late_step(tree, 0.5, 1, 2, "host", False, choice=choice)
            outcome = step.run(step)
            self.assertEqual(outcome.ok, not why, outcome.text)
            self.assertIn(why, outcome.text)

    def test_a_choice_of_a_backend_that_runs_without_the_others_is_forced(self):
        # `host` runs parts of programs there, and what was measured with it as a whole does not hold.
        try:
            ctypes.CDLL("libucp.so.0")
        except OSError as error:
            self.skipTest(f"there is no UCX: {error}")
        kinds = [forced_steps.Kind("ring", "host/ring?"), forced_steps.Kind("other", "ucx/")]
        with unittest.mock.patch.object(forced_steps, "kinds", lambda _tree, _ranks: kinds):
            databases = forced_steps.Databases(self.tree(), 2)
            for kind in kinds:
                step = fault_steps.late_step(self.tree(), 0.5, 1, 2, kind.backend, False,
                                             choice=forced_steps.forced(databases, kind))
                outcome = step.run(step)
                self.assertTrue(outcome.ok, outcome.text)

    def test_the_variables_of_a_step_reach_its_ranks(self):
        step = step_types.rank_step(self.tree(), "a case", "calls", 2, 60, "calls", ["chain"], ("host",),
                                   variables={"COTUNE_CHECK_CALLS": "perhaps"})
        outcome = step.run(step)
        self.assertFalse(outcome.ok)
        self.assertIn("check_calls", outcome.text)

    def test_groups_of_some_ranks_run_at_once(self):
        done = self.run_command("--memory", "host", "--ranks", "4", "--quick", "--only", r"sequence: groups .*4 ranks")
        self.assertEqual(done.returncode, runner.ALL_PASSED, done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "3 passed, 0 failed")

    def test_without_a_gpu_nothing_runs_and_the_code_says_so(self):
        done = self.run_command(CUDA_VISIBLE_DEVICES="")
        self.assertEqual(done.returncode, runner.NO_GPU)
        self.assertIn("no test was run", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_no_step_is_a_failure(self):
        self.assertEqual(self.run_command("--memory", "host", "--only", "no such step").returncode, runner.SOME_FAILED)

    def test_an_unknown_part_is_a_usage_error(self):
        self.assertEqual(self.run_command("--part", "vlaues").returncode, 2)

    def test_a_well_behaved_backend_passes(self):
        outcome = self.run_with_fake("")
        self.assertTrue(outcome.ok, outcome.text)

    def test_a_wrong_element_of_one_rank_is_found(self):
        outcome = self.run_with_fake("wrong_on=1")
        self.assertFalse(outcome.ok)
        self.assertRegex(outcome.text, r"rank 1: \d+ of \d+ calls are wrong")
        self.assertIn("element 99 is", outcome.text)

    def test_a_wrong_element_through_the_c_api_is_found(self):
        shutil.copy(self.root / "fake/cotune_fake.so", self.root / "lib/cotune/plugins/cotune_fake.so")
        config = self.root / "config.toml"
        config.write_text('[fake]\nscript = "choice only default wrong_on=0"\n')
        tree = step_types.Tree(self.root, self.work, "host")
        with unittest.mock.patch.dict(os.environ, {"COTUNE_CONFIG": str(config)}):
            for case in ("chain", "streams"):
                step = step_types.rank_step(tree, "a case", "calls", 2, 60, "calls", [case], ("fake",))
                outcome = step.run(step)
                self.assertFalse(outcome.ok)
                self.assertRegex(outcome.text, r"rank 0: \d+ of \d+ calls are wrong")

    def test_calls_that_another_backend_runs_fail_a_step_of_the_c_api(self):
        """The step is about the first backend, which refuses all calls."""
        shutil.copy(self.root / "fake/cotune_fake.so", self.root / "lib/cotune/plugins/cotune_fake.so")
        config = self.root / "config.toml"
        config.write_text('[fake]\nscript = "refuse_all not today; choice only default"\n')
        tree = step_types.Tree(self.root, self.work, "host")
        arguments = {"chain": ["--replays", "1"], "programs": ["--seeds", "1", "--rows", "7", "--tune", "0"]}
        with unittest.mock.patch.dict(os.environ, {"COTUNE_CONFIG": str(config)}):
            for case, more in arguments.items():
                for order, is_right in ((("host", "fake"), True), (("fake", "host"), False)):
                    step = step_types.rank_step(tree, "a case", "calls", 2, 60, "calls", [case, *more], order)
                    outcome = step.run(step)
                    self.assertEqual(outcome.ok, is_right, outcome.text)
                self.assertIn("ran no choice of fake", outcome.text)

    def test_a_wrong_part_of_a_program_is_found(self):
        shutil.copy(self.root / "fake/cotune_fake.so", self.root / "lib/cotune/plugins/cotune_fake.so")
        tree = step_types.Tree(self.root, self.work, "host")
        for word, is_right in (("", True), ("wrong_on=1", False)):
            step = step_types.rank_step(
                tree, "a case", "programs", 2, 60, "rank",
                ["programs", "--seeds", "1-2", "--set", f"fake.script=choice only default; parts {word}"], ("fake",))
            outcome = step.run(step)
            self.assertEqual(outcome.ok, is_right, outcome.text)
        self.assertRegex(outcome.text, r"rank \d: random program \d of \d rows by fake/only, plain call: output \d: "
                         r"\d+ of \d+ elements are wrong, the first in row \d")

    def test_a_byte_behind_the_buffer_is_found(self):
        outcome = self.run_with_fake("overruns_on=0")
        self.assertFalse(outcome.ok)
        self.assertIn("of the receive buffer has changed", outcome.text)

    def test_a_rank_that_takes_no_part_is_found(self):
        self.assertFalse(self.run_with_fake("hangs_on=1").ok)

    def test_a_rank_that_does_not_end_is_killed_at_the_limit(self):
        (self.root / "tests/gpu/rank").write_text("#!/bin/sh\necho begun\nexec sleep 600\n")
        began = time.monotonic()
        outcome = self.run_rank("values", limit_s=0.5)
        self.assertLess(time.monotonic() - began, 60)
        self.assertFalse(outcome.ok)
        self.assertIn("had not ended at the limit", outcome.text)
        self.assertIn("begun", outcome.text)

    def test_a_backend_that_is_not_there_fails_the_step(self):
        (self.root / "lib/cotune/plugins/cotune_host.so").unlink()
        self.assertFalse(self.run_rank("values").ok)

    def test_steps_go_on_after_one_that_fails_or_breaks(self):
        def broken(_step):
            raise ValueError("a mistake")

        steps = [
            step_types.Step("breaks", "values", 2, 1, broken),
            step_types.Step("fails", "values", 2, 1, lambda _: step_types.Outcome(False, "why")),
            step_types.Step("passes", "values", 2, 1, lambda _: step_types.Outcome(True, "")),
        ]
        path = self.root / "report.json"
        report = runner.Report(path, {})
        self.assertEqual(runner.run_all(steps, report, float("inf"), 1), runner.SOME_FAILED)
        content = json.loads(path.read_text())
        self.assertEqual([step["ok"] for step in content["steps"]], [False, False, True])
        self.assertEqual(content["steps"][0]["output"], "ValueError: a mistake")
        self.assertEqual((content["passed"], content["failed"]), (1, 2))

    def test_steps_run_at_the_same_time_and_those_of_the_command_line_alone(self):
        running, most = [], {"cli": 0, "values": 0}
        both = threading.Barrier(2, timeout=30)

        def note(step: step_types.Step) -> step_types.Outcome:
            running.append(step)
            if step.part == "values":
                both.wait()  # breaks unless two steps are here at the same time
            most[step.part] = max(most[step.part], len(running))
            running.remove(step)
            return step_types.Outcome(True, "")

        steps = [step_types.Step(f"{part} {number}", part, 2, 1, note)
                 for number in range(2) for part in ("values", "cli")]
        report = runner.Report(None, {})
        self.assertEqual(runner.run_all(steps, report, float("inf"), 2), runner.ALL_PASSED, report.content)
        self.assertEqual([step["part"] for step in report.content["steps"]], ["cli", "cli", "values", "values"])
        self.assertEqual(most["cli"], 1)

    def test_steps_after_the_time_are_failures(self):
        report = runner.Report(None, {})
        step = step_types.Step("passes", "values", 2, 1, lambda _: step_types.Outcome(True, ""))
        self.assertEqual(runner.run_all([step], report, 0, 1), runner.SOME_FAILED)
        self.assertIn("not run", report.content["steps"][0]["output"])


class JudgeTest(unittest.TestCase):
    def ends(self, *texts: str) -> list[RankEnd]:
        return [RankEnd(0, text) for text in texts]

    def test_all_ranks_have_to_say_that_they_compared_the_same(self):
        good = SUMMARY.format(0, 5, 0), SUMMARY.format(1, 5, 0)
        self.assertEqual(step_types.judge(self.ends(*good), ("host",)), "")
        self.assertIn("no summary", step_types.judge(self.ends(good[0], ""), ("host",)))
        self.assertIn("compared", step_types.judge(self.ends(good[0], SUMMARY.format(1, 6, 0)), ("host",)))
        self.assertIn("compared", step_types.judge(self.ends(SUMMARY.format(0, 0, 0)), ("host",)))
        self.assertIn("are wrong", step_types.judge(self.ends(SUMMARY.format(0, 5, 1)), ("host",)))
        self.assertIn("no choice of cuda", step_types.judge(self.ends(*good), ("host", "cuda")))

    def test_fused_choices_have_to_run(self):
        examples = [pathlib.Path("tp_linear.cotune"), pathlib.Path("moe_dispatch.cotune"), pathlib.Path("add_residual_norm.cotune")]
        leaves, rows = "cuda/one_shot_leaves cuda/two_shot_leaves", "cuda/one_shot_rows"
        tree = step_types.Tree(pathlib.Path("/"), pathlib.Path("/"), "cuda")

        def judged(linear: str, norm: str, ranks: int = 2) -> str:
            good = f"program tp_linear.cotune: fused by {leaves}\nprogram moe_dispatch.cotune: fused by \n" \
                   f"program add_residual_norm.cotune: fused by {leaves} cuda/one_shot_rows cuda/two_shot_rows " \
                   "cuda/two_shot_split_rows\n"
            last = f"program tp_linear.cotune: fused by {linear}\nprogram moe_dispatch.cotune: fused by \n" \
                   f"program add_residual_norm.cotune: fused by {norm}\n"
            return program_steps.judge_fused(tree, examples)(self.ends(*[good] * (ranks - 1), last))

        self.assertEqual(judged(leaves, f"{leaves} {rows}"), "")
        self.assertIn("rank 1: tp_linear.cotune: no choice of cuda/one_shot_leaves, cuda/two_shot_leaves ran",
                      judged("", f"{leaves} {rows}"))
        self.assertIn("no choice of cuda/two_shot_leaves ran", judged("cuda/one_shot_leaves", f"{leaves} {rows}"))
        self.assertIn("rank 1: add_residual_norm.cotune: no choice of cuda/one_shot_rows ran", judged(leaves, leaves))
        self.assertIn("rank 2: add_residual_norm.cotune: no choice of cuda/two_shot_rows, cuda/two_shot_split_rows ran",
                      judged(leaves, f"{leaves} {rows}", 3))
        self.assertIn("rank 0 ran no choice of tp_linear.cotune",
                      program_steps.judge_fused(tree, examples)(self.ends("", "")))

    def test_a_tune_has_to_time_fused_choices(self):
        def entry(choice: str, time_us: float | None) -> dict:
            return {"choices": [{"choice": choice, "time_us": time_us}]}

        entries = [entry("cuda/one_shot_leaves?threads=512&fuse=1", 2.0), entry("cuda/one_shot?threads=512", 1.0),
                   entry("cuda/two_shot_leaves?threads=512&fuse=1", None), entry("host/ring?fuse=1+host/direct?chunk=4", 3.0)]
        self.assertEqual(program_steps.fused_of_tune(entries), {"cuda/one_shot_leaves", "host/ring"})
        self.assertIn("no choice of cuda/two_shot_leaves ran",
                      program_steps.missing_fused("cuda", 2, "tp_linear.cotune", {"cuda/one_shot_leaves"}))

    def test_every_example_has_an_expectation_on_host_memory(self):
        names = {path.name for path in pathlib.Path("examples/programs").glob("*.cotune")}
        self.assertEqual(set(program_steps.FUSED["host"]), names)
        self.assertLess(set(program_steps.FUSED["cuda"]), names)

    def test_a_list_of_faults_that_lacks_some_is_found(self):
        faults = [{"name": str(number), "ranks_min": 2 if number < 13 else 3} for number in range(16)]
        self.assertEqual(len(kernel_fault_steps.faults_for(faults, 2)), 13)
        self.assertEqual(len(kernel_fault_steps.faults_for(faults, 4)), 16)
        for ranks, some in ((2, faults[1:]), (3, faults[:-1]), (2, [])):
            with self.assertRaisesRegex(ValueError, f"for {ranks} ranks, not"):
                kernel_fault_steps.faults_for(some, ranks)

    def test_a_command_over_its_limit_ends_with_all_of_its_processes(self):
        step = step_types.Step("a command", "cli", 1, 0.5, lambda _: step_types.Outcome(True, ""))
        # The child has the pipe, and does not end with its parent.
        code, out, _ = cli_steps.run_limited(["sh", "-c", "echo begun; sleep 600 & wait"], step)
        self.assertIsNone(code)
        self.assertEqual(out, "begun\n")

    def test_who_is_lost_has_to_be_named_in_time(self):
        victim = RankEnd(-9, "gone at_ns=1000000000 \n")
        def judged(text: str, code: int = 5) -> str:
            return fault_steps.judge_fault([RankEnd(code, text), victim], 1, 2)

        self.assertEqual(judged("knew at_ns=4000000000 job rank 1 died\n"), "")
        self.assertIn("not within", judged("knew at_ns=6000000000 job rank 1 died\n"))
        self.assertIn("rank 0 had an error 0.5 s before rank 1 was lost", judged("knew at_ns=500000000 job rank 1 died\n"))
        self.assertIn("does not name", judged("knew at_ns=4000000000 job rank 10 died\n"))
        self.assertIn("no error", judged(""))
        self.assertIn("ended with 0", judged("knew at_ns=4000000000 rank 1 died\n", 0))
        self.assertIn("as far as", fault_steps.judge_fault([RankEnd(5, ""), RankEnd(1, "")], 1, 2))

    def test_a_group_goes_in_time_while_a_graph_lives(self):
        def end(left: str = "left at_ns=3000000000 \n", replayed: str = "replayed at_ns=4000000000 \n",
                warning: str = "group 'job' ended while a CUDA graph with calls of it lives\n", code: int = 0) -> RankEnd:
            return RankEnd(code, f"leaving at_ns=1000000000 \n{warning}{left}{replayed}")

        def judged(*ends: RankEnd, left: int = -1) -> str:
            return fault_steps.judge_graph_end(ends, left)

        gone = RankEnd(0, "gone at_ns=1 \n")
        self.assertEqual(judged(end(), end()), "")
        self.assertEqual(judged(end(), gone, left=1), "")
        self.assertIn("rank 1 did not get as far as to go", judged(end(), RankEnd(1, ""), left=1))
        self.assertIn("rank 1 did not get as far as to end", judged(end(), gone))
        self.assertIn("the group of rank 0 does not end", judged(end(left="", replayed="", code=-9), end()))
        self.assertIn("took 6.0 s", judged(end("left at_ns=7000000000 \n"), end()))
        self.assertIn("a replay of rank 1 does not end", judged(end(), end(replayed="")))
        self.assertIn("rank 0 gives no warning", judged(end(warning=""), end()))
        self.assertIn("rank 1 ended with -11", judged(end(), end(code=-11)))

    def test_calls_that_do_not_fit_have_to_end_in_time_and_with_an_error(self):
        def end(outcome: str = "6000000000 error late", code: int = 5, after: str = "right") -> RankEnd:
            return RankEnd(code, f"called at_ns=2000000000 x\noutcome at_ns={outcome}\nafter at_ns=1 {after}\n")

        def judged(*ends: RankEnd, wanted: str = "error") -> str:
            return fault_steps.judge_mismatch(ends, 3, wanted)

        fine = end("2100000000 fine", 0)
        named = end("2100000000 error rank 1 called a where rank 0 called b")
        self.assertEqual(judged(named, named), "")
        self.assertEqual(judged(end(), fine, wanted="any"), "")
        self.assertEqual(judged(fine, fine, wanted="any"), "")
        self.assertEqual(judged(fine, fine, wanted="fine"), "")
        self.assertIn("rank 1 has an error", judged(fine, named, wanted="fine"))
        self.assertIn("rank 1 has no error", judged(named, fine))
        self.assertIn("rank 1 does not name the calls", judged(named, end()))
        self.assertIn("not within 6 s", judged(named, end("8100000000 error late")))
        self.assertIn("has no error, and waited", judged(named, end("5100000000 fine", 0)))
        self.assertIn("rank 1 ended with 0", judged(named, end(code=0)))
        self.assertIn("rank 0 ended with 5", judged(end("2100000000 fine"), end()))
        self.assertIn("rank 0 ended with None", judged(end(code=None), end()))
        self.assertIn("rank 1 could not work in a new group", judged(named, end(after="wrong")))
        self.assertIn("rank 1 has no outcome", judged(named, RankEnd(5, "called at_ns=2000000000 x\n")))
        self.assertIn("rank 0 did not get as far", judged(RankEnd(1, ""), end()))

    def test_calls_of_a_late_rank_are_right_or_errors(self):
        def end(ended: str, code: int = 5, began: int = 1_000_000_000) -> RankEnd:
            return RankEnd(code, f"began at_ns={began} \nended at_ns={ended}\n")

        def judged(delay_s: float, *ends: RankEnd) -> str:
            return fault_steps.judge_late(ends, 1, 1.0, delay_s)

        fine = end("1600000000 fine", 0)
        waited, late = end("2100000000 error rank 1 is late"), end("2600000000 error rank 1 (this rank) is late")
        self.assertEqual(judged(0.5, fine, fine), "")
        self.assertEqual(judged(1.5, waited, late), "")
        self.assertIn("rank 0 has an error", judged(0.5, waited, fine))
        self.assertIn("rank 1 has no error", judged(1.5, waited, end("2600000000 fine", 0)))
        self.assertIn("rank 0 has no error, or ended with 0", judged(1.5, end("2100000000 error rank 1", 0), late))
        self.assertIn("rank 0 does not name rank 1", judged(1.5, end("2100000000 error rank 10"), late))
        self.assertIn("rank 0 waited for 3.0 s", judged(1.5, end("4000000000 error rank 1"), late))
        self.assertIn("did not get to the end", judged(0.5, fine, RankEnd(1, "began at_ns=1 \n")))
        self.assertIn("wrong data", judged(0.5, fine, RankEnd(0, fine.output + "wrong: rank 1: x\n")))

    def test_a_forced_choice_has_to_run(self):
        choice = fault_steps.Forced("ring", list, {})
        good = RankEnd(5, "forced host/ring\n")
        self.assertEqual(choice.judge([good, good]), "")
        self.assertIn("rank 1 did not get as far", choice.judge([good, RankEnd(1, "")]))
        warned = RankEnd(5, good.output + "calls of all_reduce run the default choice: the table has other calls\n")
        self.assertIn("rank 0 did not run by ring", choice.judge([warned, good]))

    def test_a_dropped_choice_and_multicast_are_failures(self):
        tree = step_types.Tree(pathlib.Path("/"), pathlib.Path("/"), "host")
        choice = {"choice": "host/ring", "outcome": "timed", "wrong": 0, "reason": ""}
        entry = {"collective": "all_reduce", "dtype": "f32", "reduction": "sum", "bytes": 4, "choices": [choice]}
        self.assertEqual(cli_steps.judge_entries(tree, [entry]), "")
        for change, why in (({"outcome": "deadline"}, "dropped"), ({"wrong": 1}, "dropped"),
                            ({"choice": "host/nvls"}, "multicast"), ({"choice": "nccl/ring"}, "no choice of host")):
            changed = {**entry, "choices": [{**choice, **change}]}
            self.assertIn(why, cli_steps.judge_entries(tree, [changed]))


if __name__ == "__main__":
    unittest.main()
