"""What the user sees of a tune: one table of each group on global rank 0; other ranks only log."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import sys
import threading
import time
from typing import Any

import torch

from cotune import _interrupt, _native
from cotune._interrupt import callback, keeper
from cotune.constants import Result
from cotune.torch import groups, library
from cotune.torch.log import log
from cotune.torch.manifest import parse_manifest
from cotune.torch.program_text import numbered_statements

# Choices of one size that the table shows; `explain` shows all.
_CHOICES_MAX = 5
_EXPLAIN_BYTES = 1 << 16
# A tune that takes longer says at most so often where it is.
_PROGRESS_S = 2.0

_lock = threading.Lock()
_begun_s: dict[str, float] = {}
_told_s: dict[str, float] = {}
_shows_tables = True


def show_tables(shows: bool) -> None:
    """Whether a tune prints its table on global rank 0, to standard error."""
    global _shows_tables
    _shows_tables = shows


def _text_of(function: Any, *arguments: Any) -> str:
    """The text that one of the explaining functions of the C API writes."""
    buffer, length = ctypes.create_string_buffer(_EXPLAIN_BYTES), ctypes.c_size_t()
    if function(*arguments, buffer, len(buffer), ctypes.byref(length)) != Result.SUCCESS:
        return ""
    if length.value >= len(buffer):
        buffer = ctypes.create_string_buffer(length.value + 1)
        if function(*arguments, buffer, len(buffer), ctypes.byref(length)) != Result.SUCCESS:
            return ""
    return buffer.value.decode(errors="replace")


def _explained(group: int, text: str, rows: int) -> dict[str, Any] | None:
    """What a program runs at so many rows, as cotune_explain_program_json has it."""
    functions = _native.library()
    program = ctypes.c_void_p()
    encoded = text.encode()
    if functions.cotune_program_parse(encoded, len(encoded), ctypes.byref(program), None):
        return None
    try:
        answer = _text_of(functions.cotune_explain_program_json, group, program, rows)
    finally:
        functions.cotune_program_free(program)
    return json.loads(answer) if answer else None


def program_name(text: str) -> str:
    """The name of a program, which its first statement has."""
    words = numbered_statements(text)[0][1].split()
    return words[1] if len(words) > 1 else "program"


def _operand_types(text: str) -> str:
    """The types of a program's inputs, "bf16 [R, 8192], bf16 [1, 8192]"."""
    types = [line.split(" = input ", 1)[1] for _, line in numbered_statements(text) if " = input " in line]
    return ", ".join(each.replace(" replicated", "").strip() for each in types)


def _choice_line(choice: dict[str, Any], best_us: float) -> str:
    time_us = choice["time_us"]
    share = f"{100 * best_us / time_us:5.1f}%" if time_us else ""
    notes = ["default"] if choice["is_default"] else []
    if choice["warm_time_us"] is not None:
        notes.append(f"{choice['warm_time_us'] / 1000:.4f} ms with buffers in the cache")
    if choice["outcome"] == "lost_heat":
        notes.append("lost the first of two heats")
    if choice["reason"]:
        notes.append(choice["reason"])
    note = f"  ({', '.join(notes)})" if notes else ""
    return f"  {choice['choice']:<48} {time_us / 1000:9.4f} ms {share}{note}"


def _size_lines(text: str, rows: int | None, ranks: int, answer: dict[str, Any]) -> list[str]:
    measured = next((each for each in answer["measured"] or [] if each["bytes"] == answer["bytes"]), None)
    at = "" if rows is None else f", R = {rows}"
    head = f"TUNE {program_name(text)}({_operand_types(text)}){at}, {ranks} ranks"
    if measured is None:
        return [head, f"  {answer['choice']}"]
    # Times of the first of two heats are of another moment, and cannot win.
    timed = sorted(
        (each for each in measured["choices"] if each["time_us"]),
        key=lambda each: (each["outcome"] == "lost_heat", each["time_us"]),
    )
    best = timed[0]["time_us"] if timed else 0
    lines = [head, *(_choice_line(each, best) for each in timed[:_CHOICES_MAX])]
    left = len(measured["choices"]) - min(len(timed), _CHOICES_MAX)
    more = f", {left} more choices" if left > 1 else ", 1 more choice" if left else ""
    lines.append(f"  runs {answer['choice']}: {measured['why']}{more}")
    return lines


def table(group: int, manifest: str) -> str:
    """The table of all programs and sizes of a manifest that the group can explain."""
    ranks = _native.library().cotune_group_size(group)
    lines = []
    for entry in parse_manifest(manifest):
        for rows in entry.rows:
            answer = _explained(group, entry.text, rows)
            if answer is not None:
                lines += _size_lines(entry.text, rows, ranks, answer)
    return "\n".join(lines)


