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


def cell(collective, size, cotune, openmpi, gloo, ranks=2):
    return {
        "collective": collective, "dtype": "f32", "ranks": ranks, "bytes": size, "winner": "host/x",
        "us": {"cotune": cotune, "openmpi": openmpi, "gloo": gloo},
    }


class ReportTest(unittest.TestCase):
    def test_medians_and_the_faster_peer(self):
        cells = [
            cell("all_reduce", 64, [9.0, 0.5, 0.4], [1.0, 1.0, 7.0], [50.0]),
            cell("all_reduce", 1 << 20, [300.0], [900.0], [200.0]),
            cell("broadcast", 64, [1.0], [4.0], [8.0]),
        ]
        text = report.report(cells)
        self.assertIn("| 64 | 0.5 (0.50) | 1 (0.25) |", text)
        self.assertIn("| 1M | 300 (1.50) | - |", text)
        self.assertIn("Faster than both in 2 of 3 cells, geometric mean 0.57; worst 1.50 at all_reduce of 1M.", text)

    def test_ranks_have_tables_of_their_own(self):
        text = report.report([cell("broadcast", 64, [1.0], [2.0], [2.0], ranks) for ranks in (4, 2)])
        self.assertLess(text.index("### 2 ranks"), text.index("### 4 ranks"))

    def test_only_what_lies_between_the_comments_is_replaced(self):
        text = report.put_into(f"a\n{report.BEGIN}\nold\n{report.END}\nb\n", "new")
        self.assertEqual(text, f"a\n{report.BEGIN}\n\nnew\n{report.END}\nb\n")
        with self.assertRaises(ValueError):
            report.put_into("no comments", "new")

    def test_programs_have_tables_of_their_own(self):
        us = {"collective": [2.0], "part": [1.0, 3.0, 9.0], "program": [4.0], "openmpi": [16.0]}
        cells = [{"program": "norm", "ranks": ranks, "rows": 8, "bytes": 64, "winner": "host/x", "us": us} for ranks in (2, 4)]
        comments = f"{report.BEGIN}\n{report.END}\n{report.PROGRAMS_BEGIN}\n{report.PROGRAMS_END}\n"
        text = report.written(comments, cells)
        self.assertTrue(text.startswith(f"{report.BEGIN}\n{report.END}\n{report.PROGRAMS_BEGIN}\n\n### Programs on 2 ranks"))
        self.assertIn("| norm | 8 | 2 | 3 | 4 | 16 | 0.80 | 0.25 |", text)
        self.assertIn("Geometric means: 0.80 of collectives and parts one by one, 0.25 of Open MPI", text)

    def test_fused_forms_stand_beside_the_fastest_unfused_form_of_the_same_round(self):
        def fused(size, rounds, columns=8192):
            rounds = [{"winner_us": winner, "unfused_us": unfused, "is_unsteady": is_unsteady} for winner, unfused, is_unsteady in rounds]
            return {"fused_program": "bias + relu", "ranks": 2, "dtype": "f32", "columns": columns, "rows": 8, "bytes": size, "rounds": rounds}

        cells = [
            fused(1 << 18, [(8.0, 10.0, False), (9.0, 9.0, True)]),
            fused(1 << 20, [(45.0, 90.0, False)]),
            fused(1 << 18, [(1.0, 9.0, True)], columns=1024),
        ]
        text = report.written(f"{report.FUSED_BEGIN}\n{report.FUSED_END}\n", cells)
        self.assertIn("| program | dtype | columns | 256K | 1M | geometric mean |", text)
        self.assertIn("| bias + relu | f32 | 8192 | 8 / 10 (0.80) | 45 / 90 (0.50) | 0.63 |", text)
        self.assertIn("| bias + relu | f32 | 1024 | unsteady | - | - |", text)
        figure = report.fused_figure(cells)
        self.assertIn("bias, 2 ranks", figure)
        self.assertIn(">0.7<", figure)
        with self.assertRaises(ValueError):
            report.fused_figure(cells[2:])

    def test_a_file_without_cells_leaves_the_document(self):
        with tempfile.TemporaryDirectory() as folder:
            document = pathlib.Path(folder, "performance.md")
            document.write_text(f"{report.BEGIN}\n{report.END}\n")
            data = pathlib.Path(folder, "data")
            for content in ("", "{", json.dumps({"ranks": 2})):
                data.write_text(content)
                run = subprocess.run(
                    [sys.executable, FOLDER / "report.py", data, "--doc", document], capture_output=True, text=True, check=False
                )
                self.assertEqual(run.returncode, 1)
                self.assertIn(str(data), run.stderr)
            self.assertEqual(document.read_text(), f"{report.BEGIN}\n{report.END}\n")


if __name__ == "__main__":
    unittest.main()
