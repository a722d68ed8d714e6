"""The command benchmarks/gpu/compare: whether a change has made anything slower."""

import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import time

import bench_runner
import problems

SAME, SLOWER, FAILED, NO_GPU = 0, 1, 2, 3
# A cell counts as slower when it is so in two rounds: one round may have met something else on the machine.
CELL_RATIO_MAX = 1.05
ROUNDS_MAX = 1
MEAN_RATIO_MAX = 1.01
DESCRIPTION = """Tunes two trees, BEFORE and AFTER, and then measures them in turns, in bf16, on plain and on registered
buffers. Prints every cell with its ratio AFTER / BEFORE. AFTER is slower when the geometric mean of all cells is above
1.01, or when one cell is above 1.05 in two rounds."""
EXIT_CODES = "exit codes: 0 not slower; 1 slower; 2 usage, or something failed; 3 no GPU (or fewer than 2)"

Cell = tuple[str, str, int]  # contender, collective, bytes


def ratios_of(before: list[dict], after: list[dict]) -> dict[Cell, list[float]]:
    """AFTER / BEFORE of each cell, round by round; cells that one of them lacks are an error."""
    def times(measurements: list[dict]) -> dict[Cell, dict[int, float]]:
        found: dict[Cell, dict[int, float]] = {}
        for each in measurements:
            cell = (each["contender"], each["collective"], each["bytes"])
            found.setdefault(cell, {})[each["run"]] = each["time_us"]
        return found

    of_before, of_after = times(before), times(after)
    if of_before.keys() != of_after.keys():
        raise ValueError(f"measured on one side only: {sorted(of_before.keys() ^ of_after.keys())}")
    ratios = {}
    for cell, runs in of_before.items():
        if runs.keys() != of_after[cell].keys():
            raise ValueError(f"{cell} was not measured in the same rounds")
        ratios[cell] = [of_after[cell][run] / time_us for run, time_us in sorted(runs.items())]
    return ratios


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def judge(ratios: dict[Cell, list[float]]) -> list[str]:
    """Why AFTER is slower; empty when it is not."""
    if not ratios:
        return ["nothing was measured"]
    why = []
    mean = geometric_mean([statistics.median(each) for each in ratios.values()])
    if mean > MEAN_RATIO_MAX:
        why.append(f"the geometric mean over {len(ratios)} cells is {mean:.4f}")
    for cell, each in ratios.items():
        if sum(ratio > CELL_RATIO_MAX for ratio in each) > ROUNDS_MAX:
            why.append(f"{cell[0]} {cell[1]} {cell[2]}: " + ", ".join(f"{ratio:.3f}" for ratio in each))
    return why


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu/compare", description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("before", type=pathlib.Path, metavar="BEFORE", help="tree of `./dev dist DIR --with-tests`")
    parser.add_argument("after", type=pathlib.Path, metavar="AFTER")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE", help="JSON with all that is measured")
    parser.add_argument("--ranks", type=int, metavar="N", help="GPUs to use, 2 or more [all]")
    parser.add_argument("--rounds", type=int, choices=range(2, 20), default=3, metavar="N", help="2 or more [3]")
    parser.add_argument("--collectives", metavar="NAMES", default=",".join(problems.COLLECTIVES))
    parser.add_argument("--quick", action="store_true", help="6 sizes")
    parser.add_argument("--memory", choices=("cuda", "host"), default="cuda",
                        help="host: on host memory, to test the command")
    options = parser.parse_args(arguments)
    for tree in (options.before, options.after):
        if not (tree / "bin" / "cotune").is_file():
            parser.error(f"{tree} is no tree of `./dev dist`: it has no bin/cotune")
    return options


def settings_of(options: argparse.Namespace, gpus: int) -> dict[str, bench_runner.Setting]:
    work = options.out.with_name(options.out.name + ".work").resolve()
    settings = {}
    for name in ("before", "after"):
        as_run = argparse.Namespace(ranks=options.ranks, memory=options.memory, quick=options.quick, runs=options.rounds,
                                    collectives=options.collectives, out=options.out)
        setting = bench_runner.setting_of(as_run, gpus)
        setting.root = getattr(options, name).resolve()
        setting.work = work / name
        setting.work.mkdir(parents=True, exist_ok=True)
        settings[name] = setting
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    return settings


def turns(settings: dict[str, bench_runner.Setting], rounds: int) -> list[tuple[str, bench_runner.Part]]:
    """Tunes first; then each round measures both, in another order than the round before."""
    names = list(settings)
    is_cuda = settings["before"].memory == "cuda"
    parts = []
    for name in names:
        parts.append((name, bench_runner.cold_tune_part(settings[name])))
        if is_cuda:
            parts.append((name, bench_runner.registered_tune_part(settings[name])))
    for run in range(1, rounds + 1):
        for contender in ("cotune", "cotune_registered") if is_cuda else ("cotune",):
            for name in names if run % 2 else reversed(names):
                setting = settings[name]
                parts.append((name, bench_runner.measure_part(setting, contender, contender, setting.collectives, run)))
    return parts


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    about = bench_runner.machine.describe(options.after / "bin" / "cotune")
    if options.memory == "cuda" and len(about["gpus"]) < max(options.ranks or 2, 2):
        print(f"nothing was measured: this machine shows {len(about['gpus'])} GPUs", file=sys.stderr)
        return NO_GPU
    settings = settings_of(options, len(about["gpus"]))
    measurements: dict[str, list[dict]] = {name: [] for name in settings}
    for name, part in turns(settings, options.rounds):
        began = time.monotonic()
        added, why = part.run(part.limit_s)
        print(f"{'FAILED' if why else 'ok    '} {name}: {part.name} {time.monotonic() - began:.1f} s", flush=True)
        if why:
            print(why.strip(), file=sys.stderr)
            return FAILED
        measurements[name] += added.get("measurements", [])
    ratios = ratios_of(measurements["before"], measurements["after"])
    why = judge(ratios)
    mean = geometric_mean([statistics.median(each) for each in ratios.values()])
    options.out.write_text(json.dumps({
        "schema": 1, "machine": about, "ranks": settings["after"].ranks, "rounds": options.rounds,
        "geometric_mean": round(mean, 5), "slower": why, "measurements": measurements,
    }, separators=(",", ":")) + "\n")
    for (contender, collective, size), each in ratios.items():
        print(f"{contender:18} {collective:15} {size:>10}  {statistics.median(each):.3f}  "
              + " ".join(f"{ratio:.3f}" for ratio in each))
    print(f"geometric mean of {len(ratios)} cells {mean:.4f}; " + ("not slower" if not why else "slower: " + "; ".join(why)))
    return SLOWER if why else SAME
