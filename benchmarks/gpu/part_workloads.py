"""The programs whose parts are measured, and the same operations as a user of torch writes them."""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable

# The width in the texts of examples/programs.
EXAMPLE_COLUMNS = 8192
INPUT = re.compile(r"^%(\w+)\s*=\s*input", re.MULTILINE)
# Name, dtype, rows (a number or R), columns, and whether all ranks have the same.
TYPED_INPUT = re.compile(r"^%(\w+)\s*=\s*input (\w+) \[(R|\d+), (\d+)\]( replicated)?", re.MULTILINE)
# Its result, what it is, its operand.
COLLECTIVE = re.compile(r"^%(\w+)\s*=\s*(all_reduce|all_gather|reduce_scatter|all_to_all)\b(?: sum)? %(\w+)", re.MULTILINE)
RETURN = re.compile(r"^return (.*)$", re.MULTILINE)
RETURNED = re.compile(r"%(\w+)(?:\s+into\s+%(\w+))?")


@dataclasses.dataclass(frozen=True)
class Names:
    """The values of a text by their slots."""

    inputs: list[str]
    collectives: list[str]
    outputs: dict[int, str]  # by slot: an output that overwrites an input has that input's

    def of_input(self, slot: int, collective_slots: list[int]) -> str:
        """Of a part's input; a value between two steps has no name."""
        if slot in collective_slots:
            return self.collectives[collective_slots.index(slot)]
        return self.inputs[slot] if slot < len(self.inputs) else "value"

    def of_output(self, slot: int) -> str:
        return self.outputs.get(slot, "value")


def returned_of(text: str) -> list[tuple[str, str]]:
    """Names of the outputs; beside each the input that it overwrites, or ""."""
    return RETURNED.findall(RETURN.search(text)[1])


def names_of(text: str) -> Names:
    inputs = INPUT.findall(text)
    returned = returned_of(text)
    outputs = {inputs.index(into) if into else len(inputs) + i: name for i, (name, into) in enumerate(returned)}
    return Names(inputs, [name for name, _, _ in COLLECTIVE.findall(text)], outputs)


@dataclasses.dataclass(frozen=True)
class Workload:
    """`reference` gives, in f32 or f64, what has to come of the values of one part, by name. `user` is what a user would
    compile: it overwrites what the program overwrites, and returns the rest by name."""

    example: str  # its name: that of a file in examples/programs, if it has no text of its own
    reference: Callable
    user: Callable
    has_rows: bool = True
    has_share: bool = False  # the part runs on this rank's share of the rows
    # The reference of kernels that torch compiles, if it differs: an output of a program is rounded for its readers,
    # and such a kernel keeps f32 for them.
    compiled_reference: Callable | None = None
    own_text: str = ""

    def source(self, examples: pathlib.Path) -> str:
        return self.own_text or (examples / f"{self.example}.cotune").read_text(encoding="utf-8")

    def reference_of(self, is_compiled: bool) -> Callable:
        return self.compiled_reference if is_compiled and self.compiled_reference else self.reference

    def text(self, example_text: str, columns: int) -> str:
        return example_text.replace(str(EXAMPLE_COLUMNS), str(columns))


def _norm(torch, stream, gamma):
    return stream * torch.rsqrt(stream.pow(2).mean(-1, keepdim=True) + 1e-6) * gamma


def _residual_norm_reference(torch, v, rounds_stream=True):
    stream = v["sum"].float() + v["residual"].float()
    if rounds_stream:
        stream = stream.to(v["residual"].dtype).float()
    return {"stream": stream, "y": _norm(torch, stream, v["gamma"].float())}


def _residual_norm_user(torch, v):
    stream = v["sum"] + v["residual"]
    wide = stream.float()
    y = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(stream.dtype) * v["gamma"]
    v["residual"].copy_(stream)
    return {"y": y}


def _quantized_reference(torch, v, rounds_stream=True):
    made = _residual_norm_reference(torch, v, rounds_stream)
    scale = made["y"].abs().amax(-1, keepdim=True) / 448
    return {"stream": made["stream"], "scale": scale, "q": made["y"] / scale}


def _quantized_user(torch, v):
    y = _residual_norm_user(torch, v)["y"].float()
    scale = y.abs().amax(-1, keepdim=True) / 448
    return {"q": (y / scale).to(torch.float8_e4m3fn), "scale": scale}


def _scaled(torch, v, count=16):
    del torch
    return {f"y{i}": v[f"s{i}"] * 2**-10 for i in range(count)}


def _copied_reference(torch, v):
    del torch
    return {f"y{i}": v[f"s{i}"] * 1 for i in range(16)}


def _copied_user(torch, v):
    del torch
    return {f"y{i}": v[f"s{i}"].clone() for i in range(16)}


def _tensors_text(shapes: list[str], operation: str) -> str:
    """A program that sums tensors over the ranks and gives each sum to the operation."""
    lines = [f"%g{i} = input f32 [{shape}]" for i, shape in enumerate(shapes)]
    lines += [f"%s{i} = all_reduce sum %g{i}" for i in range(len(shapes))]
    lines += [f"%y{i} = {operation.format(f'%s{i}')}" for i in range(len(shapes))]
    return "\n".join([*lines, "return " + ", ".join(f"%y{i}" for i in range(len(shapes)))]) + "\n"


WORKLOADS = (
    Workload("add_residual_norm", _residual_norm_reference, _residual_norm_user,
             compiled_reference=functools.partial(_residual_norm_reference, rounds_stream=False)),
    Workload("tp_linear", lambda torch, v: {"y": (v["sum"].float() + v["bias"].float()).relu()},
             lambda torch, v: {"y": torch.relu(v["sum"] + v["bias"])}),
    Workload("norm_quantize_fp8", _quantized_reference, _quantized_user,
             compiled_reference=functools.partial(_quantized_reference, rounds_stream=False)),
    Workload("sequence_norm", lambda torch, v: {"value": _norm(torch, v["share"].float(), v["gamma"].float())},
             lambda torch, v: {"value": _norm(torch, v["share"].float(), 1).to(v["share"].dtype) * v["gamma"]},
             has_share=True),
    Workload("moe_dispatch", lambda torch, v: {"value": v["x"].float() * v["weight"].float()},
             lambda torch, v: {"value": v["x"] * v["weight"]}),
    Workload("gradient_bucket", _scaled, _scaled, has_rows=False),
)

_five_scaled = functools.partial(_scaled, count=5)
# part_bench.py measures two more, which no example has: 16 copies of 64 KB, and 5 tensors of 3 sizes.
PART_WORKLOADS = (
    *WORKLOADS,
    Workload("bucket_copies", _copied_reference, _copied_user, has_rows=False,
             own_text=_tensors_text(["1, 16384"] * 16, "cast {}, to=f32")),
    Workload("unequal_tensors", _five_scaled, _five_scaled,
             own_text=_tensors_text(["R, 8192", "R, 512", "R, 8192", "R, 512", "R, 32"], "mul {}, 0.0009765625")),
)
