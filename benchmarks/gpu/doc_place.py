"""The place in docs/performance/gpu_programs.md of the tables of programs on GPUs: between two comments."""

import pathlib

BEGIN = "<!-- programs on GPUs, written by benchmarks/gpu/program_report.py: begin -->"
END = "<!-- programs on GPUs, written by benchmarks/gpu/program_report.py: end -->"


def read(doc: pathlib.Path) -> str:
    """The text between the comments."""
    _, _, rest = doc.read_text(encoding="utf-8").partition(BEGIN)
    return rest.partition(END)[0].strip()


def write(doc: pathlib.Path, text: str) -> None:
    """Puts a text between the comments."""
    before, begin, rest = doc.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"error: {doc} lacks the comments between which the tables stand: {BEGIN}")
    doc.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
