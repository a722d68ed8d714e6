"""The phases of `./dev test`, with programs in the place of bazel, lint.py and ./dev that note how they were called."""

import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).absolute().parent.parent
sys.path.insert(0, str(REPO / "bazel"))
import test_run  # noqa: E402

FAKE_BAZEL = """#!/bin/sh
echo "$@" >> "$CALLS"
for argument in "$@"; do
  case "$argument" in
    --build_event_json_file=*) cp "$EVENTS" "${argument#*=}" ;;
    --output_user_root=*) mkdir -p "${argument#*=}/made" && chmod a-w "${argument#*=}/made" ;;
  esac
done
case "$*" in *"$INTERRUPT_AT"*) exit 8 ;; esac
"""
FAKE_CHECK = """#!/bin/sh
echo "$(basename $0) $@" >> "$CALLS"
echo "$COTUNE_COLD_CACHE" >> "$CALLS.cold"
[ "$2" != "$FAILING_CHECK" ] && [ "$1" != "$FAILING_CHECK" ]
"""


class TestRunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bazel").mkdir()
        self.write("path/bazel", FAKE_BAZEL)
        # The linters are run by the same Python.
        for name in ("lint.py", "prose.py"):
            lint = f"import subprocess, sys\nsys.exit(subprocess.run(['./lint', '{name}', *sys.argv[1:]]).returncode)\n"
            self.write(f"bazel/{name}", lint)
        self.write("lint", FAKE_CHECK)
        self.write("dev", FAKE_CHECK)
        passed = {"id": {"testSummary": {"label": "//a:a"}}, "testSummary": {"overallStatus": "PASSED"}}
        finished = {"id": {"buildFinished": {}}, "finished": {"exitCode": {"name": "SUCCESS"}}}
        self.write("events.json", json.dumps(passed) + "\n" + json.dumps(finished) + "\n")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run_tests(
        self, *flags: str, interrupt_at: str = "never", failing_check: str = "none", path: str = os.environ["PATH"]
    ) -> tuple[int, list[str]]:
        environment = {
            **os.environ,
            "PATH": f"{self.folder}/path:{path}",
            "CALLS": f"{self.folder}/calls",
            "EVENTS": f"{self.folder}/events.json",
            "INTERRUPT_AT": interrupt_at,
            "FAILING_CHECK": failing_check,
        }
        done = subprocess.run(
            [sys.executable, "-B", str(REPO / "bazel/test_run.py"), "--cache", f"{self.folder}/cache", "--venv", "/venv"]
            + list(flags),
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout.splitlines()

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def test_all_phases_run_and_are_counted(self):
        status, lines = self.run_tests()
        self.assertEqual((status, lines[-1]), (0, "9 passed, 0 failed"))
        plain, asan, tsan, *checks = self.calls()
        self.assertIn("--test_env=VIRTUAL_ENV=/venv", plain)
        self.assertIn("--test_tag_filters=-exhaustive //...", plain)
        self.assertIn("--config=asan --test_tag_filters=-nosan,-exhaustive //...", asan)
        self.assertIn("--config=tsan --test_tag_filters=-nosan,-notsan,-single_threaded,-exhaustive //...", tsan)
        lints = ["lint lint.py format", "lint lint.py python", "lint prose.py check", "lint lint.py tidy --changed"]
        self.assertEqual(checks, [*lints, "dev check-dist", "dev check-wheel"])
        times = [line.split()[0] for line in lines if ":" in line and not line.startswith("slowest")]
        self.assertEqual(times, ["tests", "asan", "tsan", "format", "python", "prose", "tidy", "dist", "wheel", "all"])

    def test_all_takes_the_exhaustive_tests_in(self):
        self.run_tests("--all")
        self.assertNotIn("exhaustive", "".join(self.calls()))
        self.assertIn("-nosan", self.calls()[1])

    def test_a_check_that_fails_is_named_and_the_others_run(self):
        names = {"check-dist": "dist", "check-wheel": "wheel", "tidy": "tidy", "format": "format", "python": "python", "prose.py": "prose"}
        for check, name in names.items():
            status, lines = self.run_tests(failing_check=check)
            self.assertEqual((status, lines[-2:]), (1, [f"FAILED {name}", "8 passed, 1 failed"]))
        self.assertEqual(len(self.calls()), len(names) * 9)

    def test_without_bazel_the_run_ends_with_its_closing_line(self):
        (self.folder / "path/bazel").chmod(0o644)
        status, lines = self.run_tests(path="/nowhere")
        self.assertEqual((status, lines[-1]), (1, "6 passed, 3 failed"))

    def test_a_signal_is_passed_on_and_a_cold_run_cleans_up(self):
        self.write("path/bazel", "#!/bin/sh\necho $* >> $CALLS\ncase $* in *shutdown) exit;; esac\nkill -TERM $PPID\nexec sleep 100\n")
        status, lines = self.run_tests("--cold")
        self.assertEqual((status, lines, len(self.calls())), (130, [], 2))
        self.assertFalse((self.folder / "cache/cold").exists())

    def test_the_cache_keeps_what_was_used_last(self):
        cache = self.folder / "disk"
        for i in range(6):
            path = cache / f"{i % 2}" / str(i)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(100))
            os.utime(path, (1000 + i, 500))
        self.assertEqual(test_run.trim(cache, 600, 300), 0)
        self.assertEqual(test_run.trim(cache, 599, 300), 3)
        self.assertEqual(sorted(path.name for path in cache.rglob("*") if path.is_file()), ["3", "4", "5"])
        self.assertEqual(test_run.trim(self.folder / "nothing", 0, 0), 0)

    def test_a_second_cold_run_is_refused(self):
        (self.folder / "cache").mkdir()
        with open(self.folder / "cache/cold.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            status, lines = self.run_tests("--cold")
        self.assertEqual((status, lines), (1, []))

    def test_cold_removes_read_only_folders_and_leaves_what_links_name(self):
        (self.folder / "kept").write_text("kept")
        (self.folder / "kept").chmod(0o444)
        made = self.folder / "cache/cold/made"
        made.mkdir(parents=True)
        (made / "link").symlink_to(self.folder / "kept")
        made.chmod(0o500)
        self.run_tests("--cold")
        self.assertEqual((self.folder / "kept").stat().st_mode & 0o777, 0o444)

    def test_an_interrupt_ends_the_run(self):
        status, lines = self.run_tests(interrupt_at="--config=asan")
        self.assertEqual((status, lines, len(self.calls())), (130, [], 2))

    def test_cold_uses_empty_caches_and_removes_them(self):
        stale = self.folder / "cache/cold/stale"
        stale.mkdir(parents=True)
        status, lines = self.run_tests("--cold")
        self.assertEqual((status, lines[-1]), (0, "9 passed, 0 failed"))
        cold = f"{self.folder}/cache/cold"
        plain, *_, shutdown = self.calls()
        self.assertIn(f"--output_user_root={cold}/bazel test", plain)
        self.assertIn(f"--disk_cache={cold}/disk", plain)
        self.assertEqual(shutdown, f"--output_user_root={cold}/bazel shutdown")
        self.assertEqual((self.folder / "calls.cold").read_text().splitlines()[-1], cold)
        self.assertFalse(pathlib.Path(cold).exists())


if __name__ == "__main__":
    unittest.main()
