"""What a tune tells, and Ctrl-C while it is told; no library is needed."""

from __future__ import annotations

import ctypes
import logging
import signal
import subprocess
import sys
import threading
import unittest
from unittest import mock

from cotune import _interrupt, _structs
from cotune.constants import Result
from cotune.torch import decisions, groups, library, report
from cotune.torch.log import LinesOfGroup
from cotune.torch.origins import Origin
from cotune.tune import _progress_function


def _event(phase: int) -> library.Tune:
    return library.Tune(phase=phase, group_name=b"0", manifest=b"", error=b"", what=b"")


PROGRAM = "program p; %x = input f32 [R, 8]; %y = all_reduce sum %x; return %y"


def _choice(name: str, time_us: float | None, outcome: str = "timed", **more: object) -> dict:
    return {
        "choice": name, "outcome": outcome, "is_default": False, "time_us": time_us, "warm_time_us": None, "reason": "", **more,
    }  # fmt: skip


def _answer(runs: str, *choices: dict, **more: object) -> dict:
    winner = more.pop("winner", runs)
    measured = {
        "bytes": 64, "winner": winner, "why": "the fastest", "choices": list(choices), "measured_unix_s": 1_800_000_000,
    }  # fmt: skip
    return {"choice": runs, "source": "table", "refused": "", "bytes": 64, "measured": [measured], **more}


class TableTest(unittest.TestCase):
    def _rows(self, answer: dict, head: str = "TUNE p") -> list[str]:
        """The lines of the choices, with the spaces of the columns as one."""
        found, *rows = report._size_lines("TUNE p", answer)
        self.assertEqual(found, head)
        return [" ".join(row.split()) for row in rows]

    def test_a_choice_that_tied_has_its_time_with_buffers_in_the_cache(self) -> None:
        tied, alone = _choice("cuda/b", 15.2, warm_time_us=14.6), _choice("cuda/c", 20.0)
        self.assertEqual(
            self._rows(_answer("cuda/b", alone, tied)),
            [
                "cuda/b 0.0152 ms 100.0% (runs, 0.0146 ms with buffers in the cache)", "cuda/c 0.0200 ms 76.0%",
                "runs cuda/b: the fastest",
            ],
        )  # fmt: skip

    def test_the_choice_that_runs_is_first_and_marked(self) -> None:
        """Faster ones may have left the race, lost a heat, or be faster inside the noise."""
        answer = _answer(
            "runs", _choice("early", 900.0, "outpaced"), _choice("heat", 800.0, "lost_heat"), _choice("noise", 980.0),
            _choice("runs", 1000.0, is_default=True), _choice("slow", 2000.0), _choice("broken", None, "launch_failed"),
        )  # fmt: skip
        self.assertEqual(
            self._rows(answer),
            [
                "runs 1.0000 ms 100.0% (runs, default)", "noise 0.9800 ms 102.0%", "slow 2.0000 ms 50.0%",
                "early 0.9000 ms (eliminated early)", "heat 0.8000 ms (lost the first of two heats)",
                "runs runs: the fastest, 1 more choice",
            ],
        )  # fmt: skip

    def test_unsteady_times_are_not_compared(self) -> None:
        answer = _answer("b", _choice("a", 10.0), _choice("b", 400.0, is_default=True))
        answer["measured"][0] |= {"unsteady": True, "why": "the default, 400.0 us: the times were unsteady"}
        self.assertEqual(
            self._rows(answer, "TUNE p, unsteady times"),
            ["b 0.4000 ms (runs, default)", "a 0.0100 ms", "runs b: the default, 400.0 us: the times were unsteady"],
        )

    def test_an_agreed_choice_runs_for_the_winner(self) -> None:
        answer = _answer("b", _choice("a", 10.0), _choice("b", 20.0), winner="a")
        self.assertEqual(
            self._rows(answer)[-1], "runs b: a won; the ranks run the collective by the choice that they agreed on"
        )

    def test_the_default_runs_for_a_winner_that_cannot(self) -> None:
        answer = _answer("b", _choice("a", 10.0), _choice("b", 20.0), source="default_after_refusal", refused="a: too large")
        self.assertEqual(
            self._rows(answer),
            [
                "b 0.0200 ms 100.0% (runs)", "a 0.0100 ms 200.0%",
                "runs b: the default, because the tuned choice does not run (a: too large)",
            ],
        )  # fmt: skip

    def test_the_next_best_choice_runs_for_a_winner_that_cannot(self) -> None:
        answer = _answer("b", _choice("a", 10.0), _choice("b", 20.0), source="next_best", refused="a: too large")
        self.assertEqual(
            self._rows(answer)[-1], "runs b: the next best choice, because the tuned choice does not run (a: too large)"
        )

    def test_a_choice_without_a_time_runs(self) -> None:
        answer = _answer("b", _choice("a", 10.0), source="default_after_refusal", refused="a: too large")
        self.assertEqual(self._rows(answer)[0], "a 0.0100 ms")

    def test_a_size_that_was_not_measured(self) -> None:
        unmeasured = ["runs a: this size was not measured"]
        self.assertEqual(self._rows({**_answer("a"), "measured": []}), unmeasured)
        self.assertEqual(self._rows(_answer("a", _choice("a", 10.0), relative="all_reduce sum f32")), unmeasured)

    def test_the_head_names_the_function(self) -> None:
        functions = mock.Mock()
        functions.cotune_group_size.return_value = 2
        origin = Origin("Model.forward", "model.py", 12)
        other = Origin("Other.forward", "model.py", 40)
        with (
            mock.patch.object(report._native, "library", lambda: functions),
            mock.patch.object(report, "explained", lambda *_: _answer("a", _choice("a", 10.0))),
            mock.patch.object(decisions, "_graphs", []),
        ):
            shown = report.table(1, f"rows 2: {PROGRAM}", "0", origin)
            self.assertEqual(
                shown.splitlines()[0], "TUNE p(f32 [R, 8]) of Model.forward (model.py:12), R = 2, 2 ranks"
            )
            text = PROGRAM.replace("; ", "\n")
            for number, each in enumerate((origin, other)):
                made = decisions.ProgramDecision(text, "0", ["all_reduce"], 1, [2], [], each)
                decisions._graphs.append(decisions.GraphDecision(number, 1, 0.0, [made], []))
            shown = report.table(1, f"rows 2: {PROGRAM}", "0", None)
            self.assertEqual(
                shown.splitlines()[0], "TUNE p(f32 [R, 8]) of Model.forward (model.py:12) and 1 more, R = 2, 2 ranks"
            )

    def test_a_table_that_leaves_choices_out_names_the_command_that_lists_them(self) -> None:
        functions = mock.Mock()
        functions.cotune_group_size.return_value = 2
        six = [_choice(f"c{number}", 10.0 + number) for number in range(6)]
        for choices, is_named in ((six, True), (six[:5], False)):
            with (
                mock.patch.object(report._native, "library", lambda: functions),
                mock.patch.object(report, "explained", lambda *_, of=choices: _answer("c0", *of)),
            ):
                lines = report.table(1, f"rows 2,4: {PROGRAM}").splitlines()
            self.assertEqual(sum("cotune --json db show" in line for line in lines), int(is_named), lines)
            self.assertEqual("cotune --json db show" in lines[-1], is_named)
            self.assertEqual(lines[6].endswith("the fastest, 1 more choice"), is_named, lines)


