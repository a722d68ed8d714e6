"""cotune.torch.check on real ranks: what it prints of an installation that works, and of one that does not."""

import unittest

from testing.torchrun import Tree


class CheckTest(unittest.TestCase):
    def run_check(self, case: str, *arguments: str, without: tuple[str, ...] = ()):
        tree = Tree(without)
        temporary = tree.folder / "temporary"
        temporary.mkdir()
        ended = tree.start(2, "check_ranks.py", case, "--device", "cpu", *arguments, TMPDIR=str(temporary))
        self.assertEqual(list(temporary.glob("cotune_check.*")), [], ended.text)
        # The user's own database would lie there.
        self.assertEqual([each for each in (tree.folder / "cache").rglob("*") if each.is_file()], [], ended.text)
        return ended, ended.out.splitlines()

    def test_all_steps_pass(self):
        ended, lines = self.run_check("none")
        self.assertEqual(ended.exit_code, 0, ended.text)
        detection, plain, tune, late, total = lines
        self.assertRegex(detection, r"^PASSED  detection: PyTorch 2\.\S+, cotune \d+\.\d+\.\d+ \(/.*\), 2 ranks on 1 host, cpu$")
        self.assertRegex(plain, r"^PASSED  plain call: ")
        self.assertRegex(tune, r"^PASSED  tune: \d+ choices were measured; host/\S+ runs, \d+\.\d us, and is right$")
        self.assertRegex(late, r"^PASSED  late rank: rank 1 came 1 s late")
        self.assertEqual(total, "4 of 4 steps passed")

    def test_a_missing_library_is_named_by_all_ranks(self):
        ended, lines = self.run_check("none", without=("libcotune_torch.so",))
        self.assertEqual(ended.exit_code, 1, ended.text)
        self.assertRegex(lines[0], r"^FAILED  detection: all ranks: .*libcotune_torch\.so")
        self.assertEqual(lines[1:], ["0 of 4 steps passed; not run: plain call, tune, late rank"], ended.text)

    def test_versions_that_differ(self):
        ended, lines = self.run_check("versions")
        self.assertEqual(ended.exit_code, 1, ended.text)
        self.assertRegex(lines[0], r"^FAILED  detection: rank 0: rank 1 has cotune 9\.9\.9, and rank 0 has cotune .*; rank 1: rank 0 has")

    def test_a_list_of_forced_choices_that_cannot_be_read_is_a_failed_step(self):
        ended, lines = self.run_check("list")
        self.assertEqual(ended.exit_code, 1, ended.text)
        self.assertRegex(
            lines[0],
            r'^FAILED  detection: rank 1: bad value "all_reduce=host/ring,," for force_choice \(COTUNE_FORCE_CHOICE\): element 2 of',
        )
        self.assertEqual(lines[1:], ["0 of 4 steps passed; not run: plain call, tune, late rank"], ended.text)
        self.assertNotIn("Traceback", ended.text)

    def test_wrong_values_name_the_first(self):
        ended, lines = self.run_check("values")
        self.assertEqual(ended.exit_code, 1, ended.text)
        self.assertRegex(lines[0], r"^PASSED  detection")
        # Rank 1 expects what it gives.
        self.assertRegex(lines[1], r"^FAILED  plain call: rank 0: \d+ of 65536 values are wrong without cotune, first at \[\d+, \d+\]: ")
        self.assertNotIn("rank 1:", lines[1])
        self.assertEqual(lines[2:], ["1 of 4 steps passed; not run: tune, late rank"], ended.text)

    def test_a_rank_that_does_not_come(self):
        ended, lines = self.run_check("never", "--timeout-s", "5")
        self.assertEqual(ended.exit_code, 1, ended.text)
        self.assertRegex(lines[0], r"^FAILED  detection: rank 0: rank 1 has not ended it within 5 s; ")
        self.assertEqual(lines[0].count("has not ended it"), 1)

    def test_sigterm_ends_a_rank_that_hangs_in_c(self):
        ended, lines = self.run_check("stuck")
        self.assertEqual(ended.exit_code, 1, ended.text)
        self.assertEqual([each[:19] for each in lines], ["PASSED  detection: "], ended.text)
        self.assertIn("cotune.torch.check: rank 1: SIGTERM ended it in the step plain call\n", ended.err)


if __name__ == "__main__":
    unittest.main()
