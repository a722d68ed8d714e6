"""A rank under torchrun that computes on two GPUs, with one process group for both.

usage: torchrun --nproc-per-node N device_ranks.py [--device cuda [--shared-gpus N]]

Each rank uses the GPU of its number first, and then that of the next rank, so that N GPUs do. Prints one JSON object a
line on rank 0: {"case", "error": "" or what differs on which rank, "skipped": why, if it is}.
"""

from __future__ import annotations

import argparse
import json

import placement
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import cotune.torch

ROWS, COLUMNS = 64, 512
RUNS = 4


def given(rank: int, seed: int, device: torch.device) -> torch.Tensor:
    """Small integers, whose sums are exact."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(-64, 64, (ROWS, COLUMNS), generator=generator).float().to(device)


def summed(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(funcol.all_reduce(x, "sum", dist.group.WORLD) + 1)


def operator(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.ops.cotune.all_reduce(x, "sum", dist.group.WORLD.group_name) + 1)


def run_late(function, device: torch.device, seed: int) -> torch.Tensor:
    """The result for an operand that a stream of its device makes late; the current device stays as it is."""
    stream = torch.cuda.Stream(device)
    mine = given(dist.get_rank(), seed, device)
    with torch.cuda.device(device):
        stream.wait_stream(torch.cuda.current_stream())
    current = torch.cuda.current_device()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x = mine + 0
        torch.cuda.set_device(current)
        result = function(x)
    stream.synchronize()
    return result


def check(function, devices: list[torch.device]) -> str:
    """Runs on both devices in turns."""
    for run in range(RUNS):
        for place, device in enumerate(devices):
            seed = 10 * run + place
            got = run_late(function, device, seed)
            wanted = torch.relu(sum(given(rank, seed, torch.device("cpu")) for rank in range(dist.get_world_size())) + 1)
            if got.device != device or not torch.equal(got.cpu(), wanted):
                return f"run {run} on {device}: {got} and not {wanted}"
    places = [each.device for each in cotune.torch.groups.entries() if not each.is_plain]
    if places != [str(each) for each in devices]:
        return f"groups on {places}, and not on {devices}: {cotune.torch.explain()}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    placement.add_options(parser)
    arguments = parser.parse_args()
    device = placement.placement_of(arguments).begin()
    ranks = dist.get_world_size()
    reason = ""
    if device.type == "cpu" or arguments.shared_gpus:
        reason = "each rank needs two GPUs, of which it shares none at a time"
    elif torch.cuda.device_count() < ranks or ranks < 2:
        reason = f"{ranks} ranks see {torch.cuda.device_count()} GPUs"
    cotune.torch.enable()
    for case, function in (("operator", operator), ("compiled", torch.compile(summed, fullgraph=True))):
        record = {"case": f"two_devices_{case}", "error": ""}
        if reason:
            record["skipped"] = reason
        else:
            devices = [torch.device("cuda", (device.index + shift) % ranks) for shift in range(2)]
            errors: list[str | None] = [None] * ranks
            error = check(function, devices)
            dist.all_gather_object(errors, error)
            record["error"] = "; ".join(f"rank {rank}: {each}" for rank, each in enumerate(errors) if each)
        if dist.get_rank() == 0:
            print(json.dumps(record), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
