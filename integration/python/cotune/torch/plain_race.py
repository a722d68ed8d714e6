"""Races between tuned programs or graphs and PyTorch's form of them, on all ranks of a process group together.

For cotune, the operator runs as graphs call it, with the choice that has won the tune. PyTorch's form of a program is its
collectives and the operations around them compiled by Inductor; that of a graph is the graph without programs. Both run in
every round, on operands that are made for the race. Nothing of the user's graph runs.

PyTorch's collectives run in a further process group: a form that fails on one rank leaves collectives unfinished, which must not
disturb those of the model. That process group is made anew after each failure.

Before the ranks run something together, each prepares its part, and all learn whether every rank is ready: no rank waits for one
that fails to compile or to get memory. All races of a meeting share one time budget. The ranks learn together that it is used up,
by the words that they give after a step, and do not run the remaining races.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from cotune._interrupt import keeper
from cotune.torch import plain, plain_form, process_groups, race_memory
from cotune.torch.given_back import Verdict
from cotune.torch.joint_steps import DroppedOut, JointSteps
from cotune.torch.timed_rounds import ROUNDS_MIN, Call, Rounds, ratio_of
from cotune.torch.whole_graph import WholeGraph

# The time limit of one race, in seconds, without compiling.
LIMIT_S = 4.0
_AGREED = "agreed"


@dataclasses.dataclass(frozen=True)
class Contest:
    """A program at one row count."""

    name: str
    text: str
    rows: int


class PlainRace(JointSteps):
    """The races of one meeting. All ranks make one with the same contests, and call its methods in the same order."""

    _used_for = "PyTorch's form"

    # Contests.

    def run_program(self, contest: Contest) -> Verdict:
        """Races a program at one row count, and returns the verdict. Collective over the ranks."""
        verdict = Verdict(contest.name, contest.text, contest.rows)
        if plain.has_average(contest.text) and not process_groups.averages(self._process_group, self._torch_device.type):
            return dataclasses.replace(verdict, why_not="PyTorch's collectives of this process group give no averages")
        try:
            return self._alone(contest, verdict) or self._whole(contest, verdict)
        except DroppedOut as failure:
            return dataclasses.replace(verdict, why_not=str(failure))

    def run_graph(self, graph: WholeGraph, without: Callable[[], contextlib.AbstractContextManager[Any]]) -> Verdict:
        """Races a graph with all its programs against the graph with fewer, and returns the verdict. Collective over the ranks.

        The latter is made in the block of `without()`, in which some collectives count as given back.
        """
        verdict = Verdict("", graph.digest, 0)
        device, ranks = self._torch_device, self._place.size
        try:
            own = self._group()
            made = self._prepare("make both forms of the graph", lambda: graph.compiled(own, device, ranks, without()))
            ways = self._try("run both forms of the graph", lambda: graph.as_run(made, device))
            return self._judge(verdict, "run both forms of the graph", ways["cotune"], ways["plain"])
        except DroppedOut as failure:
            return dataclasses.replace(verdict, why_not=str(failure))

    def _alone(self, contest: Contest, verdict: Verdict) -> Verdict | None:
        """Races a program against PyTorch's collectives alone. Returns the verdict if these already take longer, or None."""
        ranks, device, own = self._place.size, self._torch_device, self._group()
        made = lambda: plain_form.collectives_alone(contest.text, contest.rows, ranks, device, own)  # noqa: E731
        cotune, alone = self._prepare("make the operands", lambda: (self._by_cotune(contest), made()))
        found = self._judge(verdict, "run PyTorch's collectives", cotune, alone)
        is_slower = found.ratio is not None and found.ratio[2] < 1
        return dataclasses.replace(found, is_bound=True, gives_back=False) if is_slower or found.why_not else None

    def _whole(self, contest: Contest, verdict: Verdict) -> Verdict:
        own = self._group()
        example = lambda: plain_form.example_inputs(contest.text, contest.rows, self._place.size, self._torch_device)  # noqa: E731
        cotune, inputs = self._prepare("make the operands", lambda: (self._by_cotune(contest), example()))
        form = self._prepare("compile PyTorch's form", lambda: plain_form.compiled(contest.text, inputs, own))
        return self._judge(verdict, "run PyTorch's form", cotune, lambda: form(*inputs))

    def _by_cotune(self, contest: Contest) -> Call:
        ranks, device = self._place.size, self._torch_device
        race_memory.check(plain_form.bytes_of(contest.text, contest.rows, ranks), device, ranks)
        inputs = plain_form.example_inputs(contest.text, contest.rows, ranks, device)
        outputs = plain_form.example_outputs(contest.text, contest.rows, ranks, device)
        run, name = torch.ops.cotune.program.default, self._place.name
        return lambda: run(inputs, outputs, contest.text, name, _AGREED)

    def _judge(self, verdict: Verdict, what: str, cotune: Call, by_pytorch: Call) -> Verdict:
        """Times both, and returns the verdict with their times."""
        ways = {"cotune": cotune, "plain": by_pytorch}
        times = self._try(what, lambda: self._timed(ways))
        ratio = ratio_of(times["cotune"], times["plain"])
        if ratio is None:
            few = f"fewer than {ROUNDS_MIN} rounds fit in its time, or Ctrl-C ended it"
            return dataclasses.replace(verdict, why_not=self._over_text() if self._is_over else few)
        return dataclasses.replace(
            verdict,
            cotune_us=statistics.median(times["cotune"]),
            plain_us=statistics.median(times["plain"]),
            ratio=(ratio.low, ratio.middle, ratio.high),
            gives_back=ratio.low > 1,
        )

    def _timed(self, ways: dict[str, Call]) -> dict[str, list[float]]:
        limit_s = min(LIMIT_S, max(0.0, self._end_s - time.monotonic()))
        return Rounds(self._own, self._device).time(ways, limit_s, lambda: keeper.ends_tune)

    def _over_text(self) -> str:
        return (
            f"the {self._budget_s:g} s for races with PyTorch's form at this meeting were over (option races_plain_budget_s); a "
            "later process measures what is left"
        )
