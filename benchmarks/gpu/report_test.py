"""The report from small results made up here: what its tables, goals and figures say."""

import copy
import json
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, "benchmarks/gpu")

import problems
import report
import svg_plot

KIB, MIB = 1 << 10, 1 << 20
PAGE = f"# Performance\n\nbefore\n\n{report.BEGIN}\nold\n{report.END}\n\nafter\n"


def measured(contender: str, collective: str, size: int, time_us: float, run: int = 1, right: bool = True) -> dict:
    return {"contender": contender, "run": run, "collective": collective, "bytes": size, "count": size // 2, "calls": 20,
            "replays": 21, "time_us": time_us, "low_us": time_us, "high_us": time_us, "right": right}


def result(*measurements: dict, ranks: int = 4) -> dict:
    return {
        "schema": 1, "date": "2026-01-02T03:04:05+00:00", "ranks": ranks, "quick": False,
        "machine": {"gpus": ["NVIDIA H200"] * ranks, "processor": "A processor", "processors": 64, "system": "Linux",
                    "driver": "NVRM version 580", "cotune": "cotune 0.1.0", "python": "3.12", "packages": {"nvidia-nccl-cu13": "2.28.9"}},
        "versions": {"torch": "2.11.0", "cuda": "13.0"}, "parts": [], "measurements": list(measurements),
        "tune": {
            "cold": {"wall_s": 30.0, "measured_cells": 3, "known_cells": 0, "choices": 40, "elapsed_us": 28e6,
                     "pre_sync_us": 400.0, "stages_s": {"start": 0.5, "precompile": 9.0, "pre_sync": 18.0}},
            "warm": {"wall_s": 2.5, "measured_cells": 0, "known_cells": 3, "elapsed_us": 40000.0, "pre_sync_us": 300.0,
                     "stages_s": {"start": 0.5}},
            "cells": [{"collective": "all_reduce", "bytes": KIB,
                       "winner": "cuda/one_shot?blocks=1&pdl=1&threads=256&transport=lamport&unroll=1"}],
        },
        "host_call": {"bare_launch_ns": 1500, "call_ns": 1900, "default_call_ns": 4000},
    }


