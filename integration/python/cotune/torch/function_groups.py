"""The process groups in which Python functions of the user communicate while they race or run for a collective.

They have the ranks of a process group of the user. A group whose functions have failed is taken down, and another one is made.
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

# A group that ends in the ordinary way waits so long for the kernels that it has enqueued, and looks so often.
_ENDS_WAIT_S = 5.0
_LOOK_S = 0.001
# The names of the process groups that exist for functions; collectives in them are none of the user's.
_names: set[str] = set()


def is_own(name: str) -> bool:
    """Returns true if a process group was made for functions."""
    return name in _names


def note_own(name: str) -> None:
    """Notes the name of a process group whose collectives are none of the user's."""
    _names.add(name)


@dataclasses.dataclass(eq=False)
class OwnGroup:
    """A process group for functions.

    Attributes:
      process_group: the group.
      forms: runs compiled functions.
      lock: is held to change `running`.
      running: how many functions run in it now.
      has_failed: a function has raised, and what it has begun may wait for another rank.
      is_closed: no function begins any more.
    """

    process_group: Any
    forms: Any | None = None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    running: int = 0
    has_failed: bool = False
    is_closed: bool = False
    # On GPUs, by the streams of the calls: the ends of the latest ones.
    _ends: dict[int, Any] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """A call of a function."""
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
        """Notes that a call on the current stream of the GPU is enqueued as a whole. It may not have run."""
        stream = torch.cuda.current_stream()
        end = self._ends.setdefault(stream.cuda_stream, torch.cuda.Event())
        end.record(stream)

    def close(self) -> None:
        """Ends the connections, so that functions of other ranks do not wait for this one, when no function uses them.

        Kernels of NCCL wait for their peers without end, and one that waits for a rank that has failed would keep the GPU, and
        the end of the process group as well. They are aborted. All ranks know of the failure then: each closes its group.
        Without a failure the kernels of the latest calls have 5 s to end, because an abort would leave their results wrong.
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
            # The group is closed nevertheless: no caller could do more.
            log.info("the collectives of process group %r were not aborted: %s", self.process_group.group_name, failure)

    def _end_if_unused(self) -> None:
        # destroy_process_group() of the user ends all groups.
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
            # Each call sets a timeout of its own. That of NCCL stays, because PyTorch ends the process when it is over.
            timeout_s = min(timeout_s, max(made.timeout_s, 1.0))
        name = f"{self._prefix}/{made.name}"
        group = process_groups.make_group(ranks, made.rank, self._backend, self._store, name, timeout_s)
        note_own(name)
        return OwnGroup(group, self._forms)

    def close(self, own: OwnGroup) -> None:
        own.close()
