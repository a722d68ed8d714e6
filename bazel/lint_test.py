"""What decides that a file is checked again."""

import os
import pathlib
import subprocess
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


class SelectChangedTest(IncludedFilesTest):
    def setUp(self):
        super().setUp()
        self.write("b.cc", '#include "core/b.h"\n')
        self.write("z.cc", '#include "core/other.h"\n')

    def select(self, *changed: str) -> list[str]:
        files = [pathlib.Path("core") / name for name in ("a.cc", "b.cc", "z.cc")]
        return [str(p) for p in lint.select_changed(files, {pathlib.Path(c) for c in changed}, {})]

    def test_a_changed_source_is_checked_and_others_are_not(self):
        self.assertEqual(self.select("core/z.cc", "docs/a.md"), ["core/z.cc"])

    def test_a_changed_header_is_checked_by_its_own_source_else_by_the_first_that_includes_it(self):
        self.assertEqual(self.select("core/b.h"), ["core/b.cc"])
        self.assertEqual(self.select("core/c.h"), ["core/a.cc"])
        self.assertEqual(self.select("core/b.h", "core/a.cc"), ["core/a.cc"])

    def test_changed_messages_are_checked_by_a_source_that_includes_what_is_made_of_them(self):
        self.write("m.proto", "")
        self.write("z.cc", '#include "core/m.pb.h"\n')
        self.assertEqual(self.select("core/m.proto"), ["core/z.cc"])

    def test_what_all_files_depend_on_checks_all(self):
        for changed in (".clang-tidy", "bazel/lint.py"):
            self.assertEqual(self.select(changed), ["core/a.cc", "core/b.cc", "core/z.cc"])


class PythonFilesTest(unittest.TestCase):
    def test_scripts_without_a_suffix_are_python_by_their_first_line(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        lint.git("init", "-q")
        for name, text in {
            "a.py": "", "run": "#!/usr/bin/env python3\n", "dev": "#!/usr/bin/env bash\n# python\n", "data": "\xff",
        }.items():  # fmt: skip
            pathlib.Path(name).write_text(text, encoding="latin1")
        self.assertEqual([str(p) for p in lint.python_files()], ["a.py", "run"])


class DefinedTwiceTest(unittest.TestCase):
    def lines(self, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.py"
            path.write_text(text)
            return [line.removeprefix(f"{path}:") for line in lint.defined_twice(path)]

    def test_a_function_that_is_replaced_after_its_use_is_found(self):
        twice = "def f(): pass\nkeep(f)\ndef f(): pass\n"
        self.assertEqual(self.lines(twice), ["3: f replaces that of line 1"])
        self.assertEqual(self.lines("class C:\n  def f(self): pass\n  g = f\n  def f(self): pass\n"),
                         ["4: f replaces that of line 2"])

    def test_other_bodies_and_decorated_functions_are_none(self):
        self.assertEqual(self.lines("def f(): pass\nclass C:\n  def f(self): pass\n"), [])
        self.assertEqual(self.lines("if a:\n  def f(): pass\nelse:\n  def f(): pass\n"), [])
        self.assertEqual(self.lines("@overload\ndef f(): pass\ndef f(): pass\n"), [])


class ChangeBaseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, **environment: str) -> None:
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        subprocess.run(["git", *identity, *arguments], check=True, env={**os.environ, **environment})

    def commit(self, name: str, when_s: int) -> str:
        self.git("commit", "-q", "--allow-empty", "-m", name, GIT_COMMITTER_DATE=f"@{when_s} +0000")
        return lint.git("rev-parse", "HEAD")

    def test_on_the_upstream_branch_it_is_the_last_commit_that_is_not_recent(self):
        self.commit("older", 1_700_000_000)
        before = self.commit("before", 1_700_100_000)
        self.commit("recent", 1_700_100_000 + lint.RECENT_S - 60)
        self.commit("last", 1_700_100_000 + lint.RECENT_S)
        self.assertEqual(lint.change_base(), before)

    def test_what_a_merged_branch_brought_counts_however_old_it_is(self):
        before = self.commit("before", 1_700_000_000)
        self.git("checkout", "-q", "-b", "side")
        self.commit("on the side", 1_700_100_000)
        self.git("checkout", "-q", "main")
        self.git(
            "merge", "-q", "--no-ff", "-m", "merge", "side", GIT_COMMITTER_DATE="@1700900000 +0000",
        )  # fmt: skip
        self.assertEqual(lint.change_base(), before)

    def test_elsewhere_it_is_where_the_branch_left_the_upstream_branch(self):
        left_at = self.commit("left at", 1_700_000_000)
        self.git("update-ref", "refs/remotes/origin/main", left_at)
        self.commit("last", 1_700_900_000)
        self.assertEqual(lint.change_base(), left_at)

    def test_a_history_too_short_to_tell_has_none(self):
        self.commit("only", 1_700_000_000)
        self.assertEqual(lint.change_base(), "")


if __name__ == "__main__":
    unittest.main()
