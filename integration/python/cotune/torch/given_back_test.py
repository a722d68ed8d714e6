"""The list of collectives that were given back. No ranks."""

import threading
import unittest

import torch

from cotune.torch import given_back, groups
from cotune.torch.collective_key import Key

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)
KEY, OTHER = Key("all_reduce", "a", 8), Key("all_reduce", "a", 16)


class GivenBackTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(groups.drop, "g")

    def reasons(self, *devices: torch.device) -> list[str]:
        return [given_back.reason_of("g", device, KEY) for device in devices]

    def test_a_collective_of_the_host_is_none_of_a_gpu(self):
        given_back.give_back("g", CPU, KEY, "it lost")
        self.assertEqual(self.reasons(CPU, FIRST), ["it lost", ""])
        given_back.give_back("g", SECOND, KEY, "it lost there")
        self.assertEqual(self.reasons(CPU, FIRST, SECOND), ["it lost", "", "it lost there"])
        self.assertEqual(given_back.reason_of("h", CPU, KEY), "")
        self.assertEqual(given_back.reason_of("g", CPU, OTHER), "")

    def test_the_key_of_the_caches_has_the_device(self):
        found = [given_back.key()]
        given_back.give_back("g", CPU, KEY, "it lost")
        found.append(given_back.key())
        given_back.give_back("g", FIRST, KEY, "it lost")
        found.append(given_back.key())
        self.assertEqual(len(set(found)), 3)

    def test_supposed_ones_end_with_the_block_and_are_of_one_thread(self):
        elsewhere = []
        before = given_back.key()
        with given_back.as_if("g", CPU, [KEY]):
            thread = threading.Thread(target=lambda: elsewhere.extend(self.reasons(CPU)))
            thread.start()
            thread.join()
            self.assertEqual(self.reasons(CPU, FIRST), ["PyTorch's form of it is timed", ""])
            self.assertEqual(given_back.reason_of("g", CPU, OTHER), "")
            with given_back.as_if("g", CPU, [OTHER]):
                self.assertNotEqual(given_back.reason_of("g", CPU, OTHER), "")
                self.assertNotEqual(self.reasons(CPU), [""])
            self.assertEqual(given_back.key(), before)
        self.assertEqual(elsewhere, [""])
        self.assertEqual(self.reasons(CPU), [""])

    def test_all_of_it_goes_with_the_process_group(self):
        given_back.give_back("g", CPU, KEY, "it lost")
        given_back.note_line("g", "a line")
        given_back.note_line("g", "a line")
        self.assertIn(("g", "a line"), given_back.lines())
        self.assertEqual(given_back.lines().count(("g", "a line")), 1)
        groups.drop("g")
        self.assertEqual(self.reasons(CPU), [""])
        self.assertNotIn(("g", "a line"), given_back.lines())

    def test_a_thread_that_holds_the_lock_may_run_a_finalizer(self):
        """A garbage collection may begin in any line of it."""
        given_back.give_back("g", CPU, KEY, "it lost")
        has_forgotten = threading.Event()

        def collects_garbage() -> None:
            with given_back._registry.lock:
                groups.drop("g")
            has_forgotten.set()

        threading.Thread(target=collects_garbage, daemon=True).start()
        self.assertTrue(has_forgotten.wait(20), "it waits for itself")
        self.assertEqual(self.reasons(CPU), [""])


if __name__ == "__main__":
    unittest.main()
