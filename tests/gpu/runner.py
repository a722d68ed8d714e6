"""The command tests/gpu/run: steps one after the other, a line for each, a report."""

import argparse
import concurrent.futures
import datetime
import json
import pathlib
import re
import sys
import tempfile
import threading
import time

import machine
import step_types
import steps as gpu_steps

ALL_PASSED, SOME_FAILED, NO_GPU = 0, 1, 3
TAIL = 4000
PARTS = ("cli", "values", "graphs", "sequences", "calls", "programs", "faults", "memory")
DESCRIPTION = """Runs every correctness test of cotune on the GPUs of this machine: on all of them, and on 3 and 2 of 4.
Builds nothing; needs python3 and a tree that `./dev dist DIR --with-tests` wrote (without --with-tests a tree has no
tests). Each step has a time limit of its own; a step that fails does not end the run."""
EXIT_CODES = "exit codes: 0 all passed; 1 a step failed, or none ran; 2 usage; 3 no GPU (or fewer than 2), nothing ran"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--ranks", type=int, metavar="N", help="GPUs to use, 2 or more [all]")
    parser.add_argument("--report", type=pathlib.Path, metavar="FILE", help="JSON, written anew after every step")
    parser.add_argument("--part", metavar="NAMES", default=",".join(PARTS),
                        help=f"which parts to run, parted by ',' [{','.join(PARTS)}]")
    parser.add_argument("--only", metavar="REGEX", default="", help="only steps whose line matches")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", default=float("inf"),
                        help="steps that would begin later are not run, and count as failed")
    parser.add_argument("--jobs", type=int, metavar="N", default=1,
                        help="steps that run at the same time, on the same GPUs; those of the part cli run alone [1]")
    parser.add_argument("--quick", action="store_true", help="fewer types and sizes, for a first look")
    parser.add_argument("--list", action="store_true", help="print the steps and run none")
    parser.add_argument("--memory", choices=("cuda", "host"), default="cuda",
                        help="host: the same programs over shared memory, to test the tests")
    parser.add_argument("--share-gpus", action="store_true",
                        help="as many ranks as --ranks says on as many GPUs as there are, in turns: own kernels only, "
                             "slowly, and nothing that tunes from the command line")
    options = parser.parse_args(arguments)
    unknown = set(options.part.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}")
    if options.ranks is not None and options.ranks < 2:
        parser.error("a collective needs 2 ranks or more")
    if options.jobs < 1:
        parser.error("--jobs is at least 1")
    if options.share_gpus and (options.memory == "host" or options.ranks is None):
        parser.error("--share-gpus is for GPUs, and needs --ranks")
    return options


def label(step: step_types.Step) -> str:
    return f"{step.name} ({step.ranks} ranks)"


def run_step(step: step_types.Step) -> dict:
    began = time.monotonic()
    try:
        outcome = step.run(step)
    except Exception as error:  # noqa: BLE001  a step's own mistake is a failure like others
        outcome = step_types.Outcome(False, f"{type(error).__name__}: {error}")
    return {
        "name": step.name,
        "part": step.part,
        "ranks": step.ranks,
        "seconds": round(time.monotonic() - began, 2),
        "ok": outcome.ok,
        "output": outcome.text[:TAIL],
    }


class Report:
    """Kept complete on disk: steps that have run count, whatever comes later. Any thread."""

    def __init__(self, path: pathlib.Path | None, about: dict):
        self.path = path
        self.content = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), **about,
                        "steps": [], "passed": 0, "failed": 0}
        self._lock = threading.Lock()

    def add(self, step: step_types.Step, result: dict) -> None:
        with self._lock:
            self.content["steps"].append(result)
            self.content["passed" if result["ok"] else "failed"] += 1
            self.write()
            print(f"{'ok    ' if result['ok'] else 'FAILED'} {label(step)} {result['seconds']:.1f} s", flush=True)
            if not result["ok"]:
                print("       " + result["output"].strip().replace("\n", "\n       "), flush=True)

    def write(self) -> None:
        if self.path is None:
            return
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(json.dumps(self.content, indent=1) + "\n")
        new.replace(self.path)


def run_all(steps: list[step_types.Step], report: Report, stop_after_s: float, jobs: int) -> int:
    began = time.monotonic()

    def run(step: step_types.Step) -> None:
        if time.monotonic() - began >= stop_after_s:
            report.add(step, {"name": step.name, "part": step.part, "ranks": step.ranks, "seconds": 0, "ok": False,
                              "output": f"not run: {stop_after_s:g} s were over"})
        else:
            report.add(step, run_step(step))

    # Tunes are measured on idle GPUs, and the steps of this part use the database of the ones before.
    for step in [step for step in steps if step.part == "cli"]:
        run(step)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, [step for step in steps if step.part != "cli"]))
    passed, failed = report.content["passed"], report.content["failed"]
    print(f"{passed} passed, {failed} failed")
    return ALL_PASSED if passed > 0 and failed == 0 else SOME_FAILED


def ranks_to_use(options: argparse.Namespace, gpus: int) -> int:
    if options.memory == "host":
        return options.ranks or 3
    return gpus if options.ranks is None else options.ranks


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    root = pathlib.Path(__file__).resolve().parents[2]
    about = machine.describe(root / "bin" / "cotune")
    ranks = ranks_to_use(options, len(about["gpus"]))
    report = Report(options.report, {"machine": about, "memory": options.memory, "ranks": ranks,
                                     "shares_gpus": options.share_gpus})
    report.write()
    least = 1 if options.share_gpus else max(ranks, 2)
    if options.memory == "cuda" and not options.list and len(about["gpus"]) < least:
        print(f"no test was run: this machine shows {len(about['gpus'])} GPUs, and {least} are needed "
              "(see nvidia-smi and CUDA_VISIBLE_DEVICES)", file=sys.stderr)
        return NO_GPU
    with tempfile.TemporaryDirectory(prefix="cotune-gpu-tests-") as work:
        shared_gpus = max(1, len(about["gpus"])) if options.share_gpus else 0
        tree = step_types.Tree(root, pathlib.Path(work), options.memory, options.quick, shared_gpus)
        steps = [step for step in gpu_steps.all_steps(tree, max(ranks, 2))
                 if step.part in options.part.split(",") and re.search(options.only, label(step))]
        if options.list:
            for step in steps:
                print(f"{step.part:9} {label(step)}, at most {step.limit_s:g} s")
            return ALL_PASSED
        if not steps:
            print("no step fits --part and --only", file=sys.stderr)
            return SOME_FAILED
        return run_all(steps, report, options.stop_after, options.jobs)
