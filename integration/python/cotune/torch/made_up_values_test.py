"""Graphs that may run on operands that are made for them, and others. The former run on such operands here."""

import unittest

import torch
from torch import fx

from cotune.torch import compat, made_up_values, plain_form

aten = torch.ops.aten


def graph_of(function, *operands: torch.Tensor) -> fx.GraphModule:
    return compat.traced(lambda *given: [function(*given)], list(operands))


class MadeUpValuesTest(unittest.TestCase):
    x = torch.ones(6, 4)
    index = torch.ones(6, dtype=torch.int64)

    def check(self, function, *operands: torch.Tensor, reason: str = "") -> None:
        module = graph_of(function, *operands)
        found = made_up_values.why_not(module.graph)
        self.assertRegex(found, reason) if reason else self.assertEqual(found, "")
        if not reason:
            # It is certain to run on them.
            module(*[plain_form.filled(torch.empty_like(each)) for each in operands])

    def test_graphs_that_only_compute(self):
        self.check(lambda x: torch.softmax(x * 2 + 1, -1) @ x.t(), self.x)
        self.check(lambda x: x / x.abs().sum(), self.x)
        self.check(lambda i: i * 3 // 2, self.index)

    def test_integer_operands_are_valid_indices(self):
        self.check(lambda x, i: x[i], self.x, self.index)
        self.check(lambda x, i: x[i.to(torch.int32).view(2, 3).t()], self.x, self.index)
        self.check(lambda x, i: torch.nn.functional.embedding(i, x), self.x, self.index)
        self.check(lambda x, i: torch.gather(x, 0, i[:, None].expand(6, 4)), self.x, self.index)
        self.check(lambda x, i: x.index_put((i,), x, accumulate=True), self.x, self.index)
        self.check(lambda x, i: x.index_select(0, i), self.x, self.index)

    def test_indices_that_no_operand_decides(self):
        self.check(lambda x: x[torch.arange(6) - 2], self.x)
        self.check(lambda x: torch.gather(x, 0, (torch.arange(24).view(6, 4) % 6)), self.x)
        self.check(lambda i: i // (torch.arange(6) + 1), self.index)

    def test_computed_indices(self):
        for function in (
            lambda x, i: torch.nn.functional.embedding(i - 1, x),
            lambda x, i: x[i + 6],
            lambda x, i: torch.gather(x, 0, i[:, None].expand(6, 4) - 1),
            lambda x, i: x.index_select(0, i * 2 - 1),
            lambda x, i: x.scatter(0, i[:, None] - 1, x),
            lambda x, i: x[(x.sum(-1)).to(torch.int64)],
        ):
            self.check(function, self.x, self.index, reason="indices that the graph computes")

    def test_a_made_operand_would_be_rejected_there(self):
        module = graph_of(lambda x, i: torch.nn.functional.embedding(i - 1, x), self.x, self.index)
        with self.assertRaises(IndexError):
            module(*[plain_form.filled(torch.empty_like(each)) for each in (self.x, self.index)])
        module = graph_of(lambda i: 7 // i, self.index)
        with self.assertRaisesRegex(RuntimeError, "ZeroDivision"):
            module(plain_form.filled(torch.empty_like(self.index)))

    def test_integer_divisions(self):
        for function in (lambda i: 7 // i, lambda i: i % i, lambda i: torch.fmod(i, i), lambda i: torch.div(i, i + 1, rounding_mode="trunc")):
            self.check(function, self.index, reason="divides integers")

    def test_assertions_and_values_that_decide_the_work(self):
        graph = fx.Graph()
        x = graph.placeholder("x")
        x.meta["val"] = self.x
        for target in (aten._assert_async.msg, aten._local_scalar_dense.default, aten.bincount.default, aten.linalg_inv_ex.default):
            node = graph.call_function(target, (x,))
            self.assertRegex(made_up_values.why_not(graph), "depends on values")
            graph.erase_node(node)
        graph.call_function(aten._assert_async.msg, (graph.call_function(aten.ones.default, ([1],)), "always"))
        self.assertEqual(made_up_values.why_not(graph), "", "it does not depend on operands")


if __name__ == "__main__":
    unittest.main()
