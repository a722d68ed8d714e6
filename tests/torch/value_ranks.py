"""A rank under torchrun: special values in programs give what compiled PyTorch gives without cotune.

usage: torchrun --nproc-per-node N value_ranks.py [--device cuda [--shared-gpus N]]

Prints one JSON object a line on rank 0: {"case", "error": "" or what differs on which rank}.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import math

import placement
import torch
import torch._inductor.config
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import cotune.torch

VALUES = (
    0.0, -0.0, math.nan, math.inf, -math.inf, 448, 449, 464, 465, 480, 1000, -449, -464, -465, -480, -1000,
    1e-3, -1e-3, 0.25, 3, -4, 57344, 61439, 61440, -61440, 65504, 240, 17, -17, 1, -1, 2,
)  # fmt: skip
COLUMNS = 16
F8 = (torch.float8_e4m3fn, torch.float8_e5m2)


# What the programs contain if they take the operations.
OPERATIONS = ("to=f8_e4m3", "to=f8_e5m2", "rsqrt")


def computed(x: torch.Tensor) -> list[torch.Tensor]:
    """Casts and powers behind a collective, and casts in front of others."""
    group = dist.group.WORLD
    total = funcol.all_reduce(x, "sum", group)
    casts = [total.to(dtype) for dtype in F8]
    powers = [torch.pow(total, exponent) for exponent in (0.5, -0.5, 1.0, 2.0, 3.0)]
    in_front = [funcol.all_gather_tensor(x.to(dtype).to(torch.float32), 0, group) for dtype in F8]
    return [*casts, *powers, *in_front]


def given(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The values on rank 0, and what changes no value in a sum on the others."""
    values = torch.tensor(VALUES, dtype=torch.float64).to(dtype).view(-1, COLUMNS)
    return (values if dist.get_rank() == 0 else torch.full_like(values, -0.0)).to(device)


def difference(got: torch.Tensor, right: torch.Tensor) -> str:
    if got.dtype != right.dtype or got.shape != right.shape:
        return f"{got.dtype} {tuple(got.shape)}, and {right.dtype} {tuple(right.shape)} is right"
    got, right = got.cpu().double().flatten(), right.cpu().double().flatten()
    # A power in f32 may differ in its last bits; all other values are equal.
    is_close = torch.isclose(got, right, rtol=1e-6, atol=0) & (torch.signbit(got) == torch.signbit(right))
    is_same = is_close | got.isnan() & right.isnan()
    return "; ".join(f"{got[i].item()}, and {right[i].item()} is right" for i in torch.nonzero(~is_same).flatten()[:4])


def check(dtype: torch.dtype, device: torch.device) -> str:
    """What differs between the function compiled with cotune and without; "" for nothing."""
    x = given(dtype, device)
    right = torch.compile(computed, fullgraph=True)(x)
    torch._dynamo.reset()
    before = len(cotune.torch.explain_data())
    found = torch.compile(computed, fullgraph=True, options=cotune.torch.options())(x)
    torch._dynamo.reset()
    errors = [f"result {i}: {text}" for i, pair in enumerate(zip(found, right)) if (text := difference(*pair))]
    texts = " ".join(each["text"] for graph in cotune.torch.explain_data()[before:] for each in graph["programs"])
    # A rank that finds the graph of another in Inductor's cache has not run the pass.
    errors += [f"no program has {each}" for each in OPERATIONS if texts and each not in texts]
    return "; ".join(errors)


class Counter(logging.Handler):
    """Counts the warnings about collectives that are left alone."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "cotune leaves" in record.getMessage():
            self.lines.append(record.getMessage())


def check_warning(device: torch.device) -> str:
    """8-bit integers, which programs do not add up: PyTorch does, and rank 0 says so once."""
    counter = Counter()
    logging.getLogger("cotune.torch").addHandler(counter)
    x = torch.ones(4, COLUMNS, dtype=torch.int8, device=device)
    for factor in (1, 2):  # two graphs
        call = torch.compile(
            lambda x: funcol.all_reduce(x * factor, "sum", dist.group.WORLD), options=cotune.torch.options()
        )
        # A graph that comes out of a cache has not gone through the pass.
        with torch._inductor.config.patch(force_disable_caches=True):
            if not torch.equal(call(x).cpu(), torch.full_like(x, factor * dist.get_world_size()).cpu()):
                return "a wrong sum of 8-bit integers"
    wanted = 1 if dist.get_rank() == 0 else 0
    return "" if len(counter.lines) == wanted else f"{len(counter.lines)} warnings, and {wanted} are right: {counter.lines}"


def main() -> None:
    parser = argparse.ArgumentParser()
    placement.add_options(parser)
    device = placement.placement_of(parser.parse_args()).begin()
    torch.set_num_threads(1)
    checks = {str(dtype): functools.partial(check, dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)}
    for case, call in {**checks, "warning": check_warning}.items():
        errors = [None] * dist.get_world_size()
        dist.all_gather_object(errors, call(device))
        if dist.get_rank() == 0:
            text = "; ".join(f"rank {rank}: {each}" for rank, each in enumerate(errors) if each)
            print(json.dumps({"case": case, "error": text}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
