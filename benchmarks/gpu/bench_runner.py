"""The command benchmarks/gpu/run: parts one after the other, all they measured kept after each."""

import argparse
import contextlib
import dataclasses
import datetime
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import problems

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Beside it in the tree, and in the sources.
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import machine  # noqa: E402
from rank_processes import NO_MULTICAST, RankProcesses, transcript  # noqa: E402

ALL_DONE, SOME_FAILED, NO_GPU = 0, 1, 3
# Cells that are left when it is used up run the defaults, and the tune counts as failed.
TUNE_BUDGET_S = 400
# Calls on registered buffers have a table of their own from this size on.
REGISTERED_BYTES_MIN = 1 << 20
GROUPS = ("tune", "cotune", "cotune_registered", "nccl", "nccl_symmetric", "symm_mem", "host_call")
DESCRIPTION = """Measures, on all GPUs of this machine, in bf16 and by one method: cotune (tuned here first), NCCL, NCCL on
symmetric windows, and torch's symm_mem all_reduce; what a tune costs, cold and warm; and what one call costs the host.
Needs python3 with torch. FILE is written anew after every part; a FILE that exists is gone on with: its tuned database
lies in FILE.work."""
EXIT_CODES = "exit codes: 0 all parts done and all values right; 1 not; 2 usage; 3 no GPU (or fewer than 2)"


@dataclasses.dataclass
class Setting:
    """Of one run of the command."""

    ranks: int
    memory: str
    sizes: list[int]
    collectives: list[str]
    runs: int
    replays: int
    work: pathlib.Path
    root: pathlib.Path = ROOT  # of the tree that is measured

    @property
    def database(self) -> str:
        return str(self.work / "tuned.tdb")

    @property
    def cotune(self) -> str:
        return str(self.root / "bin" / "cotune")


@dataclasses.dataclass(frozen=True)
class Part:
    """run gives what it adds to the file's content, and why it failed or ''."""

    name: str
    group: str
    limit_s: float
    run: Callable[[float], tuple[dict, str]]


# ---- Measuring: one process a rank ----


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of loopback that nobody else is given meanwhile. Who sets SO_REUSEADDR, as torch's store does, can listen there."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def merged(lines_of_ranks: list[list[dict]], run: int) -> list[dict]:
    """One record for each problem that all ranks have measured: replay by replay the largest over ranks."""
    measurements = []
    for records in zip(*lines_of_ranks, strict=False):
        first = records[0]
        key = [(record["collective"], record["bytes"]) for record in records]
        if len(set(key)) != 1:
            raise ValueError(f"ranks measured other things: {key}")
        replays_us = [max(each) for each in zip(*(record["times_us"] for record in records), strict=False)]
        measurements.append({
            "contender": first["contender"], "run": run, "collective": first["collective"], "bytes": first["bytes"],
            "count": first["count"], "calls": first["calls"], "replays": len(replays_us),
            "time_us": round(statistics.median(replays_us), 3), "low_us": min(replays_us), "high_us": max(replays_us),
            "right": all(record["right"] for record in records),
        })
    return measurements


