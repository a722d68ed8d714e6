"""Compiled models on two ranks against the same models in eager torch.

With COTUNE_CLI set to the command-line tool, it checks the texts of all programs, too.
"""

from __future__ import annotations

import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch._inductor import config

from cotune.torch import decisions, graph_pass
from cotune.torch.program_text import parse
from cotune.torch.settings import Settings
from cotune.torch.testing import models, ranks, stand_in
from cotune.torch.testing.tool import check_by_tool


def _inputs(model: models.Model, rank: int, rows: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * 10 + rank)
    tensors = model.inputs(rows, generator)
    return [each.requires_grad_(model.backward) for each in tensors]


def _flat(results: Any) -> list[torch.Tensor]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _run(function: Any, model: models.Model, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The results, and the gradients where the model has some."""
    group = dist.group.WORLD.group_name
    results = _flat(function(group, *tensors))
    if not model.backward:
        return results
    total = sum(each.float().square().sum() for each in results)
    return [*results, *torch.autograd.grad(total, tensors)]


def _difference(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> str:
    """What differs, as text; "" for nothing."""
    for index, (have, want) in enumerate(zip(found, wanted, strict=True)):
        if have.dtype != want.dtype or have.shape != want.shape:
            return f"result {index}: {have.dtype} {have.shape} for {want.dtype} {want.shape}"
        if have.stride() != want.stride():
            return f"result {index}: strides {have.stride()} for {want.stride()}"
        tolerance = 3e-2 if want.dtype == torch.bfloat16 else 2e-5
        if not torch.allclose(have, want, rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"result {index}: {have} for {want}"
    return ""


def compare(rank: int, world_size: int, names: list[str]) -> dict[str, dict[str, Any]]:
    """Runs the models of these names. Returns differences, decisions and calls by name."""
    stand_in.define()
    config.force_disable_caches = True
    # The splits of the models are equal on all ranks.
    config.post_grad_custom_post_pass = graph_pass.CotunePass(Settings(all_to_all=True))
    found = {}
    for name in names:
        model = models.MODELS[name]
        torch._dynamo.reset()
        decisions.clear()
        stand_in.calls.clear()
        compiled = torch.compile(model.function, fullgraph=True)
        differences = []
        for rows in (8, 6) if model.dynamic else (8,):
            tensors = _inputs(model, rank, rows)
            wanted = _run(model.function, model, tensors)
            for each in tensors if model.dynamic else ():
                if each.dim() > 1:
                    torch._dynamo.mark_dynamic(each, 0)
            differences.append(_difference(_run(compiled, model, tensors), wanted))
        found[name] = {
            "difference": "".join(differences),
            "data": decisions.explain_data(),
            "text": decisions.explain(),
            "calls": list(stand_in.calls),
        }
    return found


class RanksTest(unittest.TestCase):
    """One run of all models; a subtest each."""

    def test_models(self) -> None:
        for rank, found in enumerate(ranks.run_on_ranks(2, compare, list(models.MODELS))):
            self.assertIsInstance(found, dict, found)
            for name, result in found.items():
                with self.subTest(model=name, rank=rank):
                    self._check(models.MODELS[name], result)

    def _check(self, model: models.Model, result: dict[str, Any]) -> None:
        self.assertEqual(result["difference"], "", result["text"])
        graphs = result["data"]
        made = [each for graph in graphs for each in graph["programs"]]
        names = sorted(each["text"].splitlines()[0].removeprefix("program ") for each in made)
        if not model.backward:
            self.assertEqual(names, sorted(model.programs), result["text"])
        self.assertTrue(set(model.programs) <= set(names), result["text"])
        reasons = [each["reason"] for graph in graphs for each in graph["left"]]
        self.assertEqual(len(reasons), len(model.reasons), reasons)
        for reason, part in zip(reasons, model.reasons, strict=True):
            self.assertIn(part, reason)
        for each in made:
            self.assertEqual(parse(each["text"]).to_text(), each["text"])
            check_by_tool(self, each["text"])
        calls = result["calls"]
        self.assertTrue(all(call.is_contiguous for call in calls))
        runs = 2 if model.dynamic else 1
        self.assertEqual(len(calls), len(made) * runs)
        listed = [entry.text for call in calls for entry in call.manifest]
        self.assertEqual(set(listed), {call.program for call in calls})


if __name__ == "__main__":
    unittest.main()
