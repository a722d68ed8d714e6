"""The command benchmarks/gpu/programs: tunes programs, then runs each in all ways, all it measured kept after each."""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import bench_runner
import part_bench
import part_workloads
import program_cases

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Beside it in the tree, and in the sources.
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import machine  # noqa: E402
from rank_processes import NO_MULTICAST, RankProcesses, transcript  # noqa: E402

ALL_DONE, SOME_FAILED, NO_GPU = 0, 1, 3
ROWS = (1, 4, 16, 64, 256, 1024, 2048)
COLUMNS = (8192, 5120, 2880)
ROUNDS = 15
TUNE_BUDGET_S = 120
LIMIT_S = 300  # of a tune, and of one program's measuring at one width
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
# That can be left out; "program" is always measured.
WAYS = ("program_registered", "collectives", "part", "compiled_part", "cotune_compiled", "nccl_compiled",
        "nccl_symmetric_compiled", "symm_mem_one_shot_compiled", "symm_mem_two_shot_compiled")
DESCRIPTION = """Measures, on all GPUs of this machine, the programs of examples/programs as calls of cotune (tuned here first, on plain
and on registered memory), beside their collectives alone, their parts alone, and what users have without programs:
torch.compile's kernels with cotune's collectives, NCCL, NCCL on symmetric windows, and torch's symm_mem. Needs python3
with torch. FILE is written anew after each program and width, and a FILE that exists is gone on with."""
EXIT_CODES = "exit codes: 0 all measured and all values right; 1 not; 2 usage; 3 no GPU"


@dataclasses.dataclass
class Setting:
    """Of one run of the command. `memory` and `rank_program` are others in tests."""

    ranks: int
    rounds: int
    work: pathlib.Path
    root: pathlib.Path
    memory: str
    rank_program: pathlib.Path
    without: str


@dataclasses.dataclass(frozen=True)
class Job:
    """One program at one width."""

    workload: part_workloads.Workload
    columns: int
    text: str
    rows: list[int]

    @property
    def name(self) -> str:
        return f"{self.workload.example} {self.columns}"

    @property
    def file_name(self) -> str:
        return f"{self.workload.example}.{self.columns}"


