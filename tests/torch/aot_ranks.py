"""Ahead of time: exports a model in one process, and runs it in others, which compile nothing.

usage: aot_ranks.py export PACKAGE WORLD_SIZE   (one process, with a fake group of so many ranks)
       torchrun --nproc-per-node N aot_ranks.py run PACKAGE

`run` prints one JSON object on rank 0: {"errors": what differs on which rank, "plain": whether the group is, "graphs": how
many graphs were compiled}.
"""

from __future__ import annotations

import json
import sys

import models
import torch
import torch.distributed as dist

import cotune.torch


def export(package: str, world_size: int) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    model = models.ResidualNorm(dist.group.WORLD)
    rows = torch.export.Dim("rows", min=2, max=4096)
    with torch.no_grad():
        exported = torch.export.export(model, (models.inputs(24, 0, True),), dynamic_shapes={"x": {0: rows}})
    torch._inductor.aoti_compile_and_package(
        exported, package_path=package, inductor_configs=cotune.torch.options(export=True)
    )
    taken = [program for graph in cotune.torch.explain_data() for program in graph["programs"]]
    assert len(taken) == 1, cotune.torch.explain()


def difference(model: torch.nn.Module, run, rows: int) -> str:
    x = models.inputs(rows, dist.get_rank(), True)
    with torch.no_grad():
        pairs = zip(run(x), model(x), strict=True)
        return "" if all(torch.allclose(one, other, rtol=1e-5, atol=1e-5) for one, other in pairs) else f"{rows} rows differ"


def run(package: str) -> None:
    dist.init_process_group("gloo")
    cotune.torch.enable()
    # The weights are those that were exported: those of rank 0, on all ranks.
    model = models.ResidualNorm(dist.group.WORLD)
    for weight in model.parameters():
        dist.broadcast(weight.data, 0)
    compiled = torch._inductor.aoti_load_package(package)
    errors = [None] * dist.get_world_size()
    # 33 and 128 rows are other sizes than the exported one.
    dist.all_gather_object(errors, [error for rows in (24, 33, 128) if (error := difference(model, compiled, rows))])
    if dist.get_rank() == 0:
        plain = cotune.torch.group_of(dist.group.WORLD.group_name) is None
        compiled = [graph for graph in cotune.torch.explain_data() if not graph["is_from_cache"]]
        print(json.dumps({"errors": errors, "plain": plain, "graphs": len(compiled)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "export":
        export(sys.argv[2], int(sys.argv[3]))
    else:
        run(sys.argv[2])
