"""The table of first calls, and the judgement of its goals."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from first_run_table import Model, judgement, section

import report

FORMS = {"without": 10.0, "cold": 10.6, "one_thread": 10.6, "immediate": 11.0, "deferred": 10.5, "database": 10.1}


def starts(runs: int, collectives: int = 3, drift_s: float = 0.0) -> list[dict]:
    """Each run is slower than the one before it by `drift_s`; a tune takes what is beyond the time without cotune."""
    found = []
    for run in range(runs):
        for form, s in FORMS.items():
            tunes = form not in ("without", "database")
            tune_s = s - FORMS["without"] if tunes else 0.0
            found.append({"model": "stack", "collectives": collectives, "form": form, "run": run, "s": s + run * drift_s,
                          "tune_s": tune_s, "cells": collectives if tunes else 0, "left": 0, "warnings": []})  # fmt: skip
    return found


def run_of(found: list[dict]) -> dict:
    return {"date": "2026-11-29", "ranks": 2, "device": "cpu", "tokens": 64, "gpus": [], "processor": "a processor",
            "packages": {"torch": "2.13.0"}, "starts": found}  # fmt: skip


class FirstRunTableTest(unittest.TestCase):
    def test_times_a_cell_are_of_starts_of_one_run(self):
        model = Model(starts(8, drift_s=5.0), "stack", 3)
        self.assertEqual(model.cells(), 3)
        self.assertEqual([round(each) for each in model.beyond_ms("cold")], [200] * 8)
        self.assertEqual([round(each) for each in model.tune_ms("cold")], [200] * 8)
        self.assertEqual(round(max(model.ratios("deferred", "immediate", "tune_s")), 3), 0.5)

    def test_a_run_that_lacks_a_form_does_not_count_for_it(self):
        found = [each for each in starts(3) if (each["run"], each["form"]) != (1, "without")]
        model = Model(found, "stack", 3)
        self.assertEqual(len(model.beyond_ms("cold")), 2)
        self.assertEqual(len(model.values("cold", "s")), 3)
        self.assertEqual(len(model.ratios("deferred", "immediate", "s")), 3)

    def test_a_goal_needs_an_interval(self):
        self.assertEqual(judgement([90.0] * 8, 100, 0), "90, 99 % interval 90 to 90: met")
        self.assertEqual(judgement([110.0] * 8, 100, 0), "110, 99 % interval 110 to 110: missed")
        self.assertEqual(judgement([90.0] * 4 + [110.0] * 4, 100, 0), "100, 99 % interval 90 to 110: open")
        self.assertEqual(judgement([90.0] * 7, 100, 0), "90, no interval of 7 runs: open")

    def test_the_table_has_a_row_for_each_model_and_a_line_for_each_goal(self):
        lines = section(run_of(starts(8, 1) + starts(8, 3, drift_s=1.0)))
        self.assertIn("### First call, 2 ranks on host memory", lines)
        self.assertIn("| model | cells | without cotune | cold | cold, one thread | immediate | deferred | from the database |", lines)
        self.assertIn(
            "| 3 layers | 3 | 13.5 (10.0 to 17.0) | 14.1 (10.6 to 17.6) | 14.1 (10.6 to 17.6) | 14.5 (11.0 to 18.0) | "
            "14.0 (10.5 to 17.5) | 13.6 (10.1 to 17.1) |",
            lines,
        )
        self.assertIn("| 1 layer | 1 | 600 (600) | 600 (600) | 1000 (1000) | 500 (500) |", lines)
        self.assertIn("- 3 layers, milliseconds of the tune a cell, goal 100: 200, 99 % interval 200 to 200: missed", lines)
        text = " ".join(line.strip() for line in lines)
        self.assertIn("- 3 layers, tune in deferred mode by that in immediate mode, goal below 1: 0.500, 99 % interval 0.500 to 0.500: met", text)
        self.assertFalse([line for line in lines if len(line) > 100 and not line.startswith("|")])
        # Deferred mode has a goal from 3 collectives on.
        self.assertFalse([line for line in lines if line.startswith("- 1 layer") and "deferred" in line])

    def test_the_table_names_starts_on_a_busy_machine_and_cells_that_were_left_out(self):
        found = starts(2)
        self.assertFalse([line for line in section(run_of(found)) if "processors" in line or "left out" in line])
        found[1] |= {"warnings": ["ranks often started late, 17 times in one cell"], "left": 2}
        lines = section(run_of(found))
        self.assertIn("Other programs used the processors in 1 of 8 starts that tuned, as cotune has warned there.", lines)
        self.assertIn("A tune left out up to 2 cells at the end of its budget.", lines)

    def test_the_report_writes_each_section_into_its_own_place(self):
        with tempfile.TemporaryDirectory() as folder:
            page, file = pathlib.Path(folder, "page.md"), pathlib.Path(folder, "run.json")
            file.write_text(json.dumps(run_of(starts(1))))
            page.write_text("no place\n")
            with contextlib.redirect_stderr(io.StringIO()) as told:
                self.assertEqual(report.main([str(file), "--doc", str(page)]), 2)
            self.assertIn("First calls of PyTorch", told.getvalue())
            self.assertEqual(page.read_text(), "no place\n")
            places = [f"<!-- {name}, written by benchmarks/torch/report.py: {end} -->" for name in report.PLACES.values() for end in ("begin", "end")]
            page.write_text("\nkept\n".join(places) + "\n")
            for _ in range(2):
                self.assertEqual(report.main([str(file), "--doc", str(page)]), 0)
            text = page.read_text()
            self.assertTrue(text.startswith("\nkept\n".join(places[:3])))
            self.assertEqual(text.count("### First call, 2 ranks on host memory"), 1)


if __name__ == "__main__":
    unittest.main()
