#!/usr/bin/env python3
"""Measures programs on host memory whose operations may run inside of the collective, beside their fastest unfused form.

usage: fused_bench.py TREE FILE [--ranks 2,4] [--rounds 3]

TREE: what `./dev dist` wrote. FILE: gets a line of JSON for each program, dtype, number of columns, number of ranks and
size; report.py makes the tables and the figure of docs/performance/host_programs.md from it. A round is a tune of everything; in it
the winner and the fastest unfused form race each other. Measure on an idle machine.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# The operands of a cell, in bytes: the sizes of the goal.
SIZES = [1 << power for power in range(18, 25, 2)]
DTYPES = {"f32": 4, "bf16": 2}
COLUMNS = (1024, 8192)
PROGRAMS = {"residual + RMSNorm": "add_residual_norm", "bias + relu": "tp_linear"}


def program_text(text: str, dtype: str, columns: int) -> str:
    """An example program, which has bf16 and 8192 columns, with another dtype and other columns."""
    return re.sub(r"\b8192\b", str(columns), re.sub(r"\bbf16\b", dtype, text))


def cells_of(tuned: dict) -> list[dict]:
    """Returns a dict for each size of a tune, with microseconds of the winner and of the fastest unfused form.

    If no fused form wins, the two are one.
    """
    cells = []
    for entry in tuned["result"]["entries"]:
        winner = entry["winner"]
        unfused = winner["best_unfused"]
        cells.append({
            "rows": entry["rows"],
            "winner": winner["choice"],
            "winner_us": winner["time_us"],
            "unfused": unfused["choice"] if unfused else winner["choice"],
            "unfused_us": unfused["time_us"] if unfused else winner["time_us"],
            "is_unsteady": entry["is_unsteady"],
        })
    return cells


def tune(tree: pathlib.Path, text: str, ranks: int, rows: list[int]) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program.cotune"
        program.write_text(text)
        command = [tree / "bin/cotune", "tune", "--ranks", str(ranks), "--program", program, "--rows", ",".join(map(str, rows)),
                   "--json", "--database", pathlib.Path(folder) / "database"]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} ended with exit code {ran.returncode}; see its messages above")
        return cells_of(json.loads(ran.stdout))


def measure(tree: pathlib.Path, rank_counts: list[int], rounds: int) -> list[dict]:
    measured: dict[tuple, dict] = {}
    cases = [(ranks, name, dtype, columns) for ranks in rank_counts for name in PROGRAMS for dtype in DTYPES for columns in COLUMNS]
    for number in range(rounds):
        for ranks, name, dtype, columns in cases:
            text = (tree / "examples/programs" / f"{PROGRAMS[name]}.cotune").read_text()
            row_bytes = columns * DTYPES[dtype]
            for each in tune(tree, program_text(text, dtype, columns), ranks, [size // row_bytes for size in SIZES]):
                key = (ranks, name, dtype, columns, each["rows"])
                cell = measured.setdefault(key, {
                    "fused_program": name, "ranks": ranks, "dtype": dtype, "columns": columns, "rows": each["rows"],
                    "bytes": each["rows"] * row_bytes, "rounds": [],
                })
                cell["rounds"].append({name: value for name, value in each.items() if name != "rows"})
            print(f"round {number + 1}: {name}, {dtype}, {columns} columns, {ranks} ranks", file=sys.stderr)
    return list(measured.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    try:
        cells = measure(arguments.tree, [int(ranks) for ranks in arguments.ranks.split(",")], arguments.rounds)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"fused_bench.py: {error}", file=sys.stderr)
        return 1
    arguments.file.write_text("".join(json.dumps(cell) + "\n" for cell in cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
