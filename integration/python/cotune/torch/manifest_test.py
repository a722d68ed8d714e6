"""The row counts for which programs are tuned."""

from __future__ import annotations

import unittest

import torch
import torch.distributed._functional_collectives as funcol

from cotune.torch import manifest
from cotune.torch.testing.graphs import explained, fake_group


def _rows(function, *tensors: torch.Tensor, least: int = 2, most: int | None = None) -> list[int]:
    for each in tensors:
        bounds = {} if most is None else {"min": least, "max": most}
        torch._dynamo.mark_dynamic(each, 0, **bounds)
    (program,) = explained(function, *tensors)["programs"]
    return program["rows"]


class ManifestTest(unittest.TestCase):
    def setUp(self) -> None:
        self.group = fake_group()

    def _all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x, "sum", self.group) + 1

    def _all_gather(self, x: torch.Tensor) -> torch.Tensor:
        return funcol.all_gather_tensor(x, 0, self.group) + 1

    def test_static_rows(self) -> None:
        (program,) = explained(self._all_reduce, torch.ones(48, 8))["programs"]
        self.assertEqual(program["rows"], [48])

    def test_symbolic_rows_go_by_steps_of_four_around_the_hint(self) -> None:
        found = _rows(self._all_reduce, torch.ones(48, 8))
        self.assertEqual(found, [3, 12, 48, 192, 768, 1024])
        self.assertEqual(_rows(self._all_reduce, torch.ones(512, 8))[-1], 2048)

    def test_rows_stay_within_the_bounds(self) -> None:
        found = _rows(self._all_reduce, torch.ones(48, 8), least=10, most=100)
        self.assertEqual(found, [12, 48, 100])

    def test_rows_of_shares_are_multiples_of_the_ranks(self) -> None:
        found = _rows(self._all_gather, torch.ones(15, 8))
        self.assertIn(30, found)
        self.assertTrue(all(rows % 2 == 0 for rows in found), found)

    def test_bytes_are_bounded(self) -> None:
        found = _rows(self._all_reduce, torch.ones(16, 65536))
        self.assertEqual(max(found), manifest.BYTES_MAX // (65536 * 4))

    def test_hint_stays_beyond_the_bytes(self) -> None:
        found = manifest._geometric(5000, 2, 256, 1)
        self.assertIn(5000, found)
        self.assertLessEqual(max(rows for rows in found if rows != 5000), 256)


if __name__ == "__main__":
    unittest.main()
