"""The steps of tests/gpu/run: what each runs, on how many ranks, and in what order."""

from cli_steps import cli_steps
from fault_steps import fault_steps, late_steps, mismatch_steps
from forced_steps import forced_steps
from kernel_fault_steps import kernel_fault_step
from memory_steps import memory_steps
from program_steps import program_steps
from step_types import CHECK_CALLS, REDUCING, Step, Tree, rank_step

MOVING = ("all_gather", "all_to_all", "broadcast")


def values_steps(tree: Tree, ranks: int, is_full: bool) -> list[Step]:
    counts = "0,1,3,127,4097,262157" if is_full and not tree.quick else "3,127,4097"
    steps = []

    def add(name: str, *arguments: str, backends: tuple[str, ...] | None = None) -> None:
        steps.append(rank_step(tree, f"values: {name}", "values", ranks, 200, "rank", ["values", *arguments], backends))

    if is_full and not tree.quick:
        # Every process has to start its communicators: few steps of many types.
        for collective in REDUCING:
            for dtypes in ("f32,f64", "f16,bf16", "i32,i64,u8"):
                add(f"{collective} of {dtypes}", "--collectives", collective, "--dtypes", dtypes, "--counts", counts)
        for collective, large in (("all_reduce", "2000003,16000057"), ("reduce_scatter", "2000003")):
            add(f"large {collective}", "--collectives", collective, "--dtypes", "bf16", "--reductions", "sum",
                "--counts", large, "--patterns", "exact")
        add("large moves", "--collectives", ",".join(MOVING), "--dtypes", "bf16", "--counts", "2000003")
    else:
        add("reductions", "--collectives", ",".join(REDUCING), "--dtypes", "f32,bf16,i32", "--counts", counts)
    add("moves", "--collectives", ",".join(MOVING), "--counts", counts)
    add("special floats", "--collectives", ",".join(REDUCING), "--dtypes", "f32,f64,f16,bf16", "--patterns", "special",
        "--counts", "3,1001,40961" if is_full else "1001")
    if tree.memory == "cuda":
        # Memory that the ranks reach where it lies; NCCL refuses some of it call by call.
        add("symmetric buffers", "--buffers", "symmetric", "--dtypes", "f32,bf16,u8" if is_full else "bf16",
            "--reductions", "sum,max", "--counts", "3,40009,262157" if is_full else "40009", backends=("cuda",))
        if is_full and not tree.quick:
            # From 32 MiB on copy engines have a part in it.
            add("large all_reduce on symmetric buffers", "--buffers", "symmetric", "--collectives", "all_reduce",
                "--dtypes", "bf16", "--reductions", "sum", "--counts", "17000011", "--patterns", "exact",
                backends=("cuda",))
    if ranks == 3 and not tree.shared_gpus:
        add("average by NCCL's choices", "--collectives", ",".join(REDUCING), "--dtypes", "f32,f64,f16,bf16",
            "--reductions", "average", "--counts", "1,127,4097,70001",
            backends=("nccl",) if tree.memory == "cuda" else ("host",))
    return steps


# Groups of some ranks, at once where there are two: neighbours, every other one, and one in another order.
SPLITS = {
    4: ("0,1/2,3", "0,2/1,3", "3,0,1"),
    8: ("0,1,2,3/4,5,6,7", "0,2,4,6/1,3,5,7", "7,0,5,2,3"),
}


