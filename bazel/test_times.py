"""Says where the time of `bazel test` went, out of the profile that Bazel writes.

A profile has one event for each action: when it began, how long it ran and for which target. Actions that came out of a
cache have none, so a warm run shows next to nothing here.
"""

import collections
import dataclasses
import gzip
import json
import pathlib
import zlib

# By the first word of the text that Bazel has for an action.
_KINDS = {"Compiling": "compile", "Linking": "link", "Testing": "test"}


@dataclasses.dataclass(frozen=True)
class Action:
    kind: str  # "compile", "link", "test", or "other"
    target: str  # "//core:race_test"
    seconds: float


@dataclasses.dataclass(frozen=True)
class Phase:
    name: str
    wall_s: float
    actions: tuple[Action, ...] = ()


def read_profile(path: pathlib.Path) -> tuple[Action, ...]:
    """The actions that ran; empty when there is no profile or it was cut short."""
    try:
        with gzip.open(path, "rt") as file:
            events = json.load(file)["traceEvents"]
        return tuple(
            Action(
                _KINDS.get(event["name"].split(" ", 1)[0], "other"),
                event.get("args", {}).get("target", ""),
                event["dur"] / 1e6,
            )
            for event in events
            if event.get("cat") == "action processing" and "dur" in event
        )
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError):
        return ()


def _minutes(seconds: float) -> str:
    return f"{int(seconds + 0.5) // 60}:{int(seconds + 0.5) % 60:02}"


def _row(name: str, wall_s: float, actions: tuple[Action, ...]) -> str:
    def total(kind: str) -> str:
        times = [action.seconds for action in actions if action.kind == kind]
        return f"{sum(times):6.0f} s {len(times):5}" if times else " " * 14

    return f"{name:<8} {_minutes(wall_s):>6}  {total('compile')}  {total('link')}  {total('test')}".rstrip()


def phase_table(phases: list[Phase]) -> list[str]:
    """Lines: for each phase its wall time, and the summed time and number of what was compiled, linked and run."""
    lines = [f"{'phase':<8} {'wall':>6}  {'compile':>8} {'files':>5}  {'link':>8} {'files':>5}  {'run':>8} {'tests':>5}"]
    lines += [_row(phase.name, phase.wall_s, phase.actions) for phase in phases]
    lines.append(f"{'all':<8} {_minutes(sum(phase.wall_s for phase in phases)):>6}")
    return lines


def slowest_targets(phases: list[Phase], most: int = 10) -> list[str]:
    """Lines: the targets that took most time in one phase, compiling, linking and running added up."""
    seconds: dict[tuple[str, str], collections.Counter] = collections.defaultdict(collections.Counter)
    for phase in phases:
        for action in phase.actions:
            seconds[(phase.name, action.target)][action.kind] += action.seconds
    ranked = sorted(seconds.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    lines = []
    for (phase_name, target), kinds in ranked[:most]:
        parts = ", ".join(f"{kind} {kinds[kind]:.0f} s" for kind in ("compile", "link", "test", "other") if kinds[kind] >= 0.5)
        lines.append(f"{phase_name:<6} {sum(kinds.values()):5.0f} s  {target} ({parts})")
    return lines
