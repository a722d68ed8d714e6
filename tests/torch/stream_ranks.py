"""A rank under torchrun: cotune's operators on streams, in CUDA graphs, and beside the process group's own collectives.

usage: torchrun --nproc-per-node N stream_ranks.py [--device cuda [--shared-gpus N]]

Prints one JSON object a line on rank 0: {"case", "error": "" or what differs on which rank, "skipped": why, if it is}.
"""

from __future__ import annotations

import argparse
import json
import threading

import placement
import torch
import torch.distributed as dist

import cotune.torch

# Bytes of the collectives that run on two streams at once.
SIZES_BYTES = (4 << 10, 1 << 20, 32 << 20)
CALLS = 10


def given(count: int, rank: int, seed: int, device: torch.device) -> torch.Tensor:
    """Small integers, whose sums are exact."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(-64, 64, (count,), generator=generator).float().to(device)


def sum_of(count: int, seed: int) -> torch.Tensor:
    return sum(given(count, rank, seed, torch.device("cpu")) for rank in range(dist.get_world_size()))


def name() -> str:
    return dist.group.WORLD.group_name


def check_side_stream(device: torch.device) -> str:
    """Operators run on the current stream, behind what is queued there."""
    side = torch.cuda.Stream()
    x = given(5000, dist.get_rank(), 1, device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)  # the operand is made late
        doubled = x * 2
        result = torch.ops.cotune.all_reduce(doubled, "sum", name()) + 1
    side.synchronize()
    return "" if torch.equal(result.cpu(), 2 * sum_of(5000, 1) + 1) else "wrong values on a side stream"


def check_graph(device: torch.device) -> str:
    """A captured operator gives the sums of what its operand holds at each replay."""
    x = torch.zeros(4096, device=device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            torch.ops.cotune.all_reduce(x, "sum", name())
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = x
        for _ in range(3):
            result = torch.ops.cotune.all_reduce(result, "sum", name())
    for seed in range(2, 7):
        x.copy_(given(4096, dist.get_rank(), seed, device))
        graph.replay()
        torch.cuda.synchronize()
        if not torch.equal(result.cpu(), dist.get_world_size() ** 2 * sum_of(4096, seed)):
            return f"wrong values in replay {seed - 1}"
    return ""


def check_beside(device: torch.device) -> str:
    """On two streams, in opposite order on the ranks: cotune's calls and those of NCCL."""
    own, others = torch.cuda.Stream(), torch.cuda.Stream()
    for size_bytes in SIZES_BYTES:
        count = size_bytes // 4
        warm = torch.zeros(count, device=device)  # what a first call makes and waits for is there then
        dist.all_reduce(warm)
        torch.ops.cotune.all_reduce(warm, "sum", name())
        x = given(count, dist.get_rank(), 7, device)
        y = given(count, dist.get_rank(), 8, device)
        torch.cuda.synchronize()
        sums, totals = [], []

        def ours() -> None:
            with torch.cuda.stream(own):
                sums.extend(torch.ops.cotune.all_reduce(x, "sum", name()) for _ in range(CALLS))

        def theirs() -> None:
            with torch.cuda.stream(others):
                for _ in range(CALLS):
                    total = y.clone()
                    dist.all_reduce(total)
                    totals.append(total)

        for queue in (ours, theirs) if dist.get_rank() % 2 == 0 else (theirs, ours):
            queue()
        torch.cuda.synchronize()
        right, right_total = sum_of(count, 7), sum_of(count, 8)
        if not all(torch.equal(each.cpu(), right) for each in sums):
            return f"{size_bytes} bytes: wrong values by cotune"
        if not all(torch.equal(each.cpu(), right_total) for each in totals):
            return f"{size_bytes} bytes: wrong values by the process group"
    return ""


def check_gradient(device: torch.device) -> str:
    """Backward runs on a thread of autograd's, with the stream of the forward pass."""
    x = given(3000, dist.get_rank(), 9, device).requires_grad_()
    weights = given(3000, dist.get_rank(), 10, device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (torch.ops.cotune.all_reduce(x, "sum", name()) * weights).sum().backward()
    side.synchronize()
    return "" if torch.equal(x.grad.cpu(), sum_of(3000, 10)) else "a wrong gradient"


def check_thread(device: torch.device) -> str:
    """A second thread of Python, which has no stream of its own set."""
    results = []
    x = given(2000, dist.get_rank(), 11, device)
    torch.cuda.synchronize()

    def work() -> None:
        torch.cuda.set_device(device)
        results.append(torch.ops.cotune.all_reduce(x, "sum", name()))
        torch.cuda.synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return "" if results and torch.equal(results[0].cpu(), sum_of(2000, 11)) else "wrong values in a second thread"


CASES = {
    "side_stream": check_side_stream, "graph": check_graph, "beside_the_process_group": check_beside,
    "gradient": check_gradient, "thread": check_thread,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    placement.add_options(parser)
    arguments = parser.parse_args()
    device = placement.placement_of(arguments).begin()
    cotune.torch.enable()
    has_nccl = "cuda:nccl" in str(dist.get_backend_config())
    for case, check in CASES.items():
        if check is check_beside and not has_nccl:
            # gloo waits on the host for what stands in front of it on the GPU.
            if dist.get_rank() == 0:
                print(json.dumps({"case": case, "error": "", "skipped": "the process group is not NCCL's"}), flush=True)
            continue
        errors = [None] * dist.get_world_size()
        dist.all_gather_object(errors, check(device))
        if dist.get_rank() == 0:
            text = "; ".join(f"rank {rank}: {each}" for rank, each in enumerate(errors) if each)
            print(json.dumps({"case": case, "error": text}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
