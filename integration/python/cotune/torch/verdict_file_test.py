"""The file of verdicts: what is kept, and what counts as nothing."""

import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from cotune.torch import verdict_file


class VerdictFileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = f"{folder.name}/below/tuned.tdb.torch.json"

    def test_verdicts_are_added_to_those_that_are_there(self):
        verdict_file.write(self.path, {"a": {"rows": 1}, "b": {"rows": 2}})
        verdict_file.write(self.path, {"b": {"rows": 3}, "c": {"rows": 4}})
        self.assertEqual(verdict_file.read(self.path, ["a", "b", "d"]), {"a": {"rows": 1}, "b": {"rows": 3}})
        left = [each.name for each in pathlib.Path(self.path).parent.iterdir()]
        self.assertEqual(sorted(left), ["tuned.tdb.torch.json", "tuned.tdb.torch.json.lock"], "no temporary file stays")

    def test_a_file_that_cannot_be_read_has_none(self):
        self.assertEqual(verdict_file.read(self.path, ["a"]), {})
        verdict_file.write(self.path, {"a": {}})
        for text in ("", "{", "[]", json.dumps({"version": 2, "verdicts": {"a": {}}}), json.dumps({"version": 1, "verdicts": []})):
            pathlib.Path(self.path).write_text(text)
            self.assertEqual(verdict_file.read(self.path, ["a"]), {}, text)
        verdict_file.write(self.path, {"a": {"rows": 1}})
        self.assertEqual(verdict_file.read(self.path, ["a"]), {"a": {"rows": 1}})

    def test_a_folder_that_cannot_be_written_is_no_error(self):
        pathlib.Path(self.path).parent.write_text("a file")
        verdict_file.write(self.path, {"a": {}})
        self.assertEqual(verdict_file.read(self.path, ["a"]), {})

    def test_it_lies_beside_the_database(self):
        with mock.patch.dict(os.environ, {"HOME": "/home/x"}, clear=True):
            self.assertEqual(verdict_file.path_of(None), "")
            self.assertEqual(verdict_file.path_of("/tmp/t.tdb"), "/tmp/t.tdb.torch.json")
            self.assertEqual(verdict_file.path_of(""), "/home/x/.cache/cotune/verdicts.torch.json")
            os.environ["XDG_CACHE_HOME"] = "/cache"
            self.assertEqual(verdict_file.path_of(""), "/cache/cotune/verdicts.torch.json")
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write('database = "/file/t.tdb"\n')
                file.flush()
                os.environ["COTUNE_CONFIG"] = file.name
                self.assertEqual(verdict_file.path_of(""), "/file/t.tdb.torch.json")
                del os.environ["COTUNE_CONFIG"]
            os.environ["COTUNE_DATABASE"] = "/db/t.tdb"
            self.assertEqual(verdict_file.path_of(""), "/db/t.tdb.torch.json")
        with mock.patch.dict(os.environ, {}, clear=True):
            self.assertEqual(verdict_file.path_of(""), "")

    def test_a_digest_is_of_all_that_a_verdict_depends_on(self):
        first = {"text": "p", "rows": 8, "ranks": 2, "device": -1, "backend": "gloo", "choices": "host/ring", "options": "[]"}
        others = {"text": "q", "rows": 9, "ranks": 4, "backend": "mpi", "choices": "host/one_shot", "options": "[1]"}
        digests = [verdict_file.digest(**first), *(verdict_file.digest(**first | {name: value}) for name, value in others.items())]
        with mock.patch.object(verdict_file.torch, "get_num_threads", return_value=77):
            digests.append(verdict_file.digest(**first))
        self.assertEqual(len(set(digests)), len(digests))
        self.assertEqual(verdict_file.digest(**first), digests[0])

    def test_a_verdict_of_the_host_never_counts_on_a_gpu(self):
        with (
            mock.patch.object(verdict_file.torch.cuda, "get_device_name", return_value="H"),
            mock.patch.object(verdict_file.torch.cuda, "get_device_capability", return_value=(9, 0)),
            mock.patch.object(verdict_file, "_processor", return_value="H (9, 0)"),
            mock.patch.object(verdict_file.torch.cuda, "nccl", mock.Mock(version=lambda: (2, 28))),
        ):
            verdict_file._machine.cache_clear()
            self.addCleanup(verdict_file._machine.cache_clear)
            host, gpu = verdict_file._machine(-1), verdict_file._machine(0)
        self.assertEqual((host.split()[0], gpu.split()[0]), ("cpu", "cuda"))
        for each in (host, gpu):
            self.assertIn(f"torch {verdict_file.torch.__version__}", each)

    def test_the_model_of_the_processor(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("processor : 0\nmodel name\t: Fast CPU 3\n")
            file.flush()
            self.assertEqual(verdict_file._processor(file.name), "Fast CPU 3")
        self.assertNotEqual(verdict_file._processor("/nowhere"), "")


if __name__ == "__main__":
    unittest.main()
