"""The step in which a tune meets wrong kernels: the compiler of one backend puts a fault into them."""

import json
import pathlib
import subprocess
import time

from rank_processes import transcript
from step_types import Outcome, Step, Tree, judge

FAULTY_NVRTC = "libfaulty_nvrtc.so"
# The numbers of faults in region_mutants.h that a tune of residual + norm has to find, so that a list which has lost some does
# not pass: on 2 ranks, and on more, where ranks may own rows.
FAULTS_OF_TWO, FAULTS_OF_MORE = 13, 16


def faults_for(faults: list[dict], ranks: int) -> list[dict]:
    """Returns the faults that a tune on so many ranks can meet. ValueError if some are missing."""
    met = [fault for fault in faults if fault["ranks_min"] <= ranks]
    wanted = FAULTS_OF_TWO if ranks == 2 else FAULTS_OF_MORE
    if len(met) != wanted:
        raise ValueError(f"kernel_faults lists {len(met)} faults for {ranks} ranks, not {wanted}: {[f['name'] for f in met]}")
    return met


def fault_variables(tree: Tree, folder: pathlib.Path, nvrtc: str, fault: dict | None) -> dict[str, str]:
    """Variables by which the kernels of the ranks have this fault. No other process may find these kernels."""
    folder.mkdir(parents=True)
    settings = folder / "config.toml"
    settings.write_text(f'[cuda]\nnvrtc_library = "{tree.program(FAULTY_NVRTC)}"\n')
    variables = {"COTUNE_CONFIG": str(settings), "XDG_CACHE_HOME": str(folder / "cache"), "FAULTY_NVRTC_REAL": nvrtc,
                 "FAULTY_NVRTC_KERNELS_FILE": str(folder / "faults")}
    if fault is not None:
        variables |= {"FAULTY_NVRTC_REPLACED": fault["replaced"], "FAULTY_NVRTC_BY": fault["by"]}
    return variables


def run_fault(tree: Tree, step: Step, nvrtc: str, fault: dict | None, folder: pathlib.Path, limit_s: float) -> str:
    """Why the tune has not found this fault, or ''. fault: None for right kernels."""
    wrong = "none" if fault is None else fault["wrong"]
    kernels = folder / "faults"
    columns = str(520 if fault is None else fault["columns"])
    # More rows than the data of a tune has before it repeats, so that all of its kinds of rows are there; an odd number, so
    # that the last step of a kernel lacks rows. Kernels in which each rank owns rows are listed for many rows, from 3 ranks
    # on; clusters are listed for few.
    rows = "257" if wrong == "all" and step.ranks > 2 else "17"
    command = [tree.program("calls"), "kernel_fault", "--wrong", wrong, "--kernels", str(kernels), "--columns", columns,
               "--rows", rows, "--memory", tree.memory, "--plugins", tree.plugins, "--backends", "cuda"]
    with tree.processes(command, step.ranks, fault_variables(tree, folder, nvrtc, fault)) as processes:
        processes.wait(processes.began + limit_s)
        ends = processes.ends()
    # Rank 0 compares the tune as well as the call, so that its number of calls is another one.
    why = next(filter(None, (judge([end], ()) for end in ends)), "")
    if fault is not None and not kernels.exists():
        why = f"no kernel has the text that the fault replaces; {why}"
    return f"{why}\n{transcript(ends)}" if why else ""


def kernel_fault_step(tree: Tree, ranks: int) -> Step:
    limit_s = tree.patience_s(60)

    def run(step: Step) -> Outcome:
        listed = subprocess.run([tree.program("kernel_faults")], capture_output=True, text=True, timeout=limit_s,
                                check=False)
        if listed.returncode != 0:
            return Outcome(False, f"kernel_faults ended with {listed.returncode}: {listed.stderr[-2000:]}")
        known = json.loads(listed.stdout)
        until = time.monotonic() + step.limit_s
        missed = []
        faults = faults_for(known["faults"], step.ranks)
        for number, fault in enumerate([None, *faults]):
            folder = tree.work / f"kernel_fault-{step.ranks}-{number}"
            why = run_fault(tree, step, known["nvrtc"], fault, folder, min(limit_s, until - time.monotonic()))
            if why:
                missed.append(f"{'right kernels' if fault is None else fault['name']}: {why}")
        return Outcome(not missed, "\n".join(missed) or f"{len(faults)} faults were found")

    return Step("wrong kernels lose, cuda", "faults", ranks, tree.patience_s(300), run)
