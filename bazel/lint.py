"""Format and lint of all sources that git knows or would add.

usage: lint.py format [--write] | python [--write] | tidy [--changed | FILE...]

`format` runs clang-format over C++ and CUDA, `python` runs ruff over Python (ruff.toml), scripts without a suffix too, and
finds functions that are defined twice.
`tidy` runs clang-tidy on every .cc file that is not a test, as many at a time as there are processors. A file is not
checked again while it, the headers of this project that it includes, the messages and the configuration stay as they
were: what passed is kept under the user's cache folder. With --changed only what a change touched is checked: its .cc
files, and one file that includes each of its headers. A change is what is not in the upstream branch; on that branch
itself, what is not committed and what was committed within six hours of the last commit.
"""

import ast
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import time

FLAGS = ["-std=c++20", "-I.", "-Wno-everything"]
# Options of //integration/torch (integration/torch/BUILD.bazel).
TORCH_FLAGS = ["-DTORCH_TARGET_VERSION=0x020b000000000000"]
TORCH_INCLUDE = re.compile(r"^\s*#\s*include\s+<torch/", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
PYTHON_SCRIPT = re.compile(rb"#!.*\bpython")
# A version of a result is of no use once no checkout is in that state.
KEEP_RESULTS_S = 30 * 24 * 3600
# On the upstream branch itself a change goes back as far as this.
RECENT_S = 6 * 3600


def sources(*suffixes: str) -> list[pathlib.Path]:
    """The files with these suffixes; all without one."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True
    ).stdout
    paths = (pathlib.Path(line) for line in listing.splitlines())
    return sorted(p for p in paths if (not suffixes or p.suffix in suffixes) and p.is_file())


def cache_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = pathlib.Path(base) / "cotune"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_format(write: bool) -> int:
    files = [str(p) for p in sources(".h", ".cc", ".c", ".cu", ".cuh")]
    mode = ["-i"] if write else ["--dry-run", "-Werror"]
    return subprocess.run(["clang-format", *mode, *files], check=False).returncode


def python_files() -> list[pathlib.Path]:
    """All Python, by suffix or by first line."""
    scripts = [p for p in sources() if not p.suffix and PYTHON_SCRIPT.match(p.read_bytes())]
    return sorted([*sources(".py"), *scripts])


def defined_twice(path: pathlib.Path) -> list[str]:
    """Functions that a later one of the same name replaces in the same body. Decorated ones may have a reason for it.

    ruff (F811) passes over those that are used in between.
    """
    found = []
    for scope in ast.walk(ast.parse(path.read_bytes(), str(path))):
        lines: dict[str, int] = {}
        for each in scope.body if isinstance(scope, ast.Module | ast.ClassDef) else []:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.decorator_list:
                if each.name in lines:
                    found.append(f"{path}:{each.lineno}: {each.name} replaces that of line {lines[each.name]}")
                lines[each.name] = each.lineno
    return found


def run_python(write: bool) -> int:
    twice = [line for path in python_files() for line in defined_twice(path)]
    for line in twice:
        print(line)
    ruff = os.environ.get("COTUNE_RUFF") or str(cache_folder() / "venv/bin/ruff")
    if not os.access(ruff, os.X_OK):
        print("lint.py: ruff is not installed (`./dev setup` installs it); Python is not checked by it", file=sys.stderr)
        return int(bool(twice))
    options = ["--quiet", "--no-cache", "--output-format=concise", *(["--fix"] if write else [])]
    ended = subprocess.run([ruff, "check", *options, *map(str, python_files())], check=False)
    return ended.returncode or int(bool(twice))


def included_files(path: pathlib.Path, known: dict[pathlib.Path, set[pathlib.Path]]) -> set[pathlib.Path]:
    """The file and all files of the project that it includes, directly or not."""
    if path not in known:
        known[path] = {path}  # ends the recursion of files that include themselves
        for name in INCLUDE.findall(path.read_text()):
            if name.endswith(".pb.h"):  # what Bazel makes of a .proto file
                name = name.removesuffix(".pb.h") + ".proto"
            for each in (pathlib.Path(name), path.parent / name):
                if each.exists():
                    known[path] |= included_files(each, known)
                    break
    return known[path]


def digest(paths: list[pathlib.Path], extra: str = "") -> str:
    total = hashlib.sha256(extra.encode())
    for path in paths:
        content = path.read_bytes()
        total.update(f"{path}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def generated_headers(into: pathlib.Path, protos: list[pathlib.Path]) -> None:
    """Headers that Bazel makes from .proto files; clang-tidy has to see them."""
    into.mkdir(parents=True, exist_ok=True)
    if protos:
        command = ["protoc", "--proto_path=.", f"--cpp_out={into}", *map(str, protos)]
        subprocess.run(command, check=True)


def torch_flags() -> list[str]:
    """The flags for sources that include PyTorch; empty if it is not installed."""
    named = os.environ.get("COTUNE_TORCH")
    installed = cache_folder().glob("venv/lib/python3*/site-packages/torch")
    for folder in [pathlib.Path(named)] if named else sorted(installed):
        if (folder / "include").is_dir():
            # The compiler searches it after the system's folders, as it brings libraries of its own, which are not the ones that cotune uses.
            return ["-idirafter", str(folder / "include"), *TORCH_FLAGS]
    return []


def includes_torch(path: pathlib.Path, known: dict[pathlib.Path, set[pathlib.Path]]) -> bool:
    return any(TORCH_INCLUDE.search(p.read_text()) for p in included_files(path, known))


def drop_old(folder: pathlib.Path) -> None:
    for marker in folder.iterdir():
        if time.time() - marker.stat().st_mtime > KEEP_RESULTS_S:
            marker.unlink()


def tidy_one(path: pathlib.Path, flags: list[str], marker: pathlib.Path) -> bool:
    if marker.exists():
        marker.touch()
        return True
    done = subprocess.run(
        ["clang-tidy", "--quiet", str(path), "--", *flags],
        check=False, capture_output=True, text=True,
    )
    if done.returncode == 0:
        marker.touch()
        return True
    print(done.stdout, end="", flush=True)
    if "error:" not in done.stdout:
        print(f"{path}: clang-tidy ended with {done.returncode}: {done.stderr}", flush=True)
    return False


def git(*arguments: str, check: bool = True) -> str:
    """The output of git. Without `check` empty when it fails, as for a name that it does not know."""
    return subprocess.run(["git", *arguments], check=check, stdout=subprocess.PIPE, text=True).stdout.strip()


def change_base() -> str:
    """The commit that a change started from; empty when the history does not reach that far."""
    head = git("rev-parse", "HEAD")
    for upstream in ("origin/HEAD", "origin/main"):
        known = git("rev-parse", "--verify", "--quiet", upstream, check=False)
        base = git("merge-base", "HEAD", upstream, check=False) if known else ""
        if base and base != head:
            return base
    committed_s = int(git("log", "-1", "--format=%ct"))
    return git("rev-list", "-1", "--first-parent", f"--before={committed_s - RECENT_S}", "HEAD")


def select_changed(
    files: list[pathlib.Path], changed: set[pathlib.Path], known: dict[pathlib.Path, set[pathlib.Path]]
) -> list[pathlib.Path]:
    """The `files` that changed, and for each other file that changed one that includes it: its own, else the first."""
    if changed & {pathlib.Path(".clang-tidy"), pathlib.Path("bazel/lint.py")}:
        return files
    selected = {p for p in files if p in changed}
    for header in sorted(changed - selected):
        includers = [p for p in files if header in included_files(p, known)]
        if not selected & set(includers):
            selected |= set([p for p in includers if p.with_suffix("") == header.with_suffix("")] or includers[:1])
    return sorted(selected)


def changed_files(files: list[pathlib.Path], known: dict[pathlib.Path, set[pathlib.Path]]) -> list[pathlib.Path]:
    base = change_base()
    if not base:
        return files
    listing = git("diff", "--name-only", base) + "\n" + git("ls-files", "-o", "--exclude-standard")
    changed = {pathlib.Path(line) for line in listing.splitlines() if line}
    return select_changed(files, changed, known)


def run_tidy(wanted: list[str]) -> int:
    # Examples are built the way a user builds them, against the installed header.
    files = [
        p for p in sources(".cc")
        if not p.stem.endswith(("_test", "_bench")) and "testing" not in p.parts and p.parts[0] != "examples"
    ]
    known: dict[pathlib.Path, set[pathlib.Path]] = {}
    if wanted == ["--changed"]:
        files = changed_files(files, known)
    elif wanted:
        unknown = set(wanted) - {str(p) for p in files}
        if unknown:
            print(f"lint.py: not sources to check (tests are not): {', '.join(sorted(unknown))}", file=sys.stderr)
            return 2
        files = [p for p in files if str(p) in wanted]
    with_torch = torch_flags()
    torch_files = {p for p in files if includes_torch(p, known)}
    if torch_files and not with_torch:
        print(f"lint.py: PyTorch is not installed; not checked: {', '.join(map(str, sorted(torch_files)))}", file=sys.stderr)
        files = [p for p in files if p not in torch_files]
    protos = sources(".proto")
    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True, text=True).stdout
    shared = digest([pathlib.Path(".clang-tidy"), *protos], version + " ".join(FLAGS))
    generated = cache_folder() / "tidy_generated" / shared[:16]
    generated_headers(generated, protos)
    results = cache_folder() / "tidy"
    results.mkdir(exist_ok=True)
    drop_old(results)

    def check(path: pathlib.Path) -> bool:
        extra = with_torch if path in torch_files else []
        marker = results / digest(sorted(included_files(path, known)), f"{shared} {path} {extra}")
        return tidy_one(path, [*FLAGS, "-isystem", str(generated), *extra], marker)

    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        passed = list(pool.map(check, files))
    print(f"clang-tidy: {passed.count(True)} files clean, {passed.count(False)} with findings", file=sys.stderr)
    return 0 if all(passed) else 1


def main() -> int:
    if sys.argv[1:2] == ["format"]:
        return run_format("--write" in sys.argv[2:])
    if sys.argv[1:2] == ["python"]:
        return run_python("--write" in sys.argv[2:])
    if sys.argv[1:2] == ["tidy"]:
        return run_tidy(sys.argv[2:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
