"""Texts: what is written can be read, what no program has is refused, and cotune agrees.

With COTUNE_CLI set to the command-line tool, it checks the texts, too.
"""

from __future__ import annotations

import unittest

from cotune.torch.program_text import (
    ALL,
    ONE,
    SHARE,
    Node,
    Number,
    Program,
    Refusal,
    ValueType,
    in_one_line,
    number_text,
    parse,
)
from cotune.torch.testing.tool import check_by_tool


def _example() -> Program:
    program = Program()
    x = program.add_input(ValueType("bf16", ALL, 64))
    total = program.add(Node("all_reduce", (x,), reduction="sum"))
    residual = program.add_input(ValueType("bf16", ALL, 64))
    stream = program.op("add", total, residual)
    wide = program.cast(stream, "f32")
    mean = program.op("row_mean", program.op("mul", wide, wide))
    scale = program.op("rsqrt", program.op("add", mean, Number(1e-6)))
    y = program.cast(program.op("mul", wide, scale), "bf16")
    low = program.op("clamp", y, low=-1.5, high=float("inf"))
    program.outputs = [(stream, -1), (low, -1)]
    return program


class ProgramTextTest(unittest.TestCase):
    def test_inputs_are_numbered_first(self) -> None:
        lines = _example().to_text().splitlines()
        self.assertEqual(lines[0], "program all_reduce_add_rms")
        self.assertEqual(lines[1:5], [
            "%0 = input bf16 [R, 64]",
            "%1 = input bf16 [R, 64]",
            "%2 = all_reduce sum %0",
            "%3 = add %2, %1",
        ])
        self.assertEqual(lines[-2:], ["%11 = clamp %10, low=-1.5, high=inf", "return %3, %11"])

    def test_flags_of_inputs_read_back(self) -> None:
        program = Program()
        x = program.add_input(ValueType("bf16", ALL, 64), nofuse=True)
        residual = program.add_input(ValueType("bf16", ALL, 64), replicated=True, nofuse=True)
        total = program.add(Node("all_reduce", (x,), reduction="sum"))
        program.outputs.append((program.add(Node("add", (total, residual))), -1))
        text = program.to_text()
        self.assertIn("%0 = input bf16 [R, 64] nofuse\n", text)
        self.assertIn("%1 = input bf16 [R, 64] replicated nofuse\n", text)
        self.assertEqual(parse(text).to_text(), text)
        self.assertEqual(parse(text.replace("replicated nofuse", "nofuse  replicated")).to_text(), text)
        with self.assertRaisesRegex(Refusal, "a flag of an input stands twice"):
            parse(text.replace("replicated nofuse", "nofuse nofuse"))

    def test_text_reads_back(self) -> None:
        text = _example().to_text()
        self.assertEqual(parse(text).to_text(), text)

    def test_a_text_in_one_line_is_the_same_program(self) -> None:
        text = _example().to_text()
        self.assertNotIn("\n", in_one_line(text))
        self.assertEqual(parse(in_one_line(text)).to_text(), text)
        self.assertEqual(parse(in_one_line(text + "  # %z = neg %y; return %z")).to_text(), text)

    def test_cotune_takes_the_text(self) -> None:
        check_by_tool(self, _example().to_text())
        check_by_tool(self, in_one_line(_example().to_text()))

    def test_numbers_read_back_to_the_same_double(self) -> None:
        for number in (0.1, 1e-6, 9.999999974752427e-07, 3.0, -0.0, 1e22, 2.0**60, float("-inf")):
            with self.subTest(number=number):
                self.assertEqual(repr(float(number_text(number))), repr(number))

    def test_zero_and_minus_zero_are_two_operands(self) -> None:
        program = Program()
        x = program.add_input(ValueType("f32", ALL, 4))
        plus = program.op("mul", x, Number(0.0))
        self.assertNotEqual(plus, program.op("mul", x, Number(-0.0)))
        self.assertEqual(plus, program.op("mul", x, Number(0.0)))

    def test_equal_collectives_are_not_merged(self) -> None:
        program = Program()
        x = program.add_input(ValueType("f32", ALL, 4))
        node = Node("all_reduce", (x,), reduction="sum")
        self.assertNotEqual(program.add(node), program.add(node))

    def test_rollback_forgets(self) -> None:
        program = _example()
        text, mark = program.to_text(), program.mark()
        other = program.add_input(ValueType("f32", ONE, 64))
        program.op("neg", other)
        program.rollback(mark)
        self.assertEqual(program.to_text(), text)
        again = program.add_input(ValueType("f32", ONE, 64))
        self.assertEqual(program.types[program.op("neg", again)].rows, ONE)

    def test_what_no_program_has_is_refused(self) -> None:
        head = "%x = input f32 [R, 8]\n%s = input f32 [R/n, 8]\n%i = input i32 [R, 8]\n"
        for line in (
            "%y = add %x, %s",
            "%y = add %x, %i",
            "%y = div %i, 2",
            "%y = add %i, 0.5",
            "%y = exp %i",
            "%y = where %x, %x, %x",
            "%y = clamp %x, low=2, high=1",
            "%y = clamp %x, low=1",
            "%y = all_gather %x",
            "%y = reduce_scatter sum %s",
            "%y = all_reduce %x",
            "%y = all_reduce median %x",
            "%y = cast %x",
            "%y = cast %x, to=f12",
            "%y = add 1, 2",
            "%y = frobnicate %x",
            "%y = add %x, %z",
            "%y = input f32 [R, 65537]",
            "y = neg %x",
        ):
            with self.subTest(line=line), self.assertRaisesRegex(Refusal, "line 4"):
                parse(head + line + "\nreturn %y\n")
        with self.assertRaisesRegex(Refusal, "no return"):
            parse(head)

    def test_at_most_four_collectives_depend_on_each_other(self) -> None:
        program = Program()
        value = program.add_input(ValueType("f32", SHARE, 4))
        value = program.add(Node("all_gather", (value,)))
        for _ in range(3):
            value = program.add(Node("all_reduce", (value,), reduction="sum"))
        with self.assertRaisesRegex(Refusal, "5 collectives"):
            program.add(Node("all_reduce", (value,), reduction="sum"))


if __name__ == "__main__":
    unittest.main()
