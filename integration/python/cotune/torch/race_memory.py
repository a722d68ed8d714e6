"""Limits the memory that the operands of a race may take, so that no rank of a host runs out of memory.

The ranks of a host make their operands at the same time. Each may take a part of its share of the free memory. On the CPU a
control group (cgroup) may allow a process less than the machine has: the kernel kills a process beyond that limit.
"""

from __future__ import annotations

import os
import pathlib

import torch

# Operands may take a rank's share divided by this. Results and temporary values of a graph need the rest.
_PART = 4
_ROOT = pathlib.Path("/sys/fs/cgroup")
# By the version of the cgroup interface: the files of the limit and of the use, and the part of the use that the kernel can free.
_FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def check(need: int, device: torch.device, ranks: int) -> None:
    """Raises MemoryError if a rank may not make operands of `need` bytes on a device. `ranks`: the size of the process group."""
    may = allowed_bytes(device, ranks)
    if need > may:
        raise MemoryError(f"its operands have {need >> 20} MB, and a rank may use {may >> 20} MB of the free memory")


def allowed_bytes(device: torch.device, ranks: int) -> int:
    """Returns the bytes that this rank may use for operands on a device. `ranks`: the size of the process group."""
    several = ranks_of_host(ranks)
    if device.type == "cuda":
        several = -(-several // max(1, torch.cuda.device_count()))
        return torch.cuda.mem_get_info(device)[0] // several // _PART
    return free_host_bytes() // several // _PART


def ranks_of_host(ranks: int) -> int:
    """Returns the number of ranks that share the memory of this host. The launcher's number includes other process groups."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(ranks, int(local) if local.isdecimal() else 1, 1)


def free_host_bytes(proc: pathlib.Path = pathlib.Path("/proc"), root: pathlib.Path = _ROOT) -> int:
    """Returns the bytes that are free on this machine and in each control group of this process. Tests give the arguments."""
    lines = (proc / "meminfo").read_text().splitlines()
    # MemAvailable includes the memory of caches, which counts as used and which the kernel can free.
    free = next(int(each.split()[1]) * 1024 for each in lines if each.startswith("MemAvailable:"))
    for version, folder in _control_groups(proc, root):
        left = _left_in(folder, *_FILES[version])
        free = free if left is None else min(free, left)
    return max(0, free)


def _control_groups(proc: pathlib.Path, root: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    """Returns the folders of this process's memory control groups and of all groups that contain them, with their versions."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        version, top = (1, root / "memory") if controllers else (2, root)
        # In a container the path may be one of the host, whose folders are missing; the top is the container's group then.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        found += [(version, top.joinpath(*parts[:count])) for count in range(len(parts) + 1)]
    return found


def _left_in(folder: pathlib.Path, limit_file: str, used_file: str, cache_word: str) -> int | None:
    """Returns the bytes that a control group may still use; None if it has no limit, or is not visible here."""
    try:
        limit = int((folder / limit_file).read_text())
        used = int((folder / used_file).read_text())
    except (OSError, ValueError):
        return None  # "max" stands for no limit
    try:
        words = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        used -= int(words.get(cache_word, 0))
    except (OSError, ValueError):
        pass
    return limit - used
