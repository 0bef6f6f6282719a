"""What bfloat16 over TCP does to a training: each number is rounded once, and all else stays to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from psflow import initializers
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.errors import NanGradientError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.optimizers import Counter, GradientDescent, MovingAverage
from psflow.ps_runtime.protocol.message import HEADER
from psflow.ps_runtime.protocol.payloads import GRANT
from psflow.ps_runtime.protocol.wire_codec import narrow, widen
from psflow.ps_runtime.roles import role_metrics
from psflow.ps_runtime.roles.chief import run_chief
from psflow.ps_runtime.roles.events import Metrics
from psflow.ps_runtime.specs.consistency import Sync
from psflow.ps_runtime.specs.roles import Role
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.wire_format import WireFormat
from tests.ps_runtime.estimator import ratings as with_table
from tests.ps_runtime.estimator.regression import arrays_of, regression
from tests.ps_runtime.estimator.regression import shuffled as rows

SIZE, NUM_STEPS, RATE = 20_000, 300, np.float32(0.3)
WISHED = np.random.default_rng(1).normal(size=SIZE).astype(np.float32)
FORMATS = [
    WireFormat(gradients, parameters) for gradients in ("float32", "bfloat16") for parameters in ("float32", "bfloat16")
]
IDS = [f"{wire.gradients}-{wire.parameters}" for wire in FORMATS]
HALF = WireFormat("bfloat16", "bfloat16")


class Nearing:
    """A model_fn whose weights near what they are wished to be, beside a counter and a mean that no gradient moves."""

    def __init__(self) -> None:
        self.counts: list[float] = []

    def __call__(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        w = get_variable("w", (SIZE,), initializer=initializers.zeros)
        count = get_variable("count", initializer=initializers.zeros)
        get_variable("mean", (3,), initializer=initializers.zeros)
        self.counts.append(float(count))
        descent = GradientDescent(learning_rate=float(RATE)).apply_gradients({"w": w - WISHED})
        state = Counter().apply_gradients({"count": np.float32(1)})
        average = MovingAverage(1.0).apply_gradients({"mean": np.full(3, count + np.float32(1 / 3), np.float32)})
        return EstimatorSpec(mode, loss=np.float32(np.mean((w - WISHED) ** 2)), train_op=[descent, state, average])


def ones() -> Dataset:
    return Dataset(np.ones((8, 1), np.float32)).batch(2).repeat()


def rounded(values: np.ndarray) -> np.ndarray:
    bits, found = np.empty(values.size, np.uint16), np.empty(values.size, np.float32)
    narrow(values, bits, np.empty(values.size, np.uint32))
    widen(bits, found)
    return found


def expected_weights(wire: WireFormat, num_steps: int) -> np.ndarray:
    """Return what a ps has that sums in float32, whatever travels."""
    w = np.zeros(SIZE, np.float32)
    for _ in range(num_steps):
        pulled = rounded(w) if wire.parameters == "bfloat16" else w
        gradient = pulled - WISHED
        w = w - RATE * (rounded(gradient) if wire.gradients == "bfloat16" else gradient)
    return w


def train(roles: Any, model_fn: Any, directory: str, wire: WireFormat, transport: str, **size: Any) -> Any:
    estimator = Estimator(model_fn, directory, RunConfig(tf_random_seed=1, wire=wire))
    with Attempt(estimator, TrainSpec(ones, NUM_STEPS), None, transport=transport, **size) as attempt:
        return roles.train(attempt.job())


@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("wire", FORMATS, ids=IDS)
def test_the_ps_trains_in_float32_what_arrives_rounded(roles, tmp_path, wire, num_ps):
    model_fn = Nearing()
    reports = train(roles, model_fn, str(tmp_path), wire, "tcp", num_ps=num_ps)
    arrays = arrays_of(str(tmp_path), NUM_STEPS)
    weights = np.frombuffer(arrays["w", None], np.float32)
    np.testing.assert_array_equal(weights, expected_weights(wire, NUM_STEPS))
    assert (weights != rounded(weights)).any(), "a checkpoint has all bits"
    assert np.frombuffer(arrays["count", None], np.float32) == NUM_STEPS  # 257 is no bfloat16
    assert model_fn.counts[-NUM_STEPS:] == list(range(NUM_STEPS))
    np.testing.assert_array_equal(np.frombuffer(arrays["mean", None], np.float32), np.float32(NUM_STEPS - 1 + 1 / 3))
    for facts in reports["chief-0"]["statistics"]["shards"]:
        assert facts["wire"] == {"gradients": wire.gradients, "parameters": wire.parameters}


@pytest.mark.parametrize("transport", ["shm", "unix"])
def test_on_one_host_all_bits_arrive(roles, tmp_path, transport):
    reports = train(roles, Nearing(), str(tmp_path), HALF, transport)
    weights = np.frombuffer(arrays_of(str(tmp_path), NUM_STEPS)["w", None], np.float32)
    np.testing.assert_array_equal(weights, expected_weights(WireFormat(), NUM_STEPS))
    [facts] = reports["chief-0"]["statistics"]["shards"]
    assert facts["wire"] == {"gradients": "float32", "parameters": "float32"}


@pytest.mark.parametrize("wire", FORMATS, ids=IDS)
def test_the_bytes_of_a_step_are_those_of_the_arithmetic(roles, tmp_path, monkeypatch, wire):
    monkeypatch.setattr(role_metrics, "FIRST_SECS", 1e9)  # one report, over the whole training
    events: list[Any] = []
    estimator = Estimator(Nearing(), str(tmp_path), RunConfig(tf_random_seed=1, wire=wire))
    with Attempt(estimator, TrainSpec(ones, NUM_STEPS), None, transport="tcp") as attempt:
        job = attempt.job()
        (ps,), connect_functions = roles.start_ps(job)
        run_chief(job, roles.context(job, Role.CHIEF, send=events.append), connect_functions)
    [values] = [e.values for e in events if isinstance(e, Metrics) and "role/chief-0/rss_mb" in e.values]
    width = {"float32": 4, "bfloat16": 2}
    sent = 2 * HEADER.size + width[wire.gradients] * SIZE
    received = 2 * HEADER.size + width[wire.parameters] * SIZE + GRANT.size
    assert values["role/chief-0/sent_bytes_per_step"] == pytest.approx(sent, rel=0.02)
    assert values["role/chief-0/received_bytes_per_step"] == pytest.approx(received, rel=0.02)
    counted = ps.result(200)["statistics"]
    assert counted["bytes_in"] == pytest.approx(sent * NUM_STEPS, rel=0.02)
    assert counted["bytes_out"] == pytest.approx(received * NUM_STEPS, rel=0.02)


def loss_of(roles: Any, directory: str, model_fn: Any, input_fn: Any, num_steps: int, **config: Any) -> float:
    """Return the loss after a training with two replicas and two ps over TCP."""
    estimator = Estimator(model_fn, directory, RunConfig(tf_random_seed=1, **config))
    spec = TrainSpec(lambda: input_fn().repeat(), num_steps)
    with Attempt(estimator, spec, None, num_ps=2, num_workers=1, transport="tcp") as attempt:
        roles.train(attempt.job())
    return float(estimator.evaluate(input_fn, steps=10)["loss"])


PROBLEMS = [(regression, rows), (with_table.ratings, with_table.records)]


@pytest.mark.parametrize(("model_fn", "input_fn"), PROBLEMS)
def test_a_synchronous_training_has_the_loss_of_float32_within_one_percent(roles, tmp_path, model_fn, input_fn):
    start = loss_of(roles, str(tmp_path / "start"), model_fn, input_fn, 1, consistency=Sync())
    exact, *others = (
        loss_of(roles, str(tmp_path / name), model_fn, input_fn, 30, consistency=Sync(), wire=wire)
        for name, wire in zip(IDS, FORMATS, strict=True)
    )
    assert others == pytest.approx([exact] * 3, rel=0.01)
    assert exact not in others
    assert exact < 0.5 * start


@pytest.mark.parametrize("pipeline_depth", [0, 1])
@pytest.mark.parametrize(("model_fn", "input_fn"), PROBLEMS)
def test_an_asynchronous_training_learns(roles, tmp_path, model_fn, input_fn, pipeline_depth):
    start = loss_of(roles, str(tmp_path / "start"), model_fn, input_fn, 1)
    end = loss_of(roles, str(tmp_path / "end"), model_fn, input_fn, 120, wire=HALF, pipeline_depth=pipeline_depth)
    assert end < 0.1 * start


class Spoilt:
    """A model_fn whose gradient has one large, or no, number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        gradient = np.zeros_like(get_variable("w", (10,), initializer=initializers.zeros))
        gradient[3] = self.value
        op = GradientDescent(learning_rate=0.5).apply_gradients({"w": gradient})
        return EstimatorSpec(mode, loss=np.float32(1), train_op=op)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_found_before_it_is_rounded(roles, tmp_path, value):
    estimator = Estimator(Spoilt(value), str(tmp_path), RunConfig(tf_random_seed=1, wire=HALF))
    with Attempt(estimator, TrainSpec(ones, 3), None, transport="tcp") as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        with pytest.raises(NanGradientError, match=r"gradient of variable 'w' that is -?(nan|inf)"):
            run_chief(job, roles.context(job, Role.CHIEF), connect_functions)
        roles.stop.set()


def test_a_large_gradient_stays_finite(roles, tmp_path):
    estimator = Estimator(Spoilt(np.finfo(np.float32).max), str(tmp_path), RunConfig(tf_random_seed=1, wire=HALF))
    with Attempt(estimator, TrainSpec(ones, 1), None, transport="tcp") as attempt:
        roles.train(attempt.job())
    weights = np.frombuffer(arrays_of(str(tmp_path), 1)["w", None], np.float32)
    assert weights.tolist() == [0, 0, 0, -rounded(np.float32([np.finfo(np.float32).max]))[0] / 2, *[0] * 6]
