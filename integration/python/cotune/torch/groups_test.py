"""How the ranks of a process group meet, in threads of one process; no library is needed."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from cotune.constants import Result
from cotune.errors import CotuneError, UsageError
from cotune.torch import compat, group_making, groups, meeting, process_groups
from cotune.torch.testing.process_group import StandInGroup, ranks_of_group


def made_group(process_group: Any, device: int) -> groups.GroupEntry:
    return group_making.make("g", process_group, device, groups.tune_settings())


class FakeGroup:
    def __init__(self, *arguments: Any, **options: Any):
        self.options = options
        self.is_destroyed = False
        FakeGroup.last = self

    def destroy(self) -> None:
        self.is_destroyed = True


class MeetingTest(unittest.TestCase):
    def setUp(self) -> None:
        self.ranks = ranks_of_group()
        patches = [
            mock.patch.object(meeting, "LATE_S", 0.1),
            mock.patch.object(group_making, "_WORD_GRACE_S", 0.1),
            mock.patch.object(group_making, "Group", FakeGroup),
            mock.patch.object(groups._native, "library", lambda: None),
            mock.patch.object(groups.library, "load", lambda: None),
            mock.patch.object(process_groups, "group_timeout_s", lambda group, device: 0.5),
        ]
        for each in patches:
            each.start()
            self.addCleanup(each.stop)

    def _meet_both(self) -> list[groups.GroupEntry]:
        entries: list[Any] = [None, None]

        def meet(rank: int) -> None:
            entries[rank] = made_group(self.ranks[rank], -1)

        threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return entries

    def test_a_rank_that_does_not_come_is_named(self) -> None:
        with self.assertLogs("cotune.torch", "WARNING") as logged:
            with self.assertRaisesRegex(TimeoutError, "rank 0 has waited for 0.5 s.*'g': rank 1. They"):
                made_group(self.ranks[0], -1)
        self.assertEqual(len(logged.output), 1)
        self.assertIn("rank 0 has waited for 0.1 s", logged.output[0])
        self.assertIn("have ended with an error, which is in their output", logged.output[0])
        # A later first run meets the rank that comes then.
        self.assertEqual([each.reason for each in self._meet_both()], ["", ""])

    def test_an_attempt_ends_for_all_ranks_or_for_none(self) -> None:
        first, second = (meeting.Place("g", rank, -1) for rank in self.ranks)
        with self.assertRaises(TimeoutError):
            first.share("m", {"n": 0}, "come")
        # The word that the first rank has left in vain is met by nobody.
        with self.assertRaises(TimeoutError):
            second.share("m", {"n": 1}, "come")
        words: list[Any] = [None, None]

        def meet(place: meeting.Place, number: int) -> None:
            words[number], _ = place.share("m", {"n": 2 + number}, "come")

        threads = [threading.Thread(target=meet, args=each) for each in ((first, 0), (second, 1))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(words, [[{"n": 2}, {"n": 3}]] * 2)

    def test_a_word_that_is_left_is_met(self) -> None:
        first, second = (meeting.Place("g", rank, -1) for rank in self.ranks)
        first.leave_word("m", {"is_fixed": True})
        words, _ = second.share("m", {"is_fixed": False}, "come")
        self.assertEqual(words, [{"is_fixed": True}, {"is_fixed": False}])

    def test_errors_of_any_kind_are_shared(self) -> None:
        with mock.patch.object(groups.library, "load", side_effect=AttributeError("undefined symbol")):
            for entry in self._meet_both():
                self.assertRegex(entry.reason, "rank 0: AttributeError: undefined symbol")
        with mock.patch.object(group_making, "_host_id", side_effect=OSError("no boot_id")):
            self.assertRegex(self._meet_both()[1].reason, "rank 0: OSError: no boot_id")
        with mock.patch.object(group_making, "Group", side_effect=ValueError("no")):
            self.assertRegex(self._meet_both()[1].reason, "rank 0: ValueError: no")

    def _raised_by_both(self) -> list[CotuneError | None]:
        """The errors of two ranks that make their group, on threads that have the ranks as names."""
        raised: list[CotuneError | None] = [None, None]

        def meet(rank: int) -> None:
            try:
                made_group(self.ranks[rank], -1)
            except CotuneError as failure:
                raised[rank] = failure

        threads = [threading.Thread(target=meet, args=(rank,), name=str(rank)) for rank in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return raised

    def test_wrong_forced_choices_are_raised_on_all_ranks(self) -> None:
        """PyTorch's own collectives would hide from the user that nothing was forced."""
        with (
            mock.patch.object(group_making, "Group", side_effect=UsageError("host/rign cannot run all_reduce")),
            mock.patch.object(groups, "_settings", groups.TuneSettings(force={"all_reduce": "host/rign"})),
        ):
            raised = self._raised_by_both()
        for each in raised:
            self.assertIsInstance(each, UsageError)
            self.assertIn("rank 0: host/rign cannot run all_reduce", str(each))

    def test_a_list_that_is_wrong_on_one_rank_is_raised_on_all_ranks(self) -> None:
        """None of them makes a group, for which the others would wait."""
        why = 'bad value "a=b,," for force_choice (COTUNE_FORCE_CHOICE): element 2 of the list is empty'

        def why_force_is_wrong() -> str:
            return why if threading.current_thread().name == "1" else ""

        with (
            mock.patch.object(group_making.settings_file, "why_force_is_wrong", why_force_is_wrong),
            mock.patch.object(group_making, "Group", side_effect=AssertionError("a group is made")),
        ):
            raised = self._raised_by_both()
        for each in raised:
            self.assertIsInstance(each, UsageError)
            self.assertIn(f"rank 1: {why}", str(each))

    def _meet_with_budgets(self, *budgets_s: float) -> list[groups.GroupEntry]:
        """The entries of ranks that have one function, and each its own time to compile functions."""
        of_rank = {id(each): seconds for each, seconds in zip(self.ranks, budgets_s, strict=True)}
        readiness = group_making._readiness

        def ready(process_group: Any, settings: Any) -> dict[str, Any]:
            return {**readiness(process_group, settings), "functions": "v", "compile_s": of_rank[id(process_group)]}

        with (
            mock.patch.object(group_making, "_readiness", ready),
            mock.patch.object(group_making.function_choices, "functions_of", lambda group, store, prefix, forms: forms),
        ):
            return self._meet_both()

    def test_ranks_with_other_times_to_compile_use_the_smallest(self) -> None:
        with self.assertLogs("cotune.torch", "INFO") as logged:
            entries = self._meet_with_budgets(60.0, 30.5)
        self.assertEqual([each.functions_compile_budget_s for each in entries], [30.5, 30.5])
        self.assertTrue(all(each.forms is not None for each in entries))
        self.assertEqual([each.levelname for each in logged.records].count("WARNING"), 1)
        text = next(each.getMessage() for each in logged.records if each.levelname == "WARNING")
        self.assertIn("functions_compile_budget_s differs between the ranks of process group 'g': rank 0 has 60, rank 1 has 30.5", text)
        self.assertIn("use the smallest, 30.5 s", text)
        with self.assertLogs("cotune.torch", "WARNING"):
            entries = self._meet_with_budgets(0.0, 30.0)
        self.assertEqual([each.functions_compile_budget_s for each in entries], [0.0, 0.0])
        self.assertEqual([each.forms for each in entries], [None, None], "no rank compiles")
        self.assertIsNone(FakeGroup.last.options["functions"])

    def test_ranks_with_one_time_to_compile_are_not_warned(self) -> None:
        with self.assertNoLogs("cotune.torch", "INFO"):
            entries = self._meet_with_budgets(45.0, 45.0)
        self.assertEqual([each.functions_compile_budget_s for each in entries], [45.0, 45.0])

    def test_a_group_gets_the_forced_choices(self) -> None:
        force = {"all_reduce": "host/ring"}
        with mock.patch.object(groups, "_settings", groups.TuneSettings.of(force=force)):
            self._meet_both()
        self.assertEqual(FakeGroup.last.options["force"], force)
        for wrong in ("all_reduce=host/ring", {"all_reduce": 1}):
            with self.assertRaisesRegex(TypeError, "option 'force' is a dict from collectives"):
                groups.TuneSettings.of(force=wrong)
        with self.assertRaisesRegex(ValueError, "'allreduce', which is no collective; known are all_reduce, .*did you mean all_reduce"):
            groups.TuneSettings.of(force={"allreduce": "host/ring"})

    def test_the_group_is_destroyed_where_the_others_are_gone(self) -> None:
        share = meeting.Place.share

        def breaks(place: Any, name: str, *arguments: Any, **named: Any) -> Any:
            if name.endswith("made"):
                raise ConnectionError("the store is gone")
            return share(place, name, *arguments, **named)

        meeting.Place("g", self.ranks[1], -1).leave_word("ready", {"reason": "", "host": ""})
        with mock.patch.object(meeting.Place, "share", breaks), mock.patch.object(group_making, "_host_id", lambda: ""):
            with self.assertRaises(ConnectionError):
                made_group(self.ranks[0], -1)
        self.assertTrue(FakeGroup.last.is_destroyed)


