#!/usr/bin/env python3
"""Makes tables in Markdown of what `networks_bench` has measured.

usage: report.py FILE [--doc DOCUMENT]

FILE: the lines of JSON that it wrote to BENCHMARK_OUT. Prints the tables, or writes them into the document between the
comments for them. Each cell was measured twice, beside Open MPI by ob1 and by UCX. Ratios are inside one run, and the cell
has the larger one.
"""

import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from benchmarks.host.report import put_into, size_text, time_text  # noqa: E402

BEGIN = "<!-- written by benchmarks/ucx/report.py: begin -->"
END = "<!-- written by benchmarks/ucx/report.py: end -->"


def median(line: dict, name: str) -> float:
    return statistics.median(line["us"][name])


def fastest_own(line: dict) -> str:
    """The contender of cotune's that is the fastest."""
    return min(line["winners"], key=lambda name: median(line, name))


def peers_of(line: dict) -> list[str]:
    return [name for name in line["us"] if name not in line["winners"]]


def better_peer(line: dict) -> str:
    return min(peers_of(line), key=lambda name: median(line, name))


def ratio(line: dict) -> float:
    return median(line, fastest_own(line)) / median(line, better_peer(line))


def cells_of(lines: list[dict]) -> list[dict]:
    """Of the runs of each cell the one with the larger ratio."""
    cells: dict[tuple, dict] = {}
    for line in lines:
        key = (line["network"], line["ranks"], line["collective"], line["bytes"])
        if key not in cells or ratio(line) > ratio(cells[key]):
            cells[key] = line
    return list(cells.values())


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def cell_row(cell: dict) -> list[str]:
    own, peer = fastest_own(cell), better_peer(cell)
    return [
        cell["collective"], size_text(cell["bytes"]), cell["winners"][own], time_text(median(cell, own)), peer,
        time_text(median(cell, peer)), f"{ratio(cell):.2f}",
    ]


def mean_of(lines: list[dict], own: str, peer: str) -> str | None:
    """Geometric mean of one contender's times by those of another one, in the runs that have both."""
    ratios = [median(line, own) / median(line, peer) for line in lines if own in line["us"] and peer in line["us"]]
    return f"{own} by {peer} {statistics.geometric_mean(ratios):.2f}" if ratios else None


def summary(lines: list[dict], cells: list[dict]) -> str:
    ratios = [ratio(cell) for cell in cells]
    worst = max(cells, key=ratio)
    pairs = [("cotune_ucx", other) for other in ("cotune_host", "openmpi_tuned", "openmpi_ucx", "gloo")]
    means = [mean for mean in (mean_of(lines, *pair) for pair in pairs) if mean is not None]
    return (
        f"Not slower than the better peer in {sum(value <= 1 for value in ratios)} of {len(ratios)} cells, geometric mean "
        f"{statistics.geometric_mean(ratios):.2f}; worst {max(ratios):.2f} at {worst['collective']} of {size_text(worst['bytes'])}. "
        f"Geometric means of each: {', '.join(means)}."
    )


def algorithm_rows(cells: list[dict]) -> tuple[list[int], list[list[str]]]:
    """Fastest time of each algorithm at the smallest, the middle and the largest size."""
    sizes = sorted({cell["bytes"] for cell in cells})
    shown = sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})
    times: dict[tuple[str, str], dict[int, float]] = {}
    for cell in cells:
        for algorithm, us in cell["algorithms_us"].items():
            times.setdefault((cell["collective"], algorithm), {})[cell["bytes"]] = us
    rows = []
    for (collective, algorithm), by_size in times.items():
        words = [time_text(by_size[size]) if size in by_size else "-" for size in shown]
        rows.append([collective, algorithm, *words])
    return shown, rows


def world_report(network: str, ranks: int, lines: list[dict]) -> list[str]:
    cells = cells_of(lines)
    head = ["collective", "bytes", "winner", "us", "better peer", "us", "ratio"]
    shown, rows = algorithm_rows(cells)
    return [
        f"### {network[0].upper()}{network[1:]}, {ranks} ranks", "", *table(head, [cell_row(cell) for cell in cells]), "",
        summary(lines, cells), "", "The fastest time of each algorithm in the tune, us:", "",
        *table(["collective", "algorithm", *map(size_text, shown)], rows), "",
    ]


def differing_winners(lines: list[dict]) -> list[str]:
    """Cells whose algorithm over UCX is not the same on one host and between networks."""
    networks = list(dict.fromkeys(line["network"] for line in lines))
    choices: dict[tuple, dict[str, str]] = {}
    for line in lines:
        key = (line["ranks"], line["collective"], line["bytes"])
        choices.setdefault(key, {})[line["network"]] = line["winners"]["cotune_ucx"]
    rows = []
    for (ranks, collective, size), by_network in choices.items():
        if len({choice.partition("?")[0] for choice in by_network.values()}) > 1:
            words = [by_network.get(network, "-").removeprefix("ucx/") for network in networks]
            rows.append([str(ranks), collective, size_text(size), *words])
    if not rows:
        return []
    return ["### Other winners over UCX in other networks", "", *table(["ranks", "collective", "bytes", *networks], rows), ""]


def report(lines: list[dict]) -> str:
    worlds = dict.fromkeys((line["network"], line["ranks"]) for line in lines)
    text = []
    for network, ranks in worlds:
        text += world_report(network, ranks, [line for line in lines if (line["network"], line["ranks"]) == (network, ranks)])
    return "\n".join(text + differing_winners(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--doc", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        lines = [json.loads(line) for line in arguments.file.read_text().splitlines() if line.strip()]
        if not lines:
            raise ValueError("it has no cells")
        made = report(lines)
        if arguments.doc is None:
            print(made)
        else:
            arguments.doc.write_text(put_into(arguments.doc.read_text(), made, BEGIN, END))
    except (OSError, ValueError, KeyError) as error:
        print(f"report.py: {arguments.file}: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
