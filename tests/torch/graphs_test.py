"""Graphs out of the caches of some ranks and beside other threads, and operators that are called by hand."""

import json
import shutil
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


if __name__ == "__main__":
    unittest.main()
