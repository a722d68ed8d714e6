"""Decides the collectives of programs, by all ranks of a process group together.

A collective is known by its key: kind, dtype, reduction, root and number of elements. Calls of ranks that match have the
same key, whatever graphs they stand in, so that each rank has the same answer to "is this key decided?". A call whose
key is not decided is a place where all ranks are, or will come to, because PyTorch's collective would wait for all of
them there as well: there they meet, once for each key. They exchange the programs that they have, tune those that all
of them have, and agree on the collectives of these and on the key. A call whose key is decided waits for nobody.

A program with dynamic rows decides all numbers of elements of its collectives at its first meeting, where it is tuned at
a few sizes. The ranks meet again when another size has been called a few times (owners.py). This module runs the first call
of a program at each size of its grid, and each call at which the ranks meet. The operator library runs and counts all others.

A key is "fixed" if a capture of some rank has recorded PyTorch's collective for it before it was decided, or if PyTorch's
form of its programs is faster (giving_back.py): such a collective runs by PyTorch on all ranks, as long as the process group
lives.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import logging
import os
import threading
import weakref
from typing import Any

import torch

from cotune import _structs
from cotune._interrupt import callback, keeper
from cotune.constants import Result
from cotune.errors import AbortedError, CotuneError, DeadlineError, RankLostError
from cotune.torch import (
    function_stage,
    given_back,
    group_making,
    groups,
    library,
    plain,
    plain_form,
    process_groups,
    whole_graph,
)
from cotune.torch.collective_key import Key
from cotune.torch.giving_back import Candidate, GivingBack, compile_anew
from cotune.torch.log import log
from cotune.torch.manifest import Entry, by_size, graph_digest_of, manifest_text, parse_manifest
from cotune.torch.meeting import Place
from cotune.torch.owners import CALLS, Owner, Owners, keys_at
from cotune.torch.program_text import Node

# The manifest of a call whose collectives are agreed (integration/torch/cotune_torch.h).
_AGREED = "agreed"
# Forms of PyTorch that one process group compiles for calls of programs with dynamic rows; each takes seconds.
_FORMS_MAX = 8
# Ranks wait at least so many seconds for one that compiles functions: a compiler may take minutes on a busy machine.
_COMPILE_S = 600.0


def _digest(entry: Entry) -> str:
    return hashlib.sha256(str(entry).encode()).hexdigest()[:24]


def _keys_of(text: str, rows: int, ranks: int) -> frozenset[Key]:
    """The keys of the collectives of a program that is run with so many rows."""
    return frozenset(key for key, _ in keys_at(text, rows, ranks))


class Agreement:
    """The decisions of the ranks of a process group for operands on one device.

    This module keeps one until the process group is destroyed. Any thread may call run(), under a lock.
    """

    def __init__(self, name: str, process_group: Any, device: int):
        self._name = name
        self._device = device
        self._size = process_group.size()
        self._made_place: Place | None = None
        self._lock = threading.RLock()
        self._manifest = ""
        self._latest: list[Entry] = []  # the programs of the graph that ran last, by size
        self._tuned: set[str] = set()  # digests of entries
        self._fixed: set[Key] = set()  # see the head of this file
        self._owners = Owners(self._size, self._add_calls)
        self._races = 0  # meetings at which PyTorch's form has raced
        self._is_raced_by_all = False  # all ranks want these races, as they stated at the last meeting
        self._forms: dict[tuple[str, int], plain_form.Form] = {}
        self._uncompiled: set[str] = set()  # reported reasons for calls that run uncompiled

    def run(
        self, inputs: list[torch.Tensor], outputs: list[torch.Tensor], program: str, manifest: str
    ) -> None:
        """Runs a program, after it has decided its first collective with the other ranks if that is due and possible.

        The operator library calls it for calls that it may not run by itself (see _run_agreed). Raises ValueError for tensors
        that do not fit the program, TimeoutError if ranks do not come, RuntimeError if a tune fails, and the CotuneError of a
        group that has failed.
        """
        with self._lock:
            if manifest and manifest != self._manifest:
                self._manifest, self._latest = manifest, by_size(parse_manifest(manifest))
            if groups.is_plain_anyway(self._name, self._device):
                groups.ensure(self._name, self._device)
            run = plain.Run(program, inputs, self._name, self._run_collective)
            run.check_outputs(outputs)
            keys = run.keys()
            # No part of the program has run yet, so that all ranks are at its first collective here.
            self._decide(keys[0])
            is_agreed = not self._is_plain() and all(self._is_agreed(key) for key in keys)
            if is_agreed and not self._owners.is_due_within(keys):
                self._run_agreed(inputs, outputs, program, keys, run.rows())
                return
            self._run_by_pytorch(run, outputs, program, keys)

    def _run_by_pytorch(self, run: plain.Run, outputs: list[torch.Tensor], program: str, keys: list[Key]) -> None:
        """Runs a program by PyTorch's collectives: compiled, if a race has found that to be faster for dynamic rows."""
        form = self._form_of(run, program) if all(map(self._owners.is_by_pytorch, keys)) else None
        if form is None:
            run.write(outputs)
            return
        run.write_results(outputs, form(*run.operands))
        run.count_collectives()

    def _form_of(self, run: plain.Run, program: str) -> plain_form.Form | None:
        """Returns PyTorch's form of a program, compiled for the rows of a call; None if its operations run one by one.

        The first _FORMS_MAX row counts are compiled, and stay. A cache that dropped one to compile another would compile for
        seconds in each call of a model whose sizes change all the time.
        """
        known = self._forms.get((program, run.rows()))
        if known is not None:
            return known
        if len(self._forms) >= _FORMS_MAX:
            self._note_uncompiled(f"{_FORMS_MAX} row counts are compiled, which is the most of a process group")
            return None
        if self._is_capturing():
            self._note_uncompiled("a capture compiles nothing")
            return None
        known = self._forms[program, run.rows()] = plain_form.compiled(program, run.operands, self._name)
        return known

    def _note_uncompiled(self, reason: str) -> None:
        """Reports once for each reason that PyTorch's form runs uncompiled."""
        if reason in self._uncompiled:
            return
        self._uncompiled.add(reason)
        text = (
            f"PyTorch's form of programs with dynamic rows runs its operations one by one at further row counts: {reason}; the "
            "option rows gives programs few sizes"
        )
        given_back.note_line(self._name, text)
        level = logging.WARNING if self._place().rank == 0 else logging.INFO
        log.log(level, "process group %r: %s", self._name, text)

    def _run_agreed(
        self, inputs: list[torch.Tensor], outputs: list[torch.Tensor], program: str, keys: list[Key], rows: int
    ) -> None:
        """Runs a program whose keys are agreed, and admits later calls that add to the same counters: they run without Python."""
        torch.ops.cotune.program.default(inputs, outputs, program, self._name, _AGREED)
        self._owners.count(keys)
        calls = self._owners.calls_like(program, rows)
        counters = (ctypes.c_uint32 * len(calls.counters))(*calls.counters)
        library.load().cotune_torch_group_admit(
            self._name.encode(), self._device, program.encode(), calls.first_elements, calls.last_elements,
            counters, len(counters), CALLS,
        )  # fmt: skip

    def _add_calls(self, counter: int, calls: int) -> int:
        """Adds calls to a counter of the group, and returns the sum."""
        return library.load().cotune_torch_group_count(self._name.encode(), self._device, counter, calls)

    def _run_collective(self, node: Node, x: torch.Tensor, key: Key) -> torch.Tensor | None:
        """Runs one collective of a program by itself. Returns its result; None if PyTorch has to run it."""
        self._decide(key)
        if self._is_plain() or not self._is_agreed(key):
            return None
        rows = list(x.shape)
        if node.op == "all_gather":
            rows[0] *= self._size
        elif node.op == "reduce_scatter":
            rows[0] //= self._size
        result = x.new_empty(rows)
        self._run_agreed([x], [result], key.text, [key], key.rows)
        return result

    def _is_capturing(self) -> bool:
        return self._device >= 0 and torch.cuda.is_current_stream_capturing()

    def _place(self) -> Place:
        if self._made_place is None:
            self._made_place = Place(self._name, groups.process_group_of(self._name), self._device)
        return self._made_place

    def _is_plain(self) -> bool:
        entry = groups.entry_of(self._name, self._device)
        return entry is not None and entry.is_plain

    def _is_agreed(self, key: Key) -> bool:
        return not self._is_by_pytorch(key) and key.rows > 0 and self._has_agreed(key.text, key.rows)

    def _is_by_pytorch(self, key: Key) -> bool:
        return key in self._fixed or self._owners.is_by_pytorch(key)

    def _has_agreed(self, program: str, rows: int) -> bool:
        """Returns true if all collectives of a program are agreed at so many rows."""
        if not library.is_there():
            return False
        name, text = self._name.encode(), program.encode()
        return library.load().cotune_torch_group_is_agreed(name, self._device, text, rows) == 1

    def _decide(self, key: Key) -> None:
        """Meets the other ranks if the key is not decided or a tune of its size is due, and if they all wait at this collective."""
        if self._is_plain() or self._is_by_pytorch(key):
            return
        if not key.waits_for_all:
            # The ranks cannot meet at a broadcast, but one that a capture has recorded by PyTorch stays with it.
            if key.rows > 0 and self._is_capturing() and not self._is_agreed(key):
                self._fixed.add(key)
            return
        due = self._owners.due_owner(key)
        if due is not None:
            self._meet_for_sizes(due, key)
        elif not self._is_agreed(key):
            self._meet_for_key(key)

    def _meet_for_key(self, key: Key) -> None:
        if self._is_capturing():
            # A capture waits for nobody: this rank fixes the key, and the others find that when they meet for it.
            self._fixed.add(key)
            self._place().leave_word(f"key/{key.name}", self._word())
            return
        words = self._share(f"key/{key.name}", self._word(), key)
        self._is_raced_by_all = all(word["races"] for word in words)
        self._fixed.update(Key(*each) for word in words for each in word["fixed"])
        if key in self._fixed:
            return
        groups.ensure(self._name, self._device)
        if not self._is_plain():
            self._tune_and_agree(key, [each["programs"] for each in words])
        if not groups.entry_of(self._name, self._device).tunes:
            self._owners.close()

    def _meet_for_sizes(self, owner: Owner, key: Key) -> None:
        """Tunes an owner at the size of a call and at other sizes that were called, and agrees on its choices anew."""
        words = self._share(f"sizes/{owner.name}/{owner.meetings}", {"races": self._races_here()}, key)
        self._is_raced_by_all = all(word["races"] for word in words)
        owner.meetings += 1
        entry = owner.settle_called(key)
        self._decide_together([entry], key)
        self._give_back([], [entry], key)

    def _share(self, meeting: str, word: dict[str, Any], key: Key) -> list[dict[str, Any]]:
        words, _ = self._place().share(
            meeting, word, self._what(key), hint=group_making.LATE_HINT, check=self._check_group
        )
        return words

    def _share_compiled(self, meeting: str, word: dict[str, Any]) -> list[dict[str, Any]]:
        place = self._place()
        timeout_s = max(place.timeout_s, _COMPILE_S)
        words, _ = place.share(meeting, word, "compiled its functions", timeout_s, check=self._check_group)
        return words

    def _word(self) -> dict[str, Any]:
        fixed = [dataclasses.astuple(key) for key in self._fixed]
        return {"programs": [_digest(entry) for entry in self._latest], "fixed": fixed, "races": self._races_here()}

    def _races_here(self) -> bool:
        """Returns true if this rank is set to compare programs with PyTorch's form. They are compared if all ranks are."""
        entry = groups.entry_of(self._name, self._device)
        return groups.races_plain() if entry is None else entry.races_plain

    def _check_group(self) -> None:
        """Raises the error of a group that has failed; it names the rank that has died."""
        entry = groups.entry_of(self._name, self._device)
        if entry is None or entry.group is None:
            return
        try:
            entry.group.check()
        except (RankLostError, DeadlineError, AbortedError):
            raise
        except CotuneError:
            pass  # The group goes on after all other errors, or another thread is in a call of it.

    def _has_fixed(self, entry: Entry) -> bool:
        """Returns true if an agreement on a program would decide a fixed key."""
        if entry.has_any_rows:
            # A program with dynamic rows decides all numbers of elements.
            return not {key.text for key in self._fixed}.isdisjoint(plain.texts_of_collectives(entry.text))
        return any(not self._fixed.isdisjoint(_keys_of(entry.text, rows, self._size)) for rows in entry.rows)

    def _what(self, key: Key) -> str:
        if groups.entry_of(self._name, self._device) is None:
            return "come to its first operator"
        return f"come to the {key.kind} of {key.rows} elements"

    def _tune_and_agree(self, key: Key, programs: list[list[str]]) -> None:
        """Tunes the programs that all ranks have, in the order of rank 0, and agrees on their collectives and on the key.

        Programs with dynamic rows come last, because they decide all numbers of elements that the others leave open.
        """
        own = {_digest(entry): entry for entry in self._latest}
        common = [each for each in programs[0] if all(each in other for other in programs)]
        if self._fixed:
            common = [each for each in common if not self._has_fixed(own[each])]
        entries = [own[each] for each in common if each not in self._tuned]
        # A tune of a program whose collectives are all agreed would change nothing.
        static = [
            entry
            for entry in entries
            if not entry.has_any_rows and not all(self._has_agreed(entry.text, rows) for rows in entry.rows)
        ]
        for entry in static:
            for each in (each for rows in entry.rows for each in _keys_of(entry.text, rows, self._size)):
                self._owners.decide(each)
        made = [self._owners.claim(entry) for entry in entries if entry.has_any_rows]
        dynamic = [self._first_sizes(owner, key) for owner in made if owner is not None]
        # Programs with a collective that was agreed earlier may not go back to PyTorch: graphs that run already use it.
        new = [entry for entry in static if not any(map(self._is_agreed, self._keys_of_entry(entry)))]
        self._decide_together([*static, *dynamic], key)
        self._owners.decide(key)
        self._tuned.update(common)
        self._give_back(new, dynamic, key)

    def _keys_of_entry(self, entry: Entry) -> frozenset[Key]:
        return frozenset(each for rows in entry.rows for each in _keys_of(entry.text, rows, self._size))

    def _give_back(self, static: list[Entry], dynamic: list[Entry], key: Key) -> None:
        """Races programs that have just been tuned against PyTorch's form, and lets PyTorch run those for which it is faster.

        All ranks decide the same.
        """
        entry = groups.entry_of(self._name, self._device)
        is_raced = self._is_raced_by_all and entry is not None and not entry.is_plain and entry.races_plain
        if not is_raced:
            return
        candidates = [
            Candidate(each.text, rows, _keys_of(each.text, rows, self._size))
            for each in [*static, *dynamic]
            for rows in each.rows
        ]
        owned = {each.text for each in dynamic}
        candidates = [each for each in candidates if self._may_be_given_back(each, each.text in owned)]
        if not candidates:
            return
        self._races += 1
        process_group = groups.process_group_of(self._name)
        share = lambda meeting, word: self._share(meeting, word, key)  # noqa: E731
        deciding = GivingBack(self._place(), process_group, self._device, share, f"plain/{self._races}")
        graph = whole_graph.take(self._name, self._manifest)
        why_no_graph = self._why_no_graph({each for candidate in candidates for each in candidate.keys})
        back = deciding.decide(candidates, graph_digest_of(self._manifest), graph, why_no_graph)
        for each in back:
            if each.text in owned:
                self._owners.give_back(each.rows, each.keys)
            else:
                self._fixed.update(each.keys)
        if texts := {each.text for each in back} - owned:
            compile_anew(self._name, texts)

    def _why_no_graph(self, may_go: set[Key]) -> str:
        """Returns why the graph of this rank cannot race as a whole against its form without programs; "" if it can.

        `may_go` has the collectives that the race may give back. The others run in both forms as they were decided earlier,
        so that each of them has to be agreed or given back already.
        """
        device = torch.device("cpu") if self._device < 0 else torch.device("cuda", self._device)
        for entry in self._latest:
            for key in () if entry.has_any_rows else self._keys_of_entry(entry):
                if key in may_go or self._is_agreed(key) or given_back.reason_of(self._name, device, key):
                    continue
                return f"its {key.kind} of {key.rows} elements is not agreed, and runs by PyTorch, perhaps in a program"
        return ""

    def _may_be_given_back(self, candidate: Candidate, has_owner: bool) -> bool:
        if has_owner:
            return all(self._owners.is_owned_by(each, candidate.text) for each in candidate.keys)
        return all(each.waits_for_all and self._owners.owner_of(each) is None for each in candidate.keys)

    def _first_sizes(self, owner: Owner, key: Key) -> Entry:
        """Settles the sizes of an owner's first tune. Returns the program with these sizes."""
        if self._device < 0:
            return owner.settle_all() if owner.has_chosen_sizes else owner.settle_near(key)
        # A GPU measures the whole grid in seconds. A later tune would block the host, which a call of NCCL does not, and drop
        # plans that a capture needs.
        entry = owner.settle_all()
        owner.is_closed = True
        return entry

    def _decide_together(self, entries: list[Entry], key: Key) -> None:
        """Tunes programs and agrees on their collectives, and then on the key. Collective over the ranks.

        Raises RuntimeError with the library's reason if that fails.
        """
        error = _structs.Error()
        error.struct_size = ctypes.sizeof(error)
        group = groups.entry_of(self._name, self._device)
        with function_stage.compiled(group, entries, self._share_compiled):
            result = library.load().cotune_torch_group_decide(
                self._name.encode(), self._device, manifest_text(entries).encode() if entries else b"", key.text.encode(),
                key.rows, ctypes.byref(error),
            )  # fmt: skip
        if result != Result.SUCCESS:
            raise RuntimeError(error.text.decode(errors="replace"))



