"""cotune.torch reads settings as the library does: the answers of `cotune config show` decide. No PyTorch is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from types import ModuleType
from typing import Any
from unittest import mock

sys.path.insert(0, "integration/python")  # for the module that it loads


def _load() -> ModuleType:
    """The module alone: its package needs PyTorch."""
    path = pathlib.Path("integration/python/cotune/torch/settings_file.py")
    spec = importlib.util.spec_from_file_location("settings_file", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it there
    spec.loader.exec_module(module)
    return module


settings_file = _load()

# Each is a file that the library takes.
FILES = (
    "",
    "# a comment\n\n  budget = 30s  # another\n\tmin_rounds\t=\t9\n",
    "budget=\"30s\"# close\ndatabase='/a #b'\nplugin_path = \"a\\\\b\\\"c\" # d\n",
    "database = \"\"\nplugin_path = '' # empty\nnoise_percent = 0.5",
    "budget = 1m\r\nmin_rounds = 9\r\n",
    "budget = 90s\n[host]\nslot_bytes = 1M\n[ucx] # more\nbudget = 3\n",
    "force = all_reduce=host/ring,lib::op=python/ring?chunk=4\n",
    "force_choice = ' all_reduce = host/ring , broadcast = nccl/auto '\n",
    "force_choice = \"lib::op=body\"\nmax_autotune_gemm_threads = 3\n",
    "database = '/a\x0bb\x0cc\x1cd\xc2\x85e\xe2\x80\xa8f'\nbudget = 7s\n",
    "# \xff\xfe is no UTF-8\nbudget = 8s\n",
    "collective_multi_kernel_hints = 1K:4K:x2,100\nnumerics = same\n",
)
DURATIONS = ("500ms", "30s", "5m", "2.5", "1h", "1000000us", "5.", ".5s", "1ms", "0.001", "1000000ns", "007s")
NO_DURATIONS = ("s", "-1s", "1 s", "1e3", "5d", "0x1", "1s2", "inf", "nan", "1_0", "+1s", "1S", "\u0661s", "1..s")
SIZES = (
    "4K,1M", "1K:16K:x2", "1k:9k", "1K:64K:+32K", "100,3,100", "0", "1:10:x3", "1:1000:x2,7", "0:8:+4", "5:5", "5:5:x2", "1T",
    "1G:1T:x1024", "0:0", "0:0:x2", "00012", "3:4:+1K",
)  # fmt: skip
NO_SIZES = (
    "4Q", "2K:1K", "1:8:x1", "1:8:x0", "1:8:+0", "0:8:x2", "0:8", "2T", "1:1M:+1", "4K;1M", "4K,", ",4K", "4 K", "-1", "1:2:3",
    "1:2:", "1:", "5:5:x1", "5:5:+0", "1:8:x", "1:8:x2K", "1.5K", "\u0664K", "1:2T", "1:4:+2T", "99999999999999999999",
)  # fmt: skip


class SettingsFileTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "config.toml"

    def library(self, **variables: str) -> dict[str, Any]:
        """The answer of `cotune config show` with these variables alone."""
        ended = subprocess.run(
            ["cli/cotune", "config", "show", "--json"], env=variables, capture_output=True, check=False
        )
        return json.loads(ended.stdout)

    def assert_equal(self, **variables: str) -> None:
        """Compares each setting that is given, and its place, with the library's."""
        result = self.library(**variables)["result"]
        with mock.patch.dict(os.environ, variables, clear=True):
            self.assertEqual(str(settings_file.path() or ""), result["settings_file"])
            for setting in result["settings"]:
                found = settings_file.given(setting["name"])
                self.assertEqual(found.origin if found else "default", setting["origin"], setting["name"])
                if found is None:
                    continue
                if setting["type"] == "text":
                    self.assertEqual(found.value, setting["value"])
                elif setting["type"] == "duration":
                    self.assertEqual(settings_file.seconds(found.value), settings_file.seconds(setting["value"]))
                elif setting["type"] == "sizes":
                    self.assertEqual(settings_file.sizes_bytes(found.value), settings_file.sizes_bytes(setting["value"]))
                elif setting["name"] == "force_choice":
                    collectives, operators, origin = settings_file.force_parts()
                    parts = [collectives] if collectives else []
                    parts += [f"{name}={choice}" for name, choice in operators.items()]
                    self.assertEqual((",".join(parts), origin), (setting["value"], setting["origin"]))
                else:
                    self.assertEqual(found.value, setting["value"])

    def test_a_file_gives_the_same_settings_at_the_same_lines(self) -> None:
        for content in FILES:
            with self.subTest(content=content):
                # Some have bytes that begin a line for Python alone.
                self.file.write_bytes(content.encode("latin-1"))
                self.assert_equal(COTUNE_CONFIG=str(self.file))

    def test_variables_count_more_than_the_file(self) -> None:
        self.file.write_text("budget = 30s\nforce = all_reduce=host/ring\nmin_rounds = 9\nprecompile_threads = 2\n")
        for variables in (
            {"COTUNE_BUDGET": "3s"}, {"COTUNE_BUDGET": ""}, {"COTUNE_FORCE": "lib::op=body"},
            {"COTUNE_FORCE_CHOICE": "broadcast=host/tree,lib::op=body"}, {"COTUNE_FORCE_CHOICE": " \t"},
            {"COTUNE_FORCE_CHOICE": " lib::op\t= body\u00a0 ,\tlib::two=x\n"}, {"COTUNE_FORCE_CHOICE": "lib::op=body\r"}, {"COTUNE_MAX_AUTOTUNE_GEMM_THREADS": "5"},
        ):  # fmt: skip
            with self.subTest(variables=variables):
                self.assert_equal(COTUNE_CONFIG=str(self.file), **variables)

    def test_the_file_of_the_user_is_the_same(self) -> None:
        for place in (".config/cotune", "other/cotune"):
            (self.folder / place).mkdir(parents=True)
            (self.folder / place / "config.toml").write_text(f"database = /{place}\n")
        home = str(self.folder)
        for variables in (
            {"HOME": home}, {"HOME": home, "XDG_CONFIG_HOME": f"{home}/other"}, {"HOME": home, "XDG_CONFIG_HOME": f"{home}/none"},
            {"HOME": home, "XDG_CONFIG_HOME": "other"}, {"HOME": "relative"}, {"XDG_CONFIG_HOME": f"{home}/other"}, {},
        ):  # fmt: skip
            with self.subTest(variables=variables):
                self.assert_equal(**variables)

    def test_a_folder_that_cannot_be_read_has_no_file(self) -> None:
        """A user who may read all folders finds the file in both ways."""
        folder = self.folder / ".config"
        (folder / "cotune").mkdir(parents=True)
        (folder / "cotune/config.toml").write_text("budget = 9s\n")
        folder.chmod(0)
        self.addCleanup(folder.chmod, 0o755)
        self.assert_equal(HOME=str(self.folder))
        # No folder has so long a name: to look into it is an error for every user.
        self.assert_equal(HOME="/" + "a" * 300)

    def test_names_of_operators_have_two_sides_without_blanks(self) -> None:
        for name in ("::op", "lib::", "::", "lib ::op", "lib:: op", "my lib::op", "lib::o\tp", "a::b::c"):
            with self.subTest(name=name), mock.patch.dict(os.environ, {"COTUNE_FORCE": f"lib::one=body, {name} = body"}, clear=True):
                with self.assertRaises(ValueError) as raised:
                    settings_file.force_parts()
                self.assertIn(f'(COTUNE_FORCE): "{name}" is no name of an operator: give lib::op; give', str(raised.exception))

    def test_both_names_of_one_setting_with_other_lists_are_refused_with_the_same_words(self) -> None:
        pairs = (
            ("lib::op=body", "lib::op=python/ring"), ("all_reduce=host/ring", "broadcast=host/tree,all_reduce=host/ring"),
            ("all_reduce=host/ring,lib::b=x, lib::a=y", "all_reduce=host/ring"),
        )  # fmt: skip
        for by_name, by_alias in pairs:
            self.file.write_text(f"force_choice = {by_name}\nforce = {by_alias}\n")
            for variables in (
                {"COTUNE_FORCE_CHOICE": by_name, "COTUNE_FORCE": by_alias}, {"COTUNE_CONFIG": str(self.file)},
            ):  # fmt: skip
                with self.subTest(variables=variables), mock.patch.dict(os.environ, variables, clear=True):
                    error = self.library(**variables)["error"]
                    with self.assertRaises(ValueError) as raised:
                        settings_file.force_parts()
                    expected = f"{error['what']} ({error['where']}): {error['cause']}; {error['next_step']}"
                    self.assertEqual(str(raised.exception), expected)
                    self.assertEqual(settings_file.why_force_is_wrong(), expected)

    def test_equal_lists_by_both_names_are_one(self) -> None:
        variables = {"COTUNE_FORCE_CHOICE": "lib::b=x, lib::a=y,all_reduce=host/ring", "COTUNE_FORCE": "all_reduce=host/ring,lib::a=y,lib::b=x"}
        (known,) = (each["value"] for each in self.library(**variables)["result"]["settings"] if each["name"] == "force_choice")
        self.assertEqual(known, variables["COTUNE_FORCE"])
        with mock.patch.dict(os.environ, variables, clear=True):
            collectives, operators, _ = settings_file.force_parts()
        self.assertEqual((collectives, operators), ("all_reduce=host/ring", {"lib::a": "y", "lib::b": "x"}))

    def test_the_same_texts_are_durations_and_sizes(self) -> None:
        for variable, read, texts, others in (
            ("COTUNE_BUDGET", settings_file.seconds, DURATIONS, NO_DURATIONS),
            ("COTUNE_COLLECTIVE_MULTI_KERNEL_HINTS", settings_file.sizes_bytes, SIZES, NO_SIZES),
        ):
            for text in texts:
                with self.subTest(text=text):
                    self.assert_equal(**{variable: text})
            for text in others:
                with self.subTest(text=text):
                    self.assertIn("error", self.library(**{variable: text}))
                    with self.assertRaises(ValueError):
                        read(text)

    def test_the_same_lists_of_forced_choices_are_wrong_for_the_same_reason(self) -> None:
        for text in (
            "a=b,,lib::c=d", "lib::op=body,", "lib::op", "all_reduce=host/ring,broadcast", "lib::op= ",
            "lib::op=\t", "lib::op=body,\t", "lib::op=body, lib::op = python/ring", "all_reduce=host/ring,lib::op=body,all_reduce=host/tree",
        ):  # fmt: skip
            with self.subTest(text=text), mock.patch.dict(os.environ, {"COTUNE_FORCE": text}, clear=True):
                error = self.library(COTUNE_FORCE=text)["error"]
                self.assertEqual(error["where"], "COTUNE_FORCE")
                with self.assertRaises(ValueError) as raised:
                    settings_file.force_parts()
                self.assertIn("(COTUNE_FORCE): ", str(raised.exception))
                reason = str(raised.exception).partition("(COTUNE_FORCE): ")[2].partition(";")[0]
                self.assertIn(reason, error["cause"])


if __name__ == "__main__":
    unittest.main()
