"""Steps in which a rank is lost, makes another call or comes late, and what its peers have to say of it."""

import dataclasses
import re
import time
from collections.abc import Callable

from rank_processes import transcript
from step_types import CHECK_CALLS, Outcome, Step, Tree, rank_step


@dataclasses.dataclass(frozen=True)
class Forced:
    """A choice that the calls of a step run by, in place of the default choice."""

    name: str
    arguments: Callable[[], list[str]]  # of the program `calls`; called when the step runs
    variables: dict[str, str]  # of its environment

    def judge(self, ends) -> str:
        """Why the choice has not run, or ''. Each rank looks at the table itself; that calls have no row in it is a
        warning of rank 0."""
        for rank, end in enumerate(ends):
            if re.search(r"^forced ", end.output, re.MULTILINE) is None:
                return f"rank {rank} did not get as far as to have a table of one choice"
            if re.search(r"run the default choice|is left out", end.output) is not None:
                return f"rank {rank} did not run by {self.name}"
        return ""


DEFAULT = Forced("", list, {})


def run_with_choice(tree: Tree, step: Step, command: list[str], choice: Forced, wait, judge) -> Outcome:
    """wait: until the ranks have done their part; judge: why they have not behaved, or ''."""
    # Databases are written before the time of the step begins.
    command = [*command, *choice.arguments()]
    with tree.processes(command, step.ranks, choice.variables) as processes:
        wait(processes)
        ends = processes.ends()
    why = judge(ends) or (choice.judge(ends) if choice.name else "")
    return Outcome(not why, f"{why}\n{transcript(ends)}" if why else "")


def by_choice(choice: Forced, backend: str) -> str:
    return f"{backend} by {choice.name}" if choice.name else backend


# ---- Steps in which a rank is lost ----

DEADLINE_S = 3.0
# For a process to end once it knows: contexts and communicators are taken down.
ENDING_S = 20.0


def judge_fault(ends, victim: int, deadline_s: float) -> str:
    """Why the others have not behaved, or ''."""
    gone = re.search(r"^gone at_ns=(\d+)", ends[victim].output, re.MULTILINE)
    if gone is None:
        return f"rank {victim} did not get as far as to be lost"
    for rank, end in enumerate(ends):
        if rank == victim:
            continue
        knew = re.search(r"^knew at_ns=(\d+) (.*)$", end.output, re.MULTILINE)
        if knew is None:
            return f"rank {rank} got no error"
        after_s = (int(knew[1]) - int(gone[1])) / 1e9
        if after_s < 0:
            return f"rank {rank} had an error {-after_s:.1f} s before rank {victim} was lost: {knew[2]}"
        if after_s > 2 * deadline_s:
            return f"rank {rank} knew after {after_s:.1f} s, not within {2 * deadline_s:.0f} s"
        if re.search(rf"\brank {victim}\b", knew[2]) is None:
            return f"rank {rank} does not name rank {victim}: {knew[2]}"
        if end.exit_code != 5:
            return f"rank {rank} ended with {end.exit_code}, not with 5"
    return ""


# The values of --program.
PROGRAMS = {"": "0", "program": "1", "fused program": "2"}


def fault_step(tree: Tree, how: str, victim: int, ranks: int, backend: str, in_graph: bool,
               blocks: bool = False, of_program: str = "") -> Step:
    """of_program: "program", or "fused program", whose operations run inside of the collective.

    blocks: the others wait in cudaStreamSynchronize, and ask for the group's health when it returns.
    """
    where = " in a graph" if in_graph else " while the others block" if blocks else ""
    where += f" in calls of a {of_program}" if of_program else ""
    command = [tree.program("calls"), "fault", "--victim", str(victim), "--how", how, "--at", "200",
               "--graph", str(int(in_graph)), "--blocks", str(int(blocks)), "--program", PROGRAMS[of_program], "--deadline-ms",
               str(int(DEADLINE_S * 1000)), "--memory", tree.memory, "--plugins", tree.plugins, "--backends", backend]

    def run(step: Step) -> Outcome:
        with tree.processes(command, step.ranks) as processes:
            others = (victim,)
            while time.monotonic() < processes.began + step.limit_s:
                if "gone at_ns" in processes.output(victim) or processes.wait(time.monotonic(), but=others):
                    break
                time.sleep(0.02)
            processes.wait(time.monotonic() + 2 * DEADLINE_S + ENDING_S, but=others)
            ends = processes.ends()
        why = judge_fault(ends, victim, DEADLINE_S)
        return Outcome(not why, f"{why}\n{transcript(ends)}" if why else "")

    return Step(f"lost: rank {victim} by {'SIGKILL' if how == 'kill' else 'SIGSTOP'}{where}, {backend}", "faults",
                ranks, tree.patience_s(90), run)


