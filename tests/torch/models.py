"""Small models with collectives, as tensor-, sequence-, expert- and data-parallel code has them.

Each is an nn.Module whose forward takes `rows` x WIDTH values of this rank. Collectives that train are autograd
functions of functional collectives, as in tensor-parallel libraries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import parallel

WIDTH = 32
# A multiple of every number of ranks.
HIDDEN = 48


def gathered(x, dim, group):
    """all_gather along a dimension. PyTorch 2.11 does not compile all_gather_tensor along others than the first."""
    rows = funcol.all_gather_tensor(x.contiguous(), 0, group)
    return rows if dim == 0 else torch.cat(torch.chunk(rows, group.size()), dim)


class _Reduced(torch.autograd.Function):
    """all_reduce forward, nothing backward: behind a row-parallel linear layer."""

    @staticmethod
    def forward(ctx, x, group):
        return funcol.all_reduce(x, "sum", group)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _Copied(torch.autograd.Function):
    """Nothing forward, all_reduce backward: in front of a column-parallel linear layer."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return funcol.all_reduce(grad.contiguous(), "sum", ctx.group), None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return gathered(x, dim, group)

    @staticmethod
    def backward(ctx, grad):
        return funcol.reduce_scatter_tensor(grad.contiguous(), "sum", ctx.dim, ctx.group), None, None


class _Scattered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return funcol.reduce_scatter_tensor(x.contiguous(), "sum", dim, group)

    @staticmethod
    def backward(ctx, grad):
        return gathered(grad, ctx.dim, ctx.group), None, None


class _Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return funcol.all_to_all_single(x.contiguous(), None, None, group)

    @staticmethod
    def backward(ctx, grad):
        return funcol.all_to_all_single(grad.contiguous(), None, None, ctx.group), None


class _Unsharded(torch.autograd.Function):
    """all_gather of a parameter's shard forward, the mean of its gradients backward."""

    @staticmethod
    def forward(ctx, shard, group):
        ctx.group = group
        return funcol.all_gather_tensor(shard, 0, group)

    @staticmethod
    def backward(ctx, grad):
        if torch.compiler.is_compiling():
            return funcol.reduce_scatter_tensor(grad.contiguous(), "avg", 0, ctx.group), None
        # gloo has no average.
        return funcol.reduce_scatter_tensor(grad.contiguous(), "sum", 0, ctx.group) / ctx.group.size(), None


class Model(nn.Module):
    """The weights of rank `rank` of `world`, which differ where a parallel model's differ.

    has_same_input: all ranks have the same input; if not, each has rows of its own.
    is_one_graph: it compiles without a break.
    """

    dtype = torch.float32
    has_same_input = True
    is_one_graph = True

    def __init__(self, group: dist.ProcessGroup):
        super().__init__()
        self.group = group
        self.world = group.size()
        own = torch.Generator().manual_seed(100 + group.rank())
        common = torch.Generator().manual_seed(7)
        self.w1 = self._weight((WIDTH, HIDDEN), own)
        self.w2 = self._weight((HIDDEN, WIDTH), own)
        self.gate = self._weight((WIDTH, HIDDEN), own)
        self.bias = self._weight((WIDTH,), common)
        self.gamma = nn.Parameter(torch.rand(WIDTH, generator=common).to(self.dtype) + 0.5)
        self.beta = self._weight((WIDTH,), common)

    def _weight(self, sizes, generator):
        return nn.Parameter((torch.randn(sizes, generator=generator) / 6).to(self.dtype))

    def reduced(self, x):
        return _Reduced.apply(x, self.group)

    def copied(self, x):
        return _Copied.apply(x, self.group)


class TpLinear(Model):
    """all_reduce, bias, relu."""

    def forward(self, x):
        hidden = torch.relu(self.copied(x) @ self.w1)
        return torch.relu(self.reduced(hidden @ self.w2) + self.bias)


class ResidualNorm(Model):
    """all_reduce, residual, RMSNorm; the stream goes on beside the norm."""

    def forward(self, x):
        stream = x + self.reduced(self.copied(x) @ self.w1 @ self.w2)
        return F.rms_norm(stream, (WIDTH,), self.gamma, 1e-6), stream


class Bf16Norm(Model):
    """The same in bf16, with the norm written by hand in f32."""

    dtype = torch.bfloat16

    def forward(self, x):
        x = x.to(torch.bfloat16)
        stream = x + self.reduced(self.copied(x) @ self.w1 @ self.w2)
        wide = stream.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (wide * scale).to(torch.bfloat16) * self.gamma, stream


class LlamaBlock(Model):
    """Two all_reduce of a block, each with residual and norm, and the gated MLP between them."""

    def forward(self, x):
        stream = x + self.reduced(self.copied(x) @ self.w1 @ self.w2)
        normed = self.copied(F.rms_norm(stream, (WIDTH,), self.gamma, 1e-5))
        hidden = F.silu(normed @ self.gate) * (normed @ self.w1)
        stream = stream + self.reduced(hidden @ self.w2)
        return F.rms_norm(stream, (WIDTH,), self.gamma, 1e-5)


class SequenceParallel(Model):
    """reduce_scatter, residual, norm on a share of the rows, all_gather."""

    has_same_input = False

    def forward(self, x):
        whole = _Gathered.apply(x, 0, self.group)
        share = _Scattered.apply(torch.relu(whole @ self.w1) @ self.w2, 0, self.group)
        normed = F.layer_norm(x + share, (WIDTH,), self.gamma, self.beta)
        return _Gathered.apply(normed, 0, self.group) @ self.w1


class GatherColumns(Model):
    """all_gather along the last dimension: column-parallel with its output gathered."""

    def forward(self, x):
        return _Gathered.apply(torch.tanh(self.copied(x) @ self.w1), 1, self.group)


