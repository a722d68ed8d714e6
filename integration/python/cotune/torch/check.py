"""Checks that cotune works under torch.compile on this machine, step by step.

    torchrun --nproc-per-node 2 -m cotune.torch.check [--device cpu|cuda] [--timeout-s 120]

Rank 0 prints a line for each step: "PASSED", or "FAILED" with the reason, the rank that has it and what to do. The steps:

- detection: PyTorch and cotune are found, in the same versions on all ranks, and a list of forced choices can be read.
- plain call: a compiled function with an all_reduce gives right values without cotune.
- tune: it gives right values with cotune, which has measured at least two choices for it.
- late rank: it gives right values if one rank comes late.

A step that fails ends the check. Rank 0 names a rank that does not end a step in time, after up to three times the timeout.
SIGTERM ends a rank at any time, and the rank names the step that it was in. The exit code is 0 if all steps have passed, and
1 otherwise.

The check has a tuned database of its own, in a temporary folder, and leaves the user's alone.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import cotune
import cotune.torch
from cotune import _native
from cotune.errors import CotuneError
from cotune.torch import compat, explanation, groups, library, report, settings_file

ROWS, COLUMNS = 64, 1024
LATE_S = 1.0
CALLS = 5


class StepFailed(Exception):
    """A step has failed on this rank; the text is the reason, with what to do."""


class Ranks:
    """The ranks of the check, and the store by which each learns how a step has ended on the others.

    The verdicts go through the store and not through collectives, which are what is checked.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta):
        self.rank, self.size = rank, size
        self._store, self._timeout = store, timeout

    def gather(self, name: str, own: Any) -> list[Any]:
        """Returns the values that the ranks give under this name, in their order.

        Raises StepFailed with the ranks that give nothing in time.
        """
        self._store.set(f"{name}/{self.rank}", json.dumps(own))
        until_s = time.monotonic() + self._timeout.total_seconds()
        found, missing = [], []
        for rank in range(self.size):
            try:
                left_s = max(until_s - time.monotonic(), 0.001)
                self._store.wait([f"{name}/{rank}"], datetime.timedelta(seconds=left_s))
            except RuntimeError:
                missing.append(str(rank))
                continue
            found.append(json.loads(self._store.get(f"{name}/{rank}")))
        if missing:
            which = f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {', '.join(missing)} have"
            raise StepFailed(
                f"{which} not ended it within {self._timeout.total_seconds():.0f} s; see the output there, whether the network "
                "between the ranks lets them connect, and --timeout-s"
            )
        return found

    def tell(self, name: str) -> None:
        self._store.set(name, "")

    def await_word(self, name: str) -> None:
        self._store.wait([name], self._timeout)


