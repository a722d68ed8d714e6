"""Holds the direction of the data flow: a folder includes only what stands above it.

usage: layering.py ROOT

Prints one line for each include that points the wrong way, "file:line: A may not include B (path)", and exits 1; exits 0
when there is none. FOLDERS says for each folder which folders of the project it may include, besides itself; the longest
matching folder counts, so that a row for a folder says nothing of a folder inside it that has a row of its own. STAGES
parts some of them further: a stage may include itself and the stages in front of it. Only tests may include what lies in
testing/ folders.
"""

import pathlib
import re
import sys

FOLDERS = {
    "bazel": [],
    "core": [],
    # Which forms of a program are tried. Core sees them as a RecipeSource alone.
    "fusion": ["core/base", "core/problem", "core/recipe"],
    "hierarchy": ["core/base", "core/problem", "core/recipe"],
    "plugins/api": [],
    "gpu/driver": [],
    "gpu/device": ["core", "gpu/driver"],
    "plugins/sdk": ["plugins/api"],
    "plugins/sdk/gpu": ["plugins/api", "plugins/sdk", "gpu/driver"],
    "plugins/cuda": ["plugins/api", "plugins/sdk", "plugins/sdk/gpu", "gpu/driver"],
    "plugins/nccl": ["plugins/api", "plugins/sdk", "plugins/sdk/gpu", "gpu/driver"],
    "plugins/host": ["plugins/api", "plugins/sdk"],
    # Of gpu/driver the search for libraries alone.
    "plugins/ucx": ["plugins/api", "plugins/sdk", "gpu/driver"],
    # It computes by the reference evaluator, and is shipped in no tree.
    "plugins/fake": ["plugins/api", "plugins/sdk", "core/problem", "core/base"],
    # The suites of all backends of host memory, and what they run on.
    "plugins/testing": ["plugins/api", "plugins/sdk", "plugins/host", "core/problem"],
    "plugins/loader": ["core", "plugins/api"],
    "sync": ["core"],
    "integration": ["core", "fusion", "hierarchy", "gpu/device", "plugins/api", "plugins/loader", "sync"],
    # Operators for PyTorch stand on the C API alone.
    "integration/torch": ["integration/capi", "gpu/driver"],
    # The C API and its examples are what a third party sees: the example includes nothing else.
    "examples": ["plugins/api", "integration/capi"],
    "cli": ["core", "fusion", "hierarchy", "gpu", "plugins/api", "integration"],
    "benchmarks": ["core", "fusion", "hierarchy", "plugins", "sync", "integration"],
    "benchmarks/cuda": ["core", "fusion", "plugins/cuda", "gpu/driver", "plugins/loader", "plugins/sdk"],
    "benchmarks/gpu": ["core", "gpu", "integration", "plugins/api", "plugins/loader"],
    "tests": ["core", "fusion", "hierarchy", "plugins", "sync", "integration", "cli"],
    "tests/gpu": ["core", "gpu", "integration", "plugins/cuda"],
    "tests/simulated": ["core", "fusion", "sync"],
}
# Folders that have their rules before their first file.
PLANNED = ("hierarchy",)
# The stages of a folder, in the order of their includes. A file beside the stages may include all of them.
STAGES = {
    "core": ["base", "problem", "recipe", "ranks", "backend", "selection", "events", "database", "choice", "benchmark", "scheduler"],
    "sync": ["wire", "machine", "simulated", "exchange", "socket"],
    "plugins/cuda": ["kernels", "memory", "compile", "choices", "parts", "group", "fused", "cpu_runner"],
    "cli": ["input", "output", "session", "commands"],
}
# Stages that may not include all that stands in front of them. cpu_runner is for tests, and compares with the evaluator.
SIDE_STAGES = {
    "plugins/cuda/parts": ["plugins/cuda/kernels", "plugins/cuda/memory", "plugins/cuda/compile", "plugins/cuda/testing"],
    "plugins/cuda/cpu_runner": ["plugins/cuda/kernels", "plugins/cuda/choices", "plugins/cuda/parts", "plugins/cuda/fused", "plugins/cuda/testing", "core/problem"],
}
# Includes that a folder has no use for: the machines know neither sockets nor threads nor a clock, and of core only what
# is common to all.
PURE = re.compile(r"^(boost/|sys/|netinet/|arpa/|(poll|unistd|fcntl|time|pthread)\.h|chrono|ctime|thread|mutex|future|atomic"
                  r"|condition_variable|core/(?!base/)|core/base/(clock|unique_fd)\.h)")
