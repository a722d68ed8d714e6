"""A rank under torchrun whose Python functions race for a custom operator.

usage: function_ranks.py CASE [--device cuda [--shared-gpus N]]

CASE: "right": all functions are right, and each is forced once; "faulty": some are wrong, raise or do not return on rank 1
alone (on a GPU all return: nothing ends the kernels of the other rank there); "differs": rank 1 has another function; "slow": a
function sleeps unless it is compiled, as the operator does; "uncompiled": Inductor can compile one function on rank 0 alone, and
another one nowhere; "erratic": all functions take times that vary much, unless ERRATIC is "no"; "absent": no function is
registered. Prints one JSON object on every rank: {"rank", "case", "device", "error": what differs from the eager values, or "",
"choices": {choice: [outcome, reason]} of the functions, "times": {choice: microseconds}, "runs": the choice that runs,
"unsteady", "not_raced": those of the measured size, "groups": the names of the process groups in which the functions
communicated, "sleeps": how often the function of the case "slow" has slept in calls after the tune, "naps": how often that of the
case "erratic" was called, "explains": the text of cotune.torch.explain()}. Options of enable() are in OPTIONS, as a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time

import placement
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

import cotune.torch
from cotune.torch import CustomOpConfig, groups, report

RANK = int(os.environ["RANK"])
PARSER = argparse.ArgumentParser()
PARSER.add_argument("case")
placement.add_options(PARSER)
OPTIONS = PARSER.parse_args()
ROWS, COLUMNS = 6, 16
SLEEP_S = 0.2
found: dict = {
    "rank": RANK, "case": OPTIONS.case, "device": OPTIONS.device, "error": "", "choices": {}, "times": {}, "runs": "", "groups": [],
    "sleeps": 0, "naps": 0, "unsteady": None, "not_raced": None,
}  # fmt: skip
_awakes = threading.Event()


@torch.library.custom_op("functions::all_reduce", mutates_args=())
def all_reduce(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    if OPTIONS.case in ("slow", "erratic") and group_name != dist.group.WORLD.group_name:
        time.sleep(SLEEP_S)
    result = x.clone()
    op = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}[how]
    dist.all_reduce(result, op, group=_resolve_process_group(group_name))
    return result


@all_reduce.register_fake
def _(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("functions::all_gather", mutates_args=())
def all_gather(x: torch.Tensor, group_name: str) -> torch.Tensor:
    group = _resolve_process_group(group_name)
    parts = [torch.empty_like(x) for _ in range(group.size())]
    dist.all_gather(parts, x, group=group)
    return torch.cat(parts)


@all_gather.register_fake
def _(x: torch.Tensor, group_name: str) -> torch.Tensor:
    return x.new_empty((x.shape[0] * _resolve_process_group(group_name).size(), *x.shape[1:]))


def by_library(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    """Writes to its operand, as it may."""
    if not torch.compiler.is_compiling():
        found["groups"].append(group_name)
    op = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}[how]
    dist.all_reduce(x, op, group=_resolve_process_group(group_name))
    return x


def by_gathering(x: torch.Tensor, how: str, group_name: str, pieces: int) -> torch.Tensor:
    group = _resolve_process_group(group_name)
    results = []
    for piece in x.tensor_split(pieces):
        parts = [torch.empty_like(piece) for _ in range(group.size())]
        dist.all_gather(parts, piece.contiguous(), group=group)
        stacked = torch.stack(parts)
        results.append(stacked.sum(0).to(x.dtype) if how == "sum" else stacked.amax(0))
    return torch.cat(results).reshape(-1, 1)  # any shape


def wrong(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    """Nowhere right, because relu hides wrong values below zero."""
    return by_gathering(x, how, group_name, 1) + (RANK == 1)


def raises(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    if RANK == 1:
        raise LookupError("no route")
    return by_library(x, how, group_name)


def hangs(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    if RANK == 1:
        _awakes.wait()
    return by_library(x, how, group_name)


def slow(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    if not torch.compiler.is_compiling():
        found["sleeps"] += 1
        time.sleep(SLEEP_S)
    return by_library(x, how, group_name)


@torch.library.custom_op("functions::nap", mutates_args=("x",))
def nap(x: torch.Tensor) -> None:
    """Sleeps in about half of the calls, equally on all ranks. It is an operator, so that compiled code calls it, too."""
    found["naps"] += 1
    if os.environ.get("ERRATIC") != "no" and random.Random(found["naps"]).random() < 0.5:
        time.sleep(0.03)


def erratic(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    nap(x)
    return by_library(x, how, group_name)


def uneven(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    if RANK == 1 and torch.compiler.is_compiling():
        torch._dynamo.graph_break()
    return by_library(x, how, group_name)


def untraceable(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    time.sleep(0)
    return by_library(x, how, group_name)


def silent(x: torch.Tensor, how: str, group_name: str) -> None:
    """Has no result."""


def too_long(x: torch.Tensor, how: str, group_name: str) -> torch.Tensor:
    return torch.cat([by_gathering(x, how, group_name, 1).reshape(-1), x])


def gathers(x: torch.Tensor, group_name: str) -> torch.Tensor:
    group = _resolve_process_group(group_name)
    result = x.new_empty(group.size() * x.numel())
    dist.all_gather(list(result.chunk(group.size())), x, group=group)
    return result


def layer(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    name = dist.group.WORLD.group_name
    return all_gather(torch.relu(all_reduce(x, "sum", name) + bias), name)


def given(call: int) -> torch.Tensor:
    """Small integers, whose sums are exact."""
    generator = torch.Generator().manual_seed(100 * call + RANK)
    return torch.randint(-8, 8, (ROWS, COLUMNS), generator=generator).float().to(OPTIONS.device)


def run(calls: int) -> None:
    torch._dynamo.reset()
    compiled, bias = torch.compile(layer, fullgraph=True), torch.full((1, COLUMNS), 2.0, device=OPTIONS.device)
    for call in range(calls):
        x = given(call)
        before = x.clone()
        got, expected = compiled(x, bias), layer(x, bias)
        if not torch.equal(got, expected):
            found["error"] += f"call {call}: {got} and not {expected}; "
        if not torch.equal(x, before):
            found["error"] += f"call {call}: the operand is changed; "


def note_choices() -> None:
    entry = next(each for each in groups.entries() if each.group is not None)
    for text in entry.programs:
        with entry.group._handle.exclusive() as address:
            answer = report.explained(address, text, ROWS)
        if "all_reduce" not in text:
            continue
        found["runs"] = answer["choice"]
        for size in answer["measured"] or []:
            found["choices"] |= {
                each["choice"]: [each["outcome"], each["reason"]]
                for each in size["choices"]
                if "python/" in each["choice"]
            }
            found["times"] |= {each["choice"]: each["time_us"] for each in size["choices"]}
            found["unsteady"], found["not_raced"] = size["unsteady"], size["not_raced"]


def register(case: str) -> None:
    declare = {"tensor": "x", "group": "group_name"}
    cotune.torch.declare_collective("functions::all_reduce", kind="all_reduce", reduction="how", **declare)
    cotune.torch.declare_collective("functions::all_gather", kind="all_gather", **declare)
    configs = [CustomOpConfig(by_library), CustomOpConfig(by_gathering, pieces=1), CustomOpConfig(by_gathering, pieces=3)]
    if case == "absent":
        return
    if case == "slow":
        configs = [CustomOpConfig(slow)]
    if case == "erratic":
        configs = [CustomOpConfig(erratic)]
    if case == "uncompiled":
        configs = [CustomOpConfig(each) for each in (uneven, untraceable)]
    if case == "faulty":
        configs += [CustomOpConfig(each) for each in (wrong, silent, too_long)]
        if OPTIONS.device == "cpu":
            configs += [CustomOpConfig(each) for each in (raises, hangs)]
    if case == "differs" and RANK == 1:
        configs.pop()
    cotune.torch.register_custom_op_autotuning(all_reduce, configs)
    cotune.torch.register_custom_op_autotuning(all_gather, [CustomOpConfig(gathers)])


def main() -> int:
    case = OPTIONS.case
    torch.set_num_threads(1)
    placement.placement_of(OPTIONS).begin()
    register(case)
    forced = {"force": json.loads(os.environ["FORCE"])} if "FORCE" in os.environ else {}
    cotune.torch.enable(tables=False, **forced, **json.loads(os.environ.get("OPTIONS", "{}")))
    run(calls=4)
    note_choices()
    if case == "slow":
        found["sleeps"] = 0
        run(calls=2)  # after torch._dynamo.reset()
    found["groups"] = sorted(set(found["groups"]))
    found["explains"] = cotune.torch.explain()
    _awakes.set()
    # One write a rank: lines of two ranks must not mix.
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
