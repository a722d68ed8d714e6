"""The benchmark's command on host memory, where cotune is measured alone, and what it makes of parts that fail."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "benchmarks/gpu")

import bench_runner
import contenders
import measure
import platforms
import problems

TREE_FILES = {
    "cli/cotune": "bin/cotune",
    "integration/capi/libcotune.so.0": "lib/libcotune.so.0",
    "plugins/host/cotune_host.so": "lib/cotune/plugins/cotune_host.so",
}
SCRIPTS = ("run", "compare", "bench_runner.py", "compare_trees.py", "contenders.py", "cotune_library.py", "measure.py", "nccl_library.py",
           "platforms.py", "problems.py")


class TreeTest(unittest.TestCase):
    """A tree as `./dev dist` writes it, as far as host memory needs it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cotune.")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        files = dict(TREE_FILES)
        files |= {f"benchmarks/gpu/{name}": f"benchmarks/gpu/{name}" for name in SCRIPTS}
        files |= {f"tests/gpu/{name}": f"tests/gpu/{name}" for name in ("machine.py", "rank_processes.py")}
        for source, name in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)
            path.chmod(0o755)
        self.out = self.root / "out.json"

    def run_limited(self, command: list) -> subprocess.CompletedProcess:
        return subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, "HOME": str(self.root)})

    def content(self) -> dict:
        return json.loads(self.out.read_text())


class ReservedPortTest(unittest.TestCase):
    def test_only_who_shares_addresses_can_listen_there(self):
        with bench_runner.reserved_port() as port:
            with socket.socket() as stranger, self.assertRaises(OSError):
                stranger.bind(("127.0.0.1", port))
            with socket.socket() as store:
                store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                store.bind(("127.0.0.1", port))
                store.listen()
                with socket.create_connection(("127.0.0.1", port)):
                    pass


class CommandTest(TreeTest):
    def run_command(self, *arguments: str) -> subprocess.CompletedProcess:
        return self.run_limited([self.root / "benchmarks/gpu/run", "--out", self.out, *arguments])

    def test_measures_all_collectives_and_what_a_tune_costs(self):
        done = self.run_command("--memory", "host", "--quick")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        content = self.content()
        self.assertEqual(len(content["measurements"]), 10)  # five collectives, two sizes
        for each in content["measurements"]:
            self.assertTrue(each["right"], each)
            self.assertTrue(0 < each["low_us"] <= each["time_us"] <= each["high_us"], each)
        tune = content["tune"]
        self.assertEqual((tune["cold"]["measured_cells"], tune["cold"]["known_cells"]), (10, 0))
        self.assertEqual((tune["warm"]["measured_cells"], tune["warm"]["known_cells"]), (0, 10))
        self.assertIn("precompile", tune["cold"]["stages_s"])
        cells = {(cell["collective"], cell["bytes"]) for cell in tune["cells"]}
        self.assertEqual(cells, {(each["collective"], each["bytes"]) for each in content["measurements"]})

    def test_goes_on_with_a_file_that_is_there(self):
        self.assertEqual(self.run_command("--memory", "host", "--quick", "--part", "tune").returncode, 0)
        self.assertEqual(self.content()["measurements"], [])
        more = ("--memory", "host", "--quick", "--part", "cotune", "--collectives", "broadcast")
        for _ in range(2):  # again: what is measured anew replaces
            self.assertEqual(self.run_command(*more).returncode, 0)
            self.assertEqual(len(self.content()["measurements"]), 2)
        self.assertIn("cold", self.content()["tune"])

    def test_a_part_that_fails_is_kept_and_does_not_end_the_run(self):
        # Nothing is tuned, so there is no database to load.
        done = self.run_command("--memory", "host", "--quick", "--part", "cotune", "--runs", "2")
        self.assertEqual(done.returncode, bench_runner.SOME_FAILED)
        self.assertEqual([part["ok"] for part in self.content()["parts"]], [False, False])
        self.assertIn("tuned.tdb", self.content()["parts"][0]["output"])

    def test_parts_after_the_time_are_not_run(self):
        done = self.run_command("--memory", "host", "--quick", "--stop-after", "0")
        self.assertEqual(done.returncode, bench_runner.SOME_FAILED)
        self.assertTrue(all("not run" in part["output"] for part in self.content()["parts"]))

    def test_without_a_gpu_nothing_is_measured(self):
        done = self.run_command()
        self.assertEqual(done.returncode, bench_runner.NO_GPU)
        self.assertIn("nothing was measured", done.stderr)
        self.assertFalse(self.out.exists())


class Copying(contenders.Contender):
    """A broadcast among one rank."""

    name = "copying"

    def call(self, problem, buffers):
        for i, value in enumerate(buffers.send):
            buffers.recv[i] = value


class CopyingOnce(Copying):
    """Right when it runs at once, idle when it is replayed."""

    calls = 0

    def call(self, problem, buffers):
        self.calls += 1
        if self.calls == 1:
            super().call(problem, buffers)


class Idle(Copying):
    def call(self, problem, buffers):
        """Leaves the poison in place."""


class InPlace(Copying):
    """In place."""

    def buffers(self, problem):
        values = self.platform.array("both", problem.count)
        return contenders.Buffers(values, values)

    def call(self, problem, buffers):
        """A sum over one rank changes nothing."""


class MeasureTest(unittest.TestCase):
    def measured(self, contender_type) -> dict:
        contender = contender_type(platforms.Host(0, 1), None)
        collective = "all_reduce" if contender_type is InPlace else "broadcast"
        return measure.measure(contender.platform, contender, problems.Problem(collective, 1, 50), 4)

    def test_every_replay_is_kept(self):
        record = self.measured(Copying)
        self.assertTrue(record["right"])
        self.assertEqual((record["bytes"], record["count"], record["calls"], len(record["times_us"])), (100, 50, 20, 4))

    def test_what_is_wrong_at_once_or_in_replays_is_wrong(self):
        self.assertFalse(self.measured(Idle)["right"])
        self.assertFalse(self.measured(CopyingOnce)["right"])

    def test_in_place_is_checked_before_it_is_timed_on_zeros(self):
        self.assertTrue(self.measured(InPlace)["right"])


class MergedTest(unittest.TestCase):
    def record(self, times_us: list[float], right: bool = True, size: int = 64) -> dict:
        return {"contender": "cotune", "collective": "broadcast", "bytes": size, "count": 32, "calls": 20,
                "right": right, "times_us": times_us}

    def test_is_the_median_of_the_largest_over_ranks(self):
        (merged,) = bench_runner.merged([[self.record([1, 5, 2])], [self.record([3, 1, 4])]], 7)
        self.assertEqual((merged["time_us"], merged["low_us"], merged["high_us"]), (4, 3, 5))
        self.assertEqual((merged["run"], merged["replays"], merged["right"]), (7, 3, True))

    def test_one_wrong_rank_makes_it_wrong(self):
        (merged,) = bench_runner.merged([[self.record([1])], [self.record([1], right=False)]], 1)
        self.assertFalse(merged["right"])

    def test_what_not_all_ranks_have_is_left_out(self):
        self.assertEqual(bench_runner.merged([[self.record([1])], []], 1), [])

    def test_ranks_that_measured_other_things_are_an_error(self):
        with self.assertRaises(ValueError):
            bench_runner.merged([[self.record([1])], [self.record([1], size=128)]], 1)


if __name__ == "__main__":
    unittest.main()