# Survivors hear of a death from the control channel, long before the timeout of their calls.
KNOWN_DEATH_S = 1.0
LONG_TIMEOUT_S = 600.0


def known_death_step(tree: Tree, queue: int, ranks: int, backend: str, in_graph: bool,
                     choice: Forced = DEFAULT) -> Step:
    """A rank is killed while the others sit in cuStreamSynchronize, with calls whose timeout is far away."""
    victim = ranks - 1
    command = [tree.program("calls"), "fault", "--victim", str(victim), "--how", "kill", "--at", "20", "--blocks", "1",
               "--queue", str(queue), "--graph", str(int(in_graph)), "--deadline-ms", str(int(LONG_TIMEOUT_S * 1000)),
               "--memory", tree.memory, "--plugins", tree.plugins, "--backends", backend]

    def run(step: Step) -> Outcome:
        return run_with_choice(
            tree, step, command, choice,
            lambda processes: processes.wait(processes.began + step.limit_s - ENDING_S, but=(victim,)),
            lambda ends: judge_fault(ends, victim, KNOWN_DEATH_S))

    where = f", {queue} calls queued" if queue > 1 else ""
    where += ", in a graph" if in_graph else ""
    return Step(f"killed: known at once in cuStreamSynchronize{where}, {by_choice(choice, backend)}", "faults", ranks,
                tree.patience_s(60), run)


# ---- Steps in which a group goes while a CUDA graph with its call lives ----

# A group has gone after this time, whatever its graphs and peers do.
GROUP_GOES_S = 5.0


def judge_graph_end(ends, left: int) -> str:
    """Why the ranks have not behaved, or ''. left: the rank that goes before without a word; -1: none."""
    for rank, end in enumerate(ends):
        if rank == left:
            if "gone at_ns" not in end.output:
                return f"rank {rank} did not get as far as to go"
            continue
        leaving = re.search(r"^leaving at_ns=(\d+)", end.output, re.MULTILINE)
        if leaving is None:
            return f"rank {rank} did not get as far as to end its group"
        gone = re.search(r"^left at_ns=(\d+)", end.output, re.MULTILINE)
        if gone is None:
            return f"the group of rank {rank} does not end"
        took_s = (int(gone[1]) - int(leaving[1])) / 1e9
        if took_s > GROUP_GOES_S:
            return f"the group of rank {rank} took {took_s:.1f} s to end, more than {GROUP_GOES_S:.0f} s"
        if "replayed at_ns" not in end.output:
            return f"a replay of rank {rank} does not end after the group"
        if "ended while a CUDA graph" not in end.output:
            return f"rank {rank} gives no warning that a graph lives"
        if end.exit_code != 0:
            return f"rank {rank} ended with {end.exit_code}"
    return ""


def graph_end_step(tree: Tree, left: int, ranks: int) -> Step:
    command = [tree.program("calls"), "graph_end", "--left", str(left), "--memory", tree.memory, "--plugins", tree.plugins,
               "--backends", "nccl"]

    def run(step: Step) -> Outcome:
        with tree.processes(command, step.ranks) as processes:
            processes.wait(processes.began + step.limit_s)
            ends = processes.ends()
        why = judge_graph_end(ends, left)
        return Outcome(not why, f"{why}\n{transcript(ends)}" if why else "")

    who = "all ranks go" if left < 0 else f"a rank goes after rank {left} has left"
    return Step(f"graph: {who} while a captured graph lives, nccl", "faults", ranks, tree.patience_s(60), run)


