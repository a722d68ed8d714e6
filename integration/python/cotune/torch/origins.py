"""Finds the function of the user that a program belongs to.

The nodes of a graph have stack traces while it is compiled. For a graph that comes out of a cache, the function is found on the
call stack when the ranks first meet for one of its programs.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any

import torch

from cotune.torch import compat

_FRAME = re.compile(r'^ *File "(.*)", line (\d+), in (.*)$', re.MULTILINE)
_TORCH = os.path.dirname(torch.__file__) + os.sep
# Modules whose frames are not the user's. Inductor's generated modules have names in torch, too.
_NOT_OF_USERS = ("torch", "cotune")
_STARTS_OF_BACKWARD = {"backward", "grad", "_engine_run_backward"}


@dataclasses.dataclass(frozen=True)
class Origin:
    """A line of a function.

    Attributes:
      function: the name of the function, with its class if that is known.
      file: the path of its file, as Python has it.
      line: the line of the collective; for a graph out of a cache the line that the function was running.
      is_backward: true if the program belongs to the backward graph.
      is_caller: true if the function has called backward(), and is named because the forward function is not known.
    """

    function: str
    file: str
    line: int
    is_backward: bool = False
    is_caller: bool = False

    def __str__(self) -> str:
        place = f"{self.function} ({_short(self.file)}:{self.line})"
        if self.is_caller:
            return f"backward() in {place}"
        return f"the backward of {place}" if self.is_backward else place


def _short(file: str) -> str:
    """Returns a path within the current folder relative to it, and any other path as it is."""
    try:
        inside = os.path.relpath(file)
    except ValueError:
        return file
    return file if inside.startswith(os.pardir) else inside


def of_nodes(nodes: Iterable[Any]) -> Origin | None:
    """Returns the user's innermost line in the stack trace of the first node that has a trace; None if no node has one."""
    return _of_nodes(nodes, -1)


def of_graph(nodes: Iterable[Any]) -> Origin | None:
    """Returns the user's outermost line in the stack trace of the first node that has a trace: the compiled function; or None."""
    return _of_nodes(nodes, 0)


def _of_nodes(nodes: Iterable[Any], place: int) -> Origin | None:
    for node in nodes:
        frames = _FRAME.findall(node.meta.get("stack_trace") or "")
        if frames:
            users = [frame for frame in frames if not frame[0].startswith(_TORCH)]
            file, line, name = (users or frames)[place]
            return Origin(_qualified(file, int(line), name), file, int(line), _is_backward(node))
    return None


def _is_backward(node: Any) -> bool:
    return bool(node.meta.get("autograd_backward")) or node.meta.get("partitioner_tag") == "is_backward"


def _qualified(file: str, line: int, name: str) -> str:
    """Returns the name of a function, with its class if Dynamo has its code."""
    found = [
        code
        for code in compat.traced_code()
        if (code.co_filename, code.co_name) == (file, name) and code.co_firstlineno <= line
    ]
    return _name_of(max(found, key=lambda code: code.co_firstlineno)) if found else name


def _name_of(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)  # Python 3.10 has no qualified names of code


def of_caller() -> Origin | None:
    """Returns the user's function that has called the operator that runs now; None if the stack of this thread has none."""
    frame, is_backward = sys._getframe(1), False
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        code = frame.f_code
        is_users = module.partition(".")[0] not in _NOT_OF_USERS and not code.co_filename.startswith(_TORCH)
        if is_users:
            return Origin(_name_of(code), code.co_filename, frame.f_lineno, is_backward, is_backward)
        is_backward |= module.startswith("torch") and code.co_name in _STARTS_OF_BACKWARD
        frame = frame.f_back
    return None
