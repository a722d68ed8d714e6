"""Runs tests of PyTorch without and with cotune, and compares the outcome of each one.

    peer_tests.py FOLDER [MODULE ...]      FOLDER: test/distributed of PyTorch's sources of the installed version

Each module runs in a process of its own, once without cotune and once with cotune.torch.enable() in every process that imports
the tests. A test that takes too long is cut together with its ranks, a process that ends in a test is noted, and the tests
that are left run in a new process. A name that a module imports and that the installed version lacks is printed, and the tests
that use it fail. The number of tests with cotune from whose graphs cotune takes collectives is printed, too: the others show only
that cotune does not disturb them. Run it where Bazel has put what it built, for example

    cd bazel-bin/tests/torch/peer_tests_test.runfiles/cotune && python3 tests/torch/peer_tests.py FOLDER
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading

from testing.torchrun import Tree

ALL_EQUAL, SOME_DIFFER, USAGE, TOO_FEW = 0, 1, 2, 3
EXIT_CODES = (
    "exit codes: 0 each test has the same outcome, or is in the list of known differences; 1 some differ, or a known "
    "difference is gone; 2 usage, or a module that cannot be imported; 3 fewer tests ran than --at-least"
)
MODULES = ("test_functional_api", "test_c10d_functional_native", "test_inductor_collectives")
HERE = pathlib.Path(__file__).resolve().parent
# A line of the records is seen at the latest after this time.
LOOK_S = 0.2
# A reason that begins with it is of a difference that comes and goes.
SOMETIMES = "sometimes "
# Numbers, addresses and paths in the line of a failure differ from run to run.
VARIES = re.compile(r"0x[0-9a-f]+|/[\w./-]+|\d+(\.\d+)?")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a test: "passed", "failed", "skipped", "cut" or "crashed", with the first line of the failure."""

    what: str
    line: str = ""
    # Programs that cotune has taken from the graphs of the test, on all ranks.
    programs: int = 0

    @property
    def has_run(self) -> bool:
        return self.what != "skipped"

    def equals(self, other: Outcome) -> bool:
        return self.what == other.what and VARIES.sub("#", self.line) == VARIES.sub("#", other.line)

    def __str__(self) -> str:
        return f"{self.what}: {self.line}" if self.line else self.what


