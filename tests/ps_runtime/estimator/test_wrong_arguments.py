"""Arguments of the Estimator's calls that are of another kind, or say nothing sensible."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import Estimator, MonitoredTrainingSession, RunConfig, SessionRunArgs, SessionRunHook, VocabInfo, better
from psflow.ps_runtime.errors import ModelFnTypeError, UsageError
from tests.conformance.programs import estimator_in, line, rows


class NoWriter:
    write = "not a method"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Estimator:
    return estimator_in(tmp_path_factory.mktemp("trained")).train(rows, max_steps=1)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda e: e.get_variable_value(None), "name should be a str, got None"),
        (lambda e: e.get_variable_value(["w"]), r"name should be a str, got list \['w'\]"),
        (lambda e: e.get_variable_value(np.array([1.0])), "name should be a str, got ndarray"),
        (lambda e: e.get_table_rows(3, [0]), "name should be a str, got int 3"),
        (
            lambda e: list(e.predict(rows, yield_single_examples=1)),
            "yield_single_examples should be True or False, got",
        ),
        (lambda e: list(e.predict(rows, yield_single_examples=None)), "yield_single_examples should be True or False"),
        (
            lambda e: list(e.predict(rows, predict_keys=b"y")),
            "predict_keys should be a sequence of str, or None, got bytes",
        ),
        (lambda e: list(e.predict(rows, predict_keys=["y", 3])), r"predict_keys\[1\] should be a str, got int 3"),
        (lambda e: e.export_saved_model("x", writer=3), "export_saved_model: writer should be a ModelWriter, with a m"),
        (lambda e: e.export_saved_model("x", writer=NoWriter()), "writer should be a ModelWriter, .* got NoWriter"),
        (lambda e: Estimator(int), "model_fn should be a Python function, got <class 'int'>"),
        (lambda e: MonitoredTrainingSession(e, rows, saving_listeners=0), "saving_listeners should be a sequence of C"),
        (lambda e: RunConfig(pipeline_depth=True), "pipeline_depth should be 0 or 1, got bool True"),
        (lambda e: RunConfig(pipeline_depth=np.array([1, 2])), "pipeline_depth should be 0 or 1, got ndarray"),
        (lambda e: RunConfig(save_checkpoints_steps=np.array([1, 2])), "save_checkpoints_steps should be a whole num"),
        (lambda e: RunConfig(model_dir=np.array(["a", "b"])), "model_dir should be a str or None, got ndarray"),
        (lambda e: better(None, "min"), "better: metric should be a str, got None"),
        (lambda e: better(["loss"], "min"), r"better: metric should be a str, got list \['loss'\]"),
        (lambda e: better("loss", np.array([1, 2])), "better: mode should be a str, got ndarray"),
        (lambda e: better("loss", "min", 3), "better: key should be a str, got int 3"),
        (lambda e: better("loss", "min")(None, {"loss": 1.0}), "compare_fn: expected the metrics of an evaluation by"),
        (lambda e: better("a", "min")({"a": np.ones(2)}, {"a": 1.0}), "metric 'a' is array.*, expected one number, as"),
        (lambda e: better("a", "min")({"a": "x"}, {"a": 1.0}), "metric 'a' is 'x', expected one number"),
        (lambda e: better("a", "min")({"a": 1.0}, {"a": 10**400}), "metric 'a' is 1000.*, expected one number"),
    ],
)
def test_another_kind_is_an_error_of_type(trained: Estimator, call: Any, fault: str) -> None:
    with pytest.raises(TypeError, match=fault) as caught:
        call(trained)
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (
            lambda e: e.evaluate(rows, non_finite="dorp"),
            "non_finite is 'dorp': expected one of .*; did you mean 'drop'",
        ),
        (lambda e: e.evaluate(rows, non_finite=None), "non_finite is None: expected one of error, drop, keep"),
        (lambda e: e.evaluate(rows, non_finite=np.array([1, 2])), "non_finite is array.*: expected one of"),
        (lambda e: e.train(rows, max_steps=9, non_finite=np.array([1, 2])), "TrainSpec.non_finite is array"),
        (lambda e: RunConfig(session_creation_timeout_secs=math.inf), "should be finite, got inf"),
        (lambda e: RunConfig(model_dir="a\0b"), r"model_dir should be a path or a URL, got 'a\\x00b', which has a NUL"),
        (lambda e: better("", "min"), "better: metric should be a name, got ''"),
        (lambda e: VocabInfo("a", 2.5, 0, "b"), "new_vocab_size should be an integer of 1 or more, got 2.5"),
        (lambda e: VocabInfo("a", True, 0, "b"), "new_vocab_size should be an integer of 1 or more, got True"),
        (lambda e: VocabInfo("a", 1, 0, "b", axis=np.array([0, 1])), "axis should be 0 or 1, got array"),
        (lambda e: e.export_saved_model("x", experimental_mode=np.array([1, 2])), "mode array.*: an export predicts"),
    ],
)
def test_a_wrong_value_is_refused(trained: Estimator, call: Any, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        call(trained)


def test_numbers_of_numpy_are_numbers() -> None:
    config = RunConfig(pipeline_depth=np.int64(1), save_checkpoints_steps=np.int64(0))
    assert (config.pipeline_depth, config.save_checkpoints_steps) == (1, None)
    made = VocabInfo("a", np.int64(3), np.int32(1), "b", np.int64(-1))
    assert (made.new_vocab_size, made.num_oov_buckets, made.old_vocab_size) == (3, 1, -1)
    assert type(made.new_vocab_size) is int
    assert better("a", "max")({"a": np.float32(1)}, {"a": 2}) is True


@pytest.mark.parametrize("wanted", [3, 2.5, b"loss", {"loss"}, np.array([1.0]), object(), True])
def test_a_hook_that_fetches_no_name_is_refused(tmp_path: Path, wanted: Any) -> None:
    class Fetching(SessionRunHook):
        def before_run(self, run_context: Any) -> SessionRunArgs:
            return SessionRunArgs(wanted)

    with pytest.raises(UsageError, match=r"the hook Fetching fetches .*; expected a name, or a list or dict of names"):
        estimator_in(tmp_path).train(rows, [Fetching()], max_steps=1)


def test_a_model_fn_that_hides_its_arguments_is_an_error_of_model_fn(tmp_path: Path) -> None:
    assert estimator_in(tmp_path, line).model_fn is line
    with pytest.raises(ModelFnTypeError):
        estimator_in(tmp_path, int)
