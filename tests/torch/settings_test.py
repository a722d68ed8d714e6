"""Settings that enable() and the options of torch.compile give to cotune, by what they change."""

import json
import unittest

from testing.torchrun import Tree


class SettingsTest(unittest.TestCase):
    def run_case(self, case: str) -> tuple[list[dict], str]:
        ended = Tree().torchrun(2, "setting_ranks.py", case)
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
        self.assertEqual(sorted(each["rank"] for each in records), [0, 1], ended.text)
        for each in records:
            self.assertEqual(each["error"], "", ended.text)
        return records, ended.text

    def test_deferred_mode_resolves_all_programs_together(self):
        records, text = self.run_case("deferred")
        for each in records:
            self.assertEqual(each["cells"], [[1, 2], [2, 2]], text)

    def test_immediate_mode_resolves_each_program_by_itself(self):
        records, text = self.run_case("immediate")
        for each in records:
            self.assertEqual(each["cells"], [[1, 1]], text)

    def test_options_of_torch_compile_turn_fusion_off(self):
        records, text = self.run_case("options")
        for each in records:
            self.assertEqual(len(each["choices"]), 2, text)
            self.assertNotIn("fuse=", " ".join(each["choices"]), text)

    def test_each_setting_reaches_the_group(self):
        records, text = self.run_case("unlike")
        # Rank 0 warns of each group, in the order in which they were made.
        warnings = [line for line in text.splitlines() if line.startswith("cotune: the ranks of process group")]
        names = records[0]["names"]
        self.assertEqual((len(names), len(warnings)), (11, 11), text)
        for name, warning in zip(names, warnings, strict=True):
            setting = {"enable_custom_op_fusion": "collective_fusion_enabled"}.get(name, name)
            self.assertIn(f"disagrees about 'setting {setting}", warning)

    def test_chosen_rows_are_tuned_at_the_first_call(self):
        records, text = self.run_case("rows")
        for each in records:
            first, *later = each["calls"]
            # The all_gather has shares of 2 ranks, of which one row has none.
            self.assertEqual(first, [20, [[1, 16, 256]]], text)
            self.assertEqual([tuned for _, tuned in later], [[]] * 7, text)

    def test_hints_are_bytes(self):
        records, text = self.run_case("hints")
        for each in records:
            self.assertEqual(each["calls"][0], [20, [[16, 256]]], text)


if __name__ == "__main__":
    unittest.main()
