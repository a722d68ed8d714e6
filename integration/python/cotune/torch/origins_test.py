"""The functions that programs belong to."""

from __future__ import annotations

import os
import unittest

import torch

from cotune.torch import decisions, origins
from cotune.torch.origins import Origin
from cotune.torch.testing.graphs import GraphBuilder, c10d, explained, fake_group

HERE = os.path.abspath(__file__)


def _summed(x: torch.Tensor) -> torch.Tensor:
    return torch.ops._c10d_functional.wait_tensor.default(
        c10d.all_reduce.default(x, "sum", fake_group_name)  # the line of the collective
    )


class _Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(_summed(x) + 1)


fake_group_name = ""


def _line_of(text: str) -> int:
    with open(HERE, encoding="utf-8") as source:
        return next(number for number, line in enumerate(source, 1) if text in line)


class CompiledTest(unittest.TestCase):
    def setUp(self) -> None:
        global fake_group_name
        fake_group_name = fake_group()

    def test_the_function_and_the_line_of_a_program(self) -> None:
        model = _Model()
        graph = explained(model, torch.ones(4, 8))
        self.assertEqual(graph["compile_id"].split("/")[1], "0")
        (program,) = graph["programs"]
        inner, outer = program["origin"], graph["origin"]
        self.assertEqual((inner["function"], os.path.abspath(inner["file"])), ("_summed", HERE))
        self.assertIn(_line_of("# the line of the collective") - inner["line"], (0, 1))
        name = "_Model.forward" if hasattr(_summed.__code__, "co_qualname") else "forward"
        self.assertEqual((outer["function"], outer["line"]), (name, _line_of("torch.relu(_summed(x) + 1)")))
        self.assertFalse(inner["is_backward"])
        self.assertIn("program all_reduce_add_relu of _summed (", decisions.explain())

    def test_a_collective_that_is_left_alone(self) -> None:
        graph = explained(_Model(), torch.ones(4, 8), export=False)
        self.assertEqual(graph["programs"], [])
        self.assertEqual(graph["left"][0]["origin"]["function"], "_summed")


class NodesTest(unittest.TestCase):
    def _origin(self, trace: str, **meta: object) -> tuple[Origin | None, Origin | None]:
        graph = GraphBuilder()
        without, node = graph.input(4), graph.input(4)
        node.meta.update(stack_trace=trace, **meta)
        return origins.of_nodes([without, node]), origins.of_graph([without, node])

    def test_frames_of_torch_are_left_out(self) -> None:
        inside = f'  File "{os.path.dirname(torch.__file__)}/nn/modules/linear.py", line 5, in forward\n    code\n'
        user = '  File "a.py", line 3, in outer\n    code\n  File "b.py", line 4, in inner\n    code\n'
        self.assertEqual(self._origin(inside + user + inside), (Origin("inner", "b.py", 4), Origin("outer", "a.py", 3)))
        self.assertEqual(self._origin(inside)[0].function, "forward")

    def test_nothing_is_known(self) -> None:
        self.assertEqual(self._origin(""), (None, None))

    def test_the_backward(self) -> None:
        trace = '  File "a.py", line 3, in step\n    code\n'
        for meta in ({"autograd_backward": True}, {"partitioner_tag": "is_backward"}):
            self.assertEqual(str(self._origin(trace, **meta)[0]), "the backward of step (a.py:3)")
        self.assertEqual(str(self._origin(trace, partitioner_tag="is_forward")[0]), "step (a.py:3)")


class CallerTest(unittest.TestCase):
    def test_the_function_that_calls(self) -> None:
        origin = origins.of_caller()
        self.assertEqual((origin.function.split(".")[-1], origin.file), ("test_the_function_that_calls", __file__))
        self.assertFalse(origin.is_backward)

    def test_a_call_through_torch(self) -> None:
        """Frames of torch lie in between, and those of backward() mark the graph as one."""
        found = []

        class Noting(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, gradient):
                return gradient

        def note(gradient):
            frames = {"__name__": "torch._inductor.generated", "origins": origins, "found": found}
            exec("def call(): found.append(origins.of_caller())\ncall()", frames)
            return gradient

        def in_torch(function):
            """A function with a name of a module of torch, as generated code has."""
            return type(function)(function.__code__, {**globals(), "__name__": "torch.generated"}, closure=function.__closure__)

        x = torch.ones(2, requires_grad=True)
        y = Noting.apply(x)
        y.register_hook(in_torch(note))
        y.sum().backward()
        self.assertTrue(found[0].is_backward and found[0].is_caller)
        self.assertEqual(found[0].function.split(".")[-1], "test_a_call_through_torch")
        self.assertRegex(str(found[0]), r"^backward\(\) in .*test_a_call_through_torch \(.*origins_test.py:\d+\)$")


if __name__ == "__main__":
    unittest.main()