class OutcomeTest(unittest.TestCase):
    """The end of a tune is kept for explain(), and shown."""

    def setUp(self) -> None:
        functions = mock.Mock()
        functions.cotune_group_rank.return_value, functions.cotune_group_device.return_value = 0, -1
        functions.cotune_group_size.return_value = 2
        functions.cotune_last_result.return_value = 0
        self.answer: dict | None = None
        self.entry = groups.GroupEntry("0", "host", mock.Mock(_handle=mock.Mock(exclusive=mock.MagicMock())), "")
        for each in (
            mock.patch.object(report._native, "library", lambda: functions),
            mock.patch.object(report, "explained", lambda *_: self.answer),
            mock.patch.dict(groups._entries, {("0", -1): self.entry}),
            mock.patch.object(report, "_shows_tables", False),
        ):
            each.start()
            self.addCleanup(each.stop)
        self.addCleanup(report._failures_shown.clear)
        self.addCleanup(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))

    def _tune(self, result: int = 0, error: bytes = b"", cells: tuple[bytes, ...] = (), text: str = PROGRAM) -> None:
        manifest = f"rows 1,8: {text}".encode()
        begins = library.Tune(phase=library.TUNE_BEGINS, group_name=b"0", manifest=manifest, error=b"", what=b"")
        report._listener(None, ctypes.byref(begins))
        for cell in cells:
            begins.phase, begins.what = library.TUNE_MEASURES, cell
            report._listener(None, ctypes.byref(begins))
        begins.phase, begins.result, begins.error = library.TUNE_HAS_ENDED, result, error
        begins.report.is_tuned, begins.report.measured = int(result == 0), len(cells)
        report._listener(None, ctypes.byref(begins))

    def test_a_tune_that_failed_has_tuned_nothing(self) -> None:
        with self.assertLogs("cotune.torch", "WARNING"):
            self._tune(Result.ERROR_INTERRUPTED, b"interrupted (Ctrl-C)", (b"program p, 1 row",))
        self.assertEqual(
            groups.explain(), ["group 0: a group of cotune on host; 1 program is not tuned: interrupted (Ctrl-C)"]
        )
        self.assertEqual(self.entry.programs[PROGRAM].measured, set())
        self._tune(cells=(b"program p, 8 rows",))
        self.assertEqual(groups.explain(), ["group 0: a group of cotune on host; 1 program is tuned"])
        self.assertEqual(self.entry.programs[PROGRAM].measured, {8})
        self.assertEqual(self.entry.programs[PROGRAM].rows, {1, 8})
        other = PROGRAM.replace("program p", "program q")
        with self.assertLogs("cotune.torch", "WARNING"):
            self._tune(Result.ERROR_ENVIRONMENT, b"no choice ran", text=other)
        self.assertEqual(
            groups.explain(),
            ["group 0: a group of cotune on host; 1 program is tuned; 1 program is not tuned: no choice ran"],
        )

    def test_a_program_that_is_one_collective_shares_the_cell_of_that_collective(self) -> None:
        ends = "; %y = {} %x; return %y"
        for type_, statement, cell, measured in (
            ("f32 [R, 8]", "all_reduce sum", b"all_reduce sum f32, 256 bytes", {8}),
            ("f32 [R, 8]", "all_reduce max", b"all_reduce sum f32, 256 bytes", set()),
            ("bf16 [R, 8]", "reduce_scatter average", b"reduce_scatter average bf16, 16 bytes", {1}),
            ("bf16 [R/n, 8]", "all_gather", b"all_gather bf16, 128 bytes", {8}),
            ("u8 [R, 1]", "all_to_all", b"all_to_all u8, 1 byte", {1}),
            ("i64 [1, 8]", "broadcast", b"broadcast i64, 64 bytes", {1, 8}),
        ):
            text = f"program {cell.decode().split()[0]}_{type_[:2]}; %x = input {type_}" + ends.format(statement)
            with self.subTest(text=text):
                self._tune(cells=(cell,), text=text)
                self.assertEqual(self.entry.programs.pop(text).measured, measured)
        text = "program two; %x = input f32 [R, 8]; %y = all_reduce sum %x; %z = relu %y; return %z"
        self._tune(cells=(b"all_reduce sum f32, 256 bytes",), text=text)
        self.assertEqual(self.entry.programs[text].measured, set(), "it is a cell of its own")

    def test_a_program_whose_results_could_not_be_saved_is_tuned_all_the_same(self) -> None:
        untuned = "; 1 program is not tuned: the disk is full"
        for source, relative, line in (
            ("default", None, untuned), ("table", "all_reduce sum f32", untuned), ("table", None, "; 1 program is tuned"),
        ):  # fmt: skip
            self.answer = {**_answer("a"), "source": source, "relative": relative}
            with self.assertLogs("cotune.torch", "INFO"):
                self._tune(Result.ERROR_DATABASE, b"the disk is full")
            self.assertEqual(groups.explain(), [f"group 0: a group of cotune on host{line}"])

    def test_the_same_failure_is_one_warning(self) -> None:
        with self.assertLogs("cotune.torch", "INFO") as shown:
            for error in (b"no choice ran", b"no choice ran", b"another"):
                self._tune(Result.ERROR_ENVIRONMENT, error)
        levels = [each.levelname for each in shown.records if "are not tuned" in each.getMessage()]
        self.assertEqual(levels, ["WARNING", "INFO", "WARNING"])

    def test_a_later_group_of_the_name_has_warnings_of_its_own(self) -> None:
        report._failures_shown.add(("1", "another group's"))
        with self.assertLogs("cotune.torch", "INFO") as shown:
            for _ in range(2):
                self._tune(Result.ERROR_ENVIRONMENT, b"no choice ran")
                for forget in groups._dropped:
                    forget("0")
        levels = [each.levelname for each in shown.records if "are not tuned" in each.getMessage()]
        self.assertEqual(levels, ["WARNING", "WARNING"])
        self.assertEqual(report._failures_shown, {("1", "another group's")})
        self.assertEqual(sum(each.__module__ == report.__name__ for each in groups._dropped), 1)

    def test_failures_are_forgotten_under_the_lock(self) -> None:
        with mock.patch.object(report, "_lock") as lock:
            report._forget("0")
        lock.__enter__.assert_called_once()

    def test_a_thread_that_holds_the_lock_may_run_a_finalizer(self) -> None:
        """A garbage collection may begin in any line of it."""
        has_forgotten = threading.Event()

        def collects_garbage() -> None:
            with report._lock:
                report._forget("0")
            has_forgotten.set()

        threading.Thread(target=collects_garbage, daemon=True).start()
        self.assertTrue(has_forgotten.wait(20), "it waits for itself")

    def test_the_function_that_runs_a_graph_out_of_a_cache(self) -> None:
        self._tune(cells=(b"program p, 1 row", b"program p, 8 rows"))
        origin = self.entry.programs[PROGRAM].origin
        self.assertEqual((origin.function.split(".")[-1], origin.file), ("_tune", __file__))
        self.assertEqual(self.entry.programs[PROGRAM].measured, {1, 8})


