"""Which collectives of a graph are rewritten, and which are left alone, on graphs made by hand."""

from __future__ import annotations

import operator
import unittest

import torch
import torch.distributed._functional_collectives as funcol
from torch._inductor import config

from cotune.torch import graph_pass
from cotune.torch.collectives import GroupFacts
from cotune.torch.settings import Settings
from cotune.torch.testing.graphs import GraphBuilder, aten, c10d, explained, fake_group, lines_of


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
        self.assertEqual(lines_of(decision)[0][-1], "return %1")
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
        return lines_of(decision)

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
        self.assertEqual(len(self.graph.programs()), 1)

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
        programs = graph.programs()
        self.assertEqual([bool(n.kwargs["manifest"]) for n in programs], [True, True, False, False])
        for node in programs[:2]:
            self.assertEqual(node.kwargs["manifest"].count("program"), 2)

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
        self.assertEqual(lines_of(decision)[0][-2], "%2 = row_mean %1")
        self.assertNotIn(aten.var_mean.correction, graph.targets())


if __name__ == "__main__":
    unittest.main()
