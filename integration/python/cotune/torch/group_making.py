"""Makes the group of cotune for a process group, on all of its ranks or on none.

The ranks meet through the store of the process group, exchange whether each of them can make a group of cotune, and make it.
If that fails on one rank, the process group is "plain" on all of them, with the reason.
"""

from __future__ import annotations

import datetime
import os
import pathlib
from typing import Any

import torch

from cotune import _native
from cotune.constants import Result
from cotune.errors import CotuneError, error_of
from cotune.group import Group
from cotune.torch import (
    compat,
    compile_budget,
    function_choices,
    function_forms,
    library,
    settings_file,
)
from cotune.torch.group_entry import GroupEntry
from cotune.torch.log import LinesOfGroup
from cotune.torch.meeting import Place
from cotune.torch.tune_settings import TuneSettings

# An error text that goes through the store is cut after so many characters.
_REASON_CHARACTERS_MAX = 1000
# Ranks wait longer than the timeout by this: a rank may need the whole timeout to find that it cannot make the group.
_WORD_GRACE_S = 30.0
# The likely reasons for which a rank does not come to a meeting.
LATE_HINT = (
    ". They may be compiling, or have ended with an error, which is in their output, or run this graph without cotune: because "
    "cotune.torch.enable() was not called there, or with another PyTorch, other options, or another graph"
)


class _StoreOfGroup:
    """Gives a store of torch the methods of cotune.Store."""

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
            # torch raises DistStoreError, a RuntimeError, at the timeout.
            raise TimeoutError(str(failure)) from failure


def place_name(device: int) -> str:
    """Returns the name of a device for users: "host" for -1, or "cuda:N"."""
    return "host" if device < 0 else f"cuda:{device}"


def why_plain(size: int, backend: str, device: int) -> str:
    """Returns why cotune makes no group for operands on the device; "" if it may make one.

    PyTorch runs a collective by the backend for the device of its operands, so that cotune needs such a backend, too. `backend`
    has a name for each device, such as "cpu:gloo,cuda:nccl", or one name without devices, which may serve any device.
    """
    if size == 1:
        return "it has one rank"
    if "fake" in backend:
        return "its backend is fake"
    kinds = [each.partition(":")[0] for each in backend.split(",") if ":" in each]
    if kinds and ("cpu" if device < 0 else "cuda") not in kinds:
        where = "the host" if device < 0 else place_name(device)
        return f"it has no backend for operands on {where}, only {backend}"
    return ""


def forces(settings: TuneSettings) -> bool:
    """Returns true if the user forces choices of collectives, by the option `force` or outside of the program."""
    return settings.force_of_collectives is not None or settings_file.forces_collectives()


