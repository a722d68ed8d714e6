"""Results that are tensors of their own in PyTorch are so in graphs with programs, and views share memory as there."""

from __future__ import annotations

import itertools
import random
import unittest
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed._functional_collectives as funcol
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config
from torch._inductor.decomposition import select_decomp_table

from cotune.torch import decisions, graph_pass, rewriting
from cotune.torch.collectives import GroupFacts
from cotune.torch.settings import Settings
from cotune.torch.testing.graphs import GraphBuilder, aten, fake_group

FUNCTIONS = 36
ROWS, COLUMNS = 8, 16

Tensors = list[torch.Tensor]
Function = Callable[[torch.Tensor], Any]


def reduced(x: torch.Tensor) -> torch.Tensor:
    # The fake group moves nothing: the result is a copy of x.
    return funcol.all_reduce(x, "sum", torch.distributed.group.WORLD)


def _rewriting(gm: torch.fx.GraphModule, _: Any) -> Any:
    rewriting.rewrite(gm.graph, Settings(export=True), lambda name: GroupFacts(world_size=2))
    gm.graph.lint()
    gm.recompile()
    return make_boxed_func(gm)


def _plain(gm: torch.fx.GraphModule, _: Any) -> Any:
    return make_boxed_func(gm)


def compiled(function: Function, compiler: Any) -> Function:
    """The function by graphs that a compiler makes of AOTAutograd's; its nodes run by PyTorch, one by one."""
    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, decompositions=select_decomp_table())
    return torch.compile(function, backend=backend, fullgraph=True)


def shared(tensors: Tensors) -> list[tuple[int, int]]:
    """The pairs of tensors that share memory."""
    places = [each.untyped_storage().data_ptr() for each in tensors]
    return [pair for pair in itertools.combinations(range(len(tensors)), 2) if places[pair[0]] == places[pair[1]]]


def written(function: Function, x: torch.Tensor) -> list[Tensors]:
    """All results after one of them was written to, for each."""
    found = []
    for index in range(len(function(x))):
        results = list(function(x))
        results[index].add_(100) if results[index].dtype != torch.bool else results[index].logical_not_()
        found.append(results)
    return found


def f(x: torch.Tensor) -> Any:
    y = reduced(x)
    return torch.relu(y), torch.relu(y)


def g(x: torch.Tensor) -> Any:
    y = reduced(x) + 1
    return y, y.pow(1), y * 1


def means(x: torch.Tensor) -> Any:
    y = reduced(x)
    return y.mean(-1), y.mean(-1, keepdim=True), y


def bools(x: torch.Tensor) -> Any:
    y = reduced(x)
    return y > 0, y > 0


def views(x: torch.Tensor) -> Any:
    y = torch.relu(reduced(x))
    first, second = y.chunk(2)
    return y, y.view(-1), first, second, y.t(), torch.relu(y)


