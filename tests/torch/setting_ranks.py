"""A rank under torchrun that gives cotune settings by enable().

usage: setting_ranks.py CASE

Prints one JSON object on every rank: {"rank", "error": what is wrong, or ""} with what the case has found: "cells", the
(number, of how many) of each cell that a tune has measured; "choices", those that run; "names", the settings with
which groups were made, in this order; "sizes", what explains those of its programs; "calls", the rows of each call with those that were tuned in it.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import cotune.torch
from cotune.torch import report
from cotune.torch.manifest import parse_manifest

RANK = int(os.environ["RANK"])
# By name: the values of rank 0 and rank 1, which a tune has to find different.
UNLIKE = {
    "collective_pre_sync_timeout": (4.0, 5.0),
    "collective_autotune_timeout": (20.0, 21.5),
    "collective_benchmark_nruns": (12, 13),
    "enable_collective_multitemplate": (True, False),
    "collective_fusion_enabled": (True, False),
    "enable_custom_op_fusion": (True, False),
    "custom_op_fusion_types": (["epilogue", "prologue"], []),
    "benchmark_collective_epilogue_fusion": (True, False),
    "enable_recursive_fusion": (True, False),
    "max_fusion_depth": (2, 3),
    "fusion_speedup_threshold": (1.1, 1.25),
}


def two_programs(x: torch.Tensor, group: Any) -> torch.Tensor:
    first = torch.relu(funcol.all_reduce(x, "sum", group) + 1)
    return funcol.all_gather_tensor(first.sin(), 0, group) * 2


def check(x: torch.Tensor, group: Any = None, **compiles: Any) -> str:
    """Runs the function compiled and eager. Returns what is different."""
    torch._dynamo.reset()
    group = group or dist.group.WORLD

    def function(x: torch.Tensor) -> torch.Tensor:
        return two_programs(x, group)

    got = torch.compile(function, fullgraph=True, **compiles)(x)
    return "" if torch.allclose(got, function(x)) else f"{got} differs; "


def listen(record: dict[str, Any]) -> None:
    tell = report._tell

    def note(tune: Any) -> None:
        if tune.phase == report.library.TUNE_MEASURES:
            if [tune.cell, tune.cells] not in record["cells"]:  # one that takes long is named more than once
                record["cells"].append([tune.cell, tune.cells])
        elif tune.phase == report.library.TUNE_HAS_ENDED:
            record["rows"].append(sorted({rows for each in parse_manifest(tune.manifest.decode()) for rows in each.rows}))
        tell(tune)

    report._tell = note


def input_of(rows: int) -> torch.Tensor:
    return torch.randint(-8, 8, (rows, 16), generator=torch.Generator().manual_seed(RANK)).float()


def run_mode(record: dict[str, Any], is_deferred: bool) -> None:
    cotune.torch.enable(enable_collective_multitemplate=is_deferred, database=None, tables=False)
    record["error"] = check(input_of(32))


def run_options(record: dict[str, Any]) -> None:
    """The settings come by the options of torch.compile."""
    chosen = cotune.torch.options(collective_fusion_enabled=False, database=None, tables=False)
    record["error"] = check(input_of(32), options=chosen)
    data = cotune.torch.explain_data()
    record["choices"] = [size["choice"] for graph in data for program in graph["programs"] for size in program["sizes"]]


def run_unlike(record: dict[str, Any]) -> None:
    """Each setting reaches the group: a tune compares it between the ranks, and names it."""
    record["names"] = list(UNLIKE)
    for name, values in UNLIKE.items():
        cotune.torch.enable(**{name: values[RANK]}, database=None, tables=False)
        group = dist.new_group([0, 1])
        record["error"] += check(input_of(32), group)


def run_rows(record: dict[str, Any], **option: list[int]) -> None:
    cotune.torch.enable(**option, database=None, tables=False)
    record["calls"] = []
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> torch.Tensor:
        return two_programs(x, dist.group.WORLD)

    compiled = torch.compile(function, fullgraph=True)
    for rows in (20, 300, 70, 70, 70, 70, 70, 70):
        x = input_of(rows)
        torch._dynamo.mark_dynamic(x, 0)
        before = len(record["rows"])
        record["error"] += "" if torch.allclose(compiled(x), function(x)) else f"{rows} rows differ; "
        record["calls"].append([rows, record["rows"][before:]])


def run_database(record: dict[str, Any]) -> None:
    """The database is the file DATABASE, that of the machine without one; TUNES: "0" to run by what it holds."""
    cotune.torch.enable(
        database=os.environ.get("DATABASE", ""), tunes=os.environ.get("TUNES") != "0", budget_s=0, tables=False, rows=[32]
    )
    record["error"] = check(input_of(32))
    data = cotune.torch.explain_data()
    record["sizes"] = [size for graph in data for program in graph["programs"] for size in program["sizes"]]


CASES = {
    "database": run_database,
    "deferred": lambda record: run_mode(record, True),
    "immediate": lambda record: run_mode(record, False),
    "options": run_options,
    "unlike": run_unlike,
    "rows": lambda record: run_rows(record, rows=[1, 16, 256]),
    # They are 16 and 256 rows of 16 columns of f32.
    "hints": lambda record: run_rows(record, collective_multi_kernel_hints=[1024, 16384]),
}


def main() -> None:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    torch.set_num_threads(1)
    record = {"rank": RANK, "error": "", "cells": [], "rows": []}
    listen(record)
    CASES[sys.argv[1]](record)
    # One write, which the lines of other ranks do not part.
    os.write(1, (json.dumps(record) + "\n").encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
