"""The table of the language: the file for Python is the one that C++ prints, and the enumerations agree with it."""

import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, "integration/python")

from cotune import _language, constants


class LanguageTest(unittest.TestCase):
    def test_the_file_is_what_cpp_prints(self) -> None:
        printed = subprocess.run(["core/problem/print_language", "python"], check=True, capture_output=True, text=True)
        self.assertEqual(
            printed.stdout, pathlib.Path("integration/python/cotune/_language.py").read_text(),
            "write it anew: bazel run //core/problem:print_language python > integration/python/cotune/_language.py",
        )  # fmt: skip

    def test_enumerations_have_the_words_of_the_language(self) -> None:
        dtypes = {each.name.lower(): (each.value, each.size_bytes) for each in constants.DType}
        self.assertEqual(dtypes, {name: word[:2] for name, word in _language.DTYPES.items()})
        collectives = {each.name.lower(): (each.value, each.reduces) for each in constants.Collective}
        self.assertEqual(collectives, _language.COLLECTIVES)
        reductions = {each.name.lower(): each.value for each in constants.Reduction if each.value != 0}
        self.assertEqual(reductions, _language.REDUCTIONS)


if __name__ == "__main__":
    unittest.main()
