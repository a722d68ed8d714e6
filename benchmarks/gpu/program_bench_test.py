"""The benchmark of programs without a GPU: real ranks on host memory, lists instead of tensors."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, "benchmarks/gpu")

import cotune_library
import nccl_library
import part_workloads
import program_bench
import program_cases
import program_contenders
import program_platforms
import program_plots
import program_report

TREE_FILES = {
    "cli/cotune": "bin/cotune",
    "integration/capi/libcotune.so.0": "lib/libcotune.so.0",
    "plugins/host/cotune_host.so": "lib/cotune/plugins/cotune_host.so",
    "benchmarks/gpu/libparts.so": "benchmarks/gpu/libparts.so",
}
COLUMNS = 32
WAYS = {"program", "collectives", "part", "compiled_part", "cotune_compiled"}


class ProgramBenchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cotune.")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for source, name in TREE_FILES.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)
            path.chmod(0o755)
        # Lists hold f32 only. An example without a part, such as small_bucket, is not benchmarked.
        self.examples = self.root / "lists"
        self.examples.mkdir()
        known = {each.example for each in part_workloads.WORKLOADS}
        for path in pathlib.Path("examples/programs").glob("*.cotune"):
            if path.stem not in known:
                continue
            text = path.read_text(encoding="utf-8").replace("bf16", "f32").replace("16384", str(COLUMNS))
            if "f8_e4m3" not in text:
                (self.examples / path.name).write_text(text, encoding="utf-8")
        self.out = self.root / "out.json"

    def run_bench(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """Exit code and output."""
        given = ["--out", str(self.out), "--examples", str(self.examples), "--columns", str(COLUMNS), "--rounds", "3", *arguments]
        with unittest.mock.patch.dict(os.environ, {"TEST_COLUMNS": str(COLUMNS), "HOME": str(self.root), **variables}), \
             contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            code = program_bench.main(given, memory="host", root=self.root,
                                      rank_program=pathlib.Path("benchmarks/gpu/testing/program_ranks.py").resolve())
        return code, out.getvalue()

    def content(self) -> dict:
        return json.loads(self.out.read_text(encoding="utf-8"))

    def test_every_way_of_every_example_is_right_and_is_measured(self):
        names = sorted(path.stem for path in self.examples.iterdir())
        self.assertEqual(len(names), 5)
        for ranks in (2, 3):
            self.out = self.root / f"{ranks}.json"
            code, text = self.run_bench("--ranks", str(ranks), "--programs", ",".join(names), "--rows", "1,4")
            self.assertEqual(code, 0, text)
            content = self.content()
            self.assertEqual((content["ranks"], content["failures"]), (ranks, {}))
            shares = {2: [2, 4], 3: [3, 6]}[ranks]  # reduce_scatter and all_to_all need equal ones
            rows = {"gradient_bucket": [1], "moe_dispatch": shares, "sequence_norm": shares}
            self.assertEqual([(cell["program"], cell["rows"]) for cell in content["cells"]],
                             [(name, each) for name in names for each in rows.get(name, [1, 4])])
            for cell in content["cells"]:
                self.assertEqual(cell["us"].keys(), WAYS)
                self.assertEqual(set(cell["wrong"].values()), {0})
                self.assertEqual({len(times) for times in cell["us"].values()}, {3})
                self.assertTrue(all(time_us > 0 for times in cell["us"].values() for time_us in times))
                # Tuned at these rows.
                self.assertEqual([each["buffers"] for each in cell["winners"]], ["plain"])
                self.assertTrue(cell["winners"][0]["choice"].startswith("host/"))

    def test_wrong_values_are_found_and_told(self):
        code, text = self.run_bench("--ranks", "2", "--programs", "add_residual_norm", "--rows", "3", TEST_WRONG_USER="1")
        self.assertEqual(code, 1)
        wrong = self.content()["cells"][0]["wrong"]
        self.assertGreater(wrong["cotune_compiled"], COLUMNS)
        self.assertEqual(wrong["program"], 0)
        self.assertIn(f"3 rows: {wrong['cotune_compiled']} elements of cotune_compiled are wrong", text)
        with self.assertRaisesRegex(SystemExit, "add_residual_norm of 3 rows has wrong elements"):
            program_report.report([self.content()])

    def test_a_program_that_fails_leaves_the_others(self):
        code, text = self.run_bench("--ranks", "2", "--programs", "tp_linear,moe_dispatch", "--rows", "2", TEST_FAILS_OF="tp_linear")
        self.assertEqual(code, 1)
        content = self.content()
        self.assertEqual([cell["program"] for cell in content["cells"]], ["moe_dispatch"])
        self.assertEqual(list(content["failures"]), ["tp_linear 32"])
        self.assertIn("cotune_compiled of tp_linear, 2 rows: asked to fail", content["failures"]["tp_linear 32"])
        self.assertIn("FAILED tp_linear 32", text)
        # Gone on with: what failed is measured, what was measured stays.
        code, text = self.run_bench("--ranks", "2", "--programs", "tp_linear", "--rows", "2")
        self.assertEqual(code, 0, text)
        self.assertEqual({cell["program"] for cell in self.content()["cells"]}, {"tp_linear", "moe_dispatch"})
        code, text = self.run_bench("--ranks", "3", "--programs", "tp_linear", "--rows", "2")
        self.assertEqual(code, 1)
        self.assertIn("is of 2 ranks; name another file", text)

    def test_ways_and_time_can_be_left_out(self):
        code, text = self.run_bench("--ranks", "2", "--programs", "tp_linear", "--rows", "1", "--without", "part,cotune_compiled")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.content()["cells"][0]["us"].keys(), WAYS - {"part", "cotune_compiled"})
        self.assertRegex(program_report.report([self.content()]), r"\| 32 \| 1 \| 128 \| .* \| - \| [0-9.]+ \| - \| - \|\n")
        code, text = self.run_bench("--ranks", "2", "--programs", "moe_dispatch", "--stop-after", "0")
        self.assertEqual(code, 1)
        self.assertIn("not run: 0 s were over", text)

    def test_the_slowest_rank_of_each_round_counts(self):
        def seen(first_us: float, second_us: float, wrong: int) -> dict:
            return {"rows": 4, "us": {"program": [first_us, second_us]}, "wrong": {"program": wrong}}

        both = program_bench.merged([seen(1, 5, 2), seen(3, 4, 1)])
        self.assertEqual((both["us"], both["wrong"]), ({"program": [3, 5]}, {"program": 3}))
        with self.assertRaisesRegex(ValueError, "ranks measured other things"):
            program_bench.merged([seen(1, 5, 0), {**seen(1, 5, 0), "rows": 8}])

    def test_a_tune_that_fails_is_told(self):
        (self.examples / "tp_linear.cotune").write_text(
            "%x = input f32 [R, 8192]\n%sum = all_reduce sum %x\n%y = relu %sums\nreturn %y\n", encoding="utf-8")
        code, text = self.run_bench("--ranks", "2", "--programs", "tp_linear", "--rows", "1")
        self.assertEqual(code, 1)
        self.assertIn("the tune ended with 2", text)
        self.assertIn("%sums", text)

    def test_bad_input_is_told(self):
        for arguments in (["--programs", "no_such"], ["--without", "program"], ["--rows", "0"], ["--columns", "x"], ["--ranks", "0"]):
            with self.subTest(arguments), contextlib.redirect_stderr(io.StringIO()) as text:
                with self.assertRaises(SystemExit) as ended:
                    program_bench.parse(["--out", "x", *arguments], part_workloads.WORKLOADS)
                self.assertEqual(ended.exception.code, 2)
                self.assertIn("unknown " if arguments[0] in ("--programs", "--without") else arguments[0], text.getvalue())
        with unittest.mock.patch.object(program_bench.machine, "describe", return_value={"gpus": ["one"]}), \
             contextlib.redirect_stderr(io.StringIO()) as text:
            self.assertEqual(program_bench.main(["--out", str(self.out), "--ranks", "2"]), 3)
        self.assertIn("shows 1 GPUs, and 2 are needed", text.getvalue())


class CaseTest(unittest.TestCase):
    """What a program's values are, with parts as libparts.so would show them."""

    class Parts:
        def __init__(self, *outputs: tuple):
            self.count = 1
            self._outputs = [unittest.mock.Mock(slot=slot, dtype=dtype, rows=rows, columns=columns)
                             for slot, dtype, rows, columns in outputs]

        def outputs(self, _part):
            return self._outputs

    TEXT = ("%x = input bf16 [R, 8]\n%gamma = input bf16 [1, 8] replicated\n%share = reduce_scatter sum %x\n"
            "%norm = rms_norm %share, %gamma, eps=1e-6\n%y = all_gather %norm\nreturn %y\n")

    def case(self, reference=None) -> program_cases.Case:
        workload = part_workloads.Workload("a_test", reference, None)
        return program_cases.Case(workload, self.TEXT, 6, 3, self.Parts((3, "bf16", 2, 8)))

    def test_shapes_and_counts(self):
        case = self.case()
        self.assertEqual(case.shapes, {
            "x": program_cases.Shape("bf16", 6, 8), "gamma": program_cases.Shape("bf16", 1, 8),
            "share": program_cases.Shape("bf16", 2, 8), "value": program_cases.Shape("bf16", 2, 8),
            "y": program_cases.Shape("bf16", 6, 8)})
        # 48 elements over three ranks: 16 to each.
        self.assertEqual(case.before, [program_cases.Collective("reduce_scatter", "x", "share", 16, "bf16")])
        self.assertEqual(case.after, [program_cases.Collective("all_gather", "value", "y", 16, "bf16")])
        self.assertEqual((case.bytes, case.replicated, case.outputs), (96, {"gamma"}, [("y", "")]))

    def test_what_is_expected_goes_through_both_collectives(self):
        def reference(_torch, v):
            return {"value": [each + v["gamma"][i % 8] for i, each in enumerate(v["share"])]}

        case = self.case(reference)

        def element(rank: int, index: int) -> float:
            return ((7 * index + 1 + 5 * rank) % 13 - 6) / 8

        gamma = [((7 * k + 2) % 13 - 6) / 8 for k in range(8)]
        whole = [sum(element(rank, i) for rank in range(3)) + gamma[i % 8] for i in range(48)]
        for rank in range(3):
            seen = case.expected(program_platforms.Host(rank, 3), rank)
            self.assertEqual(list(seen), ["y"])
            self.assertEqual(list(seen["y"]), whole)

    def test_all_to_all_exchanges_shares(self):
        sent = [[10 * rank + i for i in range(4)] for rank in range(2)]
        host = program_platforms.Host(0, 2)
        self.assertEqual(program_cases.received(host, "all_to_all", sent, 1), [2, 3, 12, 13])
        self.assertEqual(program_cases.received(host, "reduce_scatter", sent, 1), [14, 16])

    def test_sums_over_eight_ranks_are_exact_in_bf16(self):
        for i in range(program_cases.PERIOD):
            total = sum(program_cases.number(i, 1 + 5 * rank) for rank in range(8))
            self.assertEqual(total * 8, int(total * 8))
            self.assertLess(abs(total * 8), 2**8)


