"""A rank under torchrun: runs models eagerly and compiled by way of cotune, and compares them value by value.

usage: torchrun --nproc-per-node N model_ranks.py --cases A,B --modes static,dynamic --steps inference,training

Prints one JSON object a line on rank 0: {"case", "mode", "step", "error": "" or what differs on which rank,
"collectives": how many of the graphs became programs, "plain": how many groups are plain}.
"""

from __future__ import annotations

import argparse
import json

import models
import torch
import torch.distributed as dist

import cotune.torch


def flat(value) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [each for part in value for each in flat(part)]


def difference(what: str, got: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float) -> str:
    if len(got) != len(expected):
        return f"{what}: {len(got)} values, and {len(expected)} are right"
    for i, (one, other) in enumerate(zip(got, expected)):
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
    loss = sum((each.float() * torch.cos(torch.arange(each.numel())).view_as(each)).sum() for each in outputs)
    loss.backward()
    gradients = [x.grad, *(each.grad for each in model.parameters() if each.grad is not None)]
    return [each.detach() for each in outputs], gradients


def check(case: models.Case, mode: str, step: str, group: dist.ProcessGroup) -> str:
    torch._dynamo.reset()
    model = case.model(group)
    compiled = torch.compile(model, dynamic=mode == "dynamic", fullgraph=True)
    trains = step == "training"
    errors = []  # all ranks go on to the end, whatever one of them finds
    for rows in (24, 48) if mode == "dynamic" else (24,):
        x = models.inputs(rows, group.rank(), case.name not in ("sequence_parallel", "moe_dispatch"))
        expected = run(model, model, x, trains)
        for repetition in ("first", "second"):
            got = run(model, compiled, x, trains)
            for what, one, other in zip(("output", "gradient"), got, expected):
                if error := difference(what, one, other, case.tolerance):
                    errors.append(f"{rows} rows, {repetition} run, {error}")
    return ", ".join(errors[:1])


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("cases", "modes", "steps"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    cotune.torch.enable()
    known = {case.name: case for case in models.CASES}
    for name in arguments.cases.split(","):
        for step in arguments.steps.split(","):
            if step == "training" and not known[name].trains:
                continue
            for mode in arguments.modes.split(","):
                before = cotune.torch.explain_data()
                error = check(known[name], mode, step, dist.group.WORLD)
                after = cotune.torch.explain_data()
                programs = [program for graph in after[len(before):] for program in graph["programs"]]
                collectives = sum(len(each["collectives"]) for each in programs)
                plain = sum(cotune.torch.group_of(each["group"]) is None for each in programs)
                errors = [None] * dist.get_world_size()
                dist.all_gather_object(errors, error)
                if dist.get_rank() == 0:
                    text = "; ".join(f"rank {rank}: {each}" for rank, each in enumerate(errors) if each)
                    record = {
                        "case": name, "mode": mode, "step": step, "error": text, "collectives": collectives,
                        "plain": plain,
                    }  # fmt: skip
                    print(json.dumps(record), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
