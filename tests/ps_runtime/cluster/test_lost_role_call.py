"""A process that is killed while a cluster calls a function in it."""

from __future__ import annotations

import logging
import os
import signal

import pytest

from psflow.ps_runtime.cluster import presence
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.role_calls import RoleCall, RoleCalls
from psflow.ps_runtime.errors import RoleLostError
from psflow.ps_runtime.specs.roles import RoleId


@pytest.mark.cluster
def test_the_role_of_a_process_that_is_gone_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(presence, "LOOK_SECS", 0.1)
    chief = RoleCall(RoleId.parse("chief-0"), "localhost:1", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    words = r"^chief-0 failed: its Dask worker tls://127\.0\.0\.1:\d+ is gone; see its log, then start again$"
    with (
        caplog.at_level(logging.WARNING, "psflow"),
        open_cluster(None, 1, 300) as client,
        pytest.raises(RoleLostError, match=words),
        RoleCalls(client, [chief]) as running,
    ):
        running.join()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psflow")] == []
