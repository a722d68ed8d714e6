"""Races between what cotune has tuned and PyTorch's form of the same, on all ranks of a process group together.

The contender of cotune is the operator as graphs call it, with the choice that has won the tune. PyTorch's form of a program
is its collectives and the operations around them compiled by Inductor; that of a graph is the graph without programs. Both
run in every round, on operands that are made for it. Nothing of the user's graph runs.

PyTorch's collectives run in a process group of their own: a form that fails on one rank leaves collectives unfinished, and
must not disturb those of the model. That process group is made anew after each failure.

Before all ranks run something together, each prepares its part, and all of them learn whether everybody is ready: a failure to
compile, or to get memory, keeps nobody waiting. All races of a meeting have one bound of time. The ranks learn together that
it is over, with the words of a step, and the rest is not compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from cotune._interrupt import keeper
from cotune.torch import compat, function_choices, plain, plain_form, race_memory
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

    def __init__(
        self, place: Place, process_group: Any, device: int, share: Share, name: str, timeout_s: float, budget_s: float
    ):
        """
        Args:
          name: of the meeting, which no other one of this process group and kind of device has.
          timeout_s: a collective on host memory that takes longer ends its race.
          budget_s: the time of all races together. A step that has begun goes on to its end.
        """
        self._place = place
        self._name = name
        self._process_group = process_group
        self._device = device
        self._torch_device = torch.device("cpu") if device < 0 else torch.device("cuda", device)
        self._share_words = share
        self._timeout_s = timeout_s
        self._budget_s = budget_s
        self._end_s = time.monotonic() + budget_s
        self._is_over = False  # equal on all ranks
        self._steps = itertools.count()  # what all ranks do together
        self._groups = itertools.count()
        self._own: Any = None

    @contextlib.contextmanager
    def session(self) -> Iterator[PlainRace]:
        """The block in which races run; its end takes down the process group that they have used."""
        self._end_s = time.monotonic() + self._budget_s
        try:
            yield self
        finally:
            self._close()

    # Contests.

    def run_program(self, contest: Contest) -> Verdict:
        """The verdict about a program at one row count."""
        verdict = Verdict(contest.name, contest.text, contest.rows)
        if plain.has_average(contest.text) and not compat.averages(self._process_group, self._torch_device.type):
            return dataclasses.replace(verdict, why_not="PyTorch's collectives of this process group give no averages")
        try:
            return self._alone(contest, verdict) or self._whole(contest, verdict)
        except _DroppedOut as failure:
            return dataclasses.replace(verdict, why_not=str(failure))

    def run_graph(self, graph: WholeGraph, without: Callable[[], contextlib.AbstractContextManager[Any]]) -> Verdict:
        """The verdict about a graph with all its programs, and with those that are left in the block that `without` gives."""
        verdict = Verdict("", graph.digest, 0)
        device, ranks = self._torch_device, self._place.size
        try:
            own = self._group()
            made = self._prepare("make both forms of the graph", lambda: graph.compiled(own, device, ranks, without()))
            ways = self._try("run both forms of the graph", lambda: graph.as_run(made, device))
            return self._judge(verdict, "run both forms of the graph", ways["cotune"], ways["plain"])
        except _DroppedOut as failure:
            return dataclasses.replace(verdict, why_not=str(failure))

    def _alone(self, contest: Contest, verdict: Verdict) -> Verdict | None:
        """The verdict if PyTorch's collectives alone already take longer; None otherwise."""
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
        """The verdict with the times of both."""
        ways = {"cotune": cotune, "plain": by_pytorch}
        times = self._try(what, lambda: self._timed(ways))
        ratio = ratio_of(times["cotune"], times["plain"])
        if ratio is None:
            few = f"fewer than {ROUNDS_MIN} rounds fit its time, or Ctrl-C ended it"
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

    # Steps that all ranks do together.

    def _prepare(self, what: str, run: Callable[[], Any]) -> Any:
        """The same as _try() for what this rank does without the others. On a GPU it waits until all of it is done."""

        def and_wait() -> Any:
            result = run()
            if self._device >= 0:
                torch.cuda.synchronize(self._torch_device)
            return result

        return self._try(what, and_wait)

    def _try(self, what: str, run: Callable[[], Any]) -> Any:
        """The result of `run` on this rank. Raises _DroppedOut on all ranks if it has raised on one, or if the time is over."""
        if self._is_over:
            raise _DroppedOut(self._over_text())
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
        is_late = time.monotonic() >= self._end_s
        words = self._share_words(str(step), {"failure": failure, "order": order, "is_late": is_late})
        self._is_over = any(each["is_late"] for each in words)
        if any(each["failure"] for each in words):
            self._close()
            # The failures of others may follow from the first.
            first = min((each for each in words if each["failure"]), key=lambda each: each["order"])
            rank = self._place.global_ranks[words.index(first)]
            raise _DroppedOut(f"rank {rank} could not {what}: {first['failure']}")
        return result

    def _group(self) -> str:
        """The name of the process group for PyTorch's collectives, which all ranks make together if there is none."""
        if self._own is None:
            self._try("make a process group for PyTorch's form", self._open)
            # NCCL makes its communicator with the first collective.
            self._try("run a collective in the process group for PyTorch's form", self._call_first)
        return self._own.group_name

    def _call_first(self) -> None:
        torch.distributed.all_reduce(torch.zeros(1, device=self._torch_device), group=self._own)
        if self._device >= 0:
            torch.cuda.synchronize(self._torch_device)

    def _open(self) -> None:
        name = f"cotune/{self._place.name}/{self._torch_device.type}/{self._name}/{next(self._groups)}"
        function_choices.note_own(name)
        timeout_s = self._timeout_s if self._device < 0 else self._place.timeout_s
        self._own = compat.make_group(
            self._place.global_ranks, self._place.rank, compat.backend_to_repeat(self._process_group), self._place.store,
            name, timeout_s,
        )  # fmt: skip

    def _close(self) -> None:
        own, self._own = self._own, None
        if own is not None and self._device >= 0:
            # NCCL waits for the CUDA graphs that hold calls of a communicator before it takes that down.
            gc.collect()
        # destroy_process_group() of the user ends all groups.
        if own is not None and compat.resolve_group(own.group_name) is own:
            torch.distributed.destroy_process_group(own)
