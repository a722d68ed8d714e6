"""Writes the first inputs of check_program_fuzz into a folder: programs that CheckProgram takes, as the bytes that the fuzzer reads.

An input is a byte that says how much of it the fuzzer makes plausible (0: nothing), cotune_program_t, the values, the nodes, and a
byte for each output and each input that one overwrites, 128 more than the index. plugins/api/program_layout_v1.golden has the
layout of the structs."""
import pathlib
import struct
import sys

WORLD_SIZE = 2
ROWS = {"1": (1, 1), "R": (2, 4), "R/n": (3, 4 // WORLD_SIZE)}
# Code, bits.
DTYPES = {"f32": (2, 32), "f64": (2, 64), "f16": (2, 16), "bf16": (4, 16), "i32": (0, 32), "i64": (0, 64), "u8": (1, 8),
          "i8": (0, 8), "f8_e4m3": (10, 8), "f8_e5m2": (12, 8)}
KINDS = {"add": 1, "sub": 2, "mul": 3, "div": 4, "max": 6, "neg": 7, "abs": 8, "relu": 9, "exp": 15, "sqrt": 17, "rsqrt": 18,
         "round": 19, "clamp": 20, "less": 21, "equal": 22, "where": 23, "cast": 24, "row_sum": 32, "row_max": 33}
COLLECTIVES = {"all_reduce": 1, "all_gather": 2, "reduce_scatter": 3, "all_to_all": 4, "broadcast": 5}
LITERAL = -1


def value(dtype: str, rows: str, columns: int) -> bytes:
    code, bits = DTYPES[dtype]
    kind, count = ROWS[rows]
    return struct.pack("<II BBH I QQ", 32, 0, code, bits, 1, kind, count, columns)


def node(name: str, *operands: int, literal: float = 0, constants: tuple[float, float] = (0, 0)) -> bytes:
    collective = COLLECTIVES.get(name, 0)
    reduces = name in ("all_reduce", "reduce_scatter")
    padded = (*operands, *[0] * (4 - len(operands)))
    return struct.pack("<IIIIiI 4i 4d 2d", 88, KINDS.get(name, 0), collective, int(reduces), 0, len(operands), *padded,
                       *[literal] * 4, *constants)


def program(inputs: list, nodes: list, outputs: list) -> bytes:
    """Inputs are types, nodes are (type, what node() takes), outputs are (value, into)."""
    header = struct.pack("<IIIiiI QQ QIIQII QQII Q", 104, 0, 1, WORLD_SIZE, WORLD_SIZE, 0, 0, 7, 0, 32, len(inputs), 0, 88,
                         len(nodes), 0, 0, len(outputs), 0, 0)
    values = b"".join(value(*type_) for type_ in [*inputs, *(type_ for type_, _ in nodes)])
    operations = b"".join(node(*operation) if isinstance(operation, tuple) else operation for _, operation in nodes)
    places = bytes(128 + output for output, _ in outputs) + bytes(128 + into for _, into in outputs)
    return b"\0" + header + values + operations + places


def programs() -> dict[str, bytes]:
    wide = ("bf16", "R", 3)
    narrow = ("f32", "R", 1)
    share = ("f32", "R/n", 5)
    moved = ("u8", "R", 2)
    return {
        "norm": program([wide, wide, ("bf16", "1", 3)], [
            (wide, ("all_reduce", 0)), (wide, ("add", 3, 1)), (("f32", "R", 3), ("cast", 4)),
            (("f32", "R", 3), ("mul", 5, 5)), (narrow, ("row_sum", 6)), (narrow, node("mul", 7, LITERAL, literal=1 / 3)),
            (narrow, node("add", 8, LITERAL, literal=1e-6)), (narrow, ("rsqrt", 9)), (("f32", "R", 3), ("mul", 5, 10)),
            (wide, ("cast", 11)), (wide, ("mul", 12, 2))], [(13, -1), (4, 1)]),
        "shares": program([("f32", "R", 5)], [
            (share, ("reduce_scatter", 0)), (share, ("exp", 1)), (("f32", "R", 5), ("all_gather", 2)),
            (("f32", "R", 5), ("all_to_all", 3)), (("f32", "R", 5), ("neg", 4))], [(5, 0)]),
        "quantized": program([("f16", "R", 4), ("f32", "1", 1)], [
            (("f16", "R", 4), ("broadcast", 0)), (("f32", "R", 4), ("cast", 2)), (("f32", "R", 4), ("div", 3, 1)),
            (("f32", "R", 4), node("clamp", 4, constants=(-448, 448))), (("f8_e4m3", "R", 4), ("cast", 5)),
            (("f8_e5m2", "R", 4), ("cast", 5)), (("i8", "R", 4), ("cast", 5)), (("i8", "R", 4), ("all_to_all", 8))],
            [(6, -1), (7, -1), (9, -1)]),
        "integers": program([("i64", "R", 2), moved, ("i32", "1", 2)], [
            (moved, ("all_reduce", 1)), (moved, ("equal", 0, 0)), (("i64", "R", 2), ("where", 4, 0, 0)),
            (("i32", "R", 2), ("cast", 5)), (("i32", "R", 2), ("max", 6, 2)),
            (moved, node("less", 7, LITERAL, literal=9)), (moved, ("add", 3, 8))], [(9, 1)]),
        "part": program([("f64", "R", 3)], [
            (("f64", "R", 1), ("row_max", 0)), (("f64", "R", 3), ("sub", 0, 1)), (("f64", "R", 3), ("abs", 2)),
            (("f64", "R", 3), ("sqrt", 3)), (("f64", "R", 3), ("round", 4)), (("f64", "R", 3), ("relu", 5))], [(6, 0), (1, -1)]),
        # A value that is used before it is defined, and an output that overwrites no input.
        "late": program([narrow], [(narrow, ("add", 0, 2)), (narrow, ("all_reduce", 1))], [(2, -1)]),
        "unequal": program([narrow], [(wide, ("all_reduce", 0))], [(1, 0)]),
    }


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in programs().items():
        (folder / name).write_bytes(data)
