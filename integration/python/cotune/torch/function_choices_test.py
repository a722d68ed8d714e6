"""Python functions that race for custom operators: what can be registered, and under which names. No library is needed."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import torch

import cotune.torch
from cotune.constants import Collective, DType, Reduction
from cotune.torch import custom_op_autotuning, declarations, function_choices
from cotune.torch.custom_op_autotuning import CustomOpConfig

_library = torch.library.Library("cotune_functions", "DEF")
for schema in (
    "total(Tensor x, str group_name) -> Tensor",
    "named(Tensor x, str how, str group_name, int retries=3) -> Tensor",
    "scaled(Tensor x, float scale, str group_name) -> Tensor",
    "other(Tensor x, str group_name) -> Tensor",
    "gather(Tensor x, str group_name) -> Tensor",
):
    _library.define(schema)
ops = torch.ops.cotune_functions


def ring(x: torch.Tensor, group_name: str, **parameters: Any) -> torch.Tensor:
    return x


def tree(x: torch.Tensor, group_name: str) -> torch.Tensor:
    return x * 2


class Test(unittest.TestCase):
    def setUp(self) -> None:
        patched = mock.patch.dict(declarations._declared, clear=True)
        patched.start()
        self.addCleanup(patched.stop)
        self.addCleanup(function_choices.forget_all)
        for name, options in (
            ("total", {}), ("other", {}), ("named", {"reduction": "how"}), ("scaled", {}), ("gather", {"kind": "all_gather"}),
        ):  # fmt: skip
            cotune.torch.declare_collective(
                f"cotune_functions::{name}", **({"kind": "all_reduce", "tensor": "x", "group": "group_name"} | options)
            )

    def register(self, operator: Any, *configs: Any, **options: Any) -> None:
        cotune.torch.register_custom_op_autotuning(operator, list(configs), **options)

    def names(self) -> list[str]:
        return [each.name for each in function_choices.registered(compiles=False)]


class NamesTest(Test):
    def test_a_choice_is_named_by_its_function_and_its_parameters(self) -> None:
        self.register(ops.total.default, CustomOpConfig(ring, chunk_size=4, Mode="Fast!"), CustomOpConfig(tree))
        self.assertEqual(self.names(), ["cotune_functions.total", "ring?mode=fast_&chunk_size=4", "tree"])

    def test_a_compiled_function_is_a_choice_of_its_own(self) -> None:
        self.register(ops.total.default, CustomOpConfig(ring, chunk=4), CustomOpConfig(tree, {"max_autotune": True}), CustomOpConfig(tree))
        names = [each.name for each in function_choices.registered() if each.is_compiled]
        self.assertEqual(names, ["ring.compiled?chunk=4", "tree.compiled", "tree.compiled?max_autotune=true"])
        self.assertEqual(self.names(), ["cotune_functions.total", "ring?chunk=4", "tree"], "and the operator is not compiled")

    def test_a_name_of_the_registration_is_put_before(self) -> None:
        self.register(ops.total.default, CustomOpConfig(ring), CustomOpConfig(), name="fast")
        self.assertEqual(self.names(), ["cotune_functions.total", "fast.ring"])

    def test_an_operator_with_parameters_is_a_choice_of_its_own(self) -> None:
        self.register(ops.named.default, CustomOpConfig(retries=5))
        self.assertEqual(self.names(), ["cotune_functions.named", "cotune_functions.named?retries=5"])

    def test_a_second_registration_replaces_the_first(self) -> None:
        self.register(ops.total.default, CustomOpConfig(ring))
        self.register(ops.total.default, CustomOpConfig(tree))
        self.assertEqual(self.names(), ["cotune_functions.total", "tree"])

    def test_one_function_for_two_operators_is_one_choice_if_they_are_alike(self) -> None:
        self.register(ops.total.default, CustomOpConfig(ring))
        self.register(ops.other.default, CustomOpConfig(ring))
        self.assertEqual(self.names(), ["cotune_functions.other", "cotune_functions.total", "ring"])
        with self.assertRaisesRegex(ValueError, "two functions would be the choice python/ring"):
            # It gets other arguments, and reduces by one of them.
            self.register(ops.named.default, CustomOpConfig(ring))

    def test_two_choices_of_one_name_are_refused(self) -> None:
        other = lambda x, group_name: x + 1  # noqa: E731
        other.__name__ = "ring"
        with self.assertRaisesRegex(ValueError, "two functions would be the choice python/ring; give one of them another name"):
            self.register(ops.total.default, CustomOpConfig(ring), CustomOpConfig(other))
        self.register(ops.total.default, CustomOpConfig(ring))
        with self.assertRaisesRegex(ValueError, "two functions would be the choice python/ring"):
            self.register(ops.gather.default, CustomOpConfig(ring))
        self.assertEqual(self.names(), ["cotune_functions.total", "ring"])


class RefusalsTest(Test):
    def test_what_cannot_be_registered(self) -> None:
        total, config = ops.total.default, CustomOpConfig(tree)
        for error, text, operator, configs, options in (
            (TypeError, "the operator is what torch.library.custom_op returns or an overload", "cotune_functions::total", [config], {}),
            (ValueError, "configs is a list of CustomOpConfig with one entry or more, and not \\[\\]", total, [], {}),
            (TypeError, "each config is a CustomOpConfig, and not 3", total, [3], {}),
            (ValueError, "config_patches with 'a', and Inductor of torch .* has no such option", total, [CustomOpConfig(tree, {"a": 1})], {}),
            (ValueError, "has config_patches and no function", total, [CustomOpConfig(None, {"max_autotune": True})], {}),
            (ValueError, "max_autotune=<object .*a choice is known by its options", total, [CustomOpConfig(tree, {"max_autotune": object()})], {}),
            (ValueError, "max_autotune as a parameter and in config_patches", total, [CustomOpConfig(ring, {"max_autotune": True}, max_autotune=1)], {}),
            (ValueError, "runs functions without CUDA graphs", total, [CustomOpConfig(tree, {"triton.cudagraphs": True})], {}),
            (TypeError, "name is a str or None, and not 3", total, [config], {"name": 3}),
            (ValueError, "tree has no value for the argument scale of the operator", ops.scaled.default, [config], {}),
            (ValueError, "the parameter how is <object .*a choice is known by its parameters", total, [CustomOpConfig(ring, how=object())], {}),
            (ValueError, "has the parameter group_name, which is the operand or the group", total, [CustomOpConfig(ring, group_name="0")], {}),
            (ValueError, "has at most 80 characters", total, [CustomOpConfig(ring, chunk="4" * 90)], {}),
            (ValueError, "input_gen_fns is not used: the operator is declared, and cotune measures with operands of its own", total, [config], {"input_gen_fns": {"x": ring}}),
            (ValueError, "config_generator is not used: .*list the configs", total, [config], {"config_generator": ring}),
            (ValueError, "dispatch_on is not used: cotune chooses by the size", total, [config], {"dispatch_on": {"dim": 1}}),
            (ValueError, "split_points is not used", total, [config], {"split_points": [1]}),
            (ValueError, "benchmark_with_cudagraphs is not used", total, [config], {"benchmark_with_cudagraphs": True}),
            (ValueError, "min_speedup_threshold is 1.1", total, [config], {"min_speedup_threshold": 1.1}),
        ):  # fmt: skip
            with self.subTest(text=text), self.assertRaisesRegex(error, text):
                self.register(operator, *configs, **options)
        self.assertEqual(self.names(), [])
        with self.assertRaisesRegex(TypeError, "the decomposition is a function or None, and not 3"):
            CustomOpConfig(3)

    def test_a_group_that_exists_knows_its_choices(self) -> None:
        made = mock.Mock(group=object())
        made.name = "0"
        with mock.patch.object(custom_op_autotuning.groups, "entries", lambda: [made]):
            with self.assertRaisesRegex(ValueError, "process group '0' has its group of cotune already.*register before"):
                self.register(ops.total.default, CustomOpConfig(tree))

    def test_an_operator_without_a_value_for_an_argument_does_not_race_itself(self) -> None:
        self.register(ops.scaled.default, CustomOpConfig(ring, scale=2.0), CustomOpConfig(scale=3.0))
        self.assertEqual(self.names(), ["cotune_functions.scaled?scale=3.0", "ring?scale=2.0"])

    def test_functions_are_configs_without_parameters(self) -> None:
        self.register(ops.total.default, tree)
        self.assertEqual(self.names(), ["cotune_functions.total", "tree"])


class FunctionsTest(Test):
    def made(self) -> Any:
        return function_choices.functions_of(mock.Mock(size=lambda: 2), None, "prefix")

    def test_nothing_is_registered(self) -> None:
        self.assertIsNone(function_choices.functions_of(None, None, "prefix"))

    def test_a_function_runs_the_collective_of_its_operator(self) -> None:
        self.register(ops.total.default, CustomOpConfig(ring))
        self.register(ops.named.default, CustomOpConfig(tree))
        by_name = {each.name: each for each in self.made().functions}
        self.assertEqual(list(by_name), ["cotune_functions.named", "cotune_functions.total", "ring", "tree"])
        for name, reductions in (("ring", [Reduction.SUM]), ("tree", [])):
            self.assertEqual(by_name[name].collectives, (Collective.ALL_REDUCE,))
            self.assertEqual(by_name[name].reductions, reductions, "none: all, given by an argument")
            self.assertIn(DType.BF16, by_name[name].dtypes)

    def test_the_version_is_that_of_the_code(self) -> None:
        versions = set()
        for body in ("x", "x + 1", "x in {'a', 'b', 'c'}"):
            scope: dict[str, Any] = {}
            exec(f"def ring(x, group_name): return {body}", scope)
            self.register(ops.total.default, CustomOpConfig(scope["ring"]))
            first, again = self.made().version, self.made().version
            self.assertEqual(first, again)
            versions.add(first)
        self.register(ops.total.default, CustomOpConfig(scope["ring"], chunk=1))
        versions.add(self.made().version)
        self.assertEqual(len(versions), 4)

    def version_of(self, function: Any) -> str:
        self.register(ops.total.default, CustomOpConfig(function))
        return self.made().version

    def test_the_version_has_what_a_function_holds(self) -> None:
        def ring_of(held: Any, default: Any = 1, named: Any = 1) -> Any:
            def ring(x: torch.Tensor, group_name: str, pieces: Any = default, *, how: Any = named) -> Any:
                return held, ring, pieces, how

            return ring

        def scale(factor: int) -> Any:
            return lambda x: x * factor

        class Ring:
            __name__ = "ring"

            def __init__(self, pieces: int):
                self.pieces = pieces

            def __call__(self, x: torch.Tensor, group_name: str) -> Any:
                return self.pieces

        made = (
            lambda: ring_of(1), lambda: ring_of(2), lambda: ring_of(1, default=2), lambda: ring_of(1, named=2),
            lambda: ring_of({"a": [1]}), lambda: ring_of({"a": [2]}), lambda: ring_of(scale(2)), lambda: ring_of(scale(3)),
            lambda: Ring(1), lambda: Ring(2), lambda: Ring(1).__call__, lambda: ring_of(object()),
        )  # fmt: skip
        versions = [self.version_of(each()) for each in made]
        self.assertEqual(len(set(versions)), len(versions))
        self.assertEqual([self.version_of(each()) for each in made], versions, "and no address of memory")


class DeclaredAgainTest(Test):
    def test_a_declaration_that_does_not_fit_the_functions_is_refused(self) -> None:
        self.register(ops.named.default, CustomOpConfig(ring))
        before = declarations.of(ops.named.default)
        declare = {"kind": "all_reduce", "tensor": "x", "group": "group_name"}
        # `how` has no default value, and is no reduction any more.
        with self.assertRaisesRegex(ValueError, "functions are registered for the operator.*no value for the argument how"):
            cotune.torch.declare_collective("cotune_functions::named", **declare)
        self.assertEqual(declarations.of(ops.named.default), before)
        cotune.torch.declare_collective("cotune_functions::named", **declare, reduction="how")

    def test_two_collectives_under_one_name_are_refused(self) -> None:
        self.register(ops.total.default, CustomOpConfig(tree))
        self.register(ops.other.default, CustomOpConfig(tree))
        with self.assertRaisesRegex(ValueError, "two functions would be the choice python/tree"):
            cotune.torch.declare_collective("cotune_functions::other", kind="all_gather", tensor="x", group="group_name")

    def test_functions_follow_the_new_declaration(self) -> None:
        self.register(ops.total.default, CustomOpConfig(ring))
        cotune.torch.declare_collective("cotune_functions::total", kind="all_gather", tensor="x", group="group_name")
        made = function_choices.functions_of(mock.Mock(size=lambda: 2), None, "prefix")
        self.assertEqual({each.collectives for each in made.functions}, {(Collective.ALL_GATHER,)})


if __name__ == "__main__":
    unittest.main()
