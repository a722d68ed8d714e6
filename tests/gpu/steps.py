"""The steps of tests/gpu/run: what each runs, on how many ranks, and what it has to show."""

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable

from rank_processes import NO_MULTICAST, RankProcesses, transcript

REDUCING = ("all_reduce", "reduce_scatter")
MOVING = ("all_gather", "all_to_all", "broadcast")


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

# ---- Steps that run a test program on every rank ----

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
              variables: dict[str, str] | None = None) -> Step:
    """backends: those that take part, in order of priority; all of the memory by default."""
    used = tree.backends if backends is None else backends
    command = [tree.program(program), *arguments, "--memory", tree.memory, "--plugins", tree.plugins,
               "--backends", ",".join(used)]

    def run(step: Step) -> Outcome:
        with tree.processes(command, step.ranks, variables) as processes:
            processes.wait(processes.began + step.limit_s)
            ends = processes.ends()
        why = judge(ends, used if program == "rank" else (), may_rest)
        return Outcome(not why, f"{why}\n{transcript(ends)}" if why else SUMMARY.search(ends[0].output)[0])

    return Step(name, part, ranks, tree.patience_s(limit_s), run)


def values_steps(tree: Tree, ranks: int, is_full: bool) -> list[Step]:
    counts = "0,1,3,127,4097,262157" if is_full and not tree.quick else "3,127,4097"
    steps = []

    def add(name: str, *arguments: str, backends: tuple[str, ...] | None = None) -> None:
        steps.append(rank_step(tree, f"values: {name}", "values", ranks, 200, "rank", ["values", *arguments], backends))

    if is_full and not tree.quick:
        # Every process has to start its communicators: few steps of many types.
        for collective in REDUCING:
            for dtypes in ("f32,f64", "f16,bf16", "i32,i64,u8"):
                add(f"{collective} of {dtypes}", "--collectives", collective, "--dtypes", dtypes, "--counts", counts)
        for collective, large in (("all_reduce", "2000003,16000057"), ("reduce_scatter", "2000003")):
            add(f"large {collective}", "--collectives", collective, "--dtypes", "bf16", "--reductions", "sum",
                "--counts", large, "--patterns", "exact")
        add("large moves", "--collectives", ",".join(MOVING), "--dtypes", "bf16", "--counts", "2000003")
    else:
        add("reductions", "--collectives", ",".join(REDUCING), "--dtypes", "f32,bf16,i32", "--counts", counts)
    add("moves", "--collectives", ",".join(MOVING), "--counts", counts)
    add("special floats", "--collectives", ",".join(REDUCING), "--dtypes", "f32,f64,f16,bf16", "--patterns", "special",
        "--counts", "3,1001,40961" if is_full else "1001")
    if tree.memory == "cuda":
        # Memory that the ranks reach where it lies; NCCL refuses some of it call by call.
        add("symmetric buffers", "--buffers", "symmetric", "--dtypes", "f32,bf16,u8" if is_full else "bf16",
            "--reductions", "sum,max", "--counts", "3,40009,262157" if is_full else "40009", backends=("cuda",))
        if is_full and not tree.quick:
            # From 32 MiB on copy engines have a part in it.
            add("large all_reduce on symmetric buffers", "--buffers", "symmetric", "--collectives", "all_reduce",
                "--dtypes", "bf16", "--reductions", "sum", "--counts", "17000011", "--patterns", "exact",
                backends=("cuda",))
    if ranks == 3 and not tree.shared_gpus:
        add("average by NCCL's choices", "--collectives", ",".join(REDUCING), "--dtypes", "f32,f64,f16,bf16",
            "--reductions", "average", "--counts", "1,127,4097,70001",
            backends=("nccl",) if tree.memory == "cuda" else ("host",))
    return steps


# Groups of some ranks, at once where there are two: neighbours, every other one, and one in another order.
SPLITS = {
    4: ("0,1/2,3", "0,2/1,3", "3,0,1"),
    8: ("0,1,2,3/4,5,6,7", "0,2,4,6/1,3,5,7", "7,0,5,2,3"),
}


