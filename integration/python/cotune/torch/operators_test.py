"""Shapes and gradients of the operators."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensorMode

from cotune.torch import operators
from cotune.torch.testing import ranks, stand_in


class FakesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        stand_in.define()

    def test_shapes(self) -> None:
        ops = torch.ops.cotune
        with FakeTensorMode():
            x = torch.empty(6, 5, dtype=torch.bfloat16)
            for found, shape in (
                (ops.all_reduce(x, "sum", "g"), (6, 5)),
                (ops.all_gather(x, 2, "g"), (12, 5)),
                (ops.reduce_scatter(x, "sum", 2, "g"), (3, 5)),
                (ops.all_to_all(x, "g"), (6, 5)),
                (ops.broadcast(x, 1, "g"), (6, 5)),
                (ops.all_reduce(x.t(), "sum", "g"), (5, 6)),
            ):
                self.assertEqual((tuple(found.shape), found.dtype), (shape, torch.bfloat16))
                self.assertTrue(found.is_contiguous())
            self.assertIsNone(ops.program([x], [x], "", "g", ""))

    def test_shapes_that_do_not_fit(self) -> None:
        ops = torch.ops.cotune
        with FakeTensorMode():
            with self.assertRaisesRegex(RuntimeError, "no multiple"):
                ops.reduce_scatter(torch.empty(5, 5), "sum", 2, "g")
            with self.assertRaisesRegex(RuntimeError, "one dimension"):
                ops.all_gather(torch.empty(()), 2, "g")

    def test_bool_is_not_summed(self) -> None:
        ops = torch.ops.cotune
        with FakeTensorMode():
            mask = torch.empty(6, 5, dtype=torch.bool)
            self.assertEqual(ops.all_reduce(mask, "MAX", "g").dtype, torch.bool)
            for reduce_op in ("sum", "avg", "product"):
                with self.assertRaisesRegex(RuntimeError, "bool takes min or max"):
                    ops.all_reduce(mask, reduce_op, "g")
                with self.assertRaisesRegex(RuntimeError, "bool takes min or max"):
                    ops.reduce_scatter(mask, reduce_op, 2, "g")

    def test_register_twice(self) -> None:
        operators.register()
        operators.register()


def _gradients(rank: int, world_size: int) -> dict[str, Any]:
    """Gradients of a weighted sum of each operator's result, weights 1, 2, ... times rank + 1."""
    stand_in.define()
    group, ops = dist.group.WORLD.group_name, torch.ops.cotune
    found = {}
    for name, call in {
        "all_reduce": lambda x: ops.all_reduce(x, "sum", group),
        "all_gather": lambda x: ops.all_gather(x, world_size, group),
        "reduce_scatter": lambda x: ops.reduce_scatter(x, "sum", world_size, group),
        "all_to_all": lambda x: ops.all_to_all(x, group),
        "broadcast": lambda x: ops.broadcast(x, 1, group),
    }.items():
        x = torch.ones(4, 3, requires_grad=True)
        y = call(x)
        weights = torch.arange(1.0, y.numel() + 1).reshape(y.shape) * (rank + 1)
        (y * weights).sum().backward()
        found[name] = x.grad
    x = torch.ones(4, 3, requires_grad=True)
    ops.reduce_scatter(x, "SUM", world_size, group).sum().backward()
    found["SUM"] = x.grad
    try:
        x = torch.ones(4, 3, requires_grad=True)
        ops.all_reduce(x, "max", group).sum().backward()
    except RuntimeError as error:
        found["error"] = str(error)
    return found


class GradientsTest(unittest.TestCase):
    def test_gradients(self) -> None:
        weights = torch.arange(1.0, 25).reshape(8, 3)
        small, both = weights[:4], [1.0, 2.0]
        for rank, found in enumerate(ranks.run_on_ranks(2, _gradients)):
            self.assertIsInstance(found, dict, found)
            own = slice(2 * rank, 2 * rank + 2)
            wanted = {
                "all_reduce": 3 * small,
                "all_gather": 3 * weights[4 * rank : 4 * rank + 4],
                "reduce_scatter": torch.cat([weights[:2] * scale for scale in both]),
                "all_to_all": torch.cat([weights[own] * scale for scale in both]),
                "broadcast": 3 * small if rank == 1 else torch.zeros(4, 3),
                "SUM": torch.ones(4, 3),
            }
            for name, want in wanted.items():
                with self.subTest(operator=name, rank=rank):
                    torch.testing.assert_close(found[name], want)
            self.assertIn("no gradient", found["error"])


if __name__ == "__main__":
    unittest.main()
