"""A training from Python whose exporters write MLflow models, which predict as the Estimator does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pytest

from psflow import EvalSpec, FinalExporter, TrainSpec, train_and_evaluate
from psflow.ps_runtime.errors import UsageError
from tests.conformance.programs import X, estimator_in, rows


def test_an_export_is_an_mlflow_model(tmp_path: Path) -> None:
    estimator = estimator_in(tmp_path / "model")
    eval_spec = EvalSpec(rows, None, exporters=FinalExporter("final"), start_delay_secs=0)
    train_and_evaluate(estimator, TrainSpec(rows), eval_spec, on_event=lambda event: None)
    [final] = (tmp_path / "model" / "export" / "final").glob("[0-9]*")
    predicted = mlflow.pyfunc.load_model(str(final)).predict({"x": X})
    np.testing.assert_array_equal(predicted["y"], [row["y"] for row in estimator.predict(rows)])


@pytest.mark.parametrize(
    ("options", "kind", "fault"),
    [
        ({"client": 3}, TypeError, "client should be a distributed.Client or None, got int 3"),
        ({"client": "tcp://h:1"}, TypeError, "client should be a distributed.Client or None, got str"),
        ({"num_ps": True}, TypeError, "num_ps should be an int, got bool True"),
        ({"num_ps": np.array([1, 1])}, TypeError, "num_ps should be an int, got ndarray"),
        ({"num_ps": 0}, ValueError, "num_ps should be 1 or more, got 0"),
        ({"num_workers": 0.5}, TypeError, "num_workers should be an int, got float 0.5"),
        ({"num_workers": -1}, ValueError, "num_workers should be 0 or more, got -1"),
        ({"min_workers": 1.5}, TypeError, "min_workers should be an int, got float 1.5"),
        ({"min_workers": -1}, ValueError, "min_workers should be 0 or more, got -1"),
        ({"num_workers": 2, "min_workers": 3}, ValueError, "min_workers should be at most num_workers, 2, got 3"),
        ({"probe_timeout_secs": 0}, ValueError, "probe_timeout_secs should be greater than 0, got 0"),
        ({"probe_timeout_secs": "30"}, TypeError, "probe_timeout_secs should be a number, got str '30'"),
        ({"writer": "mlflow"}, TypeError, "writer should be a ModelWriter, with a method write.* got str 'mlflow'"),
        ({"on_event": "print"}, TypeError, "on_event should be callable, got str 'print'"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_starts(
    tmp_path: Path, options: Any, kind: type[Exception], fault: str
) -> None:
    estimator = estimator_in(tmp_path / "model")
    with pytest.raises(kind, match=f"^train_and_evaluate: {fault}") as caught:
        train_and_evaluate(estimator, TrainSpec(rows, 1), EvalSpec(rows), **options)
    assert isinstance(caught.value, UsageError)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("options", [{"max_restarts": 0}, {"max_restarts": 1}, {"probe_timeout_secs": 5.0}])
def test_what_is_of_a_cluster_is_refused_without_one(tmp_path: Path, options: Any) -> None:
    estimator, [(name, given)] = estimator_in(tmp_path / "model"), options.items()
    with pytest.raises(ValueError, match=rf"^{name}={given} needs a cluster: pass client=distributed\.Client"):
        train_and_evaluate(estimator, TrainSpec(rows), EvalSpec(rows), **options)
