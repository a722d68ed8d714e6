"""As program_measure.py, for host memory and lists of numbers. TEST_COLUMNS is the width of the values; with TEST_WRONG_USER
what is computed without cotune is off by one row on all ranks; with TEST_FAILS_OF the second way of that program fails."""

import dataclasses
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import part_workloads
import program_contenders
import program_measure
import program_platforms
from testing import list_workloads


def workloads(columns: int) -> list[part_workloads.Workload]:
    made = [list_workloads.on_lists(each, columns) for each in part_workloads.WORKLOADS]
    return [wrong(each, columns) for each in made] if os.environ.get("TEST_WRONG_USER") else made


def wrong(workload: part_workloads.Workload, columns: int) -> part_workloads.Workload:
    def user(torch, v):
        return {name: values[columns:] + values[:columns] for name, values in workload.user(torch, v).items()}

    return dataclasses.replace(workload, user=user)


def fail_in(run_class, program: str) -> None:
    """Its runs of this program."""
    enqueue = run_class.enqueue

    def failing(self):
        if self.case.workload.example == program:
            raise RuntimeError("asked to fail")
        enqueue(self)

    run_class.enqueue = failing


if __name__ == "__main__":
    if os.environ.get("TEST_FAILS_OF"):
        fail_in(program_contenders.CompiledRun, os.environ["TEST_FAILS_OF"])
    program_measure.leave(program_measure.main(sys.argv[1:], program_platforms.Host, workloads(int(os.environ["TEST_COLUMNS"]))))