# Reentrant: a garbage collection in a thread that holds it may run the finalizer of a process group.
_lock = threading.RLock()
# By name and device: the process group that had the name when the agreement was made, and the agreement.
_agreements: dict[tuple[str, int], tuple[weakref.ref[Any], Agreement]] = {}


def _of(name: str, device: int) -> Agreement:
    groups.drop_stale()
    process_group = groups.process_group_of(name)
    with _lock:
        known = _agreements.get((name, device))
        if known is not None and known[0]() is process_group:
            return known[1]
        made = Agreement(name, process_group, device)
        _agreements[name, device] = weakref.ref(process_group), made
    # The user may hold either object after the process group is destroyed, so that the first that goes counts.
    for each in (process_group, process_groups.object_of_group_life(process_group)):
        weakref.finalize(each, _forget_in, os.getpid(), (name, device), weakref.ref(made))
    return made


def _forget_in(process: int, key: tuple[str, int], agreement: weakref.ref[Agreement]) -> None:
    """Forgets the agreement of a process group that is destroyed, also if no group of cotune was made for it."""
    # A forked child runs the finalizers of its parent as well.
    if os.getpid() != process:
        return
    with _lock:
        known = _agreements.get(key)
        if known is not None and known[1] is agreement():
            del _agreements[key]


