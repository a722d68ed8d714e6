"""How libcotune and the command are found, and what is said when they are not."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "integration/python")

from cotune import MachineError, _native, errors
from cotune.constants import Result

PACKAGE = pathlib.Path("integration/python/cotune")


class FindTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cotune.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE, self.folder / "cotune", ignore=ignored)

    def run_python(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
        environment = {"HOME": str(self.folder), "PYTHONPATH": str(self.folder), **variables}
        return subprocess.run(
            [sys.executable, "-B", *arguments],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def version(self, **variables: str) -> str:
        """Of the library that is found, or the error."""
        done = self.run_python(
            "-c",
            "import cotune\n"
            "try: print(cotune.version())\n"
            "except cotune.MachineError as error: print(error)",
            **variables,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_the_library_of_the_package_and_a_named_one(self):
        wanted = ".".join(map(str, _native.VERSION))
        library = pathlib.Path("integration/capi/libcotune.so.0").resolve()
        self.assertEqual(self.version(COTUNE_LIBRARY=str(library)), wanted)
        inside = self.folder / "cotune/tree/lib"
        inside.mkdir(parents=True)
        shutil.copy(library, inside)
        self.assertEqual(self.version(), wanted)

    def test_a_library_that_is_not_there(self):
        self.assertRegex(self.version(), r"so.0 is not there .*tree/lib.*set COTUNE_LIBRARY")
        named = self.version(COTUNE_LIBRARY="/nowhere/x.so")
        self.assertIn("no file /nowhere/x.so (COTUNE_LIBRARY): ", named)

    def test_a_library_that_is_none(self):
        wrong = self.folder / "libcotune.so.0"
        wrong.write_text("no library")
        self.assertRegex(self.version(COTUNE_LIBRARY=str(wrong)), "cannot be loaded .*so.0.: ")

    def compiled(self, name: str, source: str) -> str:
        """The path of a library in C."""
        path = self.folder / name
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path]
        subprocess.run(command, input=source, text=True, check=True)
        return str(path)

    def test_a_library_that_lacks_functions(self):
        wanted = ".".join(map(str, _native.VERSION))
        version = f'const char* cotune_version(void) {{ return "{wanted}"; }}\n'
        others = [name for name in _native.PROTOTYPES if name != "cotune_version"]
        all_but_last = version + "".join(f"void {name}(void) {{}}\n" for name in others[:-1])
        for missing, source in (("cotune_version", ""), (others[0], version), (others[-1], all_but_last)):
            with self.subTest(missing):
                path = self.compiled(f"without_{missing}.so", source)
                self.assertEqual(
                    self.version(COTUNE_LIBRARY=path),
                    f"without_{missing}.so has no function {missing}, so it is of another version than this package "
                    f"({path}): they come from two installations; unset COTUNE_LIBRARY, or install the wheel of "
                    f"version {wanted}",
                )

    def test_the_command_is_that_of_the_tree(self):
        done = self.run_python("-m", "cotune", "--version")
        self.assertEqual(done.returncode, 3)
        self.assertIn("cotune: the program cannot be started", done.stderr)
        program = self.folder / "cotune/tree/bin/cotune"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\necho "it got $*"\nexit 4\n')
        program.chmod(0o755)
        done = self.run_python("-m", "cotune", "tune", "--ranks", "2")
        self.assertEqual((done.returncode, done.stdout), (4, "it got tune --ranks 2\n"))

    def test_versions_that_fit(self):
        major, minor, patch = _native.VERSION
        path = pathlib.Path("lib")
        for text in (f"{major}.{minor}.{patch}", f"{major}.{minor}.{patch + 1}"):
            _native.check_version(text, path)
        for text in (f"{major}.{minor + 1}.0", f"{major + 1}.{minor}.{patch}", "0.0.9", "new"):
            with self.subTest(text), self.assertRaisesRegex(MachineError, "two installations"):
                _native.check_version(text, path)


class ErrorTest(unittest.TestCase):
    def test_every_result_has_a_class_of_its_own(self):
        failures = [errors.error_of(result, "text") for result in list(Result)[1:]]
        self.assertEqual([failure.result for failure in failures], list(Result)[1:])
        self.assertEqual(len({type(failure) for failure in failures}), len(failures))

    def test_what_a_newer_library_may_give(self):
        error = errors.error_of(99, "text", rank=3)
        self.assertIs(type(error), errors.CotuneError)
        self.assertIn("result 99", str(error))
        self.assertEqual(error.rank, 3)

    def test_builtin_classes_catch_them_too(self):
        self.assertTrue(issubclass(errors.UsageError, ValueError))
        self.assertTrue(issubclass(errors.DeadlineError, TimeoutError))


if __name__ == "__main__":
    unittest.main()
