"""The groups of cotune behind PyTorch's process groups: made when an operator first runs.

The ranks of a process group meet through its own store, say whether each of them can make a group of cotune,
and make it, all of them or none. Where that fails, the name is "plain": programs of that group run by PyTorch's
own collectives, on all of its ranks, and one warning says why.
"""

from __future__ import annotations

import ctypes
import dataclasses
import datetime
import json
import os
import pathlib
import threading
import weakref
from typing import Any

import torch

from cotune import _native
from cotune.constants import Numerics, Result
from cotune.errors import CotuneError
from cotune.group import Group
from cotune.torch import compat, library
from cotune.torch.log import log

# How much of an error goes through the store.
_REASON_CHARACTERS_MAX = 1000


@dataclasses.dataclass(frozen=True)
class TuneSettings:
    """How groups that are made from now on tune. Equal on all ranks.

    Attributes:
      tunes: False: programs run by the table that the database holds, or by the default choices.
      budget_s: seconds after which a tune stops to measure; None: the setting `budget` of cotune.
      numerics: "any": whatever is fastest; "same": only choices whose bits are those of the default.
      database: the file that keeps what was tuned; "": the machine's own; None: none.
    """

    tunes: bool = True
    budget_s: float | None = None
    numerics: str = "any"
    database: str | None = ""

    @classmethod
    def of(cls, **options: Any) -> TuneSettings:
        """Settings of named options. Raises TypeError for an unknown name or a value that cannot be."""
        settings = cls(**options)
        if settings.numerics not in ("any", "same"):
            raise TypeError(f"option 'numerics' is \"any\" or \"same\", and not {settings.numerics!r}")
        if settings.budget_s is not None and not settings.budget_s > 0:
            raise TypeError(f"option 'budget_s' is a number of seconds, and not {settings.budget_s!r}")
        return settings

    def as_struct(self) -> library.GroupOptions:
        return library.GroupOptions(
            is_untuned=int(not self.tunes),
            budget_ns=0 if self.budget_s is None else max(1, int(self.budget_s * 1e9)),
            numerics=Numerics[self.numerics.upper()],
            database_path=None if self.database is None else os.fsencode(self.database),
        )


class _StoreOfGroup:
    """torch's store as cotune's (cotune.Store). Its own connection, where the store can have one."""

    def __init__(self, store: Any):
        self._store = store

    def put(self, key: str, value: bytes, timeout_s: float) -> None:
        self._store.set(key, value)

    def get(self, key: str, timeout_s: float) -> bytes:
        self._wait(key, timeout_s)
        return self._store.get(key)

    def erase(self, key: str, timeout_s: float) -> None:
        self._store.delete_key(key)

    def _wait(self, key: str, timeout_s: float) -> None:
        try:
            self._store.wait([key], datetime.timedelta(seconds=timeout_s))
        except RuntimeError as failure:
            # DistStoreError: what torch raises when the time is over.
            raise TimeoutError(str(failure)) from failure


@dataclasses.dataclass
class GroupEntry:
    """What one process group is to cotune on one kind of device.

    Attributes:
      name: of the process group.
      device: "host", or "cuda:N".
      group: None where none could be made.
      reason: why it is plain, though a group was made perhaps; "" where programs run by the group.
    """

    name: str
    device: str
    group: Group | None
    reason: str

    @property
    def is_plain(self) -> bool:
        """Whether programs run by PyTorch's own collectives."""
        return self.group is None or self.reason != ""


_lock = threading.Lock()
_entries: dict[tuple[str, bool], GroupEntry] = {}
_settings = TuneSettings()


def configure(settings: TuneSettings) -> None:
    """Settings of the groups that are made from now on."""
    global _settings
    with _lock:
        _settings = settings


def entries() -> list[GroupEntry]:
    """The groups of this process, in the order of their making."""
    with _lock:
        return list(_entries.values())


def group_of(name: str) -> Group | None:
    """The group of cotune behind a process group; None where it is plain or no operator has run.

    It is used by one thread at a time, and not while an operator of that group runs.
    """
    with _lock:
        found = [each for (each_name, _), each in _entries.items() if each_name == name]
    return next((each.group for each in found if not each.is_plain), None)


def become_plain(name: str, is_on_host: bool, reason: str) -> None:
    """Notes that the operators do not use the group any more. It lives until its process group is destroyed."""
    with _lock:
        if (entry := _entries.get((name, is_on_host))) is not None:
            entry.reason = reason


def _place(device: int) -> str:
    return "host" if device < 0 else f"cuda:{device}"


