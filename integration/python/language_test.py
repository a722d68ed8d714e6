"""The table of the language: the files that repeat it are as C++ prints it, and the enumerations agree with it."""

import sys
import unittest

sys.path.insert(0, "integration/python")
sys.path.insert(0, "core/problem")

import write_language

from cotune import _language, constants

PROGRAM = "core/problem/print_language"


class LanguageTest(unittest.TestCase):
    maxDiff = None  # the lines that differ
    def test_the_file_for_python_is_what_cpp_prints(self) -> None:
        self.assertEqual(
            write_language.printed(PROGRAM, "python"), write_language.PYTHON.read_text(encoding="utf-8"),
            f"write the file again: {write_language.COMMAND}",
        )  # fmt: skip

    def test_the_tables_of_the_document_are_what_cpp_prints(self) -> None:
        document = write_language.DOCUMENT.read_text(encoding="utf-8")
        self.assertEqual(
            write_language.with_tables(document, write_language.printed(PROGRAM, "markdown")), document,
            f"write the tables again: {write_language.COMMAND}",
        )  # fmt: skip

    def test_a_document_without_a_table_is_refused(self) -> None:
        tables = write_language.printed(PROGRAM, "markdown")
        self.assertEqual(write_language.with_tables(tables, tables), tables)
        with self.assertRaisesRegex(ValueError, "dtypes"):
            write_language.with_tables("no table", tables)

    def test_enumerations_have_the_words_of_the_language(self) -> None:
        dtypes = {each.name.lower(): (each.value, each.size_bytes) for each in constants.DType}
        self.assertEqual(dtypes, {name: word[:2] for name, word in _language.DTYPES.items()})
        collectives = {each.name.lower(): (each.value, each.reduces) for each in constants.Collective}
        self.assertEqual(collectives, _language.COLLECTIVES)
        reductions = {each.name.lower(): each.value for each in constants.Reduction if each.value != 0}
        self.assertEqual(reductions, _language.REDUCTIONS)


if __name__ == "__main__":
    unittest.main()