def rank_case_steps(tree: Tree, ranks: int, is_full: bool) -> list[Step]:
    calls = "160" if tree.quick else "960"
    replays = "10" if tree.quick else "100"
    steps = []

    def add(name: str, part: str, arguments: list[str], **more) -> None:
        steps.append(rank_step(tree, name, part, ranks, 300, "rank", arguments, **more))

    add("graphs", "graphs", ["graphs", "--dtypes", "bf16,f32" if is_full else "bf16", "--reductions", "sum",
                             "--replays", replays])
    if tree.memory == "cuda" and is_full:
        add("graphs on symmetric buffers", "graphs",
            ["graphs", "--buffers", "symmetric", "--dtypes", "bf16", "--reductions", "sum", "--replays", replays,
             "--counts", "40013,1000003"], backends=("cuda",))
        if not tree.quick:
            add("graphs of large all_reduce on symmetric buffers", "graphs",
                ["graphs", "--buffers", "symmetric", "--collectives", "all_reduce", "--dtypes", "bf16", "--reductions",
                 "sum", "--replays", "5", "--counts", "17000011"], backends=("cuda",))
        add("same bits on symmetric buffers", "graphs",
            ["same_bits", "--buffers", "symmetric", "--dtypes", "f32,bf16", "--reductions", "sum",
             "--counts", "70001"], backends=("cuda",))
    add("same bits", "graphs", ["same_bits", "--dtypes", "f32,f16,bf16", "--reductions", "sum,average",
                                "--counts", "1001,70001,1000003" if is_full and not tree.quick else "1001,70001"])
    for seed in ("1", "2") if is_full else ("3",):
        add(f"sequence: seed {seed}", "sequences", ["sequence", "--seed", seed, "--calls", calls])
    if not is_full:
        return steps
    add("sequence: ranks that come late", "sequences",
        ["sequence", "--seed", "5", "--calls", "160", "--delay-us", "4000"])
    add("sequence: two groups at once", "sequences",
        ["sequence", "--seed", "6", "--calls", calls, "--groups", "2", "--count-max", "20000"])
    for split in SPLITS.get(ranks, ()):
        add(f"sequence: groups {split}", "sequences",
            ["sequence", "--seed", "7", "--calls", "320", "--split", split], may_rest=True)
    return steps


def call_steps(tree: Tree, ranks: int, is_full: bool) -> list[Step]:
    """Through the C API: with the default of each order of backends, then tuned."""
    orders = [("nccl", "cuda"), ("cuda", "nccl")] if len(tree.backends) == 2 else [tree.backends]
    replays = "10" if tree.quick else "100"
    steps = []
    for order in orders:
        label = order[0]
        steps.append(rank_step(tree, f"C API: graph of all collectives, {label}", "calls", ranks, 120, "calls",
                               ["chain", "--replays", replays], order))
        if is_full:
            steps.append(rank_step(tree, f"C API: streams and groups, {label}", "calls", ranks, 120, "calls",
                                   ["streams"], order))
    if not is_full:
        return steps
    if "nccl" in tree.backends:
        # Calls that fit together pass where they are compared.
        for case in (["chain", "--replays", replays], ["streams"]):
            steps.append(rank_step(tree, f"C API: {case[0]}, calls compared, nccl", "calls", ranks, 120, "calls", case,
                                   ("nccl",), variables=CHECK_CALLS))
    if tree.memory == "cuda":
        for backend in tree.backends:
            steps.append(rank_step(tree, f"C API: all_to_all between plain and registered buffers, captured, {backend}",
                                   "calls", ranks, 120, "calls", ["captured_exchange"], (backend,)))
    database = str(tree.work / f"calls-{ranks}.tdb")
    steps.append(rank_step(tree, "C API: tune, load, calls of other sizes", "calls", ranks, 120, "calls",
                           ["tuned", "--database", database]))
    return steps


def all_steps(tree: Tree, ranks: int) -> list[Step]:
    """Everything on `ranks`; on fewer as far as their number matters."""
    # A tune of ranks that share a GPU would measure whose turn it is.
    steps = [] if tree.shared_gpus else cli_steps(tree, ranks)
    for number in range(ranks, 1, -1):
        is_full = number == ranks
        steps += values_steps(tree, number, is_full)
        steps += rank_case_steps(tree, number, is_full)
        steps += call_steps(tree, number, is_full)
        steps += program_steps(tree, number, is_full)
        if is_full:
            steps += fault_steps(tree, number) + mismatch_steps(tree, number) + late_steps(tree, number)
            steps += forced_steps(tree, number) + memory_steps(tree, number)
            if tree.memory == "cuda":
                steps.append(kernel_fault_step(tree, number))
    return steps
