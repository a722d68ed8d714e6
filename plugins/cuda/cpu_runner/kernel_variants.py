"""Writes a C++ file that holds kernel sources many times over, once for each set of options.

usage: kernel_variants.py SET OUTPUT KERNEL_FOLDER

SET is one of the lists below. Each variant is the text of a .cu file and of the headers that it includes, in a namespace
of its own, so that one program can hold them all. prelude.cuh is left out: device_on_cpu.h stands for it.
"""

import pathlib
import re
import sys

FLOATS = ["F32", "F16", "BF16"]
TYPES = ["F32", "F64", "F16", "BF16", "I32", "I64", "U8"]
REDUCTIONS = ["SUM", "PRODUCT", "MIN", "MAX", "AVERAGE"]
WORLDS = [2, 3, 4, 5, 8]
REPLACED = {"prelude.cuh", "kernel_abi.h"}
INCLUDE = re.compile(r'^#include "([^"]+)"$', re.M)


def variants(
    file: str, collective: str, algorithm: str, transport: str, types: list, reductions: list, worlds: list, unroll: int = 0
) -> list[dict]:
    """unroll: 0 for one that depends on the world."""
    return [
        dict(
            file=file, collective=collective, algorithm=algorithm, transport=transport, type=e, reduction=r, world=w,
            unroll=unroll or (1 if w == 3 else 2),
        )
        for e in types
        for r in reductions
        for w in worlds
    ]


# Each kernel in every world with one type or two, and with every type in one world. What elements do with types and
# reductions is code of its own, so every pair of them is tried with one kernel. numerics_test asks for more: kernels that
# promise an order of additions are there in three worlds and more with a float, since integers do not show it, in some
# world with each float, and once with the most packs of a thread.
def one_shot() -> list[dict]:
    kernel = ("all_reduce_one_shot.cu", "ALL_REDUCE", "one_shot")
    return (
        variants(*kernel, "LAMPORT", FLOATS, REDUCTIONS, [3])
        + variants(*kernel, "LAMPORT", ["F32"], ["SUM"], [2, 4, 5, 8])
        + variants(*kernel, "ESCAPE", [e for e in TYPES if e not in FLOATS], REDUCTIONS, [3])
        + variants(*kernel, "ESCAPE", ["I64"], ["SUM"], [2, 4, 5, 8])
        + variants(*kernel, "ESCAPE", ["F64"], ["SUM"], [4, 5, 8])
        + variants(*kernel, "LAMPORT", ["F32"], ["SUM"], [3], unroll=4)
    )


def two_shot() -> list[dict]:
    kernel = ("all_reduce_two_shot.cu", "ALL_REDUCE", "two_shot")
    flagged = ("all_reduce_two_shot_flagged.cu", "ALL_REDUCE", "two_shot")
    zero_copy = ("all_reduce_two_shot_zero_copy.cu", "ALL_REDUCE", "two_shot")
    return (
        variants(*kernel, "LAMPORT", FLOATS, ["SUM"], [3])
        + variants(*kernel, "LAMPORT", ["BF16"], ["SUM"], [2, 4, 5, 8])
        + variants(*kernel, "ESCAPE", ["F64", "U8"], ["SUM"], [3])
        + variants(*kernel, "ESCAPE", ["F64"], ["SUM"], [4, 5, 8])
        + variants(*kernel, "ESCAPE", ["I64"], ["SUM"], WORLDS)
        + variants(*flagged, "FLAGGED", TYPES, ["SUM"], [3])
        + variants(*flagged, "FLAGGED", ["BF16"], ["AVERAGE"], [3])
        + variants(*flagged, "FLAGGED", ["F32"], ["SUM"], [2, 4, 5, 8])
        + variants(*zero_copy, "ZERO_COPY", ["F32", "F64", "F16", "BF16", "U8"], ["SUM"], [3])
        + variants(*zero_copy, "ZERO_COPY", ["F32"], ["SUM"], [2, 4, 5, 8])
        + variants(*kernel, "LAMPORT", ["F32"], ["SUM"], [3], unroll=4)
        + variants(*flagged, "FLAGGED", ["F32"], ["SUM"], [3], unroll=4)
        + variants(*zero_copy, "ZERO_COPY", ["F32"], ["SUM"], [3], unroll=4)
    )


