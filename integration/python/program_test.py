"""Programs: read, inferred, run on real processes and compared with plain loops, and tuned."""

import array
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, "integration/python")

from cotune import DType, MachineError, Node, Operand, Program, Shape, UsageError, Value, operand
from testing.elements import buffer_of, values_of
from testing.ranks import Job, RanksTest

ADD = """program add
%x = input f32 [R, 4]
%bias = input f32 [1, 4] replicated
%stream = input f32 [R, 4] replicated
%sum = all_reduce sum %x
%shifted = add %sum, %bias
%next = add %shifted, %stream
return %shifted, %next into %stream
"""
SHARE = """program share
%x = input bf16 [R, 3]
%own = reduce_scatter sum %x
%back = all_gather %own
return %own, %back
"""
ROWS = 6


def x_of(rank: int, columns: int) -> list[int]:
    return [(5 * i + rank) % 7 for i in range(ROWS * columns)]


def run_both(rank: int, job: Job) -> list:
    add, share = Program.parse(ADD), Program(SHARE)
    with job.group(rank) as group:
        x = memoryview(array.array("f", x_of(rank, 4))).cast("B").cast("f", [2, ROWS // 2, 4])
        bias, stream = array.array("f", [1, 2, 3, 4]), array.array("f", range(ROWS * 4))
        shifted = array.array("f", [0] * (ROWS * 4))
        operands = [x, two(bias, 4), two(stream, 4)], [two(shifted, 4), two(stream, 4)]
        group.prepare(add, *operands)
        group.run(add, *operands)
        own, back = (buffer_of([0] * (count * 3), DType.BF16) for count in (ROWS // job.size, ROWS))
        given = buffer_of(x_of(rank, 3), DType.BF16)
        group.run(share, [two(given, 3)], [two(own, 3), two(back, 3)])
        try:
            group.run(add, operands[0][:2], operands[1])
        except UsageError as error:
            text = str(error)
        assert "add" in group.explain(add, ROWS)
        assert group.explain_dict(add, ROWS)["rows"] == ROWS
    return [shifted.tolist(), stream.tolist(), values_of(own), values_of(back), text]


def two(buffer, columns: int) -> Operand:
    """The elements of a buffer of one dimension as rows and columns."""
    made = operand(buffer, "two")
    return Operand(made.address, made.dtype, (made.count // columns, columns), owner=buffer)


def tune_both(rank: int, job: Job) -> dict:
    add = Program(ADD)
    with job.group(rank) as group:
        report = group.tune(
            [Node(add, sizes=[2, 64]), Node("all_gather", DType.BF16, sizes=[1024])]
        )
        assert (report.measured, report.is_tuned) == (3, True), report
        return group.explain_dict(add, 64)


class ProgramTest(RanksTest):
    def test_values_are_those_of_loops(self):
        size = 2
        summed = [sum(each) for each in zip(*(x_of(r, 4) for r in range(size)), strict=True)]
        shifted = [value + i % 4 + 1 for i, value in enumerate(summed)]
        whole = [sum(each) for each in zip(*(x_of(r, 3) for r in range(size)), strict=True)]
        block = len(whole) // size
        for rank, results in enumerate(self.run_ranks(run_both, size)):
            self.assertEqual(results[0], shifted)
            self.assertEqual(results[1], [value + i for i, value in enumerate(shifted)])
            self.assertEqual(results[2], whole[rank * block : (rank + 1) * block])
            self.assertEqual(results[3], whole)
            self.assertIn("2 inputs", results[4])

    def test_a_text_that_is_wrong_names_its_line(self):
        with self.assertRaises(UsageError) as raised:
            Program(ADD.replace("all_reduce sum %x", "all_reduce som %x"))
        self.assertRegex(str(raised.exception), "line 5")

    def test_a_file_that_is_no_program_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "p.cotune")
            with self.assertRaisesRegex(MachineError, r"cannot be read \(.*/p\.cotune\): No such file"):
                Program.read(file)
            file.write_bytes(b"program \xff\xfe")
            with self.assertRaisesRegex(UsageError, r"byte 9 is no UTF-8 \(.*/p\.cotune\)"):
                Program.read(file)
            file.write_text(ADD.replace("all_reduce sum %x", "all_reduce som %x"))
            with self.assertRaisesRegex(UsageError, r"^.*/p\.cotune: .*line 5"):
                Program.read(file)
            file.write_text(ADD)
            self.assertEqual(Program.read(file).digest, Program(ADD).digest)

    def test_a_dtype_that_does_not_fit_is_named(self):
        program, rows, bias = Program(ADD), Shape(DType.F32, (5, 4)), Shape("f32", (1, 4))
        with self.assertRaisesRegex(UsageError, "the dtype is f64, and the program takes f32 there .*input 3"):
            program.infer([rows, bias, Shape("f64", (5, 4))], 2)
        with self.assertRaisesRegex(UsageError, "no DType 'f23'"):
            program.infer([rows, bias, Shape("f23", (5, 4))], 2)
        with self.assertRaisesRegex(UsageError, "2 inputs are given, and the program has 3; .*input statement"):
            program.infer([rows, bias], 2)

    def test_types_of_outputs(self):
        program = Program(ADD)
        self.assertEqual((program.input_count, program.output_count), (3, 2))
        rows, bias = Shape(DType.F32, (5, 4)), Shape(DType.F32, (1, 4))
        self.assertEqual(
            program.infer([rows, bias, rows], 2),
            [Value(DType.F32, 5, 4, None, True), Value(DType.F32, 5, 4, 2, True)],
        )
        shares = Program(SHARE).infer([Shape(DType.BF16, (6, 3))], 3)
        self.assertEqual([(each.rows, each.columns) for each in shares], [(2, 3), (6, 3)])
        with self.assertRaisesRegex(UsageError, "input 2"):
            program.infer([rows, rows, rows], 2)

    def test_the_digest_is_that_of_the_meaning(self):
        renamed = Program(ADD.replace("%sum", "%total").replace("program add", "program other"))
        self.assertEqual(renamed.digest, Program(ADD).digest)
        self.assertNotEqual(Program(SHARE).digest, Program(ADD).digest)

    def test_programs_are_tuned_with_collectives(self):
        for explained in self.run_ranks(tune_both):
            self.assertEqual(explained["source"], "table")
            self.assertEqual(explained["rows"], 64)


if __name__ == "__main__":
    unittest.main()
