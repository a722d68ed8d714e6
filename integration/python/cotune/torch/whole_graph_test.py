"""Which graphs can be compared as a whole. Their times are in tests/torch."""

import unittest

import torch
from torch import fx

from cotune.torch import whole_graph

aten = torch.ops.aten


class WhyNotTest(unittest.TestCase):
    def setUp(self):
        self.graph = fx.Graph()
        self.x = self.node("placeholder", "x")

    def node(self, op: str, target, *arguments, value=None) -> fx.Node:
        made = self.graph.create_node(op, target, arguments)
        made.meta["val"] = torch.empty(4) if value is None else value
        return made

    def call(self, target, *arguments, value=None) -> fx.Node:
        return self.node("call_function", target, *arguments, value=value)

    def why_not(self, groups: set[str] = frozenset({"0"})) -> str:
        return whole_graph.why_not(self.graph, groups)

    def test_a_graph_that_computes_can_be_compared(self):
        y = self.call(torch.ops._c10d_functional.all_reduce.default, self.x, "sum", "0")
        y = self.call(torch.ops._c10d_functional.wait_tensor.default, y)
        y = self.call(aten.add.Tensor, y, self.x)
        self.call(aten.copy_.default, self.x, y)
        self.assertEqual(self.why_not(), "")

    def test_the_reasons(self):
        empty = torch.empty(4)
        for reason, build in (
            ("gives random numbers", lambda: self.call(aten.rand.default, [4])),
            ("gives random numbers", lambda: self.call(aten.bernoulli.default, self.x)),
            ("may do more", lambda: self.call(print, self.x)),
            ("may do more", lambda: self.call(torch.ops.symm_mem.one_shot_all_reduce.default, self.x, "sum", "0")),
            ("writes to memory", lambda: self.call(aten.add_.Tensor, self.call(aten.neg.default, self.x), self.x)),
            ("is no tensor", lambda: self.node("placeholder", "size", value=3)),
            ("a node of kind call_module", lambda: self.node("call_module", "m", self.x, value=empty)),
        ):
            self.setUp()
            build()
            self.assertRegex(self.why_not(), reason)

    def test_dynamic_sizes(self):
        captured = []

        def backend(module, inputs):
            captured.append(module.graph)
            return module.forward

        torch.compile(lambda x: x * 2, backend=backend, dynamic=True)(torch.ones(5))
        for node in captured[0].nodes:
            node.meta.setdefault("val", node.meta.get("example_value"))
        self.assertEqual(whole_graph.why_not(captured[0], {"0"}), "its sizes are dynamic")

    def test_several_process_groups(self):
        self.assertRegex(self.why_not({"0", "1"}), "several process groups")

    def test_a_kept_graph_is_taken_once_and_old_ones_go(self):
        for number in range(whole_graph._KEPT_MAX + 1):
            graph = whole_graph.WholeGraph.of(None, self.graph, "no reason", lambda graph: None)
            whole_graph.keep("kept", str(number), graph)
        self.assertIsNone(whole_graph.take("kept", "0"))
        self.assertIs(whole_graph.take("kept", str(number)), graph)
        self.assertIsNone(whole_graph.take("kept", str(number)))

    def test_a_digest_is_of_nodes_and_layouts(self):
        def digest() -> str:
            return whole_graph.WholeGraph.of(None, self.graph, "", lambda graph: None).digest

        found = [digest()]
        self.call(aten.neg.default, self.x)
        found.append(digest())
        self.x.meta["val"] = torch.empty(8)[::2]
        found.append(digest())
        self.assertEqual(len(set(found)), 3)
        self.assertEqual(digest(), found[-1])


if __name__ == "__main__":
    unittest.main()