def fault_steps(tree: Tree, ranks: int) -> list[Step]:
    steps = []
    if "nccl" in tree.backends:
        steps += [graph_end_step(tree, left, ranks) for left in (-1, ranks - 1)]
    if tree.memory == "cuda":
        for backend in tree.backends:
            for queue, in_graph in ((1, False), (50, False), (50, True)):
                steps.append(known_death_step(tree, queue, ranks, backend, in_graph))
    for backend in tree.backends:
        for how in ("kill", "stop"):
            for victim in (0, ranks - 1):
                # For NCCL one victim that coordinates the job and one that does not are enough.
                if backend != "nccl" or (how == "kill") == (victim == 0):
                    steps.append(fault_step(tree, how, victim, ranks, backend, False))
        for how in ("stop",) if tree.quick else ("kill", "stop"):
            steps.append(fault_step(tree, how, ranks - 1, ranks, backend, False, of_program="program"))
    if tree.memory == "cuda":
        steps.append(fault_step(tree, "stop", ranks - 1, ranks, "cuda", True, of_program="program"))
        for how, in_graph in (("kill", False), ("stop", False), ("stop", True)):
            steps.append(fault_step(tree, how, ranks - 1, ranks, "cuda", in_graph, of_program="fused program"))
        # NCCL's graphs have no deadline.
        steps.append(fault_step(tree, "kill", ranks - 1, ranks, "cuda", True))
        steps.append(fault_step(tree, "stop", ranks - 1, ranks, "cuda", True))
        for backend in tree.backends:
            steps.append(fault_step(tree, "kill", ranks - 1, ranks, backend, False, blocks=True))
            steps.append(fault_step(tree, "stop", ranks - 1, ranks, backend, False, blocks=True))
        # With a GPU of its own for each rank: a kernel that runs on keeps those out that take turns.
        if not tree.shared_gpus:
            steps.append(rank_step(tree, "a kernel of the caller's outlives the group, cuda", "faults", ranks, 90,
                                   "calls", ["foreign"], ("cuda",)))
    return steps


# ---- Steps in which one rank's call does not fit the others' ----


def judge_mismatch(ends, deadline_s: float, wanted: str) -> str:
    """Why the ranks have not behaved, or ''. Each knows how its call ended within twice the deadline; who waited for the
    deadline has an error, and ends with it; a new group of the same processes works. wanted: "error": the backend compares
    calls, so that every rank has to have an error that names two calls; "fine": the calls fit; "any": either."""
    called = [re.search(r"^called at_ns=(\d+)", end.output, re.MULTILINE) for end in ends]
    missing = [str(rank) for rank, found in enumerate(called) if found is None]
    if missing:
        return f"rank {', '.join(missing)} did not get as far as the call"
    last_ns = max(int(found[1]) for found in called)
    for rank, end in enumerate(ends):
        outcome = re.search(r"^outcome at_ns=(\d+) (fine|error)(.*)$", end.output, re.MULTILINE)
        if outcome is None:
            return f"rank {rank} has no outcome"
        after_s = (int(outcome[1]) - last_ns) / 1e9
        if after_s > 2 * deadline_s:
            return f"rank {rank} had its outcome after {after_s:.1f} s, not within {2 * deadline_s:.0f} s"
        is_fine = outcome[2] == "fine"
        if is_fine and after_s > deadline_s:
            return f"rank {rank} has no error, and waited for {after_s:.1f} s"
        if re.search(r"^after at_ns=\d+ right$", end.output, re.MULTILINE) is None:
            return f"rank {rank} could not work in a new group"
        if end.exit_code is None or (end.exit_code == 0) != is_fine:
            return f"rank {rank} ended with {end.exit_code}, its call {'without' if is_fine else 'with'} an error"
        if wanted == "fine" and not is_fine:
            return f"rank {rank} has an error:{outcome[3]}"
        if wanted == "error" and is_fine:
            return f"rank {rank} has no error"
        if wanted == "error" and " called " not in outcome[3]:
            return f"rank {rank} does not name the calls: {outcome[3]}"
    return ""


def mismatch_step(tree: Tree, what: str, odd: int, ranks: int, backend: str, checks_calls: bool = False) -> Step:
    """checks_calls: with the setting by which NCCL's calls are compared, too."""
    command = [tree.program("calls"), "mismatch", "--what", what, "--odd", str(odd),
               "--deadline-ms", str(int(DEADLINE_S * 1000)), "--memory", tree.memory, "--plugins", tree.plugins,
               "--backends", backend]

    def run(step: Step) -> Outcome:
        with tree.processes(command, step.ranks, CHECK_CALLS if checks_calls else None) as processes:
            processes.wait(processes.began + step.limit_s)
            ends = processes.ends()
        # NCCL's calls may go through by chance. Ranks may have other operations around the same collective.
        wanted = "fine" if what == "program" else "error" if checks_calls or backend == "cuda" else "any"
        why = judge_mismatch(ends, DEADLINE_S, wanted)
        return Outcome(not why, f"{why}\n{transcript(ends)}" if why else "")

    compared = ", calls compared" if checks_calls else ""
    return Step(f"mismatch: rank {odd} calls with another {what}{compared}, {backend}", "faults", ranks, tree.patience_s(60), run)


