"""A rank under torchrun: times the compilation and the first call of one model in one form, once.

usage: torchrun --nproc-per-node N first_run_ranks.py --form FORM --model llama_block|stack [--collectives 3] [--device cuda]
       [--tokens 64]

The environment names the library, the tuned database and Inductor's cache. Prints one JSON object on rank 0: {"s": seconds
from a barrier to the end of the first call, with cotune.torch.enable(), the largest over ranks; "tune_s": the part of it that
tunes take; "cells": the cells that this process has measured; "left": those that it has left out; "warnings": those of cotune
on this rank}.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pathlib
import re
import sys
import time

import torch
import torch.distributed as dist

import cotune.torch
from cotune.torch import groups
from cotune.torch.log import log

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import llama_block  # noqa: E402
import tp_linear  # noqa: E402

# The options of cotune.torch.enable() in each form; None: cotune is not enabled.
OPTIONS: dict[str, dict | None] = {
    "without": None,
    "cold": {},
    "one_thread": {"precompile_threads": 1},
    "immediate": {"enable_collective_multitemplate": False},
    "deferred": {"enable_collective_multitemplate": True},
    "database": {},
}
WIDTH_MAX, WIDTH_UNIT = 2048, 128
# Values that compiled and eager results may be apart, by the largest value.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05}


def widths(collectives: int) -> list[int]:
    """The outputs of the layers of a stack, all different: parts of the largest width."""
    units = WIDTH_MAX // WIDTH_UNIT
    return [WIDTH_UNIT * (units * (each + 1) // collectives) for each in range(collectives)]


class Stack(torch.nn.Module):
    """Row-parallel linear layers of different widths; each takes this rank's share of the columns of the one before."""

    def __init__(self, outputs: list[int], group: dist.ProcessGroup):
        super().__init__()
        self.rank, self.ranks = group.rank(), group.size()
        inputs = [WIDTH_MAX, *outputs[:-1]]
        layers = [tp_linear.RowParallelLinear(*sizes, group) for sizes in zip(inputs, outputs, strict=True)]
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: tokens x WIDTH_MAX, the same on all ranks."""
        for layer in self.layers:
            x = layer(x.chunk(self.ranks, -1)[self.rank])
        return x


class TuneTimes(logging.Handler):
    """Sums the times of the tunes of this rank, by the lines that cotune logs at their begin and end, and keeps warnings."""

    END = re.compile(r"^cotune: \d+ sizes? tuned in |\d+ sizes of process group .* were known$", re.MULTILINE)

    def __init__(self) -> None:
        super().__init__()
        self.s, self.warnings, self._begun_s = 0.0, [], 0.0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith("tuning "):
            self._begun_s = record.created
        elif self.END.search(text):
            self.s += record.created - self._begun_s
        elif record.levelno >= logging.WARNING:
            self.warnings.append(text)


def largest(*values: float) -> list[float]:
    """The largest over ranks of each value."""
    over_ranks = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(over_ranks, dist.ReduceOp.MAX)
    return over_ranks.tolist()


def check(results: object, expected: object) -> None:
    pairs = [(results, expected)] if isinstance(results, torch.Tensor) else list(zip(results, expected, strict=True))
    for value, right in pairs:
        off = (value.float() - right.float()).abs().max() / right.float().abs().max()
        if not off <= TOLERANCE[value.dtype]:
            raise SystemExit(f"the compiled model is off by {float(off):.3g} of the largest value")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--form", choices=OPTIONS, required=True)
    parser.add_argument("--model", choices=("llama_block", "stack"), required=True)
    parser.add_argument("--collectives", type=int, default=1, help="of a stack")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    is_cuda = options.device == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if is_cuda else torch.device("cpu")
    if is_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if is_cuda else "gloo")
    torch.set_num_threads(1)
    dtype = torch.bfloat16 if is_cuda else torch.float32
    torch.manual_seed(dist.get_rank())
    if options.model == "llama_block":
        model = llama_block.LlamaBlock(1024, dist.group.WORLD).to(device, dtype)
        given = llama_block.inputs(model, options.tokens)
    else:
        model = Stack(widths(options.collectives), dist.group.WORLD).to(device, dtype)
        torch.manual_seed(options.tokens)
        given = (torch.randn(options.tokens, WIDTH_MAX).to(device, dtype),)
    times = TuneTimes()
    log.addHandler(times)
    log.setLevel(logging.INFO)
    with torch.no_grad():
        expected = model(*given)  # also connects the ranks of the process group
        if is_cuda:
            torch.cuda.synchronize()
        dist.barrier()
        begun_s = time.perf_counter()
        if OPTIONS[options.form] is not None:
            # Imports modules of Inductor that the first call imports otherwise.
            cotune.torch.enable(tables=False, **OPTIONS[options.form])
        results = torch.compile(model)(*given)
        if is_cuda:
            torch.cuda.synchronize()
        s = time.perf_counter() - begun_s
    check(results, expected)
    s, tune_s = (round(each, 4) for each in largest(s, times.s))
    if dist.get_rank() == 0:
        entries = groups.entries()
        for entry in entries:
            if entry.is_plain:
                raise SystemExit(f"the process group runs by PyTorch's own collectives: {entry.reason}")
        programs = [program for entry in entries for program in entry.programs.values()]
        cells = sum(len(each.measured) for each in programs)
        left = sum(len(each.rows) for each in programs) - cells if options.form != "database" else 0
        print(json.dumps({"s": s, "tune_s": tune_s, "cells": cells, "left": left, "warnings": times.warnings}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
