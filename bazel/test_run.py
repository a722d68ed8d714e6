"""Runs all of `./dev test` and ends with its closing line.

usage: test_run.py --cache FOLDER --venv FOLDER [--cold] [--all]

The phases are all tests as they ship, those that a sanitizer can look into with ASan and UBSan, those that have threads
with TSan, format, lint and the tree of `./dev dist`. Their times and the slowest targets are printed in front of the
closing line. Run it from the top of the checkout; ./dev does. Exits 1 when anything failed, 130 when interrupted.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import test_report
import test_times

# More than there are cores: tests of faults wait for deadlines, and the compiler uses what they leave.
JOBS = (os.cpu_count() or 1) + 2
# Bazel's exit code of a run that the user interrupted.
INTERRUPTED = 8
# Tests with this tag repeat what others do with more types, shapes or seeds.
EXHAUSTIVE = "exhaustive"


class Run:
    """One run: where its caches are, and what the phases so far came to."""

    def __init__(self, arguments: argparse.Namespace, folder: pathlib.Path):
        self.arguments = arguments
        self.folder = folder
        self.phases: list[test_times.Phase] = []
        self.events: list[pathlib.Path] = []
        self.checks: list[str] = []
        self.failed: list[str] = []
        self.environment = dict(os.environ)
        self.startup: list[str] = []
        self.flags = [f"--jobs={JOBS}", f"--local_cpu_resources={JOBS}"]
        self.cold_folder = arguments.cache / "cold"
        if arguments.cold:
            self.use_empty_caches()

    def use_empty_caches(self) -> None:
        remove_tree(self.cold_folder)
        self.cold_folder.mkdir(parents=True)
        self.startup = [f"--output_user_root={self.cold_folder}/bazel"]
        self.flags.append(f"--disk_cache={self.cold_folder}/disk")
        self.environment["COTUNE_COLD_CACHE"] = str(self.cold_folder)  # ./dev dist
        self.environment["XDG_CACHE_HOME"] = str(self.cold_folder)  # lint.py

    def bazel_test(self, name: str, flags: list[str], without_tags: list[str]) -> None:
        skipped = without_tags + ([] if self.arguments.all else [EXHAUSTIVE])
        events = self.folder / f"{name}.json"
        profile = self.folder / f"{name}.profile.gz"
        command = [
            "bazel", *self.startup, "test", "--noshow_progress", "--keep_going", f"--build_event_json_file={events}",
            f"--profile={profile}", "--experimental_profile_include_target_label", *self.flags, *flags,
            "--test_tag_filters=" + ",".join(f"-{tag}" for tag in skipped), "//...",
        ]  # fmt: skip
        say(name)
        began = time.monotonic()
        status = subprocess.run(command, env=self.environment, check=False).returncode
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        self.phases.append(test_times.Phase(name, time.monotonic() - began, test_times.read_profile(profile)))
        self.events.append(events)

    def check(self, name: str, command: list[str]) -> None:
        say(name)
        began = time.monotonic()
        status = subprocess.run(command, env=self.environment, check=False).returncode
        self.phases.append(test_times.Phase(name, time.monotonic() - began))
        self.checks.append(name)
        if status != 0:
            self.failed.append(name)

    def all_phases(self) -> None:
        # NVIDIA's libraries in the plain tests only: no sanitizer looks into them.
        self.bazel_test("tests", [f"--test_env=VIRTUAL_ENV={self.arguments.venv}"], [])
        self.bazel_test("asan", ["--config=asan"], ["nosan"])
        self.bazel_test("tsan", ["--config=tsan"], ["nosan", "single_threaded"])
        self.check("format", [sys.executable, "bazel/lint.py", "format"])
        self.check("tidy", [sys.executable, "bazel/lint.py", "tidy", "--changed"])
        self.check("dist", ["./dev", "check-dist"])

    def end(self) -> None:
        if self.arguments.cold:
            subprocess.run(["bazel", *self.startup, "shutdown"], check=False)
            remove_tree(self.cold_folder)


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


def remove_tree(folder: pathlib.Path) -> None:
    """Also what Bazel has made read-only."""

    def make_writable(function, path, _):
        os.chmod(os.path.dirname(path), 0o700)
        os.chmod(path, 0o700)
        function(path)

    if folder.exists():
        shutil.rmtree(folder, onerror=make_writable)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev test", description="All tests, the sanitizer suites, format and lint.")
    parser.add_argument("--cache", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--venv", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help="with empty caches, which are removed afterwards")
    parser.add_argument("--all", action="store_true", help="the exhaustive tests too (docs/measuring.md)")
    with tempfile.TemporaryDirectory() as folder:
        run = Run(parser.parse_args(), pathlib.Path(folder))
        try:
            run.all_phases()
        except KeyboardInterrupt:
            return 130
        finally:
            run.end()
        print("\n".join(test_times.phase_table(run.phases)))
        print("slowest targets:")
        print("\n".join(test_times.slowest_targets(run.phases)))
        return test_report.closing(run.events, run.checks, run.failed)


if __name__ == "__main__":
    sys.exit(main())
