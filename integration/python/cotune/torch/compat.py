"""Private names of torch that the package uses, each in a function that probes for it.

compiled_functions.py has the names by which functions of the user are compiled, and process_groups.py
those of process groups. A function whose name this torch lacks returns None, or raises `Unsupported` if
the package cannot work without it. Nothing of torch is patched.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch

OLDEST = (2, 11)
NEWEST = (2, 13)


class Unsupported(RuntimeError):
    """This torch lacks a name without which the package cannot work."""


def torch_version() -> tuple[int, int]:
    """Major and minor number of torch."""
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@functools.cache
def check_version() -> None:
    """Raises Unsupported for a torch that is too old; warns once for one that is not tested."""
    version = torch_version()
    if version < OLDEST:
        raise Unsupported(
            f"torch {torch.__version__} is too old for cotune; install torch "
            f"{OLDEST[0]}.{OLDEST[1]} or newer"
        )
    if version > NEWEST:
        warnings.warn(
            f"cotune is tested with torch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}, and "
            f"this is {torch.__version__}",
            stacklevel=2,
        )


def fetch(module: str, *path: str) -> Any | None:
    """Returns the value of a name in a module of torch; None if this torch lacks it."""
    try:
        value = importlib.import_module(module)
        for name in path:
            value = getattr(value, name)
    except (ImportError, AttributeError):
        return None
    return value


def need(module: str, *path: str) -> Any:
    """Does the same as fetch(), but raises Unsupported if this torch lacks the name."""
    value = fetch(module, *path)
    if value is None:
        raise Unsupported(f"torch {torch.__version__} has no {module}.{'.'.join(path)}")
    return value


@functools.cache
def custom_graph_pass() -> type:
    """The base class of graph passes, from which Inductor's caches take the uuid."""
    return need("torch._inductor.custom_graph_pass", "CustomGraphPass")


@functools.cache
def takes_several_passes() -> bool:
    """Returns true if Inductor's pass options may be lists; before torch 2.13 they are one callable."""
    return fetch("torch._inductor.custom_graph_pass", "get_custom_graph_passes") is not None


@functools.cache
def operator_type() -> type:
    """The class of overloads of operators, as torch.ops.aten.add.Tensor is one."""
    return need("torch._ops", "OpOverload")


@functools.cache
def higher_order_type() -> type:
    """The class of operators that take operators or functions as arguments."""
    return need("torch._ops", "HigherOrderOperator")


@functools.cache
def auto_functionalized() -> Any:
    """The higher-order operator that makes a mutating operator functional."""
    return need("torch._higher_order_ops.auto_functionalize", "auto_functionalized")


@functools.cache
def functionalizers() -> frozenset[Any]:
    """All higher-order operators that make a mutating operator functional: their first argument is that operator."""
    newer = fetch("torch._higher_order_ops.auto_functionalize", "auto_functionalized_v2")
    return frozenset({auto_functionalized(), newer} - {None})


@functools.cache
def inductor_config() -> Any:
    """The module torch._inductor.config."""
    return need("torch._inductor.config")


def lowering() -> Any:
    """The module torch._inductor.lowering."""
    module = need("torch._inductor.lowering")
    for name in ("make_fallback", "require_contiguous"):
        if not hasattr(module, name):
            raise Unsupported(f"torch {torch.__version__} has no torch._inductor.lowering.{name}")
    return module


def has_lowering(op: Any) -> bool:
    """Returns true if Inductor has a lowering for the overload."""
    return op in getattr(lowering(), "lowerings", {})


def changed_benchmark_options() -> dict[str, Any]:
    """Returns the values of Inductor's options of collective benchmarks that the user has changed, by cotune's setting names.

    They may be values that cotune's settings cannot have. If torch lacks these options, the dict is empty.
    """
    config = inductor_config()
    # The settings of cotune that they stand for, and their defaults, which are equal in every torch that has them.
    options = {
        "collective_benchmark_nruns": ("collective_benchmark_nruns", 50),
        "collective_benchmark_timeout": ("collective_autotune_timeout", 30.0),
    }
    return {
        setting: getattr(config, option)
        for option, (setting, default) in options.items()
        if getattr(config, option, default) != default
    }


def locality_option() -> str:
    """The name of Inductor's option to move nodes next to their readers before passes of users run; "" if it has none."""
    name = "reorder_for_locality"
    return name if hasattr(inductor_config(), name) else ""


