"""The collectives that run by PyTorch though cotune can run them, because PyTorch's form is faster.

The ranks of a process group have agreed on each of them (agreement.py). A graph that is compiled from then on leaves these
collectives alone, so that Inductor compiles the region as it would without cotune. A graph that was compiled before, or on
another rank, runs them by PyTorch as well, in the operator.
"""

from __future__ import annotations

import dataclasses
import threading

from cotune.torch import groups
from cotune.torch.collective_key import Key


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of one race between a program, or a graph with its programs, and PyTorch's form of it. Times are medians.

    Attributes:
      name: of the program, or "" for a graph.
      text: the program; for a graph the digest of its text.
      rows: of the program; 0 for a graph.
      cotune_us: the time by cotune; None if nothing was measured.
      plain_us: the time by PyTorch.
      is_bound: `plain_us` is that of PyTorch's collectives alone, which already take longer.
      ratio: the time by cotune over that by PyTorch: least, median and largest with 99 %.
      gives_back: PyTorch's form runs from now on.
      why_not: the reason for which there was no race, or the form dropped out; "" otherwise.
      is_measured_here: False: from the file of verdicts.
    """

    name: str
    text: str
    rows: int
    cotune_us: float | None = None
    plain_us: float | None = None
    is_bound: bool = False
    ratio: tuple[float, float, float] | None = None
    gives_back: bool = False
    why_not: str = ""
    is_measured_here: bool = True

    @property
    def subject(self) -> str:
        if not self.name:
            return "the whole graph"
        return f"{self.name}, {self.rows} rows"

    @property
    def times(self) -> str:
        """The times of both, with their ratio; "" if there are none."""
        if self.cotune_us is None or self.plain_us is None or self.ratio is None:
            return ""
        what = "torch/plain (its collectives alone)" if self.is_bound else "torch/plain"
        low, middle, high = self.ratio
        since = "" if self.is_measured_here else ", from the file of verdicts"
        times = f"{what} {self.plain_us:.1f} us, cotune {self.cotune_us:.1f} us"
        return f"{times}, ratio {middle:.3f} [{low:.3f}, {high:.3f}]{since}"

    def __str__(self) -> str:
        """A line for people."""
        if not self.times:
            return f"{self.subject}: not compared with torch/plain: {self.why_not}"
        return f"{self.subject}: {self.times}{'; given back to PyTorch' if self.gives_back else ''}"


class _Registry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reasons: dict[str, dict[Key, str]] = {}  # by the name of the process group
        self.verdicts: dict[str, list[Verdict]] = {}


_registry = _Registry()


def note(group_name: str, verdicts: list[Verdict]) -> None:
    """Keeps verdicts for explain()."""
    with _registry.lock:
        _registry.verdicts.setdefault(group_name, []).extend(verdicts)


def give_back(group_name: str, key: Key, reason: str) -> None:
    """Lets graphs that are compiled from now on leave a collective alone."""
    with _registry.lock:
        _registry.reasons.setdefault(group_name, {}).setdefault(key, reason)


def reason_of(group_name: str, key: Key) -> str:
    """Why a collective runs by PyTorch; "" if it does not."""
    with _registry.lock:
        return _registry.reasons.get(group_name, {}).get(key, "")


def verdicts_of(group_name: str, text: str) -> list[Verdict]:
    """The verdicts about a program, by rows."""
    with _registry.lock:
        found = [each for each in _registry.verdicts.get(group_name, []) if each.text == text]
    return sorted(found, key=lambda each: each.rows)


def graph_verdicts() -> list[tuple[str, Verdict]]:
    """The verdicts about whole graphs, each with the name of its process group."""
    with _registry.lock:
        return [(name, each) for name, several in _registry.verdicts.items() for each in several if not each.name]


def key() -> tuple[tuple[str, str], ...]:
    """The part of the caches' keys that depends on this list."""
    with _registry.lock:
        return tuple(sorted((name, each.name) for name, reasons in _registry.reasons.items() for each in reasons))


def _forget(name: str) -> None:
    with _registry.lock:
        _registry.reasons.pop(name, None)
        _registry.verdicts.pop(name, None)


groups.when_dropped(_forget)
