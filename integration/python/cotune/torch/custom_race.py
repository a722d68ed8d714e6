"""Runs custom operators by functions of the user, and lets these race against the body of the operator on all ranks.

At the first call of an operator with operands of new shapes, the ranks of its process group meet. Each rank makes operands of
small integers, which differ from those of other ranks. Each function runs twice on such operands, in a process group that only
functions use, and its results are compared with those of the body, value by value. A function that raises on one rank, or gives
another result there, is dropped on all. Each function is one choice as it is, and one as Inductor compiles it; the second is
left out on all ranks if one rank cannot compile it. The remaining choices race against the body in interleaved rounds; the body
stays unless a function is faster beyond the noise. All ranks decide the same, because they decide by the same words and times.

A rank that does not come to the meeting within half of the timeout of the process group ends it: the ranks that wait run the
body.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import logging
import statistics
import threading
import time
import weakref
from typing import Any

import torch

from cotune._interrupt import keeper
from cotune.torch import (
    compat,
    compile_budget,
    custom_choices,
    custom_operands,
    function_groups,
    groups,
    job_settings,
    process_groups,
    race_memory,
    verdict_file,
)
from cotune.torch.custom_choices import CustomOperator, CustomWay
from cotune.torch.custom_forms import CustomForms
from cotune.torch.joint_steps import DroppedOut, JointSteps, Share
from cotune.torch.log import log
from cotune.torch.meeting import Place, Word
from cotune.torch.timed_rounds import ROUNDS_MIN, Rounds, ratio_of

# An operator is measured for at most so many shapes; others run its body. Each meeting takes seconds, and shapes may change in
# every call.
SHAPES_MAX = 16
BUDGET_S = 20.0
_RACE_S = 10.0
_BODY = "body"


@dataclasses.dataclass
class CustomVerdict:
    """The choice of an operator for operands of some shapes in one process group, equal on all ranks.

    Attributes:
      winner: the name of the function that runs; "" for the body.
      times_us: the median time in microseconds of each choice that has raced, by its name; the body is "body".
      dropped: why a function has not raced, by its name.
      uncompiled: why Inductor cannot compile a function, by its name.
      why_not: why nothing has raced; "" if it has.
      is_from_file: an earlier process has measured it.
      is_forced: the option `force` gives the operator this choice.
    """

    winner: str = ""
    times_us: dict[str, float] = dataclasses.field(default_factory=dict)
    dropped: dict[str, str] = dataclasses.field(default_factory=dict)
    uncompiled: dict[str, str] = dataclasses.field(default_factory=dict)
    why_not: str = ""
    is_from_file: bool = False
    is_forced: bool = False

    def lines(self, subject: str) -> list[str]:
        """The verdict as text."""
        if self.why_not:
            return [f"{subject}: runs its body: {self.why_not}"]
        source = ", from the verdict file" if self.is_from_file else ", forced" if self.is_forced else ""
        found = [f"{subject}: runs {self.winner or 'its body'}{source}"]
        for name, time_us in sorted(self.times_us.items(), key=lambda each: each[1]):
            found.append(f"  {name}: {time_us:.1f} us")
        found += [f"  {name}: not compiled: {reason}" for name, reason in self.uncompiled.items()]
        return found + [f"  {name}: dropped: {reason}" for name, reason in self.dropped.items()]


@dataclasses.dataclass
class _Trial:
    """Operands of a check, and the result of the body on them."""

    operands: dict[str, Any]
    expected: Any = None


@dataclasses.dataclass
class _Decision:
    verdict: CustomVerdict
    way: CustomWay | None


class CustomRace(JointSteps):
    """The race of one operator on operands of one shape. All ranks make one with the same functions."""

    _used_for = "the functions of a custom operator"

    def __init__(self, *others: Any, forms: CustomForms, compile_s: float):
        """See JointSteps. `compile_s`: seconds for compiling functions, equal on all ranks; 0: there are no compiled forms."""
        super().__init__(*others)
        self._forms = forms
        self._compile_s = compile_s

    def run(self, operator: CustomOperator, values: dict[str, Any], forced: str = "") -> CustomVerdict:
        """Checks and races the functions, and returns the verdict. `values`: the arguments of a call, whose tensors are not read.

        If the choice `forced` is given, it is checked alone, and wins without a race.
        """
        verdict = CustomVerdict(is_forced=bool(forced))
        try:
            self._group()
            self._prepare("infer the layout of its result", lambda: _strides_of_body(operator, values))
        except DroppedOut as failure:
            verdict.why_not = f"{failure}; functions need a fake of the operator that has no sizes that depend on data"
            return verdict
        try:
            trials = self._prepare("make operands", lambda: self._trials(operator, values))
            for each in trials:
                each.expected = self._prepare(
                    f"run {operator.name} on operands of small integers", lambda each=each: self._body(operator, each.operands)
                )
        except DroppedOut as failure:
            verdict.why_not = f"{failure}; if it rejects such operands, register it with input_gen_fns"
            return verdict
        wanted = [way for way in operator.ways_with(self._compile_s > 0) if forced in ("", way.name)]
        self._compile(operator, wanted, values, verdict)
        raced = []
        for way in wanted:
            if way.name in verdict.uncompiled or way.name in verdict.dropped:
                continue
            try:
                self._group()
                self._prepare(f"run {way.name} with right results", lambda way=way: self._check(operator, way, trials))
                raced.append(way)
            except DroppedOut as failure:
                verdict.dropped[way.name] = str(failure)
        if forced and raced:
            verdict.winner = forced
        elif forced:
            verdict.why_not = _why_forced_is_out(forced, verdict)
        elif raced:
            self._time(operator, raced, trials[0].operands, verdict)
        elif self._is_over:
            verdict.why_not = self._over_text()
        return verdict

    def take_group(self) -> Any:
        """Makes the process group in which functions run after this race, with the timeout of the user's process group."""
        self._close()
        self._timeout_s = self._place.timeout_s
        self._group()
        return self._take_group()

    def _trials(self, operator: CustomOperator, values: dict[str, Any]) -> list[_Trial]:
        tensors = [each for each in values.values() if isinstance(each, torch.Tensor)]
        # Two trials have operands, and those of one are copied.
        need_bytes = 3 * sum(each.numel() * each.element_size() for each in tensors)
        race_memory.check(need_bytes, self._torch_device, self._place.size)
        return [_Trial(custom_operands.made_operands(operator, values, self._place.rank, number)) for number in range(2)]

    def _body(self, operator: CustomOperator, operands: dict[str, Any]) -> torch.Tensor:
        return operator.body(custom_operands.copied(operands), self._own.group_name)

    def _compile(self, operator: CustomOperator, wanted: list[CustomWay], values: dict[str, Any], verdict: CustomVerdict) -> None:
        """Compiles functions on all ranks, which takes no time of the race. A function that fails on one rank is left out on all."""
        compiled = [each for each in wanted if each.is_compiled]
        if not compiled or self._is_over:
            return
        begun_s = time.monotonic()
        failed = self._forms.compile_all(operator, compiled, values, self._compile_s)
        words = self._share_words("compiled", {"failed": failed, "lasting": sorted(self._forms.lasting)})
        seconds = time.monotonic() - begun_s
        self._end_s += seconds
        log.info("compiled %d functions of %s in %.1f s", len(compiled), operator.name, seconds)
        for way in compiled:
            reasons = [(rank, each["failed"][way.name]) for rank, each in enumerate(words) if way.name in each["failed"]]
            for rank, reason in reasons[:1]:
                # A reason that is not lasting may be gone in the next process, which then checks the function again.
                left_out = verdict.uncompiled if way.name in words[rank]["lasting"] else verdict.dropped
                left_out[way.name] = f"rank {self._place.global_ranks[rank]}: {reason}"

    def _call(self, operator: CustomOperator, way: CustomWay, values: dict[str, Any]) -> Any:
        if way.is_compiled:
            return self._forms.run(operator, way, values, self._own, needs_code=True)
        return operator.call(way, values, self._own.group_name)

    def _check(self, operator: CustomOperator, way: CustomWay, trials: list[_Trial]) -> None:
        """Runs a function on the operands of two trials. Raises ValueError or TypeError if it does not do the same as the body."""
        found = []
        for trial in trials:
            given = custom_operands.copied(trial.operands)
            result = self._call(operator, way, given)
            custom_operands.check_result(result, trial.expected, given)
            for name, value in trial.operands.items():
                if isinstance(value, torch.Tensor) and not torch.equal(value, given[name]):
                    raise ValueError(f"it has written to its argument {name}")
            found.append(result)
        custom_operands.check_results_are_new(found)

    def _time(self, operator: CustomOperator, raced: list[CustomWay], operands: dict[str, Any], verdict: CustomVerdict) -> None:
        try:
            name = self._group()
            calls = {_BODY: lambda: operator.body(operands, name)}
            calls |= {way.name: lambda way=way: self._call(operator, way, operands) for way in raced}
            times = self._try("race the functions", lambda: self._timed(calls))
        except DroppedOut as failure:
            verdict.why_not = str(failure)
            return
        if len(times[_BODY]) < ROUNDS_MIN:
            verdict.why_not = self._over_text() if self._is_over else f"fewer than {ROUNDS_MIN} rounds fit in its time"
            return
        verdict.times_us = {each: statistics.median(found) for each, found in times.items()}
        verdict.winner = winner_of(times, operator.threshold)

    def _timed(self, calls: dict[str, Any]) -> dict[str, list[float]]:
        limit_s = min(_RACE_S, max(0.0, self._end_s - time.monotonic()))
        return Rounds(self._own, self._device).time(calls, limit_s, lambda: keeper.ends_tune)


