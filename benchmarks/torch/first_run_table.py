"""The table of the figures of first_run.py, with a judgement of its two goals.

A start is one start of all ranks in one form; the starts of one run follow each other. Differences and ratios of two forms are
of starts of the same run, so that a machine that is slow in one run is slow for both.
"""

from __future__ import annotations

import statistics
import textwrap

import never_slower

FORMS = {
    "without": "without cotune", "cold": "cold", "one_thread": "cold, one thread", "immediate": "immediate",
    "deferred": "deferred", "database": "from the database",
}  # fmt: skip
# Forms that tune.
TUNING = ("cold", "one_thread", "immediate", "deferred")
CELL_GOAL_MS = 100.0
# Lines of docs wrap there.
COLUMNS = 100
# Words of cotune's warnings about a machine that is not idle.
DISTURBED = ("started late", "other programs used")
# Deferred mode is to take less time than immediate mode from so many collectives on.
DEFERRED_FROM = 3


def models_of(starts: list[dict]) -> list[tuple[str, int]]:
    """(model, collectives) in the order of their first starts."""
    return list(dict.fromkeys((each["model"], each["collectives"]) for each in starts))


def name_of(model: str, collectives: int) -> str:
    return model if model != "stack" else f"{collectives} layer{'s' if collectives > 1 else ''}"


class Model:
    """The starts of one model by form and run."""

    def __init__(self, starts: list[dict], model: str, collectives: int):
        self.name, self.collectives = name_of(model, collectives), collectives
        self._starts: dict[str, dict[int, dict]] = {}
        for each in starts:
            if (each["model"], each["collectives"]) == (model, collectives):
                self._starts.setdefault(each["form"], {})[each["run"]] = each

    def values(self, form: str, what: str) -> list[float]:
        return [each[what] for each in self._starts.get(form, {}).values()]

    def cells(self) -> int:
        """The most cells that one start has measured."""
        return max((int(each) for form in TUNING for each in self.values(form, "cells")), default=0)

    def tune_ms(self, form: str) -> list[float]:
        """The times of tunes by the number of their cells, which is 1 if there are none."""
        return [1e3 * each["tune_s"] / max(1, each["cells"]) for each in self._starts.get(form, {}).values()]

    def beyond_ms(self, form: str) -> list[float]:
        """The times of first calls beyond those without cotune in the same run, by the number of cells."""
        without = self._starts.get("without", {})
        return [
            1e3 * (each["s"] - without[run]["s"]) / max(1, each["cells"])
            for run, each in self._starts.get(form, {}).items()
            if run in without
        ]

    def ratios(self, form: str, by: str, what: str) -> list[float]:
        other = self._starts.get(by, {})
        return [
            each[what] / other[run][what]
            for run, each in self._starts.get(form, {}).items()
            if run in other and other[run][what] > 0
        ]


def seconds_text(values: list[float]) -> str:
    """The median, and in brackets the least and the largest."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})" if values else "-"


def starts_text(models: list[Model]) -> str:
    """How often each form of each model was started; a run can be of some forms only."""
    counts = sorted({len(values) for model in models for form in FORMS if (values := model.values(form, "s"))})
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"{many} start{'s' if counts[-1] > 1 else ''} of each form"


def ms_text(values: list[float]) -> str:
    return f"{statistics.median(values):.0f}" if values else "-"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def judgement(values: list[float], bound: float, digits: int) -> str:
    """If the median of the values is at most the bound: by its 99 % interval, or "open"."""
    low, middle, high = never_slower.interval_of(values)
    if high == float("inf"):
        return f"{middle:.{digits}f}, no interval of {len(values)} run{'s' if len(values) > 1 else ''}: open"
    word = "met" if high <= bound else "missed" if low > bound else "open"
    return f"{middle:.{digits}f}, 99 % interval {low:.{digits}f} to {high:.{digits}f}: {word}"


def goals(models: list[Model]) -> list[str]:
    """A line for each model and goal."""
    lines = []
    for model in models:
        if values := model.tune_ms("cold"):
            lines.append(f"- {model.name}, milliseconds of the tune a cell, goal {CELL_GOAL_MS:.0f}: {judgement(values, CELL_GOAL_MS, 0)}")
        if values := model.beyond_ms("cold"):
            lines.append(f"- {model.name}, milliseconds a cell beyond the form without cotune, goal {CELL_GOAL_MS:.0f}: {judgement(values, CELL_GOAL_MS, 0)}")
        if model.collectives < DEFERRED_FROM:
            continue
        for what, words in (("s", "first call"), ("tune_s", "tune")):
            if values := model.ratios("deferred", "immediate", what):
                lines.append(f"- {model.name}, {words} in deferred mode by that in immediate mode, goal below 1: {judgement(values, 1, 3)}")
    return [*lines, ""] if lines else []


def notes(starts: list[dict]) -> list[str]:
    """Lines about starts whose figures are to be read with care."""
    tuned = [each for each in starts if each["form"] in TUNING]
    disturbed = sum(any(word in text for text in each["warnings"] for word in DISTURBED) for each in tuned)
    left = max((each["left"] for each in tuned), default=0)
    lines = []
    if disturbed:
        lines += [f"Other programs used the processors in {disturbed} of {len(tuned)} starts that tuned, as cotune has warned there.", ""]
    if left:
        lines += [f"A tune left out up to {left} cells at the end of its budget.", ""]
    return lines


def wrapped(lines: list[str]) -> list[str]:
    """The lines with at most COLUMNS columns, except those of tables; points of a list are indented."""
    found = []
    for line in lines:
        indent = "  " if line.startswith("- ") else ""
        found += [line] if line.startswith("|") else textwrap.wrap(line, COLUMNS, subsequent_indent=indent) or [""]
    return found


def section(run: dict) -> list[str]:
    """The lines for docs/performance/pytorch.md."""
    where = f"{run['ranks']} x {run['gpus'][0]}" if run["gpus"] else f"{run['ranks']} ranks on host memory"
    models = [Model(run["starts"], *each) for each in models_of(run["starts"])]
    torch = run["packages"].get("torch", "?")
    lines = [
        f"### First call, {where}", "",
        f"torch {torch}, {run['tokens']} tokens, {run['processor']}, {run['date']}, {starts_text(models)}. Seconds of compilation "
        "and first call, median and range:", "",
    ]  # fmt: skip
    lines += table(
        ["model", "cells", *FORMS.values()],
        [[each.name, str(each.cells()), *(seconds_text(each.values(form, "s")) for form in FORMS)] for each in models],
    )
    lines += ["Milliseconds of the tune a cell, and in brackets those of the first call a cell beyond the form without cotune, medians:", ""]
    lines += table(
        ["model", "cells", *(FORMS[form] for form in TUNING)],
        [
            [each.name, str(each.cells()), *(f"{ms_text(each.tune_ms(form))} ({ms_text(each.beyond_ms(form))})" for form in TUNING)]
            for each in models
        ],
    )
    return wrapped(lines + notes(run["starts"]) + goals(models))