class ProcessGroupTest(unittest.TestCase):
    """What a group takes over from its process group; PyTorch makes process groups of this process alone."""

    WORLD_S, OWN_S = 77.0, 33.0

    def setUp(self) -> None:
        dist.init_process_group(
            "gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=datetime.timedelta(seconds=self.WORLD_S)
        )
        self.addCleanup(dist.destroy_process_group)
        for each in (
            mock.patch.object(group_making, "Group", FakeGroup),
            mock.patch.object(groups._native, "library", lambda: None),
            mock.patch.object(groups.library, "load", lambda: None),
            mock.patch.object(groups.library, "is_there", lambda: False),
        ):
            each.start()
            self.addCleanup(each.stop)

    def _made(self, process_group: Any, device: int) -> tuple[str, dict[str, Any]]:
        """Where the group is, and the options that it is made with."""
        entry = made_group(process_group, device)
        self.assertIs(entry.group, FakeGroup.last, entry.reason)
        return entry.device, FakeGroup.last.options

    def test_deadlines_are_those_of_the_process_group(self) -> None:
        own = datetime.timedelta(seconds=self.OWN_S)
        for process_group, timeout_s in (
            (dist.group.WORLD, self.WORLD_S),
            (dist.new_group([0], timeout=own), self.OWN_S),
            (dist.new_group([0], backend="cpu:gloo,cuda:gloo", timeout=own), self.OWN_S),
        ):
            for device in (-1, 1):
                with self.subTest(timeout_s=timeout_s, device=device):
                    _, options = self._made(process_group, device)
                    self.assertEqual(options["call_timeout_s"], timeout_s)
                    self.assertEqual(options["join_timeout_s"], timeout_s)

    def test_devices_are_those_of_the_operands(self) -> None:
        for backend in (None, "gloo", "cpu:gloo", "cpu:gloo,cuda:gloo"):
            process_group = dist.new_group([0], backend=backend)
            with self.subTest(backend=backend):
                place, options = self._made(process_group, -1)
                self.assertEqual((place, options["memory"]), ("host", "host"))
                if backend != "cpu:gloo":
                    place, options = self._made(process_group, 1)
                    self.assertEqual((place, options["memory"]), ("cuda:1", "cuda"))

    def test_a_process_that_computes_on_two_gpus_has_a_group_on_each(self) -> None:
        process_group = dist.new_group([0])
        with (
            mock.patch.object(process_groups, "resolve_group", lambda name: process_group),
            mock.patch.object(group_making, "why_plain", lambda *_: ""),
            mock.patch.object(torch.cuda, "device", lambda device: contextlib.nullcontext()),
        ):
            self.addCleanup(groups.drop, "g")
            for device in (1, 0, -1):
                groups.ensure("g", device)
                groups.ensure("g", device)
        made = groups.entries()
        self.assertEqual([each.device for each in made], ["cuda:1", "cuda:0", "host"])
        self.assertEqual(len({id(each.group) for each in made}), 3)
        for device, entry in ((1, made[0]), (0, made[1]), (-1, made[2])):
            self.assertIs(groups.entry_of("g", device), entry)
        self.assertIsNone(groups.entry_of("g", 2))
        self.assertIs(groups.group_of("g", "cuda:0"), made[1].group)
        self.assertIs(groups.group_of("g", torch.device("cpu")), made[2].group)
        groups.begin_tune("g", 0, {"text": [8]}, None)
        self.assertEqual([list(each.programs) for each in made], [[], ["text"], []])
        groups.drop("g")
        self.assertEqual(groups.entries(), [])
        self.assertTrue(all(each.group.is_destroyed for each in made))

    def test_the_gpus_of_a_process_group_meet_in_the_order_of_their_use(self) -> None:
        # Rank 0 uses the GPUs 0 and 1, and rank 1 the other way round.
        store = dist.HashStore()
        words: list[list[Any]] = [[], []]

        def use(rank: int) -> None:
            ranks = StandInGroup(rank, store)
            for device in ((0, 1), (1, 0))[rank]:
                place = meeting.Place("g", ranks, device)
                words[rank] += place.share("ready", {"device": device}, "come")[0]

        with mock.patch.object(process_groups, "group_timeout_s", lambda group, device: 10.0):
            threads = [threading.Thread(target=use, args=(rank,)) for rank in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(words, [[{"device": 0}, {"device": 1}, {"device": 1}, {"device": 0}]] * 2)
        place = meeting.Place("g", StandInGroup(0, store), 1)
        self.assertFalse(place.store.check(["ready/1/0"]))

    def test_backends_as_pytorch_writes_them(self) -> None:
        for backend, written in (
            ("gloo", "cpu:gloo,cuda:gloo"),
            ("cpu:gloo", "cpu:gloo"),
            ("cpu:gloo,cuda:gloo", "cpu:gloo,cuda:gloo"),
        ):
            self.assertEqual(process_groups.group_backend(dist.new_group([0], backend=backend)), written)

    def test_a_process_group_without_a_backend_for_the_operands_is_plain(self) -> None:
        for size, backend, device, reason in (
            (2, "cpu:gloo,cuda:nccl", -1, ""),
            (2, "cpu:gloo,cuda:nccl", 1, ""),
            (2, "cuda:nccl", 0, ""),
            (2, "cuda:nccl", -1, "it has no backend for operands on the host, only cuda:nccl"),
            (2, "cpu:gloo", -1, ""),
            (2, "cpu:gloo", 1, "it has no backend for operands on cuda:1, only cpu:gloo"),
            (2, "gloo", 0, ""),
            (2, "unknown", -1, ""),
            (2, "cpu:fake,cuda:fake", -1, "its backend is fake"),
            (1, "cpu:gloo,cuda:nccl", -1, "it has one rank"),
        ):
            with self.subTest(backend=backend, device=device):
                self.assertEqual(group_making.why_plain(size, backend, device), reason)
        process_group = StandInGroup()
        with (
            mock.patch.object(process_groups, "resolve_group", lambda name: process_group),
            mock.patch.object(process_groups, "group_backend", lambda group: "cuda:nccl"),
            mock.patch.object(process_groups, "group_timeout_s", lambda group, device: 0.5),
            self.assertLogs("cotune.torch", "WARNING") as logged,
        ):
            self.addCleanup(groups.drop, "g")
            groups.resolve("g", -1)
            self.assertTrue(groups.entries()[0].is_plain)
        self.assertIn("it has no backend for operands on the host", logged.output[0])


class ExplainTest(unittest.TestCase):
    """What is said of the groups of this process."""

    def setUp(self) -> None:
        self.functions = mock.Mock()
        self.functions.cotune_last_result.return_value = 0
        group = mock.Mock(_handle=mock.Mock(exclusive=mock.MagicMock()))
        self.entry = groups.GroupEntry("g", "host", group, "")
        for each in (
            mock.patch.dict(groups._entries, {("g", -1): self.entry}),
            mock.patch.object(groups._native, "library", lambda: self.functions),
        ):
            each.start()
            self.addCleanup(each.stop)

    def test_a_group_that_runs(self) -> None:
        self.assertEqual(groups.explain(), ["group g: a group of cotune on host"])

    def test_programs_that_are_tuned_and_others(self) -> None:
        head = "group g: a group of cotune on host"
        for name in "abcd":
            groups.begin_tune("g", -1, {name: [1, 8]}, None)
        self.assertEqual(groups.explain(), [f"{head}; 4 programs are not tuned: the tune has not ended"])
        groups.end_tune("g", -1, {"a": "", "b": ""}, [("a", 8)])
        groups.end_tune("g", -1, {"c": "no choice ran", "d": "interrupted"}, [])
        others = "; 1 program is not tuned: no choice ran; 1 program is not tuned: interrupted"
        self.assertEqual(groups.explain(), [f"{head}; 2 programs are tuned{others}"])
        # A program that is tuned stays so when a later tune, at other sizes, fails.
        groups.end_tune("g", -1, {"a": "interrupted", "c": "", "d": ""}, [])
        self.assertEqual(groups.explain(), [f"{head}; 4 programs are tuned"])
        self.assertEqual((self.entry.programs["a"].rows, self.entry.programs["a"].measured), ({1, 8}, {8}))

    def test_a_group_that_has_failed(self) -> None:
        self.functions.cotune_last_error.return_value = b"rank 1 is lost"
        for result in (Result.ERROR_RANK_LOST, Result.ERROR_DEADLINE, Result.ERROR_ABORTED):
            self.functions.cotune_last_result.return_value = int(result)
            self.assertEqual(groups.explain(), ["group g: failed, and every call raises this error: rank 1 is lost"])
        self.functions.cotune_last_result.return_value = int(Result.ERROR_USAGE)
        self.assertEqual(groups.explain(), ["group g: a group of cotune on host"])

    def test_the_group_is_not_there_before_an_operator(self) -> None:
        self.assertIs(groups.group_of("g"), self.entry.group)
        groups.become_plain("g", -1, "its ranks differ")
        self.assertIsNone(groups.group_of("g"))
        self.assertEqual(groups.explain(), ["group g: plain: its ranks differ"])
        with self.assertRaisesRegex(RuntimeError, "no operator of cotune has run in process group 'h' yet"):
            groups.group_of("h")


class WithoutTorchTest(unittest.TestCase):
    def test_the_import_says_what_is_missing(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "torch.py").write_text("raise ModuleNotFoundError('No module named torch')\n")
            paths = os.pathsep.join([folder, *sys.path])
            ended = subprocess.run(
                [sys.executable, "-B", "-c", "import cotune.torch"],
                env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
            )  # fmt: skip
        oldest, newest = (".".join(map(str, each)) for each in (compat.OLDEST, compat.NEWEST))
        last = ended.stderr.splitlines()[-1]
        self.assertIn(f"ImportError: cotune.torch needs PyTorch {oldest} to {newest}, and this Python", last)
        self.assertIn("install PyTorch there", last)


class FinaliserTest(unittest.TestCase):
    def test_a_finaliser_in_a_thread_that_holds_the_lock(self) -> None:
        def collect() -> None:
            with groups._lock:
                groups.drop("g")

        thread = threading.Thread(target=collect, daemon=True)
        with mock.patch.object(groups.library, "is_there", lambda: False):
            thread.start()
            thread.join(10)
        self.assertFalse(thread.is_alive())

    def test_a_late_finaliser_leaves_the_next_group_of_the_name(self) -> None:
        before, after = (groups._Life(weakref.ref(self)) for _ in range(2))
        entry = groups.GroupEntry("g", "host", None, "")
        with (
            mock.patch.object(groups.library, "is_there", lambda: False),
            mock.patch.dict(groups._lives, {"g": after}),
            mock.patch.dict(groups._entries, {("g", -1): entry}),
        ):
            groups.drop("g", before)
            self.assertEqual(groups.entries(), [entry])
            groups.drop("g", after)
            self.assertEqual(groups.entries(), [])


if __name__ == "__main__":
    unittest.main()
