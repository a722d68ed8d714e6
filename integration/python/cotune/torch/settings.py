"""What users can set about the graph pass."""

from __future__ import annotations

import dataclasses
from typing import Any

from cotune.torch import settings_file
from cotune.torch.log import log
from cotune.torch.option_values import SIZES_MAX, check


@dataclasses.dataclass(frozen=True)
class Settings:
    """Options of the graph pass. They are equal on all ranks, or programs differ.

    Attributes:
      epilogues: fuses the local operations behind a collective into its program.
      prologues: fuses casts and scalings in front of a collective into its program.
      overlap: takes collectives although passes of Inductor overlap, bucket or pipeline them. They
        run on the current stream then, so that the overlap is lost. The options of these passes
        are equal on all ranks, as these here are.
      all_to_all: takes all_to_all whose splits are equal. Give True where the splits of all ranks
        are equal; with splits that are equal on one rank by chance the ranks would wait for each
        other.
      export: takes groups of the "fake" backend, which export and ahead-of-time compilation have.
      rows: the row counts at which programs with dynamic rows are tuned, all of them at the first call. A count of which the
        ranks have no equal shares is left out if a program needs them. Empty: those of a fixed grid, as they come.
      collective_multi_kernel_hints: the same by the bytes of a program's first collective. If neither is given, the hints of
        the variable or of the settings file count.
    """

    epilogues: bool = True
    prologues: bool = True
    overlap: bool = False
    all_to_all: bool = False
    export: bool = False
    rows: tuple[int, ...] = ()
    collective_multi_kernel_hints: tuple[int, ...] = ()

    @classmethod
    def of(cls, **options: Any) -> Settings:
        """Settings of named options. Raises TypeError for an unknown name or another type."""
        check(options)
        if "rows" not in options and "collective_multi_kernel_hints" not in options:
            options["collective_multi_kernel_hints"] = _hints_outside()
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()})


def _hints_outside() -> tuple[int, ...]:
    """The sizes in bytes that the variable or the settings file gives; none, with a warning, for a value that gives none."""
    given = settings_file.given("collective_multi_kernel_hints")
    if given is None:
        return ()
    try:
        hints = tuple(each for each in settings_file.sizes_bytes(given.value) if each > 0)
        if len(hints) > SIZES_MAX:
            raise ValueError(f"it has {len(hints)} sizes, and compiled graphs take at most {SIZES_MAX}")
    except ValueError as failure:
        log.warning("collective_multi_kernel_hints does not count for compiled graphs (%s): %s", given.origin, failure)
        return ()
    return hints
