"""Compiles a function of the user that runs collectives, and runs the compiled code in process groups that change.

A compiled graph has the name of its process group as a constant, but functions get a new process group after each failure.
Therefore each form has a name of its own, under which the process group of its latest call is registered.
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

    is_clear_by_text = True  # error texts for users do not need the name of this class


class _NotRunError(Exception):
    """Ends a call that only compiles, before the compiled code would run."""


class Form:
    """One compiled function of tensors.

    Attributes:
      group_name: the name of the process group in the compiled code.
      runs: how many calls have run compiled code.
      is_unfinished: true from the start of a call until it returns. It stays true after a call that raised, whose collectives
        may still use the name.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], group_name: str):
        """
        Args:
          function: a nested function of tensors alone, which finds its process group by `group_name`.
          options: options of Inductor by their names.
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
        """Compiles the function for operands of these sizes, unless a graph fits them already. The function does not run.

        Raises NotCompiled, and the errors of Dynamo and Inductor.
        """
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
            self._process_group = lambda: None  # traced_group() has unregistered the name, so that run() has to register it
        raise NotCompiled("torch.compile finds no operation in the function that it can compile, or is off in this process")

    def run(self, operands: Sequence[torch.Tensor], process_group: Any, needs_code: bool = False) -> Any:
        """Runs the compiled code, or the function as it is if no graph fits the operands.

        With `needs_code` it raises NotCompiled in that case, after the function has run.
        """
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
        """Returns false if the function was compiled and Dynamo has forgotten the code."""
        return not self._is_compiled or compiled_functions.has_compiled_code(self._function)

    def forget(self) -> None:
        """Unregisters the name. No call may follow."""
        compiled_functions.forget_traced_group(self.group_name)


def in_thread(call: Callable[[], None]) -> None:
    """Runs a call on a new thread, which has none of the modes of the operator that runs now, and waits for its end.

    A caller compiles all of its functions in one such call, one after another: Dynamo's lock lets only one thread compile.
    """
    thread = threading.Thread(target=call, name="cotune functions")
    thread.start()
    thread.join()


def _with_own_code(function: Any, name: str) -> Callable[..., Any]:
    """Returns the same function with a code object of its own, because Dynamo keeps compiled code by code objects."""
    code = function.__code__.replace(co_name=name)
    return types.FunctionType(code, function.__globals__, name, None, function.__closure__)


def is_of_function(failure: BaseException | None) -> bool:
    """Returns true if the function itself is the cause of a failed compilation, so that it fails in every process.

    Other causes are a full disk, memory that is used up, or a missing compiler.
    """
    of_machine = (OSError, MemoryError, torch.OutOfMemoryError, *compat.compiler_errors())
    while failure is not None:
        if isinstance(failure, of_machine):
            return False
        failure = failure.__cause__ or failure.__context__
    return True


def reason_of(failure: Exception) -> str:
    """Returns the reason for which a function cannot be compiled, in one line: Dynamo's errors are pages of text."""
    if isinstance(failure, NotCompiled):
        return str(failure)
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()] or [""]
    more = [next((line for line in lines[1:] if line.startswith(word)), "") for word in ("Explanation:", "Hint:")]
    text = " ".join(textwrap.shorten(line, _LINE_CHARACTERS_MAX, placeholder=" ...") for line in (lines[0], *more) if line)
    return f"Inductor cannot compile the function: {type(failure).__name__}: {text}"
