"""The losses that a replica reports, and when."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from psflow import RunConfig
from psflow.ps_runtime.roles import trainer as module
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.events import FirstStep, TrainingLoss
from psflow.ps_runtime.roles.trainer import ReplicaLosses
from psflow.ps_runtime.specs.roles import RoleId


def reported(
    monkeypatch: pytest.MonkeyPatch, role: str, every: int | None, steps: list[int], secs_per_step: float
) -> list[Any]:
    """Return what a replica reports that computes at these global steps: steps of losses, and types of events."""
    events: list[Any] = []
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    context = RoleContext(RoleId.parse(role), 1, lambda: None, events.append)
    losses = ReplicaLosses(context, dataclasses.replace(RunConfig(), log_step_count_steps=every))
    session: Any = SimpleNamespace(step_session=SimpleNamespace(num_steps=0, computed_at=0, loss=float("nan")))
    for step in steps:
        steps_so_far = session.step_session
        steps_so_far.num_steps, steps_so_far.computed_at, steps_so_far.loss = steps_so_far.num_steps + 1, step, step / 8
        losses.after_step(session)
        now[0] += secs_per_step
    losses.end(session)
    assert all(event.loss == event.step / 8 for event in events if isinstance(event, TrainingLoss))
    return [(e.step, e.is_last) if isinstance(e, TrainingLoss) else type(e) for e in events]


@pytest.mark.parametrize(
    ("role", "every", "secs_per_step", "losses"),
    [
        ("worker-0", 100, 1.0, [(7, False), (113, False), (207, False), (298, True)]),
        ("worker-0", 100, 0.0, [(7, False), (298, True)]),
        ("chief-0", 100, 1.0, [(7, False), (298, True)]),
        ("worker-0", None, 1.0, [(298, True)]),
    ],
)
def test_first_and_last_and_of_a_worker_one_in_each_interval_and_second(
    monkeypatch: pytest.MonkeyPatch, role: str, every: int | None, secs_per_step: float, losses: list[Any]
) -> None:
    found = reported(monkeypatch, role, every, [7, 60, 113, 160, 207, 250, 298], secs_per_step)
    assert found == [FirstStep, *losses]


def test_a_replica_without_a_step_reports_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reported(monkeypatch, "worker-0", 100, [], 0.0) == []
