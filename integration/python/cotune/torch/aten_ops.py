"""Translates aten and prims operators to operations of a program, by a table of functions that emit these.

An operator is in the table only if the operations of the program compute the same: the dtype of the
result, NaN, and the places at which 16-bit values are rounded. If that holds for some arguments of
an operator only, the others are refused with a reason.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import fx

from cotune.torch import compat, sizes
from cotune.torch.program_text import COMPUTED_FLOATS, Number, Operand, Program, Refusal

aten = torch.ops.aten
prims = torch.ops.prims


class Context(Protocol):
    """The view that an emitting function has of the region that its node joins."""

    program: Program
    word: str  # the dtype of the node's result
    device_type: str  # "cpu" or "cuda"

    def operand(self, argument: Any, dtype: str = "") -> Operand:
        """The operand for an argument, cast to `dtype` if that is given."""

    def row_operand(self, argument: Any) -> int:
        """The operand for an argument of an operation on rows: one value a column."""


Emit = Callable[[Context, dict[str, Any]], int]


@dataclasses.dataclass(frozen=True)
class Rule:
    """The translation of one operator.

    Attributes:
      emit: adds the operations and returns the value.
      is_rowwise: it computes along rows, so that the last dimension must be that of the program.
      is_view: it changes only the shape, and all elements stay where they are.
      is_cheap: it may be fused with the collective after it (see Sweep).
    """

    emit: Emit
    is_rowwise: bool = False
    is_view: bool = False
    is_cheap: bool = False


RULES: dict[Any, Rule] = {}


def _rule(*overloads: Any, **flags: bool) -> Callable[[Emit], Emit]:
    def register(emit: Emit) -> Emit:
        for overload in overloads:
            RULES[overload] = Rule(emit, **flags)
        return emit

    return register


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """The arguments of a call by the names in its schema, with the defaults."""
    return arguments_by_name(node.target, node.args, node.kwargs)


def arguments_by_name(overload: Any, arguments: Iterable[Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of an operator by the names in its schema, with the defaults."""
    schema = overload._schema.arguments
    found = {each.name: each.default_value for each in schema if each.has_default_value()}
    return found | {each.name: value for each, value in zip(schema, arguments, strict=False)} | keywords


def _computed(context: Context) -> str:
    if context.word == "bool":
        raise Refusal("it computes with bool")
    return context.word


def _names(arguments: dict[str, Any]) -> tuple[Any, Any]:
    """The two operands of a binary operator."""
    return arguments["self"], arguments["other"]


def _binary(op: str) -> Emit:
    def emit(context: Context, arguments: dict[str, Any]) -> int:
        dtype = _computed(context)
        left, right = (context.operand(each, dtype) for each in _names(arguments))
        alpha = arguments.get("alpha", 1)
        if alpha != 1:
            if not isinstance(alpha, (int, float)):
                raise Refusal("alpha is no number")
            right = _scaled(context, right, alpha)
        return context.program.op(op, left, right)

    return emit


def _scaled(context: Context, operand: Operand, alpha: float) -> Operand:
    if isinstance(operand, Number):
        return Number(operand.value * alpha)
    # aten rounds once, after the addition; a 16-bit product would be rounded before it.
    if context.word in ("f16", "bf16"):
        raise Refusal(f"alpha of {context.word} is rounded elsewhere")
    return context.program.op("mul", operand, Number(alpha))


for _op in ("add", "sub", "mul"):
    for _overload in (getattr(aten, _op).Tensor, getattr(aten, _op).Scalar):
        RULES[_overload] = Rule(_binary(_op), is_cheap=True)
RULES[aten.maximum.default] = Rule(_binary("max"))
RULES[aten.minimum.default] = Rule(_binary("min"))


@_rule(aten.rsub.Scalar, aten.rsub.Tensor)
def _rsub(context: Context, arguments: dict[str, Any]) -> int:
    if arguments.get("alpha", 1) != 1:
        raise Refusal("rsub has an alpha")
    left, right = (context.operand(each, _computed(context)) for each in _names(arguments))
    return context.program.op("sub", right, left)


@_rule(aten.div.Tensor, aten.div.Scalar, is_cheap=True)
def _div(context: Context, arguments: dict[str, Any]) -> int:
    if context.word not in COMPUTED_FLOATS:
        raise Refusal("the quotient is no float")
    left, right = (context.operand(each, context.word) for each in _names(arguments))
    return context.program.op("div", left, right)


