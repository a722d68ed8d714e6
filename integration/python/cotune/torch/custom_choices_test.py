"""Functions for custom operators that are not declared: what can be registered, what the pass does, and how results are judged."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import threading
import unittest
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import cotune.torch
from cotune.torch import (
    custom_choices,
    custom_operands,
    custom_race,
    decisions,
    declarations,
    forced_operators,
    graph_pass,
    group_making,
    groups,
    rewriting,
    settings_file,
)
from cotune.torch.collectives import GroupFacts
from cotune.torch.custom_op_autotuning import CustomOpConfig
from cotune.torch.settings import Settings
from cotune.torch.testing.graphs import GraphBuilder
from cotune.torch.testing.process_group import ranks_of_group

_library = torch.library.Library("cotune_custom", "DEF")
for _schema in (
    "mixed(Tensor x, Tensor? bias, float scale, str group_name, *, int pieces=2) -> Tensor",
    "other(Tensor x, str group) -> Tensor",
    "writes(Tensor(a!) x, str group) -> ()",
    "two(Tensor x, str group) -> (Tensor, Tensor)",
    "shares(Tensor(a) x, str group) -> Tensor(a)",
    "many(Tensor[] xs, str group) -> Tensor",
    "nothing(int size, str group) -> Tensor",
    "ungrouped(Tensor x) -> Tensor",
    "by_number(Tensor x, int group) -> Tensor",
):
    _library.define(_schema)
torch.library.register_fake("cotune_custom::mixed", lambda x, bias, scale, group_name, *, pieces=2: torch.empty_like(x), lib=_library)
ops = torch.ops.cotune_custom


def ring(x: torch.Tensor, *others: Any, **parameters: Any) -> torch.Tensor:
    return x + 1


def wrapped(x: torch.Tensor, *others: Any, **parameters: Any) -> torch.Tensor:
    """Another function of the same name."""
    return x + 2


wrapped.__name__ = "ring"


class Test(unittest.TestCase):
    def setUp(self) -> None:
        patched = mock.patch.dict(declarations._declared, clear=True)
        patched.start()
        self.addCleanup(patched.stop)
        self.addCleanup(custom_choices.forget_all)

    def register(self, operator: Any, *configs: Any, **options: Any) -> custom_choices.CustomOperator:
        cotune.torch.register_custom_op_autotuning(operator, list(configs), **options)
        return custom_choices.of(operator)


class RegistrationTest(Test):
    def test_what_cannot_be_registered(self) -> None:
        config, mixed = CustomOpConfig(ring), ops.mixed.default
        for kind, text, operator, configs, options in (
            (ValueError, "writes.*it writes to its argument x", ops.writes.default, [config], {}),
            (ValueError, r"two.*it returns \(Tensor, Tensor\)", ops.two.default, [config], {}),
            (ValueError, "shares.*its result shares memory with an argument", ops.shares.default, [config], {}),
            (ValueError, "many.*its argument xs is a list of tensors", ops.many.default, [config], {}),
            (ValueError, "nothing.*it has no tensor among its arguments", ops.nothing.default, [config], {}),
            (ValueError, "ungrouped.*no argument group, group_name, process_group of type str", ops.ungrouped.default, [config], {}),
            (ValueError, "by_number.*no argument group, .* of type str", ops.by_number.default, [config], {}),
            (ValueError, "parameter x, which is a tensor or the group", mixed, [CustomOpConfig(ring, x=1)], {}),
            (ValueError, "parameter group_name, which is a tensor or the group", mixed, [CustomOpConfig(ring, group_name="")], {}),
            (ValueError, "without a function has the parameter size", mixed, [CustomOpConfig(None, size=1)], {}),
            (ValueError, "no function and no parameters", mixed, [CustomOpConfig()], {}),
            (ValueError, "two functions would be the choice python/ring", mixed, [config, CustomOpConfig(ring)], {}),
            (ValueError, "two functions would be the choice python/ring", mixed, [config, CustomOpConfig(wrapped)], {}),
            (ValueError, "input_gen_fns has 'y', and the tensors .* are x, bias", mixed, [config], {"input_gen_fns": {"y": ring}}),
            (TypeError, "input_gen_fns has 3 for x", mixed, [config], {"input_gen_fns": {"x": 3}}),
            (TypeError, "input_gen_fns is a dict", mixed, [config], {"input_gen_fns": [ring]}),
            (ValueError, "min_speedup_threshold is 0.5", mixed, [config], {"min_speedup_threshold": 0.5}),
            (ValueError, "min_speedup_threshold is True", mixed, [config], {"min_speedup_threshold": True}),
            (ValueError, "dispatch_on is not used", mixed, [config], {"dispatch_on": {"dim": 1}}),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                self.register(operator, *configs, **options)
        self.assertEqual(custom_choices.key(), (), "nothing of it counts")

    def test_a_declaration_after_the_registration_is_refused(self) -> None:
        self.register(ops.other.default, CustomOpConfig(ring))
        with self.assertRaisesRegex(ValueError, "registered for an operator that is not declared; declare it before you register"):
            cotune.torch.declare_collective("cotune_custom::other", kind="all_reduce", tensor="x", group="group")
        self.assertIsNotNone(custom_choices.of(ops.other.default), "it stays registered")

    def test_functions_that_have_raced_do_not_change(self) -> None:
        operator = self.register(ops.other.default, CustomOpConfig(ring))
        self.register(ops.other.default, CustomOpConfig(ring, chunk=4))
        custom_choices.note_used(operator)
        with self.assertRaisesRegex(ValueError, "its functions have raced already"):
            self.register(ops.other.default, CustomOpConfig(ring))

    def test_a_function_gets_leading_tensors_by_position_and_the_rest_by_name(self) -> None:
        given = mock.Mock(__name__="given")
        operator = self.register(ops.mixed.default, CustomOpConfig(given, chunk=4))
        x = torch.ones(2)
        operator.call(operator.ways[0], {"x": x, "bias": None, "scale": 2.0, "group_name": "model", "pieces": 3}, "own")
        given.assert_called_once_with(x, None, scale=2.0, group_name="own", pieces=3, chunk=4)

    def test_the_result_of_a_functional_collective_is_waited_for(self) -> None:
        def begins(x: torch.Tensor, group: str) -> torch.Tensor:
            found = funcol.all_reduce(x, "sum", dist.group.WORLD)
            self.assertIsInstance(found, funcol.AsyncCollectiveTensor)
            return found

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        operator = self.register(ops.other.default, CustomOpConfig(begins))
        found = operator.call(operator.ways[0], {"x": torch.tensor([1.0, 2.0]), "group": "model"}, "own")
        self.assertIs(type(found), torch.Tensor)
        self.assertEqual(found.tolist(), [1.0, 2.0])

    def test_the_version_follows_the_code_of_the_functions(self) -> None:
        def other(x: torch.Tensor, **others: Any) -> torch.Tensor:
            return x + 2

        other.__name__ = "ring"
        versions = {self.register(ops.other.default, CustomOpConfig(each)).version() for each in (ring, other, ring)}
        versions.add(self.register(ops.other.default, CustomOpConfig(ring), min_speedup_threshold=1.5).version())
        self.assertEqual(len(versions), 3)


    def test_each_function_is_a_choice_as_it_is_and_one_for_each_list_of_options(self) -> None:
        configs = CustomOpConfig(ring, {"max_autotune": True}), CustomOpConfig(ring), CustomOpConfig(None, pieces=3)
        operator = self.register(ops.mixed.default, *configs, name="lib")
        eager = "python/lib.ring", "python/cotune_custom.mixed?pieces=3"
        compiled = "python/lib.ring.compiled?max_autotune=true", "python/lib.ring.compiled"
        self.assertEqual(sorted(each.name for each in operator.ways), sorted(eager + compiled))
        self.assertEqual(sorted(each.name for each in operator.ways_with(False)), sorted(eager))
        self.assertEqual([each.options for each in operator.ways if each.is_compiled], [{"max_autotune": True}, {}])

    def test_the_version_follows_the_options_and_whether_functions_are_compiled(self) -> None:
        operators = [
            self.register(ops.other.default, CustomOpConfig(ring, patches)) for patches in ({}, {"max_autotune": True}, {"max_autotune": False})
        ]
        versions = [each.version() for each in operators] + [operators[0].version(False)]
        self.assertEqual(len(set(versions)), 4)
        self.assertEqual(len({each.version(False) for each in operators}), 1, "options are of the compiled forms")


class PassTest(Test):
    def rewritten(self, device: str = "cpu", **settings: Any) -> GraphBuilder:
        builder = GraphBuilder()
        x = builder.input(4, 8, device=device)
        y = builder.call(ops.mixed.default, x, None, 2.0, "0", pieces=3)
        builder.graph.output((builder.call(torch.ops.aten.relu.default, y),))
        decisions.clear()
        rewriting.rewrite(builder.graph, Settings(**settings), lambda name: GroupFacts(world_size=2))
        return builder

    def test_the_pass_warns_of_forced_choices_that_concern_no_operator(self) -> None:
        with (
            mock.patch.object(forced_operators, "_warned", set()),
            mock.patch.dict("os.environ", COTUNE_FORCE_CHOICE="lib::op=body"),
            self.assertLogs("cotune.torch", "WARNING") as logged,
        ):
            for _ in range(2):
                self.rewritten()
        (line,) = logged.output
        self.assertIn("force_choice (COTUNE_FORCE_CHOICE) gives lib::op the choice body, which has no effect", line)

    def call_in(self, builder: GraphBuilder) -> Any:
        return next(node for node in builder.graph.nodes if "mixed" in str(node.target))

    def test_a_call_of_a_registered_operator_is_replaced_and_counted(self) -> None:
        operator = self.register(ops.mixed.default, CustomOpConfig(ring))
        node = self.call_in(self.rewritten())
        self.assertIs(node.target, custom_choices.replacement_of(operator))
        self.assertEqual((node.args[1:], node.kwargs), ((None, 2.0, "0"), {"pieces": 3}))
        self.assertRegex(decisions.explain(), "cotune_custom::mixed: 1 call, group 0; runs its body or a function")
        self.assertNotIn("not declared", decisions.explain())

    def test_a_call_of_another_operator_stays(self) -> None:
        self.register(ops.other.default, CustomOpConfig(ring))
        self.assertIs(self.call_in(self.rewritten()).target, ops.mixed.default)
        self.assertIn("not declared", decisions.explain())

    def test_a_call_in_a_graph_that_is_exported_stays(self) -> None:
        self.register(ops.mixed.default, CustomOpConfig(ring))
        self.assertIs(self.call_in(self.rewritten(export=True)).target, ops.mixed.default)
        self.assertIn("not declared", decisions.explain())

    def test_a_call_in_a_graph_that_may_become_a_cuda_graph_stays_on_all_ranks(self) -> None:
        operator = self.register(ops.mixed.default, CustomOpConfig(ring))
        for device, is_captured, target, text in (
            ("cuda", True, ops.mixed.default, "runs its body: the graph is compiled for CUDA graphs"),
            ("cuda", False, custom_choices.replacement_of(operator), "runs its body or a function"),
            ("cpu", True, custom_choices.replacement_of(operator), "runs its body or a function"),
        ):
            with self.subTest(device=device, is_captured=is_captured):
                with torch._inductor.config.patch("triton.cudagraphs", is_captured):
                    self.assertIs(self.call_in(self.rewritten(device)).target, target)
                self.assertIn(text, decisions.explain())
                self.assertNotIn("not declared", decisions.explain())

    def test_the_replacement_has_the_result_of_the_operator(self) -> None:
        replacement = custom_choices.replacement_of(self.register(ops.mixed.default, CustomOpConfig(ring)))
        with torch._subclasses.FakeTensorMode():
            found = replacement(torch.empty(8, 4).t(), None, 2.0, "0")
        self.assertEqual((found.shape, found.stride()), ((4, 8), (1, 4)))

    def test_graphs_depend_on_the_registrations(self) -> None:
        before = custom_choices.key()
        self.register(ops.mixed.default, CustomOpConfig(ring))
        found = custom_choices.key()
        self.assertNotEqual(before, found)
        with mock.patch.object(graph_pass.process_groups, "known_groups", return_value={}):
            self.assertIn(found, graph_pass.CotunePass(Settings()).uuid())


class CallTest(Test):
    """Calls in a process group that moves nothing; the meeting of the ranks is replaced."""

    def setUp(self) -> None:
        super().setUp()
        self.operator = self.register(ops.mixed.default, CustomOpConfig(ring))
        self.meetings: list[str] = []
        self.cells = custom_race._Cells.__new__(custom_race._Cells)
        self.cells.__dict__ |= {
            "lock": threading.RLock(), "known": {}, "shapes": collections.Counter(), "layouts": {}, "given_up": {},
            "own": mock.Mock(group_name="own"), "_met": self.met,
        }  # fmt: skip
        for patched in (
            mock.patch.object(custom_race, "_cells_of", lambda *others: self.cells),
            mock.patch.object(custom_race.process_groups, "resolve_group", lambda name: name),
            mock.patch.object(custom_choices.CustomOperator, "body", lambda operator, values, name: values["x"] * 2),
        ):
            patched.start()
            self.addCleanup(patched.stop)

    def met(self, operator: Any, key: str, values: dict[str, Any], process_group: Any) -> custom_race.CustomVerdict:
        self.meetings.append(key)
        return custom_race.CustomVerdict("python/ring" if values["scale"] > 1 else "")

    def call(self, rows: int, scale: float = 2.0) -> list[float]:
        values = {"x": torch.full((rows, 1), 5.0), "bias": None, "scale": scale, "group_name": "model", "pieces": 2}
        return custom_race.run(self.operator, values).unique().tolist()

    def test_the_agreed_choice_runs_and_the_ranks_meet_once_for_each_key(self) -> None:
        self.assertEqual([self.call(3), self.call(3), self.call(3, 1.0), self.call(3, 1.0)], [[6.0], [6.0], [10.0], [10.0]])
        key = "x=float32[3, 1], bias=None, scale={}, pieces=2"
        self.assertEqual(self.meetings, [key.format(2.0), key.format(1.0)])

    def test_a_call_that_is_captured_runs_the_body_and_measures_nothing(self) -> None:
        with (
            mock.patch.object(custom_race, "_device_of", lambda values: 0),
            mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True),
        ):
            self.assertEqual(self.call(3), [10.0])
        self.assertEqual(self.meetings, [])
        self.assertEqual(self.call(3), [6.0], "outside of the capture the ranks meet")
        with (
            mock.patch.object(custom_race, "_device_of", lambda values: 0),
            mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True),
        ):
            self.assertEqual(self.call(3), [10.0], "a function that has won is not captured")

    def test_a_call_runs_on_the_gpu_of_any_of_its_tensors(self) -> None:
        with torch._subclasses.FakeTensorMode():
            on_host, on_gpu = torch.empty(1), torch.empty(1, device="cuda:1")
        self.assertEqual(custom_race._device_of({"index": on_host, "x": on_gpu, "scale": 2.0}), 1)
        self.assertEqual(custom_race._device_of({"index": on_host, "bias": None}), -1)
        self.assertEqual(custom_race._device_of({"bias": None}), -1)

    def test_an_operator_that_was_given_up_does_not_meet_for_other_shapes(self) -> None:
        self.cells.given_up[self.operator.name] = "rank 1 did not come"
        self.assertEqual([self.call(3), self.call(4)], [[10.0], [10.0]])
        self.assertEqual(self.meetings, [])

    def test_shapes_beyond_the_limit_run_the_body_without_a_meeting(self) -> None:
        rows = range(1, custom_race.SHAPES_MAX + 3)
        self.assertEqual([self.call(each) for each in rows], [[6.0]] * custom_race.SHAPES_MAX + [[10.0]] * 2)
        self.assertEqual(len(self.meetings), custom_race.SHAPES_MAX)
        self.assertEqual(self.call(1), [6.0], "what was measured stays")


class JudgeTest(Test):
    def test_results_are_compared_value_by_value(self) -> None:
        expected, x = torch.tensor([[1.0, 2.0], [3.0, torch.nan]]), torch.ones(2, 2)
        custom_operands.check_result(expected.clone(), expected, {"x": x})
        wrong = expected.clone()
        wrong[1, 0] = 4.0
        for kind, text, result in (
            (ValueError, "1 of 4 values are wrong; element 2 is 4.0 and not 3.0", wrong),
            (ValueError, r"returned torch.float64 of \(2, 2\) on cpu, and the operator", expected.double()),
            (ValueError, r"returned torch.float32 of \(4,\) on cpu", expected.reshape(4).clone()),
            (ValueError, "shares memory with an argument", x),
            (TypeError, "returned NoneType", None),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                custom_operands.check_result(result, expected, {"x": x})

    def test_results_of_two_calls_lie_in_memory_of_their_own(self) -> None:
        first, second = torch.ones(4), torch.ones(4)
        custom_operands.check_results_are_new([first, second])
        custom_operands.check_results_are_new([torch.empty(0), torch.empty(0)])
        for again in (first, first[2:]):
            with self.assertRaisesRegex(ValueError, "results of two calls share memory"):
                custom_operands.check_results_are_new([first, again])

    def test_operands_have_the_layout_of_those_of_the_call(self) -> None:
        operator = self.register(ops.other.default, CustomOpConfig(ring))
        transposed = torch.empty(3, 5).t()
        made = custom_operands.made_operands(operator, {"x": transposed, "group": "0"}, 0)["x"]
        self.assertEqual(made.stride(), transposed.stride())
        self.assertNotEqual(operator.key_of({"x": transposed}), operator.key_of({"x": torch.empty(5, 3)}))
        for value, name in ((torch.empty(4, 4), ""), (transposed, ""), (torch.empty(1, 4).expand(3, 4), "x"), (torch.empty(4, 4)[:, :2], "x")):
            self.assertEqual(custom_operands.unlike_copies({"group": "0", "x": value}), name, value.stride())

    def test_the_two_trials_have_other_operands(self) -> None:
        operator = self.register(ops.other.default, CustomOpConfig(ring))
        made = [custom_operands.made_operands(operator, {"x": torch.empty(64), "group": "0"}, rank, trial)["x"] for rank in (0, 1) for trial in (0, 1)]
        for number, first in enumerate(made):
            for second in made[:number]:
                self.assertFalse(torch.equal(first, second))

    def test_operands_are_small_integers_and_differ_between_the_ranks(self) -> None:
        operator = self.register(ops.mixed.default, CustomOpConfig(ring))
        values = {"x": torch.empty(64, dtype=torch.bfloat16), "bias": torch.empty(64), "scale": 2.0, "group_name": "0"}
        made = [custom_operands.made_operands(operator, values, rank) for rank in (0, 1)]
        for name, largest in (("x", 1), ("bias", 4)):
            first, second = (each[name] for each in made)
            self.assertEqual(first.dtype, values[name].dtype)
            self.assertFalse(torch.equal(first, second))
            for each in (first, second):
                self.assertTrue(torch.equal(each, each.round()))
                self.assertEqual(each.abs().max(), largest)
        self.assertEqual(made[0]["scale"], 2.0)

    def test_functions_of_the_user_make_operands(self) -> None:
        generators = {"x": lambda like: torch.full_like(like, 7, device="cpu")}
        operator = self.register(ops.other.default, CustomOpConfig(ring), input_gen_fns=generators)
        self.assertEqual(custom_operands.made_operands(operator, {"x": torch.empty(2), "group": "0"}, 0)["x"].tolist(), [7.0, 7.0])
        operator = self.register(ops.other.default, CustomOpConfig(ring), input_gen_fns={"x": lambda fake: torch.ones(3)})
        with self.assertRaisesRegex(ValueError, "for x has returned no tensor like the argument"):
            custom_operands.made_operands(operator, {"x": torch.empty(2), "group": "0"}, 0)

    def test_the_body_stays_unless_a_function_is_faster_beyond_the_noise(self) -> None:
        body, noisy = [10.0] * 15, [5.0, 20.0] * 7 + [9.0]
        times = {"body": body, "python/fast": [8.0] * 15, "python/faster": [7.0] * 15, "python/noisy": noisy}
        self.assertEqual(custom_race.winner_of(times, 1.0), "python/faster")
        self.assertEqual(custom_race.winner_of(times, 1.5), "")
        self.assertEqual(custom_race.winner_of({"body": body, "python/noisy": noisy}, 1.0), "")

    def word(self, forced: str, origin: str = "option 'force'", choices: tuple[str, ...] = ("body", "python/ring")) -> dict[str, Any]:
        return {"forced": forced, "force_origin": origin, "wrong_force": "", "choices": [list(choices), [*choices, "python/ring.compiled"]]}

    def checked(self, *words: dict[str, Any], compiles: bool = True) -> str:
        return custom_race._checked_force(self.operator, list(words), [4, 6], compiles)

    def test_a_forced_choice_is_one_of_the_operator_and_equal_on_all_ranks(self) -> None:
        self.operator = self.register(ops.other.default, CustomOpConfig(ring))
        self.assertEqual(self.checked(*[self.word("python/ring")] * 2), "python/ring")
        self.assertEqual(self.checked(*[self.word("")] * 2), "")
        compiled = [self.word("python/ring.compiled")] * 2
        self.assertEqual(self.checked(*compiled), "python/ring.compiled")
        with self.assertRaisesRegex(ValueError, "its choices are body, python/ring; functions_compile_budget_s is 0 on one rank"):
            self.checked(*compiled, compiles=False)
        with self.assertRaisesRegex(ValueError, "is 'python/ring', and its choices on rank 6 are body, python/tree, python/ring.compiled"):
            self.checked(self.word("python/ring"), self.word("python/ring", choices=("body", "python/tree")))
        with self.assertRaisesRegex(ValueError, "^rank 6: bad value"):
            self.checked(self.word(""), {**self.word(""), "wrong_force": "bad value"})
        with self.assertRaisesRegex(ValueError, "option 'force' for .* is 'python/tree', and its choices are body, python/ring"):
            self.checked(*[self.word("python/tree")] * 2)
        with self.assertRaisesRegex(ValueError, "COTUNE_FORCE for cotune_custom::other is 'python/tree'"):
            self.checked(*[self.word("python/tree", "COTUNE_FORCE")] * 2)
        with self.assertRaisesRegex(ValueError, "/etc/cotune.toml:3 for .* differs between the ranks"):
            self.checked(self.word(""), self.word("python/ring", "/etc/cotune.toml:3"))

    def test_the_option_counts_more_than_the_variable_for_each_operator(self) -> None:
        settings = groups.TuneSettings.of(force={"lib::one": "python/a", "all_reduce": "host/ring"})
        with mock.patch.dict("os.environ", COTUNE_FORCE="lib::one=python/b, lib::two = body,all_gather=host/tree"):
            found = [settings.force_of_operator(each) for each in ("lib::one", "lib::two", "lib::three")]
            self.assertEqual(found, [("python/a", "option 'force'"), ("body", "COTUNE_FORCE"), ("", "COTUNE_FORCE")])
            self.assertEqual(settings_file.force_parts()[0], "all_gather=host/tree")
            self.assertTrue(group_making.forces(groups.tune_settings()))
        # The library refuses a text that cannot be read.
        for text, forces in (("lib::one=body", False), ("all_reduce=host/ring", True), ("lib::one", True), ("  ", False)):
            with self.subTest(text=text), mock.patch.dict("os.environ", COTUNE_FORCE=text):
                self.assertEqual(group_making.forces(groups.tune_settings()), forces, "collectives")

    def raced_with(
        self, own_s: float, other_s: float, other: dict[str, Any] | None = None, **settings: Any
    ) -> tuple[custom_race.CustomVerdict, mock.Mock]:
        """The verdict of rank 0 whose time to compile is not that of rank 1, and the race that is made for it.

        `other`: what the word of rank 1 has beside its time that this rank's does not have.
        """
        operator = self.register(ops.other.default, CustomOpConfig(ring))
        process_group = ranks_of_group()[0] if self.process_group is None else self.process_group
        cells = custom_race._Cells("g", process_group, -1)
        self.waits_s: list[float] = []

        def share(meeting: str, word: dict, what: str, timeout_s: float) -> tuple[list[dict], str]:
            self.waits_s.append(timeout_s)
            return json.loads(json.dumps([word, {**word, "compile_s": other_s, **(other or {})}])), meeting

        cells.place.share = share
        settings = groups.TuneSettings(database=None, functions_compile_budget_s=own_s, **settings)
        with (
            mock.patch.object(groups, "_settings", settings),
            mock.patch.object(custom_race, "CustomRace") as race,
        ):
            race.return_value.session.return_value = contextlib.nullcontext()
            race.return_value.run.return_value = custom_race.CustomVerdict(why_not="nothing has raced")
            return cells._met(operator, "key", {}, process_group), race

    process_group: Any = None  # raced_with() uses it; if it is None, each call has a new one

    def test_ranks_with_other_times_to_compile_use_the_smallest(self) -> None:
        for own_s, other_s, used_s in ((60.0, 30.0, 30.0), (30.0, 60.0, 30.0), (60.0, 0.0, 0.0), (0.0, 60.0, 0.0)):
            with self.subTest(own_s=own_s, other_s=other_s), self.assertLogs("cotune.torch", "WARNING") as logged:
                verdict, race = self.raced_with(own_s, other_s)
                self.assertEqual((verdict.why_not, race.call_args.kwargs["compile_s"]), ("nothing has raced", used_s))
                text = f"rank 0 has {own_s:g}, rank 1 has {other_s:g}; all of them use the smallest, {used_s:g} s"
                self.assertIn(text, logged.output[0])
        with self.assertNoLogs("cotune.torch", "WARNING"):
            self.assertEqual(self.raced_with(45.0, 45.0)[1].call_args.kwargs["compile_s"], 45.0)

    def test_a_process_group_is_warned_once_of_the_same_times(self) -> None:
        self.process_group = ranks_of_group()[0]
        with self.assertLogs("cotune.torch", "WARNING") as logged:
            for other_s in (30.0, 30.0, 20.0, 30.0):
                self.raced_with(60.0, other_s)
        self.assertEqual([each.getMessage().partition("smallest, ")[2][:2] for each in logged.records], ["30", "20"])
        self.process_group = ranks_of_group()[0]
        with self.assertLogs("cotune.torch", "WARNING"):
            self.raced_with(60.0, 30.0)

    def test_a_rank_waits_for_the_compilation_as_long_as_all_ranks_compile(self) -> None:
        self.process_group = process_group = ranks_of_group()[0]
        with mock.patch.object(custom_race.process_groups, "group_timeout_s", lambda *others: 100.0):
            _, race = self.raced_with(3600.0, 30.0)
            self.assertIs(race.call_args.args[1], process_group)
            share = race.call_args.args[3]
            for step in ("compiled", "checked"):
                share(step, {})
        self.assertEqual(self.waits_s, [50.0, 80.0, 50.0])

    def test_a_forced_choice_counts_if_one_rank_has_no_time_to_compile(self) -> None:
        for own_s, other_s in ((0.0, 30.0), (30.0, 0.0)):
            with self.subTest(own_s=own_s), mock.patch.dict("os.environ", COTUNE_FORCE_CHOICE="cotune_custom::other=python/ring"):
                _, race = self.raced_with(own_s, other_s)
                self.assertEqual(race.return_value.run.call_args.args[2], "python/ring")
            wrong = mock.patch.dict("os.environ", COTUNE_FORCE_CHOICE="cotune_custom::other=python/rign")
            with wrong, self.assertRaisesRegex(ValueError, "is 'python/rign', and its choices are body, python/ring$"):
                self.raced_with(own_s, other_s)

    def test_a_forced_choice_that_cannot_run_is_a_warning(self) -> None:
        forced = {"cotune_custom::other": "python/ring"}
        unlike = {"version": ["of", "others"]}
        for settings, other, why in (({"numerics": "same"}, {}, "numerics is not any"), ({}, unlike, "rank 1 .* other functions")):
            with self.subTest(why=why), self.assertLogs("cotune.torch", "WARNING") as logged:
                verdict, race = self.raced_with(45.0, 45.0, other, force=forced, **settings)
                race.assert_not_called()
                self.assertRegex(verdict.why_not, why)
            self.assertRegex(logged.records[0].getMessage(), f"other runs its body, and not python/ring, which is forced: .*{why}")

    def test_a_list_that_is_wrong_on_one_rank_is_an_error_on_all_of_them(self) -> None:
        with self.assertRaisesRegex(ValueError, "^rank 1: bad value of rank 1"):
            self.raced_with(45.0, 45.0, {"wrong_force": "bad value of rank 1"})
        with mock.patch.dict("os.environ", COTUNE_FORCE_CHOICE="lib::one=body,"):
            with self.assertRaisesRegex(ValueError, '^rank 0: bad value "lib::one=body,".*element 2 of the list is empty'):
                self.raced_with(45.0, 45.0, {"wrong_force": ""})
            self.assertTrue(self.waits_s, "the other rank has the reason")

    def test_a_verdict_of_the_file_counts_with_or_without_compiled_forms_as_the_ranks_race(self) -> None:
        operator = self.register(ops.other.default, CustomOpConfig(ring))
        known = [dataclasses.asdict(custom_race.CustomVerdict(why_not=each)) for each in ("as it is", "compiled")]
        process_group = ranks_of_group()[0]
        for budgets_s, kept in (((60.0, 0.0), "as it is"), ((0.0, 60.0), "as it is"), ((60.0, 60.0), "compiled")):
            cells = custom_race._Cells("g", process_group, -1)
            digests = [cells._digest(operator, "key", each, process_group) for each in (False, True)]
            self.assertEqual(len(set(digests)), 2)
            with (
                self.subTest(budgets_s=budgets_s),
                mock.patch.object(custom_race.verdict_file, "path_of", lambda database: "/verdicts"),
                mock.patch.object(custom_race.verdict_file, "read", lambda *others, digests=digests: dict(zip(digests, known, strict=True))),
            ):
                verdict, _ = self.raced_with(*budgets_s)
                self.assertEqual((verdict.why_not, verdict.is_from_file), (kept, True))

    def test_a_list_that_cannot_be_read_does_not_end_enable(self) -> None:
        """It may be wrong on this rank alone, and the others would wait for it."""
        for text, wrong in (
            ("lib::one=body,,all_reduce=host/ring", "element 2 of the list is empty"),
            ("lib::one=body,", "element 2 of the list is empty"),
            ("lib::one", '"lib::one" names no choice'),
            ("all_reduce=host/ring,broadcast", '"broadcast" names no choice'),
            ("lib::one= ", '"lib::one=" names no choice'),
            ("=body", '"=body" names no collective'),
            ("lib::one=body, lib::one = python/ring", "lib::one stands twice: with body and with python/ring"),
            ("all_reduce=a/b,lib::one=body,all_reduce=c/d", "all_reduce stands twice: with a/b and with c/d"),
        ):
            with self.subTest(text=text), mock.patch.dict("os.environ", COTUNE_FORCE_CHOICE=text):
                with self.assertRaises(ValueError) as raised:
                    settings_file.force_parts()
                self.assertIn(f'bad value "{text}" for force_choice (COTUNE_FORCE_CHOICE): {wrong}; give', str(raised.exception))
                settings = groups.TuneSettings.of()
                with mock.patch.object(groups, "_settings", settings), mock.patch.object(forced_operators, "_unread", set()):
                    (line,) = self.warned()
                    self.assertEqual(self.warned(), [], "once")
                self.assertEqual(line.partition("error: ")[2], str(raised.exception))

    def test_a_wrong_name_in_the_option_is_an_error_of_enable(self) -> None:
        for force, wrong in (
            ({"lib::": "body"}, '"lib::" is no name of an operator: give lib::op'),
            ({"::op": "body"}, '"::op" is no name of an operator: give lib::op'),
            ({"lib::my op": "body"}, '"lib::my op" is no name of an operator: give lib::op'),
            ({"lib::op": " "}, "'lib::op': ' ', which names no choice"),
            ({"": "body"}, "'': 'body', which names no collective"),
        ):
            with self.subTest(force=force), self.assertRaises(ValueError) as raised:
                groups.TuneSettings.of(force=force)
            self.assertIn(wrong, str(raised.exception))

    def warned(self, levels: tuple[str, ...] = ("WARNING",)) -> list[str]:
        with self.assertLogs("cotune.torch", "DEBUG") as logged:
            forced_operators.warn_of_unknown()
            forced_operators.log.debug("the end")
        return [each.getMessage() for each in logged.records if each.levelname in levels]

    def test_a_forced_choice_of_an_operator_without_functions_is_one_warning(self) -> None:
        self.register(ops.other.default, CustomOpConfig(ring))
        force = {"lib::mine": "python/a", "all_gather": "host/tree"}
        with (
            mock.patch.object(forced_operators, "_warned", set()),
            mock.patch.object(groups, "_settings", groups.TuneSettings.of(force=force)),
            mock.patch.dict("os.environ", COTUNE_FORCE_CHOICE="cotune_custom::other=body,cotune_custom::othr=python/ring"),
        ):
            near, mine = self.warned()
            self.assertIn("force_choice (COTUNE_FORCE_CHOICE) gives cotune_custom::othr the choice python/ring, which has no effect", near)
            self.assertIn("did you mean cotune_custom::other?", near)
            self.assertIn("force_choice (option 'force') gives lib::mine the choice python/a", mine)
            self.assertIn("those that have functions are: cotune_custom::other", mine)
            self.assertEqual(self.warned(), [], "once")
            with mock.patch.object(groups, "_settings", groups.TuneSettings.of(force={"lib::mine": "python/b"})):
                (other,) = self.warned()
            self.assertIn("gives lib::mine the choice python/b", other, "a second enable() gives another one")
            with mock.patch.object(forced_operators.process_groups, "global_rank", lambda: 1):
                forced_operators._warned.clear()
                self.assertEqual((self.warned(), len(self.warned(("INFO",)))), ([], 0), "rank 0 shows it")

    def test_a_forced_choice_of_a_declared_operator_is_that_of_its_collective(self) -> None:
        kinds = {ops.other.default: "all_reduce"}
        with (
            mock.patch.object(forced_operators, "_warned", set()),
            mock.patch.object(forced_operators.declarations, "kinds", lambda: kinds),
            mock.patch.dict("os.environ", COTUNE_FORCE_CHOICE="cotune_custom::other=python/ring"),
        ):
            (line,) = self.warned()
        self.assertIn("it is declared as all_reduce, and runs by the choice of that collective; write all_reduce=python/ring", line)


if __name__ == "__main__":
    unittest.main()
