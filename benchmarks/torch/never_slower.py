"""Judges whether the models with cotune are ever slower than torch.compile: the ratio of their times with its 99 % interval.

A ratio is that of one round, in which both run. The ratios of all runs count together: a machine that is slow in one run is
slow for both. The model is slower with cotune if the whole interval lies above 1.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import statistics

OUTSIDE_PERCENT = 1.0


@dataclasses.dataclass(frozen=True)
class Judged:
    """The time of a model with cotune over that without it. `low` and `high`: the 99 % interval of the median ratio."""

    model: str
    tokens: int
    way: str
    low: float
    middle: float
    high: float
    runs: int

    @property
    def is_slower(self) -> bool:
        return self.low > 1

    def __str__(self) -> str:
        word = "SLOWER" if self.is_slower else "not slower"
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return (
            f"{self.model} {self.tokens} {self.way}: {self.middle:.3f} of torch.compile, 99 % interval {self.low:.3f} to "
            f"{self.high:.3f} over {runs}: {word}"
        )


def interval_of(ratios: list[float]) -> tuple[float, float, float]:
    """The 99 % interval of a median by the order of the values, with the median in its middle.

    Too few values have no such interval: then it is without bounds.
    """
    ordered, count = sorted(ratios), len(ratios)
    outside = -1
    while 2 * sum(math.comb(count, each) for each in range(outside + 2)) * 100 <= OUTSIDE_PERCENT * 2**count:
        outside += 1
    middle = statistics.median(ordered)
    return (ordered[outside], middle, ordered[-1 - outside]) if outside >= 0 else (0.0, middle, math.inf)


def judged(cells: list[dict]) -> list[Judged]:
    """One for each model, number of tokens and mode of torch.compile. Cells: {"model", "tokens", "way", "us", "run"}."""
    times = {(cell["model"], cell["tokens"], cell["way"], cell.get("run", 0)): cell["us"] for cell in cells}
    ratios: dict[tuple[str, int, str], list[float]] = collections.defaultdict(list)
    runs: collections.Counter[tuple[str, int, str]] = collections.Counter()
    for (model, tokens, way, run), us in times.items():
        without = times.get((model, tokens, way.removesuffix("_cotune"), run))
        if not way.endswith("_cotune") or without is None:
            continue
        ratios[model, tokens, way] += [each / of for each, of in zip(us, without, strict=True)]
        runs[model, tokens, way] += 1
    return [Judged(*key, *interval_of(each), runs[key]) for key, each in ratios.items()]


def closest_to_slower(cells: list[dict]) -> str:
    """A sentence about the ratio whose interval reaches furthest, "" if nothing was compared."""
    found = judged(cells)
    if not found:
        return ""
    slower = sum(each.is_slower for each in found)
    worst = max(found, key=lambda each: each.high)
    runs = "1 run" if worst.runs == 1 else f"{worst.runs} runs"
    way = "CUDA graphs" if worst.way.startswith("compile_graphs") else "compile"
    return (
        f"By 99 % intervals over {runs}, {slower or 'none'} of {len(found)} ratios {'lie' if slower > 1 else 'lies'} above 1; the "
        f"interval that reaches furthest is that of {worst.model} of {worst.tokens} {'token' if worst.tokens == 1 else 'tokens'}, "
        f"{way}: {worst.middle:.3f}, from {worst.low:.3f} to {worst.high:.3f}."
    )