def whole_lines(path: pathlib.Path) -> list[dict]:
    """A rank that was ended may have left half a line."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def library_of(root: pathlib.Path) -> pathlib.Path:
    """Trees of before 2026-11-23 have it without a number."""
    numbered = root / "lib" / "libcotune.so.0"
    return numbered if numbered.exists() else numbered.with_suffix("")


def measure_script(root: pathlib.Path) -> pathlib.Path:
    return root / "benchmarks" / "gpu" / "measure.py"


def measure_part(setting: Setting, contender: str, group: str, collectives: list[str], run: int) -> Part:
    def measure(limit_s: float) -> tuple[dict, str]:
        out = setting.work / f"{contender}.{'-'.join(collectives)}.{run}.lines"
        command = [
            sys.executable, str(measure_script(setting.root)), "--contender", contender, "--collectives", ",".join(collectives),
            "--sizes", ",".join(map(str, setting.sizes)), "--memory", setting.memory,
            "--out", str(out), "--database", setting.database, "--library",
            str(library_of(setting.root)), "--plugins",
            str(setting.root / "lib" / "cotune" / "plugins"), "--replays", str(setting.replays),
        ]
        with reserved_port() as port, RankProcesses([*command, "--port", str(port)], setting.ranks, setting.work) as processes:
            in_time = processes.wait(processes.began + limit_s)
            ends = processes.ends()
        lines = [whole_lines(out.with_name(f"{out.name}.{rank}")) for rank in range(setting.ranks)]
        added = {"measurements": merged([each[1:] for each in lines], run)}
        if all(lines):
            added["versions"] = lines[0][0]["versions"]
        wrong = [f"{each['collective']} {each['bytes']}" for each in added["measurements"] if not each["right"]]
        why = "" if in_time else f"not done after {limit_s:g} s; "
        if wrong:
            why += f"wrong values: {', '.join(wrong)}; "
        if not added["measurements"]:
            why += "nothing measured; "
        if why or any(end.exit_code != 0 for end in ends):
            return added, f"{why}\n{transcript(ends)}"
        return added, ""

    return Part(f"{contender} {','.join(collectives)}, run {run}", group, 240, measure)


# ---- The tune: what it costs and where the time goes ----


class StageClock:
    """When each line of standard error came."""

    def __init__(self, stream):
        self.began = time.monotonic()
        self.marks: list[tuple[str, float]] = []
        self.text = ""
        self.thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self.thread.start()

    def _read(self, stream) -> None:
        for line in stream:
            self.text += line
            if line.startswith("stage "):
                self.marks.append((line.split()[1], time.monotonic() - self.began))

    def durations_s(self, end_s: float) -> dict[str, float]:
        """From each stage's line to the next one's; "start" before the first."""
        durations: dict[str, float] = {}
        marks = [("start", 0.0), *self.marks, ("end", end_s)]
        for (name, begin), (_, end) in itertools.pairwise(marks):
            durations[name] = round(durations.get(name, 0) + end - begin, 4)
        return durations


def tune_command(setting: Setting, buffers: str, sizes: list[int]) -> list[str]:
    return [setting.cotune, "tune", "--ranks", str(setting.ranks), "--memory", setting.memory, "--dtype", "bf16",
            "--collective", ",".join(setting.collectives), "--sizes", ",".join(map(str, sizes)),
            "--buffers", buffers, "--db", setting.database, "--budget", f"{TUNE_BUDGET_S}s", "--json", "--verbose"]


def tuned_cells(entries: list[dict]) -> list[dict]:
    """What is kept of a tune's result: each cell's winner, the default, and every choice's time."""
    return [{
        "collective": entry["collective"], "bytes": entry["bytes"], "count": entry["count"],
        "winner": entry["winner"]["choice"], "time_us": entry["winner"]["time_us"],
        "default": entry["winner"]["default"], "default_us": entry["winner"]["default_time_us"],
        "choices": [[choice["choice"], choice["time_us"], choice["outcome"]] for choice in entry["choices"]],
    } for entry in entries]


