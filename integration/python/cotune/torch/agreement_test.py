"""Agreements of ranks in one process: which programs they tune, how long they live, and Ctrl-C; no library is needed."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import unittest
import weakref
from typing import Any
from unittest import mock

import torch

from cotune._interrupt import keeper
from cotune.constants import Result
from cotune.errors import RankLostError, UsageError
from cotune.torch import agreement, groups, library, owners, process_groups, report
from cotune.torch.manifest import Entry, by_size, grid, parse_manifest
from cotune.torch.program_text import parse
from cotune.torch.testing.counters import Counters
from cotune.torch.testing.process_group import StandInGroup

_WAIT_S = 5.0
PLAIN_SUM = "program a; %x = input f32 [R, 8]; %y = all_reduce sum %x; return %y"
RELU = "program b; %x = input f32 [R, 8]; %y = all_reduce sum %x; %z = relu %y; return %z"
GATHER = "program c; %x = input f32 [R/n, 4]; %y = all_gather %x; return %y"
BROADCAST = "program e; %x = input f32 [R, 8]; %y = broadcast %x, root=0; return %y"
LARGEST = "program d; %x = input f32 [R, 8]; %y = all_reduce max %x; return %y"


def keys(text: str, rows: int) -> set[agreement.Key]:
    return set(agreement._keys_of(text, rows, 2))


def call_of(text: str, rows: int) -> agreement.Key:
    (key,) = keys(text, rows)
    return key


# Eight rows of PLAIN_SUM and of RELU.
CALL = call_of(PLAIN_SUM, 8)


class ProgramsTest(unittest.TestCase):
    """The programs that two ranks tune where they meet."""

    def setUp(self) -> None:
        self.functions = mock.Mock()
        self.functions.cotune_torch_group_decide.return_value = Result.SUCCESS
        self.functions.cotune_torch_group_is_agreed.return_value = 0
        for each in (
            mock.patch.object(library, "load", lambda: self.functions),
            mock.patch.object(library, "is_there", lambda: True),
        ):
            each.start()
            self.addCleanup(each.stop)

    def _tuned(self, *manifests: str, fixed: set[agreement.Key] | None = None) -> list[str]:
        """The manifests that each rank tunes, as text; equal on all ranks."""
        ranks = [agreement.Agreement("g", StandInGroup(), -1) for _ in manifests]
        for each, manifest in zip(ranks, manifests, strict=True):
            each._latest = by_size(parse_manifest(manifest))
            each._fixed |= fixed or set()
        programs = [each._word()["programs"] for each in ranks]
        for each in ranks:
            each._tune_and_agree(CALL, programs)
        return [call.args[2].decode() for call in self.functions.cotune_torch_group_decide.call_args_list]

    def test_all_sizes_that_the_user_has_chosen_are_tuned_at_the_first_call(self) -> None:
        of_the_grid = ",".join(map(str, grid(parse(RELU), 2)))
        for rows in ("1,16,256", of_the_grid):
            self.functions.cotune_torch_group_decide.reset_mock()
            self.assertEqual(self._tuned(*[f"chosen rows {rows}: {RELU}"] * 2), [f"any rows {rows}: {RELU}"] * 2)
            self.functions.cotune_torch_group_decide.reset_mock()
            self.assertNotEqual(self._tuned(*[f"any rows {of_the_grid}: {RELU}"] * 2), [f"any rows {of_the_grid}: {RELU}"] * 2)

    def test_a_program_that_ranks_have_at_some_sizes_is_tuned_at_these(self) -> None:
        found = self._tuned(f"rows 8,16: {RELU}", f"rows 8: {RELU}")
        self.assertEqual(found, [f"rows 8: {RELU}"] * 2)

    def test_the_order_is_that_of_the_first_rank(self) -> None:
        found = self._tuned(f"rows 16,8: {RELU} | rows 8: {GATHER}", f"rows 8: {GATHER} | rows 4,8,16: {RELU}")
        self.assertEqual(found, [f"rows 8,16: {RELU} | rows 8: {GATHER}"] * 2)

    def test_a_program_with_dynamic_rows_is_one(self) -> None:
        found = self._tuned(f"any rows 8,16: {RELU} | rows 8: {RELU}", f"any rows 8,16: {RELU}")
        self.assertEqual(found, [f"any rows 8,16: {RELU}"] * 2)

    def test_a_program_with_dynamic_rows_is_tuned_around_the_call(self) -> None:
        rows = "1,4,16,64,256"
        found = self._tuned(*[f"any rows {rows}: {RELU} | any rows {rows}: {GATHER} | rows 256: {LARGEST}"] * 2)
        # 256 bytes are 8 rows of the one, and 16 of the other, which has no such collective.
        self.assertEqual(found, [f"rows 256: {LARGEST} | any rows 1,4,16: {RELU} | any rows 4,16,64: {GATHER}"] * 2)

    def test_a_program_whose_collectives_have_an_owner_is_not_tuned(self) -> None:
        found = self._tuned(*[f"any rows 8,32: {RELU} | any rows 8,32: {PLAIN_SUM}"] * 2)
        self.assertEqual(found, [f"any rows 8,32: {RELU}"] * 2)

    def test_a_fixed_key_leaves_other_sizes_to_be_tuned(self) -> None:
        manifest = f"rows 8,16: {RELU} | any rows 8,32: {PLAIN_SUM} | rows 8: {LARGEST} | rows 16: {GATHER}"
        found = self._tuned(manifest, manifest, fixed=keys(PLAIN_SUM, 8))
        self.assertEqual(found, [f"rows 16: {RELU} | rows 8: {LARGEST} | rows 16: {GATHER}"] * 2)

    def test_the_keys_of_a_program(self) -> None:
        ((of_sum,), (of_gather,)) = (keys(each, 8) for each in (RELU, GATHER))
        self.assertEqual((of_sum.kind, of_sum.rows), ("all_reduce", 64))
        self.assertEqual((of_gather.kind, of_gather.rows), ("all_gather", 32))
        self.assertEqual(keys(RELU, 8), keys(PLAIN_SUM, 8))
        self.assertNotEqual(keys(RELU, 8), keys(LARGEST, 8))

    def test_an_entry_for_each_size(self) -> None:
        entries = [Entry("a", (8, 32)), Entry("a", (8,)), Entry("b", (4, 16), has_any_rows=True)]
        self.assertEqual(by_size(entries), [Entry("a", (8,)), Entry("a", (32,)), entries[2]])


class FakePlace:
    """A place at which the other rank has given the words that a test puts there."""

    def __init__(self) -> None:
        self.met: list[str] = []
        self.left: list[tuple[str, Any]] = []
        self.others: dict[str, Any] = {}

    def share(self, meeting: str, word: Any, *_: Any, **__: Any) -> tuple[list[Any], str]:
        self.met.append(meeting)
        return [word, self.others.get(meeting, word)], meeting

    def leave_word(self, meeting: str, word: Any) -> None:
        self.left.append((meeting, word))


class SizesTest(unittest.TestCase):
    """Calls of a program with dynamic rows that was tuned at 1, 4 and 16 rows."""

    def setUp(self) -> None:
        self.functions = mock.Mock()
        self.functions.cotune_torch_group_decide.return_value = Result.SUCCESS
        self.functions.cotune_torch_group_is_agreed.return_value = 0
        self.operators = mock.Mock()
        self.entry = groups.GroupEntry("g", "host", mock.Mock(), "")
        for each in (
            mock.patch.object(library, "load", lambda: self.functions),
            mock.patch.object(library, "is_there", lambda: True),
            mock.patch.dict(groups._entries, {("g", -1): self.entry}),
            mock.patch.object(groups, "ensure", mock.Mock()),
            mock.patch.object(torch.ops, "cotune", self.operators, create=True),
        ):
            each.start()
            self.addCleanup(each.stop)
        self.agreement, self.place = self._made()

    def _made(self, device: int = -1) -> tuple[agreement.Agreement, FakePlace]:
        """A rank after its first meeting."""
        made, place = agreement.Agreement("g", StandInGroup(), device), FakePlace()
        made._made_place = place
        made._owners = owners.Owners(made._size, Counters().add)
        self.functions.cotune_torch_group_is_agreed.return_value = 0
        made._latest = by_size(parse_manifest(f"any rows 1,4,16,64,256,1024: {RELU}"))
        made._decide(CALL)
        self.functions.cotune_torch_group_is_agreed.return_value = 1
        self.assertEqual(place.met, [f"key/{CALL.name}"])
        place.met.clear()
        return made, place

    def _call(self, rows: int, rank: agreement.Agreement | None = None, program: str = RELU) -> None:
        rank = rank or self.agreement
        rank._decide(call_of(program, rows))
        rank._run_agreed([], [], program, list(keys(program, rows)), rows)

    def _tuned(self) -> list[str]:
        return [call.args[2].decode() for call in self.functions.cotune_torch_group_decide.call_args_list]

    def _admitted(self) -> list[tuple[int, int, list[int]]]:
        """The first and last rows, and the counters, of the calls that were admitted."""
        calls = [call.args for call in self.functions.cotune_torch_group_admit.call_args_list]
        return [(first // 8, last // 8, list(counters)) for _, _, _, first, last, counters, _, _ in calls]

    def test_a_size_is_tuned_when_it_has_been_called(self) -> None:
        for _ in range(owners.CALLS):
            self._call(100)
        self._call(1000)
        self.assertEqual(self.place.met, [])
        self.assertEqual(self._admitted()[:4], [(64, 255, [0])] * 4)
        self.assertEqual([each[2] for each in self._admitted()[4:]], [[1]])
        self.assertEqual(self._tuned(), [f"any rows 1,4,16: {RELU}"])
        for _ in range(3):
            self._call(70)
        (met,) = self.place.met
        self.assertRegex(met, "^sizes/[0-9a-f]+/0$")
        self.assertEqual(self._tuned()[1:], [f"any rows 64,256: {RELU}"])
        self.assertEqual(self._admitted()[5:], [(64, 255, [])] * 3)

    def test_ranks_with_other_programs_meet_at_the_same_call(self) -> None:
        other, place = self._made()
        for _ in range(owners.CALLS + 1):
            self._call(100)
            self._call(100, rank=other, program=PLAIN_SUM)
            self.assertEqual(self.place.met, place.met)
        self.assertEqual(len(place.met), 1)
        self.assertEqual(self._tuned()[-2:], [f"any rows 64: {RELU}"] * 2)

    def test_the_next_meeting_of_an_owner_has_another_name(self) -> None:
        for rows in (100, 300):
            for _ in range(owners.CALLS + 1):
                self._call(rows)
        self.assertEqual([each.rsplit("/", 1)[1] for each in self.place.met], ["0", "1"])

    def test_a_gpu_is_tuned_at_all_sizes_at_once(self) -> None:
        groups._entries["g", 0] = groups.GroupEntry("g", "cuda", mock.Mock(), "")
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: False):
            made, place = self._made(device=0)
            self.assertIn("rows 1,4,16,64,256,1024", self._tuned()[-1])
            for _ in range(2 * owners.CALLS):
                self._call(1000, rank=made)
        self.assertEqual(place.met, [])
        self.assertEqual({(first, len(counters)) for first, _, counters in self._admitted()}, {(1, 0)})

    def test_a_broadcast_that_a_capture_has_recorded_stays_with_pytorch(self) -> None:
        groups._entries["g", 0] = groups.GroupEntry("g", "cuda", mock.Mock(), "")
        self.functions.cotune_torch_group_is_agreed.return_value = 0
        made = agreement.Agreement("g", StandInGroup(), 0)
        key = call_of(BROADCAST, 4)
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True):
            made._decide(key)
        self.assertEqual(made._fixed, {key})
        other = agreement.Agreement("g", StandInGroup(), 0)
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: False):
            other._decide(key)
        self.assertEqual(other._fixed, set())

    def test_groups_that_do_not_tune_have_no_later_meetings(self) -> None:
        self.entry.tunes = False
        self.agreement, self.place = self._made()
        for _ in range(2 * owners.CALLS):
            self._call(1000)
        self.assertEqual(self.place.met, [])
        self.assertEqual({(first, len(counters)) for first, _, counters in self._admitted()}, {(1, 0)})


class LifeTest(unittest.TestCase):
    def setUp(self) -> None:
        self.group: Any = StandInGroup()
        patch = mock.patch.object(groups, "process_group_of", lambda name: self.group)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(agreement._agreements.clear)

    def test_an_agreement_whose_group_was_never_made_ends_with_its_process_group(self) -> None:
        made = weakref.ref(agreement._of("g", -1))
        self.assertIs(agreement._of("g", -1), made())
        self.group = None
        gc.collect()
        self.assertIsNone(made())
        self.assertEqual(agreement._agreements, {})

    def test_a_process_group_that_somebody_holds(self) -> None:
        lives = [StandInGroup()]
        with mock.patch.object(process_groups, "object_of_group_life", lambda group: lives[0]):
            made = weakref.ref(agreement._of("g", -1))
        lives.clear()
        gc.collect()
        self.assertIsNone(made())

    def test_a_late_finalizer_leaves_the_next_agreement_of_the_name(self) -> None:
        before = self.group
        agreement._of("g", -1)
        self.group = StandInGroup()
        after = agreement._of("g", -1)
        del before
        gc.collect()
        self.assertIs(agreement._of("g", -1), after)

    def test_the_finalizers_of_a_parent_do_nothing_in_its_child(self) -> None:
        made = agreement._of("g", -1)
        agreement._forget_in(os.getpid() + 1, ("g", -1), weakref.ref(made))
        self.assertIs(agreement._of("g", -1), made)

    def test_a_finalizer_in_a_thread_that_holds_the_lock(self) -> None:
        def collect() -> None:
            with agreement._lock:
                agreement._forget("g")

        thread = threading.Thread(target=collect, daemon=True)
        thread.start()
        thread.join(_WAIT_S)
        self.assertFalse(thread.is_alive())


class CheckTest(unittest.TestCase):
    """The group of cotune is asked for ranks that have died while this one waits."""

    def setUp(self) -> None:
        self.group = mock.Mock()
        self.agreement = agreement.Agreement("g", StandInGroup(), -1)
        patch = mock.patch.dict(groups._entries, {("g", -1): groups.GroupEntry("g", "host", self.group, "")})
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_rank_has_died(self) -> None:
        self.group.check.side_effect = RankLostError("rank 1 died")
        with self.assertRaisesRegex(RankLostError, "rank 1 died"):
            self.agreement._check_group()

    def test_errors_of_others_do_not_end_a_meeting(self) -> None:
        self.group.check.side_effect = UsageError("another thread is in a call of this group")
        self.agreement._check_group()

    def test_no_group_was_made(self) -> None:
        groups._entries["g", -1] = groups.GroupEntry("g", "host", None, "it has one rank")
        self.agreement._check_group()
        del groups._entries["g", -1]
        self.agreement._check_group()


class InterruptTest(unittest.TestCase):
    def setUp(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, signal.default_int_handler)
        self.steps: list[str] = []

    def _run(self, run_program: Any) -> str:
        with mock.patch.object(agreement, "run_program", run_program):
            return agreement._run_undecided([], [], "", "g", "")

    def _interrupt(self) -> None:
        signal.raise_signal(signal.SIGINT)

    def test_an_interrupt_is_raised_after_the_collective(self) -> None:
        def run(*_: Any) -> None:
            self._interrupt()
            self.steps.append("the collective has run")

        error = None
        with self.assertRaises(KeyboardInterrupt):
            error = self._run(run)
            keeper.raise_kept()  # as the operator does when it returns
        self.assertEqual((error, self.steps), ("", ["the collective has run"]))
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def _tell(self, phase: int) -> int:
        """Calls the listener of tunes as C does."""
        functions = mock.Mock()
        functions.cotune_group_rank.return_value, functions.cotune_group_device.return_value = 0, -1
        event = library.Tune(phase=phase, group_name=b"0", manifest=b"", error=b"", what=b"")
        with (
            mock.patch.object(report._native, "library", lambda: functions),
            mock.patch.multiple(report, _begins=mock.Mock(), _measures=mock.Mock(), _has_ended=mock.Mock()),
        ):
            return report._listener(None, ctypes.byref(event))

    def test_an_interrupt_in_a_tune_is_raised_after_the_collective(self) -> None:
        answers = []

        def run(*_: Any) -> None:
            answers.append(self._tell(library.TUNE_BEGINS))
            self._interrupt()
            answers.append(self._tell(library.TUNE_MEASURES))
            self._tell(library.TUNE_HAS_ENDED)
            answers.append(keeper.ends_tune)  # it is kept beyond the tune
            self.steps.append("the collective has run")

        with self.assertRaises(KeyboardInterrupt):
            self._run(run)
            keeper.raise_kept()  # as the operator does when it returns
        self.assertEqual((answers, self.steps), ([0, 1, True], ["the collective has run"]))
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_an_interrupt_between_a_tune_and_the_collective(self) -> None:
        def run(*_: Any) -> None:
            self._tell(library.TUNE_BEGINS)
            self._tell(library.TUNE_HAS_ENDED)
            self._interrupt()
            self.steps.append("the collective has run")

        with self.assertRaises(KeyboardInterrupt):
            self._run(run)
            keeper.raise_kept()  # as the operator does when it returns
        self.assertEqual(self.steps, ["the collective has run"])

    def test_a_meeting_that_was_interrupted(self) -> None:
        error = None
        with self.assertRaises(KeyboardInterrupt):
            error = self._run(mock.Mock(side_effect=KeyboardInterrupt))
            keeper.raise_kept()  # as the operator does when it returns
        self.assertEqual(error, "interrupted (Ctrl-C)")

    def test_the_handler_is_put_back(self) -> None:
        self.assertEqual(self._run(mock.Mock(side_effect=ValueError("wrong"))), "wrong")
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)


class FormsTest(unittest.TestCase):
    """PyTorch's form of a program with dynamic rows, at the row counts of calls."""

    def setUp(self):
        self.agreement = agreement.Agreement("forms", StandInGroup(), -1)
        self.agreement._made_place = mock.Mock(rank=0)
        self.addCleanup(agreement.given_back._forget, "forms")
        self.made: list[int] = []

    def form(self, rows: int) -> Any:
        def compiled(text: str, operands: list[int], group_name: str) -> Any:
            self.made.append(rows)
            return f"form of {rows}"

        run = mock.Mock(operands=[rows])
        run.rows.return_value = rows
        with mock.patch.object(agreement.plain_form, "compiled", compiled):
            return self.agreement._form_of(run, PLAIN_SUM)

    def test_a_form_is_compiled_once(self):
        self.assertEqual([self.form(8), self.form(16), self.form(8)], ["form of 8", "form of 16", "form of 8"])
        self.assertEqual(self.made, [8, 16])

    def test_the_first_row_counts_stay_and_the_others_are_reported_once(self):
        most = agreement._FORMS_MAX
        for rows in range(most):
            self.form(rows)
        with self.assertLogs("cotune", "WARNING") as logs:
            self.assertEqual([self.form(most), self.form(most + 1), self.form(0)], [None, None, "form of 0"])
        self.assertEqual(self.made, list(range(most)))
        self.assertEqual(len(logs.output), 1)
        ((name, line),) = agreement.given_back.lines()
        self.assertEqual(name, "forms")
        self.assertRegex(line, f"one by one at further row counts: {most} row counts are compiled.*the option rows")

    def test_a_capture_compiles_nothing(self):
        self.agreement._is_capturing = lambda: True
        with self.assertLogs("cotune", "WARNING"):
            self.assertIsNone(self.form(8))
        self.assertEqual(self.made, [])


