"""A model exported and compiled ahead of time, in one process, runs by cotune in others and is tuned at its first run."""

import json
import subprocess
import sys
import unittest

from testing.torchrun import HANG_S, Tree

RANKS = 2


class AheadOfTimeTest(unittest.TestCase):
    def test_a_package_runs_on_real_ranks(self):
        tree = Tree()
        package = str(tree.folder / "model.pt2")
        exported = subprocess.run(
            [sys.executable, "-B", "tests/torch/aot_ranks.py", "export", package, str(RANKS)],
            env=tree.environment(), capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
        self.assertEqual(exported.returncode, 0, exported.stderr)
        ended = tree.torchrun(RANKS, "aot_ranks.py", "run", package)
        self.assertEqual(ended.exit_code, 0, ended.text)
        record = json.loads(next(line for line in ended.out.splitlines() if line.startswith("{")))
        self.assertEqual(record, {"errors": [[]] * RANKS, "plain": False, "graphs": 0}, ended.text)
        # The programs and sizes came with the package.
        self.assertIn("TUNE all_reduce_add_rms", ended.err)


if __name__ == "__main__":
    unittest.main()
