"""What the user sees of a tune: one table of each group on global rank 0; other ranks only log."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import logging
import sys
import threading
import time
from typing import Any

import torch

from cotune import _interrupt, _language, _native
from cotune._interrupt import callback, keeper
from cotune.constants import Result
from cotune.torch import decisions, function_choices, groups, library, origins
from cotune.torch.given_back import Verdict
from cotune.torch.log import log
from cotune.torch.manifest import Entry, parse_manifest
from cotune.torch.origins import Origin
from cotune.torch.program_text import ONE, numbered_statements, parse

# Choices of one size that the table shows.
_CHOICES_MAX = 5
_WHERE_ALL_ARE = "all choices of a size: `cotune --json db show [FILE]`, with the file of the tuned database if it was named"
_EXPLAIN_BYTES = 1 << 16
# A tune that takes longer says at most so often where it is.
_PROGRESS_S = 2.0

# Reentrant: a garbage collection in a thread that holds it may run a finalizer, and so _forget.
_lock = threading.RLock()
_shows_tables = True


@dataclasses.dataclass
class _RunningTune:
    """A tune that has begun. Times are in seconds, of the monotonic clock.

    Attributes:
      cells: the programs and rows of each cell, by the text that cotune has for it.
      measured: those that this tune has come to.
      origin: the function whose call began it.
    """

    begun_s: float
    told_s: float
    cells: dict[str, list[tuple[str, int]]]
    measured: set[tuple[str, int]]
    origin: Origin | None


_tunes: dict[str, _RunningTune] = {}  # by the name of the group, whose calls come one after the other
_failures_shown: set[tuple[str, str]] = set()  # (group, error)


def _forget(name: str) -> None:
    """Forgets which failures of a group were shown: another group may have its name later."""
    with _lock:
        _failures_shown.difference_update([each for each in _failures_shown.copy() if each[0] == name])


groups.when_dropped(_forget)


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


def explained(group: int, text: str, rows: int) -> dict[str, Any] | None:
    """The choice that a program runs at so many rows, as cotune_explain_program_json has it."""
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
    return ", ".join(each.replace(" replicated", "").replace(" nofuse", "").strip() for each in types)


def measured_size(answer: dict[str, Any]) -> dict[str, Any] | None:
    """The measured size of an explanation that is the size of the call; None if it was not measured, or not known here."""
    if answer.get("relative"):
        return None  # the sizes are those of another call, by whose row this one runs
    return next((each for each in answer["measured"] or [] if each["bytes"] == answer["bytes"]), None)


def is_known(answer: dict[str, Any]) -> bool:
    """Returns true if the tuned database has a result for the size of the call that the next tune takes as it is.

    A size whose times were unsteady is measured again, and so is one that was measured without one of the backends.
    """
    size = measured_size(answer)
    return answer["source"] == "table" and size is not None and not size["unsteady"] and not size["not_raced"]


def _functions_behind(timed: list[dict[str, Any]], choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The user's own functions that are not among the first choices: with their times, and then those that have none."""
    slower = [each for each in timed[_CHOICES_MAX:] if _is_function(each)]
    return slower + [each for each in choices if _is_function(each) and not each["time_us"]]


def _is_function(choice: dict[str, Any]) -> bool:
    return choice["choice"].startswith(f"{function_choices.NAME}/")


def _choice_line(choice: dict[str, Any], runs: str, base_us: float) -> str:
    """`base_us`: the time of the choice `runs`; 0: that has no time."""
    time_us = choice["time_us"]
    if not time_us:
        return f"  {choice['choice']:<48} {'left out':>12}         ({choice['reason'] or choice['outcome']})"
    notes = ["runs"] if choice["choice"] == runs else []
    if choice["is_default"]:
        notes.append("default")
    # Times of fewer rounds or of another heat are of other moments, and cannot be compared.
    is_comparable = choice["outcome"] == "timed" and base_us > 0
    share = f"{100 * base_us / time_us:5.1f}%" if is_comparable or (choice["choice"] == runs and base_us > 0) else ""
    if choice["warm_time_us"] is not None:
        notes.append(f"{choice['warm_time_us'] / 1000:.4f} ms with buffers in the cache")
    if choice["outcome"] == "outpaced":
        notes.append("eliminated early")
    elif choice["outcome"] == "lost_heat":
        notes.append("lost the first of two heats")
    if choice["reason"]:
        notes.append(choice["reason"])
    note = f"  ({', '.join(notes)})" if notes else ""
    return f"  {choice['choice']:<48} {time_us / 1000:9.4f} ms {share:6}{note}".rstrip()


_ORDER = {"timed": 0, "outpaced": 1, "lost_heat": 2}


