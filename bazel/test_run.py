"""Runs all of `./dev test` and ends with its closing line.

usage: test_run.py --cache FOLDER --venv FOLDER [--cold] [--all]

The phases are all tests as they ship, those that a sanitizer can look into with ASan and UBSan, those that have threads
with TSan, format, the lint of Python, of prose and of C++, the tree of `./dev dist` and the wheel. Their times and the
slowest targets are printed before the closing line. Run it from the top of the checkout; ./dev does. Exits 1 when
anything failed, 130 when interrupted.
"""

import argparse
import fcntl
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import test_report
import test_times

# One more than there are cores: many tests wait at times, and the compiler uses what they leave.
JOBS = (os.cpu_count() or 1) + 1
# Bazel's exit code of a run that the user interrupted.
INTERRUPTED = 8
# Bazel never removes anything from its disk cache. When it holds more than the first number of bytes, what was not read for
# the longest time goes (to within a day: that is how often most file systems note it), until the second number is left.
DISK_CACHE_BYTES_MAX = 24 << 30
DISK_CACHE_BYTES_KEPT = 16 << 30
# Tests with this tag repeat what others do with more types, shapes or seeds.
EXHAUSTIVE = "exhaustive"


class Run:
    """One run: where its caches are, and what the phases so far came to."""

    def __init__(self, arguments: argparse.Namespace, folder: pathlib.Path):
        self.arguments = arguments
        self.folder = folder
        self.interrupt = Interrupt()
        self.phases: list[test_times.Phase] = []
        self.events: list[pathlib.Path] = []
        self.checks: list[str] = []
        self.failed: list[str] = []
        # For lint.py and for ./dev: a cold run has caches of its own.
        self.lint_environment = dict(os.environ)
        self.dev_environment = dict(os.environ)
        self.startup: list[str] = []
        self.flags = [f"--jobs={JOBS}", f"--local_cpu_resources={JOBS + 1}"]
        self.cold_folder = arguments.cache / "cold"
        self.cold_lock = None
        if arguments.cold:
            self.use_empty_caches()

    def use_empty_caches(self) -> None:
        self.arguments.cache.mkdir(parents=True, exist_ok=True)
        self.cold_lock = open(self.arguments.cache / "cold.lock", "w")  # for as long as this process lives
        try:
            fcntl.flock(self.cold_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit("dev: another cold run of this user is under way; wait for its end")
        remove_tree(self.cold_folder)
        self.cold_folder.mkdir()
        self.startup = [f"--output_user_root={self.cold_folder}/bazel"]
        self.flags.append(f"--disk_cache={self.cold_folder}/disk")
        self.dev_environment["COTUNE_COLD_CACHE"] = str(self.cold_folder)
        self.lint_environment["XDG_CACHE_HOME"] = str(self.cold_folder)
        # Nothing is installed in there.
        self.lint_environment.setdefault("COTUNE_RUFF", str(pathlib.Path(self.arguments.venv) / "bin" / "ruff"))
        for torch in sorted(pathlib.Path(self.arguments.venv).glob("lib/python3*/site-packages/torch")):
            self.lint_environment.setdefault("COTUNE_TORCH", str(torch))

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
        status = self.interrupt.run(command)
        if status == INTERRUPTED or self.interrupt.seen:
            raise KeyboardInterrupt
        self.phases.append(test_times.Phase(name, time.monotonic() - began, test_times.read_profile(profile)))
        self.events.append(events)

    def check(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        say(name)
        began = time.monotonic()
        status = self.interrupt.run(command, environment)
        if self.interrupt.seen:
            raise KeyboardInterrupt
        self.phases.append(test_times.Phase(name, time.monotonic() - began))
        self.checks.append(name)
        if status != 0:
            self.failed.append(name)

    def all_phases(self) -> None:
        # NVIDIA's libraries in the plain tests only: no sanitizer looks into them.
        self.bazel_test("tests", [f"--test_env=VIRTUAL_ENV={self.arguments.venv}"], [])
        self.bazel_test("asan", ["--config=asan"], ["nosan"])
        self.bazel_test("tsan", ["--config=tsan"], ["nosan", "notsan", "single_threaded"])
        self.check("format", [sys.executable, "bazel/lint.py", "format"], self.lint_environment)
        self.check("python", [sys.executable, "bazel/lint.py", "python"], self.lint_environment)
        self.check("prose", [sys.executable, "-B", "bazel/prose.py", "check"], self.lint_environment)
        self.check("tidy", [sys.executable, "bazel/lint.py", "tidy", "--changed"], self.lint_environment)
        self.check("dist", ["./dev", "check-dist"], self.dev_environment)
        self.check("wheel", ["./dev", "check-wheel"], self.dev_environment)

    def clean(self) -> None:
        """Ends what a cold run has started and removes its files; logs a folder that stays."""
        if self.cold_lock is None:
            return
        self.interrupt.seen = False
        self.interrupt.run(["bazel", *self.startup, "shutdown"])
        try:
            remove_tree(self.cold_folder)
        except OSError as error:
            say(f"{self.cold_folder} stays: {error}")


class Interrupt:
    """Passes SIGINT and SIGTERM on to the program that runs; the second one kills it."""

    def __init__(self):
        self.seen = False
        self.program: subprocess.Popen | None = None
        signal.signal(signal.SIGINT, self.notice)
        signal.signal(signal.SIGTERM, self.notice)

    def notice(self, *_) -> None:
        if self.program is not None:
            (self.program.kill if self.seen else self.program.terminate)()
        self.seen = True

    def run(self, command: list[str], environment: dict[str, str] | None = None) -> int:
        """The exit status of a program, or 127 when it cannot be started."""
        try:
            self.program = subprocess.Popen(command, env=environment)
        except OSError as error:
            say(f"{command[0]} cannot be started: {error}")
            return 127
        if self.seen:  # while it was started
            self.program.terminate()
        status = self.program.wait()
        self.program = None
        return status


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


def remove_tree(folder: pathlib.Path) -> None:
    """Also what lies in folders that Bazel has made read-only."""

    def make_writable(function, path, _):
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
        function(path)

    if folder.exists():
        shutil.rmtree(folder, onerror=make_writable)


def trim(folder: pathlib.Path, bytes_max: int, bytes_kept: int) -> int:
    """Removes the files of a cache that were not used for the longest time; how many. Other programs may use it meanwhile."""
    files = []
    for path in folder.rglob("*"):
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            files.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    in_all = sum(size for _, size, _ in files)
    removed = 0
    if in_all <= bytes_max:
        return removed
    for _, size, path in sorted(files):
        if in_all <= bytes_kept:
            break
        path.unlink(missing_ok=True)
        in_all -= size
        removed += 1
    return removed


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev test", description="All tests, the sanitizer suites, format and lint.")
    parser.add_argument("--cache", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--venv", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help="with empty caches, which are removed afterwards")
    parser.add_argument("--all", action="store_true", help="the exhaustive tests too (docs/measuring.md)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(arguments, pathlib.Path(folder))
        try:
            run.all_phases()
            if not arguments.cold:
                trim(arguments.cache / "disk", DISK_CACHE_BYTES_MAX, DISK_CACHE_BYTES_KEPT)
            print("\n".join(test_times.phase_table(run.phases)))
            print("slowest targets:")
            print("\n".join(test_times.slowest_targets(run.phases)))
            return test_report.closing(run.events, run.checks, run.failed)
        except KeyboardInterrupt:
            return 130
        finally:
            sys.stdout.flush()
            run.clean()


if __name__ == "__main__":
    sys.exit(main())
