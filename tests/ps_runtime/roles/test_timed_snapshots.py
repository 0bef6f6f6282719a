"""When a snapshot by seconds is asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from psflow.ps_runtime.roles.chief import TimedSnapshots


@pytest.fixture
def saver():
    return SimpleNamespace(last_snapshot_at=100.0)


def test_a_cut_is_asked_for_once_the_seconds_are_over(saver):
    times, asked = iter([100.0, 109.9, 110.0, 110.1, 119.9, 125.0, 125.0]), []
    snapshots = TimedSnapshots(saver, 10, lambda: asked.append(saver.last_snapshot_at), lambda: next(times))
    snapshots.open()
    for _ in range(7):
        snapshots.look()
    assert asked == [110.0, 125.0]


def test_a_cut_that_was_made_by_steps_counts(saver):
    asked = []
    snapshots = TimedSnapshots(saver, 10, lambda: asked.append(1), lambda: 111.0)
    snapshots.open()
    saver.last_snapshot_at = 105.0
    snapshots.look()
    assert asked == []


def test_none_is_asked_for_before_the_job_is_open_or_without_seconds(saver):
    asked = []
    for secs, is_open in ((10, False), (None, True)):
        snapshots = TimedSnapshots(saver, secs, lambda: asked.append(1), lambda: 1e9)
        if is_open:
            snapshots.open()
        snapshots.look()
    assert asked == []