# One operation on a value, of each kind that a program may drop or merge, and views.
_STEPS: dict[str, Function] = {
    "relu": torch.relu,
    "add": lambda y: y + 1,
    "double": lambda y: y * 2,
    "power": lambda y: y.pow(1),
    "times_one": lambda y: y * 1,
    "plus_zero": lambda y: y + 0,
    "cast": lambda y: torch.ops.prims.convert_element_type(y, torch.float32),
    "copy_cast": lambda y: torch.ops.aten._to_copy(y, dtype=torch.float32),
    "narrow_and_back": lambda y: y.to(torch.bfloat16).to(torch.float32),
    "max": lambda y: torch.clamp_min(y, -100),
    "view": lambda y: y.view(y.shape),
    "flat": lambda y: y.reshape(-1).view(y.shape),
    "unsqueezed": lambda y: y.unsqueeze(0).squeeze(0),
    "turned": lambda y: y.t().t(),
    "chunks": lambda y: y.chunk(2)[0].view(-1)[: y.numel() // 2],
}
_CHUNK = "chunks"


def generated(seed: int) -> tuple[str, Function]:
    """A function that returns several values, which are computed from each other."""
    choices = random.Random(seed)
    steps: list[tuple[str, int]] = []
    for _ in range(choices.randint(2, 6)):
        # The value that it reads: a chunk is a result only.
        whole = [0] + [i for i, (name, _) in enumerate(steps, 1) if name != _CHUNK]
        steps.append((choices.choice(list(_STEPS)), choices.choice(whole)))
        if choices.random() < 0.4:  # the same again
            steps.append(choices.choice(steps))
    returned = choices.sample(range(len(steps) + 1), k=min(len(steps) + 1, choices.randint(2, 5)))

    def function(x: torch.Tensor) -> Any:
        values = [reduced(x)]
        for name, source in steps:
            values.append(_STEPS[name](values[source]))
        return [values[index] for index in returned]

    return f"values {steps}, returned {returned}", function


class AliasTest(unittest.TestCase):
    def setUp(self) -> None:
        fake_group()
        self.x = torch.randint(-8, 8, (ROWS, COLUMNS), generator=torch.Generator().manual_seed(1)).float()

    def check(self, function: Function) -> None:
        plain = compiled(function, _plain)
        wanted, wanted_written = shared(list(plain(self.x))), written(plain, self.x)
        decisions.clear()
        rewritten = compiled(function, _rewriting)
        self.check_results(rewritten, wanted, wanted_written)
        self.assertTrue(decisions.graphs()[0].programs)

    def check_results(self, function: Function, wanted: list[tuple[int, int]], wanted_written: list[Tensors]) -> None:
        self.assertEqual(shared(list(function(self.x))), wanted)
        for index, (have, want) in enumerate(zip(written(function, self.x), wanted_written, strict=True)):
            for place, (one, other) in enumerate(zip(have, want, strict=True)):
                self.assertTrue(torch.equal(one, other), f"result {place} after a write to {index}: {one} for {other}")

    @torch.no_grad()
    def test_equal_values_are_tensors_of_their_own(self) -> None:
        for function in (f, g, means, bools, views):
            with self.subTest(function=function.__name__):
                self.check(function)

    @torch.no_grad()
    def test_generated_functions(self) -> None:
        for seed in range(FUNCTIONS):
            text, function = generated(seed)
            with self.subTest(seed=seed, function=text):
                self.check(function)

    @torch.no_grad()
    def test_by_inductor(self) -> None:
        for function in (f, g, views):
            with self.subTest(function=function.__name__):
                plain = compiled(function, _plain)
                wanted, wanted_written = shared(list(plain(self.x))), written(plain, self.x)
                torch._dynamo.reset()
                passes = graph_pass.CotunePass(Settings(export=True))
                with config.patch(post_grad_custom_post_pass=passes, force_disable_caches=True):
                    decisions.clear()
                    rewritten = torch.compile(function, fullgraph=True)
                    self.check_results(rewritten, wanted, wanted_written)
                self.assertTrue(decisions.graphs()[0].programs)

    def test_a_write_to_a_result_leaves_what_is_saved_for_backward(self) -> None:
        def function(x: torch.Tensor, weight: torch.Tensor) -> Any:
            y = torch.relu(_Reduced.apply(x))
            # One of them is saved for the gradient of the weight, and the other is returned.
            return y.pow(1), y * weight, y.pow(1)

        def gradients(called: Function) -> Tensors:
            x, weight = self.x.clone().requires_grad_(), torch.linspace(1, 2, COLUMNS).requires_grad_()
            residual, total, again = called(x, weight)
            residual.detach().add_(100)
            again.detach().add_(1000)
            total.sum().backward()
            return [x.grad, weight.grad, residual.detach(), total.detach(), again.detach()]

        wanted = gradients(compiled(function, _plain))
        for have, want in zip(gradients(compiled(function, _rewriting)), wanted, strict=True):
            torch.testing.assert_close(have, want, rtol=0, atol=0)

    def _clones(self, graph: GraphBuilder) -> int:
        return graph.targets().count(aten.clone.default)

    def test_values_that_are_read_only_share_memory(self) -> None:
        graph = GraphBuilder()
        y = graph.all_reduce(graph.input(16, 16))
        first, second = (graph.call(aten.relu.default, y) for _ in range(2))
        graph.rewritten(graph.call(aten.mm.default, first, second), first)
        self.assertEqual(self._clones(graph), 0)

    def test_a_write_in_the_graph_does_not_reach_an_equal_value(self) -> None:
        graph = GraphBuilder()
        x = graph.input(16, 16)
        y = graph.all_reduce(x)
        first, second = (graph.call(aten.relu.default, y) for _ in range(2))
        graph.call(aten.copy_.default, first, x)
        graph.rewritten(graph.call(aten.mm.default, second, x))
        self.assertEqual(self._clones(graph), 1)


class _Reduced(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return reduced(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return reduced(gradient.contiguous())


if __name__ == "__main__":
    unittest.main()
