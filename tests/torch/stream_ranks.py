"""A rank under torchrun: cotune's operators on streams, in CUDA graphs, and beside the process group's own collectives.

usage: torchrun --nproc-per-node N stream_ranks.py [--device cuda [--shared-gpus N]]

Prints one JSON object a line on rank 0: {"case", "error": "" or what differs on which rank, "skipped": why, if it is}.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import threading
import time
from collections.abc import Callable

import placement
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed import distributed_c10d

import cotune.torch

# Bytes of the collectives that run on two streams at once.
SIZES_BYTES = (4 << 10, 1 << 20, 32 << 20)
CALLS = 10
# Rank 1 waits no longer than this for rank 0 to have enqueued a replay.
LATE_S = 10


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


def check_late_replay(device: torch.device) -> str:
    """Rank 1 begins a call only when rank 0 has enqueued its own: on a GPU, the replay of a CUDA graph."""
    if os.environ.get("COTUNE_SHARED_GPUS") == "1":
        raise Skipped("ranks that share a GPU run in turns")
    is_cuda, rank = device.type == "cuda", dist.get_rank()
    call = torch.compile(
        lambda x: torch.relu(funcol.all_reduce(x * 2, "sum", dist.group.WORLD) + 1),
        fullgraph=True,
        mode="reduce-overhead" if is_cuda else "default",
    )
    store = distributed_c10d._get_default_store()
    errors = []
    for turn in range(8):
        x = given(4096, rank, 20 + turn, device)
        # The first calls tune, warm up and capture; ranks wait for each other in them.
        key = f"late_replay/{turn}" if turn >= 4 and not errors else ""
        if key and rank == 0 and not is_cuda:
            store.set(key, "1")  # a call on the CPU ends only when all ranks are in it
        if key and rank == 1:
            try:
                store.wait([key], datetime.timedelta(seconds=LATE_S))
            except RuntimeError:  # DistStoreError among them
                errors.append(f"turn {turn}: rank 0 did not come out of its call")
            time.sleep(0.1)
        result = call(x)
        if key and rank == 0 and is_cuda:
            store.set(key, "1")
        if not torch.equal(result.cpu(), torch.relu(2 * sum_of(4096, 20 + turn) + 1)):
            errors.append(f"turn {turn}: wrong values")
    return ", ".join(errors[:2])


def check_tune_between(device: torch.device) -> str:
    """The first run, which tunes, has work of the user in front of it and behind it on the same stream."""
    width, rows, seed = (2048 if device.type == "cuda" else 64), 24, 31
    one = torch.eye(width, device=device)

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = x @ one
        total = funcol.all_reduce(x, "sum", dist.group.WORLD) * 3
        for _ in range(10):
            total = total @ one
        return total - 2

    x = given(rows * width, dist.get_rank(), seed, device).view(rows, width)
    kept = x.clone()
    result = torch.compile(function, fullgraph=True)(x)
    x.zero_()  # behind the call, so that the call has read it
    after = torch.compile(function, fullgraph=True)(kept)
    right = 3 * sum_of(rows * width, seed).view(rows, width) - 2
    if not torch.equal(result.cpu(), right):
        return "wrong values in the run that tunes"
    return "" if torch.equal(after.cpu(), right) else "wrong values in the run behind it"


def check_memory(device: torch.device, allocate: Callable[[], torch.Tensor]) -> str:
    """Memory of another allocator as operand: plain memory to cotune."""
    x, reason = None, ""
    try:
        x = allocate()
    except (ImportError, AttributeError, RuntimeError, TypeError) as failure:
        reason = f"{type(failure).__name__}: {failure}".splitlines()[0][:200]
    reasons = [None] * dist.get_world_size()
    dist.all_gather_object(reasons, reason)
    if any(reasons):
        raise Skipped(next(each for each in reasons if each))
    for seed in (41, 42):
        x.copy_(given(x.numel(), dist.get_rank(), seed, device))
        result = torch.ops.cotune.all_reduce(x, "sum", name())
        if not torch.equal(result.cpu(), sum_of(x.numel(), seed)):
            return "wrong values"
    return ""


def check_symmetric_memory(device: torch.device) -> str:
    def allocate() -> torch.Tensor:
        from torch.distributed import _symmetric_memory

        return _symmetric_memory.empty(8192, dtype=torch.float32, device=device)

    return check_memory(device, allocate)


def check_memory_pool(device: torch.device) -> str:
    pools = []  # a pool outlives its tensors

    def allocate() -> torch.Tensor:
        pools.append(torch.cuda.MemPool())
        with torch.cuda.use_mem_pool(pools[0]):
            return torch.empty(8192, device=device)

    return check_memory(device, allocate)


class Skipped(Exception):
    """This case cannot run here, on any rank; the message says why."""


CASES = {
    "side_stream": check_side_stream, "graph": check_graph, "beside_the_process_group": check_beside,
    "gradient": check_gradient, "thread": check_thread, "late_replay": check_late_replay,
    "tune_between": check_tune_between, "symmetric_memory": check_symmetric_memory, "memory_pool": check_memory_pool,
}  # fmt: skip
ON_CPU = ("late_replay", "tune_between")


def run(case: str, device: torch.device) -> dict[str, str]:
    """The record of a case, less its name: "error", and "skipped" if it is."""
    if device.type == "cpu" and case not in ON_CPU:
        return {"error": "", "skipped": "the CPU has no streams and no memory of other allocators"}
    if case == "beside_the_process_group" and "cuda:nccl" not in str(dist.get_backend_config()):
        # gloo waits on the host for what stands in front of it on the GPU.
        return {"error": "", "skipped": "the process group is not NCCL's"}
    errors = [None] * dist.get_world_size()
    try:
        error = CASES[case](device)
    except Skipped as reason:
        return {"error": "", "skipped": str(reason)}
    dist.all_gather_object(errors, error)
    return {"error": "; ".join(f"rank {rank}: {each}" for rank, each in enumerate(errors) if each)}


def main() -> None:
    parser = argparse.ArgumentParser()
    placement.add_options(parser)
    arguments = parser.parse_args()
    device = placement.placement_of(arguments).begin()
    cotune.torch.enable()
    for case in CASES:
        record = run(case, device)
        if dist.get_rank() == 0:
            print(json.dumps({"case": case, **record}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
