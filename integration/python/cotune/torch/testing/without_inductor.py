"""A test case of one rank in which Dynamo traces functions, and a stand-in for Inductor runs what it has traced."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch.distributed as dist


class WithoutInductor(unittest.TestCase):
    """Has a process group of one rank.

    Attributes:
      patches: the options of Inductor of each graph that was compiled.
    """

    @classmethod
    def setUpClass(cls) -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        cls.addClassCleanup(dist.destroy_process_group)

    def setUp(self) -> None:
        self.patches: list[dict[str, Any]] = []
        inductor = mock.patch("torch._inductor.compile_fx.compile_fx", self.compile_fx)
        inductor.start()
        self.addCleanup(inductor.stop)

    def compile_fx(self, module: Any, inputs: list[Any], config_patches: dict[str, Any]) -> Callable[..., Any]:
        self.patches.append(config_patches)
        return module.forward
