"""Buffers of every kind as operands. numpy and torch are tried where an interpreter has them."""

import array
import ctypes
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, "integration/python")

from cotune import DType, Operand, Typed, UsageError, operand
from cotune.buffers import tensors

BY_FORMAT = {"f": DType.F32, "d": DType.F64, "i": DType.I32, "l": DType.I64, "q": DType.I64,
             "B": DType.U8, "b": DType.I8}  # fmt: skip


def interpreter_with(module: str) -> str | None:
    """This interpreter, or that of the environment VIRTUAL_ENV, whichever has the module."""
    for python in (sys.executable, f"{os.environ.get('VIRTUAL_ENV', '')}/bin/python"):
        if pathlib.Path(python).exists():
            command = [python, "-c", f"import {module}"]
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                return python
    return None


class BufferTest(unittest.TestCase):
    def test_arrays(self):
        for sign, dtype in BY_FORMAT.items():
            with self.subTest(sign):
                given = array.array(sign, [1, 2, 3])
                made = operand(given, "x")
                self.assertEqual((made.dtype, made.sizes, made.count), (dtype, (3,), 3))
                self.assertEqual(made.address, given.buffer_info()[0])
                self.assertEqual((made.device, made.is_writable, made.is_bool), (None, True, False))

    def test_an_array_is_not_resized_while_it_is_an_operand(self):
        given = array.array("f", [1])
        made = operand(given, "x")
        with self.assertRaises(BufferError):
            given.append(2)
        del made
        given.append(2)

    def test_bytes_are_read_only(self):
        given = b"abc"
        made = operand(given, "x")
        self.assertEqual((made.dtype, made.count, made.is_writable), (DType.U8, 3, False))
        self.assertEqual(ctypes.string_at(made.address, 3), given)

    def test_dimensions_and_booleans(self):
        view = memoryview(bytearray(24)).cast("f", [2, 3])
        self.assertEqual(operand(view, "x").sizes, (2, 3))
        self.assertTrue(operand(memoryview(bytearray(3)).cast("?"), "x").is_bool)
        self.assertEqual(operand(array.array("f"), "x").count, 0)
        self.assertEqual(operand((ctypes.c_float * 3)(), "x").dtype, DType.F32)

    def test_another_type_by_the_same_bytes(self):
        made = operand(Typed(array.array("H", [0x3F80]), DType.BF16), "x")
        self.assertEqual((made.dtype, made.sizes), (DType.BF16, (1,)))
        self.assertEqual(operand(Typed(bytearray(2), DType.F8_E4M3), "x").dtype, DType.F8_E4M3)
        self.assertEqual(operand(Typed(array.array("H", [1]), "bf16"), "x").dtype, DType.BF16)
        with self.assertRaisesRegex(UsageError, r"no DType 'bf17' \(x\); use one of f32, .*bf16"):
            operand(Typed(array.array("H", [1]), "bf17"), "x")
        with self.assertRaisesRegex(UsageError, "have 4 bytes, and bf16 has 2"):
            operand(Typed(array.array("f", [1]), DType.BF16), "x")

    def test_what_is_refused(self):
        for given, words in (
            (array.array("I", [1]), "elements of type 'I'"),
            (array.array("h", [1]), "elements of type 'h'"),
            ((ctypes.c_float.__ctype_be__ * 2)(), "elements of type '>f'"),
            (memoryview(bytearray(4))[::2], "not contiguous"),
            ("text", "a str is no buffer"),
            (None, "a NoneType is no buffer"),
        ):
            with self.subTest(given=given), self.assertRaisesRegex(UsageError, words) as raised:
                operand(given, "the place")
            self.assertIn("(the place)", str(raised.exception))

    def test_tensors_of_the_c_api(self):
        given = array.array("f", [1, 2, 3, 4])
        made = tensors(
            [
                operand(memoryview(given).cast("B").cast("f", [2, 2]), "x"),
                Operand(0, DType.I64, (0, 5)),
                Operand(8, DType.F64, ()),
            ]
        )
        self.assertEqual([each.size_count for each in made], [2, 2, 0])
        self.assertEqual(list(made[0].sizes[:2]), [2, 2])
        self.assertEqual([each.data for each in made], [given.buffer_info()[0], None, 8])
        self.assertEqual([each.struct_size for each in made], [ctypes.sizeof(made[0])] * 3)


