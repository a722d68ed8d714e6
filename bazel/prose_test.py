"""What the rules of prose find, what they leave alone, and how the list of what stood before shrinks."""

import os
import pathlib
import tempfile
import unittest
from unittest import mock

from bazel import lint, prose, prose_text


def rules_in(text: str, name: str = "a.cc") -> list[tuple[int, str]]:
    return [(each.line, each.rule) for each in prose.findings_of(pathlib.Path(name), text)]


class RulesTest(unittest.TestCase):
    def assert_found(self, rule: str, *sentences: str) -> None:
        for sentence in sentences:
            self.assertEqual(rules_in(f"// {sentence}\n"), [(1, rule)], sentence)

    def assert_right(self, *sentences: str) -> None:
        for sentence in sentences:
            self.assertEqual(rules_in(f"// {sentence}\n"), [], sentence)

    def test_a_sentence_begins_with_its_subject(self):
        self.assert_found(
            "hidden-subject",
            "Of all ranks.",
            "What is left of closed connections goes with the next poll.",
            "Who differs is found from that.",
            "Whether the buffers fit.",
            "Those of a subgroup.",
            "How long a wait lasts.",
            "Where nothing stays in registers, fewer leaves are used.",
            "Behind the last sample.",
            "By what kernels combine data.",
            "of the call",
        )
        self.assert_right(
            "Returns true if the buffers fit.",
            "The ranks that differ are named.",
            "If nothing stays in registers, fewer leaves are used.",
            "What can be lost?",
            "What leaves: a list of choices.",
        )

    def test_a_preposition_is_no_sentence(self):
        self.assert_found("preposition", "Under the lock.", "By name.", "For tests.", "With groups only.")
        self.assert_right(
            "Without O_NONBLOCK a pipe would be waited for.",
            "On one host all keys are what they were.",
            "At most 1000 hours.",
            "As in StepResult.",
            "For example a number.",
        )

    def test_a_noun_clause_is_no_subject(self):
        self.assert_found(
            "noun-clause",
            "The folder is private; what comes without the secret is dropped.",
            "Ranks meet first, so that what they published is there at the last read.",
        )
        self.assert_right("The user sees what is wrong.", "The list names each rank and what it sent.")

    def test_code_does_not_talk(self):
        self.assert_found("talking-code", "The table says which one runs.", "The rank is told of the loss.")
        self.assert_right("The table names the one that runs.", "Both can be told apart.", "Sizes, say, of a page.")

    def test_a_condition_is_no_place(self):
        self.assert_found(
            "where-for-if", "Fails only where the file is a link.", "The id of the GPU; 0 where there is none."
        )
        self.assert_right("The folder where a tune writes.", "A block starts where the last one ends.")

    def test_time_has_no_front(self):
        self.assert_found("behind-in-time", "The call runs behind the barrier.", "It is read in front of the data.")
        self.assert_right("The thread stays behind.", "The choice is far behind the leader.")


