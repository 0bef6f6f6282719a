from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from psflow.ps_runtime.transport import waiting
from psflow.ps_runtime.transport.waiting import AWAKE_SECS, Spin, awake_secs

LOOK_SECS = 0.00001


class Scene:
    """A wait that looks and sleeps by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.look_secs = LOOK_SECS
        self.num_sleeps = self.num_looks = 0
        self.is_there: Callable[[], bool] = lambda: True
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now)

    def look(self) -> bool:
        self.num_looks += 1
        self.now += self.look_secs
        return self.is_there()

    def wait(self, spin: Spin[bool], timeout_secs: float) -> bool:
        """Wait as a ps and a replica do."""
        if spin.begin(timeout_secs):
            return True
        self.num_sleeps += 1
        if not (is_there := self.is_there()):
            self.now += timeout_secs
        spin.slept(was_enough=is_there)
        return is_there


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_the_first_wait_is_spent_asleep_and_the_one_after_a_short_one_awake(scene: Scene) -> None:
    spin = Spin(scene.look, 0.5)
    assert scene.wait(spin, 1.0)
    assert (scene.num_sleeps, scene.num_looks) == (1, 0)
    scene.is_there = lambda: scene.num_looks == 10
    assert scene.wait(spin, 1.0)
    assert (scene.num_sleeps, scene.num_looks) == (1, 10)


def test_a_wait_is_awake_only_for_so_long_and_ends_in_time(scene: Scene) -> None:
    spin = Spin(scene.look, 0.02)
    assert scene.wait(spin, 1.0)
    scene.is_there = lambda: False
    assert not scene.wait(spin, 0.1)
    assert scene.now == pytest.approx(0.02 + 0.1, abs=2 * LOOK_SECS)
    assert scene.num_sleeps == 2
    num_looks = scene.num_looks
    assert num_looks == pytest.approx(0.02 / LOOK_SECS, abs=2)
    assert not scene.wait(spin, 0.001)
    assert scene.num_looks == num_looks, "the wait before was long, so this one is spent asleep"


def test_a_short_timeout_ends_the_looks(scene: Scene) -> None:
    spin = Spin(scene.look, 0.02)
    assert scene.wait(spin, 1.0)
    scene.is_there = lambda: False
    assert not scene.wait(spin, 0.001)
    assert scene.num_looks == pytest.approx(0.001 / LOOK_SECS, abs=2)


def test_without_time_to_be_awake_every_wait_is_spent_asleep(scene: Scene) -> None:
    spin = Spin(scene.look, 0.0)
    assert scene.wait(spin, 1.0)
    assert scene.wait(spin, 1.0)
    assert (scene.num_sleeps, scene.num_looks) == (2, 0)


def test_where_somebody_else_uses_the_core_waits_are_spent_asleep_for_a_while(scene: Scene) -> None:
    scene.look_secs = 0.003  # the core was away between two looks
    spin = Spin(scene.look, 0.5)
    scene.wait(spin, 1.0)  # asleep
    for pause_secs in (0.01, 0.02, 0.04):
        num_looks = scene.num_looks
        scene.wait(spin, 1.0)  # awake, and disturbed
        assert scene.num_looks == num_looks + 1
        scene.now += 0.9 * pause_secs
        scene.wait(spin, 1.0)
        assert scene.num_looks == num_looks + 1, "in the pause"
        scene.now += 0.2 * pause_secs
    scene.look_secs = LOOK_SECS
    for num_looks in range(scene.num_looks, scene.num_looks + 5):
        assert scene.num_looks == num_looks, "awake each time: nobody disturbs any more"
        scene.wait(spin, 1.0)


@pytest.mark.parametrize(("num_roles", "expected"), [(1, AWAKE_SECS), (2, AWAKE_SECS), (3, 0.0)])
def test_roles_that_share_cores_are_never_awake(
    monkeypatch: pytest.MonkeyPatch, num_roles: int, expected: float
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 7}, raising=False)
    assert awake_secs(num_roles) == expected
    monkeypatch.delattr(os, "sched_getaffinity")
    assert awake_secs(num_roles) == 0.0
