"""The life of a group: errors, logs, stores, splits, threads, forks, and ends of every kind."""

import array
import gc
import logging
import os
import signal
import sys
import threading
import unittest
import warnings

sys.path.insert(0, "integration/python")

import cotune
from cotune import AbortedError, CotuneError, MachineError, RankLostError, UsageError
from testing.ranks import Job, RanksTest


def sum_of(group: cotune.Group, value: float = 1.0) -> float:
    values = array.array("d", [value])
    group.all_reduce(values)
    return values[0]


def text_of(call, error: type[CotuneError] = UsageError) -> str:
    """The text of the error that the call must raise."""
    try:
        call()
    except error as failure:
        assert type(failure) is error, failure
        return str(failure)
    raise AssertionError(f"no {error.__name__}")


def await_busy(group: cotune.Group) -> None:
    """Until another thread is in a call of the group."""
    while True:
        try:
            group.check()
        except UsageError:
            return


def insist(group: cotune.Group) -> None:
    """A call by a second thread, which may meet a call of await_busy()."""
    while True:
        try:
            sum_of(group)
        except UsageError:
            continue
        return


def refuse_wrong_buffers(rank: int, job: Job) -> dict[str, str]:
    floats = array.array("f", [1] * 8)
    with job.group(rank) as group:
        texts = {
            "dtype": text_of(lambda: group.all_reduce(array.array("I", [1]))),
            "object": text_of(lambda: group.all_reduce([1.0, 2.0])),
            "gaps": text_of(lambda: group.all_reduce(memoryview(floats)[::2])),
            "read-only": text_of(lambda: group.all_reduce(floats, bytes(32))),
            "types": text_of(lambda: group.all_reduce(floats, array.array("i", [0] * 8))),
            "count": text_of(lambda: group.all_reduce(floats, array.array("f", [0] * 7))),
            "gather": text_of(lambda: group.all_gather(floats, array.array("f", [0] * 8))),
            "scatter": text_of(lambda: group.reduce_scatter(floats, array.array("f", [0] * 8))),
            "blocks": text_of(lambda: group.all_to_all(array.array("f", [0] * 7))),
            "op": text_of(lambda: group.all_reduce(floats, op="mean")),
            "root": text_of(lambda: group.broadcast(floats, root=2)),
            "bytes": text_of(lambda: group.all_reduce(array.array("b", [1]))),
            "stream": text_of(lambda: group.set_stream(None)),
            "memory": text_of(lambda: group.allocate(4096), cotune.UnsupportedError),
        }
        assert group.device is None
        # None of these has begun anything.
        assert sum_of(group, rank + 1) == 3
    texts["destroyed"] = text_of(lambda: group.all_reduce(floats))
    group.destroy()
    group.abort()
    return texts


def log_of_a_group(rank: int, job: Job) -> list[tuple[int, str]]:
    lines = []
    with job.group(rank, log=lambda level, text: lines.append((level, text))) as group:
        sum_of(group)
    logged = []
    logger = logging.Logger("cotune")
    handler = logging.Handler()
    handler.emit = lambda record: logged.append((record.levelno, record.getMessage()))
    logger.addHandler(handler)
    with job.group(rank, "logger", log=logger) as group:
        sum_of(group)
    assert logged == lines, (logged, lines)
    return lines


def interrupt_in_log(rank: int, job: Job) -> str:
    def log(level: int, text: str) -> None:
        raise KeyboardInterrupt

    raised = ""
    with job.group(rank, log=log) as group:
        try:
            sum_of(group)
        except KeyboardInterrupt:
            raised = "after the call"
        assert sum_of(group) == 2
    return raised


def interrupt_in_tune(rank: int, job: Job) -> tuple[str, int, int]:
    cells = []

    def progress(cell: int, *_) -> None:
        if cell in cells:  # within a long cell progress is called again
            return
        cells.append(cell)
        if rank == 0 and len(cells) == 2:
            signal.raise_signal(signal.SIGINT)

    raised = ""
    arguments = {"collectives": ["broadcast"], "sizes": [1024, 2048, 4096], "database": job.path("tuned.tdb")}
    with job.group(rank) as group:
        try:
            group.tune(**arguments, progress=progress)
        except (KeyboardInterrupt, cotune.CallInterruptedError) as error:
            raised = type(error).__name__
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert sum_of(group) == 2
        return raised, len(cells), group.tune(**arguments).known