SAMPLE = result(
    measured("cotune", "all_reduce", KIB, 2.3), measured("cotune", "all_reduce", KIB, 2.2, run=2),
    measured("cotune", "all_reduce", 512 * MIB, 2300), measured("cotune", "broadcast", MIB, 9.0),
    measured("nccl", "all_reduce", KIB, 8.8), measured("nccl", "all_reduce", 512 * MIB, 2200),
    measured("nccl_symmetric", "all_reduce", KIB, 4.4), measured("symm_mem_one_shot", "all_reduce", KIB, 6.6),
    measured("symm_mem_two_shot", "all_reduce", KIB, 6.5), measured("nccl", "broadcast", MIB, 12.3),
    measured("cotune_registered", "broadcast", MIB, 8.5),
)


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.page = self.folder / "performance.md"
        self.page.write_text(PAGE)

    def write(self, content: dict, name: str = "results.json") -> str:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)

    def report(self, *contents: dict) -> list[str]:
        names = [self.write(content, f"{number}.json") for number, content in enumerate(contents)]
        self.assertEqual(report.main(["--page", str(self.page), *names]), 0)
        return self.page.read_text().splitlines()

    def row_of(self, lines: list[str], start: str) -> list[str]:
        found = [line for line in lines if line.startswith(f"| {start}")]
        self.assertEqual(len(found), 1, f"{start}: {found}")
        return [cell.strip() for cell in found[0].strip("|").split("|")]

    def test_what_stands_around_the_section_stays(self):
        lines = self.report(SAMPLE)
        self.assertEqual(lines[:3], ["# Performance", "", "before"])
        self.assertEqual(lines[-1], "after")
        self.assertNotIn("old", lines)
        again = self.report(SAMPLE)
        self.assertEqual(lines, again)

    def test_a_row_has_the_best_run_its_winner_and_all_peers(self):
        # bytes, cotune, winner, registered, busbw, of link, NCCL, NCCL symmetric, symm_mem, vLLM, FlashInfer, of best peer
        self.assertEqual(self.row_of(self.report(SAMPLE), "1K "),
                         ["1K", "2.2", "cuda/one_shot lamport", "-", "0.698", "0%", "8.8", "4.4", "6.5", "4.38", "2.63",
                          "0.84 (FlashInfer*)"])

    def test_registered_buffers_count_against_peers_and_not_against_nccl_on_plain_ones(self):
        row = self.row_of(self.report(SAMPLE), "1M ")
        # The better of both in the bandwidth: 2^20 bytes in 8.5 us.
        self.assertEqual(row[:5], ["1M", "9", "-", "8.5", "123"])
        self.assertEqual(row[-1], "0.69 (NCCL)")

    def test_bus_bandwidth_and_its_share_of_the_links(self):
        row = self.row_of(self.report(SAMPLE), "512M ")
        # 2 * 3/4 * 2^29 bytes in 2300 us, of 389 GB/s.
        self.assertEqual(row[4:6], ["350", "90%"])
        self.assertEqual(row[-1], "1.05 (NCCL)")

    def test_goals_are_met_or_missed(self):
        lines = self.report(SAMPLE)
        self.assertEqual(self.row_of(lines, "all_reduce: 1K")[1:], ["2.4 us", "2.2 us", "met"])
        self.assertEqual(self.row_of(lines, "broadcast: 1M")[1:], ["8 us", "8.5r us", "missed"])
        self.assertEqual(self.row_of(lines, "time by NCCL's, worst")[2:], ["1.045 at all_reduce 512M", "missed"])
        # 8.8/2.2 and 12.3/9.0.
        self.assertEqual(self.row_of(lines, "gain over NCCL, geometric mean to 1M")[2:], ["2.34x", "missed"])
        self.assertEqual(self.row_of(lines, "time by the best peer's")[2:],
                         ["2 of 3; worst 1.045 at all_reduce 512M", "missed"])
        self.assertEqual(self.row_of(lines, "the same, geometric mean")[2:], ["0.85", "missed"])
        self.assertEqual(self.row_of(lines, "busbw of all_reduce at 512M")[1:], [">= 360 GB/s", "350 GB/s", "missed"])
        self.assertEqual(self.row_of(lines, "host time of a call")[2:],
                         ["400 ns (a call 1900, a launch of an empty kernel 1500)", "met"])
        self.assertEqual(self.row_of(lines, "the one sync of a tune")[2:], ["0.40 ms", "met"])
        self.assertEqual(self.row_of(lines, "start from a tuned database")[2:], ["40 ms", "met"])

    def test_where_the_time_of_a_tune_goes(self):
        text = "\n".join(self.report(SAMPLE))
        self.assertIn("A cold tune of 3 cells (40 choices), kernels compiled on the way: 30.0 s. "
                      "In seconds: measuring 18.00, precompile 9.00, start 0.50.", text)

    def test_a_run_of_one_collective_adds_to_what_is_known(self):
        small = result(measured("cotune", "broadcast", MIB, 8.0))
        small["date"] = "2026-01-03T00:00:00+00:00"
        small["tune"]["cold"] = {**small["tune"]["cold"], "measured_cells": 1, "wall_s": 3.0}
        lines = self.report(SAMPLE, small)
        self.assertIn("A cold tune of 3 cells", "\n".join(lines))
        self.assertEqual(self.row_of(lines, "broadcast: 1M")[1:], ["8 us", "8 us", "met"])

    def test_machine_versions_and_date(self):
        text = "\n".join(self.report(SAMPLE))
        for part in ("4 of 4 NVIDIA H200", "NVRM version 580", "nvidia-nccl-cu13 2.28.9, torch 2.11.0, cuda 13.0", "2026-01-02."):
            self.assertIn(part, text)

    def test_wrong_values_are_named_and_count_for_nothing(self):
        changed = copy.deepcopy(SAMPLE)
        for each in changed["measurements"]:
            each["right"] = not (each["contender"] == "nccl" and each["bytes"] == KIB)
        lines = self.report(changed)
        self.assertIn("Wrong values, and left out: nccl all_reduce 1K.", lines)
        self.assertEqual(self.row_of(lines, "1K ")[6], "-")

    def test_files_of_other_numbers_of_gpus_are_sections_of_their_own(self):
        lines = self.report(SAMPLE, result(measured("cotune", "all_reduce", KIB, 2.0), ranks=2))
        self.assertEqual([line for line in lines if line.startswith("### ")], ["### 4 GPUs", "### 2 GPUs"])

    def test_figures_are_written_where_the_page_looks(self):
        lines = "\n".join(self.report(SAMPLE))
        for name in ("all_reduce_4_gpus_time.svg", "all_reduce_4_gpus_busbw.svg"):
            self.assertIn(f"(figures/{name})", lines)
            content = (self.folder / "figures" / name).read_text()
            self.assertLess(len(content), 100_000)
            root = xml.etree.ElementTree.fromstring(content)
            lines_of_series = root.findall("{http://www.w3.org/2000/svg}polyline")
            self.assertEqual(len(lines_of_series), 4)  # those with two points: cotune, NCCL, vLLM, FlashInfer
        self.assertNotIn("broadcast_4_gpus", lines)

    def test_a_page_without_the_marks_is_left_as_it_is(self):
        self.page.write_text("nothing here\n")
        self.assertEqual(report.main(["--page", str(self.page), self.write(SAMPLE)]), 1)
        self.assertEqual(self.page.read_text(), "nothing here\n")

    def test_another_schema_is_refused(self):
        self.assertEqual(report.main(["--page", str(self.page), self.write({**SAMPLE, "schema": 2})]), 1)
        self.assertEqual(self.page.read_text(), PAGE)


