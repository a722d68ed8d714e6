"""Runs programs by torch itself: by functional collectives of the process group, and aten operators.

The operator does so for a process group that cotune cannot serve. Every value is rounded to its
dtype, as docs/programs.md defines for `--numerics same`.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable

import torch

from cotune import _interrupt
from cotune._interrupt import callback, keeper
from cotune.torch import compat, outside, process_groups, sizes
from cotune.torch.collective_key import Key, key_of
from cotune.torch.program_text import ALL, ONE, REDUCING, SHARE, Node, Number, Program, parse

_SCALE_MIN = 1e-12
_LARGEST = {"i8": 127.0, "f8_e4m3": 448.0, "f8_e5m2": 57344.0}


def register_plain_operator() -> None:
    """Defines cotune::program_plain, which runs a program by run_plain(). It has an effect once a process."""
    _plain_library()


@functools.cache
def operator_library() -> torch.library.Library:
    """The torch.library in which Python defines operators of cotune."""
    return torch.library.Library("cotune", "FRAGMENT")


@functools.cache
def _plain_library() -> torch.library.Library:
    library = operator_library()
    library.define(
        "program_plain(Tensor[] inputs, Tensor(a!)[] outputs, str program, str group_name) -> ()"
    )
    library.impl("program_plain", _run_plain_operator, "CompositeExplicitAutograd")
    return library


@callback
def _run_plain_operator(inputs: list[torch.Tensor], outputs: list[torch.Tensor], program: str, group_name: str) -> None:
    """The entry from the operator library.

    The library makes a RuntimeError of every exception, so that Ctrl-C is held back until the operator returns.
    """
    if _interrupt._is_in_callback(sys._getframe().f_back):
        run_plain(inputs, outputs, program, group_name)  # The call around this one holds Ctrl-C back.
        return
    try:
        keeper.begin()
        run_plain(inputs, outputs, program, group_name)
    except KeyboardInterrupt:
        keeper.raise_later()  # Ctrl-C came before the keeper had set its handler.
        raise
    finally:
        try:
            keeper.end()
        except KeyboardInterrupt:
            keeper.raise_later()  # Ctrl-C came while the handler was being restored, after the collective.


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Program:
    return parse(text)


def texts_of_collectives(text: str) -> set[str]:
    """Returns, for each collective of a program, the text of the program that has this collective alone."""
    program = _parsed(text)
    return {
        key_of(node, program.types[node.operands[0]].dtype, 0, 1).text
        for node in program.nodes
        if node.is_collective
    }


def run_plain(
    inputs: list[torch.Tensor], outputs: list[torch.Tensor], program: str, group_name: str
) -> None:
    """Runs a program text and writes its outputs.

    Tensors have any shape; their row-major elements are rows and columns of the program's values.
    One input more than the program declares is allowed and not read: it orders the calls of a graph.
    Raises ValueError for tensors that do not fit, and Refusal for a text that is no program.
    """
    run = Run(program, inputs, group_name)
    run.check_outputs(outputs)
    run.write(outputs)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a bool tensor as u8, which stands for it in programs, and any other tensor as it is."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


# Runs a collective on an operand, and returns its result, or None if PyTorch has to run it. The third argument is the key.
_RunCollective = Callable[[Node, torch.Tensor, Key], torch.Tensor | None]


class Run:
    """One run of a program, operation by operation, on tensors of two dimensions.

    The constructor raises ValueError for tensors that do not fit, and Refusal for a text that is no program.
    """

    def __init__(
        self,
        text: str,
        inputs: list[torch.Tensor],
        group_name: str,
        run_collective: _RunCollective | None = None,
    ):
        program = self._program = _parsed(text)
        if len(inputs) == len(program.inputs) + 1:
            inputs = inputs[:-1]
        if len(inputs) != len(program.inputs):
            raise ValueError(
                f"the program has {len(program.inputs)} inputs and {len(program.outputs)} outputs, and "
                f"the call has {len(inputs)} inputs"
            )
        inputs = [_as_bytes(each) for each in inputs]
        self._run_collective = run_collective
        self._group_name = group_name
        group = process_groups.resolve_group(group_name)
        if group is None:
            raise ValueError(f"there is no group '{group_name}' in this process")
        self._world_size = group.size()
        self._device = inputs[0].device
        self._operands = [
            self._operand(each, type_.dtype, type_.columns)
            for each, type_ in zip(inputs, program.inputs, strict=True)
        ]
        self._rows = self._rows_of_operands()
        self._values: list[torch.Tensor] = []

    def keys(self) -> list[Key]:
        """The keys of the collectives, in order."""
        keys = []
        for node in self._program.nodes:
            if node.is_collective:
                type_ = self._program.types[node.operands[0]]
                keys.append(self._key(node, type_.dtype, self._rows[type_.rows] * type_.columns))
        return keys

    @property
    def operands(self) -> list[torch.Tensor]:
        """The operands in two dimensions, the rows and columns of the program's inputs."""
        return self._operands

    def rows(self) -> int:
        """The R of this run; 0 if the program has none."""
        return self._rows[ALL]

    def _key(self, node: Node, dtype: str, elements: int) -> Key:
        return key_of(node, dtype, elements, self._world_size)

    def write(self, outputs: list[torch.Tensor]) -> None:
        """Runs the program, and writes its outputs."""
        with torch.no_grad():
            self.write_results(outputs, self.results())

    @staticmethod
    def write_results(outputs: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Writes results of the program to its outputs."""
        for output, result in zip(map(_as_bytes, outputs), results, strict=True):
            output.copy_(result.reshape(output.shape))

    def count_collectives(self) -> None:
        """Notes that PyTorch has run the collectives of the program."""
        for _ in filter(lambda node: node.is_collective, self._program.nodes):
            outside.add_own(self._group_name)

    def check_outputs(self, outputs: list[torch.Tensor]) -> None:
        """Raises ValueError for outputs that do not fit. It is called before the program runs."""
        if len(outputs) != len(self._program.outputs):
            raise ValueError(
                f"the program has {len(self._program.outputs)} outputs, and the call has "
                f"{len(outputs)}"
            )
        outputs = [_as_bytes(each) for each in outputs]
        for output, (value, _) in zip(outputs, self._program.outputs, strict=True):
            type_ = self._program.types[value]
            wanted = sizes.DTYPES[type_.dtype], self._rows[type_.rows] * type_.columns
            if (output.dtype, output.numel()) != wanted:
                raise ValueError(
                    f"an output is {output.dtype} of {tuple(output.shape)}, and its value is "
                    f"{wanted[0]} of {self._rows[type_.rows]} rows and {type_.columns} columns on "
                    f"{self._world_size} ranks"
                )

    def results(self) -> list[torch.Tensor]:
        """Runs the program, and returns the values of its outputs."""
        given, nodes = iter(self._operands), iter(self._program.nodes)
        for value in range(len(self._program.types)):
            is_input = self._program.is_input(value)
            self._values.append(next(given) if is_input else self._result(next(nodes)))
        return [self._values[value] for value, _ in self._program.outputs]

    def _rows_of_operands(self) -> dict[str, int]:
        """Returns the row counts for which 1, R and R/n stand. Raises ValueError if the operands contradict each other."""
        counts = {ONE: 1}
        for operand, type_ in zip(self._operands, self._program.inputs, strict=True):
            rows = counts.setdefault(type_.rows, operand.shape[0])
            if operand.shape[0] != rows:
                raise ValueError(f"a value has {operand.shape[0]} rows, and others have {rows}")
        whole = counts.get(ALL, counts.get(SHARE, 0) * self._world_size)
        if counts.get(SHARE, whole // self._world_size) != whole // self._world_size:
            raise ValueError(f"values of R and R/n rows have {whole} and {counts[SHARE]} rows")
        return {ONE: 1, ALL: whole, SHARE: whole // self._world_size}

    @staticmethod
    def _operand(tensor: torch.Tensor, word: str, columns: int) -> torch.Tensor:
        if tensor.dtype != sizes.DTYPES[word] or tensor.numel() % columns != 0:
            raise ValueError(
                f"an input is {tensor.dtype} of {tuple(tensor.shape)}, and the program has {word} "
                f"of {columns} columns"
            )
        return tensor.reshape(-1, columns)

    def _result(self, node: Node) -> torch.Tensor:
        if node.is_collective:
            return self._collective(node, self._values[node.operands[0]].contiguous())
        if node.op == "cast":
            return _cast(self._values[node.operands[0]], sizes.DTYPES[node.to])
        typed = [self._values[v] for v in node.operands if not isinstance(v, Number)]
        if node.op == "where":
            return self._where(node)
        dtype = typed[0].dtype
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        operands = [self._wide(each, wide) for each in node.operands]
        result = _compute(node, operands)
        if node.op in ("less", "equal"):
            return result.to(torch.uint8)
        if node.op == "quantize":
            return _cast(result, sizes.DTYPES[node.to])
        if node.op.startswith("row_") or node.op == "quantize_scale":
            return result
        return result.to(dtype)

    def _wide(self, operand: int | Number, dtype: torch.dtype) -> torch.Tensor:
        if isinstance(operand, Number):
            number = operand.value if dtype.is_floating_point else int(operand.value)
            # torch.tensor would copy from the host, which a CUDA graph cannot capture.
            return torch.full((), number, dtype=dtype, device=self._device)
        return self._values[operand].to(dtype)

    def _where(self, node: Node) -> torch.Tensor:
        values = [self._values[v] for v in node.operands[1:] if not isinstance(v, Number)]
        dtype = values[0].dtype
        condition = node.operands[0]
        if isinstance(condition, Number):
            chosen = self._wide(condition, torch.uint8)
        else:
            chosen = self._values[condition]
        return torch.where(chosen != 0, *(self._wide(each, dtype) for each in node.operands[1:]))

    def _collective(self, node: Node, x: torch.Tensor) -> torch.Tensor:
        if self._run_collective is not None:
            dtype = self._program.types[node.operands[0]].dtype
            result = self._run_collective(node, x, self._key(node, dtype, x.numel()))
            if result is not None:
                return result
        started = _started(node, x, self._group_name, self._world_size)
        # A call that raises has run no collective, and is not counted.
        outside.add_own(self._group_name)
        return _finished(node, started, self._group_name, self._world_size)


def by_pytorch(node: Node, x: torch.Tensor, group: str, ranks: int) -> torch.Tensor:
    """Runs a collective by PyTorch's functional one, waits for it, and returns the result."""
    return _finished(node, _started(node, x, group, ranks), group, ranks)


def collective_alone(node: Node, x: torch.Tensor, group: str, ranks: int) -> None:
    """Runs only a collective, as compiled code does if it may overwrite the operand."""
    ops = compat.functional_collectives()
    if node.op == "all_reduce":
        ops.wait_tensor(ops.all_reduce_(x, _reduction_of(node, x, group), group))
    else:
        ops.wait_tensor(_started(node, x, group, ranks))


def has_average(text: str) -> bool:
    """Returns true if a collective of a program averages."""
    return any(node.op in REDUCING and node.reduction == "average" for node in _parsed(text).nodes)


def averages_by_backend(group: str, device: torch.device) -> bool:
    """Returns true if the backend of a process group computes averages on a device.

    Programs must then request averages from it: a rank whose graph leaves an average to PyTorch requests one as well, and the
    collective of a rank that requested a sum, to divide it afterwards, would not match.
    """
    return process_groups.averages(process_groups.resolve_group(group), device.type)


def _reduction_of(node: Node, x: torch.Tensor, group: str) -> str:
    if node.reduction != "average":
        return node.reduction
    return "avg" if averages_by_backend(group, x.device) and x.dtype.is_floating_point else "sum"


def _started(node: Node, x: torch.Tensor, group: str, ranks: int) -> torch.Tensor:
    """Starts a functional collective. Returns its result, for which the caller has to wait."""
    ops = compat.functional_collectives()
    if node.op == "all_reduce":
        return ops.all_reduce(x, _reduction_of(node, x, group), group)
    if node.op == "broadcast":
        return ops.broadcast(x, int(dict(node.named)["root"]), group)
    if node.op == "all_gather":
        return ops.all_gather_into_tensor(x, ranks, group)
    if x.shape[0] % ranks != 0:
        raise ValueError(f"{node.op}: {x.shape[0]} rows are no multiple of {ranks} ranks")
    if node.op == "reduce_scatter":
        return ops.reduce_scatter_tensor(x, _reduction_of(node, x, group), ranks, group)
    share = [x.shape[0] // ranks] * ranks
    return ops.all_to_all_single(x, share, share, group)


def _finished(node: Node, started: torch.Tensor, group: str, ranks: int) -> torch.Tensor:
    """Waits for a collective from _started(), and returns its result."""
    result = compat.functional_collectives().wait_tensor(started)
    if node.op in REDUCING and node.reduction == "average" and _reduction_of(node, result, group) == "sum":
        rounding = None if result.dtype.is_floating_point else "trunc"
        result = torch.div(result, ranks, rounding_mode=rounding)
    return result


def _cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        narrow = x.dtype in (torch.float64, torch.int32, torch.int64) and dtype.itemsize < 4
        return (x.to(torch.float32) if narrow else x).to(dtype)
    if not x.dtype.is_floating_point:
        return x.to(dtype)
    # Floats round toward zero, are clamped to the range of the integers, and NaN becomes 0.
    limits = torch.iinfo(dtype)
    exact = torch.trunc(x.to(torch.float64)).nan_to_num(nan=0.0)
    inside = exact.clamp(float(limits.min), float(limits.max))
    result = torch.where(inside >= 2.0**63, 0.0, inside).to(dtype)
    return torch.where(exact >= float(limits.max), limits.max, result)


def _mean(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1, keepdim=True) / x.shape[-1]


def _named(node: Node, name: str) -> float:
    return float(dict(node.named)[name])


def _norm(node: Node, x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(_mean(x * x) + _named(node, "eps"))


def _quantize(node: Node, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    largest = _LARGEST[node.to]
    scaled = x / scale
    if node.to == "i8":
        scaled = torch.round(scaled)
    return scaled.clamp(-largest, largest)


def _scale(node: Node, x: torch.Tensor) -> torch.Tensor:
    largest = x.abs().amax(-1, keepdim=True)
    least = torch.full((), _SCALE_MIN, dtype=x.dtype, device=x.device)
    return torch.maximum(largest, least) / _LARGEST[node.to]


def _clamp(node: Node, x: torch.Tensor) -> torch.Tensor:
    low, high = _named(node, "low"), _named(node, "high")
    if not x.dtype.is_floating_point:
        limits = torch.iinfo(x.dtype)
        return x.clamp(int(max(low, limits.min)), int(min(high, limits.max)))
    return x.clamp(low, high)


def _gelu(x: torch.Tensor) -> torch.Tensor:
    """Computes gelu by the formula of compiled code, because eager PyTorch gives NaN for infinity on a CPU."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return (wide * 0.5 * (1 + torch.erf(wide * math.sqrt(0.5)))).to(x.dtype)


_Function = Callable[..., torch.Tensor]
_FUNCTIONS: dict[str, _Function] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "min": torch.minimum,
    "max": torch.maximum,
    "less": torch.lt,
    "equal": torch.eq,
    "gelu": _gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "row_sum": lambda x: x.sum(-1, keepdim=True),
    "row_max": lambda x: x.amax(-1, keepdim=True),
    "row_mean": _mean,
    "row_mean_square": lambda x: _mean(x * x),
    "softmax": lambda x: torch.softmax(x, -1),
}
_FUNCTIONS |= {
    name: getattr(torch, name)
    for name in "neg abs relu exp log sqrt rsqrt tanh sigmoid round".split()
}
_NODE_FUNCTIONS: dict[str, _Function] = {
    "clamp": _clamp,
    "quantize": _quantize,
    "quantize_scale": _scale,
    "rms_norm": lambda node, x, gamma: _norm(node, x) * gamma,
    "layer_norm": lambda node, x, gamma, beta: _norm(node, x - _mean(x)) * gamma + beta,
}


def _compute(node: Node, operands: list[torch.Tensor]) -> torch.Tensor:
    function = _NODE_FUNCTIONS.get(node.op)
    if function is not None:
        return function(node, *operands)
    return _FUNCTIONS[node.op](*operands)
