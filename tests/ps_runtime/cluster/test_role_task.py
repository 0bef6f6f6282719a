"""What Dask's log has of the end of a role's task."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from psflow.ps_runtime.cluster.role_task import _Unlogged


@pytest.mark.parametrize(
    ("args", "is_logged"), [(("k-1", "executing"), False), (("k-2",), True), ((), True), ((["k-1"], 2), True)]
)
def test_a_failure_of_a_task_that_is_noted_is_left_out_of_the_log(args: tuple[Any, ...], is_logged: bool) -> None:
    unlogged = _Unlogged()
    unlogged.add("k-1")
    logger = logging.getLogger("distributed.worker")
    try:
        record = logger.makeRecord(logger.name, logging.ERROR, "worker.py", 1, "Compute Failed", args, None)
        assert bool(logger.filter(record)) is is_logged
    finally:
        logger.removeFilter(unlogged)
