"""Decides which collectives of programs are given back to PyTorch, by all ranks of a process group together.

This follows the tune of a meeting (agreement.py), before any call has run by the results of that tune. A collective that was
decided earlier stays as it is, because ranks may run it from graphs that are not compiled anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from cotune.errors import CotuneError
from cotune.torch import compat, decisions, given_back, groups, process_groups, report, verdict_file
from cotune.torch.collective_key import Key
from cotune.torch.given_back import Verdict
from cotune.torch.joint_steps import Share
from cotune.torch.log import log
from cotune.torch.meeting import Place
from cotune.torch.plain_race import Contest, PlainRace
from cotune.torch.program_text import in_one_line
from cotune.torch.whole_graph import WholeGraph


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A program at one row count, with the keys of its collectives, which may be given back."""

    text: str
    rows: int
    keys: frozenset[Key]

    @property
    def contest(self) -> Contest:
        return Contest(report.program_name(self.text), self.text, self.rows)


class GivingBack:
    """The decisions of one meeting. All ranks make one with the same candidates.

    Args:
      place: the place of the process group.
      share: gives a word to a meeting of that name, and returns the words of all ranks.
      name: the name of this meeting, which no other one has.
    """

    def __init__(self, place: Place, process_group: Any, device: int, share: Callable[[str, dict[str, Any]], Any], name: str):
        self._place = place
        self._device = device
        self._torch_device = torch.device("cpu") if device < 0 else torch.device("cuda", device)
        self._backend = process_groups.group_backend(process_group)
        self._entry = groups.entry_of(place.name, device)
        self._share: Share = lambda meeting, word: share(f"{name}/{meeting}", word)
        entry = self._entry
        self._race = PlainRace(
            place, process_group, device, self._share, name, entry.race_timeout_s, entry.races_plain_budget_s
        )
        self._options = compat.options_text(compat.inductor_options())
        self._new: dict[str, Verdict] = {}  # verdicts of this process, by their names in the file

    def decide(self, candidates: list[Candidate], digest: str, graph: WholeGraph | None, why_no_graph: str) -> dict[Candidate, str]:
        """Races the candidates, and then the graph of this rank. Returns the candidates that are given back, with the reasons.

        It is collective over the ranks, and all of them return the same.

        Args:
          candidates: equal on all ranks.
          digest: the digest of the graph of this rank, "" if it has none.
          graph: the graph of this rank; None if it came out of a cache.
          why_no_graph: why the graph of this rank cannot race; "" if it can, as far as the caller knows.
        """
        with self._race.session():
            verdicts = self._verdicts(candidates)
            back = _given_back(candidates, verdicts)
            for each, reason in back.items():
                self._note_keys(each, reason)
            left = [each for each in candidates if each not in back]
            if left:
                verdict = self._graph_verdict(digest, graph, why_no_graph, left)
                back |= {each: f"its whole graph is faster without it: {verdict.times}" for each in left if verdict.gives_back}
                verdicts.append(verdict)
            for each, reason in back.items():
                self._note_keys(each, reason)
        given_back.note(self._place.name, verdicts)
        if self._new and self._place.rank == 0 and self._entry.verdicts_path:
            verdict_file.write(self._entry.verdicts_path, {name: dataclasses.asdict(each) for name, each in self._new.items()})
        report.show_verdicts(self._place.name, self._place.rank, verdicts)
        return back

    def _note_keys(self, candidate: Candidate, reason: str) -> None:
        for key in candidate.keys:
            given_back.give_back(self._place.name, self._torch_device, key, reason)

    def _verdicts(self, candidates: list[Candidate]) -> list[Verdict]:
        names = [self._name(each.text, each.rows, [each]) for each in candidates]
        known, _ = self._known("programs", names, {})
        found = []
        for name, candidate, verdict in zip(names, candidates, known, strict=True):
            found.append(verdict or self._measured(name, self._race.run_program(candidate.contest)))
        return found

    def _graph_verdict(self, digest: str, graph: WholeGraph | None, why_not: str, left: list[Candidate]) -> Verdict:
        """Races the graph that all ranks have, with the programs of `left` against the same graph without them.

        The other programs of the graph stay in both forms, because their collectives were decided earlier.
        """
        keys = frozenset(key for each in left for key in each.keys)
        name = self._name(f"{digest} after {given_back.key()} without {sorted(key.name for key in keys)}", 0, left)
        reason = why_not or ("it came out of a cache" if graph is None else graph.why_not)
        (known,), words = self._known("graph", [name], {"digest": digest, "why_not": reason, "is_left": bool(why_not)})
        is_one_graph = len({word["digest"] for word in words}) == 1
        if is_one_graph and digest and known and not any(word["is_left"] for word in words):
            return known
        for rank, word in zip(self._place.global_ranks, words, strict=True):
            if word["why_not"]:
                return Verdict("", "", 0, why_not=f"rank {rank}: {word['why_not']}")
        if not is_one_graph:
            return Verdict("", "", 0, why_not="the ranks have different graphs")
        without = lambda: given_back.as_if(self._place.name, self._torch_device, keys)  # noqa: E731
        return self._measured(name, self._race.run_graph(graph, without))

    def _name(self, text: str, rows: int, candidates: list[Candidate]) -> str:
        choices = sorted((each.text, each.rows, self._choice_of(each)) for each in candidates)
        size = self._place.size
        return verdict_file.digest(text, rows, size, self._device, self._backend, repr(choices), self._options)

    def _choice_of(self, candidate: Candidate) -> str:
        """Returns the id of the choice by which cotune runs a candidate, and the reason if that is not the tuned one."""
        try:
            with self._entry.group._handle.exclusive() as address:
                answer = report.explained(address, candidate.text, candidate.rows)
        except CotuneError:
            return ""
        return "" if answer is None else f"{answer['choice']} {answer.get('refused', '')}"

    def _known(
        self, meeting: str, names: list[str], word: dict[str, Any]
    ) -> tuple[list[Verdict | None], list[dict[str, Any]]]:
        """Returns the verdicts of these names that rank 0 finds in its file, in their order, and the words of all ranks.

        Only the names of rank 0 count: those of a rank with another number of threads differ.
        """
        path = self._entry.verdicts_path if self._place.rank == 0 else ""
        own = verdict_file.read(path, names) if path else {}
        kept = [_verdict_of(own[name]) if name in own else None for name in names]
        words = self._share(f"known {meeting}", {**word, "known": [each and dataclasses.asdict(each) for each in kept]})
        return [each and _verdict_of(each) for each in words[0]["known"]], words

    def _measured(self, name: str, verdict: Verdict) -> Verdict:
        if not verdict.why_not:
            self._new[name] = verdict
        return verdict


