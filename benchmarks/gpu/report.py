"""Writes the GPU section of docs/performance/gpu_collectives.md and its figures from what benchmarks/gpu/run has measured.

usage: report.py [--page docs/performance/gpu_collectives.md] FILE...

One FILE or more for each number of GPUs; of several measurements of one thing the best counts. The section is what
stands between two comments on the page; the rest of the page stays. Figures go to figures/ beside the page. What this
machine has not measured itself (recorded_peers.json) is marked with a *.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import problems  # noqa: E402
import svg_plot  # noqa: E402

BEGIN = "<!-- written by benchmarks/gpu/report.py: begin -->"
END = "<!-- written by benchmarks/gpu/report.py: end -->"
OURS = "cotune"
REGISTERED = "cotune_registered"  # the same on registered buffers
# The columns of the table, in this order; two contenders can be one column.
PEERS = {
    "NCCL": ("nccl",),
    "NCCL symmetric": ("nccl_symmetric",),
    "symm_mem": ("symm_mem_one_shot", "symm_mem_two_shot"),
    "vLLM*": ("vllm",),
    "FlashInfer*": ("flashinfer",),
}
KIB, MIB = 1 << 10, 1 << 20


def size_text(size_bytes: int) -> str:
    for unit, name in ((MIB, "M"), (KIB, "K")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return str(size_bytes)


def time_text(time_us: float | None) -> str:
    if time_us is None:
        return "-"
    return f"{time_us:.0f}" if time_us >= 100 else f"{time_us:.3g}"


def choice_text(choice: str) -> str:
    """Backend and algorithm, and how data travels; the rest of a choice's name is its shape."""
    name, _, parameters = choice.partition("?")
    travels = [value for key, _, value in (each.partition("=") for each in parameters.split("&"))
               if key in ("transport", "proto")]
    return " ".join([name, *travels])


