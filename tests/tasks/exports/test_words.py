"""An exported classifier of tabular files: raw rows in, class names out, with or without weights."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest

from psflow import DNNClassifier, Estimator, RunConfig
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.model.evaluation import read_values
from psflow.ps_runtime.model.export.bundle import ExportBundle
from psflow.ps_runtime.optimizers import Adam
from psflow.tasks.exports.writer import MlflowModelWriter

ROWS = "x,w,pet\n" + "1,1,dog\n2,2,cat\n" * 9
CONFIG = RunConfig(tf_random_seed=3)
NEW = pd.DataFrame({"x": [2, 1]})


def exported(estimator: Estimator, data: Csv, path: Path) -> mlflow.pyfunc.PyFuncModel:
    """Train for some steps, export, and load the export as MLflow does."""
    input_fn = partial(open_dataset, data, batch_size=6, epochs=None)
    estimator.train(input_fn, max_steps=100)
    store = CheckpointStore(estimator.model_dir)
    with CheckpointReader.pinned(store, 100, "test") as reader:
        values, schema = read_values(reader), reader.manifest.model.schema
    assert schema is not None
    example = {"x": np.zeros(1, np.float32)}
    predictions = estimator.predict(partial(open_dataset, Csv(path=data.path)), yield_single_examples=False)
    bundle = ExportBundle(
        "m", 100, values, estimator.model_fn, dict(estimator.params), example, next(predictions), {}, 0.0, schema
    )
    path.mkdir()
    MlflowModelWriter().write(str(path), bundle)
    return mlflow.pyfunc.load_model(str(path))


@pytest.fixture
def data(tmp_path: Path) -> str:
    (tmp_path / "t.csv").write_text(ROWS)
    return str(tmp_path / "t.csv")


def test_an_export_says_words_and_needs_no_weights(tmp_path: Path, data: str) -> None:
    source = Csv(path=data, label="pet", weight="w", features=["x"])
    estimator = DNNClassifier([8], optimizer=Adam(learning_rate=0.05), model_dir=str(tmp_path / "m"), config=CONFIG)
    model = exported(estimator, source, tmp_path / "export")
    predicted = model.predict(NEW)
    assert predicted["classes"].tolist() == [["cat"], ["dog"]]
    assert predicted["class_ids"].tolist() == [[0], [1]]
    outputs = {column["name"]: column["tensor-spec"]["dtype"] for column in model.metadata.signature.outputs.to_dict()}
    assert outputs["classes"] == "str"
    assert [column.name for column in model.metadata.get_input_schema()] == ["x"]