def _verdict_of(data: Any) -> Verdict | None:
    """Returns the verdict in an entry of the file; None if the entry has other fields, for example from another version."""
    try:
        low, middle, high = map(float, data["ratio"])
        times = {name: float(data[name]) for name in ("cotune_us", "plain_us")}
        return Verdict(**{**data, **times, "ratio": (low, middle, high), "is_measured_here": False})
    except (KeyError, TypeError, ValueError):
        return None


def _given_back(candidates: list[Candidate], verdicts: list[Verdict]) -> dict[Candidate, str]:
    """Returns the candidates that are given back. Candidates that share a collective are given back together, if one of them is
    faster by PyTorch, and if all of them together take less time by PyTorch."""
    back: dict[Candidate, str] = {}
    for several in _connected(candidates):
        of_them = [verdicts[candidates.index(each)] for each in several]
        if not any(each.gives_back for each in of_them) or any(each.ratio is None for each in of_them):
            continue
        if sum(each.plain_us for each in of_them) < sum(each.cotune_us for each in of_them):
            back |= {each: f"torch/plain is faster: {verdict.times}" for each, verdict in zip(several, of_them, strict=True)}
    return back


def _connected(candidates: list[Candidate]) -> list[list[Candidate]]:
    """Divides the candidates into sets that have no collective in common."""
    found: list[list[Candidate]] = []
    for candidate in candidates:
        touched = [each for each in found if any(not candidate.keys.isdisjoint(other.keys) for other in each)]
        found = [each for each in found if each not in touched]
        found.append([*(other for each in touched for other in each), candidate])
    return found


def compile_anew(group_name: str, texts: set[str]) -> None:
    """Makes the functions that have these programs compile anew at their next calls.

    The programs of graphs that came out of a cache are not known. If a program is in no graph that was compiled here, all
    functions whose graphs came out of a cache are compiled anew.
    """
    ids, known = set(), set()
    for graph in decisions.graphs():
        held = {in_one_line(each.text) for each in graph.programs if each.group == group_name} & texts
        known |= held
        ids |= {graph.compile_id} if held and graph.compile_id else set()
    if known != texts:
        ids |= decisions.cached_ids()
    if not compat.forget_compiled_code(ids):
        log.warning(
            "collectives of process group %r were given back to PyTorch, and torch %s cannot compile single functions anew: the "
            "operator runs them by PyTorch until you call torch.compiler.reset()",
            group_name,
            torch.__version__,
        )