def mismatch_steps(tree: Tree, ranks: int) -> list[Step]:
    steps = []
    for backend in tree.backends:
        for odd in (0, ranks - 1):
            steps.append(mismatch_step(tree, "count", odd, ranks, backend))
        steps.append(mismatch_step(tree, "collective", ranks - 1, ranks, backend))
        steps.append(mismatch_step(tree, "program", ranks - 1, ranks, backend))
    if tree.memory == "cuda":
        # NCCL takes these for the same call.
        for what in ("dtype", "reduction", "root"):
            steps.append(mismatch_step(tree, what, ranks - 1, ranks, "cuda"))
    if "nccl" in tree.backends:
        for what in ("count", "collective", "dtype", "reduction", "root", "program"):
            steps.append(mismatch_step(tree, what, ranks - 1, ranks, "nccl", checks_calls=True))
    return steps


# ---- Steps in which one rank comes late ----

LATE_DEADLINE_S = 1.0


def judge_late(ends, victim: int, deadline_s: float, delay_s: float) -> str:
    """Why the ranks have not behaved, or ''. No call that succeeds has wrong data, whatever the delay. Late by less than
    the deadline: all calls succeed. By more: every rank has an error that names the late rank, and all calls that were on
    the way end in one deadline together."""
    for rank, end in enumerate(ends):
        if "wrong: rank" in end.output:
            return f"rank {rank} has wrong data without an error"
        began = re.search(r"^began at_ns=(\d+)", end.output, re.MULTILINE)
        ended = re.search(r"^ended at_ns=(\d+) (.*)$", end.output, re.MULTILINE)
        if began is None or ended is None:
            return f"rank {rank} did not get to the end of its calls"
        if delay_s < deadline_s:
            if ended[2] != "fine" or end.exit_code != 0:
                return f"rank {rank} has an error though nobody came too late: {ended[2]}"
            continue
        if not ended[2].startswith("error") or end.exit_code != 5:
            return f"rank {rank} has no error, or ended with {end.exit_code}, not with 5: {ended[2]}"
        if re.search(rf"\brank {victim}\b", ended[2]) is None:
            return f"rank {rank} does not name rank {victim}: {ended[2]}"
        after_s = (int(ended[1]) - int(began[1])) / 1e9 - (delay_s if rank == victim else 0)
        if after_s > 1.5 * deadline_s:
            return f"rank {rank} waited for {after_s:.1f} s, more than one deadline of {deadline_s:.0f} s"
    return ""


def late_step(tree: Tree, delay: float, victim: int, ranks: int, backend: str, in_graph: bool,
              of_program: str = "", choice: Forced = DEFAULT) -> Step:
    delay_s = delay * LATE_DEADLINE_S
    command = [tree.program("calls"), "late", "--victim", str(victim), "--delay-ms", str(int(delay_s * 1000)),
               "--calls", "3" if choice.name else "20", "--graph", str(int(in_graph)), "--program",
               PROGRAMS[of_program], "--deadline-ms", str(int(LATE_DEADLINE_S * 1000)),
               "--memory", tree.memory, "--plugins", tree.plugins, "--backends", backend]

    def run(step: Step) -> Outcome:
        return run_with_choice(tree, step, command, choice,
                               lambda processes: processes.wait(processes.began + step.limit_s),
                               lambda ends: judge_late(ends, victim, LATE_DEADLINE_S, delay_s))

    where = " in a graph" if in_graph else ""
    where += f" in calls of a {of_program}" if of_program else ""
    return Step(f"late: rank {victim} by {delay} deadlines{where}, {by_choice(choice, backend)}", "faults", ranks,
                tree.patience_s(60), run)


def late_steps(tree: Tree, ranks: int) -> list[Step]:
    """For backends with a deadline of their own for each call."""
    steps = []
    for backend in tree.backends:
        if backend == "nccl":
            continue
        for delay in (1.5,) if tree.quick else (0.5, 1.5, 2.5):
            for victim in (ranks - 1,) if tree.quick else (0, ranks - 1):
                steps.append(late_step(tree, delay, victim, ranks, backend, False))
            steps.append(late_step(tree, delay, ranks - 1, ranks, backend, False, of_program="program"))
            if tree.memory == "cuda":
                steps.append(late_step(tree, delay, ranks - 1, ranks, backend, True))
                steps.append(late_step(tree, delay, ranks - 1, ranks, backend, True, of_program="program"))
            if tree.memory == "cuda" and backend == "cuda":
                for in_graph in (False, True):
                    steps.append(late_step(tree, delay, ranks - 1, ranks, backend, in_graph, of_program="fused program"))
    return steps
