"""Which nodes become a program, on graphs made by hand."""

from __future__ import annotations

import importlib
import operator
import unittest
from unittest import mock

import torch
import torch.distributed._functional_collectives as funcol
from torch._inductor import config

from cotune.torch import compat, decisions, declarations, graph_pass
from cotune.torch.collectives import GroupFacts
from cotune.torch.settings import Settings
from cotune.torch.testing import stand_in
from cotune.torch.testing.graphs import GraphBuilder, aten, c10d, explained, fake_group


def _programs(graph: GraphBuilder) -> list[torch.fx.Node]:
    return [node for node in graph.graph.nodes if "program" in node.kwargs]


def _lines(decision) -> list[list[str]]:
    return [each.text.splitlines()[1:] for each in decision.programs]


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
        self.assertEqual(_lines(decision), [wanted])
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
        self.assertEqual(_lines(decision)[0][-1], "return %1, %2")
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
        self.assertEqual(_lines(decision)[0][-1], "return %1")

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
        self.assertEqual(_lines(decision)[0][-1], "return %1, %2")

    def test_nothing_is_moved_over_a_write(self) -> None:
        x, other = self.graph.input(8, 16), self.graph.input(8, 16)
        total = self.graph.all_reduce(x)
        self.graph.call(aten.copy_.default, other, x)
        y = self.graph.call(aten.add.Tensor, total, other)
        decision = self.graph.rewritten(y)
        self.assertEqual(_lines(decision)[0][-2:], ["%1 = all_reduce sum %0", "return %1"])
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
        self.assertIn("%1 = cast %0, to=f32", _lines(alone)[0])
        self.graph = GraphBuilder()
        x = self.graph.input(8, 16, dtype=torch.bfloat16)
        wide = self.graph.call(torch.ops.prims.convert_element_type.default, x, torch.float32)
        shared = self.graph.rewritten(self.graph.all_reduce(wide), wide)
        self.assertEqual(_lines(shared)[0][0], "%0 = input f32 [R, 16]")

    def test_broadcast_over_a_middle_dimension_is_not_taken(self) -> None:
        x, y = self.graph.input(2, 4, 16), self.graph.input(2, 1, 16)
        total = self.graph.all_reduce(x)
        decision = self.graph.rewritten(self.graph.call(aten.add.Tensor, total, y))
        self.assertIn("middle dimension", decision.programs[0].stops[0][1])

    def test_mean_of_bf16_is_rounded_to_bf16(self) -> None:
        x = self.graph.input(8, 16, dtype=torch.bfloat16)
        mean = self.graph.call(aten.mean.dim, self.graph.all_reduce(x), [-1], True)
        lines = _lines(self.graph.rewritten(mean))[0]
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
                        lines = _lines(self.graph.rewritten(narrow))[0]
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
        self.assertEqual(_lines(decision)[0][-1], "return %1, %2")
        self.assertIn(aten.div.Tensor, self.graph.targets())

    def test_limits_end_a_region(self) -> None:
        y = self.graph.all_reduce(self.graph.input(8, 16))
        for _ in range(80):
            y = self.graph.call(aten.tanh.default, y)
        decision = self.graph.rewritten(y)
        self.assertEqual(len(_lines(decision)[0]), 1 + 64 + 1)
        self.assertIn("64 operations", decision.programs[0].stops[0][1])

    def test_outputs_are_at_most_16(self) -> None:
        total = self.graph.all_reduce(self.graph.input(8, 16))
        outputs = [self.graph.call(aten.mul.Tensor, total, float(i)) for i in range(2, 25)]
        decision = self.graph.rewritten(*outputs)
        self.assertEqual(_lines(decision)[0][-1].count("%"), 16)

    def test_inputs_are_at_most_16(self) -> None:
        y = self.graph.all_reduce(self.graph.input(8, 16))
        others = [self.graph.input(8, 16) for _ in range(20)]
        for other in others:
            y = self.graph.call(aten.add.Tensor, y, other)
        lines = _lines(self.graph.rewritten(y))[0]
        self.assertEqual(sum("input" in line for line in lines), 16)

    def test_operands_of_two_dtypes_are_cast_as_aten_does(self) -> None:
        x, y = self.graph.input(8, 16, dtype=torch.bfloat16), self.graph.input(8, 16)
        total = self.graph.call(aten.add.Tensor, self.graph.all_reduce(x), y)
        lines = _lines(self.graph.rewritten(total))[0]
        self.assertIn("%3 = cast %2, to=f32", lines)

    def test_one_row_has_no_free_size(self) -> None:
        lines = _lines(self.graph.rewritten(self.graph.all_reduce(self.graph.input(64))))[0]
        self.assertEqual(lines[0], "%0 = input f32 [1, 64]")

    def test_long_vector_is_cut_into_rows(self) -> None:
        decision = self.graph.rewritten(self.graph.all_reduce(self.graph.input(3 * 65536)))
        self.assertEqual(_lines(decision)[0][0], "%0 = input f32 [R, 65536]")
        self.assertEqual(decision.programs[0].rows, [3])


