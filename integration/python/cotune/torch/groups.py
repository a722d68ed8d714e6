"""The groups of cotune that belong to PyTorch's process groups. Each is made when an operator first runs there.

If no group of cotune can be made (group_making.py), the process group is "plain": its programs run by PyTorch's own
collectives, on all of its ranks, and one warning gives the reason.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from cotune import _native
from cotune._interrupt import callback, keeper
from cotune.constants import Result
from cotune.errors import CotuneError
from cotune.group import Group
from cotune.torch import (
    function_groups,
    group_making,
    job_settings,
    library,
    process_groups,
    verdict_file,
)
from cotune.torch.group_entry import GroupEntry, ProgramOfGroup
from cotune.torch.log import log
from cotune.torch.origins import Origin
from cotune.torch.tune_settings import TuneSettings

# The errors after which a group is always stopped.
_STOPPING = (Result.ERROR_RANK_LOST, Result.ERROR_DEADLINE, Result.ERROR_ABORTED)


@dataclasses.dataclass(frozen=True, eq=False)
class _Life:
    """The process group that a name stands for. Another one may have the name later."""

    process_group: weakref.ref[Any]


# Reentrant: a garbage collection in a thread that holds it may run the finaliser of a process group.
_lock = threading.RLock()
_entries: dict[tuple[str, int], GroupEntry] = {}  # by name and device, -1 for the host
_lives: dict[str, _Life] = {}
_settings = TuneSettings()
_dropped: list[Callable[[str], None]] = []


def when_dropped(forget: Callable[[str], None]) -> None:
    """Adds a function that is called with the name of each process group whose groups are dropped, to forget its own data."""
    _dropped.append(forget)


def configure(settings: TuneSettings) -> None:
    """Sets the settings of the groups that are made from now on."""
    global _settings
    with _lock:
        force = settings.force_of_collectives
        is_other_force = force is not None and force != _settings.force_of_collectives
        _settings = settings
    made = next((each.name for each in entries() if each.group is not None), None)
    if is_other_force and made is not None:
        log.warning(
            "force has no effect on process group %r, which has its group of cotune already; give it in a new process, before the "
            "first call of a compiled function",
            made,
        )


def tune_settings() -> TuneSettings:
    """The settings of the groups that are made now."""
    return _settings


def races_plain() -> bool:
    """Returns true if programs of groups that are made now race against PyTorch's form of them.

    They do not if nothing is measured, if the user forces choices, or if only choices with the bits of the default may run.
    """
    settings = _settings
    return settings.races_plain and settings.tunes and settings.numerics == "any" and not group_making.forces(settings)


def entries() -> list[GroupEntry]:
    """The groups of this process, in the order of their making."""
    with _lock:
        # The copy is safe from a finalizer that drops an entry during the iteration.
        return list(_entries.copy().values())


def group_of(name: str, device: torch.device | str | int | None = None) -> Group | None:
    """Returns the group of cotune for a process group; None if it is plain.

    `name` is the name of the process group, and `device` the device of the operands, for a process with groups on several
    devices. Without a device it is the first group that is not plain. Use the group in one thread at a time, and not while an
    operator of that group runs. Raises RuntimeError before an operator has run in that process group: the first one makes the
    group, on all ranks together.
    """
    place = None if device is None else group_making.place_name(_ordinal(torch.device(device)))
    with _lock:
        found = [
            each for each in _entries.copy().values() if each.name == name and place in (None, each.device)
        ]
    if not found:
        raise RuntimeError(
            f"no operator of cotune has run in process group {name!r} yet, and the first one makes the group: call a "
            "compiled model with programs, or an operator of torch.ops.cotune, on all of its ranks before"
        )
    return next((each.group for each in found if not each.is_plain), None)


def entry_of(name: str, device: int) -> GroupEntry | None:
    """Returns the state of a process group for operands on the device; None before an operator has run there."""
    with _lock:
        return _entries.get((name, device))


def process_group_of(name: str) -> Any:
    """Returns the process group of that name. Raises RuntimeError if there is none."""
    process_group = process_groups.resolve_group(name)
    if process_group is None:
        raise RuntimeError(
            f"there is no process group named {name!r}: torch.distributed is not initialised, or the "
            "group was destroyed; call the compiled model while its process group exists"
        )
    return process_group


def is_plain_anyway(name: str, device: int) -> bool:
    """Returns true if this rank knows without the others that the process group is plain on that device."""
    process_group = process_group_of(name)
    return group_making.why_plain(process_group.size(), process_groups.group_backend(process_group), device) != ""


def become_plain(name: str, device: int, reason: str) -> None:
    """Notes that the operators do not use the group any more. The group lives until its process group is destroyed."""
    with _lock:
        if (entry := _entries.get((name, device))) is not None:
            entry.reason = reason


def begin_tune(name: str, device: int, programs: Mapping[str, Iterable[int]], origin: Origin | None) -> None:
    """Notes that a tune has begun of these programs at these row counts, which the function `origin` runs."""
    with _lock:
        if (entry := _entries.get((name, device))) is None:
            return
        for text, rows in programs.items():
            program = entry.programs.setdefault(text, ProgramOfGroup())
            program.rows.update(rows)
            program.begun_unix_s = program.begun_unix_s or int(time.time())
            program.origin = program.origin or origin


def end_tune(name: str, device: int, why_untuned: Mapping[str, str], measured: Iterable[tuple[str, int]]) -> None:
    """Notes why each program of a tune is not tuned, "" if it is, and the (program, rows) that this process has measured."""
    with _lock:
        if (entry := _entries.get((name, device))) is None:
            return
        for text, why in why_untuned.items():
            if (program := entry.programs.get(text)) is not None and program.why_untuned:
                program.why_untuned = why
        for text, rows in measured:
            if text in entry.programs:
                entry.programs[text].measured.add(rows)


def _failure_of(group: Group) -> str:
    """Returns the error that every call of a stopped group raises; "" for a group that runs, or is in a call now."""
    functions = _native.library()
    try:
        with group._handle.exclusive() as address:
            if functions.cotune_last_result(address) in _STOPPING:
                return functions.cotune_last_error(address).decode(errors="replace")
    except CotuneError:
        pass
    return ""


def explain() -> list[str]:
    """Returns a line for each group: whether its programs run by cotune or by PyTorch, and why."""
    lines = []
    for entry in entries():
        if entry.is_plain:
            what = f"plain: {entry.reason}"
        elif failure := _failure_of(entry.group):
            what = f"failed, and every call raises this error: {failure}"
        else:
            what = f"a group of cotune on {entry.device}{_tuned_text(entry)}"
        lines.append(f"group {entry.name}: {what}")
    return lines


def _tuned_text(entry: GroupEntry) -> str:
    """Returns the number of tuned programs, and why the others are not tuned, as text."""
    counts = collections.Counter(program.why_untuned for program in list(entry.programs.values()))
    tuned = counts.pop("", 0)
    text = f"; {_programs_are(tuned)} tuned" if tuned else ""
    return text + "".join(f"; {_programs_are(count)} not tuned: {why}" for why, count in counts.items())


def _programs_are(count: int) -> str:
    return "1 program is" if count == 1 else f"{count} programs are"


def _ordinal(device: torch.device) -> int:
    """Returns the number of a CUDA device, by default the current one; -1 for the host."""
    if device.type != "cuda":
        return -1
    return torch.cuda.current_device() if device.index is None else device.index


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


def drop(name: str, life: _Life | None = None) -> None:
    """Destroys the groups of a process group, and forgets them. No operator uses them afterwards.

    With `life`, it does nothing if the name stands for another process group now.
    """
    with _lock:
        if life is not None and _lives.get(name) is not life:
            return
        _lives.pop(name, None)
        dropped = [_entries.pop(key) for key in _entries.copy() if key[0] == name]
    if library.is_there():
        library.load().cotune_torch_group_unregister(name.encode())
    for forget in _dropped:
        forget(name)
    for entry in dropped:
        if entry.group is not None:
            entry.group.destroy()
        if entry.forms is not None:
            entry.forms.forget()


def drop_stale() -> None:
    """Drops the groups whose process group was destroyed, even if a new process group has its name."""
    with _lock:
        lives = _lives.copy()
    for name, life in lives.items():
        found = process_groups.resolve_group(name)
        if found is None or found is not life.process_group():
            drop(name, life)


def _drop_in(process: int, name: str, life: _Life) -> None:
    # A forked child runs the finalizers of its parent as well.
    if os.getpid() == process:
        drop(name, life)


def _drop_at_end_of(process_group: Any, name: str, life: _Life) -> None:
    """Drops the groups when the process group is destroyed. The user may hold either object longer; the first that goes counts."""
    for each in (process_group, process_groups.object_of_group_life(process_group)):
        weakref.finalize(each, _drop_in, os.getpid(), name, life)


def resolve(name: str, device: int) -> None:
    """Makes and registers the group of cotune for a process group. Collective over the ranks.

    Raises RuntimeError if there is no such process group, TimeoutError if ranks do not come, a CotuneError for forced choices
    that are wrong, and the errors of the process group's store.
    """
    drop_stale()
    process_group = process_group_of(name)
    with torch.cuda.device(device) if device >= 0 else torch.no_grad():
        if function_groups.is_own(name):
            # Functions that race for a collective do not run programs themselves.
            entry = GroupEntry(name, group_making.place_name(device), None, "it belongs to functions that race")
        elif reason := group_making.why_plain(process_group.size(), process_groups.group_backend(process_group), device):
            entry = GroupEntry(name, group_making.place_name(device), None, reason)
        else:
            entry = group_making.make(name, process_group, device, tune_settings())
    if entry.group is None:
        is_news = process_group.rank() == 0 and not function_groups.is_own(name)
        log.log(
            logging.WARNING if is_news else logging.INFO,
            "programs of process group %r run by PyTorch's own collectives, on all of its ranks: %s",
            name,
            entry.reason,
        )
    with _lock:
        settings = _settings
        entry.tunes = settings.tunes
        # Only NCCL's collectives can be in the CUDA graph of a function whose collectives are given back.
        entry.races_plain = races_plain() and (device < 0 or process_groups.runs_cuda_by_nccl(process_group))
        entry.races_plain_budget_s = settings.races_plain_budget_s
        entry.verdicts_path = verdict_file.path_of(settings.database)
        entry.race_timeout_s = job_settings.autotune_timeout_s(settings.settings)
        known = _lives.get(name)
        life = known or _Life(weakref.ref(process_group))
        _lives[name] = life
        _entries[name, device] = entry
    _register(entry, device, settings)
    if known is None:
        _drop_at_end_of(process_group, name, life)


def ensure(name: str, device: int) -> None:
    """Does the same as resolve() if no operator of the process group has run on that device yet."""
    drop_stale()
    with _lock:
        known = (name, device) in _entries
    if not known:
        resolve(name, device)


@callback
def _on_resolve(_, name: bytes, device: int, error) -> int:
    try:
        resolve(name.decode(), device)
        return Result.SUCCESS
    except BaseException as failure:  # noqa: BLE001  nothing may be raised through C
        text = str(failure)
        if isinstance(failure, KeyboardInterrupt):
            keeper.raise_later()
            text = "interrupted (Ctrl-C)"
        if error:
            error.contents.text = text.encode(errors="replace")[:1023]
            error.contents.rank = -1
        return getattr(failure, "result", Result.ERROR_ENVIRONMENT)


_resolver = library.RESOLVER(_on_resolve)


def install() -> None:
    """Makes the operator library call this module when an operator needs a group that is not made yet."""
    library.load().cotune_torch_set_resolver(_resolver, None)


