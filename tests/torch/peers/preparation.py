"""Prepares PyTorch in each process of the tests before they are imported, by the variables of its environment.

COTUNE_PEERS_FOLDER: the tests of this folder get placeholders for names that the installed version lacks. COTUNE_PEERS_ENABLES=1:
cotune.torch.enable() comes before the tests, and each program that it takes from a graph adds a byte to the file
COTUNE_PEERS_PROGRAMS. COTUNE_PEERS_LIFTS=1: tests that ask for GPUs run on the CPU, with gloo: the
conditions that look for GPUs are off, tests that ask for the accelerator or for CUDA get the CPU.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import sources


def _asks_as_test() -> bool:
    """Returns true if the caller of the caller is a test, and not PyTorch itself, which has no accelerator here."""
    name = sys._getframe(2).f_globals.get("__name__", "")
    return name.startswith("torch.testing.") or not name.startswith("torch.")


def _answer_tests(module: Any, name: str, answer: Callable[..., Any]) -> None:
    """Replaces a function for tests alone."""
    real = getattr(module, name)

    def function(*arguments, **named):
        return answer() if _asks_as_test() else real(*arguments, **named)

    setattr(module, name, function)


def _lift_conditions() -> None:
    """PyTorch's tests take the device from torch.accelerator, and the backend from the device."""
    import torch
    from torch.testing._internal import common_cuda, common_distributed, inductor_utils

    def takes_all(*_args, **_kwargs):
        return lambda function: function

    for name in ("requires_nccl", "requires_nccl_version", "requires_accelerator_dist_backend", "skip_if_lt_x_gpu"):
        setattr(common_distributed, name, takes_all)
    common_cuda.SM80OrLater = True
    inductor_utils.HAS_GPU = True
    inductor_utils.GPU_TYPE = "cpu"
    answers = {
        "is_available": True, "current_accelerator": torch.device("cpu"), "device_count": 8, "current_device_index": 0,
        "set_device_index": None, "synchronize": None,
    }  # fmt: skip
    for name, answer in answers.items():
        _answer_tests(torch.accelerator, name, lambda answer=answer: answer)
    for name, answer in {"set_device": None, "synchronize": None, "current_device": 0}.items():
        _answer_tests(torch.cuda, name, lambda answer=answer: answer)


def _count_programs(path: pathlib.Path) -> None:
    """Adds a byte to the file for each program: all processes of a test write to it."""
    from cotune.torch import decisions

    real = decisions.record

    def record(nodes: int, seconds: float, programs: list, *arguments: Any, **named: Any) -> None:
        real(nodes, seconds, programs, *arguments, **named)
        with path.open("ab") as file:
            file.write(b"p" * len(programs))

    decisions.record = record


def prepare() -> None:
    lifts = os.environ.get("COTUNE_PEERS_LIFTS") == "1"
    sources.change_imports(pathlib.Path(os.environ["COTUNE_PEERS_FOLDER"]), lifts)
    if lifts:
        _lift_conditions()
    if os.environ.get("COTUNE_PEERS_ENABLES") == "1":
        import cotune.torch

        cotune.torch.enable(tables=False)
        _count_programs(pathlib.Path(os.environ["COTUNE_PEERS_PROGRAMS"]))
