"""Compiled functions of operators that are not declared: what is compiled when, and what runs. Nothing is compiled by Inductor."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

import cotune.torch
from cotune.torch import custom_choices, process_groups
from cotune.torch.compiled_form import NotCompiled
from cotune.torch.custom_forms import CustomForms
from cotune.torch.custom_op_autotuning import CustomOpConfig
from cotune.torch.testing.without_inductor import WithoutInductor

_library = torch.library.Library("cotune_custom_forms", "DEF")
_library.define("mixed(Tensor x, Tensor? bias, float scale, str group_name, *, Tensor weight) -> Tensor")
ops = torch.ops.cotune_custom_forms

compiled_adds = 100.0


def mixed(x, bias, scale, group_name, *, weight, pieces=1):
    """Its result has the number of the form: compiled code adds 100."""
    total = x.clone()
    dist.all_reduce(total, group=_resolve_process_group(group_name))
    result = total @ weight * scale * pieces + (0.0 if bias is None else bias)
    return result + (compiled_adds if torch.compiler.is_compiling() else 0.0)


def by_chunks(x, bias, scale, group_name, *, weight):
    return torch.cat([mixed(each, bias, scale, group_name, weight=weight) for each in x.split(2)])


def breaks(x, bias, scale, group_name, *, weight):
    torch._dynamo.graph_break()
    return x


def fails(x, bias, scale, group_name, *, weight):
    # The check of the group is in the compiled code.
    return torch.ops._c10d_functional.all_reduce(x, "sum", "no such group")


class CustomFormsTest(WithoutInductor):
    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(custom_choices.forget_all)
        self.group = dist.group.WORLD
        self.forms = CustomForms(self.group, -1, "forms")
        self.addCleanup(self.forms.forget)

    def register(self, function: Any, patches: dict[str, Any] | None = None, **parameters: Any) -> Any:
        cotune.torch.register_custom_op_autotuning(ops.mixed.default, [CustomOpConfig(function, patches, **parameters)])
        self.operator = custom_choices.of(ops.mixed.default)
        return next(each for each in self.operator.ways if each.is_compiled)

    def values(self, rows: int = 3, bias: float | None = None, scale: float = 1.0) -> dict[str, Any]:
        # Columns differ from rows, so that a swap of operands fails.
        given = None if bias is None else torch.full((1, 4), bias)
        return {"x": torch.ones(rows, 2), "bias": given, "scale": scale, "group_name": "model", "weight": torch.ones(2, 4)}

    def compile(self, way: Any, values: dict[str, Any], limit_s: float = 60.0) -> dict[str, str]:
        return self.forms.compile_all(self.operator, [way], values, limit_s)

    def run_with(self, way: Any, values: dict[str, Any], needs_code: bool = True) -> list[float]:
        with torch.no_grad():
            return self.forms.run(self.operator, way, values, self.group, needs_code).unique().tolist()

    def test_tensors_by_position_and_by_name_and_constants_reach_the_function(self) -> None:
        way = self.register(mixed, pieces=3)
        self.assertEqual(way.name, "python/mixed.compiled?pieces=3")
        for bias, scale, expected in ((None, 1.0, 106.0), (5.0, 1.0, 111.0), (5.0, 2.0, 117.0)):
            values = self.values(bias=bias, scale=scale)
            self.assertEqual(self.compile(way, values), {})
            self.assertEqual(self.run_with(way, values), [expected])

    def test_one_graph_fits_all_shapes_and_no_call_compiles(self) -> None:
        way = self.register(mixed)
        for rows in (3, 6, 3):
            self.assertEqual(self.compile(way, self.values(rows)), {})
        self.assertEqual([self.run_with(way, self.values(rows)) for rows in (3, 6)], [[102.0], [102.0]])
        self.assertEqual(len(self.patches), 1)

    def test_a_function_that_depends_on_the_shape_is_compiled_for_each(self) -> None:
        way = self.register(by_chunks)
        for rows in (4, 6):
            self.assertEqual(self.compile(way, self.values(rows)), {})
        found = [self.run_with(way, self.values(rows), needs_code=False) for rows in (4, 6, 8)]
        self.assertEqual(found, [[102.0], [102.0], [2.0]])
        self.assertEqual(len(self.patches), 2)

    def test_options_of_inductor_act_and_passes_do_not(self) -> None:
        way = self.register(mixed, {"max_autotune": True})
        self.assertEqual(way.name, "python/mixed.compiled?max_autotune=true")
        with torch._inductor.config.patch(post_grad_custom_post_pass=print):
            self.assertEqual(self.compile(way, self.values()), {})
        self.assertIs(self.patches[0]["max_autotune"], True)
        self.assertIsNone(self.patches[0]["post_grad_custom_post_pass"])

    def test_a_function_that_cannot_be_compiled_does_not_race_and_runs_as_it_is_elsewhere(self) -> None:
        way = self.register(breaks)
        reason = self.compile(way, self.values())[way.name]
        self.assertRegex(reason, "Inductor cannot compile the function: Unsupported: .*graph_break")
        self.assertEqual(self.forms.lasting, {way.name})
        with self.assertRaisesRegex(NotCompiled, "graph_break"):
            self.run_with(way, self.values())
        self.assertEqual(self.run_with(way, self.values(), needs_code=False), [1.0])

    def test_a_function_that_was_not_compiled_for_the_shape_does_not_race(self) -> None:
        way = self.register(mixed)
        with self.assertRaisesRegex(NotCompiled, "not compiled for these operands"):
            self.run_with(way, self.values())
        self.assertEqual(self.run_with(way, self.values(), needs_code=False), [2.0])

    def test_a_failure_that_another_process_may_not_have_does_not_last(self) -> None:
        way = self.register(mixed)
        with mock.patch("cotune.torch.compiled_form.Form.compile", side_effect=OSError(28, "No space left on device")):
            self.assertIn("No space left on device", self.compile(way, self.values())[way.name])
        self.assertEqual(self.forms.lasting, set())
        self.assertEqual(self.compile(way, self.values()), {})

    def test_nothing_is_compiled_after_the_time_is_over(self) -> None:
        way = self.register(mixed)
        self.assertEqual(self.compile(way, self.values(), -1.0), {way.name: "functions_compile_budget_s was over, which is -1 s"})
        self.assertEqual(self.patches, [])

    def test_what_failed_is_compiled_anew_with_another_name(self) -> None:
        way, values = self.register(fails), self.values()
        self.assertEqual(self.compile(way, values), {})
        first = next(iter(self.forms._forms.values())).form
        with self.assertRaises(Exception):  # noqa: B017  the error of PyTorch
            self.run_with(way, values)
        self.assertTrue(first.is_unfinished, "what is left of the call may use the name")
        self.assertEqual(self.compile(way, values), {})
        second = next(iter(self.forms._forms.values())).form
        self.assertNotEqual(first.group_name, second.group_name)

    def test_what_dynamo_has_forgotten_is_compiled_again(self) -> None:
        way = self.register(by_chunks)
        for rows in (4, 6):
            self.compile(way, self.values(rows))
        torch._dynamo.reset()
        self.assertEqual([self.run_with(way, self.values(rows)) for rows in (4, 6)], [[102.0], [102.0]])
        self.assertEqual(len(self.patches), 4)

    def test_compiled_code_runs_in_the_places_where_operators_are_called(self) -> None:
        way = self.register(mixed)
        self.assertEqual(self.compile(way, self.values()), {})
        parameter = torch.nn.Parameter(torch.ones(2, 4))
        places = {
            "a compiled graph": torch._C._AutoDispatchBelowAutograd(),
            "autocast": torch.autocast("cpu", dtype=torch.float16),
            "inference mode": torch.inference_mode(),
            "gradients": torch.enable_grad(),
        }
        for name, place in places.items():
            with self.subTest(name), place:
                # In inference mode the operands are other tensors than those that were compiled for.
                values = self.values() | {"weight": parameter}
                self.assertEqual(self.forms.run(self.operator, way, values, self.group, True).unique().tolist(), [102.0])

    def test_the_name_of_a_form_stands_for_the_group_of_its_call_until_it_is_forgotten(self) -> None:
        way = self.register(mixed)
        self.compile(way, self.values())
        name = next(iter(self.forms._forms.values())).form.group_name
        self.assertIsNone(process_groups.resolve_group(name), "collectives would do nothing in the group for traces")
        self.run_with(way, self.values())
        self.assertIs(process_groups.resolve_group(name), self.group)
        self.forms.forget()
        self.assertIsNone(process_groups.resolve_group(name))


if __name__ == "__main__":
    unittest.main()
