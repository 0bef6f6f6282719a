"""Canned models of tabular files: class names, weights of the records, normalized labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import DNNRegressor, LinearClassifier, RunConfig, TrainSpec
from psflow.ps_runtime.columns.options import LabelOptions
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.optimizers import Adam

CONFIG = RunConfig(tf_random_seed=3, save_checkpoints_steps=10_000)
PETS = "x,w,pet\n" + "\n".join(f"{x},{w},{pet}" for x, w, pet in [(1, 2, "cat"), (2, 0, "dog"), (3, 1, "elk")] * 8)


def records(
    folder: Path, text: str, name: str = "t.csv", *, epochs: int | None = 1, **keys: Any
) -> Callable[..., RecordInput]:
    (folder / name).write_text(text + "\n")
    return partial(
        open_dataset, Csv(**{"path": str(folder / name), "label": "pet", **keys}), batch_size=8, epochs=epochs
    )


def test_classes_are_words_and_weights_are_no_feature(tmp_path: Path) -> None:
    estimator = LinearClassifier(model_dir=str(tmp_path / "model"), config=CONFIG)
    estimator.train(records(tmp_path, PETS, weight="w", epochs=None), max_steps=60)
    names = ["global_step", "linear/linear_model/bias_weights", "linear/linear_model/x/weights"]
    assert estimator.get_variable_names() == names
    assert estimator.get_variable_value("linear/linear_model/bias_weights").shape == (3,)
    predictions = list(estimator.predict(records(tmp_path, "x\n1\n2\n3", "new.csv", label=None)))
    words = ("cat", "dog", "elk")
    assert [row["classes"][0] for row in predictions] == [words[row["class_ids"][0]] for row in predictions]
    assert "dog" not in [row["classes"][0] for row in predictions], "dogs weigh nothing"


def test_an_evaluation_weighs_the_records_as_if_they_were_repeated(tmp_path: Path) -> None:
    estimator = LinearClassifier(model_dir=str(tmp_path / "model"), config=CONFIG)
    estimator.train(records(tmp_path, PETS, weight="w"), max_steps=3)
    repeated = "x,w,pet\n" + "\n".join(["1,1,cat", "1,1,cat", "3,1,elk"] * 8)
    weighted, plain = (estimator.evaluate(records(tmp_path, text, "eval.csv")) for text in (PETS, repeated))
    for name in ("accuracy", "average_loss"):
        assert weighted[name] == pytest.approx(plain[name], rel=1e-6)
    assert weighted["loss"] == pytest.approx(weighted["average_loss"], rel=1e-6), "8 records weigh 8 in each batch"


@pytest.mark.parametrize("weight", ["-1", "inf", "1e300"])
def test_a_weight_that_is_none_is_named_before_anything_starts(tmp_path: Path, weight: str) -> None:
    estimator = LinearClassifier(model_dir=str(tmp_path / "model"), config=CONFIG)
    bad = PETS.replace("3,1,elk", f"3,{weight},elk")
    with pytest.raises(InputError, match=r"t\.csv: column 'w'(, row 4| has 8 cells).*") as caught:
        Attempt(estimator, TrainSpec(records(tmp_path, bad, weight="w"), 1), None)
    assert "row 4" in str(caught.value)
    if weight == "-1":
        estimator.train(records(tmp_path, PETS, weight="w"), max_steps=1)
        with pytest.raises(InputError, match=r"eval.csv: column 'w', row 4 .*: expected a weight, .* got -1"):
            estimator.evaluate(records(tmp_path, bad, "eval.csv"))


def test_an_evaluation_without_the_column_of_weights_is_refused(tmp_path: Path) -> None:
    estimator = LinearClassifier(model_dir=str(tmp_path / "model"), config=CONFIG)
    estimator.train(records(tmp_path, PETS, weight="w"), max_steps=1)
    with pytest.raises(InputError, match=r"column 'w' is missing|has no column 'w'"):
        estimator.evaluate(records(tmp_path, "x,pet\n1,cat", "eval.csv"))


def test_n_classes_that_contradict_the_words_are_refused(tmp_path: Path) -> None:
    estimator = LinearClassifier(n_classes=2, model_dir=str(tmp_path / "model"), config=CONFIG)
    with pytest.raises(UsageError, match="n_classes is 2, but the label 'pet' has 3 classes, 'cat', 'dog', 'elk'"):
        Attempt(estimator, TrainSpec(records(tmp_path, PETS), 1), None)


def test_a_regressor_of_normalized_labels_begins_at_their_mean(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=200)
    rows = "x,pet\n" + "\n".join(f"{a},{250_000 + 80_000 * a}" for a in x)
    estimator = DNNRegressor([8], optimizer=Adam(learning_rate=0.02), model_dir=str(tmp_path / "model"), config=CONFIG)
    label = LabelOptions("pet", normalize="standard")
    estimator.train(records(tmp_path, rows, label=label, epochs=None), max_steps=150)
    results = estimator.evaluate(records(tmp_path, rows, "eval.csv"))
    assert results["loss"] < 0.05, "of 1, which is the variance"
    assert results["average_loss"] == pytest.approx(results["loss"] * np.var(80_000 * x), rel=1e-4)
    assert results["prediction/mean"] == pytest.approx(250_000 + 80_000 * x.mean(), rel=0.05)
    [predicted] = estimator.predict(records(tmp_path, "x\n1", "new.csv", label=None))
    assert predicted["predictions"][0] == pytest.approx(330_000, rel=0.1)
