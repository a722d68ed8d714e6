"""Races between what cotune has tuned and PyTorch's form of the same, on all ranks of a process group together.

The contender of cotune is the operator as graphs call it, with the choice that has won the tune. PyTorch's form of a program
is its collectives and the operations around them compiled by Inductor; that of a graph is the graph without programs. Both
run in every round, on operands that are made for it. Nothing of the user's graph runs.

PyTorch's collectives run in a process group of their own: a form that fails on one rank leaves collectives unfinished, and
must not disturb those of the model. That process group is made anew after each failure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch

from cotune._interrupt import keeper
from cotune.torch import compat, function_choices, plain_form
from cotune.torch.given_back import Verdict
from cotune.torch.log import log
from cotune.torch.meeting import Place, Word
from cotune.torch.timed_rounds import ROUNDS_MIN, Call, Rounds, ratio_of
from cotune.torch.whole_graph import WholeGraph

# The time of one race, without compiling.
LIMIT_S = 4.0
_TEXT_CHARACTERS_MAX = 300
_AGREED = "agreed"

# Gives the words of all ranks at a meeting of that name.
Share = Callable[[str, Word], list[Word]]


@dataclasses.dataclass(frozen=True)
class Contest:
    """A program at one row count."""

    name: str
    text: str
    rows: int


class _DroppedOut(Exception):
    """PyTorch's form has failed on a rank; the text is the reason, equal on all ranks."""


