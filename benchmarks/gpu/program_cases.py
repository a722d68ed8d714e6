"""A program at one number of rows: its values by name, what each rank is given, and what has to come of it."""

import dataclasses

import part_workloads

ELEMENT_BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2}
MIB = 1 << 20
# As part_workloads calls the value that a part hands to a collective.
VALUE = "value"
# The data: whole eighths up to 3/4, so that sums over up to 8 ranks are exact in bf16.
PERIOD = 13


def number(index: int, seed: int) -> float:
    """Element `index` of an input."""
    return ((7 * index + seed) % PERIOD - PERIOD // 2) / 8


@dataclasses.dataclass(frozen=True)
class Shape:
    dtype: str
    rows: int
    columns: int

    @property
    def count(self) -> int:
        return self.rows * self.columns

    @property
    def bytes(self) -> int:
        return self.count * ELEMENT_BYTES.get(self.dtype, 1)


@dataclasses.dataclass(frozen=True)
class Collective:
    """`operand` and `name`, its result, are names of values; count as in NCCL."""

    kind: str
    operand: str
    name: str
    count: int
    dtype: str


def received_shape(kind: str, sent: Shape, ranks: int) -> Shape:
    """What one rank has of a collective."""
    if kind == "reduce_scatter":
        return dataclasses.replace(sent, rows=sent.rows // ranks)
    return dataclasses.replace(sent, rows=sent.rows * ranks) if kind == "all_gather" else sent


def received(platform, kind: str, sent: list, rank: int):
    """The value itself; `sent` is of each rank."""
    if kind in ("all_reduce", "reduce_scatter"):
        total = platform.total(sent)
        return total if kind == "all_reduce" else platform.share(total, rank, len(sent))
    if kind == "all_gather":
        return platform.joined(sent)
    return platform.joined([platform.share(each, rank, len(sent)) for each in sent])


class Case:
    """Of a program with one part: collectives of its inputs, the part, collectives of what the part computes."""

    def __init__(self, workload: part_workloads.Workload, text: str, rows: int, ranks: int, parts):
        """`parts` are those of the program at these rows (part_library.Parts)."""
        if parts.count != 1:
            raise ValueError(f"{workload.example} has {parts.count} parts, and one is needed")
        self.workload, self.rows, self.ranks = workload, rows, ranks
        names = part_workloads.names_of(text)
        self.inputs: dict[str, Shape] = {}
        self.replicated: set[str] = set()
        for name, dtype, some_rows, columns, replicated in part_workloads.TYPED_INPUT.findall(text):
            self.inputs[name] = Shape(dtype, rows if some_rows == "R" else int(some_rows), int(columns))
            if replicated:
                self.replicated.add(name)
        self.shapes = dict(self.inputs)  # of all values between steps too
        self.of_part: list[str] = []
        for value in parts.outputs(0):
            self.of_part.append(names.of_output(value.slot))
            self.shapes[self.of_part[-1]] = Shape(value.dtype, value.rows, value.columns)
        self.before: list[Collective] = []
        self.after: list[Collective] = []
        for name, kind, operand in part_workloads.COLLECTIVE.findall(text):
            self._add_collective(kind, operand, name)
        self.outputs = part_workloads.returned_of(text)  # (name, the input that it overwrites or "")

    def _add_collective(self, kind: str, operand: str, name: str) -> None:
        is_before = operand in self.inputs
        sent = self.shapes[operand if is_before else VALUE]
        self.shapes[name] = received_shape(kind, sent, self.ranks)
        # NCCL counts what one rank gives one rank.
        count = sent.count // (self.ranks if kind in ("reduce_scatter", "all_to_all") else 1)
        made = Collective(kind, operand if is_before else VALUE, name, count, sent.dtype)
        (self.before if is_before else self.after).append(made)

    @property
    def collectives(self) -> list[Collective]:
        return self.before + self.after

    @property
    def bytes(self) -> int:
        """Of the largest operand of a collective."""
        return max(max(self.shapes[each.operand].bytes, self.shapes[each.name].bytes) for each in self.collectives)

    @property
    def calls(self) -> int:
        """In one graph: enough that a replay takes much longer than what surrounds it."""
        return 20 if self.bytes <= 16 * MIB else 5

    def seed(self, name: str, rank: int) -> int:
        return 1 + list(self.inputs).index(name) + (0 if name in self.replicated else 5 * rank)

    def expected(self, platform, rank: int, is_compiled: bool = False) -> dict:
        """The outputs of a rank by name, from f32; if is_compiled, as kernels that torch compiles compute the part."""
        made = self._of_part(platform, rank, is_compiled)
        for each in self.after:
            # Loops over ranks are an oracle that shares nothing with what is measured.
            sent = [self._of_part(platform, peer, is_compiled)[VALUE] for peer in range(self.ranks)]
            made[each.name] = received(platform, each.kind, sent, rank)
        return {name: made[name] for name, _ in self.outputs}

    def _of_part(self, platform, rank: int, is_compiled: bool) -> dict:
        def given(name: str, of_rank: int):
            return platform.filled(self.inputs[name], self.seed(name, of_rank))

        values = {name: given(name, rank) for name in self.inputs}
        for each in self.before:
            sent = [given(each.operand, peer) for peer in range(self.ranks)]
            values[each.name] = received(platform, each.kind, sent, rank)
        return self.workload.reference_of(is_compiled)(platform.torch, values)
