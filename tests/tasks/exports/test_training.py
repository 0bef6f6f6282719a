"""A training from Python whose exporters write MLflow models, which predict as the Estimator does."""

from __future__ import annotations

from pathlib import Path

import mlflow.pyfunc
import numpy as np

from psflow import EvalSpec, FinalExporter, TrainSpec, train_and_evaluate
from tests.conformance.programs import X, estimator_in, rows


def test_an_export_is_an_mlflow_model(tmp_path: Path) -> None:
    estimator = estimator_in(tmp_path / "model")
    eval_spec = EvalSpec(rows, None, exporters=FinalExporter("final"), start_delay_secs=0)
    train_and_evaluate(estimator, TrainSpec(rows), eval_spec, on_event=lambda event: None)
    [final] = (tmp_path / "model" / "export" / "final").glob("[0-9]*")
    predicted = mlflow.pyfunc.load_model(str(final)).predict({"x": X})
    np.testing.assert_array_equal(predicted["y"], [row["y"] for row in estimator.predict(rows)])
