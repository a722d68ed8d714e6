"""Ranks of a test under torchrun, with a tree of cotune made of what Bazel has built."""

from __future__ import annotations

import atexit
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PACKAGE = pathlib.Path("integration/python").resolve()
# By where each file lies in a tree.
FILES = {
    "lib/libcotune.so.0": "integration/capi/libcotune.so.0",
    "lib/libcotune_torch.so": "integration/torch/libcotune_torch.so",
    "lib/cotune/plugins/cotune_host.so": "plugins/host/cotune_host.so",
}
# Ranks that have not ended by then hang. No test waits so long otherwise.
HANG_S = 600


@dataclasses.dataclass
class Outcome:
    """What the ranks came to: the exit code of torchrun, and what all of them printed."""

    exit_code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return f"exit code {self.exit_code}\n{self.out}\n{self.err}"


class Tree:
    """A private folder with a tree of cotune, caches, and whatever a test puts beside them."""

    def __init__(self, without: tuple[str, ...] = ()):
        """`without`: names of files that the tree lacks."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cotune_torch."))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        for place, built in FILES.items():
            if pathlib.Path(place).name in without:
                continue
            to = self.folder / "tree" / place
            to.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            shutil.copy(built, to)
            to.chmod(0o755)  # a plugin counts only as a file that nobody else may write

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
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
            # One core a rank, and no pool of compilers beside it.
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "PYTHONWARNINGS": "ignore::FutureWarning,ignore::UserWarning",
        }
        return kept | own | more

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
        return Outcome(done.returncode, done.stdout, done.stderr)
