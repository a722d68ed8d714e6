"""Turning the pass on and off beside passes of others, and when compiled functions see it."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pathlib
import pickle
import unittest
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch._inductor import config
from torch.testing._internal.distributed.fake_pg import FakeStore

import cotune.torch
from cotune.torch import (
    activation,
    compat,
    decisions,
    declarations,
    graph_pass,
    groups,
    job_settings,
    process_groups,
    report,
)
from cotune.torch.graph_pass import CotunePass
from cotune.torch.settings import Settings
from cotune.torch.testing.graphs import fake_group

# Modules that record, warn, or act when a graph runs.
_CHANGES_NO_GRAPH = set(
    """compile_budget compiled_form compiled_functions custom_operators decisions forced_operators function_choices
    function_forms function_groups group_entry group_making groups job_settings library log made_up_values meeting
    option_values origins outside plain plain_form race_memory timed_rounds tune_settings verdict_file""".split()
)


class OtherPass(compat.custom_graph_pass()):
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.calls += 1

    def uuid(self) -> Any:
        return "other"


_GROUP = fake_group()


def _function(x: torch.Tensor) -> torch.Tensor:
    return funcol.all_reduce(x, "sum", _GROUP) + 1


def _programs() -> int:
    return sum(len(graph.programs) for graph in decisions.graphs())


class ActivationTest(unittest.TestCase):
    def setUp(self) -> None:
        fake_group()
        config.post_grad_custom_post_pass = None
        config.force_disable_caches = True
        decisions.clear()
        torch._dynamo.reset()
        self.x = torch.ones(4, 8)

    def tearDown(self) -> None:
        config.post_grad_custom_post_pass = None
        config.force_disable_caches = False

    def test_enable_and_disable(self) -> None:
        activation.enable(export=True)
        self.assertTrue(activation.is_enabled())
        torch.compile(_function)(self.x)
        self.assertEqual(_programs(), 1)
        activation.disable()
        self.assertFalse(activation.is_enabled())
        self.assertIsNone(config.post_grad_custom_post_pass)

    def test_other_passes_stay_and_run_first(self) -> None:
        other = OtherPass()
        for passes in (other, [other]) if compat.takes_several_passes() else (other,):
            config.post_grad_custom_post_pass = passes
            other.calls = 0
            torch._dynamo.reset()
            activation.enable(export=True)
            activation.enable(export=True)
            torch.compile(_function)(self.x)
            self.assertEqual(other.calls, 1)
            activation.disable()
            self.assertIs(config.post_grad_custom_post_pass, other)
        self.assertGreater(_programs(), 0)

    def test_chain_where_options_take_one_callable(self) -> None:
        other = OtherPass()
        config.post_grad_custom_post_pass = other
        with mock.patch.object(compat, "takes_several_passes", lambda: False):
            activation.enable(export=True)
            activation.enable(export=True)
            torch.compile(_function)(self.x)
            self.assertIs(config.post_grad_custom_post_pass.before, other)
            self.assertEqual((other.calls, _programs()), (1, 1))
            activation.disable()
        self.assertIs(config.post_grad_custom_post_pass, other)

    def test_chain_in_one_callable(self) -> None:
        other = OtherPass()
        chained = CotunePass(Settings(), before=other)
        self.assertIn("other", chained.uuid()[-1])
        graph = torch.fx.Graph()
        graph.output(())
        chained(graph)
        self.assertEqual(other.calls, 1)
        self.assertIsNone(CotunePass(Settings(), before=lambda graph: None).uuid())

    def test_block(self) -> None:
        inside, outside = torch.compile(_function), torch.compile(lambda x: _function(x) * 2)
        with activation.enabled(export=True):
            inside(self.x)
        self.assertEqual(_programs(), 1)
        self.assertFalse(activation.is_enabled())
        outside(self.x)
        self.assertEqual(_programs(), 1)

    def test_declared_operators_keep_their_order(self) -> None:
        """Inductor would move them before the pass runs."""
        library = torch.library.Library("cotune_activation", "DEF")
        self.addCleanup(library._destroy)
        library.define("total(Tensor x, str group) -> Tensor")

        def declare() -> None:
            cotune.torch.declare_collective("cotune_activation::total", kind="all_reduce", tensor="x", group="group")

        for users in (True, False):
            with self.subTest(users=users), config.patch(reorder_for_locality=users):
                with mock.patch.dict(declarations._declared, clear=True):
                    self.assertNotIn("reorder_for_locality", activation.options())
                    activation.enable()
                    self.assertEqual(config.reorder_for_locality, users)
                    declare()
                    self.assertFalse(config.reorder_for_locality)
                    with activation.enabled():
                        self.assertFalse(config.reorder_for_locality)
                    self.assertFalse(config.reorder_for_locality)
                    activation.enable(export=True)
                    activation.disable()
                    self.assertEqual(config.reorder_for_locality, users)
                    self.assertIs(activation.options()["reorder_for_locality"], False)
                    activation.enable()
                    self.assertFalse(config.reorder_for_locality)
                    activation.disable()
                with mock.patch.dict(declarations._declared, clear=True):
                    with activation.enabled():
                        declare()
                        self.assertFalse(config.reorder_for_locality)
                    self.assertEqual(config.reorder_for_locality, users)

    def test_options_bind_to_one_function(self) -> None:
        compiled = torch.compile(_function, options=activation.options(export=True))
        other = torch.compile(lambda x: _function(x) * 3)
        compiled(self.x)
        other(self.x)
        self.assertEqual(_programs(), 1)

    def test_uuid_follows_the_settings(self) -> None:
        uuid = CotunePass(Settings()).uuid()
        self.assertEqual(uuid, CotunePass(Settings()).uuid())
        self.assertNotEqual(uuid, CotunePass(Settings(prologues=False)).uuid())
        with mock.patch.object(compat, "probed_values", lambda: (("f8_e4m3_saturates", None),)):
            self.assertNotEqual(uuid, CotunePass(Settings()).uuid())
        self.assertEqual(pickle.loads(pickle.dumps(uuid)), uuid)

    def test_uuid_follows_the_code_that_reads_process_groups(self) -> None:
        read_bytes = pathlib.Path.read_bytes
        for name in ("compat", "process_groups"):
            before = graph_pass.code_digest.__wrapped__()

            def changed(path: pathlib.Path, name: str = name) -> bytes:
                return read_bytes(path) + (b"#" if path.name == f"{name}.py" else b"")

            with mock.patch.object(pathlib.Path, "read_bytes", changed):
                self.assertNotEqual(graph_pass.code_digest.__wrapped__(), before, name)

    def test_uuid_follows_the_code_of_all_modules_that_make_graphs(self) -> None:
        """A module that the pass imports is in the key of the caches, or listed here because it changes no graph."""
        folder = pathlib.Path(graph_pass.__file__).parent
        reached, pending = set(), ["graph_pass", "operators"]
        while pending:
            name = pending.pop()
            if name in reached or not (folder / f"{name}.py").is_file():
                continue
            reached.add(name)
            for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cotune.torch"):
                    path = node.module.removeprefix("cotune.torch").lstrip(".")
                    pending += [path] if path else [each.name for each in node.names]
        self.assertEqual(reached - set(graph_pass._FILES), _CHANGES_NO_GRAPH)
        self.assertEqual(set(graph_pass._FILES) - reached, set())

    def test_uuid_follows_the_process_groups(self) -> None:
        uuids = [CotunePass().uuid()]
        try:
            for backend, world_size in (("", 0), ("fake", 2), ("fake", 4), ("gloo", 1)):
                dist.destroy_process_group() if dist.is_initialized() else None
                if backend:
                    store = FakeStore() if backend == "fake" else dist.HashStore()
                    dist.init_process_group(backend, store=store, rank=0, world_size=world_size)
                uuids.append(CotunePass().uuid())
                self.assertEqual(pickle.loads(pickle.dumps(uuids[-1])), CotunePass().uuid())
        finally:
            dist.destroy_process_group()
            fake_group()
        self.assertEqual(uuids[0], uuids[2])  # a fake group of two, as in the set-up
        self.assertEqual(len({repr(each) for each in uuids}), 4)

    def test_uuid_where_torch_has_no_list_of_process_groups(self) -> None:
        with mock.patch.object(process_groups, "known_groups", lambda: None):
            self.assertIsNone(CotunePass().uuid())

    def test_copies_report_to_the_same_list(self) -> None:
        activation.enable(export=True)
        passes = config.post_grad_custom_post_pass
        config.post_grad_custom_post_pass = copy.deepcopy(passes)
        torch.compile(_function)(self.x)
        self.assertEqual(_programs(), 1)

    def test_unknown_options_are_errors(self) -> None:
        with self.assertRaisesRegex(TypeError, "epilogue"):
            activation.enable(epilogue=True)
        with self.assertRaisesRegex(TypeError, "True or False"):
            activation.options(overlap="yes")

    def test_every_option_that_cannot_be_is_named(self) -> None:
        wrong = {
            "epilogues": None, "prologues": "no", "overlap": 0, "all_to_all": "x", "export": 2,
            "tunes": None, "tables": 2, "database": 5, "numerics": "bits",
        }  # fmt: skip
        cases = [*wrong.items(), *(("budget_s", value) for value in ("abc", -1, True, float("nan"), float("inf")))]
        for name, value in cases:
            for takes in (cotune.torch.enable, cotune.torch.options):
                with self.subTest(name=name, value=value, takes=takes.__name__):
                    with self.assertRaises(TypeError) as raised:
                        takes(**{name: value})
                    self.assertRegex(str(raised.exception), f"^option '{name}' is .*, and not {value!r}$")
        with self.assertRaisesRegex(TypeError, "True or False, and not 2$"), cotune.torch.enabled(tables=2):
            pass
        self.assertFalse(activation.is_enabled())

    def test_unknown_options_come_with_all_known_ones(self) -> None:
        known = {field.name for kind in (Settings, groups.TuneSettings) for field in dataclasses.fields(kind)}
        with self.assertRaises(TypeError) as raised:
            cotune.torch.enable(table=False)
        self.assertRegex(str(raised.exception), "^unknown option 'table'; known are .*; did you mean tables[?]$")
        for name in (*known - {"settings"}, *job_settings.ALLOWED, "tables"):
            self.assertRegex(str(raised.exception), rf"\b{name}\b")

    def test_an_error_changes_no_option(self) -> None:
        before = groups._settings
        with self.assertRaises(TypeError):
            cotune.torch.enable(budget_s=1, export=2)
        self.assertEqual(groups._settings, before)

    def test_options_that_can_be(self) -> None:
        self.addCleanup(groups.configure, groups._settings)
        self.addCleanup(report.show_tables, True)
        with mock.patch.object(cotune.torch.start, "start"):
            cotune.torch.options(
                tunes=False, budget_s=2, numerics="same", database=pathlib.Path("x.tdb"), tables=False, export=True
            )
            self.assertEqual(groups._settings.as_struct().database_path, b"x.tdb")
            cotune.torch.options(budget_s=None, database=None)

    def test_budgets(self) -> None:
        for chosen, wanted in (
            ({}, (10_000_000_000, 3_000_000_000)),
            ({"budget_s": "auto"}, (10_000_000_000, 3_000_000_000)),
            ({"budget_s": 0.5}, (500_000_000, 500_000_000)),
            ({"budget_s": 1e-12}, (1, 1)),
            ({"budget_s": 0}, (0, 0)),
            ({"budget_s": None}, (0, 0)),
        ):
            with self.subTest(**chosen):
                made = groups.TuneSettings.of(**chosen).as_struct()
                self.assertEqual((made.budget_ns, made.later_budget_ns), wanted)

    def test_explain(self) -> None:
        self.assertIn("no graph", decisions.explain())
        activation.enable()
        torch.compile(_function)(self.x)
        self.assertIn("fake backend", decisions.explain())
        (graph,) = decisions.explain_data()
        self.assertEqual(graph["left"][0]["operator"], "all_reduce")

    def test_decisions_are_bounded(self) -> None:
        left = [decisions.LeftDecision("a", "all_reduce", "0", "because")]
        for _ in range(decisions.GRAPHS_KEPT + 5):
            decisions.record(1, 0.0, [], left)
        self.assertEqual(len(decisions.graphs()), decisions.GRAPHS_KEPT)


if __name__ == "__main__":
    unittest.main()
