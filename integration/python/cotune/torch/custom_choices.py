"""Custom operators that nobody has declared to be collectives, and for which the user has registered Python functions.

Such an operator has no kind, so that no choice of a backend of cotune fits it. Its own body is the default, and the
functions race against it (custom_race.py). For each operator there is one in cotune's namespace with the same schema, by
which the graph pass replaces its calls. The names of these operators and their schemas are in the keys of the caches of
compiled graphs.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from cotune.torch import aten_ops, compat, custom_operators, declarations, function_choices, plain

Way = tuple[Callable[..., Any] | None, dict[str, Any], dict[str, Any]]
Run = Callable[["CustomOperator", dict[str, Any]], torch.Tensor]


@dataclasses.dataclass(frozen=True)
class CustomWay:
    """One function that may run in place of an operator.

    Attributes:
      name: the name of the choice, "python/ring?chunk_size=4".
      run: the function; None for the operator itself.
      parameters: arguments that it gets by their names, beside those of the operator.
      is_compiled: Inductor compiles the function (custom_forms.py).
      options: options of Inductor for the compilation.
    """

    name: str
    run: Callable[..., Any] | None
    parameters: dict[str, Any]
    is_compiled: bool = False
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class CustomOperator:
    """An operator with functions.

    Attributes:
      name: as users write it, "lib::op".
      overload: the operator of the user.
      group: the argument that is the name of the process group.
      ways: the functions, in the order of registration.
      threshold: a function runs if it is faster than the body by more than this factor.
      input_gen_fns: make operands like the tensors of arguments, by the names of these.
    """

    name: str
    overload: Any
    group: str
    ways: tuple[CustomWay, ...]
    threshold: float
    input_gen_fns: dict[str, Callable[[torch.Tensor], torch.Tensor]]

    def body(self, values: dict[str, Any], group_name: str) -> torch.Tensor:
        """The result of the operator of the user. `values`: all arguments by their names."""
        return self.overload(**{**values, self.group: group_name})

    def call(self, way: CustomWay, values: dict[str, Any], group_name: str) -> Any:
        """Runs a function as it is, and returns its result. `values`: all arguments by their names."""
        if way.run is None:
            return self.overload(**{**values, self.group: group_name, **way.parameters})
        tensors, named = self.arguments_of(way, values, group_name)
        return compat.waited(way.run(*tensors, **named))

    def arguments_of(self, way: CustomWay, values: dict[str, Any], group_name: str) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a function: the leading tensors by position, and the others by their names."""
        named = {**values, self.group: group_name, **way.parameters}
        return [named.pop(each) for each in self._leading_tensors], named

    def ways_with(self, compiles: bool) -> tuple[CustomWay, ...]:
        """The functions, without their compiled forms unless `compiles`."""
        return tuple(each for each in self.ways if compiles or not each.is_compiled)

    @functools.cached_property
    def _leading_tensors(self) -> tuple[str, ...]:
        found = []
        for each in self.overload._schema.arguments:
            if "Tensor" not in str(each.type) or each.kwarg_only:
                break
            found.append(each.name)
        return tuple(found)

    def key_of(self, values: dict[str, Any]) -> str:
        """Returns as text the shapes, dtypes and layouts of the tensors, and the other arguments except the group.

        The ranks agree on one choice for each such text.
        """
        return ", ".join(f"{name}={_text(value)}" for name, value in values.items() if name != self.group)

    def version(self, compiles: bool = True) -> str:
        """Returns a digest of the functions, with or without their compiled forms. It is equal in processes with the same ones."""
        ways = [
            (each.name, sorted(each.parameters.items()), sorted(each.options.items()), function_choices.callable_text(each.run))
            for each in self.ways_with(compiles)
        ]
        generators = sorted((name, function_choices.callable_text(each)) for name, each in self.input_gen_fns.items())
        body = function_choices.callable_text(getattr(compat.custom_op_of(self.overload), "_init_fn", None))
        text = f"{self.overload._schema} {ways} {generators} {self.threshold} {body}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        strides = "" if value.is_contiguous() else f" with strides {list(value.stride())}"
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{strides}"
    return repr(value)


class _Registry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_overload: dict[Any, CustomOperator] = {}
        self.by_replacement: dict[str, CustomOperator] = {}
        self.replacements: dict[str, Any] = {}
        self.used: set[str] = set()  # names of operators whose functions have been raced


_registry = _Registry()


