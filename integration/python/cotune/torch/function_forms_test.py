"""Functions of the user that are compiled: what is compiled when, and what runs. Nothing is compiled by Inductor."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

import cotune.torch
from cotune.torch import compiled_functions, declarations, function_choices, process_groups
from cotune.torch.compiled_form import NotCompiled, in_thread
from cotune.torch.custom_op_autotuning import CustomOpConfig
from cotune.torch.function_forms import Forms, Size
from cotune.torch.testing.without_inductor import WithoutInductor

_library = torch.library.Library("cotune_forms", "DEF")
_library.define("total(Tensor x, str group_name) -> Tensor")
ops = torch.ops.cotune_forms


def by_library(x: torch.Tensor, group_name: str) -> torch.Tensor:
    dist.all_reduce(x, group=_resolve_process_group(group_name))
    return x + 1


def by_operator(x: torch.Tensor, group_name: str, compiled: float = 1.0) -> torch.Tensor:
    total = torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(x, "sum", group_name))
    return total + (compiled if torch.compiler.is_compiling() else 0.0)


def by_chunks(x: torch.Tensor, group_name: str) -> torch.Tensor:
    return torch.cat([by_operator(each, group_name) for each in x.split(8)])


def breaks(x: torch.Tensor, group_name: str) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x


def raises(x: torch.Tensor, group_name: str) -> torch.Tensor:
    return by_operator(x, "no such group")


class FormsTest(WithoutInductor):
    def setUp(self) -> None:
        super().setUp()
        declared = mock.patch.dict(declarations._declared, clear=True)
        declared.start()
        self.addCleanup(declared.stop)
        self.addCleanup(function_choices.forget_all)
        cotune.torch.declare_collective("cotune_forms::total", kind="all_reduce", tensor="x", group="group_name")
        self.group = dist.group.WORLD
        self.forms = Forms(self.group, -1, "forms")
        self.addCleanup(self.forms.forget)

    def way(self, function: Any, patches: dict[str, Any] | None = None) -> Any:
        cotune.torch.register_custom_op_autotuning(ops.total.default, [CustomOpConfig(function, patches)])
        return next(each for each in function_choices.registered() if each.is_compiled)

    def compile(self, way: Any, count: int) -> str:
        return self.forms.compile(way, Size(way.name, torch.float32, "sum", count))

    def run_at(self, way: Any, count: int) -> list[float]:
        with torch.no_grad():  # as functions run
            return self.forms.run(way, torch.zeros(count), "sum", self.group).unique().tolist()

    def test_one_graph_fits_all_sizes(self) -> None:
        way = self.way(by_operator)
        for count in (8, 24, 8):
            self.assertEqual(self.compile(way, count), "")
        for count in (8, 24, 100):
            self.assertEqual(self.run_at(way, count), [1.0])
        self.assertEqual(len(self.patches), 1)

    def test_a_function_that_depends_on_the_size_is_compiled_for_each_and_runs_as_it_is_elsewhere(self) -> None:
        way = self.way(by_chunks)
        for count in (8, 24):
            self.assertEqual(self.compile(way, count), "")
        self.assertEqual([self.run_at(way, count) for count in (8, 24, 64)], [[1.0], [1.0], [0.0]])
        self.assertEqual(len(self.patches), 2, "and no call compiles")

    def test_a_function_finds_its_process_group_by_the_name(self) -> None:
        way = self.way(by_library)
        self.assertEqual(self.compile(way, 8), "")
        self.assertEqual(self.run_at(way, 8), [1.0])
        self.assertEqual(len(self.patches), 1)

    def test_options_of_inductor_act_and_passes_do_not(self) -> None:
        way = self.way(by_operator, {"max_autotune": True})
        self.assertEqual(way.name, "by_operator.compiled?max_autotune=true")
        with torch._inductor.config.patch(post_grad_custom_post_pass=print):
            self.assertEqual(self.compile(way, 8), "")
        self.assertIs(self.patches[0]["max_autotune"], True)
        self.assertIsNone(self.patches[0]["post_grad_custom_post_pass"])

    def test_a_function_that_cannot_be_compiled_fails_in_a_tune_and_runs_as_it_is_elsewhere(self) -> None:
        way = self.way(breaks)
        self.assertRegex(self.compile(way, 8), "Inductor cannot compile the function: Unsupported: .*graph_break")
        self.assertEqual(self.run_at(way, 8), [0.0])
        self.forms.is_tuning = True
        with self.assertRaisesRegex(NotCompiled, "graph_break"):
            self.run_at(way, 8)

    def test_a_size_that_the_stage_has_not_seen_does_not_race(self) -> None:
        way = self.way(by_operator)
        self.assertEqual(self.run_at(way, 8), [0.0])
        self.forms.is_tuning = True
        with self.assertRaisesRegex(NotCompiled, "not compiled for this tune"):
            self.run_at(way, 8)

    def test_a_function_that_was_refused_by_another_rank_fails_in_a_tune(self) -> None:
        way = self.way(by_operator)
        self.compile(way, 8)
        self.forms.refuse(Size(way.name, torch.float32, "sum", 8), "rank 1: no")
        self.forms.is_tuning = True
        with self.assertRaisesRegex(NotCompiled, "^it cannot be compiled on every rank: rank 1: no"):
            self.run_at(way, 8)

    def test_compiled_code_that_does_not_fit_the_call_does_not_race(self) -> None:
        way = self.way(by_operator)
        self.compile(way, 8)
        with torch.enable_grad():
            operand = torch.zeros(8)
            self.assertEqual(self.forms.run(way, operand, "sum", self.group).unique().tolist(), [0.0])
            self.forms.is_tuning = True
            with self.assertRaisesRegex(NotCompiled, "does not fit calls in this place"):
                self.forms.run(way, operand, "sum", self.group)
        self.assertEqual(self.run_at(way, 8), [1.0])

    def test_compiled_code_runs_in_the_places_where_operators_are_called(self) -> None:
        way = self.way(by_operator)
        in_thread(lambda: self.assertEqual(self.compile(way, 8), ""))
        self.forms.is_tuning = True
        places = {
            "a compiled graph": torch._C._AutoDispatchBelowAutograd(),
            "autocast": torch.autocast("cpu", dtype=torch.float16),
            "inference mode": torch.inference_mode(),
            "gradients": torch.enable_grad(),
        }
        for name, place in places.items():
            with self.subTest(name), place, compiled_functions.settings_of_new_thread():
                self.assertEqual(self.forms.run(way, torch.zeros(8), "sum", self.group).unique().tolist(), [1.0])
            # Dynamo looks at the keys of a compiled graph in some versions of PyTorch only.
            if name in ("autocast", "inference mode"):
                with self.subTest(f"{name}, with its own settings"), place, torch.no_grad():
                    with self.assertRaisesRegex(NotCompiled, "does not fit calls in this place"):
                        self.forms.run(way, torch.zeros(8), "sum", self.group)

    def test_what_failed_is_compiled_anew_with_another_name(self) -> None:
        way, size = self.way(raises), Size("raises.compiled", torch.float32, "sum", 8)
        self.assertFalse(self.forms.knows(size))
        self.assertEqual(self.compile(way, 8), "")
        self.assertTrue(self.forms.knows(size))
        first = next(iter(self.forms._forms.values()))
        with self.assertRaises(Exception):  # noqa: B017  the error of PyTorch
            self.run_at(way, 8)
        self.assertFalse(self.forms.knows(size), "what is left of the call may use the name")
        self.assertEqual(self.compile(way, 8), "")
        self.assertNotEqual(next(iter(self.forms._forms.values())).group_name, first.group_name)

    def test_what_dynamo_has_forgotten_is_compiled_again(self) -> None:
        way = self.way(by_operator)
        self.compile(way, 8)
        torch._dynamo.reset()
        self.assertEqual([self.run_at(way, count) for count in (8, 24)], [[1.0], [1.0]])
        self.assertEqual(len(self.patches), 2)

    def test_the_name_of_a_form_stands_for_the_group_of_its_call(self) -> None:
        way = self.way(by_chunks)
        for count in (8, 24):
            self.assertEqual(self.compile(way, count), "")
            name = next(iter(self.forms._forms.values())).group_name
            self.assertIsNone(process_groups.resolve_group(name), "collectives would do nothing in the group for traces")
            self.run_at(way, count)
            self.assertIs(process_groups.resolve_group(name), self.group)

    def test_graphs_of_the_user_find_no_group_for_traces(self) -> None:
        way, name = self.way(by_library), self.group.group_name
        self.compile(way, 8)

        @torch.compile(backend="eager")
        def of_the_user(x: torch.Tensor) -> torch.Tensor:
            return by_library(x, name) * 2

        self.assertEqual(of_the_user(torch.zeros(4)).tolist(), [2.0] * 4)


if __name__ == "__main__":
    unittest.main()
