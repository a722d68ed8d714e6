"""Which programs are given back, by the verdicts about them. No ranks."""

import unittest
from unittest import mock

import torch

from cotune.torch import compat, decisions, giving_back
from cotune.torch.collective_key import Key
from cotune.torch.given_back import Verdict
from cotune.torch.giving_back import Candidate


def candidate(name: str, *keys: str) -> Candidate:
    return Candidate(f"program {name}", 8, frozenset(Key("all_reduce", key, 8) for key in keys))


def verdict(cotune_us: float | None, plain_us: float | None) -> Verdict:
    if cotune_us is None:
        return Verdict("p", "program p", 8, why_not="rank 1 could not compile")
    ratio = cotune_us / plain_us
    return Verdict("p", "program p", 8, cotune_us, plain_us, False, (ratio * 0.99, ratio, ratio * 1.01), ratio * 0.99 > 1)


class GivenBackTest(unittest.TestCase):
    def given_back(self, *each: tuple[Candidate, Verdict]) -> list[str]:
        candidates, verdicts = [pair[0] for pair in each], [pair[1] for pair in each]
        return sorted(found.text for found in giving_back._given_back(candidates, verdicts))

    def test_a_program_that_loses_goes_alone(self):
        a, b = candidate("a", "x"), candidate("b", "y")
        self.assertEqual(self.given_back((a, verdict(20, 10)), (b, verdict(10, 20))), ["program a"])
        self.assertEqual(self.given_back((a, verdict(10.05, 10))), [], "the difference is within the noise")

    def test_programs_with_one_collective_go_together(self):
        a, b, c = candidate("a", "x"), candidate("b", "x", "y"), candidate("c", "y")
        pairs = [(a, verdict(20, 10)), (b, verdict(10, 11)), (c, verdict(10, 12))]
        self.assertEqual(self.given_back(*pairs), ["program a", "program b", "program c"])
        # All of them together are faster by cotune.
        pairs[2] = (c, verdict(10, 30))
        self.assertEqual(self.given_back(*pairs), [])

    def test_a_program_without_a_verdict_keeps_its_collectives(self):
        a, b = candidate("a", "x"), candidate("b", "x")
        self.assertEqual(self.given_back((a, verdict(20, 10)), (b, verdict(None, None))), [])

    def test_a_line_for_people(self):
        self.assertEqual(
            str(verdict(20, 10)),
            "p, 8 rows: torch/plain 10.0 us, cotune 20.0 us, ratio 2.000 [1.980, 2.020]; given back to PyTorch",
        )
        self.assertEqual(str(verdict(None, None)), "p, 8 rows: not compared with torch/plain: rank 1 could not compile")


class CompileAnewTest(unittest.TestCase):
    """Functions of this process are compiled, by a backend that only counts."""

    def setUp(self):
        self.compiled: list[str] = []
        decisions.clear()
        self.addCleanup(decisions.clear)
        torch._dynamo.reset()

    def function(self, name: str, is_cached: bool = False):
        """A compiled function whose graph has a program of that name, or came out of a cache."""

        def backend(module, inputs):
            self.compiled.append(name)
            number = compat.compile_id()
            decisions.note_lookup(number, is_compiled=False)
            if not is_cached:
                decisions.note_lookup(number, is_compiled=True)
                held = decisions.ProgramDecision(f"program {name}", "g", [], 1, [8], [])
                decisions.record(1, 0.0, [held], [], compile_id=number)
            return module.forward

        scope: dict = {}
        exec("def f(x):\n    return x + 1", scope)  # code of its own, as each function of a model has
        made = torch.compile(scope["f"], backend=backend)
        made(torch.ones(2))
        return made

    def again(self, *functions) -> list[str]:
        """The names of those that are compiled anew at their next calls."""
        self.compiled.clear()
        for each in functions:
            self.assertTrue(torch.equal(each(torch.ones(2)), torch.full((2,), 2.0)))
        return self.compiled

    def test_only_functions_with_these_programs(self):
        functions = [self.function("a"), self.function("b")]
        giving_back.compile_anew("g", {"program a"})
        self.assertEqual(self.again(*functions), ["a"])
        giving_back.compile_anew("h", {"program b"})
        self.assertEqual(self.again(*functions), [], "another process group has the program")

    def test_programs_of_nobody_forget_only_what_came_out_of_a_cache(self):
        functions = [self.function("a"), self.function("b", is_cached=True), self.function("c")]
        giving_back.compile_anew("g", {"program x"})
        self.assertEqual(self.again(*functions), ["b"])
        giving_back.compile_anew("g", set())
        self.assertEqual(self.again(*functions), [])

    def test_a_torch_without_a_list_forgets_nothing(self):
        functions = [self.function("a"), self.function("b")]
        real = compat.fetch
        with (
            mock.patch.object(compat, "fetch", lambda module, *path: None if path == ("input_codes", "seen") else real(module, *path)),
            self.assertLogs("cotune", "WARNING") as logs,
        ):
            giving_back.compile_anew("g", {"program a"})
        self.assertIn("torch.compiler.reset()", logs.output[0])
        self.assertEqual(self.again(*functions), [])


if __name__ == "__main__":
    unittest.main()