def _why_forced_is_out(forced: str, verdict: CustomVerdict) -> str:
    if forced in verdict.uncompiled:
        return f"{forced} was not compiled: {verdict.uncompiled[forced]}"
    return f"{forced} was dropped: {verdict.dropped.get(forced, 'it is not registered')}"


def winner_of(times: dict[str, list[float]], threshold: float) -> str:
    """Returns the fastest choice that beats the body by more than `threshold`, beyond the noise; "" for the body."""
    faster = [each for each in times if each != _BODY and ratio_of(times[_BODY], times[each]).low > threshold]
    return min(faster, key=lambda each: statistics.median(times[each]), default="")


# Calls.


class _Cells:
    """The decisions of one process group for operands on one device."""

    def __init__(self, name: str, process_group: Any, device: int):
        self.place = Place(name, process_group, device)
        self.device = device
        self.lock = threading.RLock()
        self.known: dict[tuple[str, str], _Decision] = {}
        self.shapes: collections.Counter[str] = collections.Counter()
        self.layouts: dict[Any, tuple[int, ...]] = {}
        self.given_up: dict[str, str] = {}  # why no more shapes of an operator are measured
        self.own: Any = None  # the process group in which functions run
        self.forms = CustomForms(process_group, device, f"cotune/{name}/{'cpu' if device < 0 else 'cuda'}/custom")
        weakref.finalize(self, self.forms.forget)

    # Decisions.

    def decide(self, operator: CustomOperator, key: str, values: dict[str, Any], process_group: Any) -> _Decision:
        """Meets the other ranks for operands of a new shape, and keeps the decision. All ranks do so in the same call."""
        with self.lock:
            if (operator.name, key) in self.known:
                return self.known[operator.name, key]
            custom_choices.note_used(operator)
            why_not = self.given_up.get(operator.name, "")
            if self.shapes[operator.name] >= SHAPES_MAX:
                why_not = why_not or f"{SHAPES_MAX} other shapes were measured"
            if name := custom_operands.unlike_copies(values):
                why_not = why_not or f"elements of its argument {name} overlap or lie apart"
            if why_not:
                # The decision is not kept: with new shapes in every call, the list would grow without end.
                return _Decision(CustomVerdict(why_not=why_not), None)
            self.shapes[operator.name] += 1
            verdict = self._met(operator, key, values, process_group)
            way = next((each for each in operator.ways if each.name == verdict.winner), None)
            made = self.known[operator.name, key] = _Decision(verdict, way)
            return made

    def _met(self, operator: CustomOperator, key: str, values: dict[str, Any], process_group: Any) -> CustomVerdict:
        settings = groups.tune_settings()
        meeting = f"custom/{hashlib.sha256(f'{operator.name} {key}'.encode()).hexdigest()[:16]}"
        path = verdict_file.path_of(settings.database) if self.place.rank == 0 else ""
        digests = [self._digest(operator, key, compiles, process_group) for compiles in (False, True)]
        word = {"compile_s": settings.functions_compile_budget_s, "tunes": settings.tunes, "numerics": settings.numerics}
        word |= _word_of_functions(operator) | _word_of_force(operator, settings)
        kept = verdict_file.read(path, digests) if path else {}
        word["known"] = [kept.get(each) if _verdict_of(kept.get(each)) else None for each in digests]
        try:
            words = self._share_of(operator, meeting, 0.0)("known", word)
        except TimeoutError as failure:
            # A rank that comes later does not wait for this one.
            self.place.leave_word(f"{meeting}/known", {"is_absent": True})
            log.warning("%s runs its body: %s", operator.name, failure)
            self.given_up[operator.name] = str(failure)
            return CustomVerdict(why_not=str(failure))
        if any(each.get("is_absent") for each in words):
            self.given_up[operator.name] = "a rank has waited for others before, and runs the body"
            return CustomVerdict(why_not=self.given_up[operator.name])
        compile_s = compile_budget.agreed_s(words, self.place, process_group)
        if (forced := _checked_force(operator, words, self.place.global_ranks, compile_s > 0)) == _BODY:
            return CustomVerdict(is_forced=True)
        if why := _why_no_race(words, compile_s > 0):
            if forced:
                level = logging.WARNING if self.place.rank == 0 else logging.INFO
                log.log(level, "%s runs its body, and not %s, which is forced: %s", operator.name, forced, why)
            return CustomVerdict(why_not=why)
        verdict = None if forced else _verdict_of(words[0]["known"][compile_s > 0])
        if verdict is not None:
            verdict = dataclasses.replace(verdict, is_from_file=True)
        elif not forced and not all(each["tunes"] for each in words):
            return CustomVerdict(why_not="tunes is off, and the verdict file has no verdict")
        limit_s = job_settings.autotune_timeout_s(settings.settings)
        # The ranks wait by the agreed time for compiling. This rank's own may be far longer, for a rank that has died.
        share = self._share_of(operator, meeting, compile_s)
        race = CustomRace(
            self.place, process_group, self.device, share, meeting, limit_s, BUDGET_S, forms=self.forms, compile_s=compile_s
        )
        with race.session(), _on_device(self.device):
            verdict = self._raced(race, operator, values, verdict, forced)
        # A function that was dropped is checked again by the next process: the reason may be gone.
        if path and not (verdict.why_not or verdict.dropped or verdict.is_from_file or forced):
            verdict_file.write(path, {digests[compile_s > 0]: dataclasses.asdict(verdict)})
        return verdict

    def _digest(self, operator: CustomOperator, key: str, compiles: bool, process_group: Any) -> str:
        """The name that the verdict file gives the verdict, with or without compiled forms."""
        return verdict_file.digest(
            f"{operator.version(compiles)} {key}", 0, self.place.size, self.device, process_groups.group_backend(process_group), "",
            compat.options_text(compat.inductor_options()) if compiles else "",
        )  # fmt: skip

    def _raced(
        self, race: CustomRace, operator: CustomOperator, values: dict[str, Any], known: CustomVerdict | None, forced: str
    ) -> CustomVerdict:
        verdict = race.run(operator, values, forced) if known is None else known
        if known is not None and known.winner:
            # Code that the function calls may have changed since it was measured: its values are checked in each process.
            checked = race.run(operator, values, known.winner)
            verdict = known if checked.winner else dataclasses.replace(checked, is_forced=False)
        if verdict.winner and self.own is None:
            try:
                self.own = race.take_group()
            except DroppedOut as failure:
                return CustomVerdict(why_not=str(failure))
        return verdict

    def _share_of(self, operator: CustomOperator, meeting: str, compile_s: float) -> Share:
        def share(step: str, word: Word) -> list[Word]:
            what = f"called {operator.name} with the same shapes in a compiled graph"
            # A rank that does not come may be in the collectives of the body already, whose timeout must not end first. A rank
            # that compiles longer than this one does come, so that it gets the time for compiling in addition.
            limit_s = self.place.timeout_s / 2 + (compile_s if step == "compiled" else 0.0)
            return self.place.share(f"{meeting}/{step}", word, what, limit_s)[0]

        return share

    # Results.

    def run(self, operator: CustomOperator, way: CustomWay, values: dict[str, Any]) -> Any:
        """Runs the function that the ranks have chosen, as it is or compiled, and returns its result."""
        if way.is_compiled:
            return self.forms.run(operator, way, values, self.own)
        return operator.call(way, values, self.own.group_name)

    def laid_out(self, operator: CustomOperator, key: str, values: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
        """The result with the strides that compiled code expects: those of the body."""
        strides = tuple(each.stride() for each in values.values() if isinstance(each, torch.Tensor))
        place = operator.name, key, strides
        if place not in self.layouts:
            self.layouts[place] = _strides_of_body(operator, values)
        wanted = self.layouts[place]
        if result.stride() == wanted:
            return result
        return torch.empty_strided(result.size(), wanted, dtype=result.dtype, device=result.device).copy_(result)


# The words that ranks give at the meeting. "version", "choices" and "known" have two elements, without the compiled forms and with
# them, because the ranks learn only at the meeting whether all of them have time to compile.


def _word_of_functions(operator: CustomOperator) -> Word:
    return {
        "version": [operator.version(compiles) for compiles in (False, True)],
        "choices": [[_BODY, *(way.name for way in operator.ways_with(compiles))] for compiles in (False, True)],
    }


def _word_of_force(operator: CustomOperator, settings: groups.TuneSettings) -> Word:
    """Returns the choice that the user forces, and the setting that gives it.

    If the setting cannot be read, the word has the reason, and no error is raised, because the other ranks wait for this one.
    """
    try:
        forced, origin = settings.force_of_operator(operator.name)
    except ValueError as failure:
        return {"forced": "", "force_origin": "", "wrong_force": str(failure)}
    return {"forced": forced, "force_origin": origin, "wrong_force": ""}


def _why_no_race(words: list[Word], compiles: bool) -> str:
    if any(each["numerics"] != "any" for each in words):
        return "numerics is not any, and a function may give other bits than the body"
    for rank, each in enumerate(words):
        if each["version"][compiles] != words[0]["version"][compiles]:
            return f"rank {rank} of the process group has registered other functions than rank 0"
    return ""


def _checked_force(operator: CustomOperator, words: list[Word], global_ranks: list[int], compiles: bool = True) -> str:
    """Returns the choice that the user forces, or "". Raises ValueError if a rank does not have it, or if the ranks differ.

    It decides by the words alone, so that all ranks raise the error.
    """
    for rank, each in zip(global_ranks, words, strict=True):
        if each["wrong_force"]:
            raise ValueError(f"rank {rank}: {each['wrong_force']}")
    forced = [each["forced"] for each in words]
    where = f"{next((each['force_origin'] for each in words if each['forced']), '')} for {operator.name}"
    if len(set(forced)) > 1:
        raise ValueError(f"{where} differs between the ranks of the process group: {', '.join(map(repr, forced))}; give it on all of them")
    for rank, each in zip(global_ranks, words, strict=True):
        if forced[0] and forced[0] not in each["choices"][compiles]:
            on = "" if all(other["choices"] == each["choices"] for other in words) else f" on rank {rank}"
            hint = "" if compiles or forced[0] not in each["choices"][True] else "; functions_compile_budget_s is 0 on one rank or on all"
            raise ValueError(f"{where} is {forced[0]!r}, and its choices{on} are {', '.join(each['choices'][compiles])}{hint}")
    return forced[0]


def _verdict_of(data: Any) -> CustomVerdict | None:
    try:
        return CustomVerdict(**data)
    except TypeError:
        return None


def _strides_of_body(operator: CustomOperator, values: dict[str, Any]) -> tuple[int, ...]:
    with compat.fake_mode()():
        fakes = {
            name: torch.empty_strided(each.size(), each.stride(), dtype=each.dtype, device=each.device)
            if isinstance(each, torch.Tensor)
            else each
            for name, each in values.items()
        }
        return tuple(operator.overload(**fakes).stride())


def _on_device(device: int) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if device < 0 else torch.cuda.device(device)


_cells: weakref.WeakKeyDictionary[Any, dict[int, _Cells | None]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def run(operator: CustomOperator, values: dict[str, Any]) -> torch.Tensor:
    """Runs a call of an operator in a compiled graph by the choice of the ranks. `values`: all arguments by their names."""
    name = values[operator.group]
    process_group = process_groups.resolve_group(name)
    device = _device_of(values)
    if device >= 0 and torch.cuda.is_current_stream_capturing():
        # A capture runs the body: nothing can be measured in it, and a function that waits for its GPU ends it with an error.
        return operator.body(values, name)
    cells = None if process_group is None else _cells_of(name, process_group, device)
    if cells is None:
        return operator.body(values, name)
    key = operator.key_of(values)
    decision = cells.known.get((operator.name, key))
    if decision is None:
        decision = cells.decide(operator, key, values, process_group)
    if decision.way is None:
        return operator.body(values, name)
    return cells.laid_out(operator, key, values, cells.run(operator, decision.way, values))


def _device_of(values: dict[str, Any]) -> int:
    """Returns the GPU of a call, or -1 for the host. A call on a GPU may have tensors on the host as well."""
    return max((each.get_device() for each in values.values() if isinstance(each, torch.Tensor) and each.is_cuda), default=-1)


def _cells_of(name: str, process_group: Any, device: int) -> _Cells | None:
    """The decisions of a process group; None if it has no ranks that could meet."""
    with _lock:
        of_group = _cells.setdefault(process_group, {})
        if device not in of_group:
            is_alone = process_group.size() == 1 or "fake" in process_groups.group_backend(process_group) or function_groups.is_own(name)
            of_group[device] = None if is_alone else _Cells(name, process_group, device)
        return of_group[device]


def lines() -> list[str]:
    """The verdicts of all process groups as text, for explain()."""
    with _lock:
        all_cells = [each for of_group in list(_cells.values()) for each in of_group.values() if each is not None]
    found = []
    for cells in all_cells:
        for (name, key), decision in list(cells.known.items()):
            found += decision.verdict.lines(f"group {cells.place.name}: {name}({key})")
    return found
