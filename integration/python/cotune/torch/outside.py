"""Counts the collectives that PyTorch has run without a request of cotune.

These are the collectives outside of compiled graphs, which the pass does not see, and those that compiled graphs leave to
PyTorch. PyTorch numbers the collectives of each backend of a process group, whoever calls them: DDP's reducer in C++, the hooks
of FSDP2, eager calls, also with async_op=True. The count is the sum of these numbers, less the collectives that cotune has
requested from PyTorch. The count costs nothing in a call, and nothing of torch is replaced.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from typing import Any

from cotune.torch import function_groups, process_groups

_lock = threading.Lock()
# The number of collectives in each process group that operators of cotune have run by PyTorch.
_own: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


@dataclasses.dataclass
class OutsideCount:
    """The collectives that PyTorch has numbered and that are not cotune's.

    Attributes:
      calls: their number in the process groups that exist and count their calls. It includes the collectives that compiled
        graphs leave to PyTorch.
      uncounted: the names of the process groups whose backend counts nothing.
      groups: the number of process groups, without fake ones.
    """

    calls: int = 0
    uncounted: list[str] = dataclasses.field(default_factory=list)
    groups: int = 0


def add_own(group_name: str) -> None:
    """Notes that an operator of cotune runs one collective by PyTorch."""
    group = process_groups.resolve_group(group_name)
    if group is None:
        return
    with _lock:
        _own[group] = _own.get(group, 0) + 1


def count() -> OutsideCount:
    """Counts the collectives so far."""
    found = OutsideCount()
    for name, group in process_groups.named_process_groups().items():
        if "fake" in process_groups.group_backend(group) or function_groups.is_own(name):
            continue
        found.groups += 1
        made = process_groups.collectives_made(group)
        if made is None:
            found.uncounted.append(name)
            continue
        with _lock:
            own = _own.get(group, 0)
        found.calls += max(made - own, 0)
    return found
