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
from benchmarks.host.report import put_into, size_text, time_text

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


def cell_text(cell: dict) -> str:
    own = fastest_own(cell)
    return f"{cell['winners'][own].removeprefix('ucx/')}: {time_text(median(cell, own))} ({ratio(cell):.2f})"


def mean_of(lines: list[dict], own: str, peer: str) -> str | None:
    """Geometric mean of one contender's times by those of another one, in the runs that have both."""
    ratios = [median(line, own) / median(line, peer) for line in lines if own in line["us"] and peer in line["us"]]
    return f"{own} by {peer} {statistics.geometric_mean(ratios):.2f}" if ratios else None


def summary_row(network: str, lines: list[dict], cells: list[dict]) -> list[str]:
    ratios = [ratio(cell) for cell in cells]
    worst = max(cells, key=ratio)
    pairs = [("cotune_ucx", other) for other in ("cotune_host", "openmpi_tuned", "openmpi_ucx", "gloo")]
    means = [mean for mean in (mean_of(lines, *pair) for pair in pairs) if mean is not None]
    return [
        network, f"{sum(value <= 1 for value in ratios)} of {len(ratios)}", f"{statistics.geometric_mean(ratios):.2f}",
        f"{max(ratios):.2f}, {worst['collective']} of {size_text(worst['bytes'])}", "; ".join(means),
    ]


def algorithm_rows(by_network: dict[str, list[dict]]) -> tuple[list[int], list[list[str]]]:
    """Fastest time of each algorithm over UCX at the smallest, the middle and the largest size."""
    sizes = sorted({cell["bytes"] for cells in by_network.values() for cell in cells})
    shown = sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})
    times: dict[tuple[str, str], dict[tuple[str, int], float]] = {}
    for network, cells in by_network.items():
        for cell in cells:
            for algorithm, us in cell["algorithms_us"].items():
                if algorithm.startswith("ucx/"):
                    times.setdefault((cell["collective"], algorithm), {})[network, cell["bytes"]] = us
    rows = []
    for (collective, algorithm), by_place in times.items():
        words = [
            " / ".join(time_text(by_place[network, size]) if (network, size) in by_place else "-" for size in shown)
            for network in by_network
        ]
        rows.append([collective, algorithm.removeprefix("ucx/"), *words])
    return shown, rows


def ranks_report(ranks: int, lines: list[dict]) -> list[str]:
    networks = list(dict.fromkeys(line["network"] for line in lines))
    lines_of = {network: [line for line in lines if line["network"] == network] for network in networks}
    by_network = {network: cells_of(lines_of[network]) for network in networks}
    texts: dict[tuple[str, int], dict[str, str]] = {}
    for network, cells in by_network.items():
        for cell in cells:
            texts.setdefault((cell["collective"], cell["bytes"]), {})[network] = cell_text(cell)
    cell_rows = [
        [collective, size_text(size), *(by_place.get(network, "-") for network in networks)]
        for (collective, size), by_place in texts.items()
    ]
    summaries = [summary_row(network, lines_of[network], by_network[network]) for network in networks]
    shown, rows = algorithm_rows(by_network)
    head = ["world", "not slower than the better peer", "geometric mean", "worst", "geometric means of each"]
    return [
        f"### {ranks} ranks over UCX", "", *table(head, summaries), "",
        "Winner, microseconds, and in brackets its time by that of the better peer:", "",
        *table(["collective", "bytes", *networks], cell_rows), "",
        f"The fastest time of each algorithm in the tune, us at {' / '.join(map(size_text, shown))}:", "",
        *table(["collective", "algorithm", *networks], rows), "",
    ]


def report(lines: list[dict]) -> str:
    text = []
    for ranks in dict.fromkeys(line["ranks"] for line in lines):
        text += ranks_report(ranks, [line for line in lines if line["ranks"] == ranks])
    return "\n".join(text)


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