class WhyNoGraphTest(unittest.TestCase):
    """Graphs some of whose collectives were decided before."""

    def setUp(self):
        self.agreement = agreement.Agreement("partly", StandInGroup(), -1)
        self.agreement._latest = [Entry(PLAIN_SUM, (8,)), Entry(LARGEST, (8,))]
        self.addCleanup(agreement.given_back._forget, "partly")
        self.agreed: set[str] = set()
        self.agreement._has_agreed = lambda text, rows: text in self.agreed

    def test_programs_that_may_go_or_are_agreed(self):
        self.assertEqual(self.agreement._why_no_graph(keys(PLAIN_SUM, 8) | keys(LARGEST, 8)), "")
        (largest,) = keys(LARGEST, 8)
        self.agreed.add(largest.text)
        self.assertEqual(self.agreement._why_no_graph(keys(PLAIN_SUM, 8)), "")

    def test_a_collective_that_runs_by_pytorch_in_a_program(self):
        self.assertRegex(self.agreement._why_no_graph(keys(PLAIN_SUM, 8)), "its all_reduce of 64 elements is not agreed")
        (largest,) = keys(LARGEST, 8)
        self.agreed.add(largest.text)
        self.agreement._fixed.add(largest)
        self.assertRegex(self.agreement._why_no_graph(keys(PLAIN_SUM, 8)), "its all_reduce of 64 elements is not agreed")

    def test_one_that_was_given_back_is_no_program_in_either_form(self):
        (largest,) = keys(LARGEST, 8)
        self.agreement._fixed.add(largest)
        agreement.given_back.give_back("partly", torch.device("cpu"), largest, "it lost")
        self.assertEqual(self.agreement._why_no_graph(keys(PLAIN_SUM, 8)), "")


if __name__ == "__main__":
    unittest.main()