def _forget(name: str) -> None:
    with _lock:
        for key in [key for key in _agreements.copy() if key[0] == name]:
            _agreements.pop(key, None)


groups.when_dropped(_forget)


def run_program(
    inputs: list[torch.Tensor], outputs: list[torch.Tensor], program: str, group_name: str, manifest: str
) -> None:
    """Runs a program that the operator library may not run by itself; see Agreement.run."""
    device = inputs[0].get_device() if inputs[0].is_cuda else -1
    _of(group_name, device).run(inputs, outputs, program, manifest)


@callback
def _run_undecided(inputs: Any, outputs: Any, program: str, group_name: str, manifest: str) -> str:
    """The entry from the operator library. Returns the text of an error, which the operator raises, or "".

    Ctrl-C on this rank alone must not keep it from a collective that the other ranks run. It is therefore held back until the
    operator returns, and becomes a KeyboardInterrupt then. Meanwhile it ends a tune, or a meeting to which a rank does not come.
    """
    why = ""
    try:
        try:
            keeper.begin()
            run_program(inputs, outputs, program, group_name, manifest)
        except KeyboardInterrupt:
            keeper.raise_later()
            why = "interrupted (Ctrl-C)"
        except Exception as failure:  # noqa: BLE001  the operator raises it
            why = str(failure) or type(failure).__name__
        finally:
            keeper.end()
    except KeyboardInterrupt:
        keeper.raise_later()  # It came as the handler was put back, after the collective.
    return why


def install() -> None:
    """Lets the operator library pass programs whose collectives are not agreed to this module. Called once a process."""
    defined = plain.operator_library()
    defined.define(
        "program_undecided(Tensor[] inputs, Tensor(a!)[] outputs, str program, str group_name, str manifest) -> str"
    )
    defined.impl("program_undecided", _run_undecided, "CompositeExplicitAutograd")
    library.load().cotune_torch_set_meets(1)
