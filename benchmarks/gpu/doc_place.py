"""The place of generated tables in a page of the docs: between two comments."""

import pathlib


class DocPlace:
    def __init__(self, title: str, writer: str) -> None:
        self.begin = f"<!-- {title}, written by {writer}: begin -->"
        self.end = f"<!-- {title}, written by {writer}: end -->"

    def read(self, doc: pathlib.Path) -> str:
        """The text between the comments."""
        return self._split(doc)[1].strip()

    def write(self, doc: pathlib.Path, text: str) -> None:
        """Puts a text between the comments."""
        before, _, after = self._split(doc)
        doc.write_text(f"{before}{self.begin}\n\n{text}\n\n{self.end}{after}", encoding="utf-8")

    def _split(self, doc: pathlib.Path) -> tuple[str, str, str]:
        before, begin, rest = doc.read_text(encoding="utf-8").partition(self.begin)
        text, end, after = rest.partition(self.end)
        if not begin or not end:
            raise SystemExit(f"error: {doc} lacks the comments between which the tables stand: {self.begin}")
        return before, text, after
