"""Explains how programs run: for each its place in the code and, for each tuned size, the choice, its time and its age.

The facts come from a tune of this process or from the database. They cover graphs that were compiled here, and those that came
out of Inductor's cache, because the code that Inductor generated has the texts of their programs. The explanation ends with the
number of collectives outside of compiled graphs, which cotune does not see.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime
import functools
from collections.abc import Iterable
from typing import Any

from cotune.errors import CotuneError
from cotune.torch import compat, custom_operators, custom_race, decisions, given_back, groups, outside, report
from cotune.torch.custom_operators import UndeclaredOperator
from cotune.torch.decisions import ProgramDecision
from cotune.torch.manifest import parse_manifest
from cotune.torch.program_text import in_one_line

_CALL = "torch.ops.cotune.program.default("
_NOT_SEEN = (
    "collectives outside of compiled graphs (DDP, hooks of FSDP2, graph breaks, async_op=True, eager calls) are not seen, and "
    "run by PyTorch"
)
_DECIDED_BEFORE = "not tuned: its collectives run as an earlier program has decided, or by the default"


@dataclasses.dataclass
class SizeExplanation:
    """The choice that a program runs at one row count. Times are in microseconds, of one call.

    Attributes:
      rows: the row count.
      choice: the id of the choice that runs at this size.
      source: "table" if the size was tuned; "forced" if the setting force_choice gives the choice; "relative" if it runs by the
        row of the dispatch table for another call, which `note` names; otherwise the source in cotune_explain_json.
      time_us: the measured time of the choice; None if it was not measured, or if this rank does not know the time.
      default_time_us: the time of the default choice in the same measurement; None as above.
      gain: default_time_us / time_us; None if one of them is.
      is_measured_here: true if this process has measured the size, false if the database had it.
      measured_unix_s: when it was measured, in seconds since 1970; None on a rank other than 0 that has loaded a database.
      is_default: true if the choice is the default one; the gain is 1 then.
      note: an explanation that the numbers need, or "".
    """

    rows: int
    choice: str
    source: str
    time_us: float | None = None
    default_time_us: float | None = None
    gain: float | None = None
    is_measured_here: bool = False
    measured_unix_s: int | None = None
    is_default: bool = False
    note: str = ""


# Sizes.


def _verdict(choices: list[dict[str, Any]], **wanted: Any) -> dict[str, Any] | None:
    """Returns the first choice with a time in the decisive heat whose fields have these values; None without one."""
    for each in choices:
        is_wanted = all(each[name] == value for name, value in wanted.items())
        if is_wanted and each["time_us"] and each["outcome"] in ("timed", "outpaced"):
            return each
    return None


def size_of(answer: dict[str, Any], rows: int, program: groups.ProgramOfGroup) -> SizeExplanation:
    """Makes the explanation of one size from an answer of cotune_explain_program_json."""
    size = SizeExplanation(rows, answer["choice"], answer["source"])
    if size.source == "forced":
        size.note = "forced, whatever was measured"
        if answer["forced_refused"]:
            size.note += f"; not for all of its collectives: {answer['forced_refused']}"
        return size
    if answer.get("relative"):
        size.source, size.note = "relative", f"not measured: it runs by the row of {answer['relative']}"
        return size
    if size.source != "table":
        size.note = f"the tuned choice does not run: {answer['refused']}" if answer["refused"] else program.why_untuned
        return size
    size.is_measured_here = rows in program.measured
    measured = report.measured_size(answer)
    if measured is None:
        return size
    size.measured_unix_s = measured.get("measured_unix_s") or None
    # The database keeps an older steady result rather than a new unsteady one, so that this one may be older than the tune.
    if (size.measured_unix_s or program.begun_unix_s) < program.begun_unix_s:
        size.is_measured_here = False
    runs = _verdict(measured["choices"], choice=size.choice)
    default = _verdict(measured["choices"], is_default=True)
    if runs is not None:
        size.time_us = runs["time_us"]
    if default is not None:
        size.default_time_us = default["time_us"]
        size.is_default = default["choice"] == size.choice
        if default["outcome"] == "outpaced" and not size.is_default:
            size.note = "the default eliminated early"
    if measured["winner"] != size.choice:
        notes = [size.note] if size.note else []
        size.note = "; ".join([*notes, f"{measured['winner']} won; the ranks run the collective by the choice that they agreed on"])
    if measured.get("unsteady"):
        size.note = "; ".join(filter(None, [size.note, "unsteady times, which the next tune measures again"]))
    elif size.time_us and size.default_time_us:
        size.gain = size.default_time_us / size.time_us
    return size


def sizes_of(entry: groups.GroupEntry, text: str, rows: Iterable[int]) -> list[SizeExplanation]:
    """Returns the tuned sizes of a program in a group, or its first size if none is tuned.

    The list is empty if the group is plain, has failed, or is in a call of another thread.
    """
    if entry.is_plain or entry.group is None:
        return []
    known = entry.programs.get(text)
    program = known or groups.ProgramOfGroup(why_untuned=_DECIDED_BEFORE)
    answers = {}
    try:
        with entry.group._handle.exclusive() as address:
            for each in sorted({*rows, *program.rows}):
                answers[each] = report.explained(address, text, each)
    except CotuneError:
        return []
    sizes = {each: answer for each, answer in answers.items() if answer is not None}
    tuned = {each for each, answer in sizes.items() if each in program.rows or report.measured_size(answer) is not None}
    return [size_of(sizes[each], each, program) for each in sorted(tuned) or sorted(sizes)[:1]]


def _entry_of(name: str, text: str) -> groups.GroupEntry | None:
    """Returns the group that runs a program: the one that has tuned it, or else the first of that name; None without one."""
    found = [entry for entry in groups.entries() if entry.name == name]
    return next((entry for entry in found if text in entry.programs), found[0] if found else None)


def _sizes_of_decision(program: ProgramDecision) -> tuple[groups.GroupEntry | None, list[SizeExplanation]]:
    text = in_one_line(program.text)
    entry = _entry_of(program.group, text)
    return entry, [] if entry is None else sizes_of(entry, text, program.rows)


# Graphs that came out of a cache.


@dataclasses.dataclass(frozen=True)
class _Generated:
    """The facts about a file of generated code that an explanation needs.

    Attributes:
      programs: (program, group, manifest) of each program operator that it calls.
      calls: its calls of custom operators.
      leaves_collectives: true if it calls functional collectives of PyTorch.
    """

    programs: tuple[tuple[str, str, str], ...]
    calls: tuple[custom_operators.Call, ...]
    leaves_collectives: bool


@functools.lru_cache(maxsize=1024)
def _generated(file: str) -> _Generated:
    """The facts about a file. The code itself, which is long, is not kept."""
    code = _code_of(file)
    return _Generated(
        _programs_in(code), custom_operators.calls_in_code(code), custom_operators.calls_functional_collectives(code)
    )


def _code_of(file: str) -> str:
    """The code that Inductor has generated; "" if the file is gone."""
    try:
        with open(file, encoding="utf-8") as source:
            return source.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _programs_in(code: str) -> tuple[tuple[str, str, str], ...]:
    """(program, group, manifest) of each program operator that generated code calls."""
    found = []
    for line in (line.strip() for line in code.splitlines()):
        if not line.startswith(_CALL):
            continue
        try:
            call = ast.parse(line, mode="eval").body
            texts = [each.value for each in call.args[2:5] if isinstance(each, ast.Constant)]
        except (SyntaxError, AttributeError):
            continue
        if len(texts) == 3 and all(isinstance(each, str) for each in texts):
            found.append(tuple(texts))
    return tuple(found)


def _cached_programs() -> list[ProgramDecision]:
    """Returns the programs that this process runs and whose graphs are not in decisions.graphs(): most came out of a cache."""
    rows: dict[tuple[str, str], set[int]] = {}
    for entry in groups.entries():
        for text, program in entry.programs.items():
            rows.setdefault((entry.name, text), set()).update(program.rows)
    for file in compat.generated_files():
        for text, group, manifest in _generated(file).programs:
            rows.setdefault((group, text), set())
            for each in parse_manifest(manifest) if manifest else []:
                rows.setdefault((group, each.text), set()).update(each.rows)
    listed = {(each.group, in_one_line(each.text)) for graph in decisions.graphs() for each in graph.programs}
    made = []
    for (group, text), counts in rows.items():
        if (group, text) in listed:
            continue
        entry = _entry_of(group, text)
        known = entry.programs.get(text) if entry is not None else None
        origin = known.origin if known is not None else None
        made.append(ProgramDecision(text.replace("; ", "\n"), group, [], 0, sorted(counts), [], origin))
    return made


def _cached_operators() -> list[UndeclaredOperator]:
    """Returns the undeclared operators that generated code calls, without those that decisions.graphs() lists."""
    listed = {each.operator for graph in decisions.graphs() for each in graph.undeclared}
    found: dict[str, UndeclaredOperator] = {}
    for file in compat.generated_files():
        for each in custom_operators.undeclared_of(_generated(file).calls):
            if each.operator in listed:
                continue
            known = found.setdefault(each.operator, each)
            if known is not each:
                known.calls += each.calls
                known.groups = list(dict.fromkeys([*known.groups, *each.groups]))
    return list(found.values())


# Collectives outside of graphs.


def _graphs_leave_collectives() -> bool:
    """Returns true if compiled graphs of this process may have collectives that PyTorch or a custom operator runs.

    A custom operator without a group argument may be a collective as well.
    """
    if decisions.calls_custom_operators() or any(graph.left for graph in decisions.graphs()):
        return True
    files = (_generated(file) for file in compat.generated_files())
    return any(each.leaves_collectives or each.calls for each in files)


def outside_line() -> str:
    """Returns the line about collectives outside of compiled graphs, with their number."""
    found = outside.count()
    if found.groups == 0:
        return f"{_NOT_SEEN}; this process has no process group now, and PyTorch numbers collectives by process groups"
    counted = found.groups - len(found.uncounted)
    where = "its process group" if counted == 1 else f"its {counted} process groups"
    if counted == 0:
        text = ""
    elif found.calls and _graphs_leave_collectives():
        text = (
            f"; this process has made at most {found.calls} in {where}: the calls of collectives that compiled graphs leave to "
            "PyTorch are in this number"
        )
    else:
        text = f"; this process has made {found.calls or 'none'} in {where}"
    if found.uncounted:
        text += f"; the backends of {', '.join(found.uncounted)} do not number theirs"
    return _NOT_SEEN + text


# Text and data.


def _time_text(time_us: float | None) -> str:
    return "-" if time_us is None else f"{time_us:.1f} us"


def _gain_text(size: SizeExplanation) -> str:
    if size.gain is None:
        return "-"
    return "default" if size.is_default else f"{size.gain:.2f}x"


def _since_text(size: SizeExplanation) -> str:
    if size.source != "table":
        return size.note
    if size.is_measured_here:
        since = "measured by this process"
    elif size.measured_unix_s is None:
        since = "from the database; rank 0 has the day"
    else:
        since = f"from the database, {datetime.datetime.fromtimestamp(size.measured_unix_s).date().isoformat()}"
    return f"{since}; {size.note}" if size.note else since


def size_lines(sizes: list[SizeExplanation]) -> list[str]:
    """Returns the lines of the table of a program's sizes."""
    if not sizes:
        return []
    cells = [("rows", "runs", "time", "gain", "since")]
    cells += [
        (str(each.rows), each.choice, _time_text(each.time_us), _gain_text(each), _since_text(each)) for each in sizes
    ]
    width = [max(len(row[column]) for row in cells) for column in range(4)]
    return [
        f"    {rows:>{width[0]}}  {choice:<{width[1]}}  {time:>{width[2]}}  {gain:>{width[3]}}  {since}"
        for rows, choice, time, gain, since in cells
    ]


