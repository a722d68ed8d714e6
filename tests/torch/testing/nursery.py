"""Starts the ranks of tests from one process that has imported PyTorch: importing it takes most of a short test's time.

Reads a line of JSON for each run: {"ranks", "script", "arguments", "environment": the variables of a rank, "out", "err": the
files for what the ranks print}. Prints a line for each run that has ended: {"exit_code": 0, or 1 if a rank has failed}.
Ranks find each other as under torchrun, and end when one of them has failed. Their output is not buffered. All ranks have
one seed for hashes of str, which differs from run to run of the tests; under torchrun each has its own.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pathlib
import runpy
import signal
import socket
import sys
import threading

MODULES = (
    "torch", "torch.distributed", "torch.distributed._functional_collectives", "torch._dynamo", "torch._inductor.compile_fx",
    "torch._inductor.codegen.cpp", "torch._inductor.codegen.cpp_wrapper_cpu", "torch._inductor.fx_passes.control_dependencies",
    "torch._functorch.aot_autograd", "torch._subclasses.schema_check_mode", "torch.export._trace",
    "torch.distributed.tensor.experimental", "sympy.tensor.tensor",
)  # fmt: skip
# Options of the caches of graphs, and the variables that turn them off.
CACHES = (
    ("TORCHINDUCTOR_FX_GRAPH_CACHE", "torch._inductor.config", "fx_graph_cache"),
    ("TORCHINDUCTOR_AUTOGRAD_CACHE", "torch._functorch.config", "enable_autograd_cache"),
)
# The time that the others have to end by themselves after a rank has failed.
GRACE_S = 10


def prepare_inductor() -> None:
    """Does what Inductor does once in a process, so that ranks need not do it again: it takes longer than the rest of a short
    test. It imports its backends, compiles and loads a library for each kind of vector instructions, traces the patterns of its
    passes, and reads its own code for a digest. No graph is compiled."""
    inductor = importlib.import_module("torch._inductor")
    inductor.codegen.common.init_backend_registration()
    inductor.cpu_vec_isa.pick_vec_isa()
    inductor.codecache.torch_key()
    inductor.fx_passes.pre_grad.lazy_init()
    inductor.fx_passes.joint_graph.lazy_init(sys.modules["torch"].device("cpu"))
    inductor.fx_passes.post_grad.lazy_init()


def become_rank(run: dict, rank: int, port: int) -> None:
    """Turns this process into a rank, up to its script."""
    os.environ.clear()
    os.environ.update(run["environment"])
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE=str(run["ranks"]), LOCAL_WORLD_SIZE=str(run["ranks"]),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    # PyTorch has read these variables when it was imported.
    for variable, module, option in CACHES:
        if os.environ.get(variable) == "0":
            setattr(importlib.import_module(module), option, False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(run[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.stdout, sys.stderr = (io.TextIOWrapper(open(number, "wb", 0), write_through=True) for number in (1, 2))
    sys.argv = [run["script"], *run["arguments"]]
    sys.path.insert(0, str(pathlib.Path(run["script"]).parent))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def await_ranks(ranks: list[int]) -> int:
    """The exit code of a run, when all its processes have ended."""
    left, exit_code, timer = set(ranks), 0, None

    def end(number: int) -> None:
        for each in list(left):
            os.kill(each, number)

    while left:
        ended, status = os.wait()
        if ended not in left:
            continue
        left.remove(ended)
        if status != 0 and exit_code == 0:
            exit_code = 1
            end(signal.SIGTERM)
            timer = threading.Timer(GRACE_S, end, [signal.SIGKILL])
            timer.start()
    if timer is not None:
        timer.cancel()
    return exit_code


def main() -> dict | None:
    """Serves until its input ends. Returns in each rank, with its run."""
    for name in MODULES:
        importlib.import_module(name)
    prepare_inductor()
    for line in sys.stdin:
        run = json.loads(line)
        port = free_port()
        ranks = []
        for rank in range(run["ranks"]):
            child = os.fork()
            if child == 0:
                become_rank(run, rank, port)
                return run
            ranks.append(child)
        print(json.dumps({"exit_code": await_ranks(ranks)}), flush=True)
    return None


if __name__ == "__main__":
    this = main()
    if this is not None:
        runpy.run_path(this["script"], run_name="__main__")
