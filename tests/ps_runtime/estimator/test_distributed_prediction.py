"""Predictions by the workers of a real Dask cluster."""

from __future__ import annotations

import gc
import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from psflow import (
    Csv,
    Dataset,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    LinearRegressor,
    ModeKeys,
    RunConfig,
    SessionRunHook,
    get_variable,
)
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import CheckpointError, InputError, ModelFnError, UsageError
from psflow.ps_runtime.estimator.prediction import task
from psflow.ps_runtime.estimator.prediction.distributed import distributed_predictions
from psflow.ps_runtime.estimator.prediction.task import OpenedJob
from psflow.ps_runtime.one_thread import one_thread
from tests.leak_guard import no_leaks

pytestmark = pytest.mark.cluster(shared=True)

NUM_RECORDS, WIDTH = 503, 48
X = np.random.default_rng(3).normal(size=(NUM_RECORDS, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with no_leaks(), open_cluster(None, 2, 300) as client:
        yield client


def network(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> EstimatorSpec:
    w = get_variable("w", (WIDTH, 16))
    y = np.tanh(features["x"] @ w)
    if mode == ModeKeys.PREDICT:
        params.get("act", lambda x: None)(features["x"])
        hooks = [SessionRunHook()] if params.get("has_hooks") else None
        return EstimatorSpec(mode, predictions={"y": y, "sum": y.sum(axis=1)}, prediction_hooks=hooks)
    train_op = GradientDescent(0.1).apply_gradients({"w": features["x"].T @ y / len(y)})
    return EstimatorSpec(mode, loss=np.mean(y**2), train_op=train_op)


def records(batch_size: int = 32) -> Dataset:
    return Dataset({"x": X}).batch(batch_size)


def batches(sizes: tuple[int, ...] = (1, 30, 200)) -> Iterator[Any]:
    start = 0
    for size in itertools.cycle(sizes):
        if start >= NUM_RECORDS:
            return
        yield {"x": X[start : start + size]}
        start += size


def endless() -> Iterator[Any]:
    return itertools.repeat({"x": X[:4]})


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = str(tmp_path_factory.mktemp("network"))
    Estimator(network, directory, RunConfig(tf_random_seed=1)).train(records, steps=1)
    return directory


def estimator(model_dir: str, **params: Any) -> Estimator:
    return Estimator(network, model_dir, params=params)


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for key in other:
            np.testing.assert_array_equal(one[key], other[key], strict=True)


@pytest.mark.parametrize(
    "input_fn",
    [
        records,
        lambda: replace(records(), shuffle_seed=7),
        batches,
        lambda: {"x": X},
        lambda: records(1),
        lambda: iter(()),
    ],
    ids=["dataset", "shuffled", "generator", "arrays", "single rows", "empty"],
)
def test_each_row_once_in_order_with_the_same_bits(client: Client, model_dir: str, input_fn: Callable[[], Any]) -> None:
    model = estimator(model_dir)
    with one_thread():
        here = list(model.predict(input_fn, yield_single_examples=False))
    assert_same(list(model.predict(input_fn, yield_single_examples=False, client=client)), here)


def test_single_examples_of_the_chosen_keys_from_a_checkpoint_that_a_path_names(client: Client, model_dir: str) -> None:
    model = estimator(model_dir)
    first = str(model.latest_checkpoint()).replace("step_00000001", "step_00000000")
    with one_thread():
        here = list(model.predict(records, ["sum"], checkpoint_path=first))
    found = list(model.predict(records, ["sum"], checkpoint_path=first, client=client))
    assert len(found) == NUM_RECORDS
    assert_same(found, here)


def test_an_unknown_key_is_refused_as_without_a_client(client: Client, model_dir: str) -> None:
    def unread() -> Any:
        raise AssertionError("the input is read")

    with pytest.raises(UsageError, match=r"^there is no prediction 'summ'; did you mean 'sum'\?$"):
        next(estimator(model_dir).predict(unread, ["summ"], client=client))


def test_a_worker_judges_a_key_where_zeros_are_no_row(client: Client, model_dir: str) -> None:
    def refuse_zeros(x: Any) -> None:
        if not x.any():
            raise ZeroDivisionError

    model = estimator(model_dir, act=refuse_zeros)
    with pytest.raises(UsageError, match=r"^there is no prediction 'summ'; did you mean 'sum'\?$"):
        next(model.predict(records, ["summ"], client=client))
    assert list(next(model.predict(records, ["sum"], client=client))) == ["sum"]


def test_workers_read_files_themselves(client: Client, tmp_path: Path) -> None:
    for number in range(3):
        rows = [f"{i % 7},{'ab'[i % 2]},{i}" for i in range(100 * number, 100 * number + 100)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["x,word,y", *rows]))

    def files() -> Any:
        return Csv(str(tmp_path / "*.csv"), label="y").read().batch(7)

    model = LinearRegressor(model_dir=str(tmp_path / "model"), config=RunConfig(tf_random_seed=1))
    model.train(lambda: files().shuffle(seed=1), steps=5)
    for input_fn in (files, lambda: files().shuffle(seed=2)):
        with one_thread():
            here = list(model.predict(input_fn, yield_single_examples=False))
        assert_same(list(model.predict(input_fn, yield_single_examples=False, client=client)), here)


def num_opened() -> int:
    """Return how many jobs of predictions this process has open, with their checkpoints."""
    return sum(isinstance(one, OpenedJob) for one in gc.get_objects())


def test_workers_keep_nothing_of_a_prediction_that_has_ended(client: Client, model_dir: str) -> None:
    predictions = estimator(model_dir).predict(records, client=client)
    next(predictions)
    assert set(client.run(num_opened).values()) <= {0, 1}
    assert sum(client.run(num_opened).values()) >= 1
    predictions.close()
    deadline = Deadline(20)
    while sum(found := client.run(num_opened).values()) and not deadline.has_passed:
        pass
    assert set(found) == {0}


def test_an_input_without_end_is_read_no_further_than_the_window(
    client: Client, model_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "PARTITION_BATCHES", 1)
    read = itertools.count()
    given = ({"x": X[:4]} for _ in read)
    predictions = estimator(model_dir).predict(lambda: given, yield_single_examples=False, client=client)
    assert [next(predictions)["y"].shape for _ in range(5)] == [(4, 16)] * 5
    predictions.close()
    assert next(read) <= 5 + 4 * 2 + 1
    assert {state.status for state in client.futures.values()} <= {"cancelled"}, "of what is not forgotten yet"
    assert list(Path(model_dir, "pins").iterdir()) == []


def test_an_error_of_model_fn_names_the_record_after_those_before_it(client: Client, model_dir: str) -> None:
    def refuse(x: Any) -> None:
        if (x == X[400]).all(axis=1).any():
            raise RuntimeError("too large")

    found: list[Any] = []
    said = (
        r"^record 400 of the predict input \(the first is 0\): network: raised RuntimeError\('too large'\) at "
        rf"\S*{re.escape(Path(__file__).name)}:\d+$"
    )
    with pytest.raises(ModelFnError, match=said):
        found.extend(estimator(model_dir, act=refuse).predict(lambda: records(4), client=client))
    assert len(found) == 3 * 4 * 32, "the predictions of the partitions before it"


def test_an_error_that_no_single_record_causes_names_the_batch(client: Client, model_dir: str) -> None:
    def refuse(x: Any) -> None:
        if len(x) > 31:
            raise ValueError

    said = r"^records 32 to 63 of the predict input \(the first is 0\): network: raised ValueError\(\) at "
    few = Dataset({"x": X[:64]})
    with pytest.raises(ModelFnError, match=said):
        list(
            estimator(model_dir, act=refuse).predict(
                lambda: iter([few.read(0, 0, 31), few.read(0, 31, 32), few.read(0, 32, 64)]), client=client
            )
        )


def test_an_error_on_a_record_of_a_file_names_its_row(client: Client, model_dir: str, tmp_path: Path) -> None:
    header = ",".join(f"c{i}" for i in range(2))
    (tmp_path / "a.csv").write_text("\n".join([header, *(f"{i},1" for i in range(50))]))

    def refusing(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        if mode == ModeKeys.PREDICT and (features["c0"] == 17).any():
            raise KeyError("17")
        w = get_variable("w")
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions={"y": w * features["c0"]})
        return EstimatorSpec(mode, loss=w**2, train_op=GradientDescent(0.1).apply_gradients({"w": 2 * w}))

    model = Estimator(refusing, str(tmp_path / "model"))

    def file() -> Any:
        return Csv(str(tmp_path / "a.csv")).read().batch(10)

    model.train(lambda: Csv(str(tmp_path / "a.csv"), label="c1").read().batch(50), steps=1)
    with pytest.raises(ModelFnError, match=r"^row 19 of \S*a\.csv \(.*\): .*refusing: raised KeyError\('17'\) at "):
        list(model.predict(file, client=client))


def test_an_error_of_the_input_comes_after_the_rows_before_it(client: Client, model_dir: str) -> None:
    def breaking() -> Iterator[Any]:
        yield {"x": X[:40]}
        yield {"x": X[:40, :3]}

    found: list[Any] = []
    with pytest.raises(InputError, match="batch 1 of the predict input"):
        found.extend(estimator(model_dir).predict(breaking, client=client))
    assert len(found) == 40


def test_a_worker_that_does_not_see_the_model_dir_says_so(client: Client) -> None:
    model = Estimator(network, "memory://distributed-prediction", RunConfig(tf_random_seed=1))
    model.train(records, steps=1)
    said = (
        r"^checkpoint memory://\S*/step_00000001: the Dask worker tls://\S+ on \S+ cannot read it, but the process "
        r"that predicts, on \S+, can \(.+\); put the model_dir where every Dask worker sees it"
    )
    with pytest.raises(CheckpointError, match=said):
        next(model.predict(records, client=client))


def test_a_worker_that_sees_another_checkpoint_of_that_step_says_so(client: Client, model_dir: str) -> None:
    store = CheckpointStore(model_dir)
    [*_, step] = store.steps()
    earlier, caller = replace(store.manifest(step), saved_at=1.0), estimator(model_dir).caller
    found = distributed_predictions(client, caller, iter([({"x": X[:4]}, None)]), store, earlier, ())
    with pytest.raises(CheckpointError, match=r", can \(it sees another checkpoint of that step\); put the model_d"):
        next(found)


def test_hooks_do_not_go_with_a_client(client: Client, model_dir: str) -> None:
    with pytest.raises(UsageError, match=r"^hooks run in one process, .*: leave out hooks, or client$"):
        next(estimator(model_dir).predict(records, hooks=[SessionRunHook()], client=client))
    with pytest.raises(ModelFnError, match=r"^network returned prediction_hooks, .*: call predict without client, or"):
        next(estimator(model_dir, has_hooks=True).predict(records, client=client))


def test_a_client_is_one_that_waits(model_dir: str) -> None:
    wrong: Any = "tcp://127.0.0.1:8786"
    with pytest.raises(TypeError, match=r"^client should be a distributed\.Client or None, got str 'tcp"):
        next(estimator(model_dir).predict(records, client=wrong))


def test_a_generator_may_fill_its_array_again(client: Client, model_dir: str) -> None:
    def input_fn() -> Iterator[Any]:
        held = np.empty((2, WIDTH), np.float32)
        for start in range(0, 40, 2):
            held[:] = X[start : start + 2]
            yield {"x": held}

    model = estimator(model_dir)
    with one_thread():
        here = list(model.predict(input_fn))
    assert_same(list(model.predict(input_fn, client=client)), here)


def test_a_training_to_the_same_step_is_another_checkpoint(client: Client, tmp_path: Path) -> None:
    found = []
    for seed in (1, 2):
        model = Estimator(network, str(tmp_path / "model"), RunConfig(tf_random_seed=seed))
        model.train(records, steps=1)
        with one_thread():
            here = list(model.predict(records))
        found.append(list(model.predict(records, client=client)))
        assert_same(found[-1], here)
        shutil.rmtree(tmp_path / "model")
    assert not np.array_equal(found[0][0]["y"], found[1][0]["y"])


def test_each_example_has_its_row(client: Client, tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        w = get_variable("w", initializer=[1.0])
        train_op = GradientDescent(0.0).apply_gradients({"w": w})
        return EstimatorSpec(mode, predictions=(features["x"] * w)[:3, 0], loss=0.0, train_op=train_op)

    model = Estimator(model_fn, str(tmp_path)).train(records, steps=1)
    for where in ({}, {"client": client}):
        with pytest.raises(ModelFnError, match=r"'predictions' of shape \[3\] for 32 examples: expected one row"):
            list(model.predict(records, **where))


def test_a_client_that_is_closed_is_refused(model_dir: str) -> None:
    with Client(processes=False, n_workers=1, dashboard_address=None) as closed:
        pass
    with pytest.raises(UsageError, match="client is closed: expected one that is connected to its scheduler"):
        list(estimator(model_dir).predict(records, client=closed))
