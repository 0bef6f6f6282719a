"""Which modules an export takes for names that psflow imports lazily."""

from __future__ import annotations

from pathlib import Path

import pytest

from psflow.tasks.exports.code import ModelFnSource, RequiredCode

COLUMNS, HEADS = "psflow/ps_runtime/feature_columns/dense.py", "psflow/ps_runtime/model/canned/regression_head.py"


@pytest.mark.parametrize(
    ("text", "home"),
    [
        ("import psflow as tf\nX = tf.feature_column.numeric_column", COLUMNS),
        ("import psflow\nX = psflow.feature_column.numeric_column", COLUMNS),
        ("from psflow import feature_column as fc\nX = fc.numeric_column", COLUMNS),
        ("import psflow.feature_column as fc\nX = fc.numeric_column", COLUMNS),
        ("from psflow.feature_column import numeric_column", COLUMNS),
        ("import psflow as tf\nX = tf.estimator.RegressionHead", HEADS),
        ("from psflow.estimator import RegressionHead", HEADS),
        ("import psflow as tf\nX = tf.RegressionHead", HEADS),
        ("import psflow as tf\nX = tf.train.AdamOptimizer", "psflow/ps_runtime/optimizers/adam.py"),
        ("import psflow as tf\nX = tf.ModeKeys.TRAIN.value", "psflow/ps_runtime/model/spec.py"),
    ],
)
def test_an_export_takes_the_module_of_each_name(text: str, home: str, tmp_path: Path) -> None:
    file = tmp_path / "a_model.py"
    file.write_text(f"{text}\n")
    files = {str(path) for path in RequiredCode(ModelFnSource("a_model", "model_fn", file, tmp_path)).files}
    assert home in files
