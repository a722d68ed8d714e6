"""Settings of cotune as options of enable(), and how they reach a group."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
import unittest
from collections.abc import Iterator
from unittest import mock

from torch._inductor import config

import cotune.torch
from cotune._creation import settings_text
from cotune.torch import compat, groups, job_settings, report, settings_file
from cotune.torch.graph_pass import CotunePass
from cotune.torch.settings import Settings

# One value of each option, with the line that cotune reads.
LINES = {
    "collective_pre_sync_timeout": (5, "collective_pre_sync_timeout=5"),
    "collective_autotune_timeout": (0.00125, "collective_autotune_timeout=0.001250000"),
    "collective_benchmark_nruns": (3, "collective_benchmark_nruns=3"),
    "enable_collective_multitemplate": (False, "enable_collective_multitemplate=off"),
    "collective_fusion_enabled": (True, "collective_fusion_enabled=on"),
    "enable_custom_op_fusion": (False, "collective_fusion_enabled=off"),
    "custom_op_fusion_types": (["epilogue", "cross_subgraph"], "custom_op_fusion_types=epilogue,cross_subgraph"),
    "benchmark_collective_epilogue_fusion": (False, "benchmark_collective_epilogue_fusion=off"),
    "enable_recursive_fusion": (False, "enable_recursive_fusion=off"),
    "max_fusion_depth": (3, "max_fusion_depth=3"),
    "fusion_speedup_threshold": (1.1, "fusion_speedup_threshold=1.100000000"),
    "precompile_threads": (2, "precompile_threads=2"),
    "max_autotune_gemm_threads": (2, "precompile_threads=2"),
}


class JobSettingsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.addCleanup(groups.configure, groups._settings)
        self.addCleanup(setattr, config, "post_grad_custom_post_pass", config.post_grad_custom_post_pass)
        patched = mock.patch.object(cotune.torch.start, "start")
        patched.start()
        self.addCleanup(patched.stop)

    def settings(self) -> str:
        """The lines that a group gets that is made now."""
        return settings_text(job_settings.with_defaults(groups._settings.settings))

    def test_each_option_becomes_a_line(self) -> None:
        self.assertEqual(set(LINES), set(job_settings.ALLOWED))
        for takes in (cotune.torch.enable, cotune.torch.options):
            for name, (value, line) in LINES.items():
                with self.subTest(name=name, takes=takes.__name__):
                    takes(**{name: value})
                    self.assertEqual(self.settings(), line)

    def test_no_type_of_fusion(self) -> None:
        for none in ([], ()):
            cotune.torch.enable(custom_op_fusion_types=none)
            self.assertEqual(self.settings(), "custom_op_fusion_types=none")

    def test_values_that_cannot_be(self) -> None:
        wrong = {
            "collective_pre_sync_timeout": "5s", "collective_autotune_timeout": 0, "collective_benchmark_nruns": 2.5,
            "enable_collective_multitemplate": 1, "custom_op_fusion_types": "epilogue", "max_fusion_depth": 9,
            "fusion_speedup_threshold": float("nan"), "precompile_threads": True, "rows": [], "collective_multi_kernel_hints": [0],
        }  # fmt: skip
        for name, value in wrong.items():
            with self.subTest(name=name), self.assertRaisesRegex(TypeError, f"^option '{name}' is .*, and not "):
                cotune.torch.enable(**{name: value})

    def test_options_that_contradict_each_other(self) -> None:
        with self.assertRaisesRegex(TypeError, "another name of it, is False; give one of them"):
            cotune.torch.enable(collective_fusion_enabled=True, enable_custom_op_fusion=False)
        with self.assertRaisesRegex(TypeError, "both give the sizes of dynamic programs"):
            cotune.torch.enable(rows=[1], collective_multi_kernel_hints=[1024])
        cotune.torch.enable(collective_fusion_enabled=False, enable_custom_op_fusion=False)
        self.assertEqual(self.settings(), "collective_fusion_enabled=off")

    def test_names_of_others_are_refused_with_what_serves_instead(self) -> None:
        for name, instead in (
            ("force_extern_kernel_in_multi_template", "give force="),
            ("collective_benchmark_timeout", "collective_autotune_timeout"),
        ):
            with self.assertRaisesRegex(TypeError, f"^'{name}' is no option of cotune: .*{instead}"):
                cotune.torch.enable(**{name: 1})

    def test_rows_are_settings_of_the_pass(self) -> None:
        cotune.torch.enable(rows=[1, 16])
        found = config.post_grad_custom_post_pass
        (own,) = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, CotunePass)]
        self.assertEqual(own.settings.rows, (1, 16))

    def test_a_second_call_resets_what_it_does_not_give(self) -> None:
        cotune.torch.enable(force={"all_reduce": "host/ring"}, max_fusion_depth=2)
        cotune.torch.enable()
        self.assertEqual(groups._settings, groups.TuneSettings())
        self.addCleanup(report.show_tables, True)
        cotune.torch.enable(tables=False)
        cotune.torch.options(export=True)
        self.assertFalse(report._shows_tables)
        cotune.torch.enable()
        self.assertTrue(report._shows_tables)
        cotune.torch.enable(max_fusion_depth=2)
        cotune.torch.options(export=True)
        self.assertEqual(groups._settings.settings, {"max_fusion_depth": 2})


@contextlib.contextmanager
def settings_file_of(text: str) -> Iterator[pathlib.Path]:
    """A settings file in a block, without variables of cotune."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "config.toml")
        path.write_text(text)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COTUNE_")}
        with mock.patch.dict(os.environ, kept | {"COTUNE_CONFIG": str(path)}, clear=True):
            yield path


