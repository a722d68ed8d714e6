"""Writes the kernel sources into a C++ file, so that the plugin carries them.

usage: embed.py OUTPUT FILE...
"""

import pathlib
import sys


def main() -> None:
    output, *files = sys.argv[1:]
    # A string literal may hold 64 KiB at most; none of the files comes near.
    entries = "".join(
        f'    {{"{pathlib.Path(f).name}", R"cotune_source({pathlib.Path(f).read_text()})cotune_source"}},\n'
        for f in files
    )
    pathlib.Path(output).write_text(
        '#include "plugins/cuda/kernels/kernel_sources.h"\n\n'
        "namespace cotune::cuda {\n\n"
        f"static const KernelFile kFiles[] = {{\n{entries}}};\n"
        "const std::span<const KernelFile> kKernelFiles = kFiles;\n\n"
        "}  // namespace cotune::cuda\n"
    )


if __name__ == "__main__":
    main()
