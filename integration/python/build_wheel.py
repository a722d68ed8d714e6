"""Writes the wheel of the package cotune: its Python files, and a tree of `./dev dist` in them.

usage: build_wheel.py --tree TREE --into FOLDER

The same files give the same bytes. The standard library does it all; nothing is compiled here.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import stat
import sys
import zipfile

HERE = pathlib.Path(__file__).absolute().parent
CHECKOUT = HERE.parent.parent
# The libraries are built on Debian 12, whose glibc is 2.36.
TAG = "py3-none-manylinux_2_36_x86_64"
# What programs need when they run; what others need to build with cotune stays in the tree.
TREE_PATTERNS = ("bin/*", "lib/*.so*", "lib/cotune/plugins/*.so", "include/**/*")
METADATA = """\
Metadata-Version: 2.4
Name: cotune
Version: {version}
Summary: Finds the fastest way to run each collective on a machine, and runs it that way
License-Expression: Apache-2.0
{license_files}Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.10
Description-Content-Type: text/markdown

"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: cotune\nRoot-Is-Purelib: false\nTag: {TAG}\n"
ENTRY_POINTS = "[console_scripts]\ncotune = cotune.__main__:main\n"


def version() -> str:
    header = (CHECKOUT / "integration/capi/cotune.h").read_text()
    numbers = [
        re.search(rf"#define COTUNE_VERSION_{name} (\d+)", header)[1]
        for name in ("MAJOR", "MINOR", "PATCH")
    ]
    return ".".join(numbers)


def package_files() -> dict[str, pathlib.Path]:
    """The files of the package by their names in the wheel, tests excepted."""
    files = {}
    for path in (HERE / "cotune").rglob("*"):
        name = path.relative_to(HERE)
        is_test = path.stem.endswith("_test") or not {"__pycache__", "testing"}.isdisjoint(
            name.parts
        )
        if path.is_file() and not is_test and path.name not in ("BUILD.bazel", "README.md"):
            files[str(name)] = path
    return files


def tree_files(tree: pathlib.Path) -> dict[str, pathlib.Path]:
    """The files of the tree by their names in the wheel. A wheel has no links: only files count."""
    files = {}
    for pattern in TREE_PATTERNS:
        found = [path for path in tree.glob(pattern) if path.is_file() and not path.is_symlink()]
        if not found:
            sys.exit(
                f"build_wheel.py: there is no {pattern} in {tree}; is it a tree of ./dev dist?"
            )
        files |= {f"cotune/tree/{path.relative_to(tree)}": path for path in found}
    return files


def licenses(tree: pathlib.Path) -> dict[str, pathlib.Path]:
    """By their names below licenses/: cotune's own, and those of the libraries in the tree."""
    others = {
        f"{path.parent.name}/{path.name}": path for path in (tree / "licenses").glob("*/copyright")
    }
    return {"LICENSE": CHECKOUT / "LICENSE", **others}


def contents(tree: pathlib.Path) -> dict[str, tuple[bytes, int]]:
    """What every file of the wheel but RECORD has in it, and its mode."""
    info = f"cotune-{version()}.dist-info"
    named = licenses(tree)
    files = package_files() | tree_files(tree)
    files |= {f"{info}/licenses/{name}": path for name, path in named.items()}
    made = {
        name: (path.read_bytes(), 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
        for name, path in files.items()
    }
    license_files = "".join(f"License-File: {name}\n" for name in sorted(named))
    metadata = METADATA.format(version=version(), license_files=license_files)
    metadata += (CHECKOUT / "docs/python.md").read_text()
    for name, text in (
        ("METADATA", metadata),
        ("WHEEL", WHEEL),
        ("entry_points.txt", ENTRY_POINTS),
    ):
        made[f"{info}/{name}"] = (text.encode(), 0o644)
    return made


def record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def write_wheel(path: pathlib.Path, files: dict[str, tuple[bytes, int]], record: str) -> None:
    lines = [record_line(name, content) for name, (content, _) in sorted(files.items())]
    files = files | {record: ("".join([*lines, f"{record},,\n"]).encode(), 0o644)}
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (content, mode) in sorted(files.items()):
            # Neither the time nor the user's mask gets into the file.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    partial.rename(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=pathlib.Path, required=True, help="what `./dev dist` wrote")
    parser.add_argument("--into", type=pathlib.Path, required=True, help="the folder for the wheel")
    arguments = parser.parse_args()
    arguments.into.mkdir(parents=True, exist_ok=True)
    path = arguments.into / f"cotune-{version()}-{TAG}.whl"
    write_wheel(path, contents(arguments.tree), f"cotune-{version()}.dist-info/RECORD")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
