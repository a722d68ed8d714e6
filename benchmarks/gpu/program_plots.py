#!/usr/bin/env python3
"""Draws the tables of programs on GPUs in docs/performance/gpu_programs.md: time by bytes, with and without fused forms and beside peers.

usage: program_plots.py [--doc docs/performance/gpu_programs.md]

program_report.py writes the tables and draws them by this file; the command draws the tables that are there. A plot is for one
program on one number of GPUs, of the columns with the most rows.
"""

import argparse
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import svg_plot  # noqa: E402
from doc_place import DocPlace  # noqa: E402
from report import size_text  # noqa: E402

PLACE = DocPlace("programs on GPUs", "benchmarks/gpu/program_report.py")
SECTION = re.compile(r"^### Programs on (\d+) GPUs?$")
# Column of the table by the name in the plot, in the order of the lines; the first is drawn bold.
SERIES = {"cotune": "program us", "collectives alone": "collectives us", "with torch's parts": "cotune + compile us",
          "NCCL + compile": "NCCL + compile us", "symm_mem + compile": "symm_mem + compile us", "FlashInfer": "FlashInfer* us"}
LEAST_ROWS = 3
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def bytes_of(text: str) -> int:
    return round(float(text.rstrip("KMG")) * UNITS.get(text[-1], 1))


def tables_of(text: str) -> dict[tuple[int, str], list[dict[str, str]]]:
    """The rows of each table, by the number of GPUs and the program."""
    tables: dict[tuple[int, str], list[dict[str, str]]] = {}
    gpus, program, heading = 0, "", []
    for line in text.splitlines():
        if found := SECTION.match(line):
            gpus = int(found[1])
        elif not line.startswith("|") or not gpus:
            heading = []
            program = line.strip() or program
        elif not heading:
            heading = cells_of(line)
        elif not line.startswith("| ---"):
            tables.setdefault((gpus, program), []).append(dict(zip(heading, cells_of(line), strict=True)))
    return tables


def series_of(rows: list[dict[str, str]]) -> dict[str, list[tuple[int, float]]]:
    """The lines of a plot: (bytes, us) of the columns that have the most rows in the table."""
    widths = [row["columns"] for row in rows]
    width = max(dict.fromkeys(widths), key=widths.count)
    series: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, column in SERIES.items():
            if row["columns"] == width and row.get(column, "-") not in ("-", ""):
                series.setdefault(name, []).append((bytes_of(row["bytes"]), float(row[column])))
    return {name: points for name, points in series.items() if len(points) >= LEAST_ROWS}


def plots_of(text: str) -> dict[str, str]:
    """The plots by the names of their files."""
    made = {}
    for (gpus, program), rows in tables_of(text).items():
        series = series_of(rows)
        if len(series) > 1:
            title = f"{program}, {gpus} GPUs"
            made[f"{program}_{gpus}_gpus.svg"] = svg_plot.plot(title, "us", series, size_text)
    return made


def with_figures(text: str) -> str:
    """The text with a line for the plot after each table that has one."""
    plots = plots_of(text)
    lines: list[str] = []
    gpus, program = 0, ""
    for line in text.splitlines():
        if line.startswith("![") and "(figures/" in line:
            while lines and not lines[-1]:
                lines.pop()
            continue
        ends_table = lines and lines[-1].startswith("|") and not line.startswith("|")
        if ends_table and f"{program}_{gpus}_gpus.svg" in plots:
            lines += ["", f"![{program}, {gpus} GPUs](figures/{program}_{gpus}_gpus.svg)"]
        if found := SECTION.match(line):
            gpus = int(found[1])
        elif not line.startswith("|"):
            program = line.strip() or program
        lines.append(line)
    return "\n".join(lines)


def write(doc: pathlib.Path, text: str) -> None:
    """Puts tables into the doc, and draws them in the folder of its figures."""
    PLACE.write(doc, with_figures(text))
    folder = doc.parent / "figures"
    folder.mkdir(exist_ok=True)
    for name, plot in plots_of(text).items():
        (folder / name).write_text(plot, encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--doc", type=pathlib.Path, default=pathlib.Path("docs/performance/gpu_programs.md"))
    options = parser.parse_args(arguments)
    write(options.doc, PLACE.read(options.doc))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