def _unary(op: str) -> Emit:
    def emit(context: Context, arguments: dict[str, Any]) -> int:
        return context.program.op(op, context.operand(arguments["self"], _computed(context)))

    return emit


for _op in "relu exp log sqrt rsqrt tanh sigmoid silu round".split():
    RULES[getattr(aten, _op).default] = Rule(_unary(_op))
for _op in ("neg", "abs"):
    RULES[getattr(aten, _op).default] = Rule(_unary(_op), is_cheap=True)


@_rule(aten.gelu.default)
def _gelu(context: Context, arguments: dict[str, Any]) -> int:
    kind = arguments["approximate"]
    if kind not in ("none", "tanh"):
        raise Refusal(f"gelu is approximated by {kind}")
    op = "gelu" if kind == "none" else "gelu_tanh"
    return context.program.op(op, context.operand(arguments["self"], _computed(context)))


@_rule(aten.reciprocal.default)
def _reciprocal(context: Context, arguments: dict[str, Any]) -> int:
    return context.program.op("div", Number(1), context.operand(arguments["self"], context.word))


@_rule(aten.square.default)
def _square(context: Context, arguments: dict[str, Any]) -> int:
    x = context.operand(arguments["self"], _computed(context))
    return context.program.op("mul", x, x)


@_rule(aten.pow.Tensor_Scalar)
def _pow(context: Context, arguments: dict[str, Any]) -> int:
    dtype, exponent, program = _computed(context), arguments["exponent"], context.program
    x = context.operand(arguments["self"], dtype)
    if exponent == 1:
        return x
    if exponent == 2:
        return program.op("mul", x, x)
    if exponent == 3:
        # aten computes the cube of 16-bit values in f32 and rounds it once.
        wide = program.cast(x, "f32") if dtype in ("f16", "bf16") else x
        cube = program.op("mul", program.op("mul", wide, wide), wide)
        return program.cast(cube, dtype)
    if exponent not in (0.5, -0.5) or dtype not in COMPUTED_FLOATS:
        raise Refusal(f"pow has the exponent {exponent}")
    if exponent == 0.5:
        # Compiled code calls sqrt, too; eager f16 gives other values for -0 and -inf.
        return program.op("sqrt", x)
    # Compiled code calls pow: 0 for -inf and inf for -0, where rsqrt gives NaN and -inf.
    root = program.op("rsqrt", program.op("add", x, Number(0.0)))
    return program.op("where", program.op("equal", x, Number(-math.inf)), Number(0.0), root)


# Bounds.


@_rule(aten.clamp.default)
def _clamp(context: Context, arguments: dict[str, Any]) -> int:
    low, high = arguments["min"], arguments["max"]
    if not all(bound is None or isinstance(bound, (int, float)) for bound in (low, high)):
        raise Refusal("a bound is no number")
    x = context.operand(arguments["self"], _computed(context))
    if low is None or high is None:
        bound = high if low is None else low
        return context.program.op("min" if low is None else "max", x, Number(bound))
    return context.program.op("clamp", x, low=float(low), high=float(high))


def _bound(op: str, name: str) -> Emit:
    def emit(context: Context, arguments: dict[str, Any]) -> int:
        dtype = _computed(context)
        x, bound = context.operand(arguments["self"], dtype), arguments[name]
        return context.program.op(op, x, context.operand(bound, dtype))

    return emit


for _name, _op, _argument in (("clamp_min", "max", "min"), ("clamp_max", "min", "max")):
    for _overload in (getattr(aten, _name).default, getattr(aten, _name).Tensor):
        RULES[_overload] = Rule(_bound(_op, _argument))


# Comparisons and choices.


def _compared(context: Context, arguments: dict[str, Any]) -> tuple[Operand, Operand]:
    """Both operands in the dtype in which aten compares."""
    words = {facts.word for facts in map(sizes.facts_of, _names(arguments)) if facts is not None}
    if len(words) != 1:
        raise Refusal("it compares values of two dtypes")
    (word,) = words
    if word == "bool":
        raise Refusal("it compares bools")
    left, right = (
        _rounded(context.operand(each, word), word) for each in _names(arguments)
    )
    return left, right