def reduce_scatter() -> list[dict]:
    kernel = ("reduce_scatter.cu", "REDUCE_SCATTER", "direct")
    flagged = ("blocks_flagged.cu", "REDUCE_SCATTER", "direct")
    zero_copy = ("blocks_zero_copy.cu", "REDUCE_SCATTER", "direct")
    return (
        variants(*kernel, "LAMPORT", ["BF16"], ["SUM"], WORLDS)
        + variants(*kernel, "LAMPORT", ["F32", "F16"], ["SUM"], [3])
        + variants(*kernel, "ESCAPE", ["F64"], ["SUM"], [3, 4, 5, 8])
        + variants(*kernel, "ESCAPE", ["U8"], ["AVERAGE"], [3])
        + variants(*kernel, "ESCAPE", ["I32"], ["SUM"], WORLDS)
        + variants(*flagged, "FLAGGED", ["F16", "U8"], ["AVERAGE"], [3])
        + variants(*flagged, "FLAGGED", ["F32", "F64"], ["SUM"], [3])
        + variants(*flagged, "FLAGGED", ["BF16"], ["SUM"], WORLDS)
        + variants(*zero_copy, "ZERO_COPY", ["U8"], ["AVERAGE"], [3])
        + variants(*zero_copy, "ZERO_COPY", ["F32", "F64", "F16"], ["SUM"], [3])
        + variants(*zero_copy, "ZERO_COPY", ["BF16"], ["SUM"], WORLDS)
        + variants(*kernel, "LAMPORT", ["BF16"], ["SUM"], [3], unroll=4)
        + variants(*flagged, "FLAGGED", ["BF16"], ["SUM"], [3], unroll=4)
        + variants(*zero_copy, "ZERO_COPY", ["BF16"], ["SUM"], [3], unroll=4)
    )


def move() -> list[dict]:
    moved = []
    for collective, file in (("ALL_GATHER", "blocks"), ("ALL_TO_ALL", "blocks"), ("BROADCAST", "broadcast")):
        for transport, suffix in (
            ("ESCAPE", ""), ("FLAGGED", "_flagged"), ("ZERO_COPY", "_zero_copy")
        ):
            kernel = (f"{file}{suffix}.cu", collective, "direct", transport)
            moved += variants(*kernel, ["U8"], [""], WORLDS) + variants(*kernel, ["F32"], [""], [3])
            if transport == "ZERO_COPY":
                moved += variants(*kernel, ["F32"], [""], [2], unroll=8)
    passed_on = ("broadcast_two_shot.cu", "BROADCAST", "two_shot", "ESCAPE")
    return moved + variants(*passed_on, ["U8"], [""], [3, 4, 5, 8]) + variants(*passed_on, ["F32"], [""], [3])


# Partial sums of 16-bit floats travel in another way for some reductions. Products of special values depend on the order
# of the factors: not in the world where those are tried.
def passed_on(shape: str) -> list[dict]:
    reduce = (f"all_reduce_{shape}.cu", "ALL_REDUCE", shape, "QUEUED")
    broadcast = (f"broadcast_{shape}.cu", "BROADCAST", shape, "QUEUED")
    return (
        variants(*reduce, TYPES, ["SUM"], [3])
        + variants(*reduce, ["BF16", "U8"], ["MIN", "MAX", "AVERAGE"], [3])
        + variants(*reduce, ["BF16", "U8"], ["PRODUCT"], [4])
        + variants(*reduce, ["F16"], ["MIN", "AVERAGE"], [3, 8])
        + variants(*reduce, ["BF16"], ["SUM"], [2, 4, 5, 6, 7, 8])
        + variants(*broadcast, ["U8"], [""], [2, 3, 4, 5, 6, 7, 8])
        + variants(*broadcast, ["F32"], [""], [3])
    )


