"""Steps that run programs: local operations around collectives."""

import json
import pathlib
import re
from collections.abc import Callable

from cli_steps import cli_step, dropped_choices, run_limited
from rank_processes import RankEnd
from step_types import Step, Tree, rank_step


def example_files(tree: Tree) -> list[pathlib.Path]:
    return sorted((tree.root / "examples" / "programs").glob("*.cotune"))


# The algorithms that have to run operations of an example inside of a collective, on every number of ranks and rows that the
# steps use. The list is the tests' own: a backend that lists no such choice any more fails.
LEAVES = ("cuda/one_shot_leaves", "cuda/two_shot_leaves")
ROWS = ("cuda/one_shot_rows",)
# Kernels in which a rank owns rows.
ROWS_OF_OWNERS = ("cuda/two_shot_rows", "cuda/two_shot_split_rows")
OWNERS_FROM_RANKS = 3
SHOTS_ON_HOST = ("host/one_shot", "host/two_shot")
FUSED = {
    "cuda": {
        "add_residual_norm.cotune": ROWS + LEAVES,
        "gradient_bucket.cotune": LEAVES,
        "norm_quantize_fp8.cotune": ROWS + LEAVES,
        "small_bucket.cotune": LEAVES,
        "tp_linear.cotune": LEAVES,
    },
    "host": {
        "add_residual_norm.cotune": SHOTS_ON_HOST,
        "gradient_bucket.cotune": SHOTS_ON_HOST,
        "moe_dispatch.cotune": ("host/direct",),
        "norm_quantize_fp8.cotune": SHOTS_ON_HOST,
        "sequence_norm.cotune": ("host/direct",),
        "small_bucket.cotune": SHOTS_ON_HOST,
        "tp_linear.cotune": SHOTS_ON_HOST,
    },
}


def missing_fused(memory: str, ranks: int, program: str, ran: set[str]) -> str:
    """Why the choices that ran were not all that are expected of the program, or ''. ran: those that ran operations inside of
    a collective, as "backend/algorithm"."""
    wanted = FUSED[memory].get(program, ())
    if memory == "cuda" and ranks >= OWNERS_FROM_RANKS and set(ROWS) <= set(wanted):
        wanted += ROWS_OF_OWNERS
    missing = sorted(set(wanted) - ran)
    if not missing:
        return ""
    return f"{program}: no choice of {', '.join(missing)} ran operations inside of a collective; those that did: {sorted(ran)}"


PROGRAM_LINE = re.compile(r"^program (\S+): fused by ?(.*)$", re.MULTILINE)


def judge_fused(tree: Tree, examples: list[pathlib.Path]) -> Callable[[list[RankEnd]], str]:
    """Every rank has run the fused choices that are expected of each example."""

    def judge(ends: list[RankEnd]) -> str:
        for rank, end in enumerate(ends):
            ran = {program: set(names.split()) for program, names in PROGRAM_LINE.findall(end.output)}
            for example in examples:
                if example.name not in ran:
                    return f"rank {rank} ran no choice of {example.name}"
                why = missing_fused(tree.memory, len(ends), example.name, ran[example.name])
                if why:
                    return f"rank {rank}: {why}"
        return ""

    return judge


def fused_of_tune(entries: list[dict]) -> set[str]:
    """The algorithms of fused choices that a tune has timed, as missing_fused takes them."""
    steps = [step for entry in entries for choice in entry["choices"] if choice["time_us"] is not None
             for step in choice["choice"].split("+")]
    return {step.partition("?")[0] for step in steps if re.search(r"[?&]fuse=", step)}


def check_tune(tree: Tree, example: pathlib.Path, database: pathlib.Path) -> Callable[[Step], str]:
    """Each choice is compared with the reference evaluator on all ranks before it is timed."""

    def check(step: Step) -> str:
        arguments = ["--ranks", str(step.ranks), "--memory", tree.memory, "--program", str(example), "--db", str(database)]
        code, out, err = run_limited([tree.cotune, "tune", *arguments, "--json"], step)
        if code != 0:
            return f"ended with {code}: {(out + err)[-3000:]}"
        result = json.loads(out)["result"]
        if result["measured_cells"] == 0 or not result["committed"]:
            return f"measured {result['measured_cells']}, committed {result['committed']}"
        dropped = dropped_choices(result["entries"])
        if dropped:
            return f"{len(dropped)} choices were dropped:\n" + "\n".join(dropped[:20])
        return missing_fused(tree.memory, step.ranks, example.name, fused_of_tune(result["entries"]))

    return check


def program_steps(tree: Tree, ranks: int, is_full: bool) -> list[Step]:
    examples = example_files(tree)
    files = ",".join(map(str, examples))
    seeds = "1-20" if is_full and not tree.quick else "1-4"
    rows = "1,7,100" if is_full and not tree.quick else "7"
    replays = "5" if is_full and not tree.quick else "2"
    steps = [
        rank_step(tree, "programs: every choice of random ones", "programs", ranks, 300, "rank",
                  ["programs", "--seeds", seeds, "--rows", rows, "--replays", replays]),
        rank_step(tree, "programs: every choice of the examples", "programs", ranks, 300, "rank",
                  ["programs", "--files", files, "--rows", "1,16" if is_full and not tree.quick else "6", "--replays",
                   replays], judge_more=judge_fused(tree, examples)),
    ]
    if is_full:
        batches = "1,16" if tree.quick else "1,7,64" if tree.shared_gpus else "1,16,256,1024"
        steps.append(rank_step(tree, "programs: same bits of the choices of a class", "programs", ranks, 300, "rank",
                               ["same_bits_programs", "--files", files, "--rows", batches],
                               judge_more=judge_fused(tree, examples)))
    # As the default of each order of backends, and tuned where that measures anything.
    orders = [("nccl", "cuda"), ("cuda", "nccl")] if len(tree.backends) == 2 else [tree.backends]
    for order in orders:
        steps.append(rank_step(
            tree, f"programs: C API, in one graph, {order[0]}", "programs", ranks, 300, "calls",
            ["programs", "--seeds", "21-24" if tree.quick else "21-32", "--rows", rows, "--replays", replays, "--tune",
             str(int(is_full and not tree.shared_gpus and order == orders[0]))], order))
    if is_full and not tree.shared_gpus:
        for example in examples[:1] if tree.quick else examples:
            # Each has its own, because steps may run at the same time.
            database = tree.work / f"{example.stem}-{ranks}.tdb"
            steps.append(cli_step(tree, f"cotune tune --program {example.name}", ranks, 200,
                                  check_tune(tree, example, database), "programs"))
    return steps
