"""The functions for operators that are not declared, compiled by Inductor for the ranks of one process group.

A function is compiled when the ranks meet for operands of new shapes (custom_race.py), unless a graph that was compiled earlier
fits them. Calls of a model compile nothing, except the first one after torch._dynamo.reset().
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from cotune.torch import compat, compiled_functions
from cotune.torch.compiled_form import Form, NotCompiled, in_thread, is_of_function, reason_of
from cotune.torch.custom_choices import CustomOperator, CustomWay


@dataclasses.dataclass(frozen=True)
class _Operand:
    """The size, strides, dtype and device of a tensor."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Operand:
        return cls(tuple(tensor.size()), tensor.stride(), tensor.dtype, tensor.device)

    def empty(self) -> torch.Tensor:
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)


@dataclasses.dataclass
class _Compiled:
    """A form, the operands for which it was compiled, and why it could not be compiled for others; by CustomOperator.key_of()."""

    form: Form
    operands: dict[str, list[_Operand]] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)


class CustomForms:
    """The compiled functions of one process group on one device. All ranks compile the same functions in the same order."""

    def __init__(self, process_group: Any, device: int, prefix: str):
        """Makes an empty list of forms.

        Args:
          prefix: the begin of the process groups' names in compiled code. It is unique to this group, and equal in each process.
        """
        self._process_group = weakref.ref(process_group)
        self._device = torch.device("cpu") if device < 0 else torch.device("cuda", device)
        self._prefix = prefix
        self._numbers = itertools.count()
        self._forms: dict[tuple[str, str, str], _Compiled] = {}
        self.lasting: set[str] = set()

    def compile_all(self, operator: CustomOperator, ways: Iterable[CustomWay], values: dict[str, Any], limit_s: float) -> dict[str, str]:
        """Compiles functions for the arguments of a call. Returns the reasons for those that cannot be compiled, by their names.

        No compilation starts later than `limit_s` seconds after the call. `lasting` has the names of those that fail in every
        process.
        """
        found: dict[str, str] = {}
        self.lasting.clear()
        end_s = time.monotonic() + limit_s

        def compile_each() -> None:
            for way in ways:
                is_late = time.monotonic() > end_s
                try:
                    reason = over_text(limit_s) if is_late else self._compile(operator, way, values)
                except Exception as failure:  # noqa: BLE001  code of the user may raise anything
                    reason = reason_of(failure)
                if reason:
                    found[way.name] = reason

        in_thread(compile_each)
        return found

    def run(self, operator: CustomOperator, way: CustomWay, values: dict[str, Any], process_group: Any, needs_code: bool = False) -> Any:
        """Runs the compiled form of a function. If no graph fits, it runs the function as it is; `needs_code` raises NotCompiled then."""
        made = self._forms.get(_place(operator, way, values))
        key = operator.key_of(values)
        reason = "it was not compiled for these operands" if made is None else made.failed.get(key, "")
        if reason and needs_code:
            raise NotCompiled(reason)
        if not reason and not made.form.is_unfinished and not made.form.is_there():
            in_thread(lambda: self._compile_again(made))
            reason = made.failed.get(key, "")
        if reason or made.form.is_unfinished:
            return operator.call(way, values, process_group.group_name)
        with compiled_functions.settings_of_new_thread():
            operands = [_as_compiled(each) for each in values.values() if isinstance(each, torch.Tensor)]
            return compat.waited(made.form.run(operands, process_group, needs_code))

    def forget(self) -> None:
        """Forgets all forms, when their process group is gone."""
        forms, self._forms = list(self._forms.values()), {}
        for each in forms:
            each.form.forget()

    def _compile(self, operator: CustomOperator, way: CustomWay, values: dict[str, Any]) -> str:
        place, key = _place(operator, way, values), operator.key_of(values)
        made = self._forms.get(place)
        if made is None or made.form.is_unfinished:
            group_name = f"{self._prefix}/form{next(self._numbers)}"
            made = self._forms[place] = _Compiled(Form(_of_tensors(operator, way, values, group_name), way.options, group_name))
        operands = [_Operand.of(each) for each in values.values() if isinstance(each, torch.Tensor)]
        failure = self._compile_for(made, key, operands)
        if failure is not None and is_of_function(failure):
            self.lasting.add(way.name)
        return made.failed.get(key, "")

    def _compile_for(self, made: _Compiled, key: str, operands: list[_Operand]) -> Exception | None:
        try:
            with torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext():
                made.form.compile([each.empty() for each in operands], self._process_group())
            made.operands[key] = operands
            made.failed.pop(key, None)
        except Exception as failure:  # noqa: BLE001  compiling code of the user may raise anything
            made.failed[key] = reason_of(failure)
            return failure
        return None

    def _compile_again(self, made: _Compiled) -> None:
        """Compiles the code anew that torch._dynamo.reset() has dropped. A function for which that fails runs as it is."""
        for key, operands in list(made.operands.items()):
            self._compile_for(made, key, operands)


def over_text(limit_s: float) -> str:
    """The reason for which a function was not compiled in time."""
    return f"functions_compile_budget_s was over, which is {limit_s:g} s"


def _as_compiled(operand: torch.Tensor) -> torch.Tensor:
    """Returns the same values in a plain tensor, as functions are compiled for: no parameter, and not of the inference mode."""
    return operand.clone() if operand.is_inference() else operand.detach()


def _place(operator: CustomOperator, way: CustomWay, values: dict[str, Any]) -> tuple[str, str, str]:
    """Returns the key of a form: the operator, the function, and the arguments that are constants in its compiled code."""
    kinds = {name: "" if isinstance(value, torch.Tensor) else repr(value) for name, value in values.items() if name != operator.group}
    return operator.name, way.name, repr(kinds)


def _of_tensors(operator: CustomOperator, way: CustomWay, values: dict[str, Any], group_name: str) -> Callable[..., Any]:
    """Returns the function as one that takes only the tensors of a call, in the order of the arguments."""
    tensors = [name for name, value in values.items() if isinstance(value, torch.Tensor)]
    leading, named = operator.arguments_of(way, {**values, **{name: place for place, name in enumerate(tensors)}}, group_name)
    by_name = {name: tensors.index(name) for name in named if name in tensors}
    constants = {name: value for name, value in named.items() if name not in tensors}
    run = way.run

    def call(*operands: torch.Tensor) -> Any:
        first = [None if place is None else operands[place] for place in leading]
        return run(*first, **{name: operands[place] for name, place in by_name.items()}, **constants)

    return call