class ScatterColumns(Model):
    """reduce_scatter along the last dimension, then a pointwise tail."""

    def forward(self, x):
        return F.gelu(_Scattered.apply(x @ self.w1, 1, self.group))


class MoeDispatch(Model):
    """all_to_all with equal splits, experts, all_to_all back, gates."""

    has_same_input = False

    def forward(self, x):
        gates = torch.sigmoid(x @ self.gate).mean(-1, keepdim=True)
        arrived = _Exchanged.apply(x * gates, self.group)
        done = torch.relu(arrived @ self.w1) @ self.w2
        return _Exchanged.apply(done, self.group) * gates + x


class Broadcast(Model):
    """A broadcast of a row that the first rank decides on."""

    trains = False

    def forward(self, x):
        sent = funcol.broadcast(x * 2, 0, self.group)
        return sent * self.bias - x


class Buckets(Model):
    """Several all_reduce beside each other, as of gradients, with scaling in front and behind."""

    trains = False

    def forward(self, x):
        sums = [funcol.all_reduce(part / self.world, "sum", self.group) for part in (x, x * x, x @ self.w1)]
        return [torch.clamp(each, -1, 1) for each in sums]


class SoftmaxHead(Model):
    """all_reduce, mask, softmax."""

    def forward(self, x):
        scores = self.reduced(self.copied(x) @ self.w1 @ self.w2) * 0.125
        return torch.softmax(torch.where(x > 0, scores, torch.full_like(scores, -1e4)), -1)


class SharedResult(Model):
    """A sum that several places use, some of them before the rest of the work."""

    def forward(self, x):
        total = self.reduced(self.copied(x) @ self.w1 @ self.w2)
        early = total @ self.w1
        late = torch.exp(-torch.abs(total)) + torch.maximum(total, x)
        return early, late, total.sum(-1, keepdim=True)


class SimpleFsdp(Model):
    """Data parallel with sharded parameters: each is gathered where it is used, as SimpleFSDP does it."""

    has_same_input = False

    def __init__(self, group: dist.ProcessGroup):
        super().__init__(group)
        own = torch.Generator().manual_seed(200 + group.rank())
        self.w1 = self._weight((WIDTH // self.world, HIDDEN), own)
        self.w2 = self._weight((HIDDEN // self.world, WIDTH), own)
        self.gamma = self._weight((WIDTH // self.world,), own)

    def forward(self, x):
        w1, w2, gamma = (_Unsharded.apply(shard, self.group) for shard in (self.w1, self.w2, self.gamma))
        return F.rms_norm(x + torch.relu(x @ w1) @ w2, (WIDTH,), gamma, 1e-6)


class _Mlp(nn.Module):
    """The same weights on all ranks, before they are distributed."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(HIDDEN, WIDTH, bias=False)
        common = torch.Generator().manual_seed(8)
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.randn(weight.shape, generator=common) / 6)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class DtensorTp(Model):
    """Tensor parallel by DTensor: ColwiseParallel and RowwiseParallel, residual, norm. On the CPU only."""

    def __init__(self, group: dist.ProcessGroup):
        super().__init__(group)
        plan = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()}
        self.mlp = parallel.parallelize_module(_Mlp(), DeviceMesh.from_group(group, "cpu"), plan)

    def forward(self, x):
        return F.rms_norm(x + self.mlp(x), (WIDTH,), self.gamma, 1e-6)


class FullyShard(Model):
    """FSDP2, whose collectives run in hooks outside of the graphs, and an all_reduce inside of one. On the CPU only."""

    has_same_input = False
    is_one_graph = False

    def __init__(self, group: dist.ProcessGroup):
        super().__init__(group)
        self.mlp = fully_shard(_Mlp(), mesh=DeviceMesh.from_group(group, "cpu"))

    def forward(self, x):
        return torch.relu(self.reduced(self.mlp(x)) + self.bias)


@dataclasses.dataclass(frozen=True)
class Case:
    """One model; `collectives` is how many of its forward pass cotune takes at least, and `may_leave` says that it leaves
    some alone."""

    name: str
    model: Callable[[dist.ProcessGroup], Model]
    collectives: int
    may_leave: bool = False

    @property
    def trains(self) -> bool:
        return getattr(self.model, "trains", True)

    @property
    def tolerance(self) -> float:
        """bf16 is rounded at other places."""
        return 0.03 if self.model.dtype == torch.bfloat16 else 1e-5


CASES = [
    Case("tp_linear", TpLinear, 1),
    Case("residual_norm", ResidualNorm, 1),
    Case("bf16_norm", Bf16Norm, 1),
    Case("llama_block", LlamaBlock, 2),
    Case("sequence_parallel", SequenceParallel, 3),
    Case("gather_columns", GatherColumns, 1),
    Case("scatter_columns", ScatterColumns, 1),
    Case("moe_dispatch", MoeDispatch, 2),
    Case("broadcast", Broadcast, 1),
    Case("buckets", Buckets, 1, may_leave=True),
    Case("softmax_head", SoftmaxHead, 1),
    Case("shared_result", SharedResult, 1),
    # Inference waits for two of its three gathers behind other work.
    Case("simple_fsdp", SimpleFsdp, 1, may_leave=True),
    Case("dtensor_tp", DtensorTp, 1),
    Case("fully_shard", FullyShard, 1),
]


def inputs(rows: int, rank: int, replicated: bool, seed: int = 0) -> torch.Tensor:
    """rows x WIDTH values; the same on all ranks where the model is tensor-parallel."""
    generator = torch.Generator().manual_seed(100_000 * seed + 1000 * rows + (0 if replicated else rank))
    return torch.randn(rows, WIDTH, generator=generator)
