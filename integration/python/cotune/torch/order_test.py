"""The order of programs in the code that Inductor writes, which is that of the graph whatever the sizes."""

from __future__ import annotations

import re
import unittest

import torch
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

from cotune.torch import compat, graph_pass
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


def _branch_before(group, x, weight, small, wide):
    """Inductor would run the program first if x has few rows and nothing ordered the two."""

    def body(y: torch.Tensor) -> torch.Tensor:
        return _sum(y, group) + 1

    product = torch.mm(x, weight)
    first = torch.cond(small[0, 0] > 0, body, body, (small,))
    second = torch.relu(_sum(product, group))
    return torch.mm(first, wide), torch.mm(second, weight).sum()


def _branch_after(group, x, weight, small, wide):
    """Inductor would run the branch first if x has few rows and nothing ordered the two."""

    def body(y: torch.Tensor) -> torch.Tensor:
        return _sum(y, group) + 1

    product = torch.mm(x, weight)
    first = _sum(small, group)
    second = torch.cond(small[0, 0] > 0, body, body, (product,))
    return torch.mm(first, wide), torch.mm(second, weight).sum()


def _scan_after(group, x, weight, small, wide):
    """Inductor would run the loop first if x has few rows and nothing ordered the two."""

    def body(carry: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return carry + _sum(y, group), y.clone()

    product = torch.mm(x, weight)
    first = _sum(small, group)
    second, _ = scan(body, torch.zeros_like(product), product[None])
    return torch.mm(first, wide), torch.mm(second, weight).sum()


def _map_after(group, x, weight, small, wide):
    product = torch.mm(x, weight)
    first = _sum(small, group)
    second = map_over(lambda y: _sum(y, group) + 1, product[None])
    return torch.mm(first, wide), torch.mm(second[0], weight).sum()


def _names(code: str) -> list[str]:
    """The names of the programs in the order of their calls, and "body" for each branch or loop."""
    found = re.findall(r"^ *(?:torch\.ops\.cotune\.program\.default\(.*?'program (\w+);|if \w+\.item\(\):|while \w+:)", code, re.M)
    return [name or "body" for name in found]


def _name_of(node: torch.fx.Node) -> str:
    """The name of the program that a node runs, or "body" for a branch or a loop; "" for other nodes."""
    if "program" in node.kwargs:
        return node.kwargs["program"].split(";")[0].split()[1]
    return "body" if compat.bodies_of(node) else ""



class OrderTest(unittest.TestCase):
    def _orders(self, function, rows: int, trains: bool = False) -> list[list[str]]:
        """The names of the programs and bodies in the graphs, and in the code, for each graph of a function."""
        group = fake_group()
        torch._dynamo.reset()
        in_graphs: list[list[str]] = []

        class Looks(graph_pass.CotunePass):
            def __call__(self, graph: torch.fx.Graph) -> None:
                super().__call__(graph)
                if not compat.is_branch_or_loop(graph):
                    in_graphs.append(list(filter(None, map(_name_of, graph.nodes))))

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

    def test_branches_and_loops_with_collectives_keep_their_place(self) -> None:
        after = ["all_reduce", "body"]
        orders = {_branch_before: ["body", "all_reduce_relu"], _branch_after: after, _scan_after: after, _map_after: after}
        for function, order in orders.items():
            # Both sizes put the loops in the same place.
            for rows in (4,) if function in (_scan_after, _map_after) else (4, 100_000):
                with self.subTest(function=function.__name__, rows=rows):
                    self.assertEqual(self._orders(function, rows), [order])

    def test_order_of_graphs_with_gradients(self) -> None:
        orders = [self._orders(_trained, rows, trains=True) for rows in (4, 100_000)]
        self.assertEqual([len(each) for each in orders[0]], [3, 3])
        self.assertEqual(orders[0], orders[1])


if __name__ == "__main__":
    unittest.main()
