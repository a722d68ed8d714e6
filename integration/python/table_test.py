"""Tables: tuned, saved, loaded and explained on real processes."""

import array
import os
import sys
import unittest

sys.path.insert(0, "integration/python")

from cotune import DatabaseError, DisagreementError, Group, MachineError, Node, TuneReport, UsageError
from testing.ranks import Job, RanksTest


def tune_save_and_load(rank: int, job: Job) -> dict:
    saved = job.path("saved.tdb")
    seen = {}
    seen["cells"] = cells = []
    with job.group(rank) as group:
        assert (group.table_digest, group.table_generation) == (0, 0)
        seen["before"] = group.explain("all_reduce", 1024), group.explain_dict("all_reduce", 1024)
        seen["report"] = group.tune(
            collectives=["all_reduce", "broadcast"], dtypes=["f32", "bf16"], sizes=[1024, 4096],
            progress=lambda *cell: cells.append(cell),
        )  # fmt: skip
        seen["tuned"] = group.table_digest, group.table_generation
        seen["after"] = group.explain_dict("all_reduce", 1024, dtype="bf16")
        group.save(saved)
    with job.group(rank, "second") as group:
        group.load(saved)
        seen["loaded"] = group.table_digest, group.table_generation
        values = array.array("f", [rank + 1] * 1024)
        group.all_reduce(values)
        assert values.tolist() == [3] * 1024
        report = group.tune(collectives=["broadcast"], sizes=[1024], database=saved)
        seen["again"] = report.measured, report.known
    return seen


def force_choices(rank: int, job: Job) -> dict:
    seen = {}
    with job.group(rank, force={"all_reduce": "host/ring?chunk=65536"}) as group:
        values = array.array("f", [rank + 1] * 1024)
        group.all_reduce(values)
        assert values.tolist() == [3] * 1024
        report = group.tune(collectives=["all_reduce", "broadcast"], sizes=[1024])
        seen["report"] = report.measured, report.skipped
        seen["explained"] = group.explain_dict("all_reduce", 1024)
        seen["text"] = group.explain("all_reduce", 1024)
    try:
        job.group(rank, "second", force="all_reduce=host/rign?chunk=65536")
    except UsageError as error:
        seen["error"] = str(error)
    return seen


def give_settings(rank: int, job: Job) -> dict:
    """The sizes of a tune without sizes, which are those of the setting collective_multi_kernel_hints."""
    seen = {"sizes": []}
    os.environ["COTUNE_COLLECTIVE_MULTI_KERNEL_HINTS"] = "2K"
    for name, settings in (
        ("of_environment", None),
        ("own", {"collective_multi_kernel_hints": [1024, 4096], "enable_collective_multitemplate": False}),
    ):
        cells = []
        with job.group(rank, name, settings=settings) as group:
            group.tune(collectives=["all_reduce", "broadcast"], progress=lambda *cell: cells.append(cell))  # noqa: B023
        seen["sizes"].append(list(dict.fromkeys(cells)))
    seen["errors"] = []
    for settings in (
        {"collective_benchmark_runs": 5}, {"max_fusion_depth": 9.5}, {"fusion_speedup_threshold": True}, {"budget": "1s\nforce=x"},
        {"collective_fusion_enabled": True, "enable_custom_op_fusion": False},
    ):  # fmt: skip
        try:
            job.group(rank, "refused", settings=settings)
        except UsageError as error:
            seen["errors"].append(str(error))
    return seen


def use_two_groups(rank: int, job: Job) -> dict:
    """Two groups of one process at the same time, of which one is tuned, forces a choice and fails."""
    one_choice, lines = {"all_reduce": "host/ring?chunk=65536"}, {"first": [], "second": []}

    def state_of(group: Group) -> dict:
        asked = {name: group.explain_dict(name, 1024) for name in ("all_reduce", "broadcast")}
        sources = {name: (each["source"], len(each["measured"])) for name, each in asked.items()}
        return {"table": (group.table_digest, group.table_generation), "sources": sources}

    def log_of(name: str):
        return lambda level, text: lines[name].append(text)

    seen = {}
    with (
        job.group(rank, "first", force=one_choice, settings={"keep_unsteady": True}, log=log_of("first")) as first,
        job.group(rank, "second", log=log_of("second")) as second,
    ):
        seen["before"] = state_of(second)
        first.tune(collectives=["broadcast"], sizes=[4096])
        seen["first"], seen["second"] = state_of(first), state_of(second)
        lines["second"].clear()
        try:
            first.load(job.path("missing.tdb"))
        except MachineError as error:
            seen["error"] = str(error)
        seen["logged"] = list(lines["second"])
        for value in (1, 2, 3):  # calls of both, one after the other
            for group in (first, second):
                values = array.array("f", [value * (rank + 1)] * 1024)
                group.all_reduce(values)
                assert values.tolist() == [3 * value] * 1024
        first.destroy()
        values = array.array("f", [rank + 1] * 1024)
        second.all_reduce(values)
        assert values.tolist() == [3] * 1024
        seen["after"] = state_of(second)
    return seen


def fail_to_load(rank: int, job: Job) -> list[str]:
    job.path("broken.tdb").write_bytes(b"no database")
    texts = []
    with job.group(rank) as group:
        for path in ("broken.tdb", "missing.tdb"):
            try:
                group.load(job.path(path))
            except (DatabaseError, MachineError) as error:
                texts.append(str(error))
        values = array.array("f", [1])
        group.all_reduce(values)
        assert values[0] == 2
    return texts


