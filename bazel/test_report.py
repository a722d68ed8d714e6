"""Counts test results out of Bazel's own build event files and prints the closing line of `./dev test`.

usage: test_report.py EVENTS.json... [--checks NAME...] [--failed NAME...]

Each event file is one `bazel test`; each test target in it counts once, and so does each of --checks (those named by
--failed did not pass). A build that broke counts as one failure, a file without any test result too. Exits 1 when
anything failed or no test ran.
"""

import argparse
import json
import pathlib
import sys


def read_results(path: pathlib.Path) -> tuple[dict[str, str], list[str]]:
    """Returns {label: overall status} and what else went wrong in this invocation."""
    statuses: dict[str, str] = {}
    problems: list[str] = []
    exit_name = None
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue  # the last line of an interrupted build
            identity = event.get("id", {})
            if "testSummary" in event:
                statuses[identity["testSummary"]["label"]] = event["testSummary"]["overallStatus"]
            if "finished" in event:
                exit_name = event["finished"].get("exitCode", {}).get("name", "SUCCESS")
    # TESTS_FAILED is already in the statuses.
    if exit_name is None:
        problems.append(f"{path.stem}: no end of the build in the event file")
    elif exit_name not in ("SUCCESS", "TESTS_FAILED"):
        problems.append(f"{path.stem}: bazel ended with {exit_name}")
    elif not statuses:
        problems.append(f"{path.stem}: no test ran")
    return statuses, problems


def closing(events: list[pathlib.Path], checks: list[str], failed: list[str]) -> int:
    """Prints what failed and the closing line; returns the exit status."""
    passed = 0
    failures: list[str] = []
    tests = 0
    for path in events:
        statuses, problems = read_results(path)
        failures += problems
        tests += len(statuses)
        for label, status in sorted(statuses.items()):
            if status == "PASSED":
                passed += 1
            else:
                failures.append(f"{path.stem}: {label} {status}")
    for check in checks:
        if check in failed:
            failures.append(check)
        else:
            passed += 1
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures or tests == 0 else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("events", nargs="+", type=pathlib.Path)
    parser.add_argument("--checks", nargs="*", default=[])
    parser.add_argument("--failed", nargs="*", default=[])
    arguments = parser.parse_args()
    return closing(arguments.events, arguments.checks, arguments.failed)


if __name__ == "__main__":
    sys.exit(main())
