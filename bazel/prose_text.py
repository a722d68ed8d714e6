"""The prose of a source: its comments, docstrings, messages and paragraphs, as sentences with their lines.

`sentences_of(path, text)` reads C++, CUDA, Python, shell, Starlark and Markdown. Code in backquotes becomes one word, so
that a name never counts as prose.
"""

import ast
import dataclasses
import io
import pathlib
import re
import tokenize
from collections.abc import Callable, Iterator

C_SUFFIXES = (".h", ".hpp", ".cc", ".c", ".cu", ".cuh")
HASH_SUFFIXES = (".sh", ".bzl", ".bazel")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence and the line of its first word.

    is_whole: it begins as a sentence; a message may go on after another literal, and cells of tables are phrases.
    """

    line: int
    text: str
    is_whole: bool = True


# A comment, or a string with quotes of its own kind; in this order the first that begins is the one that counts.
_C_TOKEN = re.compile(
    r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*.*?\*/)
  | R"(?P<mark>[^\s()\\]{0,16})\((?P<raw>.*?)\)(?P=mark)"
  | "(?P<string>(?:[^"\\\n]|\\.)*)"
  | '(?:[^'\\\n]|\\.)+'
    """,
    re.DOTALL | re.VERBOSE,
)
_INCLUDE = re.compile(r"^\s*#\s*include\b")
# Digits may be grouped by single quotes, which open no character.
_DIGIT_GROUP = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")
# The end of a sentence: a stop and the begin of another. "e.g. X" and initials are no ends.
_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)[.!?][)\"”]?\s+(?=[\"“(]?[A-Z0-9`])")
_CODE = re.compile(r"(?P<quotes>`+)(?:(?!(?P=quotes)).)+(?P=quotes)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
# An item of a list is a paragraph of its own.
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_FENCE = re.compile(r"^\s*(```|~~~)")
_DIRECTIVE = re.compile(r"^\s*(NOLINT|clang-format|noqa|fmt:|type:|buildifier:|shellcheck|pylint:|ruff:|Copyright|SPDX)")

# A paragraph: its lines, each with its number.
_Lines = list[tuple[int, str]]


def has_prose(path: pathlib.Path) -> bool:
    """Returns true if `sentences_of` reads files like this one: by its suffix, or without one by its first line."""
    first_line = ""
    if not path.suffix:
        with path.open(errors="replace") as file:
            first_line = file.readline()
    return _reader_of(path, first_line) is not None


def sentences_of(path: pathlib.Path, text: str) -> list[Sentence]:
    """The sentences of a file, in its order."""
    reader = _reader_of(path, text)
    return sorted(reader(text), key=lambda each: each.line) if reader else []


def wrappable_lines(text: str) -> list[tuple[int, str]]:
    """The lines of a page that an author can wrap, with their numbers: no code, tables, headings or lone links."""
    return [(n, line) for n, line in _outside_of_code(text) if not re.match(r"\s*(\||#|<|\[[^\]]*\]:|[-*]? ?\S+$)", line)]


def _reader_of(path: pathlib.Path, text: str) -> Callable[[str], Iterator[Sentence]] | None:
    if path.suffix in C_SUFFIXES:
        return _of_c
    if path.suffix == ".md":
        return _of_markdown
    if path.suffix == ".py" or re.match(r"#!.*python", text):
        return _of_python
    if path.suffix in HASH_SUFFIXES or re.match(r"#!.*sh\b", text):
        return _of_hash_comments
    return None


def _split(lines: _Lines, is_whole: bool = True) -> Iterator[Sentence]:
    """Joins the lines of a paragraph and cuts them into sentences."""
    joined = ""
    starts = []  # (position in joined, line)
    for number, line in lines:
        starts.append((len(joined), number))
        joined += line.strip() + " "
    # A placeholder of the same length keeps the positions.
    joined = _CODE.sub(lambda match: "`" + "x" * (len(match[0]) - 2) + "`", joined)
    begin = 0
    for end in [match.end() for match in _SENTENCE_END.finditer(joined)] + [len(joined)]:
        words = joined[begin:end].strip()
        if words:
            at = begin + len(joined[begin:end]) - len(joined[begin:end].lstrip())
            yield Sentence(max(n for p, n in starts if p <= at), words, is_whole)
        begin = end


def _paragraphs(lines: _Lines) -> Iterator[_Lines]:
    """Cuts lines at empty ones and before items of a list."""
    paragraph: _Lines = []
    for number, line in lines:
        if _DIRECTIVE.match(line):
            line = ""
        item = _ITEM.match(line)
        if (not line.strip() or item) and paragraph:
            yield paragraph
            paragraph = []
        if line.strip():
            paragraph.append((number, line[item.end() :] if item else line))
    if paragraph:
        yield paragraph


def _of_lines(lines: _Lines) -> Iterator[Sentence]:
    for paragraph in _paragraphs(lines):
        yield from _split(paragraph)


def _runs(comments: list[tuple[int, int, bool, str]]) -> Iterator[_Lines]:
    """Puts together comments of consecutive lines at one column; one after code stands alone, or goes on below itself."""
    run: _Lines = []
    last = (0, 0, False)
    for number, column, after_code, text in comments:
        goes_on = number == last[0] + 1 and column == last[1] and not after_code
        if run and not goes_on:
            yield run
            run = []
        run.append((number, text))
        last = (number, column, after_code)
    if run:
        yield run


def _of_c(text: str) -> Iterator[Sentence]:
    text = _DIGIT_GROUP.sub("_", text)
    line_of, line_starts = 1, [0]
    for match in re.finditer("\n", text):
        line_starts.append(match.end())
    comments: list[tuple[int, int, bool, str]] = []
    strings: list[tuple[int, int, str]] = []  # first line, end in the text, content
    for match in _C_TOKEN.finditer(text):
        while line_of < len(line_starts) and line_starts[line_of] <= match.start():
            line_of += 1
        begin = line_starts[line_of - 1]
        before = text[begin : match.start()]
        if match["line"] is not None:
            comments.append((line_of, len(before), bool(before.strip()), match["line"].lstrip("/!<")))
        elif match["block"] is not None:
            body = match["block"][2:-2].split("\n")
            lines = [(line_of + i, re.sub(r"^\s*\*(?!\*)", "", part)) for i, part in enumerate(body)]
            yield from _of_lines(lines)
        elif match["string"] is not None and not _INCLUDE.match(before):
            strings.append((line_of, match.end(), match["string"]))
            if len(strings) > 1 and not text[strings[-2][1] : match.start()].strip():
                # Neighbours are one literal.
                first, _, content = strings[-2]
                strings[-2:] = [(first, match.end(), content + match["string"])]
    for run in _runs(comments):
        yield from _of_lines(run)
    for number, _, content in strings:
        yield from _message(number, content)


def _message(number: int, content: str) -> Iterator[Sentence]:
    content = re.sub(r"\\[nt]", " ", content)
    if len(re.findall(r"\b[a-z]{2,}\b", content)) >= 3 and " " in content:
        yield from _split([(number, content)], is_whole=False)


def _of_python(text: str) -> Iterator[Sentence]:
    comments = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            number, column = token.start
            comments.append((number, column, bool(token.line[:column].strip()), token.string.lstrip("#")))
    for run in _runs(comments):
        yield from _of_lines(run)
    tree = ast.parse(text)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                docstrings.add(id(first.value))
                lines = first.value.value.split("\n")
                yield from _of_lines([(first.value.lineno + i, line) for i, line in enumerate(lines)])
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from _message(node.lineno, node.value.replace("\n", " "))


def _of_hash_comments(text: str) -> Iterator[Sentence]:
    comments = []
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"(\s*)#(?!!)(.*)", line)
        if match:
            comments.append((number, len(match[1]), False, match[2]))
    for run in _runs(comments):
        yield from _of_lines(run)


def _outside_of_code(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page; those of code are empty."""
    in_code = False
    for number, line in enumerate(text.split("\n"), 1):
        is_fence = bool(_FENCE.match(line))
        in_code ^= is_fence
        yield number, "" if in_code or is_fence else line


def _of_markdown(text: str) -> Iterator[Sentence]:
    lines: _Lines = []
    for number, line in _outside_of_code(text):
        line = _LINK.sub(r"\1", line).replace("**", "")
        if re.match(r"\s*\|", line):
            for cell in line.strip().strip("|").split("|"):
                yield from _split([(number, cell)], is_whole=False)
        # Headings, tables and HTML are no sentences.
        lines.append((number, "" if re.match(r"#+ |\s*[<|]", line) else line))
    yield from _of_lines(lines)
