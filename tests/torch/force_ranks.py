"""A rank under torchrun that forces choices of collectives.

usage: force_ranks.py CASE

Prints one JSON object on every rank: {"rank", "error": what is wrong, or "", "raised": the text of the error that a call
ended with, or "", "explains": the text of cotune.torch.explain(), "runs": what each size runs, from explain_data()}.
"""

from __future__ import annotations

import datetime
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import cotune.torch

RANK = int(os.environ["RANK"])
RING = {"all_reduce": "host/ring?chunk=65536"}
# The choices of rank 0 and those of the others, by the case.
FORCED = {
    "forced": (RING, RING),
    "differs": (RING, {"all_reduce": "host/tree?chunk=65536"}),
    "none": (None, None),  # those of the settings file
    "unknown": ({"all_reduce": "host/rign?chunk=65536"},) * 2,
}


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(funcol.all_reduce(x, "sum", dist.group.WORLD) + 1)


def run() -> str:
    """Small integers, whose sums are exact. Rank 1 has another graph around the collective in the second call."""
    error = ""

    def other(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x, "sum", dist.group.WORLD) * 2 if RANK else model(x)

    for function in (model, other):
        x = torch.randint(-8, 8, (32, 16), generator=torch.Generator().manual_seed(RANK)).float()
        expected = function(x)
        for _ in range(2):
            got = torch.compile(function, fullgraph=True)(x)
            error += "" if torch.equal(got, expected) else f"{got} and not {expected}; "
    return error


def main() -> None:
    case = sys.argv[1]
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    torch.set_num_threads(1)
    cotune.torch.enable(force=FORCED[case][min(RANK, 1)], budget_s=5, tables=False)
    error, raised = "", ""
    try:
        error = run()
    except RuntimeError as failure:
        raised = str(failure)
    data = cotune.torch.explain_data()
    sizes = [size for graph in data for program in graph["programs"] for size in program["sizes"]]
    record = {
        "rank": RANK,
        "error": error,
        "raised": raised,
        "explains": cotune.torch.explain(),
        "runs": [[size["source"], size["choice"]] for size in sizes],
    }
    # One write, which the lines of other ranks do not part.
    os.write(1, (json.dumps(record) + "\n").encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
