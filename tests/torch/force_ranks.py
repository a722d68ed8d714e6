"""A rank under torchrun that forces choices of collectives.

usage: force_ranks.py CASE

CASE: a key of FORCED, or "wrong_list", where rank 1 has a list that cannot be read: with enable(), with "wrong_list_options" or
"wrong_list_enabled" by the entry of that name, and with "wrong_list_custom" for a custom operator.
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
from torch.distributed.distributed_c10d import _resolve_process_group

import cotune.torch
from cotune.torch import CustomOpConfig

RANK = int(os.environ["RANK"])
RING = {"all_reduce": "host/ring?chunk=65536"}
# The choices of rank 0 and those of the others, by the case.
FORCED = {
    "forced": (RING, RING),
    "differs": (RING, {"all_reduce": "host/tree?chunk=65536"}),
    "none": (None, None),  # those of the settings file
    "unknown": ({"all_reduce": "host/rign?chunk=65536"},) * 2,
}
# Rank 1 has a list that cannot be read.
WRONG_LIST = "all_reduce=host/ring,,"


@torch.library.custom_op("forced::total", mutates_args=())
def total(x: torch.Tensor, group_name: str) -> torch.Tensor:
    return once(x, group_name)


@total.register_fake
def _(x: torch.Tensor, group_name: str) -> torch.Tensor:
    return torch.empty_like(x)


def once(x: torch.Tensor, group_name: str) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x, group=_resolve_process_group(group_name))
    return x


def custom_model(x: torch.Tensor) -> torch.Tensor:
    return total(x, dist.group.WORLD.group_name) + 1


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


def run_wrong_list(case: str) -> None:
    """Calls a function with each of the three ways to use cotune, and with a custom operator."""
    if RANK == 1:
        os.environ["COTUNE_FORCE_CHOICE"] = WRONG_LIST
    x = torch.ones(32, 16)
    if case == "wrong_list_options":
        torch.compile(model, fullgraph=True, options=cotune.torch.options())(x)
    elif case == "wrong_list_enabled":
        with cotune.torch.enabled():
            torch.compile(model, fullgraph=True)(x)
    else:
        cotune.torch.register_custom_op_autotuning(total, [CustomOpConfig(once)])
        cotune.torch.enable(tables=False)
        torch.compile(custom_model if case == "wrong_list_custom" else model, fullgraph=True)(x)


def main() -> None:
    case = sys.argv[1]
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    torch.set_num_threads(1)
    error, raised = "", ""
    try:
        if case.startswith("wrong_list"):
            run_wrong_list(case)
        else:
            cotune.torch.enable(force=FORCED[case][min(RANK, 1)], budget_s=5, tables=False)
            error = run()
    except (RuntimeError, ValueError) as failure:
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
