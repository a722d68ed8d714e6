"""The memory that operands of a race may take."""

import os
import pathlib
import tempfile
import unittest
from unittest import mock

import torch

from cotune.torch import race_memory

GB = 1 << 30


class RaceMemoryTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.proc, self.root = pathlib.Path(folder.name, "proc"), pathlib.Path(folder.name, "cgroup")
        self.write(self.proc / "meminfo", f"MemTotal: {32 << 20} kB\nMemFree: 5 kB\nMemAvailable: {16 << 20} kB\n")
        self.write(self.proc / "self/cgroup", "0::/jobs/one\n")

    def write(self, path: pathlib.Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def group(self, folder: str, limit: str, used: int, cache: int = 0) -> None:
        self.write(self.root / folder / "memory.max", f"{limit}\n")
        self.write(self.root / folder / "memory.current", f"{used}\n")
        self.write(self.root / folder / "memory.stat", f"anon 1\ninactive_file {cache}\n")

    def free(self) -> int:
        return race_memory.free_host_bytes(self.proc, self.root)

    def test_without_a_limit_it_is_that_of_the_machine(self):
        self.assertEqual(self.free(), 16 * GB)
        self.group("jobs/one", "max", 3 * GB)
        self.assertEqual(self.free(), 16 * GB)
        (self.proc / "self/cgroup").unlink()
        self.assertEqual(self.free(), 16 * GB)

    def test_the_least_limit_of_all_groups_around_the_process_counts(self):
        self.group("jobs/one", str(8 * GB), 3 * GB, GB)
        self.assertEqual(self.free(), 6 * GB, "the kernel gives back its cache of files")
        self.group("jobs", str(4 * GB), 3 * GB)
        self.assertEqual(self.free(), GB)
        self.group("", str(4 * GB), 5 * GB)
        self.assertEqual(self.free(), 0, "a group above its limit has nothing left")

    def test_the_first_version_of_control_groups(self):
        self.write(self.proc / "self/cgroup", "7:cpu,cpuacct:/other\n5:memory:/jobs\n")
        self.write(self.root / "memory/jobs/memory.limit_in_bytes", str(2 * GB))
        self.write(self.root / "memory/jobs/memory.usage_in_bytes", str(GB // 2))
        self.assertEqual(self.free(), 3 * GB // 2)

    def test_the_ranks_of_a_host_share_it(self):
        with mock.patch.object(race_memory, "free_host_bytes", return_value=32 * GB):
            for local, ranks, wanted in (("", 2, 4 * GB), ("8", 2, GB), ("2", 4, 2 * GB), ("x", 1, 8 * GB)):
                with mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": local}):
                    self.assertEqual(race_memory.allowed_bytes(torch.device("cpu"), ranks), wanted, (local, ranks))
            with mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": "2"}):
                race_memory.check(4 * GB, torch.device("cpu"), 2)
                with self.assertRaisesRegex(MemoryError, "have 4097 MB, and a rank may use 4096 MB"):
                    race_memory.check(4 * GB + (1 << 20), torch.device("cpu"), 2)

    def test_ranks_that_share_a_gpu_share_its_memory(self):
        device = torch.device("cuda", 0)
        with (
            mock.patch.object(race_memory.torch.cuda, "mem_get_info", return_value=(16 * GB, 64 * GB)),
            mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": "8"}),
        ):
            for gpus, wanted in ((8, 4 * GB), (4, 2 * GB), (1, GB // 2)):
                with mock.patch.object(race_memory.torch.cuda, "device_count", return_value=gpus):
                    self.assertEqual(race_memory.allowed_bytes(device, 2), wanted, gpus)


if __name__ == "__main__":
    unittest.main()
