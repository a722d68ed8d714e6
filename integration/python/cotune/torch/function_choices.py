"""Python functions that the user has registered for a declared custom operator, as choices of the groups of cotune.

A function has the arguments of its operator. It gets the operand as a tensor of one dimension, and the name of a process
group that only functions use, with the ranks of the operator's. A function that fails or hangs leaves collectives unfinished,
which must not disturb those of the model. That process group is made anew after each failure.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import re
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cotune.constants import Collective, DType, Reduction
from cotune.functions import Function, FunctionCall, Functions
from cotune.torch import compiled_functions, declarations, function_groups, process_groups

# The name under which the functions are listed: "python/ring?chunk_size=65536".
NAME = "python"
# The end of the name of a compiled function, before its parameters: "python/ring.compiled?chunk_size=65536".
COMPILED = ".compiled"
_DTYPES = {
    DType.F32: torch.float32, DType.F64: torch.float64, DType.F16: torch.float16, DType.BF16: torch.bfloat16,
    DType.I32: torch.int32, DType.I64: torch.int64, DType.U8: torch.uint8,
}  # fmt: skip
DTYPES = frozenset(_DTYPES.values())
_REDUCTION_WORDS = {
    Reduction.SUM: "sum", Reduction.PRODUCT: "product", Reduction.MIN: "min", Reduction.MAX: "max", Reduction.AVERAGE: "avg",
}  # fmt: skip
_NAME_CHARACTERS_MAX = 80


@dataclasses.dataclass(frozen=True)
class Registered:
    """One way to run an operator.

    Attributes:
      name: the name of the choice, without the backend "python".
      overload: the operator.
      run: the function; None for the operator itself.
      parameters: arguments that the function gets by their names, beside those of the operator.
      is_compiled: Inductor compiles the function (function_forms.py).
      options: options of Inductor for the compilation.
    """

    name: str
    overload: Any
    run: Callable[..., Any] | None
    parameters: dict[str, Any]
    is_compiled: bool = False
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def is_same(self, other: Registered) -> bool:
        """Returns true if both are one choice."""
        first, second = (declarations.of(each.overload) for each in (self, other))
        # A function that is registered for two operators is one choice only if they have equal arguments and reductions.
        is_one_collective = (first.kind, first.reduction) == (second.kind, second.reduction)
        names = [[(each.name, each.default_value) for each in way.overload._schema.arguments] for way in (self, other)]
        is_one_form = (self.is_compiled, self.options) == (other.is_compiled, other.options)
        is_one_function = self.run is other.run and self.parameters == other.parameters and is_one_form
        return is_one_function and is_one_collective and names[0] == names[1]

    @property
    def kind(self) -> str:
        """The kind of the collective that it runs."""
        return declarations.of(self.overload).kind

    @property
    def reduction(self) -> str:
        """The reduction of its operator; "" if an argument of the operator has it, or if the operator reduces nothing."""
        word = declarations.of(self.overload).reduction
        return word if word in _REDUCTION_WORDS.values() else ""

    def arguments(self, group_name: str, reduction: str) -> dict[str, Any]:
        """Returns all arguments except the operand, by their names."""
        declaration = declarations.of(self.overload)
        named: dict[str, Any] = {}
        for each in self.overload._schema.arguments:
            if each.name == declaration.tensor:
                continue
            if each.name == declaration.group:
                named[each.name] = group_name
            elif each.name == declaration.reduction:
                named[each.name] = reduction
            elif each.has_default_value():
                named[each.name] = each.default_value
        return {**named, **self.parameters}


class _Registry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_overload: dict[Any, list[Registered]] = {}


_registry = _Registry()


def register(
    overload: Any, prefix: str, ways: Sequence[tuple[Callable[..., Any] | None, dict[str, Any], dict[str, Any]]]
) -> None:
    """Registers ways to run a declared operator; an earlier registration of it is replaced.

    Each of `ways` has a function, or None for the operator itself; the arguments that it gets by their names; and the options
    of Inductor for its compiled form, which is a further way. Raises ValueError for ways that are refused.
    """
    name = declarations.name_of(overload)
    made: list[Registered] = []
    # The operator itself races as well, because it runs without cotune.
    itself = [(None, {}, {})] if _missing_arguments(overload, {}) == [] else []
    for run, parameters, options in [*ways, *itself]:
        check_parameters(name, parameters)
        for each in _forms_of(overload, prefix, run, dict(parameters), dict(options)):
            _check_arguments(name, each)
            if not any(known.name == each.name and known.is_same(each) for known in made):
                made.append(each)
    with _registry.lock:
        # An operator that is defined anew, as in a notebook, has another overload of the same name.
        for key in [key for key in _registry.by_overload if declarations.name_of(key) == name]:
            del _registry.by_overload[key]
        others = [each for several in _registry.by_overload.values() for each in several]
        _check_names(name, made, others)
        _registry.by_overload[overload] = made


def _forms_of(
    overload: Any, prefix: str, run: Callable[..., Any] | None, parameters: dict[str, Any], options: dict[str, Any]
) -> list[Registered]:
    """Returns a function as it is, and its compiled form. The operator itself has no compiled form."""
    made = [Registered(choice_name(overload, prefix, run, parameters), overload, run, parameters)]
    if run is not None:
        name = choice_name(overload, prefix, run, {**parameters, **options}, COMPILED)
        made.append(Registered(name, overload, run, parameters, True, options))
    return made


def registered(compiles: bool = True) -> list[Registered]:
    """Returns all functions, each name once, in an order that is equal on ranks with the same registrations.

    Without `compiles` it leaves compiled forms out.
    """
    with _registry.lock:
        found = {each.name: each for several in _registry.by_overload.values() for each in several}
    return [found[name] for name in sorted(found) if compiles or not found[name].is_compiled]


def check_declared(overload: Any) -> None:
    """Raises ValueError if the functions of an operator do not fit its declaration, which may have changed."""
    name = declarations.name_of(overload)
    with _registry.lock:
        made = list(_registry.by_overload.get(overload, ()))
        others = [each for key, several in _registry.by_overload.items() if key is not overload for each in several]
    for each in made:
        _check_arguments(name, each)
    _check_names(name, made, others)


declarations.when_declared(check_declared)


def _check_names(operator: str, made: Sequence[Registered], others: Sequence[Registered]) -> None:
    """Raises ValueError if two different functions would be choices of the same name."""
    names: dict[str, Registered] = {each.name: each for each in others}
    for each in made:
        known = names.setdefault(each.name, each)
        if known is not each and not known.is_same(each):
            raise ValueError(
                f"register_custom_op_autotuning of {operator}: two functions would be the choice {NAME}/{each.name}; give one of "
                "them another name, or the registration a name=, which is put before the names of its functions"
            )


def forget_all() -> None:
    """Forgets all registrations. It is for tests."""
    with _registry.lock:
        _registry.by_overload.clear()


def version_of(process_group: Any, compiles: bool) -> str:
    """Returns a text that is equal on ranks with the same functions; "" without any."""
    ways = registered(compiles)
    return _version(ways, process_group) if ways else ""


def functions_of(process_group: Any, store: Any, prefix: str, forms: Any | None = None) -> Functions | None:
    """Returns the functions as choices of the group of cotune for a process group; None if nothing is registered.

    Args:
      store: connects the process groups in which functions run.
      prefix: the begin of the names of these process groups, which no other group has.
      forms: runs the compiled functions (function_forms.Forms); without it there are no compiled forms.
    """
    ways = registered(compiles=forms is not None)
    if not ways:
        return None
    groups = function_groups.Groups(process_group, store, prefix, forms)
    return Functions(
        functions=[_function(each) for each in ways],
        name=NAME,
        version=_version(ways, process_group),
        open=groups.open,
        close=groups.close,
    )


def _function(way: Registered) -> Function:
    declaration = declarations.of(way.overload)
    reductions = [each for each, word in _REDUCTION_WORDS.items() if word == declaration.reduction]
    return Function(
        name=way.name,
        run=_Runner(way),
        collectives=(Collective[declaration.kind.upper()],),
        dtypes=tuple(_DTYPES),
        reductions=reductions,  # empty if the operator has the reduction as an argument
    )


class _Runner:
    """Runs a function on the memory of a call."""

    def __init__(self, way: Registered):
        self._way = way
        self._declaration = declarations.of(way.overload)

    def __call__(self, call: FunctionCall) -> Any:
        # A call on host memory runs on a thread of cotune, which has PyTorch's settings of a new thread already.
        settings = torch.no_grad() if call.stream is None else compiled_functions.settings_of_new_thread()
        with settings, _stream_of(call), call.group.use():
            if call.stream is None:
                process_groups.set_host_timeout_s(call.group.process_group, max(call.timeout_s, 0.001))
                return self._result(call, _tensor(call.send)).contiguous()
            # Functions may write to their operand, so that they get a copy of the caller's.
            result = self._result(call, _tensor(call.send).clone())
            _tensor(call.recv).copy_(result.reshape(-1))
            call.group.note_enqueued()
            return None

    def _result(self, call: FunctionCall, operand: torch.Tensor) -> torch.Tensor:
        process_group, reduction = call.group.process_group, _REDUCTION_WORDS.get(call.reduction, "")
        if self._way.is_compiled:
            result = call.group.forms.run(self._way, operand, reduction, process_group)
        elif self._way.run is None:
            others = self._way.arguments(process_group.group_name, reduction)
            result = self._way.overload(**{self._declaration.tensor: operand}, **others)
        else:
            result = self._way.run(operand, **self._way.arguments(process_group.group_name, reduction))
        if not isinstance(result, torch.Tensor):
            raise TypeError(f"the function has returned {type(result).__name__}, and the result of a collective is one tensor")
        if result.dtype != operand.dtype or result.device != operand.device:
            raise TypeError(
                f"the function has returned {result.dtype} on {result.device}, and its operand is {operand.dtype} on {operand.device}"
            )
        if result.numel() != call.recv.count:
            raise ValueError(
                f"the function has returned {result.numel()} elements, and the result of this {call.collective.name.lower()} has "
                f"{call.recv.count}"
            )
        return result


def _stream_of(call: FunctionCall) -> Any:
    if call.stream is None:
        return contextlib.nullcontext()
    device = torch.device("cuda", call.send.device)
    return torch.cuda.stream(torch.cuda.ExternalStream(call.stream, device=device))


class _CudaMemory:
    """Wraps device memory, so that PyTorch makes a tensor of bytes of it without a copy."""

    def __init__(self, address: int, size_bytes: int):
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip


def _tensor(memory: Any) -> torch.Tensor:
    """Returns a tensor of one dimension that shares the memory of an operand."""
    dtype, size_bytes = _DTYPES[memory.dtype], memory.count * memory.dtype.size_bytes
    if memory.device is not None:
        if size_bytes == 0:
            return torch.empty(0, dtype=dtype, device=torch.device("cuda", memory.device))
        bytes_there = torch.as_tensor(_CudaMemory(memory.address, size_bytes), device=torch.device("cuda", memory.device))
        return bytes_there.view(dtype)
    if size_bytes == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer((ctypes.c_char * size_bytes).from_address(memory.address), dtype=dtype)


def choice_name(
    overload: Any, prefix: str, run: Callable[..., Any] | None, parameters: dict[str, Any], suffix: str = ""
) -> str:
    """Returns the name of a choice: "ring?chunk_size=65536", or "lib.op" for the operator itself. Raises ValueError if too long."""
    if run is None:
        algorithm = declarations.name_of(overload).replace("::", ".")
    else:
        algorithm = getattr(run, "__name__", type(run).__name__)
    if prefix and run is not None:
        algorithm = f"{prefix}.{algorithm}"
    name = _word(algorithm) + suffix
    if parameters:
        name += "?" + "&".join(f"{_word(key)}={_word(str(value))}" for key, value in sorted(parameters.items()))
    if len(name) > _NAME_CHARACTERS_MAX:
        raise ValueError(
            f"register_custom_op_autotuning: the name of a choice has at most {_NAME_CHARACTERS_MAX} characters, and {name!r} has "
            f"{len(name)}; give the function another name, or fewer parameters"
        )
    return name


def _word(text: str) -> str:
    """Returns the text in lower case, with "_" in place of each character that a name of a choice may not have."""
    return re.sub(r"[^a-z0-9_.-]", "_", text.lower()) or "_"


def check_parameters(name: str, parameters: dict[str, Any]) -> None:
    """Raises ValueError for a parameter of a type whose text may differ between ranks or processes."""
    for key, value in parameters.items():
        if not (value is None or isinstance(value, (bool, int, float, str, torch.dtype))):
            raise ValueError(
                f"register_custom_op_autotuning of {name}: the parameter {key} is {value!r}, and a choice is known by its parameters; "
                "give a number, a str, a bool, a torch.dtype or None, and let the function make what it needs"
            )


def _check_arguments(name: str, way: Registered) -> None:
    """Raises ValueError if an argument of the operator would have no value, or if a parameter is the operand or the group."""
    declaration = declarations.of(way.overload)
    if missing := _missing_arguments(way.overload, way.parameters):
        raise ValueError(
            f"register_custom_op_autotuning of {name}: {way.name} has no value for the argument {missing[0]} of the operator, which is "
            "not its operand or its group; give one in each CustomOpConfig, or a default in the schema"
        )
    for each in (declaration.tensor, declaration.group):
        if each in way.parameters:
            raise ValueError(
                f"register_custom_op_autotuning of {name}: a CustomOpConfig has the parameter {each}, which is the operand or the "
                "group of the operator; leave it out"
            )


def _missing_arguments(overload: Any, parameters: dict[str, Any]) -> list[str]:
    """Returns the arguments of an operator that have no value, if a function gets these parameters."""
    declaration = declarations.of(overload)
    known = {declaration.tensor, declaration.group, declaration.reduction, *parameters}
    return [each.name for each in overload._schema.arguments if each.name not in known and not each.has_default_value()]


def _version(ways: Sequence[Registered], process_group: Any) -> str:
    """Returns a text that changes with the code of a function, PyTorch and the backend of the process group."""
    digest = hashlib.sha256()
    for way in ways:
        digest.update(f"{way.name}\0{way.overload._schema}\0{sorted(way.parameters.items())}\0{sorted(way.options.items())}\0".encode())
        digest.update(_callable_text(way.run, ()).encode())
    return f"{digest.hexdigest()[:16]} torch {torch.__version__} {process_groups.group_backend(process_group)}"


def callable_text(function: Any) -> str:
    """Returns a text of the code, defaults and closure of a callable, which is equal in each process."""
    return _callable_text(function, ())


def _callable_text(function: Any, outer: tuple[Any, ...]) -> str:
    """See callable_text(). `outer`: the values that contain this one, because a closure may contain its own function."""
    if isinstance(function, functools.partial):
        parts = (function.func, function.args, sorted(function.keywords.items()))
        return f"partial {_value_text(parts, outer)}"
    if isinstance(function, types.MethodType):
        return f"method {_value_text((function.__func__, function.__self__), outer)}"
    if isinstance(function, types.FunctionType):
        named = sorted((function.__kwdefaults__ or {}).items())
        held = (function.__defaults__, named, [_held_by(cell) for cell in function.__closure__ or ()])
        return f"{_code_text(function.__code__)} {_value_text(held, (*outer, function))}"
    # An object with __call__, or a function of C.
    call = getattr(type(function), "__call__", None)  # noqa: B004  its code is wanted
    code = f" {_code_text(call.__code__)}" if isinstance(call, types.FunctionType) else ""
    state = sorted(getattr(function, "__dict__", {}).items()) if code else ()
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{name}{code} {_value_text(state, (*outer, function))}"


def _held_by(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # the name has no value yet


def _value_text(value: Any, outer: tuple[Any, ...]) -> str:
    """Returns a value as text, equal in each process. An object whose text may have an address counts by its type alone."""
    if any(value is each for each in outer):
        return "itself"
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device)):
        return repr(value)
    if isinstance(value, (tuple, list, set, frozenset)):
        texts = [_value_text(each, (*outer, value)) for each in value]
        return f"{type(value).__name__} {sorted(texts) if isinstance(value, (set, frozenset)) else texts}"
    if isinstance(value, dict):
        texts = [f"{_value_text(key, (*outer, value))}: {_value_text(each, (*outer, value))}" for key, each in value.items()]
        return f"dict {texts}"
    if isinstance(value, types.CodeType):
        return _code_text(value)
    if callable(value) and not isinstance(value, type):
        return _callable_text(value, outer)
    return f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _code_text(code: types.CodeType) -> str:
    """Returns code as text without addresses of memory."""
    return f"{code.co_code.hex()} {[_value_text(each, ()) for each in code.co_consts]} {code.co_names}"