@unittest.skipUnless(hasattr(config, "collective_benchmark_nruns"), "this PyTorch has no options of collective benchmarks")
class InductorsOptionsTest(unittest.TestCase):
    def test_options_that_nobody_has_changed_say_nothing(self) -> None:
        self.assertEqual(compat.changed_benchmark_options(), {})

    def test_changed_options_are_defaults(self) -> None:
        with config.patch(collective_benchmark_nruns=7, collective_benchmark_timeout=4.0):
            self.assertEqual(
                job_settings.with_defaults({"collective_benchmark_nruns": 9}),
                {"collective_benchmark_nruns": 9, "collective_autotune_timeout": 4.0},
            )
            with mock.patch.dict(os.environ, COTUNE_COLLECTIVE_BENCHMARK_NRUNS="11"):
                self.assertEqual(job_settings.with_defaults({}), {"collective_autotune_timeout": 4.0})

    def test_the_settings_file_counts_more(self) -> None:
        with settings_file_of("collective_autotune_timeout = 20s\n"), config.patch(collective_benchmark_nruns=7, collective_benchmark_timeout=4.0):
            self.assertEqual(job_settings.with_defaults({}), {"collective_benchmark_nruns": 7})

    def test_values_beyond_the_limits_become_the_nearest_with_one_warning(self) -> None:
        for option, value, wanted in (
            ("collective_benchmark_nruns", 20_000, {"collective_benchmark_nruns": 10_000}),
            ("collective_benchmark_nruns", 0, {"collective_benchmark_nruns": 1}),
            ("collective_benchmark_nruns", 12.5, {"collective_benchmark_nruns": 12}),
            ("collective_benchmark_nruns", None, {}),
            ("collective_benchmark_timeout", 1e9, {"collective_autotune_timeout": 3600}),
            ("collective_benchmark_timeout", float("inf"), {"collective_autotune_timeout": 3600}),
            ("collective_benchmark_timeout", 0.0, {"collective_autotune_timeout": 0.001}),
            ("collective_benchmark_timeout", float("nan"), {}),
            ("collective_benchmark_timeout", "30", {}),
        ):
            job_settings._warn_of_inductor.cache_clear()
            with self.subTest(option=option, value=value), mock.patch.object(config, option, value):
                with self.assertLogs("cotune.torch", "WARNING") as logged:
                    found = [job_settings.with_defaults({}) for _ in range(2)]
                self.assertEqual(found, [wanted] * 2)
                (line,) = logged.output
                self.assertIn(f"torch._inductor.config.{option} is {value!r}, which the setting", line)

    def test_the_most_rounds_are_no_fewer_than_the_fewest(self) -> None:
        job_settings._warn_of_inductor.cache_clear()
        with mock.patch.dict(os.environ, COTUNE_MIN_ROUNDS="12"), config.patch(collective_benchmark_nruns=7):
            with self.assertLogs("cotune.torch", "WARNING"):
                self.assertEqual(job_settings.with_defaults({}), {"collective_benchmark_nruns": 12})


