"""Models under torchrun: compiled by way of cotune they give what they give eagerly, static and dynamic, with gradients."""

import json
import os
import unittest

import models
from testing.torchrun import Tree

# What every run has; the others are exhaustive.
EVERY_RUN = ("tp_linear", "residual_norm", "bf16_norm", "sequence_parallel", "moe_dispatch", "buckets", "simple_fsdp")


def is_exhaustive() -> bool:
    return os.environ.get("COTUNE_TEST_MODELS") == "all"


class ModelsTest(unittest.TestCase):
    def check(self, ranks: int, names: tuple[str, ...], modes: str, steps: str) -> None:
        tree = Tree()
        ended = tree.torchrun(
            ranks, "model_ranks.py", "--cases", ",".join(names), "--modes", modes, "--steps", steps
        )
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
        # A line names each case before it is compiled, so that a run that hangs has named it.
        began = [line for line in ended.out.splitlines() if line.startswith(("compiling ", "{"))]
        for before, after in zip(began[::2], began[1::2], strict=True):
            ran = json.loads(after)
            self.assertEqual(before, f"compiling {ran['case']}, {ran['mode']}, {ran['step']}")
        cases = {case.name: case for case in models.CASES}
        wanted = {
            (name, mode, step)
            for name in names
            for mode in modes.split(",")
            for step in steps.split(",")
            if step == "inference" or cases[name].trains
        }
        self.assertEqual({(each["case"], each["mode"], each["step"]) for each in records}, wanted, ended.text)
        for record in records:
            self.assertEqual(record["error"], "", record)
            self.assertGreaterEqual(record["collectives"], cases[record["case"]].collectives, record)
            self.assertTrue(all(record["left"]), record)  # each has a reason
            if not cases[record["case"]].may_leave:
                self.assertEqual(record["left"], [], record)
            # The operators ran on a group of cotune, and not by PyTorch's own collectives.
            self.assertEqual(record["plain"], 0, record)

    def test_two_ranks(self):
        names = tuple(case.name for case in models.CASES) if is_exhaustive() else EVERY_RUN
        self.check(2, names, "static,dynamic", "inference,training")

    def test_four_ranks(self):
        names = tuple(case.name for case in models.CASES) if is_exhaustive() else ("residual_norm", "sequence_parallel")
        modes = "static,dynamic" if is_exhaustive() else "dynamic"
        self.check(4, names, modes, "inference,training" if is_exhaustive() else "training")


if __name__ == "__main__":
    unittest.main()