class Check:
    """The steps. Each returns a text for its line, and raises if it fails."""

    def __init__(self, ranks: Ranks, device: torch.device):
        self.ranks, self.device = ranks, device
        self.steps: dict[str, Callable[[], str]] = {
            "detection": self.detection,
            "plain call": self.plain_call,
            "tune": self.tune,
            "late rank": self.late_rank,
        }
        self._tuned: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
        self.running = ""  # the name of the step that runs; "" between the start, the steps and the end

    def detection(self) -> str:
        try:
            compat.check_version()
            library.load()
        except (compat.Unsupported, CotuneError) as failure:
            raise StepFailed(str(failure)) from failure
        what = {"PyTorch": torch.__version__, "cotune": cotune.version()}
        hosts = set()
        for rank, (other, host) in enumerate(self.ranks.gather("versions", [what, platform.node()])):
            hosts.add(host)
            for name, version in other.items():
                if version != what[name]:
                    raise StepFailed(
                        f"rank {rank} has {name} {version}, and rank {self.ranks.rank} has {name} {what[name]}; install the same "
                        "versions for all ranks"
                    )
        if why := settings_file.why_force_is_wrong():
            raise StepFailed(why)
        versions = ", ".join(f"{name} {version}" for name, version in what.items())
        number = f"{self.ranks.size} {'rank' if self.ranks.size == 1 else 'ranks'}"
        place = "1 host" if len(hosts) == 1 else f"{len(hosts)} hosts"
        return f"{versions} ({_native.tree()}), {number} on {place}, {self.device.type}"

    def plain_call(self) -> str:
        self._call(torch.compile(_summed), 1, "without cotune")
        return "torch.compile's own all_reduce + bias + relu is right"

    def tune(self) -> str:
        if self.ranks.size == 1:
            raise StepFailed("there is one rank, and so there is nothing to tune; start two, torchrun --nproc-per-node 2")
        torch.compiler.reset()
        self._tuned = torch.compile(_summed)
        with cotune.torch.enabled():
            self._call(self._tuned, CALLS, "with cotune")
        program, group = self._program()
        size = next((each for each in program["sizes"] if each["rows"] == ROWS), None)
        if size is None or not size["is_measured_here"] or size["time_us"] is None:
            raise StepFailed(f"nothing was measured: {program['why_untuned'] or 'no size was tuned'}; see the warnings above")
        with group._handle.exclusive() as address:
            answer = report.explained(address, program["text"], ROWS)
        choices = [each["choice"] for each in report.measured_size(answer)["choices"]]
        if len(choices) < 2:
            raise StepFailed(
                f"there was one choice to measure, {', '.join(choices)}; `cotune doctor` names the plugins that are found"
            )
        return f"{len(choices)} choices were measured; {size['choice']} runs, {size['time_us']:.1f} us, and is right"

    def late_rank(self) -> str:
        last = self.ranks.size - 1
        if self.ranks.rank == last:
            self.ranks.await_word("the first rank calls")
            time.sleep(LATE_S)
        elif self.ranks.rank == 0:
            self.ranks.tell("the first rank calls")
        self._call(self._tuned, CALLS, "after a late rank")
        return f"rank {last} came {LATE_S:g} s late; all values are right"

    def _call(self, function: Callable[..., torch.Tensor], calls: int, when: str) -> None:
        """Calls the function with new data each time: small integers, whose sums are exact in any order.

        Raises StepFailed for a wrong value.
        """
        for call in range(calls):
            own = [_operand(rank, call, self.device) for rank in range(self.ranks.size)]
            bias = torch.arange(COLUMNS, dtype=torch.float32, device=self.device) - COLUMNS / 2
            expected = torch.clamp(sum(own) + bias, min=0)
            got = function(own[self.ranks.rank], bias)
            wrong = int((got != expected).sum())
            if wrong:
                at = (got != expected).nonzero()[0].tolist()
                raise StepFailed(
                    f"{wrong} of {got.numel()} values are wrong {when}, first at {at}: {got[tuple(at)].item():g} instead of "
                    f"{expected[tuple(at)].item():g}; please report this with the output of `cotune doctor`"
                )

    def _program(self) -> tuple[dict[str, Any], Any]:
        """Returns the program of the function, and the group that runs it. Raises StepFailed without one."""
        programs = [each for graph in explanation.explain_data() for each in graph["programs"]]
        if not programs:
            raise StepFailed(f"cotune has taken no collective: {cotune.torch.explain()}")
        for entry in groups.entries():
            if entry.is_plain:
                raise StepFailed(f"cotune runs the group by PyTorch's own collectives: {entry.reason}")
        return programs[0], groups.entries()[0].group


def _operand(rank: int, call: int, device: torch.device) -> torch.Tensor:
    numbers = torch.arange(ROWS * COLUMNS, dtype=torch.int64, device=device)
    return ((numbers * (rank + 3) + 7 * call) % 41 - 20).to(torch.float32).view(ROWS, COLUMNS)