def rank_case_steps(tree: Tree, ranks: int, is_full: bool) -> list[Step]:
    calls = "160" if tree.quick else "960"
    replays = "10" if tree.quick else "100"
    steps = []

    def add(name: str, part: str, arguments: list[str], **more) -> None:
        steps.append(rank_step(tree, name, part, ranks, 180, "rank", arguments, **more))

    add("graphs", "graphs", ["graphs", "--dtypes", "bf16,f32" if is_full else "bf16", "--reductions", "sum",
                             "--replays", replays])
    if tree.memory == "cuda" and is_full:
        add("graphs on symmetric buffers", "graphs",
            ["graphs", "--buffers", "symmetric", "--dtypes", "bf16", "--reductions", "sum", "--replays", replays,
             "--counts", "40013,1000003"], backends=("cuda",))
        if not tree.quick:
            add("graphs of large all_reduce on symmetric buffers", "graphs",
                ["graphs", "--buffers", "symmetric", "--collectives", "all_reduce", "--dtypes", "bf16", "--reductions",
                 "sum", "--replays", "5", "--counts", "17000011"], backends=("cuda",))
        add("same bits on symmetric buffers", "graphs",
            ["same_bits", "--buffers", "symmetric", "--dtypes", "f32,bf16", "--reductions", "sum",
             "--counts", "70001"], backends=("cuda",))
    add("same bits", "graphs", ["same_bits", "--dtypes", "f32,f16,bf16", "--reductions", "sum,average",
                                "--counts", "1001,70001,1000003" if is_full and not tree.quick else "1001,70001"])
    for seed in ("1", "2") if is_full else ("3",):
        add(f"sequence: seed {seed}", "sequences", ["sequence", "--seed", seed, "--calls", calls])
    if not is_full:
        return steps
    add("sequence: ranks that come late", "sequences",
        ["sequence", "--seed", "5", "--calls", "160", "--delay-us", "4000"])
    add("sequence: two groups at once", "sequences",
        ["sequence", "--seed", "6", "--calls", calls, "--groups", "2", "--count-max", "20000"])
    for split in SPLITS.get(ranks, ()):
        add(f"sequence: groups {split}", "sequences",
            ["sequence", "--seed", "7", "--calls", "320", "--split", split], may_rest=True)
    return steps


def call_steps(tree: Tree, ranks: int, is_full: bool) -> list[Step]:
    """Through the C API: with the default of each order of backends, then tuned."""
    orders = [("nccl", "cuda"), ("cuda", "nccl")] if len(tree.backends) == 2 else [tree.backends]
    replays = "10" if tree.quick else "100"
    steps = []
    for order in orders:
        label = order[0]
        steps.append(rank_step(tree, f"C API: graph of all collectives, {label}", "calls", ranks, 120, "calls",
                               ["chain", "--replays", replays], order))
        if is_full:
            steps.append(rank_step(tree, f"C API: streams and groups, {label}", "calls", ranks, 120, "calls",
                                   ["streams"], order))
    if not is_full:
        return steps
    if "nccl" in tree.backends:
        # Calls that fit together pass where they are compared.
        for case in (["chain", "--replays", replays], ["streams"]):
            steps.append(rank_step(tree, f"C API: {case[0]}, calls compared, nccl", "calls", ranks, 120, "calls", case,
                                   ("nccl",), variables=CHECK_CALLS))
    database = str(tree.work / f"calls-{ranks}.tdb")
    steps.append(rank_step(tree, "C API: tune, load, calls of other sizes", "calls", ranks, 120, "calls",
                           ["tuned", "--database", database]))
    return steps


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
        if after_s > 2 * deadline_s:
            return f"rank {rank} knew after {after_s:.1f} s, not within {2 * deadline_s:.0f} s"
        if re.search(rf"\brank {victim}\b", knew[2]) is None:
            return f"rank {rank} does not name rank {victim}: {knew[2]}"
        if end.exit_code != 5:
            return f"rank {rank} ended with {end.exit_code}, not with 5"
    return ""


