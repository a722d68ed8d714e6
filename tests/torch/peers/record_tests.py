"""Runs the tests of one module in this process and records the outcome of each one in a file, as it begins and as it ends.

    record_tests.py MODULE RECORDS [--skip FILE] [--only PATTERN]

A record is a line of JSON: {"test", "outcome": "begun", "passed", "failed" or "skipped", "line": the first line of the failure,
"programs": number of programs that cotune has taken in the test}. The tests that FILE names, a line each, are left out, and those in whose names the pattern is not found. The record "module" comes when the module was imported, with the
names that the installed version lacks, or has the reason why it was not; the record "all" is the last one, so that a reader
notices a process that ended before.

Tests of PyTorch start ranks by the module multiprocessing, which imports this file in each of them: they are prepared, too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import re
import sys
import unittest

import preparation
import sources

# PyTorch's tests of several processes put the error of a rank below this line.
_RANK_FAILED = re.compile(r"Process \d+ exited with error code \d+ and exception")
_ERROR = re.compile(r"^[\w.]*(Error|Exception|Failure|Interrupt|Exit|Unsupported|Stop)\w*(:|$)")


preparation.prepare()


def failure_line(error: BaseException | None) -> str:
    """The first line of the error; that of the rank's error if a rank has raised it."""
    lines = str(error).strip().splitlines() or [""]
    first = lines[0]
    if _RANK_FAILED.search(first):
        of_rank = [line for line in lines[1:] if _ERROR.match(line)]
        return of_rank[0] if of_rank else first
    return f"{type(error).__name__}: {first}"


class Recorder(unittest.TestResult):
    """Writes a record for each test. The first outcome of a test counts: a subtest that fails fails the test."""

    def __init__(self, path: pathlib.Path):
        super().__init__()
        self._file = path.open("a", buffering=1)
        self._outcome: tuple[str, str] | None = None
        self._programs = pathlib.Path(os.environ["COTUNE_PEERS_PROGRAMS"])
        self._programs.touch()
        self._programs_before = 0

    def write(self, test: str, outcome: str, line: str = "", programs: int = 0) -> None:
        self._file.write(json.dumps({"test": test, "outcome": outcome, "line": line, "programs": programs}) + "\n")

    def _count_programs(self) -> int:
        return self._programs.stat().st_size

    def _note(self, test: unittest.TestCase, outcome: str, line: str) -> None:
        if not isinstance(test, unittest.TestCase):
            # setUpClass has failed or has skipped the class: none of its tests is begun.
            self.write(str(test), outcome, line)
        elif self._outcome is None or outcome == "failed":
            self._outcome = (outcome, line)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._outcome = None
        self._programs_before = self._count_programs()
        self.write(test.id(), "begun")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.write(test.id(), *(self._outcome or ("passed", "")), self._count_programs() - self._programs_before)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, "skipped", reason)

    def addError(self, test: unittest.TestCase, err: tuple) -> None:
        self._note(test, "failed", failure_line(err[1]))

    addFailure = addError

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: tuple | None) -> None:
        if err is not None:
            self._note(test, "failed", failure_line(err[1]))

    def addExpectedFailure(self, test: unittest.TestCase, err: tuple) -> None:
        self._note(test, "passed", "")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, "failed", "the test is expected to fail and has passed")


def each_test(suite: unittest.TestSuite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from each_test(each)
        else:
            yield each


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("records", type=pathlib.Path)
    parser.add_argument("--skip", type=pathlib.Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    left_out = set(options.skip.read_text().splitlines()) if options.skip else set()
    # PyTorch's tests read the arguments of the process themselves.
    sys.argv = [options.module]
    recorder = Recorder(options.records)
    try:
        module = importlib.import_module(options.module)
    except BaseException as failure:  # noqa: BLE001  a module without its packages may also end the process
        recorder.write("module", "failed", failure_line(failure))
        return 1
    recorder.write("module", "passed", " ".join(sources.absent))
    found = each_test(unittest.defaultTestLoader.loadTestsFromModule(module))
    tests = [each for each in found if each.id() not in left_out and re.search(options.only, each.id())]
    unittest.TestSuite(tests).run(recorder)
    recorder.write("all", "passed")
    sys.stdout.flush()
    # Threads and groups that a test has left behind do not keep the process.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