def rows_of(text: str, wanted: list[int], ranks: int) -> list[int]:
    """R: as wanted, but equal shares for all ranks where a collective needs them; [1] where the program has no R."""
    if "[R," not in text:
        return [1]
    needs_shares = part_bench.SHARES.search(text)
    return list(dict.fromkeys(-(-rows // ranks) * ranks if needs_shares else rows for rows in wanted))


def jobs_of(options: argparse.Namespace, ranks: int) -> list[Job]:
    jobs = []
    for workload in options.workloads:
        example = (pathlib.Path(options.examples) / f"{workload.example}.cotune").read_text(encoding="utf-8")
        for columns in options.columns if workload.has_rows else options.columns[:1]:
            text = workload.text(example, columns)
            jobs.append(Job(workload, columns, text, rows_of(text, options.rows, ranks)))
    return jobs


# ---- Tuning ----


def collective_sizes(job: Job) -> list[int]:
    """Bytes of the program's collectives, as the command line counts them (the larger of send and receive buffer): those of
    the first input in all examples."""
    _, dtype, some_rows, columns, _ = part_workloads.TYPED_INPUT.findall(job.text)[0]
    row_bytes = int(columns) * program_cases.ELEMENT_BYTES[dtype]
    return [(rows if some_rows == "R" else int(some_rows)) * row_bytes for rows in job.rows]


def tune_command(setting: Setting, job: Job, database: pathlib.Path) -> list[str]:
    kinds = [kind for kind in KINDS if f"= {kind} " in job.text]
    dtype = part_workloads.TYPED_INPUT.findall(job.text)[0][1]
    command = [str(setting.root / "bin" / "cotune"), "tune", "--ranks", str(setting.ranks), "--memory", setting.memory, "--program",
               str(setting.work / f"{job.file_name}.cotune"), "--collective", ",".join(kinds), "--dtype", dtype,
               "--sizes", ",".join(map(str, collective_sizes(job))), "--db", str(database), "--budget", f"{TUNE_BUDGET_S}s",
               "--json"]
    if "[R," in job.text:
        command += ["--rows", ",".join(map(str, job.rows))]
    return command + (["--buffers", "plain,symmetric"] if setting.memory == "cuda" else [])


def tune(setting: Setting, job: Job, database: pathlib.Path) -> tuple[dict, str]:
    """The winners of the program, by rows and kind of buffers, and what the tune took; why it failed, or ''."""
    began = time.monotonic()
    try:
        done = subprocess.run(tune_command(setting, job, database), capture_output=True, text=True, check=False, timeout=LIMIT_S,
                              stdin=subprocess.DEVNULL, env={**os.environ, **NO_MULTICAST})
    except subprocess.TimeoutExpired:
        return {}, f"the tune was not done after {LIMIT_S} s"
    if done.returncode != 0:
        return {}, f"the tune ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}"
    result = json.loads(done.stdout)["result"]
    winners = [{"rows": entry["rows"], "buffers": entry["buffer_class"], "choice": entry["winner"]["choice"],
                "time_us": entry["winner"]["time_us"], "default": entry["winner"]["default"],
                "default_us": entry["winner"]["default_time_us"]}
               for entry in result["entries"] if entry["program"]]
    why = "the tune was not committed" if not result["committed"] else ""
    if result["skipped_cells"]:
        why = f"{result['skipped_cells']} cells were left out after {TUNE_BUDGET_S} s"
    return {"winners": winners, "tune_s": round(time.monotonic() - began, 2)}, why


# ---- Measuring ----


def merged(cells: list[dict]) -> dict:
    """One cell of what each rank saw of it: round by round the largest time."""
    first = cells[0]
    if any((each["rows"], each["us"].keys()) != (first["rows"], first["us"].keys()) for each in cells):
        raise ValueError(f"ranks measured other things: {[(each['rows'], list(each['us'])) for each in cells]}")
    us = {name: [max(round_us) for round_us in zip(*(each["us"][name] for each in cells), strict=True)] for name in first["us"]}
    wrong = {name: sum(each["wrong"][name] for each in cells) for name in first["wrong"]}
    return {**first, "us": us, "wrong": wrong}


def measure(setting: Setting, job: Job, database: pathlib.Path) -> tuple[list[dict], dict, str]:
    """A cell for each number of rows, the libraries' versions, and why something failed, or ''."""
    out = setting.work / f"{job.file_name}.lines"
    plugins = setting.root / "lib" / "cotune" / "plugins"
    command = [
        sys.executable, str(setting.rank_program), "--program", job.workload.example, "--file",
        str(setting.work / f"{job.file_name}.cotune"), "--rows", ",".join(map(str, job.rows)), "--rounds", str(setting.rounds),
        "--out", str(out), "--database", str(database),
        "--library", str(setting.root / "lib" / "libcotune.so.0"), "--plugins", str(plugins),
        "--parts-library", str(setting.root / "benchmarks" / "gpu" / "libparts.so"),
        "--parts-plugin", str(plugins / f"cotune_{setting.memory}.so"), "--without", setting.without,
    ]
    paths = [out.with_name(f"{out.name}.{rank}") for rank in range(setting.ranks)]
    for path in paths:
        path.unlink(missing_ok=True)
    with bench_runner.reserved_port() as port, RankProcesses([*command, "--port", str(port)], setting.ranks, setting.work) as processes:
        in_time = processes.wait(processes.began + LIMIT_S)
        ends = processes.ends()
    lines = [bench_runner.whole_lines(path) for path in paths]
    cells = [merged(list(each)) for each in zip(*(of_rank[1:] for of_rank in lines), strict=False)]
    versions = lines[0][0]["versions"] if all(lines) else {}
    why = "" if in_time else f"not done after {LIMIT_S} s; "
    if why or any(end.exit_code != 0 for end in ends):
        return cells, versions, f"{why}\n{transcript(ends)}"
    return cells, versions, ""


def run_job(setting: Setting, job: Job) -> tuple[list[dict], dict, str]:
    """As measure, with what the tune of the same rows chose in each cell."""
    (setting.work / f"{job.file_name}.cotune").write_text(job.text, encoding="utf-8")
    database = setting.work / f"{job.file_name}.tdb"
    database.unlink(missing_ok=True)
    tuned, why = tune(setting, job, database)
    if not tuned:
        return [], {}, why
    cells, versions, failure = measure(setting, job, database)
    for cell in cells:
        cell["job"], cell["tune_s"] = job.name, tuned["tune_s"]
        cell["winners"] = [each for each in tuned["winners"] if each["rows"] in (cell["rows"], None)]
        for name, count in cell["wrong"].items():
            if count:
                why += f"; {cell['rows']} rows: {count} elements of {name} are wrong"
    return cells, versions, "; ".join(each for each in (why, failure) if each)


# ---- The command ----


def medians(cell: dict) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in cell["us"].items()}


def best(us: dict[str, float], prefix: str) -> float | None:
    """The smallest of the ways whose names begin so."""
    return min((time_us for name, time_us in us.items() if name.startswith(prefix)), default=None)


HEADING = (f"{'program':<20} {'rows':>5} {'columns':>7} {'program':>8} {'reg.':>8} {'coll.':>8} {'part':>8} {'+compile':>8} "
           f"{'nccl+c':>8} {'symm.+c':>8} {'torch+c':>8}  us")


def line(cell: dict) -> str:
    us = medians(cell)
    ways = ("program", "program_registered", "collectives", "part", "cotune_compiled", "nccl_compiled", "nccl_symmetric_compiled")
    columns = [*(us.get(way) for way in ways), best(us, "symm_mem")]
    texts = " ".join(f"{'-' if each is None else format(each, '.2f'):>8}" for each in columns)
    return f"{cell['program']:<20} {cell['rows']:>5} {cell['columns']:>7} {texts}"


def parse(arguments: list[str], known_workloads) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu/programs", description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE", help="JSON, for program_report.py")
    parser.add_argument("--ranks", type=part_bench.positive, metavar="N", help="GPUs to use [all]")
    parser.add_argument("--programs", default=",".join(each.example for each in known_workloads))
    parser.add_argument("--rows", type=part_bench.positives, default=",".join(map(str, ROWS)), help="R [%(default)s]")
    parser.add_argument("--columns", type=part_bench.positives, default=",".join(map(str, COLUMNS)),
                        help="widths [%(default)s]")
    parser.add_argument("--rounds", type=part_bench.positive, default=ROUNDS)
    parser.add_argument("--without", metavar="NAMES", default="",
                        help=f"ways that are not measured, parted by ',': {', '.join(WAYS)}")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", default=float("inf"),
                        help="programs that would begin later are not run, and count as failed")
    parser.add_argument("--examples", default=str(ROOT / "examples/programs"))
    options = parser.parse_args(arguments)
    unknown = set(filter(None, options.without.split(","))) - set(WAYS)
    if unknown:
        parser.error(f"--without: unknown {', '.join(sorted(unknown))}; known are {', '.join(WAYS)}")
    known = {each.example: each for each in known_workloads}
    unknown = [name for name in options.programs.split(",") if name not in known]
    if unknown:
        parser.error(f"unknown program {', '.join(unknown)}; known are {', '.join(known)}")
    options.workloads = [known[name] for name in options.programs.split(",")]
    return options