def _begins(name: str, manifest: str, ranks: int, device: int) -> None:
    with _lock:
        _begun_s[name] = _told_s[name] = time.monotonic()
    nodes = parse_manifest(manifest)
    groups.add_programs(name, device, [entry.text for entry in nodes])
    sizes = sum(len(entry.rows) for entry in nodes)
    log.info("tuning %d programs at %d sizes on %d ranks (group %r)", len(nodes), sizes, ranks, name)


def _is_first_process(group_rank: int) -> bool:
    """Whether this process prints: one of all, and not one of each group."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank() == 0
    return group_rank == 0


def _show(text: str, prints: bool) -> None:
    if prints:
        # In one piece: print() writes the end of the line by itself, and another rank's line can come in between.
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    else:
        log.info("%s", text)


def _measures(tune: library.Tune, name: str, prints: bool) -> None:
    now = time.monotonic()
    with _lock:
        if now - _told_s.get(name, now) < _PROGRESS_S:
            return
        _told_s[name] = now
    what = tune.what.decode(errors="replace")
    _show(f"cotune: tuning, {tune.cell} of {tune.cells}: {what}", prints)


def _has_ended(tune: library.Tune, name: str, manifest: str, group_rank: int, prints: bool) -> None:
    # All ranks of the group come here; one of them warns.
    level = logging.WARNING if group_rank == 0 else logging.INFO
    with _lock:
        seconds = time.monotonic() - _begun_s.pop(name, time.monotonic())
    error = tune.error.decode(errors="replace")
    if tune.result == Result.ERROR_DISAGREEMENT:
        log.log(
            level, "the ranks of process group %r differ in what they can tune, so that all of them run programs by "
            "PyTorch's own collectives from now on: %s. Give all ranks the same options of cotune.torch, the same settings "
            "(COTUNE_*) and one installation of cotune, and start them again", name, error,
        )  # fmt: skip
    elif tune.result != Result.SUCCESS:
        log.log(level, "programs of process group %r are not tuned: %s", name, error)
    elif not tune.report.is_tuned:
        log.log(
            level, "programs of process group %r are not tuned: a rank missed the pre-sync window; calls run by the "
            "table that there was", name,
        )  # fmt: skip
    elif tune.report.measured == 0:
        log.info("%d sizes of process group %r were known", tune.report.known, name)
    elif prints or log.isEnabledFor(logging.INFO):
        known = f", {tune.report.known} known" if tune.report.known else ""
        skipped = f", {tune.report.skipped} skipped" if tune.report.skipped else ""
        sizes = "1 size" if tune.report.measured == 1 else f"{tune.report.measured} sizes"
        foot = f"cotune: {sizes} tuned in {seconds:.1f} s{known}{skipped} (group {name!r})"
        _show(f"{table(tune.group, manifest)}\n{foot}", prints)


def _tell(tune: library.Tune) -> None:
    functions = _native.library()
    if tune.phase == library.TUNE_HAS_ENDED and tune.result == Result.ERROR_DISAGREEMENT:
        device = functions.cotune_group_device(tune.group)
        groups.become_plain(tune.group_name.decode(), device, "its ranks differ in what they can tune")
    name, manifest = tune.group_name.decode(), tune.manifest.decode()
    group_rank = functions.cotune_group_rank(tune.group)
    prints = _shows_tables and _is_first_process(group_rank)
    if tune.phase == library.TUNE_BEGINS:
        _begins(name, manifest, functions.cotune_group_size(tune.group), functions.cotune_group_device(tune.group))
    elif tune.phase == library.TUNE_MEASURES:
        _measures(tune, name, prints)
    else:
        _has_ended(tune, name, manifest, group_rank, prints)


@callback
def _on_tune(_, event) -> int:
    """As C calls it. Ctrl-C ends the tune before the next cell, and is raised when the call has ended."""
    try:
        if event.contents.phase == library.TUNE_BEGINS:
            keeper.begin()
        _tell(event.contents)
    except KeyboardInterrupt:
        keeper.raise_later()
    except BaseException:  # noqa: BLE001  nothing may be raised through C
        # A function that raises has no answer for C.
        with contextlib.suppress(BaseException):
            log.exception("the table of a tune could not be shown")
    finally:
        ends_tune = keeper.ends_tune
        # A tune inside of another callback is part of a longer call, which keeps the interrupt to its end (agreement.py).
        is_whole_call = not _interrupt._is_in_callback(sys._getframe().f_back)
        if event.contents.phase == library.TUNE_HAS_ENDED and is_whole_call:
            keeper.end()
    return int(ends_tune)


_listener = library.LISTENER(_on_tune)


def install() -> None:
    """Lets tunes be told here."""
    library.load().cotune_torch_set_listener(_listener, None)
