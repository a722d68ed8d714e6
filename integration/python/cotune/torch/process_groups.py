"""Private names of torch that concern process groups, each in a function that probes for it, as in compat.py."""

from __future__ import annotations

import datetime
from typing import Any

import torch

from cotune.torch.compat import fetch, need, torch_version


def known_groups() -> dict[str, tuple[int, bool]] | None:
    """Returns, by the name of each process group of this process, its size and whether its backend is fake.

    It returns None if this torch keeps no list of process groups.
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
    """Returns the process groups of this process by their names; an empty dict if this torch keeps no list of them."""
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
    """Returns the rank of each member in the default group, or its rank in the group if that is not known."""
    try:
        return list(torch.distributed.get_process_group_ranks(group))
    except (RuntimeError, ValueError, KeyError):
        return list(range(group.size()))


def group_backend(group: Any) -> str:
    """Returns the name of a group's backend: "gloo", "nccl", "fake", "cpu:gloo,cuda:nccl"; "unknown" if torch does not know it."""
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


# The first version of torch whose Gloo computes averages.
_GLOO_AVERAGES = (2, 13)


def averages(group: Any, device_type: str) -> bool:
    """Returns true if the group's backend for that kind of device computes averages of floating-point numbers."""
    if group is None:
        return False
    if device_type == "cuda":
        return runs_cuda_by_nccl(group)
    name = group_backend(group)
    return (name == "gloo" or "cpu:gloo" in name) and torch_version() >= _GLOO_AVERAGES


def backend_to_repeat(group: Any) -> str:
    """Returns the name of the backend with which torch makes another group like this one."""
    try:
        name = str(torch.distributed.get_backend(group))
    except (RuntimeError, ValueError):
        name = "undefined"
    # A group with one backend for each kind of device has no single one.
    return group_backend(group) if name == "undefined" else name


def make_group(ranks: list[int], rank: int, backend: str, store: Any, name: str, timeout_s: float) -> Any:
    """Makes a process group with a name that the caller chooses. Collective over `ranks`, the global ranks of its members.

    new_group() cannot be used, because it derives the name from the number of process groups of the process, which may differ
    between the ranks.
    """
    module = need("torch.distributed.distributed_c10d")
    make = need("torch.distributed.distributed_c10d", "_new_process_group_helper")
    timeout = datetime.timedelta(seconds=timeout_s)
    options = _options_without_split(timeout) if "nccl" in backend else None
    group, _ = make(len(ranks), rank, ranks, backend, store, name, options, timeout=timeout)
    module._world.pg_group_ranks[group] = {each: place for place, each in enumerate(ranks)}
    return group


def _options_without_split(timeout: datetime.timedelta) -> Any:
    """Returns options of NCCL with which a process group gets a separate communicator; None if this torch has no NCCL.

    If the default group is bound to a GPU (init_process_group(device_id=...)), PyTorch splits the communicator of a new group from
    that of the default group. Such a split needs all ranks of the default group, but only those of the new group make it here.
    Besides, an abort of one communicator must not affect the other.
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
    """Aborts the collectives of a group on GPUs that run on this rank. Afterwards the group can only be destroyed."""
    need("torch.distributed", "ProcessGroup", "abort")(group)


def collectives_made(group: Any) -> int | None:
    """Returns the number of collectives that the backends of a group have run; None if no backend counts them."""
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
    """Returns the timeout of the group's collectives on a device, in seconds."""
    kind = torch.device("cpu" if device < 0 else f"cuda:{device}")
    try:
        return group._get_backend(kind).options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        default = fetch("torch.distributed.distributed_c10d", "default_pg_timeout")
        return default.total_seconds() if default is not None else 1800.0


def set_host_timeout_s(group: Any, timeout_s: float) -> None:
    """Sets the timeout of collectives on host memory that begin from now on, if the group's backend has one.

    NCCL's timeout does not change, because PyTorch ends the process after it.
    """
    try:
        backend = group._get_backend(torch.device("cpu"))
    except (AttributeError, RuntimeError):
        return
    setter = getattr(backend, "_set_default_timeout", None) or getattr(backend, "set_timeout", None)
    if setter is not None:
        setter(datetime.timedelta(seconds=timeout_s))


def object_of_group_life(group: Any) -> Any:
    """Returns an object that is deleted when the group is destroyed, because torch's own list holds the only reference to it.

    If this torch keeps no such list, it returns the group, which is deleted with the last reference.
    """
    world = fetch("torch.distributed.distributed_c10d", "_world")
    try:
        return world.pg_map[group][1]
    except (AttributeError, KeyError, TypeError, IndexError):
        return group