class LeftAloneTest(unittest.TestCase):
    def setUp(self) -> None:
        self.graph = GraphBuilder()

    def _reason(self, *outputs, **options) -> str:
        decision = self.graph.rewritten(*outputs, **options)
        self.assertEqual(decision.programs, [])
        (left,) = decision.left
        return left.reason

    def test_group_is_a_value_of_the_graph(self) -> None:
        x, group = self.graph.input(8, 16), self.graph.input(1)
        self.assertIn("value of the graph", self._reason(self.graph.all_reduce(x, group)))

    def test_group_is_not_taken(self) -> None:
        y = self.graph.all_reduce(self.graph.input(8, 16))
        self.assertEqual(self._reason(y, reason="it is small"), "it is small")

    def test_overlap_passes(self) -> None:
        for name, value in (
            ("reorder_for_compute_comm_overlap", True),
            ("bucket_all_reduces_fx", "all"),
            ("_micro_pipeline_tp", True),
        ):
            with self.subTest(option=name), config.patch(name, value):
                self.graph = GraphBuilder()
                y = self.graph.all_reduce(self.graph.input(8, 16))
                self.assertRegex(self._reason(y), f"{name} is on; overlap=True takes it")
        with config.patch("_micro_pipeline_tp", True):
            self.graph = GraphBuilder()
            y = self.graph.all_reduce(self.graph.input(8, 16))
            self.assertEqual(len(self.graph.rewritten(y, overlap=True).programs), 1)

    def test_dtype(self) -> None:
        y = self.graph.all_reduce(self.graph.input(8, 16, dtype=torch.int16))
        self.assertIn("no int16", self._reason(y))

    def test_epilogues_by_the_settings(self) -> None:
        y = self.graph.call(aten.neg.default, self.graph.all_reduce(self.graph.input(8, 16)))
        decision = self.graph.rewritten(y, epilogues=False)
        self.assertEqual(_lines(decision)[0][-1], "return %1")
        self.assertIn(aten.neg.default, self.graph.targets())

    def test_splits(self) -> None:
        for splits, part in (([2, 6], "uneven"), ([3, 3], "equal share")):
            with self.subTest(splits=splits):
                self.graph = GraphBuilder()
                x = self.graph.input(8, 16)
                work = self.graph.graph.call_function(
                    c10d.all_to_all_single.default, (x, splits, splits, "0")
                )
                work.meta["val"] = x.meta["val"]
                self.assertIn(part, self._reason(self.graph.wait(work), all_to_all=True))

    def test_equal_splits_by_the_settings(self) -> None:
        for taken in (False, True):
            with self.subTest(all_to_all=taken):
                self.graph = GraphBuilder()
                x = self.graph.input(8, 16)
                work = self.graph.graph.call_function(
                    c10d.all_to_all_single.default, (x, [4, 4], [4, 4], "0")
                )
                work.meta["val"] = x.meta["val"]
                decision = self.graph.rewritten(self.graph.wait(work), all_to_all=taken)
                self.assertEqual(len(decision.programs), int(taken))
                if not taken:
                    self.assertIn("give all_to_all=True", decision.left[0].reason)

    def test_splits_that_are_the_share_by_their_expression(self) -> None:
        name = fake_group()

        def exchanged(x: torch.Tensor) -> torch.Tensor:
            return funcol.all_to_all_single(x, None, None, name) + 1

        x = torch.ones(8, 16)
        torch._dynamo.mark_dynamic(x, 0)
        try:
            # Another rank may have the same splits as numbers.
            for taken in (False, True):
                decision = explained(exchanged, x, all_to_all=taken)
                self.assertEqual(len(decision["programs"]), int(taken), decision)
        finally:
            torch.distributed.destroy_process_group()

    def test_columns_that_are_not_static(self) -> None:
        """Nothing is fused, and the reason has the advice that lets it be fused."""
        name = fake_group()

        def summed(x: torch.Tensor) -> torch.Tensor:
            return torch.relu(funcol.all_reduce(x, "sum", name))

        try:
            x = torch.ones(8, 16)
            torch._dynamo.mark_dynamic(x, 1)
            (program,) = explained(summed, x)["programs"]
            advice = "its last dimension is not static; torch._dynamo.mark_static(x, 1) makes that of a 2-D input x static"
            ((_, reason),) = program["stops"]
            self.assertTrue(reason.endswith(f": nothing is fused with it: {advice}"), reason)
        finally:
            torch.distributed.destroy_process_group()


