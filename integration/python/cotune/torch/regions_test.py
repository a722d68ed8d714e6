"""Which nodes become a program, on graphs made by hand."""

from __future__ import annotations

import unittest
from unittest import mock

import torch

from cotune.torch import compat, decisions
from cotune.torch.testing.graphs import GraphBuilder, aten, c10d, lines_of


class RegionsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.graph = GraphBuilder()

    def test_epilogue_joins(self) -> None:
        x, bias = self.graph.input(8, 16), self.graph.input(16)
        total = self.graph.call(aten.add.Tensor, self.graph.all_reduce(x), bias)
        y = self.graph.call(aten.relu.default, total)
        decision = self.graph.rewritten(y)
        wanted = [
            "%0 = input f32 [R, 16]",
            "%1 = input f32 [1, 16]",
            "%2 = all_reduce sum %0",
            "%3 = add %2, %1",
            "%4 = relu %3",
            "return %4",
        ]
        self.assertEqual(lines_of(decision), [wanted])
        self.assertNotIn(c10d.all_reduce.default, self.graph.targets())
        self.assertNotIn(c10d.wait_tensor.default, self.graph.targets())
        self.assertNotIn(aten.relu.default, self.graph.targets())

    def test_node_that_depends_on_the_region_through_an_outside_node_stays_outside(self) -> None:
        x, weight = self.graph.input(16, 16), self.graph.input(16, 16)
        total = self.graph.all_reduce(x)
        doubled = self.graph.call(aten.mul.Tensor, total, 2)
        product = self.graph.call(aten.mm.default, total, weight)
        mixed = self.graph.call(aten.add.Tensor, doubled, product)
        decision = self.graph.rewritten(mixed)
        self.assertEqual(lines_of(decision)[0][-1], "return %1, %2")
        self.assertIn(aten.add.Tensor, self.graph.targets())
        self.assertTrue(any("depends" in reason for _, reason in decision.programs[0].stops))

    def test_two_regions_do_not_read_each_other_in_a_circle(self) -> None:
        x, y = self.graph.input(8, 16), self.graph.input(8, 16)
        first, second = self.graph.all_reduce(x), self.graph.all_reduce(y)
        # second reads first; what then reads second may not join first.
        crossed = self.graph.call(aten.mul.Tensor, second, first)
        back = self.graph.call(aten.add.Tensor, first, crossed)
        decision = self.graph.rewritten(back, crossed)
        self.assertEqual(len(decision.programs), 2)
        self.assertEqual(lines_of(decision)[0][-1], "return %1")

    def test_dependencies_pass_through_other_regions(self) -> None:
        x, y, weight = (self.graph.input(16, 16) for _ in range(3))
        first, second = self.graph.all_reduce(x), self.graph.all_reduce(y)
        crossed = self.graph.call(aten.mul.Tensor, second, first)
        product = self.graph.call(aten.mm.default, crossed, weight)
        # product depends on first only because crossed's region reads it.
        mixed = self.graph.call(aten.add.Tensor, first, product)
        self.graph.rewritten(mixed)
        self.assertIn(aten.add.Tensor, self.graph.targets())

    def test_users_of_inner_values_that_stand_in_front_are_moved(self) -> None:
        x, weight = self.graph.input(16, 16), self.graph.input(16, 16)
        total = self.graph.all_reduce(x)
        early = self.graph.call(aten.mm.default, total, weight)
        late = self.graph.call(aten.mul.Tensor, total, 2)
        decision = self.graph.rewritten(early, late)
        self.assertEqual(lines_of(decision)[0][-1], "return %1, %2")

    def test_nothing_is_moved_over_a_write(self) -> None:
        x, other = self.graph.input(8, 16), self.graph.input(8, 16)
        total = self.graph.all_reduce(x)
        self.graph.call(aten.copy_.default, other, x)
        y = self.graph.call(aten.add.Tensor, total, other)
        decision = self.graph.rewritten(y)
        self.assertEqual(lines_of(decision)[0][-2:], ["%1 = all_reduce sum %0", "return %1"])
        self.assertIn("writes memory", decision.programs[0].stops[0][1])

    def test_a_program_reads_its_operand_before_a_write_that_comes_after_the_collective(self) -> None:
        for written, overlap in (("operand", True), ("operand", False), ("other", True)):
            with self.subTest(written=written, overlap=overlap):
                self.graph = GraphBuilder()
                operand, other = self.graph.input(8, 16), self.graph.input(8, 16)
                before = self.graph.call(aten.mul.Tensor, operand, 2)
                works = [self.graph.graph.call_function(c10d.all_reduce.default, (each, "sum", "0")) for each in (operand, before)]
                for work in works:
                    work.meta["val"] = operand.meta["val"]
                to, source = (operand, other) if written == "operand" else (other, operand)
                self.graph.call(aten.copy_.default, to, source)
                totals = [self.graph.call(aten.relu.default, self.graph.wait(work)) for work in works]
                self.graph.rewritten(*totals, overlap=overlap)
                targets = [node.target for node in self.graph.graph.nodes]
                places = [index for index, node in enumerate(self.graph.graph.nodes) if "program" in node.kwargs]
                self.assertEqual(len(places), 2)
                self.assertLess(max(places), targets.index(aten.copy_.default))
                # The readers of the results come after the write, which they must not overtake.
                self.assertGreater(targets.index(aten.relu.default), targets.index(aten.copy_.default))

    def test_prologue_joins_only_if_nothing_else_reads_it(self) -> None:
        x = self.graph.input(8, 16, dtype=torch.bfloat16)
        wide = self.graph.call(torch.ops.prims.convert_element_type.default, x, torch.float32)
        alone = self.graph.rewritten(self.graph.all_reduce(wide))
        self.assertIn("%1 = cast %0, to=f32", lines_of(alone)[0])
        self.graph = GraphBuilder()
        x = self.graph.input(8, 16, dtype=torch.bfloat16)
        wide = self.graph.call(torch.ops.prims.convert_element_type.default, x, torch.float32)
        shared = self.graph.rewritten(self.graph.all_reduce(wide), wide)
        self.assertEqual(lines_of(shared)[0][0], "%0 = input f32 [R, 16]")

    def test_broadcast_over_a_middle_dimension_is_not_taken(self) -> None:
        x, y = self.graph.input(2, 4, 16), self.graph.input(2, 1, 16)
        total = self.graph.all_reduce(x)
        decision = self.graph.rewritten(self.graph.call(aten.add.Tensor, total, y))
        self.assertIn("middle dimension", decision.programs[0].stops[0][1])

    def test_mean_of_bf16_is_rounded_to_bf16(self) -> None:
        x = self.graph.input(8, 16, dtype=torch.bfloat16)
        mean = self.graph.call(aten.mean.dim, self.graph.all_reduce(x), [-1], True)
        lines = lines_of(self.graph.rewritten(mean))[0]
        self.assertEqual(lines[2:4], ["%2 = row_mean %1", "%3 = cast %2, to=bf16"])

    def test_casts_to_8_bit_floats_saturate_where_compiled_torch_does(self) -> None:
        cases = (("f8_e4m3", torch.float8_e4m3fn, "448"), ("f8_e5m2", torch.float8_e5m2, "57344"))
        for word, dtype, largest in cases:
            for saturates in (True, False):
                with self.subTest(word=word, saturates=saturates):
                    self.graph = GraphBuilder()
                    total = self.graph.all_reduce(self.graph.input(8, 16))
                    convert = torch.ops.prims.convert_element_type.default
                    narrow = self.graph.call(convert, total, dtype)
                    with mock.patch.object(compat, "f8_saturates", lambda of, device: of == word and saturates):
                        lines = lines_of(self.graph.rewritten(narrow))[0]
                    clamp, cast = f"%2 = clamp %1, low=-{largest}, high={largest}", f"%3 = cast %2, to={word}"
                    self.assertEqual(lines[2:4], [clamp, cast] if saturates else [f"%2 = cast %1, to={word}", lines[3]])

    def test_what_saturates_on_each_device(self) -> None:
        self.assertTrue(compat.f8_saturates("f8_e4m3", "cuda"))
        self.assertTrue(compat.f8_saturates("f8_e5m2", "cuda"))
        self.assertFalse(compat.f8_saturates("f8_e5m2", "cpu"))
        eager = torch.tensor([1000.0]).to(torch.float8_e4m3fn).float()
        self.assertEqual(compat.f8_saturates("f8_e4m3", "cpu"), not bool(eager.isnan()))

    def test_one_warning_says_that_programs_lack_something(self) -> None:
        decisions._has_warned = False
        with self.assertNoLogs("cotune.torch", "WARNING"):
            self.graph.rewritten(self.graph.all_reduce(self.graph.input(8, 16)), reason="fake")
        with self.assertLogs("cotune.torch", "WARNING") as logs:
            for _ in range(2):
                self.graph = GraphBuilder()
                operands = [self.graph.input(8, 16, dtype=torch.int16) for _ in range(3)]
                self.graph.rewritten(*(self.graph.all_reduce(each) for each in operands))
        (line,) = logs.output
        self.assertIn("leaves 3 collectives of this graph to PyTorch: ", line)
        self.assertIn("(all_reduce): programs have no int16; cotune.torch.explain() lists", line)

    def test_operands_and_outputs_end_in_the_columns_of_the_program(self) -> None:
        x = self.graph.input(16)
        work = self.graph.graph.call_function(c10d.all_gather_into_tensor.default, (x, 2, "0"))
        work.meta["val"] = x.meta["val"].new_empty(32)
        gathered = self.graph.wait(work)
        large = self.graph.all_reduce(self.graph.input(3 * 65536))
        share = self.graph.graph.call_function(
            c10d.reduce_scatter_tensor.default, (self.graph.input(32), "sum", 2, "0")
        )
        share.meta["val"] = x.meta["val"].new_empty(16)
        outputs = gathered, large, self.graph.wait(share)
        shapes = [tuple(each.meta["val"].shape) for each in outputs]
        decision = self.graph.rewritten(*outputs)
        self.assertEqual(len(decision.programs), 3)
        given = {
            tuple(each.meta["val"].shape)
            for node in self.graph.graph.nodes
            for each in (*node.kwargs.get("inputs", ()), *node.kwargs.get("outputs", ()))
        }
        self.assertEqual(given, {(16,), (2, 16), (3, 65536)})
        left = self.graph.graph.output_node().args[0]
        self.assertEqual([tuple(each.meta["val"].shape) for each in left], shapes)

    def test_bool_leaves_as_bool(self) -> None:
        total = self.graph.all_reduce(self.graph.input(8, 16))
        positive = self.graph.call(aten.gt.Scalar, total, 0)
        self.graph.rewritten(positive)
        (output,) = self.graph.graph.output_node().args[0]
        self.assertEqual(output.target, torch.ops.prims.convert_element_type.default)
        self.assertEqual(output.meta["val"].dtype, torch.bool)

    def test_bool_and_its_cast_leave_in_their_own_dtypes(self) -> None:
        total = self.graph.all_reduce(self.graph.input(8, 16))
        positive = self.graph.call(aten.gt.Scalar, total, 0)
        convert = torch.ops.prims.convert_element_type.default
        bytes_ = self.graph.call(convert, positive, torch.uint8)
        self.graph.rewritten(positive, bytes_)
        found = [each.meta["val"].dtype for each in self.graph.graph.output_node().args[0]]
        self.assertEqual(found, [torch.bool, torch.uint8])
        target = self.graph.graph.output_node().args[0][1]
        self.assertEqual(target.args[1], torch.uint8)

    def test_repeated_value_is_not_an_output(self) -> None:
        x = self.graph.input(8, 16)
        total = self.graph.all_reduce(x)
        mean = self.graph.call(aten.mean.dim, total, [-1], True)
        wide = self.graph.call(aten.expand.default, mean, [8, 16])
        half = self.graph.call(aten.div.Tensor, wide, 2)
        decision = self.graph.rewritten(half, self.graph.call(aten.mul.Tensor, half, total))
        self.assertEqual(lines_of(decision)[0][-1], "return %1, %2")
        self.assertIn(aten.div.Tensor, self.graph.targets())

    def test_limits_end_a_region(self) -> None:
        y = self.graph.all_reduce(self.graph.input(8, 16))
        for _ in range(80):
            y = self.graph.call(aten.tanh.default, y)
        decision = self.graph.rewritten(y)
        self.assertEqual(len(lines_of(decision)[0]), 1 + 64 + 1)
        self.assertIn("64 operations", decision.programs[0].stops[0][1])

    def test_outputs_are_at_most_16(self) -> None:
        total = self.graph.all_reduce(self.graph.input(8, 16))
        outputs = [self.graph.call(aten.mul.Tensor, total, float(i)) for i in range(2, 25)]
        decision = self.graph.rewritten(*outputs)
        self.assertEqual(lines_of(decision)[0][-1].count("%"), 16)

    def test_inputs_are_at_most_16(self) -> None:
        y = self.graph.all_reduce(self.graph.input(8, 16))
        others = [self.graph.input(8, 16) for _ in range(20)]
        for other in others:
            y = self.graph.call(aten.add.Tensor, y, other)
        lines = lines_of(self.graph.rewritten(y))[0]
        self.assertEqual(sum("input" in line for line in lines), 16)

    def test_operands_of_two_dtypes_are_cast_as_aten_does(self) -> None:
        x, y = self.graph.input(8, 16, dtype=torch.bfloat16), self.graph.input(8, 16)
        total = self.graph.call(aten.add.Tensor, self.graph.all_reduce(x), y)
        lines = lines_of(self.graph.rewritten(total))[0]
        self.assertIn("%3 = cast %2, to=f32", lines)

    def test_one_row_has_no_free_size(self) -> None:
        lines = lines_of(self.graph.rewritten(self.graph.all_reduce(self.graph.input(64))))[0]
        self.assertEqual(lines[0], "%0 = input f32 [1, 64]")

    def test_long_vector_is_cut_into_rows(self) -> None:
        decision = self.graph.rewritten(self.graph.all_reduce(self.graph.input(3 * 65536)))
        self.assertEqual(lines_of(decision)[0][0], "%0 = input f32 [R, 65536]")
        self.assertEqual(decision.programs[0].rows, [3])


if __name__ == "__main__":
    unittest.main()