def reorders_for_locality() -> bool:
    """Returns true if Inductor moves nodes next to their readers in graphs that are compiled now."""
    name = locality_option()
    return bool(name) and bool(getattr(inductor_config(), name))


@functools.cache
def sort_graph() -> Any | None:
    """The function that sorts a graph topologically and keeps the order of independent nodes; None if this torch lacks it."""
    return fetch("torch._inductor.pattern_matcher", "stable_topological_sort")


def depend_on(graph: Any, dependencies: dict[Any, Any]) -> None:
    """Lets nodes of an FX graph run after others that they do not read. `dependencies`: {node: the node before it}."""
    preserve = need("torch._inductor.fx_passes.control_dependencies", "preserve_node_ordering")
    ordered_set = need("torch.utils._ordered_set", "OrderedSet")
    preserve(graph, {node: ordered_set([before]) for node, before in dependencies.items()})


def has_effect(overload: Any) -> bool:
    """Returns true if an effect is registered for an operator, which threads a token through its calls."""
    effect_of = fetch("torch._higher_order_ops.effects", "_get_effect")
    try:
        return effect_of is not None and effect_of(overload) is not None
    except (AttributeError, ValueError):
        return False


def is_decomposed(overload: Any) -> bool:
    """Returns true if an operator is traced as the operators that its kernel calls; False if this torch cannot answer."""
    try:
        name = overload.name()
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        return bool(has_kernel(name, "CompositeImplicitAutograd"))
    except (AttributeError, RuntimeError):
        return False


def custom_op_of(overload: Any) -> Any | None:
    """The object that torch.library.custom_op has made for an operator; None if another function has registered it."""
    known = fetch("torch._library.custom_ops", "OPDEFS")
    return None if known is None else known.get(overload._schema.name)


@functools.cache
def fake_mode() -> type:
    """The mode in which tensors have no memory."""
    return need("torch._subclasses.fake_tensor", "FakeTensorMode")


def keep_calls(overload: Any) -> None:
    """Keeps calls of an operator whose results nothing reads: other ranks wait for them."""
    keep = need("torch.fx.node", "has_side_effect")
    keep(overload)


@functools.cache
def functional_collectives() -> Any | None:
    """The namespace of functional collectives, torch.ops._c10d_functional."""
    if not torch.distributed.is_available():
        return None
    fetch("torch.distributed._functional_collectives")  # registers the operators
    namespace = torch.ops._c10d_functional
    return namespace if hasattr(namespace, "wait_tensor") else None


def collective_overload(name: str) -> Any | None:
    """The default overload of a functional collective; None if this torch lacks it."""
    packet = getattr(functional_collectives(), name, None)
    return getattr(packet, "default", None)


def waited(value: Any) -> Any:
    """Waits for a functional collective if `value` is its result, and returns the tensor; returns any other value as it is."""
    begun = fetch("torch.distributed._functional_collectives", "AsyncCollectiveTensor")
    if begun is None or not isinstance(value, begun):
        return value
    return need("torch.distributed._functional_collectives", "wait_tensor")(value.elem)


def overlap_passes() -> list[str]:
    """The names of Inductor's options to overlap, bucket or pipeline collectives that are on."""
    config = inductor_config()
    on = [
        name
        for name in (
            "reorder_for_compute_comm_overlap",
            "_micro_pipeline_tp",
            "_fuse_ddp_communication",
        )
        if getattr(config, name, False)
    ]
    nested = getattr(config, "aten_distributed_optimizations", None)
    if nested is not None and getattr(nested, "enable_overlap_scheduling", False):
        on.append("aten_distributed_optimizations.enable_overlap_scheduling")
    for name in ("all_gathers", "reduce_scatters", "all_reduces"):
        option = f"bucket_{name}_fx"
        if (getattr(config, option, "none") or "none") != "none":
            on.append(option)
    return on


# The graph that is compiled, and those that have been loaded.


def is_branch_or_loop(graph: Any) -> bool:
    """Returns true if a graph is the body of a torch.cond, a torch.while_loop or the like.

    Inductor cannot lower an operator there that writes to a list of tensors, as a program does. The body does not refer to the
    graph that contains it. But Inductor's function that runs the passes calls itself for each body, and has the outer module in
    its local variable `gm`: this function reads it from the call stack.
    """
    calls = fetch("torch._inductor.compile_fx", "_recursive_post_grad_passes")
    code = getattr(inspect.unwrap(calls), "__code__", None) if calls is not None else None
    frame, inner = sys._getframe(1), graph.owning_module
    while frame is not None and inner is not None:
        outer = frame.f_locals.get("gm") if frame.f_code is code else None
        if outer is not None and outer is not inner:
            if any(each is inner for node in outer.graph.nodes if _branches(node) for each in bodies_of(node)):
                return True
            inner = outer
        frame = frame.f_back
    return False