NUMPY = """
import numpy
from cotune import DType, UsageError, operand
names = {"float32": DType.F32, "float64": DType.F64, "float16": DType.F16, "int32": DType.I32,
         "int64": DType.I64, "uint8": DType.U8, "int8": DType.I8, "bool": DType.U8}
for name, dtype in names.items():
    given = numpy.zeros((3, 5), dtype=name)
    made = operand(given, "x")
    assert (made.dtype, made.sizes, made.address) == (dtype, (3, 5), given.ctypes.data), made
    assert made.is_writable and made.is_bool == (name == "bool")
assert operand(numpy.float32(3) + numpy.zeros(()), "x").sizes == ()
frozen = numpy.zeros(3)
frozen.flags.writeable = False
assert not operand(frozen, "x").is_writable
try:
    import ml_dtypes
except ImportError:
    pass
else:
    assert operand(numpy.zeros(3, ml_dtypes.bfloat16), "x").dtype is DType.BF16
    assert operand(numpy.zeros(3, ml_dtypes.float8_e4m3fn), "x").dtype is DType.F8_E4M3
refused = [
    (numpy.zeros((4, 4)).T[1:], "not contiguous"),
    (numpy.zeros(6)[::2], "not contiguous"),
    (numpy.zeros(3, ">f4"), "type >f4"),
    (numpy.zeros(3, "complex64"), "complex64"),
    (numpy.zeros(3, "uint16"), "uint16"),
    (numpy.zeros(3, "O"), "object"),
]
for given, words in refused:
    try:
        operand(given, "x")
    except UsageError as error:
        assert words in str(error), error
    else:
        raise AssertionError(given)
"""
TORCH = """
import sys
import cotune
assert "torch" not in sys.modules
import torch
from cotune import DType, Typed, UsageError, operand
names = {torch.float32: DType.F32, torch.float64: DType.F64, torch.float16: DType.F16,
         torch.bfloat16: DType.BF16, torch.int32: DType.I32, torch.int64: DType.I64,
         torch.uint8: DType.U8, torch.int8: DType.I8,
         torch.bool: DType.U8, torch.float8_e4m3fn: DType.F8_E4M3, torch.float8_e5m2: DType.F8_E5M2}
for kind, dtype in names.items():
    given = torch.zeros(3, 5, dtype=kind)[1:]
    made = operand(given, "x")
    assert (made.dtype, made.sizes, made.address) == (dtype, (2, 5), given.data_ptr()), made
    assert (made.device, made.is_bool) == (None, kind is torch.bool)
assert operand(Typed(torch.zeros(3, dtype=torch.uint16), DType.BF16), "x").dtype is DType.BF16
refused = [
    (torch.zeros(4, 4).T, "not contiguous"),
    (torch.zeros(3, dtype=torch.complex64), "complex64"),
    (torch.zeros(3, device="meta"), "is on meta"),
    (torch.zeros(3).to_sparse(), "not contiguous"),
    (torch._neg_view(torch.ones(3)), "lazy negation"),
]
for given, words in refused:
    try:
        operand(given, "x")
    except UsageError as error:
        assert words in str(error), error
    else:
        raise AssertionError(given)
"""


class LibraryTest(unittest.TestCase):
    def run_with(self, module: str, source: str) -> None:
        python = interpreter_with(module)
        if python is None:
            self.skipTest(f"no interpreter here has {module}")
        path = str(pathlib.Path("integration/python").resolve())
        done = subprocess.run(
            [python, "-B", "-c", source],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_arrays_of_numpy(self):
        self.run_with("numpy", NUMPY)

    def test_tensors_of_torch(self):
        self.run_with("torch", TORCH)


if __name__ == "__main__":
    unittest.main()
