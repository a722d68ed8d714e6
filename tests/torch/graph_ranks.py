"""A rank under torchrun that runs compiled graphs in special circumstances.

usage: graph_ranks.py CASE

Prints one JSON object on every rank: {"rank", "error": what differs from the eager values, or "", "raised": the texts of
the errors of a case that has some, "beats": how often Python ran while an operator waited, "plain": whether the group is
plain, "explains": the text of cotune.torch.explain(), "data": that of explain_data(), of a case that has it}.
OWN_CACHE is the folder of Inductor's cache for each rank, with its number behind it; ROWS are the rows of the first call.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading

RANK = int(os.environ["RANK"])
if "OWN_CACHE" in os.environ:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["OWN_CACHE"] + str(RANK)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as funcol  # noqa: E402

import cotune.torch  # noqa: E402

COLUMNS = 16
# How often another thread runs before the waiting operator goes on, a second together.
BEATS = 200
found: dict = {"error": "", "raised": [], "beats": 0}


def given(rows: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * seed + RANK)
    return torch.randint(-8, 8, (rows, COLUMNS), generator=generator).to(dtype)


def summed(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(funcol.all_reduce(x, "sum", dist.group.WORLD) + 1)


def compare(what: str, got: torch.Tensor, expected: torch.Tensor) -> None:
    """Small integers, whose sums are exact."""
    if got.dtype != expected.dtype or not torch.equal(got, expected):
        found["error"] += f"{what}: {got} and not {expected}; "


def other_rows() -> None:
    """A graph with dynamic rows, first called with as many as this start has."""
    compiled = torch.compile(summed, fullgraph=True)
    for rows in (int(os.environ["ROWS"]), 7, 96):
        x = given(rows)
        torch._dynamo.mark_dynamic(x, 0)
        compare(f"{rows} rows", compiled(x), summed(x))


def waits() -> None:
    """Another thread of rank 0 runs while an operator of rank 0 waits for rank 1."""
    compiled = torch.compile(summed, fullgraph=True)
    compare("first run", compiled(given(8)), summed(given(8)))
    expected = summed(given(8, seed=1))
    store = dist.group.WORLD.get_group_store()
    in_call = threading.Event()

    def beat() -> None:
        in_call.wait()
        for _ in range(BEATS):
            found["beats"] += 1
            threading.Event().wait(0.005)
        store.set("test/goes_on", b"")

    if RANK == 1:
        store.wait(["test/goes_on"])
        compare("second run", compiled(given(8, seed=1)), expected)
        return
    beats = threading.Thread(target=beat)
    beats.start()
    in_call.set()
    compare("second run", compiled(given(8, seed=1)), expected)
    beats.join()


def arguments() -> None:
    """Calls of the collectives that cannot be, and calls that can."""
    ops, ranks, name = torch.ops.cotune, dist.get_world_size(), dist.group.WORLD.group_name
    mask = given(8) > 0
    for call in (
        lambda: ops.all_gather(given(8), ranks + 1, name),
        lambda: ops.reduce_scatter(given(12 * ranks), "sum", 2 * ranks, name),
        lambda: ops.all_reduce(mask, "sum", name),
        lambda: ops.all_reduce(mask, "avg", name),
        lambda: ops.reduce_scatter(mask, "product", ranks, name),
    ):
        try:
            found["raised"].append(f"none: {call()}")
        except RuntimeError as failure:
            found["raised"].append(str(failure))
    gathered = [torch.empty_like(mask) for _ in range(ranks)]
    dist.all_gather(gathered, mask)
    compare("all_gather of bool", ops.all_gather(mask, ranks, name), torch.cat(gathered))
    compare("max of bool", ops.all_reduce(mask, "max", name), torch.stack(gathered).any(0))
    compare("all_reduce", ops.all_reduce(given(8), "sum", name), funcol.all_reduce(given(8), "sum", dist.group.WORLD))


def own_tensors() -> None:
    """Results that are tensors of their own in PyTorch, and a write to each."""

    def equal_values(x: torch.Tensor) -> list[torch.Tensor]:
        y = funcol.all_reduce(x, "sum", dist.group.WORLD)
        return [torch.relu(y), torch.relu(y)]

    def powers(x: torch.Tensor) -> list[torch.Tensor]:
        y = funcol.all_reduce(x, "sum", dist.group.WORLD) + 1
        return [y, y.pow(1), y * 1, y.view(-1)]

    for function in (equal_values, powers):
        compiled = torch.compile(function, fullgraph=True)
        for written in range(len(function(given(8)))):
            got, expected = compiled(given(8)), function(given(8))
            got[written].add_(100)
            expected[written].add_(100)
            for place, (have, want) in enumerate(zip(got, expected, strict=True)):
                compare(f"{function.__name__}, result {place} after a write to {written}", have, want)


class Block(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(funcol.all_reduce(x, "sum", dist.group.WORLD) + 1)


def gathered(x: torch.Tensor) -> torch.Tensor:
    return funcol.all_gather_tensor(x, 0, dist.group.WORLD) * 2


def explains() -> None:
    """Two graphs, and the data of explain_data()."""
    compare("block", torch.compile(Block())(given(8)), Block()(given(8)))
    compare("gathered", torch.compile(gathered)(given(4)), gathered(given(4)))
    found["data"] = cotune.torch.explain_data()


CASES = {each.__name__: each for each in (other_rows, waits, arguments, own_tensors, explains)}


def main() -> None:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    torch.set_num_threads(1)
    cotune.torch.enable(budget_s=2)
    CASES[sys.argv[1]]()
    entries = cotune.torch.groups.entries()
    record = {"rank": RANK, **found, "plain": any(each.is_plain for each in entries), "explains": cotune.torch.explain()}
    os.write(1, (json.dumps(record) + "\n").encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
