"""Steps that make each kind of choice run, by a database of one row, when a rank is killed or comes late."""

import dataclasses
import pathlib
import re
import threading

from fault_steps import Forced, known_death_step, late_step
from rank_processes import transcript
from step_types import Outcome, Step, Tree, judge

# An upper limit for writing all databases, or for a group that compares tables.
LIMIT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Kind:
    """A way for data to travel, and calls of bf16 that go that way."""

    name: str
    parts: str  # of the choice's id, separated by '+'; the first one begins with the backend
    collective: str = "all_reduce"
    count: int = 10_000
    listed_count: int = 0  # a count at which backends list the choice; 0: count
    is_symmetric: bool = False
    is_capturable: bool = True  # else a graph would hold the default

    @property
    def backend(self) -> str:
        return self.parts.partition("/")[0]


def kinds(tree: Tree, ranks: int) -> list[Kind]:
    if tree.memory == "host":
        return [Kind("ring", "host/ring?")]
    found = [
        Kind("lamport", "cuda/one_shot?+transport=lamport"),
        Kind("escape", "cuda/direct?+transport=escape", "all_gather"),
        Kind("flagged", "cuda/two_shot?+transport=flagged", count=700_000),
        Kind("zero_copy", "cuda/two_shot?+transport=zero_copy", count=700_000, is_symmetric=True),
        # Rings are for 8 MiB and more.
        Kind("queued", "cuda/ring?+transport=queued", "all_gather", 4_500_000 // ranks),
        Kind("copy_engine", "cuda/direct?transport=copy_engine", "all_gather", 700_000, is_symmetric=True),
        # Its copies run beside waits.
        Kind("copy_engine_broadcast", "cuda/direct?transport=copy_engine", "broadcast", 700_000, is_symmetric=True),
        # Listed from 32 MiB on, and smaller calls run the same copies.
        Kind("copy_engine_segments", "cuda/two_shot?transport=copy_engine", count=700_000, listed_count=17_000_000,
             is_symmetric=True, is_capturable=False),
    ]
    if "nccl" in tree.backends:
        found.append(Kind("nccl_ring", "nccl/ring?"))
    return found


class Databases:
    """One for each kind, which are written when the first step asks for one: with the backend alone that the steps of the kind
    use, since a database that was tuned with others does not hold for them."""

    def __init__(self, tree: Tree, ranks: int):
        self.tree = tree
        self.ranks = ranks
        self.folder = tree.work / f"forced-{ranks}"
        self.choices: dict[str, str] | None = None
        self.said = ""  # by the ranks that wrote them
        self.lock = threading.Lock()  # steps that run at the same time ask from several threads

    def path(self, name: str) -> pathlib.Path:
        return self.folder / f"{name}.tdb"

    def choice(self, name: str) -> str:
        with self.lock:
            if self.choices is None:
                self.choices = self._write()
        if name not in self.choices:
            raise RuntimeError(f"no choice is forced for {name}\n{self.said}")
        return self.choices[name]

    def _write(self) -> dict[str, str]:
        self.folder.mkdir(exist_ok=True)
        choices: dict[str, str] = {}
        wanted = kinds(self.tree, self.ranks) + [second_kind(self.tree)]
        for backend in sorted({kind.backend for kind in wanted}):
            choices |= self._written([kind for kind in wanted if kind.backend == backend], backend)
        return choices

    def _written(self, wanted: list[Kind], backend: str) -> dict[str, str]:
        """The choices by kind; none when a rank failed."""
        requests = ";".join(
            ":".join((k.name, k.collective, str(k.listed_count or k.count), "symmetric" if k.is_symmetric else "plain",
                      k.parts)) for k in wanted)
        command = [self.tree.program("rank"), "force", "--requests", requests, "--folder", str(self.folder), "--memory",
                   self.tree.memory, "--plugins", self.tree.plugins, "--backends", backend]
        with self.tree.processes(command, self.ranks) as processes:
            processes.wait(processes.began + LIMIT_S)
            ends = processes.ends()
        self.said += transcript(ends)
        if any(end.exit_code != 0 for end in ends):
            return {}
        return dict(re.findall(r"^forces (\S+) (\S+)$", ends[0].output, re.MULTILINE))


def forced(databases: Databases, kind: Kind) -> Forced:
    def arguments() -> list[str]:
        return ["--choice", databases.choice(kind.name), "--collective", kind.collective, "--count", str(kind.count),
                "--symmetric", str(int(kind.is_symmetric))]

    return Forced(kind.name, arguments, {"COTUNE_DATABASE": str(databases.path(kind.name))})


def second_kind(tree: Tree) -> Kind:
    """Of another choice for the calls of the first kind."""
    return Kind("second", "host/one_shot?" if tree.memory == "host" else "cuda/two_shot?+transport=lamport")


def tables_step(tree: Tree, databases: Databases, ranks: int, backend: str) -> Step:
    """There is no step in which ranks make calls by different choices: through cotune.h they cannot (tables_case.cc).
    They load different tables, and all run by that of rank 0."""
    first = kinds(tree, ranks)[0]

    def run(step: Step) -> Outcome:
        of_first = forced(databases, first)
        command = [tree.program("calls"), "tables", *of_first.arguments(), "--other-choice", databases.choice("second"),
                   "--own", str(databases.path(first.name)), "--other", str(databases.path("second")),
                   "--memory", tree.memory, "--plugins", tree.plugins, "--backends", backend]
        with tree.processes(command, step.ranks, of_first.variables) as processes:
            processes.wait(processes.began + step.limit_s)
            ends = processes.ends()
        why = judge(ends, ()) or of_first.judge(ends)
        return Outcome(not why, f"{why}\n{transcript(ends)}" if why else "")

    return Step(f"mismatch: ranks load different tables and run by that of rank 0, {backend}", "faults", ranks,
                tree.patience_s(LIMIT_S), run)


def forced_steps(tree: Tree, ranks: int) -> list[Step]:
    databases = Databases(tree, ranks)
    steps = []
    for kind in kinds(tree, ranks):
        choice = forced(databases, kind)
        if tree.memory == "cuda":
            steps.append(known_death_step(tree, 50, ranks, kind.backend, kind.is_capturable, choice))
        if kind.backend != "nccl":
            steps.append(late_step(tree, 1.5, ranks - 1, ranks, kind.backend, False, choice=choice))
    steps.append(tables_step(tree, databases, ranks, kinds(tree, ranks)[0].backend))
    return steps
