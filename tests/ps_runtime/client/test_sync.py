"""Synchronous training with k replicas is training on the joined batch, whatever the optimizer and the number of ps."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

from psflow.ps_runtime.client.checkpoints import SavingClient
from psflow.ps_runtime.client.training import TrainingClient
from psflow.ps_runtime.model.lookups import RowGradient
from psflow.ps_runtime.optimizers import OPTIMIZERS
from psflow.ps_runtime.protocol.message import Purpose
from psflow.ps_runtime.specs.consistency import Async, Sync
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec

SECS = 200.0
NUM_STEPS = 60
NUM_IDS = 12


def model_of(optimizer):
    variables = (VariableSpec("kernel", (5, 3), "float32", 0), VariableSpec("bias", (3,), "float64", 0))
    table = TableSpec("items", NUM_IDS, 4, "float32", 0, {"name": "uniform", "scale": 0.5}, seed=7)
    return ModelSpec(variables, (optimizer.config(),), (table,))


def gradients_of_step(model, rng):
    ids = np.flatnonzero(rng.random(NUM_IDS) < 0.5)
    rows = RowGradient(ids, rng.normal(size=(len(ids), 4)).astype(np.float32))
    return {v.name: rng.normal(size=v.shape).astype(v.dtype) for v in model.variables} | {"items": rows}


def joined(model, parts):
    """Return the gradient of the mean loss of the joined batch."""
    dense = {v.name: np.mean([part[v.name].astype(np.float64) for part in parts], 0) for v in model.variables}
    rows = np.zeros((NUM_IDS, 4))
    touched = np.zeros(NUM_IDS, bool)
    for part in parts:
        rows[part["items"].ids] += part["items"].values
        touched[part["items"].ids] = True
    ids = np.flatnonzero(touched)
    mean = RowGradient(ids, (rows[ids] / len(parts)).astype(np.float32))
    return {v.name: dense[v.name].astype(v.dtype) for v in model.variables} | {"items": mean}


class Training:
    def __init__(self, stack, ps_of, model, num_ps, num_replicas, consistency):
        ps = ps_of(model, num_ps, consistency=consistency, num_replicas=num_replicas)
        saving = SavingClient(stack.enter_context(ps.shards(Purpose.SAVE)), model, SECS)
        saving.initialize({v.name: np.ones(v.shape, v.dtype) for v in model.variables})
        saving.open()
        self.job = ps.job_requests.job
        shards = [stack.enter_context(ps.shards(replica=replica)) for replica in range(num_replicas)]
        self.replicas = [TrainingClient(some, model, SECS) for some in shards]
        for replica in self.replicas:
            assert replica.next_grant().global_step == 0

    def step(self, parts, rate):
        for replica, gradients in zip(self.replicas, parts, strict=True):
            versions = replica.pull()
            replica.start_push(gradients, [rate], 1, versions)
        return [replica.finish_push() for replica in self.replicas]

    def values(self, model):
        replica = self.replicas[-1]
        replica.pull()
        rows = replica.rows.rows(model.tables[0], np.arange(NUM_IDS))
        return {name: value.copy() for name, value in replica.variables.items()} | {"items": rows}


@pytest.mark.parametrize("num_replicas", [2, 3])
@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_k_replicas_train_as_one_does_on_the_joined_batch(ps_of, name, num_ps, num_replicas):
    optimizer = OPTIMIZERS[name](learning_rate=0.01)
    model = model_of(optimizer)
    rng = np.random.default_rng(num_replicas)
    with ExitStack() as stack:
        many = Training(stack, ps_of, model, num_ps, num_replicas, Sync())
        one = Training(stack, ps_of, model, num_ps, 1, Async())
        for step in range(NUM_STEPS):
            parts = [gradients_of_step(model, rng) for _ in range(num_replicas)]
            assert {grant.global_step for grant in many.step(parts, 0.01)} == {step + 1}
            one.step([joined(model, parts)], 0.01)
        assert many.job.global_step == one.job.global_step == NUM_STEPS
        expected = one.values(model)
        for value_name, value in many.values(model).items():
            np.testing.assert_allclose(value, expected[value_name], rtol=2e-4, atol=2e-5, err_msg=value_name)
            assert not np.allclose(value, 1.0)


def test_a_variable_that_only_some_have_a_gradient_for_counts_as_zero_with_the_others(ps_of):
    model = model_of(OPTIMIZERS["GradientDescent"](learning_rate=1.0))
    with ExitStack() as stack:
        training = Training(stack, ps_of, model, 2, 2, Sync())
        training.step([{"bias": np.full(3, 4.0)}, {}], 1.0)
        values = training.values(model)
        np.testing.assert_array_equal(values["bias"], np.full(3, 1.0 - 2.0))
        np.testing.assert_array_equal(values["kernel"], np.ones((5, 3), np.float32))