def register(
    overload: Any, prefix: str, ways: Sequence[Way], threshold: float, input_gen_fns: dict[str, Any] | None, run: Run
) -> None:
    """Registers functions for an operator that is not declared; an earlier registration is replaced.

    A call of the operator in a compiled graph calls `run`. Raises ValueError if the operator or an argument is refused, or if
    its functions have raced already; TypeError for `input_gen_fns` of another type.
    """
    name = declarations.name_of(overload)
    where = f"register_custom_op_autotuning of {name}, which is not declared"
    group = _checked_group(where, overload)
    made: list[CustomWay] = []
    for function, parameters, options in ways:
        _check_parameters(where, name, overload, group, function, parameters)
        for each in _forms_of(overload, prefix, function, dict(parameters), dict(options)):
            is_known = each in made and each.run is not None and not each.is_compiled
            if not is_known:  # uncompiled, a function that is listed with several options of Inductor is one choice
                made.append(each)
    names = [each.name for each in made]
    if twice := next((each for each in names if names.count(each) > 1), ""):
        raise ValueError(f"{where}: two functions would be the choice {twice}; give one of them another name")
    generators = _checked_generators(where, overload, input_gen_fns)
    with _registry.lock:
        if name in _registry.used:
            raise ValueError(
                f"{where}: its functions have raced already, and the ranks have agreed on one of them; register before the first "
                "call of a compiled function"
            )
        for each in [each for each in _registry.by_overload if declarations.name_of(each) == name]:
            del _registry.by_overload[each]
        operator = CustomOperator(name, overload, group, tuple(made), threshold, generators)
        _registry.by_overload[overload] = operator
        _registry.by_replacement[_replacement_name(overload)] = operator
        _define(overload, run)


def _forms_of(
    overload: Any, prefix: str, run: Callable[..., Any] | None, parameters: dict[str, Any], options: dict[str, Any]
) -> list[CustomWay]:
    """Returns a function as it is, and its compiled form. The operator itself has no compiled form."""

    def name_with(more: dict[str, Any], suffix: str = "") -> str:
        return f"{function_choices.NAME}/{function_choices.choice_name(overload, prefix, run, {**parameters, **more}, suffix)}"

    made = [CustomWay(name_with({}), run, parameters)]
    if run is not None:
        made.append(CustomWay(name_with(options, function_choices.COMPILED), run, parameters, True, options))
    return made


def of(target: Any) -> CustomOperator | None:
    """The registration of an operator that nobody has declared; None without one."""
    if not isinstance(target, compat.operator_type()) or declarations.of(target) is not None:
        return None
    return _registry.by_overload.get(target)


def replacement_of(operator: CustomOperator) -> Any:
    """The operator of cotune that stands for one of the user."""
    return _registry.replacements[_replacement_name(operator.overload)]


def note_used(operator: CustomOperator) -> None:
    """Notes that the ranks have met for an operator. From now on its functions cannot be registered anew."""
    _registry.used.add(operator.name)


def names() -> set[str]:
    """The names of the operators that have functions and are not declared."""
    with _registry.lock:
        operators = list(_registry.by_overload.items())
    return {operator.name for overload, operator in operators if of(overload) is not None}


def key() -> tuple[tuple[str, str], ...]:
    """All registrations, on which compiled graphs depend."""
    with _registry.lock:
        operators = list(_registry.by_overload)
    return tuple(sorted((_replacement_name(each), str(each._schema)) for each in operators if of(each) is not None))


# A function may wait for its GPU, which ends a capture with an error. The option is the same on all ranks, so that all of them run
# the body, including a rank on which PyTorch does not record a CUDA graph.
_CAPTURED = (
    "the graph is compiled for CUDA graphs (mode 'reduce-overhead' or the option triton.cudagraphs), in which functions do not run; "
    "compile it without them if a function is faster than the body in a CUDA graph"
)


def replace(graph: fx.Graph, captures: bool = False) -> list[custom_operators.UndeclaredOperator]:
    """Replaces the calls of registered operators that are not declared, and returns these operators, with the calls of each.

    If the graph `captures`, it may become a CUDA graph, and calls on CUDA memory stay.
    """
    found = []
    nodes = {node: operator for node in graph.nodes if node.op == "call_function" and (operator := of(node.target)) is not None}
    stay = {node for node in nodes if captures and _is_on_cuda(node)}
    names = {operator.name for node, operator in nodes.items() if node not in stay}
    for each in custom_operators.in_graph(graph):
        calls = sum(operator.name == each.operator for operator in nodes.values())
        if calls:
            found.append(dataclasses.replace(each, calls=calls, why_body="" if each.operator in names else _CAPTURED))
    for node, operator in nodes.items():
        if node in stay:
            continue
        node.target = replacement_of(operator)
    return found


