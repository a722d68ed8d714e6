"""A custom operator that is an all_reduce, with three Python functions that race for it: the library's, a ring and a tree.

    torchrun --nproc-per-node 2 examples/custom_all_reduce.py

The operator is declared, so that cotune knows what its result has to be. At the first call of the compiled function the
functions are checked and measured on all ranks beside the choices of cotune's backends, and the fastest runs.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group as process_group

import cotune.torch
from cotune.torch import CustomOpConfig


@torch.library.custom_op("example::all_reduce", mutates_args=())
def all_reduce(x: torch.Tensor, group_name: str) -> torch.Tensor:
    result = x.clone()
    dist.all_reduce(result, group=process_group(group_name))
    return result


@all_reduce.register_fake
def _(x: torch.Tensor, group_name: str) -> torch.Tensor:
    return torch.empty_like(x)


def library(x: torch.Tensor, group_name: str) -> torch.Tensor:
    """By the library of the process group: NCCL or Gloo. The function may write to its operand."""
    dist.all_reduce(x, group=process_group(group_name))
    return x


def ring(x: torch.Tensor, group_name: str, chunk_size: int) -> torch.Tensor:
    """Each chunk goes around the ring twice: the first time it is summed, the second time all ranks get the sum."""
    group = process_group(group_name)
    rank, size = group.rank(), group.size()
    after, before = (dist.get_global_rank(group, (rank + step) % size) for step in (1, -1))
    for chunk in x.split(chunk_size * size):
        shares = list(chunk.tensor_split(size))
        for step in range(2 * (size - 1)):
            send, receive = shares[(rank - step) % size], shares[(rank - step - 1) % size]
            arrived = torch.empty_like(receive)
            calls = [dist.P2POp(dist.isend, send, after, group), dist.P2POp(dist.irecv, arrived, before, group)]
            for call in dist.batch_isend_irecv(calls):
                call.wait()
            if step < size - 1:
                receive += arrived
            else:
                receive.copy_(arrived)
    return x


def tree(x: torch.Tensor, group_name: str) -> torch.Tensor:
    """Sums go up a binary tree to rank 0, and the result comes down again."""
    group = process_group(group_name)
    rank, size = group.rank(), group.size()
    peers = [dist.get_global_rank(group, each) for each in range(size)]
    distance = 1
    while distance < size and rank % (2 * distance) == 0:
        if rank + distance < size:
            arrived = torch.empty_like(x)
            dist.recv(arrived, peers[rank + distance], group)
            x += arrived
        distance *= 2
    if rank != 0:
        dist.send(x, peers[rank - distance], group)
        dist.recv(x, peers[rank - distance], group)
    while distance > 1:
        distance //= 2
        if rank + distance < size:
            dist.send(x, peers[rank + distance], group)
    return x


def layer(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return all_reduce(x, dist.group.WORLD.group_name) + bias


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--columns", type=int, default=1024)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if arguments.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if arguments.device == "cuda" else "gloo")

    cotune.torch.declare_collective("example::all_reduce", kind="all_reduce", tensor="x", group="group_name")
    cotune.torch.register_custom_op_autotuning(
        all_reduce,
        configs=[
            CustomOpConfig(library),
            CustomOpConfig(ring, chunk_size=4096),
            CustomOpConfig(ring, chunk_size=65536),
            CustomOpConfig(tree),
        ],
    )
    cotune.torch.enable()

    torch.manual_seed(0)
    bias = torch.randn(1, arguments.columns, device=device)
    torch.manual_seed(1 + dist.get_rank())
    x = torch.randn(arguments.rows, arguments.columns, device=device)
    expected, result = layer(x, bias), torch.compile(layer)(x, bias)
    torch.testing.assert_close(result, expected)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, {tuple(result.shape)}: compiled and eager are equal")
        print(cotune.torch.explain(), end="")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
