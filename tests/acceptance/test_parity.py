"""From files to predictions without Python, beside scikit-learn on the same records.

Each model is written by ``psflow init``, trained and applied by ``psflow train`` and ``psflow predict``, and scored on
records that neither has seen: those of scikit-learn learn from all records that psflow has for training and evaluation.
"""

from __future__ import annotations

import runpy
import shutil
from functools import partial
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

from psflow.flows.init.answer import init
from psflow.flows.parameters.configuration import read_conf
from psflow.flows.parameters.train import parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.record_formats import Csv
from tests.flows.conftest import Project

pytestmark = [pytest.mark.piece(number=5), pytest.mark.cluster, pytest.mark.timeout(600)]

EXAMPLES = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "tabular_files.py"))
TOLERANCE = 0.01
"""Of accuracy, or R2."""


def invented(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return records of the examples to learn from, and others to score."""
    train, test = (EXAMPLES[name](num_rows, seed) for num_rows, seed in ((12_000, 1), (4000, 9)))
    return train.to_pandas(date_as_object=False), test.to_pandas(date_as_object=False)


def real(name: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a split of a data set of scikit-learn, with ids and words as labels."""
    bunch = {"cancer": datasets.load_breast_cancer, "diabetes": datasets.load_diabetes}[name](as_frame=True)
    frame = bunch.frame.assign(id=range(len(bunch.frame)))
    if name == "cancer":
        frame["target"] = bunch.target_names[frame["target"]]
    train, test = train_test_split(frame, test_size=0.3, random_state=seed)
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
    found = pd.concat([pd.read_parquet(part) for part in parts])
    assert len(found) == len(test)
    if "classes" in found:
        return float(accuracy_score(test[label], found["classes"]))
    return float(r2_score(test[label], found["predictions"]))


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


MLP_REGRESSOR = MLPRegressor(hidden_layer_sizes=(64, 32), early_stopping=True, random_state=0)


def normalized(regressor: Any) -> Any:
    return TransformedTargetRegressor(regressor, transformer=StandardScaler())


@pytest.mark.parametrize(
    ("name", "label", "key", "model", "peer"),
    [
        ("census", "income", "id", "LinearClassifier", LogisticRegression(max_iter=2000)),
        ("census", "income", "id", "DNNClassifier", MLPClassifier((64, 32), early_stopping=True, random_state=0)),
        pytest.param("housing", "price", "house", "LinearRegressor", Ridge(), marks=pytest.mark.ci),
        ("housing", "price", "house", "DNNRegressor", normalized(MLP_REGRESSOR)),
    ],
)
def test_from_a_file_to_predictions_as_good_as_those_of_scikit_learn(
    served_project: Project, name: str, label: str, key: str, model: str, peer: Any
) -> None:
    frames = invented(name)
    ours = psflow_score(served_project, frames, label, model)
    theirs = sklearn_score(frames, label, [key], peer)
    print(f"{name}, {model}: {ours:.4f}, scikit-learn {theirs:.4f}")
    assert ours >= theirs - TOLERANCE


def in_process_score(frames: tuple[pd.DataFrame, pd.DataFrame]) -> float:
    """Train what ``psflow init`` writes of the first frame in this process; score the best checkpoint on the second."""
    train, test = frames
    train.to_csv("known.csv", index=False)
    test.to_csv("new.csv", index=False)
    init("known.csv", "target", output=None, model=None, format_name=None, overwrites=True)
    settings = read_conf(["known.yaml", "seed=1", "model_dir=model"]).settings
    parameters = parse_parameters(settings.values, settings.origins)
    training = build_training(parameters)
    estimator, steps = training.estimator, parameters.train
    assert steps.max_steps is not None
    assert steps.save_checkpoints_steps is not None
    found = []
    for step in range(steps.save_checkpoints_steps, steps.max_steps + 1, steps.save_checkpoints_steps):
        estimator.train(training.train_spec.input_fn, max_steps=step)
        loss = estimator.evaluate(training.eval_specs[0].input_fn)["loss"]
        results = estimator.evaluate(partial(open_dataset, Csv(path="new.csv", label="target"), batch_size=len(test)))
        found.append((loss, results))
    best = min(found, key=lambda pair: pair[0])[1]
    shutil.rmtree("model")
    return best["accuracy"] if "accuracy" in best else 1 - best["average_loss"] / float(test["target"].var(ddof=0))


@pytest.mark.parametrize(("name", "peer"), [("cancer", LogisticRegression(max_iter=2000)), ("diabetes", Ridge())])
def test_few_real_records_are_learned_as_well_as_by_scikit_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, peer: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    splits = [real(name, seed) for seed in range(5)]  # a record of a split is 0.006 of its accuracy
    ours = np.mean([in_process_score(frames) for frames in splits])
    theirs = np.mean([sklearn_score(frames, "target", ["id"], peer) for frames in splits])
    print(f"{name}: {ours:.4f}, scikit-learn {theirs:.4f}, on average over {len(splits)} splits")
    assert ours >= theirs - TOLERANCE