def _shown(runs: str, choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The choices that the table shows: the one that runs, the fastest others, and the user's own functions."""
    timed = sorted(
        (each for each in choices if each["time_us"]),
        key=lambda each: (each["choice"] != runs, _ORDER.get(each["outcome"], 3), each["time_us"]),
    )
    return timed[:_CHOICES_MAX] + _functions_behind(timed, choices)


def _leaves_out_choices(answer: dict[str, Any]) -> bool:
    measured = measured_size(answer)
    if answer["source"] == "forced" or measured is None:
        return False
    return len(_shown(answer["choice"], measured["choices"])) < len(measured["choices"])


def _size_lines(head: str, answer: dict[str, Any]) -> list[str]:
    """A size of the table: the choice that runs first, then the others by their times."""
    runs, measured = answer["choice"], measured_size(answer)
    if answer["source"] == "forced":
        return [head, f"  runs {runs}: the setting force_choice gives it this choice"]
    if measured is None:
        return [head, f"  runs {runs}: this size was not measured"]
    shown = _shown(runs, measured["choices"])
    base_us = shown[0]["time_us"] if shown and shown[0]["choice"] == runs and shown[0]["time_us"] else 0
    if measured.get("unsteady"):
        # Shares of such times would compare what cannot be compared.
        head, base_us = f"{head}, unsteady times", 0
    lines = [head, *(_choice_line(each, runs, base_us) for each in shown)]
    left = len(measured["choices"]) - len(shown)
    more = f", {left} more choices" if left > 1 else ", 1 more choice" if left else ""
    why = measured["why"]
    if measured["winner"] != runs:
        why = f"{measured['winner']} won; the ranks run the collective by the choice that they agreed on"
    if answer["source"] != "table":
        why = "the next best choice" if answer["source"] == "next_best" else "the default"
        why += f", because the tuned choice does not run ({answer['refused']})" if answer["refused"] else ""
    lines.append(f"  runs {runs}: {why}{more}")
    return lines


def _place(group_name: str, text: str, origin: Origin | None) -> str:
    """The functions that have a program, as far as they are known, " of Model.forward (model.py:12)"."""
    found = decisions.origins_of(group_name, text) or [origin]
    if found[0] is None:
        return ""
    return f" of {found[0]}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")


def table(group: int, manifest: str, group_name: str = "", origin: Origin | None = None) -> str:
    """The table of all programs and sizes of a manifest that the group can explain."""
    ranks = _native.library().cotune_group_size(group)
    lines = []
    leaves_out = False
    for entry in parse_manifest(manifest):
        name = f"{program_name(entry.text)}({_operand_types(entry.text)}){_place(group_name, entry.text, origin)}"
        for rows in entry.rows:
            answer = explained(group, entry.text, rows)
            if answer is not None:
                lines += _size_lines(f"TUNE {name}, R = {rows}, {ranks} ranks", answer)
                leaves_out = leaves_out or _leaves_out_choices(answer)
    if leaves_out:
        lines.append(_WHERE_ALL_ARE)
    return "\n".join(lines)


def _cells_of(entries: list[Entry]) -> dict[str, list[tuple[str, int]]]:
    """The programs and rows by the names of their cells in the progress of a tune.

    "program norm, 64 rows", "program norm" without R; "all_reduce sum f32, 1024 bytes" for a program that is one collective,
    whose cell it shares with all programs that are the same collective.
    """
    cells: dict[str, list[tuple[str, int]]] = {}
    for entry in entries:
        name = f"program {program_name(entry.text)}"
        collective = _single_collective(entry.text)
        for rows in entry.rows:
            names = [name, f"{name}, {_counted(rows, 'row')}"]
            if collective is not None:
                kind, row_bytes = collective
                names.append(f"{kind}, {_counted(row_bytes[0] + row_bytes[1] * rows, 'byte')}")
            for each in names:
                cells.setdefault(each, []).append((entry.text, rows))
    return cells


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _single_collective(text: str) -> tuple[str, tuple[int, int]] | None:
    """The collective that a program consists of, "all_reduce sum f32", and its bytes: a fixed number and one for each row.

    None if the program has more than a collective.
    """
    program = parse(text)
    if len(program.nodes) != 1 or len(program.inputs) != 1 or not program.nodes[0].is_collective:
        return None
    (node,), type_ = program.nodes, program.first_collective_type()
    row_bytes = type_.columns * _language.DTYPES[type_.dtype][1]
    words = [node.op, node.reduction, type_.dtype]
    return " ".join(filter(None, words)), (row_bytes, 0) if type_.rows == ONE else (0, row_bytes)


