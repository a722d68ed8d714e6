"""Meetings that another rank or Ctrl-C ends, and the words that they leave in the store; no library is needed.

groups_test.py has meetings that go well, and those to which a rank does not come.
"""

from __future__ import annotations

import itertools
import signal
import threading
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from cotune._interrupt import callback, keeper
from cotune.errors import RankLostError
from cotune.torch import meeting, process_groups
from cotune.torch.testing.process_group import ranks_of_group

_WAIT_S = 5.0


class MeetingTest(unittest.TestCase):
    def setUp(self) -> None:
        for each in (
            mock.patch.object(meeting, "LATE_S", 0.1),
            mock.patch.object(meeting, "_LOOK_S", 0.05),
            mock.patch.object(meeting, "_DEATH_S", 0.5),
            mock.patch.object(process_groups, "group_timeout_s", lambda group, device: 30.0),
            mock.patch.object(meeting.log, "log"),
        ):
            each.start()
            self.addCleanup(each.stop)

    def _places(self, size: int = 2) -> list[meeting.Place]:
        return [meeting.Place("g", each, -1) for each in ranks_of_group(size)]

    def _together(self, *calls: Callable[[], Any]) -> list[Any]:
        """The results of functions that run at the same time; an exception is a result."""
        results: list[Any] = [None] * len(calls)

        def run(index: int) -> None:
            try:
                results[index] = calls[index]()
            except BaseException as failure:  # noqa: BLE001
                results[index] = failure

        threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
        for each in threads:
            each.start()
        for each in threads:
            each.join(_WAIT_S)
        return results

    def _meet(self, places: list[meeting.Place], name: str) -> None:
        found = self._together(*(lambda place=place: place.share(name, {"n": place.rank}, "come") for place in places))
        words = [{"n": place.rank} for place in places]
        self.assertEqual([each[0] for each in found], [words] * len(places))

    def test_a_rank_that_dies_ends_the_meeting(self) -> None:
        looks = itertools.count()

        def check() -> None:
            if next(looks) >= 6:
                raise RankLostError("rank 1 died")

        first, second, _ = self._places(3)
        found = self._together(
            lambda: first.share("m", {}, "come", check=check), lambda: second.share("m", {}, "come", check=check)
        )
        self.assertEqual([str(each) for each in found], ["rank 1 died"] * 2)
        # A rank that comes now does not take the words of these.
        self.assertEqual(first.store.get("m/0/end"), b"over")

    def test_the_death_of_the_rank_with_the_store_becomes_known_a_little_later(self) -> None:
        place = self._places()[0]
        looks = itertools.count()

        def check() -> None:
            if next(looks) >= 2:
                raise RankLostError("rank 0 died")

        gone = mock.Mock(wraps=place.store)
        place.store = gone
        gone.check.side_effect = lambda keys: False if keys[0].endswith("end") else self._gone()
        gone.compare_set.side_effect = lambda *_: self._gone()
        with self.assertRaisesRegex(RankLostError, "rank 0 died"):
            place.share("m", {}, "come", check=check)
        # Without a group the error is that of the store.
        with self.assertRaisesRegex(RuntimeError, "connection reset"):
            place.share("m", {}, "come")

    def _gone(self) -> bool:
        raise RuntimeError("connection reset")

    def test_words_that_all_ranks_have_read_are_deleted(self) -> None:
        places = self._places()
        for name in ("a", "b"):
            self._meet(places, name)
        store = places[0].store
        words = [f"{name}/0/{rank}" for name in "ab" for rank in range(2)]
        self.assertEqual([store.check([each]) for each in words], [False, False, True, True])
        # The ends stay: nobody meets there again.
        self.assertTrue(store.check(["a/0/end"]))

    def test_words_stay_while_a_rank_may_not_have_read_them(self) -> None:
        first, second = self._places()
        self._meet([first, second], "a")
        second.leave_word("b", {"n": 1})
        first.share("b", {"n": 0}, "come")
        self.assertTrue(first.store.check(["a/0/0"]))
        self._meet([first, second], "c")
        left = [first.store.check([each]) for each in ("a/0/0", "b/0/0", "b/0/1", "c/0/0")]
        self.assertEqual(left, [False, False, True, True])

    def test_a_word_that_is_left_counts_in_later_attempts(self) -> None:
        first, second, third = self._places(3)
        third.leave_word("m", {"n": 2})
        with self.assertRaises(TimeoutError):
            first.share("m", {"n": 0}, "come", 0.2)
        found = self._together(lambda: first.share("m", {"n": 0}, "come"), lambda: second.share("m", {"n": 1}, "come"))
        self.assertEqual([each[0] for each in found], [[{"n": 0}, {"n": 1}, {"n": 2}]] * 2)

    def test_an_interrupt_ends_a_meeting_to_which_a_rank_does_not_come(self) -> None:
        first, second = self._places()

        @callback
        def call() -> str:
            try:
                keeper.begin()
                signal.raise_signal(signal.SIGINT)
                first.share("m", {"n": 0}, "come")
            except KeyboardInterrupt:
                keeper.raise_later()
                return "interrupted"
            finally:
                keeper.end()
            return ""

        signal.signal(signal.SIGINT, signal.default_int_handler)
        outcome = ""
        with self.assertRaises(KeyboardInterrupt):
            outcome = call()
            keeper.raise_kept()  # as the operator does when it returns
        self.assertEqual(outcome, "interrupted")
        # It comes to the next attempt, like the other rank.
        self._meet([first, second], "m")

    def test_an_interrupt_does_not_part_ranks_that_have_met(self) -> None:
        first, second = self._places()
        after = []

        @callback
        def call() -> None:
            waits = first._await

            def interrupted(*arguments: Any) -> bool:
                self.assertTrue(waits(*arguments))
                second._end("m/0", True)
                raise KeyboardInterrupt

            with mock.patch.object(first, "_await", interrupted):
                after.append(first.share("m", {"n": 0}, "come")[0])
            keeper.raise_kept()
            after.append("the call goes on")

        signal.signal(signal.SIGINT, signal.default_int_handler)
        second.leave_word("m", {"n": 1})
        with self.assertRaises(KeyboardInterrupt):
            call()
            keeper.raise_kept()  # as the operator does when it returns
        self.assertEqual(after, [[{"n": 0}, {"n": 1}], "the call goes on"])
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)


if __name__ == "__main__":
    unittest.main()
