"""peer_tests.py over modules whose outcomes are known."""

import contextlib
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import peer_tests

SAMPLES = "tests/torch/peers/samples"
needs_expecttest = unittest.skipUnless(
    importlib.util.find_spec("expecttest"), "SKIPPED: the package expecttest is not here, which PyTorch's own tests import"
)


class PeerTestsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.children = self.folder / "children"
        self.children.touch()

    def run_peers(self, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-B", "tests/torch/peer_tests.py", SAMPLES, *arguments, "--work", str(self.folder)]
        environment = os.environ | {"SAMPLE_CHILDREN": str(self.children)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def test_equal_outcomes(self):
        ended = self.run_peers("sample_equal")
        numbers = "1 passed, 1 failed, 1 skipped"
        # The test that fails has another number in its message each time.
        self.assertEqual(ended.returncode, 0, ended)
        self.assertIn(
            "sample_equal: cotune takes collectives from 1 of 3 tests\n"
            f"sample_equal: without cotune {numbers}; with cotune {numbers}\n2 tests ran, 0 with",
            ended.stdout,
        )

    def test_a_difference(self):
        ended = self.run_peers("sample_differs")
        self.assertEqual(ended.returncode, 1, ended)
        self.assertIn("without cotune 2 passed; with cotune 1 passed, 1 failed\n", ended.stdout)
        self.assertRegex(
            ended.stdout,
            r"  sample_differs.DiffersTest.test_ranks_are_plain\n"
            r"    without: passed\n"
            r"    with:    failed: AssertionError: Lists differ: \[1, 1\] != \[0, 0\]\n",
        )
        self.assertNotIn("test_passes", ended.stdout)

    def test_a_test_that_hangs_is_cut_with_its_children(self):
        ended = self.run_peers("sample_hangs", "--timeout", "20")
        self.assertEqual(ended.returncode, 0, ended)
        numbers = "1 passed, 1 cut, 1 crashed"
        self.assertIn(f"without cotune {numbers}; with cotune {numbers}\n3 tests ran", ended.stdout)
        children = self.children.read_text().split()
        self.assertEqual(len(children), 2)
        for each in children:
            state = pathlib.Path(f"/proc/{each}/stat")
            # A child that was killed may wait for its parent to notice.
            self.assertTrue(not state.exists() or ") Z " in state.read_text(), each)

    @needs_expecttest
    def test_names_that_the_installed_version_lacks(self):
        ended = self.run_peers("sample_names", "--lift")
        self.assertEqual(ended.returncode, 0, ended)
        absent = "torch.distributed.name_of_a_newer_version"
        self.assertIn(f"sample_names: the installed version has no {absent}; the tests that use it fail\n", ended.stdout)
        # Ranks on the CPU stand for ranks on GPUs.
        self.assertIn("without cotune 4 passed, 1 failed; with cotune 4 passed, 1 failed\n5 tests ran, 0 with", ended.stdout)
        records = (self.folder / "without/sample_names.records").read_text()
        self.assertIn(f"AbsentNameError: the installed version has no {absent}", records)

    @needs_expecttest
    def test_tests_of_gpus_are_left_out_unless_they_are_lifted(self):
        ended = self.run_peers("sample_names", "--only", "test_gpus_add")
        self.assertIn("without cotune 1 skipped; with cotune 1 skipped\n", ended.stdout)
        self.assertEqual(ended.returncode, 3, ended)

    def test_a_module_that_is_not_there(self):
        ended = self.run_peers("sample_absent")
        self.assertEqual(ended.returncode, 2, ended)
        self.assertIn("has no sample_absent.py", ended.stderr)


class CompareTest(unittest.TestCase):
    """Outcomes of tests "m.passes" and "m.breaks", which fails with cotune."""

    def compare(self, *lines: str) -> tuple[list[str], str]:
        with tempfile.TemporaryDirectory() as folder:
            known = pathlib.Path(folder) / "known"
            known.write_text("# remark\n" + "".join(f"{line}\n" for line in lines))
            passed, failed = peer_tests.Outcome("passed"), peer_tests.Outcome("failed", "ValueError: it is wrong")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                unexplained = peer_tests.compare(
                    "m", {"m.passes": passed, "m.breaks": passed}, {"m.passes": passed, "m.breaks": failed}, peer_tests.read_known(known)
                )
            return unexplained, printed.getvalue()

    def test_a_known_difference(self):
        unexplained, printed = self.compare("m.breaks: it looks for the pass")
        self.assertEqual(unexplained, [])
        self.assertIn("    known:   it looks for the pass\n", printed)

    def test_a_known_difference_that_is_gone(self):
        unexplained, printed = self.compare("m.breaks: it looks for the pass", "m.passes: it did not")
        self.assertEqual(unexplained, ["m.passes"])
        self.assertIn("m.passes\n    has the same outcome both ways, and is among the known differences\n", printed)

    def test_a_difference_that_comes_and_goes(self):
        unexplained, printed = self.compare("m.breaks: sometimes it fails", "m.passes: sometimes it fails")
        self.assertEqual(unexplained, [])
        self.assertNotIn("m.passes", printed)

    def test_another_message_is_a_difference(self):
        failed = peer_tests.Outcome("failed", "ValueError: 3 at 0xab in /tmp/a.py")
        self.assertTrue(failed.equals(peer_tests.Outcome("failed", "ValueError: 12 at 0xcd in /tmp/b.py")))
        self.assertFalse(failed.equals(peer_tests.Outcome("failed", "TypeError: 3 at 0xab in /tmp/a.py")))

    def test_exit_codes(self):
        with contextlib.redirect_stderr(io.StringIO()):
            codes = [peer_tests.verdict(*each) for each in ((2, 2, []), (2, 2, ["m.breaks"]), (1, 2, []))]
        self.assertEqual(codes, [0, 1, 3])


if __name__ == "__main__":
    unittest.main()
