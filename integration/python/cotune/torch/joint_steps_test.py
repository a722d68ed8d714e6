"""Steps of several ranks on a GPU, of which one fails while the others wait for it; no GPU is needed."""

from __future__ import annotations

import threading
import unittest
from typing import Any
from unittest import mock

from cotune.torch import joint_steps, process_groups
from cotune.torch.joint_steps import DroppedOut, JointSteps
from cotune.torch.meeting import Place
from cotune.torch.testing.process_group import StandInGroup, ranks_of_group

_WAIT_S = 10.0


class JointStepsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.aborts: list[int] = []
        for each in (
            mock.patch.object(joint_steps, "_LOOK_S", 0.01),
            mock.patch.object(process_groups, "group_timeout_s", lambda group, device: 30.0),
            mock.patch.object(process_groups, "global_ranks", lambda group: [0, 1]),
            mock.patch.object(process_groups, "runs_cuda_by_nccl", lambda group: True),
            mock.patch.object(process_groups, "abort_collectives", self.abort),
            mock.patch.object(joint_steps.log, "info"),
        ):
            each.start()
            self.addCleanup(each.stop)
        self.groups = ranks_of_group()
        self.steps = [self.steps_of(group) for group in self.groups]

    def abort(self, group: StandInGroup) -> None:
        self.aborts.append(group.rank())
        group.aborted.set()

    def steps_of(self, group: StandInGroup) -> JointSteps:
        place = Place("g", group, 0)
        made = JointSteps(place, group, 0, lambda step, word: place.share(f"m/{step}", word, "come")[0], "m", 30.0, 30.0)
        made._own = group
        return made

    def together(self, *calls: Any) -> list[Any]:
        """The result of each rank, or its exception."""
        results: list[Any] = [None] * len(calls)

        def run(rank: int) -> None:
            try:
                results[rank] = self.steps[rank]._try("run it", calls[rank])
            except Exception as failure:  # noqa: BLE001  it is the result
                results[rank] = failure

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(calls))]
        for each in threads:
            each.start()
        for each in threads:
            each.join(_WAIT_S)
        return results

    def raises(self) -> None:
        raise LookupError("no route")

    def waits(self) -> bool:
        """As the host waits for a kernel of NCCL whose peer does not come: until somebody ends the kernel."""
        return self.groups[0].aborted.wait(_WAIT_S)

    def test_a_rank_that_waits_for_one_that_has_failed_is_freed(self) -> None:
        for found in self.together(self.waits, self.raises):
            self.assertIsInstance(found, DroppedOut)
            self.assertEqual(str(found), "rank 1 could not run it: LookupError: no route")
        self.assertEqual(sorted(self.aborts), [0, 1], "each rank ends its own collectives, once")
        self.assertEqual([each._own for each in self.steps], [None, None], "the process group is not used any more")

    def test_the_rank_that_has_failed_ends_its_collectives_after_the_others(self) -> None:
        self.together(self.waits, self.raises)
        self.assertEqual(self.aborts[0], 0, "its peers would report its end as an error of their own")

    def test_steps_that_go_well_abort_nothing(self) -> None:
        self.assertEqual(self.together(lambda: 3, lambda: 4), [3, 4])
        self.assertEqual(self.aborts, [])
        self.assertEqual([each._own for each in self.steps], self.groups)

    def test_a_process_group_of_another_backend_is_closed_at_once(self) -> None:
        with mock.patch.object(process_groups, "runs_cuda_by_nccl", lambda group: False):
            for found in self.together(lambda: 3, self.raises):
                self.assertIsInstance(found, DroppedOut)
        self.assertEqual(self.aborts, [])


if __name__ == "__main__":
    unittest.main()
