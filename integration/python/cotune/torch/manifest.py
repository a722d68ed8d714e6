"""The manifest: the programs of a group in a graph, with the row counts for which they are tuned.

The first program operator of each group carries it, so that its first run tunes all programs of
the graph at once. It is text, equal on all ranks, and survives the caches of compiled graphs.
"""

from __future__ import annotations

import json
import math

from cotune.torch import compat, sizes
from cotune.torch.program_text import ALL, ONE
from cotune.torch.region import Region

BYTES_MAX = 64 * 1024 * 1024
ROWS_AT_LEAST = 1024
_STEP = 4
_BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2}


def rows_of(region: Region) -> list[int]:
    """The row counts for which a region's program is tuned, ascending and not empty.

    A static size gives one count. A symbolic size gives a geometric list around the size at the
    time of tracing, within the bounds of the size and 64 MiB of the first collective.
    """
    first = region.program.first_collective_type()
    if first.rows == ONE:
        return [1]
    rows = region.rows
    if rows is None:
        rows = region.share * region.world_size
    if isinstance(rows, int):
        return [rows]
    symbol = _any_symbolic_size(region)
    hint = _hint(rows, region)
    least, most = compat.size_bounds(symbol, rows) if symbol is not None else (1, None)
    unit = region.world_size if _needs_shares(region) else 1
    row_bytes = first.columns * _BYTES.get(first.dtype, 1)
    end = min(most if most is not None else 2**31, max(BYTES_MAX // row_bytes, 1))
    return _geometric(hint, max(least, 1), end, unit)


def _needs_shares(region: Region) -> bool:
    return any(
        node.op in ("all_gather", "reduce_scatter", "all_to_all") for node in region.program.nodes
    )


def _geometric(hint: int | None, least: int, most: int, unit: int) -> list[int]:
    """Multiples of `unit`: the hint, and steps of 4 from it down to `least` and up to the end."""
    start = hint if hint is not None else ROWS_AT_LEAST
    up_to = min(most, max(_STEP * start, ROWS_AT_LEAST))
    counts = {start} if hint is not None else set()
    low = start
    while low >= least:
        counts.add(low)
        low = low // _STEP if low >= _STEP else 0
    high = start
    while high < up_to:
        high = min(high * _STEP, up_to) if high * _STEP <= most else up_to
        counts.add(high)
    rounded = {max(unit, math.ceil(count / unit) * unit) for count in counts}
    fitting = sorted(count for count in rounded if count <= most or count == hint)
    return fitting or [max(unit, least)]


def _any_symbolic_size(region: Region) -> object | None:
    for node in region.input_nodes:
        for size in sizes.facts_of(node).value.shape:
            if not isinstance(size, int):
                return size
    return None


def _hint(rows: object, region: Region) -> int | None:
    """The number of rows at the time of tracing."""
    for index, node in enumerate(region.input_nodes):
        type_ = region.program.inputs[index]
        if type_.rows == ONE:
            continue
        elements = sizes.hint_of(sizes.facts_of(node))
        if elements is not None:
            count = elements // type_.columns
            return count if type_.rows == ALL else count * region.world_size
    return None


def manifest_text(entries: dict[str, list[int]]) -> str:
    """The manifest of programs (text: row counts), in the order in which they were added."""
    listed = [{"program": text, "rows": rows} for text, rows in entries.items()]
    return json.dumps(listed, separators=(",", ":"))
