"""Settings that enable() and the options of torch.compile give to cotune, by what they change."""

import json
import pathlib
import time
import unittest

from testing.torchrun import Tree


class SettingsTest(unittest.TestCase):
    def run_case(self, case: str, tree: Tree | None = None, **environment: str) -> tuple[list[dict], str]:
        ended = (tree or Tree()).start(2, "setting_ranks.py", case, **environment)
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
        self.assertEqual(sorted(each["rank"] for each in records), [0, 1], ended.text)
        for each in records:
            self.assertEqual(each["error"], "", ended.text)
        return records, ended.text

    def sizes_of(self, tree: Tree, **environment: str) -> tuple[list[dict], str]:
        """The sizes as rank 0 explains them, which has the database."""
        records, text = self.run_case("database", tree, **environment)
        found = next(each["sizes"] for each in records if each["rank"] == 0)
        self.assertEqual([each["rows"] for each in found], [32, 64], text)
        return found, text

    def test_a_database_that_is_named_is_the_only_one(self):
        tree = Tree()
        begun_s = int(time.time())
        machine, text = self.sizes_of(tree)
        for each in machine:
            self.assertTrue(each["is_measured_here"], text)
        fresh, garbage = (str(tree.folder / name) for name in ("fresh.tdb", "garbage.tdb"))
        self.check_holds_nothing(tree, fresh)
        self.check_measures(tree, fresh, begun_s)
        pathlib.Path(garbage).write_text("garbage\n")
        _, text = self.check_holds_nothing(tree, garbage, TUNES="1")
        self.assertIn("not a cotune database", text)
        again, text = self.sizes_of(tree, TUNES="0")
        self.assertEqual([each["time_us"] for each in again], [each["time_us"] for each in machine], text)

    def check_holds_nothing(self, tree: Tree, database: str, **environment: str) -> tuple[list[dict], str]:
        sizes, text = self.sizes_of(tree, **{"DATABASE": database, "TUNES": "0", **environment})
        for each in sizes:
            self.assertNotIn(each["source"], ("table", "relative", "next_best"), text)
            self.assertEqual((each["time_us"], each["is_measured_here"]), (None, False), text)
        return sizes, text

    def check_measures(self, tree: Tree, database: str, begun_s: int) -> None:
        """The first process measures; another one, which has this file alone, gives the same numbers."""
        measured, text = self.sizes_of(tree, DATABASE=database)
        self.assertNotIn("calls run the default choices", text)
        for each in measured:
            self.assertEqual((each["source"], each["is_measured_here"]), ("table", True), text)
            self.assertGreaterEqual(each["measured_unix_s"], begun_s, text)
        read, text = self.sizes_of(tree, DATABASE=database, TUNES="0")
        for each, other in zip(read, measured, strict=True):
            self.assertEqual((each["is_measured_here"], other["is_measured_here"]), (False, True), text)
            for name in ("source", "choice", "time_us", "default_time_us", "measured_unix_s"):
                self.assertEqual(each[name], other[name], text)

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
