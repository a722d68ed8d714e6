"""A libcotune_torch.so that is of another version than the package; libraries in C stand in for cotune's."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import torch

import cotune.torch
from cotune import MachineError, _native
from cotune.torch import group_making, groups, library


class OtherVersionTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="cotune.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        version = f'const char* cotune_version(void) {{ return "{".".join(map(str, _native.VERSION))}"; }}\n'
        libcotune = self.compile(_native.LIBRARY_NAME, set(_native.PROTOTYPES) - {"cotune_version"}, version)
        environment = mock.patch.dict(os.environ, COTUNE_LIBRARY=str(libcotune))
        environment.start()
        self.addCleanup(environment.stop)
        for cached in (_native.library, library.load):
            cached.cache_clear()
            self.addCleanup(cached.cache_clear)

    def compile(self, name: str, functions: set[str], source: str = "") -> pathlib.Path:
        """A library with these functions, which do nothing."""
        path = self.folder / name
        source += "".join(f"void {function}(void) {{}}\n" for function in sorted(functions))
        subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
        return path

    def compile_without(self, missing: str) -> tuple[pathlib.Path, str]:
        """A libcotune_torch.so that lacks one function, and what is said about it."""
        path = self.compile(library.LIBRARY_NAME, set(library.PROTOTYPES) - {missing})
        return path, (
            f"libcotune_torch.so has no function {missing}, so it is of another version than this package ({path}): "
            "they come from two installations; unset COTUNE_LIBRARY, or install the wheel of version "
            f"{'.'.join(map(str, _native.VERSION))}"
        )

    def test_each_function_that_can_be_missing(self) -> None:
        for missing in library.PROTOTYPES:
            with self.subTest(missing):
                path, text = self.compile_without(missing)
                with self.assertRaises(MachineError) as raised:
                    library.load()
                self.assertEqual(str(raised.exception), text)
                # Its operators would stand in the way of those that Python defines instead.
                self.assertNotIn(str(path), pathlib.Path("/proc/self/maps").read_text())
        self.assertFalse(library.is_there())

    def test_a_library_with_all_functions(self) -> None:
        path = self.compile(library.LIBRARY_NAME, set(library.PROTOTYPES))
        self.assertIsNone(library.load().cotune_torch_group_unregister.restype)
        self.assertIn(str(path), pathlib.Path("/proc/self/maps").read_text())

    def test_a_file_that_is_no_library(self) -> None:
        (self.folder / library.LIBRARY_NAME).write_text("no library")
        with self.assertRaisesRegex(MachineError, "libcotune_torch.so cannot be loaded .*needs PyTorch"):
            library.load()

    def test_enable_says_so_and_the_operators_are_there(self) -> None:
        _, text = self.compile_without("cotune_torch_set_listener")
        self.addCleanup(cotune.torch.disable)
        with self.assertLogs("cotune.torch", "INFO") as logged:
            cotune.torch.enable()
        self.assertIn(text, logged.output[0])
        self.assertTrue(hasattr(torch.ops.cotune, "program"))
        # The warning of the first run gives this reason.
        self.assertEqual(group_making._readiness(None, groups.tune_settings()), {"reason": text, "host": "", "functions": ""})


if __name__ == "__main__":
    unittest.main()
