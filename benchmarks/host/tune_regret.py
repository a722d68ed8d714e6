#!/usr/bin/env python3
"""Compares two builds of cotune by the time that their tunes take and by the time of the winners that they find.

usage: tune_regret.py OLD NEW BENCH FILE [--ranks 2,4] [--rounds 5] [--blocks 60] [--rows 16,64,256] [--only NAME,...]
       tune_regret.py --report FILE...

OLD, NEW: folders with `cotune` and `plugins/`. BENCH: winners_bench, of the build NEW. Tunes of the five collectives and of the
example programs, with a fresh database each, take turns; after each pair of tunes BENCH times both winners and the default in
turns in one process. FILE gets a line of JSON for each cell and round; --report prints tables of files.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLLECTIVES = {
    "all_reduce": "all_reduce sum %x",
    "all_gather": "all_gather %x",
    "reduce_scatter": "reduce_scatter sum %x",
    "all_to_all": "all_to_all %x",
    "broadcast": "broadcast %x, root=0",
}
COLUMNS = 1024
NOISE = 0.02  # a gain that is too small for cotune to leave the default
# Programs whose number of rows is fixed have one cell.
FIXED = ("small_bucket", "gradient_bucket")


def programs() -> dict[str, str]:
    """The texts of everything that is tuned, by name; those of the examples have f32 in place of bf16, and fewer columns."""
    texts = {name: f"%x = input f32 [{'R/n' if name == 'all_gather' else 'R'}, {COLUMNS}]\n%y = {call}\nreturn %y\n"
             for name, call in COLLECTIVES.items()}
    for path in sorted((ROOT / "examples" / "programs").glob("*.cotune")):
        text = re.sub(r"\b8192\b", str(COLUMNS), path.read_text(encoding="utf-8"))
        texts[path.stem] = re.sub(r"\bbf16\b", "f32", text)
    return texts


def run(command: list[str], plugins: str) -> str:
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, "COTUNE_PLUGIN_PATH": plugins})
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {ran.returncode}; see its messages above")
    return ran.stdout


def tune(tree: str, program: str, ranks: int, rows: str, database: str) -> dict:
    """Tunes one program; returns seconds of measuring, and the winner, choices and samples of each cell, by ascending rows."""
    command = [f"{tree}/cotune", "tune", "--ranks", str(ranks), "--memory", "host", "--program", program, "--rows", rows]
    command += ["--keep-unsteady", "on", "--json", "--db", database]
    result = json.loads(run(command, f"{tree}/plugins"))["result"]
    cells = []
    # More rows are more bytes; cells of a single collective name their bytes only.
    for entry in sorted(result["entries"], key=lambda each: each["bytes"]):
        samples = sum(len(choice["samples_ns"]) for choice in entry["choices"])
        cells.append({"winner": entry["winner"]["choice"], "choices": len(entry["choices"]), "samples": samples})
    return {"measure_ms": result["times"]["measure_us"] / 1000, "cells": cells}


def measure_round(options: argparse.Namespace, number: int, name: str, text: str, ranks: int) -> list[dict]:
    rows = "1" if name in FIXED else options.rows
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/program.cotune"
        pathlib.Path(program).write_text(text, encoding="utf-8")
        tuned = {}
        # The builds take turns, and each round begins with another one.
        for build in ("old", "new") if number % 2 == 0 else ("new", "old"):
            tree = options.old if build == "old" else options.new
            tuned[build] = tune(tree, program, ranks, rows, f"{folder}/{build}")
        command = [f"{options.new}/cotune", "run", "--ranks", str(ranks), "--", options.bench, program, rows, str(options.blocks)]
        lines = run([*command, f"{folder}/old", f"{folder}/new"], f"{options.new}/plugins").splitlines()
    cells = []
    for at, timed in enumerate(map(json.loads, lines)):
        cell = {"name": name, "ranks": ranks, "round": number, **timed}
        for build in ("old", "new"):
            cell[build] = tuned[build]["cells"][at]
            cell[build]["measure_ms"] = tuned[build]["measure_ms"] / len(tuned[build]["cells"])
        cells.append(cell)
    return cells


def measure(options: argparse.Namespace) -> None:
    with pathlib.Path(options.file).open("a", encoding="utf-8") as out:
        for number in range(options.rounds):
            for name, text in programs().items():
                if options.only and name not in options.only.split(","):
                    continue
                for ranks in map(int, options.ranks.split(",")):
                    for cell in measure_round(options, number, name, text, ranks):
                        out.write(json.dumps(cell) + "\n")
                    out.flush()


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def agreement(winners: list[str]) -> float:
    """The share of pairs of tunes that have found the same winner."""
    pairs = list(itertools.combinations(winners, 2))
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else math.nan


def report(files: list[str]) -> None:
    """Prints a line for each program and number of ranks, and one for all."""
    groups = collections.defaultdict(list)
    for file in files:
        for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines():
            cell = json.loads(line)
            groups[cell["name"], cell["ranks"]].append(cell)
    print("| program | ranks | ms a cell, old | new | winners' time, new by old | slower than default, old | new | agree, old | new |")
    print("|---|---|---|---|---|---|---|---|---|")
    everything = [cell for cells in groups.values() for cell in cells]
    for (name, ranks), cells in [*groups.items(), (("all", ""), everything)]:
        by_size = collections.defaultdict(list)
        for cell in cells:
            by_size[cell["name"], cell["ranks"], cell["rows"]].append(cell)
        ms, agree = {}, {}
        for build in ("old", "new"):
            ms[build] = statistics.median(cell[build]["measure_ms"] for cell in cells)
            agree[build] = statistics.fmean(agreement([cell[build]["winner"] for cell in same]) for same in by_size.values())
        ratio = geometric_mean([cell["us"][2] / cell["us"][1] for cell in cells])
        # Winners that are surely slower than the default: by the low end of the interval, beyond the noise.
        slower = [sum(cell["by_default"][at][0] > 1 + NOISE for cell in cells) / len(cells) for at in (0, 1)]
        print(f"| {name} | {ranks} | {ms['old']:.0f} | {ms['new']:.0f} | {ratio:.3f} | {slower[0]:.2f} | {slower[1]:.2f} | "
              f"{agree['old']:.2f} | {agree['new']:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", nargs="+", metavar="FILE")
    for name in ("old", "new", "bench", "file"):
        parser.add_argument(name, nargs="?")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--rows", default="16,64,256")
    parser.add_argument("--only")
    options = parser.parse_args()
    if options.report:
        report(options.report)
    elif options.file:
        measure(options)
    else:
        parser.error("OLD, NEW, BENCH and FILE are missing, or --report")


if __name__ == "__main__":
    main()
