#!/usr/bin/env python3
"""Writes what `benchmarks/gpu/parts --out FILE` has measured into docs/performance/gpu_parts.md, between the comments for it.

usage: part_report.py FILE... [--doc docs/performance/gpu_parts.md]

Several files: runs of different programs, rows or columns on one kind of GPU.
"""

import argparse
import json
import math
import pathlib
import statistics
import sys

from doc_place import DocPlace

PLACE = DocPlace("parts on a GPU", "benchmarks/gpu/part_report.py")


def medians(result: dict) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in result["us"].items()}


def spread_percent(result: dict) -> float:
    """The middle half of the times, by their median, of cotune or torch: the larger."""

    def spread(times: list[float]) -> float:
        low, median, high = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
        return 100 * (high - low) / median

    return max(spread(result["us"][name]) for name in ("cotune", "compiled"))


def joined(contents: list[dict]) -> dict:
    """One content of several runs."""
    for key in ("gpu", "torch", "cuda", "triton"):
        seen = list(dict.fromkeys(str(content.get(key)) for content in contents))
        if len(seen) > 1:
            raise SystemExit(f"error: the files differ in {key}: {', '.join(seen)}; give files of one machine")
    results = [result for content in contents for result in content["results"]]
    if not results:
        raise SystemExit("error: there are no results in these files")
    keys = [tuple(result[key] for key in ("program", "part", "rows", "columns")) for result in results]
    twice = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
    if twice:
        raise SystemExit(f"error: measured more than once: {twice[0][0]} of {twice[0][2]} rows, {twice[0][3]} columns")
    return {**contents[0], "results": results}


def report(content: dict) -> str:
    lines = [f"{content['gpu']}, torch {content.get('torch', '?')}, triton {content.get('triton', '?')}, {content['date'][:10]}.",
             "",
             "| program | columns | rows | cotune us | torch.compile us | ratio | spread % | copy us | GB/s |",
             "|---|---|---|---|---|---|---|---|---|"]
    ratios = []
    for result in content["results"]:
        if result["wrong"]:
            raise SystemExit(f"error: {result['program']} of {result['rows']} rows has {result['wrong']} wrong elements")
        if result["compiled_wrong"]:
            raise SystemExit(f"error: {result['program']} of {result['rows']} rows: torch has {result['compiled_wrong']} wrong "
                             "elements, so that the two compute something else")
        us = medians(result)
        ratios.append(us["cotune"] / us["compiled"])
        cells = [result["program"], result["columns"], result["rows"], f"{us['cotune']:.2f}", f"{us['compiled']:.2f}",
                 f"{ratios[-1]:.2f}", f"{spread_percent(result):.1f}", f"{us['copy']:.2f}",
                 f"{result['bytes'] / us['cotune'] / 1e3:.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    lines += ["", f"Geometric mean {mean:.2f} of torch.compile; largest ratio {max(ratios):.2f}."]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    parser.add_argument("--doc", type=pathlib.Path, default=pathlib.Path("docs/performance/gpu_parts.md"))
    options = parser.parse_args(arguments)
    PLACE.write(options.doc, report(joined([json.loads(file.read_text(encoding="utf-8")) for file in options.files])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
