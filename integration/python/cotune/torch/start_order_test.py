"""The order in which the collectives of a graph run, on graphs made by hand."""

from __future__ import annotations

import importlib
import operator
import unittest
from unittest import mock

import torch

from cotune.torch import compat, decisions, declarations
from cotune.torch.testing import stand_in
from cotune.torch.testing.graphs import GraphBuilder, aten, c10d, explained, fake_group


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
        early, late = self.graph.programs()
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
        (program,) = self.graph.programs()
        wrapped = [node.args[0] for node in (first, second)]
        order = list(self.graph.graph.nodes)
        places = [order.index(node) for node in (program, *wrapped)]
        self.assertEqual(places, sorted(places))
        self.assertIs(wrapped[1].args[0][0], wrapped[0])

    def test_a_collective_on_another_device_is_in_the_chain(self) -> None:
        first = self.graph.all_reduce(self.graph.input(8, 16))
        second = self.graph.all_reduce(self.graph.input(8, 16, device="cuda"))
        self.graph.rewritten(first, second)
        early, late = self.graph.programs()
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
        (program,) = self.graph.programs()
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
        early, late = self.graph.programs()
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
                early, late = self.graph.programs()
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
        early, late = self.graph.programs()
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


class ChainTest(unittest.TestCase):
    """Each program of a group has an input that the one before it in the group gives."""

    def test_each_program_reads_a_result_of_the_one_before_it(self) -> None:
        graph = GraphBuilder()
        outputs = []
        for group in ("0", "1", "0"):
            total = graph.all_reduce(graph.input(8, 16), group)
            row = graph.call(aten.amax.default, total, [-1], True)
            outputs += [total, graph.call(aten.mul.Tensor, row, float(len(outputs) + 2))]
        graph.rewritten(*outputs)
        first, *others = graph.programs()
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
        self.assertEqual([len(each.kwargs["inputs"]) for each in graph.programs()], [1, 2])

    def test_chain_follows_the_order_of_starts(self) -> None:
        graph = GraphBuilder()
        x, y, weight = graph.input(16, 16), graph.input(16, 16), graph.input(16, 16)
        first = graph.all_reduce(x)
        second = graph.all_reduce(y)
        product = graph.call(aten.mm.default, second, weight)
        # The sum reads what depends on the collective that starts later, so that it stays outside.
        graph.rewritten(second, graph.call(aten.add.Tensor, first, product))
        early, late = graph.programs()
        self.assertEqual(list(early.kwargs["inputs"]), [x])
        self.assertTrue(early.kwargs["manifest"])
        self.assertFalse(late.kwargs["manifest"])
        self.assertIs(late.kwargs["inputs"][-1].args[0].args[0], early)
        self.assertIn(aten.add.Tensor, graph.targets())


if __name__ == "__main__":
    unittest.main()
