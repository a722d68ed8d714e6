#!/usr/bin/env python3
"""Checks what tune_regret.py prints of recorded cells."""

import contextlib
import io
import json
import math
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tune_regret


def cell(number: int, winners: tuple[str, str], us: list[float]) -> dict:
    """A cell of 1 row in round `number`: winners of the old and of the new build, and times of the default and of both."""
    by_default = [[us[i] / us[0] - 0.01, us[i] / us[0], us[i] / us[0] + 0.01] for i in (1, 2)]
    builds = {build: {"winner": winner, "choices": 3, "samples": 24, "measure_ms": ms}
              for build, winner, ms in zip(("old", "new"), winners, (40.0, 10.0 + number), strict=True)}
    return {"name": "small", "ranks": 2, "round": number, "rows": 1, "bytes": 64, "us": us, "by_default": by_default, **builds}


class ReportTest(unittest.TestCase):
    def printed(self, cells: list[dict]) -> list[list[str]]:
        """The columns of each line but the first two."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
            path = pathlib.Path(folder) / "cells"
            path.write_text("".join(json.dumps(each) + "\n" for each in cells), encoding="utf-8")
            tune_regret.report([str(path)])
        return [[word.strip() for word in line.strip("|").split("|")] for line in out.getvalue().splitlines()[2:]]

    def test_means_are_geometric_and_agreement_is_of_pairs(self) -> None:
        lines = self.printed([
            cell(0, ("a", "b"), [10.0, 8.0, 4.0]),
            cell(1, ("a", "b"), [10.0, 8.0, 16.0]),
            cell(2, ("a", "c"), [10.0, 8.0, 8.0]),
        ])
        self.assertEqual(lines[0], ["small", "2", "40", "11", "1.000", "0.00", "0.33", "1.00", "0.33"])
        self.assertEqual(lines[1], ["all", "", *lines[0][2:]])

    def test_one_tune_agrees_with_none(self) -> None:
        self.assertTrue(math.isnan(tune_regret.agreement(["a"])))
        self.assertEqual(tune_regret.agreement(["a", "a", "b", "b"]), 2 / 6)

    def test_texts_have_small_f32_operands(self) -> None:
        texts = tune_regret.programs()
        self.assertIn("%x = input f32 [R/n, 1024]", texts["all_gather"])
        self.assertIn("%y = broadcast %x, root=0", texts["broadcast"])
        self.assertIn("tp_linear", texts)
        for text in texts.values():
            self.assertNotIn("bf16", text)
            self.assertNotIn("8192", text)


if __name__ == "__main__":
    unittest.main()
