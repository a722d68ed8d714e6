"""The process groups in which Python functions of the user communicate while they race or run for a collective.

Each has the ranks of a process group of the user. A group whose functions have failed is closed, and a new one is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch

from cotune.functions import FunctionGroup
from cotune.torch import process_groups
from cotune.torch.log import log

# close() without a failure waits at most so many seconds for the kernels that were enqueued, and checks them at this interval.
_ENDS_WAIT_S = 5.0
_LOOK_S = 0.001
# The names of the process groups that exist for functions, whose collectives are not the user's.
_names: set[str] = set()


def is_own(name: str) -> bool:
    """Returns true if a process group was made for functions."""
    return name in _names


def note_own(name: str) -> None:
    """Notes the name of a process group whose collectives are not the user's."""
    _names.add(name)


@dataclasses.dataclass(eq=False)
class OwnGroup:
    """A process group for functions.

    Attributes:
      process_group: the group.
      forms: runs compiled functions (function_forms.Forms); None if there are none.
      lock: is held to change `running`.
      running: how many functions run in it now.
      has_failed: a function has raised, so that its collectives may wait for another rank for ever.
      is_closed: close() has been called, and no function starts any more.
    """

    process_group: Any
    forms: Any | None = None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    running: int = 0
    has_failed: bool = False
    is_closed: bool = False
    # On GPUs, events at the ends of the latest calls, by the streams of the calls.
    _ends: dict[int, Any] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Counts a call of a function in the block as running, and notes a failure."""
        with self.lock:
            self.running += 1
        try:
            yield
        except BaseException:
            self.has_failed = True
            raise
        finally:
            with self.lock:
                self.running -= 1
                self._end_if_unused()

    def note_enqueued(self) -> None:
        """Notes that all work of a call is enqueued on the current stream of the GPU. It may not have run yet."""
        stream = torch.cuda.current_stream()
        end = self._ends.setdefault(stream.cuda_stream, torch.cuda.Event())
        end.record(stream)

    def close(self) -> None:
        """Destroys the process group as soon as no function runs in it, so that functions of other ranks do not wait for this one.

        Kernels of NCCL wait for their peers without end. A kernel that waits for a rank that has failed would block the GPU and
        the end of the process group, so that kernels are aborted after a failure; each rank learns of it and closes its group.
        Without a failure the kernels of the latest calls get 5 s to end first, because an abort makes their results wrong.
        """
        with self.lock:
            self.is_closed = True
            if process_groups.runs_cuda_by_nccl(self.process_group):
                self._wait_for_ends()
                if self._may_wait():
                    self._abort()
            self._end_if_unused()

    def _wait_for_ends(self) -> None:
        end_s = time.monotonic() + _ENDS_WAIT_S
        while not (self.has_failed or self.running > 0) and self._may_wait() and time.monotonic() < end_s:
            time.sleep(_LOOK_S)

    def _may_wait(self) -> bool:
        """Returns true if kernels of the group may wait for another rank."""
        return self.has_failed or self.running > 0 or not all(_has_ended(each) for each in self._ends.values())

    def _abort(self) -> None:
        if not self.has_failed:
            log.warning("kernels of functions in process group %r have not ended, and are aborted", self.process_group.group_name)
        try:
            process_groups.abort_collectives(self.process_group)
        except RuntimeError as failure:
            # The group is closed nevertheless, because no caller could do more.
            log.info("the collectives of process group %r were not aborted: %s", self.process_group.group_name, failure)

    def _end_if_unused(self) -> None:
        # The user's destroy_process_group() may have destroyed this group already.
        name = self.process_group.group_name
        if self.is_closed and self.running == 0 and process_groups.resolve_group(name) is self.process_group:
            torch.distributed.destroy_process_group(self.process_group)
            _names.discard(name)


def _has_ended(end: Any) -> bool:
    try:
        return end.query()
    except RuntimeError:
        return False  # an error of the GPU


class Groups:
    """Makes the process groups in which functions communicate, one for each attempt."""

    def __init__(self, process_group: Any, store: Any, prefix: str, forms: Any | None):
        self._process_group = process_group
        self._forms = forms
        self._store = store
        self._prefix = prefix
        self._global_ranks = process_groups.global_ranks(process_group)
        self._backend = process_groups.backend_to_repeat(process_group)

    def open(self, made: FunctionGroup) -> Any:
        ranks = [self._global_ranks[each] for each in made.job_ranks]
        timeout_s = process_groups.group_timeout_s(self._process_group, -1 if made.device is None else made.device)
        if made.device is None:
            # Each call on host memory sets its own timeout. NCCL keeps the user's, because PyTorch ends the process after it.
            timeout_s = min(timeout_s, max(made.timeout_s, 1.0))
        name = f"{self._prefix}/{made.name}"
        group = process_groups.make_group(ranks, made.rank, self._backend, self._store, name, timeout_s)
        note_own(name)
        return OwnGroup(group, self._forms)

    def close(self, own: OwnGroup) -> None:
        own.close()
