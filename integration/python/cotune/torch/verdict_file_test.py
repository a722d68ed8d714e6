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
            os.environ["COTUNE_DATABASE"] = "/db/t.tdb"
            self.assertEqual(verdict_file.path_of(""), "/db/t.tdb.torch.json")
        with mock.patch.dict(os.environ, {}, clear=True):
            self.assertEqual(verdict_file.path_of(""), "")

    def test_a_digest_is_of_all_that_a_verdict_depends_on(self):
        digests = {verdict_file.digest(*each, -1) for each in (("p", 8, 2), ("q", 8, 2), ("p", 9, 2), ("p", 8, 4))}
        with mock.patch.object(verdict_file.torch, "get_num_threads", return_value=77):
            digests.add(verdict_file.digest("p", 8, 2, -1))
        self.assertEqual(len(digests), 5)


if __name__ == "__main__":
    unittest.main()