def run_tune(setting: Setting, limit_s: float, buffers: str = "plain",
             sizes: list[int] | None = None) -> tuple[dict, dict | None, str]:
    """Costs, the tool's result, and why it failed or ''."""
    environment = {**os.environ, **NO_MULTICAST}
    with subprocess.Popen(tune_command(setting, buffers, sizes or setting.sizes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        clock = StageClock(process.stderr)
        timer = threading.Timer(limit_s, lambda: os.kill(process.pid, signal.SIGKILL))
        timer.start()
        out = process.stdout.read()
        process.wait()
        timer.cancel()
        wall_s = time.monotonic() - clock.began
        clock.thread.join(timeout=10)
    if process.returncode != 0:
        return {}, None, f"ended with {process.returncode} after {wall_s:.0f} s: {(out + clock.text)[-3000:]}"
    result = json.loads(out)["result"]
    costs = {"wall_s": round(wall_s, 3), "measured_cells": result["measured_cells"],
             "known_cells": result["known_cells"], "elapsed_us": result["elapsed_us"],
             "pre_sync_us": result["pre_sync_us"], "stages_s": clock.durations_s(wall_s)}
    return costs, result, "" if result["committed"] else "the tune was not committed"


def cold_tune_part(setting: Setting) -> Part:
    def tune(limit_s: float) -> tuple[dict, str]:
        for path in (setting.work / "cache", setting.work / "tuned.tdb"):
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        costs, result, why = run_tune(setting, limit_s)
        if result is None:
            return {}, why
        choices = sum(len(entry["choices"]) for entry in result["entries"])
        if result["skipped_cells"]:
            why += f"{result['skipped_cells']} cells were left out after {TUNE_BUDGET_S} s"
        return {"tune": {"cold": {**costs, "choices": choices}, "cells": tuned_cells(result["entries"])}}, why

    return Part("tune, cold", "tune", 500, tune)


def warm_tune_part(setting: Setting) -> Part:
    def tune(limit_s: float) -> tuple[dict, str]:
        costs, result, why = run_tune(setting, limit_s)
        if result is None:
            return {}, why
        if costs["measured_cells"] != 0:
            why = f"measured {costs['measured_cells']} cells again"
        return {"tune": {"warm": costs}}, why

    return Part("tune, warm", "tune", 90, tune)


def registered_tune_part(setting: Setting) -> Part:
    """Below these sizes nothing on registered buffers beats what runs on plain ones, so that they run as those."""
    sizes = [size for size in setting.sizes if size >= REGISTERED_BYTES_MIN]

    def tune(limit_s: float) -> tuple[dict, str]:
        costs, result, why = run_tune(setting, limit_s, "symmetric", sizes)
        if result is None:
            return {}, why
        return {"tune": {"registered": costs, "registered_cells": tuned_cells(result["entries"])}}, why

    return Part("tune on registered buffers, cold", "cotune_registered", 300, tune)


# ---- The host's side of one call ----


def host_call_part(setting: Setting) -> Part:
    def measure(limit_s: float) -> tuple[dict, str]:
        command = [str(HERE / "host_call"), setting.database, str(ROOT / "lib" / "cotune" / "plugins")]
        with RankProcesses(command, setting.ranks, setting.work) as processes:
            in_time = processes.wait(processes.began + limit_s)
            ends = processes.ends()
        if not in_time or any(end.exit_code != 0 for end in ends):
            return {}, transcript(ends)
        last = [line for line in ends[0].output.splitlines() if line.startswith("{")]
        return {"host_call": json.loads(last[-1])}, ""

    return Part("host_call", "host_call", 90, measure)


# ---- The command ----


def all_parts(setting: Setting) -> list[Part]:
    parts = [cold_tune_part(setting), warm_tune_part(setting)]
    for run in range(1, setting.runs + 1):
        parts.append(measure_part(setting, "cotune", "cotune", setting.collectives, run))
        if setting.memory == "host":
            continue
        if run == 1:
            parts.append(registered_tune_part(setting))
        parts.append(measure_part(setting, "cotune_registered", "cotune_registered", setting.collectives, run))
        parts.append(measure_part(setting, "nccl", "nccl", setting.collectives, run))
        for collective in setting.collectives:
            # In fresh processes: after a series of captured collectives on one window, broadcasts of NCCL 2.28.9 have
            # ended in illegal accesses.
            parts.append(measure_part(setting, "nccl_symmetric", "nccl_symmetric", [collective], run))
        if "all_reduce" in setting.collectives:
            for name in ("symm_mem_one_shot", "symm_mem_two_shot"):
                parts.append(measure_part(setting, name, "symm_mem", ["all_reduce"], run))
    if setting.memory == "cuda":
        parts.append(host_call_part(setting))
    return parts


class ResultFile:
    """What is known so far; complete on disk after every part."""

    def __init__(self, path: pathlib.Path, about: dict):
        self.path = path
        self.content = json.loads(path.read_text()) if path.exists() else {
            "schema": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), **about,
            "versions": {}, "parts": [], "measurements": [], "tune": {}, "host_call": {},
        }
        if self.content["ranks"] != about["ranks"]:
            raise ValueError(f"{path} is of {self.content['ranks']} ranks; name another file")

    def add(self, part: Part, added: dict, why: str, seconds: float) -> None:
        content = self.content
        content["parts"] = [each for each in content["parts"] if each["name"] != part.name]
        content["parts"].append({"name": part.name, "seconds": round(seconds, 1), "ok": not why, "output": why[:4000]})
        fresh = {(each["contender"], each["run"], each["collective"], each["bytes"])
                 for each in added.get("measurements", [])}
        content["measurements"] = [
            each for each in content["measurements"]
            if (each["contender"], each["run"], each["collective"], each["bytes"]) not in fresh
        ] + added.get("measurements", [])
        for key in ("tune", "host_call", "versions"):
            content[key].update(added.get(key, {}))
        self.write()

    def write(self) -> None:
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(json.dumps(self.content, separators=(",", ":")) + "\n")
        new.replace(self.path)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu/run", description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE", help="JSON, for report.py")
    parser.add_argument("--ranks", type=int, metavar="N", help="GPUs to use, 2 or more [all]")
    parser.add_argument("--part", metavar="NAMES", default=",".join(GROUPS),
                        help=f"which parts to run, parted by ',' [{','.join(GROUPS)}]")
    parser.add_argument("--runs", type=int, choices=range(1, 10), metavar="N",
                        help="whole runs of each contender; the report takes the best [2, with --quick 1]")
    parser.add_argument("--collectives", metavar="NAMES", default=",".join(problems.COLLECTIVES))
    parser.add_argument("--quick", action="store_true", help="6 sizes, one run")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", default=float("inf"),
                        help="parts that would begin later are not run, and count as failed")
    parser.add_argument("--memory", choices=("cuda", "host"), default="cuda",
                        help="host: cotune alone on host memory, to test the benchmark")
    options = parser.parse_args(arguments)
    for name, known in (("part", GROUPS), ("collectives", problems.COLLECTIVES)):
        unknown = set(getattr(options, name).split(",")) - set(known)
        if unknown:
            parser.error(f"--{name}: unknown {', '.join(sorted(unknown))}")
    if options.ranks is not None and options.ranks < 2:
        parser.error("a collective needs 2 ranks or more")
    return options


