"""Writes the table of the language, as print_language prints it, into the files that repeat it.

usage: bazel build //core/problem:print_language && python3 core/problem/write_language.py

The files are integration/python/cotune/_language.py, and docs/programs.md between its comments. language_test compares
them with what print_language prints.
"""

import pathlib
import re
import subprocess
import sys

PYTHON = pathlib.Path("integration/python/cotune/_language.py")
DOCUMENT = pathlib.Path("docs/programs.md")
COMMAND = "bazel build //core/problem:print_language && python3 core/problem/write_language.py"
# A table of the document, from its first comment to its last one.
TABLE = re.compile(r"<!-- (\w+), written by core/problem/write_language\.py: begin -->\n.*?<!-- \1, [^\n]*: end -->\n", re.DOTALL)


def printed(program: str, form: str) -> str:
    return subprocess.run([program, form], check=True, capture_output=True, text=True).stdout


def with_tables(document: str, tables: str) -> str:
    """The document with the tables of the same names in place of its own. ValueError: it lacks one, or has another."""
    by_name = {found[1]: found[0] for found in TABLE.finditer(tables)}
    names = [found[1] for found in TABLE.finditer(document)]
    if sorted(names) != sorted(by_name):
        raise ValueError(f"the document has the tables {names}, and print_language prints {list(by_name)}")
    return TABLE.sub(lambda found: by_name[found[1]], document)


def main() -> int:
    root = pathlib.Path(__file__).resolve().parents[2]
    program = str(root / "bazel-bin/core/problem/print_language")
    document = root / DOCUMENT
    (root / PYTHON).write_text(printed(program, "python"), encoding="utf-8")
    document.write_text(with_tables(document.read_text(encoding="utf-8"), printed(program, "markdown")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
