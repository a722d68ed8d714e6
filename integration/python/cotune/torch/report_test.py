"""What a tune tells, and Ctrl-C while it is told; no library is needed."""

from __future__ import annotations

import ctypes
import signal
import time
import unittest
from unittest import mock

from cotune import _interrupt, _structs
from cotune.torch import groups, library, report
from cotune.tune import _progress_function

_WAIT_S = 5.0


def _event(phase: int) -> library.Tune:
    return library.Tune(phase=phase, group_name=b"0", manifest=b"", error=b"", what=b"")


class TableTest(unittest.TestCase):
    def test_a_choice_that_tied_has_its_time_with_buffers_in_the_cache(self) -> None:
        tied = {"choice": "cuda/b", "outcome": "timed", "is_default": False, "time_us": 15.2, "warm_time_us": 14.6, "reason": ""}
        alone = {**tied, "choice": "cuda/c", "time_us": 20.0, "warm_time_us": None}
        self.assertTrue(report._choice_line(tied, 15.2).endswith("0.0152 ms 100.0%  (0.0146 ms with buffers in the cache)"))
        self.assertTrue(report._choice_line(alone, 15.2).endswith("0.0200 ms  76.0%"))

    def test_what_lost_the_first_of_two_heats_comes_last(self) -> None:
        winner = {"choice": "a", "outcome": "timed", "is_default": False, "time_us": 980.0, "warm_time_us": None, "reason": ""}
        lost = {**winner, "choice": "b", "outcome": "lost_heat", "time_us": 900.0}
        measured = {"bytes": 64, "why": "the fastest", "choices": [lost, winner]}
        text = "program p\n%x = input f32 [R, 8]\n%y = all_reduce sum %x\nreturn %y\n"
        lines = report._size_lines(text, 2, 2, {"choice": "a", "bytes": 64, "measured": [measured]})
        self.assertTrue(lines[1].startswith("  a ") and lines[1].endswith("0.9800 ms 100.0%"), lines)
        self.assertTrue(lines[2].startswith("  b ") and lines[2].endswith("(lost the first of two heats)"), lines)
        self.assertEqual(lines[3], "  runs a: the fastest")


class InterruptTest(unittest.TestCase):
    def setUp(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, signal.default_int_handler)
        functions = mock.Mock()
        functions.cotune_group_rank.return_value, functions.cotune_group_device.return_value = 0, -1
        patch = mock.patch.object(report._native, "library", lambda: functions)
        patch.start()
        self.addCleanup(patch.stop)

    def _tell(self, phase: int) -> int:
        return report._listener(None, ctypes.byref(_event(phase)))

    def _interrupt_in(self, phase: int) -> None:
        def interrupted(*_) -> None:
            signal.raise_signal(signal.SIGINT)

        with (
            mock.patch.object(report, "_begins", interrupted if phase == library.TUNE_BEGINS else mock.Mock()),
            mock.patch.object(report, "_measures", interrupted if phase == library.TUNE_MEASURES else mock.Mock()),
            mock.patch.object(report, "_has_ended", interrupted if phase == library.TUNE_HAS_ENDED else mock.Mock()),
        ):
            for each in (library.TUNE_BEGINS, library.TUNE_MEASURES, library.TUNE_HAS_ENDED):
                self._tell(each)

    def test_an_interrupt_comes_when_the_tune_has_ended(self) -> None:
        for phase in (library.TUNE_BEGINS, library.TUNE_MEASURES, library.TUNE_HAS_ENDED):
            with self.subTest(phase=phase), self.assertRaises(KeyboardInterrupt):
                self._interrupt_in(phase)
                time.sleep(_WAIT_S)
            self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_an_interrupt_ends_the_tune(self) -> None:
        with mock.patch.multiple(report, _begins=mock.Mock(), _measures=mock.Mock(), _has_ended=mock.Mock()):
            self.assertEqual(self._tell(library.TUNE_BEGINS), 0)
            self.assertEqual(self._tell(library.TUNE_MEASURES), 0)
            signal.getsignal(signal.SIGINT)(signal.SIGINT, mock.Mock(f_code=report._on_tune.__code__))
            self.assertEqual(self._tell(library.TUNE_MEASURES), 1)
            with self.assertRaises(KeyboardInterrupt):
                self._tell(library.TUNE_HAS_ENDED)
                time.sleep(_WAIT_S)

    def test_an_interrupt_at_the_first_line_of_a_callback(self) -> None:
        """Which no `try` in the callback sees."""
        with mock.patch.object(report, "_begins"), mock.patch.object(report, "_has_ended"):
            self._tell(library.TUNE_BEGINS)
            signal.getsignal(signal.SIGINT)(signal.SIGINT, mock.Mock(f_code=report._on_tune.__code__))
            with self.assertRaises(KeyboardInterrupt):
                self._tell(library.TUNE_HAS_ENDED)
                time.sleep(_WAIT_S)

    def test_the_handler_is_put_back(self) -> None:
        with mock.patch.object(report, "_begins"), mock.patch.object(report, "_has_ended"):
            self._tell(library.TUNE_BEGINS)
            self.assertIsNot(signal.getsignal(signal.SIGINT), signal.default_int_handler)
            self._tell(library.TUNE_HAS_ENDED)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_a_tune_without_an_end(self) -> None:
        with mock.patch.object(report, "_begins"):
            self._tell(library.TUNE_BEGINS)
        with self.assertRaises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_the_handlers_of_others_stay(self) -> None:
        for handler in (signal.SIG_IGN, signal.SIG_DFL):
            signal.signal(signal.SIGINT, handler)
            with mock.patch.object(report, "_begins"), mock.patch.object(report, "_has_ended"):
                self._tell(library.TUNE_BEGINS)
                self.assertEqual(signal.getsignal(signal.SIGINT), handler)
                self._tell(library.TUNE_HAS_ENDED)

    def test_an_interrupt_while_the_ranks_meet(self) -> None:
        error = _structs.Error()
        with mock.patch.object(groups, "resolve", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                groups._resolver(None, b"0", -1, ctypes.byref(error))
                time.sleep(_WAIT_S)
        self.assertEqual(error.text, b"interrupted (Ctrl-C)")

    def test_an_interrupt_in_the_progress_of_a_tune(self) -> None:
        def interrupted(*_) -> None:
            signal.raise_signal(signal.SIGINT)

        function = _progress_function(interrupted)
        _interrupt.keeper.begin()
        self.assertEqual(function(None, 1, 2, b"cell"), 1)
        with self.assertRaises(KeyboardInterrupt):
            _interrupt.keeper.end()
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)


if __name__ == "__main__":
    unittest.main()