class PlotTest(unittest.TestCase):
    def test_points_lie_by_the_logarithm(self):
        axis = svg_plot.Axis([1, 100], 0, 200, 10)
        self.assertEqual([axis.place(each) for each in (1, 10, 100)], [0, 100, 200])
        self.assertEqual(axis.ticks(8), [1, 10, 100])

    def test_the_left_axis_has_the_lines_that_are_asked_for(self):
        plotted = svg_plot.plot("a", "ratio", {"x": [(1, 0.7), (2, 0.9)]}, str, y_ticks=[0.5, 0.7, 1.0])
        for tick in ("0.5", "0.7", "1"):
            self.assertIn(f'text-anchor="end" font-size="12">{tick}</text>', plotted)

    def test_names_are_escaped(self):
        plotted = svg_plot.plot("a < b", "us", {"x & y": [(1, 1.0), (2, 2.0)]}, str)
        xml.etree.ElementTree.fromstring(plotted)


class ProblemsTest(unittest.TestCase):
    def test_bytes_are_the_larger_buffer(self):
        self.assertEqual(problems.problem_of("all_reduce", 4, KIB), problems.Problem("all_reduce", 4, 512))
        self.assertEqual(problems.problem_of("all_gather", 4, KIB), problems.Problem("all_gather", 4, 128))
        odd = problems.problem_of("reduce_scatter", 4, 100_000_002)
        self.assertEqual((odd.count, odd.bytes, odd.send_count), (12_500_000, 100_000_000, 50_000_000))

    def test_bus_factors_are_those_of_nccl_tests(self):
        self.assertEqual([problems.bus_factor(name, 4) for name in problems.COLLECTIVES], [1.5, 0.75, 0.75, 0.75, 1.0])

    def test_right_answers(self):
        gather = problems.Problem("all_gather", 2, 3)
        self.assertEqual([problems.right(gather, 0, i) for i in range(6)], [0, 1, 2, 1, 2, 3])
        scatter = problems.Problem("reduce_scatter", 2, 3)
        self.assertEqual([problems.right(scatter, 1, i) for i in range(3)], [7, 9, 11])
        swap = problems.Problem("all_to_all", 2, 3)
        self.assertEqual([problems.right(swap, 1, i) for i in range(6)], [3, 4, 5, 4, 5, 6])

    def test_all_sizes_are_there(self):
        self.assertEqual(len(problems.SIZES), 23)
        self.assertEqual((problems.SIZES[0], problems.SIZES[-1]), (KIB, 512 * MIB))


if __name__ == "__main__":
    unittest.main()