def tune_different_things(rank: int, job: Job) -> list[str]:
    texts = []
    with job.group(rank) as group:
        for options in (
            {"sizes": []}, {"collectives": "all_reduce"}, {"collectives": ["all_to_some"]},
            {"nodes": [Node("all_reduce")], "dtypes": ["f32"]}, {"budget_s": -1},
            {"numerics": "equal"}, {"sizes": [0, 3]},
            {"nodes": [Node("broadcast", sizes=[0])]},
        ):  # fmt: skip
            try:
                group.tune(**options)
            except UsageError as error:
                texts.append(str(error))
        try:
            group.tune([Node("all_gather", sizes=[1024 + 1024 * rank])])
        except DisagreementError as error:
            texts.append(str(error))
        assert group.table_digest == 0
        assert group.tune([Node("all_gather", sizes=[1024])], numerics="same").is_tuned
        assert group.tune([Node("broadcast", sizes=[0, 1024])]).measured == 1
    return texts


class TableTest(RanksTest):
    def test_a_tuned_table_is_saved_and_loaded(self):
        answers = self.run_ranks(tune_save_and_load)
        for seen in answers:
            text, explained = seen["before"]
            self.assertIn("not tuned", text)
            self.assertEqual((explained["source"], explained["bytes"]), ("default", 4096))
            self.assertEqual(seen["cells"][0], (1, 8, "all_reduce sum f32, 1024 bytes"))
            # A cell that takes long is named more than once.
            self.assertEqual(list(dict.fromkeys(cell for cell, _, _ in seen["cells"])), list(range(1, 9)))
            self.assertEqual(
                seen["report"], TuneReport(measured=8, known=0, skipped=0, is_tuned=True)
            )
            self.assertEqual(seen["after"]["source"], "table")
            self.assertIn("bf16", seen["after"]["subject"])
            self.assertIn(seen["after"]["choice"].split("/")[0], "host")
            self.assertEqual(seen["again"], (0, 1))
            self.assertEqual((seen["tuned"][1], seen["loaded"][1]), (1, 1))
            self.assertEqual(seen["tuned"][0], seen["loaded"][0])
        self.assertEqual(answers[0]["tuned"], answers[1]["tuned"])
        self.assertNotEqual(answers[0]["tuned"][0], 0)

    def test_settings_of_a_group_count_more_than_the_environment(self):
        for seen in self.run_ranks(give_settings):
            of_environment, own = seen["sizes"]
            self.assertEqual(
                of_environment, [(1, 2, "all_reduce sum f32, 2048 bytes"), (2, 2, "broadcast f32, 2048 bytes")]
            )
            # One collective after the other: each begins to count anew.
            self.assertEqual(
                own,
                [
                    (1, 2, "all_reduce sum f32, 1024 bytes"), (2, 2, "all_reduce sum f32, 4096 bytes"),
                    (1, 2, "broadcast f32, 1024 bytes"), (2, 2, "broadcast f32, 4096 bytes"),
                ],
            )  # fmt: skip
            unknown, fraction, switch, line_break, aliases = seen["errors"]
            self.assertIn('unknown setting "collective_benchmark_runs" (option settings of the group)', unknown)
            self.assertIn("did you mean collective_benchmark_nruns?", unknown)
            self.assertIn('bad value "9.500000000" for max_fusion_depth (option settings of the group)', fraction)
            self.assertIn('bad value "on" for fusion_speedup_threshold', switch)
            self.assertIn("has a line break", line_break)
            self.assertIn("both are names of one setting", aliases)

    def test_a_forced_choice_runs_and_is_not_measured(self):
        for seen in self.run_ranks(force_choices):
            self.assertEqual(seen["report"], (1, 1))
            explained = seen["explained"]
            self.assertEqual((explained["choice"], explained["source"]), ("host/ring?chunk=65536", "forced"))
            self.assertEqual(explained["forced_refused"], "")
            self.assertIn("the setting force_choice gives it this choice", seen["text"])
            self.assertIn("did you mean host/ring?chunk=65536?", seen["error"])

    def test_two_groups_of_one_process_share_no_state(self):
        for rank, seen in enumerate(self.run_ranks(use_two_groups)):
            untouched = {"table": (0, 0), "sources": {"all_reduce": ("default", 0), "broadcast": ("default", 0)}}
            self.assertEqual(seen["before"], untouched)
            self.assertNotEqual(seen["first"]["table"], (0, 0))
            self.assertEqual(seen["first"]["sources"]["all_reduce"], ("forced", 0))
            self.assertEqual(seen["first"]["sources"]["broadcast"], ("table", 1), f"rank {rank}")
            self.assertIn("missing.tdb", seen["error"])
            self.assertEqual(seen["logged"], [])
            self.assertEqual((seen["second"], seen["after"]), (untouched, untouched))

    def test_a_database_that_cannot_be_used_changes_nothing(self):
        for texts in self.run_ranks(fail_to_load):
            self.assertEqual(len(texts), 2)
            self.assertIn("broken.tdb", texts[0])
            self.assertIn("missing.tdb", texts[1])

    def test_wrong_arguments_and_ranks_that_differ(self):
        for texts in self.run_ranks(tune_different_things):
            words = (
                "no list of sizes",
                "no list of Collective",
                "there is no Collective 'all_to_some'",
                "nodes are given",
                "budget_ns",
                "there is no Numerics 'equal'",
                "no size has an element for every rank",
                "broadcast f32 0; give larger sizes",
                "node",
            )
            self.assertEqual(len(texts), len(words), texts)
            for text, word in zip(texts, words, strict=True):
                self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
