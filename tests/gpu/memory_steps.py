"""Steps about memory: of calls that were captured in graphs, of groups that some ranks have left, and of calls that failed."""

import re
import time

from fault_steps import DEADLINE_S, DEFAULT, ENDING_S, Forced, by_choice, run_with_choice
from forced_steps import Databases, Kind, forced, kinds
from step_types import Outcome, Step, Tree, judge

# The last rank is looked at for so long after it has gone on and left.
WATCHED_S = 2.0
LARGE = 1_000_000


def calls_step(tree: Tree, name: str, ranks: int, backend: str, arguments: list[str], choice: Forced = DEFAULT) -> Step:
    """A case of `calls` that compares something on every rank."""
    command = [tree.program("calls"), *arguments, "--memory", tree.memory, "--plugins", tree.plugins, "--backends", backend]

    def run(step: Step) -> Outcome:
        # Ranks of some cases compare a different number of things.
        def judged(ends) -> str:
            return next(filter(None, (judge([end], ()) for end in ends)), "")

        return run_with_choice(tree, step, command, choice, lambda processes: processes.wait(processes.began + step.limit_s), judged)

    return Step(f"{name}, {by_choice(choice, backend)}", "memory", ranks, tree.patience_s(90), run)


def judge_canary(ends, victim: int) -> str:
    """Why the ranks have not behaved, or ''. Every rank has had an error and has watched its buffers since, in which
    nobody has written."""
    if re.search(r"^gone ", ends[victim].output, re.MULTILINE) is None:
        return f"rank {victim} did not get as far as to stop"
    for rank, end in enumerate(ends):
        for event, why in (("knew", "got no error"), ("left", "did not leave its group")):
            if re.search(rf"^{event} at_ns=", end.output, re.MULTILINE) is None:
                return f"rank {rank} {why}"
    return next(filter(None, (judge([end], ()) for end in ends)), "")


def canary_step(tree: Tree, victim: int, ranks: int, backend: str, count: int, is_registered: bool,
                choice: Forced = DEFAULT) -> Step:
    """The victim is stopped in the middle of its launches. The others have an error, fill their buffers with a pattern, leave
    the group and watch the buffers; then the victim goes on."""
    more = [] if choice.name else ["--count", str(count), "--symmetric", str(int(is_registered))]
    command = [tree.program("calls"), "canary", *more, "--victim", str(victim), "--deadline-ms", str(int(DEADLINE_S * 1000)),
               "--memory", tree.memory, "--plugins", tree.plugins, "--backends", backend]

    def run(step: Step) -> Outcome:
        until = tree.work / f"until-{time.monotonic_ns()}"
        others = [rank for rank in range(ranks) if rank != victim]

        def wait_for_left(processes, who: list[int], until_s: float) -> None:
            # Ends too when a rank has ended, which a rank does not that has left and watches.
            while time.monotonic() < until_s:
                if all("left at_ns" in processes.output(rank) for rank in who):
                    return
                if any(processes.processes[rank].poll() is not None for rank in who):
                    return
                time.sleep(0.02)

        def wait(processes) -> None:
            wait_for_left(processes, others, processes.began + step.limit_s)
            processes.resume(victim)
            wait_for_left(processes, [victim], time.monotonic() + 2 * DEADLINE_S + ENDING_S)
            time.sleep(WATCHED_S)
            until.touch()
            processes.wait(time.monotonic() + ENDING_S)

        return run_with_choice(tree, step, [*command, "--until", str(until)], choice, wait,
                               lambda ends: judge_canary(ends, victim))

    where = f", {count} elements" if not choice.name else ""
    where += ", registered memory" if is_registered else ""
    return Step(f"canary: nobody writes after a failed call, rank {victim} was stopped{where}, {by_choice(choice, backend)}",
                "memory", ranks, tree.patience_s(120), run)


def memory_steps(tree: Tree, ranks: int) -> list[Step]:
    databases = Databases(tree, ranks)
    of_kind: dict[str, Kind] = {kind.name: kind for kind in kinds(tree, ranks)}
    steps = []
    for backend in tree.backends:
        for count in (10_000,) if tree.quick else (10_000, LARGE):
            steps.append(canary_step(tree, ranks - 1, ranks, backend, count, False))
    if tree.memory == "host":
        return steps
    steps.append(calls_step(tree, "left: calls on a group that others have left", ranks, "cuda",
                            ["left", "--deadline-ms", str(int(DEADLINE_S * 1000))]))
    returns = ["--returns", "1"]
    for backend in tree.backends:
        more = returns if backend == "cuda" else []
        steps.append(calls_step(tree, "graphs: freed memory of a captured call", ranks, backend,
                                ["graph_memory", "--count", str(LARGE), *more]))
        steps.append(canary_step(tree, ranks - 1, ranks, backend, LARGE, True))
    steps.append(calls_step(tree, "graphs: replays of a group that has gone", ranks, "cuda", ["graph_outlives"]))
    steps.append(calls_step(tree, "graphs: replays of a group that has gone, large calls", ranks, "cuda",
                            ["graph_outlives", "--count", str(LARGE)]))
    for name in ("zero_copy", "copy_engine"):
        kind = of_kind[name]
        steps.append(calls_step(tree, "graphs: freed memory of a captured call", ranks, kind.backend,
                                ["graph_memory", *returns], forced(databases, kind)))
    for kind in of_kind.values():
        steps.append(canary_step(tree, ranks - 1, ranks, kind.backend, kind.count, kind.is_symmetric, forced(databases, kind)))
    return steps
