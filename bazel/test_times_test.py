"""What `./dev test` says of times, for profiles as Bazel writes them."""

import gzip
import json
import pathlib
import tempfile
import unittest

from bazel import test_times
from bazel.test_times import Action, Phase


def event(name: str, target: str, micros: int, category: str = "action processing") -> dict:
    return {"cat": category, "name": name, "ph": "X", "ts": 1, "dur": micros, "args": {"target": target}}


class ReadProfileTest(unittest.TestCase):
    def read(self, content: bytes) -> tuple[Action, ...]:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "profile.gz"
            path.write_bytes(content)
            return test_times.read_profile(path)

    def test_actions_have_a_kind_a_target_and_seconds(self):
        events = [
            event("Compiling core/benchmark/race.cc", "//core:race", 2_500_000),
            event("Linking core/benchmark/race_test", "//core:race_test", 100_000),
            event("Testing //core:race_test (shard 1 of 2)", "//core:race_test", 3_000_000),
            event("Executing genrule //core:gen", "//core:gen", 5),
            event("evaluation", "//core:race", 7, category="skyframe evaluator"),
            {"name": "thread_name", "ph": "M"},
        ]
        profile = gzip.compress(json.dumps({"otherData": {}, "traceEvents": events}).encode())
        self.assertEqual(
            self.read(profile),
            (
                Action("compile", "//core:race", 2.5),
                Action("link", "//core:race_test", 0.1),
                Action("test", "//core:race_test", 3.0),
                Action("other", "//core:gen", 5e-6),
            ),
        )

    def test_a_profile_that_is_missing_cut_or_foreign_has_no_actions(self):
        whole = gzip.compress(json.dumps({"traceEvents": [event("Compiling a", "//a", 1)] * 100}).encode())
        for content in (b"", whole[: len(whole) // 2], gzip.compress(b"{}"), gzip.compress(b"[")):
            self.assertEqual(self.read(content), ())
        self.assertEqual(test_times.read_profile(pathlib.Path("no such file")), ())


class ReportTest(unittest.TestCase):
    PHASES = [
        Phase(
            "tests",
            119.6,
            (
                Action("compile", "//a:a", 60.0),
                Action("compile", "//a:b", 5.4),
                Action("link", "//a:b", 0.6),
                Action("test", "//a:b", 30.0),
                Action("other", "//a:gen", 40.0),
            ),
        ),
        Phase("asan", 10.0, (Action("compile", "//a:a", 62.0),)),
        Phase("format", 3.2),
    ]

    def test_each_phase_has_its_wall_time_and_the_sums_and_numbers_of_its_actions(self):
        self.assertEqual(
            test_times.phase_table(self.PHASES),
            [
                "phase      wall   compile files      link files       run tests",
                "tests      2:00      65 s     2       1 s     1      30 s     1",
                "asan       0:10      62 s     1",
                "format     0:03",
                "all        2:13",
            ],
        )

    def test_the_slowest_targets_are_those_of_one_phase_with_all_that_they_took(self):
        self.assertEqual(
            test_times.slowest_targets(self.PHASES, most=3),
            [
                "asan      62 s  //a:a (compile 62 s)",
                "tests     60 s  //a:a (compile 60 s)",
                "tests     40 s  //a:gen (other 40 s)",
            ],
        )
        self.assertEqual(
            test_times.slowest_targets(self.PHASES)[3], "tests     36 s  //a:b (compile 5 s, link 1 s, test 30 s)"
        )


if __name__ == "__main__":
    unittest.main()
