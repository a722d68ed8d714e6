"""Custom operators that the user has declared to be collectives.

The pass treats a call of such an operator as the functional collective of the same kind with the wait after it. Because the
rewriting of graphs depends on the declarations, they are in the keys of the caches of compiled graphs (graph_pass.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from cotune.torch import aten_ops, compat

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
REDUCING = ("all_reduce", "reduce_scatter")
REDUCTIONS = ("sum", "avg", "product", "min", "max")

_NAME = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?")
# The pass knows the collectives in these namespaces by itself; AOTAutograd turns those of the second into the first.
_KNOWN_NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd", "cotune")


@dataclasses.dataclass(frozen=True)
class Declaration:
    """A custom operator that is a collective.

    Attributes:
      operator: its name with its overload, unless that is the default one.
      kind: one of KINDS.
      tensor: the argument that is the operand.
      group: the argument that is the name of the process group.
      reduction: one of REDUCTIONS, or the argument that has it; "" if the kind reduces nothing.
    """

    operator: str
    kind: str
    tensor: str
    group: str
    reduction: str

    def functional_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by the names that the functional collective has for them."""
        reduction = self.reduction if self.reduction in REDUCTIONS else arguments.get(self.reduction)
        return {
            "input": arguments.get(self.tensor),
            "group_name": arguments.get(self.group),
            "reduce_op": reduction,
        }


# The declarations by the overloads, not by names: an operator that is registered anew may have another schema.
_declared: dict[Any, Declaration] = {}
_checks: list[Callable[[Any], None]] = []


def declare(operator: str, kind: str, tensor: str, group: str, reduction: str = "sum") -> None:
    """See cotune.torch.declare_collective."""
    overload = _overload_of(operator)
    declaration = _checked(f"declare_collective of {operator}", overload, kind, tensor, group, reduction)
    # An operator that is registered anew, as in a notebook, has another overload of the same name.
    before = {each: known for each, known in _declared.items() if known.operator == declaration.operator}
    _replace(before, {overload: declaration})
    try:
        for check in _checks:
            check(overload)
    except ValueError as failure:
        _replace({overload: declaration}, before)
        raise ValueError(
            f"declare_collective of {operator}: functions are registered for the operator, and do not fit this declaration; "
            f"declare before you register, and once: {failure}"
        ) from None
    # The other ranks wait for a call whose result nothing reads on this one.
    compat.keep_calls(overload)


def when_declared(check: Callable[[Any], None]) -> None:
    """Adds a check that is called with each operator that is declared. If it raises ValueError, the declaration is refused."""
    _checks.append(check)


def _replace(old: dict[Any, Declaration], new: dict[Any, Declaration]) -> None:
    for each in old:
        _declared.pop(each, None)
    _declared.update(new)


def why_refused(overload: Any, tensor: str, group: str) -> str:
    """Returns why a declaration of an operator with these arguments would be refused, whatever its kind; "" if it would not."""
    try:
        _checked("", overload, "all_gather", tensor, group, "sum")
    except ValueError as failure:
        return str(failure).removeprefix(": ")
    return ""


def _checked(where: str, overload: Any, kind: str, tensor: str, group: str, reduction: str) -> Declaration:
    """Returns the declaration. Raises ValueError, whose text begins with `where`, for one that is refused."""
    _check_kind(where, kind)
    if why := why_not_declarable(overload):
        raise ValueError(f"{where}: {why}")
    if why := why_not_seen(overload):
        raise ValueError(f"{where}: {why}")
    _check_argument(where, overload, "tensor", tensor, ("Tensor",), "the operand of the collective")
    _check_argument(where, overload, "group", group, ("str", "Optional[str]"), "the name of the process group")
    reduction = _checked_reduction(where, overload, kind, reduction)
    return Declaration(name_of(overload), kind, tensor, group, reduction)


def of(target: Any) -> Declaration | None:
    """Returns the declaration of an operator; None if nobody has declared it."""
    return _declared.get(target)


def wrapped_in(node: fx.Node) -> Any | None:
    """The declared operator that a node calls through a higher-order operator such as with_effects; None without one."""
    if not isinstance(node.target, compat.higher_order_type()):
        return None
    # Some arguments cannot be keys of a dict.
    overloads = (each for each in node.args if isinstance(each, compat.operator_type()))
    return next((each for each in overloads if of(each) is not None), None)


def kinds() -> dict[Any, str]:
    """The kind of each declared operator."""
    return {overload: declaration.kind for overload, declaration in _declared.copy().items()}


