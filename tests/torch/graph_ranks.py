"""A rank under torchrun that runs compiled graphs in special circumstances.

usage: graph_ranks.py CASE

Prints one JSON object on every rank: {"rank", "error": what differs from the eager values, or "", "raised": the texts of
the errors of a case that has some, "beats": how often Python ran while an operator waited, "plain": whether the group is
plain, "explains": the text of cotune.torch.explain(), "data": that of explain_data(), of a case that has it, "calls":
how often each custom operator has run, "made": the collectives outside of compiled graphs as explain() has them, at each
step, "before": the text of explain() before operators are declared}.
OWN_CACHE is the folder of Inductor's cache for each rank, with its number behind it; ROWS are the rows of the first call.
"""

from __future__ import annotations

import datetime
import json
import os
import re
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


# Custom operators that are collectives.

calls: dict[str, int] = {}


def operator(schema: str, fake):
    """Registers mylib::NAME, which counts its calls."""
    name = schema.partition("(")[0]

    def register(function):
        def counted(*arguments):
            calls[name] = calls.get(name, 0) + 1
            return function(*arguments)

        torch.library.define(f"mylib::{name}", schema.removeprefix(name))
        torch.library.impl(f"mylib::{name}", "CompositeExplicitAutograd", counted)
        torch.library.register_fake(f"mylib::{name}", fake)

        return function

    return register


def rows_of(x: torch.Tensor, rows: int) -> torch.Tensor:
    return x.new_empty((rows, *x.shape[1:]))


@operator("total(Tensor x, str group_name) -> Tensor", lambda x, group_name: torch.empty_like(x))
def total(x: torch.Tensor, group_name: str) -> torch.Tensor:
    result = x.clone()
    dist.all_reduce(result)
    return result


@operator("gather(str ranks, int dim, Tensor x) -> Tensor", lambda ranks, dim, x: rows_of(x, x.shape[0] * 2))
def gather(ranks: str, dim: int, x: torch.Tensor) -> torch.Tensor:
    result = rows_of(x, x.shape[0] * 2)
    dist.all_gather_into_tensor(result, x.contiguous())
    return result


