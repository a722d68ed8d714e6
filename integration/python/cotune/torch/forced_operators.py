"""Warns of forced choices of operators without functions."""

from __future__ import annotations

import difflib
import logging

from cotune.torch import custom_choices, declarations, groups, process_groups
from cotune.torch.log import log

_unread: set[str] = set()  # the reasons why lists could not be read
_warned: set[tuple[str, str, str]] = set()  # (operator, choice, origin)


def warn_of_unknown() -> None:
    """Warns once about each forced choice whose operator has no functions while a graph is compiled. Global rank 0 shows it.

    A list that cannot be read is only a warning here, because it may be wrong on this rank alone, and the others would wait for
    this rank after an error. When the ranks meet, all of them raise the error.
    """
    known = custom_choices.names()
    level = logging.WARNING if process_groups.global_rank() == 0 else logging.INFO
    try:
        forced = groups.tune_settings().forced_operators()
    except ValueError as failure:
        if str(failure) not in _unread:
            _unread.add(str(failure))
            log.log(level, "no choice of the list is forced, and ranks that meet end with this error: %s", failure)
        return
    for name, (choice, origin) in forced.items():
        if name in known or (name, choice, origin) in _warned:
            continue
        _warned.add((name, choice, origin))
        log.log(
            level,
            "force_choice (%s) gives %s the choice %s, which has no effect: %s",
            origin, name, choice, _why(name, choice, known),
        )  # fmt: skip


def _why(name: str, choice: str, known: set[str]) -> str:
    for overload, kind in declarations.kinds().items():
        if declarations.name_of(overload) == name:
            return f"it is declared as {kind}, and runs by the choice of that collective; write {kind}={choice}"
    why = "no functions are registered for it (cotune.torch.register_custom_op_autotuning) when this graph is compiled"
    if nearest := difflib.get_close_matches(name, known, 1):
        return f"{why}; did you mean {nearest[0]}?"
    return f"{why}; those that have functions are: {', '.join(sorted(known)) or 'none'}"
