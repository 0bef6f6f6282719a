"""What Dask says while a cluster of our own lives."""

from __future__ import annotations

import logging

import pytest

from psflow.ps_runtime.cluster.closed_nodes import quiet_logs


def test_dask_says_nothing_meanwhile_however_critical_it_is(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("distributed.scheduler")
    with quiet_logs():
        logger.critical("Closed comm while trying to write")
    assert caplog.messages == []
    logger.critical("said")
    assert caplog.messages == ["said"]
