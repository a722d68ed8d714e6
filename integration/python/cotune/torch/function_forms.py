"""Functions of the user that run collectives, compiled by Inductor for the ranks of one group of cotune.

A function is compiled as one graph, which fits all sizes unless the function depends on the size: then there is one graph
for each size that is tuned. It is compiled only when all ranks meet for a tune (function_stage.py). A call at a size for
which no graph fits runs the function as it is, so that calls of a model compile nothing. The exception is the first call
after torch._dynamo.reset(), which forgets the graphs of the model as well.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from cotune.torch.compiled_form import Form, NotCompiled, in_thread, reason_of
from cotune.torch.function_choices import Registered

_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class Size:
    """A function for operands of one size.

    Attributes:
      name: the name of the choice.
      dtype: the dtype of the operand.
      reduction: the reduction as PyTorch names it, such as "avg"; "" for none.
      count: the number of elements of the operand.
    """

    name: str
    dtype: torch.dtype
    reduction: str
    count: int

    @property
    def text(self) -> str:
        """A text that is equal on all ranks, and different for each size."""
        return f"{self.name} {self.dtype} {self.reduction} {self.count}"


class Forms:
    """The compiled functions of one group of cotune.

    Attributes:
      is_tuning: true during a tune: a function that could not be compiled raises then, so that the tune leaves it out. In other
        calls it runs as it is.
      meetings: how often the ranks have met to compile.
    """

    def __init__(self, process_group: Any, device: int, prefix: str):
        self._process_group = weakref.ref(process_group)
        self._device = torch.device("cpu") if device < 0 else torch.device("cuda", device)
        self._prefix = prefix
        self._lock = threading.RLock()  # a garbage collection in a thread that holds it may run a finalizer
        self._forms: dict[tuple[str, torch.dtype, str], Form] = {}
        self._known: dict[Size, str] = {}
        self.is_tuning = False
        self.meetings = 0

    def knows(self, size: Size) -> bool:
        """Returns true if the function was compiled for this size, or if that has failed."""
        form = self._forms.get((size.name, size.dtype, size.reduction))
        return size in self._known and not (form is not None and form.is_unfinished)

    def compile(self, way: Registered, size: Size) -> str:
        """Compiles a function for operands of one size. Returns why that has failed, or ""."""
        try:
            with torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext():
                operand = torch.zeros(size.count, dtype=size.dtype, device=self._device)
                self._form(way, size).compile([operand], self._process_group())
            self._known[size] = ""
        except Exception as failure:  # noqa: BLE001  compiling code of the user may raise anything
            self._known[size] = reason_of(failure)
        return self._known[size]

    def refuse(self, size: Size, reason: str) -> None:
        """Notes that the function is left out at this size, because some rank could not compile it."""
        self._known[size] = reason

    def run(self, way: Registered, operand: torch.Tensor, reduction: str, process_group: Any) -> Any:
        """Runs the compiled form of a function, or the function as it is if no graph fits: in a tune that raises NotCompiled."""
        size = Size(way.name, operand.dtype, reduction, operand.numel())
        reason = self._known.get(size, "")
        if self.is_tuning and size not in self._known:
            # Only rank 0 knows which sizes the tune measures, and its database may have changed since it listed them.
            raise NotCompiled("it was not compiled for this tune, because the database had a result for this size")
        if reason and self.is_tuning:
            raise NotCompiled(f"it cannot be compiled on every rank: {reason}")
        form = self._forms.get((way.name, operand.dtype, reduction))
        if form is not None and not form.is_unfinished and not form.is_there():
            in_thread(lambda: self._compile_again(way, operand.dtype, reduction))
        if reason or form is None or form.is_unfinished:
            return way.run(operand, **way.arguments(process_group.group_name, reduction))
        return form.run([operand], process_group, self.is_tuning)

    def _compile_again(self, way: Registered, dtype: torch.dtype, reduction: str) -> None:
        """Compiles the code anew that torch._dynamo.reset() has dropped. If that fails for a size, the function runs as it is there."""
        for size, reason in list(self._known.items()):
            if not reason and (size.name, size.dtype, size.reduction) == (way.name, dtype, reduction):
                self.compile(way, size)

    def _form(self, way: Registered, size: Size) -> Form:
        key = (size.name, size.dtype, size.reduction)
        with self._lock:
            known = self._forms.get(key)
            if known is not None and not known.is_unfinished:
                return known
            group_name = f"{self._prefix}/form{len(self._forms)}-{0 if known is None else next(_numbers)}"
            made = Form(_of_operand(way.run, way.arguments(group_name, size.reduction)), way.options, group_name)
            self._forms[key] = made
        return made

    def forget(self) -> None:
        """Forgets all forms, when their group is gone."""
        with self._lock:
            forms, self._forms = list(self._forms.values()), {}
        for each in forms:
            each.forget()


def _of_operand(run: Callable[..., Any], arguments: dict[str, Any]) -> Callable[..., Any]:
    def call(operand: torch.Tensor) -> Any:
        return run(operand, **arguments)

    return call