def _rounded(operand: Operand, word: str) -> Operand:
    """Rounds a number to the dtype, as aten does before it compares."""
    if not isinstance(operand, Number) or word not in COMPUTED_FLOATS:
        return operand
    return Number(torch.tensor(operand.value, dtype=sizes.DTYPES[word]).item())


def _comparison(make: Callable[[Program, Operand, Operand], int]) -> Emit:
    def emit(context: Context, arguments: dict[str, Any]) -> int:
        return make(context.program, *_compared(context, arguments))

    return emit


def _not_greater(program: Program, a: Operand, b: Operand) -> int:
    # Not (b < a) would be true for NaN.
    return program.op("max", program.op("less", a, b), program.op("equal", a, b))


_COMPARISONS: dict[str, Callable[[Program, Operand, Operand], int]] = {
    "lt": lambda program, a, b: program.op("less", a, b),
    "gt": lambda program, a, b: program.op("less", b, a),
    "eq": lambda program, a, b: program.op("equal", a, b),
    "ne": lambda program, a, b: program.op("sub", Number(1), program.op("equal", a, b)),
    "le": _not_greater,
    "ge": lambda program, a, b: _not_greater(program, b, a),
}
for _name, _make in _COMPARISONS.items():
    for _overload in (getattr(aten, _name).Tensor, getattr(aten, _name).Scalar):
        RULES[_overload] = Rule(_comparison(_make))


@_rule(aten.where.self)
def _where(context: Context, arguments: dict[str, Any]) -> int:
    dtype = _computed(context)
    condition = context.operand(arguments["condition"])
    chosen, other = (context.operand(each, dtype) for each in _names(arguments))
    return context.program.op("where", condition, chosen, other)


# Casts.


def _cast(context: Context, argument: Any) -> int:
    if context.word == "bool":
        raise Refusal("it casts to bool")
    facts = sizes.facts_of(argument)
    if facts is not None and (facts.word, context.word) == ("bool", "u8"):
        # A bool is a u8 value of the program already, and one value cannot be an output in two dtypes.
        raise Refusal("it casts bool to u8")
    x = context.operand(argument)
    if context.word not in sizes.DTYPES:
        raise Refusal(f"programs have no {context.word}")
    if context.word in _F8_MAX and compat.f8_saturates(context.word, context.device_type):
        x = _saturated(context.program, x, context.word)
    return context.program.cast(x, context.word)


_F8_MAX = {"f8_e4m3": 448.0, "f8_e5m2": 57344.0}


def _saturated(program: Program, x: int, word: str) -> int:
    """A value within the range of an 8-bit float, beyond which a program's cast gives NaN or infinity. NaN stays."""
    dtype = program.types[x].dtype
    if dtype in ("f8_e4m3", "i8", "u8", word):
        return x
    if dtype == "f8_e5m2":
        x = program.cast(x, "f32")
    return program.op("clamp", x, low=-_F8_MAX[word], high=_F8_MAX[word])


@_rule(prims.convert_element_type.default, is_cheap=True)
def _convert(context: Context, arguments: dict[str, Any]) -> int:
    return _cast(context, arguments["a"])


@_rule(aten._to_copy.default, is_cheap=True)
def _to_copy(context: Context, arguments: dict[str, Any]) -> int:
    if any(arguments.get(name) for name in ("layout", "device", "pin_memory")):
        raise Refusal("the copy changes more than the dtype")
    if arguments.get("memory_format") not in (None, torch.preserve_format, torch.contiguous_format):
        raise Refusal("the copy changes the layout")
    return _cast(context, arguments["self"])


# Operations on rows.


def _check_last_dim(context: Context, arguments: dict[str, Any], dims: Any) -> None:
    facts = sizes.facts_of(arguments["self"])
    dims = [dims] if isinstance(dims, int) else dims
    if not dims or len(dims) != 1 or dims[0] not in (-1, len(facts.dims) - 1):
        raise Refusal("it reduces another dimension than the last")


def _reduced(context: Context, arguments: dict[str, Any], op: str) -> int:
    _check_last_dim(context, arguments, arguments["dim"])
    x = context.row_operand(arguments["self"])
    program = context.program
    if program.types[x].dtype not in COMPUTED_FLOATS or context.word not in COMPUTED_FLOATS:
        raise Refusal("it reduces no floats")
    if context.word == "f64":
        x = program.cast(x, "f64")
    return program.cast(program.op(op, x), context.word)