def _begins(name: str, manifest: str, ranks: int, device: int) -> None:
    entries, now = parse_manifest(manifest), time.monotonic()
    origin = origins.of_caller()
    with _lock:
        _tunes[name] = _RunningTune(now, now, _cells_of(entries), set(), origin)
    groups.begin_tune(name, device, {entry.text: entry.rows for entry in entries}, origin)
    sizes = sum(len(entry.rows) for entry in entries)
    log.info("tuning %d programs at %d sizes on %d ranks (group %r)", len(entries), sizes, ranks, name)


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


def show_verdicts(name: str, group_rank: int, verdicts: list[Verdict]) -> None:
    """Shows what races with PyTorch's form of programs have come to."""
    prints = _shows_tables and _is_first_process(group_rank)
    news = [each for each in verdicts if each.is_measured_here or each.gives_back]
    if news and (prints or log.isEnabledFor(logging.INFO)):
        _show("\n".join(f"cotune: {each} (group {name!r})" for each in news), prints)


def _measures(tune: library.Tune, name: str, prints: bool) -> None:
    now, what = time.monotonic(), tune.what.decode(errors="replace")
    with _lock:
        running = _tunes.get(name)
        if running is None:
            return
        running.measured.update(running.cells.get(what, []))
        if now - running.told_s < _PROGRESS_S:
            return
        running.told_s = now
    _show(f"cotune: tuning, {tune.cell} of {tune.cells}: {what}", prints)


def _why_untuned(tune: library.Tune) -> str:
    """The reason for which a tune has tuned nothing; "" for one that has succeeded."""
    if tune.result != Result.SUCCESS:
        return tune.error.decode(errors="replace") or f"the tune has failed ({tune.result})"
    return "" if tune.report.is_tuned else "a rank missed the pre-sync window; calls run by the table that there was"


def _note_end(tune: library.Tune, name: str, manifest: str, device: int, running: _RunningTune | None) -> None:
    """Keeps for explain() what has become of each program."""
    why = {}
    for entry in parse_manifest(manifest):
        why[entry.text] = _why_untuned(tune)
        if tune.result == Result.ERROR_DATABASE and _runs_by_table(tune.group, entry):
            # The tune has failed to save its results alone.
            why[entry.text] = ""
    groups.end_tune(name, device, why, running.measured if running and not any(why.values()) else ())


def _runs_by_table(group: int, entry: Entry) -> bool:
    answers = [explained(group, entry.text, rows) for rows in entry.rows]
    return all(
        answer is not None and answer["source"] == "table" and not answer.get("relative") for answer in answers
    )


def _warn(name: str, group_rank: int, text: str, *arguments: Any) -> None:
    """Warns on one rank of the group, and only once of the same failure."""
    with _lock:
        key = (name, text % arguments)
        is_new = key not in _failures_shown
        _failures_shown.add(key)
    log.log(logging.WARNING if group_rank == 0 and is_new else logging.INFO, text, *arguments)


def _has_ended(tune: library.Tune, name: str, manifest: str, group_rank: int, prints: bool) -> None:
    with _lock:
        running = _tunes.pop(name, None)
    seconds = time.monotonic() - running.begun_s if running is not None else 0.0
    _note_end(tune, name, manifest, _native.library().cotune_group_device(tune.group), running)
    if tune.result == Result.ERROR_DISAGREEMENT:
        _warn(
            name, group_rank, "the ranks of process group %r differ in what they can tune, so that all of them run programs by "
            "PyTorch's own collectives from now on: %s. Give all ranks the same options of cotune.torch, the same settings "
            "(COTUNE_*) and one installation of cotune, and start them again", name, _why_untuned(tune),
        )  # fmt: skip
    elif why := _why_untuned(tune):
        _warn(name, group_rank, "programs of process group %r are not tuned: %s", name, why)
    elif tune.report.measured == 0:
        log.info("%d sizes of process group %r were known", tune.report.known, name)
    elif prints or log.isEnabledFor(logging.INFO):
        known = f", {tune.report.known} known" if tune.report.known else ""
        skipped = f", {tune.report.skipped} skipped" if tune.report.skipped else ""
        sizes = "1 size" if tune.report.measured == 1 else f"{tune.report.measured} sizes"
        foot = f"cotune: {sizes} tuned in {seconds:.1f} s{known}{skipped} (group {name!r})"
        _show(f"{table(tune.group, manifest, name, running.origin if running else None)}\n{foot}", prints)


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
            try:
                keeper.end()
            except KeyboardInterrupt:
                keeper.raise_later()  # It came as the handler was put back.
    return int(ends_tune)


_listener = library.LISTENER(_on_tune)


def install() -> None:
    """Lets tunes be told here."""
    library.load().cotune_torch_set_listener(_listener, None)