class TakenAnywayTest(unittest.TestCase):
    """Collectives are taken whatever stands around them."""

    def setUp(self) -> None:
        self.graph = GraphBuilder()

    def _started(self, x: torch.fx.Node) -> torch.fx.Node:
        work = self.graph.graph.call_function(c10d.all_reduce.default, (x, "sum", "0"))
        work.meta["val"] = x.meta["val"]
        return work

    def _lines_of(self, *outputs: torch.fx.Node) -> list[list[str]]:
        decision = self.graph.rewritten(*outputs)
        self.assertEqual(decision.left, [])
        self.assertNotIn(c10d.all_reduce.default, self.graph.targets())
        return _lines(decision)

    def test_second_user(self) -> None:
        wait = self.graph.all_reduce(self.graph.input(8, 16))
        other = self.graph.call(aten.neg.default, wait.args[0])
        self.assertEqual(len(self._lines_of(wait, other)), 1)

    def test_two_waits_and_none(self) -> None:
        twice, never = self._started(self.graph.input(8, 16)), self._started(self.graph.input(8, 16))
        waits = [self.graph.wait(twice), self.graph.wait(twice)]
        self.assertEqual(len(self._lines_of(*waits, never)), 2)

    def test_result_that_nothing_uses(self) -> None:
        x = self.graph.input(8, 16)
        self.graph.all_reduce(x)
        # The other ranks wait for this one.
        (lines,) = self._lines_of(x)
        self.assertEqual(lines, ["%0 = input f32 [R, 16]", "%1 = all_reduce sum %0", "return %1"])
        self.assertEqual(len(_programs(self.graph)), 1)

    def test_compute_beside_the_collective(self) -> None:
        x, weight = self.graph.input(16, 16), self.graph.input(16, 16)
        work = self._started(x)
        beside = self.graph.call(aten.mm.default, x, weight)
        total = self.graph.call(aten.add.Tensor, self.graph.wait(work), beside)
        self.assertEqual(len(self._lines_of(total)), 1)

    def test_something_writes_memory_before_the_wait(self) -> None:
        x, y = self.graph.input(16, 16), self.graph.input(16, 16)
        work = self._started(x)
        self.graph.call(aten.copy_.default, x, y)
        self._lines_of(self.graph.wait(work))
        names = [node.target for node in self.graph.graph.nodes]
        program = next(node for node in self.graph.graph.nodes if "program" in node.kwargs)
        self.assertLess(list(self.graph.graph.nodes).index(program), names.index(aten.copy_.default))

    def test_no_epilogue_reads_what_was_written_before_the_wait(self) -> None:
        x, y, z = (self.graph.input(16, 16) for _ in range(3))
        work = self._started(x)
        self.graph.call(aten.copy_.default, y, z)
        total = self.graph.call(aten.add.Tensor, self.graph.wait(work), y)
        (lines,) = self._lines_of(total)
        self.assertEqual(lines[-1], "return %1")
        self.assertIn(aten.add.Tensor, self.graph.targets())

    def test_strides(self) -> None:
        x = self.graph.call(aten.permute.default, self.graph.input(16, 8), [1, 0])
        self.assertEqual(self._lines_of(self.graph.all_reduce(x))[0][0], "%0 = input f32 [R, 1]")

    def test_columns(self) -> None:
        (lines,) = self._lines_of(self.graph.all_reduce(self.graph.input(65537)))  # a prime
        self.assertEqual(lines[0], "%0 = input f32 [R, 1]")

    def test_more_outputs_than_a_program_has(self) -> None:
        wait = self.graph.all_reduce(self.graph.input(8, 16))
        outputs = [self.graph.call(aten.mul.Tensor, wait, float(2 + n)) for n in range(20)]
        self.assertEqual(len(self._lines_of(wait, *outputs)), 1)