def key() -> tuple[Any, ...]:
    """All declarations, on which compiled graphs depend, with the schemas of their operators."""
    return tuple(
        sorted((str(overload._schema), *dataclasses.astuple(each)) for overload, each in _declared.copy().items())
    )


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Returns the arguments of a collective, functional or declared, by the names that functional collectives have for them."""
    wrapped = wrapped_in(node)
    if wrapped is not None:
        given = node.args[node.args.index(wrapped) + 1 :]
        arguments = aten_ops.arguments_by_name(wrapped, given, node.kwargs)
        return of(wrapped).functional_arguments(arguments)
    arguments, declaration = aten_ops.arguments_of(node), of(node.target)
    return arguments if declaration is None else declaration.functional_arguments(arguments)


def operand_of(node: fx.Node) -> fx.Node:
    """The operand of a collective, declared or functional."""
    declaration = of(node.target)
    if declaration is None:
        return node.all_input_nodes[0]
    return aten_ops.arguments_of(node)[declaration.tensor]


def name_of(overload: Any) -> str:
    """The name under which an operator is declared: "lib::op", or "lib::op.overload" unless the overload is the default."""
    name = overload._schema.overload_name
    return overload._schema.name + (f".{name}" if name else "")


@functools.lru_cache(maxsize=1024)
def why_not_declarable(overload: Any) -> str:
    """Returns why an operator cannot be declared as a collective of any kind; "" if it can."""
    if why := why_no_new_tensor(overload):
        return why
    tensors = [each.name for each in overload._schema.arguments if "Tensor" in str(each.type)]
    if len(tensors) != 1:
        found = f"the arguments {', '.join(tensors)} are tensors" if tensors else "it has no tensor among its arguments"
        return (
            f"{found}, and the value of a collective depends on exactly one; register an operator "
            "for the collective alone, and declare that one"
        )
    return ""


@functools.lru_cache(maxsize=1024)
def why_no_new_tensor(overload: Any) -> str:
    """Returns why an operator is refused: it writes to an argument, does not return one new tensor, or the pass knows it; or ""."""
    schema = overload._schema
    if schema.name.split("::")[0] in _KNOWN_NAMESPACES:
        return (
            "the pass knows the operators of this namespace by itself, so that nothing is to be declared; call it in a compiled "
            "function, and cotune.torch.explain() states what became of it"
        )
    written = [each.name for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    if written:
        return (
            f"it writes to its argument {written[0]}, and cotune replaces only operators that return a new tensor; register "
            "an operator that returns its result, with mutates_args=(), and declare that one"
        )
    results = [str(each.type) for each in schema.returns]
    if results != ["Tensor"] or schema.returns[0].alias_info is not None:
        what = f"it returns ({', '.join(results)})" if results != ["Tensor"] else "its result shares memory with an argument"
        return (
            f"{what}, and the result of a collective is one new tensor; register an operator that returns the "
            "result alone, and declare that one"
        )
    return ""


# The reason for which a call of an operator with an effect does not reach the pass as such.
EFFECT_HINT = (
    "an effect is registered for it, so that PyTorch wraps its calls and orders them by a token; register it without an effect: "
    "cotune keeps the order and all calls of declared operators"
)


def why_not_seen(overload: Any) -> str:
    """Returns why the pass would not find calls of an operator in a graph; "" if it would."""
    if compat.has_effect(overload):
        return EFFECT_HINT
    if compat.is_decomposed(overload):
        return (
            "its kernel is a CompositeImplicitAutograd one, so that PyTorch puts the operators that the kernel calls into the "
            'graph, and a declaration would never match; register the kernel as "CompositeExplicitAutograd" or for each kind of '
            "device, or with torch.library.custom_op"
        )
    return ""


def _overload_of(operator: Any) -> Any:
    matched = _NAME.fullmatch(operator) if isinstance(operator, str) else None
    if matched is None:
        raise TypeError(
            f'declare_collective: the operator is the name of a custom operator, as "lib::op", and not {operator!r}; give the '
            "name with which torch.library.custom_op or torch.library.define has registered it"
        )
    namespace, name, overload = matched.groups()
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
    except AttributeError:
        raise ValueError(
            f"declare_collective: this process has no operator {namespace}::{name}; the module that registers it may not be "
            "imported yet, or the name is another one. Import the module before, and give the registered name"
        ) from None
    if (overload or "default") not in packet.overloads():
        raise ValueError(
            f"declare_collective: {namespace}::{name} has no overload {overload or 'default'}, but {', '.join(packet.overloads())}; "
            f'give one of them, as "{namespace}::{name}.{packet.overloads()[0]}"'
        )
    return getattr(packet, overload or "default")


def _check_kind(where: str, kind: Any) -> None:
    if kind == "broadcast":
        raise ValueError(
            f"{where}: a broadcast cannot be declared, because the schema of an operator does not state whether its root is a "
            "rank of the group or a global one; call torch.ops.cotune.broadcast, or the functional collective, in the graph"
        )
    if kind not in KINDS:
        near = difflib.get_close_matches(str(kind), KINDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise ValueError(
            f"{where}: the kind is one of {', '.join(KINDS)}, and not {kind!r}{hint} An operator that does something else "
            "cannot be declared, and runs as it is"
        )


def _check_argument(where: str, overload: Any, option: str, name: Any, types: tuple[str, ...], meaning: str) -> None:
    arguments = {each.name: str(each.type) for each in overload._schema.arguments}
    if name not in arguments:
        raise ValueError(
            f"{where}: {option} names {meaning}, and the operator has no argument {name!r}; its schema is {overload._schema}. "
            "Give the name that the argument has there"
        )
    if arguments[name] not in types:
        raise ValueError(
            f"{where}: {option} names {meaning}, which is {types[0]}, and the argument {name} is {arguments[name]}; its schema "
            f"is {overload._schema}. Give the argument of that type, or register an operator that has one"
        )


def _checked_reduction(where: str, overload: Any, kind: str, reduction: Any) -> str:
    if kind not in REDUCING:
        if reduction != "sum":
            raise ValueError(f"{where}: {kind} reduces nothing, and the reduction is {reduction!r}; leave it out")
        return ""
    if reduction not in REDUCTIONS:
        meaning = f"the reduction, unless it is one of {', '.join(REDUCTIONS)}"
        _check_argument(where, overload, "reduction", reduction, ("str",), meaning)
    return reduction
