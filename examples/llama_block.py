"""A tensor-parallel Llama block: attention and MLP, each with its all_reduce, residual and RMSNorm.

    torchrun --nproc-per-node 2 examples/llama_block.py

The two all_reduce and what stands behind each of them become two programs. Calls of another number of tokens run by
the same compiled graph (dynamic=True), and each size by what was fastest for it.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F

import cotune.torch


class LlamaBlock(torch.nn.Module):
    """One block behind its attention scores: each rank has its share of the heads and of the MLP."""

    def __init__(self, width: int, group: dist.ProcessGroup):
        super().__init__()
        self.group, self.width = group, width
        share = width // group.size()

        def weight(*sizes: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.randn(*sizes) / sizes[0] ** 0.5)

        self.attention_out = weight(share, width)
        self.gate, self.up = weight(width, 2 * share), weight(width, 2 * share)
        self.down = weight(2 * share, width)
        self.norm_mlp = torch.nn.Parameter(torch.ones(width))
        self.norm_next = torch.nn.Parameter(torch.ones(width))

    def forward(self, heads: torch.Tensor, stream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """heads: tokens x (width / ranks); stream: tokens x width, the same on all ranks."""
        stream = stream + funcol.all_reduce(heads @ self.attention_out, "sum", self.group)
        x = F.rms_norm(stream, (self.width,), self.norm_mlp, 1e-5)
        hidden = F.silu(x @ self.gate) * (x @ self.up)
        stream = stream + funcol.all_reduce(hidden @ self.down, "sum", self.group)
        return F.rms_norm(stream, (self.width,), self.norm_next, 1e-5), stream


def inputs(block: LlamaBlock, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Heads of this rank, and a stream that all ranks have."""
    like = {"dtype": block.gate.dtype, "device": block.gate.device}
    torch.manual_seed(tokens)
    stream = torch.randn(tokens, block.width, **like)
    torch.manual_seed(1000 * dist.get_rank() + tokens)
    return torch.randn(tokens, block.attention_out.shape[0], **like), stream


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if arguments.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if arguments.device == "cuda" else "gloo")

    torch.manual_seed(dist.get_rank())
    block = LlamaBlock(arguments.width, dist.group.WORLD)
    block = block.to(device, getattr(torch, arguments.dtype))

    cotune.torch.enable()  # in front of the first call of the compiled model
    compiled = torch.compile(block, dynamic=True)

    tolerance = 1e-3 if arguments.dtype == "float32" else 0.1
    with torch.no_grad():
        for tokens in (64, 2, 300):
            given = inputs(block, tokens)
            for result, expected in zip(compiled(*given), block(*given), strict=True):
                torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
            if dist.get_rank() == 0:
                print(f"{dist.get_world_size()} ranks, {tokens} tokens: compiled and eager are equal")
    if dist.get_rank() == 0:
        print(cotune.torch.explain(), end="")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
