"""The forms that first_run.py starts, their order, and runs that go on from earlier ones."""

import json
import pathlib
import tempfile
import unittest

from first_run import in_turn, units_of, with_earlier


class FirstRunTest(unittest.TestCase):
    def test_a_start_from_the_database_follows_the_cold_one(self):
        for run in range(6):
            forms = [form for unit in in_turn(units_of([]), run) for form in unit]
            self.assertEqual(sorted(forms), ["cold", "database", "deferred", "immediate", "one_thread", "without"])
            self.assertEqual(forms.index("database"), forms.index("cold") + 1)

    def test_each_run_begins_with_another_form(self):
        units = units_of(["immediate", "deferred"])
        self.assertEqual([in_turn(units, run) for run in range(2)], [[("immediate",), ("deferred",)], [("deferred",), ("immediate",)]])

    def test_a_form_that_is_not_there_or_lacks_its_database_is_refused(self):
        for forms, words in ((["warm"], "there is no warm; known: without, cold"), (["database"], "name cold, too")):
            with self.assertRaisesRegex(ValueError, words):
                units_of(forms)

    def test_runs_go_on_only_on_the_same_kind_of_machine(self):
        run = {"ranks": 2, "device": "cpu", "tokens": 64, "gpus": [], "processor": "a", "packages": {"torch": "2.13.0"}, "starts": []}
        earlier = run | {"date": "2026-11-01", "starts": [{"run": 4}]}
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "runs.json"
            out.write_text(json.dumps(earlier))
            self.assertEqual(with_earlier(run | {"date": "2026-11-02"}, out), earlier | {"date": "2026-11-02"})
            with self.assertRaisesRegex(ValueError, "has processor a, and this run b"):
                with_earlier(run | {"processor": "b"}, out)


if __name__ == "__main__":
    unittest.main()
