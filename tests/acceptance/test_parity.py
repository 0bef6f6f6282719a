"""From files to predictions without Python, beside scikit-learn on the same records.

Each model is written by ``psflow init``, trained and applied by ``psflow train`` and ``psflow predict``, and scored on
records that neither has seen: those of scikit-learn learn from all records that psflow has for training and evaluation.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.flows.conftest import Project
from tests.new_databases import copy_prefect_database, copy_store

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

EXAMPLES = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "record_files.py"))
TOLERANCE = 0.01
"""Of accuracy, or R2."""


def sample_of(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return records to learn from and records to score, with an id each."""
    if name in ("census", "housing"):
        train, test = (EXAMPLES[name](num_rows, seed) for num_rows, seed in ((12_000, 1), (4000, 9)))
        return train.to_pandas(date_as_object=False), test.to_pandas(date_as_object=False)
    bunch = {"cancer": datasets.load_breast_cancer, "diabetes": datasets.load_diabetes}[name](as_frame=True)
    frame = bunch.frame.assign(id=range(len(bunch.frame)))
    if name == "cancer":
        frame["target"] = bunch.target_names[frame["target"]]
    train, test = train_test_split(frame, test_size=0.3, random_state=0)
    return train, test


def psflow_score(project: Project, frames: tuple[pd.DataFrame, pd.DataFrame], label: str, model: str) -> float:
    """Return accuracy or R2 of predictions on the second frame."""
    train, test = frames
    train.to_csv(project.path / "known.csv", index=False)
    test.drop(columns=label).to_csv(project.path / "new.csv", index=False)
    project.run("init", "known.csv", "--label", label, "--model", model)
    project.run("train", "known.yaml", "seed=1", "plots=false")
    project.run("predict", "--model", "models:/psflow-known@best", "--input", "new.csv", "--output", "predictions")
    parts = sorted((project.path / "predictions").glob("part-*"))
    found = pd.concat(pd.read_csv(part) if part.suffix == ".csv" else pd.read_parquet(part) for part in parts)
    assert len(found) == len(test)
    if "classes" in found:
        return float(accuracy_score(test[label], found["classes"]))
    return float(r2_score(test[label], found.filter(like="predictions").iloc[:, 0]))


def sklearn_score(frames: tuple[pd.DataFrame, pd.DataFrame], label: str, keys: list[str], estimator: Any) -> float:
    """Return the score of an estimator behind the usual preparation of columns."""
    train, test = (frame.drop(columns=keys) for frame in frames)
    for frame in (train, test):
        for name in frame.select_dtypes("datetime"):
            frame[name] = (frame[name] - pd.Timestamp(0)).dt.days
    features = [name for name in train if name != label]
    numbers = [name for name in features if train[name].dtype.kind in "iuf"]
    words = [name for name in features if name not in numbers]
    prepared = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
            (
                "words",
                make_pipeline(
                    SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder(handle_unknown="ignore")
                ),
                words,
            ),
        ]
    )
    for frame in (train, test):
        frame[words] = frame[words].astype(object).where(frame[words].notna(), np.nan)
    fitted = make_pipeline(prepared, estimator).fit(train[features], train[label])
    return float(fitted.score(test[features], test[label]))


def normalized(regressor: Any) -> Any:
    return TransformedTargetRegressor(regressor, transformer=StandardScaler())


@pytest.mark.parametrize(
    ("name", "label", "keys", "model", "peer"),
    [
        ("census", "income", ["id"], "LinearClassifier", lambda: LogisticRegression(max_iter=2000)),
        (
            "census",
            "income",
            ["id"],
            "DNNClassifier",
            lambda: MLPClassifier((64, 32), early_stopping=True, random_state=0),
        ),
        ("cancer", "target", ["id"], "LinearClassifier", lambda: LogisticRegression(max_iter=2000)),
        ("cancer", "target", ["id"], "DNNClassifier", lambda: MLPClassifier((64, 32), max_iter=500, random_state=0)),
        ("housing", "price", ["house"], "LinearRegressor", Ridge),
        (
            "housing",
            "price",
            ["house"],
            "DNNRegressor",
            lambda: normalized(MLPRegressor(hidden_layer_sizes=(64, 32), random_state=0)),
        ),
        ("diabetes", "target", ["id"], "LinearRegressor", Ridge),
        (
            "diabetes",
            "target",
            ["id"],
            "DNNRegressor",
            lambda: normalized(MLPRegressor(hidden_layer_sizes=(64, 32), random_state=0)),
        ),
    ],
)
def test_a_written_configuration_does_as_well_as_scikit_learn(
    tmp_path: Path, name: str, label: str, keys: list[str], model: str, peer: Callable[[], Any]
) -> None:
    frames = sample_of(name)
    copy_store(tmp_path)
    copy_prefect_database(tmp_path / "prefect")
    ours = psflow_score(Project(tmp_path), frames, label, model)
    theirs = sklearn_score(frames, label, keys, peer())
    print(f"{name}, {model}: {ours:.4f}, scikit-learn {theirs:.4f}")
    assert ours >= theirs - TOLERANCE