for _overload, _op in (
    (aten.mean.dim, "row_mean"),
    (aten.sum.dim_IntList, "row_sum"),
    (aten.amax.default, "row_max"),
):
    RULES[_overload] = Rule(
        lambda context, arguments, op=_op: _reduced(context, arguments, op), is_rowwise=True
    )


@_rule(aten._softmax.default, is_rowwise=True)
def _softmax(context: Context, arguments: dict[str, Any]) -> int:
    _check_last_dim(context, arguments, arguments["dim"])
    x = context.row_operand(arguments["self"])
    if arguments["half_to_float"]:
        x = context.program.cast(x, "f32")
    return context.program.op("softmax", x)


# Operators with several results. The rule emits the result that a getitem selects, by its index.

ResultEmit = Callable[[Context, dict[str, Any], int], int]
RESULT_RULES: dict[Any, ResultEmit] = {}


def _result_rule(name: str, overload: str) -> Callable[[ResultEmit], ResultEmit]:
    def register(emit: ResultEmit) -> ResultEmit:
        packet = getattr(aten, name, None)
        if packet is not None and overload in packet.overloads():
            RESULT_RULES[getattr(packet, overload)] = emit
        return emit

    return register


@_result_rule("var_mean", "correction")
def _var_mean(context: Context, arguments: dict[str, Any], index: int) -> int:
    _check_last_dim(context, arguments, arguments["dim"])
    if arguments["correction"] != 0:
        raise Refusal(f"var_mean has the correction {arguments['correction']}")
    program = context.program
    x = context.row_operand(arguments["self"])
    wide = x
    if program.types[x].dtype in ("f16", "bf16"):
        wide = program.cast(x, "f32")
    mean = program.op("row_mean", wide)
    if index == 1:
        return program.cast(mean, context.word)
    variance = program.op("row_mean_square", program.op("sub", wide, mean))
    return program.cast(variance, context.word)


def _check_norm(arguments: dict[str, Any], index: int, shape: Any, epsilon: Any) -> float:
    if index != 0:
        raise Refusal("a statistic of the norm is used")
    facts = sizes.facts_of(arguments["input"])
    if len(shape) != 1 or shape[0] != facts.columns:
        raise Refusal("the norm is over more than the last dimension")
    if not isinstance(epsilon, (int, float)) or not math.isfinite(epsilon):
        raise Refusal("the norm has no eps of its own")
    return float(epsilon)


@_result_rule("_fused_rms_norm", "default")
def _rms_norm(context: Context, arguments: dict[str, Any], index: int) -> int:
    eps = _check_norm(arguments, index, arguments["normalized_shape"], arguments["eps"])
    if arguments["weight"] is None:
        raise Refusal("the norm has no weight")
    x, gamma = context.row_operand(arguments["input"]), context.row_operand(arguments["weight"])
    return context.program.op("rms_norm", x, gamma, eps=eps)


@_result_rule("native_layer_norm", "default")
def _layer_norm(context: Context, arguments: dict[str, Any], index: int) -> int:
    eps = _check_norm(arguments, index, arguments["normalized_shape"], arguments["eps"])
    if arguments["weight"] is None or arguments["bias"] is None:
        raise Refusal("the norm lacks weight or bias")
    x, gamma, beta = (context.row_operand(arguments[name]) for name in ("input", "weight", "bias"))
    return context.program.op("layer_norm", x, gamma, beta, eps=eps)


# Views: the elements stay where they are in row-major order, so that a program needs no operation.


def _same(context: Context, arguments: dict[str, Any]) -> int:
    return context.operand(arguments["self"])


for _overload in (
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.alias.default,
    aten.detach.default,
):
    RULES[_overload] = Rule(_same, is_view=True, is_cheap=True)

EXPAND = aten.expand.default


def literal_of(node: Any) -> float | None:
    """The number that a node fills a tensor of one element with; None for any other node."""
    if not isinstance(node, fx.Node) or node.target is not aten.full.default:
        return None
    shape, number = node.args[:2]
    if not isinstance(number, (bool, int, float)) or any(size != 1 for size in shape):
        return None
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in sizes.DTYPE_WORDS:
        return None
    return torch.tensor(number, dtype=value.dtype).item()
