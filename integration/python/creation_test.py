"""The text of the settings of a group, and the values that none has."""

import datetime
import pathlib
import sys
import unittest

sys.path.insert(0, "integration/python")

from cotune import Group, Node, UsageError
from cotune._creation import settings_text
from cotune.functions import _within
from cotune.tune import TuneRequest


class SettingsTest(unittest.TestCase):
    def test_values_have_the_texts_that_settings_have(self):
        for settings, text in (
            (None, None),
            ({}, ""),
            ({"max_fusion_depth": 3}, "max_fusion_depth=3"),
            ({"keep_unsteady": True}, "keep_unsteady=on"),
            ({"keep_unsteady": False}, "keep_unsteady=off"),
            ({"collective_pre_sync_timeout": 2.5}, "collective_pre_sync_timeout=2.500000000"),
            ({"budget": 1e-7}, "budget=0.000000100"),  # durations have no exponents
            ({"budget": "5m", "min_rounds": 4}, "budget=5m\nmin_rounds=4"),
            ({"database": pathlib.Path("/tmp/a.tdb")}, "database=/tmp/a.tdb"),
            ({"custom_op_fusion_types": ["epilogue", "prologue"]}, "custom_op_fusion_types=epilogue,prologue"),
            ({"collective_multi_kernel_hints": (1024, 4096)}, "collective_multi_kernel_hints=1024,4096"),
            ({"plugin_path": [pathlib.Path("/a"), "/b"]}, "plugin_path=/a:/b"),
            ({"force": {"all_reduce": "host/ring", "broadcast": "host/tree"}}, "force=all_reduce=host/ring,broadcast=host/tree"),
            ({"force": "all_reduce=host/ring"}, "force=all_reduce=host/ring"),
        ):
            with self.subTest(settings=settings):
                self.assertEqual(settings_text(settings), text)

    def test_values_that_no_setting_has_are_refused_with_the_name_and_the_next_step(self):
        for settings, parts in (
            ({3: "x"}, ("3 is no name of a setting", "give a str")),
            ({"memory": "cuda"}, ("'cuda' has no effect", "setting memory", "give cotune.Group(memory='cuda')")),
            ({"database": None}, ("None is NoneType", "setting database", "leave the setting out for its default")),
            ({"budget": datetime.timedelta(1)}, ("is timedelta, which no setting is", "setting budget", "give its text")),
            ({"rows": [1, None]}, ("None is NoneType", "setting rows")),
            ({"custom_op_fusion_types": {"a": 1}}, ("{'a': 1} is dict", "setting custom_op_fusion_types")),
            ({"budget": "1s\nforce=x"}, ("has a line break", "setting budget")),
            ({"budget=1s\nforce": "x"}, ("has a line break",)),
            ({"plugin_path": ["/a", "/b\n"]}, ("has a line break", "setting plugin_path")),
        ):
            with self.subTest(settings=settings), self.assertRaises(UsageError) as raised:
                settings_text(settings)
            for part in parts:
                self.assertIn(part, str(raised.exception))

    def test_a_group_checks_its_settings_before_it_joins(self):
        # Rank 1 of 2, which would wait for rank 0.
        with self.assertRaisesRegex(UsageError, "setting memory"):
            Group(1, 2, job_id="nobody", settings={"memory": "host"})

    def test_reasons_that_are_too_long_end_after_a_word(self):
        self.assertEqual(_within("one two", 7), b"one two")
        self.assertEqual(_within("one two three", 10), b"one two...")
        self.assertEqual(_within("one two three", 9), b"one...")
        for bytes_max in range(6, 12):
            for line in ("onelongword", "\u00fc\u00fc\u00fc \u00fc\u00fc\u00fc\u00fc"):
                cut = _within(line, bytes_max)
                self.assertLessEqual(len(cut), bytes_max)
                self.assertTrue(cut.decode() == line or cut.endswith(b"..."), cut)

    def test_sizes_that_are_no_whole_numbers_are_refused(self):
        for sizes in (["1K"], "1K", b"1K", [1024.5], [-1], [2**64], [], [None]):
            for request in (TuneRequest(sizes=sizes), TuneRequest(nodes=[Node("all_reduce", sizes=sizes)])):
                with self.subTest(sizes=sizes), self.assertRaisesRegex(UsageError, r"is no list of sizes \((sizes|node 1)\); give a list"):
                    request.options()
        made = TuneRequest(sizes=(1024, True)).options()
        self.assertEqual(made.sizes_bytes[: made.size_count], [1024, 1])


if __name__ == "__main__":
    unittest.main()
