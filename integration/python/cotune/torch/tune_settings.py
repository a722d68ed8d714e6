"""The settings by which the groups of cotune of PyTorch's process groups tune."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from cotune.constants import Numerics
from cotune.torch import job_settings, library, option_values, settings_file

# The budget of a tune, in seconds, if the user gives none. The first tune of a process group has the programs of a whole
# graph at sizes that are certain to come again. Later ones interrupt a model that runs, some of them at sizes that come
# again perhaps, and what they leave out is measured by the next process.
BUDGET_S = 10.0
LATER_BUDGET_S = 3.0


@dataclasses.dataclass(frozen=True)
class TuneSettings:
    """The settings of groups that are made from now on. Equal on all ranks.

    Attributes:
      tunes: False: programs run by the table that the database holds, or by the default choices.
      budget_s: seconds after which a tune stops to measure. "auto": BUDGET_S for the first tune of a process group and
        LATER_BUDGET_S for each later one; a number counts for every tune; 0 or None: the setting `budget` of cotune,
        which is no limit if nobody has set it.
      numerics: "any": whatever is fastest; "same": only choices whose bits are those of the default.
      database: the file that keeps what was tuned, and the only one that is read; "": the machine's own; None: none.
      settings: settings of cotune by their names, as job_settings.py has them.
      force: the choices that collectives run whatever was measured, {"all_reduce": "nccl/auto"}; a call for which one is
        refused or not listed runs what it would run otherwise. None: the setting `force_choice` of cotune (COTUNE_FORCE_CHOICE). The name of a
        custom operator that is not declared stands for itself, {"lib::op": "python/ring"}; "body" is its own body.
      races_plain: programs, and the graph that has them, are compared with what torch.compile makes of them without cotune,
        which runs if it is faster.
      races_plain_budget_s: seconds for these comparisons at one meeting of the ranks.
      functions_compile_budget_s: seconds after which a rank begins to compile no further function that the user has
        registered (register_custom_op_autotuning) before one tune; 0: they are not compiled, and race as they are.
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
        """Settings of named options. Raises TypeError for an unknown name or a value that cannot be.

        Raises ValueError for a name in `force` that cannot be. The program gives it, on all ranks alike; the variable and the file may
        be wrong on one rank alone, which the ranks find out together when they meet.
        """
        option_values.check(options)
        option_values.check_force(options.get("force"))
        own = {name: value for name, value in options.items() if name not in job_settings.ALLOWED}
        named = {name: value for name, value in options.items() if name in job_settings.ALLOWED}
        return cls(**own, settings=named)

    @property
    def force_of_collectives(self) -> Mapping[str, str] | None:
        """The part of `force` that concerns groups of cotune, which know no custom operators."""
        found = {name: choice for name, choice in (self.force or {}).items() if "::" not in name}
        return self.force if not self.force else found or None

    def force_of_operator(self, name: str) -> tuple[str, str]:
        """The choice that the user gives a custom operator that is not declared, "" for none, and the place that gives it.

        The option counts more than the setting `force_choice`. Raises ValueError if that cannot be read.
        """
        if name in (self.force or {}):
            return self.force[name], "option 'force'"
        _, of_operators, origin = settings_file.force_parts()
        return of_operators.get(name, ""), origin or "option 'force'"

    def forced_operators(self) -> dict[str, tuple[str, str]]:
        """The choices that the user gives custom operators, and the places that give them, by the names of the operators.

        Raises ValueError if the setting `force_choice` cannot be read.
        """
        names = [*settings_file.force_parts()[1], *(name for name in self.force or {} if "::" in name)]
        return {name: self.force_of_operator(name) for name in names}

    def budgets_s(self) -> tuple[float, float]:
        """The budget of the first tune of a group, and that of each later one; 0: the setting `budget`."""
        if isinstance(self.budget_s, str):
            return BUDGET_S, LATER_BUDGET_S
        return self.budget_s or 0.0, self.budget_s or 0.0

    def begins_without_database(self, rank: int) -> bool:
        """Returns true if a group begins with the default choices. Rank 0 decides for all of them: it reads the file.

        A file that the first tune makes is not missed. Without a tune it is, and the group warns.
        """
        if not self.database:
            return self.database is None
        return self.tunes and rank == 0 and not os.path.exists(self.database)

    def settings_of_group(self) -> dict[str, Any]:
        """The settings of cotune that a group is made with. A file that is named here is the only database."""
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
