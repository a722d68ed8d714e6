"""The second half of a tensor-parallel MLP: a row-parallel linear layer, its all_reduce, bias and relu.

    torchrun --nproc-per-node 2 examples/tp_linear.py

cotune makes one program of all_reduce, bias and relu, measures the ways to run it on the real ranks at the first call,
and prints what it found. On the CPU the process group is gloo; with --device cuda every rank has a GPU of its own.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import cotune.torch


class RowParallelLinear(torch.nn.Module):
    """y = relu(sum over ranks of x @ w + b); each rank has its share of the rows of w."""

    def __init__(self, inputs: int, outputs: int, group: dist.ProcessGroup):
        super().__init__()
        self.group = group
        self.weight = torch.nn.Parameter(torch.randn(inputs // group.size(), outputs) / inputs**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(funcol.all_reduce(x @ self.weight, "sum", self.group) + self.bias)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--width", type=int, default=1024)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if arguments.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if arguments.device == "cuda" else "gloo")

    torch.manual_seed(dist.get_rank())
    model = RowParallelLinear(4 * arguments.width, arguments.width, dist.group.WORLD).to(device)
    x = torch.randn(arguments.tokens, 4 * arguments.width // dist.get_world_size(), device=device)

    cotune.torch.enable()  # in front of the first call of the compiled model
    compiled = torch.compile(model)

    with torch.no_grad():
        expected, result = model(x), compiled(x)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, {tuple(result.shape)}: compiled and eager are equal")
        print(cotune.torch.explain(), end="")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