def interrupt_without_progress(rank: int, job: Job) -> tuple[str, bool]:
    """SIGINT comes to rank 0 while it measures and runs no Python code, in the second cell of rank 1."""
    told, sent = job.path("told"), job.path("sent")
    if rank == 0:
        os.mkfifo(told)
        os.mkfifo(sent)

    def interrupt() -> None:
        open(told, "rb").close()  # waits for rank 1
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        open(sent, "wb").close()

    cells = []

    def progress(cell: int, *_) -> None:
        if cell in cells:  # within a long cell progress is called again
            return
        cells.append(cell)
        if cell == 2:
            open(told, "wb").close()
            open(sent, "rb").close()

    raised = ""
    with job.group(rank) as group:
        sender = threading.Thread(target=interrupt)
        if rank == 0:
            sender.start()
        try:
            sizes = [256 << i for i in range(12)]
            group.tune(collectives=["all_reduce"], sizes=sizes, progress=progress if rank == 1 else None)
        except (KeyboardInterrupt, cotune.CallInterruptedError) as error:
            raised = type(error).__name__
        if rank == 0:
            sender.join()
        assert sum_of(group) == 2
    return raised, len(cells) < 12


def handler_in_tune(rank: int, job: Job) -> tuple[list[int], int, str]:
    """A handler of the program's own takes note of the signal, and the tune goes on."""
    noted, cells = [], []
    signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    mine = signal.getsignal(signal.SIGINT)

    def progress(cell: int, *_) -> None:
        if cell not in cells:  # within a long cell progress is called again
            cells.append(cell)
        if rank == 0:
            signal.raise_signal(signal.SIGINT)

    with job.group(rank) as group:
        measured = group.tune(collectives=["broadcast"], sizes=[1024, 2048], progress=progress).measured
        assert sum_of(group) == 2
    assert signal.getsignal(signal.SIGINT) is mine
    return noted, measured, ",".join(map(str, cells))


class SharedStore:
    """A folder with a file for each key."""

    def __init__(self, job: Job):
        self.folder = job.path("store")
        self.folder.mkdir(exist_ok=True)
        self.calls = []

    def _path(self, key: str):
        return self.folder / key.replace("/", "_")

    def put(self, key: str, value: bytes, timeout_s: float) -> None:
        self.calls.append("put")
        partial = self._path(key).with_suffix(f".{os.getpid()}")
        partial.write_bytes(value)
        partial.rename(self._path(key))

    def get(self, key: str, timeout_s: float) -> bytes:
        self.calls.append("get")
        end = os.times().elapsed + timeout_s
        while not self._path(key).exists():
            if os.times().elapsed > end:
                raise TimeoutError(key)
            os.sched_yield()
        return self._path(key).read_bytes()

    def erase(self, key: str, timeout_s: float) -> None:
        self.calls.append("erase")
        self._path(key).unlink(missing_ok=True)


class BrokenStore(SharedStore):
    def put(self, key: str, value: bytes, timeout_s: float) -> None:
        raise ZeroDivisionError("the store is broken")


class EmptyStore(SharedStore):
    def get(self, key: str, timeout_s: float) -> bytes:
        raise TimeoutError


def meet_by_store(rank: int, job: Job) -> list[str]:
    store = SharedStore(job)
    with job.group(rank, job_id=None, store=store) as group:
        assert sum_of(group, rank + 1) == 3
    assert not any(store.folder.iterdir())
    return store.calls


def meet_by_broken_store(rank: int, job: Job) -> tuple:
    store = (BrokenStore, EmptyStore)[rank](job)
    try:
        job.group(rank, job_id=None, store=store, join_timeout_s=0.2)
    except CotuneError as failure:
        return type(failure), repr(failure.__cause__)
    raise AssertionError("the group was made")


