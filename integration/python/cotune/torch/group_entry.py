"""The group of cotune that a process group has on one device, or why it has none, and the programs that it has tuned."""

from __future__ import annotations

import dataclasses

from cotune.group import Group
from cotune.torch import function_forms
from cotune.torch.origins import Origin


@dataclasses.dataclass
class ProgramOfGroup:
    """A program whose tune has begun in a process group.

    Attributes:
      rows: the row counts for which it is tuned.
      measured: those that this process has measured; the database knew the others.
      begun_unix_s: when its first tune began, in seconds since 1970. An older result comes from the database, even if this
        process has measured the size as well.
      origin: the function that ran it first; None if that is not known.
      why_untuned: "" as soon as one tune of it has succeeded.
    """

    rows: set[int] = dataclasses.field(default_factory=set)
    measured: set[int] = dataclasses.field(default_factory=set)
    begun_unix_s: int = 0
    origin: Origin | None = None
    why_untuned: str = "the tune has not ended"


@dataclasses.dataclass
class GroupEntry:
    """The state of one process group on one device: a process that computes on two GPUs has one for each.

    Attributes:
      name: the name of the process group.
      device: "host", or "cuda:N".
      group: the group of cotune; None if none could be made.
      reason: why programs run by PyTorch's collectives, which may be so although a group was made; "" if they run by the group.
      programs: the programs whose tune has begun, by their texts, including those of graphs that came out of a cache.
      tunes: false if nothing is tuned, so that programs run by the table of the database or by default choices.
      races_plain: programs race against PyTorch's form of them, for at most races_plain_budget_s seconds at one meeting.
      verdicts_path: the file that keeps the verdicts of these races; "" for none.
      race_timeout_s: seconds after which a collective on host memory ends the race of PyTorch's form.
      forms: the compiled functions that the user has registered; None if there are none, or not the same on all ranks.
      functions_compile_budget_s: seconds for compiling these functions before one tune, equal on all ranks.
    """

    name: str
    device: str
    group: Group | None
    reason: str
    programs: dict[str, ProgramOfGroup] = dataclasses.field(default_factory=dict)
    tunes: bool = True
    races_plain: bool = False
    races_plain_budget_s: float = 20.0
    verdicts_path: str = ""
    race_timeout_s: float = 30.0
    forms: function_forms.Forms | None = None
    functions_compile_budget_s: float = 120.0

    @property
    def is_plain(self) -> bool:
        """True if programs run by PyTorch's own collectives."""
        return self.group is None or self.reason != ""
