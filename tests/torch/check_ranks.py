"""A rank of cotune.torch.check, in which rank 1 has a fault.

usage: check_ranks.py CASE [ARGUMENT...]

CASE: "none"; "values": its operands are not those that the other ranks expect; "never": it does not come to the first step's
end; "versions": its cotune has another version; "list": its list of forced choices cannot be read; "stuck": it hangs in C code, where SIGTERM comes. The arguments are those of the check.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

import cotune
from cotune.torch import check


def hang_in_c(self: check.Check) -> str:
    """Locks a mutex twice, which no signal interrupts. Another thread sends SIGTERM as soon as the call waits."""
    mutex, library = ctypes.create_string_buffer(128), ctypes.CDLL(None)
    state = f"/proc/self/task/{threading.get_native_id()}/syscall"

    def terminate() -> None:
        waits_on = hex(ctypes.addressof(mutex))
        while waits_on not in open(state).read().split():
            os.sched_yield()
        os.kill(os.getpid(), signal.SIGTERM)

    library.pthread_mutex_lock(mutex)
    threading.Thread(target=terminate, daemon=True).start()
    library.pthread_mutex_lock(mutex)
    raise AssertionError("the mutex was locked twice")


def main() -> int:
    case = sys.argv.pop(1)
    if os.environ["RANK"] == "1":
        if case == "values":
            right = check._operand
            check._operand = lambda rank, call, device: right(rank, call, device) + (rank == 1 and call == 0)
        elif case == "never":
            check.Check.detection = lambda self: threading.Event().wait()
        elif case == "stuck":
            check.Check.plain_call = hang_in_c
        elif case == "list":
            os.environ["COTUNE_FORCE_CHOICE"] = "all_reduce=host/ring,,"
        elif case == "versions":
            cotune.version = lambda: "9.9.9"
    return check.main()


if __name__ == "__main__":
    sys.exit(main())