def geometric_mean(values: list[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


@dataclasses.dataclass
class Machine:
    """All that is known of one number of GPUs: files of it merged, recorded peers beside."""

    ranks: int
    files: list[dict]
    recorded: dict
    times_us: dict = dataclasses.field(default_factory=dict)  # (collective, bytes) -> contender -> best
    wrong: list = dataclasses.field(default_factory=list)
    winners: dict = dataclasses.field(default_factory=dict)  # (collective, bytes) -> choice

    def __post_init__(self):
        for content in self.files:
            for each in content["measurements"]:
                if not each["right"]:
                    self.wrong.append(f"{each['contender']} {each['collective']} {size_text(each['bytes'])}")
                    continue
                cell = self.times_us.setdefault((each["collective"], each["bytes"]), {})
                name = each["contender"]
                cell[name] = min(each["time_us"], cell.get(name, math.inf))
            for cell in content["tune"].get("cells", []):
                self.winners[cell["collective"], cell["bytes"]] = cell["winner"]
        for collective, sizes in self.recorded["time_us"].get(str(self.ranks), {}).items():
            for size, peers in sizes.items():
                if (collective, int(size)) in self.times_us:
                    self.times_us[collective, int(size)].update(peers)

    def last(self, key: str) -> dict:
        """Of the newest file that has it."""
        found = [content[key] for content in sorted(self.files, key=lambda each: each["date"]) if content.get(key)]
        return found[-1] if found else {}

    def tune(self) -> dict:
        """Of the file whose tune was the largest, and of several the newest."""
        found = [(content["tune"].get("cold", {}).get("measured_cells", 0), content["date"], content["tune"])
                 for content in self.files]
        return max(found, key=lambda each: each[:2])[2]

    def sizes(self, collective: str) -> list[int]:
        """Where cotune was measured."""
        return sorted(size for name, size in self.times_us if name == collective and OURS in self.times_us[name, size])

    def ours(self, collective: str, size: int) -> float:
        """On plain buffers."""
        return self.times_us[collective, size][OURS]

    def registered(self, collective: str, size: int) -> float | None:
        return self.times_us[collective, size].get(REGISTERED)

    def best_of_ours(self, collective: str, size: int) -> float:
        """On the better kind of buffers, as the peers have theirs."""
        return min(self.ours(collective, size), self.registered(collective, size) or math.inf)

    def mark(self, collective: str, size: int) -> str:
        """Of a time of best_of_ours."""
        return "r" if self.best_of_ours(collective, size) < self.ours(collective, size) else ""

    def peer(self, column: str, collective: str, size: int) -> float | None:
        found = [self.times_us[collective, size][name] for name in PEERS[column]
                 if name in self.times_us[collective, size]]
        return min(found) if found else None

    def best_peer(self, collective: str, size: int) -> tuple[str, float] | None:
        found = [(time_us, column) for column in PEERS
                 if (time_us := self.peer(column, collective, size)) is not None]
        return (min(found)[1], min(found)[0]) if found else None

    def bus_GBps(self, collective: str, size: int, time_us: float) -> float:
        return problems.bus_GBps(collective, self.ranks, size, time_us)

    @property
    def link_GBps(self) -> float | None:
        return self.recorded["link_GBps"].get(str(self.ranks))


# ---- Tables ----


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def collective_table(machine: Machine, collective: str) -> list[str]:
    columns = [column for column in PEERS
               if any(machine.peer(column, collective, size) for size in machine.sizes(collective))]
    lines = [row("bytes", "cotune us", "winner", "registered us", "busbw GB/s", "of link",
                 *(f"{column} us" for column in columns), "of best peer"), row(*["---"] * (7 + len(columns)))]
    for size in machine.sizes(collective):
        time_us = machine.best_of_ours(collective, size)
        bus = machine.bus_GBps(collective, size, time_us)
        best = machine.best_peer(collective, size)
        lines.append(row(
            size_text(size), time_text(machine.ours(collective, size)),
            choice_text(machine.winners.get((collective, size), "-")), time_text(machine.registered(collective, size)),
            f"{bus:.3g}", f"{bus / machine.link_GBps:.0%}" if machine.link_GBps else "-",
            *(time_text(machine.peer(column, collective, size)) for column in columns),
            f"{time_us / best[1]:.2f} ({best[0]})" if best else "-"))
    return lines


def ratios(machine: Machine, of_us, of_peer, sizes_max: float = math.inf) -> list[tuple[float, str, int]]:
    """cotune's time by a peer's for every collective and size where both are known."""
    found = []
    for collective in problems.COLLECTIVES:
        for size in machine.sizes(collective):
            time_us = of_peer(collective, size)
            if time_us is not None and size <= sizes_max:
                found.append((of_us(collective, size) / time_us, collective, size))
    return found


def worst_text(found: list[tuple[float, str, int]]) -> str:
    worst, collective, size = max(found)
    return f"{worst:.3f} at {collective} {size_text(size)}"


@dataclasses.dataclass
class Goal:
    """One line of the table of goals."""

    what: str
    goal: str
    measured: str
    is_met: bool


def time_goals(machine: Machine, goals: dict) -> list[Goal]:
    found = []
    for collective, sizes in goals["time_us"].get(str(machine.ranks), {}).items():
        known = [(int(size), goal) for size, goal in sizes.items() if int(size) in machine.sizes(collective)]
        if not known:
            continue
        measured = [(machine.best_of_ours(collective, size), goal) for size, goal in known]
        texts = [time_text(machine.best_of_ours(collective, size)) + machine.mark(collective, size) for size, _ in known]
        found.append(Goal(
            f"{collective}: {' / '.join(size_text(size) for size, _ in known)}",
            f"{' / '.join(f'{goal:g}' for _, goal in known)} us",
            f"{' / '.join(texts)} us",
            all(each <= goal for each, goal in measured)))
    return found


def nccl_goals(machine: Machine, goals: dict) -> list[Goal]:
    def nccl(collective, size):
        return machine.peer("NCCL", collective, size)

    found = []
    everywhere = ratios(machine, machine.ours, nccl)
    if everywhere:
        found.append(Goal("time by NCCL's, worst of every collective and size", "<= 1", worst_text(everywhere),
                          max(everywhere)[0] <= 1))
    small = geometric_mean([1 / each for each, _, _ in ratios(machine, machine.ours, nccl, MIB)])
    if small is not None:
        goal = goals["gain_over_nccl_mean_to_1M"]
        found.append(Goal("gain over NCCL, geometric mean to 1M", f">= {goal:g}x", f"{small:.2f}x", small >= goal))
    for collective, sizes in goals["gain_over_nccl"].get(str(machine.ranks), {}).items():
        for size, goal in sizes.items():
            if int(size) not in machine.sizes(collective) or nccl(collective, int(size)) is None:
                continue
            gain = nccl(collective, int(size)) / machine.ours(collective, int(size))
            found.append(Goal(f"gain of {collective} over NCCL at {size_text(int(size))}", f">= {goal:g}x",
                              f"{gain:.2f}x", gain >= goal))
    return found


def peer_goals(machine: Machine, goals: dict) -> list[Goal]:
    def best(collective, size):
        found = machine.best_peer(collective, size)
        return found[1] if found else None

    everywhere = ratios(machine, machine.best_of_ours, best)
    if not everywhere:
        return []
    mean = geometric_mean([each for each, _, _ in everywhere])
    each_goal, mean_goal = goals["of_best_peer_each"], goals["of_best_peer_mean"]
    met = sum(each <= each_goal for each, _, _ in everywhere)
    return [
        Goal("time by the best peer's, each collective and size", f"<= {each_goal:g}",
             f"{met} of {len(everywhere)}; worst {worst_text(everywhere)}", met == len(everywhere)),
        Goal("the same, geometric mean", f"<= {mean_goal:g}", f"{mean:.2f}", mean <= mean_goal),
    ]


def other_goals(machine: Machine, goals: dict) -> list[Goal]:
    found = []
    if 512 * MIB in machine.sizes("all_reduce"):
        bus = machine.bus_GBps("all_reduce", 512 * MIB, machine.best_of_ours("all_reduce", 512 * MIB))
        goal = goals["bus_GBps_at_512M"]
        found.append(Goal("busbw of all_reduce at 512M", f">= {goal:g} GB/s", f"{bus:.0f} GB/s", bus >= goal))
    host = machine.last("host_call")
    if host:
        over = host["call_ns"] - host["bare_launch_ns"]
        goal = goals["call_over_bare_launch_ns"]
        found.append(Goal("host time of a call over a bare launch", f"<= {goal:g} ns",
                          f"{over} ns (a call {host['call_ns']}, a launch of an empty kernel {host['bare_launch_ns']})",
                          over <= goal))
    tune = machine.tune()
    if "cold" in tune:
        pre_sync_ms = tune["cold"]["pre_sync_us"] / 1e3
        goal = goals["pre_sync_ms"]
        found.append(Goal("the one sync of a tune", f"<= {goal:g} ms", f"{pre_sync_ms:.2f} ms", pre_sync_ms <= goal))
    if "warm" in tune:
        warm_ms = tune["warm"]["elapsed_us"] / 1e3
        goal = goals["warm_tune_ms"]
        found.append(Goal("start from a tuned database", f"<= {goal:g} ms", f"{warm_ms:.0f} ms", warm_ms <= goal))
    return found


def goals_table(machine: Machine, goals: dict) -> list[str]:
    lines = [row("goal", "wanted", "measured", ""), row(*["---"] * 4)]
    for part in (time_goals, nccl_goals, peer_goals, other_goals):
        lines += [row(each.what, each.goal, each.measured, "met" if each.is_met else "missed")
                  for each in part(machine, goals)]
    return lines


def tune_lines(machine: Machine) -> list[str]:
    tune = machine.tune()
    if "cold" not in tune:
        return []
    cold = tune["cold"]
    stages = dict(cold["stages_s"])
    # Its line comes before it, the next one after all has been measured.
    measuring = stages.pop("pre_sync", 0) - cold["pre_sync_us"] / 1e6
    parts = {"measuring": measuring, "sync": cold["pre_sync_us"] / 1e6, **stages}
    shown = ", ".join(f"{name} {seconds:.2f}" for name, seconds in sorted(parts.items(), key=lambda each: -each[1])
                      if seconds >= 0.005)
    lines = [f"A cold tune of {cold['measured_cells']} cells ({cold['choices']} choices), kernels compiled on the way: "
             f"{cold['wall_s']:.1f} s. In seconds: {shown}."]
    if "warm" in tune:
        warm = tune["warm"]
        lines.append(f"The same from the database: {warm['wall_s']:.2f} s for the whole command, "
                     f"{warm['elapsed_us'] / 1e3:.0f} ms of it after the ranks have met.")
    return lines


# ---- Figures ----


def figures(machine: Machine) -> dict[str, str]:
    """File name to SVG."""
    made = {}
    for collective in problems.COLLECTIVES:
        sizes = machine.sizes(collective)
        if len(sizes) < 2:
            continue
        times = {"cotune": [(size, machine.ours(collective, size)) for size in sizes]}
        registered = [(size, time_us) for size in sizes
                      if (time_us := machine.registered(collective, size)) is not None]
        if len(registered) > 1:
            times["cotune, registered"] = registered
        for column in PEERS:
            known = [(size, time_us) for size in sizes
                     if (time_us := machine.peer(column, collective, size)) is not None]
            if len(known) > 1:
                times[column] = known
        bus = {name: [(size, machine.bus_GBps(collective, size, time_us)) for size, time_us in each]
               for name, each in times.items()}
        name = f"{collective}_{machine.ranks}_gpus"
        title = f"{collective}, {machine.ranks} GPUs"
        made[f"{name}_time.svg"] = svg_plot.plot(title, "us", times, size_text)
        made[f"{name}_busbw.svg"] = svg_plot.plot(title, "bus GB/s", bus, size_text)
    return made


# ---- The section ----


def about_lines(machine: Machine) -> list[str]:
    newest = max(machine.files, key=lambda each: each["date"])
    about = newest["machine"]
    names = sorted(set(about["gpus"]))
    versions = ", ".join(f"{name} {version}"
                         for name, version in {**about.get("packages", {}), **machine.last("versions")}.items())
    dates = sorted({content["date"][:10] for content in machine.files})
    return [f"{machine.ranks} of {len(about['gpus'])} {' and '.join(names)}; {about['processor']}, "
            f"{about['processors']} processors; {about['system']}.",
            f"{about['driver'] or 'no driver'}; {versions or 'no versions known'}; {about['cotune']}. "
            f"{' and '.join(dates)}."]


def machine_section(machine: Machine, goals: dict) -> list[str]:
    lines = [f"### {machine.ranks} GPUs", "", *about_lines(machine), ""]
    if machine.wrong:
        lines += [f"Wrong values, and left out: {', '.join(sorted(set(machine.wrong)))}.", ""]
    for collective in problems.COLLECTIVES:
        if machine.sizes(collective):
            lines += [f"{collective}", "", *collective_table(machine, collective), ""]
            if len(machine.sizes(collective)) > 1:
                name = f"figures/{collective}_{machine.ranks}_gpus"
                lines += [f"![time]({name}_time.svg) ![busbw]({name}_busbw.svg)", ""]
    tune = tune_lines(machine)
    return [*lines, *tune, *([""] if tune else []), *goals_table(machine, goals), ""]


def section(machines: list[Machine], goals: dict) -> str:
    recorded = machines[0].recorded
    lines = [
        BEGIN, "",
        "bf16, sums, out of place (symm_mem's two shots: in place). cotune and NCCL on plain buffers; \"registered\" is "
        "cotune on buffers in memory of cotune_memory_allocate, as NCCL symmetric has windows and symm_mem memory of its "
        "own; busbw, \"of best peer\" and goals without NCCL take the better of the two (r: registered). "
        "A figure is the median of 21 replays of a CUDA graph of 20 calls (5 above 16M), of each replay the largest over "
        "ranks, which leave a barrier on their GPUs together right before it; the best of the runs. Values are checked "
        "before and after. bytes as nccl-tests counts them: the larger of one rank's send and receive buffer. NVLink "
        "multicast is off.", "",
        f"\\* not measured in the same run: {recorded['source']}", "",
        f"of link: of {', '.join(f'{speed} GB/s on {ranks} GPUs' for ranks, speed in recorded['link_GBps'].items())} "
        f"({recorded['link_source']}).", "",
    ]
    for machine in machines:
        lines += machine_section(machine, goals)
    return "\n".join([*lines, END])


def with_section(page: str, new: str) -> str:
    begin, end = page.find(BEGIN), page.find(END)
    if begin < 0 or end < begin:
        raise ValueError(f"the page does not have the lines\n{BEGIN}\n{END}")
    return page[:begin] + new + page[end + len(END):]


def machines_of(paths: list[pathlib.Path]) -> list[Machine]:
    recorded = json.loads((HERE / "recorded_peers.json").read_text())
    by_ranks: dict[int, list[dict]] = {}
    for path in paths:
        content = json.loads(path.read_text())
        if content.get("schema") != 1:
            raise ValueError(f"{path} was not written by benchmarks/gpu/run, or by another version")
        by_ranks.setdefault(content["ranks"], []).append(content)
    return [Machine(ranks, by_ranks[ranks], recorded) for ranks in sorted(by_ranks, reverse=True)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="report.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=pathlib.Path, default=HERE.parents[1] / "docs" / "performance" / "gpu_collectives.md")
    parser.add_argument("files", type=pathlib.Path, nargs="+", metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        machines = machines_of(options.files)
        page = with_section(options.page.read_text(), section(machines, json.loads((HERE / "goals.json").read_text())))
    except (OSError, ValueError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    folder = options.page.parent / "figures"
    folder.mkdir(exist_ok=True)
    for machine in machines:
        for name, content in figures(machine).items():
            (folder / name).write_text(content)
    options.page.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