class SettingsFileTest(unittest.TestCase):
    def test_lines_of_the_file(self) -> None:
        text = """# comment
budget = 30s  # a comment
force="all_reduce=host/ring" # another
database = 'a"b#c'
plugin_path = "a\\\\b"
[host]
min_rounds = 9
"""
        with settings_file_of(text) as path:
            for name, value, line in (
                ("budget", "30s", 2), ("force", "all_reduce=host/ring", 3), ("database", 'a"b#c', 4), ("plugin_path", "a\\b", 5),
            ):  # fmt: skip
                self.assertEqual(settings_file.given(name), settings_file.Given(value, f"{path}:{line}"))
            self.assertIsNone(settings_file.given("min_rounds"), "it is one of a backend")
            with mock.patch.dict(os.environ, COTUNE_FORCE_CHOICE="all_reduce=host/tree"):
                self.assertEqual(settings_file.given("force_choice"), settings_file.Given("all_reduce=host/tree", "COTUNE_FORCE_CHOICE"))

    def test_durations(self) -> None:
        for text, seconds in (("500ms", 0.5), ("30s", 30), ("5m", 300), ("2.5", 2.5), ("1h", 3600), ("1000000us", 1), ("5.", 5), (".5s", 0.5)):
            self.assertAlmostEqual(settings_file.seconds(text), seconds)
        for text in ("", "s", "-1s", "1 s", "1e3", "5d", "0x1", "1s2"):
            with self.subTest(text=text), self.assertRaisesRegex(ValueError, "is not a duration"):
                settings_file.seconds(text)

    def test_the_deadline_of_a_measurement(self) -> None:
        timeout_s = job_settings.autotune_timeout_s
        self.assertEqual(timeout_s({}), 30)
        with settings_file_of("collective_autotune_timeout = 7s\n") as path:
            self.assertEqual(timeout_s({}), 7)
            with config.patch(collective_benchmark_timeout=9.0):
                self.assertEqual(timeout_s({}), 7, "Inductor's option counts less than the file")
            with mock.patch.dict(os.environ, COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT="1500ms"):
                self.assertEqual(timeout_s({}), 1.5, "the variable counts more than the file")
                self.assertEqual(timeout_s({"collective_autotune_timeout": 4}), 4, "and the option more than both")
            for wrong, why in (("soon", "'soon' is not a duration"), ("0", "'0' is not from 1ms to 1h"), ("2h", "'2h' is not from")):
                path.write_text(f"# comment\ncollective_autotune_timeout = {wrong}\n")
                with self.assertLogs("cotune.torch", "WARNING") as logged:
                    self.assertEqual([timeout_s({}), timeout_s({})], [30, 30])
                (line,) = logged.output
                self.assertIn(f"({path}:2) is left out: {why}", line)

    def test_the_place_of_the_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, HOME=folder, clear=True):
            self.assertIsNone(settings_file.path())
            own = pathlib.Path(folder, ".config/cotune/config.toml")
            own.parent.mkdir(parents=True)
            own.touch()
            self.assertEqual(settings_file.path(), own)
            with mock.patch.dict(os.environ, XDG_CONFIG_HOME=f"{folder}/other"):
                self.assertIsNone(settings_file.path())
            with mock.patch.dict(os.environ, COTUNE_CONFIG="/missing"):
                self.assertEqual(settings_file.path(), pathlib.Path("/missing"))
                self.assertIsNone(settings_file.given("budget"))

    def test_sizes(self) -> None:
        for text, sizes in (
            ("4K,1M", (4096, 1 << 20)), ("1K:16K:x2", (1024, 2048, 4096, 8192, 16384)), ("1k:9k", (1024, 2048, 4096, 8192)),
            ("1K:64K:+32K", (1024, 33 * 1024)), ("100,3,100", (3, 100)), ("0", (0,)),
        ):  # fmt: skip
            self.assertEqual(settings_file.sizes_bytes(text), sizes)
        for text in ("", "4Q", "2K:1K", "1:8:x1", "1:8:+0", "0:8:x2", "2T", "1:1M:+1", "4K;1M"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                settings_file.sizes_bytes(text)

    def test_hints_of_the_file_reach_the_pass_if_enable_gives_no_sizes(self) -> None:
        with settings_file_of("collective_multi_kernel_hints = 0,1K:4K:x2\n") as path:
            self.assertEqual(Settings.of().collective_multi_kernel_hints, (1024, 2048, 4096))
            self.assertEqual(Settings.of(rows=[4]).collective_multi_kernel_hints, ())
            self.assertEqual(Settings.of(collective_multi_kernel_hints=[512]).collective_multi_kernel_hints, (512,))
            for wrong in ("4Q", "1K:100K:+1K"):
                path.write_text(f"collective_multi_kernel_hints = {wrong}\n")
                with self.assertLogs("cotune.torch", "WARNING") as logged:
                    self.assertEqual(Settings.of().collective_multi_kernel_hints, ())
                self.assertIn(f"({path}:1)", logged.output[0])


if __name__ == "__main__":
    unittest.main()
