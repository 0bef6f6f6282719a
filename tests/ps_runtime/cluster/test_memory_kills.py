"""Roles that take more memory than their Dask workers may have, on a real cluster: the loss says so."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from dask.utils import parse_bytes
from distributed import Worker

from psflow import TrainSpec
from psflow.ps_runtime.cluster import connecting
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import Event, FirstStep, RoleLost
from psflow.ps_runtime.specs.roles import RoleId
from tests.ps_runtime.cluster.test_training import endless, estimator

LIMIT_BYTES = 512 * 2**20


class BothLostError(Exception):
    """The test has seen what it waits for."""


async def take_all(dask_worker: Worker) -> None:
    """Take all memory that a Dask worker may have."""
    dask_worker.held = np.ones(LIMIT_BYTES, np.uint8)  # type: ignore[attr-defined]


@pytest.mark.cluster
def test_a_worker_and_a_ps_that_take_too_much_memory_are_lost_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "parse_memory_limit", lambda *given, **options: LIMIT_BYTES)
    events: list[Event] = []
    hungry = ["ps-0", "worker-0"]
    with (
        open_cluster(None, 3, 300) as client,
        Attempt(estimator(tmp_path), TrainSpec(endless, 10**8), (), num_workers=1) as attempt,
        ClusterJob(client, attempt.job(), events.append) as run,
    ):

        def check() -> None:
            losses = sum(isinstance(event, RoleLost) for event in events)
            trains = {event.role for event in events if isinstance(event, FirstStep)} == {"chief-0", "worker-0"}
            if losses == 2:
                raise BothLostError
            if trains and losses + len(hungry) == 2:
                slot = run._supervisor.slots()[RoleId.parse(hungry.pop())]
                client.run(take_all, workers=[slot], wait=False)

        run.start(AdmissionPolicy(10))
        with pytest.raises(BothLostError):
            run.join(check)
    losses = [event for event in events if isinstance(event, RoleLost)]
    assert [event.role for event in losses] == ["worker-0", "ps-0"]
    for event, instead in zip(losses, ("make batches smaller", "train on a cluster"), strict=True):
        parts = re.fullmatch(
            r"the nanny of its Dask worker tls://127\.0\.0\.1:\d+ killed it at (\S+ MiB) of its limit of 512\.00 MiB; "
            rf"the processes share the memory of this machine equally: start fewer workers, or {instead}",
            event.reason,
        )
        assert parts, event.reason
        assert parse_bytes(parts[1]) > 0.95 * LIMIT_BYTES
