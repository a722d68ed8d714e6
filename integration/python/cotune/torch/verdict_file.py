"""The file of verdicts, which keeps the results of races in Python for later processes on this machine.

It is next to the tuned database, in JSON: {"version": 1, "verdicts": {DIGEST: verdict}}. The digest covers all facts that a
verdict depends on, so that another version of PyTorch or another GPU has separate verdicts. Rank 0 of a process group reads and
writes the file. A file that cannot be read counts as empty: its verdicts are measured again.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import tempfile
from collections.abc import Iterable
from typing import Any

import torch

import cotune
from cotune.torch import settings_file
from cotune.torch.log import log

_VERSION = 1
_VERDICTS_MAX = 4096


def path_of(database: str | os.PathLike[str] | None) -> str:
    """Returns the path of the file that belongs to a tuned database; "" for none. `database` is the option of that name."""
    if database is None:
        return ""
    outside = settings_file.given("database")
    named = os.fspath(database) or (outside.value if outside else "")
    if named:
        return f"{named}.torch.json"
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not folder.startswith("/"):
        home = os.environ.get("HOME", "")
        folder = f"{home}/.cache" if home.startswith("/") else ""
    return f"{folder}/cotune/verdicts.torch.json" if folder else ""


@functools.cache
def _machine(device: int) -> str:
    """Returns the processor and the versions on which a verdict depends, as text. Texts of the host and of a GPU always differ."""
    versions = f"torch {torch.__version__} cotune {cotune.__version__}"
    if device < 0:
        return f"cpu {_processor()} {os.cpu_count()} {versions}"
    name, capability = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
    nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else ""
    return f"cuda {name} {capability} cuda {torch.version.cuda} nccl {nccl} triton {_version_of('triton')} {versions}"


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor(cpuinfo: str = "/proc/cpuinfo") -> str:
    """Returns the model of the processor."""
    try:
        lines = pathlib.Path(cpuinfo).read_text().splitlines()
    except OSError:
        lines = []
    model = next((each.partition(":")[2].strip() for each in lines if each.startswith("model name")), "")
    return model or platform.processor() or platform.machine()


def digest(text: str, rows: int, ranks: int, device: int, backend: str, choices: str, options: str) -> str:
    """Returns the name of a verdict, a digest of all facts that it depends on.

    Args:
      text: identifies the program, the operator, or the graph and the collectives that it would give back.
      rows: the row count of a program, or 0.
      ranks: the size of the process group.
      device: the number of the GPU; -1 for the host.
      backend: the backend of the process group.
      choices: the choices by which cotune ran in the race.
      options: the options of Inductor that change generated code.
    """
    threads = torch.get_num_threads() if device < 0 else 0
    parts = (text, rows, ranks, _machine(device), threads, backend, choices, options)
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def read(path: str, digests: Iterable[str]) -> dict[str, Any]:
    """Returns those of the named verdicts that the file has."""
    verdicts = _content(path)
    return {each: verdicts[each] for each in digests if each in verdicts}


def write(path: str, verdicts: dict[str, dict[str, Any]]) -> None:
    """Adds verdicts to the file. A file that cannot be written is no error: the next process measures again."""
    try:
        folder = pathlib.Path(path).parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(f"{path}.lock"):
            all_verdicts = _content(path) | verdicts
            kept = dict(list(all_verdicts.items())[-_VERDICTS_MAX:])
            with tempfile.NamedTemporaryFile("w", dir=folder, prefix=f"{pathlib.Path(path).name}.", delete=False) as file:
                json.dump({"version": _VERSION, "verdicts": kept}, file, indent=1)
            os.replace(file.name, path)
    except OSError as failure:
        log.info("the verdicts about PyTorch's form are not kept: %s", failure)


@contextlib.contextmanager
def _locked(path: str) -> Any:
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _content(path: str) -> dict[str, Any]:
    try:
        found = json.loads(pathlib.Path(path).read_text())
        is_ours = found["version"] == _VERSION and isinstance(found["verdicts"], dict)
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    return found["verdicts"] if is_ours else {}
