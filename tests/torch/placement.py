"""Where a rank under torchrun works: on the CPU, on a GPU of its own, or on one that several ranks share."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os

# NVLink multicast is never used. Set before CUDA and NCCL start.
NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}


@dataclasses.dataclass(frozen=True)
class Placement:
    """device: "cpu" or "cuda"; shared_gpus: how many GPUs the ranks share in turns; 0: each has one of its own."""

    device: str
    shared_gpus: int

    @property
    def backend(self) -> str:
        """Of the process group. The CPU is always there: eager runs on it say what is right."""
        if self.device == "cpu":
            return "gloo"
        # NCCL refuses two ranks on one GPU.
        return "cpu:gloo,cuda:gloo" if self.shared_gpus else "cpu:gloo,cuda:nccl"

    def begin(self, timeout_s: float | None = None):
        """Chooses the GPU and initialises torch.distributed; gives the torch.device. `timeout_s`: of the process group."""
        timeout = None if timeout_s is None else datetime.timedelta(seconds=timeout_s)
        os.environ.update(NO_MULTICAST)
        local = int(os.environ["LOCAL_RANK"])
        if self.shared_gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.shared_gpus)))
            os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[local % self.shared_gpus]
            os.environ["COTUNE_SHARED_GPUS"] = "1"
        import torch
        import torch.distributed as dist

        if self.device == "cpu":
            dist.init_process_group(self.backend, timeout=timeout)
            return torch.device("cpu")
        device = torch.device("cuda", 0 if self.shared_gpus else local)
        torch.cuda.set_device(device)
        dist.init_process_group(self.backend, timeout=timeout)
        return device


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shared-gpus", type=int, default=0, help="how many GPUs the ranks share, in turns")


def placement_of(arguments: argparse.Namespace) -> Placement:
    return Placement(arguments.device, arguments.shared_gpus)
