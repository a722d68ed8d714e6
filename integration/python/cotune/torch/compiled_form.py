"""A function of the user that Inductor compiles, and that runs collectives in a process group which its graph has by a name.

A compiled graph has the name of a process group as a constant, and functions get a new process group after each failure. So
each form has a name of its own, which stands for the process group of its latest call.
"""

from __future__ import annotations

import itertools
import textwrap
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cotune.torch import compat, compiled_functions

_LINE_CHARACTERS_MAX = 160
_numbers = itertools.count()


class NotCompiled(RuntimeError):
    """A function could not be compiled on some rank."""

    is_clear_by_text = True  # without the name of this class


class _NotRunError(Exception):
    """A call for which something was compiled; it ends before that runs."""


class Form:
    """One compiled function of tensors.

    Attributes:
      group_name: the name of the process group in the compiled code.
      runs: how many calls have run compiled code.
      is_unfinished: True from the begin of a call to its good end: what is left of a call that failed or hangs may still use the
        name.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], group_name: str):
        """
        Args:
          function: a nested function of tensors alone, which finds its process group by `group_name`.
          options: those of Inductor.
        """
        self.group_name = group_name
        self.runs = 0
        self.is_unfinished = False
        self._process_group: Callable[[], Any] = lambda: None
        self._is_compiling = False
        self._is_compiled = False
        self._function = _with_own_code(function, f"cotune_form_{next(_numbers)}")
        self._compiled = compiled_functions.compile_function(self._function, options, self._guarded)

    def _guarded(self, code: Callable[..., Any]) -> Callable[..., Any]:
        def run(*operands: Any) -> Any:
            if self._is_compiling:
                raise _NotRunError
            self.runs += 1
            return code(*operands)

        return run

    def compile(self, operands: Sequence[torch.Tensor], process_group: Any) -> None:
        """Compiles the function for operands of these sizes, if no graph fits. It runs nothing. Raises what compiling raises."""
        self._is_compiling = True
        try:
            with compiled_functions.traced_group(process_group, self.group_name), torch.no_grad():
                for operand in operands:
                    for dim in range(operand.dim()):
                        compiled_functions.may_be_dynamic(operand, dim)
                self._compiled(*operands)
        except _NotRunError:
            self._is_compiled = True
            return
        finally:
            self._is_compiling = False
            self._process_group = lambda: None  # the name was that of the group for traces
        raise NotCompiled("torch.compile finds no operation in the function that it can compile, or is off in this process")

    def run(self, operands: Sequence[torch.Tensor], process_group: Any, needs_code: bool = False) -> Any:
        """Runs what was compiled, or the function as it is if no graph fits. Raises NotCompiled in that case with `needs_code`."""
        if self._process_group() is not process_group:
            compiled_functions.give_group_name(process_group, self.group_name)
            self._process_group = weakref.ref(process_group)
        runs = self.runs
        self.is_unfinished = True
        with compiled_functions.compiled_code_only():
            result = self._function(*operands)
        self.is_unfinished = False
        if needs_code and self.runs == runs:
            raise NotCompiled("the compiled code does not fit calls in this place: a setting of PyTorch has changed since it was compiled")
        return result

    def is_there(self) -> bool:
        """Returns false if something was compiled and Dynamo has forgotten it."""
        return not self._is_compiled or compiled_functions.has_compiled_code(self._function)

    def forget(self) -> None:
        """Gives the name back, when no call comes any more."""
        compiled_functions.forget_traced_group(self.group_name)


def in_thread(call: Callable[[], None]) -> None:
    """Runs a call on a thread without the modes in which an operator runs, to its end.

    Functions are compiled one after another in it: Dynamo's lock would let several threads wait for each other.
    """
    thread = threading.Thread(target=call, name="cotune functions")
    thread.start()
    thread.join()


def _with_own_code(function: Any, name: str) -> Callable[..., Any]:
    """The same function with a code object of its own, by which Dynamo keeps what it compiles."""
    code = function.__code__.replace(co_name=name)
    return types.FunctionType(code, function.__globals__, name, None, function.__closure__)


def is_of_function(failure: BaseException | None) -> bool:
    """Returns true if the function is the cause of a compilation that failed, so that it fails in each process: not a full disk,
    memory that is used up, or a missing compiler."""
    of_machine = (OSError, MemoryError, torch.OutOfMemoryError, *compat.compiler_errors())
    while failure is not None:
        if isinstance(failure, of_machine):
            return False
        failure = failure.__cause__ or failure.__context__
    return True


def reason_of(failure: Exception) -> str:
    """The reason for which a function cannot be compiled, in one line: Dynamo's errors are pages of text."""
    if isinstance(failure, NotCompiled):
        return str(failure)
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()] or [""]
    more = [next((line for line in lines[1:] if line.startswith(word)), "") for word in ("Explanation:", "Hint:")]
    text = " ".join(textwrap.shorten(line, _LINE_CHARACTERS_MAX, placeholder=" ...") for line in (lines[0], *more) if line)
    return f"Inductor cannot compile the function: {type(failure).__name__}: {text}"