def _summed(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(funcol.all_reduce(x, "sum", dist.group.WORLD) + bias)


def _reason(step: Callable[[], str]) -> tuple[str, str]:
    """Returns the text of a step that passes and "", or "" and the reason of one that fails."""
    try:
        return step(), ""
    except StepFailed as failure:
        return "", str(failure)
    except Exception as failure:  # noqa: BLE001  whatever a step raises is its reason
        lines = str(failure).strip().splitlines() or [""]
        return "", f"{type(failure).__name__}: {lines[0]}"


def _failures(reasons: list[str]) -> list[str]:
    """Returns the reasons of the ranks that have failed, each with its rank; one for all ranks if all have the same."""
    if len(reasons) > 1 and len(set(reasons)) == 1 and reasons[0]:
        return [f"all ranks: {reasons[0]}"]
    return [f"rank {rank}: {each}" for rank, each in enumerate(reasons) if each]


def _run(check: Check, ranks: Ranks) -> bool:
    passed = 0
    for name, step in check.steps.items():
        check.running = name
        text, reason = _reason(step)
        try:
            failures = _failures(ranks.gather(f"ended {name}", reason))
        except StepFailed as failure:
            failures = [f"rank {ranks.rank}: {reason}"] if reason else []
            if str(failure) != reason:
                failures.append(str(failure))
        check.running = ""
        if ranks.rank == 0:
            print(f"FAILED  {name}: {'; '.join(failures)}" if failures else f"PASSED  {name}: {text}", flush=True)
        if failures:
            break
        passed += 1
    if ranks.rank == 0:
        left = list(check.steps)[passed + 1 :]
        print(f"{passed} of {len(check.steps)} steps passed{'; not run: ' + ', '.join(left) if left else ''}", flush=True)
    return passed == len(check.steps)


def _device(wanted: str) -> torch.device:
    kind = wanted or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cpu":
        return torch.device(kind)
    own, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if own >= gpus:
        sys.exit(
            f"cotune.torch.check: rank {os.environ['RANK']} is number {own} on its host, which has {gpus} GPUs that PyTorch can use; "
            "start one rank for each GPU, or use --device cpu"
        )
    torch.cuda.set_device(own)
    return torch.device(kind, own)


def _end_when_terminated(folder: str, check: Check) -> None:
    """Lets SIGTERM remove the folder and end the process, with a line if a step runs.

    torchrun terminates the other ranks as soon as one has failed. A handler in Python would wait until the call into C that
    the main thread is in returns, which a collective that hangs never does. Here a thread waits for the signal.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def await_signal() -> None:
        while os.read(read_end, 1) != bytes([signal.SIGTERM]):
            pass  # another signal
        if check.running:
            line = f"cotune.torch.check: rank {check.ranks.rank}: SIGTERM ended it in the step {check.running}\n"
            os.write(sys.stderr.fileno(), line.encode())
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    # Without a handler of Python's, the signal would end the process at once.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=await_signal, name="cotune.torch.check signals", daemon=True).start()


def main() -> int:
    parser = argparse.ArgumentParser(prog="cotune.torch.check", description="Checks that cotune works under torch.compile here.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="", help="what the tensors are on [cuda if there is a GPU]")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="longest time for one step [120]")
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("no ranks are started: run it by torchrun --nproc-per-node 2 -m cotune.torch.check")
    device = _device(arguments.device)
    timeout = datetime.timedelta(seconds=arguments.timeout_s)
    store, rank, size = next(dist.rendezvous("env://", timeout=timeout))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cotune_check."))
        ranks = Ranks(dist.PrefixStore("check", store), rank, size, timeout)
        check = Check(ranks, device)
        _end_when_terminated(folder, check)
        check.running = "start of the process group"
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo", store=dist.PrefixStore("check_group", store), rank=rank,
            world_size=size, timeout=timeout,
        )  # fmt: skip
        groups.configure(groups.TuneSettings.of(database=os.path.join(folder, "database")))
        report.show_tables(False)
        has_passed = _run(check, ranks)
        if not has_passed:
            stack.close()
            sys.stdout.flush()
            sys.stderr.flush()
            # Threads of a call that hangs would keep the process from ending.
            os._exit(1)
        # Rank 0 holds the store, so that it must not end before the others.
        ranks.gather("end", True)
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
