"""Settings of cotune as options of enable(), and how they reach a group."""

from __future__ import annotations

import os
import unittest
from unittest import mock

from torch._inductor import config

import cotune.torch
from cotune._creation import settings_text
from cotune.torch import compat, groups, job_settings
from cotune.torch.graph_pass import CotunePass

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
        cotune.torch.enable(max_fusion_depth=2)
        cotune.torch.options(export=True)
        self.assertEqual(groups._settings.settings, {"max_fusion_depth": 2})


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


if __name__ == "__main__":
    unittest.main()
