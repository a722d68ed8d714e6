"""A rank under torchrun: runs models eagerly and compiled by way of cotune, and compares them value by value.

usage: torchrun --nproc-per-node N model_ranks.py --cases A,B --modes static,dynamic --steps inference,training
       [--device cuda [--shared-gpus N]] [--compile-mode reduce-overhead]

Prints on rank 0 a line "compiling NAME, MODE, STEP" before each case, and one JSON object a line after it: {"case", "mode", "step", "error": "" or what differs on which rank,
"collectives": how many of the graphs became programs, "left": why rank 0 left others alone, "plain": how many groups
are plain, "cuda_graphs": how many graphs ran as CUDA graphs}. What is right is what the model gives eagerly on the CPU.
"""

from __future__ import annotations

import argparse
import json
import traceback

import models
import placement
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

import cotune.torch

# A CUDA graph is run as it is first, then captured, then replayed.
REPETITIONS = {"default": ("first", "second"), "reduce-overhead": ("first", "second", "third", "fourth")}


def flat(value) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [each for part in value for each in flat(part)]


def difference(what: str, got: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float) -> str:
    if len(got) != len(expected):
        return f"{what}: {len(got)} values, and {len(expected)} are right"
    for i, (one, other) in enumerate(zip((each.cpu() for each in got), expected)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{what} {i}: {one.dtype} {tuple(one.shape)}, and {other.dtype} {tuple(other.shape)} is right"
        # Sums of many addends are as exact as the largest of them.
        largest = other.abs().max().item() if other.numel() else 0.0
        if not torch.allclose(one, other, rtol=tolerance, atol=tolerance * largest):
            off = (one - other).abs().max().item()
            return f"{what} {i}: off by {off}, where the largest value is {largest}"
    return ""


def run(model: models.Model, call, x: torch.Tensor, trains: bool) -> tuple[list, list]:
    """The outputs, and the gradients of the input and of the weights."""
    if not trains:
        with torch.no_grad():
            return flat(call(x)), []
    model.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    outputs = flat(call(x))
    # A loss in which every value has a weight of its own.
    loss = sum(
        (each.float() * torch.cos(torch.arange(each.numel(), device=each.device)).view_as(each)).sum() for each in outputs
    )
    loss.backward()
    gradients = [x.grad, *(local(each.grad) for each in model.parameters() if each.grad is not None)]
    return [each.detach() for each in outputs], gradients


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a distributed tensor; any other as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def graphs_of(device: torch.device) -> int:
    """How many CUDA graphs PyTorch has recorded in this process."""
    if device.type == "cpu":
        return 0
    from torch._inductor.cudagraph_trees import get_container

    manager = get_container(device.index).tree_manager
    return 0 if manager is None else len(list(manager.get_roots()))


def check(case: models.Case, mode: str, step: str, device: torch.device, compile_mode: str) -> str:
    torch._dynamo.reset()
    group = dist.group.WORLD
    eager, model = case.model(group), case.model(group).to(device)
    compiled = torch.compile(model, dynamic=mode == "dynamic", fullgraph=case.model.is_one_graph, mode=compile_mode)
    trains = step == "training"
    tolerance = case.tolerance if device.type == "cpu" else 10 * case.tolerance
    errors = []  # all ranks go on to the end, whatever one of them finds
    for rows in (24, 48) if mode == "dynamic" else (24,):
        for seed, repetition in enumerate(REPETITIONS[compile_mode]):
            x = models.inputs(rows, group.rank(), case.model.has_same_input, seed)
            expected = run(eager, eager, x, trains)
            got = run(model, compiled, x.to(device), trains)
            for what, one, other in zip(("output", "gradient"), got, expected):
                if error := difference(what, one, other, tolerance):
                    errors.append(f"{rows} rows, {repetition} run, {error}")
    return ", ".join(errors[:1])


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("cases", "modes", "steps"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--compile-mode", choices=tuple(REPETITIONS), default="default")
    placement.add_options(parser)
    arguments = parser.parse_args()
    device = placement.placement_of(arguments).begin()
    torch.set_num_threads(1)
    # Dynamic graphs have sizes up to 64 MiB, more than the values of these models need. The splits of moe_dispatch are
    # equal on all ranks.
    cotune.torch.enable(budget_s=2, all_to_all=True)
    known = {case.name: case for case in models.CASES}
    for name in arguments.cases.split(","):
        for step in arguments.steps.split(","):
            if step == "training" and not known[name].trains:
                continue
            for mode in arguments.modes.split(","):
                if dist.get_rank() == 0:
                    print(f"compiling {name}, {mode}, {step}", flush=True)
                last = max((graph["number"] for graph in cotune.torch.explain_data()), default=-1)
                try:
                    error = check(known[name], mode, step, device, arguments.compile_mode)
                except Exception as failure:  # of all ranks as a rule, so that the next case can run
                    traceback.print_exc()
                    error = f"{type(failure).__name__}: {failure}"[:500]
                after = [graph for graph in cotune.torch.explain_data() if graph["number"] > last]
                programs = [program for graph in after for program in graph["programs"]]
                collectives = sum(len(each["collectives"]) for each in programs)
                left = [each["reason"] for graph in after for each in graph["left"]]
                plain = sum(cotune.torch.group_of(each["group"]) is None for each in programs)
                found = [None] * dist.get_world_size()
                dist.all_gather_object(found, (error, collectives, plain))
                if dist.get_rank() == 0:
                    text = "; ".join(f"rank {rank}: {each}" for rank, (each, *_) in enumerate(found) if each)
                    # A rank that finds the graph of another in Inductor's cache has not run the pass.
                    collectives, plain = (max(each[i] for each in found) for i in (1, 2))
                    record = {
                        "case": name, "mode": mode, "step": step, "error": text, "collectives": collectives,
                        "left": left, "plain": plain, "cuda_graphs": graphs_of(device),
                    }  # fmt: skip
                    print(json.dumps(record), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
