"""Graphs out of the caches of some ranks and beside other threads, and operators that are called by hand."""

import datetime
import json
import re
import shutil
import sys
import unittest

from testing.torchrun import Tree

RANKS = 2
NO_GRAPH = "no graph with a collective was compiled"


class GraphsTest(unittest.TestCase):
    def run_case(self, case: str, tree: Tree, **environment: str):
        ended = tree.start(RANKS, "graph_ranks.py", case, **environment)
        self.assertEqual(ended.exit_code, 0, ended.text)
        records = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
        records.sort(key=lambda each: each["rank"])
        self.assertEqual([each["rank"] for each in records], list(range(RANKS)), ended.text)
        for each in records:
            self.assertEqual(each["error"], "", ended.text)
        return records, ended

    def test_caches_of_all_ranks_of_none_and_of_one(self):
        tree = Tree()
        caches = str(tree.folder / "inductor")
        _, ended = self.run_case("other_rows", tree, OWN_CACHE=caches, ROWS="24")
        self.assertEqual(ended.err.count(" tuned in "), 1, ended.text)
        for lost, rows in (((), "40"), ((1,), "1000"), ((0, 1), "3")):
            with self.subTest(lost=lost):
                for rank in lost:
                    shutil.rmtree(caches + str(rank))
                records, ended = self.run_case("other_rows", tree, OWN_CACHE=caches, ROWS=rows)
                compiled = {each["rank"] for each in records if NO_GRAPH not in each["explains"]}
                self.assertEqual(compiled, set(lost), ended.text)
                self.assertEqual([each["plain"] for each in records], [False] * RANKS, ended.text)
                # All ranks know the sizes that the first start has measured.
                self.assertLessEqual(ended.err.count(" tuned in "), 1, ended.text)

    def test_python_runs_while_an_operator_waits(self):
        for wrapper in ("0", "1"):
            with self.subTest(cpp_wrapper=wrapper):
                records, ended = self.run_case("waits", Tree(), TORCHINDUCTOR_CPP_WRAPPER=wrapper)
                self.assertEqual(records[0]["beats"], 200, ended.text)
                self.assertFalse(records[0]["plain"], ended.text)

    def test_results_are_tensors_of_their_own(self):
        for without, plain in (((), False), (("cotune_host.so",), True)):
            with self.subTest(plain=plain):
                records, ended = self.run_case("own_tensors", Tree(without=without))
                self.assertEqual([each["plain"] for each in records], [plain] * RANKS, ended.text)

    def test_a_later_start_explains_what_runs(self):
        """Compiled here and measured here; out of the caches; compiled anew, with the results of the database."""
        tree = Tree()
        caches = str(tree.folder / "inductor")
        began = datetime.date.today()
        names = ("Block.forward" if sys.version_info >= (3, 11) else "forward", "gathered")
        winners = None
        for start, is_from_cache, since in (
            ("first", False, "measured by this process"), ("out of the cache", True, "from the database, "),
            ("anew", False, "from the database, "),
        ):  # fmt: skip
            if start == "anew":
                for rank in range(RANKS):
                    shutil.rmtree(caches + str(rank))
            with self.subTest(start=start):
                records, ended = self.run_case("explains", tree, OWN_CACHE=caches, COTUNE_KEEP_UNSTEADY="on")
                self.assertEqual(ended.err.count("TUNE "), 2 if start == "first" else 0, ended.text)
                text = records[0]["explains"]
                self.assertEqual("out of a cache:" in text, is_from_cache, text)
                programs = [each for graph in records[0]["data"] for each in graph["programs"]]
                self.assertEqual([each["name"] for each in programs], ["all_reduce_add_relu", "all_gather_mul"], text)
                for program, name in zip(programs, names, strict=True):
                    origin, (size,) = program["origin"], program["sizes"]
                    self.assertEqual((origin["function"], origin["file"].rpartition("/")[2]), (name, "graph_ranks.py"), text)
                    self.assertEqual((size["rows"], size["source"]), (8, "table"), text)
                    self.assertGreater(size["time_us"], 0, text)
                    self.assertAlmostEqual(size["gain"], size["default_time_us"] / size["time_us"])
                    gain = "default" if size["is_default"] else f"{size['gain']:.2f}x"
                    self.assertRegex(text, rf"\n  program {program['name']} of {name} \(.*graph_ranks\.py:{origin['line']}\): group 0")
                    measured = datetime.date.fromtimestamp(size["measured_unix_s"])
                    self.assertTrue(began <= measured <= datetime.date.today(), measured)
                    day = measured.isoformat() if since.endswith(" ") else ""
                    row = rf"\n +8  {re.escape(size['choice'])} +{size['time_us']:.1f} us +{gain}  {since}{day}"
                    self.assertRegex(text, row)
                found = [(each["sizes"][0]["choice"], each["sizes"][0]["time_us"]) for each in programs]
                winners = winners or found
                self.assertEqual(found, winners, ended.text)
                self.assertIn("; 2 programs are tuned", text.splitlines()[-1])

    def check_arguments(self, tree: Tree, plain: bool) -> list[str]:
        records, ended = self.run_case("arguments", tree)
        for each in records:
            self.assertEqual(each["plain"], plain, ended.text)
            for text in each["raised"][2:]:
                self.assertIn("of bool takes min or max", text)
        return records[0]["raised"]

    def assert_names_the_ranks(self, raised: list[str]) -> None:
        self.assertIn("all_gather is given world_size=3, and the group has 2 ranks", raised[0])
        self.assertIn("reduce_scatter is given world_size=4, and the group has 2 ranks", raised[1])

    def test_arguments_that_cannot_be(self):
        self.assert_names_the_ranks(self.check_arguments(Tree(), plain=False))

    def test_arguments_that_cannot_be_without_the_library(self):
        self.assert_names_the_ranks(self.check_arguments(Tree(without=("libcotune_torch.so",)), plain=True))

    def test_arguments_that_cannot_be_in_a_plain_group(self):
        raised = self.check_arguments(Tree(without=("cotune_host.so",)), plain=True)
        for text in raised[:2]:
            self.assertIn("runs by PyTorch's own collectives", text)

    def test_operators_that_are_declared_and_what_cotune_does_not_see(self):
        tree = Tree()
        # A rank that takes the graphs of the other one from a cache has compiled none.
        records, ended = self.run_case("unseen", tree, OWN_CACHE=str(tree.folder / "inductor"))
        for each in records:
            self.check_made(dict(each["made"]), ended)
            # An operator that became a program does not run.
            self.assertEqual(each["calls"], {
                "not declared": {"hidden": 1, "total_": 1, "total": 1}, "declared": {"hidden": 1, "total_": 1},
                "chain": {}, "dynamic": {}, "left alone": {"total": 2}, "crossed": {}, "ignored": {"total": 1}, "strided": {},
                "halves": {},
            }, ended.text)  # fmt: skip
            self.assertFalse(each["plain"], ended.text)
        graphs = {graph["origin"]["function"]: graph for graph in records[0]["data"]}
        chain, left_alone, alone = graphs["chain"], graphs["left_alone"], graphs["alone"]
        self.assertEqual([each["name"] for each in chain["programs"]], [
            "all_reduce_add_relu_mul", "all_gather_reduce_scatter_mul_tanh", "all_to_all_sub",
        ], ended.text)  # fmt: skip
        self.assertIn("reduce_scatter max ", chain["programs"][1]["text"])
        self.assertEqual([each["name"] for each in left_alone["programs"]], ["all_reduce", "all_reduce"], ended.text)
        self.assertEqual([(each["operator"], each["reason"]) for each in left_alone["left"]], [
            ("mylib::total", "i8 values are moved by collectives, and not reduced"),
            ("mylib::total", "there is no group 'nobody' in this process"),
        ], ended.text)  # fmt: skip
        self.assertEqual([(each["operator"], each["argument"], each["groups"]) for each in alone["undeclared"]], [
            ("mylib::hidden", "where", ["0"]), ("mylib::total_", "group", ["0"]),
        ], ended.text)  # fmt: skip
        # The lines with which it is declared are those that this text gives.
        text = records[0]["before"]
        self.assertRegex(
            text, r"\n  mylib::total of alone \(.*graph_ranks\.py:\d+\): 1 call, group 0 as group_name; not declared\n    if it is a "
            r'collective: cotune.torch.declare_collective\("mylib::total", kind=\.\.\., tensor="x", group="group_name"\)\n',
        )  # fmt: skip
        self.assertIn("it cannot be declared: it writes to its argument x,", text)

    def check_made(self, made: dict[str, str], ended):
        """The collectives outside of compiled graphs, whose number is exact until a graph leaves one to PyTorch."""
        numbers = {step: text.partition(" in its process group")[0] for step, text in made.items()}
        # DDP's own ones at its construction are PyTorch's affair.
        constructed = int(numbers.pop("DDP"))
        self.assertGreater(constructed, 3, ended.text)
        self.assertEqual(numbers, {
            "nothing": "none", "eager, async_op": "2", "graph break": "3", "DDP, backward": str(constructed + 1),
            "FSDP2": str(constructed + 3), "programs": str(constructed + 3),
            # The eager call and the compiled one: the operator that is to be declared, and the one that writes.
            "not declared": f"at most {constructed + 7}",
        }, ended.text)  # fmt: skip


if __name__ == "__main__":
    unittest.main()
