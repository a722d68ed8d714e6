"""Steps that run programs: local operations around collectives."""

import json
import pathlib
from collections.abc import Callable

from cli_steps import cli_step, dropped_choices, run_limited
from step_types import Step, Tree, rank_step


def example_files(tree: Tree) -> list[pathlib.Path]:
    return sorted((tree.root / "examples" / "programs").glob("*.cotune"))


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
        return f"{len(dropped)} choices were dropped:\n" + "\n".join(dropped[:20]) if dropped else ""

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
                  ["programs", "--files", files, "--rows", "1,16" if is_full and not tree.quick else "2", "--replays",
                   replays]),
    ]
    if is_full:
        batches = "1,16" if tree.quick else "1,7,64" if tree.shared_gpus else "1,16,256,1024"
        steps.append(rank_step(tree, "programs: same bits of the choices of a class", "programs", ranks, 300, "rank",
                               ["same_bits_programs", "--files", files, "--rows", batches]))
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
