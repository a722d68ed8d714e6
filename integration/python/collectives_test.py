"""The collectives on real processes, each value compared with plain loops over lists."""

import array
import math
import sys
import unittest

sys.path.insert(0, "integration/python")

from cotune import DType, Reduction, UsageError
from testing.elements import buffer_of, values_of
from testing.ranks import Job, RanksTest

REDUCED = (DType.F32, DType.F64, DType.F16, DType.BF16, DType.I32, DType.I64, DType.U8)
COUNT = 257


def sent(rank: int, count: int = COUNT) -> list[int]:
    """Small numbers, other ones on each rank and at each place: every dtype adds them exactly."""
    return [(7 * i + 3 * rank) % 5 + 1 for i in range(count)]


def reduced(columns: list[tuple[int, ...]], op: Reduction, dtype: DType) -> list[float]:
    whole = dtype in (DType.I32, DType.I64, DType.U8)
    by_op = {
        Reduction.SUM: sum,
        Reduction.PRODUCT: math.prod,
        Reduction.MIN: min,
        Reduction.MAX: max,
        Reduction.AVERAGE: lambda each: sum(each) // len(each) if whole else sum(each) / len(each),
    }
    return [by_op[op](each) for each in columns]


def all_reduce_everything(rank: int, job: Job) -> dict:
    results = {}
    with job.group(rank) as group:
        for dtype in REDUCED:
            for op in Reduction:
                send, recv = buffer_of(sent(rank), dtype), buffer_of([0] * COUNT, dtype)
                assert group.all_reduce(send, recv, op) is recv
                assert values_of(send) == sent(rank)
                in_place = buffer_of(sent(rank), dtype)
                group.all_reduce(in_place, op=op.name.lower())
                results[dtype, op] = values_of(recv), values_of(in_place)
    return results


def move_everything(rank: int, job: Job) -> dict:
    results, size = {}, job.size
    with job.group(rank) as group:
        for dtype in DType:
            gathered = buffer_of([0] * (COUNT * size), dtype)
            group.all_gather(buffer_of(sent(rank), dtype), gathered)
            exchanged = buffer_of([0] * (COUNT * size), dtype)
            group.all_to_all(buffer_of(sent(rank, COUNT * size), dtype), exchanged)
            in_place = buffer_of(sent(rank, COUNT * size), dtype)
            group.all_to_all(in_place)
            told = buffer_of(sent(rank), dtype)
            group.broadcast(told, root=1)
            from_send = buffer_of([0] * COUNT, dtype)
            group.broadcast(from_send, 0, buffer_of(sent(5), dtype) if rank == 0 else None)
            moved = (gathered, exchanged, in_place, told, from_send)
            results[dtype] = [values_of(each) for each in moved]
    return results


def scatter_and_gather_in_place(rank: int, job: Job) -> list:
    results = []
    with job.group(rank) as group:
        for op in Reduction:
            send, recv = (
                buffer_of(sent(rank, COUNT * job.size), DType.F32),
                buffer_of([0] * COUNT, DType.F32),
            )
            group.reduce_scatter(send, recv, op)
            results.append(values_of(recv))
        whole = array.array("f", [0] * (COUNT * job.size))
        own = memoryview(whole)[rank * COUNT : (rank + 1) * COUNT]
        own[:] = array.array("f", sent(rank))
        group.all_gather(own, whole)
        results.append(whole.tolist())
        whole = array.array("f", sent(rank, COUNT * job.size))
        own = memoryview(whole)[rank * COUNT : (rank + 1) * COUNT]
        group.reduce_scatter(whole, own)
        results.append(own.tolist())
    return results


def reduce_booleans(rank: int, job: Job) -> list:
    with job.group(rank) as group:
        masks = []
        for op in ("min", "max"):
            mask = memoryview(bytearray([rank, 1, 0])).cast("?")
            group.all_reduce(mask, op=op)
            masks.append(mask.tolist())
        try:
            group.all_reduce(mask)
        except UsageError as error:
            masks.append(str(error))
    return masks


def call_with_nothing(rank: int, job: Job) -> None:
    with job.group(rank) as group:
        group.all_reduce(array.array("f"))
        group.all_gather(array.array("f"), array.array("f"))
        group.broadcast(bytearray())


class CollectivesTest(RanksTest):
    def test_all_reduce_of_every_dtype_by_every_reduction(self):
        for size in (2, 3):
            columns = list(zip(*(sent(rank) for rank in range(size)), strict=True))
            for results in self.run_ranks(all_reduce_everything, size):
                self.assertEqual(len(results), len(REDUCED) * len(Reduction))
                for (dtype, op), (out_of_place, in_place) in results.items():
                    with self.subTest(size=size, dtype=dtype, op=op):
                        right = reduced(columns, op, dtype)
                        self.compare(out_of_place, right, dtype)
                        self.compare(in_place, out_of_place, DType.F64)

    def compare(self, values: list, right: list, dtype: DType) -> None:
        """Averages of three are rounded to the bits of the dtype."""
        digits = {DType.F16: 11, DType.BF16: 8, DType.F32: 24}.get(dtype, 53)
        self.assertEqual(len(values), len(right))
        for i, (value, wanted) in enumerate(zip(values, right, strict=True)):
            self.assertLessEqual(abs(value - wanted), abs(wanted) * 2.0**-digits, f"element {i}")

    def test_data_of_every_dtype_is_moved(self):
        for size in (2, 3):
            for rank, results in enumerate(self.run_ranks(move_everything, size)):
                self.assertEqual(set(results), set(DType))
                blocks = [
                    sent(other, COUNT * size)[rank * COUNT : (rank + 1) * COUNT]
                    for other in range(size)
                ]
                exchanged = [value for block in blocks for value in block]
                gathered = [value for other in range(size) for value in sent(other)]
                for dtype, moved in results.items():
                    with self.subTest(size=size, rank=rank, dtype=dtype):
                        self.assertEqual(moved, [gathered, exchanged, exchanged, sent(1), sent(5)])

    def test_reduce_scatter_and_blocks_in_place(self):
        size = 3
        columns = list(zip(*(sent(rank, COUNT * size) for rank in range(size)), strict=True))
        gathered = [value for other in range(size) for value in sent(other)]
        for rank, results in enumerate(self.run_ranks(scatter_and_gather_in_place, size)):
            own = columns[rank * COUNT : (rank + 1) * COUNT]
            for op, values in zip(Reduction, results, strict=False):
                self.compare(values, reduced(own, op, DType.F32), DType.F32)
            self.assertEqual(results[-2], gathered)
            self.assertEqual(results[-1], [sum(each) for each in own])

    def test_booleans_have_and_and_or_but_no_sum(self):
        for conjunction, disjunction, refused in self.run_ranks(reduce_booleans):
            self.assertEqual(conjunction, [False, True, False])
            self.assertEqual(disjunction, [True, True, False])
            self.assertIn("bool has no sum", refused)

    def test_no_elements(self):
        self.run_ranks(call_with_nothing)


if __name__ == "__main__":
    unittest.main()
