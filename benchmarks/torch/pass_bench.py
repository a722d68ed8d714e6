"""The time of the graph pass on a graph of 64 collectives in about 740 nodes.

usage: pass_bench.py [COLLECTIVES] [dynamic]

Run it with integration/python on PYTHONPATH. Prints the least and the median time of 20 runs over
copies of one graph, in milliseconds. The graph is a stack of layers as tensor parallelism has
them: a product, an all_reduce, a residual, and a norm written out in bf16.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch._inductor import config
from torch.testing._internal.distributed.fake_pg import FakeStore

from cotune.torch import decisions, graph_pass
from cotune.torch.settings import Settings
from cotune.torch.testing import stand_in

RUNS = 20
COLUMNS = 64


class Captured(Exception):
    """The graph is there, and need not be compiled."""


class Stack(torch.nn.Module):
    """Layers with one all_reduce each."""

    def __init__(self, layers: int, group: str):
        super().__init__()
        self.group = group
        shape = (layers, COLUMNS, COLUMNS)
        self.weights = torch.nn.Parameter(torch.randn(shape, dtype=torch.bfloat16))
        self.gains = torch.nn.Parameter(torch.randn((layers, COLUMNS), dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        residual = x
        for weight, gain in zip(self.weights, self.gains, strict=True):
            residual = funcol.all_reduce(x @ weight, "sum", self.group) + residual
            wide = residual.float()
            wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
            x = wide.to(torch.bfloat16) * gain
        return x


def captured_graph(layers: int, is_dynamic: bool) -> torch.fx.GraphModule:
    """The graph behind Inductor's own passes, before cotune's."""
    graphs = []

    def capture(graph: torch.fx.Graph) -> None:
        graphs.append(graph)
        raise Captured

    config.post_grad_custom_post_pass = capture
    config.force_disable_caches = True
    x = torch.randn((8, COLUMNS), dtype=torch.bfloat16)
    if is_dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    model = torch.compile(Stack(layers, dist.group.WORLD.group_name), fullgraph=True)
    try:
        with torch.no_grad():
            model(x)
    except Exception:
        if not graphs:
            raise
    return graphs[0].owning_module


def main() -> None:
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    stand_in.define()
    module = captured_graph(layers, "dynamic" in sys.argv)
    settings = Settings(export=True)
    times = []
    for _ in range(RUNS):
        graph = torch.fx.Graph()
        graph.output(graph.graph_copy(module.graph, {}))
        begin = time.perf_counter()
        graph_pass.CotunePass(settings)(graph)
        times.append((time.perf_counter() - begin) * 1e3)
    made = decisions.graphs()[-1]
    print(
        f"{made.nodes} nodes, {len(made.programs)} programs, {len(made.left)} left alone: "
        f"least {min(times):.1f} ms, median {statistics.median(times):.1f} ms"
    )


if __name__ == "__main__":
    main()
