"""Special values under torchrun: programs give what compiled PyTorch gives without cotune; a warning on one rank."""

import json
import unittest

from testing.torchrun import Tree


class ValuesTest(unittest.TestCase):
    def test_two_ranks(self):
        ended = Tree().torchrun(2, "value_ranks.py")
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
        self.assertEqual(len(records), 4, ended.text)
        self.assertEqual([each for each in records if each["error"]], [], ended.text)


if __name__ == "__main__":
    unittest.main()
