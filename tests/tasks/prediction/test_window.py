"""Partitions on a Dask cluster within this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import dask
import pytest
from distributed import Client, LocalCluster

from psflow.ps_runtime.cluster import slots
from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.tasks.prediction import window
from psflow.tasks.prediction.part_facts import PartFacts
from psflow.tasks.prediction.window import Partitions, predicted_parts
from tests.leak_guard import no_leaks
from tests.silent_scheduler import SILENT, HangingFuture, SilentScheduler, be_impatient, client_of
from tests.tasks.prediction.scoring import facts, part

NUM_PARTS, NUM_SLOTS = 200, 2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    options = {"n_workers": NUM_SLOTS, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with (
        no_leaks(),
        dask.config.set({"temporary-directory": str(tmp_path)}),
        LocalCluster(**options) as cluster,
    ):
        yield cluster


def predict(work: Any, parts: Any) -> list[PartFacts]:
    return [facts(part) for part in parts]


@pytest.mark.cluster(shared=True)
def test_the_scheduler_has_a_few_partitions_however_many_there_are(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "predict_in_turn", predict)
    work: Any = None
    parts = [part(i, 3 * i, 3 * i + 3) for i in range(NUM_PARTS)]
    seen: list[PartFacts] = []
    num_tasks: list[int] = []
    with Client(cluster) as client:
        for batch in predicted_parts(client, Partitions(work, parts)):
            seen += batch
            num_tasks.append(len(cluster.scheduler.tasks))
    assert sorted(one.first_record for one in seen) == [3 * i for i in range(NUM_PARTS)]
    assert 0 < max(num_tasks) <= 3 * slots.AHEAD * NUM_SLOTS  # some that have ended are not forgotten yet


def test_a_scheduler_that_hands_over_no_facts_is_named(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch)
    client, work = client_of(loop, SilentScheduler()), cast(Any, None)
    future: Any = HangingFuture(client)
    predicting = window._Window(client, Partitions(work, []))
    predicting._running[future] = [part(0, 0, 3)]
    with pytest.raises(WaitTimeoutError, match=SILENT):
        predicting.taken([future])
