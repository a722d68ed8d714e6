"""The process groups of functions: how they are made, and how they end. Groups on GPUs are stand-ins."""

from __future__ import annotations

import contextlib
import datetime
import types
import unittest
from typing import Any
from unittest import mock

import torch.distributed as dist

from cotune.torch import function_groups, process_groups
from cotune.torch.function_groups import OwnGroup


class _End:
    """A CUDA event. `has_come` None: the GPU has an error."""

    def __init__(self, has_come: bool | None):
        self.has_come = has_come

    def query(self) -> bool:
        if self.has_come is None:
            raise RuntimeError("CUDA error")
        return self.has_come


class CloseTest(unittest.TestCase):
    def setUp(self) -> None:
        self.events: list[str] = []
        self.backend = "nccl"
        for name, replaced in (
            ("cotune.torch.process_groups.abort_collectives", lambda group: self.events.append("abort")),
            ("cotune.torch.process_groups.resolve_group", lambda name: self.group),
            ("cotune.torch.process_groups.group_backend", lambda group: self.backend),
            ("torch.distributed.destroy_process_group", self.destroy),
            ("cotune.torch.function_groups._ENDS_WAIT_S", 0.01),
        ):
            patched = mock.patch(name, replaced)
            patched.start()
            self.addCleanup(patched.stop)
        self.group: Any = mock.Mock(group_name="own")
        self.own = OwnGroup(self.group)

    def destroy(self, group: Any) -> None:
        self.group = None
        self.events.append("destroy")

    def test_a_group_without_calls_and_failures_is_not_aborted(self) -> None:
        with self.own.use():
            pass
        self.own._ends[1] = _End(True)
        self.own.close()
        self.assertEqual(self.events, ["destroy"])

    def test_what_may_wait_for_a_rank_that_has_failed_is_aborted_before_the_group_goes(self) -> None:
        def fail() -> None:
            with contextlib.suppress(LookupError), self.own.use():
                raise LookupError("no route")

        for name, prepare in (
            ("a function has raised", fail),
            ("a kernel has not ended", lambda: self.own._ends.update({1: _End(True), 2: _End(False)})),
            ("the GPU has an error", lambda: self.own._ends.update({1: _End(None)})),
        ):
            for backend, expected in (("cpu:gloo,cuda:nccl", ["abort", "destroy"]), ("gloo", ["destroy"])):
                with self.subTest(name, backend=backend):
                    self.setUp()
                    self.backend = backend
                    prepare()
                    self.own.close()
                    self.assertEqual(self.events, expected)

    def test_a_kernel_that_ends_while_the_group_waits_is_not_aborted(self) -> None:
        looks: list[bool] = []

        def query() -> bool:
            looks.append(True)
            return len(looks) > 3

        self.own._ends[1] = mock.Mock(query=query)
        self.own.close()
        self.assertEqual(self.events, ["destroy"])
        self.assertEqual(len(looks), 5)

    def test_a_call_in_flight_is_aborted_at_once_and_the_group_goes_after_it(self) -> None:
        with self.own.use():
            self.own.close()
            self.assertEqual(self.events, ["abort"])
        self.assertEqual(self.events, ["abort", "destroy"])

    def test_a_group_that_cannot_be_aborted_goes_nevertheless(self) -> None:
        with mock.patch("cotune.torch.process_groups.abort_collectives", side_effect=RuntimeError("no communicator")):
            self.own.has_failed = True
            self.own.close()
        self.assertEqual(self.events, ["destroy"])

    def test_the_end_of_the_latest_call_on_each_stream_counts(self) -> None:
        streams = [mock.Mock(cuda_stream=1), mock.Mock(cuda_stream=2), mock.Mock(cuda_stream=1)]
        made = [mock.Mock(query=lambda: True) for _ in range(3)]
        with mock.patch("torch.cuda.current_stream", side_effect=streams), mock.patch("torch.cuda.Event", side_effect=made):
            for _ in streams:
                self.own.note_enqueued()
        made[0].record.assert_has_calls([mock.call(streams[0]), mock.call(streams[2])])
        made[1].record.assert_called_once_with(streams[1])
        made[1].query = lambda: False
        self.own.close()
        self.assertEqual(self.events, ["abort", "destroy"])


class OptionsOfNccl:
    """Stands for PyTorch's ProcessGroupNCCL.Options."""

    split_from: Any = None
    _timeout: Any = None


class MakeTest(unittest.TestCase):
    def made_with(self, backend: str) -> tuple[Any, ...]:
        helper = mock.Mock(return_value=("group", None))
        with (
            mock.patch("torch.distributed.distributed_c10d._new_process_group_helper", helper),
            mock.patch("torch.distributed.ProcessGroupNCCL", mock.Mock(Options=OptionsOfNccl), create=True),
            mock.patch.dict(dist.distributed_c10d._world.pg_group_ranks, clear=True),
        ):
            self.assertEqual(process_groups.make_group([4, 6], 1, backend, "store", "own", 7.0), "group")
        self.assertEqual(helper.call_args.args[:6], (2, 1, [4, 6], backend, "store", "own"))
        self.assertEqual(helper.call_args.kwargs, {"timeout": datetime.timedelta(seconds=7)})
        return helper.call_args.args[6]

    def test_a_group_of_nccl_is_not_split_from_the_default_group(self) -> None:
        for backend in ("nccl", "cpu:gloo,cuda:nccl"):
            options = self.made_with(backend)
            self.assertIsInstance(options, OptionsOfNccl)
            options.split_from = "the communicator of the default group"  # as _new_process_group_helper does
            self.assertIsNone(options.split_from)
            self.assertEqual(options._timeout, datetime.timedelta(seconds=7), "PyTorch warns of another one")

    def test_other_groups_have_no_options(self) -> None:
        self.assertIsNone(self.made_with("gloo"))


class NamesTest(unittest.TestCase):
    def test_a_group_that_is_gone_is_not_one_of_functions_any_more(self) -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        groups = function_groups.Groups(dist.group.WORLD, dist.HashStore(), "prefix", None)
        own = groups.open(types.SimpleNamespace(job_ranks=[0], rank=0, device=None, timeout_s=5.0, name="first"))
        name = own.process_group.group_name
        self.assertTrue(function_groups.is_own(name))
        self.assertIs(process_groups.resolve_group(name), own.process_group)
        groups.close(own)
        self.assertFalse(function_groups.is_own(name))
        self.assertIsNone(process_groups.resolve_group(name))


if __name__ == "__main__":
    unittest.main()
