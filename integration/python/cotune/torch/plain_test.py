"""Programs that torch runs, against the same computed by torch without a program."""

from __future__ import annotations

import functools
import unittest
import unittest.mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from cotune.torch import plain, process_groups
from cotune.torch.program_text import Refusal
from cotune.torch.testing import ranks


def _local(body: str, *inputs: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The value %y of a program whose only collective is a broadcast in a group of one rank."""
    words = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int64: "i64", torch.uint8: "u8"}
    declared = [
        f"%x{i} = input {words[each.dtype]} [{'R' if each.dim() > 1 else '1'}, {each.shape[-1]}]"
        for i, each in enumerate(inputs)
    ]
    text = "\n".join([*declared, "%x = broadcast %x0, root=0", body, "return %y"])
    columns = 1 if "row_" in body or "scale" in body else inputs[0].shape[-1]
    output = torch.empty(inputs[0].shape[:-1] + (columns,), dtype=dtype)
    plain.run_plain(list(inputs), [output], text, dist.group.WORLD.group_name)
    return output


class PlainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    @classmethod
    def tearDownClass(cls) -> None:
        dist.destroy_process_group()

    def setUp(self) -> None:
        self.x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
        self.x[0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
        self.gamma = torch.linspace(0.5, 2, 16)

    def _same(self, found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-6) -> None:
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)

    def test_functions_of_one_value(self) -> None:
        for op, function in {
            "neg": torch.neg,
            "abs": torch.abs,
            "relu": torch.relu,
            "exp": torch.exp,
            "log": torch.log,
            "sqrt": torch.sqrt,
            "rsqrt": torch.rsqrt,
            "tanh": torch.tanh,
            "sigmoid": torch.sigmoid,
            "silu": F.silu,
            # In f64, because F.gelu gives NaN for infinity on a CPU, and compiled code does not.
            "gelu": lambda x: (x.double() * 0.5 * (1 + torch.erf(x.double() * 0.5**0.5))).to(x.dtype),
            "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
            "round": torch.round,
        }.items():
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(op=op, dtype=dtype):
                    x = self.x.to(dtype)
                    self._same(_local(f"%y = {op} %x", x, dtype=dtype), function(x))

    def test_functions_of_two_values(self) -> None:
        other = self.x.flip(0)
        for op, function in {
            "add": torch.add,
            "sub": torch.sub,
            "mul": torch.mul,
            "div": torch.div,
            "min": torch.minimum,
            "max": torch.maximum,
        }.items():
            with self.subTest(op=op):
                self._same(_local(f"%y = {op} %x, %x1", self.x, other), function(self.x, other))
                number = torch.tensor(0.3)
                self._same(_local(f"%y = {op} 0.3, %x", self.x), function(number, self.x))

    def test_numbers_are_rounded_to_f32_beside_bf16(self) -> None:
        x = self.x.to(torch.bfloat16)
        found = _local("%y = mul %x, 0.1", x, dtype=torch.bfloat16)
        self._same(found, (x.float() * torch.tensor(0.1)).bfloat16(), 0)

    def test_comparisons_and_choices(self) -> None:
        self._same(
            _local("%y = less %x, 0.5", self.x, dtype=torch.uint8), (self.x < 0.5).to(torch.uint8)
        )
        found = _local("%c = equal %x, %x\n%y = where %c, %x, -1", self.x)
        self._same(found, torch.where(self.x == self.x, self.x, -1.0))

    def test_clamp(self) -> None:
        self._same(_local("%y = clamp %x, low=-0.5, high=1", self.x), self.x.clamp(-0.5, 1))

    def test_casts_to_integers(self) -> None:
        found = _local("%y = cast %x, to=i64", self.x, dtype=torch.int64)
        limits = torch.iinfo(torch.int64)
        self.assertEqual(found[0, :4].tolist(), [0, limits.max, limits.min, 0])
        self._same(found[1:], self.x[1:].to(torch.int64))

    def test_rows(self) -> None:
        x = self.x[1:]
        self._same(_local("%y = row_sum %x", x), x.sum(-1, keepdim=True), 1e-5)
        self._same(_local("%y = row_max %x", x), x.amax(-1, keepdim=True))
        self._same(_local("%y = row_mean %x", x), x.mean(-1, keepdim=True), 1e-5)
        square = x.square().mean(-1, keepdim=True)
        self._same(_local("%y = row_mean_square %x", x), square, 1e-5)
        self._same(_local("%y = softmax %x", x), torch.softmax(x, -1))

    def test_norms(self) -> None:
        x = self.x[1:]
        found = _local("%y = rms_norm %x, %x1, eps=1e-5", x, self.gamma)
        self._same(found, F.rms_norm(x, (16,), self.gamma, 1e-5), 1e-5)
        found = _local("%y = layer_norm %x, %x1, %x2", x, self.gamma, self.gamma - 1)
        self._same(found, F.layer_norm(x, (16,), self.gamma, self.gamma - 1), 1e-5)

    def test_quantization(self) -> None:
        x = self.x[1:]
        found = _local("%y = quantize_scale %x, to=i8", x)
        self._same(found, x.abs().amax(-1, keepdim=True) / 127)
        body = "%s = quantize_scale %x, to=i8\n%y = quantize %x, %s, to=i8"
        self._same(
            _local(body, x[:, :1].clone(), dtype=torch.int8),
            torch.where(x[:, :1] < 0, -127, 127).to(torch.int8),
        )

    def test_nothing_is_copied_from_the_host(self) -> None:
        # A CUDA graph captures no such copy, as torch.tensor makes one.
        x = self.x[1:].contiguous()
        body = "%s = quantize_scale %x, to=i8\n%z = mul %x, 0.5\n%y = quantize %z, %s, to=i8"
        with unittest.mock.patch.object(torch, "tensor", side_effect=AssertionError):
            _local(body, x[:, :1].clone(), dtype=torch.int8)

    def test_one_input_more_than_declared_is_not_read(self) -> None:
        group = dist.group.WORLD.group_name
        text = "%x = input f32 [R, 16]\n%y = all_reduce sum %x\nreturn %y"
        output, more = torch.empty(8, 16), torch.zeros(3, dtype=torch.float64)
        plain.run_plain([self.x, more], [output], text, group)
        self._same(output, self.x)
        with self.assertRaisesRegex(ValueError, "1 inputs .* has 3"):
            plain.run_plain([self.x, more, more], [output], text, group)

    def test_bool_is_u8(self) -> None:
        group = dist.group.WORLD.group_name
        text = "%x = input u8 [R, 16]\n%y = all_reduce max %x\nreturn %y"
        output = torch.empty(8, 16, dtype=torch.bool)
        plain.run_plain([self.x > 0], [output], text, group)
        self.assertTrue(torch.equal(output, self.x > 0))

    def test_a_collective_that_raises_is_not_counted(self) -> None:
        text = "%x = input f32 [R, 4]\n%y = reduce_scatter sum %x\nreturn %y"
        with unittest.mock.patch.object(plain.outside, "add_own") as counted:
            run = plain.Run(text, [torch.ones(3, 4)], dist.group.WORLD.group_name)
            run._world_size = 2
            with self.assertRaisesRegex(ValueError, "3 rows are no multiple of 2 ranks"):
                run.results()
            counted.assert_not_called()
            plain.Run(text, [torch.ones(3, 4)], dist.group.WORLD.group_name).results()
            counted.assert_called_once()

    def test_what_does_not_fit_is_an_error(self) -> None:
        group = dist.group.WORLD.group_name
        text = "%x = input f32 [R, 16]\n%y = all_reduce sum %x\nreturn %y"
        good = torch.zeros(8, 16)
        for inputs, outputs, name, error in (
            ([good.double()], [good.clone()], group, ValueError),
            ([torch.zeros(7)], [good.clone()], group, ValueError),
            ([good], [torch.zeros(8, 15)], group, ValueError),
            ([good], [], group, ValueError),
            ([good], [good.clone()], "nobody", ValueError),
        ):
            with self.subTest(inputs=len(inputs)), self.assertRaises(error):
                plain.run_plain(inputs, outputs, text, name)
        with self.assertRaises(Refusal):
            plain.run_plain([good], [good.clone()], "return %y", group)


_COLLECTIVES = """
%x = input f32 [R, 4]
%a = all_reduce average %x
%b = reduce_scatter max %x
%c = all_gather %b
%d = all_to_all %x
%e = broadcast %x, root=1
return %a, %b, %c, %d, %e
"""


def _collectives(rank: int, world_size: int) -> list[torch.Tensor]:
    x = torch.arange(16.0).reshape(4, 4) + 100 * rank
    shapes = [(4, 4), (2, 4), (4, 4), (4, 4), (4, 4)]
    outputs = [torch.empty(shape) for shape in shapes]
    plain.register_plain_operator()
    torch.ops.cotune.program_plain([x], outputs, _COLLECTIVES, dist.group.WORLD.group_name)
    return outputs


_AVERAGES = "%x = input f32 [R, 4]; %a = all_reduce average %x; %b = reduce_scatter average %x; return %a, %b"


class _Reductions(TorchDispatchMode):
    """Keeps the reductions that PyTorch's collectives are called with."""

    def __init__(self):
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if function.namespace == "_c10d_functional" and "reduce" in function.__name__:
            self.found.append(arguments[1])
        return function(*arguments, **(named or {}))


def _reductions(rank: int, world_size: int, has_averages: bool) -> list[list[str]]:
    """The reductions of a program that PyTorch runs, of its collectives in another form, and of its collectives alone."""
    x, name = torch.ones(4, 4), dist.group.WORLD.group_name
    nodes = plain._parsed(_AVERAGES).nodes
    outputs = [torch.empty(4, 4), torch.empty(2, 4)]
    found = []
    with unittest.mock.patch.object(process_groups, "averages", return_value=has_averages):
        for run in (
            lambda: plain.run_plain([x], outputs, _AVERAGES, name),
            lambda: [plain.by_pytorch(node, x, name, world_size) for node in nodes],
            lambda: [plain.collective_alone(node, x.clone(), name, world_size) for node in nodes],
        ):
            with _Reductions() as reductions:
                run()
            found.append(reductions.found)
    assert all(torch.equal(each, torch.ones_like(each)) for each in outputs), outputs
    return found


class CollectivesTest(unittest.TestCase):
    def test_all_forms_average_alike(self) -> None:
        for has_averages, word in ((True, "avg"), (False, "sum")):
            for found in ranks.run_on_ranks(2, functools.partial(_reductions, has_averages=has_averages)):
                self.assertEqual(found, [[word, word]] * 3)

    def test_the_backends_that_average(self) -> None:
        for backend, device, version, wanted in (
            ("nccl", "cuda", (2, 11), True),
            ("cpu:gloo,cuda:nccl", "cuda", (2, 11), True),
            ("gloo", "cuda", (2, 13), False),
            ("cpu:gloo,cuda:nccl", "cpu", (2, 13), True),
            ("gloo", "cpu", (2, 12), False),
            ("mpi", "cpu", (2, 13), False),
        ):
            with (
                unittest.mock.patch.object(process_groups, "group_backend", return_value=backend),
                unittest.mock.patch.object(process_groups, "torch_version", return_value=version),
            ):
                self.assertEqual(process_groups.averages(object(), device), wanted, (backend, device, version))

    def test_collectives_of_two_ranks(self) -> None:
        found = ranks.run_on_ranks(2, _collectives)
        x = torch.arange(16.0).reshape(4, 4)
        for rank, outputs in enumerate(found):
            self.assertIsInstance(outputs, list, outputs)
            own = slice(2 * rank, 2 * rank + 2)
            wanted = [
                x + 50,
                (x + 100)[own],
                x + 100,
                torch.cat([x[own], x[own] + 100]),
                x + 100,
            ]
            for have, want in zip(outputs, wanted, strict=True):
                torch.testing.assert_close(have, want, rtol=0, atol=0)


if __name__ == "__main__":
    unittest.main()