def fault_step(tree: Tree, how: str, victim: int, ranks: int, backend: str, in_graph: bool,
               blocks: bool = False) -> Step:
    """blocks: the others wait in cudaStreamSynchronize, and ask for the group's health when it returns."""
    where = " in a graph" if in_graph else " while the others block" if blocks else ""
    command = [tree.program("calls"), "fault", "--victim", str(victim), "--how", how, "--at", "200",
               "--graph", str(int(in_graph)), "--blocks", str(int(blocks)), "--deadline-ms",
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


def known_death_step(tree: Tree, queue: int, ranks: int, backend: str, in_graph: bool) -> Step:
    """A rank is killed while the others sit in cuStreamSynchronize, with calls whose timeout is far away."""
    victim = ranks - 1
    command = [tree.program("calls"), "fault", "--victim", str(victim), "--how", "kill", "--at", "20", "--blocks", "1",
               "--queue", str(queue), "--graph", str(int(in_graph)), "--deadline-ms", str(int(LONG_TIMEOUT_S * 1000)),
               "--memory", tree.memory, "--plugins", tree.plugins, "--backends", backend]

    def run(step: Step) -> Outcome:
        with tree.processes(command, step.ranks) as processes:
            processes.wait(processes.began + step.limit_s - ENDING_S, but=(victim,))
            ends = processes.ends()
        why = judge_fault(ends, victim, KNOWN_DEATH_S)
        return Outcome(not why, f"{why}\n{transcript(ends)}" if why else "")

    where = f", {queue} calls queued" if queue > 1 else ""
    where += ", in a graph" if in_graph else ""
    return Step(f"killed: known at once in cuStreamSynchronize{where}, {backend}", "faults", ranks, tree.patience_s(60), run)


def fault_steps(tree: Tree, ranks: int) -> list[Step]:
    steps = []
    if tree.memory == "cuda":
        for backend in tree.backends:
            for queue, in_graph in ((1, False), (50, False), (50, True)):
                steps.append(known_death_step(tree, queue, ranks, backend, in_graph))
    for backend in tree.backends:
        for how in ("kill", "stop"):
            for victim in (0, ranks - 1):
                # Who coordinates the job and who does not: for NCCL one of each is enough.
                if backend != "nccl" or (how == "kill") == (victim == 0):
                    steps.append(fault_step(tree, how, victim, ranks, backend, False))
    if tree.memory == "cuda":
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


def judge_mismatch(ends, deadline_s: float, must_fail: bool) -> str:
    """Why the ranks have not behaved, or ''. Each knows how its call ended within twice the deadline; who waited for the
    deadline has an error, and ends with it; a new group of the same processes works. must_fail: the backend compares
    calls, so that every rank has to have an error that names two calls."""
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
        if must_fail and is_fine:
            return f"rank {rank} has no error"
        if must_fail and " called " not in outcome[3]:
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
        # NCCL's calls may go through by chance.
        why = judge_mismatch(ends, DEADLINE_S, must_fail=checks_calls or backend == "cuda")
        return Outcome(not why, f"{why}\n{transcript(ends)}" if why else "")

    compared = ", calls compared" if checks_calls else ""
    return Step(f"mismatch: rank {odd} calls with another {what}{compared}, {backend}", "faults", ranks, tree.patience_s(60), run)


def mismatch_steps(tree: Tree, ranks: int) -> list[Step]:
    steps = []
    for backend in tree.backends:
        for odd in (0, ranks - 1):
            steps.append(mismatch_step(tree, "count", odd, ranks, backend))
        steps.append(mismatch_step(tree, "collective", ranks - 1, ranks, backend))
    if tree.memory == "cuda":
        # NCCL takes these for the same call.
        for what in ("dtype", "reduction", "root"):
            steps.append(mismatch_step(tree, what, ranks - 1, ranks, "cuda"))
    if "nccl" in tree.backends:
        for what in ("count", "collective", "dtype", "reduction", "root"):
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


def late_step(tree: Tree, delay: float, victim: int, ranks: int, backend: str, in_graph: bool) -> Step:
    delay_s = delay * LATE_DEADLINE_S
    command = [tree.program("calls"), "late", "--victim", str(victim), "--delay-ms", str(int(delay_s * 1000)),
               "--calls", "20", "--graph", str(int(in_graph)), "--deadline-ms", str(int(LATE_DEADLINE_S * 1000)),
               "--memory", tree.memory, "--plugins", tree.plugins, "--backends", backend]

    def run(step: Step) -> Outcome:
        with tree.processes(command, step.ranks) as processes:
            processes.wait(processes.began + step.limit_s)
            ends = processes.ends()
        why = judge_late(ends, victim, LATE_DEADLINE_S, delay_s)
        return Outcome(not why, f"{why}\n{transcript(ends)}" if why else "")

    where = " in a graph" if in_graph else ""
    return Step(f"late: rank {victim} by {delay} deadlines{where}, {backend}", "faults", ranks, tree.patience_s(60), run)


def late_steps(tree: Tree, ranks: int) -> list[Step]:
    """For backends with a deadline of their own for each call."""
    steps = []
    for backend in tree.backends:
        if backend == "nccl":
            continue
        for delay in (1.5,) if tree.quick else (0.5, 1.5, 2.5):
            for victim in (ranks - 1,) if tree.quick else (0, ranks - 1):
                steps.append(late_step(tree, delay, victim, ranks, backend, False))
            if tree.memory == "cuda":
                steps.append(late_step(tree, delay, ranks - 1, ranks, backend, True))
    return steps


# ---- Steps that run the command line ----


def run_limited(command: list[str], step: Step, environment: dict[str, str] | None = None,
                watch: Callable[[int], None] | None = None) -> tuple[int | None, str, str]:
    """Exit code (None: over the limit), standard output, standard error. `watch` is called with the process's id while
    it runs."""
    until = time.monotonic() + step.limit_s
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                          stdin=subprocess.DEVNULL, start_new_session=True) as process:
        while True:
            try:
                out, err = process.communicate(timeout=0.05 if watch else step.limit_s)
                return process.returncode, out, err
            except subprocess.TimeoutExpired:
                if watch is not None:
                    watch(process.pid)
                if time.monotonic() < until:
                    continue
                # Ranks end with their parent.
                os.kill(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                return None, out, err


def descendants(pid: int) -> list[int]:
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(after_name[1])
    found, wave = [], [pid]
    while wave:
        wave = [child for child, parent in parents.items() if parent in wave]
        found += wave
    return found


def switches_missing(environment: str, separator: str) -> list[str]:
    entries = set(environment.split(separator))
    return [name for name, value in NO_MULTICAST.items() if f"{name}={value}" not in entries]


def without_switches() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NO_MULTICAST}


