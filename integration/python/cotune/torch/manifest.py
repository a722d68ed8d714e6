"""The manifest: the programs of one process group in a graph, with the row counts for which they are tuned.

The first program operator of each process group carries it, so that the first run of the graph can tune all of its programs at
once. Like the graphs, it may differ between ranks: the programs that all ranks have are tuned (agreement.py). It is a text, so
that it survives the caches of compiled graphs: "rows 8,32: PROGRAM | any rows 4,16: PROGRAM". integration/torch/manifest.h reads
it as well. "any" marks a program with dynamic rows, which may also be called with other row counts: it may be tuned for those in
the list (owners.py chooses some of them). "chosen" marks a program whose row counts the user has chosen: it is tuned for all of
them, even if they are those of the grid. A first part "graph DIGEST" names a graph that can race against its form without
programs (whole_graph.py).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from cotune.torch.program_text import ONE, Program
from cotune.torch.region import Region
from cotune.torch.settings import Settings

_SEPARATOR = " | "
_GRAPH_WORD = "graph "
# Characters that a text of the operator may not have: Inductor's C++ wrapper does not escape texts, and "|" separates programs.
_NOT_IN_TEXTS = {
    '"': "a quotation mark",
    "\\": "a backslash",
    "\n": "a line break",
    "\r": "a line break",
    "|": "a vertical bar",
}

# The sizes of a program with symbolic rows, by the bytes of its first collective.
BYTES_MIN = 1024
BYTES_MAX = 64 * 1024 * 1024
SIZES_MAX = 9
_STEP = 4
_BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2}


@dataclasses.dataclass(frozen=True)
class Entry:
    """A program of a manifest.

    Attributes:
      text: the program in one line.
      rows: the row counts for which it is tuned, or may be tuned if it has any rows.
      has_any_rows: its rows are dynamic, so that it may be called with any count.
      has_chosen_rows: it has any rows, and the user has chosen the counts in `rows`.
    """

    text: str
    rows: tuple[int, ...]
    has_any_rows: bool = False
    has_chosen_rows: bool = False

    def __str__(self) -> str:
        word = "chosen " if self.has_chosen_rows else "any " if self.has_any_rows else ""
        head = f"{word}rows"
        return f"{head} {','.join(map(str, self.rows))}: {self.text}"


def bytes_of(dtype: str) -> int:
    """The bytes of one element."""
    return _BYTES.get(dtype, 1)


def has_any_rows(region: Region) -> bool:
    """Returns true if the rows of a region's program are dynamic."""
    if region.program.first_collective_type().rows == ONE:
        return False
    return not isinstance(_rows(region), int)


def has_chosen_rows(region: Region, settings: Settings) -> bool:
    """Returns true if the rows of a region's program are dynamic, and rows_of() are those that the user has chosen."""
    return has_any_rows(region) and bool(_chosen_rows(region.program, region.world_size, settings))


def _rows(region: Region) -> Any:
    return region.rows if region.rows is not None else region.share * region.world_size


def rows_of(region: Region, settings: Settings) -> list[int]:
    """Returns the row counts for which a region's program may be tuned, ascending and not empty.

    A static size gives one count, and a symbolic size those that the user has chosen, or else those of grid().
    """
    if region.program.first_collective_type().rows == ONE:
        return [1]
    rows = _rows(region)
    if isinstance(rows, int):
        return [rows]
    return _chosen_rows(region.program, region.world_size, settings) or grid(region.program, region.world_size)


def _chosen_rows(program: Program, world_size: int, settings: Settings) -> list[int]:
    """Returns the row counts that the user has chosen, by rows or by bytes, as far as they fit the program."""
    unit = world_size if _needs_shares(program) else 1
    first = program.first_collective_type()
    row_bytes = first.columns * bytes_of(first.dtype)
    by_bytes = (max(1, each // (row_bytes * unit)) * unit for each in settings.collective_multi_kernel_hints)
    return sorted({*(each for each in settings.rows if each % unit == 0), *by_bytes})


def grid(program: Program, world_size: int) -> list[int]:
    """Returns row counts, each 4 times the one before, that depend on the program alone.

    The sizes at the time of tracing are not used, so that ranks that find the graph in a cache, and ranks that compile it with
    other sizes, get the same counts.
    """
    first = program.first_collective_type()
    row_bytes = first.columns * bytes_of(first.dtype)
    rows = world_size if _needs_shares(program) else 1
    while rows * row_bytes < BYTES_MIN:
        rows *= _STEP
    counts = [rows]
    while len(counts) < SIZES_MAX and counts[-1] * _STEP * row_bytes <= BYTES_MAX:
        counts.append(counts[-1] * _STEP)
    return counts


def _needs_shares(program: Program) -> bool:
    return any(node.op in ("all_gather", "reduce_scatter", "all_to_all") for node in program.nodes)


def why_no_argument(what: str, text: str) -> str:
    """Returns why a text cannot be an argument of the operator; "" if it can. `what` names the text for users."""
    for character, name in _NOT_IN_TEXTS.items():
        if character in text:
            return f"{what} has {name} in it"
    return ""


def manifest_text(entries: list[Entry], graph_digest: str = "") -> str:
    """Writes a manifest of programs, in the given order. Entries of equal programs are merged."""
    rows: dict[tuple[str, bool, bool], set[int]] = {}
    for entry in entries:
        rows.setdefault((entry.text, entry.has_any_rows, entry.has_chosen_rows), set()).update(entry.rows)
    merged = [Entry(text, tuple(sorted(each)), *marks) for (text, *marks), each in rows.items()]
    head = [f"{_GRAPH_WORD}{graph_digest}"] if graph_digest else []
    return _SEPARATOR.join([*head, *map(str, merged)])


def graph_digest_of(text: str) -> str:
    """The digest of the graph that a manifest names; "" if it names none."""
    first = text.partition("|")[0].strip()
    return first.removeprefix(_GRAPH_WORD) if first.startswith(_GRAPH_WORD) else ""


def parse_manifest(text: str) -> list[Entry]:
    """The programs of a manifest."""
    entries = []
    parts = text.split("|")
    for part in parts[1:] if graph_digest_of(text) else parts:
        head, _, program = part.partition(":")
        word, _, counts = head.strip().rpartition("rows ")
        rows, is_chosen = tuple(map(int, counts.split(","))), word == "chosen "
        entries.append(Entry(program.strip(), rows, is_chosen or word == "any ", is_chosen))
    return entries


def by_size(entries: list[Entry]) -> list[Entry]:
    """Returns the same programs with an entry for each row count, because ranks may share a program at some of them only.

    A program with dynamic rows stays one entry, because its row counts follow from the program.
    """
    found: list[Entry] = []
    for entry in entries:
        found += [entry] if entry.has_any_rows else [Entry(entry.text, (rows,)) for rows in entry.rows]
    return list(dict.fromkeys(found))
