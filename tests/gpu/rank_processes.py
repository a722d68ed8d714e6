"""Processes of a job, one a rank, with a time limit and their output kept."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import time
import uuid

# NVLink multicast stays off in every process on a GPU.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}

# A process that was killed has ended after this time.
KILLED_ENDS_S = 60.0


@dataclasses.dataclass
class RankEnd:
    """How one rank ended: its exit code, -signal, or None while it runs."""

    exit_code: int | None
    output: str


def gpu_for(rank: int, gpus: int) -> dict[str, str]:
    """Variables by which a rank sees one of so many GPUs only, which others may have too."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
    return {"CUDA_VISIBLE_DEVICES": visible.split(",")[rank % gpus], "COTUNE_SHARED_GPUS": "1"}


def rank_environment(rank: int, ranks: int, job_id: str, shared_gpus: int = 0) -> dict[str, str]:
    """shared_gpus: how many GPUs the ranks share; 0: every rank has one of its own."""
    return {
        **os.environ,
        **(gpu_for(rank, shared_gpus) if shared_gpus else {}),
        **NO_MULTICAST,
        "COTUNE_RANK": str(rank),
        "COTUNE_WORLD_SIZE": str(ranks),
        "COTUNE_LOCAL_RANK": str(rank),
        "COTUNE_LOCAL_SIZE": str(ranks),
        "COTUNE_JOB_ID": job_id,
    }


class RankProcesses:
    """Ranks of one job, all running `command`. Use it in a `with`: what still runs at its end is killed."""

    def __init__(self, command: list[str], ranks: int, folder: pathlib.Path, shared_gpus: int = 0,
                 variables: dict[str, str] | None = None):
        self.began = time.monotonic()
        job_id = uuid.uuid4().hex[:12]
        self.paths = [folder / f"{job_id}.{rank}.out" for rank in range(ranks)]
        self.processes = []
        for rank, path in enumerate(self.paths):
            with path.open("wb") as out:
                self.processes.append(
                    subprocess.Popen(
                        command, env={**rank_environment(rank, ranks, job_id, shared_gpus), **(variables or {})},
                        stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                    )
                )

    def __enter__(self) -> "RankProcesses":
        return self

    def __exit__(self, *_) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        for process in self.processes:
            # Longer only when the driver holds a process that was killed; the step then fails by TimeoutExpired.
            process.wait(KILLED_ENDS_S)

    def wait(self, until: float, but: tuple[int, ...] = ()) -> bool:
        """Until all ranks (but those) have ended; False at time.monotonic() == until."""
        while any(p.poll() is None for rank, p in enumerate(self.processes) if rank not in but):
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        return True

    def resume(self, rank: int) -> None:
        """Lets a rank go on that has stopped itself."""
        if self.processes[rank].poll() is None:
            self.processes[rank].send_signal(signal.SIGCONT)

    def output(self, rank: int) -> str:
        return self.paths[rank].read_text(errors="replace")

    def ends(self) -> list[RankEnd]:
        return [RankEnd(p.poll(), self.output(rank)) for rank, p in enumerate(self.processes)]


def transcript(ends: list[RankEnd], each_bytes: int = 2000) -> str:
    """The last of what each rank said."""
    text = ""
    for rank, end in enumerate(ends):
        how = "still ran" if end.exit_code is None else f"ended with {end.exit_code}"
        text += f"--- rank {rank} {how}\n{end.output[-each_bytes:]}"
    return text