class _Lines:
    """Makes the lines of each program. If several graphs have a program, its sizes are listed once."""

    def __init__(self) -> None:
        self._written: set[tuple[str, str]] = set()

    def of(self, program: ProgramDecision) -> list[str]:
        key = (program.group, in_one_line(program.text))
        if key in self._written:
            return ["    its sizes are listed above"]
        entry, sizes = _sizes_of_decision(program)
        if entry is None:
            return ["    it has not run yet"]
        if entry.is_plain:
            return ["    PyTorch's own collectives run it"]
        if sizes:
            self._written.add(key)
        return [*size_lines(sizes), *(f"    {each}" for each in given_back.verdicts_of(*key))]


def explain() -> str:
    """Returns the text of cotune.torch.explain()."""
    lines = _Lines()
    text = decisions.explain(lines.of)
    cached = _cached_programs()
    if cached:
        text += "programs of graphs that came out of a cache:\n"
    for program in cached:
        name = f"  {program.text.splitlines()[0]}{decisions.place(program.origin)}: group {program.group}"
        text += "\n".join([name, *lines.of(program)]) + "\n"
    operators = _cached_operators()
    if operators:
        text += "custom operators of graphs that came out of a cache, or that were compiled without cotune:\n"
    text += "".join(f"{line}\n" for each in operators for line in decisions.undeclared_lines(each))
    text += "".join(f"group {name}: {verdict}\n" for name, verdict in given_back.graph_verdicts())
    text += "".join(f"group {name}: {line}\n" for name, line in given_back.lines())
    text += "".join(f"{line}\n" for line in custom_race.lines())
    return f"{text}{outside_line()}\n" + "".join(f"{line}\n" for line in groups.explain())


def explain_data() -> list[dict[str, Any]]:
    """Returns the data of cotune.torch.explain_data(): a dict for each graph, with the fields of GraphDecision.

    Each program has its sizes and its verdicts. If graphs came out of a cache, their programs and undeclared operators are in a
    last dict, whose `is_from_cache` is true and whose `number` is -1.
    """
    found = [{**each, "is_from_cache": False} for each in decisions.explain_data()]
    cached, operators = _cached_programs(), _cached_operators()
    if cached or operators:
        graph = decisions.GraphDecision(-1, 0, 0.0, cached, [], undeclared=operators)
        found.append({**dataclasses.asdict(graph), "is_from_cache": True})
    for graph in found:
        for program in graph["programs"]:
            program["name"] = report.program_name(program["text"])
            decision = ProgramDecision(program["text"], program["group"], [], 0, program["rows"], [])
            program["sizes"] = [dataclasses.asdict(size) for size in _sizes_of_decision(decision)[1]]
            verdicts = given_back.verdicts_of(program["group"], in_one_line(program["text"]))
            program["verdicts"] = [dataclasses.asdict(verdict) for verdict in verdicts]
    return found
