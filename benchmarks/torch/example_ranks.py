"""A rank under torchrun: times the examples' models eagerly, compiled, and compiled by way of cotune.

usage: torchrun --nproc-per-node N example_ranks.py [--device cuda] [--tokens 1,2,4] [--width 4096] [--rounds 15]

The ways take turns, round by round. A time is that of one call: several calls in a row between two barriers, the
largest over ranks. Prints one JSON object a line on rank 0: {"model", "tokens", "way", "us": one for each round}. The
model "operator" (on the CPU) is one all_reduce of 64 bytes: by the operator, by the bare C function, and by gloo.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import cotune.torch
from cotune import _native
from cotune.constants import DType, Reduction

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import llama_block  # noqa: E402
import tp_linear  # noqa: E402

# Calls that one time is made of last about so long.
SAMPLE_US = {"cpu": 20_000, "cuda": 5_000}
# Values that two ways may be apart, by that of the largest.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05}


class Clock:
    """Time of calls, on the device where it is a GPU."""

    def __init__(self, device: torch.device):
        self.is_cuda = device.type == "cuda"
        if self.is_cuda:
            self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def us(self, call: Callable[[], object], calls: int) -> float:
        """Of one call. The ranks begin together."""
        if self.is_cuda:
            torch.cuda.synchronize()
        dist.barrier()
        if not self.is_cuda:
            began = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - began) / calls * 1e6
        self.begin.record()
        for _ in range(calls):
            call()
        self.end.record()
        torch.cuda.synchronize()
        return self.begin.elapsed_time(self.end) / calls * 1e3


def largest(value: float) -> float:
    """Over ranks."""
    over_ranks = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(over_ranks, dist.ReduceOp.MAX)
    return float(over_ranks)


def flat(value) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def in_own_group(model: torch.nn.Module) -> torch.nn.Module:
    """The model with the same parameters in a process group of its own: in one group, the first graph decides a collective."""
    made = copy.copy(model)
    made.group = dist.new_group()
    return made


def ways_of(model: torch.nn.Module, device: torch.device) -> dict[str, Callable]:
    """By name. Each is compiled on its own: Inductor's caches know whether cotune's pass is in."""
    modes = {"compile": "default"} | ({"compile_graphs": "reduce-overhead"} if device.type == "cuda" else {})
    ways: dict[str, Callable] = {"eager": model}
    for name, mode in modes.items():
        from_mode = torch._inductor.list_mode_options(mode)
        ways[name] = torch.compile(model, dynamic=False, options=from_mode)
        options = from_mode | cotune.torch.options(tables=False, races_plain=True)
        ways[f"{name}_cotune"] = torch.compile(in_own_group(model), dynamic=False, options=options)
    return ways


def check(model_name: str, tokens: int, results: dict[str, list[torch.Tensor]], dtype: torch.dtype) -> None:
    for way, values in results.items():
        for value, right in zip(values, results["eager"], strict=True):
            off = (value.float() - right.float()).abs().max() / right.float().abs().max()
            if not off <= TOLERANCE[dtype]:
                raise SystemExit(f"{model_name}, {tokens} tokens: {way} is off by {float(off):.3g} of the largest value")


def show_verdicts(name: str, tokens: int) -> None:
    """Prints what the races with PyTorch's form have come to so far, on rank 0."""
    if dist.get_rank() == 0:
        for line in cotune.torch.explain().splitlines():
            if "torch/plain" in line:
                print(f"{name} {tokens}: {line.strip()}", file=sys.stderr, flush=True)


def measure(name: str, model: torch.nn.Module, given: tuple, tokens: int, options, device: torch.device) -> None:
    torch._dynamo.reset()  # a compiled function of its own for each number of tokens
    ways, clock = ways_of(model, device), Clock(device)
    calls, results = {}, {}
    for way, function in ways.items():
        for _ in range(3):
            values = [each.clone() for each in flat(function(*given))]
        results[way] = values
        calls[way] = lambda function=function: function(*given)
    check(name, tokens, results, given[0].dtype)
    show_verdicts(name, tokens)
    counts = {}
    for way, call in calls.items():
        once_us = largest(clock.us(call, 5))
        counts[way] = max(3, round(SAMPLE_US[device.type] / once_us))
    times: dict[str, list[float]] = {way: [] for way in ways}
    order = list(ways)
    for round_number in range(options.rounds):
        for way in order[round_number % len(order):] + order[:round_number % len(order)]:
            times[way].append(round(largest(clock.us(calls[way], counts[way])), 3))
    if dist.get_rank() == 0:
        for way, us in times.items():
            print(json.dumps({"model": name, "tokens": tokens, "way": way, "us": us}), flush=True)


def measure_operator(options) -> None:
    """An operator's cost on the host beside the bare C call: all_reduce of 64 bytes, on host memory."""
    x = torch.ones(16)
    group_name = dist.group.WORLD.group_name
    out = torch.ops.cotune.all_reduce(x, "sum", group_name)
    group = cotune.torch.group_of(group_name)
    if group is None:
        raise SystemExit("the group is plain; cotune.torch.explain() says why")
    function = _native.library().cotune_all_reduce
    with group._handle.exclusive() as address:
        arguments = (
            ctypes.c_void_p(address), ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()),
            ctypes.c_uint64(x.numel()), ctypes.c_int32(DType.F32), ctypes.c_int32(Reduction.SUM),
        )  # fmt: skip
        clock = Clock(torch.device("cpu"))
        calls = {
            "c_call": lambda: function(*arguments),
            "operator": lambda: torch.ops.cotune.all_reduce.default(x, "sum", group_name),
            "gloo": lambda: dist.all_reduce(out),
        }
        times: dict[str, list[float]] = {way: [] for way in calls}
        for _ in range(options.rounds):
            for way, call in calls.items():
                times[way].append(round(largest(clock.us(call, 1000)), 3))
    if dist.get_rank() == 0:
        for way, us in times.items():
            print(json.dumps({"model": "operator", "tokens": 0, "way": way, "us": us}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tokens", default="1,2,4,8,16,32,64")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    is_cuda = options.device == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if is_cuda else torch.device("cpu")
    if is_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if is_cuda else "gloo")
    torch.set_num_threads(1)
    dtype = torch.bfloat16 if is_cuda else torch.float32
    torch.manual_seed(dist.get_rank())
    linear = tp_linear.RowParallelLinear(4 * options.width, options.width, dist.group.WORLD).to(device, dtype)
    block = llama_block.LlamaBlock(options.width, dist.group.WORLD).to(device, dtype)
    with torch.no_grad():
        for tokens in map(int, options.tokens.split(",")):
            x = torch.randn(tokens, linear.weight.shape[0], dtype=dtype, device=device)
            measure("tp_linear", linear, (x,), tokens, options, device)
            measure("llama_block", block, llama_block.inputs(block, tokens), tokens, options, device)
        if not is_cuda:
            measure_operator(options)
    # NCCL waits for the graphs that hold calls of a communicator before it takes that down.
    torch._dynamo.reset()
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