class LibrariesTest(unittest.TestCase):
    """What the wrappers hand to the libraries."""

    def test_memory_is_shared_out_in_whole_lines(self):
        platform = unittest.mock.Mock(at=lambda address, shape: (address, shape.bytes))
        slab = program_contenders.Slab(platform, 4096, 2048)
        shape = program_cases.Shape("bf16", 1, 300)
        self.assertEqual([slab.empty(shape), slab.empty(shape)], [(4096, 600), (5120, 600)])
        with self.assertRaisesRegex(ValueError, "2048 bytes are too few"):
            slab.empty(shape)
        slab.clear()
        self.assertEqual(slab.empty(shape), (4096, 600))

    def test_several_collectives_are_one_group_of_nccl(self):
        order = unittest.mock.MagicMock()
        order.ncclGroupStart.return_value = order.ncclGroupEnd.return_value = order.ncclAllReduce.return_value = 0
        order.ncclReduceScatter.return_value = 0
        communicator = object.__new__(nccl_library.Communicator)
        communicator._nccl, communicator._comm, communicator.ranks = order, "comm", 2
        platform = unittest.mock.Mock(address=lambda name: name, stream_handle=lambda: "stream")
        transport = program_contenders.NcclTransport(platform, communicator)
        values = {name: name for name in ("a", "b", "c", "d")}
        transport.call([program_cases.Collective("all_reduce", "a", "b", 5, "f32"),
                        program_cases.Collective("reduce_scatter", "c", "d", 6, "bf16")], values)
        transport.call([program_cases.Collective("all_reduce", "a", "b", 7, "f16")], values)
        self.assertEqual(order.mock_calls, [
            unittest.mock.call.ncclGroupStart(),
            unittest.mock.call.ncclAllReduce("a", "b", 5, 7, 0, "comm", "stream"),
            unittest.mock.call.ncclReduceScatter("c", "d", 6, 9, 0, "comm", "stream"),
            unittest.mock.call.ncclGroupEnd(),
            unittest.mock.call.ncclAllReduce("a", "b", 7, 6, 0, "comm", "stream")])

    def test_two_shots_are_in_place_on_zeros_once_they_are_timed(self):
        workload = part_workloads.Workload("a_test", None, None)
        text = "%x = input f32 [R, 4]\n%sum = all_reduce sum %x\n%y = relu %sum\nreturn %y\n"
        case = program_cases.Case(workload, text, 2, 2, CaseTest.Parts((1, "f32", 2, 4)))
        platform = program_platforms.Host(1, 2)
        memory = program_contenders.SymmMemMemory(unittest.mock.Mock(symmetric=platform.empty))
        transport = program_contenders.SymmMemTransport(platform, memory, in_place=True)
        self.assertTrue(transport.offers(case))
        run = program_contenders.CollectivesRun(platform, case, transport, in_place=True)
        self.assertIs(run.values["x"], run.values["sum"])
        run.fill()
        self.assertEqual(list(run.values["x"]), [program_cases.number(i, 1 + 5) for i in range(8)])
        run.settle()
        self.assertEqual(list(run.values["x"]), [0] * 8)
        # The next case gets the same memory, which is a meeting of all ranks to make.
        memory.clear()
        self.assertIs(memory.empty(case.shapes["x"]), run.values["x"])
        self.assertIsNot(memory.empty(case.shapes["x"]), run.values["x"])
        odd = program_cases.Case(workload, text.replace("R, 4", "R, 3"), 2, 2, CaseTest.Parts((1, "f32", 2, 3)))
        self.assertFalse(transport.offers(odd))

    def test_operands_are_described_as_the_header_says(self):
        operands = [cotune_library.Operand(64, "bf16", 3, 5), cotune_library.Operand(128, "f8_e4m3", 7, 1)]
        tensors = cotune_library.Group._tensors(operands)
        self.assertEqual([(each.dtype, each.data, each.size_count, each.sizes[0], each.sizes[1]) for each in tensors],
                         [(4, 64, 2, 3, 5), (9, 128, 2, 7, 1)])


