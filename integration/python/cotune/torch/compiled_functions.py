"""Compiles functions of the user that run collectives. Dynamo traces them with a process group that stands for the real one."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch

from cotune.torch import compat


def compile_function(function: Any, options: dict[str, Any], has_compiled: Any) -> Any:
    """Returns the function as torch.compile makes it: one graph, by Inductor with these options and without passes of users.

    `has_compiled(code)` gets the code that Inductor has made of the graph, and returns the callable that runs in its place.
    """
    compile_fx = compat.need("torch._inductor.compile_fx", "compile_fx")
    patches = {**compat.without_passes(), "triton.cudagraphs": False, **options}

    def backend(module: Any, inputs: list[Any]) -> Any:
        with compat.note_own_files():
            code = compile_fx(module, inputs, config_patches=patches)
        return has_compiled(code)

    return torch.compile(function, backend=backend, fullgraph=True)


@functools.cache
def _dispatch_of_new_thread() -> tuple[Any, Any]:
    """The dispatch keys that a new thread includes and excludes."""
    found: list[Any] = []

    def read() -> None:
        for name in ("_dispatch_tls_local_include_set", "_dispatch_tls_local_exclude_set"):
            found.append(compat.need("torch._C", name)())

    thread = threading.Thread(target=read, name="cotune dispatch keys")
    thread.start()
    thread.join()
    included, excluded = found
    return included, excluded


@contextlib.contextmanager
def settings_of_new_thread() -> Iterator[None]:
    """Gives this thread PyTorch's settings of a new thread in the block, but without gradients.

    Functions are compiled on a new thread, and guards let compiled code run only under the settings of its compilation. A
    function on CUDA memory runs on the thread that calls the operator, whose settings may differ: a compiled graph excludes
    dispatch keys, and the user may have turned on autocast or inference mode.
    """
    included, excluded = _dispatch_of_new_thread()
    keys = compat.need("torch._C", "_ForceDispatchKeyGuard")
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        # Guards compare the dtypes of autocast even if it is off; these are the defaults.
        torch.autocast("cuda", dtype=torch.float16, enabled=False),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=False),
        keys(included, excluded),
    ):
        yield


@contextlib.contextmanager
def compiled_code_only() -> Iterator[None]:
    """Lets functions run by code that Dynamo has compiled before, or else as they are. Nothing is compiled in the block."""
    set_callback = compat.need("torch._C._dynamo.eval_frame", "set_eval_frame")
    before = set_callback(False)
    try:
        yield
    finally:
        set_callback(before)


def has_compiled_code(function: Any) -> bool:
    """Returns true if Dynamo has compiled something of a function, and torch._dynamo.reset() has not been called since."""
    entries_of = compat.fetch("torch._dynamo.eval_frame", "_debug_get_cache_entry_list")
    return entries_of is None or bool(entries_of(function.__code__))


def may_be_dynamic(tensor: Any, dim: int) -> None:
    """Lets Dynamo trace a dimension of a tensor for all sizes, unless the function depends on the size."""
    compat.need("torch._dynamo", "maybe_mark_dynamic")(tensor, dim)


# The process groups with which functions are traced, by their names. Guards of compiled code look them up here.
_traced_groups: dict[str, Any] = {}


@functools.cache
def _trace_group_names() -> None:
    """Lets Dynamo trace the function that finds a process group by its name, for the names of traced groups."""
    resolve = compat.need("torch.distributed.distributed_c10d", "_resolve_process_group")

    @torch.compiler.disable
    def untraced(name: str) -> Any:
        return resolve(name)

    @torch.compiler.substitute_in_graph(resolve, skip_signature_check=True)
    def traced_or_break(name: str) -> Any:
        # A name in the user's own functions breaks the graph, as it does without this.
        return _traced_groups[name] if name in _traced_groups else untraced(name)


@contextlib.contextmanager
def traced_group(group: Any, name: str) -> Iterator[None]:
    """Registers a process group of that name for traces, with the ranks of `group`, in the block. It cannot communicate.

    Functions that are compiled in the block and find it by its name call collectives in the group that has the name later. The
    name is unregistered when the block ends, because a collective in the group for traces would do nothing.
    """
    fake = compat.need("torch._C._distributed_c10d", "FakeProcessGroup", "_create_internal")(group.rank(), group.size())
    world = compat.need("torch.distributed.distributed_c10d", "_world")
    made = torch.distributed.ProcessGroup(group.get_group_store(), group.rank(), group.size())
    for kind in ("cpu", "cuda"):
        made._register_backend(torch.device(kind), torch.distributed.ProcessGroup.BackendType.CUSTOM, fake)
    made._set_group_name(name)
    _trace_group_names()
    give_group_name(made, name)
    world.pg_map[made], world.pg_group_ranks[made] = world.pg_map[group], world.pg_group_ranks[group]
    _traced_groups[name] = made
    try:
        yield
    finally:
        for entries in (world.pg_map, world.pg_group_ranks):
            entries.pop(made, None)
        take_group_name(name)


def forget_traced_group(name: str) -> None:
    """Forgets a group for traces. Code that was compiled with it does not run any more."""
    _traced_groups.pop(name, None)
    take_group_name(name)


def give_group_name(group: Any, name: str) -> None:
    """Registers a group under a further name, by which compiled code finds it. A group that had the name loses it."""
    take_group_name(name)
    compat.need("torch.distributed.distributed_c10d", "_register_process_group")(name, group)


def take_group_name(name: str) -> None:
    """Unregisters a name of a group."""
    with contextlib.suppress(RuntimeError, KeyError):
        compat.need("torch.distributed.distributed_c10d", "_unregister_process_group")(name)
