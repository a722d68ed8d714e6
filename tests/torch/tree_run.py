"""The command tests/torch/run: steps under torchrun in a tree of `./dev dist DIR --with-tests`, a line for each."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Beside it in the tree, and in the sources.
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import function_cases  # noqa: E402  (beside this file)
import machine  # noqa: E402

ALL_PASSED, SOME_FAILED, USAGE, NOT_HERE = 0, 1, 2, 3
DESCRIPTION = """Compiles the models of tests/torch/models.py with cotune.torch on real ranks, runs them also as CUDA
graphs, and compares every value with an eager run on the CPU; runs the operators on streams and beside the process
group's own collectives; runs the PyTorch examples. Needs python3 with torch 2.11 or newer."""
EXIT_CODES = "exit codes: 0 all passed; 1 not; 2 usage; 3 no GPU, or no torch"
MODELS = "tp_linear,residual_norm,bf16_norm,llama_block,sequence_parallel,gather_columns,scatter_columns,moe_dispatch,broadcast,buckets,softmax_head,shared_result,simple_fsdp"  # noqa: E501  fmt: skip
# Without the ones whose collectives stay the process group's: only NCCL's can be captured.
CAPTURED_MODELS = MODELS.replace("buckets,", "").replace(",simple_fsdp", "")
LIMIT_S = 400
# torchrun ends its ranks within 30 s. A process that still runs after that, or holds the pipe, is stuck in a driver.
STUCK_S = 60
PIPE_S = 10
# model_ranks.py begins a line with it before it compiles a model.
COMPILING = "compiling "
QUICK_MODELS = "residual_norm,llama_block,moe_dispatch"


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of torchrun.

    Attributes:
      needs: "" or "cuda".
      is_example: what it prints is for people.
      case: the name in function_cases.CASES of the results that it must have; "" for none.
      environment: variables of the ranks.
    """

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    needs: str = ""
    is_example: bool = False
    case: str = ""
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


def steps(quick: bool) -> list[Step]:
    chosen = QUICK_MODELS if quick else MODELS
    captured = QUICK_MODELS if quick else CAPTURED_MODELS
    models = "tests/torch/model_ranks.py"
    graphs = ("--modes", "static", "--compile-mode", "reduce-overhead")
    return [
        Step("streams", "tests/torch/stream_ranks.py"),
        Step("devices", "tests/torch/device_ranks.py", needs="cuda"),
        Step("inference", models, ("--cases", chosen, "--modes", "static,dynamic", "--steps", "inference")),
        Step("training", models, ("--cases", chosen, "--modes", "static,dynamic", "--steps", "training")),
        Step("values", "tests/torch/value_ranks.py"),
        Step("cuda_graphs", models, ("--cases", captured, "--steps", "inference", *graphs), "cuda"),
        *(
            Step(f"functions.{name}", f"tests/torch/{case.script}", (case.argument,), case=name, environment=case.environment)
            for name, case in function_cases.CASES.items()
        ),
        Step("example_tp_linear", "examples/tp_linear.py", is_example=True),
        Step("example_llama_block", "examples/llama_block.py", is_example=True),
        Step("example_custom_all_reduce", "examples/custom_all_reduce.py", is_example=True),
    ]


def record_error(step: Step, record: dict) -> str:
    """What is wrong with one line of a step; "" when nothing is."""
    what = " ".join(str(record[key]) for key in ("case", "mode", "step") if key in record)
    if step.case:
        errors = function_cases.errors(step.case, record)
        return errors and f"{what} on rank {record['rank']}: {errors}"
    if record["error"]:
        return f"{what}: {record['error']}"
    if record.get("plain"):
        return f"{what}: a group is plain: its programs ran by PyTorch's own collectives"
    if record.get("collectives") == 0:
        return f"{what}: no collective became part of a program"
    if step.name == "cuda_graphs" and record["cuda_graphs"] == 0:
        return f"{what}: PyTorch recorded no CUDA graph"
    return ""


def judge(step: Step, exit_code: int, out: str) -> tuple[str, list[dict]]:
    """What failed ("" when nothing did), and what the step printed."""
    records = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    errors = [error for record in records if (error := record_error(step, record))]
    if exit_code != 0:
        errors.append(f"torchrun ended with {exit_code}")
    if step.is_example and "compiled and eager are equal" not in out:
        errors.append("it does not say that compiled and eager are equal")
    if not step.is_example and not records:
        errors.append("it printed no result")
    return "; ".join(errors), records


def environment(work: pathlib.Path, library: pathlib.Path, package: pathlib.Path) -> dict[str, str]:
    return os.environ | {
        "COTUNE_LIBRARY": str(library),
        "COTUNE_DATABASE": str(work / "tuned.tdb"),
        "PYTHONPATH": os.pathsep.join([str(package), str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "OMP_NUM_THREADS": "1",
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "NVSHMEM_DISABLE_NVLS": "1",
    }


def copy_lines(lines: Iterable[str], into: pathlib.Path) -> None:
    """Writes a step's output to a file, and shows at once which model it begins to compile: a run that hangs or is ended
    from outside has then named the model."""
    with into.open("w") as file:
        for line in lines:
            file.write(line)
            file.flush()
            if line.startswith(COMPILING):
                print(f"  {line.rstrip()}", flush=True)


def end(process: subprocess.Popen) -> None:
    process.terminate()  # torchrun ends its ranks
    try:
        process.wait(STUCK_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_step(step: Step, options: argparse.Namespace, work: pathlib.Path, variables: dict[str, str]) -> dict:
    place = ["--device", options.device]
    if options.shared_gpus and not step.is_example:
        place += ["--shared-gpus", str(options.shared_gpus)]
    command = [
        sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}",
        str(ROOT / step.script), *step.arguments, *place,
    ]  # fmt: skip
    began = time.monotonic()
    # A graph that comes out of a cache has not gone through the pass.
    if step.case:
        # Results of another case would keep functions from racing.
        variables = variables | step.environment | {"COTUNE_DATABASE": str(work / f"{step.name}.tdb")}
    variables = variables | {"TORCHINDUCTOR_CACHE_DIR": str(work / f"{step.name}.inductor")}
    out, err = (work / f"{step.name}.{name}" for name in ("out", "err"))
    with err.open("w") as err_file:
        process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=err_file, text=True, errors="replace")
        reader = threading.Thread(target=copy_lines, args=(process.stdout, out), daemon=True)
        reader.start()
        try:
            exit_code = process.wait(options.limit_s)
        except subprocess.TimeoutExpired:
            end(process)
            exit_code = 124
        # A rank that outlives torchrun holds the pipe.
        reader.join(PIPE_S)
    text, log = (path.read_text(errors="replace") for path in (out, err))
    error, records = judge(step, exit_code, text)
    return {
        "step": step.name, "error": error, "seconds": round(time.monotonic() - began, 1), "records": records,
        "output": f"{text[-2000:]}\n{log[-6000:]}" if error else "",
    }  # fmt: skip


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/torch/run", description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--ranks", type=int, help="[one for each GPU]")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--share-gpus", action="store_true", help="more ranks than GPUs; they take turns")
    parser.add_argument("--only", help="steps to run, by name, with commas; functions runs all steps functions.*")
    parser.add_argument("--quick", action="store_true", help=f"only the models {QUICK_MODELS}")
    parser.add_argument("--limit", dest="limit_s", type=float, default=LIMIT_S, help="seconds for a step [%(default)s]")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "lib/libcotune.so.0", help=argparse.SUPPRESS)
    parser.add_argument("--package", type=pathlib.Path, default=ROOT / "python", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=pathlib.Path, help="writes all results there, as JSON")
    parser.add_argument("--list", action="store_true", help="prints the steps")
    return parser.parse_args(arguments)


def _series(step: Step) -> str:
    """The steps "functions.faster" and "functions.faulty" are of the series "functions"."""
    return step.name.partition(".")[0]


def chosen_steps(options: argparse.Namespace) -> list[Step]:
    known = steps(options.quick)
    wanted = options.only.split(",") if options.only else [each.name for each in known]
    unknown = set(wanted) - {name for each in known for name in (each.name, _series(each))}
    if unknown:
        print(f"tests/torch/run: there is no step {', '.join(sorted(unknown))}; --list prints them", file=sys.stderr)
        sys.exit(USAGE)
    return [
        each
        for each in known
        if (each.name in wanted or _series(each) in wanted)
        and not (each.needs == "cuda" and options.device == "cpu")
        # The examples have a GPU for each rank.
        and not (each.is_example and options.shared_gpus)
    ]


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    options.shared_gpus = 0
    if options.list:
        print("\n".join(f"{each.name}: {each.script} {' '.join(each.arguments)}".rstrip() for each in chosen_steps(options)))
        return ALL_PASSED
    if importlib.util.find_spec("torch") is None:
        print(f"tests/torch/run: this Python ({sys.executable}) has no torch; run it by one that has torch 2.11 or newer", file=sys.stderr)
        return NOT_HERE
    gpus = machine.gpus() if options.device == "cuda" else []
    if options.device == "cuda" and not gpus:
        print("tests/torch/run: there is no GPU here; --device cpu runs on host memory", file=sys.stderr)
        return NOT_HERE
    options.ranks = options.ranks or max(2, len(gpus))
    options.shared_gpus = len(gpus) if options.share_gpus else 0
    if options.device == "cuda" and options.ranks > len(gpus) and not options.share_gpus:
        print(f"tests/torch/run: {options.ranks} ranks, {len(gpus)} GPUs; --share-gpus lets them take turns", file=sys.stderr)
        return USAGE
    report = {
        "date": datetime.date.today().isoformat(), "gpus": gpus, "ranks": options.ranks, "device": options.device,
        "packages": machine.packages(), "steps": [],
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="cotune_torch.") as folder:
        work = pathlib.Path(folder)
        variables = environment(work, options.library.absolute(), options.package.absolute())
        for step in chosen_steps(options):
            result = run_step(step, options, work, variables)
            report["steps"].append(result)
            skipped = sum("skipped" in each for each in result["records"])
            count = f", {len(result['records']) - skipped} cases" if result["records"] else ""
            count += f", {skipped} skipped" if skipped else ""
            print(f"{'FAILED' if result['error'] else 'passed'} {step.name} ({result['seconds']} s{count})", flush=True)
            if result["error"]:
                print(f"  {result['error'][:2000]}\n{result['output'][-3000:]}", flush=True)
            if options.report:
                options.report.write_text(json.dumps(report, indent=1) + "\n")
    failed = sum(bool(each["error"]) for each in report["steps"])
    print(f"{len(report['steps']) - failed} passed, {failed} failed")
    return SOME_FAILED if failed else ALL_PASSED
