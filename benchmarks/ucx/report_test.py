"""report.py on cells that are made up here."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
import report  # noqa: E402


def cell(us, network="networks, 0 us", size=64, pml="ob1", winner="ucx/ring?posts=2", ranks=2):
    winners = {name: "host/x" if name == "cotune_host" else winner for name in us if name.startswith("cotune")}
    return {
        "collective": "all_reduce", "dtype": "f32", "network": network, "ranks": ranks, "bytes": size, "pml": pml,
        "winners": winners, "us": us, "algorithms_us": {"ucx/ring": 7.0, "ucx/knomial": 8.0},
    }


def run(own, openmpi, gloo, pml="ob1", **more):
    peer = "openmpi_ucx" if pml == "ucx" else "openmpi_tuned"
    return cell({"cotune_ucx": own, peer: openmpi, "gloo": gloo}, pml=pml, **more)


class ReportTest(unittest.TestCase):
    def test_of_two_runs_the_larger_ratio_counts(self):
        lines = [run([4.0, 9.0, 3.0], [8.0], [50.0]), run([5.0], [4.0], [50.0], pml="ucx")]
        text = report.report(lines)
        self.assertIn("| all_reduce | 64 | ring?posts=2: 5 (1.25) |", text)
        self.assertIn("| networks, 0 us | 0 of 1 | 1.25 | 1.25, all_reduce of 64 |", text)
        self.assertIn("cotune_ucx by openmpi_tuned 0.50; cotune_ucx by openmpi_ucx 1.25; cotune_ucx by gloo 0.09 |", text)

    def test_one_host_has_the_faster_backend(self):
        us = {"cotune_ucx": [2.0], "cotune_host": [1.0], "openmpi_tuned": [4.0], "gloo": [8.0]}
        text = report.report([cell(us, network="one host")])
        self.assertIn("| all_reduce | 64 | host/x: 1 (0.25) |", text)
        self.assertIn("cotune_ucx by cotune_host 2.00", text)

    def test_numbers_of_ranks_have_tables_and_algorithms_of_their_own(self):
        lines = [run([1.0], [2.0], [3.0], size=size, ranks=ranks) for ranks in (2, 4) for size in (64, 256, 1024, 1 << 20)]
        text = report.report(lines)
        self.assertLess(text.index("### 2 ranks over UCX"), text.index("### 4 ranks over UCX"))
        self.assertIn("us at 64 / 1K / 1M:", text)
        self.assertIn("| all_reduce | ring | 7 / 7 / 7 |", text)
        self.assertIn("| networks, 0 us | 4 of 4 | 0.50 |", text)

    def test_worlds_stand_side_by_side(self):
        lines = [
            run([1.0], [2.0], [4.0], network="one host", winner="ucx/knomial?radix=2"), run([1.0], [2.0], [3.0]),
            run([1.0], [2.0], [3.0], size=256, winner="ucx/ring?posts=8"),
        ]
        text = report.report(lines)
        self.assertIn("| collective | bytes | one host | networks, 0 us |", text)
        self.assertIn("| all_reduce | 64 | knomial?radix=2: 1 (0.50) | ring?posts=2: 1 (0.50) |", text)
        self.assertIn("| all_reduce | 256 | - | ring?posts=8: 1 (0.50) |", text)

    def test_a_document_gets_the_tables_and_a_file_without_cells_leaves_it(self):
        with tempfile.TemporaryDirectory() as folder:
            document, data = pathlib.Path(folder, "document.md"), pathlib.Path(folder, "data")
            document.write_text(f"a\n{report.BEGIN}\n{report.END}\nb\n")
            command = [sys.executable, FOLDER / "report.py", data, "--doc", document]
            for content in ("", "{", json.dumps({"ranks": 2})):
                data.write_text(content)
                ended = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual(ended.returncode, 1)
                self.assertIn(str(data), ended.stderr)
            data.write_text(json.dumps(run([1.0], [2.0], [3.0])) + "\n")
            subprocess.run(command, check=True)
            self.assertIn("### 2 ranks over UCX", document.read_text())
            self.assertTrue(document.read_text().endswith(f"{report.END}\nb\n"))


if __name__ == "__main__":
    unittest.main()
