#!/usr/bin/env python3
"""Writes what `benchmarks/gpu/programs --out FILE` has measured into docs/performance/gpu_programs.md, between the comments for it.

usage: program_report.py FILE... [--doc docs/performance/gpu_programs.md]

Several files: other numbers of GPUs, or other programs, rows or columns on one kind of machine. What this machine has not
measured itself (recorded_peers.json) is marked with a *.
"""

import argparse
import json
import math
import pathlib
import statistics
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import program_bench  # noqa: E402
import program_plots  # noqa: E402
import report as collective_report  # noqa: E402

# Columns of the table: what users have without programs, by the beginning of the names of its ways.
PEERS = {"NCCL + compile": "nccl_compiled", "NCCL symmetric + compile": "nccl_symmetric_compiled",
         "symm_mem + compile": "symm_mem"}
RECORDED = {"vLLM*": "vllm", "FlashInfer*": "flashinfer"}


def recorded_peers() -> dict:
    return json.loads((HERE / "recorded_peers.json").read_text(encoding="utf-8"))


class Cell:
    """Of one program at one number of rows: medians, and the recorded peers beside."""

    def __init__(self, cell: dict, ranks: int, recorded: dict):
        wrong = {name: count for name, count in cell["wrong"].items() if count}
        if wrong:
            raise SystemExit(f"error: {cell['program']} of {cell['rows']} rows has wrong elements: {wrong}")
        self.cell, self.us = cell, program_bench.medians(cell)
        known = recorded["programs_us"].get(str(ranks), {}).get(cell["program"], {})
        self.recorded = known.get(str(cell["columns"]), {}).get(str(cell["rows"]), {})

    @property
    def ours_us(self) -> float:
        """On the better kind of memory, as the peers have theirs."""
        return min(self.us["program"], self.us.get("program_registered", math.inf))

    def peers(self) -> dict[str, float]:
        """By column, those that are known."""
        found = {column: program_bench.best(self.us, prefix) for column, prefix in PEERS.items()}
        found |= {column: self.recorded.get(name) for column, name in RECORDED.items()}
        return {column: time_us for column, time_us in found.items() if time_us is not None}

    def best_peer(self) -> tuple[str, float] | None:
        return min(self.peers().items(), key=lambda each: each[1], default=None)

    def winner(self) -> str:
        """On plain buffers."""
        found = [each["choice"] for each in self.cell["winners"] if each["buffers"] == "plain"]
        return collective_report.choice_text(found[0]) if found else "-"


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def table(cells: list[Cell]) -> list[str]:
    columns = [name for name in (*PEERS, *RECORDED) if any(name in cell.peers() for cell in cells)]
    has_registered = any("program_registered" in cell.us for cell in cells)
    heading = ["columns", "rows", "bytes", "program us", "winner", *(["registered us"] if has_registered else []),
               "collectives us", "part us", "torch's part us", "cotune + compile us", *(f"{name} us" for name in columns),
               "of best peer"]
    time_text = collective_report.time_text
    lines = [row(*heading), row(*["---"] * len(heading))]
    for cell in cells:
        us, best = cell.us, cell.best_peer()
        registered = [time_text(us.get("program_registered"))] if has_registered else []
        lines.append(row(
            str(cell.cell["columns"]), str(cell.cell["rows"]), collective_report.size_text(cell.cell["bytes"]), time_text(us["program"]),
            cell.winner(), *registered, *(time_text(us.get(way)) for way in ("collectives", "part", "compiled_part", "cotune_compiled")),
            *(time_text(cell.peers().get(name)) for name in columns),
            f"{cell.ours_us / best[1]:.2f} ({best[0].removesuffix(' + compile')})" if best else "-"))
    return lines


def summary(cells: list[Cell]) -> list[str]:
    """Geometric means over all cells."""
    lines = []
    compiled = [cell.us["program"] / cell.us["cotune_compiled"] for cell in cells if "cotune_compiled" in cell.us]
    if compiled:
        lines.append(f"Geometric mean {statistics.geometric_mean(compiled):.2f} of cotune's collectives with torch.compile's kernels.")
    of_peers = [(cell.ours_us / best[1], cell.cell) for cell in cells if (best := cell.best_peer())]
    if of_peers:
        worst, where = max(of_peers, key=lambda each: each[0])
        lines.append(f"Geometric mean {statistics.geometric_mean(ratio for ratio, _ in of_peers):.2f} of the best peer; the largest is "
                     f"{worst:.2f}, {where['program']} of {where['rows']} rows of {where['columns']}.")
    return lines


def wrapped(text: str) -> str:
    """As lines of docs are: of 100 columns at most."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def machine_text(content: dict) -> str:
    machine, versions = content["machine"], content["versions"]
    return (f"{content['ranks']} of {len(machine['gpus'])} {', '.join(dict.fromkeys(machine['gpus']))}; torch {versions.get('torch', '?')}, "
            f"triton {versions.get('triton', '?')}; {machine['cotune']}. {content['date'][:10]}.")


def joined(contents: list[dict]) -> list[dict]:
    """One content for each number of ranks, the largest first."""
    by_ranks: dict[int, dict] = {}
    for content in contents:
        known = by_ranks.setdefault(content["ranks"], {**content, "cells": []})
        if (known["machine"]["gpus"], known["machine"]["cotune"]) != (content["machine"]["gpus"], content["machine"]["cotune"]):
            raise SystemExit(f"error: files of {content['ranks']} GPUs differ in the machine or in cotune; give files of one")
        known["cells"] = known["cells"] + content["cells"]
    for content in by_ranks.values():
        keys = [(cell["program"], cell["rows"], cell["columns"]) for cell in content["cells"]]
        twice = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
        if twice:
            raise SystemExit(f"error: measured more than once: {twice[0][0]} of {twice[0][1]} rows of {twice[0][2]}")
        if not keys:
            raise SystemExit(f"error: there are no cells of {content['ranks']} GPUs in these files")
    return [by_ranks[ranks] for ranks in sorted(by_ranks, reverse=True)]


def section(content: dict, recorded: dict) -> list[str]:
    """Of one number of GPUs."""
    ranks = content["ranks"]
    cells = [Cell(cell, ranks, recorded) for cell in content["cells"]]
    lines = [f"### Programs on {ranks} GPU{'s' if ranks != 1 else ''}", "", wrapped(machine_text(content))]
    for program in dict.fromkeys(cell.cell["program"] for cell in cells):
        lines += ["", program, "", *table([cell for cell in cells if cell.cell["program"] == program])]
    return [*lines, "", *summary(cells)]


def report(contents: list[dict]) -> str:
    recorded = recorded_peers()
    sections = [section(content, recorded) for content in joined(contents)]
    lines = "\n\n".join("\n".join(each) for each in sections)
    if "*" not in lines:
        return lines
    source = wrapped(f"\\* not measured in the same run: {recorded['programs_source']}")
    return f"{lines}\n\n{source}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    parser.add_argument("--doc", type=pathlib.Path, default=pathlib.Path("docs/performance/gpu_programs.md"))
    options = parser.parse_args(arguments)
    program_plots.write(options.doc, report([json.loads(file.read_text(encoding="utf-8")) for file in options.files]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
