"""Where parts are measured: a GPU by torch, or host memory to test the rest without one."""

import array
import time

# In front of what is timed: the replay is queued before the GPU reaches the first event, so that the latency of its
# launch is not in the time.
GATE_CYCLES = 1_000_000  # about 0.5 ms
# Once at first: a GPU that was idle runs at a low clock.
WAKE_CYCLES = 500_000_000


class Gpu:
    """A GPU, by its CUDA ordinal. Needs torch."""

    memory = 2  # as in part_library

    def __init__(self, device: int = 0):
        import torch

        self.torch = torch
        torch.cuda.set_device(device)
        torch.cuda.init()
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        torch.cuda._sleep(WAKE_CYCLES)
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.dtypes = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
                       "f8_e4m3": torch.float8_e4m3fn, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8}

    def make(self, value, seed: int):
        """Random numbers around 0; what is written has any."""
        generator = self.torch.Generator(device="cuda").manual_seed(seed)
        wide = self.torch.randn(value.rows, value.columns, generator=generator, device="cuda")
        return wide.to(self.dtypes[value.dtype])

    @staticmethod
    def address(tensor) -> int:
        return tensor.data_ptr()

    @staticmethod
    def clone(tensor):
        return tensor.clone()

    @staticmethod
    def restore(tensor, saved) -> None:
        tensor.copy_(saved)

    def errors(self, expected, seen) -> int:
        """Elements further from the f32 value than 2 units in the last place of their type, or f32 by more than 2^-16."""
        self.torch.cuda.synchronize()
        digits, smallest = {self.torch.bfloat16: (8, 0), self.torch.float16: (11, 2.0**-23),
                            self.torch.float8_e4m3fn: (4, 2.0**-8)}.get(seen.dtype, (18, 0))
        seen, expected = seen.double(), expected.double()
        bound = expected.abs() * 2.0 ** (2 - digits) + expected.abs().amax(-1, keepdim=True) * 2.0**-20 + smallest
        return int((~((seen - expected).abs() <= bound)).sum())  # NaN is wrong

    def run(self, function):
        made = function()
        self.torch.cuda.synchronize()
        return made

    def stream_handle(self) -> int:
        return self.torch.cuda.current_stream().cuda_stream

    def compiled(self, function) -> dict:
        """By mode: `function` as torch compiles it by default and when it may take its time, for exactly the shapes of the
        values that it is given first."""
        # torch keeps what it compiled by code object, and runs eagerly, with no more than a warning, beyond 8 shapes of one.
        # Each shape starts from nothing, and with fullgraph what is not compiled is an error.
        self.torch.compiler.reset()

        def of_mode(mode: str):
            return self.torch.compile(lambda given: function(self.torch, given), mode=mode, dynamic=False, fullgraph=True)

        return {mode: of_mode(mode) for mode in ("default", "max-autotune-no-cudagraphs")}

    def copy(self, size_bytes: int):
        """A copy that reads and writes so many bytes in all."""
        source, target = (self.torch.empty(max(size_bytes // 2, 1), dtype=self.torch.uint8, device="cuda") for _ in range(2))
        return lambda: target.copy_(source)

    def capture(self, function, calls: int):
        function()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            for _ in range(calls):
                function()
        graph.replay()
        return graph

    def time_us(self, graph) -> float:
        self.torch.cuda._sleep(GATE_CYCLES)
        self.start.record()
        graph.replay()
        self.end.record()
        self.end.synchronize()
        return self.start.elapsed_time(self.end) * 1e3

    def about(self) -> dict:
        import triton

        return {"gpu": self.torch.cuda.get_device_name(), "torch": self.torch.__version__, "cuda": self.torch.version.cuda,
                "triton": triton.__version__}


class Host:
    """Lists of f32. Compiles nothing: a user's function is called as it is."""

    memory = 1

    def make(self, value, seed: int):
        if value.dtype != "f32":
            raise ValueError(f"no values of {value.dtype} here")
        return array.array("f", [((7 * i + seed) % 13 - 6) / 8 for i in range(value.rows * value.columns)])

    @staticmethod
    def address(values) -> int:
        return values.buffer_info()[0]

    @staticmethod
    def clone(values):
        return array.array("f", values)

    @staticmethod
    def restore(values, saved) -> None:
        values[:] = saved

    @staticmethod
    def errors(expected, seen) -> int:
        return sum(abs(a - b) > 1e-5 * abs(a) + 1e-6 for a, b in zip(expected, seen, strict=True))

    @staticmethod
    def run(function):
        return function()

    @staticmethod
    def stream_handle() -> int:
        return 0

    @staticmethod
    def compiled(function) -> dict:
        return {"default": lambda values: function(None, values)}

    @staticmethod
    def copy(size_bytes: int):
        source = bytes(size_bytes // 2)
        return lambda: bytearray(source)

    @staticmethod
    def capture(function, calls: int):
        def graph():
            for _ in range(calls):
                function()

        return graph

    @staticmethod
    def time_us(graph) -> float:
        began = time.perf_counter()
        graph()
        return (time.perf_counter() - began) * 1e6

    @staticmethod
    def about() -> dict:
        return {"gpu": "none"}
