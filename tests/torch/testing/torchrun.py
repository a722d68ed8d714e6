"""Ranks of a test under torchrun, with a tree of cotune made of what Bazel has built."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

PACKAGE = pathlib.Path("integration/python").resolve()
# By where each file lies in a tree.
FILES = {
    "lib/libcotune.so.0": "integration/capi/libcotune.so.0",
    "lib/libcotune_torch.so": "integration/torch/libcotune_torch.so",
    "lib/cotune/plugins/cotune_host.so": "plugins/host/cotune_host.so",
}
# Ranks that have not ended by then hang. No test waits so long otherwise.
HANG_S = 600
# Folders of Inductor's cache that hold graphs, and not what its C++ compiler made of their kernels.
GRAPHS = ("aotautograd", "fxgraph", "locks")


class Kernels:
    """The C++ that Inductor has compiled in this process's trees, for later trees: compiling takes most of a test's time.

    Graphs are not kept, so that each tree compiles its own.
    """

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cotune_kernels."))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def keep(self, cache: pathlib.Path) -> None:
        """Keeps what ranks have made that ended well: a compiler that was killed may leave half of a library."""
        for built in cache.glob("*/*.so"):
            if built.parent.name in GRAPHS:
                continue
            kept = self.folder / built.parent.name
            kept.mkdir(exist_ok=True)
            for file in (built, built.with_suffix(".cpp")):
                if not (kept / file.name).exists():
                    shutil.copy(file, kept)

    def give(self, cache: pathlib.Path) -> None:
        shutil.copytree(self.folder, cache, dirs_exist_ok=True)


KERNELS = Kernels()


@dataclasses.dataclass
class Outcome:
    """What the ranks came to: the exit code of torchrun, and what all of them printed."""

    exit_code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return f"exit code {self.exit_code}\n{self.out}\n{self.err}"


class Nursery:
    """The process of nursery.py, from the first run on. One thread."""

    def __init__(self):
        self._process: subprocess.Popen | None = None

    def run(self, environment: dict[str, str], **what: object) -> int:
        """The exit code of the ranks."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-B", "tests/torch/testing/nursery.py"], env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        hang = threading.Timer(HANG_S, os.killpg, [self._process.pid, signal.SIGKILL])
        hang.start()
        self._process.stdin.write(json.dumps(what | {"environment": environment}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        hang.cancel()
        if not answer:
            raise TimeoutError(f"the ranks of {what['script']} have not ended within {HANG_S} s")
        return json.loads(answer)["exit_code"]


NURSERY = Nursery()


class Tree:
    """A private folder with a tree of cotune, caches, and whatever a test puts beside them."""

    def __init__(self, without: tuple[str, ...] = (), inductor: pathlib.Path | None = None):
        """
        Args:
          without: names of files that the tree lacks.
          inductor: the folder of Inductor's cache; None: one of the tree's own, without graphs.
        """
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cotune_torch."))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        for place, built in FILES.items():
            if pathlib.Path(place).name in without:
                continue
            to = self.folder / "tree" / place
            to.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            shutil.copy(built, to)
            to.chmod(0o755)  # a plugin counts only as a file that nobody else may write
        self.inductor = inductor or self.folder / "inductor"
        KERNELS.give(self.inductor)

    @property
    def library(self) -> pathlib.Path:
        return self.folder / "tree/lib/libcotune.so.0"

    def environment(self, **more: str) -> dict[str, str]:
        """That of a rank: nothing of the user's cotune or PyTorch, and caches of this test's own."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("COTUNE_", "TORCH", "RANK", "WORLD_SIZE", "LOCAL_"))
        }
        own = {
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_RUNTIME_DIR": str(self.folder),
            "COTUNE_LIBRARY": str(self.library),
            "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(pathlib.Path("tests/torch").resolve())]),
            "TORCHINDUCTOR_CACHE_DIR": str(self.inductor),
            # One core a rank, and no pool of compilers beside it.
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            # Each tree would precompile PyTorch's headers, and most trees compile less than that saves.
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
            "PYTHONWARNINGS": "ignore::FutureWarning,ignore::UserWarning",
        }
        return kept | own | more

    def start(self, ranks: int, script: str, *arguments: str, **environment: str) -> Outcome:
        """Runs a script of this folder on so many ranks that torchrun has not started: they begin sooner."""
        out, err = self.folder / "out", self.folder / "err"
        for each in (out, err):
            each.unlink(missing_ok=True)
        exit_code = NURSERY.run(
            self.environment(**environment), ranks=ranks, script=f"tests/torch/{script}", arguments=arguments,
            out=str(out), err=str(err),
        )  # fmt: skip
        if exit_code == 0:
            KERNELS.keep(self.inductor)
        return Outcome(exit_code, *(each.read_text() if each.exists() else "" for each in (out, err)))

    def torchrun(self, ranks: int, script: str, *arguments: str, **environment: str) -> Outcome:
        """Runs a script of this folder (or a path) on so many ranks."""
        path = pathlib.Path("tests/torch") / script
        command = [
            sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
            str(path), *arguments,
        ]  # fmt: skip
        done = subprocess.run(
            command, env=self.environment(**environment), capture_output=True, text=True, timeout=HANG_S, check=False
        )
        if done.returncode == 0:
            KERNELS.keep(self.inductor)
        return Outcome(done.returncode, done.stdout, done.stderr)
