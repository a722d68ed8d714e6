"""Special values under torchrun: programs give what compiled PyTorch gives without cotune; a warning on one rank."""

import json
import unittest

from testing.torchrun import Tree


class ValuesTest(unittest.TestCase):
    def test_two_ranks(self):
        records = self.records_of("value_ranks.py")
        self.assertEqual(len(records), 4, records)

    def test_streams_where_there_are_none(self):
        """The cases of stream_ranks.py that the CPU has; the others say why they are skipped."""
        records = self.records_of("stream_ranks.py")
        run = [each["case"] for each in records if "skipped" not in each]
        self.assertEqual(run, ["late_replay", "tune_between"], records)
        self.assertTrue(all(each.get("skipped", "run") for each in records), records)

    def records_of(self, script: str) -> list[dict]:
        ended = Tree().torchrun(2, script)
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
        self.assertEqual([each for each in records if each["error"]], [], ended.text)
        return records


if __name__ == "__main__":
    unittest.main()
