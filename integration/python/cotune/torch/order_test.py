"""The order of programs in the code that Inductor writes, which is that of the graph whatever the sizes."""

from __future__ import annotations

import re
import unittest

import torch
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

from cotune.torch import graph_pass
from cotune.torch.settings import Settings
from cotune.torch.testing.graphs import c10d, fake_group


def _sum(x: torch.Tensor, group: str) -> torch.Tensor:
    return c10d.wait_tensor(c10d.all_reduce(x, "sum", group))


def _early_release(group, x, weight, small, wide):
    """The last program lets Inductor free most memory, when x has many rows."""
    product = torch.mm(x, weight)
    first = _sum(small, group) * 2
    second = _sum(small + 1, group).tanh()
    third = torch.relu(_sum(product, group))
    return torch.mm(first, wide), torch.mm(third, weight).sum(), second


def _trained(group, x, weight, small, wide):
    first = _sum(torch.mm(x, weight), group) + 1
    second = _sum(small, group) * 2
    third = torch.relu(_sum(torch.mm(small, weight), group))
    return first.sum() + torch.mm(second, wide).sum() + third.sum()


def _names(code: str) -> list[str]:
    """The names of the programs in the order of their calls."""
    return re.findall(r"^ *torch\.ops\.cotune\.program\.default\(.*?'program (\w+);", code, re.M)


class OrderTest(unittest.TestCase):
    def _orders(self, function, rows: int, trains: bool = False) -> list[list[str]]:
        """The names of the programs in the graphs, and in the code, for each graph of a function."""
        group = fake_group()
        torch._dynamo.reset()
        in_graphs: list[list[str]] = []

        class Looks(graph_pass.CotunePass):
            def __call__(self, graph: torch.fx.Graph) -> None:
                super().__call__(graph)
                programs = [n.kwargs["program"] for n in graph.nodes if "program" in n.kwargs]
                in_graphs.append([text.split(";")[0].split()[1] for text in programs])

        shapes = (rows, 64), (64, 64), (64, 64), (64, 1024)
        tensors = [torch.ones(shape) for shape in shapes]
        torch._dynamo.mark_dynamic(tensors[0], 0)
        for each in tensors:
            each.requires_grad_(trains)

        def call(*given):
            result = torch.compile(function, fullgraph=True)(group, *given)
            if trains:
                result.backward()

        looks = Looks(Settings(export=True, overlap=True))
        with config.patch(post_grad_custom_post_pass=looks, force_disable_caches=True):
            _, codes = run_and_get_code(call, *tensors)
        in_code = [_names(code) for code in codes]
        self.assertEqual(in_code, in_graphs)
        return in_code

    def test_order_is_that_of_the_graph(self) -> None:
        orders = [self._orders(_early_release, rows) for rows in (4, 100_000)]
        self.assertEqual([len(each) for each in orders[0]], [3])
        self.assertEqual(orders[0], orders[1])

    def test_order_of_graphs_with_gradients(self) -> None:
        orders = [self._orders(_trained, rows, trains=True) for rows in (4, 100_000)]
        self.assertEqual([len(each) for each in orders[0]], [3, 3])
        self.assertEqual(orders[0], orders[1])


if __name__ == "__main__":
    unittest.main()
