"""Runs the command line (docs/cli.md): the program bin/cotune of the tree that has the library."""

import os
import sys

from cotune import _native


def main() -> int:
    program = _native.tree() / "bin" / "cotune"
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as failure:
        print(
            f"cotune: the program cannot be started ({program}): {failure.strerror}; install the "
            "wheel of `./dev wheel DIR`, or call bin/cotune of a tree of `./dev dist DIR`",
            file=sys.stderr,
        )
    return 3


if __name__ == "__main__":
    sys.exit(main())