class ReportTest(unittest.TestCase):
    @staticmethod
    def content(ranks: int = 2, **us: float) -> dict:
        times = {name: [time_us, time_us + 1, time_us - 1] for name, time_us in us.items()}
        cell = {"program": "add_residual_norm", "rows": 16, "columns": 8192, "bytes": 262144, "calls": 20,
                "compiled_mode": "default", "wrong": dict.fromkeys(us, 0), "us": times, "job": "add_residual_norm 8192",
                "winners": [{"rows": 16, "buffers": "plain", "choice": "cuda/one_shot?blocks=8&transport=lamport"},
                            {"rows": 16, "buffers": "symmetric", "choice": "cuda/two_shot"}]}
        return {"ranks": ranks, "date": "2030-01-02T", "machine": {"gpus": ["G", "G"], "cotune": "cotune 1"},
                "versions": {"torch": "2", "triton": "3"}, "cells": [cell]}

    TIMES = {"program": 8.0, "program_registered": 6.0, "collectives": 5.0, "part": 2.0, "compiled_part": 3.0, "cotune_compiled": 9.0,
             "nccl_compiled": 12.0, "nccl_symmetric_compiled": 11.0, "symm_mem_one_shot_compiled": 20.0, "symm_mem_two_shot_compiled": 10.0}

    def test_the_table_has_medians_and_the_better_of_each_kind(self):
        text = program_report.report([self.content(**self.TIMES)])
        self.assertIn("### Programs on 2 GPUs\n\n2 of 2 G; torch 2, triton 3; cotune 1. 2030-01-02.", text)
        # The recorded vLLM and FlashInfer of 2 GPUs at 16 tokens; FlashInfer is the best peer.
        self.assertIn("| 8192 | 16 | 256K | 8 | cuda/one_shot lamport | 6 | 5 | 2 | 3 | 9 | 12 | 11 | 10 | 7.39 | 6.21 | "
                      "0.97 (FlashInfer*) |", text)
        self.assertIn("Geometric mean 0.89 of cotune's collectives with torch.compile's kernels.", text)
        self.assertIn("Geometric mean 0.97 of the best peer; the largest is 0.97, add_residual_norm of 16 rows of 8192.", text)
        self.assertIn("\\* not measured in the same run", text)

    def test_files_are_joined_by_their_numbers_of_gpus(self):
        text = program_report.report([self.content(**self.TIMES), self.content(4, **self.TIMES)])
        self.assertLess(text.index("Programs on 4 GPUs"), text.index("Programs on 2 GPUs"))
        with self.assertRaisesRegex(SystemExit, "more than once: add_residual_norm of 16 rows of 8192"):
            program_report.report([self.content(**self.TIMES)] * 2)
        other = self.content(**self.TIMES)
        other["machine"] = {"gpus": ["H", "H"], "cotune": "cotune 1"}
        with self.assertRaisesRegex(SystemExit, "files of 2 GPUs differ"):
            program_report.report([self.content(**self.TIMES), other])
        with self.assertRaisesRegex(SystemExit, "no cells of 2 GPUs"):
            program_report.report([{**self.content(**self.TIMES), "cells": []}])

    def test_a_table_of_several_sizes_is_drawn(self):
        content = self.content(**self.TIMES)
        first = content["cells"][0]
        content["cells"] = [{**first, "rows": rows, "bytes": rows * 16384} for rows in (1, 16, 64)]
        with tempfile.TemporaryDirectory(prefix="cotune.") as folder:
            doc = pathlib.Path(folder) / "doc.md"
            doc.write_text(f"{program_plots.PLACE.begin}\n{program_plots.PLACE.end}\n", encoding="utf-8")
            program_plots.write(doc, program_report.report([content]))
            written = doc.read_text(encoding="utf-8")
            self.assertEqual(written.count("![add_residual_norm, 2 GPUs](figures/add_residual_norm_2_gpus.svg)"), 1)
            plot = (doc.parent / "figures" / "add_residual_norm_2_gpus.svg").read_text(encoding="utf-8")
            for name in ("cotune", "collectives alone", "NCCL + compile", "FlashInfer"):
                self.assertIn(f">{name}</text>", plot)
            # The command finds the same tables, and leaves one line for each plot.
            self.assertEqual(program_plots.main(["--doc", str(doc)]), 0)
            self.assertEqual(doc.read_text(encoding="utf-8"), written)

    def test_it_stands_between_its_comments(self):
        with tempfile.TemporaryDirectory(prefix="cotune.") as folder:
            doc, file = pathlib.Path(folder) / "doc.md", pathlib.Path(folder) / "file.json"
            file.write_text(json.dumps(self.content(**self.TIMES)), encoding="utf-8")
            doc.write_text(f"a\n{program_plots.PLACE.begin}\nold\n{program_plots.PLACE.end}\nb\n", encoding="utf-8")
            self.assertEqual(program_report.main([str(file), "--doc", str(doc)]), 0)
            written = doc.read_text(encoding="utf-8")
            self.assertNotIn("old", written)
            self.assertTrue(written.startswith("a\n") and written.endswith("b\n"))
            self.assertNotIn("svg", written, "a table of one row is not drawn")
            doc.write_text("nothing", encoding="utf-8")
            with self.assertRaisesRegex(SystemExit, "lacks the comments"):
                program_report.main([str(file), "--doc", str(doc)])


if __name__ == "__main__":
    unittest.main()
