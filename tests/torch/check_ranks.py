"""A rank of cotune.torch.check, in which rank 1 has a fault.

usage: check_ranks.py CASE [ARGUMENT...]

CASE: "none"; "values": its operands are not those that the other ranks expect; "never": it does not come to the first step's
end; "versions": its cotune has another version. The arguments are those of the check.
"""

from __future__ import annotations

import os
import sys
import threading

import cotune
from cotune.torch import check


def main() -> int:
    case = sys.argv.pop(1)
    if os.environ["RANK"] == "1":
        if case == "values":
            right = check._operand
            check._operand = lambda rank, call, device: right(rank, call, device) + (rank == 1 and call == 0)
        elif case == "never":
            check.Check.detection = lambda self: threading.Event().wait()
        elif case == "versions":
            cotune.version = lambda: "9.9.9"
    return check.main()


if __name__ == "__main__":
    sys.exit(main())
