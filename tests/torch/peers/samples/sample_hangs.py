"""A test that never ends, with a child that would outlive it, a test that ends its process, and one after them."""

import os
import pathlib
import subprocess
import threading
import unittest


class HangsTest(unittest.TestCase):
    def test_a_hangs(self):
        child = subprocess.Popen(["sleep", "1000"])
        with pathlib.Path(os.environ["SAMPLE_CHILDREN"]).open("a") as file:
            file.write(f"{child.pid}\n")
        threading.Event().wait()

    def test_b_ends_its_process(self):
        os._exit(3)

    def test_c_passes(self):
        pass