FORBIDDEN = {
    "sync/machine": PURE,
    "sync/simulated": PURE,
}
# Tests beside the code may look at backends that exist for tests, and at the reference evaluator.
FOLDERS_IN_TESTS = {
    "fusion": ["core/testing"],
    "plugins/host": ["core/problem", "plugins/testing"],
    "plugins/cuda": ["core/problem"],
    "plugins/ucx": ["plugins/testing"],
    "plugins/loader": ["plugins/fake", "plugins/sdk", "sync"],
    "plugins/fake": ["core", "plugins/loader", "sync"],
    "integration": ["plugins/fake", "plugins/host", "plugins/nccl/testing", "gpu/driver"],
    "cli": ["plugins/fake", "plugins/host", "plugins/ucx"],
}
# Folders of which every file is one of a test or a benchmark.
TEST_FOLDERS = ("tests", "tests/gpu", "tests/simulated", "benchmarks")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
SUFFIXES = (".h", ".cc", ".c", ".cu", ".cuh")
# Not sources: links to what was built, and trees that `./dev dist` wrote.
BUILT = re.compile(r"^(bazel-.*|\..*)$")
TREE_MARK = ".cotune-tree"


def within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def folder_of(path: str) -> str | None:
    matches = [folder for folder in FOLDERS if within(path, folder)]
    return max(matches, key=len) if matches else None


def covers(folder: str, include: str) -> bool:
    """Whether an include of a file is one of that folder."""
    return within(include, folder) and (folder not in FOLDERS or folder_of(include) == folder)


def stage_of(path: str) -> str | None:
    """The stage folder that a file lies in; None for a file beside the stages."""
    folder = folder_of(path)
    parts = path[len(folder) + 1 :].split("/") if folder in STAGES else []
    return f"{folder}/{parts[0]}" if len(parts) > 1 and parts[0] in STAGES[folder] else None


def is_project(path: str) -> bool:
    """Whether an include names a file of this project at all."""
    return path.split("/")[0] in {folder.split("/")[0] for folder in FOLDERS}


def is_helper(path: str) -> bool:
    return "testing" in path.split("/")[:-1]


def is_test(path: str) -> bool:
    return re.search(r"_(test|bench)\.(cc|h)$", path) is not None or is_helper(path)


def allowed_folders(name: str) -> list[str]:
    """Where the includes of a file may point."""
    own, stage = folder_of(name), stage_of(name)
    assert own is not None
    allowed = [*FOLDERS[own], *(FOLDERS_IN_TESTS.get(own, []) if is_test(name) else [])]
    if stage is None:
        return [own, *allowed]
    if stage in SIDE_STAGES:
        return [stage, *SIDE_STAGES[stage], *allowed]
    stages = STAGES[own][: STAGES[own].index(stage[len(own) + 1 :]) + 1]
    if is_test(name):
        allowed.append(f"{own}/testing")
    return [*(f"{own}/{before}" for before in stages), *allowed]


def place_error(name: str) -> str | None:
    """Why a file lies where no rule reaches it."""
    own = folder_of(name)
    if own is None:
        return "the folder is not in the table of tests/layering/layering.py"
    parts = name[len(own) + 1 :].split("/")
    if own in STAGES and len(parts) > 1 and parts[0] != "testing" and parts[0] not in STAGES[own]:
        return f"{own}/{parts[0]} is no stage of {own} in tests/layering/layering.py"
    return None


def include_error(name: str, include: str, beside: set[str]) -> str | None:
    place = stage_of(name) or folder_of(name)
    if name.endswith((".cu", ".cuh")):
        # NVRTC gets the sources by their names alone, and nothing from the toolkit.
        return None if include in beside else f"a kernel may include only files beside it ({include})"
    if place in FORBIDDEN and not is_test(name) and FORBIDDEN[place].match(include):
        return f"{place} may not include {include}"
    if not is_project(include):
        return None
    if is_helper(include) and not is_test(name) and folder_of(name) not in TEST_FOLDERS:
        return f"{place} is no test and may not include {include}"
    if any(covers(folder, include) for folder in allowed_folders(name)):
        return None
    return f"{place} may not include {stage_of(include) or folder_of(include)} ({include})"


def violations(root: pathlib.Path) -> list[str]:
    found = []
    for top in sorted(root.iterdir()):
        if not top.is_dir() or BUILT.match(top.name) or (top / TREE_MARK).exists():
            continue
        for path in sorted(top.rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            name = path.relative_to(root).as_posix()
            misplaced = place_error(name)
            if misplaced is not None:
                found.append(f"{name}:1: {misplaced}")
                continue
            beside = {other.name for other in path.parent.iterdir()}
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                error = include_error(name, match[1], beside) if match else None
                if error is not None:
                    found.append(f"{name}:{number}: {error}")
    return found


def unknown_folders(root: pathlib.Path) -> list[str]:
    """Folders of the tables that do not exist, but for those that are planned."""
    named = {*FOLDERS, *SIDE_STAGES, *FORBIDDEN, *FOLDERS_IN_TESTS}
    named |= {folder for table in (FOLDERS, SIDE_STAGES, FOLDERS_IN_TESTS) for row in table.values() for folder in row}
    named |= {f"{folder}/{stage}" for folder, stages in STAGES.items() for stage in stages}
    return sorted(folder for folder in named - {*PLANNED} if not (root / folder).is_dir())


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    found = violations(root) + [f"{folder}: no such folder" for folder in unknown_folders(root)]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