def _before(node: torch.fx.Node) -> set[torch.fx.Node]:
    """The nodes that a node depends on."""
    found, pending = set(), [node]
    while pending:
        for each in pending.pop().all_input_nodes:
            if each not in found:
                found.add(each)
                pending.append(each)
    return found


class OrderOfStartsTest(unittest.TestCase):
    """The collectives of a graph run in the order in which they start in it."""

    def setUp(self) -> None:
        self.graph = GraphBuilder()

    def test_a_collective_that_starts_in_between_parts_a_program(self) -> None:
        x, y = self.graph.input(16, 16), self.graph.input(16, 16)
        first = self.graph.all_reduce(x)
        between = self.graph.all_reduce(y)
        again = self.graph.all_reduce(self.graph.call(aten.relu.default, first))
        decision = self.graph.rewritten(again, between)
        self.assertEqual([len(each.collectives) for each in decision.programs], [1, 1, 1])

    def test_a_collective_that_is_left_alone_is_in_the_chain(self) -> None:
        x, y, z = self.graph.input(8, 16), self.graph.input(8, 16, dtype=torch.int16), self.graph.input(8, 16)
        first, left, last = (self.graph.all_reduce(each) for each in (x, y, z))
        decision = self.graph.rewritten(first, left, last)
        self.assertEqual((len(decision.programs), len(decision.left)), (2, 1))
        early, late = _programs(self.graph)
        wrapped = late.kwargs["inputs"][-1]
        self.assertEqual(wrapped.args[0][0].args[0].args[0], early)

    def test_each_collective_that_is_left_alone_follows_the_one_before_it(self) -> None:
        """The program with its late epilogue comes last in the graph: none may start before it."""
        x = self.graph.input(8, 16)
        works = []
        for dtype in (torch.float32, torch.int16, torch.int16):
            work = self.graph.graph.call_function(
                c10d.all_reduce.default, (self.graph.input(8, 16, dtype=dtype), "sum", "0")
            )
            work.meta["val"] = work.args[0].meta["val"]
            works.append(work)
        taken, first, second = (self.graph.wait(work) for work in works)
        late = self.graph.call(aten.mul.Tensor, self.graph.call(aten.add.Tensor, taken, 1.0), x)
        decision = self.graph.rewritten(late, first, second)
        self.assertEqual((len(decision.programs), len(decision.left)), (1, 2))
        (program,) = _programs(self.graph)
        wrapped = [node.args[0] for node in (first, second)]
        order = list(self.graph.graph.nodes)
        places = [order.index(node) for node in (program, *wrapped)]
        self.assertEqual(places, sorted(places))
        self.assertIs(wrapped[1].args[0][0], wrapped[0])

    def test_a_collective_on_another_device_is_in_the_chain(self) -> None:
        first = self.graph.all_reduce(self.graph.input(8, 16))
        second = self.graph.all_reduce(self.graph.input(8, 16, device="cuda"))
        self.graph.rewritten(first, second)
        early, late = _programs(self.graph)
        self.assertIs(late.kwargs["inputs"][-1].args[0].args[0], early)

    def test_a_collective_by_an_operator_of_cotune_is_in_the_chain(self) -> None:
        stand_in.define()
        x, y = self.graph.input(8, 16), self.graph.input(8, 16)
        first = self.graph.all_reduce(x)
        by_hand = self.graph.graph.call_function(torch.ops.cotune.all_reduce.default, (y, "sum", "0"))
        by_hand.meta["val"] = y.meta["val"]
        total = self.graph.call(aten.add.Tensor, first, by_hand)
        decision = self.graph.rewritten(total)
        # With the sum the program would start after the other collective.
        self.assertNotIn("add", decision.programs[0].text)
        (program,) = _programs(self.graph)
        order = list(self.graph.graph.nodes)
        (wrapped,) = (each for each in total.args if isinstance(each, torch.fx.Node) and each.name == by_hand.name)
        self.assertLess(order.index(program), order.index(wrapped))

    def test_the_all_to_all_of_a_dtensor_is_in_the_chain(self) -> None:
        importlib.import_module("torch.distributed.tensor._collective_utils")  # registers the fake of the operator
        x, y = self.graph.input(8, 16), self.graph.input(8, 16)
        first = self.graph.all_reduce(x)
        moved = self.graph.call(torch.ops._dtensor.shard_dim_alltoall.default, y, 0, 1, fake_group())
        last = self.graph.call(aten.relu.default, self.graph.all_reduce(self.graph.call(aten.relu.default, first)))
        total = self.graph.call(aten.relu.default, first)
        self.graph.rewritten(total, moved, last)
        early, late = _programs(self.graph)
        order = list(self.graph.graph.nodes)
        output = order[-1]
        between = order.index(output.args[0][1])
        self.assertLess(order.index(early), between)
        self.assertLess(between, order.index(late))
        self.assertIn(early, _before(order[between]))
        self.assertIn(order[between], _before(late))

    def test_branches_keep_their_collectives(self) -> None:
        group = fake_group()

        def total(x: torch.Tensor) -> torch.Tensor:
            return c10d.wait_tensor(c10d.all_reduce(x, "sum", group))

        def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            first = total(x)
            chosen = torch.cond(x[0, 0] > 0, total, total, (x,))
            return torch.relu(first), chosen

        x = torch.ones(8, 16)
        explained(function, x)
        *bodies, outer = decisions.explain_data()
        left = [each["reason"] for graph in bodies for each in graph["left"]]
        self.assertEqual(len(left), 2, bodies)
        for each in left:
            self.assertIn("in a branch or a loop", each)
        (program,) = outer["programs"]
        self.assertIn("relu", program["text"])

    def _branch(self, x: torch.fx.Node, *call: object) -> torch.fx.Node:
        """A torch.cond whose branches are one body, which calls an operator with its operand after these arguments."""
        target, *before = call
        graph = torch.fx.Graph()
        y = graph.call_function(target, (*before, graph.placeholder("x"), "0"))
        graph.output((y,))
        return self._cond(torch.fx.GraphModule(torch.nn.Module(), graph), x)

    def _cond(self, body: torch.fx.GraphModule, x: torch.fx.Node) -> torch.fx.Node:
        self.graph.graph.owning_module.body = body
        branches = [self.graph.graph.get_attr("body") for _ in range(2)]
        node = self.graph.graph.call_function(torch.ops.higher_order.cond, (x, *branches, (x,)))
        node.meta["val"] = (x.meta["val"],)
        return node

    def _nested(self, x: torch.fx.Node) -> torch.fx.Node:
        inner = torch.fx.Graph()
        y = inner.placeholder("x")
        inner.output((inner.call_function(c10d.all_reduce.default, (y, "sum", "0")),))
        outer = torch.fx.Graph()
        y = outer.placeholder("x")
        body = outer.get_attr("body")
        outer.output(outer.call_function(torch.ops.higher_order.cond, (y, body, body, (y,))))
        module = torch.nn.Module()
        module.body = torch.fx.GraphModule(torch.nn.Module(), inner)
        return self._cond(torch.fx.GraphModule(module, outer), x)

    def test_a_branch_that_runs_collectives_is_in_the_chain(self) -> None:
        importlib.import_module("torch.distributed.tensor._collective_utils")  # registers the operator
        declared = aten.detach.default  # stands for a custom operator
        cases = {
            "functional": lambda x: self._branch(x, c10d.broadcast.default),
            "of cotune": lambda x: self._branch(x, torch.ops.cotune.all_to_all.default),
            "of DTensor": lambda x: self._branch(x, torch.ops._dtensor.shard_dim_alltoall.default),
            "declared": lambda x: self._branch(x, declared),
            "with an effect": lambda x: self._branch(x, torch.ops.higher_order.with_effects, None, declared),
            "program": lambda x: self._branch(x, compat.auto_functionalized(), torch.ops.cotune.program.default),
            "nested": self._nested,
        }
        stand_in.define()
        facts = declarations.Declaration("aten::detach", "all_reduce", "self", "group", "sum")
        for name, branch in cases.items():
            with self.subTest(name), mock.patch.dict(declarations._declared, {declared: facts}):
                self.graph = GraphBuilder()
                x, y = self.graph.input(8, 16), self.graph.input(8, 16)
                first, chosen = self.graph.all_reduce(x), branch(y)
                last = self.graph.all_reduce(y)
                mixed = self.graph.call(aten.add.Tensor, first, self.graph.call(operator.getitem, chosen, 0))
                decision = self.graph.rewritten(self.graph.call(aten.relu.default, first), mixed, last)
                # With the sum the first program would run after the collective of the branch.
                self.assertEqual([each.text.count("= add") for each in decision.programs], [0, 0])
                early, late = _programs(self.graph)
                self.assertIn(chosen.name, {each.name for each in _before(late)})
                (node,) = (each for each in self.graph.graph.nodes if each.name == chosen.name)
                self.assertIn(early, _before(node))

    def test_branches_that_are_in_no_chain(self) -> None:
        """A branch without collectives stays free, as do functional collectives in branches if there is no program."""
        for target, reason in ((aten.relu.default, ""), (c10d.wait_tensor.default, ""), (c10d.all_reduce.default, "small")):
            with self.subTest(target=target):
                self.graph = GraphBuilder()
                x, y = self.graph.input(8, 16), self.graph.input(8, 16)
                first, chosen = self.graph.all_reduce(x), self._branch(y, target)
                last = self.graph.all_reduce(y)
                self.graph.rewritten(first, chosen, last, reason=reason)
                self.assertIn(torch.ops.higher_order.cond, self.graph.targets())
                self.assertNotIn(chosen, _before(last))

    def test_a_loop_without_a_tensor_among_its_results(self) -> None:
        x, y = self.graph.input(8, 16), self.graph.input(8, 16)
        first, chosen = self.graph.all_reduce(x), self._branch(y, c10d.all_reduce.default)
        chosen.meta["val"] = (3,)
        self.graph.rewritten(first, chosen, self.graph.all_reduce(y))
        early, late = _programs(self.graph)
        self.assertIn(early, _before(late))

    def test_collectives_run_by_their_depth(self) -> None:
        x = self.graph.input(16, 16)
        first = self.graph.all_reduce(x)
        second = self.graph.all_reduce(self.graph.call(aten.relu.default, first))
        third = self.graph.all_reduce(self.graph.call(aten.neg.default, first))
        fourth = self.graph.all_reduce(self.graph.call(aten.relu.default, third))
        decision = self.graph.rewritten(second, fourth)
        for each in decision.programs:
            lines = [line for line in each.text.splitlines() if " = all_reduce" in line]
            self.assertEqual(len(lines), len(each.collectives))
        self.assertEqual(sum(len(each.collectives) for each in decision.programs), 4)


