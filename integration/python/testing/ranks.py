"""The ranks of a test: real processes on host memory that call a function of the test."""

import dataclasses
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import traceback
import unittest
import uuid
from collections.abc import Callable

PACKAGE = str(pathlib.Path("integration/python").resolve())
LIBRARY = pathlib.Path("integration/capi/libcotune.so.0")
PLUGIN = pathlib.Path("plugins/host/cotune_host.so")
# A rank that has not ended by then hangs. No test waits so long otherwise.
HANG_S = 300
# What stands in front of every script of a rank.
SCRIPT_HEAD = """
from testing.ranks import Job
job, rank = {job!r}, {rank}
"""

sys.path.insert(0, PACKAGE)
# Where Bazel does not run the test, the user names the library (and plugins lie beside it).
os.environ.setdefault("COTUNE_LIBRARY", str(LIBRARY.resolve()))


@dataclasses.dataclass(frozen=True)
class Job:
    """What the ranks of a test have in common."""

    size: int
    id: str
    folder: str

    def group(self, rank: int, name: str = "", **options):
        """The group of all ranks; another name makes another group."""
        import cotune

        given = {"job_id": self.id + name, "ignores_database": True, "call_timeout_s": HANG_S}
        given |= {"plugin_path": f"{self.folder}/plugins"} | options
        return cotune.Group(rank, self.size, **given)

    def path(self, name: str) -> pathlib.Path:
        return pathlib.Path(self.folder) / name

    def say(self, word: str) -> None:
        """Lets `await_word` of the other ranks return."""
        self.path(f"said.{word}").touch()

    def await_word(self, word: str) -> None:
        while not self.path(f"said.{word}").exists():
            os.sched_yield()


def clean_environment(folder: str) -> dict[str, str]:
    """No settings, caches or launcher of the user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COTUNE_")}
    folders = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
    kept |= dict.fromkeys(folders, folder)
    return kept | {"COTUNE_LIBRARY": os.environ["COTUNE_LIBRARY"], "PYTHONPATH": PACKAGE}


def _rank_main(connection, function: Callable, rank: int, job: Job, arguments: tuple) -> None:
    os.environ |= clean_environment(job.folder)
    try:
        connection.send((True, function(rank, job, *arguments)))
    except BaseException:
        connection.send((False, traceback.format_exc()))


class RanksTest(unittest.TestCase):
    def setUp(self):
        # Short, because sockets lie in it.
        folder = tempfile.TemporaryDirectory(prefix="cotune.", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        plugins = pathlib.Path(self.folder, "plugins")
        plugins.mkdir(mode=0o755)
        # A plugin counts only as a file that nobody else may write.
        os.chmod(shutil.copy(PLUGIN, plugins), 0o755)

    def job(self, size: int) -> Job:
        return Job(size, uuid.uuid4().hex[:12], self.folder)

    def run_ranks(self, function: Callable, size: int = 2, *arguments) -> list:
        """What function(rank, job, *arguments) gives on each rank; fails when it raises."""
        job, context = self.job(size), multiprocessing.get_context("spawn")
        ends, processes = [], []
        for rank in range(size):
            end, others = context.Pipe(duplex=False)
            arguments_of_rank = (others, function, rank, job, arguments)
            process = context.Process(target=_rank_main, args=arguments_of_rank)
            process.start()
            others.close()
            ends.append(end)
            processes.append(process)
        try:
            answers = [self._answer(rank, end) for rank, end in enumerate(ends)]
        finally:
            for process in processes:
                process.join(HANG_S)
                process.kill()
        failures = [f"rank {rank}: {text}" for rank, (well, text) in enumerate(answers) if not well]
        if failures:
            self.fail("\n".join(failures))
        return [value for _, value in answers]

    def _answer(self, rank: int, end) -> tuple[bool, object]:
        if not end.poll(HANG_S):
            return False, "it hangs"
        try:
            return end.recv()
        except EOFError:
            return False, "it ended without an answer"

    def run_scripts(self, *sources: str) -> list[subprocess.CompletedProcess]:
        """Each source as the main program of a process of its own, with `job` and `rank` in it."""
        job = self.job(len(sources))
        running = [
            subprocess.Popen(
                [sys.executable, "-B", "-c", SCRIPT_HEAD.format(job=job, rank=rank) + source],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=clean_environment(self.folder),
            )
            for rank, source in enumerate(sources)
        ]
        ended = []
        for process in running:
            try:
                out, err = process.communicate(timeout=HANG_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            ended.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
        return ended