class SourcesTest(unittest.TestCase):
    def test_comments_of_consecutive_lines_are_one_text(self):
        self.assertEqual(rules_in("// The rank\n// of the call.\nint a;  // of the call\nint b;\n"), [(3, "hidden-subject")])
        self.assertEqual(rules_in("// The rank. Of\n// the call.\n"), [(1, "hidden-subject")])
        self.assertEqual(rules_in("/* The rank.\n *\n * Of the call.\n */\n"), [(3, "hidden-subject")])

    def test_strings_and_characters_are_no_comments(self):
        self.assertEqual(rules_in('auto url = "http://Of.what";\nchar c = \'"\'; // Of all.\nint n = 1\'000;\n'), [(2, "hidden-subject")])
        self.assertEqual(rules_in('auto raw = R"(// Of all\n)";  // By name.\n'), [(2, "preposition")])

    def test_messages_are_parts_of_sentences(self):
        self.assertEqual(rules_in('Fail("of the {} ranks that it"\n     " is told of");\n'), [(1, "talking-code")])
        self.assertEqual(rules_in('#include "says/it/so.h"\n'), [])
        self.assertEqual(rules_in('raise ValueError(f"{name} says that it is wrong")\n', "a.py"), [(1, "talking-code")])

    def test_code_in_prose_is_one_word(self):
        self.assertEqual(rules_in("// Calls `say where there is none`.\n"), [])
        self.assertEqual(rules_in("// Runs job.say(), says() and does no more.\n"), [])

    def test_reads_python_and_shell(self):
        text = '"""How it is done.\n\nArgs:\n  name: what it is.\n"""\n\n\ndef f():\n    """Whether it is."""\n    # By name.\n'
        found = [(1, "hidden-subject"), (9, "hidden-subject"), (10, "preposition")]
        self.assertEqual(rules_in(text, "a.py"), found)
        self.assertEqual(rules_in("#!/usr/bin/env python3\n" + text, "run"), [(line + 1, rule) for line, rule in found])
        self.assertEqual(rules_in("#!/usr/bin/env bash\necho  # no\n# Of all.\n", "run"), [(3, "hidden-subject")])
        self.assertEqual(rules_in("Of all.\n", "data.json"), [])

    def test_reads_pages(self):
        page = "# What runs\n\nText. Of all.\n\n- Of an item.\n\n```\nOf code.\n```\n\n| what | Of a cell |\n|---|---|\n"
        self.assertEqual(rules_in(page, "a.md"), [(3, "hidden-subject"), (5, "hidden-subject")])

    def test_lines_of_pages_wrap(self):
        long = "word " * 20 + "."
        page = f"{long}\n{long[1:]}\n\n| {long} |\n\n```\n{long}\n```\n\n# {long}\n\n[link]: {'x' * 120}\n"
        self.assertEqual(rules_in(page, "a.md"), [(1, "long-line")])
        self.assertEqual(rules_in(f"// {long}\n"), [])

    def test_finds_what_a_merge_has_left(self):
        page = "# Changes\n\n<<<<<<< HEAD\n- One.\n=======\n- Other.\n>>>>>>> branch\n"
        self.assertEqual(rules_in(page, "a.md"), [(3, "merge-marker"), (7, "merge-marker")])

    def test_knows_which_files_have_prose(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "run"
            script.write_text("#!/usr/bin/env python3\n")
            self.assertTrue(prose_text.has_prose(script))
            script.write_text("data\n")
            self.assertFalse(prose_text.has_prose(script))
            self.assertFalse(prose_text.has_prose(pathlib.Path("a.svg")))


def finding(file: str, line: int, rule: str = "talking-code") -> prose.Finding:
    return prose.Finding(file, line, rule, "text")


class ListTest(unittest.TestCase):
    def test_what_is_written_is_read(self):
        counts = {("a.cc", "talking-code"): 3, ("b.md", "long-line"): 1}
        self.assertEqual(prose.parse(prose.written(counts)), counts)

    def test_a_merge_in_conflict_keeps_the_larger_count(self):
        text = "<<<<<<< ours\na.cc\tlong-line\t3\n=======\na.cc\tlong-line\t2\n>>>>>>> theirs\n"
        self.assertEqual(prose.parse(text), {("a.cc", "long-line"): 3})

    def test_more_than_listed_are_new_on_the_lines_that_changed(self):
        found = [finding("a.cc", 1), finding("a.cc", 8), finding("b.cc", 2), finding("c.cc", 3), finding("c.cc", 4)]
        allowed = {("a.cc", "talking-code"): 1, ("b.cc", "talking-code"): 1}
        self.assertEqual(prose.new_findings(found, allowed, {"a.cc": {8}}), [found[1], found[3], found[4]])
        self.assertEqual(prose.new_findings(found[:3], allowed, {}), found[:2])

    def test_the_list_takes_lower_counts_only(self):
        allowed = {("a.cc", "x"): 3, ("b.cc", "x"): 2, ("c.cc", "x"): 1}
        self.assertEqual(
            prose.shrunk({("a.cc", "x"): 1, ("b.cc", "x"): 5, ("d.cc", "x"): 1}, allowed),
            {("a.cc", "x"): 1, ("b.cc", "x"): 2},
        )

    def test_a_rule_never_grows_in_all(self):
        before = {("a.cc", "x"): 3, ("a.cc", "y"): 1}
        self.assertEqual(prose.grown_rules({("moved.cc", "x"): 3}, before), [])
        self.assertEqual(prose.grown_rules({("a.cc", "x"): 2, ("b.cc", "x"): 2}, before), ["x (3 -> 4)"])


class CheckTest(unittest.TestCase):
    """The command on a checkout of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        pathlib.Path("bazel").mkdir()
        for command in (["init", "-q", "-b", "main"], ["config", "user.name", "t"], ["config", "user.email", "t@localhost"]):
            lint.git(*command)
        self.write("// Of all.\n// The rank.\n")
        self.assertEqual(self.run_prose("regenerate"), 0)
        self.commit()
        self.commit()

    def write(self, text: str, name: str = "a.cc") -> None:
        pathlib.Path(name).write_text(text)

    def commit(self) -> None:
        lint.git("add", "-A")
        has_parent = lint.git("rev-parse", "--verify", "--quiet", "HEAD", check=False)
        lint.git("commit", "-q", "--allow-empty", "-m", "all")
        if has_parent:
            lint.git("update-ref", "refs/remotes/origin/main", "HEAD~1")

    def run_prose(self, *arguments: str) -> int:
        self.printed: list[str] = []
        with mock.patch("builtins.print", lambda *texts, **_: self.printed.append(" ".join(map(str, texts)))):
            return prose.main(list(arguments))

    def test_what_is_listed_passes(self):
        self.assertEqual(self.run_prose("check"), 0, self.printed)

    def test_a_new_place_fails_by_file_line_and_rule_with_a_hint(self):
        self.write("// Of all.\n// The rank.\nint a;\n// Of none.\n")
        self.assertEqual(self.run_prose("check"), 1)
        self.assertIn("a.cc:4: hidden-subject: Of none.", self.printed)
        self.assertNotIn("a.cc:1: hidden-subject: Of all.", self.printed)
        self.assertTrue(any(line.startswith("hidden-subject: begin with a subject") for line in self.printed))

    def test_a_place_in_a_new_file_fails(self):
        self.write("# By name.\n", "b.py")
        self.assertEqual(self.run_prose("check"), 1)
        self.assertIn("b.py:1: preposition: By name.", self.printed)

    def test_fewer_than_listed_fail_until_the_list_shrinks(self):
        self.write("// The rank.\n")
        self.assertEqual(self.run_prose("check"), 1)
        self.assertTrue(any("./dev lint --shrink" in line for line in self.printed), self.printed)
        self.assertEqual(self.run_prose("check", "--shrink"), 0, self.printed)
        self.assertEqual(prose.parse(prose.ALLOWED.read_text()), {})
        self.assertEqual(self.run_prose("check"), 0, self.printed)

    def test_the_list_cannot_be_written_anew_to_allow_more(self):
        self.write("// Of none.\n", "b.cc")
        self.assertEqual(self.run_prose("regenerate"), 0)
        self.commit()
        self.assertEqual(self.run_prose("check"), 1)
        self.assertTrue(any("hidden-subject (1 -> 2)" in line for line in self.printed), self.printed)

    def test_a_renamed_file_takes_its_counts_along(self):
        os.rename("a.cc", "b.cc")
        self.assertEqual(self.run_prose("check"), 1)
        self.assertEqual(self.run_prose("regenerate"), 0)
        self.commit()
        self.assertEqual(self.run_prose("check"), 0, self.printed)

    def test_other_arguments_print_how_it_is_used(self):
        self.assertEqual(self.run_prose("check", "--grow"), 2)


if __name__ == "__main__":
    unittest.main()
