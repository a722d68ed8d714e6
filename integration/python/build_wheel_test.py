"""The wheel of a small tree: its files, modes and digests, and the same bytes for the same tree."""

import base64
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

SCRIPT = "integration/python/build_wheel.py"
TREE = {"bin/cotune": 0o700, "lib/libcotune.so.0": 0o755, "lib/libfmt.so.9": 0o644,
        "lib/cotune/plugins/cotune_host.so": 0o775, "include/cotune/cotune.h": 0o664,
        "licenses/libfmt9/copyright": 0o644, "lib/libcotune_sdk.a": 0o644}  # fmt: skip


class WheelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cotune.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tree = self.folder / "tree"
        for name, mode in TREE.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"this is {name}")
            path.chmod(mode)
        (self.tree / "lib/libcotune.so").symlink_to("libcotune.so.0")

    def build(self, name: str, umask: int = 0o022) -> subprocess.CompletedProcess:
        command = [sys.executable, "-B", SCRIPT, "--tree", self.tree, "--into", self.folder / name]
        return subprocess.run(command, umask=umask, capture_output=True, text=True, check=False)

    def wheel(self, name: str, umask: int = 0o022) -> pathlib.Path:
        done = self.build(name, umask)
        self.assertEqual(done.returncode, 0, done.stderr)
        return pathlib.Path(done.stdout.strip())

    def test_files_and_modes(self):
        path = self.wheel("out")
        self.assertRegex(path.name, r"^cotune-\d+\.\d+\.\d+-py3-none-manylinux_2_36_x86_64\.whl$")
        with zipfile.ZipFile(path) as wheel:
            times = {each.date_time for each in wheel.infolist()}
            self.assertEqual(times, {(1980, 1, 1, 0, 0, 0)})
            modes = {each.filename: each.external_attr >> 16 for each in wheel.infolist()}
            in_tree = {name for name in modes if name.startswith("cotune/tree/")}
            self.assertEqual(in_tree, {f"cotune/tree/{name}" for name in list(TREE)[:5]})
            self.assertEqual(wheel.read("cotune/tree/bin/cotune"), b"this is bin/cotune")
            self.assertEqual(modes["cotune/tree/bin/cotune"], 0o100755)
            self.assertEqual(modes["cotune/tree/lib/cotune/plugins/cotune_host.so"], 0o100755)
            self.assertEqual(modes["cotune/tree/include/cotune/cotune.h"], 0o100644)
            for name in ("__init__.py", "__main__.py", "py.typed", "group.py"):
                self.assertIn(f"cotune/{name}", modes)
            self.assertFalse([name for name in modes if "_test" in name or "__pycache__" in name])
            info = path.name.split("-py3")[0] + ".dist-info"
            metadata = wheel.read(f"{info}/METADATA").decode()
            self.assertIn("License-File: LICENSE\nLicense-File: libfmt9/copyright\n", metadata)
            self.assertIn("Apache License", wheel.read(f"{info}/licenses/LICENSE").decode())
            self.assertIn(f"{info}/licenses/libfmt9/copyright", modes)

    def test_the_record_has_every_file(self):
        with zipfile.ZipFile(self.wheel("out")) as wheel:
            [record] = [name for name in wheel.namelist() if name.endswith("/RECORD")]
            lines = dict(line.split(",", 1) for line in wheel.read(record).decode().splitlines())
            self.assertEqual(set(lines), set(wheel.namelist()))
            self.assertEqual(lines.pop(record), ",")
            for name, line in lines.items():
                content = wheel.read(name)
                digest = (
                    base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                )
                self.assertEqual(line, f"sha256={digest},{len(content)}")

    def test_time_and_mask_change_no_byte(self):
        first = self.wheel("first").read_bytes()
        for path in self.tree.rglob("*"):
            os.utime(path, (1, 1), follow_symlinks=False)
        self.assertEqual(self.wheel("second", umask=0o077).read_bytes(), first)

    def test_a_folder_that_is_no_tree(self):
        (self.tree / "bin/cotune").unlink()
        done = self.build("out")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no bin/*", done.stderr)


if __name__ == "__main__":
    unittest.main()
