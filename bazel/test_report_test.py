"""The closing line of `./dev test` for event files as Bazel writes them."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest


def summary(label: str, status: str) -> dict:
    return {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}}


def finished(name: str) -> dict:
    return {"id": {"buildFinished": {}}, "finished": {"exitCode": {"name": name, "code": 0}}}


class TestReportTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name: str, *events: dict, tail: str = "") -> str:
        path = pathlib.Path(self.folder.name) / name
        path.write_text("".join(json.dumps(event) + "\n" for event in events) + tail)
        return str(path)

    def report(self, *arguments: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            [sys.executable, "-B", "bazel/test_report.py", *arguments], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def test_counts_targets_of_all_invocations_and_checks(self):
        plain = self.write("tests.json", summary("//a:a", "PASSED"), summary("//b:b", "PASSED"), finished("SUCCESS"))
        asan = self.write("asan.json", summary("//a:a", "PASSED"), finished("SUCCESS"))
        self.assertEqual(
            self.report(plain, asan, "--checks", "format", "lint", "--failed"), (0, ["5 passed, 0 failed"])
        )

    def test_a_failed_test_and_a_failed_check_are_named(self):
        events = self.write(
            "tests.json", summary("//a:a", "PASSED"), summary("//b:b", "TIMEOUT"), finished("TESTS_FAILED")
        )
        self.assertEqual(
            self.report(events, "--checks", "format", "lint", "--failed", "lint"),
            (1, ["FAILED tests: //b:b TIMEOUT", "FAILED lint", "2 passed, 2 failed"]),
        )

    def test_a_flaky_test_has_not_passed(self):
        events = self.write("tests.json", summary("//a:a", "FLAKY"), finished("SUCCESS"))
        self.assertEqual(self.report(events), (1, ["FAILED tests: //a:a FLAKY", "0 passed, 1 failed"]))

    def test_a_broken_build_fails_though_its_tests_passed(self):
        events = self.write("tsan.json", summary("//a:a", "PASSED"), finished("BUILD_FAILURE"))
        self.assertEqual(
            self.report(events), (1, ["FAILED tsan: bazel ended with BUILD_FAILURE", "1 passed, 1 failed"])
        )

    def test_an_invocation_without_tests_fails(self):
        empty = self.write("asan.json", finished("SUCCESS"))
        good = self.write("tests.json", summary("//a:a", "PASSED"), finished("SUCCESS"))
        self.assertEqual(self.report(good, empty), (1, ["FAILED asan: no test ran", "1 passed, 1 failed"]))

    def test_a_cut_or_missing_event_file_fails(self):
        cut = self.write("tests.json", summary("//a:a", "PASSED"), tail='{"id":{"buildFin')
        missing = str(pathlib.Path(self.folder.name) / "asan.json")
        self.assertEqual(
            self.report(cut, missing),
            (
                1,
                [
                    "FAILED tests: no end of the build in the event file",
                    "FAILED asan: no end of the build in the event file",
                    "1 passed, 2 failed",
                ],
            ),
        )


if __name__ == "__main__":
    unittest.main()
