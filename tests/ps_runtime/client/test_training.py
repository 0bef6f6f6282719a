"""What a replica pulls and pushes over several shards."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.client.checkpoints import SavingClient
from psflow.ps_runtime.client.training import Grant, TrainingClient
from psflow.ps_runtime.errors import (
    CheckpointError,
    InputError,
    NanGradientError,
    RefusedError,
    WaitTimeoutError,
)
from psflow.ps_runtime.model.lookups import RowGradient
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent, Momentum
from psflow.ps_runtime.protocol.message import Kind, Purpose
from psflow.ps_runtime.server.instructions import Refusal
from psflow.ps_runtime.specs import layout
from psflow.ps_runtime.specs.input import InputSpec, RecordRange
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec

SECS = 200.0
SGD = GradientDescent(learning_rate=1.0).config()
MOMENTUM = Momentum(learning_rate=1.0, momentum=0.5).config()

MODEL = ModelSpec(
    (
        VariableSpec("left", (3,), "float32", 0),
        VariableSpec("right", (2, 2), "float32", 0),
        VariableSpec("plain", (4,), "float64", 1),
        VariableSpec("fixed", (2,), "float32", None),
    ),
    (MOMENTUM, SGD),
)
ONES = {v.name: np.ones(v.shape, v.dtype) for v in MODEL.variables}


class Chief:
    """An open job and the clients of its chief."""

    def __init__(self, stack: ExitStack, ps: Any, values: Any) -> None:
        self.ps = ps
        self.saving = SavingClient(stack.enter_context(ps.shards(Purpose.SAVE)), ps.model, SECS)
        self.saving.initialize(values)
        assert self.saving.open() == 0
        self.shards = stack.enter_context(ps.shards())
        self.client = TrainingClient(self.shards, ps.model, SECS)


@pytest.fixture(params=[1, 2, 5])
def chief(request, ps_of):
    with ExitStack() as stack:
        yield Chief(stack, ps_of(MODEL, request.param), ONES)


def test_grants_name_the_records_and_the_staleness_of_the_last_push(chief):
    grant = chief.client.next_grant()
    assert grant == Grant(0, RecordRange(0, 0, 1), 0)
    assert chief.client.next_grant() == grant
    assert chief.client.push({}, [1.0, 1.0], 1) == Grant(1, RecordRange(0, 1, 2), 0)
    assert chief.client.statistics()["pushes"] == 1
    chief.client.pull()
    latency = chief.client.statistics()["latency"]
    assert {what: facts["count"] for what, facts in latency.items()} == {"pull": 1, "push": 1}


def test_a_variable_without_a_gradient_is_left_alone_and_so_are_its_slots(chief):
    client = chief.client
    client.next_grant()
    client.push({"left": np.ones(3, np.float32), "right": np.ones((2, 2), np.float32)}, [1.0, 1.0], 1)
    client.pull()
    before = {name: value.copy() for name, value in client.variables.items()}
    slots = {name: chief.ps.slot(name, Momentum.slot_names[0]).copy() for name in ("left", "right")}
    assert slots["right"].any()
    client.push({"left": np.ones(3, np.float32)}, [1.0, 1.0], 1)
    client.pull()
    assert (client.variables["left"] != before["left"]).all()
    for name in ("right", "plain", "fixed"):
        np.testing.assert_array_equal(client.variables[name], before[name])
    np.testing.assert_array_equal(chief.ps.slot("right", Momentum.slot_names[0]), slots["right"])
    assert (chief.ps.slot("left", Momentum.slot_names[0]) != slots["left"]).all()


def test_each_optimizer_has_its_own_rule_and_learning_rate(chief):
    client = chief.client
    client.next_grant()
    for _ in range(2):
        client.push({"left": np.ones(3), "plain": np.ones(4)}, [1.0, 0.25], 1)
        client.pull()
    np.testing.assert_array_equal(client.variables["left"], np.full(3, 1 - 1 - 1.5, np.float32))
    np.testing.assert_array_equal(client.variables["plain"], np.full(4, 0.5))


def test_the_variables_are_the_same_arrays_after_each_pull(chief):
    client = chief.client
    client.pull()
    arrays = dict(client.variables)
    client.next_grant()
    client.push({"plain": np.ones(4)}, [1.0, 1.0], 1)
    client.pull()
    assert all(client.variables[name] is array for name, array in arrays.items())
    np.testing.assert_array_equal(arrays["plain"], np.zeros(4))


def test_a_gradient_made_where_it_goes_is_pushed_as_any_other(chief):
    client = chief.client
    buffers = client.gradient_buffers()
    assert set(buffers) == ({"left", "right", "plain"} if len(chief.shards) == 1 else set())
    client.next_grant()
    left = buffers.get("left", np.zeros(3, np.float32))
    left[:] = [1, 2, 3]
    client.push({"left": left, "plain": np.ones(4)}, [1.0, 1.0], 1)
    client.pull()
    np.testing.assert_array_equal(client.variables["left"], [0, -1, -2])
    np.testing.assert_array_equal(client.variables["plain"], np.zeros(4))
    np.testing.assert_array_equal(client.variables["right"], np.ones((2, 2)))


def test_gradients_are_cast_but_never_to_another_kind(chief):
    chief.client.next_grant()
    with pytest.raises(TypeError, match="complex"):
        chief.client.push({"left": np.ones(3, np.complex64)}, [1.0, 1.0], 1)


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_the_model_values_come_back_and_gradients_arrive(ps_of, data):
    """Split variables, scalars, empty ones, mixed dtypes and optimizers, more ps than variables."""
    model = data.draw(MODELS)
    num_ps = data.draw(st.integers(1, 4))
    values = {v.name: number_of(v, 100) for v in model.variables}
    with ExitStack() as stack:
        stack.enter_context(patch.object(layout, "MIN_PIECE_BYTES", data.draw(st.sampled_from([8, 64 * 1024]))))
        chief = Chief(stack, ps_of(model, num_ps), values)
        client = chief.client
        client.next_grant()
        client.pull()
        assert_equal(client.variables, values)
        for _ in range(2):
            names = [v.name for v in model.variables if v.optimizer is not None]
            chosen = data.draw(st.sets(st.sampled_from(names))) if names else set()
            gradients = {v.name: number_of(v, 1) for v in model.variables if v.name in chosen}
            client.push(gradients, [1.0, 0.5], 1)
            client.pull()
            for v in model.variables:
                if v.name in chosen:
                    values[v.name] = values[v.name] - gradients[v.name] * (1.0, 0.5)[v.optimizer]
            assert_equal(client.variables, values)
            assert_equal(chief.ps.values(), values)


MODELS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 9), max_size=2),
        st.sampled_from(["float32", "float64"]),
        st.sampled_from([0, 1, None]),
    ),
    min_size=1,
    max_size=6,
).map(
    lambda parts: ModelSpec(
        tuple(VariableSpec(f"v{i}", tuple(shape), *rest) for i, (shape, *rest) in enumerate(parts)), (SGD, SGD)
    )
)


def number_of(variable: VariableSpec, scale: int) -> np.ndarray:
    size = int(np.prod(variable.shape, dtype=int))
    return (np.arange(size).reshape(variable.shape) * 2 + scale).astype(variable.dtype)


def assert_equal(found: Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value, err_msg=name)


# what goes wrong


def test_a_grant_that_does_not_come_is_waited_for_in_vain(ps_of):
    ps = ps_of(MODEL)
    with ps.shards() as shards:
        client = TrainingClient(shards, MODEL, start_timeout_secs=0.01)
        with pytest.raises(WaitTimeoutError, match=r"^ps-0 did not grant the first ticket within 0.01 s$"):
            client.next_grant()


def test_an_input_that_fails_is_an_error_of_the_input(ps_of):
    ps = ps_of(MODEL, input_spec=InputSpec(None))
    with ps.shards() as shards:
        ps.servers[0].post(lambda: ps.job_requests.stream_failed("the input_fn failed: ValueError: boom"))
        with pytest.raises(InputError, match="the input_fn failed: ValueError: boom"):
            TrainingClient(shards, MODEL, SECS).fetch(0)


def test_a_batch_and_the_end_of_a_stream_are_fetched(ps_of):
    ps = ps_of(MODEL, input_spec=InputSpec(None))
    with ps.shards() as shards:
        client = TrainingClient(shards, MODEL, SECS)
        ps.servers[0].post(lambda: ps.job_requests.batch_read(0, b"first"))
        assert bytes(client.fetch(0)) == b"first"
        with pytest.raises(RefusedError, match="batch 1 of the input is not for train-0"):
            client.fetch(1)
        ps.servers[0].post(lambda: ps.job_requests.stream_ended(1))
        assert client.fetch(1) is None


def test_the_end_of_its_own_stream_is_reported_to_ps_0_alone(ps_of):
    ps = ps_of(MODEL, 2, input_spec=InputSpec(None, each_worker_reads_all=True))
    with ps.shards() as shards:
        client = TrainingClient(shards, MODEL, SECS)
        assert not ps.job_requests.job.input.is_exhausted
        client.end_input(0)
        assert ps.job_requests.job.input.is_exhausted


def test_a_step_whose_rows_are_pulled_ahead_asks_each_ps_whose_memory_is_shared_for_these_alone(ps_of):
    table = TableSpec("items", 10, 2, "float32", 0, {"name": "zeros"}, seed=7)
    ids = np.array([3, 7])
    with ExitStack() as stack:
        chief = Chief(stack, ps_of(replace(MODEL, tables=(table,)), 2, shares_memory=True), ONES)
        client = chief.client
        client.next_grant()
        for step in (1, 2):
            client.push({"items": RowGradient(ids, np.ones((2, 2), np.float32))}, [1.0, 1.0], 1)
            num_before = len(chief.ps.kinds)
            client.start_pull({"items": ids})
            assert client.finish_pull() == (step, step)
            assert chief.ps.kinds[num_before:] == [Kind.PULL_ROWS, Kind.PULL_ROWS]


def test_who_leaves_needs_nobody_to_hear_it(ps_of):
    ps = ps_of(MODEL, 2)
    with ps.shards() as shards:
        client = TrainingClient(shards, MODEL, SECS)
        ps.servers[1].close()
        client.leave()
    assert [handler.left for handler in ps.handlers] == [{0}, set()]


def test_a_checkpoint_that_cannot_be_restored_is_an_error_of_the_checkpoint(ps_of):
    with ps_of(MODEL, 2).shards(Purpose.SAVE) as shards:
        saving = SavingClient(shards, MODEL, SECS)
        with pytest.raises(CheckpointError, match=r"^checkpoint of step 7: no files of step 7$"):
            saving.restore(7)


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("storage", CheckpointError, "^checkpoint of step 0: no space left on device$"),
        ("lost", RefusedError, "^ps-1 refused: no space left on device$"),  # as a ps that is gone: of the transport
    ],
)
def test_a_checkpoint_that_cannot_be_written_is_an_error_of_the_checkpoint_unless_its_ps_is_lost(
    ps_of, code, error, words
):
    ps = ps_of(MODEL, 2)
    ps.storages[1].error = Refusal(code, "no space left on device")
    with ps.shards(Purpose.SAVE) as shards:
        saving = SavingClient(shards, MODEL, SECS)
        saving.initialize(ONES)
        saving.request_snapshot()
        saving.open()
        snapshot, is_final = saving.await_snapshot(SECS)
        assert not is_final
        saving.snapshot(snapshot)
        with pytest.raises(error, match=words):
            saving.write(snapshot.step)


@pytest.mark.parametrize("name", ["left", "plain"])
def test_a_gradient_that_is_not_finite_reaches_no_ps_and_its_ticket_is_good_still(chief, name):
    client = chief.client
    client.next_grant()
    client.push({"left": np.ones(3), "plain": np.ones(4)}, [1.0, 1.0], 1)
    client.pull()  # which tells all ps what was decided
    before, pushes = chief.ps.values(), chief.ps.kinds.count(Kind.PUSH)
    gradients = {"left": np.ones(3), "plain": np.ones(4)}
    gradients[name][1] = np.nan
    words = (
        rf"^train-0 computed a gradient of variable '{name}' that is nan at global_step 1, although the loss is finite"
    )
    with pytest.raises(NanGradientError, match=words):
        client.push(gradients, [1.0, 1.0], 1)
    assert chief.ps.kinds.count(Kind.PUSH) == pushes
    np.testing.assert_equal(chief.ps.values(), before)
    assert client.push({}, [1.0, 1.0], 1) == Grant(2, RecordRange(0, 2, 3), 0)