def cli_step(tree: Tree, name: str, ranks: int, limit_s: float, check: Callable[[Step], str]) -> Step:
    """`check` gives why the step has not passed, or ''."""

    def run(step: Step) -> Outcome:
        why = check(step)
        return Outcome(not why, why)

    return Step(name, "cli", ranks, limit_s, run)


def check_plugins(tree: Tree) -> Callable[[Step], str]:
    def check(step: Step) -> str:
        code, out, err = run_limited([tree.cotune, "plugin", "list", "--json"], step)
        if code != 0:
            return f"ended with {code}: {err[-2000:]}"
        plugins = {plugin["name"]: plugin for plugin in json.loads(out)["result"]["plugins"]}
        for backend in tree.backends:
            plugin = plugins.get(backend)
            if plugin is None or not plugin["loaded"] or plugin["reason"]:
                return f"{backend} cannot be used: {plugin}"
        return ""

    return check


def check_environment_of_run(tree: Tree) -> Callable[[Step], str]:
    def check(step: Step) -> str:
        # Sections that a rank's own lines cannot cut apart: each prints all at once.
        program = "import os,sys; sys.stdout.write(';'.join(f'{k}={v}' for k, v in os.environ.items()) + '\\n')"
        code, out, err = run_limited(
            [tree.cotune, "run", "--ranks", str(step.ranks), "--", "python3", "-c", program], step, without_switches())
        lines = [line for line in (out + err).splitlines() if "COTUNE_RANK=" in line]
        if code != 0 or len(lines) != step.ranks:
            return f"ended with {code}, {len(lines)} of {step.ranks} ranks printed: {err[-2000:]}"
        for line in lines:
            line = line.partition("] ")[2] if line.startswith("[rank ") else line
            missing = switches_missing(line, ";")
            if missing:
                return f"not set: {', '.join(missing)}"
        return ""

    return check


# Faults that a tune gets over by dropping the choice.
DROPPED = ("precompile_failed", "launch_failed", "wrong_result", "deadline")


def dropped_choices(entries: list[dict]) -> list[str]:
    return [
        f"{entry['collective']} {entry['dtype']} {entry['reduction']} {entry['bytes']}: {choice['choice']} "
        f"{choice['outcome']}: {choice['reason']}"
        for entry in entries for choice in entry["choices"] if choice["outcome"] in DROPPED or choice["wrong"]
    ]


def judge_entries(tree: Tree, entries: list[dict]) -> str:
    dropped = dropped_choices(entries)
    if dropped:
        return f"{len(dropped)} choices were dropped:\n" + "\n".join(dropped[:20])
    names = [choice["choice"] for entry in entries for choice in entry["choices"]]
    for backend in tree.backends:
        if not any(name.startswith(backend + "/") for name in names):
            return f"no choice of {backend} was measured"
    multicast = [name for name in names if re.search("nvls|multimem|multicast", name, re.IGNORECASE)]
    return f"multicast is offered: {multicast[:5]}" if multicast else ""


