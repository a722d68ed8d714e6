"""The stage before the measurements of a tune, in which Inductor compiles the functions that the user has registered.

All ranks compile the same functions for the same sizes, and exchange the failures. The compiled form of a function that one
rank cannot compile is left out on all of them, with the reason of the first such rank. The function races as it is.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from cotune.torch import function_choices, groups, report, sizes
from cotune.torch.compiled_form import in_thread
from cotune.torch.function_choices import Registered
from cotune.torch.function_forms import Forms, Size
from cotune.torch.log import log
from cotune.torch.manifest import Entry
from cotune.torch.program_text import ALL, ONE, SHARE, parse

# Gives the word of this rank to a meeting of that name, and returns the words of all ranks.
Share = Callable[[str, dict[str, Any]], list[dict[str, Any]]]


@contextlib.contextmanager
def compiled(entry: groups.GroupEntry | None, programs: list[Entry], share: Share) -> Iterator[None]:
    """Compiles the functions for a tune of these programs, which runs in the block. Collective over the ranks.

    Functions are compiled for the sizes that the tune measures. A size that the tuned database knows is not among them, unless
    its times were unsteady or it was measured without these functions. After the tune, winners are compiled at such sizes.
    """
    forms = None if entry is None or entry.group is None else entry.forms
    if forms is None:
        yield
        return
    stage = _Stage(entry, forms, share)
    if entry.tunes and programs:
        stage.compile_for_tune(programs)
    forms.is_tuning = True
    try:
        yield
    finally:
        forms.is_tuning = False
    stage.compile_winners(programs)


class _Stage:
    def __init__(self, entry: groups.GroupEntry, forms: Forms, share: Share):
        self._entry = entry
        self._forms = forms
        self._share = share
        self._ways = [each for each in function_choices.registered() if each.is_compiled]
        self._ranks = entry.group.size

    def compile_for_tune(self, programs: list[Entry]) -> None:
        self._forms.meetings += 1
        name = f"functions/{self._forms.meetings}"
        # Only rank 0 knows all results of the database.
        words = self._share(f"{name}/wanted", {"wanted": [list(each) for each in self._unmeasured(programs)]})
        wanted = self._sizes_of([(text, rows) for text, rows in words[0]["wanted"]])
        if not wanted:
            return
        failed = self._compile(wanted)
        words = self._share(f"{name}/failed", {"failed": {each.text: reason for each, reason in failed.items() if reason}})
        for size in wanted:
            reasons = [(rank, word["failed"][size.text]) for rank, word in enumerate(words) if size.text in word["failed"]]
            if reasons:
                self._forms.refuse(size, f"rank {reasons[0][0]}: {reasons[0][1]}")

    def compile_winners(self, programs: list[Entry]) -> None:
        """Compiles functions that run by a result of the database. Each rank does so by itself, and no rank waits for it."""
        for program in programs:
            for rows in program.rows:
                answer = self._explained(program.text, rows)
                names = set() if answer is None else _names_in(answer["choice"])
                ways = [each for each in self._ways if each.name in names]
                wanted = self._sizes_of([(program.text, rows)], ways)
                for size, reason in (self._compile(wanted) if wanted else {}).items():
                    if reason:
                        log.warning("%s runs as it is: %s", size.name, reason)

    def _unmeasured(self, programs: list[Entry]) -> list[tuple[str, int]]:
        """Returns the programs and row counts that the next tune measures."""
        found = []
        for program in programs:
            for rows in program.rows:
                answer = self._explained(program.text, rows)
                if answer is None or not (answer["source"] == "forced" or report.is_known(answer)):
                    found.append((program.text, rows))
        return found

    def _explained(self, text: str, rows: int) -> dict[str, Any] | None:
        with self._entry.group._handle.exclusive() as address:
            return report.explained(address, text, rows)

    def _sizes_of(self, cells: list[tuple[str, int]], ways: list[Registered] | None = None) -> dict[Size, Registered]:
        """Returns the functions that may run the collectives of programs, at their sizes, if they were not compiled before."""
        found: dict[Size, Registered] = {}
        for text, rows in cells:
            for kind, dtype, reduction, count in _collectives_of(text, rows, self._ranks):
                for way in self._ways if ways is None else ways:
                    size = Size(way.name, sizes.DTYPES.get(dtype), reduction, count)
                    is_run = way.kind == kind and way.reduction in ("", reduction) and size.dtype in function_choices.DTYPES
                    if is_run and count > 0 and not self._forms.knows(size):
                        found[size] = way
        return found

    def _compile(self, wanted: dict[Size, Registered]) -> dict[Size, str]:
        """Compiles functions, and returns for each the reason why it cannot be compiled, or ""."""
        begun_s, limit_s = time.monotonic(), self._entry.functions_compile_budget_s
        failed: dict[Size, str] = {}

        def compile_all() -> None:
            for size, way in wanted.items():
                if time.monotonic() - begun_s > limit_s:
                    failed[size] = f"functions_compile_budget_s was over, which is {limit_s:g} s"
                else:
                    failed[size] = self._forms.compile(way, size)

        in_thread(compile_all)
        seconds = time.monotonic() - begun_s
        log.info("compiled %d functions of process group %r in %.1f s", len(wanted), self._entry.name, seconds)
        return failed


def _names_in(choice: str) -> set[str]:
    """Returns the names of the functions in the id of a choice. A program's id has a part for each step."""
    steps = (step.partition("/") for step in choice.split("+"))
    return {re.sub(r"[?&](fuse|via)=[^&]*", "", name) for backend, _, name in steps if backend == function_choices.NAME}


def _collectives_of(text: str, rows: int, ranks: int) -> list[tuple[str, str, str, int]]:
    """The kind, dtype, reduction and number of elements of the operand of each collective of a program."""
    program = parse(text)
    counts = {ONE: 1, ALL: rows, SHARE: rows // ranks}
    return [
        (node.op, type_.dtype, node.reduction, counts[type_.rows] * type_.columns)
        for node in program.nodes
        if node.is_collective and (type_ := program.types[node.operands[0]])
    ]
