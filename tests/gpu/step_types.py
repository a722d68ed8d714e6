"""A step of tests/gpu/run: where it runs, how it ended, and the form that most have, a test program on every rank."""

import dataclasses
import pathlib
import re
from collections.abc import Callable

from rank_processes import RankEnd, RankProcesses, transcript

REDUCING = ("all_reduce", "reduce_scatter")


@dataclasses.dataclass(frozen=True)
class Tree:
    """Where things are, and what the tests run on."""

    root: pathlib.Path  # of the tree
    work: pathlib.Path  # for files of this run
    memory: str  # "cuda" or "host"
    quick: bool = False
    shared_gpus: int = 0  # that several ranks use in turns; 0: every rank has one of its own

    @property
    def cotune(self) -> str:
        return str(self.root / "bin" / "cotune")

    @property
    def plugins(self) -> str:
        return str(self.root / "lib" / "cotune" / "plugins")

    @property
    def backends(self) -> tuple[str, ...]:
        if self.memory == "host":
            return ("host",)
        # NCCL wants a GPU for each rank.
        return ("cuda",) if self.shared_gpus else ("nccl", "cuda")

    def processes(self, command: list[str], ranks: int, variables: dict[str, str] | None = None) -> RankProcesses:
        return RankProcesses(command, ranks, self.work, self.shared_gpus, variables)

    def patience_s(self, limit_s: float) -> float:
        """Of a step: ranks that share a GPU wait for their turns."""
        return limit_s * (3 if self.shared_gpus else 1)

    def program(self, name: str) -> str:
        return str(self.root / "tests" / "gpu" / name)


@dataclasses.dataclass
class Outcome:
    ok: bool
    text: str  # why not, then the last of the output


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    part: str
    ranks: int
    limit_s: float
    run: Callable[["Step"], Outcome]


# The ranks compare calls that run by NCCL, too.
CHECK_CALLS = {"COTUNE_CHECK_CALLS": "1"}

SUMMARY = re.compile(r"^summary rank=(\d+) calls=(\d+) wrong=(\d+) choices(.*)$", re.MULTILINE)


def judge(ends, backends: tuple[str, ...], may_rest: bool = False) -> str:
    """Why the ranks of a case have not passed, or ''. Each has to end well, to have compared something, and to have run
    choices of every one of these backends."""
    calls = set()
    for rank, end in enumerate(ends):
        if end.exit_code is None:
            return f"rank {rank} had not ended at the limit"
        found = SUMMARY.findall(end.output)
        if len(found) != 1:
            return f"rank {rank} ended with {end.exit_code} and no summary"
        if end.exit_code != 0 or int(found[0][2]) != 0:
            return f"rank {rank}: {found[0][2]} of {found[0][1]} calls are wrong (exit code {end.exit_code})"
        if int(found[0][1]) == 0 and may_rest:
            continue
        calls.add(int(found[0][1]))
        missing = [name for name in backends if f" {name}=" not in found[0][3]]
        if missing:
            return f"rank {rank} ran no choice of {', '.join(missing)}"
    if len(calls) != 1 or 0 in calls:
        return f"ranks have compared {sorted(calls)} calls"
    return ""


def rank_step(tree: Tree, name: str, part: str, ranks: int, limit_s: float, program: str, arguments: list[str],
              backends: tuple[str, ...] | None = None, may_rest: bool = False,
              variables: dict[str, str] | None = None, judge_more: Callable[[list[RankEnd]], str] | None = None) -> Step:
    """backends: those that take part, in order of priority; all of the memory by default. `rank` runs choices of each of
    them; `calls` runs at least the default of the first one. judge_more: why the ranks have not
    done what this step is about, or ''; asked when nothing else is wrong."""
    used = tree.backends if backends is None else backends
    command = [tree.program(program), *arguments, "--memory", tree.memory, "--plugins", tree.plugins,
               "--backends", ",".join(used)]

    def run(step: Step) -> Outcome:
        with tree.processes(command, step.ranks, variables) as processes:
            processes.wait(processes.began + step.limit_s)
            ends = processes.ends()
        why = judge(ends, used if program == "rank" else used[:1], may_rest) or (judge_more(ends) if judge_more else "")
        return Outcome(not why, f"{why}\n{transcript(ends)}" if why else SUMMARY.search(ends[0].output)[0])

    return Step(name, part, ranks, tree.patience_s(limit_s), run)
