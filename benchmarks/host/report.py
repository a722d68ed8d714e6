#!/usr/bin/env python3
"""Writes what `peers_bench` or `programs_bench` has measured into docs/performance.md, between the comments for it.

usage: report.py FILE [--doc docs/performance.md]

FILE: the lines of JSON that one of the two wrote to BENCHMARK_OUT, a cell each.
"""

import argparse
import json
import pathlib
import statistics
import sys

BEGIN = "<!-- written by benchmarks/host/report.py: begin -->"
END = "<!-- written by benchmarks/host/report.py: end -->"
PROGRAMS_BEGIN = "<!-- programs, written by benchmarks/host/report.py: begin -->"
PROGRAMS_END = "<!-- programs, written by benchmarks/host/report.py: end -->"
PEERS = ("openmpi", "gloo")


def size_text(size: int) -> str:
    for unit, name in ((1 << 20, "M"), (1 << 10, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def time_text(us: float) -> str:
    return f"{us:.0f}" if us >= 100 else f"{us:.3g}"


def of_best(cell: dict) -> float:
    """Time of cotune by that of the faster peer, medians over rounds."""
    return statistics.median(cell["us"]["cotune"]) / min(statistics.median(cell["us"][peer]) for peer in PEERS)


def table(cells: list[dict]) -> list[str]:
    collectives = list(dict.fromkeys(cell["collective"] for cell in cells))
    sizes = sorted({cell["bytes"] for cell in cells})
    at = {(cell["collective"], cell["bytes"]): cell for cell in cells}
    lines = ["| bytes | " + " | ".join(collectives) + " |", "|" + " --- |" * (len(collectives) + 1)]
    for size in sizes:
        words = []
        for collective in collectives:
            cell = at.get((collective, size))
            words.append("-" if cell is None else f"{time_text(statistics.median(cell['us']['cotune']))} ({of_best(cell):.2f})")
        lines.append(f"| {size_text(size)} | " + " | ".join(words) + " |")
    return lines


def report(cells: list[dict]) -> str:
    lines = []
    for ranks in sorted({cell["ranks"] for cell in cells}):
        own = [cell for cell in cells if cell["ranks"] == ranks]
        ratios = [of_best(cell) for cell in own]
        worst = max(own, key=of_best)
        lines += [f"### {ranks} ranks", "", *table(own), ""]
        lines += [
            f"Faster than both in {sum(ratio < 1 for ratio in ratios)} of {len(ratios)} cells, geometric mean "
            f"{statistics.geometric_mean(ratios):.2f}; worst {max(ratios):.2f} at {worst['collective']} of "
            f"{size_text(worst['bytes'])}.",
            "",
        ]
    return "\n".join(lines)


def program_ratio(cell: dict, of: str) -> float:
    """Time of the program by that of its collectives and parts one by one, or by Open MPI with the parts."""
    us = {name: statistics.median(samples) for name, samples in cell["us"].items()}
    return us["program"] / (us["openmpi"] if of == "openmpi" else us["collective"] + us["part"])


def report_programs(cells: list[dict]) -> str:
    lines = []
    for ranks in sorted({cell["ranks"] for cell in cells}):
        own = [cell for cell in cells if cell["ranks"] == ranks]
        lines += [
            f"### Programs on {ranks} ranks",
            "",
            "| program | rows | collectives | parts | program | Open MPI, parts | of both | of Open MPI |",
            "|" + " --- |" * 8,
        ]
        for cell in own:
            times = [time_text(statistics.median(cell["us"][name])) for name in ("collective", "part", "program", "openmpi")]
            ratios = [f"{program_ratio(cell, of):.2f}" for of in ("both", "openmpi")]
            lines.append(f"| {cell['program']} | {cell['rows']} | " + " | ".join(times + ratios) + " |")
        lines += [
            "",
            f"Geometric means: {statistics.geometric_mean(program_ratio(cell, 'both') for cell in own):.2f} of collectives and parts one "
            f"by one, {statistics.geometric_mean(program_ratio(cell, 'openmpi') for cell in own):.2f} of Open MPI with the same parts.",
            "",
        ]
    return "\n".join(lines)


def put_into(text: str, made: str, begin: str = BEGIN, end: str = END) -> str:
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"it needs the lines {begin} and {end} once each, in this order")
    return text[: text.index(begin) + len(begin)] + "\n\n" + made + "\n" + text[text.index(end) :]


def written(text: str, cells: list[dict]) -> str:
    """The document with the tables of the cells, which are all of one program."""
    if "program" in cells[0]:
        return put_into(text, report_programs(cells), PROGRAMS_BEGIN, PROGRAMS_END)
    return put_into(text, report(cells))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--doc", type=pathlib.Path, default=pathlib.Path("docs/performance.md"))
    arguments = parser.parse_args()
    try:
        cells = [json.loads(line) for line in arguments.file.read_text().splitlines() if line.strip()]
        if not cells:
            raise ValueError("it has no cells")
        made = written(arguments.doc.read_text(), cells)
    except (OSError, ValueError, KeyError) as error:
        print(f"report.py: {arguments.file} into {arguments.doc}: {error!r}", file=sys.stderr)
        return 1
    arguments.doc.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
