"""The explanation of what runs, from the answers of a group; no library is needed."""

from __future__ import annotations

import contextlib
import datetime
import pathlib
import tempfile
import unittest
from unittest import mock

import torch

from cotune.errors import CotuneError
from cotune.torch import compat, decisions, explanation, groups, outside, process_groups, report
from cotune.torch.origins import Origin

TEXT = "program p; %0 = input f32 [R, 8]; %1 = all_reduce sum %0; return %1"
OTHER = TEXT.replace("program p", "program q")
# Noon, so that no time zone but the last few has another day.
NOON = datetime.datetime(2026, 11, 20, 12).timestamp()


def _choice(name: str, time_us: float, outcome: str = "timed", is_default: bool = False) -> dict:
    return {"choice": name, "outcome": outcome, "is_default": is_default, "time_us": time_us}


def _answer(runs: str, *choices: dict, **more: object) -> dict:
    entry = {"bytes": 64, "winner": more.pop("winner", runs), "choices": list(choices), "measured_unix_s": int(NOON)}
    measured = [entry] if choices else []
    return {"choice": runs, "source": "table", "refused": "", "bytes": 64, "measured": measured, **more}


class SizeTest(unittest.TestCase):
    def _size(self, answer: dict, rows: int = 8, **program: object) -> explanation.SizeExplanation:
        return explanation.size_of(answer, rows, groups.ProgramOfGroup(**program))

    def test_a_winner_of_the_database(self) -> None:
        size = self._size(_answer("a", _choice("a", 10.0), _choice("b", 25.0, is_default=True)), why_untuned="")
        self.assertEqual(
            size, explanation.SizeExplanation(8, "a", "table", 10.0, 25.0, 2.5, measured_unix_s=int(NOON))
        )
        (_, line) = explanation.size_lines([size])
        self.assertEqual(line.split(), ["8", "a", "10.0", "us", "2.50x", "from", "the", "database,", "2026-11-20"])

    def test_a_winner_that_this_process_has_measured(self) -> None:
        answer = _answer("a", _choice("a", 10.0, is_default=True))
        size = self._size(answer, measured={8})
        self.assertEqual((size.is_measured_here, size.measured_unix_s, size.is_default), (True, int(NOON), True))
        (_, line) = explanation.size_lines([size])
        self.assertEqual(line.split(), ["8", "a", "10.0", "us", "default", "measured", "by", "this", "process"])
        self.assertFalse(self._size(answer, measured={16}).is_measured_here)
        answer["measured"][0]["unsteady"] = True
        line = explanation.size_lines([self._size(answer, measured={8})])[1]
        self.assertTrue(line.endswith("by this process; unsteady times, which the next tune measures again"), line)
        self.assertIsNone(self._size(answer, measured={8}).gain)

    def test_a_rank_without_the_results_names_the_rank_that_has_the_day(self) -> None:
        """Ranks other than 0 load the table of a database, and not its results."""
        size = self._size(_answer("a"))
        self.assertEqual(size, explanation.SizeExplanation(8, "a", "table"))
        self.assertTrue(explanation.size_lines([size])[1].endswith("  from the database; rank 0 has the day"))

    def test_the_default_of_another_heat_is_not_compared(self) -> None:
        choices = [_choice("a", 10.0), _choice("b", 25.0, "lost_heat", is_default=True)]
        size = self._size(_answer("a", *choices))
        self.assertEqual((size.time_us, size.default_time_us, size.gain), (10.0, None, None))

    def test_the_default_that_left_the_race_may_look_faster(self) -> None:
        size = self._size(_answer("a", _choice("a", 10.0), _choice("b", 9.0, "outpaced", is_default=True)))
        self.assertEqual((size.gain, size.note), (0.9, "the default eliminated early"))
        self.assertTrue(explanation.size_lines([size])[1].endswith("2026-11-20; the default eliminated early"))

    def test_a_size_that_is_not_tuned(self) -> None:
        size = self._size(_answer("a", source="default"), why_untuned="no choice ran")
        self.assertEqual(explanation.size_lines([size])[1].split(), ["8", "a", "-", "-", "no", "choice", "ran"])
        answer = _answer("a", _choice("b", 1.0), source="default_after_refusal", refused="b: too large")
        self.assertEqual(self._size(answer).note, "the tuned choice does not run: b: too large")

    def test_a_choice_that_the_user_forces(self) -> None:
        size = self._size(_answer("a", source="forced", forced_refused=""), why_untuned="the budget is spent")
        self.assertEqual((size.source, size.choice, size.time_us), ("forced", "a", None))
        self.assertTrue(explanation.size_lines([size])[1].endswith("  forced, whatever was measured"))
        size = self._size(_answer("a+b", source="forced", forced_refused="c: too large"))
        self.assertEqual(size.note, "forced, whatever was measured; not for all of its collectives: c: too large")

    def test_a_choice_that_was_agreed_before_the_program_was_tuned(self) -> None:
        size = self._size(_answer("b", _choice("a", 10.0), _choice("b", 20.0, is_default=True), winner="a"))
        self.assertEqual((size.time_us, size.is_default), (20.0, True))
        self.assertEqual(size.note, "a won; the ranks run the collective by the choice that they agreed on")

    def test_a_size_that_runs_by_the_row_of_another_call(self) -> None:
        """Its time is not that of this program, though it has as many bytes."""
        size = self._size(_answer("a", _choice("a", 10.0), relative="all_reduce sum f32"), why_untuned="")
        self.assertEqual((size.source, size.time_us, size.measured_unix_s), ("relative", None, None))
        line = explanation.size_lines([size])[1]
        self.assertTrue(line.endswith("-  not measured: it runs by the row of all_reduce sum f32"), line)


