"""Functions of the user that run collectives, compiled by Inductor for the ranks of one group of cotune.

A function is compiled as one graph, which fits all sizes unless the function depends on the size: then there is one graph
for each size that is tuned. It is compiled only when all ranks meet for a tune (function_stage.py). A call at a size for
which no graph fits runs the function as it is, so that no call of a model compiles, but for the first one after
torch._dynamo.reset(), which forgets the graphs of the model as well.

A compiled graph has the name of a process group as a constant, and functions get a new process group after each failure. So
each form has a name of its own, which stands for the process group of its latest call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from cotune.torch import compiled_functions
from cotune.torch.function_choices import Registered

_LINE_CHARACTERS_MAX = 160
_numbers = itertools.count()


class NotCompiled(RuntimeError):
    """A function could not be compiled on some rank."""


class _NotRunError(Exception):
    """A call for which something was compiled; it ends before that runs."""


@dataclasses.dataclass(frozen=True)
class Size:
    """A function for operands of one size.

    Attributes:
      name: that of the choice.
      reduction: the word of the reduction; "" for none.
      count: the elements of the operand.
    """

    name: str
    dtype: torch.dtype
    reduction: str
    count: int

    @property
    def text(self) -> str:
        """Equal on all ranks, and different for each size."""
        return f"{self.name} {self.dtype} {self.reduction} {self.count}"


class _Form:
    """One compiled function, for one dtype and reduction."""

    def __init__(self, way: Registered, reduction: str, group_name: str):
        self._group_name = group_name
        self._process_group: Callable[[], Any] = lambda: None
        self._is_compiling = False
        self._is_compiled = False
        self.runs = 0  # calls that have run compiled code
        # True from the begin of a call to its good end: what is left of a call that failed or hangs may still use the name.
        self.is_unfinished = False
        self._function = _own_function(way.run, way.arguments(group_name, reduction), f"cotune_form_{next(_numbers)}")
        self._compiled = compiled_functions.compile_function(self._function, way.options, self._guarded)

    def _guarded(self, code: Callable[..., Any]) -> Callable[..., Any]:
        def run(*operands: Any) -> Any:
            if self._is_compiling:
                raise _NotRunError
            self.runs += 1
            return code(*operands)

        return run

    def compile(self, operand: torch.Tensor, process_group: Any) -> None:
        """Compiles the function for operands of this size, if no graph fits. It runs nothing. Raises what compiling raises."""
        self._is_compiling = True
        try:
            with compiled_functions.traced_group(process_group, self._group_name), torch.no_grad():
                compiled_functions.may_be_dynamic(operand, 0)
                self._compiled(operand)
        except _NotRunError:
            self._is_compiled = True
            return
        finally:
            self._is_compiling = False
            self._process_group = lambda: None  # the name was that of the group for traces
        raise NotCompiled("torch.compile finds no operation in the function that it can compile, or is off in this process")

    def run(self, operand: torch.Tensor, process_group: Any) -> Any:
        if self._process_group() is not process_group:
            compiled_functions.give_group_name(process_group, self._group_name)
            self._process_group = weakref.ref(process_group)
        self.is_unfinished = True
        with compiled_functions.compiled_code_only():
            result = self._function(operand)
        self.is_unfinished = False
        return result

    def is_there(self) -> bool:
        """Returns false if something was compiled and Dynamo has forgotten it."""
        return not self._is_compiled or compiled_functions.has_compiled_code(self._function)

    def forget(self) -> None:
        compiled_functions.forget_traced_group(self._group_name)


def in_thread(call: Callable[[], None]) -> None:
    """Runs a call on a thread without the modes in which an operator runs, to its end."""
    thread = threading.Thread(target=call, name="cotune functions")
    thread.start()
    thread.join()


def _own_function(run: Callable[..., Any], arguments: dict[str, Any], name: str) -> Callable[..., Any]:
    """A function of the operand alone. Dynamo keeps what it compiles by code objects, so that each form has one of its own."""

    def call(operand: torch.Tensor) -> Any:
        return run(operand, **arguments)

    code = call.__code__.replace(co_name=name)
    return types.FunctionType(code, call.__globals__, name, None, call.__closure__)


class Forms:
    """The compiled functions of one group of cotune.

    Attributes:
      is_tuning: a function that could not be compiled fails, so that it is left out. In other calls it runs as it is.
      meetings: how often the ranks have met to compile.
    """

    def __init__(self, process_group: Any, device: int, prefix: str):
        self._process_group = weakref.ref(process_group)
        self._device = torch.device("cpu") if device < 0 else torch.device("cuda", device)
        self._prefix = prefix
        self._lock = threading.Lock()
        self._forms: dict[tuple[str, torch.dtype, str], _Form] = {}
        self._known: dict[Size, str] = {}
        self.is_tuning = False
        self.meetings = 0

    def knows(self, size: Size) -> bool:
        """Returns true if the function was compiled for this size, or could not be."""
        form = self._forms.get((size.name, size.dtype, size.reduction))
        return size in self._known and not (form is not None and form.is_unfinished)

    def compile(self, way: Registered, size: Size) -> str:
        """Compiles a function for operands of one size. Returns why that is not possible, or ""."""
        try:
            with torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext():
                operand = torch.zeros(size.count, dtype=size.dtype, device=self._device)
                self._form(way, size).compile(operand, self._process_group())
            self._known[size] = ""
        except Exception as failure:  # noqa: BLE001  compiling code of the user may raise anything
            self._known[size] = _reason_of(failure)
        return self._known[size]

    def refuse(self, size: Size, reason: str) -> None:
        """Notes that the function is left out at this size, because some rank could not compile it."""
        self._known[size] = reason

    def run(self, way: Registered, operand: torch.Tensor, reduction: str, process_group: Any) -> Any:
        """Runs a function compiled, or as it is if no graph fits. Raises NotCompiled in a tune."""
        size = Size(way.name, operand.dtype, reduction, operand.numel())
        reason = self._known.get(size, "")
        if self.is_tuning and size not in self._known:
            # Rank 0 alone knows what the tune measures, and its database may have changed since it was asked.
            raise NotCompiled("it was not compiled for this tune, because the database had a result for this size")
        if reason and self.is_tuning:
            raise NotCompiled(reason)
        form = self._forms.get((way.name, operand.dtype, reduction))
        if form is not None and not form.is_unfinished and not form.is_there():
            in_thread(lambda: self._compile_again(way, operand.dtype, reduction))
        if reason or form is None or form.is_unfinished:
            return way.run(operand, **way.arguments(process_group.group_name, reduction))
        runs = form.runs
        result = form.run(operand, process_group)
        if self.is_tuning and form.runs == runs:
            raise NotCompiled("the compiled code does not fit calls in this place: a setting of PyTorch has changed since it was compiled")
        return result

    def _compile_again(self, way: Registered, dtype: torch.dtype, reduction: str) -> None:
        """Compiles what torch._dynamo.reset() has forgotten. A size at which that fails runs the function as it is."""
        for size, reason in list(self._known.items()):
            if not reason and (size.name, size.dtype, size.reduction) == (way.name, dtype, reduction):
                self.compile(way, size)

    def _form(self, way: Registered, size: Size) -> _Form:
        key = (size.name, size.dtype, size.reduction)
        with self._lock:
            known = self._forms.get(key)
            if known is not None and not known.is_unfinished:
                return known
            made = _Form(way, size.reduction, f"{self._prefix}/form{len(self._forms)}-{0 if known is None else next(_numbers)}")
            self._forms[key] = made
        return made

    def forget(self) -> None:
        """Forgets all forms, when their group is gone."""
        with self._lock:
            forms, self._forms = list(self._forms.values()), {}
        for each in forms:
            each.forget()


def _reason_of(failure: Exception) -> str:
    """The reason for which a function cannot be compiled, in one line: Dynamo's errors are pages of text."""
    if isinstance(failure, NotCompiled):
        return str(failure)
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()] or [""]
    more = [next((line for line in lines[1:] if line.startswith(word)), "") for word in ("Explanation:", "Hint:")]
    text = " ".join(line[:_LINE_CHARACTERS_MAX] for line in (lines[0], *more) if line)
    return f"Inductor cannot compile the function: {type(failure).__name__}: {text}"
