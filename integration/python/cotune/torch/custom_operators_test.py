"""Custom operators that are declared to be collectives: what can be declared, what becomes of them, and which are missed."""

from __future__ import annotations

import operator
import unittest
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._inductor import config

import cotune.torch
from cotune.torch import compat, custom_operators, decisions, declarations, process_groups
from cotune.torch.testing.graphs import GraphBuilder

aten = torch.ops.aten
_library = torch.library.Library("cotune_test", "DEF")


def _define(schema: str, fake: Any = lambda x, *others: torch.empty_like(x)) -> None:
    name = schema.partition("(")[0]
    _library.define(schema)
    if fake is not None:
        torch.library.register_fake(f"cotune_test::{name}", fake, lib=_library)


def _rows(x: torch.Tensor, rows: int) -> torch.Tensor:
    return x.new_empty((rows, *x.shape[1:]))


_define("total(Tensor x, str group_name) -> Tensor")
_define("named(Tensor x, str how, str group_name) -> Tensor")
_define("gather(str ranks, int dim, Tensor x) -> Tensor", lambda ranks, dim, x: torch.cat([x, x], dim))
_define("share(Tensor x, str group) -> Tensor", lambda x, group: _rows(x, x.shape[0] // 2))
_define("swap(Tensor x, str group) -> Tensor")
_define("widened(Tensor x, str group) -> Tensor", lambda x, group: x.double())
_define("writes(Tensor(a!) x, str group) -> ()", lambda x, group: None)
_define("two(Tensor x, str group) -> (Tensor, Tensor)", None)
_define("shares(Tensor(a) x, str group) -> Tensor(a)", None)
_define("norm(Tensor x, Tensor weight, str group) -> Tensor", None)
_define("many(Tensor[] xs, str group) -> Tensor", None)
_define("by_handle(Tensor x, int process_group) -> Tensor", None)
_define("total.half(Tensor x, str group_name, float scale) -> Tensor", None)
_define("hidden(Tensor x, str where='') -> Tensor")
_define("half(Tensor x, str group) -> Tensor", lambda x, group: torch.empty_like(x.chunk(2)[0]))
_define("gaps(Tensor x, str group) -> Tensor", lambda x, group: torch.empty_strided(x.shape, (16, 1)))
_define("local(Tensor x) -> Tensor")
_define("effect(Tensor x, str group) -> Tensor")
_define("decomposed(Tensor x, str group) -> Tensor", None)
_library.impl("decomposed", lambda x, group: x * 2, "CompositeImplicitAutograd")
ops = torch.ops.cotune_test
_with_effects = torch.ops.higher_order.with_effects


class Test(unittest.TestCase):
    def setUp(self) -> None:
        patched = mock.patch.dict(declarations._declared, clear=True)
        patched.start()
        self.addCleanup(patched.stop)

    def declare(self, name: str, **changed: Any) -> None:
        options = {"kind": "all_reduce", "tensor": "x", "group": "group"} | changed
        cotune.torch.declare_collective(f"cotune_test::{name}", **options)


class DeclareTest(Test):
    def test_operators_that_cannot_be_declared(self) -> None:
        total = {"group": "group_name"}
        for name, options, reason in (
            ("totl", {}, "this process has no operator cotune_test::totl; the module that registers it may not be imported yet"),
            ("total.other", total, "has no overload other, but default, half; give one of them"),
            ("writes", {}, "it writes to its argument x, and cotune replaces only operators that return a new tensor; register"),
            ("two", {}, "it returns (Tensor, Tensor), and the result of a collective is one new tensor; register"),
            ("shares", {}, "its result shares memory with an argument, and the result of a collective is one new tensor; register"),
            ("norm", {}, "the arguments x, weight are tensors, and the value of a collective depends on exactly one; register"),
            ("many", {"tensor": "xs"}, "tensor names the operand of the collective, which is Tensor, and the argument xs is"),
            ("total", {"group": "group"}, "the operator has no argument 'group'; its schema is cotune_test::total(Tensor x, str"),
            ("total", total | {"tensor": "y"}, "the operator has no argument 'y'"),
            ("total", total | {"tensor": "group_name"}, "which is Tensor, and the argument group_name is str"),
            ("by_handle", {"group": "process_group"}, "the name of the process group, which is str, and the argument process_group is int"),
            ("total", total | {"kind": "all_reduced"}, "and not 'all_reduced'; did you mean all_reduce?"),
            ("total", total | {"kind": "scan"}, "and not 'scan'. An operator that does something else cannot be declared"),
            ("total", total | {"kind": "broadcast"}, "a broadcast cannot be declared"),
            ("total", total | {"reduction": "xor"}, "names the reduction, unless it is one of sum, avg, product, min, max, and the"),
            ("named", total | {"reduction": "x"}, "which is str, and the argument x is Tensor"),
            ("gather", {"group": "ranks", "kind": "all_gather", "reduction": "max"}, "all_gather reduces nothing"),
        ):  # fmt: skip
            with self.subTest(name=name, **options):
                with self.assertRaises(ValueError) as raised:
                    self.declare(name, **options)
                self.assertIn(reason, str(raised.exception))
                self.assertIn(name.partition(".")[0], str(raised.exception))
        with self.assertRaisesRegex(TypeError, "the operator is the name of a custom operator.*, and not 'total'"):
            cotune.torch.declare_collective("total", kind="all_reduce", tensor="x", group="group_name")
        with self.assertRaisesRegex(ValueError, "knows the operators of this namespace by itself"):
            cotune.torch.declare_collective(
                "_c10d_functional::all_reduce", kind="all_reduce", tensor="input", group="group_name"
            )
        self.assertEqual(declarations.key(), ())

    def test_an_operator_that_does_not_reach_the_pass_as_a_call(self) -> None:
        with self.assertRaisesRegex(ValueError, "decomposed: its kernel is a CompositeImplicitAutograd one.*; register the kernel as"):
            self.declare("decomposed")
        with mock.patch.object(compat, "has_effect", lambda overload: overload is ops.effect.default):
            with self.assertRaisesRegex(ValueError, "effect: an effect is registered for it.*; register it without an effect"):
                self.declare("effect")
            self.declare("share")
        self.assertFalse(compat.has_effect(ops.effect.default))

    def test_a_declared_operator_is_kept_if_nothing_reads_it(self) -> None:
        """The other ranks would wait for this one."""
        self.declare("total", group="group_name")
        builder = GraphBuilder()
        x = builder.input(4, 8)
        builder.call(ops.total.default, x, "0")
        builder.graph.output((x,))
        builder.graph.eliminate_dead_code()
        self.assertEqual(builder.targets(), [ops.total.default])

    def test_the_key_has_all_that_was_declared(self) -> None:
        """Inductor would hand out graphs that were compiled under other declarations."""
        keys = [declarations.key()]
        for name, options in (
            ("total", {}), ("total", {"reduction": "max"}), ("total.half", {}), ("total", {"kind": "reduce_scatter"}),
        ):  # fmt: skip
            self.declare(name, group="group_name", **options)
            keys.append(declarations.key())
        self.assertEqual(len(set(keys)), len(keys))
        uuid = cotune.torch.activation.CotunePass().uuid()
        self.assertIn(declarations.key(), uuid)
        self.declare("total", group="group_name")
        self.assertNotEqual(cotune.torch.activation.CotunePass().uuid(), uuid)


class PassTest(Test):
    def setUp(self) -> None:
        super().setUp()
        self.builder = GraphBuilder()
        patched = config.patch(reorder_for_locality=False)
        patched.__enter__()
        self.addCleanup(patched.__exit__, None, None, None)

    def left(self, *outputs: fx.Node, **options: bool) -> str:
        """The reason for which the only collective of a graph is left alone."""
        found = self.builder.rewritten(*outputs, **options)
        self.assertEqual(found.programs, [])
        (left,) = found.left
        self.assertEqual(left.group, "0")
        return left.reason

    def test_a_reader_needs_no_wait(self) -> None:
        self.declare("total", group="group_name", reduction="max")
        y = self.builder.call(ops.total.default, self.builder.input(4, 8), "0")
        found = self.builder.rewritten(self.builder.call(aten.relu.default, y))
        self.assertEqual(
            found.programs[0].text,
            "program all_reduce_relu\n%0 = input f32 [R, 8]\n%1 = all_reduce max %0\n%2 = relu %1\nreturn %2\n",
        )
        self.assertNotIn(ops.total.default, self.builder.targets())

    def test_the_operand_is_the_argument_that_is_declared(self) -> None:
        """Another argument that is a node of the graph comes before it."""
        self.declare("gather", kind="all_gather", group="ranks")
        x = self.builder.input(4, 8)
        dim = self.builder.graph.placeholder("dim")
        dim.meta["val"] = 0
        gathered = self.builder.call(ops.gather.default, "0", dim, self.builder.call(aten.tanh.default, x))
        found = self.builder.rewritten(gathered)
        self.assertIn("input f32 [R/n, 8]\n%1 = all_gather %0", found.programs[0].text)
        self.assertEqual(found.left, [])

    def test_a_reader_whose_result_nothing_reads_stays_outside(self) -> None:
        self.declare("total", group="group_name")
        y = self.builder.call(ops.total.default, self.builder.input(4, 8), "0")
        self.builder.call(aten.relu.default, y)
        found = self.builder.rewritten(y)
        self.assertNotIn("relu", found.programs[0].text)

    def test_the_reduction_of_an_argument(self) -> None:
        self.declare("named", group="group_name", reduction="how")
        x = self.builder.input(4, 8)
        y = self.builder.call(ops.named.default, x, "product", "0")
        z = self.builder.call(ops.named.default, x, "xor", "0")
        found = self.builder.rewritten(y, z)
        self.assertIn("all_reduce product", found.programs[0].text)
        self.assertEqual([each.reason for each in found.left], ["programs have no reduction xor"])

    def test_declared_operators_that_are_left_alone_keep_their_order(self) -> None:
        self.declare("total", group="group_name")
        x, y = self.builder.input(4, 8), self.builder.input(4, 8, dtype=torch.int8)
        results = [self.builder.call(ops.total.default, each, "0") for each in (x, y, x)]
        found = self.builder.rewritten(*results)
        self.assertEqual([(each.operator, each.reason) for each in found.left], [
            ("cotune_test::total", "i8 values are moved by collectives, and not reduced"),
        ])  # fmt: skip
        self.assertEqual(len(found.programs), 2)
        # It depends on the result of the program before it, and the program after it reads its result.
        (left,) = [node for node in self.builder.graph.nodes if "control_deps" in str(node.target)]
        first, last = (
            node for node in self.builder.graph.nodes if node.kwargs.get("program", "").startswith("program all_reduce")
        )
        self.assertTrue(_depends(left, first))
        self.assertTrue(_depends(last, left))

    def test_a_result_that_is_not_of_the_kind(self) -> None:
        x = self.builder.input(4, 8)
        self.declare("widened")
        y = self.builder.call(ops.widened.default, x, "0")
        self.assertIn("its result is torch.float64 on cpu, and its operand torch.float32", self.left(y))
        self.builder = GraphBuilder()
        self.declare("gather", kind="all_gather", group="ranks")
        y = self.builder.call(ops.gather.default, "0", 1, self.builder.input(4, 8))
        self.assertIn("its result are [4, 16], and those of its operand [4, 8], which is no all_gather", self.left(y))
        self.builder = GraphBuilder()
        self.declare("share", kind="all_reduce")
        y = self.builder.call(ops.share.default, self.builder.input(4, 8), "0")
        self.assertIn("[2, 8], and those of its operand [4, 8], which is no all_reduce", self.left(y))
        for kind in ("share", "swap"):
            self.builder = GraphBuilder()
            self.declare(kind, kind={"share": "reduce_scatter", "swap": "all_to_all"}[kind])
            y = self.builder.call(getattr(ops, kind).default, self.builder.input(5, 8), "0")
            self.assertIn("its operand [5, 8], which is no", self.left(y))

    def test_declared_operators_that_are_all_left_alone_keep_their_order(self) -> None:
        self.declare("total", group="group_name")
        inputs = [self.builder.input(4, 8, dtype=torch.int8) for _ in range(3)]
        found = self.builder.rewritten(*[self.builder.call(ops.total.default, each, "0") for each in inputs])
        self.assertEqual((len(found.programs), len(found.left)), (0, 3))
        targets = self.builder.targets()
        self.assertEqual([str(each) for each in targets], ["cotune_test.total.default", "control_deps", "control_deps"])
        first, second, third = (node for node in self.builder.graph.nodes if node.op == "call_function")
        self.assertTrue(_depends(second, first) and _depends(third, second))

    def test_a_branch_with_a_declared_operator_follows_a_collective_that_is_left_alone(self) -> None:
        self.declare("total", group="group_name")
        x, body = self.builder.input(4, 8), fx.Graph()
        body.output((body.call_function(ops.total.default, (body.placeholder("x"), "0")),))
        self.builder.graph.owning_module.body = fx.GraphModule(torch.nn.Module(), body)
        first, function = self.builder.all_reduce(x), self.builder.graph.get_attr("body")
        branch = self.builder.graph.call_function(torch.ops.higher_order.cond, (x, function, function, (x,)))
        branch.meta["val"] = (x.meta["val"],)
        self.builder.rewritten(first, branch, reason="small")
        (node,) = (each for each in self.builder.graph.nodes if each.name == branch.name)
        self.assertTrue(_depends(node, first.args[0]))

    def test_an_operator_whose_effect_is_registered_later(self) -> None:
        self.declare("effect")
        x, y = self.builder.input(4, 8), self.builder.input(4, 8)
        token = self.builder.input(0)
        calls = []
        for each in (x, y):
            call = self.builder.graph.call_function(_with_effects, (token, ops.effect.default, each, "0"))
            call.meta["val"] = (token.meta["val"], each.meta["val"])
            calls.append(call)
        found = self.builder.rewritten(*calls)
        self.assertEqual([(each.operator, each.group) for each in found.left], [("cotune_test::effect", "0")] * 2)
        self.assertIn("an effect is registered for it", found.left[0].reason)
        # The second one depends on the result of the first one, and not on its token.
        (result,) = (node for node in self.builder.graph.nodes if node.target is operator.getitem)
        self.assertEqual(result.args[1], 1)
        (second,) = (node for node in self.builder.graph.nodes if "control_deps" in str(node.target))
        self.assertTrue(_depends(second, result))

    def test_a_result_that_is_not_row_major(self) -> None:
        """Readers that depend on its strides get them."""
        self.declare("total", group="group_name")
        x = self.builder.call(aten.permute.default, self.builder.input(4, 3, 8), [2, 0, 1])
        y = self.builder.call(ops.total.default, x, "0")
        flat = self.builder.call(aten.as_strided.default, y, [96], [1])
        strides = y.meta["val"].stride()
        self.assertNotEqual(strides, (12, 3, 1))
        found = self.builder.rewritten(flat)
        self.assertEqual((len(found.programs), found.left), (1, []))
        read = flat.args[0]
        self.assertEqual((read.target, read.meta["val"].stride()), (aten.permute.default, strides))
        (made,) = (node for node in self.builder.graph.nodes if node.target is aten.empty.memory_format)
        self.assertEqual(made.meta["val"].stride(), (12, 3, 1))

    def test_a_result_with_gaps(self) -> None:
        self.declare("gaps")
        y = self.builder.call(ops.gaps.default, self.builder.input(4, 8), "0")
        self.assertEqual(self.left(y), "its result has gaps in memory, which no collective leaves")

    def test_symbolic_sizes_count_by_those_of_the_call(self) -> None:
        """A rank whose sizes are static is in the same call."""
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

        self.declare("half", kind="reduce_scatter")
        self.declare("swap", kind="all_to_all")
        for rows, name, is_taken in ((6, "half", True), (7, "half", False), (6, "swap", True), (7, "swap", False)):
            for is_dynamic in (False, True):
                with self.subTest(rows=rows, name=name, is_dynamic=is_dynamic):
                    builder = GraphBuilder()
                    shapes = ShapeEnv()
                    builder._mode = torch._subclasses.FakeTensorMode(shape_env=shapes)
                    x = builder.input(rows, 8)
                    if is_dynamic:
                        kinds = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
                        x.meta["val"] = builder._mode.from_tensor(torch.empty(rows, 8), symbolic_context=kinds)
                    y = builder.call(getattr(ops, name).default, x, "0")
                    guards = len(shapes.guards)
                    found = builder.rewritten(y)
                    self.assertEqual((len(found.programs), len(found.left)), (int(is_taken), int(not is_taken)))
                    self.assertEqual(len(shapes.guards), guards)

    def test_inductor_moves_operators(self) -> None:
        """options() was called before the declaration, and Inductor has changed the order of the calls."""
        self.declare("total", group="group_name")
        with config.patch(reorder_for_locality=True):
            y = self.builder.call(ops.total.default, self.builder.input(4, 8), "0")
            self.assertIn("reorder_for_locality of Inductor is on", self.left(y))

    def test_a_group_that_is_not_taken(self) -> None:
        self.declare("total", group="group_name")
        y = self.builder.call(ops.total.default, self.builder.input(4, 8), "0")
        self.assertEqual(self.left(y, reason="its group has one rank"), "its group has one rank")


def _depends(node: fx.Node, on: fx.Node) -> bool:
    return node is on or any(_depends(each, on) for each in node.all_input_nodes)


class UndeclaredTest(Test):
    def setUp(self) -> None:
        super().setUp()
        patched = mock.patch.object(process_groups, "known_groups", lambda: {"tp": (2, False)})
        patched.start()
        self.addCleanup(patched.stop)

    def test_operators_with_a_group_by_name_and_by_value(self) -> None:
        builder = GraphBuilder()
        x = builder.input(4, 8)
        y = builder.call(ops.total.default, x, "0")
        y = builder.call(ops.total.default, y, group_name="tp")
        y = builder.call(ops.hidden.default, y, "tp")
        y = builder.call(ops.hidden.default, y, "elsewhere")
        y = builder.call(ops.hidden.default, y)
        # The argument `group` of this one is a number of channels.
        normed = builder.call(aten.native_group_norm.default, y, None, None, 4, 8, 1, 2, 1e-5)
        found = builder.rewritten(y, normed)
        total, hidden = found.undeclared
        self.assertEqual((total.operator, total.argument, total.groups, total.calls), ("cotune_test::total", "group_name", ["0", "tp"], 2))
        self.assertEqual((hidden.operator, hidden.argument, hidden.groups, hidden.calls), ("cotune_test::hidden", "where", ["tp"], 1))
        text = decisions.explain()
        self.assertIn(", 2 custom operators not declared, ", text)
        self.assertIn(
            "  cotune_test::total: 2 calls, group 0 and tp as group_name; not declared\n    if it is a collective: "
            'cotune.torch.declare_collective("cotune_test::total", kind=..., tensor="x", group="group_name")\n', text,
        )  # fmt: skip
        # The call that the text gives is complete but for the kind.
        exec(total.declaration.replace("...", '"all_reduce"'), {"cotune": cotune})
        self.assertIn("not declared when the graph was compiled\n    it is now: torch.compiler.reset()", decisions.explain())

    def test_an_operator_that_writes_and_one_that_is_declared(self) -> None:
        self.declare("share", kind="reduce_scatter")
        builder = GraphBuilder()
        x = builder.input(4, 8)
        y = builder.call(ops.share.default, x, "tp")
        written = builder.graph.call_function(compat.auto_functionalized(), (ops.writes.default,), {"x": y, "group": "tp"})
        written.meta["val"] = (None, y.meta["val"])
        found = builder.rewritten(y, written)
        (undeclared,) = found.undeclared
        self.assertEqual((undeclared.operator, undeclared.groups, undeclared.declaration), ("cotune_test::writes", ["tp"], ""))
        self.assertIn("it cannot be declared: it writes to its argument x", decisions.explain())

    def test_an_operator_whose_declaration_would_be_refused(self) -> None:
        builder = GraphBuilder()
        y = builder.graph.call_function(ops.by_handle.default, (builder.input(4, 8), 5))
        y.meta["val"] = y.args[0].meta["val"]
        (undeclared,) = builder.rewritten(y).undeclared
        self.assertEqual((undeclared.operator, undeclared.declaration), ("cotune_test::by_handle", ""))
        self.assertIn(
            "it cannot be declared: group names the name of the process group, which is str, and the argument process_group is int",
            decisions.explain(),
        )

    def test_generated_code(self) -> None:
        self.declare("share", kind="reduce_scatter")
        code = (
            "# Source node to ATen node mapping: torch.ops.cotune_test.named.default(\n"
            "    buf0 = torch.ops.cotune_test.total.default(arg0_1, 'tp')\n"
            "    buf1 = torch.ops.cotune_test.total.default(buf0, group_name='0')\n"
            "    torch.ops.cotune_test.writes.default(buf1, 'tp')\n"
            "    buf2 = torch.ops.cotune_test.hidden.default(buf1, where='tp')\n"
            "    buf3 = torch.ops.cotune_test.share.default(buf1, 'tp')\n"
            "    buf4 = torch.ops.gone.operator.default(buf1, 'tp')\n"
            "    torch.ops.cotune.program.default([buf1], [buf2], 'program p', 'tp', '')\n"
        )
        self.assertEqual([(each.operator, each.groups, each.calls) for each in _in_code(code)], [
            ("cotune_test::total", ["tp", "0"], 2), ("cotune_test::writes", ["tp"], 1), ("cotune_test::hidden", ["tp"], 1),
        ])  # fmt: skip

    def test_code_that_leaves_collectives_to_torch(self) -> None:
        for code, leaves in (
            ("# Original ATen: [_c10d_functional.all_reduce]\nbuf0 = torch.ops.cotune.program.default([], [], '', 'tp', '')", False),
            ("torch.ops._c10d_functional.all_reduce_.default(buf0, 'sum', '0')", True),
        ):  # fmt: skip
            with self.subTest(code=code):
                self.assertEqual(custom_operators.calls_functional_collectives(code), leaves)
                self.assertEqual(custom_operators.calls_in_code(code), ())

    def test_operators_of_torch_are_not_listed(self) -> None:
        """The user has not written them, and cannot declare what they are."""
        builder = GraphBuilder()
        x = builder.input(4, 8)
        y = builder.graph.call_function(torch.ops.symm_mem.one_shot_all_reduce.default, (x, "sum", "tp"))
        y.meta["val"] = x.meta["val"]
        z = builder.call(ops.total.default, y, "tp")
        found = builder.rewritten(z)
        self.assertEqual([each.operator for each in found.undeclared], ["cotune_test::total"])
        code = "buf0 = torch.ops.symm_mem.one_shot_all_reduce.default(arg0_1, 'sum', 'tp')\n"
        self.assertEqual(_in_code(code), [])
        # Their calls are among those that PyTorch numbers.
        self.assertEqual(len(custom_operators.calls_in_code(code)), 1)

    def test_an_operator_without_a_group_argument(self) -> None:
        """It is not listed, and the number of collectives is not exact any more: the operator may be one."""
        self.declare("share", kind="reduce_scatter")
        for name, arguments, calls in (("share", ("0",), False), ("local", (), True)):
            builder = GraphBuilder()
            x = builder.input(4, 8)
            y, z = builder.all_reduce(x), builder.call(getattr(ops, name).default, x, *arguments)
            with self.subTest(name=name):
                self.assertEqual(builder.rewritten(y, z).undeclared, [])
                self.assertEqual(decisions.calls_custom_operators(), calls)


def _in_code(code: str) -> list[custom_operators.UndeclaredOperator]:
    return custom_operators.undeclared_of(custom_operators.calls_in_code(code))


if __name__ == "__main__":
    unittest.main()
