"""The benchmark of parts without a GPU: parts of the host backend, with values compared to loops."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, "benchmarks/gpu")

import part_bench  # noqa: E402
import part_library  # noqa: E402
import part_platforms  # noqa: E402
import part_report  # noqa: E402
import part_workloads  # noqa: E402

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
        return part_bench.parse(["--memory", "host", "--library", LIBRARY, "--plugin", str(self.plugin), "--rounds", "3",
                                 *arguments])

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

    def test_wrong_values_are_found(self):
        results = part_bench.measure(part_platforms.Host(), self.options(), self.workload(off_by_one_row), TEXT, ROWS)
        for each in results:
            self.assertGreater(each["wrong"], COLUMNS)
            self.assertIn("elements are wrong", part_bench.line(each))

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
        doc.write_text(f"a\n{part_report.BEGIN}\nold\n{part_report.END}\nb\n", encoding="utf-8")
        self.assertEqual(part_report.main([str(out), "--doc", str(doc)]), 0)
        written = doc.read_text(encoding="utf-8")
        self.assertIn("| tp_linear | 32 | 5 |", written)
        self.assertNotIn("old", written)
        self.assertTrue(written.startswith("a\n") and written.endswith("b\n"))
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
        options = ["--memory", "host", "--library", LIBRARY, "--plugin", str(self.folder / "nothing.so"), "--examples",
                   "examples/programs", "--programs", "tp_linear"]
        with contextlib.redirect_stderr(io.StringIO()) as text, contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(part_bench.main(options), 3)
        self.assertIn("nothing.so", text.getvalue())

    def test_the_examples_name_what_the_workloads_take(self):
        for workload in part_workloads.WORKLOADS:
            text = pathlib.Path(f"examples/programs/{workload.example}.cotune").read_text(encoding="utf-8")
            names = part_workloads.names_of(text)
            seen = set()

            class Seen(dict):
                def __getitem__(self, name, seen=seen):
                    seen.add(name)
                    raise KeyError(name)

            with self.assertRaises(KeyError):
                workload.reference(None, Seen())
            self.assertLessEqual(seen, {*names.inputs, *names.collectives})


if __name__ == "__main__":
    unittest.main()
