"""A rank under torchrun whose graphs differ from those of the other ranks, as they may in plain PyTorch.

usage: pair_ranks.py FIRST

Every rank runs one all_reduce of the same sizes in each run of a case, and what else it does is its own. FIRST is the
number of the first case of `cases` that runs. Prints JSON objects: {"rank", "case", "error"} for each case with other
values than PyTorch's, {"rank", "case", "hangs": where the rank is} for a case that does not end, and one
{"rank", "done": true, "explains", "ops"} at the end: the text of cotune.torch.explain(), and the operators of the last
run of a graph that is equal on all ranks.
STATE is a folder for files of this start.
"""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

# The graph of a rank: how it differs from "as_is".
VARIANTS = (
    "as_is", "unused", "extra_reader", "work_before_wait", "other_constant", "recompiled", "from_cache",
)  # fmt: skip
MODES = ("static", "dynamic")
PROGRAMS = ("mixed", "logged_loss", "compiled_anew", "compiled_anew_from_cache")
RUNS = 3
MIXED_RUNS = 40
# A case that waits so long while no rank compiles hangs.
LIMIT_S = 10.0
STACK_LINES = 12
ROWS, WIDTH = 4, 5040
# Each case has columns of its own, so that no rank knows its graphs from an earlier one.
COLUMNS = [each for each in range(WIDTH, 1, -1) if WIDTH % each == 0]
SIDE = 16
LOGGED_EVERY = 3


def cases(ranks: int) -> list[tuple[str, tuple[str, ...]]]:
    """(mode, the variant of each rank), and then ("program", its name).

    Two ranks have all pairs. Three have each pair of different variants on two of them: the places 0, 1 and 3 on a
    circle of seven have all distances.
    """
    if ranks == 2:
        chosen = list(itertools.product(VARIANTS, repeat=2))
    else:
        places = (0, 1, 3)
        chosen = [tuple(VARIANTS[(first + places[rank % 3]) % len(VARIANTS)] for rank in range(ranks)) for first in range(7)]
    listed = [(mode, each) for mode in MODES for each in chosen]
    return listed + [("program", (name,)) for name in PROGRAMS]