def _is_on_cuda(node: fx.Node) -> bool:
    tensors = [node, *node.all_input_nodes]
    return any(getattr(getattr(each.meta.get("val"), "device", None), "type", "") == "cuda" for each in tensors)


def forget_all() -> None:
    """Forgets all registrations. It is for tests."""
    with _registry.lock:
        _registry.by_overload.clear()
        _registry.by_replacement.clear()
        _registry.used.clear()


def _check_declared(overload: Any) -> None:
    if overload in _registry.by_overload:
        name = declarations.name_of(overload)
        raise ValueError(f"the functions of {name} are registered for an operator that is not declared; declare it before you register")


declarations.when_declared(_check_declared)


# The operators of cotune.


def _replacement_name(overload: Any) -> str:
    """Returns the name of cotune's operator for one of the user, equal in each process, because compiled code contains it."""
    schema = str(overload._schema)
    digest = hashlib.sha256(schema.encode()).hexdigest()[:8]
    return f"choice_{overload._schema.name.replace('::', '_')}_{digest}"


def _define(overload: Any, run: Run) -> None:
    """Defines the operator of cotune for one of the user, once a process."""
    name, schema = _replacement_name(overload), str(overload._schema)
    if name in _registry.replacements:
        return
    library = plain.operator_library()
    library.define(name + schema[schema.index("(") :], tags=tuple(overload.tags))

    def call(*arguments: Any, **keywords: Any) -> torch.Tensor:
        operator = _registry.by_replacement[name]
        with torch.no_grad():
            return run(operator, aten_ops.arguments_by_name(operator.overload, arguments, keywords))

    def fake(*arguments: Any, **keywords: Any) -> torch.Tensor:
        return _registry.by_replacement[name].overload(*arguments, **keywords)

    library.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"cotune::{name}", fake, lib=library)
    replacement = getattr(torch.ops.cotune, name).default
    # The other ranks wait for a call whose result nothing reads on this one.
    compat.keep_calls(replacement)
    _registry.replacements[name] = replacement


# Checks.


def _checked_group(where: str, overload: Any) -> str:
    """Returns the name of the group argument. Raises ValueError for an operator that cannot have functions."""
    if why := declarations.why_no_new_tensor(overload) or declarations.why_not_seen(overload):
        raise ValueError(f"{where}: {why}")
    schema = overload._schema
    types = {each.name: str(each.type) for each in schema.arguments}
    group = next((each for each in custom_operators.GROUP_ARGUMENTS if types.get(each) in ("str", "Optional[str]")), "")
    if not group:
        raise ValueError(
            f"{where}: it has no argument {', '.join(custom_operators.GROUP_ARGUMENTS)} of type str that names a process group, "
            f"by which the ranks meet; its schema is {schema}. Register an operator that has one"
        )
    lists = [name for name, type_ in types.items() if "Tensor" in type_ and type_ not in ("Tensor", "Optional[Tensor]")]
    if lists:
        raise ValueError(f"{where}: its argument {lists[0]} is a list of tensors; register an operator whose arguments are tensors")
    if "Tensor" not in types.values():
        raise ValueError(f"{where}: it has no tensor among its arguments, so that nothing depends on the data of the ranks")
    return group


def _check_parameters(
    where: str, name: str, overload: Any, group: str, run: Callable[..., Any] | None, parameters: dict[str, Any]
) -> None:
    function_choices.check_parameters(name, parameters)
    types = {each.name: str(each.type) for each in overload._schema.arguments}
    for each in parameters:
        if each == group or "Tensor" in types.get(each, ""):
            raise ValueError(f"{where}: a CustomOpConfig has the parameter {each}, which is a tensor or the group of the operator; leave it out")
        if run is None and each not in types:
            raise ValueError(f"{where}: a CustomOpConfig without a function has the parameter {each}, which the operator does not have")
    if run is None and not parameters:
        raise ValueError(f"{where}: a CustomOpConfig has no function and no parameters; the operator itself is the default anyway, so leave it out")


def _checked_generators(where: str, overload: Any, given: Any) -> dict[str, Any]:
    tensors = [each.name for each in overload._schema.arguments if "Tensor" in str(each.type)]
    if given is not None and not isinstance(given, dict):
        raise TypeError(f"{where}: input_gen_fns is a dict of functions by the names of arguments, and not {given!r}")
    for name, function in (given or {}).items():
        if name not in tensors:
            raise ValueError(f"{where}: input_gen_fns has {name!r}, and the tensors of the operator are {', '.join(tensors)}")
        if not callable(function):
            raise TypeError(f"{where}: input_gen_fns has {function!r} for {name}, which cannot be called")
    return dict(given or {})
