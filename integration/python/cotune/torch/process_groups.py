"""Private names of torch that concern process groups. A function probes for each, as in compat.py."""

from __future__ import annotations

import datetime
from typing import Any

import torch

from cotune.torch.compat import fetch, need, torch_version


def known_groups() -> dict[str, tuple[int, bool]] | None:
    """The size of each process group of this process by its name, and whether its backend is fake.

    None if this torch keeps no list of them.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return {}
    names = _names_of_groups()
    if names is None:
        return None
    return {
        str(name): (group.size(), "fake" in group_backend(group))
        for group, name in names.copy().items()
    }


def named_process_groups() -> dict[str, Any]:
    """The process groups of this process by their names; none if this torch keeps no list of them."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return {}
    return {str(name): group for group, name in (_names_of_groups() or {}).copy().items()}


def _names_of_groups() -> dict[Any, str] | None:
    """torch's own list of process groups; None if this torch keeps none."""
    return getattr(fetch("torch.distributed.distributed_c10d", "_world"), "pg_names", None)


def resolve_group(name: str) -> Any | None:
    """The process group of that name; None if there is none."""
    resolve = fetch("torch.distributed.distributed_c10d", "_resolve_process_group")
    if resolve is None or not isinstance(name, str):
        return None
    try:
        return resolve(name)
    except (RuntimeError, ValueError, KeyError, TypeError):
        return None


def global_rank() -> int:
    """The rank of this process; 0 if torch.distributed is not initialised."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 0
    return torch.distributed.get_rank()


def global_ranks(group: Any) -> list[int]:
    """The rank of each member in the default group; its rank in the group if that is not known."""
    try:
        return list(torch.distributed.get_process_group_ranks(group))
    except (RuntimeError, ValueError, KeyError):
        return list(range(group.size()))


def group_backend(group: Any) -> str:
    """The name of a group's backend, as "gloo", "nccl", "fake" or "cpu:gloo,cuda:nccl"."""
    try:
        return str(torch.distributed.get_backend_config(group))
    except (RuntimeError, ValueError, AttributeError, TypeError):
        pass
    try:
        return str(torch.distributed.get_backend(group))
    except (RuntimeError, ValueError):
        return "unknown"


def runs_cuda_by_nccl(group: Any) -> bool:
    """Returns true if the group's collectives on CUDA memory run by NCCL."""
    name = group_backend(group)
    return name == "nccl" or "cuda:nccl" in name


# The first torch whose Gloo gives averages.
_GLOO_AVERAGES = (2, 13)


def averages(group: Any, device_type: str) -> bool:
    """Returns true if the group's collectives on memory of that kind of device give averages of floating-point numbers."""
    if group is None:
        return False
    if device_type == "cuda":
        return runs_cuda_by_nccl(group)
    name = group_backend(group)
    return (name == "gloo" or "cpu:gloo" in name) and torch_version() >= _GLOO_AVERAGES


def backend_to_repeat(group: Any) -> str:
    """The backend by which new_group() makes another group like this one."""
    try:
        name = str(torch.distributed.get_backend(group))
    except (RuntimeError, ValueError):
        name = "undefined"
    # A group with one backend for each kind of device has no single one.
    return group_backend(group) if name == "undefined" else name


def make_group(ranks: list[int], rank: int, backend: str, store: Any, name: str, timeout_s: float) -> Any:
    """Collective over the global ranks `ranks`: a process group with a name that the caller chooses, equal on all of them.

    new_group() chooses the name by the number of process groups that the process has, which may differ from rank to rank.
    """
    module = need("torch.distributed.distributed_c10d")
    make = need("torch.distributed.distributed_c10d", "_new_process_group_helper")
    timeout = datetime.timedelta(seconds=timeout_s)
    options = _options_without_split(timeout) if "nccl" in backend else None
    group, _ = make(len(ranks), rank, ranks, backend, store, name, options, timeout=timeout)
    module._world.pg_group_ranks[group] = {each: place for place, each in enumerate(ranks)}
    return group


def _options_without_split(timeout: datetime.timedelta) -> Any:
    """Options of NCCL with which a process group has a communicator of its own; None if this torch has no NCCL.

    If the default group is bound to a GPU (init_process_group(device_id=...)), PyTorch splits the communicator of a new group from
    that of the default group. All ranks of the default group have to come to such a split, and here only those of the new group
    do. Besides, the end of one communicator must not reach the other.
    """
    options = getattr(fetch("torch.distributed", "ProcessGroupNCCL"), "Options", None)
    if options is None:
        return None

    class _Unsplit(options):
        split_from = property(lambda self: None, lambda self, source: None)

    made = _Unsplit()
    made._timeout = timeout
    return made


def abort_collectives(group: Any) -> None:
    """Ends the collectives of a group on GPUs that run on this rank. The group cannot be used any more.

    destroy_process_group() takes it down afterwards.
    """
    need("torch.distributed", "ProcessGroup", "abort")(group)


def collectives_made(group: Any) -> int | None:
    """The number of collectives that the backends of a group have made; None if none of them counts."""
    backends: list[Any] = []
    for kind in ("cpu", "cuda"):
        try:
            backend = group._get_backend(torch.device(kind))
        except (AttributeError, RuntimeError):
            continue  # the group has no backend for that kind of device
        # One backend may serve both kinds of devices.
        if not any(backend is each for each in backends):
            backends.append(backend)
    numbers = [number for each in (backends or [group]) if (number := _sequence_number(each)) is not None]
    return sum(numbers) if numbers else None


def _sequence_number(of: Any) -> int | None:
    try:
        return int(of._get_sequence_number_for_group())
    except (AttributeError, RuntimeError):
        return None


def group_timeout_s(group: Any, device: int) -> float:
    """The timeout of collectives of the group on a device, in seconds."""
    kind = torch.device("cpu" if device < 0 else f"cuda:{device}")
    try:
        return group._get_backend(kind).options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        default = fetch("torch.distributed.distributed_c10d", "default_pg_timeout")
        return default.total_seconds() if default is not None else 1800.0


def set_host_timeout_s(group: Any, timeout_s: float) -> None:
    """Sets how long collectives on host memory that begin from now on may take, if the group's backend has a timeout.

    The timeout of NCCL's collectives stays, because PyTorch ends the process when it is over.
    """
    try:
        backend = group._get_backend(torch.device("cpu"))
    except (AttributeError, RuntimeError):
        return
    setter = getattr(backend, "_set_default_timeout", None) or getattr(backend, "set_timeout", None)
    if setter is not None:
        setter(datetime.timedelta(seconds=timeout_s))


def object_of_group_life(group: Any) -> Any:
    """An object that goes when the group is destroyed: torch's own entry of it holds the only reference.

    The group itself where this torch keeps no such entry: it goes with the last reference to it.
    """
    world = fetch("torch.distributed.distributed_c10d", "_world")
    try:
        return world.pg_map[group][1]
    except (AttributeError, KeyError, TypeError, IndexError):
        return group