def setting_of(options: argparse.Namespace, gpus: int) -> Setting:
    ranks = options.ranks or (gpus if options.memory == "cuda" else 2)
    sizes = problems.QUICK_SIZES if options.quick else problems.SIZES
    runs = options.runs or (1 if options.quick else 2)
    work = options.out.with_name(options.out.name + ".work").resolve()
    replays = 21 if options.memory == "cuda" else 3
    return Setting(ranks, options.memory, sizes if options.memory == "cuda" else sizes[:2],
                   options.collectives.split(","), runs, replays, work)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    about = machine.describe(ROOT / "bin" / "cotune")
    setting = setting_of(options, len(about["gpus"]))
    if setting.memory == "cuda" and (len(about["gpus"]) < 2 or setting.ranks > len(about["gpus"])):
        print(f"nothing was measured: this machine shows {len(about['gpus'])} GPUs, and {max(setting.ranks, 2)} are "
              "needed (see nvidia-smi and CUDA_VISIBLE_DEVICES)", file=sys.stderr)
        return NO_GPU
    setting.work.mkdir(parents=True, exist_ok=True)
    # Kernels that the tune has compiled are there for all that follows.
    os.environ["XDG_CACHE_HOME"] = str(setting.work / "cache")
    results = ResultFile(options.out, {"machine": about, "ranks": setting.ranks, "quick": options.quick})
    parts = [part for part in all_parts(setting) if part.group in options.part.split(",")]
    began = time.monotonic()
    failed = 0 if parts else 1
    for part in parts:
        part_began = time.monotonic()
        if part_began - began >= options.stop_after:
            added, why = {}, f"not run: {options.stop_after:g} s were over"
        else:
            try:
                added, why = part.run(part.limit_s)
            except (OSError, ValueError, KeyError) as error:
                added, why = {}, f"{type(error).__name__}: {error}"
        results.add(part, added, why, time.monotonic() - part_began)
        failed += bool(why)
        print(f"{'FAILED' if why else 'ok    '} {part.name} {time.monotonic() - part_began:.1f} s", flush=True)
        if why:
            print("       " + why.strip().replace("\n", "\n       "), flush=True)
    print(f"{len(parts) - failed} of {len(parts)} parts done; {options.out}")
    return SOME_FAILED if failed else ALL_DONE