class ExplainTest(unittest.TestCase):
    def setUp(self) -> None:
        self.answers = {(TEXT, 8): _answer("a", _choice("a", 10.0), _choice("b", 25.0, is_default=True))}
        group = mock.Mock(_handle=mock.Mock(exclusive=mock.MagicMock()), rank=0)
        self.entry = groups.GroupEntry("0", "host", group, "")
        self.files: list[str] = []
        self.graphs: list[decisions.GraphDecision] = []
        for each in (
            mock.patch.dict(groups._entries, {("0", -1): self.entry}, clear=True),
            mock.patch.object(groups, "_failure_of", lambda group: ""),
            mock.patch.object(report, "explained", lambda _, text, rows: self.answers.get((text, rows))),
            mock.patch.object(decisions, "_graphs", self.graphs),
            mock.patch.object(explanation.compat, "generated_files", lambda: self.files),
        ):
            each.start()
            self.addCleanup(each.stop)

    def _tune(self, text: str = TEXT, rows: tuple[int, ...] = (8,), origin: Origin | None = None) -> None:
        groups.begin_tune("0", -1, {text: rows}, origin)
        groups.end_tune("0", -1, {text: ""}, [])

    def _compile(self, text: str = TEXT, rows: tuple[int, ...] = (8,), line: int = 12) -> None:
        origin = Origin("Model.forward", "model.py", line)
        program = decisions.ProgramDecision(text.replace("; ", "\n"), "0", ["all_reduce"], 2, list(rows), [], origin)
        number = len(self.graphs)
        self.graphs.append(decisions.GraphDecision(number, 9, 0.001, [program], [], origin, f"{number}/0"))

    def _generate(self, *texts: str) -> None:
        """A file as Inductor writes them."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / f"generated{len(self.files)}.py"
        calls = [
            f"        torch.ops.cotune.program.default([buf0], [buf1], {text!r}, '0', 'rows 8: {text}')\n" for text in texts
        ]
        path.write_text("def call(args):\n" + "".join(calls))
        self.files.append(str(path))

    def test_an_old_result_that_counts_more_than_a_new_one_is_of_the_database(self) -> None:
        self._compile()
        groups.begin_tune("0", -1, {TEXT: (8,)}, None)
        groups.end_tune("0", -1, {TEXT: ""}, [(TEXT, 8)])
        self.assertIn("from the database, 2026-11-20", explanation.explain())
        (measured,) = self.answers[TEXT, 8]["measured"]
        measured["measured_unix_s"] = self.entry.programs[TEXT].begun_unix_s
        self.assertIn("measured by this process", explanation.explain())

    def test_a_graph_names_its_function_and_its_sizes(self) -> None:
        self._compile()
        self._tune()
        lines = explanation.explain().splitlines()
        self.assertEqual(
            lines[0],
            "graph 0 of Model.forward (model.py:12): 9 nodes, 1 program, 0 collectives left alone, 1.0 ms, compile id 0/0",
        )
        self.assertEqual(
            lines[1], "  program p of Model.forward (model.py:12): group 0, 1 collective, 2 nodes, rows 8"
        )
        self.assertEqual([line.split() for line in lines[2:4]], [
            ["rows", "runs", "time", "gain", "since"],
            ["8", "a", "10.0", "us", "2.50x", "from", "the", "database,", "2026-11-20"],
        ])  # fmt: skip
        self.assertEqual(lines[4].partition(" (")[0], "collectives outside of compiled graphs")
        self.assertEqual(lines[5:], ["group 0: a group of cotune on host; 1 program is tuned"])

    def test_the_sizes_of_a_program_in_two_graphs_are_written_once(self) -> None:
        self._compile()
        self._compile(line=40)
        self._tune()
        text = explanation.explain()
        self.assertEqual((text.count("10.0 us"), text.count("its sizes are listed above")), (1, 1), text)
        self.assertIn("program p of Model.forward (model.py:40)", text)

    def test_graphs_out_of_a_cache(self) -> None:
        """One whose tune began here, which names the function, and one whose collectives were decided before."""
        self.answers[OTHER, 8] = _answer("c", source="default")
        self._generate(TEXT, OTHER)
        self._tune(origin=Origin("Model.forward", "model.py", 7))
        text = explanation.explain()
        self.assertIn("programs of graphs that came out of a cache:\n  program p of Model.forward (model.py:7): group 0\n", text)
        self.assertRegex(text, r"\n  program q: group 0\n.*\n +8  c +- +- +not tuned: its collectives run as an earlier program")
        (graph,) = explanation.explain_data()
        self.assertEqual((graph["is_from_cache"], graph["number"], len(graph["programs"])), (True, -1, 2))
        program = graph["programs"][0]
        self.assertEqual((program["name"], program["rows"], program["origin"]["function"]), ("p", [8], "Model.forward"))
        self.assertEqual(program["sizes"][0]["choice"], "a")
        self.assertEqual(program["sizes"][0]["gain"], 2.5)

    def test_generated_code_of_a_graph_that_was_compiled_here_is_not_listed_twice(self) -> None:
        self._compile()
        self._generate(TEXT)
        self.assertNotIn("out of a cache", explanation.explain())
        self.assertEqual([each["is_from_cache"] for each in explanation.explain_data()], [False])

    def test_generated_code_that_is_gone(self) -> None:
        self.files.append("/does/not/exist.py")
        self.assertIn("no graph with a collective was compiled", explanation.explain())

    def test_the_sizes_of_a_grid_that_are_tuned(self) -> None:
        for rows in (2, 32, 128):
            self.answers[TEXT, rows] = _answer("a")
        self._compile(rows=(2, 8, 32, 128))
        self._tune(rows=(32,))
        (graph,) = explanation.explain_data()
        self.assertEqual([each["rows"] for each in graph["programs"][0]["sizes"]], [8, 32])

    def test_groups_that_run_nothing_of_cotune(self) -> None:
        self._compile()
        self.entry.reason = "its ranks differ"
        self.assertIn("    PyTorch's own collectives run it\n", explanation.explain())
        groups._entries.clear()
        self.assertIn("    it has not run yet\n", explanation.explain())

    def test_a_group_in_a_call_of_another_thread(self) -> None:
        self._compile()

        @contextlib.contextmanager
        def busy():
            raise CotuneError("another thread is in a call")
            yield

        self.entry.group._handle.exclusive = busy
        self.assertEqual(explanation.explain_data()[0]["programs"][0]["sizes"], [])


_CODE_OF = explanation._code_of


class OutsideTest(unittest.TestCase):
    """The line about collectives outside of compiled graphs, and operators of graphs out of a cache."""

    def setUp(self) -> None:
        library = torch.library.Library("cotune_outside", "DEF")
        self.addCleanup(library._destroy)
        library.define("total(Tensor x, str group_name) -> Tensor")
        library.define("local(Tensor x) -> Tensor")
        self.codes: dict[str, str] = {}
        self.reads: list[str] = []
        self.groups: dict[str, object] = {}
        for each in (
            mock.patch.dict(groups._entries, clear=True),
            mock.patch.object(decisions, "_graphs", []),
            mock.patch.object(decisions, "_calls_custom", False),
            mock.patch.object(compat, "generated_files", lambda: list(self.codes)),
            mock.patch.object(explanation, "_code_of", self.code_of),
            mock.patch.object(process_groups, "named_process_groups", lambda: self.groups),
            mock.patch.object(process_groups, "group_backend", lambda group: group.backend),
            mock.patch.object(process_groups, "resolve_group", self.groups_named),
        ):
            each.start()
            self.addCleanup(each.stop)

        explanation._generated.cache_clear()
        self.addCleanup(explanation._generated.cache_clear)

    def code_of(self, file: str) -> str:
        self.reads.append(file)
        return self.codes[file]

    def groups_named(self, name: str) -> object:
        return self.groups.get(name)

    def _group(self, name: str, backend: str = "gloo", **numbers: int | None) -> None:
        """A process group whose backend of each device has a number; None: it raises, as one without numbers does."""
        backends = {device: mock.Mock() for device in numbers}
        for device, number in numbers.items():
            made = backends[device]._get_sequence_number_for_group
            made.side_effect, made.return_value = (RuntimeError if number is None else None), number
        if backend == "gloo":
            backends["cuda"] = backends["cpu"]

        def backend_of(device: torch.device) -> mock.Mock:
            if device.type not in backends:
                raise RuntimeError("no backend")
            return backends[device.type]

        self.groups[name] = mock.Mock(backend=backend, _get_backend=backend_of)

    def _number(self) -> str:
        return explanation.outside_line().rpartition("; this process has ")[2]

    def test_the_number_of_all_groups(self) -> None:
        self.assertTrue(self._number().startswith("no process group now"))
        self._group("fake", "fake", cpu=7)
        self.assertTrue(self._number().startswith("no process group now"))
        self._group("0", cpu=0)
        self.assertEqual(self._number(), "made none in its process group")
        self._group("0", cpu=3)
        self._group("1", "cpu:gloo,cuda:nccl", cpu=4, cuda=10)
        self.assertEqual(self._number(), "made 17 in its 2 process groups")
        self._group("2", "mpi", cpu=None)
        line = explanation.outside_line()
        self.assertTrue(line.endswith("; this process has made 17 in its 2 process groups; the backends of 2 do not number theirs"), line)
        self.groups = {"2": self.groups["2"]}
        line = explanation.outside_line()
        self.assertTrue(line.endswith("run by PyTorch; the backends of 2 do not number theirs"), line)

    def test_collectives_that_cotune_has_made_by_torch(self) -> None:
        self._group("0", cpu=3)
        outside.add_own("0")
        outside.add_own("gone")
        self.assertEqual(self._number(), "made 2 in its process group")
        # Another group that has the name afterwards.
        self._group("0", cpu=3)
        self.assertEqual(self._number(), "made 3 in its process group")

    def test_graphs_that_leave_collectives_to_torch(self) -> None:
        self._group("0", cpu=3)
        self.codes["program"] = "torch.ops.cotune.program.default([buf0], [buf1], 'program p', '0', '')"
        self.assertEqual(self._number(), "made 3 in its process group")
        self.codes["left"] = "torch.ops._c10d_functional.all_reduce_.default(buf0, 'sum', '0')"
        self.assertTrue(self._number().startswith("made at most 3 in its process group: "), self._number())
        self.codes.clear()
        decisions.record(3, 0.1, [], [decisions.LeftDecision("all_reduce", "all_reduce", "0", "reason")])
        self.assertTrue(self._number().startswith("made at most 3 in its process group: "), self._number())

    def test_an_operator_without_a_group_argument_may_be_a_collective(self) -> None:
        self._group("0", cpu=3)
        self.codes["local"] = "buf0 = torch.ops.cotune_outside.local.default(arg0_1)"
        self.assertTrue(self._number().startswith("made at most 3 in its process group: "), self._number())
        self.codes.clear()
        self.assertEqual(self._number(), "made 3 in its process group")
        # A C++ wrapper has no such line; the pass has seen the call.
        decisions.record(3, 0.1, [], [], calls_custom=True)
        self.assertTrue(self._number().startswith("made at most 3 in its process group: "), self._number())
        self.assertNotIn("cotune_outside", explanation.explain())

    def test_generated_code_is_read_once(self) -> None:
        self.codes["program"] = "torch.ops.cotune.program.default([buf0], [buf1], 'program p', '0', '')"
        self.codes["operator"] = "buf0 = torch.ops.cotune_outside.total.default(arg0_1, '0')"
        for _ in range(2):
            explanation.explain()
            explanation.explain_data()
        self.assertEqual(sorted(self.reads), ["operator", "program"])
        self.assertFalse(hasattr(_CODE_OF, "cache_info"))

    def test_operators_of_graphs_out_of_a_cache(self) -> None:
        self.codes["first"] = "buf0 = torch.ops.cotune_outside.total.default(arg0_1, '0')\n" * 2
        self.codes["second"] = "buf0 = torch.ops.cotune_outside.total.default(arg0_1, '1')\n"
        self.assertIn(
            "\ncustom operators of graphs that came out of a cache, or that were compiled without cotune:\n"
            "  cotune_outside::total: 3 calls, group 0 and 1 as group_name; not declared\n", explanation.explain(),
        )  # fmt: skip
        (graph,) = explanation.explain_data()
        (operator,) = graph["undeclared"]
        self.assertEqual((graph["is_from_cache"], operator["operator"], operator["calls"]), (True, "cotune_outside::total", 3))


if __name__ == "__main__":
    unittest.main()
