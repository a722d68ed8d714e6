"""Functions of the caller as choices of a group, on real ranks that exchange bytes over sockets of their own."""

import array
import ctypes
import dataclasses
import socket
import sys
import unittest

sys.path.insert(0, "integration/python")

import cotune
from cotune import Function, FunctionCall, FunctionGroup, Functions, UnsupportedError, UsageError
from testing.ranks import Job, RanksTest

COUNT = 257


def sent(rank: int, call: int = 0, count: int = COUNT) -> list[float]:
    return [float((7 * i + 3 * rank + call) % 11 - 5) for i in range(count)]


@dataclasses.dataclass
class Mesh:
    """A connection to each other rank; None for the rank itself."""

    job: Job
    opened: list[FunctionGroup] = dataclasses.field(default_factory=list)
    closed: int = 0

    def open(self, made: FunctionGroup) -> list[socket.socket | None]:
        """Rank r listens for the ranks above it."""
        self.opened.append(made)
        key = f"{self.job.id}.{made.name}".replace("/", "_")  # the folder is that of all jobs of a test
        links: list[socket.socket | None] = [None] * made.world_size
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.job.path(f"{key}.{made.rank}")))
        listener.listen()
        self.job.say(f"{key}.{made.rank}")
        for below in range(made.rank):
            self.job.await_word(f"{key}.{below}")
            links[below] = socket.socket(socket.AF_UNIX)
            links[below].connect(str(self.job.path(f"{key}.{below}")))
            links[below].sendall(bytes([made.rank]))
        for _ in range(made.rank + 1, made.world_size):
            link, _ = listener.accept()
            links[link.recv(1)[0]] = link
        listener.close()
        return links

    def close(self, links: list[socket.socket | None]) -> None:
        self.closed += 1
        for link in links:
            if link is not None:
                link.close()


def bytes_of(memory: cotune.Operand, dtype: type = ctypes.c_float) -> ctypes.Array:
    return (dtype * memory.count).from_address(memory.address)


def exchanged(call: FunctionCall) -> list[list[float]]:
    """The operands of all ranks."""
    own = bytes_of(call.send)
    everyone = [list(own) for _ in range(call.world_size)]
    for peer, link in enumerate(call.group):
        if link is None:
            continue
        # The lower rank sends first, so that no two wait for each other.
        for sends in (call.rank < peer, call.rank > peer):
            if sends:
                link.sendall(bytes(own))
            else:
                data = b""
                while len(data) < 4 * call.send.count:
                    part = link.recv(4 * call.send.count - len(data))
                    if not part:
                        raise ConnectionError(f"rank {peer} is gone")
                    data += part
                everyone[peer] = list(array.array("f", data))
    return everyone


def writes(call: FunctionCall) -> None:
    sums = [sum(each) for each in zip(*exchanged(call), strict=True)]
    bytes_of(call.recv)[:] = sums
    bytes_of(call.send)[:] = [99.0] * call.send.count  # it may


def returns(call: FunctionCall) -> array.array:
    return array.array("f", [sum(each) for each in zip(*exchanged(call), strict=True)])


def gathers(call: FunctionCall) -> array.array:
    return array.array("f", [value for each in exchanged(call) for value in each])


FUNCTIONS = [
    Function("writes", writes, ["all_reduce"], dtypes=["f32"], reductions=["sum"]),
    Function("returns?how=array", returns, ["all_reduce"], ["f32"], ["sum"]),
    Function("gathers", gathers, ["all_gather"], ["f32"]),
]


def calls_by_functions(rank: int, job: Job) -> dict:
    mesh = Mesh(job)
    functions = Functions(FUNCTIONS, name="mesh", version="3", open=mesh.open, close=mesh.close)
    found: dict = {}
    with job.group(rank, functions=functions, backends=["mesh"]) as group:
        group.tune(collectives=["all_reduce"], sizes=[4 * COUNT], database=None)
        found["explain"] = group.explain_dict("all_reduce", COUNT)
        try:
            group.all_reduce(array.array("f", sent(rank)), op="max")
        except UnsupportedError as failure:
            found["refused"] = str(failure)
        for call in range(3):
            data, result = array.array("f", sent(rank, call)), array.array("f", [0.0] * COUNT)
            group.all_reduce(data, result)
            found["out", call] = list(result), list(data) == sent(rank, call)
            group.all_reduce(data)
            found["in", call] = list(data)
        gathered = array.array("f", [0.0] * (COUNT * job.size))
        group.all_gather(array.array("f", sent(rank)), gathered)
        found["gathered"] = list(gathered)
    return found | {"opened": [dataclasses.astuple(each)[1:5] for each in mesh.opened], "closed": mesh.closed}


