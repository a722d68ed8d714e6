"""Finds custom operators that may be collectives and that nobody has declared, in graphs and in generated code.

An operator may be a collective if its schema has one of GROUP_ARGUMENTS, or if an argument of a call is the name of a process
group of this process.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx

from cotune.torch import aten_ops, compat, declarations, origins, process_groups
from cotune.torch.origins import Origin

GROUP_ARGUMENTS = ("group", "group_name", "process_group")
# Namespaces whose operators are not custom: they have no collectives, or the pass knows them. Some operators of aten have an int
# argument `group`.
_NOT_CUSTOM = frozenset(
    "_c10d_functional _native _quantized aten cotune debugprims export flex_lib fsdp inductor inductor_prims mkl mkldnn "
    "mkldnn_prepacked onednn prim prims profiler quantized quantized_decomposed rngprims sparse streams".split()
)
# Namespaces of PyTorch with collectives that the pass does not know. Users are not asked to declare these.
_OF_TORCH = frozenset({"_c10d_functional_autograd", "_dtensor", "c10d", "c10d_functional", "symm_mem"})
_CALL = re.compile(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)\(")


@dataclasses.dataclass
class UndeclaredOperator:
    """A custom operator with a group argument that nobody had declared when its graph was compiled.

    Attributes:
      operator: its name, as declare_collective takes it.
      argument: the argument that is a group, by its name or by its value.
      groups: the names of the groups with which the graph calls it, as far as they are constants.
      calls: how many nodes of the graph, or lines of generated code, call it.
      declaration: the call that declares it, but for the kind; "" if it cannot be declared.
      why_not: why it cannot be declared, or "".
      why_body: why its body runs, although functions are registered for it; "" if they can run.
      origin: the line of the user that calls it first; None if that is not known.
    """

    operator: str
    argument: str
    groups: list[str]
    calls: int
    declaration: str
    why_not: str
    origin: Origin | None = None
    why_body: str = ""


@dataclasses.dataclass
class Call:
    """A call of a custom operator, with its arguments by their names. In generated code, those that are not constants are None."""

    overload: Any
    values: dict[str, Any]
    node: fx.Node | None = None


def in_graph(graph: fx.Graph) -> list[UndeclaredOperator]:
    """The undeclared operators of a graph with a group argument, in the order of their first calls."""
    calls = (found for node in graph.nodes if node.op == "call_function" and (found := _call_of(node)) is not None)
    return _undeclared(calls)


def calls_in(graph: fx.Graph) -> list[fx.Node]:
    """The nodes of a graph that call custom operators."""
    return [node for node in graph.nodes if node.op == "call_function" and _call_of(node) is not None]


def calls_in_code(code: str) -> tuple[Call, ...]:
    """The calls of custom operators in code that Inductor has generated."""
    return tuple(_calls_in(code))


def undeclared_of(calls: Iterable[Call]) -> list[UndeclaredOperator]:
    """The undeclared operators with a group argument among calls in generated code."""
    return _undeclared(calls)


def calls_functional_collectives(code: str) -> bool:
    """Returns true if generated code calls functional collectives of PyTorch."""
    lines = (line for line in code.splitlines() if not line.lstrip().startswith(("#", "//")))
    return any("_c10d_functional" in line for line in lines)


def is_declared_now(operator: UndeclaredOperator) -> bool:
    """Returns true if somebody has declared it after its graph was compiled."""
    return any(operator.operator == declarations.name_of(each) for each in declarations.kinds())


def _undeclared(calls: Iterable[Call]) -> list[UndeclaredOperator]:
    names = _group_names()
    found: dict[Any, UndeclaredOperator] = {}
    for call in calls:
        if call.overload.namespace in _OF_TORCH or declarations.of(call.overload) is not None:
            continue
        if not (argument := _group_argument(call, names)):
            continue
        known = found.get(call.overload)
        if known is None:
            origin = None if call.node is None else origins.of_nodes([call.node])
            known = found[call.overload] = _made(call.overload, argument, origin)
        known.calls += 1
        group = call.values.get(argument)
        if isinstance(group, str) and group not in known.groups:
            known.groups.append(group)
    return list(found.values())


def _made(overload: Any, argument: str, origin: Origin | None) -> UndeclaredOperator:
    name, declaration = declarations.name_of(overload), ""
    tensor = next((each.name for each in overload._schema.arguments if "Tensor" in str(each.type)), "")
    why_not = declarations.why_refused(overload, tensor, argument)
    if not why_not:
        declaration = f'cotune.torch.declare_collective("{name}", kind=..., tensor="{tensor}", group="{argument}")'
    return UndeclaredOperator(name, argument, [], 0, declaration, why_not, origin)


def _group_names() -> frozenset[str]:
    return frozenset(process_groups.known_groups() or ())


def _is_custom(overload: Any) -> bool:
    return isinstance(overload, compat.operator_type()) and overload.namespace not in _NOT_CUSTOM


def _call_of(node: fx.Node) -> Call | None:
    """The custom operator that a node calls, by itself or through a higher-order operator such as auto_functionalized."""
    overload, arguments = node.target, node.args
    if isinstance(overload, compat.higher_order_type()):
        place = next((place for place, each in enumerate(arguments) if _is_custom(each)), None)
        if place is None:
            return None
        overload, arguments = arguments[place], arguments[place + 1 :]
    if not _is_custom(overload):
        return None
    return Call(overload, aten_ops.arguments_by_name(overload, arguments, node.kwargs), node)


@functools.lru_cache(maxsize=1024)
def _named_as_group(overload: Any) -> str:
    names = [each.name for each in overload._schema.arguments]
    return next((each for each in GROUP_ARGUMENTS if each in names), "")


def _group_argument(call: Call, names: frozenset[str]) -> str:
    """The argument that is a group by its name, or else by its value; "" if none is."""
    by_name = _named_as_group(call.overload)
    if by_name:
        return by_name
    return next((name for name, value in call.values.items() if isinstance(value, str) and value in names), "")


def _calls_in(code: str) -> Iterator[Call]:
    for line in code.splitlines():
        line = line.strip()
        matched = None if line.startswith("#") else _CALL.search(line)
        if matched is None:
            continue
        try:
            overload = functools.reduce(getattr, matched.groups(), torch.ops)
        except AttributeError:
            continue
        if _is_custom(overload):
            yield Call(overload, _constants_of(overload, line, matched[0]))


def _constants_of(overload: Any, line: str, callee: str) -> dict[str, Any]:
    """The constant arguments of the call in a line of code."""
    try:
        calls = [each for each in ast.walk(ast.parse(line)) if isinstance(each, ast.Call)]
    except SyntaxError:
        return {}
    for call in calls:
        if ast.unparse(call.func) + "(" == callee:
            keywords = {each.arg: _constant(each.value) for each in call.keywords if each.arg}
            return aten_ops.arguments_by_name(overload, [_constant(each) for each in call.args], keywords)
    return {}


def _constant(expression: ast.expr) -> Any:
    return expression.value if isinstance(expression, ast.Constant) else None
