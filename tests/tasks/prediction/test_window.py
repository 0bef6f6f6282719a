"""Partitions on a Dask cluster within this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from psflow.tasks.prediction import window
from psflow.tasks.prediction.part_facts import PartFacts
from psflow.tasks.prediction.window import Partitions, predicted_parts
from tests.leak_guard import no_leaks
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


def predict(work: Any, part: Any) -> PartFacts:
    return facts(part)


@pytest.mark.cluster(shared=True)
def test_the_scheduler_has_a_few_partitions_however_many_there_are(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "predict_partition", predict)
    work: Any = None
    parts = [part(i, 3 * i, 3 * i + 3) for i in range(NUM_PARTS)]
    seen: list[PartFacts] = []
    num_tasks: list[int] = []
    with Client(cluster) as client:
        for batch in predicted_parts(client, Partitions(work, parts)):
            seen += batch
            num_tasks.append(len(cluster.scheduler.tasks))
    assert sorted(one.first_record for one in seen) == [3 * i for i in range(NUM_PARTS)]
    assert 0 < max(num_tasks) <= 3 * window.AHEAD * NUM_SLOTS  # some that have ended are not forgotten yet
