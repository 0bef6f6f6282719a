"""How a role fares, as it tells."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from psflow.ps_runtime.errors import ClosedError
from psflow.ps_runtime.latencies import Latencies
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.events import Metrics
from psflow.ps_runtime.roles.role_metrics import MAX_SECS, RoleMetrics, RoleSample
from psflow.ps_runtime.specs.roles import Role, RoleId


class Scene:
    """A role with a clock and counts that a test sets."""

    def __init__(self) -> None:
        self.now = 50.0
        none = Latencies().counts
        self.sample = RoleSample(0, 0, 0, 0, 0, none, none)
        self.told: list[tuple[int, dict[str, float]]] = []
        self.role_metrics = RoleMetrics("worker-0", self.take, lambda: self.sample, lambda: self.now)

    def take(self, global_step: int, values: Mapping[str, float]) -> None:
        self.told.append((global_step, {name.removeprefix("role/worker-0/"): v for name, v in values.items()}))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_rates_are_of_the_time_since_the_last_report(scene: Scene) -> None:
    scene.now += 2
    scene.sample = RoleSample(100, 2000, 4000, 50, 25)
    scene.role_metrics.report_now()
    scene.now += 4
    scene.sample = RoleSample(300, 2000, 4400, 150, 325)
    scene.role_metrics.report_now()
    (first_step, first), (second_step, second) = scene.told
    assert (first_step, second_step) == (100, 300)
    rates = ("steps_per_sec", "staleness", "sent_bytes_per_sec", "received_bytes_per_sec")
    assert [first[name] for name in rates] == [25, 0.5, 1000, 2000]
    assert [second[name] for name in rates] == [25, 3, 0, 100]
    assert [(told["sent_bytes_per_step"], told["received_bytes_per_step"]) for told in (first, second)] == [
        (40, 80),
        (0, 4),
    ]
    assert first["rss_mb"] > 10
    assert first["cpu_percent"] >= 0


def test_percentiles_are_of_the_pulls_and_pushes_since_the_last_report(scene: Scene) -> None:
    pulls, pushes = Latencies(), Latencies()
    for pull_secs, push_secs in [(1.0, 0.001), (0.001, None)]:
        scene.now += 1
        pulls.add(pull_secs)
        if push_secs is not None:
            pushes.add(push_secs)
        scene.sample = RoleSample(0, pulls=pulls.counts, pushes=pushes.counts)
        scene.role_metrics.report_now()
    (_, first), (_, second) = scene.told
    assert first["push_p95_ms"] == second["pull_p95_ms"] == pytest.approx(1, rel=0.1)
    assert first["pull_p95_ms"] == pytest.approx(1000, rel=0.1)
    assert "push_p95_ms" not in second, "there were none"


def test_reports_become_rarer(scene: Scene) -> None:
    times = []
    for _ in range(1000):
        scene.now += 0.25
        num_told = len(scene.told)
        scene.role_metrics.report_if_due()
        if len(scene.told) > num_told:
            times.append(scene.now - 50)
    assert times[:4] == [1, 3, 7, 15]
    assert {later - earlier for earlier, later in itertools.pairwise(times[4:])} == {MAX_SECS}


def test_a_role_that_waits_has_a_rate_but_no_staleness(scene: Scene) -> None:
    scene.now += 1
    scene.role_metrics.report_now()
    [(_, values)] = scene.told
    assert values["steps_per_sec"] == 0
    assert not {"staleness", "sent_bytes_per_step"} & values.keys()


def test_nothing_is_told_before_there_are_values(scene: Scene) -> None:
    scene.sample = RoleSample(-1)
    scene.now += 1
    scene.role_metrics.report_now()
    assert scene.told == []
    scene.sample = RoleSample(1500, 0, 0, 1500)  # a restored shard has not made these updates
    scene.now += 1
    scene.role_metrics.report_now()
    assert "steps_per_sec" not in scene.told[0][1]


def test_counts_of_a_new_connection_begin_again(scene: Scene) -> None:
    scene.sample = RoleSample(1, 1000, 1000, 1, 0)
    scene.now += 1
    scene.role_metrics.report_now()
    scene.sample = RoleSample(2, 10, 20, 2, 0)
    scene.now += 1
    scene.role_metrics.report_now()
    assert scene.told[1][1]["sent_bytes_per_sec"] == 10


def test_a_connection_that_is_away_is_no_fault(scene: Scene) -> None:
    def closed() -> RoleSample:
        raise ClosedError("the connection of worker-0")

    scene.role_metrics._sample = closed
    scene.now += 1
    scene.role_metrics.report_now()
    assert scene.told == []


def test_a_context_tells_when_it_is_due_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    context = RoleContext(RoleId(Role.PS, 1), 1, lambda: None, events.append)
    context.watch(lambda: RoleSample(7))
    context.check()
    assert events == []
    context.report("shm", {})
    assert [(type(event), event.step) for event in events] == [(Metrics, 7)]
    assert set(events[0].values) == {"role/ps-1/cpu_percent", "role/ps-1/rss_mb"}
