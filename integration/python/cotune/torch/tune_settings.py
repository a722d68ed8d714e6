"""The settings by which the groups of cotune of PyTorch's process groups tune."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from cotune.constants import Numerics
from cotune.torch import job_settings, library, option_values, settings_file

# The budget of a tune, in seconds, if the user gives none. The first tune of a process group has the programs of a whole graph,
# at sizes that will certainly be called again. Later tunes interrupt a running model, some of them for sizes that may not be called
# again, and the next process measures what they leave out.
BUDGET_S = 10.0
LATER_BUDGET_S = 3.0


@dataclasses.dataclass(frozen=True)
class TuneSettings:
    """The settings of groups that are made from now on. They have to be equal on all ranks.

    Attributes:
      tunes: false if nothing is tuned: programs run by the table that the database holds, or by the default choices.
      budget_s: seconds after which a tune stops to measure. "auto": BUDGET_S for the first tune of a process group and
        LATER_BUDGET_S for each later one; a number counts for every tune; 0 or None: the setting `budget` of cotune,
        which is no limit if nobody has set it.
      numerics: "any": the fastest choices run; "same": only choices with the same bits as the default.
      database: the file that keeps the results of tunes, and the only one that is read; "": the machine's own; None: none.
      settings: settings of cotune by their names (see job_settings.py).
      force: the choices that collectives run, whatever was measured: {"all_reduce": "nccl/auto"}. If a call cannot run its
        forced choice, it runs as without it. None: the setting `force_choice` of cotune (COTUNE_FORCE_CHOICE). A custom
        operator that is not declared is given by its own name, {"lib::op": "python/ring"}; "body" is its own body.
      races_plain: programs, and the graph that has them, race against the code that torch.compile makes of them without cotune,
        which runs from then on if it is faster.
      races_plain_budget_s: seconds for these races at one meeting of the ranks.
      functions_compile_budget_s: seconds after which no further function that the user has registered
        (register_custom_op_autotuning) is compiled before one tune; 0: functions are not compiled, and race as they are.
    """

    tunes: bool = True
    budget_s: float | str | None = "auto"
    numerics: str = "any"
    database: str | os.PathLike[str] | None = ""
    force: Mapping[str, str] | None = None
    races_plain: bool = False
    races_plain_budget_s: float = 20.0
    functions_compile_budget_s: float = 120.0
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, **options: Any) -> TuneSettings:
        """Makes the settings from options by their names.

        Raises TypeError for an unknown name or a value that is not allowed, and ValueError for a name in `force` that cannot exist.
        The setting `force_choice` is not checked here: a variable or a file may be wrong on one rank alone, so that the ranks
        check it together when they meet.
        """
        option_values.check(options)
        option_values.check_force(options.get("force"))
        own = {name: value for name, value in options.items() if name not in job_settings.ALLOWED}
        named = {name: value for name, value in options.items() if name in job_settings.ALLOWED}
        return cls(**own, settings=named)

    @property
    def force_of_collectives(self) -> Mapping[str, str] | None:
        """The part of `force` for collectives: groups of cotune know no custom operators. None if `force` has no such part."""
        found = {name: choice for name, choice in (self.force or {}).items() if "::" not in name}
        return self.force if not self.force else found or None

    def force_of_operator(self, name: str) -> tuple[str, str]:
        """Returns the forced choice of a custom operator that is not declared, or "", and the setting that gives it.

        The option takes precedence over the setting `force_choice`. Raises ValueError if that cannot be read.
        """
        if name in (self.force or {}):
            return self.force[name], "option 'force'"
        _, of_operators, origin = settings_file.force_parts()
        return of_operators.get(name, ""), origin or "option 'force'"

    def forced_operators(self) -> dict[str, tuple[str, str]]:
        """Returns the forced choices of custom operators, and the settings that give them, by the names of the operators.

        Raises ValueError if the setting `force_choice` cannot be read.
        """
        names = [*settings_file.force_parts()[1], *(name for name in self.force or {} if "::" in name)]
        return {name: self.force_of_operator(name) for name in names}

    def budgets_s(self) -> tuple[float, float]:
        """Returns the budget of a group's first tune, and that of each later one, in seconds; 0 stands for the setting `budget`."""
        if isinstance(self.budget_s, str):
            return BUDGET_S, LATER_BUDGET_S
        return self.budget_s or 0.0, self.budget_s or 0.0

    def begins_without_database(self, rank: int) -> bool:
        """Returns true if a group begins with the default choices, without a database.

        Rank 0 decides for all ranks, because it reads the file. If the first tune will make the file, its absence is no reason
        to warn. Without a tune the group tries to read the file, and warns.
        """
        if not self.database:
            return self.database is None
        return self.tunes and rank == 0 and not os.path.exists(self.database)

    def settings_of_group(self) -> dict[str, Any]:
        """Returns the settings of cotune with which a group is made. A database that is named here is the only one."""
        named = {"database": os.fspath(self.database)} if self.database else {}
        return job_settings.with_defaults(self.settings) | named

    def as_struct(self) -> library.GroupOptions:
        first_ns, later_ns = (max(1, int(each * 1e9)) if each else 0 for each in self.budgets_s())
        return library.GroupOptions(
            is_untuned=int(not self.tunes),
            budget_ns=first_ns,
            numerics=Numerics[self.numerics.upper()],
            database_path=None if self.database is None else os.fsencode(self.database),
            later_budget_ns=later_ns,
        )
