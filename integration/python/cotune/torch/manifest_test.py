"""The row counts for which programs are tuned, and the text that carries them."""

from __future__ import annotations

import unittest

import torch
import torch.distributed._functional_collectives as funcol

from cotune.torch import manifest
from cotune.torch.testing.graphs import explained, fake_group


class RowsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.group = fake_group()

    def _all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x, "sum", self.group) + 1

    def _all_gather(self, x: torch.Tensor) -> torch.Tensor:
        return funcol.all_gather_tensor(x, 0, self.group) + 1

    def _rows(self, function, x: torch.Tensor, **bounds: int) -> list[int]:
        torch._dynamo.mark_dynamic(x, 0, **bounds)
        (program,) = explained(function, x)["programs"]
        return program["rows"]

    def test_static_rows(self) -> None:
        (program,) = explained(self._all_reduce, torch.ones(48, 8))["programs"]
        self.assertEqual(program["rows"], [48])

    def test_symbolic_rows_lie_on_a_grid_from_1_kib_to_64_mib(self) -> None:
        found = self._rows(self._all_reduce, torch.ones(48, 8))
        self.assertEqual(found, [64 * 4**step for step in range(8)])
        self.assertEqual(self._rows(self._all_reduce, torch.ones(48, 4))[:2], [64, 256])
        found = self._rows(self._all_reduce, torch.ones(16, 256))
        self.assertEqual(found, [4**step for step in range(9)])
        found = self._rows(self._all_reduce, torch.ones(16, 65536))
        self.assertEqual(found, [1, 4, 16, 64, 256])

    def test_sizes_at_the_time_of_tracing_and_their_bounds_do_not_count(self) -> None:
        found = self._rows(self._all_reduce, torch.ones(48, 8))
        self.assertEqual(self._rows(self._all_reduce, torch.ones(10001, 8)), found)
        self.assertEqual(self._rows(self._all_reduce, torch.ones(48, 8), min=10, max=100), found)

    def test_rows_of_shares_are_multiples_of_the_ranks(self) -> None:
        found = self._rows(self._all_gather, torch.ones(15, 8))
        self.assertEqual(found, [2 * 4**step for step in range(2, 11)])

    def _chosen(self, function, columns: int, **option: tuple[int, ...]) -> list[int]:
        x = torch.ones(48, columns)
        torch._dynamo.mark_dynamic(x, 0)
        (program,) = explained(function, x, **option)["programs"]
        return program["rows"]

    def test_chosen_rows(self) -> None:
        self.assertEqual(self._chosen(self._all_reduce, 8, rows=(256, 1, 15)), [1, 15, 256])
        # Two ranks have no equal shares of the others.
        self.assertEqual(self._chosen(self._all_gather, 8, rows=(256, 1, 15)), [256])
        self.assertEqual(self._chosen(self._all_gather, 8, rows=(1, 15)), self._rows(self._all_gather, torch.ones(48, 8)))

    def test_hints_are_bytes_of_the_first_collective(self) -> None:
        hints = (16, 1024, 1040, 65536)
        self.assertEqual(self._chosen(self._all_reduce, 8, collective_multi_kernel_hints=hints), [1, 32, 2048])
        self.assertEqual(self._chosen(self._all_gather, 8, collective_multi_kernel_hints=hints), [2, 32, 2048])

    def test_static_rows_stay_as_they_are(self) -> None:
        (program,) = explained(self._all_reduce, torch.ones(48, 8), rows=(1, 16))["programs"]
        self.assertEqual(program["rows"], [48])


class TextTest(unittest.TestCase):
    def test_text_is_read_back(self) -> None:
        a = "program a; %0 = input f32 [R, 8]; return %0"
        entries = [
            manifest.Entry(a, (8, 32)),
            manifest.Entry("program b", (1,)),
            manifest.Entry(a, (4, 16), has_any_rows=True),
            manifest.Entry(a, (4, 16), has_any_rows=True, has_chosen_rows=True),
        ]
        text = manifest.manifest_text(entries)
        self.assertEqual(text, f"rows 8,32: {a} | rows 1: program b | any rows 4,16: {a} | chosen rows 4,16: {a}")
        self.assertEqual(manifest.parse_manifest(text), entries)

    def test_equal_programs_are_one(self) -> None:
        entries = [manifest.Entry("program a", (32,)), manifest.Entry("program a", (8,))]
        self.assertEqual(manifest.manifest_text(entries), "rows 8,32: program a")

    def test_texts_that_cannot_be_arguments(self) -> None:
        self.assertEqual(manifest.why_no_argument("the name", "tp_0"), "")
        for text, part in (
            ('a"', "quotation"),
            ("a\\", "backslash"),
            ("a\nb", "line break"),
            ("a|b", "bar"),
        ):
            self.assertRegex(manifest.why_no_argument("the name", text), f"the name has .*{part}")


if __name__ == "__main__":
    unittest.main()
