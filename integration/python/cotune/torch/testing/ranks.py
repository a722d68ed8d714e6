"""Runs a function in several processes that form a gloo group over a file."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def _enter(
    rank: int, world_size: int, path: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(path, "store"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    try:
        result = function(rank, world_size, *arguments)
    except Exception:
        result = traceback.format_exc()
    torch.save(result, os.path.join(path, f"result{rank}"))
    dist.barrier()
    dist.destroy_process_group()


def run_on_ranks(world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(rank, world_size, *arguments)` returns on each rank.

    The function is one of a module. An exception is returned as the text of its traceback.
    """
    with tempfile.TemporaryDirectory() as path:
        multiprocessing.spawn(
            _enter, args=(world_size, path, function, arguments), nprocs=world_size
        )
        results = [os.path.join(path, f"result{rank}") for rank in range(world_size)]
        return [torch.load(each, weights_only=False) for each in results]