def _host_id() -> str:
    """Equal for processes that share memory: one boot of one machine, one /dev/shm."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    shared = os.stat("/dev/shm")
    return f"{boot}/{shared.st_dev}"


def _readiness() -> str:
    """Why this rank cannot make a group; "" when it can."""
    try:
        _native.library()
        library.load()
    except (CotuneError, compat.Unsupported, OSError) as failure:
        return str(failure)
    return ""


class _Meeting:
    """The ranks of a process group, by its store: each says a word and reads those of all others."""

    def __init__(self, process_group: Any, device: int, timeout_s: float):
        self.rank = process_group.rank()
        self.size = process_group.size()
        self._timeout = datetime.timedelta(seconds=timeout_s)
        store = process_group.get_group_store()
        try:
            store = store.clone()
        except (RuntimeError, AttributeError):
            pass  # a store without connections
        kind = "host" if device < 0 else "cuda"
        arrivals = store.add(f"cotune/{kind}/arrivals", 1)
        # A store may outlive a process group, and hold what its ranks have said.
        attempt = (arrivals - 1) // self.size
        self.store = torch.distributed.PrefixStore(f"cotune/{kind}/{attempt}", store)

    def share(self, step: str, word: dict[str, str]) -> list[dict[str, str]]:
        self.store.set(f"{step}/{self.rank}", json.dumps(word))
        keys = [f"{step}/{rank}" for rank in range(self.size)]
        self.store.wait(keys, self._timeout)
        return [json.loads(self.store.get(key)) for key in keys]


def _first_reason(words: list[dict[str, str]]) -> str:
    for rank, word in enumerate(words):
        if word["reason"]:
            return f"rank {rank}: {word['reason']}"
    hosts = {word.get("host", "") for word in words}
    if len(hosts) > 1:
        return f"its ranks are on {len(hosts)} hosts, and cotune's groups are of one host"
    return ""


def _make(name: str, process_group: Any, device: int) -> GroupEntry:
    """Collective over the ranks of the process group."""
    place = _place(device)
    timeout_s = compat.group_timeout_s(process_group, device)
    meeting = _Meeting(process_group, device, timeout_s)
    ready = meeting.share("ready", {"reason": _readiness(), "host": _host_id()})
    if reason := _first_reason(ready):
        return GroupEntry(name, place, None, reason)
    group, failure = None, ""
    try:
        group = Group(
            meeting.rank,
            meeting.size,
            store=_StoreOfGroup(meeting.store),
            memory="host" if device < 0 else "cuda",
            join_timeout_s=timeout_s,
            call_timeout_s=timeout_s,
            log=log,
            ignores_database=_settings.database is None,
        )
    except CotuneError as error:
        failure = str(error)[:_REASON_CHARACTERS_MAX]
    made = meeting.share("made", {"reason": failure})
    if reason := _first_reason(made):
        if group is not None:
            group.destroy()
        return GroupEntry(name, place, None, reason)
    return GroupEntry(name, place, group, "")


def _why_plain(process_group: Any) -> str:
    if process_group.size() == 1:
        return "it has one rank"
    if "fake" in compat.group_backend(process_group):
        return "its backend is fake"
    return ""


def _register(entry: GroupEntry, device: int, settings: TuneSettings) -> None:
    if not library.is_there():
        return
    functions = library.load()
    options = settings.as_struct()
    name = entry.name.encode()
    if entry.group is None:
        result = functions.cotune_torch_group_register(name, device, None, None)
    else:
        with entry.group._handle.exclusive() as address:
            result = functions.cotune_torch_group_register(
                name, device, address, ctypes.byref(options)
            )
    if result != Result.SUCCESS:
        raise RuntimeError(f"group {entry.name!r} on {entry.device} was not accepted ({result})")


def drop(name: str) -> None:
    """Forgets the groups of that name, which are destroyed. No operator of them runs afterwards."""
    if library.is_there():
        library.load().cotune_torch_group_unregister(name.encode())
    with _lock:
        dropped = [_entries.pop(key) for key in list(_entries) if key[0] == name]
    for entry in dropped:
        if entry.group is not None:
            entry.group.destroy()


def _drop_in(process: int, name: str) -> None:
    # A child that was forked has the finalizers of its parent, too.
    if os.getpid() == process:
        drop(name)


def resolve(name: str, device: int) -> None:
    """Makes and registers the group of a process group; collective over its ranks.

    Raises RuntimeError where there is no such process group, and what its store raises.
    """
    process_group = compat.resolve_group(name)
    if process_group is None:
        raise RuntimeError(
            f"there is no process group named {name!r}: torch.distributed is not initialised, or the "
            "group was destroyed; call the compiled model while its process group exists"
        )
    with torch.cuda.device(device) if device >= 0 else torch.no_grad():
        if reason := _why_plain(process_group):
            entry = GroupEntry(name, _place(device), None, reason)
        else:
            entry = _make(name, process_group, device)
    if entry.group is None and process_group.rank() == 0:
        log.warning(
            "programs of process group %r run by PyTorch's own collectives, on all of its ranks: %s",
            name,
            entry.reason,
        )
    with _lock:
        settings = _settings
        first = all(each != name for each, _ in _entries)
        _entries[name, device < 0] = entry
    _register(entry, device, settings)
    if first:
        weakref.finalize(
            compat.object_of_group_life(process_group), _drop_in, os.getpid(), name
        )


def ensure(name: str, device: int) -> None:
    """The same where no operator of the group has run on such a device yet."""
    with _lock:
        known = (name, device < 0) in _entries
    if not known:
        resolve(name, device)


def _on_resolve(_, name: bytes, device: int, error) -> int:
    try:
        resolve(name.decode(), device)
        return Result.SUCCESS
    except BaseException as failure:  # noqa: BLE001  nothing may be raised through C
        if error:
            error.contents.text = str(failure).encode(errors="replace")[:1023]
            error.contents.rank = -1
        return getattr(failure, "result", Result.ERROR_ENVIRONMENT)


_resolver = library.RESOLVER(_on_resolve)


def install() -> None:
    """Lets the operators find their groups here."""
    library.load().cotune_torch_set_resolver(_resolver, None)