def check_tune(tree: Tree, database: pathlib.Path, sizes: str, is_warm: bool) -> Callable[[Step], str]:
    def check(step: Step) -> str:
        seen: dict[int, list[str]] = {}

        def watch(pid: int) -> None:
            for child in descendants(pid):
                try:
                    environment = pathlib.Path(f"/proc/{child}/environ").read_text(errors="replace")
                except OSError:
                    continue
                # A process that has just been forked still has its parent's.
                if "COTUNE_RANK=" in environment:
                    seen[child] = switches_missing(environment, "\0")

        code, out, err = run_limited(
            [tree.cotune, "tune", "--ranks", str(step.ranks), "--memory", tree.memory, "--dtype", "bf16",
             "--sizes", sizes, "--db", str(database), "--json"], step, without_switches(), watch)
        if code != 0:
            return f"ended with {code}: {(out + err)[-3000:]}"
        result = json.loads(out)["result"]
        measured, known = result["measured_cells"], result["known_cells"]
        if is_warm:
            return "" if measured == 0 and known > 0 else f"measured {measured} cells again, {known} were known"
        if measured == 0 or known != 0 or not result["committed"]:
            return f"measured {measured}, knew {known}, committed {result['committed']}"
        if len(seen) < step.ranks:
            return f"saw the environment of {len(seen)} of {step.ranks} ranks"
        for child, missing in seen.items():
            if missing:
                return f"process {child} ran without {', '.join(missing)}"
        return judge_entries(tree, result["entries"])

    return check


def check_explain(tree: Tree, database: pathlib.Path) -> Callable[[Step], str]:
    def check(step: Step) -> str:
        code, out, err = run_limited(
            [tree.cotune, "explain", "all_reduce", "64K", "bf16", "--ranks", str(step.ranks), "--memory", tree.memory,
             "--db", str(database), "--json"], step)
        if code != 0:
            return f"ended with {code}: {(out + err)[-3000:]}"
        result = json.loads(out)["result"]
        winner = result["entry"]["winner"]
        if result["runs"]["choice"] != winner["choice"] or not winner["why"] or not result["entry"]["choices"]:
            return f"does not say why {result['runs']} runs: {winner}"
        return ""

    return check


def check_bench(tree: Tree, arguments: list[str]) -> Callable[[Step], str]:
    def check(step: Step) -> str:
        code, out, err = run_limited(
            [tree.cotune, "bench", "--ranks", str(step.ranks), "--memory", tree.memory, "--json", "--min-rounds", "3",
             *arguments], step)
        if code != 0:
            return f"ended with {code}: {(out + err)[-3000:]}"
        result = json.loads(out)["result"]
        if not result["entries"] or result["measured_cells"] == 0:
            return "measured nothing"
        return judge_entries(tree, result["entries"])

    return check


def cli_steps(tree: Tree, ranks: int) -> list[Step]:
    database = tree.work / f"tune-{ranks}.tdb"
    sizes = "1K:64K:x8" if tree.quick else "1K:16M:x4"
    dtypes = "f32,bf16" if tree.quick else "all"
    return [
        cli_step(tree, "cotune plugin list", 1, 60, check_plugins(tree)),
        cli_step(tree, "cotune run sets the switches", ranks, 60, check_environment_of_run(tree)),
        cli_step(tree, "cotune tune, cold", ranks, 200, check_tune(tree, database, sizes, False)),
        cli_step(tree, "cotune tune, warm", ranks, 60, check_tune(tree, database, sizes, True)),
        cli_step(tree, "cotune explain", ranks, 60, check_explain(tree, database)),
        cli_step(tree, "cotune bench, types", ranks, 200,
                 check_bench(tree, ["--dtype", dtypes, "--sizes", "4K,1M" if not tree.quick else "4K"])),
        cli_step(tree, "cotune bench, reductions in place", ranks, 200,
                 check_bench(tree, ["--dtype", "bf16,i32", "--collective", ",".join(REDUCING), "--reduction", "all",
                                    "--in-place", "--sizes", "4K,512K" if not tree.quick else "4K"])),
    ]


def all_steps(tree: Tree, ranks: int) -> list[Step]:
    """Everything on `ranks`; on fewer as far as their number matters."""
    # A tune of ranks that share a GPU would measure whose turn it is.
    steps = [] if tree.shared_gpus else cli_steps(tree, ranks)
    for number in range(ranks, 1, -1):
        is_full = number == ranks
        steps += values_steps(tree, number, is_full)
        steps += rank_case_steps(tree, number, is_full)
        steps += call_steps(tree, number, is_full)
        if is_full:
            steps += fault_steps(tree, number) + mismatch_steps(tree, number) + late_steps(tree, number)
    return steps
