"""The command benchmarks/gpu/compare: whether a change has made anything slower, or which of several forms of it has not."""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import statistics
import sys
import time
import typing

import bench_runner
import problems

SAME, SLOWER, FAILED, NO_GPU = 0, 1, 2, 3
# A cell counts as slower when it is so in two rounds: one round may have met something else on the machine, or its tune
# another of two choices that are as fast.
CELL_RATIO_MAX = 1.05
ROUNDS_MAX = 1
MEAN_RATIO_MAX = 1.01
DESCRIPTION = """Compares trees, BEFORE and one AFTER or more: each round tunes all of them and then measures them in turns,
in bf16, on plain and on registered buffers. Prints every cell of each AFTER with its ratio AFTER / BEFORE. AFTER is slower
when the geometric mean of all cells is above 1.01, or when one cell is above 1.05 in two rounds. Ratios depend on the GPUs:
forms of a change are compared in one call. FILE is written anew after every part."""
EXIT_CODES = "exit codes: 0 none is slower; 1 one is; 2 usage, or something failed; 3 no GPU (or fewer than 2)"
CONTENDERS = ("cotune", "cotune_registered")  # on plain and on registered buffers

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
    parser.add_argument("after", type=pathlib.Path, nargs="+", metavar="AFTER")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE", help="JSON with all that is measured")
    parser.add_argument("--ranks", type=int, metavar="N", help="GPUs to use, 2 or more [all]")
    parser.add_argument("--rounds", type=int, choices=range(2, 20), default=3, metavar="N", help="2 or more [3]")
    parser.add_argument("--collectives", metavar="NAMES", default=",".join(problems.COLLECTIVES))
    parser.add_argument("--buffers", choices=("plain", "registered", "both"), default="both")
    parser.add_argument("--quick", action="store_true", help="6 sizes")
    parser.add_argument("--memory", choices=("cuda", "host"), default="cuda",
                        help="host: on host memory, to test the command")
    options = parser.parse_args(arguments)
    if options.memory == "host":
        options.buffers = "plain"
    for tree in (options.before, *options.after):
        if not (tree / "bin" / "cotune").is_file():
            parser.error(f"{tree} is no tree of `./dev dist`: it has no bin/cotune")
        if not bench_runner.measure_script(tree).is_file():
            parser.error(f"{tree} has no benchmarks/gpu/measure.py; write it again with `./dev dist DIR --with-tests`")
    return options


def contenders_of(buffers: str) -> tuple[str, ...]:
    return {"plain": CONTENDERS[:1], "registered": CONTENDERS[1:], "both": CONTENDERS}[buffers]


def trees_of(options: argparse.Namespace) -> dict[str, pathlib.Path]:
    """By name: before, after, and where there are more after2 and so on."""
    names = ["after", *(f"after{number}" for number in range(2, len(options.after) + 1))]
    return {"before": options.before, **dict(zip(names, options.after, strict=True))}


def settings_of(options: argparse.Namespace, gpus: int) -> dict[str, bench_runner.Setting]:
    work = options.out.with_name(options.out.name + ".work").resolve()
    settings = {}
    for name, root in trees_of(options).items():
        as_run = argparse.Namespace(ranks=options.ranks, memory=options.memory, quick=options.quick, runs=options.rounds,
                                    collectives=options.collectives, out=options.out)
        setting = bench_runner.setting_of(as_run, gpus)
        setting.root = root.resolve()
        setting.work = work / name
        settings[name] = setting
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    return settings


def turns(settings: dict[str, bench_runner.Setting], rounds: int, contenders: tuple[str, ...]
          ) -> list[tuple[str, bench_runner.Part]]:
    """Each round tunes all, into databases of its own, and then measures all, in another order than the round before."""
    parts = []
    for run in range(1, rounds + 1):
        of_round = {name: dataclasses.replace(setting, work=setting.work / str(run)) for name, setting in settings.items()}
        for setting in of_round.values():
            setting.work.mkdir(parents=True, exist_ok=True)
            pathlib.Path(setting.database).unlink(missing_ok=True)
        for name, setting in of_round.items():
            # Small calls on registered buffers run as those on plain ones.
            parts.append((name, bench_runner.cold_tune_part(setting)))
            if CONTENDERS[1] in contenders:
                parts.append((name, bench_runner.registered_tune_part(setting)))
        for contender in contenders:
            for name in of_round if run % 2 else reversed(of_round):
                setting = of_round[name]
                parts.append((name, bench_runner.measure_part(setting, contender, contender, setting.collectives, run)))
    return parts


class Comparison(typing.NamedTuple):
    ratios: dict[Cell, list[float]]
    mean: float  # geometric, over the medians of the cells
    why: list[str]  # it is slower; empty when it is not


def compare(before: list[dict], after: list[dict]) -> Comparison:
    ratios = ratios_of(before, after)
    if not ratios:
        raise ValueError("nothing was measured")
    return Comparison(ratios, geometric_mean([statistics.median(each) for each in ratios.values()]), judge(ratios))


def print_comparison(name: str, compared: Comparison) -> None:
    for (contender, collective, size), each in compared.ratios.items():
        print(f"{name:7}{contender:18} {collective:15} {size:>10}  {statistics.median(each):.3f}  ".lstrip()
              + " ".join(f"{ratio:.3f}" for ratio in each))
    verdict = "slower: " + "; ".join(compared.why) if compared.why else "not slower"
    print(f"{name:7}geometric mean of {len(compared.ratios)} cells {compared.mean:.4f}; {verdict}".lstrip(), flush=True)


def write(path: pathlib.Path, content: dict) -> None:
    """A reader finds the file whole."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(content, separators=(",", ":")) + "\n")
    new.replace(path)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    about = bench_runner.machine.describe(options.after[0] / "bin" / "cotune")
    if options.memory == "cuda" and len(about["gpus"]) < max(options.ranks or 2, 2):
        print(f"nothing was measured: this machine shows {len(about['gpus'])} GPUs", file=sys.stderr)
        return NO_GPU
    settings = settings_of(options, len(about["gpus"]))
    measurements: dict[str, list[dict]] = {name: [] for name in settings}
    content = {"schema": 2, "machine": about, "ranks": settings["before"].ranks, "rounds": options.rounds,
               "complete": False, "compared": {}, "measurements": measurements}
    write(options.out, content)
    for name, part in turns(settings, options.rounds, contenders_of(options.buffers)):
        began = time.monotonic()
        try:
            added, why = part.run(part.limit_s)
        except ValueError as error:
            added, why = {}, str(error)
        print(f"{'FAILED' if why else 'ok    '} {name}: {part.name} {time.monotonic() - began:.1f} s", flush=True)
        if why:
            print(why.strip(), file=sys.stderr)
            return FAILED
        measurements[name] += added.get("measurements", [])
        write(options.out, content)
    try:
        compared = {name: compare(measurements["before"], each) for name, each in measurements.items() if name != "before"}
    except ValueError as error:
        print(f"the trees cannot be compared: {error}", file=sys.stderr)
        return FAILED
    content["compared"] = {name: {"geometric_mean": round(each.mean, 5), "slower": each.why} for name, each in compared.items()}
    content["complete"] = True
    write(options.out, content)
    for name, each in compared.items():
        print_comparison(name if len(compared) > 1 else "", each)
    return SLOWER if any(each.why for each in compared.values()) else SAME
