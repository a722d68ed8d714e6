#!/usr/bin/env python3
"""Writes what `peers_bench` has measured into docs/performance.md, between its two comments.

usage: report.py FILE [--doc docs/performance.md]

FILE: the lines of JSON that peers_bench wrote to BENCHMARK_OUT, a cell each.
"""

import argparse
import json
import pathlib
import statistics
import sys

BEGIN = "<!-- written by benchmarks/host/report.py: begin -->"
END = "<!-- written by benchmarks/host/report.py: end -->"
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


def put_into(text: str, made: str) -> str:
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"it needs the lines {BEGIN} and {END} once each, in this order")
    return text[: text.index(BEGIN) + len(BEGIN)] + "\n\n" + made + "\n" + text[text.index(END) :]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--doc", type=pathlib.Path, default=pathlib.Path("docs/performance.md"))
    arguments = parser.parse_args()
    try:
        cells = [json.loads(line) for line in arguments.file.read_text().splitlines() if line.strip()]
        if not cells:
            raise ValueError("it has no cells")
        made = put_into(arguments.doc.read_text(), report(cells))
    except (OSError, ValueError, KeyError) as error:
        print(f"report.py: {arguments.file} into {arguments.doc}: {error!r}", file=sys.stderr)
        return 1
    arguments.doc.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