class LogTest(unittest.TestCase):
    def test_a_warning_of_a_group_is_shown_once(self) -> None:
        late = "ranks often started late, {} times in one cell (all_reduce/sum/f32/world2x2/program05615a0e/count{}): load"
        choice = "host/ring?chunk={} computed 3 wrong elements on rank {}"
        lines, others = LinesOfGroup(), LinesOfGroup()
        with self.assertLogs("cotune.torch", "INFO") as shown:
            lines(logging.WARNING, late.format(17, 512))
            lines(logging.WARNING, late.format(4, 64))
            others(logging.WARNING, late.format(4, 64))
            for chunk, rank in ((1024, 0), (4096, 0), (4096, 1), (4096, 1)):
                lines(logging.WARNING, choice.format(chunk, rank))
            for _ in range(2):
                lines(logging.ERROR, "rank 1 is lost")
        levels = [each.levelname for each in shown.records]
        warning, info, error = "WARNING", "INFO", "ERROR"
        self.assertEqual(levels, [warning, info, warning, warning, warning, warning, info, error, error])
        self.assertEqual(shown.records[1].getMessage(), late.format(4, 64))

    def test_a_line_without_logging_has_a_prefix(self) -> None:
        """In another process, because this one has handlers."""
        code = (
            "import logging; from cotune.torch.log import LinesOfGroup, log; lines = LinesOfGroup()\n"
            "lines(logging.WARNING, '5 % late'); lines(logging.INFO, 'detail'); log.warning('cotune leaves %s', 'it')\n"
            "logging.basicConfig(format='%(name)s %(message)s'); log.warning('later')"
        )
        ended = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True)
        shown = ended.stderr.splitlines()
        self.assertEqual(shown[-3:], ["cotune: 5 % late", "cotune leaves it", "cotune.torch later"])
        self.assertNotIn("detail", ended.stderr)


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
                _interrupt.keeper.raise_kept()  # as the operator does when it returns
            self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_an_interrupt_ends_the_tune(self) -> None:
        with mock.patch.multiple(report, _begins=mock.Mock(), _measures=mock.Mock(), _has_ended=mock.Mock()):
            self.assertEqual(self._tell(library.TUNE_BEGINS), 0)
            self.assertEqual(self._tell(library.TUNE_MEASURES), 0)
            signal.getsignal(signal.SIGINT)(signal.SIGINT, mock.Mock(f_code=report._on_tune.__code__))
            self.assertEqual(self._tell(library.TUNE_MEASURES), 1)
            with self.assertRaises(KeyboardInterrupt):
                self._tell(library.TUNE_HAS_ENDED)
                _interrupt.keeper.raise_kept()  # as the operator does when it returns

    def test_an_interrupt_at_the_first_line_of_a_callback(self) -> None:
        """Which no `try` in the callback sees."""
        with mock.patch.object(report, "_begins"), mock.patch.object(report, "_has_ended"):
            self._tell(library.TUNE_BEGINS)
            signal.getsignal(signal.SIGINT)(signal.SIGINT, mock.Mock(f_code=report._on_tune.__code__))
            with self.assertRaises(KeyboardInterrupt):
                self._tell(library.TUNE_HAS_ENDED)
                _interrupt.keeper.raise_kept()  # as the operator does when it returns

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
                _interrupt.keeper.raise_kept()  # as the operator does when it returns
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
