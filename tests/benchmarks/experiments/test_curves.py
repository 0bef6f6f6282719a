"""Small trials, through psflow itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from benchmarks.experiments.curves import run_trial
from benchmarks.experiments.networks import estimator_of, sigmoid_network
from benchmarks.experiments.trials import CONSISTENCIES, PROBLEMS, Trial
from psflow import ModeKeys
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.gradients import GradientFn
from psflow.ps_runtime.specs.consistency import Async, Consistency
from tests.leak_guard import no_leaks

pytestmark = pytest.mark.process


SMALL = replace(PROBLEMS["digits"], num_gradients=12, gradients_between=6)


def trial(consistency: Consistency, num_replicas: int) -> Trial:
    return Trial(SMALL, consistency, num_replicas, SMALL.small_rate, SMALL.num_gradients, seed=1)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with no_leaks(), open_cluster(None, 4, 300) as client:
        yield client


@pytest.mark.cluster(shared=True)
@pytest.mark.parametrize("consistency", CONSISTENCIES, ids=lambda consistency: consistency.name)
def test_a_trial_is_evaluated_after_equal_numbers_of_gradients(
    client: Client, tmp_path: Path, consistency: Consistency
) -> None:
    curve = run_trial(client, trial(consistency, 2), str(tmp_path))
    assert curve.fault is None
    assert curve.gradients == [0, 6, 12]
    assert curve.losses[2] < curve.losses[0]
    assert curve.error_after(12) == curve.errors[2]
    assert curve.mean_staleness <= curve.max_staleness
    if consistency.name == "sync":
        assert curve.max_staleness == 0


@pytest.mark.cluster(shared=True)
def test_a_trial_that_fails_says_why_and_keeps_what_was_measured(client: Client, tmp_path: Path) -> None:
    good = run_trial(client, trial(Async(), 1), str(tmp_path))
    wild = replace(trial(Async(), 1), learning_rate=1e30, num_gradients=24)
    with np.errstate(all="ignore"):
        curve = run_trial(client, wild, str(tmp_path))
    assert "loss" in (curve.fault or "")
    assert curve.gradients[:3] == good.gradients == [0, 6, 12]
    assert curve.error_after(24) is None
    assert curve.transport is None


def test_the_gradients_of_the_network_of_old_are_those_of_its_loss(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    features = {"features": rng.random((4, 5))}
    labels = rng.integers(0, 10, 4)
    params = {"hidden_units": 3, "learning_rate": 0.1}
    caller = ModelCaller(sigmoid_network, params, estimator_of(trial(Async(), 1), str(tmp_path)).config)
    built = caller.build(features, labels, ModeKeys.TRAIN, seed=1)
    values = {v.name: rng.normal(size=v.shape).astype(np.float32) for v in built.model.variables}
    gradient_fn = GradientFn(caller, built)
    gradients = {name: np.copy(g) for name, g in gradient_fn(features, labels, values, 0).gradients.items()}
    for name, value in values.items():
        for at in np.ndindex(value.shape):
            slope = []
            for shift in (0.01, -0.01):
                moved = {**values, name: value.copy()}
                moved[name][at] += shift
                slope.append(gradient_fn(features, labels, moved, 0).loss)
            assert gradients[name][at] == pytest.approx((slope[0] - slope[1]) / 0.02, abs=2e-3), name
