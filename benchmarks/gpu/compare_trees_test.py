"""The comparison of two trees: on host memory, and what it makes of numbers."""

import pathlib
import re
import shutil
import sys
import unittest

sys.path.insert(0, "benchmarks/gpu")

import bench_runner_test
import compare_trees


def measured(times_us: dict[tuple[str, int], list[float]]) -> list[dict]:
    return [
        {"contender": "cotune", "collective": collective, "bytes": size, "run": run, "time_us": time_us}
        for (collective, size), each in times_us.items()
        for run, time_us in enumerate(each, 1)
    ]


class JudgeTest(unittest.TestCase):
    def judged(self, before: dict, after: dict) -> list[str]:
        return compare_trees.judge(compare_trees.ratios_of(measured(before), measured(after)))

    def test_a_cell_that_is_slower_twice_counts(self):
        before = {("all_reduce", 1024 << i): [2.0, 2.0, 2.0] for i in range(20)}
        self.assertEqual(self.judged(before, before), [])
        once = {**before, ("all_reduce", 1024): [2.2, 2.0, 2.0]}
        self.assertEqual(self.judged(before, once), [])
        twice = {**before, ("all_reduce", 1024): [2.2, 2.0, 2.2]}
        self.assertEqual(self.judged(before, twice), ["cotune all_reduce 1024: 1.100, 1.000, 1.100"])
        self.assertEqual(self.judged(twice, before), [])

    def test_all_cells_together_count(self):
        before = {("broadcast", 1024 << i): [10.0, 10.0] for i in range(5)}
        self.assertEqual(self.judged(before, {cell: [10.05, 10.05] for cell in before}), [])
        slower = self.judged(before, {cell: [10.2, 10.2] for cell in before})
        self.assertEqual(slower, ["the geometric mean over 5 cells is 1.0200"])

    def test_what_one_side_lacks_is_an_error(self):
        before = {("broadcast", 1024): [1.0, 1.0], ("broadcast", 2048): [1.0, 1.0]}
        with self.assertRaises(ValueError):
            self.judged(before, {("broadcast", 1024): [1.0, 1.0]})
        with self.assertRaises(ValueError):
            self.judged(before, {**before, ("broadcast", 2048): [1.0]})
        self.assertEqual(compare_trees.judge({}), ["nothing was measured"])


class CommandTest(bench_runner_test.TreeTest):
    def test_a_tree_is_compared_with_itself(self):
        command = [str(self.root / "benchmarks/gpu/compare"), str(self.root), str(self.root), "--out", str(self.out),
                   "--memory", "host", "--quick", "--rounds", "2", "--collectives", "all_reduce"]
        done = self.run_limited(command)
        # Times of host memory on a machine that does other work too may differ.
        self.assertIn(done.returncode, (compare_trees.SAME, compare_trees.SLOWER), done.stdout + done.stderr)
        content = self.content()
        self.assertTrue(content["complete"])
        self.assertEqual(content["compared"]["after"]["slower"] == [], done.returncode == compare_trees.SAME)
        for name in ("before", "after"):
            self.assertEqual(len(content["measurements"][name]), 4)  # two sizes, two rounds
        parts = [line.split(": ")[0].split()[-1] for line in done.stdout.splitlines() if line.startswith("ok")]
        tuned, measured_first = ["before", "after"], ["before", "after"]
        self.assertEqual(parts, [*tuned, *measured_first, *tuned, *reversed(measured_first)])
        databases = {(self.out.parent / f"{self.out.name}.work" / name / run / "tuned.tdb").read_bytes()
                     for name in ("before", "after") for run in ("1", "2")}
        self.assertEqual(len(databases), 4, "each round has a tune of its own")

    def test_several_trees_are_measured_in_turns(self):
        command = [str(self.root / "benchmarks/gpu/compare"), *[str(self.root)] * 3, "--out", str(self.out),
                   "--memory", "host", "--quick", "--rounds", "2", "--collectives", "broadcast"]
        done = self.run_limited(command)
        self.assertIn(done.returncode, (compare_trees.SAME, compare_trees.SLOWER), done.stdout + done.stderr)
        content = self.content()
        self.assertEqual(list(content["compared"]), ["after", "after2"])
        slower = [each for each in content["compared"].values() if each["slower"]]
        self.assertEqual(slower == [], done.returncode == compare_trees.SAME)
        for name, each in content["compared"].items():
            ratios = compare_trees.ratios_of(content["measurements"]["before"], content["measurements"][name])
            self.assertEqual(len(ratios), 2)
            self.assertEqual(compare_trees.judge(ratios), each["slower"])
            printed = re.search(rf"^{name} +geometric mean of 2 cells ([\d.]+); ", done.stdout, re.MULTILINE)
            self.assertAlmostEqual(float(printed.group(1)), each["geometric_mean"], delta=2e-4)
        parts = [line.split(": ")[0].split()[-1] for line in done.stdout.splitlines() if line.startswith("ok")]
        names = ["before", "after", "after2"]
        self.assertEqual(parts, [*names, *names, *names, *reversed(names)])

    def test_a_folder_that_is_no_tree_is_refused(self):
        command = [str(self.root / "benchmarks/gpu/compare"), str(self.root), str(self.out.parent / "nothing"),
                   "--out", str(self.out)]
        done = self.run_limited(command)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no bin/cotune", done.stderr)
        self.assertFalse(pathlib.Path(self.out).exists())

    def test_what_was_measured_before_a_failure_is_kept(self):
        broken = self.out.parent / "broken"
        shutil.copytree(self.root, broken, ignore=shutil.ignore_patterns("broken"))
        (broken / "benchmarks" / "gpu" / "measure.py").write_text("raise SystemExit('no measuring here')")
        command = [str(self.root / "benchmarks/gpu/compare"), str(self.root), str(broken), "--out", str(self.out),
                   "--memory", "host", "--quick", "--rounds", "2", "--collectives", "all_reduce"]
        done = self.run_limited(command)
        self.assertEqual(done.returncode, compare_trees.FAILED, done.stdout + done.stderr)
        self.assertIn("no measuring here", done.stderr)
        content = self.content()
        self.assertFalse(content["complete"])
        self.assertEqual({name: len(each) for name, each in content["measurements"].items()}, {"before": 2, "after": 0})

    def test_a_tree_without_tests_is_refused(self):
        tree = self.out.parent / "without_tests"
        (tree / "bin").mkdir(parents=True)
        (tree / "bin" / "cotune").write_text("")
        command = [str(self.root / "benchmarks/gpu/compare"), str(tree), str(self.root), "--out", str(self.out)]
        done = self.run_limited(command)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--with-tests", done.stderr)
        self.assertFalse(pathlib.Path(self.out).exists())


if __name__ == "__main__":
    unittest.main()
