"""Steps that all ranks of a process group do together, in a further process group that is made anew after each failure.

After each step the ranks exchange whether it has succeeded on all of them, so that no rank waits for one that has failed. All
steps of a meeting share one time budget. The ranks learn together that it is used up, by the words that they give after a step.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from cotune.torch import function_groups, process_groups
from cotune.torch.log import log
from cotune.torch.meeting import Place, Word

if TYPE_CHECKING:
    from typing_extensions import Self

_TEXT_CHARACTERS_MAX = 300
# While this rank may wait for its GPU, it checks at this interval whether another rank has failed.
_LOOK_S = 0.1

# Gives the word of this rank to a meeting of that name, and returns the words of all ranks.
Share = Callable[[str, Word], list[Word]]


class DroppedOut(Exception):
    """A step has failed on a rank; the text is the reason, equal on all ranks."""


class JointSteps:
    """The steps of one meeting. All ranks make one, and call its methods in the same order."""

    # The purpose of the further process group, for messages.
    _used_for = ""

    def __init__(
        self, place: Place, process_group: Any, device: int, share: Share, name: str, timeout_s: float, budget_s: float
    ):
        """
        Args:
          name: the name of the meeting, unique for this process group and kind of device.
          timeout_s: seconds after which a collective on host memory fails, which ends its race.
          budget_s: seconds for all races together. A step that has begun goes on to its end.
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
        self._steps = itertools.count()  # numbers of the steps, equal on all ranks
        self._groups = itertools.count()
        self._own: Any = None
        self._aborted: Any = None  # the process group whose collectives this rank has aborted

    @contextlib.contextmanager
    def session(self) -> Iterator[Self]:
        """Starts the time budget for races in the block, and destroys their process group at its end."""
        self._end_s = time.monotonic() + self._budget_s
        try:
            yield self
        finally:
            self._close()

    def _over_text(self) -> str:
        return f"the {self._budget_s:g} s for this meeting were used up"

    def _prepare(self, what: str, run: Callable[[], Any]) -> Any:
        """Does the same as _try() for work without other ranks. On a GPU it waits until all of the work is done."""

        def and_wait() -> Any:
            result = run()
            if self._device >= 0:
                torch.cuda.synchronize(self._torch_device)
            return result

        return self._try(what, and_wait)

    def _try(self, what: str, run: Callable[[], Any]) -> Any:
        """Runs one step, and returns the result of `run` on this rank. Collective over the ranks.

        Raises DroppedOut on all ranks if `run` has raised on one, or if the budget was used up before. `what` describes the step
        for messages, as in "rank 1 could not WHAT".
        """
        if self._is_over:
            raise DroppedOut(self._over_text())
        step = next(self._steps)
        result, failure, order = None, "", 0
        try:
            with self._ended_by_failures(step):
                result = run()
        except Exception as error:  # noqa: BLE001  the other ranks wait for the word of this one
            failure = f"{type(error).__name__}: {error}".splitlines()[0][:_TEXT_CHARACTERS_MAX]
            log.info("a rank could not %s: %s", what, error, exc_info=True)
            order = self._place.store.add(self._failed_key(step), 1)
            if not self._is_ended_by_abort:
                # The other ranks then find their connections closed, and need not wait for their timeouts.
                self._close()
        is_late = time.monotonic() >= self._end_s
        words = self._share_words(str(step), {"failure": failure, "order": order, "is_late": is_late})
        self._is_over = any(each["is_late"] for each in words)
        if any(each["failure"] for each in words):
            self._abort()
            # The first failure is reported: those of other ranks may follow from it.
            first = min((each for each in words if each["failure"]), key=lambda each: each["order"])
            rank = self._place.global_ranks[words.index(first)]
            raise DroppedOut(f"rank {rank} could not {what}: {first['failure']}")
        return result

    def _failed_key(self, step: int) -> str:
        """The key of the store that counts the ranks that have failed in a step."""
        return f"{self._name}/failed/{step}"

    @property
    def _is_ended_by_abort(self) -> bool:
        """Returns true for NCCL on GPUs: its kernels wait for their peers without end, unless their rank aborts them."""
        return self._device >= 0 and process_groups.runs_cuda_by_nccl(self._process_group)

    @contextlib.contextmanager
    def _ended_by_failures(self, step: int) -> Iterator[None]:
        """Aborts kernels of NCCL that run in the block if another rank fails in this step, and then raises RuntimeError.

        The host may wait for such a kernel in the block, so that another thread checks for failures.
        """
        if not self._is_ended_by_abort:
            yield
            return
        has_ended, other_has_failed = threading.Event(), threading.Event()

        def watch() -> None:
            while not has_ended.wait(_LOOK_S):
                if self._place.store.check([self._failed_key(step)]):
                    other_has_failed.set()
                    self._abort_collectives()
                    return

        watcher = threading.Thread(target=watch, name="cotune failures")
        watcher.start()
        try:
            yield
        finally:
            has_ended.set()
            watcher.join()
        if other_has_failed.is_set():
            # The results of the block are wrong, because its collectives did not come to their end.
            raise RuntimeError("another rank has failed, so that the collectives of this rank were aborted")

    def _take_group(self) -> Any:
        """Returns the process group of these steps to the caller, who keeps it: the end of the session does not destroy it."""
        own, self._own = self._own, None
        return own

    def _group(self) -> str:
        """Returns the name of the process group of these steps. If there is none, all ranks make it together."""
        if self._own is None:
            self._try(f"make a process group for {self._used_for}", self._open)
            # NCCL makes its communicator with the first collective.
            self._try(f"run a collective in the process group for {self._used_for}", self._call_first)
        return self._own.group_name

    def _call_first(self) -> None:
        torch.distributed.all_reduce(torch.zeros(1, device=self._torch_device), group=self._own)
        if self._device >= 0:
            torch.cuda.synchronize(self._torch_device)

    def _open(self) -> None:
        name = f"cotune/{self._place.name}/{self._torch_device.type}/{self._name}/{next(self._groups)}"
        function_groups.note_own(name)
        timeout_s = self._timeout_s if self._device < 0 else self._place.timeout_s
        self._own = process_groups.make_group(
            self._place.global_ranks, self._place.rank, process_groups.backend_to_repeat(self._process_group), self._place.store,
            name, timeout_s,
        )  # fmt: skip

    def _abort(self) -> None:
        """Destroys the process group after a failure that all ranks have learned of."""
        if self._is_ended_by_abort:
            self._abort_collectives()
        self._close()

    def _abort_collectives(self) -> None:
        """Ends the kernels of the process group on this rank, whose peers may never come. The group is not used any more."""
        own = self._own
        if own is not None and own is not self._aborted:
            self._aborted = own
            process_groups.abort_collectives(own)

    def _close(self) -> None:
        own, self._own = self._own, None
        if own is not None and self._device >= 0:
            # NCCL destroys a communicator only after the CUDA graphs that hold calls of it are gone.
            gc.collect()
        # The user's destroy_process_group() may have destroyed this group already.
        if own is not None and process_groups.resolve_group(own.group_name) is own:
            torch.distributed.destroy_process_group(own)
