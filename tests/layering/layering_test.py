"""Runs the layering rules over the sources, and over planted trees to see that they find what they should."""

import os
import pathlib
import tempfile
import unittest

from tests.layering import layering


class LayeringTest(unittest.TestCase):
    def plant(self, files: dict[str, str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return layering.violations(pathlib.Path(folder))

    def test_the_sources_keep_the_direction(self):
        runfiles = pathlib.Path(os.environ["TEST_SRCDIR"]) / os.environ["TEST_WORKSPACE"]
        root = (runfiles / "WORKSPACE").resolve().parent
        self.assertTrue((root / "core" / "status.h").exists(), f"{root} is not the checkout")
        self.assertEqual(layering.violations(root), [])

    def test_an_upward_include_is_named_with_file_line_and_edge(self):
        self.assertEqual(
            self.plant({"core/a.cc": '#include "core/a.h"\n#include "sync/b.h"\n'}),
            ["core/a.cc:2: core may not include sync (sync/b.h)"],
        )

    def test_backends_do_not_include_each_other(self):
        self.assertEqual(
            self.plant({"plugins/host/a.cc": '#include "plugins/fake/b.h"\n#include "plugins/api/c.h"\n'}),
            ["plugins/host/a.cc:1: plugins/host may not include plugins/fake (plugins/fake/b.h)"],
        )

    def test_a_folder_without_a_rule_is_named(self):
        self.assertEqual(
            self.plant({"plugins/other/a.h": ""}),
            ["plugins/other/a.h:1: the folder is not in the table of tests/layering/layering.py"],
        )

    def test_a_new_top_folder_without_a_rule_is_named(self):
        self.assertEqual(
            self.plant({"elsewhere/a.cc": "", "core/a.cc": ""}),
            ["elsewhere/a.cc:1: the folder is not in the table of tests/layering/layering.py"],
        )

    def test_angle_brackets_hide_nothing(self):
        self.assertEqual(
            self.plant({"sync/a.cc": "#include <vector>\n# include <cli/b.h>\n"}),
            ["sync/a.cc:2: sync may not include cli (cli/b.h)"],
        )

    def test_what_was_built_is_not_a_source(self):
        self.assertEqual(self.plant({"bazel-out/a.cc": "", "built/.cotune-tree": "", "built/include/a.h": ""}), [])

    def test_downward_includes_and_third_parties_pass(self):
        self.assertEqual(
            self.plant(
                {
                    "sync/a.cc": '#include "core/x.h"\n#include "fmt/format.h"\n#include <vector>\n',
                    "cli/b.cc": '#include "integration/job.h"\n',
                }
            ),
            [],
        )


if __name__ == "__main__":
    unittest.main()