class PlainRace:
    """The races of one meeting. All ranks make one with the same contests, and call its methods in the same order."""

    def __init__(self, place: Place, process_group: Any, device: int, share: Share, timeout_s: float, name: str):
        """`name`: of the meeting, which no other one of this process group and kind of device has."""
        self._place = place
        self._name = name
        self._process_group = process_group
        self._device = device
        self._torch_device = torch.device("cpu") if device < 0 else torch.device("cuda", device)
        self._share_words = share
        self._timeout_s = timeout_s
        self._steps = itertools.count()  # what all ranks do together
        self._groups = itertools.count()
        self._own: Any = None

    @contextlib.contextmanager
    def session(self) -> Iterator[PlainRace]:
        """The block in which races run; its end takes down the process group that they have used."""
        try:
            yield self
        finally:
            self._close()

    # Contests.

    def run_program(self, contest: Contest) -> Verdict:
        """The verdict about a program at one row count."""
        verdict = Verdict(contest.name, contest.text, contest.rows)
        try:
            return self._alone(contest, verdict) or self._whole(contest, verdict)
        except _DroppedOut as failure:
            return dataclasses.replace(verdict, why_not=str(failure))

    def run_graph(self, graph: WholeGraph) -> Verdict:
        """The verdict about a graph with the programs that are left in it."""
        verdict = Verdict("", graph.digest, 0)
        try:
            ways = self._try("make both forms of the graph", lambda: graph.ways(self._open(), self._torch_device))
            return self._judge(verdict, "run both forms of the graph", ways["cotune"], ways["plain"])
        except _DroppedOut as failure:
            return dataclasses.replace(verdict, why_not=str(failure))

    def _alone(self, contest: Contest, verdict: Verdict) -> Verdict | None:
        """The verdict if PyTorch's collectives alone already take longer; None otherwise."""
        ranks = self._place.size
        own = self._try("make a process group for PyTorch's form", self._open)
        made = lambda: plain_form.collectives_alone(contest.text, contest.rows, ranks, self._torch_device, own)  # noqa: E731
        cotune, alone = self._try("make the operands", lambda: (self._by_cotune(contest), made()))
        found = self._judge(verdict, "run PyTorch's collectives", cotune, alone)
        is_slower = found.ratio is not None and found.ratio[2] < 1
        return dataclasses.replace(found, is_bound=True, gives_back=False) if is_slower or found.why_not else None

    def _whole(self, contest: Contest, verdict: Verdict) -> Verdict:
        example = lambda: plain_form.example_inputs(contest.text, contest.rows, self._place.size, self._torch_device)  # noqa: E731
        cotune, inputs = self._try("make the operands", lambda: (self._by_cotune(contest), example()))
        form = self._try("compile PyTorch's form", lambda: plain_form.compiled(contest.text, inputs, self._open()))
        return self._judge(verdict, "run PyTorch's form", cotune, lambda: form(*inputs))

    def _by_cotune(self, contest: Contest) -> Call:
        ranks, device = self._place.size, self._torch_device
        inputs = plain_form.example_inputs(contest.text, contest.rows, ranks, device)
        outputs = plain_form.example_outputs(contest.text, contest.rows, ranks, device)
        run, name = torch.ops.cotune.program.default, self._place.name
        return lambda: run(inputs, outputs, contest.text, name, _AGREED)

    def _judge(self, verdict: Verdict, what: str, cotune: Call, by_pytorch: Call) -> Verdict:
        """The verdict with the times of both."""
        ways = {"cotune": cotune, "plain": by_pytorch}
        times = self._try(what, lambda: self._timed(ways))
        ratio = ratio_of(times["cotune"], times["plain"])
        if ratio is None:
            return dataclasses.replace(verdict, why_not=f"fewer than {ROUNDS_MIN} rounds fit its time, or Ctrl-C ended it")
        return dataclasses.replace(
            verdict,
            cotune_us=statistics.median(times["cotune"]),
            plain_us=statistics.median(times["plain"]),
            ratio=(ratio.low, ratio.middle, ratio.high),
            gives_back=ratio.low > 1,
        )

    def _timed(self, ways: dict[str, Call]) -> dict[str, list[float]]:
        return Rounds(compat.resolve_group(self._open()), self._device).time(ways, LIMIT_S, lambda: keeper.ends_tune)

    # Steps that all ranks do together.

    def _try(self, what: str, run: Callable[[], Any]) -> Any:
        """The result of `run` on this rank. Raises _DroppedOut on all ranks if it has raised on one."""
        step = next(self._steps)
        result, failure, order = None, "", 0
        try:
            result = run()
        except Exception as error:  # noqa: BLE001  the other ranks wait for the word of this one
            failure = f"{type(error).__name__}: {error}".splitlines()[0][:_TEXT_CHARACTERS_MAX]
            log.info("a rank could not %s: %s", what, error, exc_info=True)
            order = self._place.store.add(f"{self._name}/failed/{step}", 1)
            # The others find closed connections, and need not wait for their timeouts.
            self._close()
        words = self._share_words(str(step), {"failure": failure, "order": order})
        if any(each["failure"] for each in words):
            self._close()
            # The failures of others may follow from the first.
            first = min((each for each in words if each["failure"]), key=lambda each: each["order"])
            rank = self._place.global_ranks[words.index(first)]
            raise _DroppedOut(f"rank {rank} could not {what}: {first['failure']}")
        return result

    def _open(self) -> str:
        """The name of the process group for PyTorch's collectives, which is made if there is none."""
        if self._own is None:
            name = f"cotune/{self._place.name}/{self._torch_device.type}/{self._name}/{next(self._groups)}"
            function_choices.note_own(name)
            timeout_s = self._timeout_s if self._device < 0 else self._place.timeout_s
            self._own = compat.make_group(
                self._place.global_ranks, self._place.rank, compat.backend_to_repeat(self._process_group), self._place.store,
                name, timeout_s,
            )  # fmt: skip
        return self._own.group_name

    def _close(self) -> None:
        own, self._own = self._own, None
        if own is not None and self._device >= 0:
            # NCCL waits for the CUDA graphs that hold calls of a communicator before it takes that down.
            gc.collect()
        # destroy_process_group() of the user ends all groups.
        if own is not None and compat.resolve_group(own.group_name) is own:
            torch.distributed.destroy_process_group(own)
