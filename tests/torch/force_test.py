"""Choices that enable(force=...) gives collectives of compiled graphs."""

import json
import re
import unittest

from testing.torchrun import Tree

RING = "host/ring?chunk=65536"


class ForceTest(unittest.TestCase):
    def run_case(self, case: str, settings: str = "") -> tuple[list[dict], str]:
        tree = Tree()
        environment = {}
        if settings:
            environment["COTUNE_CONFIG"] = str(tree.folder / "settings.toml")
            (tree.folder / "settings.toml").write_text(settings)
        ended = tree.start(2, "force_ranks.py", case, **environment)
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
        self.assertEqual(sorted(each["rank"] for each in records), [0, 1], ended.text)
        return records, ended.text

    def test_a_forced_choice_runs_without_being_measured(self):
        records, text = self.run_case("forced")
        for each in records:
            self.assertEqual((each["error"], each["raised"]), ("", ""), text)
            # Rank 1 has another graph in the second call.
            self.assertEqual(each["runs"], [["forced", RING]] * (1 + each["rank"]), text)
            self.assertRegex(each["explains"], rf"{re.escape(RING)} .*forced, whatever was measured")

    def check_raises(self, case: str, *parts: str, settings: str = "") -> None:
        records, text = self.run_case(case, settings)
        for each in records:
            for part in parts:
                self.assertIn(part, each["raised"], text)

    def test_ranks_that_force_other_choices_are_named(self):
        self.check_raises("differs", "about 'setting force_choice'", "'all_reduce=host/tree?chunk=65536'", f"'all_reduce={RING}'")

    def test_a_choice_that_no_backend_has(self):
        self.check_raises("unknown", "host/rign?chunk=65536 cannot run all_reduce", f"did you mean {RING}?")

    def test_the_settings_file_forces_choices(self):
        records, text = self.run_case("none", f'force = "all_reduce={RING}"\n')
        for each in records:
            self.assertEqual((each["error"], each["raised"]), ("", ""), text)
            self.assertEqual(each["runs"], [["forced", RING]] * (1 + each["rank"]), text)

    def test_a_wrong_choice_in_the_settings_file_is_an_error_on_all_ranks(self):
        unknown = "host/rign?chunk=65536 cannot run all_reduce", f"did you mean {RING}?", "settings.toml:2"
        self.check_raises("none", *unknown, settings='budget = 5\nforce = "all_reduce=host/rign?chunk=65536"\n')
        no_collective = 'bad value "all_to_some=host/ring" for force', "settings.toml:1"
        self.check_raises("none", *no_collective, settings='force = "all_to_some=host/ring"\n')

    def check_wrong_on_rank_1(self, case: str) -> None:
        """The list cannot be read on rank 1 alone; rank 0 learns of it as soon as both have come to the meeting."""
        records, text = self.run_case(case)
        for each in records:
            self.assertRegex(each["raised"], r'rank 1: bad value "all_reduce=host/ring,," for force_choice \(COTUNE_FORCE_CHOICE\): ')
            self.assertIn("element 2 of the list is empty", each["raised"], text)
        self.assertNotIn("has waited for", text)

    def test_a_list_that_is_wrong_on_one_rank_is_an_error_on_all_ranks(self):
        for case in ("wrong_list", "wrong_list_options", "wrong_list_enabled"):
            with self.subTest(case=case):
                self.check_wrong_on_rank_1(case)

    def test_such_a_list_is_an_error_of_custom_operators_on_all_ranks(self):
        self.check_wrong_on_rank_1("wrong_list_custom")


if __name__ == "__main__":
    unittest.main()
