"""A test that passes only if its ranks run without cotune, and one that passes everywhere."""

import unittest

from sample_equal import run_ranks


def check_plain(rank: int, others) -> None:
    from torch._inductor import config

    if config.post_grad_custom_post_pass is not None:
        raise AssertionError("Inductor has a pass of somebody else")


class DiffersTest(unittest.TestCase):
    def test_ranks_are_plain(self):
        self.assertEqual(run_ranks(check_plain), [0, 0])

    def test_passes(self):
        self.assertTrue(run_ranks)
