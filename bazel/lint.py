"""Format and lint of all sources that git knows or would add.

usage: lint.py format [--write] | tidy [FILE...]

`tidy` runs clang-tidy on every .cc file that is not a test, two at a time. A file is not checked again while it, the
headers of this project and the configuration stay as they were: results are kept under the user's cache folder.
"""

import concurrent.futures
import hashlib
import os
import pathlib
import subprocess
import sys

FLAGS = ["-std=c++20", "-I.", "-DSPDLOG_COMPILED_LIB", "-DSPDLOG_FMT_EXTERNAL", "-Wno-everything"]


def sources(*suffixes: str) -> list[pathlib.Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True
    ).stdout
    paths = (pathlib.Path(line) for line in listing.splitlines())
    return sorted(p for p in paths if p.suffix in suffixes and p.exists())


def cache_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = pathlib.Path(base) / "cotune"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_format(write: bool) -> int:
    files = [str(p) for p in sources(".h", ".cc", ".c")]
    mode = ["-i"] if write else ["--dry-run", "-Werror"]
    return subprocess.run(["clang-format", *mode, *files], check=False).returncode


def generated_headers(into: pathlib.Path) -> None:
    """Headers that Bazel makes from .proto files; clang-tidy has to see them."""
    into.mkdir(parents=True, exist_ok=True)
    protos = [str(p) for p in sources(".proto")]
    if protos:
        subprocess.run(["protoc", "--proto_path=.", f"--cpp_out={into}", *protos], check=True)


def tidy_one(path: pathlib.Path, generated: pathlib.Path, marker: pathlib.Path) -> bool:
    if marker.exists():
        return True
    done = subprocess.run(
        ["clang-tidy", "--quiet", str(path), "--", *FLAGS, "-isystem", str(generated)],
        check=False, capture_output=True, text=True,
    )
    if done.returncode == 0:
        marker.touch()
        return True
    print(done.stdout, end="", flush=True)
    if "error:" not in done.stdout:
        print(f"{path}: {done.stderr}", flush=True)
    return False


def run_tidy(wanted: list[str]) -> int:
    files = [p for p in sources(".cc") if not p.stem.endswith(("_test", "_bench", "_for_test"))]
    if wanted:
        files = [p for p in files if str(p) in wanted]
    shared = hashlib.sha256()
    for path in [pathlib.Path(".clang-tidy"), *sources(".h", ".proto")]:
        shared.update(path.read_bytes())
    shared.update(" ".join(FLAGS).encode())
    generated = cache_folder() / "tidy_generated" / shared.hexdigest()[:16]
    generated_headers(generated)
    results = cache_folder() / "tidy"
    results.mkdir(exist_ok=True)

    def check(path: pathlib.Path) -> bool:
        own = shared.copy()
        own.update(str(path).encode() + path.read_bytes())
        return tidy_one(path, generated, results / own.hexdigest())

    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        passed = list(pool.map(check, files))
    print(f"clang-tidy: {passed.count(True)} files clean, {passed.count(False)} with findings", file=sys.stderr)
    return 0 if all(passed) else 1


def main() -> int:
    if sys.argv[1:2] == ["format"]:
        return run_format("--write" in sys.argv)
    if sys.argv[1:2] == ["tidy"]:
        return run_tidy(sys.argv[2:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
