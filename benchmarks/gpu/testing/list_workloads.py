"""The workloads of programs for lists of numbers, where there is no torch."""

import math
import struct
import types

import part_workloads


def rounded_to_bf16(number: float) -> float:
    """The nearest number of bf16, of two as near ones the even one; `number` is finite."""
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


class Matrix:
    """Of a tensor, what the references of the workloads use: loops over doubles. The programs that round are in bf16."""

    dtype = "bf16"

    def __init__(self, rows: list[list[float]]):
        self.rows = rows

    def float(self):
        return self

    def to(self, dtype):
        assert dtype == "bf16"
        return self.mapped(rounded_to_bf16)

    def mapped(self, function):
        return Matrix([[function(each) for each in row] for row in self.rows])

    def pow(self, exponent):
        return self.mapped(lambda each: each**exponent)

    def relu(self):
        return self.mapped(lambda each: max(each, 0))

    def mean(self, _axis, keepdim):
        assert keepdim
        return Matrix([[sum(row) / len(row)] for row in self.rows])

    def combined(self, other, function):
        if not isinstance(other, Matrix):
            return self.mapped(lambda each: function(each, other))
        columns = max(len(self.rows[0]), len(other.rows[0]))

        def at(matrix, i, k):
            row = matrix.rows[i % len(matrix.rows)]
            return row[k % len(row)]

        return Matrix([[function(at(self, i, k), at(other, i, k)) for k in range(columns)]
                       for i in range(max(len(self.rows), len(other.rows)))])

    def __add__(self, other):
        return self.combined(other, lambda a, b: a + b)

    def __mul__(self, other):
        return self.combined(other, lambda a, b: a * b)


def on_lists(workload: part_workloads.Workload, columns: int) -> part_workloads.Workload:
    """The workload with its own reference, for lists instead of tensors; all values but weights are so wide."""
    torch = types.SimpleNamespace(rsqrt=lambda matrix: matrix.mapped(lambda each: 1 / math.sqrt(each)))

    def expected(_torch, v):
        widths = {name: 1 if name == "weight" else min(columns, len(values)) for name, values in v.items()}
        matrices = {name: Matrix([list(values[i : i + widths[name]]) for i in range(0, len(values), widths[name])])
                    for name, values in v.items()}
        made = workload.reference(torch, matrices)
        return {name: [each for row in matrix.rows for each in row] for name, matrix in made.items()}

    return part_workloads.Workload(workload.example, expected, expected, workload.has_rows, workload.has_share)
