"""Keeps compiled graphs for a race between their forms with and without programs.

A copy of such a graph is kept from its compilation to the meeting of the ranks. There both forms are compiled, and timed on
operands that are made for the race: no data of the user is read or written. That is safe only for graphs that compute their
results from their operands and have no effect except their collectives. why_not() gives the reason for all others.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from cotune.torch import compat, groups, made_up_values, plain_form, process_groups, race_memory
from cotune.torch.timed_rounds import Call

# At most so many graphs are kept for a meeting. The oldest one is dropped, and does not race.
_KEPT_MAX = 16
_PURE = ("aten", "prims", "_c10d_functional", "cotune", "_operator", "math")
_RUN = torch.Tag.nondeterministic_seeded

# Puts the programs into a copy of a graph.
PutPrograms = Callable[[fx.Graph], None]


def why_not(graph: fx.Graph, group_names: set[str]) -> str:
    """Returns why both forms of a graph cannot be timed; "" if they can. `group_names`: the process groups of its collectives."""
    if len(group_names) != 1:
        return "its collectives are in several process groups, whose ranks do not meet at one place"
    return next(filter(None, map(_why_not_of, graph.nodes)), "") or made_up_values.why_not(graph)


def _why_not_of(node: fx.Node) -> str:
    value = node.meta.get("val")
    for each in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(each, torch.Tensor) and not all(isinstance(size, int) for size in each.shape):
            return "its sizes are dynamic"
        if isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return "its sizes are dynamic"
    if node.op == "placeholder":
        return "" if isinstance(value, torch.Tensor) else f"its operand {node.name} is no tensor"
    if node.op != "call_function":
        return "" if node.op in ("output", "get_attr") else f"it has a node of kind {node.op}"
    return _why_not_call(node)


def _why_not_call(node: fx.Node) -> str:
    target = node.target
    namespace = getattr(target, "namespace", "") or getattr(target, "__module__", "")
    if namespace not in _PURE:
        return f"{target} may do more than compute its result"
    if _RUN in getattr(target, "tags", ()):
        return f"{target} gives random numbers"
    schema = getattr(target, "_schema", None)
    if schema is not None and schema.is_mutable and not _writes_operand(node):
        return f"{target} writes to memory that is no operand of the graph"
    return ""


def _writes_operand(node: fx.Node) -> bool:
    """Returns true if a node writes to an operand of the graph. That is safe, because the timed forms get made-up operands."""
    return isinstance(node.args[0], fx.Node) and node.args[0].op == "placeholder"


@dataclasses.dataclass
class WholeGraph:
    """A graph without programs, and the function that puts them in.

    Attributes:
      digest: a digest of its text, equal on ranks that have the same graph; "" if it cannot be timed.
      why_not: the reason for which it cannot be timed, or "".
    """

    digest: str
    why_not: str
    _root: Any  # the module that has the constants of the graph
    _graph: fx.Graph | None
    _put: PutPrograms
    _options: dict[str, Any]
    _is_captured: bool  # the user's graph runs as a CUDA graph, so that replays of one are timed

    @classmethod
    def of(cls, root: Any, original: fx.Graph, reason: str, put: PutPrograms) -> WholeGraph:
        """Makes one of the graph that is compiled now. `reason`: the result of why_not()."""
        if reason:
            return cls("", reason, None, None, put, {}, False)
        is_captured, options = compat.captures_graphs(), compat.inductor_options()
        text = f"{_text_of(original)}\n{is_captured}\n{compat.options_text(options)}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:24]
        return cls(digest, "", root, original, put, options, is_captured)

    @property
    def bytes_of_operands(self) -> int:
        """The memory that the operands of the graph take, in bytes."""
        values = [node.meta["val"] for node in self._graph.nodes if node.op == "placeholder"]
        return sum(_extent(each) * each.dtype.itemsize for each in values)

    def compiled(
        self, group_name: str, device: torch.device, ranks: int, without: contextlib.AbstractContextManager[Any]
    ) -> dict[str, Call]:
        """Compiles the graph with all its programs, "cotune", and with those that the block `without` leaves in it, "plain".

        PyTorch's collectives in both forms run in the process group `group_name`. The call does not wait for other ranks. Raises
        MemoryError if the operands would take too much of the free memory.
        """
        race_memory.check(self.bytes_of_operands, device, ranks)
        inputs = [_operand(node.meta["val"]) for node in self._graph.nodes if node.op == "placeholder"]
        found = {}
        with compat.inductor_config().patch(compat.changed_options(self._options)):
            for name, block in (("cotune", contextlib.nullcontext()), ("plain", without)):
                module = fx.GraphModule(self._root, copied(self._graph))
                with block:
                    self._put(module.graph)
                _move_collectives(module, group_name)
                form = compat.compile_graph(module, inputs)
                found[name] = lambda form=form: form(*inputs)
        return found

    def as_run(self, ways: dict[str, Call], device: torch.device) -> dict[str, Call]:
        """Returns the forms as the model runs them: as replays of CUDA graphs if the graph is captured.

        Collective over the ranks, because each form runs once before its capture.
        """
        if self._is_captured and device.type == "cuda":
            return {name: _captured(way, device) for name, way in ways.items()}
        return ways


def _captured(way: Call, device: torch.device) -> Call:
    """Captures a CUDA graph of a call, and returns its replay."""
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        way()  # the first call does work that cannot be captured
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Other threads, for example the one for NCCL's timeouts, may call CUDA meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        way()
    return graph.replay


def copied(graph: fx.Graph) -> fx.Graph:
    """Returns a copy of a graph."""
    made = fx.Graph()
    made.output(made.graph_copy(graph, {}))
    return made


def _extent(value: torch.Tensor) -> int:
    """Returns the number of elements of memory from the first to the last element of a tensor."""
    if value.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))


def _operand(value: torch.Tensor) -> torch.Tensor:
    memory = plain_form.filled(torch.empty(_extent(value), dtype=value.dtype, device=value.device))
    return memory.as_strided(value.shape, value.stride())


def _move_collectives(module: fx.GraphModule, group_name: str) -> None:
    """Moves PyTorch's collectives to another process group, and marks the programs as agreed.

    It changes nested graphs as well: compat.depend_on() puts a collective that is ordered after another one into one.
    """
    for each in module.modules():
        if isinstance(each, fx.GraphModule):
            _move_in(each.graph, group_name)
            each.recompile()


def _move_in(graph: fx.Graph, group_name: str) -> None:
    for node in graph.nodes:
        if getattr(node.target, "namespace", "") == "_c10d_functional":
            names = [each.name for each in node.target._schema.arguments]
            if "group_name" in names:
                place = names.index("group_name")
                if place < len(node.args):
                    node.args = (*node.args[:place], group_name, *node.args[place + 1 :])
                else:
                    node.kwargs = {**node.kwargs, "group_name": group_name}
        elif node.target in compat.functionalizers() and "manifest" in node.kwargs:
            node.kwargs = {**node.kwargs, "manifest": "agreed"}


# Graphs that are kept for their meeting, by the names of process groups and the manifests, with the process group at that time.

_lock = threading.RLock()  # a garbage collection in a thread that holds it may run a finalizer
_kept: collections.OrderedDict[tuple[str, str], tuple[weakref.ref[Any], WholeGraph]] = collections.OrderedDict()


def keep(group_name: str, manifest: str, graph: WholeGraph) -> None:
    """Keeps the graph of a manifest for the meeting of its process group, as long as that lives."""
    process_group = process_groups.resolve_group(group_name)
    if process_group is None:
        return
    life = weakref.ref(process_group)
    with _lock:
        _kept[group_name, manifest] = life, graph
        _kept.move_to_end((group_name, manifest))
        if len(_kept) > _KEPT_MAX:
            _kept.popitem(last=False)
    # groups.when_dropped() alone is not enough: groups.py knows only process groups in which an operator has run.
    weakref.finalize(process_groups.object_of_group_life(process_group), _drop_of, life)


def take(group_name: str, manifest: str) -> WholeGraph | None:
    """Returns the graph of a manifest, and keeps it no longer; None if this process has not compiled it or has dropped it."""
    with _lock:
        life, graph = _kept.pop((group_name, manifest), (None, None))
    return graph if life is not None and life() is process_groups.resolve_group(group_name) else None


def _drop_of(life: weakref.ref[Any]) -> None:
    with _lock:
        for key in [key for key, (known, _) in _kept.copy().items() if known == life]:
            _kept.pop(key, None)


def _drop(group_name: str) -> None:
    with _lock:
        for key in [key for key in _kept.copy() if key[0] == group_name]:
            _kept.pop(key, None)


groups.when_dropped(_drop)


def _text_of(graph: fx.Graph) -> str:
    """Returns the nodes with their operands, sizes and strides as text, without numbers of devices, which differ between ranks."""
    lines = []
    for node in graph.nodes:
        value = node.meta.get("val")
        values = value if isinstance(value, (list, tuple)) else (value,)
        layouts = [
            (each.device.type, each.dtype, tuple(each.shape), each.stride()) for each in values if isinstance(each, torch.Tensor)
        ]
        arguments = fx.node.map_aggregate((node.args, node.kwargs), _without_number)
        lines.append(f"{node.name} {node.op} {node.target} {arguments} {layouts}")
    return "\n".join(lines)


def _without_number(argument: Any) -> Any:
    return argument.type if isinstance(argument, torch.device) else argument
