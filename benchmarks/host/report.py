#!/usr/bin/env python3
"""Writes what `peers_bench`, `programs_bench` or fused_bench.py has measured into docs/performance/, between the comments for it.

usage: report.py FILE [--doc PAGE]

FILE: the lines of JSON that one of the three wrote, a cell each. Figures go to figures/ beside the page.
"""

import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gpu"))

import svg_plot

BEGIN = "<!-- written by benchmarks/host/report.py: begin -->"
END = "<!-- written by benchmarks/host/report.py: end -->"
PROGRAMS_BEGIN = "<!-- programs, written by benchmarks/host/report.py: begin -->"
PROGRAMS_END = "<!-- programs, written by benchmarks/host/report.py: end -->"
FUSED_BEGIN = "<!-- fused, written by benchmarks/host/report.py: begin -->"
FUSED_END = "<!-- fused, written by benchmarks/host/report.py: end -->"
FUSED_FIGURE = "fused_on_host_memory.svg"
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


def steady(cell: dict) -> list[dict]:
    return [each for each in cell["rounds"] if not each["is_unsteady"]]


def fused_ratio(cell: dict) -> float:
    """Time of the winner by that of the fastest unfused form in the same tune, the median of the steady rounds."""
    return statistics.median(each["winner_us"] / each["unfused_us"] for each in steady(cell))


def fused_words(cell: dict) -> str:
    if not steady(cell):
        return "unsteady"
    winner, unfused = (statistics.median(each[f"{name}_us"] for each in steady(cell)) for name in ("winner", "unfused"))
    return f"{time_text(winner)} / {time_text(unfused)} ({fused_ratio(cell):.2f})"


def report_fused(cells: list[dict], figure: str) -> str:
    """Tables by numbers of ranks: a line for each program, dtype and number of columns, and a column for each size."""
    lines = [f"![Time with fused forms by the time of the fastest unfused form]({figure})", ""]
    for ranks in sorted({cell["ranks"] for cell in cells}):
        own = [cell for cell in cells if cell["ranks"] == ranks]
        sizes = sorted({cell["bytes"] for cell in own})
        lines += [
            f"#### {ranks} ranks: winner / fastest unfused, us (ratio)",
            "",
            "| program | dtype | columns | " + " | ".join(size_text(size) for size in sizes) + " | geometric mean |",
            "|" + " --- |" * (len(sizes) + 4),
        ]
        for kind in dict.fromkeys((cell["fused_program"], cell["dtype"], cell["columns"]) for cell in own):
            of_kind = {cell["bytes"]: cell for cell in own if (cell["fused_program"], cell["dtype"], cell["columns"]) == kind}
            ratios = [fused_ratio(cell) for cell in of_kind.values() if steady(cell)]
            mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"
            words = [fused_words(of_kind[size]) if size in of_kind else "-" for size in sizes]
            lines.append("| " + " | ".join([*map(str, kind), *words, mean]) + " |")
        lines.append("")
    return "\n".join(lines)


def fused_figure(cells: list[dict]) -> str:
    """Ratios of f32 with 8192 columns by size."""
    series: dict[str, list[tuple[int, float]]] = {}
    for cell in cells:
        if cell["dtype"] == "f32" and cell["columns"] == 8192 and steady(cell):
            name = f"{cell['fused_program'].split(' ')[0]}, {cell['ranks']} ranks"
            series.setdefault(name, []).append((cell["bytes"], fused_ratio(cell)))
    if not series:
        raise ValueError("no cell of f32 with 8192 columns is steady")
    return svg_plot.plot("Fused forms on host memory, f32, 8192 columns", "of the fastest unfused form", series, size_text,
                         y_ticks=[0.5, 0.6, 0.7, 0.8, 0.9, 1.0])


def put_into(text: str, made: str, begin: str = BEGIN, end: str = END) -> str:
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"it needs the lines {begin} and {end} once each, in this order")
    return text[: text.index(begin) + len(begin)] + "\n\n" + made + "\n" + text[text.index(end) :]


def written(text: str, cells: list[dict]) -> str:
    """The document with the tables of the cells, which are all of one benchmark."""
    if "fused_program" in cells[0]:
        return put_into(text, report_fused(cells, f"figures/{FUSED_FIGURE}"), FUSED_BEGIN, FUSED_END)
    if "program" in cells[0]:
        return put_into(text, report_programs(cells), PROGRAMS_BEGIN, PROGRAMS_END)
    return put_into(text, report(cells))


def page_of(cells: list[dict]) -> pathlib.Path:
    """The page of the benchmark that has measured these cells."""
    is_program = "fused_program" in cells[0] or "program" in cells[0]
    return pathlib.Path("docs/performance", "host_programs.md" if is_program else "host_memory.md")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--doc", type=pathlib.Path, help="the page [host_memory.md or host_programs.md in docs/performance]")
    arguments = parser.parse_args()
    try:
        cells = [json.loads(line) for line in arguments.file.read_text().splitlines() if line.strip()]
        if not cells:
            raise ValueError("it has no cells")
        doc = arguments.doc or page_of(cells)
        made = written(doc.read_text(), cells)
        if "fused_program" in cells[0]:
            (doc.parent / "figures" / FUSED_FIGURE).write_text(fused_figure(cells))
    except (OSError, ValueError, KeyError) as error:
        print(f"report.py: {arguments.file} into {arguments.doc or 'its page'}: {error!r}", file=sys.stderr)
        return 1
    doc.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
