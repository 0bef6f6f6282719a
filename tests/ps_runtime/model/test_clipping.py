"""Clipped gradients: of variables and tables together, as TensorFlow and torch clip them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import psflow
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.calls.gradients import clipped
from psflow.ps_runtime.model.lookups import RowGradient

GRADIENTS = {
    "a": np.float32([3.0, 0.0]),
    "b": np.float32([[0.0, -4.0]]),
    "rows": RowGradient(np.array([2, 5]), np.float32([[12.0], [0.0]])),
}


def limited(**clips: float) -> dict[str, list[Any]]:
    found = clipped(psflow.GradientDescent(0.1, **clips), dict(GRADIENTS))
    return {name: np.ravel(getattr(gradient, "values", gradient)).tolist() for name, gradient in found.items()}


def test_a_norm_is_that_of_variables_and_rows_together() -> None:
    assert limited(clip_norm=6.5) == {"a": [1.5, 0.0], "b": [0.0, -2.0], "rows": [6.0, 0.0]}
    assert limited(clip_norm=13.0) == limited() == {"a": [3.0, 0.0], "b": [0.0, -4.0], "rows": [12.0, 0.0]}


def test_norms_of_variables_and_values() -> None:
    assert limited(clip_variable_norm=2.0) == {"a": [2.0, 0.0], "b": [0.0, -2.0], "rows": [2.0, 0.0]}
    assert limited(clip_value=3.5) == {"a": [3.0, 0.0], "b": [0.0, -3.5], "rows": [3.5, 0.0]}
    assert limited(clip_value=4.0, clip_variable_norm=3.0, clip_norm=1.0)["a"] == pytest.approx([3**-0.5, 0.0])


def test_squares_beyond_float32() -> None:
    found = clipped(psflow.GradientDescent(0.1, clip_norm=5.0), {"a": np.float32([3e30, 4e30])})
    assert found["a"] == pytest.approx([3.0, 4.0])


def test_gradients_that_are_not_finite_stay_so_and_types_stay() -> None:
    given = {"a": np.float32([np.inf, 1.0]), "b": np.float16([8.0])}
    found = clipped(psflow.GradientDescent(0.1, clip_norm=1.0), dict(given))
    assert found["a"].tolist() == [np.inf, 1.0]
    assert clipped(psflow.GradientDescent(0.1, clip_norm=1.0), {"b": given["b"]})["b"].dtype == np.float16
    assert given["b"].tolist() == [8.0], "the array of the model_fn is left alone"


def model_fn(features: Any, labels: Any, mode: Any, params: Any) -> Any:
    w = psflow.get_variable("w", (2,), initializer=psflow.initializers.zeros)
    if mode == psflow.ModeKeys.PREDICT:
        return psflow.EstimatorSpec(mode, predictions=features)
    rule = psflow.GradientDescent(1.0, clip_norm=1.0)
    if params["autograd"]:
        return psflow.EstimatorSpec(mode, loss=w[0] * 3, train_op=rule.minimize(w[0] * 3 + w[1] * 4))
    return psflow.EstimatorSpec(mode, loss=w[0], train_op=rule.apply_gradients({"w": np.float32([3, 4])}))


@pytest.mark.parametrize("autograd", [False, True])
def test_each_step_of_a_training_is_clipped(autograd: bool, tmp_path: Path) -> None:
    estimator = psflow.Estimator(model_fn, tmp_path, params={"autograd": autograd})
    estimator.train(lambda: iter([(np.zeros(2), np.zeros(2))] * 3))
    assert estimator.get_variable_value("w") == pytest.approx([-1.8, -2.4])


@pytest.mark.parametrize("most", [0.0, -1.0, math.inf, math.nan, "1", True])
def test_a_limit_is_a_number_above_zero(most: Any) -> None:
    with pytest.raises(UsageError, match=r"Adam: clip_norm is .*, expected"):
        psflow.Adam(clip_norm=most)
