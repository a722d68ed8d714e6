"""The steps that all ranks of a race do together, with a thread for each rank and no process group."""

import threading
import types
import unittest
from unittest import mock

import torch

from cotune.torch import groups, plain_race, process_groups
from cotune.torch.given_back import Verdict
from cotune.torch.plain_race import Contest, PlainRace

RANKS = 2
CONTEST = Contest("all_reduce", "%x = input f32 [R, 1]; %a = all_reduce sum %x; return %a", 8)
AVERAGE = Contest("all_reduce", "%x = input f32 [R, 1]; %a = all_reduce average %x; return %a", 8)


class Meeting:
    """Words of the ranks, by the names of meetings. The third rank that comes to none is waited for at most a minute."""

    def __init__(self):
        self.lock = threading.Lock()
        self.words: dict[str, dict[int, dict]] = {}
        self.barriers: dict[str, threading.Barrier] = {}
        self.counts: dict[str, int] = {}

    def share(self, rank: int, name: str, word: dict) -> list[dict]:
        with self.lock:
            self.words.setdefault(name, {})[rank] = word
            barrier = self.barriers.setdefault(name, threading.Barrier(RANKS, timeout=60))
        barrier.wait()
        return [self.words[name][each] for each in range(RANKS)]

    def add(self, name: str, count: int) -> int:
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + count
            return self.counts[name]


def race_of(meeting: Meeting, rank: int, budget_s: float = 60.0) -> PlainRace:
    place = types.SimpleNamespace(name="g", rank=rank, size=RANKS, global_ranks=[4, 6], store=meeting, timeout_s=60.0)
    race = PlainRace(place, None, -1, lambda name, word: meeting.share(rank, name, word), "plain/1", 60.0, budget_s)
    race._group = lambda: "own"
    return race


class StepsTest(unittest.TestCase):
    def on_ranks(self, run) -> list:
        """The results of a function of the meeting and the rank. An exception is a result."""
        meeting, found = Meeting(), [None] * RANKS

        def of_rank(rank: int) -> None:
            try:
                found[rank] = run(meeting, rank)
            except Exception as error:  # noqa: BLE001  the test compares it
                found[rank] = error

        threads = [threading.Thread(target=of_rank, args=(rank,)) for rank in range(RANKS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return found

    def test_a_rank_that_cannot_prepare_keeps_nobody_in_a_run(self):
        """No rank begins what all of them run together."""
        runs = []

        def run(meeting: Meeting, rank: int) -> Verdict:
            race = race_of(meeting, rank)
            race._by_cotune = lambda contest: print
            race._timed = lambda ways: runs.append(rank)
            if rank == 1:
                race._by_cotune = mock.Mock(side_effect=MemoryError("it is too large"))
            return race.run_program(CONTEST)

        for verdict in self.on_ranks(run):
            self.assertEqual(verdict.why_not, "rank 6 could not make the operands: MemoryError: it is too large")
            self.assertFalse(verdict.gives_back)
        self.assertEqual(runs, [])

    def test_the_first_of_several_failures_is_the_reason(self):
        first_has_failed = threading.Event()

        def run(meeting: Meeting, rank: int) -> str:
            race = race_of(meeting, rank)

            def fail() -> None:
                if rank == 0:
                    first_has_failed.wait()
                    raise ConnectionError("closed by the other one")
                raise LookupError("no route\nand more lines")

            real = race._close

            def close() -> None:
                real()
                first_has_failed.set()

            race._close = close
            race._try("run", fail)
            return ""

        for failure in self.on_ranks(run):
            self.assertEqual(str(failure), "rank 6 could not run: LookupError: no route")

    def test_the_bound_of_time_is_agreed(self):
        """The time of one rank is over in a run. That run counts, and no later one begins, on no rank."""
        runs = []

        def run(meeting: Meeting, rank: int) -> list[Verdict]:
            race = race_of(meeting, rank, budget_s=1000.0)
            race._by_cotune = lambda contest: print

            def timed(ways: dict) -> dict[str, list[float]]:
                runs.append(rank)
                if rank == 1:
                    race._end_s = 0.0
                return {"cotune": [1.0] * 15, "plain": [2.0] * 15}

            race._timed = timed
            return [race.run_program(CONTEST) for _ in range(3)]

        with mock.patch.object(plain_race.plain_form, "collectives_alone", lambda *given: print):
            found = self.on_ranks(run)
        for first, *others in found:
            self.assertEqual((first.why_not, first.ratio[1]), ("", 0.5))
            for verdict in others:
                self.assertRegex(verdict.why_not, "the 1000 s for races .* were over")
        self.assertEqual(sorted(runs), [0, 1])

    def test_the_rounds_end_with_the_bound(self):
        meeting = Meeting()
        race = race_of(meeting, 0, budget_s=0.5)
        limits = []
        with mock.patch.object(plain_race, "Rounds") as rounds:
            rounds.return_value.time.side_effect = lambda ways, limit_s, is_over: limits.append(limit_s)
            race._timed({})
            race._end_s = 0.0
            race._timed({})
            race._end_s = float("inf")
            race._timed({})
        self.assertLessEqual(limits[0], 0.5)
        self.assertEqual(limits[1:], [0.0, plain_race.LIMIT_S])

    def test_the_option_of_the_bound(self):
        self.assertEqual(groups.TuneSettings.of().races_plain_budget_s, 20.0)
        self.assertEqual(groups.TuneSettings.of(races_plain_budget_s=3).races_plain_budget_s, 3)
        for wrong in (0, -1, 3601, True, "20", None):
            with self.assertRaisesRegex(TypeError, "'races_plain_budget_s' is a number of seconds above 0 and up to 3600"):
                groups.TuneSettings.of(races_plain_budget_s=wrong)

    def test_averages_that_pytorch_does_not_give(self):
        race = race_of(Meeting(), 0)
        with mock.patch.object(process_groups, "averages", return_value=False):
            self.assertRegex(race.run_program(AVERAGE).why_not, "give no averages")

    def test_operands_fit_a_share_of_the_memory(self):
        need = 3 * CONTEST.rows * torch.float32.itemsize
        for allowed, is_made in ((need, True), (need - 1, False)):
            with mock.patch.object(plain_race.race_memory, "allowed_bytes", return_value=allowed):
                with mock.patch.object(plain_race.torch.ops.cotune, "program", mock.Mock(), create=True):
                    if is_made:
                        race_of(Meeting(), 0)._by_cotune(CONTEST)
                        continue
                    with self.assertRaises(MemoryError):
                        race_of(Meeting(), 0)._by_cotune(CONTEST)


if __name__ == "__main__":
    unittest.main()
