"""Models under Inductor's C++ wrapper give what they give eagerly, and run by cotune."""

import json
import unittest

from testing.torchrun import Tree


class WrapperTest(unittest.TestCase):
    def check(self, name: str) -> None:
        ended = Tree().torchrun(
            2, "model_ranks.py", "--cases", name, "--modes", "static,dynamic", "--steps", "inference,training",
            TORCHINDUCTOR_CPP_WRAPPER="1",
        )  # fmt: skip
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
        self.assertEqual(len(records), 4, ended.text)
        for record in records:
            self.assertEqual(record["error"], "", record)
            self.assertGreater(record["collectives"], 0, record)
            self.assertEqual(record["plain"], 0, record)

    def test_residual_norm(self):
        self.check("residual_norm")

    def test_sequence_parallel(self):
        self.check("sequence_parallel")


if __name__ == "__main__":
    unittest.main()
