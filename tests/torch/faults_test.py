"""What goes wrong ends in right values by PyTorch's own collectives, or in an error that names the rank; on all ranks."""

import json
import os
import socket
import subprocess
import sys
import unittest

from testing.torchrun import HANG_S, Tree

PLAIN = "run by PyTorch's own collectives"
TORCH_LIBRARY, PLUGIN = "libcotune_torch.so", "cotune_host.so"


def records_of(out: str) -> list[dict]:
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda each: each["rank"])


class FaultsTest(unittest.TestCase):
    def run_case(self, case: str, tree: Tree | None = None, ranks: int = 2, **environment: str):
        tree = tree or Tree()
        ended = tree.start(ranks, "fault_ranks.py", case, **environment)
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = records_of(ended.out)
        self.assertEqual([each["rank"] for each in records], list(range(ranks)), ended.text)
        for each in records:
            self.assertEqual((each["error"], each["raised"]), ("", ""), ended.text)
        return records, ended

    def assert_plain(self, records: list[dict], ended, because: str) -> None:
        """On all ranks, told once."""
        warnings = [line for line in ended.err.splitlines() if PLAIN in line]
        self.assertEqual(len(warnings), 1, ended.text)
        self.assertIn(because, warnings[0])
        for each in records:
            self.assertIn("group 0: plain: ", each["explains"])

    def test_other_programs_on_one_rank(self):
        records, ended = self.run_case("another_graph")
        self.assertNotIn(PLAIN, ended.err)
        for each in records:
            self.assertIn("group 0: a group of cotune on host", each["explains"].splitlines()[-1], ended.text)

    def test_other_sizes_on_one_rank(self):
        records, ended = self.run_case("other_sizes")
        self.assertNotIn(PLAIN, ended.err)
        for each in records:
            self.assertIn("group 0: a group of cotune on host", each["explains"].splitlines()[-1], ended.text)

    def test_a_late_rank_is_waited_for(self):
        records, ended = self.run_case("late", ranks=3)
        self.assertNotIn(PLAIN, ended.err)
        for each in records:
            self.assertIn("group 0: a group of cotune on host", each["explains"])

    def test_the_library_is_missing_on_all_ranks(self):
        self.assert_plain(*self.run_case("healthy", Tree(without=(TORCH_LIBRARY,))), TORCH_LIBRARY)

    def test_the_library_is_missing_on_one_rank(self):
        other = Tree(without=(TORCH_LIBRARY,))
        self.assert_plain(*self.run_case("healthy", OTHER_LIBRARY=str(other.library)), f"rank 1: {TORCH_LIBRARY}")

    def test_libcotune_is_missing_on_one_rank(self):
        other = Tree(without=(TORCH_LIBRARY, "libcotune.so.0"))
        self.assert_plain(*self.run_case("healthy", OTHER_LIBRARY=str(other.library)), "rank 1: ")

    def test_the_plugin_is_missing_on_one_rank(self):
        other = Tree(without=(PLUGIN,))
        self.assert_plain(*self.run_case("healthy", OTHER_LIBRARY=str(other.library)), "rank")

    def test_a_pytorch_that_does_not_fit(self):
        records, ended = self.run_case("unfit")
        self.assertIn("cotune is not used: torch", ended.err)
        self.assertIn("install torch 99.0 or newer", ended.err)
        for each in records:
            self.assertIn("no graph with a collective", each["explains"])

    def test_forked_data_loaders(self):
        records, ended = self.run_case("loads_data")
        self.assertNotIn("cotune: error", ended.err)
        for each in records:
            self.assertIn("group 0: a group of cotune on host", each["explains"])

    def test_what_no_program_has(self):
        records, _ = self.run_case("inputs")
        for each in records:
            # The collectives that are left alone have a reason; the sine stays outside of its program.
            self.assertRegex(each["explains"], r"complex64")
            self.assertRegex(each["explains"], r"all_to_all_single.*split")
            self.assertRegex(each["explains"], r"sin stays outside: ")

    def test_a_database_that_cannot_be_written(self):
        tree = Tree()
        place = tree.folder / "tuned.tdb"
        place.mkdir()
        _, ended = self.run_case("healthy", tree, COTUNE_DATABASE=str(place))
        self.assertIn("tuned.tdb", ended.err)

    def test_a_damaged_database(self):
        tree = Tree()
        place = tree.folder / "tuned.tdb"
        place.write_bytes(os.urandom(4096))
        _, ended = self.run_case("healthy", tree, COTUNE_DATABASE=str(place))
        self.assertIn("tuned.tdb", ended.err)

    def test_a_named_database_that_cannot_be_used(self):
        tree = Tree()
        damaged = tree.folder / "damaged.tdb"
        damaged.write_bytes(os.urandom(4096))
        folder = tree.folder / "folder.tdb"
        folder.mkdir()
        for place in (damaged, folder):
            with self.subTest(place=place.name):
                records, ended = self.run_case("two_graphs", tree, NAMED_DATABASE=str(place))
                warnings = [line for line in ended.err.splitlines() if "are not tuned: " in line]
                self.assertEqual(len(warnings), 1, ended.text)
                self.assertIn(place.name, warnings[0])
                for each in records:
                    self.assertIn("group 0: a group of cotune on host", each["explains"])

    def test_the_error_of_a_plain_group_gives_its_reason(self):
        self.assert_plain(*self.run_case("plain_error", Tree(without=(PLUGIN,))), "no plugin was found")

    def test_a_plain_group_without_the_package(self):
        tree = Tree()
        script = (
            "import ctypes, torch\n"
            f"path = '{tree.library.parent / TORCH_LIBRARY}'\n"
            "torch.ops.load_library(path)\n"
            "ctypes.CDLL(path).cotune_torch_group_register(b'g', -1, None, None)\n"
            "torch.ops.cotune.all_reduce(torch.ones(4), 'sum', 'g')\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", script], env=tree.environment(), capture_output=True, text=True, timeout=HANG_S, check=False
        )
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("failed: they are not ready in this process; import cotune.torch", ended.stderr)

    def test_dtypes_that_are_refused_are_named(self):
        self.run_case("refused_dtypes")

    def test_a_process_ends_without_goodbye_to_its_groups(self):
        _, ended = self.run_case("healthy", DESTROYS="0")
        self.assertNotIn("died", ended.err)

    def test_a_killed_rank_is_named(self):
        for victim, ranks in ((2, 3), (0, 3)):
            with self.subTest(victim=victim):
                self.check_killed("dies", victim, ranks)

    def test_a_rank_that_is_killed_before_it_comes_to_a_meeting_is_named(self):
        # Rank 0 has the store in its process.
        for victim, ranks in ((2, 3), (0, 3)):
            with self.subTest(victim=victim):
                self.check_killed("dies_before_a_meeting", victim, ranks)

    def check_killed(self, case: str, victim: int, ranks: int) -> None:
        """torchrun would end the survivors."""
        tree = Tree()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = []
        for rank in range(ranks):
            variables = {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "VICTIM": str(victim),
            }  # fmt: skip
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-B", "tests/torch/fault_ranks.py", case],
                    env=tree.environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
        ended = [process.communicate(timeout=HANG_S) for process in processes]
        for rank, (out, err) in enumerate(ended):
            if rank == victim:
                self.assertEqual(processes[rank].returncode, -9, err)
                continue
            record = records_of(out)[0]
            self.assertEqual(record["error"], "", err)
            # The control channel names it, or the rank that waits for it in shared memory.
            self.assertRegex(record["raised"], rf"rank {victim} (\(.*\), pid \d+, )?died", err)


if __name__ == "__main__":
    unittest.main()
