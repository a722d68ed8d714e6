"""A rank under torchrun whose programs race against PyTorch's form of them.

usage: plain_ranks.py CASE

Prints one JSON object on every rank: {"rank", "error": what is wrong, or "", "explains": the text of cotune.torch.explain(),
"verdicts": those of all programs, "graphs": those of whole graphs, "programs": how many each compiled graph has, "calls": how
often the operator has run a program in Python after the first call, "forms": the programs and PyTorch's collectives of each
graph that was compiled for a race, where a case counts them}.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import cotune.torch
from cotune.torch import agreement, given_back, plain_form, plain_race, race_memory, whole_graph

RANK = int(os.environ["RANK"])
# One call of the slow contender runs the operator so often.
SLOW_CALLS = 600
# One call of PyTorch's collectives runs them so often where cotune is to win, whatever else the machine does.
SLOW_PLAIN_CALLS = 40


def epilogue(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(funcol.all_reduce(x, "sum", dist.group.WORLD) + bias)


def two(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The first all_reduce is that of `epilogue`."""
    return funcol.all_reduce(epilogue(x, bias)[:16].contiguous(), "sum", dist.group.WORLD) * 2


def cut(x: torch.Tensor, wide: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The operations after the all_reduce become part of its program, and Inductor would not store their results."""
    y = torch.relu(funcol.all_reduce(x, "sum", dist.group.WORLD) + wide)
    return y.sum(0), (y * y).sum(0)


def partly(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The first all_reduce is that of `epilogue`; a later operation reads both."""
    first = epilogue(x, bias)
    return first[:8].contiguous() + torch.relu(funcol.all_reduce((first * 2)[:8].contiguous(), "sum", dist.group.WORLD))


def average(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(funcol.all_reduce(x * 4, "avg", dist.group.WORLD) + bias)


def embedded(index: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Reads at indices that it computes from its operands."""
    return torch.nn.functional.embedding(index - 1, funcol.all_reduce(table, "sum", dist.group.WORLD))


class Counter(torch.nn.Module):
    """Writes to a buffer in each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return epilogue(x, bias) * self.calls[0]


def integers(*sizes: int, seed: int) -> torch.Tensor:
    return torch.randint(-8, 8, sizes, generator=torch.Generator().manual_seed(seed)).float()


def inputs(rows: int, columns: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    return integers(rows, columns, seed=RANK), integers(columns, seed=9)


def slow(at: Callable[[int], bool] = lambda rows: True) -> None:
    """Lets the operator take long in the race where `at` holds for the rows, as it does nowhere else."""
    real = plain_race.PlainRace._by_cotune

    def by_cotune(race, contest):
        call = real(race, contest)
        calls = SLOW_CALLS if at(contest.rows) else 1
        return lambda: [call() for _ in range(calls)]

    plain_race.PlainRace._by_cotune = by_cotune


def slow_plain(at: Callable[[int], bool] = lambda rows: True) -> None:
    """Lets PyTorch's collectives of a program take long in the race where `at` holds for the rows."""
    real = plain_form.collectives_alone

    def collectives_alone(text, rows, *given):
        run = real(text, rows, *given)
        calls = SLOW_PLAIN_CALLS if at(rows) else 1
        return lambda: [run() for _ in range(calls)]

    plain_form.collectives_alone = collectives_alone


def fails(how: str) -> None:
    """Lets PyTorch's form fail on rank 1 alone."""
    real = plain_form.compiled

    def compiled(text, operands, group_name):
        if how == "compile":
            raise LookupError("no compiler")
        form, calls = real(text, operands, group_name), []

        def run(*given):
            calls.append(1)
            if how == "raises" and len(calls) > 3:
                raise LookupError("no route")
            if how == "waits" and len(calls) == 4:
                # No rank sends, and the others wait for this one.
                dist.recv(torch.ones(1), src=0, group=plain_race.process_groups.resolve_group(group_name), tag=7)
            return form(*given)

        return run

    if RANK == 1:
        plain_form.compiled = compiled


def graphs_of_race() -> list[tuple[str, int]]:
    """The (programs, collectives of PyTorch) of each graph that is compiled for a race from now on."""
    found, real = [], whole_graph.compat.compile_graph

    def compile_graph(module, operands):
        # A collective that follows a program is in a graph within the graph.
        nodes = [node for each in module.modules() if hasattr(each, "graph") for node in each.graph.nodes]
        programs = sum(node.target in whole_graph.compat.functionalizers() for node in nodes)
        left = [node for node in nodes if getattr(node.target, "namespace", "") == "_c10d_functional" and "group_name" in str(node.target._schema)]
        assert all(dist.group.WORLD.group_name not in node.args for node in left), "they run in a process group of their own"
        found.append((programs, len(left)))
        return real(module, operands)

    whole_graph.compat.compile_graph = compile_graph
    return found


def python_calls() -> list[str]:
    """The programs that the operator runs in Python from now on."""
    found, real = [], agreement.Agreement.run

    @functools.wraps(real)
    def run(self, inputs, outputs, program, manifest):
        found.append(program)
        real(self, inputs, outputs, program, manifest)

    agreement.Agreement.run = run
    return found


def check(function: Callable, *given: torch.Tensor, calls: int = 3, **options) -> str:
    """Compares a compiled function with the eager one. Integers are exact."""
    compiled, error = torch.compile(function, **options), ""
    for call in range(calls):
        expected = function(*given)
        if isinstance(function, Counter):
            function.calls -= 1
        got = compiled(*given)
        for each, right in zip(*(value if isinstance(value, tuple) else (value,) for value in (got, expected)), strict=True):
            error += "" if torch.equal(each, right) else f"call {call}: {each} and not {right}; "
    return error


def run_case(case: str) -> str:
    if case not in ("slower", "compile", "raises", "waits", "known", "sizes"):
        slow_plain()
    if case in ("faster", "warm", "ranks", "off", "immediate"):
        return check(epilogue, *inputs(64))
    if case in ("slower", "compile", "raises", "waits"):
        slow()
        if case != "slower":
            fails(case)
        return check(epilogue, *inputs(64))
    if case == "known":
        # The first collective is decided already, and the new one alone is given back.
        real = plain_form.collectives_alone
        slow_plain()
        error = check(epilogue, *inputs(64))
        plain_form.collectives_alone = real
        slow()
        return error + check(two, *inputs(64))
    if case == "partly":
        error = check(epilogue, *inputs(64))
        forms = graphs_of_race()
        error += check(partly, *inputs(64))
        FORMS.extend(forms)
        return error
    if case == "average":
        return check(average, *inputs(64))
    if case == "embedded":
        return check(embedded, torch.arange(1, 9), integers(16, 8, seed=RANK))
    if case == "late":
        # The time is over on rank 1 alone, in the first race.
        real = plain_race.PlainRace._timed

        def timed(race, ways):
            found = real(race, ways)
            if RANK == 1:
                race._end_s = 0.0
            return found

        plain_race.PlainRace._timed = timed
        return check(two, *inputs(64))
    if case == "memory":
        if RANK == 1:
            race_memory.allowed_bytes = lambda device, ranks: 64
        return check(epilogue, *inputs(64))
    if case == "sizes":
        slow(lambda rows: rows >= 256)
        slow_plain(lambda rows: rows < 256)
        return "".join(check(epilogue, *inputs(rows), calls=2, dynamic=True) for rows in (64, 1000))
    if case == "cut":
        return check(cut, integers(8192, 1, seed=RANK), integers(8192, 1024, seed=9))
    if case == "writes":
        state = torch.get_rng_state()
        model = Counter()
        error = check(model, *inputs(64))
        error += "" if torch.equal(model.calls, torch.full((4,), 3.0)) else f"the buffer is {model.calls}; "
        return error + ("" if torch.equal(state, torch.get_rng_state()) else "random numbers were drawn; ")
    if case == "differs":
        # The program is the same on both ranks.
        function = epilogue if RANK else lambda x, bias: epilogue(x, bias) @ torch.eye(16)
        return check(function, *inputs(64))
    if case == "random":
        return check(lambda x, bias: epilogue(x, bias) + torch.floor(torch.rand(16)), *inputs(64))
    raise SystemExit(f"there is no case {case}")


# See graphs_of_race().
FORMS: list[tuple[int, int]] = []
OPTIONS = {
    "off": {"races_plain": False},
    "immediate": {"enable_collective_multitemplate": False},
    "waits": {"collective_autotune_timeout": 2},
    "sizes": {"rows": [64, 256, 1024], "budget_s": 0},
}


def main() -> None:
    case = sys.argv[1]
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    torch.set_num_threads(1)
    # The slow contenders take their rounds also on a busy machine.
    plain_race.LIMIT_S = 60.0
    cotune.torch.enable(tables=False, **{"races_plain": True, "races_plain_budget_s": 600, **OPTIONS.get(case, {})})
    error = run_case(case)
    calls = python_calls()
    if case == "slower":
        error += check(epilogue, *inputs(64))
    data = cotune.torch.explain_data()
    record = {
        "rank": RANK,
        "error": error,
        "explains": cotune.torch.explain(),
        "verdicts": [verdict for graph in data for program in graph["programs"] for verdict in program["verdicts"]],
        "graphs": [dataclasses.asdict(verdict) for _, verdict in given_back.graph_verdicts()],
        "programs": [len(graph["programs"]) for graph in data],
        "calls": len(calls),
        "forms": FORMS,
    }
    # One write, which the lines of other ranks do not part.
    os.write(1, (json.dumps(record) + "\n").encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