def ring() -> list[dict]:
    gather = ("blocks_ring.cu", "ALL_GATHER", "ring", "QUEUED")
    scatter = ("blocks_ring.cu", "REDUCE_SCATTER", "ring", "QUEUED")
    return (
        passed_on("ring")
        + variants(*gather, ["U8"], [""], WORLDS)
        + variants(*gather, ["F32"], [""], [3])
        + variants(*scatter, ["F16", "U8"], ["AVERAGE"], [3])
        + variants(*scatter, ["BF16"], ["SUM"], WORLDS)
        + variants(*scatter, ["F64"], ["SUM"], [4])
    )


def tree() -> list[dict]:
    return passed_on("tree")


# The kernels around copies: for collectives that only move data they do not depend on collective and type.
def copy_engine() -> list[dict]:
    add_up = ("all_reduce_copies.cu", "ALL_REDUCE", "two_shot", "COPY_ENGINE")
    return (
        variants("copies.cu", "ALL_GATHER", "direct", "COPY_ENGINE", ["U8"], [""], WORLDS)
        + variants(*add_up, ["F32"], ["SUM"], WORLDS)
        + variants(*add_up, ["F64", "F16"], ["SUM"], [3])
        + variants(*add_up, ["BF16", "U8"], ["AVERAGE"], [3])
        + variants(*add_up, ["I64", "F32"], ["MAX"], [3])
    )


SETS = {
    "OneShot": one_shot,
    "TwoShot": two_shot,
    "ReduceScatter": reduce_scatter,
    "Move": move,
    "Ring": ring,
    "Tree": tree,
    "CopyEngine": copy_engine,
}


def text_of(name: str, folder: pathlib.Path, seen: set[str]) -> str:
    """The file with its includes in place of the #include lines, each once."""
    seen.add(name)
    body = (folder / name).read_text().replace("#pragma once\n", "\n")

    def include(match: re.Match) -> str:
        inner = match[1]
        if inner in REPLACED or inner in seen:
            return ""
        after = body[: match.start()].count("\n") + 2
        return f'{text_of(inner, folder, seen)}\n#line {after} "plugins/cuda/kernels/{name}"'

    return f'#line 1 "plugins/cuda/kernels/{name}"\n{INCLUDE.sub(include, body)}'


def variant(number: str, v: dict, folder: pathlib.Path) -> str:
    """number: unique in the program."""
    options = {
        f"COTUNE_COLLECTIVE_{v['collective']}": "1",
        f"COTUNE_TRANSPORT_{v['transport']}": "1",
        f"COTUNE_DTYPE_{v['type']}": "1",
        "COTUNE_WORLD_SIZE": v["world"],
        "COTUNE_THREADS": 1024,
        "COTUNE_UNROLL": v["unroll"],
        "COTUNE_PDL": 0,
        "cotune_kernel": f"cotune_kernel_{number}",
    }
    if v["reduction"]:
        options[f"COTUNE_REDUCTION_{v['reduction']}"] = "1"
    defines = "".join(f"#define {k} {o}\n" for k, o in options.items())
    undefines = "".join(f"#undef {k}\n" for k in options)
    return (
        f"{defines}namespace variant_{number} {{\n"
        "namespace cotune::cuda { using namespace ::cotune::cuda; }\n"
        f"{text_of(v['file'], folder, set())}\n}}  // namespace variant_{number}\n{undefines}"
    )


def main() -> None:
    name, output, folder = sys.argv[1:]
    variants = SETS[name]()
    parts = ['#include "plugins/cuda/cpu_runner/device_on_cpu.h"\n#include "plugins/cuda/cpu_runner/kernel_variants.h"\n']
    parts += [variant(f"{name}{i}", v, pathlib.Path(folder)) for i, v in enumerate(variants)]
    rows = "".join(
        f'    {{"{v["collective"]}", "{v["algorithm"]}", "{v["transport"]}", "{v["type"]}", "{v["reduction"]}", '
        f'{v["world"]}, {v["unroll"]}, &variant_{name}{i}::cotune_kernel_{name}{i}}},\n'
        for i, v in enumerate(variants)
    )
    parts.append(
        f"namespace cotune::cuda::cpu {{\nstatic const KernelVariant kVariants[] = {{\n{rows}}};\n"
        f"const std::span<const KernelVariant> k{name}Variants = kVariants;\n}}  // namespace cotune::cuda::cpu\n"
    )
    pathlib.Path(output).write_text("".join(parts))


if __name__ == "__main__":
    main()
