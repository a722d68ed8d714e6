"""Steps that run the command line."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable

from rank_processes import KILLED_ENDS_S, NO_MULTICAST
from step_types import REDUCING, Outcome, Step, Tree


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
                # Ranks end with their parent. One that does not keeps the pipes open, and may be in a group of its own.
                os.killpg(process.pid, signal.SIGKILL)
                try:
                    out, err = process.communicate(timeout=KILLED_ENDS_S)
                except subprocess.TimeoutExpired as error:
                    raise RuntimeError(f"{command[0]} was killed at the limit, and a process of it still runs") from error
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


def cli_step(tree: Tree, name: str, ranks: int, limit_s: float, check: Callable[[Step], str], part: str = "cli") -> Step:
    """`check` gives why the step has not passed, or ''."""

    def run(step: Step) -> Outcome:
        why = check(step)
        return Outcome(not why, why)

    return Step(name, part, ranks, limit_s, run)


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
             "--sizes", sizes, "--db", str(database), "--keep-unsteady", "on", "--json"], step, without_switches(),
            watch)
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
