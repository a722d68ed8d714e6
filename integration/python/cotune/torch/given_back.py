"""The list of collectives that were given back: they run by PyTorch although cotune can run them, as PyTorch's form is faster.

The ranks of a process group have agreed on each of them (agreement.py). A graph that is compiled from then on leaves these
collectives alone, so that Inductor compiles the region as it would without cotune. A graph that was compiled before, or on
another rank, runs them by PyTorch as well, inside of cotune's operator. The list has the device of each collective, because a
verdict about operands on the host does not count for operands on a GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterable, Iterator

import torch

from cotune.torch import groups
from cotune.torch.collective_key import Key


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of one race between a program, or a graph with its programs, and PyTorch's form of it.

    Attributes:
      name: the name of the program, or "" for a graph.
      text: the program; for a graph the digest of its text.
      rows: the row count of the program; 0 for a graph.
      cotune_us: the median time by cotune, in microseconds; None if nothing was measured.
      plain_us: the median time by PyTorch, in microseconds; None if nothing was measured.
      is_bound: `plain_us` is the time of PyTorch's collectives without other operations, which already takes longer.
      ratio: the time by cotune divided by that by PyTorch, as (low, median, high) of its 99 % interval.
      gives_back: PyTorch's form runs from now on.
      why_not: why there was no race, or why PyTorch's form failed in it; "" otherwise.
      is_measured_here: false if an earlier process has measured it, so that it comes from the file of verdicts.
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
        """Both times and their ratio as text; "" if there are none."""
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


# The name of a process group, and the device of the operands: "cpu", or "cuda:N".
_Place = tuple[str, str]


class _Registry:
    def __init__(self) -> None:
        # Reentrant: a garbage collection in a thread that holds it may run a finalizer, and so _forget.
        self.lock = threading.RLock()
        self.reasons: dict[_Place, dict[Key, str]] = {}
        self.verdicts: dict[str, list[Verdict]] = {}  # by the name of the process group
        self.notes: dict[str, list[str]] = {}


class _Supposed(threading.local):
    """The collectives that graphs which this thread makes now leave alone, as if these were given back; see as_if()."""

    keys: tuple[tuple[_Place, frozenset[Key]], ...] = ()


_registry = _Registry()
_supposed = _Supposed()


def _place_of(group_name: str, device: torch.device) -> _Place:
    if device.type != "cuda":
        return group_name, device.type
    index = torch.cuda.current_device() if device.index is None else device.index
    return group_name, f"cuda:{index}"


def note(group_name: str, verdicts: list[Verdict]) -> None:
    """Keeps verdicts for explain()."""
    with _registry.lock:
        _registry.verdicts.setdefault(group_name, []).extend(verdicts)


def note_line(group_name: str, line: str) -> None:
    """Keeps a line for explain(), unless it is kept already."""
    with _registry.lock:
        lines = _registry.notes.setdefault(group_name, [])
        if line not in lines:
            lines.append(line)


def lines() -> list[tuple[str, str]]:
    """The lines that were kept, each with the name of its process group."""
    with _registry.lock:
        return [(name, line) for name, several in _registry.notes.copy().items() for line in several]


def give_back(group_name: str, device: torch.device, key: Key, reason: str) -> None:
    """Makes graphs that are compiled from now on leave a collective alone, for operands on that device."""
    with _registry.lock:
        _registry.reasons.setdefault(_place_of(group_name, device), {}).setdefault(key, reason)


@contextlib.contextmanager
def as_if(group_name: str, device: torch.device, keys: Iterable[Key]) -> Iterator[None]:
    """Lets this thread make graphs in the block as if these collectives were given back as well."""
    before = _supposed.keys
    _supposed.keys = (*before, (_place_of(group_name, device), frozenset(keys)))
    try:
        yield
    finally:
        _supposed.keys = before


def reason_of(group_name: str, device: torch.device, key: Key) -> str:
    """Returns why a collective was given back to PyTorch; "" if it was not."""
    place = _place_of(group_name, device)
    if any(each == place and key in keys for each, keys in _supposed.keys):
        return "PyTorch's form of it is timed"
    with _registry.lock:
        return _registry.reasons.get(place, {}).get(key, "")


def verdicts_of(group_name: str, text: str) -> list[Verdict]:
    """The verdicts about a program, in the order of row counts."""
    with _registry.lock:
        found = [each for each in _registry.verdicts.get(group_name, []) if each.text == text]
    return sorted(found, key=lambda each: each.rows)


def graph_verdicts() -> list[tuple[str, Verdict]]:
    """The verdicts about whole graphs, each with the name of its process group."""
    with _registry.lock:
        return [(name, each) for name, several in _registry.verdicts.copy().items() for each in several if not each.name]


def key() -> tuple[tuple[str, str, str], ...]:
    """This list as a part of the keys of the caches of compiled graphs."""
    with _registry.lock:
        reasons_of = _registry.reasons.copy()
        found = {(name, device, each.name) for (name, device), reasons in reasons_of.items() for each in reasons}
    return tuple(sorted(found))


def _forget(name: str) -> None:
    with _registry.lock:
        for place in [each for each in _registry.reasons.copy() if each[0] == name]:
            _registry.reasons.pop(place, None)
        _registry.verdicts.pop(name, None)
        _registry.notes.pop(name, None)


groups.when_dropped(_forget)