def _branches(node: Any) -> bool:
    # invoke_subgraph only calls its body.
    return isinstance(node.target, higher_order_type()) and node.target.name() != "invoke_subgraph"


def bodies_of(node: Any) -> list[Any]:
    """The modules that a node of a graph runs as the bodies of its branches, its loop or its call."""
    if not isinstance(node.target, higher_order_type()):
        return []
    found = [getattr(each.graph.owning_module, str(each.target), None) for each in node.all_input_nodes if each.op == "get_attr"]
    return [each for each in found if isinstance(each, torch.fx.GraphModule)]


def compile_id() -> str:
    """The id of the compilation that runs now, such as "0/1", which TORCH_LOGS and tlparse show; "" if none is known."""
    context = fetch("torch._guards", "CompileContext")
    try:
        return str(context.current_compile_id() or "")
    except AttributeError:
        return ""


def traced_code() -> list[Any]:
    """The code of all functions that Dynamo has traced for the graph that is compiled now; [] if it keeps none."""
    context = fetch("torch._guards", "TracingContext")
    try:
        return list(context.get_traced_code() or [])
    except AttributeError:
        return []


def generated_files() -> list[str]:
    """The files of Python code that Inductor has generated, or found in its cache, for the user's graphs in this process."""
    return [each for each in _loaded_files() if each not in _own_files]


def _loaded_files() -> list[str]:
    modules = fetch("torch._inductor.codecache", "PyCodeCache", "modules")
    return list(dict.fromkeys(each.__file__ for each in modules or [] if getattr(each, "__file__", None)))


# Compilations by cotune itself, outside of the user's torch.compile.


@contextlib.contextmanager
def note_own_files() -> Iterator[None]:
    """Excludes the files that Inductor generates in the block from generated_files(): they are no code of the user's graphs."""
    known = set(_loaded_files())
    yield
    _own_files.update(set(_loaded_files()) - known)


def traced(function: Any, inputs: list[Any]) -> Any:
    """Traces a function for operands of these sizes, without running it. Returns a graph module of operators for Inductor."""
    make = need("torch.fx.experimental.proxy_tensor", "make_fx")
    table = need("torch._inductor.decomposition", "select_decomp_table")
    with torch.no_grad(), _no_modes():
        return make(function, decomposition_table=table(), tracing_mode="fake")(*inputs)


# The files of code that compile_graph() and compiled_functions.py have made.
_own_files: set[str] = set()


def without_passes() -> dict[str, Any]:
    """Options of Inductor that turn off the passes of users, of which cotune's own is one."""
    config = inductor_config()
    names = ("post_grad_custom_post_pass", "post_grad_custom_pre_pass", "joint_custom_pre_pass", "joint_custom_post_pass")
    return {name: None for name in names if hasattr(config, name)}


def compile_graph(module: Any, inputs: list[Any]) -> Any:
    """Compiles a graph module for operands like these by Inductor, without passes of users, and returns the function.

    The options change for this thread alone (PyTorch 2.13), so that functions that other threads compile keep their passes.
    """
    compile_inner = need("torch._inductor.compile_fx", "compile_fx_inner")
    config = inductor_config()
    with note_own_files(), torch.no_grad(), _no_modes(), config.patch(without_passes()):
        code = compile_inner(module, list(inputs), is_inference=True, cudagraphs=False)
    # Compiled code may empty the list that it gets.
    return lambda *operands: code(list(operands))


def has_inductor_option(name: str) -> bool:
    """Returns true if Inductor has an option of that name, "max_autotune" or "triton.multi_kernel"."""
    return name.replace("-", "_") in inductor_options()


def compiler_errors() -> tuple[type[Exception], ...]:
    """The errors that Inductor raises if the compiler of C++ is missing or fails."""
    found = [fetch("torch._inductor.exc", name) for name in ("CppCompileError", "InvalidCxxCompiler")]
    return tuple(each for each in found if each is not None)


def inductor_options() -> dict[str, Any]:
    """The current values of all options of Inductor."""
    return inductor_config().get_config_copy()