@operator("share(Tensor x, str how, str process_group) -> Tensor", lambda x, how, process_group: rows_of(x, x.shape[0] // 2))
def share(x: torch.Tensor, how: str, process_group: str) -> torch.Tensor:
    result = rows_of(x, x.shape[0] // 2)
    dist.reduce_scatter_tensor(result, x.contiguous(), dist.ReduceOp.MAX if how == "max" else dist.ReduceOp.SUM)
    return result


@operator("half(Tensor x, str group) -> Tensor", lambda x, group: torch.empty_like(x.chunk(2)[0]))
def half(x: torch.Tensor, group: str) -> torch.Tensor:
    return share(x, "sum", group)


@operator("swap(Tensor x, str group) -> Tensor", lambda x, group: torch.empty_like(x))
def swap(x: torch.Tensor, group: str) -> torch.Tensor:
    result = torch.empty_like(x)
    dist.all_to_all_single(result, x.contiguous())
    return result


@operator("total_(Tensor(a!) x, str group) -> ()", lambda x, group: None)
def total_(x: torch.Tensor, group: str) -> None:
    dist.all_reduce(x)


@operator("hidden(Tensor x, str where) -> Tensor", lambda x, where: torch.empty_like(x))
def hidden(x: torch.Tensor, where: str) -> torch.Tensor:
    return x * 2


def chain(x: torch.Tensor) -> list[torch.Tensor]:
    """All kinds; what reads a declared operator reads it without a wait."""
    ops, name = torch.ops.mylib, dist.group.WORLD.group_name
    y = torch.relu(ops.total(x, name) + 1)
    gathered = ops.gather(name, 0, y * 2)
    largest = ops.share(gathered * (1 if RANK else -1), "max", name)
    return [y, gathered, torch.tanh(largest), ops.swap(x, name) - 1]


def left_alone(x: torch.Tensor) -> list[torch.Tensor]:
    """Declared operators that cotune cannot take, between those that it takes. No operation is beside them, whose kernel
    would have to be compiled."""
    ops, name = torch.ops.mylib, dist.group.WORLD.group_name
    return [ops.total(x, name), ops.total(x.view(torch.int8), name), ops.total(x, "nobody"), ops.total(x, name)]


def alone(x: torch.Tensor) -> list[torch.Tensor]:
    """An operator that is declared afterwards, and two that are not."""
    ops, name = torch.ops.mylib, dist.group.WORLD.group_name
    y = ops.hidden(x, name)
    ops.total_(y, name)
    return [y, ops.total(x, name)]


# Calls of declared operators whose graphs differ from rank to rank, as far as each rank may do so.


# It is no part of a graph, so that no kernel has to be compiled for it.
WEIGHT = torch.ones(COLUMNS, COLUMNS)


def crossed(x: torch.Tensor) -> list[torch.Tensor]:
    """The ranks call the operators in one order, and read the results in different ones."""
    ops, name = torch.ops.mylib, dist.group.WORLD.group_name
    first, second = ops.total(x[:4], name), ops.total(x[4:], name)
    if RANK:
        return [second @ WEIGHT, first @ WEIGHT]
    return [first @ WEIGHT, second @ WEIGHT]


def ignored(x: torch.Tensor) -> list[torch.Tensor]:
    """One rank reads no result of two of its calls; cotune takes the first of them, and leaves the second alone."""
    ops, name = torch.ops.mylib, dist.group.WORLD.group_name
    first, second = ops.total(x * 2, name), ops.total(x.to(torch.int8), name)
    last = ops.total(x, name)
    return [last] if RANK else [first, second, last]


def strided(x: torch.Tensor) -> list[torch.Tensor]:
    """The result has the strides of the operand, and readers depend on them."""
    result = torch.ops.mylib.total(x.t(), dist.group.WORLD.group_name)
    return [torch.as_strided(result, (result.numel(),), (1,)), result + 1]


def halves(x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.ops.mylib.half(x, dist.group.WORLD.group_name) + 1]


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch._dynamo.graph_break()
    dist.all_reduce(y, async_op=True).wait()
    torch._dynamo.graph_break()
    return y + 1


def made(step: str) -> None:
    (number,) = re.findall(r"this process has made (.*)", cotune.torch.explain())
    found["made"].append([step, number])


def run_both(what: str, function, x: torch.Tensor, is_dynamic: bool = False) -> None:
    """Compares a compiled function with its eager self, and notes how often operators run in the compiled one."""
    expected = function(x.clone())
    calls.clear()
    if is_dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    got = torch.compile(function)(x)
    found["calls"][what] = dict(calls)
    for place, (have, want) in enumerate(zip(got, expected, strict=True)):
        compare(f"{what}, result {place}", have, want)


def unseen() -> None:
    """Cotune does not see this: collectives outside of compiled graphs, and operators before they are declared."""
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    found["made"], found["calls"] = [], {}
    made("nothing")
    eager, waited = given(2), given(3)
    dist.all_reduce(eager)
    dist.all_reduce(waited, async_op=True).wait()
    made("eager, async_op")
    torch.compile(broken, backend="eager")(given(2))
    made("graph break")
    model = DistributedDataParallel(torch.nn.Linear(COLUMNS, 2))
    made("DDP")
    model(given(2)).sum().backward()
    made("DDP, backward")
    model = fully_shard(torch.nn.Linear(COLUMNS, 2))
    model(given(2)).sum().backward()
    made("FSDP2")
    torch.compile(summed)(given(8))
    # The ranks do not meet at a broadcast, so that PyTorch runs it, for cotune.
    torch.compile(lambda x: funcol.broadcast(x, 0, dist.group.WORLD) + 1)(given(8))
    made("programs")
    run_both("not declared", alone, given(8))
    made("not declared")
    found["before"] = cotune.torch.explain()
    declare = cotune.torch.declare_collective
    declare("mylib::total", kind="all_reduce", tensor="x", group="group_name")
    declare("mylib::gather", kind="all_gather", tensor="x", group="ranks")
    declare("mylib::share", kind="reduce_scatter", tensor="x", group="process_group", reduction="how")
    declare("mylib::half", kind="reduce_scatter", tensor="x", group="group")
    declare("mylib::swap", kind="all_to_all", tensor="x", group="group")
    # Inductor's cache has the graph as it was without declarations.
    torch.compiler.reset()
    run_both("declared", alone, given(8))
    run_both("chain", chain, given(8))
    run_both("dynamic", chain, given(6, seed=1), is_dynamic=True)
    run_both("left alone", left_alone, given(8, seed=2))
    run_both("crossed", crossed, given(8))
    run_both("ignored", ignored, given(8))
    run_both("strided", strided, given(8))
    run_both("halves", halves, given(6), is_dynamic=True)
    found["data"] = cotune.torch.explain_data()


CASES = {each.__name__: each for each in (other_rows, waits, arguments, own_tensors, explains, unseen)}


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
