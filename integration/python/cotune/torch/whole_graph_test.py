"""Which graphs can be compared as a whole. Their times are in tests/torch."""

import contextlib
import contextvars
import functools
import gc
import threading
import unittest
import weakref
from unittest import mock

import torch
import torch.distributed as dist
from torch import fx

from cotune.torch import compat, groups, whole_graph

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

    def test_values_that_made_operands_lack(self):
        self.call(aten._assert_async.msg, self.x, "positive")
        self.assertRegex(self.why_not(), "_assert_async.msg depends on values")

    def test_a_digest_is_of_nodes_and_layouts(self):
        def digest() -> str:
            return whole_graph.WholeGraph.of(None, self.graph, "", lambda graph: None).digest

        found = [digest()]
        self.call(aten.neg.default, self.x)
        found.append(digest())
        self.x.meta["val"] = torch.empty(8)[::2]
        found.append(digest())
        with compat.inductor_config().patch({"max_fusion_size": 7}):
            found.append(digest())
        self.assertEqual(len(set(found)), 4)
        self.assertEqual(digest(), found[2])

    def test_ranks_with_other_devices_have_one_text(self):
        def text(index: int) -> str:
            self.setUp()
            device = torch.device("cuda", index)
            node = self.graph.create_node("call_function", aten.full.default, ([4], 1), {"device": device})
            node.meta["val"] = mock.Mock(spec=torch.Tensor, device=device, dtype=torch.float32, shape=(4,), stride=lambda: (1,))
            return whole_graph._text_of(self.graph)

        self.assertEqual(text(0), text(3))
        self.assertIn("cuda", text(0))
        self.assertNotIn("cuda:", text(3))


class KeptTest(unittest.TestCase):
    def setUp(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(lambda: dist.is_initialized() and dist.destroy_process_group())
        self.name = dist.group.WORLD.group_name

    def keep(self, manifest: str) -> whole_graph.WholeGraph:
        graph = whole_graph.WholeGraph.of(None, fx.Graph(), "no reason", lambda graph: None)
        whole_graph.keep(self.name, manifest, graph)
        return graph

    def test_a_kept_graph_is_taken_once_and_old_ones_go(self):
        for number in range(whole_graph._KEPT_MAX + 1):
            graph = self.keep(str(number))
        self.assertIsNone(whole_graph.take(self.name, "0"))
        self.assertIs(whole_graph.take(self.name, str(number)), graph)
        self.assertIsNone(whole_graph.take(self.name, str(number)))

    def test_it_goes_with_its_process_group(self):
        gone = weakref.ref(self.keep("m"))
        self.assertIsNotNone(gone())
        dist.destroy_process_group()
        gc.collect()
        self.assertIsNone(gone(), "no operator has run in this process group")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.assertEqual(dist.group.WORLD.group_name, self.name)
        self.assertIsNone(whole_graph.take(self.name, "m"), "another process group has the name now")

    def test_it_goes_with_the_groups_of_cotune(self):
        gone = weakref.ref(self.keep("m"))
        groups.drop(self.name)
        self.assertIsNone(gone())

    def test_there_is_none_without_a_process_group(self):
        graph = whole_graph.WholeGraph.of(None, fx.Graph(), "no reason", lambda graph: None)
        whole_graph.keep("nobody", "m", graph)
        self.assertIsNone(whole_graph.take("nobody", "m"))


class CompiledTest(unittest.TestCase):
    def setUp(self):
        module = compat.traced(lambda x: [x * 2], [torch.ones(256, 1024)])
        self.graph = whole_graph.WholeGraph.of(module, module.graph, "", self.put)
        self.blocks = []

    def put(self, graph: fx.Graph) -> None:
        self.blocks.append(self.is_without)

    is_without = False

    @contextlib.contextmanager
    def without(self):
        self.is_without = True
        yield
        self.is_without = False

    def test_the_second_form_is_made_without(self):
        ways = self.graph.compiled("nobody", torch.device("cpu"), 1, self.without())
        self.assertEqual(self.blocks, [False, True])
        for way in ways.values():
            (result,) = way()
            self.assertTrue(torch.equal(result, ways["plain"]()[0]))
            self.assertEqual(result.shape, (256, 1024))

    def test_operands_that_are_too_large_are_not_made(self):
        for allowed, is_made in ((1 << 20, True), ((1 << 20) - 1, False)):
            with mock.patch.object(whole_graph.race_memory, "allowed_bytes", return_value=allowed):
                if is_made:
                    self.graph.compiled("nobody", torch.device("cpu"), 1, self.without())
                    continue
                with self.assertRaisesRegex(MemoryError, "its operands have 1 MB"):
                    self.graph.compiled("nobody", torch.device("cpu"), 1, self.without())

    def test_other_threads_keep_their_options(self):
        """The passes of users are off in what compiles here, and in no other thread."""
        config, seen = compat.inductor_config(), {}
        own = mock.Mock()
        real = torch._inductor.compile_fx.compile_fx_inner

        def look(elsewhere: contextvars.Context, *arguments, **named):
            seen["here"] = config.post_grad_custom_post_pass
            reader = threading.Thread(target=elsewhere.run, args=(lambda: seen.update(there=config.post_grad_custom_post_pass),))
            reader.start()
            reader.join()
            return real(*arguments, **named)

        with config.patch(post_grad_custom_post_pass=own):
            elsewhere = contextvars.copy_context()  # that of a thread that compiles with the pass
            with mock.patch.object(torch._inductor.compile_fx, "compile_fx_inner", functools.partial(look, elsewhere)):
                compat.compile_graph(compat.traced(lambda x: [x + 1], [torch.ones(4)]), [torch.ones(4)])
        self.assertEqual(seen, {"here": None, "there": own})
        own.assert_not_called()


if __name__ == "__main__":
    unittest.main()