def options_text(options: dict[str, Any]) -> str:
    """Returns a text of those options that may change generated code. It is equal in processes with equal options.

    An option whose value is an object, for example a pass, counts by its type alone, because its text may have an address.
    """
    ignored = tuple(getattr(inductor_config(), "_cache_config_ignore_prefix", ()))
    kept = sorted((name, value) for name, value in options.items() if not name.startswith(ignored))
    return repr([(name, _plain_value(value)) for name, value in kept])


def _plain_value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain_value(each) for each in value]
    if isinstance(value, dict):
        return sorted((str(name), repr(_plain_value(each))) for name, each in value.items())
    return type(value).__name__


def changed_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns those of the options whose values differ from Inductor's now. Options that Inductor lacks are left out."""
    now = inductor_options()
    return {name: value for name, value in options.items() if name in now and now[name] is not value and now[name] != value}


def captures_graphs() -> bool:
    """Returns true if a graph that is compiled now becomes a CUDA graph."""
    return bool(getattr(getattr(inductor_config(), "triton", None), "cudagraphs", False))


def forget_compiled_code(compile_ids: set[str]) -> bool:
    """Forgets the code that was compiled under these ids, so that the functions are compiled anew at their next calls.

    Calls that are running go on. Returns false if this torch has no list of compiled code; then nothing is forgotten.
    """
    entries_of = fetch("torch._dynamo.eval_frame", "_debug_get_cache_entry_list")
    seen = fetch("torch._dynamo.convert_frame", "input_codes", "seen")
    if entries_of is None or seen is None:
        return False
    for code in filter(None, (each() for each in list(seen))):
        for entry in entries_of(code):
            if str(entry.compile_id) in compile_ids:
                _forget_entry(code, entry)
    return True


def _forget_entry(code: Any, entry: Any) -> None:
    """Makes the guards of one compiled form of a function fail, as Dynamo does when an object of theirs is deleted."""
    deleted = fetch("torch._dynamo.guards", "DeletedGuardManagerWrapper")
    try:
        entry.guard_manager.extra_state.invalidate(entry, deleted("cotune has given a collective back to PyTorch"))
    except (AttributeError, TypeError):
        forget = fetch("torch._C._dynamo.eval_frame", "reset_code")
        if forget is not None:
            forget(code)  # forgets all forms of this function, and of no other one


# Casts.


@functools.cache
def f8_saturates(word: str, device_type: str) -> bool:
    """Returns true if compiled code casts values beyond the range of an 8-bit float to its largest value, not NaN or infinity.

    Code for the CPU casts as eager torch does: e5m2 has infinities, and e4m3 has changed between
    versions. Code for CUDA casts by an instruction that saturates, whatever eager torch does there
    (seen with torch 2.11 on H100).
    """
    if device_type == "cuda":
        return True
    if word == "f8_e5m2":
        return False
    with _no_modes():
        cast = torch.tensor([1000.0]).to(torch.float8_e4m3fn)
        return not bool(cast.float().isnan())


def _no_modes() -> Any:
    """A context in which tensors are real: a pass runs while torch makes fake ones."""
    disable = fetch("torch.utils._python_dispatch", "_disable_current_modes")
    return contextlib.nullcontext() if disable is None else disable()


def probed_values() -> tuple[tuple[str, bool], ...]:
    """The results of the probes that run torch. The rewriting of graphs depends on them."""
    return (("f8_e4m3_saturates", f8_saturates("f8_e4m3", "cpu")),)


# Sizes. A SymInt's private node holds its sympy expression.


def size_expression(size: Any) -> Any:
    """An int as it is, or the sympy expression of a SymInt. Adds no guard."""
    if isinstance(size, int):
        return size
    try:
        expression = size.node.expr
    except AttributeError as error:
        raise Unsupported(f"torch {torch.__version__}: a SymInt has no node.expr") from error
    return int(expression) if expression.is_Integer else expression


def size_hint(size: Any) -> int | None:
    """The value of a size in the call for which the graph is compiled; None if it is not known. Adds no guard."""
    if isinstance(size, int):
        return size
    try:
        hint = size.node.hint
    except AttributeError:
        return None
    return hint if isinstance(hint, int) else None


def floor_division(left: Any, right: Any) -> Any | None:
    """The sympy expression of left // right, as torch writes it."""
    division = fetch("torch.utils._sympy.functions", "FloorDiv")
    return None if division is None else division(left, right)


def is_floor_division(expression: Any) -> bool:
    """Returns true if a sympy expression is torch's floor division of two others."""
    division = fetch("torch.utils._sympy.functions", "FloorDiv")
    return division is not None and isinstance(expression, division)
