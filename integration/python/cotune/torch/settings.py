"""The settings of the graph pass that users can choose."""

from __future__ import annotations

import dataclasses
from typing import Any

from cotune.torch import settings_file
from cotune.torch.log import log
from cotune.torch.option_values import SIZES_MAX, check


@dataclasses.dataclass(frozen=True)
class Settings:
    """Options of the graph pass. They have to be equal on all ranks.

    Attributes:
      epilogues: fuses the local operations after a collective into its program.
      prologues: fuses casts and scalings before a collective into its program.
      overlap: takes collectives although passes of Inductor overlap, bucket or pipeline them. Programs run on the current
        stream, so that the overlap is lost. The options of these passes have to be equal on all ranks as well.
      all_to_all: takes all_to_all whose splits are equal. Set it only if the splits of all ranks are equal: a rank that takes
        the collective waits in vain for a rank with other splits, which leaves it to PyTorch.
      export: takes groups of the "fake" backend, which export and ahead-of-time compilation have.
      rows: the row counts at which programs with dynamic rows are tuned, all of them at the first call. A count that the number
        of ranks does not divide is left out if a program needs equal shares. Empty: sizes of a fixed grid, as they are called.
      collective_multi_kernel_hints: the same by the bytes of a program's first collective. If neither is given, the hints of
        the COTUNE_ variable or of the settings file count.
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
        """Makes the settings from options by their names. Raises TypeError for an unknown name or a value that is not allowed."""
        check(options)
        if "rows" not in options and "collective_multi_kernel_hints" not in options:
            options["collective_multi_kernel_hints"] = _hints_outside()
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()})


def _hints_outside() -> tuple[int, ...]:
    """Returns the sizes in bytes that the variable or the settings file gives. A bad value gives a warning and no sizes."""
    given = settings_file.given("collective_multi_kernel_hints")
    if given is None:
        return ()
    try:
        hints = tuple(each for each in settings_file.sizes_bytes(given.value) if each > 0)
        if len(hints) > SIZES_MAX:
            raise ValueError(f"it has {len(hints)} sizes, and compiled graphs take at most {SIZES_MAX}")
    except ValueError as failure:
        log.warning("collective_multi_kernel_hints has no effect on compiled graphs (%s): %s", given.origin, failure)
        return ()
    return hints
