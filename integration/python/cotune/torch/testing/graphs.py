"""Graphs as Inductor gives them to passes, captured in one process with a fake group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import fx
from torch._inductor import config
from torch.testing._internal.distributed.fake_pg import FakeStore

from cotune.torch import decisions, graph_pass, rewriting
from cotune.torch.collectives import GroupFacts
from cotune.torch.settings import Settings
from cotune.torch.testing import stand_in

aten = torch.ops.aten
c10d = torch.ops._c10d_functional


def fake_group() -> str:
    """The name of a group of two ranks that moves nothing."""
    stand_in.define()
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    return dist.group.WORLD.group_name


def explained(function: Callable[..., Any], *tensors: Any, **options: Any) -> dict[str, Any]:
    """Compiles and runs a function. Returns the decisions about its one graph."""
    fake_group()
    decisions.clear()
    torch._dynamo.reset()
    settings = Settings(**{"export": True, **options})
    passes = graph_pass.CotunePass(settings)
    with config.patch(post_grad_custom_post_pass=passes, force_disable_caches=True):
        torch.compile(function, fullgraph=True)(*tensors)
    return decisions.explain_data()[0]


def lines_of(decision: decisions.GraphDecision) -> list[list[str]]:
    """The lines of each program that was decided, without its name."""
    return [each.text.splitlines()[1:] for each in decision.programs]


class GraphBuilder:
    """Makes a graph node by node; the value of each node is what its operator gives on "meta"."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.graph.owning_module = torch.nn.Module()
        self._mode = torch._subclasses.FakeTensorMode()

    def input(self, *shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> fx.Node:
        node = self.graph.placeholder("x")
        with self._mode:
            node.meta["val"] = torch.empty(shape, dtype=dtype, device=device)
        return node

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        values = fx.node.map_arg((args, kwargs), lambda each: each.meta["val"])
        with self._mode:
            node.meta["val"] = target(*values[0], **values[1])
        return node

    def all_reduce(self, x: fx.Node, group: Any = "0") -> fx.Node:
        """An all_reduce and its wait; returns the wait."""
        node = self.graph.call_function(c10d.all_reduce.default, (x, "sum", group))
        node.meta["val"] = x.meta["val"]
        return self.wait(node)

    def wait(self, work: fx.Node) -> fx.Node:
        node = self.graph.call_function(c10d.wait_tensor.default, (work,))
        node.meta["val"] = work.meta["val"]
        return node

    def rewritten(
        self, *outputs: fx.Node, reason: str = "", **options: bool
    ) -> decisions.GraphDecision:
        """Ends the graph, rewrites it, checks it, and returns what was decided."""
        stand_in.define()
        self.graph.output(outputs)
        decisions.clear()
        facts = GroupFacts(world_size=2, reason=reason)
        rewriting.rewrite(self.graph, Settings(**options), lambda name: facts)
        self.graph.lint()
        return decisions.graphs()[0]

    def programs(self) -> list[fx.Node]:
        """The calls of programs, in order."""
        return [node for node in self.graph.nodes if "program" in node.kwargs]

    def targets(self) -> list[Any]:
        """The operators of the graph's calls, in order."""
        return [node.target for node in self.graph.nodes if node.op == "call_function"]