def make(name: str, process_group: Any, device: int, settings: TuneSettings) -> GroupEntry:
    """Makes the group of cotune for operands on a device, or finds why that is not possible. Collective over the ranks.

    Raises TimeoutError if ranks do not come, and on all ranks the CotuneError of forced choices that are wrong.
    """
    place = place_name(device)
    meeting = Place(name, process_group, device)
    timeout_s = meeting.timeout_s
    ready, attempt = meeting.share("ready", _readiness(process_group, settings), "come to its first operator", hint=LATE_HINT)
    _raise_wrong_force(ready, meeting.global_ranks)
    if reason := _first_reason(ready, meeting.global_ranks):
        return GroupEntry(name, place, None, reason)
    compile_s = compile_budget.agreed_s(ready, meeting, process_group) if any(word.get("functions") for word in ready) else 0.0
    group, failure, force_result, is_agreed = None, "", 0, False
    prefix = f"cotune/{name}/{'host' if device < 0 else 'cuda'}/{attempt}"
    forms = function_forms.Forms(process_group, device, prefix) if _compiles_functions(compile_s, settings) else None
    try:
        try:
            group = Group(
                meeting.rank,
                meeting.size,
                store=_StoreOfGroup(torch.distributed.PrefixStore(attempt, meeting.store)),
                memory="host" if device < 0 else "cuda",
                join_timeout_s=timeout_s,
                call_timeout_s=timeout_s,
                log=LinesOfGroup(),
                ignores_database=settings.begins_without_database(meeting.rank),
                functions=function_choices.functions_of(process_group, meeting.store, prefix, forms),
                force=settings.force_of_collectives,
                settings=settings.settings_of_group(),
            )
        except Exception as error:  # noqa: BLE001  the other ranks wait for the word of this one
            failure = _reason_of(error)
            result = getattr(error, "result", Result.SUCCESS)
            if result in (Result.ERROR_USAGE, Result.ERROR_DISAGREEMENT) and forces(settings):
                force_result = int(result)
        made, _ = meeting.share(
            f"{attempt}/made",
            {"reason": failure, "force_result": force_result},
            "made its group for the operators",
            timeout_s + _WORD_GRACE_S,
        )
        _raise_wrong_force(made, meeting.global_ranks)
        reason = _first_reason(made, meeting.global_ranks)
        is_agreed = reason == ""
    finally:
        if group is not None and not is_agreed:
            group.destroy()
    entry = GroupEntry(name, place, group if is_agreed else None, reason, functions_compile_budget_s=compile_s)
    entry.forms = forms if is_agreed and _have_one_list(ready) else None
    return entry


def _readiness(process_group: Any, settings: TuneSettings) -> dict[str, Any]:
    """Returns the host of this rank, the version of its functions and the time to compile them, or why it cannot make a group.

    It raises nothing, because the other ranks wait for this word.
    """
    if why := settings_file.why_force_is_wrong():
        return {"reason": why[:_REASON_CHARACTERS_MAX], "force_result": int(Result.ERROR_USAGE)}
    try:
        _native.library()
        library.load()
        compile_s = settings.functions_compile_budget_s
        functions = function_choices.version_of(process_group, _compiles_functions(compile_s, settings))
        return {"reason": "", "host": _host_id(), "functions": functions, "compile_s": compile_s}
    except Exception as failure:  # noqa: BLE001
        return {"reason": _reason_of(failure), "host": "", "functions": ""}


def _first_reason(words: list[dict[str, str]], global_ranks: list[int]) -> str:
    for rank, word in zip(global_ranks, words, strict=True):
        if word["reason"]:
            return f"rank {rank}: {word['reason']}"
    hosts = {word.get("host", "") for word in words}
    if len(hosts) > 1:
        return f"its ranks are on {len(hosts)} hosts, and cotune's groups are of one host"
    return ""


def _raise_wrong_force(words: list[dict[str, Any]], global_ranks: list[int]) -> None:
    """Raises on all ranks the error of forced choices that are wrong on one, or that differ between the ranks.

    Without the error PyTorch's own collectives would run, and a user who compares choices would not notice.
    """
    for rank, word in zip(global_ranks, words, strict=True):
        if word.get("force_result"):
            raise error_of(word["force_result"], f"rank {rank}: {word['reason']}", None)


def _have_one_list(words: list[dict[str, str]]) -> bool:
    """Returns true if all ranks have the same functions. Otherwise they do not meet to compile them."""
    versions = {word.get("functions", "") for word in words}
    return len(versions) == 1 and "" not in versions


def _compiles_functions(compile_s: float, settings: TuneSettings) -> bool:
    return compile_s > 0 and settings.numerics == "any"


def _host_id() -> str:
    """Returns a text that is equal for processes that can share memory: one boot of one machine, and one /dev/shm."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    shared = os.stat("/dev/shm")
    return f"{boot}/{shared.st_dev}"


def _reason_of(failure: Exception) -> str:
    """Returns the text of an error for the other ranks. It is never empty."""
    is_ours = isinstance(failure, (CotuneError, compat.Unsupported))
    text = str(failure) if is_ours and str(failure) else f"{type(failure).__name__}: {failure}"
    return text[:_REASON_CHARACTERS_MAX]
