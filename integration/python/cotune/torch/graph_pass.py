"""The pass that replaces collectives in Inductor's post-grad graphs by programs, and its part of the keys of Inductor's caches."""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from cotune.torch import (
    compat,
    custom_choices,
    decisions,
    declarations,
    given_back,
    groups,
    process_groups,
    rewriting,
)
from cotune.torch.collectives import GroupFacts
from cotune.torch.settings import Settings

# The keys of Inductor's caches contain a digest of these files, because they decide how a graph and its code look. Modules that
# only warn (forced_operators) or act when a graph runs (compile_budget) are not among them (activation_test.py has these).
_FILES = (
    "aten_ops",
    "collective_key",
    "collectives",
    "compat",
    "composites",
    "custom_choices",
    "declarations",
    "dependencies",
    "emission",
    "given_back",
    "graph_pass",
    "manifest",
    "operators",
    "process_groups",
    "program_node",
    "program_text",
    "region",
    "regions",
    "result_memory",
    "rewriting",
    "settings",
    "settings_file",
    "sizes",
    "start_order",
    "sweep",
    "whole_graph",
)


@functools.cache
def code_digest() -> str:
    """The SHA-256 of the code of the pass, in hex."""
    total = hashlib.sha256()
    for name in _FILES:
        total.update(pathlib.Path(__file__).with_name(f"{name}.py").read_bytes())
    return total.hexdigest()


class CotunePass(compat.custom_graph_pass()):
    """Replaces collectives, and the operations around them, by operators that run programs.

    Inductor calls it on the thread that compiles.

    Args:
      settings: equal on all ranks.
      before: a pass, or a list or tuple of passes, that runs first; None for none.
    """

    def __init__(self, settings: Settings | None = None, before: Any = None):
        compat.check_version()
        self.settings = settings or Settings()
        self.before = before

    def __call__(self, graph: fx.Graph) -> None:
        groups.drop_stale()
        decisions.note_lookup(compat.compile_id(), is_compiled=True)
        for each in _passes(self.before):
            each(graph)
        rewriting.rewrite(graph, self.settings, group_facts_of(self.settings))

    def uuid(self) -> Any:
        """Returns the facts that the result of the pass depends on, for the keys of Inductor's caches.

        These are its code, the settings, the declared operators and those with functions, the collectives that were given back,
        the process groups, the probed values, and the uuids of the passes before it. It returns None, which turns the caches
        off, if a pass before it has no uuid, or if the process groups are not known.
        """
        # A graph that comes out of a cache does not call the pass, so that its compilation is noted here.
        groups.drop_stale()
        decisions.note_lookup(compat.compile_id(), is_compiled=False)
        known = process_groups.known_groups()
        if known is None:
            return None
        before = []
        for each in _passes(self.before):
            found = each.uuid() if hasattr(each, "uuid") else None
            if found is None:
                return None
            before.append(found)
        facts = (bool(known), tuple(sorted((name, *found) for name, found in known.items())))
        own = code_digest(), repr(self.settings), declarations.key(), custom_choices.key(), given_back.key()
        # A rank that finds the graph of another rank in the cache has no copy without programs to race against.
        rank = process_groups.global_rank() if groups.races_plain() else -1
        return ("cotune", *own, rank, facts, compat.probed_values(), tuple(before))

    def __deepcopy__(self, memo: dict[int, Any]) -> CotunePass:
        # Ahead-of-time compilation copies its options; the pass has no state of its own.
        return self


def _passes(before: Any) -> tuple[Any, ...]:
    if before is None:
        return ()
    return tuple(before) if isinstance(before, (list, tuple)) else (before,)


def group_facts_of(settings: Settings) -> Callable[[str], GroupFacts]:
    """Returns a function that gives the facts about a process group at compile time, by its name.

    It may read only facts that the uuid of the pass contains: the caches' keys would lack any other.
    """

    @functools.cache
    def facts(name: str) -> GroupFacts:
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return GroupFacts(reason="torch.distributed is not initialised")
        known = process_groups.known_groups()
        if known is None:
            return GroupFacts(reason=f"torch {torch.__version__} has no list of process groups")
        if name not in known:
            return GroupFacts(reason=f"there is no group '{name}' in this process")
        size, is_fake = known[name]
        if size == 1:
            return GroupFacts(reason="its group has one rank")
        if is_fake and not settings.export:
            return GroupFacts(reason="its group has the fake backend, and export is off")
        return GroupFacts(world_size=size)

    return facts
