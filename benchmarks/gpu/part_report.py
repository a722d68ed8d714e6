#!/usr/bin/env python3
"""Writes what `benchmarks/gpu/parts --out FILE` has measured into docs/performance.md, between the comments for it.

usage: part_report.py FILE [--doc docs/performance.md]
"""

import argparse
import json
import math
import pathlib
import statistics
import sys

BEGIN = "<!-- parts on a GPU, written by benchmarks/gpu/part_report.py: begin -->"
END = "<!-- parts on a GPU, written by benchmarks/gpu/part_report.py: end -->"


def medians(result: dict) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in result["us"].items()}


def report(content: dict) -> str:
    lines = [f"{content['gpu']}, torch {content.get('torch', '?')}, triton {content.get('triton', '?')}, {content['date'][:10]}.", "",
             "| program | columns | rows | cotune us | torch.compile us | ratio | copy us | GB/s |",
             "|---|---|---|---|---|---|---|---|"]
    ratios = []
    for result in content["results"]:
        if result["wrong"]:
            raise SystemExit(f"error: {result['program']} of {result['rows']} rows has {result['wrong']} wrong elements")
        us = medians(result)
        ratios.append(us["cotune"] / us["compiled"])
        lines.append(f"| {result['program']} | {result['columns']} | {result['rows']} | {us['cotune']:.2f} | {us['compiled']:.2f} | "
                     f"{ratios[-1]:.2f} | {us['copy']:.2f} | {result['bytes'] / us['cotune'] / 1e3:.0f} |")
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    lines += ["", f"Geometric mean {mean:.2f} of torch.compile; largest ratio {max(ratios):.2f}."]
    return "\n".join(lines)


def write(doc: pathlib.Path, text: str) -> None:
    before, begin, rest = doc.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"error: {doc} lacks the comments between which the table stands: {BEGIN}")
    doc.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--doc", type=pathlib.Path, default=pathlib.Path("docs/performance.md"))
    options = parser.parse_args(arguments)
    write(options.doc, report(json.loads(options.file.read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