class Watch:
    """The process of one module. It ends with its ranks if a test, or the import of the module, takes too long."""

    def __init__(self, command: list[str], environment: dict[str, str], log: pathlib.Path, records: pathlib.Path):
        self._records = records
        with log.open("a") as file:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )

    def read(self) -> list[dict]:
        return [json.loads(line) for line in self._records.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def await_end(self, timeout_s: float) -> tuple[list[dict], bool]:
        """The records, and whether the process was cut: nothing was recorded for `timeout_s`."""
        known, clock, waker = -1, 0.0, threading.Event()
        while self._process.poll() is None:
            if (count := len(self.read())) != known:
                known, clock = count, 0.0
            elif clock > timeout_s:
                self._end()
                return self.read(), True
            waker.wait(LOOK_S)
            clock += LOOK_S
        # Ranks that a test has left behind.
        self._end()
        return self.read(), False

    def _end(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self._process.wait()


@dataclasses.dataclass
class Run:
    """One run of modules, with or without cotune."""

    timeout_s: float
    only: str
    environment: dict[str, str]
    work: pathlib.Path
    # Names that a module imports and that the installed version lacks, by module.
    absent: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def outcomes(self, module: str) -> dict[str, Outcome]:
        """The outcome of each test of a module. Raises ImportError with the reason if the module cannot be imported."""
        found: dict[str, Outcome] = {}
        while True:
            records, was_cut = self._process(module, found)
            imported = next((each for each in records if each["test"] == "module"), None)
            if imported is None or imported["outcome"] == "failed":
                why = "its import does not end" if was_cut else "its process has ended before its tests"
                raise ImportError(f"{module}: {imported['line'] if imported else why}")
            self.absent[module] = imported["line"].split()
            begun = None
            for each in records[1:]:
                if each["test"] == "all":
                    return found
                begun = each["test"] if each["outcome"] == "begun" else None
                if begun is None:
                    found[each["test"]] = Outcome(each["outcome"], each["line"], each["programs"])
            if begun is None:
                raise ImportError(f"{module}: its process has ended between two tests")
            found[begun] = Outcome("cut", f"no end after {self.timeout_s:g} s") if was_cut else Outcome("crashed")

    def _process(self, module: str, done: dict[str, Outcome]) -> tuple[list[dict], bool]:
        records, skip = self.work / f"{module}.records", self.work / f"{module}.skip"
        records.write_text("")
        skip.write_text("\n".join(done))
        command = [sys.executable, "-B", str(HERE / "peers/record_tests.py"), module, str(records)]
        command += ["--skip", str(skip), "--only", self.only]
        return Watch(command, self.environment, self.work / f"{module}.log", records).await_end(self.timeout_s)


def prepare_run(options: argparse.Namespace, enables: bool) -> Run:
    tree = Tree()
    work = options.work or pathlib.Path(tempfile.mkdtemp(prefix="cotune_peers."))
    work = work.resolve() / ("with" if enables else "without")
    work.mkdir(parents=True, exist_ok=True)
    environment = tree.environment(
        # Graphs from another run's cache would not come to cotune.
        TORCHINDUCTOR_CACHE_DIR=tempfile.mkdtemp(prefix="inductor.", dir=work),
        COTUNE_PEERS_PROGRAMS=str(work / "programs"),
        COTUNE_PEERS_FOLDER=str(options.folder),
        COTUNE_PEERS_ENABLES=str(int(enables)),
        COTUNE_PEERS_LIFTS=str(int(options.lift)),
    )
    own = [str(HERE / "peers"), str(options.folder), *map(str, options.packages)]
    environment["PYTHONPATH"] = os.pathsep.join([*own, environment["PYTHONPATH"]])
    return Run(options.timeout_s, options.only, environment, work)


def read_known(path: pathlib.Path) -> dict[str, str]:
    """The reasons of known differences by test: lines of "test: reason"; lines that begin with # are remarks."""
    pairs = (line.partition(": ") for line in path.read_text().splitlines() if line.strip() and not line.startswith("#"))
    return {test: reason for test, _, reason in pairs}


def counts(outcomes: dict[str, Outcome]) -> str:
    by_what = collections.Counter(each.what for each in outcomes.values())
    return ", ".join(f"{by_what[what]} {what}" for what in ("passed", "failed", "skipped", "cut", "crashed") if by_what[what])


def compare(module: str, without: dict[str, Outcome], with_it: dict[str, Outcome], known: dict[str, str]) -> list[str]:
    """Prints the numbers of a module and the table of its differences; returns the tests that nobody has explained."""
    print(f"{module}: without cotune {counts(without)}; with cotune {counts(with_it)}", flush=True)
    absent = Outcome("absent")
    unexplained = []
    for test in sorted({*without, *with_it}):
        before, after = without.get(test, absent), with_it.get(test, absent)
        if before.equals(after):
            if test in known and not known[test].startswith(SOMETIMES):
                unexplained.append(test)
                print(f"  {test}\n    has the same outcome both ways, and is among the known differences")
            continue
        print(f"  {test}\n    without: {before}\n    with:    {after}")
        if reason := known.get(test):
            print(f"    known:   {reason}")
        else:
            unexplained.append(test)
    return unexplained


def verdict(ran: int, at_least: int, unexplained: list[str]) -> int:
    """The exit code."""
    if ran < at_least:
        print(f"peer_tests.py: fewer than {at_least} tests ran; --lift also runs those that need GPUs", file=sys.stderr)
        return TOO_FEW
    return SOME_DIFFER if unexplained else ALL_EQUAL


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="peer_tests.py", description=__doc__, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"[{' '.join(MODULES)}]")
    parser.add_argument("--lift", action="store_true", help="also runs tests that need GPUs: CPU and gloo stand for CUDA and NCCL")
    parser.add_argument("--only", default="", help="pattern that is in the names of the tests to run")
    parser.add_argument("--timeout", dest="timeout_s", type=float, default=120.0, help="seconds for a test [%(default)s]")
    parser.add_argument("--at-least", type=int, default=1, help="tests that have to run, passed or failed [%(default)s]")
    parser.add_argument(
        "--known", type=pathlib.Path, default=HERE / "peer_differences.txt",
        help="file with lines 'test: reason' of known differences; 'test: sometimes ...' if they come and go [%(default)s]",
    )  # fmt: skip
    parser.add_argument("--packages", type=pathlib.Path, action="append", default=[], help="folder with more Python packages")
    parser.add_argument("--work", type=pathlib.Path, help="folder for records and logs [a temporary one]")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    options.folder = options.folder.resolve()
    modules = options.modules or MODULES
    if lacking := [each for each in modules if not (options.folder / f"{each}.py").is_file()]:
        print(f"peer_tests.py: {options.folder} has no {lacking[0]}.py", file=sys.stderr)
        return USAGE
    known = read_known(options.known)
    without, with_it = (prepare_run(options, enables) for enables in (False, True))
    unexplained, ran = [], 0
    for module in modules:
        try:
            before, after = without.outcomes(module), with_it.outcomes(module)
        except ImportError as failure:
            print(f"peer_tests.py: {failure}; its log is in {without.work} or {with_it.work}", file=sys.stderr)
            return USAGE
        for name in without.absent[module]:
            print(f"{module}: the installed version has no {name}; the tests that use it fail")
        taken = sum(each.programs > 0 for each in after.values())
        print(f"{module}: cotune takes collectives from {taken} of {len(after)} tests")
        unexplained += compare(module, before, after, known)
        ran += sum(each.has_run for each in before.values())
    print(f"{ran} tests ran, {len(unexplained)} with a difference that is not known; logs are in {without.work.parent}")
    return verdict(ran, options.at_least, unexplained)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
