"""Tests that take names which the installed version lacks, and tests of GPUs, which have to be lifted to run on a CPU."""

import multiprocessing
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch.distributed import all_reduce
from torch.distributed import name_of_a_newer_version as newer
from torch.testing._internal.common_distributed import requires_nccl

try:
    from torch.distributed import name_of_an_older_version
except ImportError:
    name_of_an_older_version = None


def add_on_gpus(rank: int, folder: str) -> None:
    device = torch.device(f"cuda:{rank}")
    torch.cuda.set_device(device)
    dist.init_process_group(backend="nccl", rank=rank, world_size=2, init_method=f"file://{folder}/store")
    found = torch.full((4,), float(rank + 1), device=device)
    all_reduce(found)
    dist.destroy_process_group()
    if not torch.equal(found, torch.full((4,), 3.0).cuda()):
        raise AssertionError(f"the ranks add up to {found}")


class NamesTest(unittest.TestCase):
    def test_takes_the_name(self):
        newer(torch.ones(2))

    def test_asks_for_a_part_of_the_name(self):
        self.assertFalse(hasattr(newer, "part"))

    def test_has_its_own_answer_to_an_absent_name(self):
        self.assertIsNone(name_of_an_older_version)

    @requires_nccl()
    def test_gpus_add(self):
        context = multiprocessing.get_context("spawn")
        with tempfile.TemporaryDirectory() as folder:
            ranks = [context.Process(target=add_on_gpus, args=(rank, folder)) for rank in range(2)]
            for each in ranks:
                each.start()
            for each in ranks:
                each.join()
        self.assertEqual([each.exitcode for each in ranks], [0, 0])

    def test_texts_of_generated_code_stay(self):
        rank = 1
        self.assertEqual(f"on cuda:{rank}", "on cuda:1")
