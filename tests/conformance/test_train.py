"""Estimator.train: how far it goes, on what it trains, what a second call does, what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from psflow import (
    CheckpointSaverListener,
    Dataset,
    Estimator,
    InputContext,
    LinearClassifier,
    ModeKeys,
    RunConfig,
    SessionRunArgs,
    SessionRunHook,
    feature_column,
)
from psflow.ps_runtime.errors import (
    ArgumentTypeError,
    InputError,
    LabelError,
    ModelFnError,
    NanGradientError,
    NanLossError,
    NoCheckpointError,
    UsageError,
)
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType
from tests.conformance.programs import NUM_ROWS, X, Y, batches, line, no_batches, rows


class Seen(SessionRunHook):
    """Keeps the batches that are trained on, as numbers of rows, and the global steps."""

    def __init__(self, stop_at: int | None = None, fail_at: int | None = None) -> None:
        self.rows: list[list[int]] = []
        self.steps: list[int] = []
        self._stop_at = stop_at
        self._fail_at = fail_at

    def before_run(self, run_context: Any) -> SessionRunArgs:
        return SessionRunArgs(["x", "global_step"])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        x, step = run_values.results
        self.rows.append([round(float(value) * NUM_ROWS) for value in x])
        self.steps.append(int(step))
        if step == self._stop_at:
            run_context.request_stop()
        if step == self._fail_at:
            raise ZeroDivisionError("as planned")


def telling(features: Any, labels: Any, mode: str) -> Any:
    """Do as `line`, and predict x, so that a hook sees what is trained on."""
    return replace(line(features, labels, mode), predictions={"x": features["x"]})


FIRST, SECOND, THIRD = [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]
INPUTS = {"data set": rows, "generator": batches, "list": lambda: list(batches())}


@pytest.fixture(params=INPUTS.values(), ids=INPUTS.keys())
def input_fn(request):
    return request.param


def trained(estimator: Any, input_fn: Any, **arguments: Any) -> Seen:
    seen = Seen(arguments.pop("stop_at", None), arguments.pop("fail_at", None))
    estimator.train(input_fn, [seen], **arguments)
    return seen


def test_in_a_cluster_a_model_dir_is_given_and_one_process_alone_does_not_train(tmp_path):
    task = ClusterTask(ClusterAddresses("c:1", ps=("p:1",)), TaskType.WORKER, 0)
    estimator = Estimator(line, str(tmp_path), RunConfig(cluster=task))
    assert estimator.model_dir == str(tmp_path)
    with pytest.raises(UsageError, match=r"^this process is worker 0 of a cluster"):
        estimator.train(rows, steps=1)


# A second train


def test_an_end_by_steps_begins_the_input_anew(make, input_fn):
    estimator = make(telling)
    assert trained(estimator, input_fn, steps=2).rows == [FIRST, SECOND]
    again = trained(estimator, input_fn, steps=2)
    assert (again.rows, again.steps) == ([FIRST, SECOND], [3, 4])


def test_an_end_by_the_input_begins_it_anew_and_trains_all_of_it(make, input_fn):
    estimator = make(telling)
    assert trained(estimator, input_fn).rows == [FIRST, SECOND, THIRD]
    again = trained(estimator, input_fn)
    assert (again.rows, again.steps) == ([FIRST, SECOND, THIRD], [4, 5, 6])


def test_a_stream_that_repeats_is_trained_on_for_more_than_an_epoch(make):
    def rows_of_a_generator() -> Any:
        return Dataset.from_generator(lambda: zip(X, Y, strict=True)).map(lambda x, y: ({"x": x}, y)).batch(4).repeat()

    assert trained(make(telling), rows_of_a_generator, steps=4).rows == [FIRST, SECOND, THIRD, FIRST]


def test_an_end_by_request_begins_the_input_anew(make, input_fn):
    estimator = make(telling)
    assert trained(estimator, input_fn, stop_at=1, max_steps=9).rows == [FIRST]
    assert trained(estimator, input_fn, steps=2).rows == [FIRST, SECOND]


def test_an_interruption_alone_resumes_the_input(make, input_fn):
    estimator = make(telling, save_checkpoints_steps=1)
    with pytest.raises(ZeroDivisionError):
        trained(estimator, input_fn, fail_at=1)
    resumed = trained(estimator, input_fn)
    whole = [FIRST, SECOND, THIRD]
    # the checkpoint of step 1 may have been written before the error, or not
    assert (resumed.rows, resumed.steps) in [(whole, [1, 2, 3]), (whole[1:], [2, 3])]


def test_another_input_is_read_from_its_start(make):
    estimator = make(telling)
    trained(estimator, lambda: rows().repeat(), steps=4)
    other = Dataset({"x": X[::-1].copy()}, Y[::-1].copy()).batch(4)
    assert trained(estimator, lambda: other, steps=1).rows == [[11, 10, 9, 8]]


def test_a_second_train_up_to_a_step_that_is_there_trains_nothing(make):
    estimator = make(telling)
    trained(estimator, rows, steps=2)
    assert [trained(estimator, no_batches, max_steps=last).steps for last in (1, 2)] == [[], []]
    assert trained(estimator, rows, max_steps=3).steps == [3]


# How often the functions of the user are called


@pytest.mark.parametrize("num_steps", [1, 3])
def test_an_input_that_can_be_read_once_is_used_from_its_first_batch(make, num_steps):
    source = batches()
    calls = []

    def once():
        calls.append(1)
        return source

    assert trained(make(telling), once, steps=num_steps).rows == [FIRST, SECOND, THIRD][:num_steps]
    assert len(calls) == 1


def test_an_input_fn_is_called_once(make, input_fn):
    calls = []

    def counted():
        calls.append(1)
        return input_fn()

    trained(make(telling), counted)
    assert len(calls) == 1


def test_a_model_fn_sees_each_batch_once_after_the_first_call(make, input_fn):
    seen = []

    def watching(features, labels, mode):
        seen.append([round(float(value) * NUM_ROWS) for value in features["x"]])
        return telling(features, labels, mode)

    make(watching).train(input_fn)
    assert seen == [FIRST, FIRST, SECOND, THIRD]


@pytest.mark.parametrize(("default", "got"), [(None, None), ("mine", "mine")])
def test_an_argument_that_there_is_nothing_for_is_none_or_keeps_its_default(make, default, got):
    def asking(mode, input_schema=default):
        asked.append(input_schema)
        return rows()

    def asking_always(input_schema):
        asked.append(input_schema)
        return rows()

    asked = []
    make().train(asking, steps=1)
    make().train(asking_always, steps=1)
    assert asked == [got, None]


@pytest.mark.parametrize("num_in_sync", [1, 3])
def test_an_input_context_can_be_made_to_test_an_input_fn(num_in_sync):
    context = InputContext(3, 2, num_in_sync)
    assert (context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync) == (3, 2, num_in_sync)
    with pytest.raises(ValueError, match=r"^expected num_replicas_in_sync >= 1, got 0$"):
        InputContext(3, 2, 0)
    with pytest.raises(ValueError, match=r"^expected input_pipeline_id in \[0, num_input_pipelines\), got 3 of 3$"):
        InputContext(3, 3)


def test_an_input_fn_gets_the_arguments_that_it_names(make):
    got = {}

    def asking(mode, params, config, input_context):
        got.update(mode=mode, params=params, config=config, context=input_context)
        return rows()

    estimator = make()
    estimator.train(asking, steps=1)
    assert (got["mode"], got["params"], got["config"]) == (ModeKeys.TRAIN, {}, estimator.config)
    assert (got["context"].num_input_pipelines, got["context"].input_pipeline_id) == (1, 0)


# How far, and what is written


@pytest.mark.parametrize("arguments", [{"steps": 2}, {"max_steps": 2}, {"steps": 2.0}, {"max_steps": np.int64(2)}])
def test_it_ends_at_exactly_the_step_and_returns_the_estimator(make, arguments):
    estimator = make()
    assert estimator.train(lambda: rows().repeat(), None, saving_listeners=None, **arguments) is estimator
    assert estimator.get_variable_value("global_step") == 2
    assert estimator.latest_checkpoint().endswith("step_00000002")


def test_without_checkpoints_there_is_none(make):
    estimator = make(save_checkpoints_steps=0, save_summary_steps=0)
    estimator.train(rows)
    assert estimator.latest_checkpoint() is None


# What it refuses


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"steps": 1, "max_steps": 1}, "give steps or max_steps, not both"),
        ({"steps": 0}, "steps should be greater than 0, got 0"),
        ({"steps": -1}, "steps should be greater than 0, got -1"),
        ({"max_steps": 0}, "TrainSpec.max_steps should be greater than 0, got 0"),
        ({"max_steps": -1}, "TrainSpec.max_steps should be greater than 0, got -1"),
    ],
)
def test_values_that_it_refuses(make, arguments, fault):
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}$") as caught:
        make().train(rows, **arguments)
    assert type(caught.value) is UsageError


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"steps": 1.5}, "steps should be a whole number or None, got float 1.5"),
        ({"steps": "1"}, "steps should be a whole number or None, got str '1'"),
        ({"max_steps": 5.5}, "TrainSpec.max_steps should be a whole number or None, got float 5.5"),
        ({"hooks": 3}, "TrainSpec.hooks should be a sequence of SessionRunHook, or None, got int 3"),
        ({"hooks": [3]}, "TrainSpec.hooks[0] should be a SessionRunHook, got int 3"),
        ({"hooks": [CheckpointSaverListener()]}, "TrainSpec.hooks[0] should be a SessionRunHook, got CheckpointSaver"),
        ({"saving_listeners": [3]}, "TrainSpec.saving_listeners[0] should be a CheckpointSaverListener, got int 3"),
        ({"saving_listeners": 3}, "TrainSpec.saving_listeners should be a sequence of CheckpointSaverListener, or"),
        ({"input_fn": None}, "TrainSpec.input_fn should be callable, got None"),
        ({"input_fn": 3}, "TrainSpec.input_fn should be callable, got int 3"),
        ({"input_fn": Dataset(X, Y).batch(5)}, "TrainSpec.input_fn should be callable, got Dataset; give a function"),
        ({"input_fn": (X, Y)}, "TrainSpec.input_fn should be callable, got tuple; give a function that returns it"),
    ],
)
def test_types_that_it_refuses(make, arguments, fault):
    with pytest.raises(TypeError, match=f"^{re.escape(fault)}") as caught:
        make().train(**({"input_fn": rows} | arguments))
    assert type(caught.value) is ArgumentTypeError


FEATURES = {"x": X[:4]}


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (3, "returned int: expected a Dataset, a tuple (features, labels) of arrays, features alone"),
        (None, "returned NoneType: expected a Dataset"),
        ("rows", "returned str: expected a Dataset"),
        ((FEATURES, Y[:4], 1), "returned a tuple of 3 (dict, ndarray, int): expected a Dataset"),
        ([FEATURES, Y[:4]], "returned list of other things than tuples: expected a Dataset"),
        (((X[:4], X[:4]), Y[:4]), "returned a tuple of 2 (tuple, ndarray): expected a Dataset"),
        (iter([[FEATURES, Y[:4]]]), "expected a tuple (features, labels), got list"),
        (iter([(FEATURES, Y[:4], 1)]), "expected a tuple (features, labels), got a tuple of 3"),
        (iter([((X[:4], X[:4]), Y[:4])]), "features is a tuple of 2 arrays: expected an array; give each a name, in"),
        (iter([(FEATURES, (Y[:4], Y[:4]))]), "labels is a tuple of 2 arrays: expected an array; give each a name, in"),
        (iter([({}, Y[:4])]), "features is an empty dict: expected at least one array"),
        (iter([({3: X[:4]}, Y[:4])]), "features has the key 3: expected a str"),
        (iter([(FEATURES, Y[:3])]), "expected the same number of rows in every array"),
        (iter(()), "the input_fn for train returned no batch"),
    ],
)
def test_an_input_that_is_none(make, result, fault):
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        make().train(lambda: result)
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize(
    ("parameter", "asking"),
    [("foo", lambda foo: rows()), ("features", lambda features: rows()), ("steps", lambda mode, steps: rows())],
)
def test_an_input_fn_asks_for_nothing_else(make, parameter, asking):
    with pytest.raises(
        InputError, match=f"asks for '{parameter}': expected def input_fn.input_context, mode, params, "
    ):
        make().train(asking)


def test_labels_without_the_argument_have_no_effect_and_are_refused(make):
    said = "does not take the argument 'labels', but the input for train has labels; take them, or return"
    with pytest.raises(ModelFnError, match=said):
        make(lambda features, mode: None).train(rows)


# Its errors are those that old programs catch


@pytest.mark.parametrize("error", [NanLossError(1.0, 2), NanGradientError("chief-0", "w", None, 1.0, 2)])
def test_a_loss_or_gradient_that_is_no_number_is_a_runtime_error(error):
    assert isinstance(error, RuntimeError)


@pytest.mark.parametrize(
    "use", [lambda e: e.get_variable_names(), lambda e: e.get_variable_value("w"), lambda e: e.evaluate(rows)]
)
def test_where_there_is_no_checkpoint_it_is_an_error_of_value(make, use):
    estimator = make()
    assert estimator.latest_checkpoint() is None
    with pytest.raises(ValueError, match="there is no checkpoint yet; train first") as caught:
        use(estimator)
    assert type(caught.value) is NoCheckpointError


def test_a_nested_dict_of_features_is_refused_by_its_key(make):
    nested = {"x": X, "more": {"a": X, "b": X}}
    for input_fn in (lambda: Dataset(nested, Y).batch(5), lambda: (nested, Y), lambda: iter([(nested, Y)])):
        with pytest.raises(InputError, match=r"features\['more'\] is a dict of 'a', 'b': expected an array; give"):
            make().train(input_fn)


@pytest.mark.parametrize("bad_batch", [0, 3])
def test_a_label_of_a_generator_is_named_with_its_batch(bad_batch, tmp_path):
    def batches_with_a_bad_label():
        for number in range(6):
            labels = np.array([0, 1, 0, 1])
            labels[2] = 7 if number == bad_batch else 0
            yield {"x": np.arange(4.0)}, labels

    estimator = LinearClassifier([feature_column.numeric_column("x")], model_dir=str(tmp_path / "model"))
    with pytest.raises(LabelError, match=rf"^the label of row 2 of batch {bad_batch} of the train input is 7, "):
        estimator.train(batches_with_a_bad_label, steps=6)
    trained = LinearClassifier([feature_column.numeric_column("x")], model_dir=str(tmp_path / "trained"))
    trained.train(lambda: ({"x": np.arange(4.0)}, np.array([0, 1, 0, 1])), steps=1)
    with pytest.raises(LabelError, match=rf"^the label of row 2 of batch {bad_batch} of the eval input is 7, expected"):
        trained.evaluate(batches_with_a_bad_label)