class GroupsTest(unittest.TestCase):
    def test_torch_distributed_is_not_initialised(self) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        facts = graph_pass.group_facts_of(Settings())("0")
        self.assertIn("not initialised", facts.reason)

    def test_fake_groups_need_export(self) -> None:
        name = fake_group()
        try:
            self.assertIn("fake", graph_pass.group_facts_of(Settings())(name).reason)
            exported = graph_pass.group_facts_of(Settings(export=True))
            self.assertEqual(exported(name), GroupFacts(world_size=2))
            self.assertIn("no group", exported("another").reason)
        finally:
            torch.distributed.destroy_process_group()


class RewriteTest(unittest.TestCase):
    def test_manifest_is_in_the_first_operator_of_each_group(self) -> None:
        graph = GraphBuilder()
        outputs = []
        for group in ("0", "1", "0", "1"):
            y = graph.all_reduce(graph.input(8, 16), group)
            outputs.append(graph.call(aten.add.Tensor, y, float(len(outputs))))
        graph.rewritten(*outputs)
        programs = _programs(graph)
        self.assertEqual([bool(n.kwargs["manifest"]) for n in programs], [True, True, False, False])
        for node in programs[:2]:
            self.assertEqual(node.kwargs["manifest"].count("program"), 2)

    def test_each_program_reads_a_result_of_the_one_before_it(self) -> None:
        graph = GraphBuilder()
        outputs = []
        for group in ("0", "1", "0"):
            total = graph.all_reduce(graph.input(8, 16), group)
            row = graph.call(aten.amax.default, total, [-1], True)
            outputs += [total, graph.call(aten.mul.Tensor, row, float(len(outputs) + 2))]
        graph.rewritten(*outputs)
        first, *others = _programs(graph)
        self.assertEqual(len(first.kwargs["inputs"]), 1)
        for before, node in zip((first, *others), others, strict=False):
            *_, last = node.kwargs["inputs"]
            self.assertEqual(len(node.kwargs["inputs"]), 2)
            # The smallest of its results.
            self.assertEqual(tuple(last.meta["val"].shape), (8, 1))
            self.assertIs(last.args[0].args[0], before)

    def test_program_that_reads_the_one_before_it_has_no_further_input(self) -> None:
        graph = GraphBuilder()
        x, y = graph.input(8, 16), graph.input(8, 16)
        first, second = graph.all_reduce(x), graph.all_reduce(y)
        graph.rewritten(first, graph.call(aten.mul.Tensor, second, first))
        self.assertEqual([len(each.kwargs["inputs"]) for each in _programs(graph)], [1, 2])

    def test_chain_follows_the_order_of_starts(self) -> None:
        graph = GraphBuilder()
        x, y, weight = graph.input(16, 16), graph.input(16, 16), graph.input(16, 16)
        first = graph.all_reduce(x)
        second = graph.all_reduce(y)
        product = graph.call(aten.mm.default, second, weight)
        # The sum reads what depends on the collective that starts later, so that it stays outside.
        graph.rewritten(second, graph.call(aten.add.Tensor, first, product))
        early, late = _programs(graph)
        self.assertEqual(list(early.kwargs["inputs"]), [x])
        self.assertTrue(early.kwargs["manifest"])
        self.assertFalse(late.kwargs["manifest"])
        self.assertIs(late.kwargs["inputs"][-1].args[0].args[0], early)
        self.assertIn(aten.add.Tensor, graph.targets())

    def test_group_whose_name_cannot_be_an_argument(self) -> None:
        graph = GraphBuilder()
        decision = graph.rewritten(graph.all_reduce(graph.input(8, 16), 'a "b"'))
        self.assertEqual(decision.programs, [])
        self.assertIn("name of its group has a quotation mark", decision.left[0].reason)

    def test_results_are_those_of_the_nodes(self) -> None:
        graph = GraphBuilder()
        x = graph.input(8, 16)
        total = graph.all_reduce(x)
        variance = graph.call(aten.var_mean.correction, total, [1], correction=0, keepdim=True)
        mean = graph.call(operator.getitem, variance, 1)
        decision = graph.rewritten(mean)
        self.assertEqual(_lines(decision)[0][-2], "%2 = row_mean %1")
        self.assertNotIn(aten.var_mean.correction, graph.targets())


if __name__ == "__main__":
    unittest.main()
