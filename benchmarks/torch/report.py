#!/usr/bin/env python3
"""Writes what `benchmarks/torch/run` or `benchmarks/torch/first_run.py` has measured into docs/performance/pytorch.md, between the
comments for it.

usage: report.py FILE... [--doc docs/performance/pytorch.md]

FILE: what --out of either command has written, one for each number of ranks or kind of memory. Files of one command leave
the section of the other as it is.
"""

import argparse
import json
import pathlib
import statistics
import sys
import textwrap

import first_run_table
import never_slower

# The names of the comments around the section of each command.
PLACES = {False: "PyTorch", True: "First calls of PyTorch"}
TITLES = {"eager": "eager", "compile": "compile", "compile_cotune": "compile + cotune",
          "compile_graphs": "CUDA graphs", "compile_graphs_cotune": "CUDA graphs + cotune"}


def time_text(us: float) -> str:
    return f"{us:.0f}" if us >= 100 else f"{us:.3g}"


def table(cells: list[dict], model: str) -> list[str]:
    """A row for each number of tokens. Ratios are of cotune to the same without it."""
    times: dict[tuple[int, str], list[float]] = {}
    for cell in cells:
        if cell["model"] == model:
            times.setdefault((cell["tokens"], cell["way"]), []).extend(cell["us"])
    medians = {key: statistics.median(us) for key, us in times.items()}
    ways = [way for way in TITLES if any(way == known for _, known in medians)]
    lines = [f"| {model}, tokens | " + " | ".join(TITLES[way] for way in ways) + " |", "|" + " --- |" * (len(ways) + 1)]
    for tokens in sorted({tokens for tokens, _ in medians}):
        words = []
        for way in ways:
            us = medians[tokens, way]
            without = medians.get((tokens, way.removesuffix("_cotune")))
            words.append(f"{time_text(us)} ({us / without:.2f})" if way.endswith("_cotune") else time_text(us))
        lines.append(f"| {tokens} | " + " | ".join(words) + " |")
    return [*lines, ""]


def section(run: dict) -> list[str]:
    where = f"{run['ranks']} x {run['gpus'][0]}" if run["gpus"] else f"{run['ranks']} ranks on host memory"
    torch = run["packages"].get("torch", "?")
    lines = [f"### PyTorch, {where}", "", f"torch {torch}, width {run['width']}, {run['processor']}, {run['date']}; microseconds.", ""]
    for model in dict.fromkeys(cell["model"] for cell in run["cells"]):
        if model != "operator":
            lines += table(run["cells"], model)
    if sentence := never_slower.closest_to_slower(run["cells"]):
        lines += [*textwrap.wrap(sentence, 100), ""]
    costs = {cell["way"]: statistics.median(cell["us"]) for cell in run["cells"] if cell["model"] == "operator"}
    if costs:
        lines += [
            f"all_reduce of 64 bytes: {costs['operator']:.1f} us by the operator from Python, {costs['c_call']:.1f} us by the C "
            f"function through ctypes, {costs['gloo']:.0f} us by `dist.all_reduce` (gloo).", "",
        ]  # fmt: skip
    return lines


def with_section(text: str, name: str, lines: list[str]) -> str | None:
    """The page with other lines between the comments of that name; None if it has no such comments."""
    begin, end = (f"<!-- {name}, written by benchmarks/torch/report.py: {each} -->" for each in ("begin", "end"))
    if begin not in text or end not in text:
        print(f"report.py: the page has no place for it: {begin}", file=sys.stderr)
        return None
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n\n" + "\n".join(lines) + f"\n{end}{rest.split(end, 1)[1]}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    parser.add_argument("--doc", type=pathlib.Path, default=pathlib.Path("docs/performance/pytorch.md"))
    options = parser.parse_args(arguments)
    runs = [json.loads(file.read_text()) for file in options.files]
    text: str | None = options.doc.read_text()
    for is_first_call, name in PLACES.items():
        write = first_run_table.section if is_first_call else section
        lines = [line for run in runs if ("starts" in run) == is_first_call for line in write(run)]
        if lines and text is not None:
            text = with_section(text, name, lines)
    if text is None:
        return 2
    options.doc.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
