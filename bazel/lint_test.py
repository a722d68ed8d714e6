"""What decides that a file is checked again."""

import os
import pathlib
import tempfile
import unittest

from bazel import lint


class IncludedFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        pathlib.Path("core").mkdir()
        self.write("a.cc", '#include "core/b.h"\n#include <vector>\n')
        self.write("b.h", '  #  include "c.h"\n')
        self.write("c.h", "int c;\n")
        self.write("other.h", "int other;\n")

    def write(self, name: str, text: str) -> None:
        (pathlib.Path("core") / name).write_text(text)

    def state(self) -> str:
        return lint.digest(sorted(lint.included_files(pathlib.Path("core/a.cc"), {})))

    def test_follows_includes_from_the_root_and_from_beside(self):
        found = lint.included_files(pathlib.Path("core/a.cc"), {})
        self.assertEqual(sorted(map(str, found)), ["core/a.cc", "core/b.h", "core/c.h"])

    def test_a_file_that_includes_itself_ends(self):
        self.write("self.cc", '#include "core/self.cc"\n#include "core/c.h"\n')
        found = lint.included_files(pathlib.Path("core/self.cc"), {})
        self.assertEqual(sorted(map(str, found)), ["core/c.h", "core/self.cc"])

    def test_a_change_two_includes_away_counts_and_one_elsewhere_does_not(self):
        before = self.state()
        self.write("other.h", "int changed;\n")
        self.assertEqual(self.state(), before)
        self.write("c.h", "int changed;\n")
        self.assertNotEqual(self.state(), before)

    def test_the_configuration_counts(self):
        path = [pathlib.Path("core/c.h")]
        self.assertNotEqual(lint.digest(path, "one"), lint.digest(path, "two"))


if __name__ == "__main__":
    unittest.main()
