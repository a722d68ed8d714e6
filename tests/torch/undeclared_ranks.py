"""A rank under torchrun whose Python functions race for a custom operator that is no collective and is not declared.

usage: undeclared_ranks.py CASE [--device cuda [--shared-gpus N]]

The operator is a matmul, an all_reduce and a bias; its body reduces 24 times, so that a function that reduces once is faster.
CASE: "faster": right functions; "faulty": some are wrong or raise on rank 1 alone, or break a rule on all ranks; "differs":
rank 1 has another function; "late": rank 1 calls the operator by itself, without the compiled function; "indices": an operator
whose integer operand has values that made-up operands cannot have; "permutes": an all_to_all with a permutation; "transposed": the
weight is a transposed matrix; "sizes": the size of the result depends on data; "compiled": a function sleeps unless it is
compiled, as the operator does, once with an option of Inductor; "uncompiled": Inductor can compile one function on rank 0 alone, and another one nowhere.
Prints one JSON object on every rank: {"rank", "case", "error": what differs from the eager values, or "", "runs": how often the
functions that reduce once have run, "groups": the names of the process groups in which functions ran, "timeout_s": that of the
process group of the last such run, "sleeps": how often the function of the case "compiled" has slept in the last two calls,
"compilations": how often a function was to be compiled, "asserted", "not_asserted": the codes that Inductor has made of functions with and
without assertions about sizes, "explains": the text of cotune.torch.explain()}.
THRESHOLD is min_speedup_threshold. OPTIONS are options of enable(), as a JSON object. HELPER_ADDS: a number that one of the
functions adds to its result. COLLECTIVE: an all_reduce follows the operator.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from unittest import mock

import placement
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch._inductor.graph import GraphLowering
from torch.distributed.distributed_c10d import _resolve_process_group

import cotune.torch
from cotune.torch import CustomOpConfig, compiled_form

RANK = int(os.environ["RANK"])
PARSER = argparse.ArgumentParser()
PARSER.add_argument("case")
placement.add_options(PARSER)
OPTIONS = PARSER.parse_args()
REDUCTIONS_OF_BODY = 24  # so many that a race on busy processors shows it
HAS_COLLECTIVE = "COLLECTIVE" in os.environ
found: dict = {
    "rank": RANK, "case": OPTIONS.case, "error": "", "runs": 0, "groups": [], "sleeps": 0, "compilations": 0, "asserted": 0,
    "not_asserted": 0,
}  # fmt: skip


def reduced(x: torch.Tensor, group_name: str) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x, group=_resolve_process_group(group_name))
    return x


@torch.library.custom_op("undeclared::linear", mutates_args=())
def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, scale: float, group_name: str) -> torch.Tensor:
    if OPTIONS.case in ("compiled", "uncompiled") and group_name != dist.group.WORLD.group_name:
        time.sleep(0.05)  # in races
    product = x @ weight
    for _ in range(REDUCTIONS_OF_BODY):
        total = reduced(product, group_name)
    return total * scale + bias


@linear.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, scale: float, group_name: str) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


@torch.library.custom_op("undeclared::picked", mutates_args=())
def picked(x: torch.Tensor, index: torch.Tensor, group_name: str) -> torch.Tensor:
    if int(index.min()) < 2:
        raise IndexError("rows 0 and 1 are reserved")
    for _ in range(REDUCTIONS_OF_BODY):
        total = reduced(x[index], group_name)
    return total


@picked.register_fake
def _(x: torch.Tensor, index: torch.Tensor, group_name: str) -> torch.Tensor:
    return x.new_empty(index.shape[0], x.shape[1])


@torch.library.custom_op("undeclared::permuted", mutates_args=())
def permuted(x: torch.Tensor, group_name: str) -> torch.Tensor:
    for _ in range(REDUCTIONS_OF_BODY):
        result = torch.empty_like(x)
        dist.all_to_all_single(result, x, group=_resolve_process_group(group_name))
    return result.flip(0).t().contiguous().t()  # column-major, by which compiled code reads it


@permuted.register_fake
def _(x: torch.Tensor, group_name: str) -> torch.Tensor:
    return x.new_empty(x.shape[1], x.shape[0]).t()


@torch.library.custom_op("undeclared::positive", mutates_args=())
def positive(x: torch.Tensor, group_name: str) -> torch.Tensor:
    total = reduced(x, group_name).reshape(-1)
    return total[total > 0]


@positive.register_fake
def _(x: torch.Tensor, group_name: str) -> torch.Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def once(x, weight, bias, scale, group_name):
    found["runs"] += 1
    found["groups"].append(group_name)
    options = _resolve_process_group(group_name)._get_backend(x.device).options
    found["timeout_s"] = options._timeout.total_seconds()
    return reduced(x @ weight, group_name) * scale + bias + helper_adds()


def helper_adds() -> float:
    """Code that a function calls, and that may change between two processes."""
    return float(os.environ.get("HELPER_ADDS", "0"))


def lazy(x, weight, bias, scale, group_name):
    if not torch.compiler.is_compiling():
        found["sleeps"] += 1
        time.sleep(0.05)
    return reduced(x @ weight, group_name) * scale + bias


def uneven(x, weight, bias, scale, group_name):
    if RANK == 1 and torch.compiler.is_compiling():
        torch._dynamo.graph_break()
    return reduced(x @ weight, group_name) * scale + bias


def untraceable(x, weight, bias, scale, group_name):
    time.sleep(0.001)
    return reduced(x @ weight, group_name) * scale + bias


def repeated(x, weight, bias, scale, group_name, times):
    for _ in range(times):
        total = reduced(x @ weight, group_name)
    return total * scale + bias


def views(x, weight, bias, scale, group_name):
    return once(x, weight.view(-1).view(weight.shape), bias, scale, group_name)


kept: dict = {}


def reuses(x, weight, bias, scale, group_name):
    result = once(x, weight, bias, scale, group_name)
    return kept.setdefault(("memory", result.shape), torch.empty_like(result)).copy_(result)


def remembers(x, weight, bias, scale, group_name):
    result = once(x, weight, bias, scale, group_name)
    return kept.setdefault(("values", result.shape), result).clone()


def wrong(x, weight, bias, scale, group_name):
    result = once(x, weight, bias, scale, group_name)
    result[-1, -1] += RANK == 1
    return result


def raises(x, weight, bias, scale, group_name):
    if RANK == 1:
        raise LookupError("no route")
    return once(x, weight, bias, scale, group_name)


def writes(x, weight, bias, scale, group_name):
    result = once(x, weight, bias, scale, group_name)
    x.zero_()
    return result


def too_long(x, weight, bias, scale, group_name):
    return once(x, weight, bias, scale, group_name).repeat(2, 1)


def aliases(x, weight, bias, scale, group_name):
    return bias.copy_(once(x, weight, bias, scale, group_name))


def pick_once(x, index, group_name):
    return reduced(x, group_name)[index]


def permute_once(x, group_name):
    result = torch.empty_like(x)
    dist.all_to_all_single(result, x, group=_resolve_process_group(group_name))
    return result.flip(0)  # row-major


def select(x, group_name):
    found["runs"] += 1
    total = reduced(x, group_name)
    return total[total > 0]


def choose(x: torch.Tensor) -> torch.Tensor:
    return positive(x, dist.group.WORLD.group_name) + 1


def layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    result = torch.relu(linear(x, weight, bias, 2.0, dist.group.WORLD.group_name))
    return funcol.all_reduce(result, "sum", dist.group.WORLD) if HAS_COLLECTIVE else result


def pick(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return picked(x, index, dist.group.WORLD.group_name) + 1


def permute(x: torch.Tensor) -> torch.Tensor:
    return permuted(x, dist.group.WORLD.group_name) + 1


def integers(call: int, *shape: int, low: int = -8) -> torch.Tensor:
    """Small integers, whose sums are exact."""
    made = torch.randint(low, 8, shape, generator=torch.Generator().manual_seed(100 * call + RANK))
    return made.float().to(OPTIONS.device)


def arguments(case: str, call: int) -> tuple:
    if case == "indices":
        return integers(call, 8, 4), torch.randint(2, 8, (5,), generator=torch.Generator().manual_seed(call)).to(OPTIONS.device)
    if case in ("permutes", "sizes"):
        return (integers(call, 8, 12),)
    if case == "transposed":
        return integers(call, 4, 16), integers(call + 50, 8, 16).t(), integers(call + 70, 1, 8).expand(4, 8).contiguous()
    # The number of rows changes, as with dynamic shapes.
    return integers(call, 4 + call % 2, 16), integers(call + 50, 16, 8), integers(call + 70, 1, 8).expand(4 + call % 2, 8).contiguous()


def run(case: str, calls: int) -> None:
    function = {"indices": pick, "permutes": permute, "sizes": choose}.get(case, layer)
    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    for call in range(calls):
        if call == calls - 2:
            found["sleeps"] = 0
        given = arguments(case, call)
        before = [each.clone() for each in given]
        runs_function = case != "late" or RANK == 0
        got, expected = (compiled if runs_function else function)(*given), function(*given)
        if not torch.equal(got, expected):
            found["error"] += f"call {call}: {got} and not {expected}; "
        if not all(map(torch.equal, given, before)):
            found["error"] += f"call {call}: an operand is changed; "


def count_compilations() -> None:
    compile_form = compiled_form.Form.compile

    def compile_and_count(*arguments) -> None:
        found["compilations"] += 1

        def note(code: str) -> None:
            found["asserted" if "assert_size_stride(arg" in code else "not_asserted"] += 1

        with mock.patch.object(GraphLowering, "save_output_code", note):
            compile_form(*arguments)

    mock.patch.object(compiled_form.Form, "compile", compile_and_count).start()


def register(case: str) -> None:
    more = {"min_speedup_threshold": float(os.environ.get("THRESHOLD", "1"))}
    if case == "indices":
        if "GENERATES" in os.environ:
            more["input_gen_fns"] = {"index": lambda fake: torch.full_like(fake, 3)}
        return cotune.torch.register_custom_op_autotuning(picked, [CustomOpConfig(pick_once)], **more)
    if case == "permutes":
        return cotune.torch.register_custom_op_autotuning(permuted, [CustomOpConfig(permute_once)], **more)
    if case == "sizes":
        return cotune.torch.register_custom_op_autotuning(positive, [CustomOpConfig(select)], **more)
    configs = [CustomOpConfig(once), CustomOpConfig(repeated, times=12)]
    if case == "faulty":
        configs = [CustomOpConfig(each) for each in (wrong, raises, writes, too_long, aliases, reuses, remembers)] + configs
    if case == "compiled":
        configs = [CustomOpConfig(lazy), CustomOpConfig(lazy, {"size_asserts": False})]
    if case == "uncompiled":
        configs = [CustomOpConfig(uneven), CustomOpConfig(untraceable)]
    if case == "transposed":
        configs.append(CustomOpConfig(views))
    if case == "differs" and RANK == 1:
        configs.pop()
    return cotune.torch.register_custom_op_autotuning(linear, configs, **more)


def main() -> int:
    case = OPTIONS.case
    torch.set_num_threads(1)
    placement.placement_of(OPTIONS).begin(timeout_s=30 if case == "late" else 300)
    register(case)
    count_compilations()
    cotune.torch.enable(tables=False, **json.loads(os.environ.get("OPTIONS", "{}")))
    run(case, calls=4)
    found["groups"] = sorted(set(found["groups"]))
    found["explains"] = cotune.torch.explain()
    # One write a rank: lines of two ranks must not mix.
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