def columns_of(case: int, ranks: int) -> int:
    """The columns of a case of variants; a pair has the same in both modes, whose reductions differ."""
    return COLUMNS[case % ((len(cases(ranks)) - len(PROGRAMS)) // len(MODES))]


def case_text(case: int, ranks: int) -> str:
    mode, variants = cases(ranks)[case]
    return f"case {case}: {mode}, {' | '.join(variants)}"


# Functions are made from text, so that each is compiled on its own and its columns are part of it.

_ALL_REDUCE = 'y = funcol.all_reduce(x.view(-1, {columns}), "{reduction}", dist.group.WORLD)'
_BODIES = {
    "as_is": [_ALL_REDUCE, "return (torch.relu(y + 1),)"],
    "unused": [_ALL_REDUCE, "return (torch.mm(w, w),)"],
    "extra_reader": [_ALL_REDUCE, "return torch.relu(y + 1), y"],
    "work_before_wait": [
        'y = c10d.all_reduce(x.view(-1, {columns}), "{reduction}", NAME)',
        "other = torch.mm(w, w)",
        "y = c10d.wait_tensor(y)",
        "return torch.relu(y + 1), other",
    ],
    "other_constant": [_ALL_REDUCE, "return (torch.relu(y + 2),)"],
    # It is called with fewer rows before, on this rank only.
    "recompiled": ["if x.shape[0] < {rows}: return (torch.mm(w, w),)", _ALL_REDUCE, "return (torch.relu(y + 1),)"],
}
_BODIES["from_cache"] = _BODIES["as_is"]
REDUCTION = {"static": "sum", "dynamic": "max"}
_numbers = itertools.count()


def expected(variant: str, reduced: Any, w: Any) -> list[Any]:
    import torch

    constant = 2 if variant == "other_constant" else 1
    first = torch.relu(reduced + constant)
    return {
        "unused": [w @ w],
        "extra_reader": [first, reduced],
        "work_before_wait": [first, w @ w],
    }.get(variant, [first])


def call_aten() -> None:
    """Lets Inductor call aten for pointwise operators and reductions: each kernel of its own takes seconds to compile."""
    import torch
    from torch._inductor import config, graph

    decides = graph.should_fallback_by_default
    kinds = {torch.Tag.pointwise, torch.Tag.reduction}
    graph.should_fallback_by_default = lambda node: not kinds.isdisjoint(getattr(node.target, "tags", ())) and decides(node)
    config.fallback_by_default = True


class Watchdog:
    """Ends the process when a case hangs: no rank has compiled for LIMIT_S since it began."""

    def __init__(self, rank: int, folder: pathlib.Path):
        self._rank = rank
        self._folder = folder
        self._case = -1
        self._compiles = 0
        self._done = threading.Condition()
        self._begun = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, case: int) -> None:
        with self._done:
            self._case, self._begun = case, self._begun + 1
            self._done.notify()

    def end(self) -> None:
        self.begin(-1)

    def compiles(self, change: int) -> None:
        with self._done:
            self._compiles += change
            mine = self._folder / f"compiles.{self._rank}"
            mine.touch() if self._compiles else mine.unlink(missing_ok=True)

    def _watch(self) -> None:
        turn_s = 0.25
        seen, waited_s = 0, 0.0
        while True:
            with self._done:
                self._done.wait(turn_s)
                if self._begun != seen or self._case < 0:
                    seen, waited_s = self._begun, 0.0
                    continue
            if not any(self._folder.glob("compiles.*")):
                waited_s += turn_s
            if waited_s >= LIMIT_S:
                emit({"rank": self._rank, "case": self._case, "hangs": stack_of_main_thread()})
                os._exit(3)


def stack_of_main_thread() -> str:
    frame = sys._current_frames()[threading.main_thread().ident]
    return "".join(traceback.format_stack(frame)[-STACK_LINES:])


def emit(record: dict[str, Any]) -> None:
    # One write, which the lines of other ranks do not part.
    os.write(1, (json.dumps(record) + "\n").encode())


class Rank:
    """The phases of one rank: all cases without cotune, and then with it in another process group."""

    def __init__(self, first: int):
        import torch.distributed as dist

        self.store, self.rank, self.ranks = next(dist.rendezvous("env://"))
        self.first = first
        self.cases = cases(self.ranks)
        self.watchdog = Watchdog(self.rank, pathlib.Path(os.environ["STATE"]))
        self.meetings = 0
        self.watch_compiles()

    def watch_compiles(self) -> None:
        from torch._dynamo import callback

        callback.on_compile_start(lambda _: self.watchdog.compiles(1))
        callback.on_compile_end(lambda _: self.watchdog.compiles(-1))

    def count_meetings(self) -> None:
        from cotune.torch.agreement import Agreement

        decide = Agreement._decide

        def counted(agreement: Agreement, *arguments: Any) -> None:
            self.meetings += 1
            decide(agreement, *arguments)

        Agreement._decide = counted

    def enter(self, phase: str) -> None:
        """Begins a process group, in place of the one before."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
        store = dist.PrefixStore(phase, self.store)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.ranks)

    def use_cache(self, used: bool) -> None:
        """Keeps graphs in Inductor's cache and takes them out of there, or does neither."""
        from torch._functorch import config as functorch
        from torch._inductor import config as inductor

        inductor.fx_graph_cache = functorch.enable_autograd_cache = used

    def compiled(self, mode: str, variant: str, columns: int) -> Callable[..., Any]:
        import torch
        import torch.distributed as dist
        import torch.distributed._functional_collectives as funcol

        names = {
            "torch": torch, "dist": dist, "funcol": funcol, "c10d": torch.ops._c10d_functional,
            "NAME": dist.group.WORLD.group_name,
        }  # fmt: skip
        lines = [each.format(columns=columns, reduction=REDUCTION[mode], rows=ROWS) for each in _BODIES[variant]]
        text = "def function(x, w):\n" + "".join(f"    {line}\n" for line in lines)
        exec(compile(text, f"<{variant} {next(_numbers)}>", "exec"), names)
        function = torch.compile(names["function"], fullgraph=True, dynamic=True if mode == "dynamic" else None)
        if variant == "recompiled":
            function(*self.inputs(0, ROWS - 2)[:2])
        return function

    def inputs(self, run: int, rows: int = ROWS) -> tuple[Any, Any, list[Any]]:
        """x and w of this rank, and x of all ranks: small integers, whose sums are exact."""
        import torch

        def given(rank: int, *shape: int) -> torch.Tensor:
            generator = torch.Generator().manual_seed(100 * run + rank)
            return torch.randint(-8, 8, shape, generator=generator).float()

        xs = [given(rank, rows, WIDTH) for rank in range(self.ranks)]
        x, w = xs[self.rank].clone(), given(50 + self.rank, SIDE, SIDE)
        torch._dynamo.mark_static(x, 1)
        return x, w, xs

    def run(self, function: Callable[..., Any], mode: str, variant: str, columns: int, run: int) -> str:
        """Runs the function once. Returns the difference from the values that PyTorch gives, or ""."""
        import torch

        x, w, xs = self.inputs(run)
        reduced = torch.stack(xs)
        reduced = reduced.sum(0) if REDUCTION[mode] == "sum" else reduced.amax(0)
        wanted = expected(variant, reduced.view(-1, columns), w)
        got = function(x, w)
        for index, (have, want) in enumerate(zip(got, wanted, strict=True)):
            if have.dtype != want.dtype or not torch.equal(have, want):
                return f"run {run}, result {index} of {variant}: {have} and not {want}; "
        return ""

    def report(self, case: int, error: str) -> None:
        if error:
            emit({"rank": self.rank, "case": case, "error": error})

    # Phases.

    def of_variants(self) -> Iterator[tuple[int, str, str]]:
        """Number, mode and own variant of each case of variants."""
        for case, (mode, variants) in enumerate(self.cases):
            if case >= self.first and mode in MODES:
                yield case, mode, variants[self.rank]

    def run_without(self) -> None:
        """All cases by PyTorch alone: they end, and so they must with cotune."""
        self.enter("without")
        self.use_cache(False)
        known = {
            (mode, variant): self.compiled(mode, variant, WIDTH)
            for mode in MODES
            for variant in VARIANTS
        }
        for case, mode, variant in self.of_variants():
            self.watchdog.begin(case)
            for run in range(RUNS):
                error = self.run(known[mode, variant], mode, variant, WIDTH, run)
                self.report(case, error and f"without cotune: {error}")
            self.watchdog.end()

    def prime(self) -> None:
        """Puts the graphs into Inductor's cache that a rank takes out of there later."""
        self.enter("primes")
        self.use_cache(True)
        for case, mode, _ in self.of_variants():
            if "from_cache" in self.cases[case][1]:
                self.watchdog.begin(case)
                columns = columns_of(case, self.ranks)
                self.report(case, self.run(self.compiled(mode, "as_is", columns), mode, "as_is", columns, 0))
                self.watchdog.end()

    def run_variants(self) -> None:
        """Runs each case in a process group of its own: the ranks of a group meet once only for such collectives."""
        from torch._dynamo.utils import counters

        for case, mode, variant in self.of_variants():
            self.watchdog.begin(case)
            self.enter(f"pair.{case}")
            self.meetings = 0
            is_cached = variant == "from_cache"
            self.use_cache(is_cached)
            columns, hits = columns_of(case, self.ranks), counters["inductor"]["fxgraph_cache_hit"]
            function = self.compiled(mode, variant, columns)
            hits = counters["inductor"]["fxgraph_cache_hit"]
            for run in range(RUNS):
                self.report(case, self.run(function, mode, variant, columns, run))
            if is_cached != (counters["inductor"]["fxgraph_cache_hit"] > hits):
                self.report(case, f"{variant}: its graph was {'not ' if is_cached else ''}in Inductor's cache; ")
            self.report(case, "" if self.meetings else "the ranks have not met; ")
            self.watchdog.end()

    def run_programs(self) -> None:
        self.use_cache(False)
        for case, (mode, variants) in enumerate(self.cases):
            if case >= self.first and mode == "program":
                self.watchdog.begin(case)
                self.report(case, getattr(self, variants[0])())
                self.watchdog.end()

    # Programs: no graph of them was met before, and the ranks choose what they run next on their own.

    def mixed(self) -> str:
        """Every rank runs its variants in an order of its own."""
        columns = COLUMNS[-1]
        known: dict[str, Any] = {}
        choices = random.Random(self.rank)
        error = ""
        for run in range(MIXED_RUNS):
            variant = choices.choice(VARIANTS)
            if variant not in known:
                known[variant] = self.compiled("static", variant, columns)
            error += self.run(known[variant], "static", variant, columns, run)
        return error

    def logged_loss(self) -> str:
        """A training whose loss is logged on rank 0 in every third step, against the same in plain PyTorch."""
        import torch
        import torch.distributed as dist
        import torch.distributed._functional_collectives as funcol

        def gradient(weight, x, target, logs: bool):
            error = x @ weight - target
            loss = funcol.all_reduce((error * error).mean(-1, keepdim=True), "sum", dist.group.WORLD)
            step = funcol.all_reduce(x.t() @ error, "sum", dist.group.WORLD) * 0.0625
            return step, (loss * 0.5 if logs else None)

        compiled = torch.compile(gradient, fullgraph=True, dynamic=False)
        generators = [torch.Generator().manual_seed(rank) for rank in range(self.ranks)]
        weight, right = torch.zeros(SIDE, SIDE), torch.zeros(SIDE, SIDE)
        for step in range(3 * LOGGED_EVERY):
            batches = [
                [torch.randint(-2, 3, (SIDE, SIDE), generator=each).float() for _ in range(2)] for each in generators
            ]
            logs = self.rank == 0 and step % LOGGED_EVERY == 0
            change, loss = compiled(weight, *batches[self.rank], logs)
            errors = [x @ right - target for x, target in batches]
            wanted_loss = sum((each * each).mean(-1, keepdim=True) for each in errors) * 0.5
            wanted = sum(x.t() @ each for (x, _), each in zip(batches, errors, strict=True)) * 0.0625
            # Powers of two keep the weights exact for a while.
            if not torch.allclose(change, wanted, rtol=1e-5, atol=1e-5) or (loss is None) == logs:
                return f"step {step}: {change} and not {wanted}"
            if logs and not torch.allclose(loss, wanted_loss, rtol=1e-5, atol=1e-5):
                return f"step {step}: the loss is {loss} and not {wanted_loss}"
            weight, right = weight - change * 2.0**-6, right - wanted * 2.0**-6
        return ""

    def compiled_anew(self, columns: int = COLUMNS[-2]) -> str:
        """The last rank forgets its compiled functions in the middle."""
        import torch

        error = ""
        function = self.compiled("static", "as_is", columns)
        for run in range(2 * RUNS):
            if run == RUNS and self.rank == self.ranks - 1:
                torch._dynamo.reset()
                self.watch_compiles()
            error += self.run(function, "static", "as_is", columns, run)
        return error

    def compiled_anew_from_cache(self) -> str:
        """The same where its graph comes out of Inductor's cache."""
        self.use_cache(True)
        return self.compiled_anew(COLUMNS[-4])

    def end(self) -> None:
        """A graph that is equal on all ranks: what PyTorch has run for it, and what cotune explains."""
        import torch

        import cotune.torch

        columns = COLUMNS[-3]
        self.watchdog.begin(len(self.cases))
        function = self.compiled("static", "as_is", columns)
        for run in range(RUNS):
            self.report(len(self.cases), self.run(function, "static", "as_is", columns, run))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            self.report(len(self.cases), self.run(function, "static", "as_is", columns, RUNS))
        self.watchdog.end()
        ops = sorted({each.key for each in profile.key_averages()})
        emit({"rank": self.rank, "done": True, "explains": cotune.torch.explain(), "ops": ops})


def main() -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    call_aten()
    this = Rank(int(sys.argv[1]))
    this.run_without()

    import cotune.torch

    cotune.torch.enable(tables=False, database=None, budget_s=0.05)
    this.prime()
    this.count_meetings()
    this.run_variants()
    this.run_programs()
    this.end()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
