"""Runs the layering rules over the sources, and over planted trees to see that they find what they should."""

import os
import pathlib
import tempfile
import unittest

from tests.layering import layering


class LayeringTest(unittest.TestCase):
    def plant(self, files: dict[str, str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return layering.violations(pathlib.Path(folder))

    def checkout(self) -> pathlib.Path:
        runfiles = pathlib.Path(os.environ["TEST_SRCDIR"]) / os.environ["TEST_WORKSPACE"]
        root = (runfiles / "WORKSPACE").resolve().parent
        self.assertTrue((root / "core" / "base" / "status.h").exists(), f"{root} is not the checkout")
        return root

    def test_the_sources_keep_the_direction(self):
        self.assertEqual(layering.violations(self.checkout()), [])

    def test_the_tables_name_folders_that_exist(self):
        self.assertEqual(layering.unknown_folders(self.checkout()), [])
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "core" / "base").mkdir(parents=True)
            unknown = layering.unknown_folders(pathlib.Path(folder))
        self.assertIn("core/scheduler", unknown)
        self.assertIn("plugins/host", unknown)
        self.assertNotIn("core/base", unknown)

    def test_an_upward_include_is_named_with_file_line_and_edge(self):
        self.assertEqual(
            self.plant({"core/base/a.cc": '#include "core/base/a.h"\n#include "sync/wire/b.h"\n'}),
            ["core/base/a.cc:2: core/base may not include sync/wire (sync/wire/b.h)"],
        )

    def test_core_does_not_know_which_forms_of_a_program_exist(self):
        self.assertEqual(
            self.plant(
                {
                    "core/choice/a.cc": '#include "fusion/legality.h"\n#include "hierarchy/levels.h"\n',
                    "fusion/a.cc": '#include "core/recipe/recipe.h"\n#include "core/choice/b.h"\n',
                    "integration/a.cc": '#include "fusion/enumerate.h"\n',
                }
            ),
            [
                "core/choice/a.cc:1: core/choice may not include fusion (fusion/legality.h)",
                "core/choice/a.cc:2: core/choice may not include hierarchy (hierarchy/levels.h)",
                "fusion/a.cc:2: fusion may not include core/choice (core/choice/b.h)",
            ],
        )

    def test_a_stage_includes_only_the_stages_in_front_of_it(self):
        self.assertEqual(
            self.plant(
                {
                    "core/selection/a.cc": '#include "core/problem/b.h"\n#include "core/benchmark/c.h"\n',
                    "cli/main.cc": '#include "cli/commands/b.h"\n',
                    "cli/input/a.h": '#include "cli/output/b.h"\n',
                }
            ),
            [
                "cli/input/a.h:1: cli/input may not include cli/output (cli/output/b.h)",
                "core/selection/a.cc:2: core/selection may not include core/benchmark (core/benchmark/c.h)",
            ],
        )

    def test_a_stage_may_not_include_what_lies_beside_the_stages(self):
        self.assertEqual(
            self.plant({"plugins/cuda/group/a.cc": '#include "plugins/cuda/backend.h"\n'}),
            ["plugins/cuda/group/a.cc:1: plugins/cuda/group may not include plugins/cuda (plugins/cuda/backend.h)"],
        )

    def test_a_file_in_no_stage_is_named(self):
        self.assertEqual(
            self.plant({"core/misc/a.cc": ""}),
            ["core/misc/a.cc:1: core/misc is no stage of core in tests/layering/layering.py"],
        )

    def test_helpers_of_tests_are_for_tests(self):
        self.assertEqual(
            self.plant(
                {
                    "core/base/a.cc": '#include "core/testing/b.h"\n',
                    "core/base/a_test.cc": '#include "core/testing/b.h"\n',
                    "core/testing/b.h": '#include "core/scheduler/c.h"\n',
                    "sync/a.cc": '#include "core/testing/b.h"\n',
                }
            ),
            [
                "core/base/a.cc:1: core/base is no test and may not include core/testing/b.h",
                "sync/a.cc:1: sync is no test and may not include core/testing/b.h",
            ],
        )

    def test_machines_know_neither_sockets_nor_a_clock(self):
        self.assertEqual(
            self.plant({"sync/machine/a.cc": "#include <map>\n#include <sys/socket.h>\n#include <boost/asio.hpp>\n"}),
            [
                "sync/machine/a.cc:2: sync/machine may not include sys/socket.h",
                "sync/machine/a.cc:3: sync/machine may not include boost/asio.hpp",
            ],
        )

    def test_kernels_include_only_what_lies_beside_them(self):
        self.assertEqual(
            self.plant(
                {
                    "plugins/cuda/kernels/a.cu": '#include "b.cuh"\n#include <cuda_bf16.h>\n',
                    "plugins/cuda/kernels/b.cuh": '#include "plugins/cuda/kernels/c.h"\n',
                }
            ),
            [
                "plugins/cuda/kernels/a.cu:2: a kernel may include only files beside it (cuda_bf16.h)",
                "plugins/cuda/kernels/b.cuh:1: a kernel may include only files beside it (plugins/cuda/kernels/c.h)",
            ],
        )

    def test_backends_do_not_include_each_other(self):
        self.assertEqual(
            self.plant({"plugins/host/a.cc": '#include "plugins/fake/b.h"\n#include "plugins/api/c.h"\n'}),
            ["plugins/host/a.cc:1: plugins/host may not include plugins/fake (plugins/fake/b.h)"],
        )

    def test_a_folder_inside_another_one_has_to_be_allowed_by_itself(self):
        self.assertEqual(
            self.plant(
                {
                    "plugins/cuda/a.cc": '#include "plugins/sdk/gpu/gpu.h"\n',
                    "plugins/host/a.cc": '#include "plugins/sdk/gpu/gpu.h"\n#include "plugins/sdk/problem.h"\n',
                    "plugins/sdk/a.cc": '#include "plugins/sdk/gpu/gpu.h"\n',
                }
            ),
            [
                "plugins/host/a.cc:1: plugins/host may not include plugins/sdk/gpu (plugins/sdk/gpu/gpu.h)",
                "plugins/sdk/a.cc:1: plugins/sdk may not include plugins/sdk/gpu (plugins/sdk/gpu/gpu.h)",
            ],
        )

    def test_a_folder_without_a_rule_is_named(self):
        self.assertEqual(
            self.plant({"plugins/other/a.h": ""}),
            ["plugins/other/a.h:1: the folder is not in the table of tests/layering/layering.py"],
        )

    def test_a_new_top_folder_without_a_rule_is_named(self):
        self.assertEqual(
            self.plant({"elsewhere/a.cc": "", "core/base/a.cc": ""}),
            ["elsewhere/a.cc:1: the folder is not in the table of tests/layering/layering.py"],
        )

    def test_angle_brackets_hide_nothing(self):
        self.assertEqual(
            self.plant({"sync/a.cc": "#include <vector>\n# include <cli/b.h>\n"}),
            ["sync/a.cc:2: sync may not include cli (cli/b.h)"],
        )

    def test_what_was_built_is_not_a_source(self):
        self.assertEqual(self.plant({"bazel-out/a.cc": "", "built/.cotune-tree": "", "built/include/a.h": ""}), [])

    def test_downward_includes_and_third_parties_pass(self):
        self.assertEqual(
            self.plant(
                {
                    "sync/a.cc": '#include "core/base/x.h"\n#include "fmt/format.h"\n#include <vector>\n',
                    "cli/b.cc": '#include "integration/job.h"\n',
                }
            ),
            [],
        )


if __name__ == "__main__":
    unittest.main()
