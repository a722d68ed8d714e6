"""The benchmark of parts without a GPU: parts of the host backend, with values compared to loops."""

import contextlib
import io
import itertools
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, "benchmarks/gpu")

import part_bench
import part_library
import part_platforms
import part_report
import part_workloads
from testing.list_workloads import on_lists

LIBRARY = str(pathlib.Path("benchmarks/gpu/libparts.so").resolve())
ROWS, COLUMNS = 3, 64
TEXT = """%x = input f32 [R, 64]
%residual = input f32 [R, 64] replicated
%bias = input f32 [1, 64] replicated
%scaled = mul %x, 2
%sum = all_reduce sum %scaled
%stream = add %sum, %residual
%y = add %stream, %bias
return %y, %stream into %residual
"""


def reference(_torch, v: dict) -> dict:
    if "x" in v:
        return {"value": [2 * each for each in v["x"]]}
    stream = [a + b for a, b in zip(v["sum"], v["residual"], strict=True)]
    return {"stream": stream, "y": [each + v["bias"][i % COLUMNS] for i, each in enumerate(stream)]}


def off_by_one_row(_torch, v: dict) -> dict:
    made = reference(None, v)
    return {name: values[COLUMNS:] + values[:COLUMNS] for name, values in made.items()}


EXAMPLES = pathlib.Path("examples/programs")


def example_text(name: str) -> str:
    return (EXAMPLES / f"{name}.cotune").read_text(encoding="utf-8")


class GpuPlatformTest(unittest.TestCase):
    """What the platform asks of torch, in which order."""

    def setUp(self):
        self.torch = unittest.mock.MagicMock()
        with unittest.mock.patch.dict(sys.modules, torch=self.torch):
            self.gpu = part_platforms.Gpu()
        self.torch.reset_mock()

    def test_each_shape_is_compiled_from_nothing_and_wholly(self):
        self.gpu.compiled(lambda torch, values: None)
        names = [name for name, _, _ in self.torch.mock_calls]
        self.assertEqual(names, ["compiler.reset", "compile", "compile"])
        modes = []
        for given in self.torch.compile.call_args_list:
            modes.append(given.kwargs["mode"])
            self.assertEqual(given.kwargs, {"mode": modes[-1], "dynamic": False, "fullgraph": True})
        self.assertEqual(modes, ["default", "max-autotune-no-cudagraphs"])

    def test_a_replay_is_queued_behind_a_gate(self):
        order = unittest.mock.MagicMock()
        self.gpu.start, self.gpu.end = order.start, order.end
        self.torch.cuda._sleep = order.gate
        order.start.elapsed_time.return_value = 0.5
        self.assertEqual(self.gpu.time_us(order.graph), 500)
        self.assertEqual([name for name, _, _ in order.mock_calls],
                         ["gate", "start.record", "graph.replay", "end.record", "end.synchronize", "start.elapsed_time"])


class PartBenchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cotune.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # Nobody else may write to a plugin.
        self.plugin = self.folder / "cotune_host.so"
        self.plugin.write_bytes(pathlib.Path("plugins/host/cotune_host.so").read_bytes())
        self.plugin.chmod(0o755)

    def parts(self, text: str = TEXT, rows: int = ROWS) -> part_library.Parts:
        return part_library.Parts(LIBRARY, str(self.plugin), text, rows, 2, part_library.MEMORY_HOST)

    def workload(self, expected=reference) -> part_workloads.Workload:
        return part_workloads.Workload("a_test", expected, expected)

    def options(self, *arguments: str):
        return part_bench.parse(["--library", LIBRARY, "--plugin", str(self.plugin), "--rounds", "3", *arguments])

    def test_values_have_their_places(self):
        names = part_workloads.names_of(TEXT)
        with self.parts() as parts:
            self.assertEqual(parts.count, 2)
            first, second = parts.inputs(0), parts.inputs(1)
            self.assertEqual([names.of_input(each.slot, parts.collective_slots()) for each in first], ["x"])
            self.assertEqual({names.of_input(each.slot, parts.collective_slots()) for each in second},
                             {"sum", "residual", "bias"})
            self.assertEqual({(each.rows, each.columns) for each in second}, {(ROWS, COLUMNS), (1, COLUMNS)})
            outputs = parts.outputs(1)
            self.assertEqual({names.of_output(each.slot) for each in outputs}, {"stream", "y"})
            overwritten = [second[each.into] for each in outputs if each.into >= 0]
            self.assertIn("residual", [names.of_input(each.slot, parts.collective_slots()) for each in overwritten])

    def test_each_part_is_right_and_is_measured_in_turns(self):
        results = part_bench.measure(part_platforms.Host(), self.options(), self.workload(), TEXT, ROWS)
        self.assertEqual([(each["part"], each["wrong"]) for each in results], [(0, 0), (1, 0)])
        # Three f32 matrices read or written with x and sum, two read and two written behind it, one row.
        self.assertEqual([each["bytes"] for each in results],
                         [2 * 4 * ROWS * COLUMNS, 4 * (4 * ROWS * COLUMNS + COLUMNS)])
        for each in results:
            self.assertEqual({name: len(times) for name, times in each["us"].items()},
                             {"cotune": 3, "compiled": 3, "copy": 3})
            self.assertIn("a_test", part_bench.line(each))

    def test_the_workloads_references_are_what_the_examples_compute(self):
        tried = 0
        for workload in part_workloads.PART_WORKLOADS:
            text = workload.source(EXAMPLES)
            if "f8_e4m3" in text:  # lists hold f32 only
                continue
            tried += 1
            text = workload.text(text, COLUMNS).replace("bf16", "f32").replace("16384", str(COLUMNS))
            with self.subTest(workload.example):
                results = part_bench.measure(part_platforms.Host(), self.options(), on_lists(workload, COLUMNS), text, 4)
                self.assertEqual([each["wrong"] for each in results], [0])
                rows = 1 if not workload.has_rows else 2 if workload.has_share else 4  # of 2 ranks
                self.assertEqual([each["rows"] for each in results], [rows])
        self.assertEqual(tried, 7)

    def test_a_check_leaves_the_inputs_as_they_were(self):
        platform, names = part_platforms.Host(), part_workloads.names_of(TEXT)
        with self.parts() as parts:
            operands = part_bench.operands_of(platform, parts, names, 1)
            before = [list(each) for each in operands.inputs]
            call = part_bench.caller(platform, parts, 1, operands)
            self.assertEqual(part_bench.wrong_elements(platform, self.workload().reference, operands, call), 0)
            self.assertEqual([list(each) for each in operands.inputs], before)
            call()
            self.assertNotEqual([list(each) for each in operands.inputs], before)

    def test_a_part_has_the_rows_that_were_asked_for(self):
        for workload in part_workloads.PART_WORKLOADS:
            if not workload.has_rows:
                continue
            text = workload.source(EXAMPLES)
            rows = part_bench.rows_of_program(workload, text, 4, 2)
            with self.subTest(workload.example), self.parts(text, rows) as parts:
                self.assertEqual(max(each.rows for each in parts.outputs(0)), 4)
        dispatch = next(each for each in part_workloads.WORKLOADS if each.example == "moe_dispatch")
        self.assertEqual(part_bench.rows_of_program(dispatch, example_text("moe_dispatch"), 5, 4), 8)

    def test_contenders_take_turns(self):
        calls = []

        class Platform:
            def time_us(self, graph):
                calls.append(graph)
                return part_bench.CALLS * len(calls)

        rounds = 2 * 3 * 2 - part_bench.WARM_ROUNDS
        times = part_bench.take_turns(Platform(), {"a": "a", "b": "b", "c": "c"}, rounds)
        self.assertEqual({name: len(each) for name, each in times.items()}, {"a": rounds, "b": rounds, "c": rounds})
        in_rounds = [calls[i : i + 3] for i in range(0, len(calls), 3)]
        for each in in_rounds:
            self.assertEqual(sorted(each), ["a", "b", "c"])
        # A time is that of its own replay, by its calls.
        self.assertEqual(sorted(sum(times.values(), [])), list(range(3 * part_bench.WARM_ROUNDS + 1, len(calls) + 1)))
        self.assertEqual({each[0] for each in in_rounds}, {"a", "b", "c"})
        self.assertEqual({(a, b) for each in in_rounds for a, b in itertools.pairwise(each)},
                         {(a, b) for a in "abc" for b in "abc" if a != b})

    def test_the_report_joins_runs_of_one_machine(self):
        def content(rows, cotune, gpu="A"):
            return {"gpu": gpu, "torch": "2", "cuda": "13", "triton": "3", "date": "2030-01-02T", "results": [
                {"program": "p", "part": 0, "rows": rows, "columns": 8, "bytes": 4000, "wrong": 0, "compiled_wrong": 0,
                 "us": {"cotune": cotune, "compiled": [4.0, 4.0, 4.0, 4.0, 4.0], "copy": [1.0]}}]}

        # Median 2; the quarters lie at 1.5 and 3.
        first, second = content(1, [1.0, 1.5, 2.0, 3.0, 9.0]), content(2, [8.0] * 5)
        text = part_report.report(part_report.joined([first, second]))
        self.assertIn("| p | 8 | 1 | 2.00 | 4.00 | 0.50 | 75.0 | 1.00 | 2 |", text)
        self.assertIn("| p | 8 | 2 | 8.00 | 4.00 | 2.00 | 0.0 | 1.00 | 0 |", text)
        self.assertIn("Geometric mean 1.00 of torch.compile; largest ratio 2.00.", text)
        with self.assertRaisesRegex(SystemExit, "differ in gpu: A, B"):
            part_report.joined([first, content(2, [8.0], "B")])
        with self.assertRaisesRegex(SystemExit, "more than once: p of 1 rows"):
            part_report.joined([first, first])
        with self.assertRaisesRegex(SystemExit, "no results"):
            part_report.joined([{**first, "results": []}])

    def test_wrong_values_are_found(self):
        results = part_bench.measure(part_platforms.Host(), self.options(), self.workload(off_by_one_row), TEXT, ROWS)
        for each in results:
            self.assertGreater(each["wrong"], COLUMNS)
            self.assertIn("elements are wrong", part_bench.line(each))
            # What the workload's function returns is what the reference expects.
            self.assertEqual(each["compiled_wrong"], 0)
        workload = part_workloads.Workload("a_test", reference, off_by_one_row)
        for each in part_bench.measure(part_platforms.Host(), self.options(), workload, TEXT, ROWS):
            self.assertEqual(each["wrong"], 0)
            self.assertGreater(each["compiled_wrong"], COLUMNS)
            self.assertIn("elements of torch are wrong", part_bench.line(each))

    def test_the_faster_mode_of_the_compiler_counts(self):
        class TwoModes(part_platforms.Host):
            @staticmethod
            def compiled(function):
                return {"slow": lambda values: function(None, values), "quick": lambda values: function(None, values)}

            @staticmethod
            def capture(function, calls):
                return function

            def time_us(self, graph):
                return next(times)

        # 5 rounds of 4 contenders, which stand in the order cotune, slow, quick, copy and turn.
        order, sequence = ["cotune", "slow", "quick", "copy"], []
        for i in range(part_bench.WARM_ROUNDS + 3):
            order.append(order.pop(0))
            sequence += order if i % 2 else order[::-1]
        costs = {"cotune": 1, "slow": 3, "quick": 2, "copy": 4}
        times = iter([costs[name] * part_bench.CALLS for name in sequence] * 2)
        for each in part_bench.measure(TwoModes(), self.options(), self.workload(), TEXT, ROWS):
            self.assertEqual(each["compiled_mode"], "quick")
            self.assertEqual(each["us"], {"cotune": [1] * 3, "compiled": [2] * 3, "copy": [4] * 3})

    def test_rows_that_come_to_the_same_are_measured_once(self):
        options = self.options("--programs", "moe_dispatch", "--rows", "1,2,3", "--columns", "32")
        measured = []
        with unittest.mock.patch.object(part_bench, "measure", lambda *given: measured.append(given[-1]) or []), \
             contextlib.redirect_stdout(io.StringIO()):
            part_bench.run(part_platforms.Host(), options)
        self.assertEqual(measured, [2, 4])

    def test_a_run_writes_json_that_the_report_shows(self):
        (self.folder / "tp_linear.cotune").write_text(
            "%x = input f32 [R, 8192]\n%bias = input f32 [1, 8192] replicated\n%sum = all_reduce sum %x\n"
            "%z = add %sum, %bias\n%y = relu %z\nreturn %y\n", encoding="utf-8")
        out = self.folder / "parts.json"
        options = self.options("--programs", "tp_linear", "--examples", str(self.folder), "--rows", "1,5", "--columns",
                               "32", "--out", str(out))

        def expected(_torch, v):
            return {"y": [max(0, each + v["bias"][i % 32]) for i, each in enumerate(v["sum"])]}

        options.workloads = [part_workloads.Workload("tp_linear", expected, expected)]
        with contextlib.redirect_stdout(io.StringIO()) as text:
            self.assertEqual(part_bench.run(part_platforms.Host(), options), 0, text.getvalue())
        self.assertEqual(len(text.getvalue().splitlines()), 3)
        content = json.loads(out.read_text())
        self.assertEqual([(each["rows"], each["columns"]) for each in content["results"]], [(1, 32), (5, 32)])
        doc = self.folder / "doc.md"
        doc.write_text(f"a\n{part_report.PLACE.begin}\nold\n{part_report.PLACE.end}\nb\n", encoding="utf-8")
        self.assertEqual(part_report.main([str(out), "--doc", str(doc)]), 0)
        written = doc.read_text(encoding="utf-8")
        self.assertIn("| tp_linear | 32 | 5 |", written)
        self.assertNotIn("old", written)
        self.assertTrue(written.startswith("a\n") and written.endswith("b\n"))
        content["results"][0]["compiled_wrong"] = 2
        with self.assertRaisesRegex(SystemExit, "torch has 2 wrong elements"):
            part_report.report(content)
        content["results"][0]["wrong"] = 1
        with self.assertRaisesRegex(SystemExit, "1 wrong elements"):
            part_report.report(content)

    def test_bad_input_is_told(self):
        with self.assertRaisesRegex(part_library.Failed, "all_reduse"):
            self.parts("%x = input f32 [R, 4]\n%y = all_reduse sum %x\nreturn %y\n")
        with self.assertRaisesRegex(part_library.Failed, "nothing.so"):
            part_library.Parts(LIBRARY, str(self.folder / "nothing.so"), TEXT, ROWS, 2, part_library.MEMORY_HOST)
        with contextlib.redirect_stderr(io.StringIO()) as text, self.assertRaises(SystemExit) as ended:
            self.options("--programs", "no_such")
        self.assertEqual(ended.exception.code, 2)
        self.assertIn("no_such", text.getvalue())
        for arguments in (["--rows", "0"], ["--rows", "1,x"], ["--columns", ""], ["--rounds", "0"], ["--ranks", "-1"]):
            with self.subTest(arguments), contextlib.redirect_stderr(io.StringIO()) as text:
                with self.assertRaises(SystemExit) as ended:
                    self.options(*arguments)
                self.assertEqual(ended.exception.code, 2)
                self.assertIn(arguments[0], text.getvalue())
        for arguments, missing in ((["--library", "/no/libparts.so"], "/no/libparts.so"),
                                   (["--library", LIBRARY, "--examples", "/no/examples"], "/no/examples/tp_linear.cotune")):
            with contextlib.redirect_stderr(io.StringIO()) as text, contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(part_bench.main(["--plugin", str(self.plugin), "--programs", "tp_linear", "--examples",
                                                  "examples/programs", *arguments], part_platforms.Host), 3)
            self.assertIn(missing, text.getvalue())
        options = ["--library", LIBRARY, "--plugin", str(self.folder / "nothing.so"), "--examples",
                   "examples/programs", "--programs", "tp_linear"]
        with contextlib.redirect_stderr(io.StringIO()) as text, contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(part_bench.main(options, part_platforms.Host), 3)
        self.assertIn("nothing.so", text.getvalue())
        with unittest.mock.patch.dict(sys.modules, torch=None), contextlib.redirect_stderr(io.StringIO()) as text:
            self.assertEqual(part_bench.main(options), 3)
        self.assertIn("torch", text.getvalue())

    def test_the_examples_name_what_the_workloads_take(self):
        class Seen(dict):
            """Gives a matrix of its own for any name."""

            def __missing__(self, name):
                self[name] = unittest.mock.MagicMock()
                return self[name]

        for workload in part_workloads.PART_WORKLOADS:
            text = workload.source(EXAMPLES)
            names, seen = part_workloads.names_of(text), Seen()
            made = workload.reference(unittest.mock.MagicMock(), seen)
            with self.subTest(workload.example), self.parts(text, 4) as parts:
                slots = parts.collective_slots()
                self.assertEqual(parts.count, 1)
                self.assertEqual(set(seen), {names.of_input(each.slot, slots) for each in parts.inputs(0)})
                self.assertEqual(set(made), {names.of_output(each.slot) for each in parts.outputs(0)})


if __name__ == "__main__":
    unittest.main()