def earlier_content(path: pathlib.Path, about: dict) -> dict:
    """Of a run that is gone on with, or of a new one."""
    if not path.exists():
        return {"schema": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), **about,
                "versions": {}, "cells": [], "failures": {}}
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["ranks"] != about["ranks"]:
        raise ValueError(f"{path} is of {content['ranks']} ranks; name another file")
    return content


def write(path: pathlib.Path, content: dict) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    new.replace(path)


def run(setting: Setting, options: argparse.Namespace, content: dict) -> int:
    began = time.monotonic()
    print(HEADING, flush=True)
    for job in jobs_of(options, setting.ranks):
        if time.monotonic() - began >= options.stop_after:
            cells, versions, why = [], {}, f"not run: {options.stop_after:g} s were over"
        else:
            cells, versions, why = run_job(setting, job)
        fresh = {(cell["job"], cell["rows"]) for cell in cells}
        content["cells"] = [cell for cell in content["cells"] if (cell["job"], cell["rows"]) not in fresh] + cells
        content["versions"].update(versions)
        content["failures"].pop(job.name, None)
        if why:
            content["failures"][job.name] = why[:4000]
        write(options.out, content)
        for cell in cells:
            print(line(cell), flush=True)
        if why:
            print(f"FAILED {job.name}: " + why.strip().replace("\n", "\n       "), flush=True)
    return SOME_FAILED if content["failures"] else ALL_DONE


def main(arguments: list[str], memory: str = "cuda", rank_program: pathlib.Path = HERE / "program_measure.py",
         workloads=part_workloads.WORKLOADS, root: pathlib.Path = ROOT) -> int:
    options = parse(arguments, workloads)
    about = machine.describe(root / "bin" / "cotune")
    gpus = len(about["gpus"])
    ranks = options.ranks or max(gpus, 1)
    if memory == "cuda" and ranks > gpus:
        print(f"error: nothing was measured: this machine shows {gpus} GPUs, and {ranks} are needed (see nvidia-smi and "
              "CUDA_VISIBLE_DEVICES)", file=sys.stderr)
        return NO_GPU
    work = options.out.with_name(options.out.name + ".work").resolve()
    try:
        work.mkdir(parents=True, exist_ok=True)
        content = earlier_content(options.out, {"machine": about, "ranks": ranks})
        # Kernels that a tune has compiled are there for what follows.
        os.environ["XDG_CACHE_HOME"] = str(work / "cache")
        return run(Setting(ranks, options.rounds, work, root, memory, rank_program, options.without), options, content)
    except (OSError, ValueError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return SOME_FAILED
