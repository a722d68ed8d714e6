"""Holds the direction of the data flow: a folder includes only what stands above it.

usage: layering.py ROOT

Prints one line for each include that points the wrong way, "file:line: A may not include B (path)", and exits 1; exits 0
when there is none. ALLOWED says for each folder which folders of the project it may include, besides itself; the longest
matching folder counts. Tests may also include test-only files of folders they may include.
"""

import pathlib
import re
import sys

ALLOWED = {
    "bazel": [],
    "core": [],
    "plugins/api": [],
    "gpu/driver": [],
    "gpu/device": ["core", "gpu/driver"],
    "plugins/cuda": ["plugins/api", "plugins/border", "gpu/driver"],
    "plugins/nccl": ["plugins/api", "plugins/border", "gpu/driver"],
    "plugins/border": ["plugins/api"],
    "plugins/host": ["plugins/api", "plugins/border"],
    "plugins/fake": ["plugins/api"],
    "plugins/loader": ["core", "plugins/api"],
    "sync": ["core"],
    "fusion": ["core"],
    "integration": ["core", "gpu/device", "plugins/api", "plugins/loader", "sync", "fusion"],
    # The C API and its examples are what a third party sees: the example includes nothing else.
    "examples": ["plugins/api", "integration/capi"],
    "cli": ["core", "gpu", "plugins/api", "plugins/loader", "sync", "fusion", "integration"],
    "benchmarks": ["core", "plugins", "sync", "fusion", "integration"],
    "benchmarks/gpu": ["gpu", "integration"],
    "tests": ["core", "plugins", "sync", "fusion", "integration", "cli"],
    "tests/gpu": ["core", "gpu", "integration"],
}
# Tests beside the code may look at backends that exist for tests.
ALLOWED_IN_TESTS = {
    "plugins/loader": ["plugins/fake", "sync"],
    "plugins/fake": ["core", "plugins/loader", "sync"],
    "integration": ["plugins/fake", "plugins/host"],
    "cli": ["plugins/fake", "plugins/host"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
# Not sources: links to what was built, and trees that `./dev dist` wrote.
BUILT = re.compile(r"^(bazel-.*|\..*)$")
TREE_MARK = ".cotune-tree"


def within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def folder_of(path: str) -> str | None:
    matches = [folder for folder in ALLOWED if within(path, folder)]
    return max(matches, key=len) if matches else None


def top_of(path: str) -> bool:
    """Whether an include names a file of this project at all."""
    return path.split("/")[0] in {folder.split("/")[0] for folder in ALLOWED}


def is_test(path: str) -> bool:
    return re.search(r"_(test|for_test|bench)\.(cc|h)$", path) is not None


def violations(root: pathlib.Path) -> list[str]:
    found = []
    for top in sorted(root.iterdir()):
        if not top.is_dir() or BUILT.match(top.name) or (top / TREE_MARK).exists():
            continue
        for path in sorted(top.rglob("*")):
            if path.suffix not in (".h", ".cc", ".c"):
                continue
            name = path.relative_to(root).as_posix()
            own = folder_of(name)
            if own is None:
                found.append(f"{name}:1: the folder is not in the table of tests/layering/layering.py")
                continue
            allowed = [own, *ALLOWED[own], *(ALLOWED_IN_TESTS.get(own, []) if is_test(name) else [])]
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if match is None or not top_of(match[1]):
                    continue
                if not any(within(match[1], folder) for folder in allowed):
                    found.append(f"{name}:{number}: {own} may not include {folder_of(match[1])} ({match[1]})")
    return found


def main() -> int:
    found = violations(pathlib.Path(sys.argv[1]))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