def split_and_cross(rank: int, job: Job) -> list[float]:
    sums = []
    with job.group(rank) as first, job.group(rank, "second") as second:
        part = first.split("even" if rank % 2 == 0 else "odd", [rank % 2, rank % 2 + 2])
        sums += [sum_of(first, rank + 1), sum_of(part, rank + 1), sum_of(second, 10)]
        assert (part.rank, part.size) == (rank // 2, 2)
        assert "has 0 characters" in text_of(lambda: first.split("", [0]))
        first.destroy()
        sums += [sum_of(part, rank + 1), sum_of(second, 10)]
        part.destroy()
    return sums


def call_from_two_threads(rank: int, job: Job) -> str:
    with job.group(rank) as group:
        if rank == 1:
            job.await_word("busy")
            assert sum_of(group) == 2
            return ""
        caller = threading.Thread(target=insist, args=(group,))
        caller.start()
        await_busy(group)
        texts = text_of(group.check), text_of(group.destroy)
        job.say("busy")
        caller.join()
        assert texts[0] == texts[1]
        return texts[0]


def abort_a_waiting_call(rank: int, job: Job) -> list[str]:
    group = job.group(rank)
    if rank == 1:
        job.await_word("aborted")
        return [text_of(lambda: sum_of(group), AbortedError)]
    texts = []
    caller = threading.Thread(
        target=lambda: texts.append(text_of(lambda: insist(group), AbortedError))
    )
    caller.start()
    await_busy(group)
    group.abort("enough of it")
    caller.join()
    job.say("aborted")
    texts.append(text_of(group.check, AbortedError))
    group.destroy()
    return texts


def drop_a_group(rank: int, job: Job) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = job.group(rank)
        assert sum_of(group) == 2
        del group
        gc.collect()
        with job.group(rank, "next") as following:
            assert sum_of(following) == 2


class GroupTest(RanksTest):
    def test_buffers_that_do_not_fit_are_refused_before_anything_runs(self):
        for texts in self.run_ranks(refuse_wrong_buffers):
            for key, words in {
                "dtype": "cotune has no elements of type 'I' (all_reduce: send)",
                "object": "a list is no buffer",
                "gaps": "the buffer is not contiguous",
                "read-only": "the buffer is read-only (all_reduce: recv)",
                "types": "send has f32 and recv has i32",
                "count": "recv has 7 elements, and needs 8",
                "gather": "recv has 8 elements, and needs 16 (all_gather): 2 ranks send 8",
                "scatter": "send has 8 elements, and needs 16",
                "blocks": "7 elements cannot be divided into 2 equal blocks",
                "op": "there is no Reduction 'mean'",
                "root": "root",
                "bytes": "i8 has no sum",
                "stream": "calls on host memory run on no stream",
                "memory": "",
                "destroyed": "the group is destroyed",
            }.items():
                self.assertIn(words, texts[key])
                # What (where), and a cause or what to do.
                self.assertRegex(texts[key], r"^[^\n]+$")

    def test_options_that_do_not_fit(self):
        for options, words in (
            ({"rank": 0}, "one of rank and world_size"),
            ({"rank": 0, "world_size": 0}, "world_size is 0"),
            ({"rank": 2, "world_size": 2}, "rank 2 is not a rank of world size 2"),
            ({"rank": 0, "world_size": 2}, "neither job_id nor socket_path nor store"),
            ({"memory": "disk"}, "there is no GroupMemory 'disk'"),
            ({"join_timeout_s": -1}, "no positive time (join_timeout_s)"),
        ):
            with self.subTest(**options), self.assertRaises(UsageError) as raised:
                cotune.Group(**options)
            self.assertIn(words, str(raised.exception))
            self.assertEqual(cotune.exit_code(raised.exception), 2)

    def test_a_group_of_one(self):
        plugins = f"{self.folder}/plugins"
        with cotune.Group(
            0, 1, plugin_path=[plugins], backends=["host"], log=lambda *_: None
        ) as group:
            self.assertEqual((group.rank, group.size), (0, 1))
            self.assertEqual(sum_of(group, 5), 5)
        self.assertEqual(repr(group), "<cotune.Group rank 0 of 1>")

    def test_log_lines_reach_a_function_and_a_logger(self):
        lines, others = self.run_ranks(log_of_a_group)
        self.assertEqual(others, [])
        self.assertEqual([level for level, _ in lines], [logging.INFO])
        self.assertIn("default choice", lines[0][1])

    def test_a_log_that_raises_does_not_stop_the_call(self):
        source = """
import array
def log(level, text): raise LookupError("my log is broken")
with job.group(rank, log=log) as group:
    values = array.array("f", [rank + 1])
    group.all_reduce(values)
    print(values[0])
"""
        ended = self.run_scripts(source, source)
        self.assertEqual([each.stdout for each in ended], ["3.0\n", "3.0\n"])
        self.assertIn("the log raised an exception at the line: ", ended[0].stderr)
        self.assertIn("LookupError: my log is broken", ended[0].stderr)

    def test_ctrl_c_in_a_log_is_raised_when_the_call_has_ended(self):
        self.assertEqual(self.run_ranks(interrupt_in_log), ["after the call", ""])

    def test_ctrl_c_ends_a_tune_before_its_next_cell(self):
        ends = self.run_ranks(interrupt_in_tune)
        self.assertEqual(ends, [("KeyboardInterrupt", 2, 1), ("CallInterruptedError", 2, 1)])

    def test_a_handler_of_the_programs_own_does_not_end_a_tune(self):
        (noted, *first), second = self.run_ranks(handler_in_tune)
        self.assertEqual(first, [2, "1,2"])
        self.assertEqual(second, ([], 2, "1,2"))
        self.assertEqual(set(noted), {signal.SIGINT})

    def test_ctrl_c_ends_a_tune_that_nobody_listens_to(self):
        ends = self.run_ranks(interrupt_without_progress)
        self.assertEqual(ends, [("KeyboardInterrupt", True), ("CallInterruptedError", True)])

    def test_ranks_meet_by_a_store(self):
        first, second = self.run_ranks(meet_by_store)
        self.assertEqual(set(first), {"put", "erase"})
        self.assertEqual(set(second), {"get"})

    def test_a_store_that_raises_is_the_cause_of_the_error(self):
        (error, cause), (other, none) = self.run_ranks(meet_by_broken_store)
        self.assertEqual((error, cause), (MachineError, "ZeroDivisionError('the store is broken')"))
        self.assertEqual((other, none), (RankLostError, "None"))

    def test_two_groups_and_split_ones_are_independent(self):
        for rank, sums in enumerate(self.run_ranks(split_and_cross, 4)):
            part = 1 + 3 if rank % 2 == 0 else 2 + 4
            self.assertEqual(sums, [10, part, 40, part, 40])

    def test_a_second_thread_is_told(self):
        self.assertIn("another thread is in a call", self.run_ranks(call_from_two_threads)[0])

    def test_abort_from_another_thread_ends_a_call_that_waits(self):
        for texts in self.run_ranks(abort_a_waiting_call):
            for text in texts:
                self.assertIn("enough of it", text)

    def test_a_group_without_references_is_destroyed(self):
        self.run_ranks(drop_a_group)


class EndTest(RanksTest):
    """Ends of processes: only a main program runs what is registered for its end."""

    def test_a_process_that_ends_leaves_its_group(self):
        ended = self.run_scripts(
            "group = job.group(rank); group.check(); job.say('made'); job.await_word('over')",
            """
from cotune import CotuneError
import array
group = job.group(rank)
job.await_word('made')
job.say('over')
try:
    while True:
        group.all_reduce(array.array('f', [1]))
except CotuneError as error:
    print(type(error).__name__, error)
""",
        )
        self.assertEqual([each.returncode for each in ended], [0, 0], ended)
        self.assertEqual(ended[0].stderr, "")
        self.assertIn("RankLostError", ended[1].stdout)
        self.assertIn("rank 0", ended[1].stdout)

    def test_a_forked_child_leaves_the_group_alone(self):
        source = """
import array, os, sys
from cotune import UsageError
import cotune
group = job.group(rank)
child = os.fork()
if child == 0:
    try:
        group.all_reduce(array.array('f', [1]))
    except UsageError as error:
        assert 'forked' in str(error), error
    else:
        os._exit(1)
    group.destroy()
    with cotune.Group(0, 1, plugin_path=f'{job.folder}/plugins') as own:
        values = array.array('f', [7])
        own.all_reduce(values)
        assert values[0] == 7
    sys.exit(0)  # runs what is registered for the end of a process
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
job.say(f'waited{rank}')
job.await_word('waited0')
job.await_word('waited1')
values = array.array('f', [rank + 1])
group.all_reduce(values)
print(values[0])
"""
        ended = self.run_scripts(source, source)
        self.assertEqual([each.stdout for each in ended], ["3.0\n", "3.0\n"], ended)

    def test_a_child_that_is_forked_during_a_call_of_another_thread(self):
        ended = self.run_scripts(
            """
import array, os, sys, threading
from cotune import UsageError
group = job.group(rank)
values = array.array('f', [1])
caller = threading.Thread(target=group.all_reduce, args=(values,))
caller.start()
try:
    while True:
        group.check()
except UsageError as error:
    assert 'another thread' in str(error), error
child = os.fork()
if child == 0:
    try:
        group.check()
    except UsageError as error:
        assert 'forked' in str(error), error
        sys.exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
job.say('waited')
caller.join()
print(values[0])
""",
            """
import array
group = job.group(rank)
job.await_word('waited')
group.all_reduce(array.array('f', [2]))
""",
        )
        self.assertEqual([each.returncode for each in ended], [0, 0], ended)
        self.assertEqual(ended[0].stdout, "3.0\n")

    def test_a_thread_in_a_call_does_not_hold_the_end(self):
        ended = self.run_scripts(
            """
import array, threading
from cotune import AbortedError, UsageError
group = job.group(rank)
def wait_for_ever():
    try:
        group.all_reduce(array.array('f', [1]))
    except AbortedError:  # a daemon that prints while Python ends makes it crash
        pass
threading.Thread(target=wait_for_ever, daemon=True).start()
while True:
    try:
        group.check()
    except UsageError:
        break
""",
            """
import array
from cotune import AbortedError
group = job.group(rank)
try:
    while True:
        group.check()
except AbortedError as error:
    print(error)
""",
        )
        self.assertEqual(ended[0].returncode, 0, ended[0])
        self.assertIn("the process ends while a thread is in a call", ended[1].stdout)


if __name__ == "__main__":
    unittest.main()