def faults_on_one_rank(rank: int, job: Job) -> dict:
    def wrong(call: FunctionCall) -> array.array:
        return array.array("f", [sum(each) + (rank == 1) for each in zip(*exchanged(call), strict=True)])

    def raises(call: FunctionCall) -> array.array:
        if rank == 1:
            raise LookupError("no route\nat all")
        return returns(call)

    def short(call: FunctionCall) -> array.array:
        return returns(call)[1:]

    mesh = Mesh(job)
    listed = [Function(each.__name__, each, ["all_reduce"]) for each in (wrong, raises, short)]
    functions = Functions([*listed, *FUNCTIONS[:2]], open=mesh.open, close=mesh.close)
    with job.group(rank, functions=functions) as group:
        group.tune(collectives=["all_reduce"], sizes=[4 * COUNT], database=None)
        found = group.explain_dict("all_reduce", COUNT)["measured"][0]["choices"]
        data = array.array("f", sent(rank))
        group.all_reduce(data)
    return {
        "choices": {each["choice"]: (each["outcome"], each["reason"]) for each in found},
        "sum": list(data),
        "opened": len(mesh.opened),
        "closed": mesh.closed,
    }


def usage(rank: int, job: Job) -> list[str]:
    texts = []
    for functions in (
        Functions([]),
        Functions([Function("Big", returns, ["all_reduce"])]),
        Functions([Function("a", returns, ["all_reduced"])]),
        Functions([Function("a", returns, [])]),
        Functions([Function("a", returns, ["all_reduce"]), Function("a", writes, ["all_reduce"])]),
        Functions([Function("a", returns, ["all_reduce"])], name="host"),
        Functions([Function("a", returns, ["all_reduce"])], name="Host"),
    ):
        try:
            job.group(rank, name=str(len(texts)), functions=functions).destroy()
            texts.append("")
        except UsageError as failure:
            texts.append(str(failure))
    return texts


def total(size: int, call: int = 0) -> list[float]:
    return [sum(each) for each in zip(*(sent(rank, call) for rank in range(size)), strict=True)]


class FunctionsTest(RanksTest):
    def test_functions_run_calls(self):
        for size in (2, 3):
            for rank, found in enumerate(self.run_ranks(calls_by_functions, size)):
                choices = {each["choice"]: each["outcome"] for each in found["explain"]["measured"][0]["choices"]}
                self.assertEqual(sorted(choices), ["mesh/returns?how=array", "mesh/writes"])
                self.assertIn("timed", choices.values())
                self.assertIn("does not run max", found["refused"])
                for call in range(3):
                    self.assertEqual(found["out", call], (total(size, call), True))
                    self.assertEqual(found["in", call], total(size, call))
                self.assertEqual(found["gathered"], [value for each in range(size) for value in sent(each)])
                self.assertEqual(found["opened"], [(rank, size, tuple(range(size)), None)])
                self.assertEqual(found["closed"], 1)

    def test_a_fault_on_one_rank(self):
        for found in self.run_ranks(faults_on_one_rank):
            self.assertEqual(found["sum"], total(2))
            choices = found["choices"]
            for choice in ("caller/writes", "caller/returns?how=array", "host/two_shot?chunk=65536"):
                self.assertIn(choices[choice][0], ("timed", "outpaced"), choices[choice])
            self.assertRegex(choices["caller/wrong"][1], "rank 1: .*wrong")
            self.assertRegex(choices["caller/raises"][1], "rank 1: function caller/raises has failed: LookupError: no route at all")
            self.assertRegex(choices["caller/short"][1], "has 256 elements of f32")
            self.assertEqual(found["opened"], found["closed"])
            self.assertGreater(found["opened"], 1)

    def test_what_cannot_be(self):
        texts = self.run_ranks(usage, 1)[0]
        for text, expected in zip(texts, (
            "there is no function", "'Big' cannot be the name of a choice", "there is no Collective 'all_reduced'",
            "has the collectives 0", "two functions have the name caller/a", "there is a backend 'host' already",
            "'Host' cannot be the name of functions",
        ), strict=True):  # fmt: skip
            self.assertIn(expected, text)


if __name__ == "__main__":
    unittest.main()
